"""Discounted rollouts of a fixed length, LANES of them in step: what a generative model gives PMD-PD.

A rollout of N pairs makes N - 1 transitions and returns sum_{j<N} gamma^j f(s_j, a_j) for each signal f; it falls
short of the infinite sum by at most gamma^N / (1-gamma) max|f|.

The schedule is part of the definition, so that a plain program replays it: rollouts are taken in order, LANES at a
time, the i-th of a group by lane i. Where the first pair is drawn, a lane draws one word for it, high half the state,
low half the action. Then, N - 1 times, *every* lane draws one word and those with a rollout make one transition with
it, as in `rollouts`.

A `Tally` counts the pairs on the way: with the chance of each first pair under rho and pi, that is the discounted
occupancy, cut at N as the sums are, without a draw of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import inlined, kernel
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
from fastcmdp.kernels.sampling.tables import branch_row, draw_action, draw_label, draw_start
from fastcmdp.kernels.stop import leaves
from fastcmdp.kernels.streams import LANES
from fastcmdp.kernels.words import U64


class NoTally(NamedTuple):
    """Visits are not counted."""


class Tally(NamedTuple):
    """Visits, each with the chance of the rollout's start and the discount."""

    start: np.ndarray  # float64[S], rho
    chance: np.ndarray  # float64[G], of each start
    visit: np.ndarray  # float64[C]


@generic("tally")
def note(tally, first, repeats, weight, lane, n):
    """Count the pairs at which lanes 0..n-1 are; their rollouts are first, first + 1, .."""


@note.on(NoTally)
def note_nothing(tally, first, repeats, weight, lane, n):
    pass


@note.on(Tally)
def note_visits(tally, first, repeats, weight, lane, n):
    for i in range(n):
        tally.visit[lane[CHOICE + i]] += weight * tally.chance[(first + i) // repeats]


@inlined
def _step(branch_entry, entry, choice_word, words, signal, n_signals, weight, lane, total, n):
    """One transition of lanes 0..n-1, in stages so that their loads overlap."""
    draw_words(lane)
    for i in range(n):
        first, length = branch_row(lane[ROW + i])
        lane[CODE + i] = draw_label(branch_entry, first, length, branch_bits(entry, lane[WORD + i]))
    for i in range(n):
        bits = action_bits(entry, lane, i, lane[WORD + i])
        lane[CHOICE + i] = draw_action(entry, lane[CODE + i], bits)
    for i in range(n):
        q = lane[CHOICE + i]
        lane[ROW + i] = choice_word[words * q]
        total[i] += weight * signal[U64(n_signals) * q]
    for k in range(1, n_signals):
        for i in range(n):
            total[k * LANES + i] += weight * signal[U64(n_signals) * lane[CHOICE + i] + U64(k)]


@kernel
def truncated(tables, actions, rng, starts, repeats, signal, gamma, n_pairs, out, tally):
    """Run ``repeats`` rollouts from each start and sum them up; return the number of transitions made.

    tables : Tables; actions : Actions of the policy
    rng : uint64[4, LANES], advanced
    starts : int64[G], first pairs, or -1: then state and action are drawn
    signal : float64[C, n]; gamma : discount; n_pairs : N >= 1
    out : float64[G, n], for each start the sum over its rollouts of their discounted sums
    tally : Tally, whose visits are added to, or NoTally
    """
    n_signals, stop = signal.shape[1], tables.stop
    flat = signal.reshape(-1)
    start_entry, branch_entry, entry = tables.start_entry, tables.branch_entry, actions.entry
    choice_word, words = tables.choice_word, U64(tables.words)
    lane = np.empty(N_SECTIONS * LANES, np.uint64)
    total = np.zeros(n_signals * LANES)
    take_streams(lane, rng)
    out[:] = 0.0
    n_jobs = starts.shape[0] * repeats
    first = 0
    while first < n_jobs and not leaves(stop):
        n = min(LANES, n_jobs - first)
        for i in range(n):
            q = starts[(first + i) // repeats]
            if q < 0:
                word = next_of_lane(lane, i)
                code = draw_start(start_entry, branch_bits(entry, word))
                q = np.int64(draw_action(entry, code, action_bits(entry, lane, i, word)))
            lane[CHOICE + i] = U64(q)
            lane[ROW + i] = choice_word[words * U64(q)]
            for k in range(n_signals):
                total[k * LANES + i] = flat[n_signals * q + k]
        weight = 1.0
        note(tally, first, repeats, weight, lane, n)
        for _ in range(1, n_pairs):
            if leaves(stop):
                break
            weight *= gamma
            # The same lines twice, for with constant numbers the compiler unrolls them.
            if n == LANES and n_signals == 1:
                _step(branch_entry, entry, choice_word, words, flat, 1, weight, lane, total, LANES)
            else:
                _step(branch_entry, entry, choice_word, words, flat, n_signals, weight, lane, total, n)
            note(tally, first, repeats, weight, lane, n)
        for i in range(n):
            for k in range(n_signals):
                out[(first + i) // repeats, k] += total[k * LANES + i]
        first += n
    leave_streams(lane, rng)
    return n_jobs * (n_pairs - 1)
