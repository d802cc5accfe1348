"""The model: a constrained Markov decision process in compressed rows, checked once and then frozen.

A CMDP asks for a policy π that solves

    maximise J_r(π)  subject to  J_gi(π) <= d_i  or  J_gi(π) >= d_i,  i = 1..m,            (1)
    J_f(π) = E[Σ_t γ^t f(s_t, a_t)],  s_0 ~ ρ,  a_t ~ π(·|s_t),  s_{t+1} ~ P(·|s_t, a_t),   (2)

in the user's units; J is not normalised by 1 - γ. The kernels see it shifted and scaled, once, to

    maximise J_r̃(π)  subject to  J_ci(π) >= 0,   r̃ in [0, 1],  c_i in [-1, 1],              (3)
    r̃   = (r - shift) / scale_r,                                                          (4)
    c_i = σ_i ((1-γ) d_i - g_i) / scale_i,   σ_i = +1 for "<=" and -1 for ">=",             (5)

where shift = 0 and the scales are 1 whenever the values are within range already (and, for rewards, the least does
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its parts load at their first use: `import fastcmdp` then takes half the time

from fastcmdp.errors import ModelError
from fastcmdp.units import (
    EPS,
    Units,
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

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Table = Any  # what a user may pass: an array-like, a scipy.sparse array or matrix, or a list of those

MAX_STATES = 2**31 - 1  # states are int32 in branch_target


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
        Divide rows (and `start`) by their sums, whatever positive number these are.
    action_of_choice : integers (C,), optional
        The user's number of each choice's action; by default its position within the state.
    names : 1+m strings, optional
        Names of the reward and the costs; by default "reward", and "cost" or "cost 0", "cost 1", ...

    Attributes
    ----------
    state_to_choice, choice_to_branch : int64 (S+1,), (C+1,)
    branch_target, branch_prob : int32 (B,), float64 (B,)
    action_of_choice : int32 (C,)
    start : float64 (S,)
    gamma : float
    reward, costs : float64 (C,), (C, m), in the user's units
    limits : float64 (m,), in the user's units
    sense, names : tuples of m and 1+m strings
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
    sense: tuple[str, ...]
    names: tuple[str, ...]
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
    ) -> None:
        self._set(gamma=discount(gamma), state_to_choice=_state_offsets(state_to_choice))
        self._set(action_of_choice=self._actions(action_of_choice))
        kept, branch_name = self._set_branches(choice_to_branch, branch_target, branch_prob, renormalize)

        def on_choices(values: npt.ArrayLike, what: str) -> FloatArray:
            return self._on_choices(values, what, kept, branch_name)

        signals = _signals(costs, {(self.n_choices,), (self.n_states,), (len(kept),)})
        columns = [on_choices(values, f"cost {i}") for i, values in enumerate(signals)]
        self._set(
            start=_start(start, self.n_states, renormalize),
            reward=on_choices(reward, "reward"),
            costs=np.stack(columns, axis=1) if columns else np.empty((self.n_choices, 0)),
        )
        self._set(sense=senses(sense, self.n_constraints), names=signal_names(names, self.n_constraints))
        self._set_limits(limits)

    @classmethod
    def from_arrays(
        cls,
        transition: Table,
        reward: Table,
        costs: Table = None,
        gamma: float | None = None,
        *,
        start: npt.ArrayLike | None = None,
        limits: npt.ArrayLike | None = None,
        sense: str | Sequence[str] = "<=",
        available: npt.ArrayLike | None = None,
        renormalize: bool = False,
        names: Sequence[str] | None = None,
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
            Discount factor in (0, 1); required.
        available : bool (S, A), optional
            The actions each state has; what is said about other actions is not looked at.
        start, limits, sense, renormalize, names
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
        table = _stacked(transition, "transition")
        S = int(table.shape[1])
        A = int(table.shape[0]) // S
        mask = _mask(available, S, A)
        chosen = np.flatnonzero(mask)
        table = table if mask.all() else table[chosen]

        def signal(given: Table, what: str) -> npt.NDArray[Any]:
            if not _is_sparse(given):
                array = numbers_in(given, what)
                if array.shape == (S,):
                    return array
                if array.shape == (S, A):
                    return array[mask]
                if array.shape != (S, A, S):
                    raise ModelError(
                        f"{what} has shape {array.shape}; for {S} states and {A} actions it must be "
                        f"({S}, {A}), ({S},), ({S}, {A}, {S}), or sparse in a form that `transition` may have"
                    )
            rows = _stacked(given, what)
            if rows.shape != (S * A, S):
                raise ModelError(f"{what} has sparse rows {rows.shape}; `transition` has {(S * A, S)}")
            rows = rows if mask.all() else rows[chosen]

            def place(i: int) -> str:
                s, a = divmod(int(chosen[np.searchsorted(rows.indptr, i, side="right") - 1]), A)
                return f"{what} of state {s}, action {a}, next state {rows.indices[i]}"

            values = rows.data.astype(np.float64)
            check_finite(values, place)
            return _values_at(rows, values, table)

        signals = _signals(costs, {(S,), (S, A), (S, A, S)})
        return cls(
            _cumulated(np.count_nonzero(mask, axis=1)),
            table.indptr,
            table.indices,
            table.data,
            signal(reward, "reward"),
            [signal(given, f"cost {i}") for i, given in enumerate(signals)],
            gamma=gamma,  # type: ignore[arg-type]  # None is refused there
            start=start,
            limits=limits,
            sense=sense,
            renormalize=renormalize,
            action_of_choice=chosen % A,
            names=names,
        )

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

    @cached_property
    def choice_state(self) -> Int32Array:
        """The state of each choice, int32 (C,)."""
        states = np.arange(self.n_states, dtype=np.int32)
        return read_only(np.repeat(states, np.diff(self.state_to_choice)))

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
        given = numbers_in(policy, "policy")
        if given.ndim == 2 and given.shape[0] == self.n_states and given.shape[1] >= self.n_actions:
            given = given[self.choice_state, self.action_of_choice]
        elif given.shape != (self.n_choices,):
            raise ModelError(
                f"policy has shape {given.shape}; it must be ({self.n_choices},), a probability per choice, "
                f"or ({self.n_states}, {self.n_actions}), a row per state and a column per action"
            )
        prob = _probabilities(given, lambda q: f"policy's probability of {self._choice_name(q)}")
        return _normalised(
            prob, self.state_to_choice, given.dtype, None, lambda s: f"policy's probabilities of state {s}"
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

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, read_only(value) if isinstance(value, np.ndarray) else value)

    def _choice_name(self, q: int) -> str:
        s = int(np.searchsorted(self.state_to_choice, q, side="right")) - 1
        return f"state {s}, action {self.action_of_choice[q]}"

    def _actions(self, given: npt.ArrayLike | None) -> Int32Array:
        if given is None:
            positions = np.arange(self.n_choices) - self.state_to_choice[self.choice_state]
            return positions.astype(np.int32)
        what = "action_of_choice"
        actions = _vector(_integers(given, what), what, self.n_choices, "choices")
        _check_range(actions, MAX_STATES, lambda q: f"{what}[{q}]")
        pairs = self.choice_state.astype(np.int64) << 32 | actions.astype(np.int64)
        if not (np.diff(pairs) > 0).all():  # sorted already in most models
            pairs.sort()
        twice = np.flatnonzero(pairs[1:] == pairs[:-1])
        if twice.size:
            state, action = divmod(int(pairs[twice[0]]), 2**32)
            raise ModelError(
                f"{what} gives state {state} action {action} twice; actions of a state must differ"
            )
        return actions.astype(np.int32)

    def _set_branches(
        self, offsets: npt.ArrayLike, target: npt.ArrayLike, prob: npt.ArrayLike, renormalize: bool
    ) -> tuple[npt.NDArray[np.bool_], Callable[[int], str]]:
        """Set the three arrays of branches; return which of those given are kept, and how to name one."""
        begin = _offsets(offsets, "choice_to_branch", self.n_choices)
        size = int(begin[-1])
        targets = _vector(_integers(target, "branch_target"), "branch_target", size, "branches")
        given = _vector(numbers_in(prob, "branch_prob"), "branch_prob", size, "branches")

        def branch_name(b: int) -> str:
            q = int(np.searchsorted(begin, b, side="right")) - 1
            return f"{self._choice_name(q)}, branch {b - begin[q]} (to state {targets[b]})"

        _check_range(targets, self.n_states, lambda b: f"branch_target of {branch_name(b)}")
        checked = _probabilities(given, lambda b: f"probability of {branch_name(b)}")
        kept = checked > 0.0
        begin_kept = _cumulated(kept)[begin]
        empty = np.flatnonzero(np.diff(begin_kept) == 0)
        if empty.size:
            raise ModelError(
                f"probabilities of {self._choice_name(empty[0])} sum to 0; they must sum to 1: leave out an "
                "action that a state does not have (from_arrays: available=)"
            )

        def row_name(q: int) -> str:
            return f"probabilities of {self._choice_name(q)}"

        self._set(
            choice_to_branch=begin_kept,
            branch_target=targets[kept].astype(np.int32),
            branch_prob=_normalised(checked[kept], begin_kept, given.dtype, renormalize, row_name),
        )
        return kept, branch_name

    def _on_choices(
        self, values: npt.ArrayLike, what: str, kept: npt.NDArray[np.bool_], branch_name: Callable[[int], str]
    ) -> FloatArray:
        """A signal on choices, states or branches (as given, before some were dropped) as one on choices."""
        given = numbers_in(values, what)
        # A valid model has S <= C <= B, and where two of them are equal there is one choice a state or one
        # branch a choice, so that both readings agree.
        name_of: dict[int, Callable[[int], str]] = {
            len(kept): branch_name,
            self.n_states: lambda s: f"state {s}",
            self.n_choices: self._choice_name,
        }
        if given.ndim != 1 or given.size not in name_of:
            raise ModelError(
                f"{what} has shape {given.shape}; it must be one-dimensional with one value per choice "
                f"({self.n_choices}), state ({self.n_states}) or branch ({len(kept)})"
            )
        signal = np.array(given, dtype=np.float64)
        check_finite(signal, lambda i: f"{what} of {name_of[given.size](i)}")
        if given.size == self.n_choices:
            return signal
        if given.size == self.n_states:
            return signal[self.choice_state]
        return _expectation(signal[kept], self.branch_prob, self.choice_to_branch)

    def _set_limits(self, limits: npt.ArrayLike | None) -> None:
        """Set the limits and, by equations (4) and (5), the signals and their scales."""
        bounds = limits_of(limits, self.n_constraints)
        shift, scale = reward_units(float(self.reward.min()), float(self.reward.max()))
        constraints = self._sign * room_below(bounds, self.gamma, self.costs)
        scales = constraint_units(np.abs(constraints).max(axis=0))
        self._set(
            limits=bounds,
            reward_shift=shift,
            reward_scale=scale,
            constraint_scale=scales,
            signals=np.column_stack([(self.reward - shift) / scale, constraints / scales]),
        )


def _is_sparse(values: Table) -> bool:
    """Whether values is sparse, or a list or tuple with something sparse in it."""
    return scipy.sparse.issparse(values) or (
        isinstance(values, (list, tuple)) and any(map(scipy.sparse.issparse, values))
    )


def _integers(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    array = numbers_in(values, what)
    if array.dtype.kind not in "iu":
        raise ModelError(
            f"{what} has dtype {array.dtype}; it must hold integers: cast it with .astype(np.int64)"
        )
    return array


def _vector(array: npt.NDArray[Any], what: str, size: int, items: str) -> npt.NDArray[Any]:
    if array.shape != (size,):
        raise ModelError(
            f"{what} has shape {array.shape}; it must be ({size},), one entry for each of {size} {items}"
        )
    return array


def _check_range(values: npt.NDArray[Any], end: int, place: Callable[[int], str]) -> None:
    good = (values >= 0) & (values < end)
    if not good.all():
        i = int(np.argmin(good))
        raise ModelError(f"{place(i)} is {values[i]}; it must be in 0..{end - 1}")


def _check_states(n_states: int) -> None:
    if not 1 <= n_states <= MAX_STATES:
        raise ModelError(f"the model has {n_states} states; it must have between 1 and {MAX_STATES}")


def _cumulated(counts: npt.NDArray[Any]) -> IntArray:
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _offsets(values: npt.ArrayLike, what: str, rows: int) -> IntArray:
    """Check that values are the offsets of so many compressed rows; as a new int64 array."""
    given = _integers(values, what)
    if given.shape != (rows + 1,):
        raise ModelError(f"{what} has shape {given.shape}; it must be ({rows + 1},), one more than rows")
    offsets = np.array(given, dtype=np.int64)
    if offsets[0] != 0:
        raise ModelError(f"{what}[0] is {offsets[0]}; it must be 0")
    falls = np.flatnonzero(np.diff(offsets) < 0)
    if falls.size:
        i = int(falls[0])
        raise ModelError(
            f"{what} falls from {offsets[i]} to {offsets[i + 1]} at entry {i + 1}; it must not decrease"
        )
    return offsets


def _state_offsets(values: npt.ArrayLike) -> IntArray:
    given = _integers(values, "state_to_choice")
    _check_states(given.size - 1)
    offsets = _offsets(given, "state_to_choice", given.size - 1)
    empty = np.flatnonzero(np.diff(offsets) == 0)
    if empty.size:
        raise ModelError(
            f"state {empty[0]} has no action ({empty.size} such in all); every state needs one: give an "
            "absorbing state an action that leads back to it"
        )
    return offsets


def _probabilities(values: npt.NDArray[Any], place: Callable[[int], str]) -> FloatArray:
    prob = np.array(values, dtype=np.float64)
    check_finite(prob, place)
    if prob.size and prob.min() < 0.0:
        i = int(np.argmin(prob))
        raise ModelError(f"{place(i)} is {prob[i]}; it must not be negative")
    return prob


def _normalised(
    prob: FloatArray,
    offsets: IntArray,
    dtype: np.dtype[Any],
    renormalize: bool | None,
    place: Callable[[int], str],
) -> FloatArray:
    """Check that the (non-empty) rows of prob sum to 1 and divide them, in place, by their sums.

    Rounding in the dtype of the input lets the sum of n probabilities stray by about eps sqrt(n).
    renormalize takes any positive sum; None means that this is not on offer.
    """
    lengths = np.diff(offsets)
    sums = np.add.reduceat(prob, offsets[:-1])
    eps = max(EPS, float(np.finfo(dtype).eps)) if dtype.kind == "f" else EPS
    wrong = np.abs(sums - 1.0) / np.minimum(64 * eps * np.sqrt(lengths), 0.01)
    if renormalize:
        wrong[sums > 0.0] = 0.0
    worst = int(np.argmax(wrong))
    if wrong[worst] > 1.0:
        remedy = "" if renormalize is not False else "; renormalize=True divides every row by its sum"
        raise ModelError(f"{place(worst)} sum to {sums[worst]}; they must sum to 1{remedy}")
    # Rows that sum to 1 to rounding stay as they are: a model built from its own rows keeps their bits.
    sums[np.abs(sums - 1.0) <= lengths * EPS] = 1.0
    prob /= np.repeat(sums, lengths)
    return prob


def _expectation(values: FloatArray, prob: FloatArray, offsets: IntArray) -> FloatArray:
    """Σ_b prob[b] values[b] over each row; rounding cannot take it out of the range of the row's values."""
    begin = offsets[:-1]
    mean = np.add.reduceat(prob * values, begin)
    return np.clip(mean, np.minimum.reduceat(values, begin), np.maximum.reduceat(values, begin))


