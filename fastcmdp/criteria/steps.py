"""A horizon of T steps: the model with time in its states, whose episodes end after T steps at the latest.

A copy: methods draw from tables, which no rows made on the way could stand in for. States (t, s) are kept where s can
be reached in t steps from the start, and all ends are one. Exact values without the copy: `fastcmdp.exact.horizon`.
"""

from __future__ import annotations

import numpy as np

from fastcmdp.check import whole
from fastcmdp.criteria.ends import matrix
from fastcmdp.criteria.episodes import end_states
from fastcmdp.criteria.plain import PlainRows
from fastcmdp.errors import ModelError

MOST_BRANCHES = 200_000_000


def unrolled(rows: PlainRows, steps: int) -> PlainRows:
    """Rows over time and state, the end last; variables "t" and "state", -1 at the end.

    Raises
    ------
    ModelError
        More than 2e8 branches: `fastcmdp.exact.horizon` answers without the copy.
    """
    n_steps = whole("steps", steps, 1)
    ends, step = end_states(rows), matrix(rows)
    sizes, offset = np.diff(rows.choice_to_branch), rows.choice_to_branch
    layers, here = [], np.flatnonzero((rows.start > 0) & ~ends)
    total = 0
    for _ in range(n_steps):
        choices = _ranges(rows.state_to_choice[here], rows.state_to_choice[here + 1])
        total += int(sizes[choices].sum())
        if total > MOST_BRANCHES:
            raise ModelError(
                f"{n_steps} steps need more than {MOST_BRANCHES} branches: see fastcmdp.exact.horizon"
            )
        layers.append((here, choices))
        near = np.unique(step[choices].indices)
        here = near[~ends[near]]
    begins = np.cumsum([0] + [len(states) for states, _ in layers])
    end = int(begins[-1])
    targets, probs, counts = [], [], []
    for t, (_, choices) in enumerate(layers):
        place = np.full(rows.n_states, end, np.int64)
        if t + 1 < n_steps:
            following = layers[t + 1][0]
            place[following] = begins[t + 1] + np.arange(len(following))
        branches = _ranges(offset[choices], offset[choices + 1])
        targets.append(place[rows.branch_target[branches]])
        probs.append(rows.branch_prob[branches])
        counts.append(sizes[choices])
    state = np.concatenate([states for states, _ in layers])
    source = np.concatenate([choices for _, choices in layers])
    time = np.repeat(np.arange(n_steps), [len(states) for states, _ in layers])
    width = np.diff(rows.state_to_choice)[state]
    first = np.zeros(end + 1)
    first[: len(layers[0][0])] = rows.start[layers[0][0]]
    first[end] = rows.start[ends].sum()
    return PlainRows(
        state_to_choice=np.concatenate(([0], np.cumsum(np.append(width, 1)))),
        choice_to_branch=np.concatenate(([0], np.cumsum(np.append(np.concatenate(counts), 1)))),
        branch_target=np.append(np.concatenate(targets), end),
        branch_prob=np.append(np.concatenate(probs), 1.0),
        signals=np.vstack([rows.signals[source], np.zeros(rows.signals.shape[1])]),
        start=first,
        action_of_choice=np.append(rows.action_of_choice[source], 0),
        variables={"t": np.append(time, -1), "state": np.append(state, -1)},
    )


def _ranges(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """All numbers of all ranges, one range after the other."""
    lengths = ends - begins
    shift = np.repeat(begins - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
    places: np.ndarray = shift + np.arange(int(lengths.sum()))
    return places
