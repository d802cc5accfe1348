"""Where policies can stay for ever, and how long they can take to come to a state at the most."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # its parts load at their first use

from fastcmdp.criteria.plain import Flags, Floats, Integers, PlainRows
from fastcmdp.errors import ModelError

MOST_ROUNDS = 500  # of policy iteration
SHOWN = 6  # states that a message names
LONGEST = 1e9  # steps that a policy may take to arrive: probabilities in double precision tell no longer times apart
_ROUNDING = 64.0 * 2.0**-52  # of a sum of such times


def matrix(rows: PlainRows) -> Any:
    """P as a sparse array (C, S)."""
    shape = len(rows.choice_to_branch) - 1, rows.n_states
    return scipy.sparse.csr_array((rows.branch_prob, rows.branch_target, rows.choice_to_branch), shape=shape)


def reachable(rows: PlainRows) -> Flags:
    """States that some policy reaches from the start."""
    seen: Flags = rows.start > 0
    edges = _graph(rows, np.ones(len(rows.choice_to_branch) - 1, bool))
    front = np.flatnonzero(seen)
    while front.size:
        near = np.unique(edges[front].indices)
        front = near[~seen[near]]
        seen[front] = True
    return seen


def never(rows: PlainRows, target: Flags) -> tuple[Flags, Flags]:
    """The largest set of states without ``target`` in which a policy can stay for ever, and the choices that stay.

    Choices that may leave are struck out, then states without choices, until nothing changes: the end components
    outside of ``target`` are within what is left (de Alfaro, Formal verification of probabilistic systems, 1997).
    """
    inside, kept = ~target, ~target[rows.choice_state]
    left = np.bincount(rows.choice_state[kept], minlength=rows.n_states)
    arriving = scipy.sparse.csc_array(matrix(rows))
    front = np.flatnonzero(target)
    while front.size:
        into = np.unique(arriving[:, front].indices)
        struck = into[kept[into]]
        kept[struck] = False
        states = rows.choice_state[struck]
        np.subtract.at(left, states, 1)
        front = np.unique(states[inside[states] & (left[states] == 0)])
        inside[front] = False
    return inside, kept


def classes(rows: PlainRows, kept: Flags) -> list[Integers]:
    """Recurrent classes of a policy that takes each kept choice with some probability."""
    graph = _graph(rows, kept)
    n, label = scipy.sparse.csgraph.connected_components(graph, directed=True, connection="strong")
    source = np.repeat(np.arange(rows.n_states), np.diff(graph.indptr))
    closed = np.ones(n, bool)
    closed[label[source[label[source] != label[graph.indices]]]] = False
    closed[label[np.diff(graph.indptr) == 0]] = False
    return [np.flatnonzero(label == k) for k in np.flatnonzero(closed)]


def _graph(rows: PlainRows, kept: Flags) -> Any:
    edges = kept[rows.branch_choice] & (rows.branch_prob > 0)
    source = rows.choice_state[rows.branch_choice[edges]]
    entries = np.ones(len(source)), (source, rows.branch_target[edges])
    return scipy.sparse.csr_array(entries, shape=(rows.n_states, rows.n_states))


def longest_times(rows: PlainRows, over: Flags, into: Flags) -> Floats:
    """The largest mean number of steps over policies until ``into``, from states in ``over``; 0 elsewhere.

    Infinite, for one state at least, where a policy is met that takes more than LONGEST.

    Policy iteration on w(s) = 1 + max_a sum over s' not in ``into`` of P(s'|s,a) w(s'), whose policies all arrive.
    A state of ``into`` that is also ``over`` has the mean time of its return.
    """
    first = rows.state_to_choice[:-1]
    step, source = matrix(rows), rows.choice_state
    choice, counts = first.copy(), ~into & over
    weight = np.zeros(rows.n_states)
    for _ in range(MOST_ROUNDS):
        weight = _time(step[choice], over, counts)
        if np.isinf(weight).any():
            return weight
        ahead = step @ np.where(counts, weight, 0.0)
        best = np.maximum.reduceat(ahead, first)
        gain = best - ahead[choice]
        worth = gain > _ROUNDING * (1.0 + best)  # a gain of one step counts again at every visit
        if not worth[over].any():
            return _told(np.where(over, 1.0 + best, 0.0))
        top = np.where(ahead >= best[source], np.arange(len(source)), len(source))
        better = np.minimum.reduceat(top, first)
        choice = np.where(worth, better, choice)
    raise ModelError(f"the longest time has not settled after {MOST_ROUNDS} rounds of policy iteration")


def _time(chain: Any, over: Flags, counts: Flags) -> Floats:
    n = len(over)
    keep = (
        scipy.sparse.diags_array(over.astype(float)) @ chain @ scipy.sparse.diags_array(counts.astype(float))
    )
    from scipy.sparse.linalg import splu

    system = scipy.sparse.csc_array(scipy.sparse.eye_array(n) - keep)
    try:
        return _told(splu(system).solve(over.astype(float)))
    except RuntimeError:  # singular: to rounding, the chain stays for ever
        return np.where(over, np.inf, 0.0)


def _told(times: Floats) -> Floats:
    """Times, infinite where they are beyond LONGEST or lost in rounding."""
    return np.where((times >= 0.0) & (times <= LONGEST), times, np.inf)


def listed(states: Integers) -> str:
    """Some states for a message."""
    more = f", ... ({len(states)} in all)" if len(states) > SHOWN else ""
    return ", ".join(map(str, states[:SHOWN].tolist())) + more
