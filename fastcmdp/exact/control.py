"""Best responses: policy iteration on the kernels' sweeps, for every question that is one of control.

For a signal f = signals @ weights, T the Bellman operator of f and V the values of a policy, evaluated,

    V <= V* <= V + max(T V - V) / (1-gamma),                                                          (1)

so the sweep that looks for a better policy also bounds what any policy could attain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.exact.evaluation import expected
from fastcmdp.exact.linear import DENSE_STATES, LARGEST_SPARSE, Floats, Integers, accuracy, solve, weighted
from fastcmdp.exact.sweeps import Chain, Rows

MOST_ROUNDS = 1_000  # of policy iteration
SWEEPS = 10  # of value iteration before the first evaluation
SPREAD = 10  # Gauss-Seidel sweeps each way before a look, where chains mix slowly
LOOSE = 0.3  # a policy is evaluated to this part of what the last sweep may still gain


class Response(NamedTuple):
    """What a best response attains, and how."""

    attained: float  # J of the policy
    bound: float  # no policy attains more
    choices: Integers  # (S,) the choice of each state
    values: Floats  # (S, k) of each signal


class Guess(NamedTuple):
    """Where a best response begins."""

    values: Floats  # (S, k) of each signal
    value: Floats  # (S,) of the weighted sum; overwritten
    near: bool  # of this very response, all but


def cold(n_states: int, n_signals: int) -> Guess:
    """Where nothing is known."""
    return Guess(np.zeros((n_states, n_signals)), np.zeros(n_states), near=False)


class Control:
    """Best responses in one model."""

    def __init__(self, cmdp: CMDP, threads: int | None = None) -> None:
        self.cmdp = cmdp
        self.rows = Rows(cmdp, threads)
        self._peaks = np.abs(cmdp.signals).max(axis=0)
        self._slow = False  # as far as is known

    def respond(
        self,
        signals: Floats,
        weights: Floats,
        start: Guess | None = None,
        *,
        allowed: NDArray[np.bool_] | None = None,
        relative: float = 0.0,
    ) -> Response:
        """Maximise J of signals (C, k) @ weights (k,) over policies that take ``allowed`` choices.

        Policies are evaluated for the weighted sum alone, each time as exactly as the last sweep makes worth while,
        and only the last one for each signal: at last to ``relative`` or, where that is less, to `accuracy`. Where
        factors serve all columns at once, so are they evaluated.
        """
        cmdp, rows = self.cmdp, self.rows
        signal = weighted(signals, weights)
        open_to = signal if allowed is None else np.where(allowed, signal, -np.inf)
        # Of the sum's parts, not of the sum: they are evaluated one by one, and may cancel.
        peaks = self._peaks if signals is cmdp.signals else np.abs(signals).max(axis=0)
        size = max(float(peaks @ np.abs(weights)), 1e-300)
        finest = max(accuracy(cmdp.gamma), relative)
        settled = 2 * finest * size / (1 - cmdp.gamma)  # what the errors of an evaluation may feign
        if start is None:
            start = cold(cmdp.n_states, len(weights))
        value, values = start.value.copy(), start.values
        choices, after = np.empty(cmdp.n_states, dtype=np.int64), np.empty(cmdp.n_states)
        low, high = self._look(open_to, start.value, choices, cold=not start.near)
        allowance = max(finest, self._loose(low, high) / size)
        for _ in range(MOST_ROUNDS):
            taken = choices.copy()
            chain = rows.chosen(taken)
            together = self._together(
                len(weights)
            )  # as of now: the evaluation may find that the chain is slow
            if together:
                values = self._solve(chain, signals[taken], values, allowance)
                value = weighted(values, weights)
            else:
                value = self._solve(chain, signal[taken, None], value[:, None], allowance)[:, 0]
            low, high = rows.improve(open_to, value, after, choices)
            same = high <= settled or np.array_equal(taken, choices)
            if same and allowance <= finest:
                if not together:
                    values = self._parted(chain, signals[taken], weights, value, values, finest)
                attained = float(expected(cmdp, value[:, None])[0])
                return Response(attained, attained + max(0.0, high) / (1 - cmdp.gamma), taken, values)
            allowance = finest if same else max(finest, self._loose(low, high) / size)
            if same:
                choices[:] = taken
            elif self._slow:
                self._look(open_to, value, choices, cold=False)
        raise ModelError(f"policy iteration has not settled after {MOST_ROUNDS} rounds; gamma = {cmdp.gamma}")

    def _together(self, n_signals: int) -> bool:
        """Whether a policy is evaluated for all signals at once: by factors, or since there is but one."""
        n_states = self.cmdp.n_states
        return n_signals == 1 or n_states <= (LARGEST_SPARSE if self._slow else DENSE_STATES)

    def _solve(self, chain: Chain, right: Floats, start: Floats, relative: float) -> Floats:
        return solve(chain, right, np.inf, start=start, relative=relative, slowly=self._mixes_slowly)

    def _parted(
        self, chain: Chain, right: Floats, weights: Floats, value: Floats, start: Floats, relative: float
    ) -> Floats:
        """Values of each signal, where those of the weighted sum are known: the one of most weight is what is left."""
        most = int(np.abs(weights).argmax())
        others = [j for j in range(len(weights)) if j != most]
        values = np.empty_like(start)
        values[:, others] = self._solve(chain, right[:, others], start[:, others], relative)
        values[:, most] = (value - weighted(values[:, others], weights[others])) / weights[most]
        return values

    def _loose(self, low: float, high: float) -> float:
        """Residual up to which a policy is worth evaluating, after a sweep that changed values by low to high.

        Where a chain mixes slowly, what a sweep still changes may add up over a whole horizon.
        """
        return LOOSE * (high - low) * (1 - self.cmdp.gamma if self._slow else 1.0)

    @property
    def mixes_fast(self) -> bool:
        """Whether policies are evaluated by sweeps that are few, as far as is known."""
        return not self._slow and self.cmdp.n_states > DENSE_STATES

    def _mixes_slowly(self) -> None:
        self._slow = True

    def _look(self, signal: Floats, value: Floats, choices: Integers, *, cold: bool) -> tuple[float, float]:
        """Greedy choices at what some sweeps make of the values (overwritten); the ends of the last change."""
        rows, other = self.rows, np.empty_like(value)
        if cold:
            for _ in range(SWEEPS):
                rows.improve(signal, value, other, choices)
                value, other = other, value
        if self._slow:
            for _ in range(SPREAD):
                rows.improve_in_place(signal, value, other, False)
                rows.improve_in_place(signal, other, value, True)
        return rows.improve(signal, value, other, choices)


def best_response(cmdp: CMDP, signal: Floats, allowed: NDArray[np.bool_] | None = None) -> Response:
    """Maximise J_signal over policies, those that take allowed choices only if ``allowed`` is given."""
    return Control(cmdp).respond(np.ascontiguousarray(signal)[:, None], np.ones(1), allowed=allowed)


def dual_value(cmdp: CMDP, duals: ArrayLike = ()) -> float:
    """Dual function g(lambda) = max over policies of J_r + sum_i lambda_i J_ci, in kernel units.

    Convex in lambda; its least value over lambda >= 0 is the optimal J_r, and any of its values bounds that
    from above. Found by policy iteration, without the linear programme of `optimum`: a second road to the
    same number.

    Parameters
    ----------
    cmdp : CMDP
    duals : (m,) array, or a number when m = 1
        Multipliers in kernel units (``cmdp.from_user_duals`` converts), >= 0 and finite.

    Raises
    ------
    SettingError
        When the multipliers are negative, not finite, or not m of them.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> stay = np.ones((1, 2, 1))
    >>> cmdp = CMDP.from_arrays(stay, [[0.0, 1.0]], [[0.0, 1.0]], gamma=0.5, limits=[1.0])
    >>> dual_value(cmdp, 0.0), dual_value(cmdp, 1.0)
    (2.0, 1.0)
    """
    weights = np.concatenate(([1.0], check_duals(cmdp, duals)))
    return best_response(cmdp, weighted(cmdp.signals, weights)).attained


def one_hot(cmdp: CMDP, choices: NDArray[np.integer]) -> Floats:
    """Action probabilities of a deterministic policy."""
    pi = np.zeros(cmdp.n_choices)
    pi[choices] = 1.0
    return pi


def check_duals(cmdp: CMDP, duals: ArrayLike) -> Floats:
    """Multipliers as an array (m,), finite and >= 0."""
    array = np.atleast_1d(np.asarray(duals, dtype=np.float64))
    if array.shape != (cmdp.n_constraints,):
        raise SettingError(f"multipliers have shape {array.shape}; ({cmdp.n_constraints},) is expected")
    if not np.isfinite(array).all() or (array < 0).any():
        raise SettingError(f"multipliers are {array}; finite numbers >= 0 are expected")
    return array
