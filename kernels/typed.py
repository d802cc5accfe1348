"""Types of arguments, asked when a kernel is compiled: the answers are constants, so asking costs no time."""

from __future__ import annotations

from numba import types
from numba.extending import overload

from fastcmdp.kernels.jit import INLINE


def require_stream(rng):
    """ValueError unless these are words, uint64 in one axis; other integers would give negative uniforms."""


@overload(require_stream, jit_options=INLINE)
def _require_stream(rng):
    if _is_array(rng, types.uint64, 1):
        return lambda rng: None

    def refuse(rng):
        raise ValueError("rng is no stream: uint64[4], as embed.stream(seed, replicate, lane) makes it")

    return refuse


def are_doubles(x):
    """Whether x is an array of float64 in one axis: others would truncate what is written."""


@overload(are_doubles, jit_options=INLINE)
def _are_doubles(x):
    return (lambda x: True) if _is_array(x, types.float64, 1) else (lambda x: False)


def are_lanes(x):
    """Whether x is an array of words, uint64 in two axes."""


@overload(are_lanes, jit_options=INLINE)
def _are_lanes(x):
    return (lambda x: True) if _is_array(x, types.uint64, 2) else (lambda x: False)


def are_alike(x, y):
    """Whether two arrays are of one type."""


@overload(are_alike, jit_options=INLINE)
def _are_alike(x, y):
    return (lambda x, y: True) if x.dtype == y.dtype else (lambda x, y: False)


def _is_array(kind, dtype, ndim):
    return isinstance(kind, types.Array) and kind.dtype == dtype and kind.ndim == ndim
