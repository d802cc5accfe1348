"""Rollouts with a geometric horizon, LANES of them in flight (Algorithm 1 of the paper).

A rollout from (s_0, a_0) draws T in {0, 1, 2, ...} with Pr(T = t) = (1-gamma) gamma^t, makes T transitions and
returns the undiscounted sums of all signals over its T + 1 pairs, and the last pair (s_T, a_T). The random
horizon is the discount:

    E[sum_{j<=T} f(s_j, a_j)] = E[sum_j gamma^j f(s_j, a_j)],     (s_T, a_T) ~ nu.

The schedule is part of the definition, so that a plain program replays it: jobs are handed out in order; a lane
without a job takes the next one (in the order of the lanes) and draws, from its own stream, one word for T and,
where the first pair is not given, one word whose high half picks the state and low half the action. Then, in
rounds, *every* lane draws one word, and every lane with a job makes one transition with it: high half the
branch, low half the next action. (Exact draws spend the whole word on the state or branch, and the next word of
the lane on the action.) A lane whose job is finished takes the next before the next round.
"""

from __future__ import annotations

import math

import numpy as np

from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.sampling.lanes import (
    CHOICE,
    CODE,
    LOOK,
    N_SECTIONS,
    ROW,
    WORD,
    action_bits,
    branch_bits,
    draw_words,
    give_back_streams,
    next_of_lane,
    retire,
    take_streams,
)
from fastcmdp.kernels.sampling.tables import branch_row, draw_action, draw_label, draw_start, prepare_row
from fastcmdp.kernels.stop import leaves
from fastcmdp.kernels.streams import LANES, to_unit
from fastcmdp.kernels.words import ONE, TWO, U64

# Transitions left, the job, the stream that the lane began with.
LEFT, JOB, STREAM = (k * LANES for k in range(N_SECTIONS, N_SECTIONS + 3))
_N_WORDS = (N_SECTIONS + 3) * LANES
NO_JOB = np.uint64(2**64 - 1)


@inlined
def geometric_horizon(word, log_gamma_inverse):
    """T = floor(log(1 - U) / log gamma): transitions of a rollout, in {0, 1, 2, ...}."""
    return np.int64(math.log(1.0 - to_unit(word)) * log_gamma_inverse)


@inlined
def begin_idle(lane, rng):
    """Take up the streams; no lane has a job."""
    take_streams(lane, rng)
    for i in range(LANES):
        lane[LEFT + i] = U64(0)
        lane[JOB + i] = NO_JOB
        lane[STREAM + i] = U64(i)


@inlined
def count_down(lane, n):
    """Lanes 0..n-1 have made a transition; return how many of them have none left."""
    ended = U64(0)
    for i in range(n):
        lane[LEFT + i] -= ONE
        ended += U64(lane[LEFT + i] == U64(0))
    return ended


@inlined
def _step_lanes(tables, actions, branch_entry, entry, choice_word, choice_number, words, lane, total, n):
    """One transition of lanes 0..n-1, in stages so that their loads overlap; return how many have ended."""
    draw_words(lane)
    for i in range(n):
        first, length = branch_row(lane[ROW + i])
        lane[CODE + i] = draw_label(branch_entry, first, length, branch_bits(entry, lane[WORD + i]))
    for i in range(n):
        prepare_row(actions, tables, lane[CODE + i])
        bits = action_bits(entry, lane, i, lane[WORD + i])
        lane[CHOICE + i] = draw_action(entry, lane[CODE + i], bits)
    for i in range(n):
        q = words * lane[CHOICE + i]
        lane[ROW + i] = choice_word[q]
        total[i] += choice_number[q + ONE]
        total[LANES + i] += choice_number[q + TWO]
        for k in range(2, tables.n_signals):
            total[k * LANES + i] += choice_number[q + U64(k + 1)]
    return count_down(lane, n)


@kernel
def rollouts(tables, actions, rng, job_choice, job_row, out_total, out_choice):
    """Run one rollout a job; return the number of transitions made.

    tables : Tables; actions : Actions or LazyActions of the policy
    rng : uint64[4, LANES], advanced
    job_choice : int64[J], the first pair, or -1: then the action is drawn in the state whose row code is
    job_row : uint32[J], or 0: then the state is drawn from the start distribution
    out_total : float64[J, 1+m], sums of the signals over the T + 1 pairs
    out_choice : int64[J], the last pair
    """
    n_jobs = job_choice.shape[0]
    n_signals, stop = tables.n_signals, tables.stop
    log_gamma_inverse = tables.log_gamma_inverse
    start_entry, branch_entry, entry = tables.start_entry, tables.branch_entry, actions.entry
    choice_word, choice_number, words = tables.choice_word, tables.choice_number, U64(tables.words)
    lane = np.empty(_N_WORDS, np.uint64)
    total = np.zeros(max(n_signals, 2) * LANES)
    begin_idle(lane, rng)
    n = LANES
    next_job = 0
    transitions = 0
    ended = ONE
    rounds = 0
    while True:
        rounds += 1
        if rounds & LOOK == 0 and leaves(stop):
            break
        if ended != U64(0):
            i = 0
            while i < n:
                if lane[LEFT + i] != U64(0):
                    i += 1
                    continue
                job = lane[JOB + i]
                if job != NO_JOB:
                    for k in range(n_signals):
                        out_total[job, k] = total[k * LANES + i]
                    out_choice[job] = np.int64(lane[CHOICE + i])
                    lane[JOB + i] = NO_JOB
                if next_job == n_jobs:
                    n -= 1
                    retire(lane, total, i, n)
                    continue
                horizon = geometric_horizon(next_of_lane(lane, i), log_gamma_inverse)
                q = U64(job_choice[next_job])
                if job_choice[next_job] < 0:
                    word = next_of_lane(lane, i)
                    code = U64(job_row[next_job])
                    if code == U64(0):
                        code = draw_start(start_entry, branch_bits(entry, word))
                    prepare_row(actions, tables, code)
                    q = draw_action(entry, code, action_bits(entry, lane, i, word))
                lane[JOB + i] = U64(next_job)
                lane[LEFT + i] = U64(horizon)
                lane[CHOICE + i] = q
                q *= words
                lane[ROW + i] = choice_word[q]
                total[i] = choice_number[q + ONE]
                total[LANES + i] = choice_number[q + TWO]
                for k in range(2, n_signals):
                    total[k * LANES + i] = choice_number[q + U64(k + 1)]
                transitions += horizon
                next_job += 1
            if n == 0:
                break
        # The same lines twice, for with a constant number of lanes the compiler unrolls them.
        if n == LANES:
            ended = _step_lanes(
                tables, actions, branch_entry, entry, choice_word, choice_number, words, lane, total, LANES
            )
        else:
            ended = _step_lanes(
                tables, actions, branch_entry, entry, choice_word, choice_number, words, lane, total, n
            )
    give_back_streams(lane, STREAM, rng)
    return transitions
