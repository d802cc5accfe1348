"""Rollouts of one length, LANES of them in lockstep: discounted sums, cut off after N transitions.

From a given pair the sum runs over the N pairs that are drawn, sum_{j=1..N} gamma^j f(s_j, a_j); from the start
distribution over all N + 1. What is cut off is below gamma^(N+1) / (1-gamma) times the largest |f|.

The schedule is part of the definition: LANES rollouts at a time, in order; each lane that begins at the start
distribution draws one word for its first pair, as in rollouts; then, N times, *every* lane draws one word, and every
lane with a rollout makes one transition with it. No lane waits for another, so nothing is counted or retired.
"""

from __future__ import annotations

import numpy as np

from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.rollouts import _A, _B, _C, _D, _LENGTH, _ONE, _next, action_bits, branch_bits
from fastcmdp.kernels.streams import LANES
from fastcmdp.kernels.tables import LENGTH_BITS, draw_action, draw_label

_U64 = np.uint64

# Sections of the one array of a lane's words, as in rollouts; the first four are the stream's, and a word's place.
_WORD, _CODE, _CHOICE = (k * LANES for k in range(4, 7))
_N_WORDS = 7 * LANES


@inlined
def _step_lanes(branch_entry, entry, record, signal, words, n_signals, lane, total, weight, n):
    """One transition of lanes 0..n-1, in stages so that their loads overlap; signals count ``weight``."""
    for i in range(LANES):  # as in rollouts
        b, c, d = lane[_B + i], lane[_C + i], lane[_D + i]
        word = lane[_A + i] + b + d
        lane[_A + i] = b ^ (b >> _U64(11))
        lane[_B + i] = c + (c << _U64(3))
        lane[_C + i] = ((c << _U64(24)) | (c >> _U64(40))) + word
        lane[_D + i] = d + _ONE
        lane[_WORD + i] = word
    for i in range(n):
        row = record[words * lane[_CHOICE + i]]
        bits = branch_bits(entry, lane[_WORD + i])
        lane[_CODE + i] = draw_label(branch_entry, row >> LENGTH_BITS, row & _LENGTH, bits)
    for i in range(n):
        bits = action_bits(entry, lane, i, lane[_WORD + i])
        lane[_CHOICE + i] = draw_action(entry, lane[_CODE + i], bits)
    for i in range(n):
        total[i] += weight * signal[words * lane[_CHOICE + i] + _ONE]
    for k in range(1, n_signals):
        for i in range(n):
            total[k * LANES + i] += weight * signal[words * lane[_CHOICE + i] + _U64(1 + k)]


@kernel
def truncated(tables, actions, rng, record, signal, choices, n_each, length, gamma, out):
    """Average n_each rollouts of ``length`` transitions from each of ``choices``; return the transitions made.

    tables : Tables; actions : Actions of the policy; rng : uint64[4, LANES], advanced
    record, signal : uint64[C, W], float64[C, W], two views of one memory as in Tables: words of branches, then signals
    choices : int64[n], first pairs, or -1 for a pair drawn from the start distribution
    out : float64[n, K], means of the discounted sums of the first K signals
    """
    n_signals = out.shape[1]
    start_entry, branch_entry = tables.start_entry.reshape(-1), tables.branch_entry.reshape(-1)
    entry = actions.entry.reshape(-1)
    words = _U64(record.shape[1])
    record, signal = record.reshape(-1), signal.reshape(-1)
    n_start = _U64(tables.start_entry.shape[0])
    lane = np.empty(_N_WORDS, np.uint64)
    total = np.zeros(n_signals * LANES)
    for i in range(LANES):
        for k in range(4):
            lane[k * LANES + i] = rng[k, i]
    n_jobs = choices.shape[0] * n_each
    out[:] = 0.0
    for begin in range(0, n_jobs, LANES):
        n = min(n_jobs - begin, LANES)
        for i in range(n):
            q = _U64(choices[(begin + i) // n_each])
            counts = 0.0
            if choices[(begin + i) // n_each] < 0:
                word = _next(lane, i)
                code = draw_label(start_entry, _U64(0), n_start, branch_bits(entry, word))
                q = draw_action(entry, code, action_bits(entry, lane, i, word))
                counts = 1.0
            lane[_CHOICE + i] = q
            for k in range(n_signals):
                total[k * LANES + i] = counts * signal[words * q + _U64(1 + k)]
        weight = 1.0
        for _ in range(length):
            weight *= gamma
            # The same lines twice, for with a constant number of lanes the compiler unrolls them.
            if n == LANES:
                _step_lanes(branch_entry, entry, record, signal, words, n_signals, lane, total, weight, LANES)
            else:
                _step_lanes(branch_entry, entry, record, signal, words, n_signals, lane, total, weight, n)
        for i in range(n):
            for k in range(n_signals):
                out[(begin + i) // n_each, k] += total[k * LANES + i]
    out /= n_each
    for i in range(LANES):
        for k in range(4):
            rng[k, i] = lane[k * LANES + i]
    return n_jobs * length
