"""Action probabilities from logits, through a shifted softmax, and their alias entries kept up to date.

A kernel takes any kind of policy; which code it runs is picked by the NamedTuple's class (`dispatch`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.sampling.tables import Actions, RowSpace, fill_action_row, prepare_row, state_of_row


class LazyActions(NamedTuple):
    """Actions of which a row is made when a draw first needs it: for features on a model with far more states
    than one outer step visits."""

    entry: np.ndarray  # as in Actions
    prob: np.ndarray  # float64[C]
    stamp: np.ndarray  # int64[S]: outer step for which a state's row was made
    now: np.ndarray  # int64[1]: the outer step under way
    policy: Any
    theta: np.ndarray
    space: RowSpace
    one: np.ndarray  # int64[1]


@generic("policy")
def logit(policy, theta, q):
    """Logit of choice q."""


@generic("policy", inline=True)
def write_logits(policy, theta, s, first, last, out):
    """Write the logits of choices first .. last-1, those of state s, to out; return the largest."""


@write_logits.otherwise
def write_one_by_one(policy, theta, s, first, last, out):
    top = -np.inf
    for q in range(first, last):
        z = logit(policy, theta, q)
        out[q] = z
        top = max(top, z)
    return top


@inlined
def refresh_states(policy, theta, tables, actions, space, states, n):
    """Recompute the action probabilities and alias entries of ``states[0:n]`` from theta."""
    state_to_choice, state_row = tables.state_to_choice, tables.state_row
    prob, entry = actions.prob, actions.entry
    label, below, scaled = space.label, space.below, space.scaled
    # One loop after the other: in one, an entry that is guessed wrong would have exponentials wait for it.
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
    for k in range(n):
        fill_action_row(state_to_choice, state_row, prob, entry, states[k], label, below, scaled)


@kernel
def refresh_all(policy, theta, tables, actions, space):
    """Recompute the action probabilities and alias entries of every state."""
    refresh_states(
        policy, theta, tables, actions, space, np.arange(tables.state_row.shape[0]), tables.state_row.shape[0]
    )


@prepare_row.on(LazyActions)
def prepare_lazy_row(actions, tables, code):
    s = np.int64(state_of_row(tables.row_state, code))
    if actions.stamp[s] != actions.now[0]:
        actions.stamp[s] = actions.now[0]
        one = actions.one
        one[0] = s
        refresh_states(actions.policy, actions.theta, tables, actions, actions.space, one, 1)


@generic("actions")
def refresh_changed(policy, theta, tables, actions, space):
    """All of theta has changed: remake every row of the action tables, or let draws do so."""


@refresh_changed.on(Actions)
def refresh_every_row(policy, theta, tables, actions, space):
    refresh_all(policy, theta, tables, actions, space)


@refresh_changed.on(LazyActions)
def refresh_later(policy, theta, tables, actions, space):
    actions.now[0] += 1


@generic("actions")
def refresh_touched(policy, theta, tables, actions, scores, n_slots, space):
    """Recompute the states whose probabilities depend on the coordinates of a batch; lazy ones later."""


@refresh_touched.otherwise
def refresh_touched_all(policy, theta, tables, actions, scores, n_slots, space):
    refresh_changed(policy, theta, tables, actions, space)


@refresh_touched.on(Actions)
def refresh_touched_rows(policy, theta, tables, actions, scores, n_slots, space):
    refresh_coordinates(policy, theta, tables, actions, scores, n_slots, space)


@generic("policy")
def refresh_coordinates(policy, theta, tables, actions, scores, n_slots, space):
    """Recompute the rows that depend on the coordinates of a batch."""


@refresh_coordinates.otherwise
def refresh_everywhere(policy, theta, tables, actions, scores, n_slots, space):
    refresh_all(policy, theta, tables, actions, space)


@kernel
def step_touched(policy, theta, tables, actions, eta, omega, scores, n_slots, space):
    """theta += eta omega in the coordinates of a batch, whose rows follow; False, and theta stays, if it is not finite.

    omega : float64[slots], overwritten
    """
    coordinate, finite = scores.coordinate, True
    for i in range(n_slots):
        omega[i] = theta[coordinate[i]] + eta * omega[i]
        finite &= math.isfinite(omega[i])
    if finite:
        for i in range(n_slots):
            theta[coordinate[i]] = omega[i]
        refresh_touched(policy, theta, tables, actions, scores, n_slots, space)
    return finite
