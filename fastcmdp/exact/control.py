"""The best response to a signal: policy iteration, for every question that is one of control."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.exact.linear import SWEEPS, Floats, Integers, accuracy, solve

MOST_ROUNDS = 1_000  # of policy iteration


class Response(NamedTuple):
    """What a best response attains, and how."""

    attained: float  # max over policies of J
    choices: Integers  # (S,) the choice of each state
    values: Floats  # (S,) state values


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
    return best_response(cmdp, cmdp.signals @ weights).attained


def best_response(cmdp: CMDP, signal: Floats, allowed: NDArray[np.bool_] | None = None) -> Response:
    """Maximise J_signal over policies, those that take allowed choices only if ``allowed`` is given.

    Policy iteration with a few sweeps of value iteration before each evaluation: they spread values over long
    paths at little cost. It ends when no state gains more than the evaluation's own error.
    """
    transition, first = cmdp.transition_matrix(), cmdp.state_to_choice[:-1]
    reachable = signal if allowed is None else np.where(allowed, signal, -np.inf)
    state_values = np.zeros(cmdp.n_states)
    error = accuracy(cmdp.gamma) * float(np.abs(signal).max()) / (1 - cmdp.gamma)
    for _ in range(MOST_ROUNDS):
        for _ in range(SWEEPS):
            state_values = np.maximum.reduceat(reachable + cmdp.gamma * (transition @ state_values), first)
        choices = greedy(cmdp, reachable + cmdp.gamma * (transition @ state_values))
        state_values = solve(transition[choices], signal[choices, None], cmdp.gamma, "auto", np.inf)[:, 0]
        best = np.maximum.reduceat(reachable + cmdp.gamma * (transition @ state_values), first)
        if (best - state_values).max() <= 2 * error:
            return Response(float(cmdp.start @ state_values), choices, state_values)
    raise ModelError(f"policy iteration has not settled after {MOST_ROUNDS} rounds; gamma = {cmdp.gamma}")


def greedy(cmdp: CMDP, q: Floats) -> Integers:
    """The first best choice of each state."""
    best = np.flatnonzero(q >= np.maximum.reduceat(q, cmdp.state_to_choice[:-1])[cmdp.choice_state])
    return best[np.unique(cmdp.choice_state[best], return_index=True)[1]]


def one_hot(cmdp: CMDP, choices: Integers) -> Floats:
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