def _signals(costs: Table, shapes: set[tuple[int, ...]]) -> list[Table]:
    """The m signals in what was passed as costs; shapes are those that one of them may have as an array."""
    if costs is None:
        return []
    if scipy.sparse.issparse(costs):
        return [costs]
    if isinstance(costs, (list, tuple)) and (
        not costs or any(isinstance(part, np.ndarray) or _is_sparse(part) for part in costs)
    ):
        return list(costs)
    array = numbers_in(costs, "costs")
    one, many = array.shape in shapes, array.shape[1:] in shapes
    if one and many and array.ndim == 3:
        raise ModelError(
            f"costs has shape {array.shape}, one cost (S, A, S) or {len(array)} costs (m, S, A): "
            "pass [costs] for the first, list(costs) for the second"
        )
    return list(array) if many and not one else [array]


def _start(start: npt.ArrayLike | None, n_states: int, renormalize: bool) -> FloatArray:
    if start is None:
        return np.full(n_states, 1.0 / n_states)
    given = numbers_in(start, "start")
    if given.ndim == 0:
        _check_range(_integers(given, "start")[None], n_states, lambda _: "start")
        return np.bincount([int(given)], minlength=n_states).astype(np.float64)
    prob = _probabilities(
        _vector(given, "start", n_states, "states"), lambda s: f"start probability of state {s}"
    )
    return _normalised(
        prob, np.array([0, n_states]), given.dtype, renormalize, lambda _: "start probabilities"
    )


