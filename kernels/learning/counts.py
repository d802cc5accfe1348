"""A critic from counts: every transition of a batch, the latest first, backs its choice up with what was seen so far.

With n(b) the times branch b of choice q = (s, a) was drawn, n(q) their sum, and Wbar(s) = sum_a pi(a|s) W(s, a),

    W(q) = f(q) + gamma sum_b n(b) Wbar(s_b) / n(q),        Wbar(s) follows at once.

There is no learning rate: data of any policy is right, and going backwards carries a value along a whole rollout at
once. Branches of a choice that lead to one state are counted as one.

A backup reads all branches of its choice. Where they are many, backups are spent like money: each transition earns
``EARNED`` branches, and one that cannot be paid for is left out. The first, of the latest transition, is made at any
price, so that no choice has too many branches to be learned. So a batch costs at most that many a transition, and one
backup.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.sampling.tables import state_of_row
from fastcmdp.kernels.words import HALF, LOW, ONE, TWO, U64

EARNED = 24  # branches read a transition, on average, at most
MOST = 1 << 40


class Graph(NamedTuple):
    """Where transitions lead, and what the draws of ``Tables`` mean."""

    choice_to_branch: np.ndarray  # int64[C+1]
    target: np.ndarray  # int32[B]
    rejected: np.ndarray  # int32[B]: branch counted where entry b of the alias table rejects
    start_state: np.ndarray  # int64[n]: support of rho
    start_prob: np.ndarray  # float64[n]


@kernel
def fill_rejected(tables, graph):
    """Fill ``graph.rejected``: the branch of the same choice with the target that each entry leads to."""
    first, target, rejected = graph.choice_to_branch, graph.target, graph.rejected
    entry = tables.branch_entry
    branch_of = np.zeros(tables.state_row.shape[0], np.int32)
    for q in range(first.shape[0] - 1):
        for b in range(first[q], first[q + 1]):
            branch_of[target[b]] = b
        for b in range(first[q], first[q + 1]):
            rejected[b] = branch_of[np.int64(state_of_row(tables.row_state, U64(entry[3 * b + 2])))]


@kernel
def count(graph, seen, n_seen, branch_count, choice_count):
    """Raise the counts by the transitions seen[0:n_seen]."""
    rejected = graph.rejected
    for t in range(n_seen):
        word = seen[t]
        b = (word & LOW) >> ONE
        b += (word & ONE) * (U64(rejected[b]) - b)  # a branch here would be guessed wrong half the time
        branch_count[b] += 1.0
        choice_count[word >> HALF] += 1.0


@kernel
def back_up(tables, graph, gamma, prob, seen, n_seen, branch_count, choice_count, critic, mean):
    """Back up the choices of the transitions seen[0:n_seen], the latest first.

    critic : float64[C, 1+m], W; mean : float64[S, 1+m], Wbar, both changed
    """
    # Flat arrays, unsigned numbers and two signals at a time: sums then stand in registers.
    first, target, choice_state = graph.choice_to_branch, graph.target, tables.choice_state
    signal, critic, mean = tables.choice_number, critic.reshape(-1), mean.reshape(-1)
    n_signals, words = U64(tables.n_signals), U64(tables.words)
    money = EARNED
    for t in range(n_seen):
        q = seen[n_seen - 1 - t] >> HALF
        begin, end = U64(first[q]), U64(first[q + ONE])
        money += EARNED
        price = np.int64(end - begin)
        if t > 0 and price > money:
            continue
        money = min(max(money - price, 0), MOST)
        at, row = n_signals * U64(choice_state[q]), n_signals * q
        discount, p = gamma / choice_count[q], prob[q]
        k = U64(0)
        while k < n_signals:
            two = U64(k + ONE < n_signals)  # else the same signal twice
            x, y = 0.0, 0.0
            for b in range(begin, end):
                n, there = branch_count[b], n_signals * U64(target[b]) + k
                x += n * mean[there]
                y += n * mean[there + two]
            x = signal[words * q + ONE + k] + discount * x
            y = signal[words * q + ONE + k + two] + discount * y
            mean[at + k] += p * (x - critic[row + k])
            critic[row + k] = x
            if two:
                mean[at + k + ONE] += p * (y - critic[row + k + ONE])
                critic[row + k + ONE] = y
            k += TWO
