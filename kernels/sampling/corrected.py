"""Rollouts on tables of which a critic knows most: only its mistakes are summed, LANES rollouts in flight.

For any W that was fixed before, Wbar(s) = sum_a pi(a|s) W(s, a), and T as in ``rollouts``, T + 1 transitions give

    C = sum_{j<=T} [ f(s_j, a_j) + gamma Wbar(s_{j+1}) - W(s_j, a_j) ],   E[C | s_0, a_0] = Q(s_0, a_0) - W(s_0, a_0),

since Pr(T >= j) = gamma^j and (I - gamma P_pi)^-1 (f + gamma P Wbar - W) = Q - W. Sorted by pairs, the sum is that of
one record a choice, f + gamma Wbar(s) - W, but for its ends: so it costs what sums of signals do. ``rollouts`` says
what the schedule is; here, in addition,

- the state after the last pair is drawn, and an action there, which counts for nothing;
- in a rollout that *wanders* each action after the first is uniform where bit 0 of what draws it is set. It feeds
  critics only;
- each transition is written down: its choice, and the entry of the alias row that drew the next state.
"""

from __future__ import annotations

import numpy as np
from numba import types

from fastcmdp.kernels.dispatch import generic
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
)
from fastcmdp.kernels.sampling.rollouts import (
    JOB,
    LEFT,
    NO_JOB,
    STREAM,
    begin_idle,
    count_down,
    geometric_horizon,
)
from fastcmdp.kernels.sampling.tables import WIDTH, branch_row, draw_action, draw_start, state_of_row
from fastcmdp.kernels.stop import leaves
from fastcmdp.kernels.streams import LANES, to_unit
from fastcmdp.kernels.words import HALF, LOW, ONE, TWO, U64

# After the sections of ``rollouts``: the pair before the one at hand, whether the lane wanders.
_PAIR, _WANDERS = (k * LANES for k in range(N_SECTIONS + 3, N_SECTIONS + 5))
_N_WORDS = (N_SECTIONS + 5) * LANES


@generic("entry", inline=True)
def draw_place(entry, first, n, bits):
    """What ``draw_label`` draws, as twice the entry, plus one where its coin rejects."""


@draw_place.on(types.uint32)
def place_packed(entry, first, n, bits):
    x = bits * n
    e = first + (x >> HALF)
    return TWO * e + U64((x & LOW) >= U64(entry[WIDTH * e]))


@draw_place.on(types.float64)
def place_exact(entry, first, n, bits):
    x = to_unit(bits) * n
    i = min(U64(x), n - ONE)
    e = first + i
    return TWO * e + U64(x - i >= entry[WIDTH * e])


@generic("entry", inline=True)
def draw_uniform(entry, n, bits):
    """A number below n, all equally likely, from the bits that would draw an action."""


@draw_uniform.on(types.uint32)
def uniform_packed(entry, n, bits):
    return (bits * n) >> HALF


@draw_uniform.on(types.float64)
def uniform_exact(entry, n, bits):
    return min(U64(to_unit(bits) * n), n - ONE)


@inlined
def _any_action(entry, state_to_choice, s, bits):
    first = state_to_choice[s]
    return U64(first) + draw_uniform(entry, U64(state_to_choice[s + 1] - first), bits)


@inlined
def _step_lanes(
    n_signals, state_to_choice, row_state, branch_entry, entry, choice_word, choice_signal, words, lane, total, seen,
    at, n,
):  # fmt: skip
    """One transition of lanes 0..n-1, in stages so that their loads overlap; return how many have ended."""
    draw_words(lane)
    for i in range(n):
        first, length = branch_row(lane[ROW + i])
        place = draw_place(branch_entry, first, length, branch_bits(entry, lane[WORD + i]))
        lane[CODE + i] = U64(branch_entry[WIDTH * (place >> ONE) + ONE + (place & ONE)])
        lane[_PAIR + i] = lane[CHOICE + i]
        seen[at + i] = (lane[CHOICE + i] << HALF) | place
    for i in range(n):
        bits = action_bits(entry, lane, i, lane[WORD + i])
        if lane[_WANDERS + i] & bits != U64(0):
            s = np.int64(state_of_row(row_state, lane[CODE + i]))
            lane[CHOICE + i] = _any_action(entry, state_to_choice, s, bits)
        else:
            lane[CHOICE + i] = draw_action(entry, lane[CODE + i], bits)
    for i in range(n):
        q = words * lane[CHOICE + i]
        lane[ROW + i] = choice_word[q]
        total[i] += choice_signal[q + ONE]
        total[LANES + i] += choice_signal[q + TWO]
        for k in range(2, n_signals):
            total[k * LANES + i] += choice_signal[q + U64(k + 1)]
    return count_down(lane, n)