def _mask(available: npt.ArrayLike | None, n_states: int, n_actions: int) -> npt.NDArray[np.bool_]:
    if available is None:
        return np.ones((n_states, n_actions), dtype=np.bool_)
    mask = np.asarray(available)
    if mask.shape != (n_states, n_actions) or mask.dtype != np.bool_:
        raise ModelError(
            f"available has shape {mask.shape} and dtype {mask.dtype}; it must be ({n_states}, {n_actions}) "
            "and bool"
        )
    return mask


def _stacked(table: Table, what: str) -> scipy.sparse.csr_array:
    """A table per transition, in any of its three forms, as one canonical CSR array (S*A, S), row s*A + a."""
    if scipy.sparse.issparse(table):
        rows, states = table.shape if table.ndim == 2 else (1, 0)
        if states == 0 or rows == 0 or rows % states:
            raise ModelError(f"sparse {what} has shape {table.shape}; it must be (S*A, S) with row s*A + a")
        _check_states(states)
        return _canonical(table, what)
    if _is_sparse(table):
        shapes = {part.shape if scipy.sparse.issparse(part) else None for part in table}
        shape = shapes.pop()
        if shapes or shape is None or len(shape) != 2 or shape[0] != shape[1]:
            raise ModelError(
                f"{what} is a list with a sparse part; all parts must be sparse (S, S), one per action"
            )
        _check_states(shape[0])
        by_action = scipy.sparse.vstack([_canonical(part, what) for part in table], format="csr")
        order = np.arange(by_action.shape[0]).reshape(len(table), -1).T.reshape(-1)
        return by_action[order]
    array = numbers_in(table, what)
    if array.ndim != 3 or array.shape[0] != array.shape[2] or array.size == 0:
        raise ModelError(
            f"{what} has shape {array.shape}; a dense one must be (S, A, S): state, action, next state. "
            "np.swapaxes(x, 0, 1) makes that of (A, S, S)"
        )
    if array.dtype == np.float16:  # unknown to scipy.sparse
        array = array.astype(np.float32)
    rows = array.reshape(-1, array.shape[2])
    stored = rows != 0  # NaN too
    targets = np.broadcast_to(np.arange(rows.shape[1], dtype=np.int32), rows.shape)[stored]
    offsets = _cumulated(np.count_nonzero(stored, axis=1))
    return scipy.sparse.csr_array((rows[stored], targets, offsets), shape=rows.shape)


def _canonical(table: Table, what: str) -> scipy.sparse.csr_array:
    """Any sparse table as CSR with sorted rows and no duplicates, real; the user's own is left as it is."""
    if table.dtype.kind not in "biuf":
        raise ModelError(f"{what} has dtype {table.dtype}; it must hold real numbers")
    rows = scipy.sparse.csr_array(table)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def _values_at(
    table: scipy.sparse.csr_array, values: FloatArray, pattern: scipy.sparse.csr_array
) -> FloatArray:
    """A CSR table, with these values, at the stored entries of another, 0 if it has none; both canonical."""
    if np.array_equal(table.indptr, pattern.indptr) and np.array_equal(table.indices, pattern.indices):
        return values
    have, want = (
        np.repeat(np.arange(rows.shape[0]) * rows.shape[1], np.diff(rows.indptr)) + rows.indices
        for rows in (table, pattern)
    )
    at = np.searchsorted(have, want)
    have, values = np.append(have, -1), np.append(values, 0.0)  # for what is beyond the last entry
    return np.where(have[at] == want, values[at], 0.0)
