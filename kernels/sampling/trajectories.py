"""Trajectories of a fixed length from the start, every pair of them recorded, LANES in step.

A trajectory of N pairs makes N - 1 transitions. The schedule is part of the definition, so that a plain program replays
it: trajectories are taken in order, LANES at a time, the i-th of a group by lane i. A lane draws one word for its first
pair, high half the state, low half the action; then, N - 1 times, *every* lane draws one word and those with a
trajectory make one transition with it, as in `rollouts`.
"""

from __future__ import annotations

import numpy as np

from fastcmdp.kernels.jit import kernel
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
from fastcmdp.kernels.sampling.tables import branch_row, draw_action, draw_label, draw_start, prepare_row
from fastcmdp.kernels.stop import leaves
from fastcmdp.kernels.streams import LANES
from fastcmdp.kernels.words import U64


@kernel
def trajectories(tables, actions, rng, out):
    """Record B trajectories of N pairs; return the number of transitions made.

    tables : Tables; actions : Actions or LazyActions of the policy
    rng : uint64[4, LANES], advanced
    out : int64[B, N], the pairs (choices)
    """
    start_entry, branch_entry, entry = tables.start_entry, tables.branch_entry, actions.entry
    choice_word, words, stop = tables.choice_word, U64(tables.words), tables.stop
    lane = np.empty(N_SECTIONS * LANES, np.uint64)
    take_streams(lane, rng)
    n_paths, n_pairs = out.shape
    first = 0
    while first < n_paths and not leaves(stop):
        n = min(LANES, n_paths - first)
        for i in range(n):
            word = next_of_lane(lane, i)
            code = draw_start(start_entry, branch_bits(entry, word))
            prepare_row(actions, tables, code)
            lane[CHOICE + i] = draw_action(entry, code, action_bits(entry, lane, i, word))
            lane[ROW + i] = choice_word[words * lane[CHOICE + i]]
            out[first + i, 0] = np.int64(lane[CHOICE + i])
        for j in range(1, n_pairs):
            if leaves(stop):
                break
            draw_words(lane)
            for i in range(n):
                row, length = branch_row(lane[ROW + i])
                lane[CODE + i] = draw_label(branch_entry, row, length, branch_bits(entry, lane[WORD + i]))
            for i in range(n):
                prepare_row(actions, tables, lane[CODE + i])
                bits = action_bits(entry, lane, i, lane[WORD + i])
                lane[CHOICE + i] = draw_action(entry, lane[CODE + i], bits)
            for i in range(n):
                lane[ROW + i] = choice_word[words * lane[CHOICE + i]]
                out[first + i, j] = np.int64(lane[CHOICE + i])
        first += n
    leave_streams(lane, rng)
    return n_paths * (n_pairs - 1)
