"""What a model file says, before anyone has chosen what to maximise: made by every reader, taken by every writer.

A description names rewards (on states, choices and branches), labels of states and actions, and knows the
start; `fastcmdp.io.naming` makes a CMDP of it. Rows of probabilities are checked here, for all formats alike:
numbers written with D significant digits are off by up to 5/10^D of themselves, or half a unit in the D-th
place behind the point, so a row of n of them may miss 1 by

    (n + 10) / 2 · 10^-D, at least 64 sqrt(n) eps, at most 0.001.                                  (1)

Rows off by more than rounding of doubles, but not by more than (1), are divided by their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.cmdp import CMDP, table_of
from fastcmdp.errors import ModelError
from fastcmdp.rows import MAX_STATES, precision, rounded_up, sum_tolerance
from fastcmdp.variables import Variables, state_variables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EPS = float(np.finfo(np.float64).eps)
TEXT_DIGITS = 10  # of numbers whose origin is unknown: Storm's text has ten
LEAST_DIGITS = 6  # a file of short numbers is taken to be exact to so many
MOST_OFF = 1e-3
START = "fastcmdp_start"
"""The state reward that holds a start distribution where a format has nothing but a set of start states."""


@dataclass(frozen=True, eq=False)
class Reward:
    """A reward as a file has it: parts on states, choices and branches, each optional, which add up.

    Attributes
    ----------
    states, choices, branches : float64 (S,), (C,), (B,) or None
    """

    states: Floats | None = None
    choices: Floats | None = None
    branches: Floats | None = None


class Constraint(NamedTuple):
    """A bound on the discounted sum of a signal: `name sense limit`, with sense "<=" or ">="."""

    name: str
    sense: str
    limit: float


class Problem(NamedTuple):
    """What a file says about the question: the discount, what to maximise, the constraints; None: nothing."""

    gamma: float | str | None = None
    reward: str | None = None
    constraints: tuple[Constraint, ...] | None = None


@dataclass(frozen=True, eq=False)
class Description:
    """A model as a file tells it, checked for structure; arrays are read-only.

    Attributes
    ----------
    state_to_choice, choice_to_branch : int64 (S+1,), (C+1,)
    branch_target, branch_prob : int64 or int32 (B,), float (B,)
        As for `fastcmdp.CMDP`; rows sum to 1.
    rewards : mapping of str to Reward
    labels : mapping of str to int64 arrays
        The states that have each label, ascending.
    start : float64 (S,) or None
        The start distribution; None where the file has no initial state.
    actions : int32 (C,) or None
        The number of each choice's action, or its place in ``action_names``; not unique within a state.
    action_names : tuple of str
        Empty where actions have numbers only.
    problem : Problem
    notes : tuple of str
        What the reader changed or assumed.
    variables : mapping of str to bool, int64 or float64 (S,)
        What states mean, as `fastcmdp.CMDP` has it.
    """

    state_to_choice: Ints
    choice_to_branch: Ints
    branch_target: NDArray[Any]
    branch_prob: NDArray[Any]
    rewards: Mapping[str, Reward] = field(default_factory=dict)
    labels: Mapping[str, Ints] = field(default_factory=dict)
    start: Floats | None = None
    actions: NDArray[np.int32] | None = None
    action_names: tuple[str, ...] = ()
    problem: Problem = field(default_factory=Problem)
    notes: tuple[str, ...] = ()
    variables: Variables = field(default_factory=dict)

    def __post_init__(self) -> None:
        rewards, start = dict(self.rewards), self.start
        stored = rewards.pop(START, None)
        if stored is not None and stored.states is not None:
            start = stored.states
        self._set("rewards", MappingProxyType(rewards))
        self._set("labels", MappingProxyType(dict(self.labels)))
        self._set("start", start)
        self._set("variables", MappingProxyType(dict(state_variables(self.variables, self.n_states))))
        self._check()
        parts = [self.state_to_choice, self.choice_to_branch, self.branch_target, self.branch_prob]
        parts += [part for reward in rewards.values() for _, part in self._parts(reward) if part is not None]
        parts += list(self.labels.values())
        for array in (*parts, self.start, self.actions):
            if array is not None:
                array.flags.writeable = False

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return len(self.state_to_choice) - 1

    @property
    def n_choices(self) -> int:
        """Number of choices C."""
        return len(self.choice_to_branch) - 1

    @property
    def n_branches(self) -> int:
        """Number of branches B."""
        return len(self.branch_target)

    @property
    def choice_state(self) -> Ints:
        """The state of each choice, int64 (C,)."""
        return np.repeat(np.arange(self.n_states), np.diff(self.state_to_choice))

    def on_choices(self, name: str) -> Floats:
        """A named reward as one number per choice: branches by expectation, then all parts added up."""
        return self.on_choices_of(self.rewards[name])

    def on_choices_of(self, reward: Reward) -> Floats:
        """`on_choices` of a reward that may be none of this model's."""
        total = np.zeros(self.n_choices)
        if reward.choices is not None:
            total += reward.choices
        if reward.states is not None:
            total += reward.states[self.choice_state]
        if reward.branches is not None:
            begin = self.choice_to_branch[:-1]
            mean = np.add.reduceat(self.branch_prob * reward.branches, begin)
            # Rounding must not take a mean out of the range of its terms.
            least = np.minimum.reduceat(reward.branches, begin)
            total += np.clip(mean, least, np.maximum.reduceat(reward.branches, begin))
        return total

    def initial_states(self) -> tuple[Ints, bool]:
        """The states of positive start probability, and whether the start is uniform over them."""
        if self.start is None:
            return np.empty(0, dtype=np.int64), True
        states = np.flatnonzero(self.start)
        return states, bool((self.start[states] == 1.0 / len(states)).all())

    def stored_rewards(self) -> dict[str, Reward]:
        """The rewards, and the start distribution as one where a set of initial states cannot tell it."""
        rewards = dict(self.rewards)
        if not self.initial_states()[1]:
            rewards[START] = Reward(states=self.start)
        return rewards

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _parts(self, reward: Reward) -> list[tuple[int, Floats | None]]:
        sizes = self.n_states, self.n_choices, self.n_branches
        return list(zip(sizes, (reward.states, reward.choices, reward.branches), strict=True))

    def _check(self) -> None:
        """Structure; what a reader has checked already with better names for places is checked again."""
        if not 0 < self.n_states <= MAX_STATES:
            raise ModelError(f"{self.n_states} states; 1 to {MAX_STATES} are accepted")
        check_offsets(self.state_to_choice, self.choice_to_branch, self.n_branches)
        if len(self.branch_prob) != self.n_branches:
            raise ModelError(f"{len(self.branch_prob)} probabilities for {self.n_branches} branches")
        bad = np.flatnonzero((self.branch_target < 0) | (self.branch_target >= self.n_states))
        if bad.size:
            target = self.branch_target[bad[0]]
            raise ModelError(f"branch {bad[0]} leads to state {target}; there are {self.n_states} states")
        for name, reward in self.rewards.items():
            for size, part in self._parts(reward):
                if part is not None and (part.shape != (size,) or not np.isfinite(part).all()):
                    raise ModelError(f"reward {name!r} has a value that is not finite, or not {size} of them")
        for name, states in self.labels.items():
            if states.size and not 0 <= states.min() <= states.max() < self.n_states:
                raise ModelError(f"label {name!r} is on a state beyond the last of {self.n_states}")
        if self.actions is not None and self.actions.shape != (self.n_choices,):
            raise ModelError(f"{self.actions.size} actions for {self.n_choices} choices")
        if self.actions is not None and self.actions.min() < 0:
            raise ModelError(f"choice {self.actions.argmin()} has action {self.actions.min()}")
        if self.actions is not None and self.action_names and self.actions.max() >= len(self.action_names):
            raise ModelError(f"an action {self.actions.max()} without a name")
        if self.start is not None and self.start.shape != (self.n_states,):
            raise ModelError(f"a start of {self.start.size} probabilities for {self.n_states} states")
        if self.start is not None and not (np.isfinite(self.start).all() and self.start.min() >= 0.0):
            raise ModelError("a start probability is negative or not finite")
        if self.start is not None and not abs(self.start.sum() - 1.0) <= MOST_OFF:
            raise ModelError(f"start probabilities sum to {self.start.sum()}; they must sum to 1")


