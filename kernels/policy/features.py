"""Log-linear policies, from sparse or dense features of the choices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.policy.scores import merge_entry, table_scores
from fastcmdp.kernels.policy.softmax import logit
from fastcmdp.kernels.vectors import combine, dot


class SparseFeatures(NamedTuple):
    """Log-linear: logit(q) = sum of value * theta[column] over entries first[q] .. first[q+1]-1."""

    first: np.ndarray  # int64[C+1]
    column: np.ndarray  # int32[N]
    value: np.ndarray  # float64[N]


class DenseFeatures(NamedTuple):
    """Log-linear: logit(q) = phi[q] . theta."""

    phi: np.ndarray  # float64[C, d]


@logit.on(SparseFeatures)
def sparse_logit(policy, theta, q):
    z = 0.0
    for i in range(policy.first[q], policy.first[q + 1]):
        z += policy.value[i] * theta[policy.column[i]]
    return z


@logit.on(DenseFeatures)
def dense_logit(policy, theta, q):
    return dot(policy.phi[q], theta)


@table_scores.on(SparseFeatures)
def sparse_scores(policy, theta, tables, actions, pair, n_pairs, scores):
    prob = actions.prob
    n_slots = 0
    k = 0
    for h in range(n_pairs):
        scores.first[h] = k
        chosen = pair[h]
        s = tables.choice_state[chosen]
        for q in range(tables.state_to_choice[s], tables.state_to_choice[s + 1]):
            weight = (1.0 if q == chosen else 0.0) - prob[q]
            for i in range(policy.first[q], policy.first[q + 1]):
                k, n_slots = merge_entry(scores, h, policy.column[i], weight * policy.value[i], k, n_slots)
    scores.first[n_pairs] = k
    return n_slots


@table_scores.on(DenseFeatures)
def rows_of_scores(policy, theta, tables, actions, pair, n_pairs, scores):
    prob = actions.prob
    phi = policy.phi
    d = phi.shape[1]
    for h in range(n_pairs):
        chosen = pair[h]
        s = tables.choice_state[chosen]
        score = scores.dense[h]
        q = tables.state_to_choice[s]
        last = tables.state_to_choice[s + 1]
        score[:] = 0.0
        combine(score, 0.0, phi[chosen], 1.0, phi[q], -prob[q])
        q += 1
        while q + 1 < last:
            combine(score, 1.0, phi[q], -prob[q], phi[q + 1], -prob[q + 1])
            q += 2
        if q < last:
            combine(score, 1.0, phi[q], -prob[q], phi[q], 0.0)
    return d
