"""Rows as criteria take and give them, and what a criterion is called."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.check import is_number
from fastcmdp.errors import ModelError
from fastcmdp.text import unknown

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class PlainRows(NamedTuple):
    """Compressed rows with signals on choices, in the user's units."""

    state_to_choice: Integers  # (S+1,)
    choice_to_branch: Integers  # (C+1,)
    branch_target: NDArray[np.integer[Any]]  # (B,)
    branch_prob: Floats  # (B,)
    signals: Floats  # (C, 1+m): reward, costs
    start: Floats  # (S,)
    action_of_choice: NDArray[np.integer[Any]]  # (C,)
    variables: dict[str, NDArray[Any]]

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.state_to_choice) - 1

    @property
    def choice_state(self) -> Integers:
        """The state of each choice."""
        return np.repeat(np.arange(self.n_states), np.diff(self.state_to_choice))

    @property
    def branch_choice(self) -> Integers:
        """The choice of each branch."""
        return np.repeat(np.arange(len(self.choice_to_branch) - 1), np.diff(self.choice_to_branch))


class Restated(NamedTuple):
    """The same question as one of discounted sums."""

    rows: PlainRows
    gamma: float


def criterion_of(gamma: float | str | None) -> str:
    """The criterion that a discount factor names: "average", "episodes" for 1, else "discounted".

    Examples
    --------
    >>> criterion_of("average"), criterion_of(1.0), criterion_of(0.9)
    ('average', 'episodes', 'discounted')
    """
    if isinstance(gamma, str):
        if gamma not in ("average", "episodes"):
            raise ModelError(
                f"gamma is {gamma!r}: {unknown('criterion', gamma, ['average', 'episodes'])}; or a number"
            )
        return gamma
    return "episodes" if is_number(gamma) and gamma == 1 else "discounted"


def with_weights(
    rows: PlainRows, weight: Floats, gamma: float, sink: int, scale: float, renewal: int | None
) -> PlainRows:
    """Rows with probabilities P(s'|s,a) w(s') / (gamma w(s)) and signals f / w, times ``scale``.

    Transitions to ``renewal``, where there is one, take what makes a choice's row sum to (1 - 1/w(s)) / gamma; all the
    rest goes to ``sink``. Weight 0 marks states that the question ends in or never meets: their rows lead to the sink,
    their signals are 0.
    """
    source, n_choices = rows.choice_state, len(rows.choice_to_branch) - 1
    own = weight[source]
    lives = own > 0
    safe = np.where(lives, own, 1.0)
    by = np.where(lives, 1.0 / (gamma * safe), 0.0)
    prob = rows.branch_prob * by[rows.branch_choice] * weight[rows.branch_target]
    if renewal is not None:
        prob[rows.branch_target == renewal] = 0.0
    prob[rows.branch_target == sink] = 0.0
    begins = rows.choice_to_branch[:-1]
    inner = np.add.reduceat(prob, begins)
    back = np.zeros(n_choices)
    if renewal is not None:
        back = np.where(lives, np.maximum(0.0, (safe - 1.0) / (gamma * safe) - inner), 0.0)
    lost = np.maximum(0.0, 1.0 - inner - back)
    extra = [(lost, sink)] if renewal is None else [(back, renewal), (lost, sink)]
    n = len(extra)
    ends = np.repeat(rows.choice_to_branch[1:], n)
    added = np.stack([mass for mass, _ in extra], axis=1).ravel()
    targets = np.tile([target for _, target in extra], n_choices)
    return rows._replace(
        choice_to_branch=rows.choice_to_branch + n * np.arange(n_choices + 1),
        branch_prob=np.insert(prob, ends, added),
        branch_target=np.insert(rows.branch_target, ends, targets),
        signals=np.where(lives, scale / safe, 0.0)[:, None] * rows.signals,
    )
