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

import numpy as np
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.exact.control import best_response, one_hot
from fastcmdp.exact.evaluation import evaluate
from fastcmdp.exact.mixtures import common_slack
from fastcmdp.exact.pool import Pool

Floats = NDArray[np.float64]
Limit = float | Sequence[float] | str | None

_DIGITS = 10
# Several costs that can be lowered together by less of the way than this leave too little room to learn in.
_LEAST_REACH = 0.01


def halfway_limit(cmdp: CMDP) -> Floats:
    """Limits that make every constraint active, by the halfway rule of this module.

    Exact, by the best responses of `fastcmdp.exact`. The model's own limits are ignored.

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

    best = sign * evaluate(cmdp, _least_cost_optimum(cmdp, losses)).constraints
    least = np.array([-best_response(cmdp, -loss).attained for loss in losses.T])
    # The tolerance is far above the rounding of the solves and far below any difference that matters.
    room = best - least
    traded = room > 1e-9 * np.maximum(np.abs(losses).max(axis=0), 1e-300) / (1.0 - cmdp.gamma)

    limits = best + _slack_of_untraded(cmdp, sign, least)
    if traded.any():
        reach = 1.0
        if m > 1:
            ceiling = np.where(traded, best, 0.5 * (best + limits))
            reach = min(1.0, _reach(cmdp.with_limits(sign * ceiling), np.where(traded, room, 0.0)))
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


def _least_cost_optimum(cmdp: CMDP, losses: Floats) -> Floats:
    """A policy of greatest reward, and among those of least loss 0, then loss 1, and so on."""
    allowed = np.ones(cmdp.n_choices, dtype=bool)
    for signal in (np.asarray(cmdp.reward), *(-losses.T)):
        response = best_response(cmdp, signal, allowed)
        # Exactly the policies that use only choices attaining the maximum of Q are optimal. The tolerance is
        # above the rounding of Q: values and the equations' condition both reach 1 / (1 - gamma).
        q = signal + cmdp.gamma * (cmdp.transition_matrix() @ response.values[:, 0])
        tolerance = 1e-11 * float(np.abs(signal).max()) / (1.0 - cmdp.gamma) ** 2
        best = np.maximum.reduceat(np.where(allowed, q, -np.inf), cmdp.state_to_choice[:-1])
        allowed &= q >= best[cmdp.choice_state] - tolerance
    return one_hot(cmdp, response.choices)


def _reach(cmdp: CMDP, rise: Floats) -> float:
    """The largest t for which some policy stays t rise_i below each limit i."""
    pool = Pool(cmdp)
    for weights in np.eye(1 + cmdp.n_constraints):
        pool.respond(weights)
    rates = rise / cmdp.constraint_scale
    raw = common_slack(cmdp, pool, rates, "decomposition").raw[1:]
    return float((raw[rates > 0] / rates[rates > 0]).min())


def _slack_of_untraded(cmdp: CMDP, sign: Floats, least: Floats) -> Floats:
    """Half the distance from the least loss to the uniform policy's, or a tenth where there is none."""
    uniform = sign * evaluate(cmdp, 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]).constraints
    flat = uniform - least <= 1e-9 * np.maximum(np.abs(least), 1e-300)
    return np.where(flat, 0.1 * np.maximum(np.abs(least), 1.0), 0.5 * (uniform - least))
