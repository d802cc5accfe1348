"""A critic from counts: every transition of a batch, the latest first, backs its choice up with what was seen so far.

With n(b) the times branch b of choice q = (s, a) was drawn, n(q) their sum, and Wbar(s) = sum_a pi(a|s) W(s, a),

    W(q) = f(q) + gamma sum_b n(b) Wbar(s_b) / n(q),        Wbar(s) follows at once.

There is no learning rate: data of any policy is right, and going backwards carries a value along a whole rollout at
once. Branches of a choice that lead to one state are counted as one.

A backup reads all branches of its choice. Where they are many, backups are spent like money: each transition earns
``EARNED`` branches, and one that cannot be paid for is left out. So a batch costs at most that many a transition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.sampling.tables import state_of_row

_U64 = np.uint64
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)

EARNED = 24  # branches read a transition, on average, at most


class Graph(NamedTuple):
    """Where transitions lead, and what the draws of ``Tables`` mean."""

    choice_to_branch: np.ndarray  # int64[C+1]
    target: np.ndarray  # int32[B]
    rejected: np.ndarray  # int32[B]: branch counted where entry b of the alias table rejects
    row_state: np.ndarray  # int32[P]: state of the row of action entries that begins there
    start_state: np.ndarray  # int64[n]: support of rho
    start_prob: np.ndarray  # float64[n]


@kernel
def fill_rejected(tables, graph):
    """Fill ``graph.rejected``: the branch of the same choice with the target that each entry leads to."""
    first, target, rejected = graph.choice_to_branch, graph.target, graph.rejected
    entry = tables.branch_entry.reshape(-1)
    branch_of = np.zeros(tables.state_row.shape[0], np.int32)
    for q in range(first.shape[0] - 1):
        for b in range(first[q], first[q + 1]):
            branch_of[target[b]] = b
        for b in range(first[q], first[q + 1]):
            rejected[b] = branch_of[np.int64(state_of_row(graph.row_state, _U64(entry[3 * b + 2])))]


@kernel
def count(graph, seen, n_seen, branch_count, choice_count):
    """Raise the counts by the transitions seen[0:n_seen]."""
    rejected = graph.rejected
    for t in range(n_seen):
        word = seen[t]
        place = word & _LOW
        b = np.int64(place >> _ONE)
        if place & _ONE:
            b = np.int64(rejected[b])
        branch_count[b] += 1.0
        choice_count[np.int64(word >> _HALF)] += 1.0


@kernel
def back_up(tables, graph, gamma, prob, seen, n_seen, branch_count, choice_count, critic, mean, value):
    """Back up the choices of the transitions seen[0:n_seen], the latest first.

    critic : float64[C, 1+m], W; mean : float64[S, 1+m], Wbar, both changed; value : float64[1+m], work space
    """
    first, target = graph.choice_to_branch, graph.target
    choice_state, signal, n_signals = tables.choice_state, tables.choice_signal, tables.n_signals
    money = EARNED
    for t in range(n_seen - 1, -1, -1):
        q = np.int64(seen[t] >> _HALF)
        begin, end = first[q], first[q + 1]
        money += EARNED
        if end - begin > money:
            continue
        money = min(money - (end - begin), 1 << 40)
        for k in range(n_signals):
            value[k] = 0.0
        for b in range(begin, end):
            n = branch_count[b]
            if n != 0.0:
                s = target[b]
                for k in range(n_signals):
                    value[k] += n * mean[s, k]
        s = choice_state[q]
        discount, p = gamma / choice_count[q], prob[q]
        for k in range(n_signals):
            new = signal[q, 1 + k] + discount * value[k]
            mean[s, k] += p * (new - critic[q, k])
            critic[q, k] = new
