"""Sweeps over vectors, with sums in any order: they vectorise only so; and where a vector begins in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastcmdp.kernels.jit import reassociated

_LINE = 64  # bytes of a cache line, and of the widest vector


def on_line(x: Any) -> Any:
    """An array of doubles, or a copy that begins with a cache line: where not, each wide load reads two.

    Python runs it as it stands. Rows of eight doubles, or a multiple, then begin with a line too.
    """
    if x.ctypes.data % _LINE == 0:
        return x
    memory = np.empty(x.size + _LINE // 8)
    skip = -(memory.ctypes.data >> 3) % (_LINE // 8)
    copy = memory[skip : skip + x.size].reshape(x.shape)
    copy[...] = x
    return copy


@reassociated
def dot(x, y):
    """Inner product of two vectors."""
    total = 0.0
    for j in range(x.shape[0]):
        total += x[j] * y[j]
    return total


@reassociated
def combine(out, keep, x, weight, y, other):
    """out = keep out + weight x + other y: two rows a sweep, for memory is what a sweep costs."""
    for j in range(out.shape[0]):
        out[j] = keep * out[j] + weight * x[j] + other * y[j]


@reassociated
def dot_at(x, first, y, offset, n):
    """Inner product of x[first:first+n] and y[offset:offset+n]."""
    total = 0.0
    for j in range(n):
        total += x[first + j] * y[offset + j]
    return total


@reassociated
def add_at(out, first, weight, y, offset, n):
    """out[first:first+n] += weight y[offset:offset+n]."""
    for j in range(n):
        out[first + j] += weight * y[offset + j]
