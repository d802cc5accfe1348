"""The pieces of the solvers for other people's loops: njit functions, and the same as C functions.

Everything under "njit" may be called from a user's own `@njit` code (and from Python). Arrays are NumPy arrays, a
*choice* q is an action available in a state, signals are the reward and the constraints in kernel units: maximise
the first, keep J of the others >= 0. numba refuses arrays of types that do not do (a TypingError when it compiles). A
ValueError is raised by all that does more than one step, where arrays have wrong sizes, are no float64 where numbers
are written, or where a policy or batch belongs to another model; and by every draw from what is no uint64. Indices and
sizes of single steps and draws are not checked: what is out of range reads foreign memory.

streams
    `stream(seed, replicate, lane)` uint64[4]; `streams(seed, replicate)` uint64[4, LANES], as `solve` has them; seeds
    are integers from 0 to 2^64 - 1, others are taken modulo 2^64
draws
    `word(rng)`, `uniform(rng)`, `normal(rng)`, `exponential(rng)`, `geometric(rng, gamma)`, `categorical(rng, weight)`
tables
    `build(state_to_choice, choice_to_branch, branch_target, branch_prob, signals, start, gamma)` -> `Model`
policies
    `policy(model, prob)` -> `Policy`; `softmax(model, theta, policy)`; `refresh(model, policy)`
one step
    `first_state(model, rng)`, `next_state(model, rng, q)`, `act(model, policy, rng, s)`; state and action together:
    `first_pair(model, policy, rng)`, `step(model, policy, rng, q)`
rollout
    `rollout(model, policy, rng, q, total)` -> (last choice, transitions)
batch
    `batch(model, n_pairs)` -> `Batch`; `sample_batch(model, policy, lanes, fresh, batch)` -> transitions
updates
    `momentum(g_squared, mu_f)`, `asgd(steps, score, target, omega)`,
    `asgd_tabular(model, policy, steps, pair, target, omega)`, `dual_step(dual, zeta, estimate, dual_max)`

These names, their arguments and the random words they spend stay as they are from version to version; new ones may
come. `fastcmdp.kernels` itself is not stable. From Python, `from_cmdp` makes the `Model` of a `CMDP`, `c_api` gives the
C functions, `c_model` a model for them. docs/embedding.md shows each way in ten lines.

Examples
--------
>>> from numba import njit
>>> import numpy as np, fastcmdp as fc
>>> from fastcmdp import embed
>>> @njit
... def visits(model, policy, rng, n):
...     count = np.zeros(model.state_row.size, np.int64)
...     q = embed.first_pair(model, policy, rng)
...     for _ in range(n):
...         count[model.choice_state[q]] += 1
...         q = embed.step(model, policy, rng, q)
...     return count
>>> model = embed.from_cmdp(fc.envs.river_swim())
>>> policy = embed.policy(model, np.full(model.choice_state.size, 0.5))
>>> int(visits(model, policy, embed.stream(0, 0, 0), 1000).sum())
1000
"""

from __future__ import annotations

import operator

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from fastcmdp.cmdp import CMDP
from fastcmdp.embed.c import CApi, c_api, c_model
from fastcmdp.errors import SettingError
from fastcmdp.kernels.draws import categorical, exponential, geometric, normal, uniform, word
from fastcmdp.kernels.embed.model import build, policy, refresh, softmax
from fastcmdp.kernels.embed.pieces import (
    Batch,
    act,
    asgd,
    asgd_tabular,
    batch,
    dual_step,
    first_pair,
    first_state,
    momentum,
    next_state,
    rollout,
    sample_batch,
    seeded_lanes,
    seeded_stream,
    step,
)
from fastcmdp.kernels.sampling.tables import Actions as Policy
from fastcmdp.kernels.sampling.tables import Tables as Model
from fastcmdp.kernels.streams import LANES
from fastcmdp.tables import build_tables

Words = npt.NDArray[np.uint64]

__all__ = [
    "LANES",
    "Batch",
    "CApi",
    "Model",
    "Policy",
    "act",
    "asgd",
    "asgd_tabular",
    "batch",
    "build",
    "c_api",
    "c_model",
    "categorical",
    "dual_step",
    "exponential",
    "first_pair",
    "first_state",
    "from_cmdp",
    "geometric",
    "momentum",
    "next_state",
    "normal",
    "policy",
    "refresh",
    "rollout",
    "sample_batch",
    "softmax",
    "step",
    "stream",
    "streams",
    "uniform",
    "word",
]


def stream(seed: int, replicate: int, lane: int) -> Words:
    """The stream of a lane of a replicate, uint64[4]; integers are taken modulo 2^64, also in njit code.

    Examples
    --------
    >>> from fastcmdp import embed
    >>> (embed.stream(2**64 + 3, 0, 0) == embed.stream(3, 0, 0)).all()
    np.True_
    """
    words: Words = seeded_stream(*map(_word, (seed, replicate, lane)))
    return words


def streams(seed: int, replicate: int) -> Words:
    """All lanes of a replicate, uint64[4, LANES], as ``solve`` has them; integers are taken modulo 2^64.

    Examples
    --------
    >>> from fastcmdp import embed
    >>> embed.streams(0, 0).shape
    (4, 16)
    """
    words: Words = seeded_lanes(_word(seed), _word(replicate))
    return words


def _word(number: int) -> np.uint64:
    """An integer as a word. Kernels compiled for small ones would refuse those beyond 2^63."""
    return np.uint64(operator.index(number) % 2**64)


@overload(stream)
def _stream(seed, replicate, lane):  # type: ignore[no-untyped-def]
    return lambda seed, replicate, lane: seeded_stream(np.uint64(seed), np.uint64(replicate), np.uint64(lane))


@overload(streams)
def _streams(seed, replicate):  # type: ignore[no-untyped-def]
    return lambda seed, replicate: seeded_lanes(np.uint64(seed), np.uint64(replicate))


def from_cmdp(cmdp: CMDP, draws: str = "fast") -> Model:
    """The `Model` of a CMDP, for the njit functions of this module.

    Parameters
    ----------
    cmdp : CMDP
    draws : "fast" or "exact"
        "fast" draws are within (n + 1) 2^-32 of a row of n in total variation and spend one word on a state and its
        action; "exact" ones within (n + 1) 2^-53, and two words. C functions take "fast" models only.

    Raises
    ------
    SettingError
        Another `draws`, or something else than a CMDP (a simulator has no tables).

    Examples
    --------
    >>> import fastcmdp as fc
    >>> model = fc.embed.from_cmdp(fc.envs.river_swim())
    >>> int(fc.embed.next_state(model, fc.embed.stream(0, 0, 0), 0))
    0
    """
    if not isinstance(cmdp, CMDP):
        raise SettingError(f"a fastcmdp.CMDP is expected, got {type(cmdp).__name__}")
    return build_tables(cmdp, draws)
