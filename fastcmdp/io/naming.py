"""From a description to a model: which reward is maximised, what is limited, where to start.

A signal is named as the file names it; "-NAME" is its negative, "label:NAME" pays 1 in each state that has the
label, so that its discounted sum counts visits. A constraint is "SIGNAL <= NUMBER" or "SIGNAL >= NUMBER".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.criteria import criterion_of
from fastcmdp.errors import ModelError
from fastcmdp.io.description import Constraint, Description, Problem, uniform
from fastcmdp.text import nearest, visible
from fastcmdp.variables import name_of_state

Floats = NDArray[np.float64]

LABEL = "label:"
INITIAL = "init"
_CONSTRAINT = re.compile(r"\s*(.*?)\s*(<=|>=|≤|≥|=<|=>|<|>|==|=)\s*(\S*)\s*", re.DOTALL)
_SENSES = {"<=": "<=", ">=": ">=", "≤": "<=", "≥": ">="}


def build(
    description: Description,
    *,
    reward: str | None = None,
    constraints: str | Sequence[str] | None = None,
    gamma: float | str | None = None,
    start: str | int | ArrayLike | None = None,
) -> CMDP:
    """The model that these choices make of a description; see `fastcmdp.load` for what they may be.

    Raises
    ------
    ModelError
        A name that is not there (the nearest is offered), a constraint that cannot be read, no discount, no
        initial state; and as `CMDP`.

    Examples
    --------
    >>> from fastcmdp import envs
    >>> from fastcmdp.io.description import describe
    >>> file = describe(envs.resource_gathering())
    >>> build(file, reward="-attacks", constraints="rew_gold >= 1", gamma=0.9)
    CMDP(94 states, 302 choices, 326 branches, gamma=0.9, maximise -attacks, rew_gold >= 1)
    """
    saved = description.problem
    gamma = saved.gamma if gamma is None else gamma
    if gamma is None:
        raise ModelError("this file has no discount factor: give gamma, in (0, 1), such as gamma=0.95")
    criterion = criterion_of(gamma)
    objective = reward if reward is not None else saved.reward or _only_reward(description)
    bounds = list(saved.constraints or ()) if constraints is None else parse_constraints(constraints)
    names = [objective, *(bound.name for bound in bounds)]
    columns = [signal(description, name) for name in names]
    stated = CMDP(
        description.state_to_choice,
        description.choice_to_branch,
        description.branch_target,
        description.branch_prob,
        columns[0],
        columns[1:] or None,
        gamma=float(gamma) if criterion == "discounted" else 0.5,  # of no account for other criteria
        start=start_distribution(description, start),
        limits=[bound.limit for bound in bounds] or None,
        sense=[bound.sense for bound in bounds],
        action_of_choice=_distinct_actions(description),
        names=_distinct(names),
        variables=description.variables,
    )
    return stated.with_criterion(criterion)


def with_problem(
    description: Description,
    *,
    reward: str | None = None,
    constraints: str | Sequence[str] | None = None,
    gamma: float | str | None = None,
    start: str | int | ArrayLike | None = None,
) -> Description:
    """The description with such a problem in place of what it tells itself, for the native format to keep."""
    saved = description.problem
    bounds = saved.constraints if constraints is None else tuple(parse_constraints(constraints))
    if criterion_of(gamma) == "discounted" and gamma is not None and not 0.0 < float(gamma) < 1.0:
        raise ModelError(f"gamma is {gamma}; it must be in (0, 1)")
    for name in [reward, *(bound.name for bound in bounds or ())]:
        if name is not None:
            signal(description, name)
    problem = Problem(saved.gamma if gamma is None else gamma, reward or saved.reward, bounds)
    chosen = description.start if start is None else start_distribution(description, start)
    return replace(description, problem=problem, start=chosen)


def parse_constraints(limits: str | Iterable[str]) -> list[Constraint]:
    """Constraints from text.

    Examples
    --------
    >>> parse_constraints("attacks <= 0.25")
    [Constraint(name='attacks', sense='<=', limit=0.25)]
    """
    lines = [limits] if isinstance(limits, str) else list(limits)
    return [_constraint(line) for line in lines]


def signal(description: Description, name: str) -> Floats:
    """A named signal as one number per choice."""
    if name in description.rewards:
        return description.on_choices(name)
    if name.startswith(LABEL):
        return _visits(description, name[len(LABEL) :].strip())
    if name.startswith("-"):
        return -signal(description, name[1:].strip())
    if name in labels_of(description):
        raise ModelError(f"{name!r} is a label, not a reward; {LABEL + name!r} counts visits to it")
    raise ModelError(_unknown("reward", name, signal_names(description)))


def signal_names(description: Description) -> list[str]:
    """All that `signal` takes, without negatives."""
    return [*description.rewards, *(LABEL + label for label in labels_of(description))]


def labels_of(description: Description) -> dict[str, NDArray[np.int64]]:
    """The labels of states, "init" of the initial ones among them, as the tools that write files have it."""
    initial, _ = description.initial_states()
    labels = dict(description.labels)
    if initial.size:
        labels.setdefault(INITIAL, initial)
    return labels


def start_distribution(description: Description, start: str | int | ArrayLike | None) -> Floats:
    """The start distribution, (S,), that is meant; an array is passed on."""
    if start is None:
        if description.start is None:
            raise ModelError(
                "this file has no initial state: give start, a state's number, a label, 'uniform', or a "
                "probability for each state"
            )
        return description.start
    n_states = description.n_states
    if isinstance(start, str):
        name = start.strip()
        labels = labels_of(description)
        name = name if name in labels else name.removeprefix(LABEL).strip()
        if name in labels:
            chosen = uniform(labels[name], n_states)
            if chosen is None:
                raise ModelError(f"no state has the label {name!r}, so nothing can start there")
            return chosen
        if name == "uniform":
            return np.full(n_states, 1.0 / n_states)
        if not re.fullmatch(r"\d{1,10}", name):
            raise ModelError(_unknown("start", name, [*labels, "uniform"]) + ", or a state's number")
        start = int(name)
    if isinstance(start, int | np.integer):
        if not 0 <= start < n_states:
            raise ModelError(f"start is state {start}; there are {n_states}, numbered from 0")
        return np.bincount([int(start)], minlength=n_states).astype(np.float64)
    return np.asarray(start)


def summary(description: Description) -> dict[str, Any]:
    """What a file offers, for `inspect`: sizes, signals with their ranges, labels, the start, the problem.

    Examples
    --------
    >>> from fastcmdp import envs
    >>> from fastcmdp.io.description import describe
    >>> summary(describe(envs.river_swim(limit=5.0)))["rewards"]["strokes"]
    {'least': 0.0, 'greatest': 1.0, 'on': ['choices']}
    """
    states, is_uniform = description.initial_states()
    rewards = {}
    for name, reward in description.rewards.items():
        values = description.on_choices(name)
        parts = ("states", reward.states), ("choices", reward.choices), ("branches", reward.branches)
        rewards[name] = {
            "least": float(values.min()),
            "greatest": float(values.max()),
            "on": [kind for kind, part in parts if part is not None],
        }
    lengths = np.diff(description.state_to_choice)
    saved = description.problem
    return {
        "states": description.n_states,
        "choices": description.n_choices,
        "branches": description.n_branches,
        "choices_of_a_state": [int(lengths.min()), int(lengths.max())],
        "rewards": rewards,
        "labels": {name: len(members) for name, members in description.labels.items()},
        "initial_states": states[:10].tolist(),
        "n_initial_states": len(states),
        "start_is_uniform": is_uniform,
        "actions": list(description.action_names),
        "variables": list(description.variables),
        "gamma": saved.gamma,
        "reward": saved.reward,
        "constraints": [f"{c.name} {c.sense} {c.limit!r}" for c in saved.constraints or ()],
        "notes": list(description.notes),
    }


def text_summary(description: Description) -> str:
    """`summary` as lines to read."""
    contents = summary(description)
    low, high = contents["choices_of_a_state"]
    lines = [
        f"{contents['states']} states, {contents['choices']} choices ({low} to {high} a state), "
        f"{contents['branches']} branches"
    ]
    if contents["rewards"]:
        lines.append("rewards (range over choices):")
    for name, reward in contents["rewards"].items():
        kinds = f"on {', '.join(reward['on'])}" if reward["on"] else "zero everywhere"
        lines.append(f"  {visible(name)}: {reward['least']:g} to {reward['greatest']:g}, {kinds}")
    if contents["labels"]:
        lines.append("labels (states that have them); label:NAME counts visits:")
    lines += [f"  {visible(name)}: {count}" for name, count in contents["labels"].items()]
    if contents["n_initial_states"] == 0:
        lines.append("start: none; give one")
    else:
        shown = ", ".join(map(str, contents["initial_states"]))
        shown += ", ..." if contents["n_initial_states"] > len(contents["initial_states"]) else ""
        kind = (
            ""
            if contents["n_initial_states"] == 1
            else ", uniform"
            if contents["start_is_uniform"]
            else ", weighted"
        )
        lines.append(f"start: {contents['n_initial_states']} states ({shown}){kind}")
    if contents["actions"]:
        names = [visible(name) or "(no name)" for name in contents["actions"][:20]]
        names += ["..."] if len(contents["actions"]) > 20 else []
        lines.append(f"actions: {', '.join(names)}")
    if contents["variables"]:
        lines.append(f"variables of a state: {', '.join(map(visible, contents['variables']))}")
        lines.append(f"  state 0: {name_of_state(description.variables, 0)}")
    if contents["gamma"] is not None:
        gamma = contents["gamma"]
        lines.append(f"gamma: {gamma if isinstance(gamma, str) else format(gamma, 'g')}")
    if contents["reward"] is not None:
        goal = f"maximise {contents['reward']}" + "".join(f", {line}" for line in contents["constraints"])
        lines.append(visible(goal))
    lines += [f"note: {visible(note)}" for note in contents["notes"]]
    return "\n".join(lines)


def _constraint(line: str) -> Constraint:
    asked = f"constraint {line!r}: 'NAME <= NUMBER' or 'NAME >= NUMBER' is expected"
    match = _CONSTRAINT.fullmatch(line) if isinstance(line, str) else None
    if match is None or not match[1] or not match[3]:
        raise ModelError(asked)
    if match[2] not in _SENSES:
        raise ModelError(f"{asked}; {match[2]!r} is none of these")
    try:
        limit = float(match[3])
    except ValueError:
        raise ModelError(f"{asked}; {match[3]!r} is no number") from None
    if not math.isfinite(limit):
        raise ModelError(f"{asked}; {match[3]!r} is not finite")
    return Constraint(match[1], _SENSES[match[2]], limit)


def _only_reward(description: Description) -> str:
    names = list(description.rewards)
    if len(names) == 1:
        return names[0]
    if not names:
        what = ", or a label's visits: " + ", ".join(map(repr, signal_names(description)))
        raise ModelError("this file has no rewards" + (what if labels_of(description) else ""))
    raise ModelError(
        f"this file has {len(names)} rewards: say which is maximised, reward= one of "
        f"{', '.join(map(repr, names))}, or with - before it to minimise"
    )


def _visits(description: Description, label: str) -> Floats:
    labels = labels_of(description)
    if label not in labels:
        raise ModelError(_unknown("label", label, labels))
    marked = np.zeros(description.n_states)
    marked[labels[label]] = 1.0
    return marked[description.choice_state]


def _distinct_actions(description: Description) -> Any:
    """Action numbers if no state has one twice; else choices are numbered by their place."""
    if description.actions is None:
        return None
    pairs = description.choice_state << 32 | description.actions
    if not (np.diff(pairs) > 0).all() and len(np.unique(pairs)) < len(pairs):
        return None
    return description.actions


def _distinct(names: list[str]) -> list[str]:
    """Names with a count where one comes again: the same signal may be limited from both sides."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return result


def _unknown(what: str, name: str, valid: Iterable[str]) -> str:
    names = list(valid)
    hint = nearest(name, names) or nearest(LABEL + name, names)
    shown = ", ".join(map(repr, names[:30])) + (", ..." if len(names) > 30 else "")
    return f"unknown {what}: {name!r}; {hint}" + (f"this file has {shown}" if names else "this file has none")
