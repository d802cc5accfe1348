"""Continuing chains for temporal differences: LANES of them, each with restarts, side by side.

A chain moves by the restart kernel gamma P + (1 - gamma) rho: a segment begins with (s, a) ~ rho pi and has T + 1
transitions, T as in ``rollouts``; then the next segment begins. So each pair goes on with probability gamma. The chain
is ergodic where one without restarts is not (absorbing states), and the stationary law of the pairs from which it
moves is nu, the occupancy: sum_t (1-gamma) gamma^t Pr(s_t, a_t), for t transitions into a segment is reached with
probability gamma^t. A restart draws no s' ~ P, so it is no sample.

The schedule is part of the definition, so that a plain program replays it. In rounds: chains at work (0 .. n-1) whose
segment is over take, in the order of the lanes and each from its own stream, one word for T and one for the state
and action; then *every* lane draws one word, and the chains at work make one transition with it, as in ``rollouts``.
"""

from __future__ import annotations

import numpy as np

from fastcmdp.kernels.jit import inlined
from fastcmdp.kernels.sampling.lanes import (
    CHOICE,
    CODE,
    N_SECTIONS,
    ROW,
    WORD,
    action_bits,
    branch_bits,
    draw_words,
    leave_streams,
    next_of_lane,
    take_streams,
)
from fastcmdp.kernels.sampling.rollouts import LEFT, count_down, geometric_horizon
from fastcmdp.kernels.sampling.tables import branch_row, draw_action, draw_label, draw_start, prepare_row
from fastcmdp.kernels.streams import LANES
from fastcmdp.kernels.words import U64

# LEFT is what is left of the segment, as of a rollout; here, the pair that a transition leads to.
NEXT = (N_SECTIONS + 1) * LANES
N_WORDS = (N_SECTIONS + 2) * LANES


@inlined
def load_chains(rng, chain, choice_word, words, lane):
    """Take up the streams, and where the chains stand: chain[0] their pairs, chain[1] transitions left."""
    take_streams(lane, rng)
    for i in range(LANES):
        lane[CHOICE + i] = U64(chain[0, i])
        lane[LEFT + i] = U64(chain[1, i])
        lane[ROW + i] = choice_word[words * lane[CHOICE + i]]


@inlined
def store_chains(rng, chain, lane):
    """Put back what ``load_chains`` took."""
    leave_streams(lane, rng)
    for i in range(LANES):
        chain[0, i] = np.int64(lane[CHOICE + i])
        chain[1, i] = np.int64(lane[LEFT + i])


@inlined
def restart_chains(tables, actions, start_entry, entry, choice_word, words, log_gamma_inverse, lane, n):
    """Begin a segment in those of lanes 0..n-1 whose segment is over."""
    for i in range(n):
        if lane[LEFT + i] != U64(0):
            continue
        lane[LEFT + i] = U64(geometric_horizon(next_of_lane(lane, i), log_gamma_inverse) + 1)
        word = next_of_lane(lane, i)
        code = draw_start(start_entry, branch_bits(entry, word))
        prepare_row(actions, tables, code)
        q = draw_action(entry, code, action_bits(entry, lane, i, word))
        lane[CHOICE + i] = q
        lane[ROW + i] = choice_word[words * q]


@inlined
def draw_next(tables, actions, branch_entry, entry, lane, n):
    """Draw the pairs that lanes 0..n-1 move to, in stages so that their loads overlap."""
    draw_words(lane)
    for i in range(n):
        first, length = branch_row(lane[ROW + i])
        lane[CODE + i] = draw_label(branch_entry, first, length, branch_bits(entry, lane[WORD + i]))
    for i in range(n):
        prepare_row(actions, tables, lane[CODE + i])
        bits = action_bits(entry, lane, i, lane[WORD + i])
        lane[NEXT + i] = draw_action(entry, lane[CODE + i], bits)


@inlined
def move_on(choice_word, words, lane, n, pair, n_pairs):
    """Move lanes 0..n-1 to their next pairs; write the last pairs of segments that end to ``pair``.

    The last pair of a segment has the law nu, whatever the segment before. Return how many segments have ended,
    and how many pairs stand in ``pair`` (no more than it holds).
    """
    ended = count_down(lane, n)
    if ended != U64(0):
        for i in range(n):
            if lane[LEFT + i] == U64(0) and n_pairs < pair.shape[0]:
                pair[n_pairs] = np.int64(lane[CHOICE + i])
                n_pairs += 1
    for i in range(n):
        q = lane[NEXT + i]
        lane[CHOICE + i] = q
        lane[ROW + i] = choice_word[words * q]
    return ended, n_pairs
