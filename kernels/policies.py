"""Policies as data: softmax policies pi(a|s) proportional to exp(logit), one NamedTuple a kind.

A kernel takes any of them; ``numba.extending.overload`` picks the code by the NamedTuple's class, so a kernel
compiles once a kind and is cached on disk. Probabilities always come from logits through a shifted softmax.

Scores, grad log pi(a|s) = phi(s, a) - sum_b pi(b|s) phi(s, b), are collected for a whole batch of pairs at
once: sparse ones as (slot, value) lists over the coordinates that occur in the batch (a slot is the position
of a coordinate among those), dense ones as a matrix.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.tables import fill_action_row


class Tabular(NamedTuple):
    """One parameter a choice: logit(q) = theta[q]."""

    n_parameters: int


class SparseFeatures(NamedTuple):
    """Log-linear: logit(q) = sum of value * theta[column] over entries first[q] .. first[q+1]-1."""

    first: np.ndarray  # int64[C+1]
    column: np.ndarray  # int32[N]
    value: np.ndarray  # float64[N]


class DenseFeatures(NamedTuple):
    """Log-linear: logit(q) = phi[q] . theta."""

    phi: np.ndarray  # float64[C, d]


class Scores(NamedTuple):
    """Scores of a batch of H pairs, and the work space to collect them.

    Sparse kinds: pair h holds entries first[h] .. first[h+1]-1 of (slot, value); slot i stands for coordinate
    coordinate[i]; mark[c] is the slot of coordinate c or -1, and -1 everywhere between batches.
    Dense kinds: dense[h, :] is the score, slots are coordinates, the rest is empty.
    """

    first: np.ndarray  # int64[H+1]
    slot: np.ndarray  # int32[H * support]
    value: np.ndarray  # float64[H * support]
    coordinate: np.ndarray  # int32[slots]
    position: np.ndarray  # int64[slots]: where the coordinate last stood in ``slot``
    mark: np.ndarray  # int32[d]
    dense: np.ndarray  # float64[H, d]


def _is(policy: Any, kind: type) -> bool:
    return getattr(policy, "instance_class", None) is kind


def logit(policy, theta, q):
    """Logit of choice q."""
    raise NotImplementedError


@overload(logit)
def _logit(policy, theta, q):
    if _is(policy, Tabular):

        def tabular(policy, theta, q):
            return theta[q]

        return tabular
    if _is(policy, SparseFeatures):

        def sparse(policy, theta, q):
            z = 0.0
            for i in range(policy.first[q], policy.first[q + 1]):
                z += policy.value[i] * theta[policy.column[i]]
            return z

        return sparse
    if _is(policy, DenseFeatures):

        def dense(policy, theta, q):
            z = 0.0
            for j in range(policy.phi.shape[1]):
                z += policy.phi[q, j] * theta[j]
            return z

        return dense
    return None


@kernel
def refresh_state(policy, theta, tables, actions, s, small, large):
    """Recompute the action probabilities and alias entries of state s from theta."""
    first = tables.state_to_choice[s]
    last = tables.state_to_choice[s + 1]
    top = -np.inf
    for q in range(first, last):
        z = logit(policy, theta, q)
        actions.prob[q] = z
        top = max(top, z)
    total = 0.0
    for q in range(first, last):
        p = math.exp(actions.prob[q] - top)
        actions.prob[q] = p
        total += p
    for q in range(first, last):
        actions.prob[q] /= total
    fill_action_row(tables, actions, s, small, large)


@kernel
def refresh_all(policy, theta, tables, actions, small, large):
    """Recompute the action probabilities and alias entries of every state."""
    for s in range(tables.state_row.shape[0]):
        refresh_state(policy, theta, tables, actions, s, small, large)


def refresh_touched(policy, theta, tables, actions, scores, n_slots, small, large):
    """Recompute the states whose probabilities depend on the coordinates of a batch."""
    raise NotImplementedError


@overload(refresh_touched)
def _refresh_touched(policy, theta, tables, actions, scores, n_slots, small, large):
    if _is(policy, Tabular):

        def tabular(policy, theta, tables, actions, scores, n_slots, small, large):
            # A state's coordinates enter a batch together and in order, so its first one opens each run.
            for i in range(n_slots):
                q = scores.coordinate[i]
                s = tables.choice_state[q]
                if tables.state_to_choice[s] == q:
                    refresh_state(policy, theta, tables, actions, s, small, large)

        return tabular

    def everywhere(policy, theta, tables, actions, scores, n_slots, small, large):
        refresh_all(policy, theta, tables, actions, small, large)

    return everywhere


def collect_scores(policy, tables, prob, pair, n_pairs, scores):
    """Write the scores of pairs 0..n_pairs-1 (choices) and return the number of slots."""
    raise NotImplementedError


@overload(collect_scores)
def _collect_scores(policy, tables, prob, pair, n_pairs, scores):
    if _is(policy, Tabular):

        def tabular(policy, tables, prob, pair, n_pairs, scores):
            n_slots = 0
            k = 0
            for h in range(n_pairs):
                scores.first[h] = k
                chosen = pair[h]
                s = tables.choice_state[chosen]
                first = tables.state_to_choice[s]
                last = tables.state_to_choice[s + 1]
                slot = scores.mark[first]
                if slot < 0:
                    slot = n_slots
                    scores.mark[first] = slot
                    for q in range(first, last):
                        scores.coordinate[n_slots] = q
                        n_slots += 1
                for q in range(first, last):
                    scores.slot[k] = slot + q - first
                    scores.value[k] = (1.0 if q == chosen else 0.0) - prob[q]
                    k += 1
            scores.first[n_pairs] = k
            return n_slots

        return tabular
    if _is(policy, SparseFeatures):

        def sparse(policy, tables, prob, pair, n_pairs, scores):
            n_slots = 0
            k = 0
            for h in range(n_pairs):
                scores.first[h] = k
                chosen = pair[h]
                s = tables.choice_state[chosen]
                # Entries of one pair with the same coordinate are merged through the slot's last position.
                for q in range(tables.state_to_choice[s], tables.state_to_choice[s + 1]):
                    weight = (1.0 if q == chosen else 0.0) - prob[q]
                    for i in range(policy.first[q], policy.first[q + 1]):
                        c = policy.column[i]
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
                        scores.value[p] += weight * policy.value[i]
            scores.first[n_pairs] = k
            return n_slots

        return sparse
    if _is(policy, DenseFeatures):

        def dense(policy, tables, prob, pair, n_pairs, scores):
            phi = policy.phi
            d = phi.shape[1]
            for h in range(n_pairs):
                chosen = pair[h]
                s = tables.choice_state[chosen]
                for j in range(d):
                    scores.dense[h, j] = phi[chosen, j]
                for q in range(tables.state_to_choice[s], tables.state_to_choice[s + 1]):
                    p = prob[q]
                    for j in range(d):
                        scores.dense[h, j] -= p * phi[q, j]
            return d

        return dense
    return None


@kernel
def forget_scores(scores, n_slots):
    """Clear the marks of a batch in time proportional to its coordinates."""
    for i in range(min(n_slots, scores.coordinate.shape[0])):
        scores.mark[scores.coordinate[i]] = -1
