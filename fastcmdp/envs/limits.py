"""Default limits: the halfway rule, for constraints that the best policy breaks and some policy meets.

Write J_i(pi) for the expected discounted sum of cost i under pi from the start distribution, and let pi_r be
a policy with the greatest reward, that of least cost where several tie (first cost 0, then cost 1, ...). With
one constraint

    limit = (J(pi_r) + min_pi J(pi)) / 2.

With several constraints the least costs need not be attainable together. All limits are then tightened
together along

    limit_i(t) = J_i(pi_r) - t (J_i(pi_r) - min_pi J_i(pi)),      t in [0, 1],

to half of the largest t that one policy can meet. With one constraint that largest t is 1, and both rules
agree.

A cost that pi_r already keeps at its least leaves nothing to trade. Its limit is halfway between the least
and the cost of the uniform policy: inactive at the optimum, but a policy that picks at random breaks it. A
cost that is the same for these two gets a tenth (of itself, or of one if it is smaller) of room above.

For a constraint `utility >= b` read "least" as "greatest" and "above" as "below" throughout. Limits are
rounded to ten significant digits, so that the same call means the same problem on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError

Floats = NDArray[np.float64]
Limit = float | Sequence[float] | str | None

_SWEEPS = 2000
_DIGITS = 10
# Several costs that can be lowered together by less of the way than this leave too little room to learn in.
_LEAST_REACH = 0.01


def halfway_limit(cmdp: CMDP) -> Floats:
    """Limits that make every constraint active, by the halfway rule of this module.

    Exact by policy iteration with linear solves, so meant for models whose equations can be solved directly:
    up to a few thousand states, more when transitions are local (grids, chains). The model's own limits are
    ignored.

    Parameters
    ----------
    cmdp : CMDP
        A model with m constraints.

    Returns
    -------
    float64[m]
        One limit for each constraint, in the user's units: discounted sums, not averages.

    Raises
    ------
    ModelError
        Several constraints, and no policy lowers all their costs at once below those of the best policy.

    Examples
    --------
    >>> from fastcmdp.envs import halfway_limit, river_swim
    >>> cmdp = river_swim()
    >>> halfway_limit(cmdp).tolist() == cmdp.limits.tolist()
    True
    """
    # A loss is wanted small whatever the sense of the constraint.
    sign = np.array([1.0 if sense == "<=" else -1.0 for sense in cmdp.sense])
    losses = cmdp.costs * sign
    m = losses.shape[1]
    if m == 0:
        return np.empty(0)
    everything = np.ones(cmdp.n_choices, dtype=bool)

    best_policy = _least_cost_optimum(cmdp, losses)
    best = _value(cmdp, best_policy, losses)
    least = np.array(
        [_value(cmdp, _maximise(cmdp, -losses[:, i], everything)[0], losses)[i] for i in range(m)]
    )
    # The tolerance is far above the rounding of the solves and far below any difference that matters.
    room = best - least
    traded = room > 1e-9 * np.maximum(np.abs(losses).max(axis=0), 1e-300) / (1.0 - cmdp.gamma)

    limits = best + _slack_of_untraded(cmdp, losses, least)
    if traded.any():
        rise = np.where(traded, room, 0.0)
        ceiling = np.where(traded, best, 0.5 * (best + limits))
        reach = 1.0 if m == 1 else _reach(cmdp, losses, best, ceiling, rise)
        if reach < _LEAST_REACH:
            raise ModelError(
                f"the costs {', '.join(cmdp.names[1:])} trade against each other: no policy has all of them "
                "clearly below those of the best policy, so there is no halfway limit; give limits"
            )
        limits = np.where(traded, best - 0.5 * reach * room, limits)
    return np.array([float(f"{limit:.{_DIGITS}g}") for limit in limits * sign])


def with_limit(cmdp: CMDP, limit: Limit) -> CMDP:
    """The same model with the given limits; None or "halfway" means the halfway rule."""
    if limit is None or (isinstance(limit, str) and limit == "halfway"):
        return cmdp.with_limits(halfway_limit(cmdp)) if cmdp.n_constraints else cmdp
    if isinstance(limit, str):
        raise SettingError(f"limit must be a number for each constraint or 'halfway', got {limit!r}")
    return cmdp.with_limits(limit)


def _maximise(cmdp: CMDP, signal: Floats, allowed: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Floats]:
    """Policy iteration: the best allowed choice of each state, and Q of every choice (-inf if barred)."""
    starts, transition = cmdp.state_to_choice[:-1], cmdp.transition_matrix()
    tolerance = _tolerance(cmdp, signal)
    barred = ~allowed
    # A few sweeps of value iteration spare most of the solves where good news travels state by state.
    q, value = signal, np.zeros(cmdp.n_states)
    for _ in range(min(_SWEEPS, int(5.0 / (1.0 - cmdp.gamma)) + 1)):
        q = signal + cmdp.gamma * (transition @ value)
        q[barred] = -np.inf
        value = np.maximum.reduceat(q, starts)
    policy = _first_of_each_state(cmdp, q >= value[cmdp.choice_state])
    while True:
        q = signal + cmdp.gamma * (transition @ _solve(cmdp, policy, signal))
        q[barred] = -np.inf
        best = np.maximum.reduceat(q, starts)
        better = best > q[policy] + tolerance
        if not better.any():
            return policy, q
        policy = np.where(better, _first_of_each_state(cmdp, q >= best[cmdp.choice_state]), policy)


def _least_cost_optimum(cmdp: CMDP, losses: Floats) -> NDArray[np.int64]:
    """The choices of a policy of greatest reward, and among those of least loss 0, then loss 1, and so on."""
    allowed = np.ones(cmdp.n_choices, dtype=bool)
    for signal in (np.asarray(cmdp.reward), *(-losses.T)):
        policy, q = _maximise(cmdp, signal, allowed)
        # Exactly the policies that use only choices attaining the maximum of Q are optimal.
        best = np.maximum.reduceat(q, cmdp.state_to_choice[:-1])
        allowed = q >= best[cmdp.choice_state] - 100.0 * _tolerance(cmdp, signal)
    return policy


def _reach(cmdp: CMDP, losses: Floats, best: Floats, ceiling: Floats, rise: Floats) -> float:
    """The largest t for which some mixture of policies keeps every J_i <= ceiling_i - t rise_i.

    Column generation: a small programme over the mixtures of the policies known so far gives t and a price
    for each constraint; the policy of least price joins, until none is cheaper than the mixture.
    """
    from scipy.optimize import linprog  # slow to import, and rarely needed

    m = ceiling.size
    everything = np.ones(cmdp.n_choices, dtype=bool)
    columns = [best]
    for _ in range(1000):
        mixed = np.array(columns).T
        programme = linprog(
            np.r_[np.zeros(len(columns)), -1.0],
            A_ub=np.c_[mixed, rise],
            b_ub=ceiling,
            A_eq=np.r_[np.ones(len(columns)), 0.0][None, :],
            b_eq=[1.0],
            method="highs",
        )
        weights, reach = programme.x[:-1], float(programme.x[-1])
        prices = -np.asarray(programme.ineqlin.marginals).reshape(m)
        policy, _ = _maximise(cmdp, -(losses @ prices), everything)
        column = _value(cmdp, policy, losses)
        current = float(prices @ mixed @ weights)
        if float(prices @ column) >= current - 1e-9 * (abs(current) + float(prices @ rise)):
            break
        columns.append(column)
    return min(reach, 1.0)


def _slack_of_untraded(cmdp: CMDP, losses: Floats, least: Floats) -> Floats:
    """Half the distance from the least loss to the uniform policy's, or a tenth where there is none."""
    uniform = _uniform_value(cmdp, losses)
    flat = uniform - least <= 1e-9 * np.maximum(np.abs(least), 1e-300)
    return np.where(flat, 0.1 * np.maximum(np.abs(least), 1.0), 0.5 * (uniform - least))


