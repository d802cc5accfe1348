"""Tabular softmax: one parameter a choice."""

from __future__ import annotations

from typing import NamedTuple

from fastcmdp.kernels.policy.scores import table_scores
from fastcmdp.kernels.policy.softmax import logit, refresh_coordinates, refresh_states


class Tabular(NamedTuple):
    """One parameter a choice: logit(q) = theta[q]."""

    n_parameters: int


@logit.on(Tabular)
def tabular_logit(policy, theta, q):
    return theta[q]


@refresh_coordinates.on(Tabular)
def refresh_tabular(policy, theta, tables, actions, scores, n_slots, space):
    # A state's coordinates enter a batch together and in order, so its first one opens each run.
    coordinate, choice_state, state_to_choice = scores.coordinate, tables.choice_state, tables.state_to_choice
    states = scores.position
    n = 0
    for i in range(n_slots):
        s = choice_state[coordinate[i]]
        states[n] = s
        n += state_to_choice[s] == coordinate[i]
    refresh_states(policy, theta, tables, actions, space, states, n)


@table_scores.on(Tabular)
def tabular_scores(policy, theta, tables, actions, pair, n_pairs, scores):
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