def describe(cmdp: CMDP) -> Description:
    """The description of a model: its signals under their names, its start, discount, limits and senses."""
    cmdp = table_of(cmdp)
    signals = dict(zip(cmdp.names, np.vstack([cmdp.reward, cmdp.costs.T]), strict=True))
    limits = zip(cmdp.names[1:], cmdp.sense, cmdp.limits.tolist(), strict=True)
    return Description(
        cmdp.state_to_choice,
        cmdp.choice_to_branch,
        cmdp.branch_target,
        cmdp.branch_prob,
        rewards={name: Reward(choices=values) for name, values in signals.items()},
        start=cmdp.start,
        actions=cmdp.action_of_choice,
        problem=Problem(cmdp.gamma, cmdp.names[0], tuple(Constraint(*limit) for limit in limits)),
        variables=cmdp.variables,
    )


def checked_rows(
    offsets: Ints,
    prob: NDArray[Any],
    digits: int,
    place: Callable[[int], str],
    renormalize: bool = False,
) -> tuple[Floats, tuple[str, ...]]:
    """Rows of probabilities that sum to 1, and a note if that took more than undoing the rounding of doubles.

    Parameters
    ----------
    offsets : int64 (C+1,)
        Where rows begin; none is empty.
    prob : numbers (B,)
    digits : int
        Significant digits that the numbers were written with; see equation (1) of this module. Numbers of half or
        single precision are judged by that as well.
    place : callable
        The name of row q in a message.
    renormalize : bool
        Divide rows by their sums, whatever these are.

    Raises
    ------
    ModelError
        A number is negative, not finite or above 1; a row misses 1 by more than text rounding explains.
    """
    eps = precision(prob.dtype)
    numbers = rounded_up(prob.astype(np.float64), eps)
    bad = np.flatnonzero(~((numbers >= 0.0) & (numbers <= (np.inf if renormalize else 1.0 + MOST_OFF))))
    if bad.size:
        row = int(np.searchsorted(offsets, bad[0], side="right")) - 1
        raise ModelError(f"{place(row)} has probability {numbers[bad[0]]}; it must be in [0, 1]")
    lengths = np.diff(offsets)
    sums = np.add.reduceat(numbers, offsets[:-1])
    off = np.abs(sums - 1.0)
    exact = 64.0 * EPS * np.sqrt(lengths)
    text = np.minimum((lengths + 10) / 2 * 10.0 ** -max(digits, LEAST_DIGITS), MOST_OFF)
    explained = np.maximum(text, sum_tolerance(lengths, eps))
    allowed = np.full(len(sums), np.inf) if renormalize else explained
    worst = int(np.argmax(off / allowed)) if not renormalize else int(off.argmax())
    if not (off[worst] <= allowed[worst] and sums.min() > 0.0 and np.isfinite(off[worst])):
        worst = worst if sums.min() > 0.0 else int(sums.argmin())
        raise ModelError(
            f"probabilities of {place(worst)} sum to {sums[worst]!s}; they must sum to 1 (rounding of the text "
            f"explains at most {allowed[worst]:.1e}). renormalize=True divides every row by its sum"
        )
    rough = np.flatnonzero(off > exact)
    if rough.size == 0:
        return numbers, ()
    sums[off <= exact] = 1.0
    worst = int(rough[off[rough].argmax()])
    reason = ", as rounded numbers do" if (off <= explained).all() else ", which rounding does not explain"
    note = (
        f"{rough.size} of {len(sums)} rows of probabilities miss 1 by up to {off[worst]:.1e}{reason} "
        f"({place(worst)}); they were divided by their sums"
    )
    return numbers / np.repeat(sums, lengths), (note,)


