"""LANES walks of a model side by side: where a lane's words stand, and their random streams.

Everything about a lane stands in one array of 64-bit words, section after section: the compiler then sees that the
sections do not overlap, and advances all streams with vector instructions (1.4 times faster). Whoever walks adds
sections after these.

The stages that draw a branch and an action stand in each walk (`rollouts`, `chains`, `truncated`): shared as a
function of the tables, they cost 1.1 to 1.4 times as much, for the references to its arrays are then counted.
"""

from __future__ import annotations

import numpy as np
from numba import types

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import inlined
from fastcmdp.kernels.streams import LANES

_U64 = np.uint64
_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)

# The stream's four words; the word drawn; where the branches of its pair stand; the row code drawn; its pair.
A, B, C, D, WORD, ROW, CODE, CHOICE = (k * LANES for k in range(8))
N_SECTIONS = 8


@inlined
def next_of_lane(lane, i):
    """Draw the next word of lane i: SFC64, as streams.next_word, on the lane's sections."""
    word = lane[A + i] + lane[B + i] + lane[D + i]
    lane[A + i] = lane[B + i] ^ (lane[B + i] >> _U64(11))
    lane[B + i] = lane[C + i] + (lane[C + i] << _U64(3))
    lane[C + i] = ((lane[C + i] << _U64(24)) | (lane[C + i] >> _U64(40))) + word
    lane[D + i] += _ONE
    return word


@generic("entry", inline=True)
def branch_bits(entry, word):
    """The part of a lane's word that picks a branch (or a start state)."""


@branch_bits.on(types.uint32)
def high_half(entry, word):
    return word >> _HALF


@branch_bits.on(types.float64)
def whole_word(entry, word):
    return word


@generic("entry", inline=True)
def action_bits(entry, lane, i, word):
    """The part of a lane's word that picks an action: its low half, or a new word for exact draws."""


@action_bits.on(types.uint32)
def low_half(entry, lane, i, word):
    return word & _LOW


@action_bits.on(types.float64)
def new_word(entry, lane, i, word):
    return next_of_lane(lane, i)


@inlined
def draw_words(lane):
    """Draw one word of every lane into section WORD; written out, so that the compiler uses vector instructions.

    (1.3 times faster than a loop over ``next_of_lane``.)
    """
    for i in range(LANES):
        b, c, d = lane[B + i], lane[C + i], lane[D + i]
        word = lane[A + i] + b + d
        lane[A + i] = b ^ (b >> _U64(11))
        lane[B + i] = c + (c << _U64(3))
        lane[C + i] = ((c << _U64(24)) | (c >> _U64(40))) + word
        lane[D + i] = d + _ONE
        lane[WORD + i] = word
