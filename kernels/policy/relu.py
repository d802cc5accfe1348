"""Two-layer ReLU networks with fixed output signs: one logit a choice.

    f(q; W) = H^(-1/2) sum_r b_r max(W_r . psi(q), 0),      b_r = +1 for r < H/2 and -1 for the others.

W stands flat, W_r[j] at j * H + r: sweeps run along the units, and a one-hot psi reads and writes H neighbours. The
network is positively homogeneous, tau f(q; W) = f(q; tau W).

Offsets are uint64: a signed index may be negative for all that the compiler knows, and its check for that stops
vector instructions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import reassociated
from fastcmdp.kernels.policy.scores import merge_entry, table_scores
from fastcmdp.kernels.policy.softmax import logit
from fastcmdp.kernels.words import U64


class ReluNetwork(NamedTuple):
    """Features psi in compressed rows: choice q has entries first[q] .. first[q+1]-1."""

    first: np.ndarray  # int64[C+1]
    column: np.ndarray  # int32[N]
    value: np.ndarray  # float64[N]
    width: int  # H, even


@reassociated
def hidden_inputs(begin, end, column, value, width, w, at, hidden):
    """hidden[r] = W_r . psi for the features of entries begin .. end-1, with the parameters at ``at``."""
    for r in range(width):
        hidden[U64(r)] = 0.0
    for i in range(begin, end):
        row = U64(at + np.int64(column[i]) * width)
        x = value[i]
        for r in range(width):
            hidden[U64(r)] += x * w[row + U64(r)]


@reassociated
def relu_value(begin, end, column, value, width, w, at, hidden):
    """f(q; W)."""
    hidden_inputs(begin, end, column, value, width, w, at, hidden)
    half = width // 2
    total = 0.0
    for r in range(half):
        total += max(hidden[U64(r)], 0.0) - max(hidden[U64(half + r)], 0.0)
    return total / math.sqrt(width)


@reassociated
def relu_nudge(begin, end, column, value, width, origin, w, at, e, mean, weight, hidden):
    """w += e grad f, mean += weight e grad f; return the growth of |w - origin|^2."""
    hidden_inputs(begin, end, column, value, width, w, at, hidden)
    half = width // 2
    step = e / math.sqrt(width)
    for r in range(half):
        hidden[U64(r)] = step if hidden[U64(r)] > 0.0 else 0.0
        hidden[U64(half + r)] = -step if hidden[U64(half + r)] > 0.0 else 0.0
    square = 0.0
    for i in range(begin, end):
        first = np.int64(column[i]) * width
        row, home = U64(at + first), U64(first)
        x = value[i]
        for r in range(width):
            move = x * hidden[U64(r)]
            before = w[row + U64(r)]
            square += move * (2.0 * (before - origin[home + U64(r)]) + move)
            w[row + U64(r)] = before + move
            mean[row + U64(r)] += weight * move
    return square


@logit.on(ReluNetwork)
def relu_logit(policy, theta, q):
    return relu_value(
        policy.first[q], policy.first[q + 1], policy.column, policy.value, policy.width, theta, 0,
        np.empty(policy.width),
    )  # fmt: skip


@table_scores.on(ReluNetwork)
def relu_scores(policy, theta, tables, actions, pair, n_pairs, scores):
    first, column, value, width = policy.first, policy.column, policy.value, policy.width
    prob, hidden = actions.prob, np.empty(width)
    n_slots = 0
    k = 0
    for h in range(n_pairs):
        scores.first[h] = k
        chosen = pair[h]
        s = tables.choice_state[chosen]
        for q in range(tables.state_to_choice[s], tables.state_to_choice[s + 1]):
            share = ((1.0 if q == chosen else 0.0) - prob[q]) / math.sqrt(width)
            hidden_inputs(first[q], first[q + 1], column, value, width, theta, 0, hidden)
            for r in range(width):
                if not hidden[r] > 0.0:
                    continue
                weight = share if r < width // 2 else -share
                for i in range(first[q], first[q + 1]):
                    c = np.int64(column[i]) * width + r
                    k, n_slots = merge_entry(scores, h, c, weight * value[i], k, n_slots)
    scores.first[n_pairs] = k
    return n_slots
