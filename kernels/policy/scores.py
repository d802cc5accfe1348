"""Scores, grad log pi(a|s) = phi(s, a) - sum_b pi(b|s) phi(s, b), of a whole batch of pairs at once.

Sparse ones are (slot, value) lists over the coordinates that occur in the batch (a slot is the position of a
coordinate among those), dense ones the rows of a matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import inlined
from fastcmdp.kernels.vectors import dot


class SparseScores(NamedTuple):
    """Scores of a batch of H pairs as lists, and the work space to collect them.

    Pair h holds entries first[h] .. first[h+1]-1 of (slot, value); slot i stands for coordinate coordinate[i];
    mark[c] is the slot of coordinate c or -1, and -1 everywhere between batches.
    """

    first: np.ndarray  # int64[H+1]
    slot: np.ndarray  # int32[H * support]
    value: np.ndarray  # float64[H * support]
    coordinate: np.ndarray  # int32[slots]
    position: np.ndarray  # int64[slots]: where the coordinate last stood in ``slot``
    mark: np.ndarray  # int32[d]


class DenseScores(NamedTuple):
    """Scores of a batch of H pairs as rows; slots are coordinates."""

    dense: np.ndarray  # float64[H, d]
    coordinate: np.ndarray  # int32[d]: 0 .. d-1


@generic("actions")
def collect_scores(policy, theta, tables, actions, pair, n_pairs, scores):
    """Write the scores of pairs 0..n_pairs-1 (choices) and return the number of slots."""


@generic("policy")
def table_scores(policy, theta, tables, actions, pair, n_pairs, scores):
    """What ``collect_scores`` does where choices have numbers and actions probabilities."""


@collect_scores.otherwise
def collect_table_scores(policy, theta, tables, actions, pair, n_pairs, scores):
    return table_scores(policy, theta, tables, actions, pair, n_pairs, scores)


@inlined
def merge_entry(scores, h, c, weight, k, n_slots):
    """Add ``weight`` at coordinate c to the score of pair h, whose entries end at k; return the new k and n_slots.

    Entries of one pair with the same coordinate are merged through the slot's last position.
    """
    slot = scores.mark[c]
    if slot < 0:
        slot = n_slots
        scores.mark[c] = slot
        scores.coordinate[slot] = c
        scores.position[slot] = -1
        n_slots += 1
    p = scores.position[slot]
    if p < scores.first[h]:
        p = k
        scores.position[slot] = k
        scores.slot[k] = slot
        scores.value[k] = 0.0
        k += 1
    scores.value[p] += weight
    return k, n_slots


@generic("scores")
def forget_scores(scores, n_slots):
    """Make room for the next batch, in time proportional to the coordinates of this one."""


@forget_scores.on(DenseScores)
def forget_nothing(scores, n_slots):
    pass


@forget_scores.on(SparseScores)
def clear_marks(scores, n_slots):
    for i in range(n_slots):
        scores.mark[scores.coordinate[i]] = -1


@generic("scores")
def natural_norm(scores, omega, n_steps):
    """omega . F omega with the batch's Fisher estimate F = mean of g g': the mean square of g_h . omega."""


@natural_norm.on(DenseScores)
def natural_norm_of_rows(scores, omega, n_steps):
    total = 0.0
    for h in range(n_steps):
        change = dot(scores.dense[h], omega)
        total += change * change
    return total / n_steps


@natural_norm.on(SparseScores)
def natural_norm_of_lists(scores, omega, n_steps):
    total = 0.0
    for h in range(n_steps):
        change = 0.0
        for k in range(scores.first[h], scores.first[h + 1]):
            change += scores.value[k] * omega[scores.slot[k]]
        total += change * change
    return total / n_steps


@generic("scores", inline=True)
def score_times(scores, h, w):
    """g_h . w."""


@score_times.on(DenseScores)
def row_times(scores, h, w):
    return dot(scores.dense[h], w)


@score_times.on(SparseScores)
def list_times(scores, h, w):
    total = 0.0
    for k in range(scores.first[h], scores.first[h + 1]):
        total += scores.value[k] * w[scores.coordinate[scores.slot[k]]]
    return total


@generic("scores", inline=True)
def score_square(scores, h):
    """|g_h|^2."""


@score_square.on(DenseScores)
def row_square(scores, h):
    return dot(scores.dense[h], scores.dense[h])


@score_square.on(SparseScores)
def list_square(scores, h):
    total = 0.0
    for k in range(scores.first[h], scores.first[h + 1]):
        total += scores.value[k] * scores.value[k]
    return total


@generic("scores", inline=True)
def add_score(scores, h, step, w):
    """w += step g_h."""


@add_score.on(DenseScores)
def add_row(scores, h, step, w):
    g = scores.dense[h]
    for i in range(g.shape[0]):
        w[i] += step * g[i]


@add_score.on(SparseScores)
def add_list(scores, h, step, w):
    for k in range(scores.first[h], scores.first[h + 1]):
        w[scores.coordinate[scores.slot[k]]] += step * scores.value[k]