def _uniform_value(cmdp: CMDP, losses: Floats) -> Floats:
    starts, counts = cmdp.state_to_choice[:-1], np.diff(cmdp.state_to_choice)
    averages = np.add.reduceat(losses, starts, axis=0) / counts[:, None]
    return np.asarray(cmdp.start @ _solve_rows(_average(cmdp), averages, cmdp.gamma))


def _average(cmdp: CMDP) -> Any:
    """The state-to-state matrix of the uniform policy."""
    from scipy import sparse

    probability = np.repeat(1.0 / np.diff(cmdp.state_to_choice), np.diff(cmdp.state_to_choice))
    shape = (cmdp.n_states, cmdp.n_choices)
    average = sparse.csr_array((probability, np.arange(cmdp.n_choices), cmdp.state_to_choice), shape=shape)
    return average @ cmdp.transition_matrix()


def _value(cmdp: CMDP, policy: NDArray[np.int64], losses: Floats) -> Floats:
    """J of each loss for one choice in each state."""
    return np.asarray(cmdp.start @ _solve(cmdp, policy, losses))


def _solve(cmdp: CMDP, policy: NDArray[np.int64], signal: Floats) -> Floats:
    return _solve_rows(cmdp.transition_matrix()[policy], signal[policy], cmdp.gamma)


def _solve_rows(rows: Any, right: Floats, gamma: float) -> Floats:
    """The solution V of V = right + gamma rows V."""
    from scipy import sparse
    from scipy.sparse.linalg import splu  # slow to import

    # Sparse even for small models: a threaded dense solve waits for its threads where other work holds the
    # cores.
    identity = sparse.eye(rows.shape[0], format="csc")
    return np.asarray(splu(sparse.csc_array(identity - gamma * rows)).solve(right))


def _tolerance(cmdp: CMDP, signal: Floats) -> float:
    """A bound on the rounding of Q: both values and the equations' condition reach 1 / (1 - gamma)."""
    return 1e-13 * float(np.abs(signal).max()) / (1.0 - cmdp.gamma) ** 2


def _first_of_each_state(cmdp: CMDP, marked: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first marked choice of each state; every state has one."""
    choices = np.flatnonzero(marked)
    _, first = np.unique(cmdp.choice_state[choices], return_index=True)
    return choices[first].astype(np.int64)
