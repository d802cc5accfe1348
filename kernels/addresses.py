"""Arrays over memory that Python or a host in C names by its address."""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from fastcmdp.kernels.jit import inlined


@intrinsic
def pointer(typing_context, address):
    """The pointer with this address."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


@inlined
def listed(rows, k, dtype):
    """Array k of a directory, flat. A directory, int64[n, 2], has a row for each array: its address and size. A kernel
    that is called from Python for little work takes it in place of the arrays, which must outlive it.
    """
    return carray(pointer(rows[k, 0]), (rows[k, 1],), dtype)
