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

from fastcmdp.kernels.jit import INLINE, inlined, kernel
from fastcmdp.kernels.neural import backward, forward
from fastcmdp.kernels.tables import Actions, RowSpace, fill_action_row, state_of_row
from fastcmdp.kernels.vectors import combine, dot


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


class Network(NamedTuple):
    """Logits from a network (see neural.py), run once on each input row of a state.

    Either a state has one row and the network an output for each position in its list of choices, or a state has a
    row for each choice and the network one output: outputs, row after row, are the logits of the state's choices.
    """

    features: np.ndarray  # float64[rows, n_inputs]
    state_to_row: np.ndarray  # int64[S+1]
    width1: int
    width2: int  # 0: one hidden layer
    n_outputs: int
    relu: bool


class Linear(NamedTuple):
    """Logits linear in the features: a block of theta an output (features of states), or one block for all."""

    n_outputs: int


class LiveNetwork(NamedTuple):
    """Logits from a network (see neural.py) run on the features of a state, or of each of its actions."""

    width1: int
    width2: int
    n_outputs: int
    relu: bool


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


def has_dense_scores(policy: Any) -> bool:
    """Whether scores of this kind (a numba type) are rows of ``Scores.dense``."""
    return any(_is(policy, kind) for kind in (DenseFeatures, Network, Linear, LiveNetwork))


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
            return dot(policy.phi[q], theta)

        return dense
    return None


def write_logits(policy, theta, s, first, last, out):
    """Write the logits of choices first .. last-1, those of state s, to out; return the largest."""
    raise NotImplementedError


@overload(write_logits, jit_options=INLINE)
def _write_logits(policy, theta, s, first, last, out):
    if _is(policy, Network):

        def network(policy, theta, s, first, last, out):
            width1, width2, n_outputs, relu = policy.width1, policy.width2, policy.n_outputs, policy.relu
            features, n_inputs = policy.features.reshape(-1), policy.features.shape[1]
            scratch = np.empty(width1 + width2 + n_outputs)
            z = width1 + width2
            top = -np.inf
            q = first
            for row in range(policy.state_to_row[s], policy.state_to_row[s + 1]):
                forward(
                    features,
                    row * n_inputs,
                    n_inputs,
                    theta,
                    width1,
                    width2,
                    n_outputs,
                    relu,
                    scratch,
                    scratch,
                    z,
                )
                for o in range(min(n_outputs, last - q)):
                    out[q] = scratch[z + o]
                    top = max(top, out[q])
                    q += 1
            return top

        return network

    def one_by_one(policy, theta, s, first, last, out):
        top = -np.inf
        for q in range(first, last):
            z = logit(policy, theta, q)
            out[q] = z
            top = max(top, z)
        return top

    return one_by_one


@inlined
def refresh_states(policy, theta, tables, actions, space, states, n):
    """Recompute the action probabilities and alias entries of ``states[0:n]`` from theta."""
    # Plain arrays under their own names: see fill_action_row.
    state_to_choice, state_row = tables.state_to_choice, tables.state_row
    prob, entry = actions.prob, actions.entry.reshape(-1)
    label, small, large, scaled = space.label, space.small, space.large, space.scaled
    for k in range(n):
        s = states[k]
        first = state_to_choice[s]
        last = state_to_choice[s + 1]
        top = write_logits(policy, theta, s, first, last, prob)
        total = 0.0
        for q in range(first, last):
            p = math.exp(prob[q] - top)
            prob[q] = p
            total += p
        share = 1.0 / total
        for q in range(first, last):
            prob[q] *= share
        fill_action_row(state_to_choice, state_row, prob, entry, s, label, small, large, scaled)


@kernel
def refresh_all(policy, theta, tables, actions, space):
    """Recompute the action probabilities and alias entries of every state."""
    refresh_states(
        policy, theta, tables, actions, space, np.arange(tables.state_row.shape[0]), tables.state_row.shape[0]
    )


class LazyActions(NamedTuple):
    """Actions of which a row is made when a draw first needs it: for features on a model with far more states
    than one outer step visits."""

    entry: np.ndarray  # as in Actions
    prob: np.ndarray  # float64[C]
    stamp: np.ndarray  # int64[S]: outer step for which a state's row was made
    now: np.ndarray  # int64[1]: the outer step under way
    row_state: np.ndarray  # int32[P]: state of the row that begins at an entry
    policy: Any
    theta: np.ndarray
    space: RowSpace
    one: np.ndarray  # int64[1]


