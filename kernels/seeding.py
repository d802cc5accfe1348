"""Streams by (seed, replicate, lane) without Python: numpy's SeedSequence and the seeding of its SFC64.

The words are those of ``numpy.random.SFC64(numpy.random.SeedSequence(seed, spawn_key=(replicate, lane)))``. The hash
is O'Neill's seed_seq_fe (2015) as numpy has it: a pool of four 32-bit words into which the entropy is mixed, from
which words are then squeezed. 32-bit numbers are kept in the low halves of 64-bit ones.
"""

from __future__ import annotations

import numpy as np

from fastcmdp.kernels.draws import word
from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.streams import LANES
from fastcmdp.kernels.words import HALF, LOW, U64

_SHIFT = np.uint64(16)
_POOL = 4
_INIT_IN, _MULT_IN = np.uint64(0x43B0D7E5), np.uint64(0x931E8875)
_INIT_OUT, _MULT_OUT = np.uint64(0x8B51F9DD), np.uint64(0x58F38DED)
_MIX_LEFT, _MIX_RIGHT = np.uint64(0xCA01F9DD), np.uint64(0x4973F715)
_WARM_UP = 12  # words that SFC64 throws away


@kernel
def _append(entropy, n, number):
    """Put the 32-bit words of a number behind the n that stand there, low word first; how many there are then."""
    entropy[n] = number & LOW
    if number >> HALF == U64(0):
        return n + 1
    entropy[n + 1] = number >> HALF
    return n + 2


@kernel
def _hashed(value, constant, factor):
    """A word hashed, and the constant for the next one."""
    value ^= constant
    constant = (constant * factor) & LOW
    value = (value * constant) & LOW
    return value ^ (value >> _SHIFT), constant


@kernel
def _mixed(x, y):
    z = (_MIX_LEFT * x - _MIX_RIGHT * y) & LOW
    return z ^ (z >> _SHIFT)


@kernel
def seed_stream(seed, replicate, lane, rng):
    """Set rng, uint64[4], to the beginning of a stream; the three numbers are uint64."""
    entropy = np.zeros(_POOL + 4, np.uint64)
    _append(entropy, 0, seed)
    n = _append(entropy, _append(entropy, _POOL, replicate), lane)  # a seed before a key fills the pool
    pool = np.empty(_POOL, np.uint64)
    constant = _INIT_IN
    for i in range(_POOL):
        pool[i], constant = _hashed(entropy[i], constant, _MULT_IN)
    for source in range(_POOL):
        for i in range(_POOL):
            if i != source:
                hashed, constant = _hashed(pool[source], constant, _MULT_IN)
                pool[i] = _mixed(pool[i], hashed)
    for source in range(_POOL, n):
        for i in range(_POOL):
            hashed, constant = _hashed(entropy[source], constant, _MULT_IN)
            pool[i] = _mixed(pool[i], hashed)
    constant = _INIT_OUT
    for i in range(3):
        low, constant = _hashed(pool[2 * i % _POOL], constant, _MULT_OUT)
        high, constant = _hashed(pool[(2 * i + 1) % _POOL], constant, _MULT_OUT)
        rng[i] = low | (high << HALF)
    rng[3] = U64(1)
    for _ in range(_WARM_UP):
        word(rng)


@kernel
def seed_lanes(seed, replicate, rng):
    """Set rng, uint64[4, LANES], to the lanes of a replicate, as ``fc.solve`` seeds them."""
    one = np.empty(4, np.uint64)
    for lane in range(LANES):
        seed_stream(seed, replicate, U64(lane), one)
        for k in range(4):  # a slice would take seconds to compile
            rng[k, lane] = one[k]