def uniform(states: ArrayLike, n_states: int) -> Floats | None:
    """The uniform start over some states; None if there are none."""
    start = np.zeros(n_states)
    start[np.asarray(states, dtype=np.int64)] = 1.0
    total = start.sum()
    return start / total if total > 0 else None


def grouped(states: Ints, codes: Ints, names: Sequence[str]) -> dict[str, Ints]:
    """Labels of states from pairs (state, place of the label in ``names``)."""
    order = np.lexsort((states, codes))
    codes, states = codes[order], states[order]
    fresh = np.append(True, (np.diff(codes) != 0) | (np.diff(states) != 0))[: len(states)]
    codes, states = codes[fresh], states[fresh]
    bounds = np.searchsorted(codes, np.arange(len(names) + 1))
    return {name: states[bounds[i] : bounds[i + 1]] for i, name in enumerate(names)}


def compact(
    choice_to_branch: Ints, states: Floats | None, choices: Floats | None, branches: Floats | None
) -> Reward:
    """A reward without the parts that are all zero, and on choices where all branches of a choice agree."""
    if branches is not None and choices is None:
        begin = choice_to_branch[:-1]
        least = np.minimum.reduceat(branches, begin)
        if np.array_equal(least, np.maximum.reduceat(branches, begin)):
            choices, branches = least, None
    parts = (part if part is not None and part.any() else None for part in (states, choices, branches))
    return Reward(*parts)


def check_offsets(state_to_choice: Ints, choice_to_branch: Ints, n_branches: int) -> None:
    """A ModelError unless rows follow each other, none of them empty, from 0 to the number of entries."""
    _check_offsets(state_to_choice, len(choice_to_branch) - 1, "state", "choice")
    _check_offsets(choice_to_branch, n_branches, "choice", "branch")


def _check_offsets(offsets: Ints, size: int, owner: str, owned: str) -> None:
    if len(offsets) < 2:
        raise ModelError(f"{max(len(offsets) - 1, 0)} rows of {owned} entries; at least one is needed")
    if offsets[0] != 0 or offsets[-1] != size:
        raise ModelError(
            f"{owner} rows run from {offsets[0]} to {offsets[-1]}; they must run from 0 to {size}, the number "
            f"of {owned} entries"
        )
    lengths = np.diff(offsets)
    bad = np.flatnonzero(lengths <= 0)
    if bad.size and lengths[bad[0]] < 0:
        raise ModelError(f"the rows of {owner} {bad[0]} and the next overlap")
    if bad.size:
        remedy = " (a deadlock): give it a loop, as Storm and PRISM do unless told not to" * (
            owner == "state"
        )
        raise ModelError(f"{owner} {bad[0]} has no {owned}{remedy}")