def prepare_row(actions, tables, code):
    """Make sure that the row of action entries with this code is up to date."""
    raise NotImplementedError


@overload(prepare_row, jit_options=INLINE)
def _prepare_row(actions, tables, code):
    if _is(actions, LazyActions):

        def lazy(actions, tables, code):
            s = np.int64(state_of_row(actions.row_state, code))
            if actions.stamp[s] != actions.now[0]:
                actions.stamp[s] = actions.now[0]
                one = actions.one
                one[0] = s
                refresh_states(actions.policy, actions.theta, tables, actions, actions.space, one, 1)

        return lazy
    return lambda actions, tables, code: None


def refresh_touched(policy, theta, tables, actions, scores, n_slots, space):
    """Recompute the states whose probabilities depend on the coordinates of a batch; lazy ones later."""
    raise NotImplementedError


@overload(refresh_touched)
def _refresh_touched(policy, theta, tables, actions, scores, n_slots, space):
    if _is(actions, LazyActions):

        def later(policy, theta, tables, actions, scores, n_slots, space):
            actions.now[0] += 1

        return later
    if _is(policy, Tabular):

        def tabular(policy, theta, tables, actions, scores, n_slots, space):
            # A state's coordinates enter a batch together and in order, so its first one opens each run.
            coordinate, choice_state, state_to_choice = (
                scores.coordinate,
                tables.choice_state,
                tables.state_to_choice,
            )
            states = scores.position
            n = 0
            for i in range(n_slots):
                s = choice_state[coordinate[i]]
                states[n] = s
                n += state_to_choice[s] == coordinate[i]
            refresh_states(policy, theta, tables, actions, space, states, n)

        return tabular

    if _is(actions, Actions):

        def everywhere(policy, theta, tables, actions, scores, n_slots, space):
            refresh_all(policy, theta, tables, actions, space)

        return everywhere
    return None


def collect_scores(policy, theta, tables, actions, pair, n_pairs, scores):
    """Write the scores of pairs 0..n_pairs-1 (choices) and return the number of slots."""
    raise NotImplementedError


@overload(collect_scores)
def _collect_scores(policy, theta, tables, actions, pair, n_pairs, scores):
    if _is(policy, Tabular):

        def tabular(policy, theta, tables, actions, pair, n_pairs, scores):
            prob = actions.prob
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

        def sparse(policy, theta, tables, actions, pair, n_pairs, scores):
            prob = actions.prob
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

        def dense(policy, theta, tables, actions, pair, n_pairs, scores):
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

        return dense
    if _is(policy, Network):

        def network(policy, theta, tables, actions, pair, n_pairs, scores):
            prob = actions.prob
            width1, width2, n_outputs, relu = policy.width1, policy.width2, policy.n_outputs, policy.relu
            features, n_inputs = policy.features.reshape(-1), policy.features.shape[1]
            state_to_row, state_to_choice = policy.state_to_row, tables.state_to_choice
            width = width1 + width2
            hidden, back = np.empty(width + n_outputs), np.empty(width + n_outputs)
            for h in range(n_pairs):
                chosen = pair[h]
                s = tables.choice_state[chosen]
                score = scores.dense[h]
                score[:] = 0.0
                q = state_to_choice[s]
                last = state_to_choice[s + 1]
                for row in range(state_to_row[s], state_to_row[s + 1]):
                    x = row * n_inputs
                    forward(
                        features, x, n_inputs, theta, width1, width2, n_outputs, relu, hidden, hidden, width
                    )
                    for o in range(n_outputs):  # outputs beyond a state's list of choices have no weight
                        back[width + o] = 0.0
                        if q < last:
                            back[width + o] = (1.0 if q == chosen else 0.0) - prob[q]
                            q += 1
                    backward(
                        features, x, n_inputs, theta, width1, width2, n_outputs, relu, hidden, back, back, width,
                        score,
                    )  # fmt: skip
            return scores.dense.shape[1]

        return network
    return None


@kernel
def forget_scores(scores, n_slots):
    """Clear the marks of a batch in time proportional to its coordinates."""
    for i in range(min(n_slots, scores.coordinate.shape[0])):
        scores.mark[scores.coordinate[i]] = -1
