"""The model: a constrained Markov decision process in compressed rows, checked once and then frozen.

A CMDP asks for a policy π that solves

    maximise J_r(π)  subject to  J_gi(π) <= d_i  or  J_gi(π) >= d_i,  i = 1..m,            (1)
    J_f(π) = E[Σ_t γ^t f(s_t, a_t)],  s_0 ~ ρ,  a_t ~ π(·|s_t),  s_{t+1} ~ P(·|s_t, a_t),   (2)

in the user's units; J is not normalised by 1 - γ. The kernels see it shifted and scaled, once, to

    maximise J_r̃(π)  subject to  J_ci(π) >= 0,   r̃ in [0, 1],  c_i in [-1, 1],              (3)
    r̃   = (r - shift) / scale_r,                                                          (4)
    c_i = σ_i ((1-γ) d_i - g_i) / scale_i,   σ_i = +1 for "<=" and -1 for ">=",             (5)

where a limit d_i that is more than a thousand spans of g_i beyond what this can sum to counts as one that far, and
shift = 0 and the scales are 1 whenever the values are within range already (and, for rewards, the least does
not exceed their spread: an offset would only add noise), unless they are tiny. From (2), (4) and (5), values and
multipliers go back to the user's units by

    J_r = scale_r J_r̃ + shift / (1-γ),   J_gi = d_i - σ_i scale_i J_ci,                     (6)
    λ_i = λ̃_i scale_r / scale_i.                                                           (7)

A choice is an action available in a state. The choices of state s are state_to_choice[s] up to (not
including) state_to_choice[s+1], the branches of choice q are choice_to_branch[q] up to choice_to_branch[q+1],
and branch b leads to state branch_target[b] with probability branch_prob[b].
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its parts load at their first use: `import fastcmdp` then takes half the time

from fastcmdp.criteria import CRITERIA, PlainRows, criterion_of, unrolled
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.from_tables import Table, rows_of_tables, signals_in
from fastcmdp.rows import (
    Int32Array,
    IntArray,
    action_numbers,
    branch_rows,
    expectation,
    normalised,
    probabilities,
    remark_on_penalty,
    row_offsets,
    signal_values,
    start_distribution,
    state_offsets,
)
from fastcmdp.text import unknown
from fastcmdp.units import (
    FloatArray,
    Units,
    anchors_of,
    check_finite,
    constraint_units,
    discount,
    limits_of,
    numbers_in,
    read_only,
    reward_units,
    room_below,
    senses,
    signal_names,
)
from fastcmdp.variables import name_of_state, state_variables


@dataclass(frozen=True, init=False, eq=False, repr=False)
class CMDP(Units):
    """A constrained Markov decision process: explicit, validated at construction, read-only.

    This constructor takes the compressed rows (see the module's text); `from_arrays` takes tables.
    Branches of probability zero are dropped; rows are divided by their sums, unless these are 1 to rounding.

    Parameters
    ----------
    state_to_choice : integers (S+1,)
        Where the choices of each state begin, from 0 to C; every state has at least one.
    choice_to_branch : integers (C+1,)
        Where the branches of each choice begin, from 0 to B; every choice has at least one.
    branch_target : integers (B,)
        Next states, in 0..S-1. A target may recur within a choice.
    branch_prob : numbers (B,)
        Their probabilities; n of a choice sum to 1 within 64 sqrt(n) eps of the dtype, at most 0.01.
    reward : numbers (C,), (S,) or (B,)
        On choices, states or branches; the latter two become their expectation on choices. Numbers that
        are given must be finite and below 1e150 in size, those of impossible transitions too.
    costs : None, one array like `reward`, or m such arrays in a list, a tuple or a two-dimensional array
        The constrained signals g_i.
    gamma : float
        Discount factor in (0, 1).
    start : None, int or numbers (S,)
        Start distribution ρ: uniform, one state, or probabilities.
    limits : m floats
        The bounds d_i on the unnormalised discounted sums J_gi; a scalar will do for m = 1.
    sense : str or m strings
        "<=" or ">=".
    renormalize : bool
        Divide rows (and `start`) by their sums, whatever positive number these are; a warning says how far off they
        were.
    action_of_choice : integers (C,), optional
        The user's number of each choice's action; by default its position within the state.
    names : 1+m strings, optional
        Names of the reward and the costs; by default "reward", and "cost" or "cost 0", "cost 1", ...
        Control characters in them are shown as \\x1b and such.
    variables : mapping of str to booleans, integers or floats (S,), optional
        What states mean: values of variables, such as coordinates; `state_name` shows them.

    Attributes
    ----------
    state_to_choice, choice_to_branch : int64 (S+1,), (C+1,)
    branch_target, branch_prob : int32 (B,), float64 (B,)
    action_of_choice : int32 (C,)
    start : float64 (S,)
    gamma : float
    reward, costs : float64 (C,), (C, m), in the user's units
    limits : float64 (m,), in the user's units
    anchors : float64 (m,)
        Limits as equation (5) has them.
    sense, names : tuples of m and 1+m strings
    variables : mapping of str to bool, int64 or float64 (S,)
    signals : float64 (C, 1+m)
        In kernel units, equation (3): the reward in [0, 1], then the constraints in [-1, 1].
    reward_shift, reward_scale : float
    constraint_scale : float64 (m,)

    Raises
    ------
    ModelError
        If anything above does not hold; the message names the place, the value and the remedy.

    Examples
    --------
    One state with two choices, one of which earns and costs 1:

    >>> cmdp = CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [0, 1], [0, 1], gamma=0.5, limits=1.5)
    >>> cmdp
    CMDP(1 states, 2 choices, 2 branches, gamma=0.5, maximise reward, cost <= 1.5)
    >>> cmdp.signals
    array([[ 0.  ,  0.75],
           [ 1.  , -0.25]])
    """

    state_to_choice: IntArray
    choice_to_branch: IntArray
    branch_target: Int32Array
    branch_prob: FloatArray
    action_of_choice: Int32Array
    start: FloatArray
    gamma: float
    reward: FloatArray
    costs: FloatArray
    limits: FloatArray
    anchors: FloatArray
    sense: tuple[str, ...]
    names: tuple[str, ...]
    variables: Mapping[str, npt.NDArray[Any]]
    signals: FloatArray
    reward_shift: float
    reward_scale: float
    constraint_scale: FloatArray

    def __init__(
        self,
        state_to_choice: npt.ArrayLike,
        choice_to_branch: npt.ArrayLike,
        branch_target: npt.ArrayLike,
        branch_prob: npt.ArrayLike,
        reward: npt.ArrayLike,
        costs: npt.ArrayLike | Sequence[npt.ArrayLike] | None = None,
        *,
        gamma: float,
        start: npt.ArrayLike | None = None,
        limits: npt.ArrayLike | None = None,
        sense: str | Sequence[str] = "<=",
        renormalize: bool = False,
        action_of_choice: npt.ArrayLike | None = None,
        names: Sequence[str] | None = None,
        variables: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        self._set(gamma=discount(gamma), state_to_choice=state_offsets(state_to_choice))
        self._set(
            action_of_choice=action_numbers(action_of_choice, self.state_to_choice, self.choice_state),
            variables=state_variables(variables or {}, self.n_states),
        )
        begin = row_offsets(choice_to_branch, "choice_to_branch", self.n_choices)
        rows, kept, branch_name = branch_rows(
            begin, branch_target, branch_prob, self.n_states, self._choice_name, renormalize
        )
        self._set(choice_to_branch=rows[0], branch_target=rows[1], branch_prob=rows[2])

        # A valid model has S <= C <= B, and where two of them are equal there is one choice a state or one
        # branch a choice, so that both readings agree.
        places = (
            (self.n_choices, self._choice_name), (self.n_states, "state {}".format), (len(kept), branch_name)
        )  # fmt: skip

        def on_choices(values: npt.ArrayLike, what: str) -> FloatArray:
            signal = signal_values(values, what, places)
            if signal.size == self.n_choices:
                return signal
            if signal.size == self.n_states:
                return signal[self.choice_state]
            return expectation(signal[kept], self.branch_prob, self.choice_to_branch)

        signals = signals_in(costs, {(self.n_choices,), (self.n_states,), (len(kept),)})
        columns = [on_choices(values, f"cost {i}") for i, values in enumerate(signals)]
        self._set(
            start=start_distribution(start, self.n_states, renormalize),
            reward=on_choices(reward, "reward"),
            costs=np.stack(columns, axis=1) if columns else np.empty((self.n_choices, 0)),
        )
        self._set(sense=senses(sense, self.n_constraints), names=signal_names(names, self.n_constraints))
        self._set_limits(limits)
        remark_on_penalty(self.reward, lambda q: f"reward of {self._choice_name(q)}")

    @classmethod
    def from_arrays(
        cls,
        transition: Table,
        reward: Table,
        costs: Table = None,
        gamma: float | str | None = None,
        *,
        criterion: str | None = None,
        start: npt.ArrayLike | None = None,
        limits: npt.ArrayLike | None = None,
        sense: str | Sequence[str] = "<=",
        available: npt.ArrayLike | None = None,
        renormalize: bool = False,
        names: Sequence[str] | None = None,
        variables: Mapping[str, npt.ArrayLike] | None = None,
    ) -> CMDP:
        """Build a model from tables over states and actions; sparse input is never made dense.

        Parameters
        ----------
        transition : numbers (S, A, S), a list of A sparse (S, S), or one sparse (S*A, S)
            P(s'|s, a); in the last form as row s*A + a.
        reward : numbers (S, A) or (S,), or per transition in any form that `transition` may have
            Per transition it becomes its expectation; entries a sparse reward does not store are 0.
        costs : None, one table like `reward`, a list or tuple of m such, or an array (m, S, A) or (m, S)
            A list of sparse tables is m signals; one signal that is itself such a list is given as [[...]].
            An array that may be one table (S, A) or m tables (S,) is taken for the former.
        gamma : float
            Discount factor in (0, 1); required with the discounted criterion. 1 is "episodes", "average" that one.
        criterion : str, optional
            "discounted", "average" or "episodes"; the latter two take no gamma, see `with_criterion`.
        available : bool (S, A), optional
            The actions each state has; what is said about other actions is not looked at.
        start, limits, sense, renormalize, names, variables
            As for `CMDP`.

        Raises
        ------
        ModelError
            As for `CMDP`; and if shapes disagree.

        Examples
        --------
        >>> stay, move = np.eye(2), np.eye(2)[::-1]
        >>> cmdp = CMDP.from_arrays(np.stack([stay, move], axis=1), [[0, 0], [2, 0]], gamma=0.9, start=0)
        >>> cmdp.signals[:, 0].tolist(), cmdp.reward_scale
        ([0.0, 0.0, 1.0, 0.0], 2.0)
        """
        if criterion not in (None, "discounted") and gamma is not None:
            raise ModelError(f"criterion={criterion!r} takes no gamma, but gamma is {gamma!r}: leave it out")
        named = criterion or criterion_of(gamma)
        rows = rows_of_tables(transition, reward, costs, available)
        stated = cls(
            *rows[:-1],
            gamma=gamma if named == "discounted" else 0.5,  # type: ignore[arg-type]  # None is refused there
            start=start,
            limits=limits,
            sense=sense,
            renormalize=renormalize,
            action_of_choice=rows.action_of_choice,
            names=names,
            variables=variables,
        )
        return stated.with_criterion(named)

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return len(self.state_to_choice) - 1

    @property
    def n_choices(self) -> int:
        """Number of choices C, the actions of all states together."""
        return int(self.state_to_choice[-1])

    @property
    def n_branches(self) -> int:
        """Number of branches B, the transitions of positive probability."""
        return len(self.branch_target)

    @property
    def n_actions(self) -> int:
        """One more than the greatest action number."""
        return int(self.action_of_choice.max()) + 1

    @property
    def n_constraints(self) -> int:
        """Number of constraints m."""
        return int(self.costs.shape[1])

    @property
    def widest(self) -> int:
        """The most choices that a state has."""
        return int(np.diff(self.state_to_choice).max())

    def bind(self, policy: Any) -> Any:
        """A policy class checked against this model, for runs: ``policy.on_table(self)``."""
        return policy.on_table(self)

    @cached_property
    def choice_state(self) -> Int32Array:
        """The state of each choice, int32 (C,)."""
        states = np.arange(self.n_states, dtype=np.int32)
        return read_only(np.repeat(states, np.diff(self.state_to_choice)))

    def state_name(self, state: int) -> str:
        """What a state means: the values of its variables, or its number where the model has none.

        Examples
        --------
        >>> rows = [0, 1, 2], [0, 1, 2], [0, 1], [1, 1], [0, 0]
        >>> CMDP(*rows, gamma=0.5).state_name(1)
        'state 1'
        >>> CMDP(*rows, gamma=0.5, variables={"x": [3, 4], "done": [False, True]}).state_name(1)
        'x=4, done'
        """
        return name_of_state(self.variables, state) or f"state {state}"

    def transition_matrix(self) -> scipy.sparse.csr_array:
        """P as a float64 CSR array (C, S), duplicate targets summed; built once, read-only.

        Examples
        --------
        >>> CMDP([0, 1], [0, 2], [0, 0], [0.25, 0.75], [0], gamma=0.5).transition_matrix().toarray()
        array([[1.]])
        """
        return self._matrix

    @cached_property
    def _matrix(self) -> scipy.sparse.csr_array:
        rows = (self.branch_prob, self.branch_target, self.choice_to_branch)
        matrix = scipy.sparse.csr_array(rows, shape=(self.n_choices, self.n_states))
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        for array in (matrix.data, matrix.indices, matrix.indptr):
            read_only(array)
        return matrix

    def with_limits(self, limits: npt.ArrayLike | None) -> CMDP:
        """The same model with other limits (m floats, user's units); it shares the arrays of this one.

        Examples
        --------
        >>> cmdp = CMDP([0, 1], [0, 1], [0], [1], [1], [1], gamma=0.5, limits=1)
        >>> cmdp.with_limits(3)
        CMDP(1 states, 1 choices, 1 branches, gamma=0.5, maximise reward, cost <= 3)
        """
        other = object.__new__(CMDP)
        other.__dict__.update(self.__dict__)
        other._set_limits(limits)
        return other

    def with_reward(self, reward: npt.ArrayLike) -> CMDP:
        """The same model with another reward on its choices (C,), user's units; it shares the rows of this one.

        Examples
        --------
        >>> cmdp = CMDP([0, 1], [0, 1], [0], [1], [1], [1], gamma=0.5, limits=1)
        >>> cmdp.with_reward([3.0]).reward.tolist()
        [3.0]
        """
        values = numbers_in(reward, "reward").astype(np.float64)
        if values.shape != (self.n_choices,):
            raise ModelError(f"reward has shape {values.shape}; ({self.n_choices},) is expected")
        check_finite(values, lambda q: f"reward of {self._choice_name(q)}")
        other = object.__new__(CMDP)
        other.__dict__.update(self.__dict__)
        other._set(reward=values)
        other._set_limits(self.limits)
        return other

    def with_costs(
        self, cost: npt.ArrayLike, limit: float, sense: str = "<=", name: str | None = None
    ) -> CMDP:
        """The same model with one constraint more, the last: a cost on choices (C,); it shares the rows of this one.

        Without a ``name`` it is "cost", or "cost" and a number.

        Raises
        ------
        ModelError
            A cost of another shape or not finite; a sense or a limit that is none; a name that is taken.

        Examples
        --------
        >>> cmdp = CMDP([0, 1], [0, 1], [0], [1], [1], gamma=0.5)
        >>> cmdp.with_costs([2.0], 3.0)
        CMDP(1 states, 1 choices, 1 branches, gamma=0.5, maximise reward, cost <= 3)
        >>> cmdp.with_costs([2.0], 3.0, name="energy").names
        ('reward', 'energy')
        """
        column = numbers_in(cost, "cost").astype(np.float64)
        if column.shape != (self.n_choices,):
            raise ModelError(f"cost has shape {column.shape}; ({self.n_choices},) is expected")
        check_finite(column, lambda q: f"cost of {self._choice_name(q)}")
        m = self.n_constraints
        if name is None:
            name = next(
                n for n in ("cost", *(f"cost {i}" for i in range(m, 2 * m + 2))) if n not in self.names
            )
        other = object.__new__(CMDP)
        other.__dict__.update(self.__dict__)
        other._set(
            costs=np.column_stack([self.costs, column]),
            sense=(*self.sense, *senses(sense, 1)),
            names=signal_names((*self.names, name), m + 1),
        )
        other._set_limits(np.append(self.limits, limit))
        return other

    def with_constraints(self, kept: Sequence[int]) -> CMDP:
        """The same model with some of its constraints, by number; it shares the rows of this one.

        Examples
        --------
        >>> cmdp = CMDP([0, 1], [0, 1], [0], [1], [1], [[1], [2]], gamma=0.5, limits=[3, 5])
        >>> cmdp.with_constraints([1])
        CMDP(1 states, 1 choices, 1 branches, gamma=0.5, maximise reward, cost 1 <= 5)
        """
        numbers = [int(i) for i in kept]
        unknown = [i for i in numbers if not 0 <= i < self.n_constraints]
        if unknown or len(set(numbers)) != len(numbers):
            raise ModelError(
                f"constraints {numbers}: different numbers from 0 to {self.n_constraints - 1} are expected"
            )
        other = object.__new__(CMDP)
        other.__dict__.update(self.__dict__)
        other._set(
            costs=np.ascontiguousarray(self.costs[:, numbers]),
            sense=tuple(self.sense[i] for i in numbers),
            names=(self.names[0], *(self.names[1 + i] for i in numbers)),
        )
        other._set_limits(self.limits[numbers])
        return other

    def with_criterion(
        self, criterion: str, *, steps: int | None = None, limits: npt.ArrayLike | None = None
    ) -> CMDP:
        """The same rows and signals under another criterion, as a discounted model of its own gamma.

        Parameters
        ----------
        criterion : str
            "average": J_f = lim (1/T) E sum f; with a state that every policy visits again one state of rest is added,
            the last; without, the chain restarts now and then, and a RuntimeWarning says how seldom. "episodes":
            undiscounted sums up to absorbing ends, where every policy ends.
            "steps": undiscounted sums of the first ``steps`` steps, time in the state. "discounted": this model.
        steps : int
            The horizon of "steps".
        limits : m floats, optional
            Limits on those averages or sums, in the user's units; by default the numbers of this model.

        Returns
        -------
        CMDP
            Its values, limits and multipliers are those of the criterion, for every policy, exactly but for restarts:
            docs/average.md, docs/horizon.md. gamma is its own, of the longest mean time that a policy takes to come
            back or to end.

        Raises
        ------
        SettingError
            An unknown criterion; steps without "steps", or that without them.
        ModelError
            A multichain model, or a policy that never ends: it is named.

        Examples
        --------
        >>> cmdp = CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [0, 1], [0, 1], gamma=0.5, limits=0.5)
        >>> cmdp.with_criterion("average")
        CMDP(2 states, 3 choices, 3 branches, gamma=0.5, maximise reward, cost <= 0.5)
        """
        if criterion not in CRITERIA and criterion != "discounted":
            raise SettingError(unknown("criterion", criterion, ("discounted", *CRITERIA)))
        if (criterion == "steps") != (steps is not None):
            raise SettingError(f"criterion {criterion!r} with steps={steps!r}: steps go with 'steps' alone")
        bounds = self.limits if limits is None else limits
        if criterion == "discounted":
            return self.with_limits(bounds)
        rows, gamma = CRITERIA[criterion](self.plain() if steps is None else unrolled(self.plain(), steps))
        return CMDP(
            *rows[:4],
            rows.signals[:, 0],
            list(rows.signals[:, 1:].T) or None,
            gamma=gamma,
            start=rows.start,
            limits=bounds if self.n_constraints else None,
            sense=self.sense,
            renormalize=True,
            action_of_choice=rows.action_of_choice,
            names=self.names,
            variables=rows.variables,
        )

    def plain(self) -> PlainRows:
        """Rows, signals and start as `fastcmdp.criteria` takes them, in the user's units."""
        signals = np.column_stack([self.reward, self.costs])
        return PlainRows(
            self.state_to_choice, self.choice_to_branch, self.branch_target, self.branch_prob, signals, self.start,
            self.action_of_choice, dict(self.variables),
        )  # fmt: skip

    def fingerprint(self) -> str:
        """Hash of everything that a result depends on: rows, signals, start, discount, limits and senses."""
        digest = hashlib.sha256(repr((self.gamma, self.sense)).encode())
        for array in (
            self.state_to_choice, self.choice_to_branch, self.branch_target, self.branch_prob,
            self.start, self.reward, self.costs, self.limits,
        ):  # fmt: skip
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def action_probabilities(self, policy: npt.ArrayLike) -> FloatArray:
        """A policy, given per choice (C,) or as a table (S, A) by action number, as probabilities per choice.

        Raises
        ------
        ModelError
            If the shape is neither, or a state's probabilities over its actions are no distribution; the
            tolerance is that of the rows of a model.

        Examples
        --------
        >>> cmdp = CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [0, 1], gamma=0.5)
        >>> cmdp.action_probabilities([[0.25, 0.75]]).tolist()
        [0.25, 0.75]
        """
        values = numbers_in(policy, "policy")
        if values.ndim == 2 and values.shape[0] == self.n_states and values.shape[1] >= self.n_actions:
            values = values[self.choice_state, self.action_of_choice]
        elif values.shape != (self.n_choices,):
            raise ModelError(
                f"policy has shape {values.shape}; it must be ({self.n_choices},), a probability per choice, "
                f"or ({self.n_states}, {self.n_actions}), a row per state and a column per action"
            )
        prob = probabilities(values, lambda q: f"policy's probability of {self._choice_name(q)}")
        return normalised(
            prob, self.state_to_choice, values.dtype, None, lambda s: f"policy's probabilities of state {s}"
        )

    def __repr__(self) -> str:
        bounds = zip(self.names[1:], self.sense, self.limits, strict=True)
        goals = [f"maximise {self.names[0]}"] + [f"{name} {sign} {limit:g}" for name, sign, limit in bounds]
        return (
            f"CMDP({self.n_states} states, {self.n_choices} choices, {self.n_branches} branches, "
            f"gamma={self.gamma:g}, {', '.join(goals)})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(**state)  # unpickled arrays are writable
        self._set(variables=state_variables(self.variables, self.n_states))

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, read_only(value) if isinstance(value, np.ndarray) else value)

    def _choice_name(self, q: int) -> str:
        s = int(np.searchsorted(self.state_to_choice, q, side="right")) - 1
        return f"state {s}, action {self.action_of_choice[q]}"

    def _set_limits(self, limits: npt.ArrayLike | None) -> None:
        """Set the limits and, by equations (4) and (5), the signals and their scales."""
        bounds = limits_of(limits, self.n_constraints)
        shift, scale = reward_units(float(self.reward.min()), float(self.reward.max()))
        anchors = anchors_of(bounds, self.gamma, self.costs)
        constraints = self._sign * room_below(anchors, self.gamma, self.costs)
        scales = constraint_units(np.abs(constraints).max(axis=0))
        self._set(
            limits=bounds,
            anchors=read_only(anchors),
            reward_shift=shift,
            reward_scale=scale,
            constraint_scale=scales,
            signals=np.column_stack([(self.reward - shift) / scale, constraints / scales]),
        )


def table_of(model: object) -> CMDP:
    """What is given, if it is a model with a table, which exact answers and files need; else a ModelError.

    Examples
    --------
    >>> table_of("model.npz")
    Traceback (most recent call last):
    fastcmdp.errors.ModelError: a str is no model with a table of transitions; a fastcmdp.CMDP is needed
    """
    if isinstance(model, CMDP):
        return model
    refusal = f"a {type(model).__name__} is no model with a table of transitions; a fastcmdp.CMDP is needed"
    simulates = isinstance(model, Units)
    raise ModelError(refusal + ": a simulator has evaluate(policy), by Monte Carlo, instead" * simulates)
