"""A word by which another thread tells kernels to stop: in Tables and Addresses, one a run, shared by its replicates.

0: go on. FINISH: begin no further outer step. LEAVE: leave the one at hand, too; what it has changed is no state of
the method, and whoever wrote the word puts back what was there before.

Whatever draws transitions looks at the word once a round or step, and outer loops before each outer step and after
its draws. What else there is in an outer step is bounded by the memory that it walks through, so by seconds.
"""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

from fastcmdp.kernels.jit import inlined

FINISH, LEAVE = 1, 2


@intrinsic
def _read(typing, stop):
    """stop[0] as it is in memory now: a plain load might be moved out of the loop."""

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.load_atomic(array.data, "monotonic", 8)

    return types.int64(stop), generate


@inlined
def finishes(stop):
    """Whether no further outer step is to begin."""
    return _read(stop) != 0


@inlined
def leaves(stop):
    """Whether the outer step at hand is to be left."""
    return _read(stop) >= 2