@kernel
def corrected_rollouts(
    tables, actions, row_state, gamma, rng, job_choice, job_wanders, mean, record, out_total, out_choice, seen, n_seen
):  # fmt: skip
    """Run one rollout a job; return how many transitions ``seen`` then holds, and how many were made.

    tables : Tables; actions : Actions of the policy; row_state : int32[P], see ``tables.state_of_row``
    rng : uint64[4, LANES], advanced
    job_choice : int64[J], the first pair, or -1: drawn; job_wanders : uint64[J], 1 or 0
    mean : float64[S, 1+m], Wbar
    record : a pair of views, uint64[C W] and float64[C W], as ``Tables.choice_word`` and ``choice_number``, with
        f + gamma Wbar - W in place of the signals
    out_total : float64[J, 1+m], C of all signals
    out_choice : int64[J], the last pair, (s_T, a_T)
    seen : uint64[n], transitions as 2^32 choice + place of the draw, from ``n_seen`` on; beyond its end the last ones
        are overwritten
    """
    n_jobs = job_choice.shape[0]
    n_signals, stop = tables.n_signals, tables.stop
    log_gamma_inverse = tables.log_gamma_inverse
    # Flat arrays: the compiler then knows strides.
    start_entry, branch_entry, entry = tables.start_entry, tables.branch_entry, actions.entry
    choice_state, state_to_choice = tables.choice_state, tables.state_to_choice
    choice_word, choice_signal, words = record[0], record[1], U64(tables.words)
    lane = np.empty(_N_WORDS, np.uint64)
    total = np.zeros(max(n_signals, 2) * LANES)
    begin_idle(lane, rng)
    lane[_WANDERS : _WANDERS + LANES] = U64(0)
    n = LANES
    next_job = 0
    transitions = 0
    most = seen.shape[0] - LANES
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
                    beyond = lane[CHOICE + i]  # the pair after the last, whose record has been added
                    s = choice_state[beyond]
                    for k in range(n_signals):
                        excess = choice_signal[words * beyond + U64(k + 1)]
                        out_total[job, k] = total[k * LANES + i] - excess + gamma * mean[s, k]
                    out_choice[job] = np.int64(lane[_PAIR + i])
                    lane[JOB + i] = NO_JOB
                if next_job == n_jobs:
                    n -= 1
                    retire(lane, total, i, n)
                    continue
                horizon = geometric_horizon(next_of_lane(lane, i), log_gamma_inverse)
                q = U64(job_choice[next_job])
                wanders = job_wanders[next_job]
                if job_choice[next_job] < 0:
                    word = next_of_lane(lane, i)
                    code = draw_start(start_entry, branch_bits(entry, word))
                    q = draw_action(entry, code, action_bits(entry, lane, i, word))
                lane[JOB + i] = U64(next_job)
                lane[LEFT + i] = U64(horizon + 1)
                lane[_WANDERS + i] = wanders
                lane[CHOICE + i] = q
                s = choice_state[q]
                q *= words
                lane[ROW + i] = choice_word[q]
                for k in range(n_signals):
                    total[k * LANES + i] = choice_signal[q + U64(k + 1)] - gamma * mean[s, k]
                transitions += horizon + 1
                next_job += 1
                i += 1
            if n == 0:
                break
        # The same lines twice, for with a constant number of lanes the compiler unrolls them.
        at = min(n_seen, most)
        if n == LANES:
            ended = _step_lanes(
                n_signals, state_to_choice, row_state, branch_entry, entry, choice_word, choice_signal, words, lane,
                total, seen, at, LANES,
            )  # fmt: skip
        else:
            ended = _step_lanes(
                n_signals, state_to_choice, row_state, branch_entry, entry, choice_word, choice_signal, words, lane,
                total, seen, at, n,
            )  # fmt: skip
        n_seen = at + n
    give_back_streams(lane, STREAM, rng)
    return n_seen, transitions
