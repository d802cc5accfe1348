"""Random streams: SFC64 (Doty-Humphrey, PractRand), draw for draw equal to numpy.random.SFC64.

A replicate owns LANES streams, one for each rollout in flight. They stand in one array ``rng`` of shape
(4, LANES): words a, b, c and the counter of every lane side by side, so that one vector instruction advances
several lanes.
"""

from __future__ import annotations

import numpy as np

from fastcmdp.kernels.jit import kernel

LANES = 16  # rollouts in flight: enough to hide the latency of memory, few enough to stay in registers and L1

_U64 = np.uint64
_TO_UNIT = 2.0**-53


@kernel
def next_word(rng, lane):
    """Draw the next 64-bit word of one lane."""
    a, b, c, counter = rng[0, lane], rng[1, lane], rng[2, lane], rng[3, lane]
    word = a + b + counter
    rng[0, lane] = b ^ (b >> _U64(11))
    rng[1, lane] = c + (c << _U64(3))
    rng[2, lane] = ((c << _U64(24)) | (c >> _U64(40))) + word
    rng[3, lane] = counter + _U64(1)
    return word


@kernel
def to_unit(word):
    """Map a word to a double in [0, 1) with 53 bits, as numpy's Generator.random does."""
    return (word >> _U64(11)) * _TO_UNIT
