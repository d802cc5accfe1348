"""Models from a function of the state: what can be done there, and what may follow."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fastcmdp.check import require
from fastcmdp.cmdp import CMDP
from fastcmdp.envs.limits import Limit, with_limit
from fastcmdp.errors import ModelError

Option = tuple[Iterable[tuple[float, Hashable]], float, Sequence[float]]
Options = Mapping[int, Option]
"""By action: outcomes as (probability, next state), reward, costs."""

MOST_STATES = 2_000_000


def from_steps(
    start: Hashable | Mapping[Any, float],
    step: Callable[[Any], Options],
    *,
    gamma: float,
    names: Sequence[str],
    limit: Limit = None,
    sense: str | Sequence[str] = "<=",
    variables: Sequence[str] | None = None,
) -> CMDP:
    """A model of the states that can be reached, numbered in the order in which they are found.

    Parameters
    ----------
    start : state, or mapping from states to probabilities
        States are anything hashable: numbers, text, tuples.
    step : callable
        ``step(state)`` is a mapping from action numbers to (outcomes, reward, costs), at least one: outcomes are pairs
        (probability, next state), of which several may lead to the same; costs are m numbers.
    gamma : float
        Discount factor in (0, 1).
    names : 1+m strings
        What the reward and the costs are called.
    limit : float, m numbers or None
        Limits on the discounted sums of costs. None: halfway (`fastcmdp.envs.limits`).
    sense : str or m strings
        "<=" or ">=".
    variables : n strings, optional
        Names of the n numbers of a state, where states are tuples of n numbers: the model's variables.

    Raises
    ------
    ModelError
        A state without options, options with other than m costs, more than 2,000,000 states, or what `CMDP` refuses.

    Examples
    --------
    >>> from fastcmdp.envs import from_steps
    >>> def wear(level):
    ...     worse = [(0.7, level), (0.3, min(level + 1, 3))]
    ...     return {0: (worse, 3.0 - level, [0.0]), 1: ([(1.0, 0)], 0.0, [5.0])}
    >>> from_steps(0, wear, gamma=0.9, names=["output", "repairs"], limit=10.0)
    CMDP(4 states, 8 choices, 11 branches, gamma=0.9, maximise output, repairs <= 10)
    """
    chances = start if isinstance(start, Mapping) else {start: 1.0}
    number = {state: k for k, state in enumerate(chances)}
    pairs, m = list(chances), len(names) - 1
    choices, branches = [0], [0]
    target: list[int] = []
    prob: list[float] = []
    actions: list[int] = []
    signals: list[list[float]] = []
    while len(choices) <= len(pairs):
        state = pairs[len(choices) - 1]
        options = step(state)
        if not options:
            raise ModelError(f"state {state!r} has no options: step must give at least one, if only to stay")
        for action, (outcomes, reward, costs) in options.items():
            if len(costs) != m:
                raise ModelError(
                    f"state {state!r}, action {action}: {len(costs)} costs, and {m} are named; give one each"
                )
            rows: dict[int, float] = {}
            for p, after in outcomes:
                if p != 0.0:
                    k = number.setdefault(after, len(pairs))
                    if k == len(pairs):
                        pairs.append(after)
                    rows[k] = rows.get(k, 0.0) + p
            target += rows.keys()
            prob += rows.values()
            branches.append(len(target))
            actions.append(action)
            signals.append([reward, *costs])
        choices.append(len(actions))
        require(len(pairs) <= MOST_STATES, "states", len(pairs), f"at most {MOST_STATES:,}", error=ModelError)
    table = np.array(signals, np.float64)
    first = np.zeros(len(pairs))
    first[: len(chances)] = list(chances.values())
    cmdp = CMDP(
        choices, branches, target, prob, table[:, 0], list(table[:, 1:].T), gamma=gamma, start=first,
        limits=np.zeros(m), sense=sense, action_of_choice=actions, names=names,
        variables=None if variables is None else dict(zip(variables, np.array(pairs).T, strict=True)),
    )  # fmt: skip
    return with_limit(cmdp, limit)
