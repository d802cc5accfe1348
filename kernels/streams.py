"""Random streams: SFC64 (Doty-Humphrey, PractRand), draw for draw equal to numpy.random.SFC64.

A replicate owns LANES streams, one for each rollout in flight. They stand in one array ``rng`` of shape
(4, LANES): words a, b, c and the counter of every lane side by side, so that one vector instruction advances
several lanes.
"""

from __future__ import annotations

from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.words import ONE, U64

LANES = 16  # rollouts in flight: enough to hide the latency of memory, few enough to stay in registers and L1

_TO_UNIT = 2.0**-53


@inlined
def sfc64(a, b, c, counter):
    """The next word of a stream, and the four words that the stream then is."""
    word = a + b + counter
    return (
        word,
        b ^ (b >> U64(11)),
        c + (c << U64(3)),
        ((c << U64(24)) | (c >> U64(40))) + word,
        counter + ONE,
    )


@inlined
def next_word(rng, lane):
    """Draw the next 64-bit word of one lane."""
    word, rng[0, lane], rng[1, lane], rng[2, lane], rng[3, lane] = sfc64(
        rng[0, lane], rng[1, lane], rng[2, lane], rng[3, lane]
    )
    return word


@kernel
def to_unit(word):
    """Map a word to a double in [0, 1) with 53 bits, as numpy's Generator.random does."""
    return (word >> U64(11)) * _TO_UNIT
