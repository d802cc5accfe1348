"""Multipliers from both sides: what a limit is worth when it is loosened, and when it is tightened.

All multipliers that are optimal make the set {lambda >= 0: J_r + lambda . J_c <= J* for each policy}, J in kernel
units. The best reward as a function of a limit is concave; its slope on the loose side is the least lambda_i of that
set, on the tight side the greatest (Rockafellar, Convex Analysis, 1970, theorem 23.4). Both are found by cutting
planes: a best response to the multipliers at an end either is a policy that cuts them off, or proves the end.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from fastcmdp.cmdp import CMDP, table_of
from fastcmdp.errors import ModelError
from fastcmdp.exact.constrained import Optimum, optimum
from fastcmdp.exact.linear import EPS, Floats, frozen
from fastcmdp.exact.mixtures import FEASIBLE
from fastcmdp.exact.pool import Pool

SCALES = 1e4, 1.0  # of planes for HiGHS, which knows no finer tolerance than 1e-10: the first that it can do
ENDLESS = 1e6  # multipliers in kernel units from which on they count as without bound
MOST_CUTS = 500
TOLERANCES = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def multiplier_range(cmdp: CMDP, best: Optimum | None = None) -> Floats:
    """Least and greatest optimal value of each multiplier: float64[m, 2], in the user's units.

    The least is what loosening a limit gains per unit, the greatest what tightening it costs: they differ where the
    frontier has a corner. Infinite where no policy meets a tighter limit.

    Parameters
    ----------
    cmdp : CMDP
    best : Optimum, optional
        Its optimum, where you have it.

    Raises
    ------
    InfeasibleError
        When no policy meets the constraints.
    ModelError
        When the ends have not settled.

    Examples
    --------
    One state; an action earns 1 and costs 1, another earns 0.7 and costs 0.5, and is taken at a limit of 1:

    >>> import fastcmdp as fc
    >>> cmdp = fc.CMDP([0, 3], [0, 1, 2, 3], [0, 0, 0], [1, 1, 1], [0, 0.7, 1], [0, 0.5, 1], gamma=0.5, limits=1)
    >>> multiplier_range(cmdp).round(6).tolist()
    [[0.6, 1.4]]
    """
    cmdp = table_of(cmdp)
    best = best or optimum(cmdp)
    pool = Pool(cmdp)
    for weights in np.eye(1 + cmdp.n_constraints):
        pool.respond(weights)
    return range_in(pool, best)


def range_in(pool: Pool, best: Optimum) -> Floats:
    """The same for the pool's model, of which it knows a best response to each signal and perhaps more."""
    cmdp = pool.cmdp
    pool.what = "multipliers"
    attained = float(
        pool.values[pool.respond(np.append(1.0, best.raw_duals))] @ np.append(1.0, best.raw_duals)
    )
    origin = np.append(attained, np.zeros(cmdp.n_constraints))
    ends = np.empty((cmdp.n_constraints, 2))
    for i in range(cmdp.n_constraints):
        for side in (0, 1):
            end = _end(pool, origin, best.raw_duals, i, side)
            ends[i, side] = (min, max)[side](end, float(best.raw_duals[i]))
    user = np.array([cmdp.to_user_duals(column) for column in ends.T]).T
    return frozen(np.where(ends >= ENDLESS, np.inf, user))


def _end(pool: Pool, origin: Floats, duals: Floats, i: int, side: int) -> float:
    """The least (side 0) or greatest (1) lambda_i that is optimal, of which ``duals`` are some.

    ``origin`` is what the optimum attains, and zeros: no policy may be above it under optimal multipliers.
    """
    settled = 16 * EPS / (1 - pool.cmdp.gamma)  # what rounding may feign, for each unit of the weights
    for _ in range(MOST_CUTS):
        exact = [k for k, relative in enumerate(pool.relative) if relative == 0.0]
        over = _over(pool, exact, origin)
        # The multipliers themselves may be off by rounding: what they miss is allowed, so that the set is not empty.
        missed = np.maximum(settled * (1 + duals.sum()), over[:, 0] + over[:, 1:] @ duals)
        x = _furthest(over[:, 1:], missed - over[:, 0], i, side)
        if x is None:
            break
        last = _over(pool, [pool.respond(np.append(1.0, x))], origin)[0]
        allowed = max(settled * (1 + duals.sum()), float(last[0] + last[1:] @ duals))
        if last[0] + last[1:] @ x <= allowed + settled * (1 + x.sum()):
            return float(x[i])
    raise ModelError(f"the range of the multiplier of {pool.cmdp.names[1 + i]} has not settled")


def _over(pool: Pool, numbers: list[int], origin: Floats) -> Floats:
    """Values of policies less ``origin``, times 1-gamma; a limit that is just met, or all but, counts as met."""
    over: Floats = (1 - pool.cmdp.gamma) * (np.array([pool.values[k] for k in numbers]) - origin)
    over[:, 1:][np.abs(over[:, 1:]) <= FEASIBLE] = 0.0
    return over


def _furthest(planes: Floats, allowed: Floats, i: int, side: int) -> Floats | None:
    """The lambda >= 0 with planes @ lambda <= allowed whose lambda_i is least (side 0) or greatest (1)."""
    from scipy.optimize import linprog

    m = planes.shape[1]
    if m == 1:
        slope = planes[:, 0]
        if side == 0:
            return np.array([(allowed[slope < 0] / slope[slope < 0]).max(initial=0.0)])
        return np.array([(allowed[slope > 0] / slope[slope > 0]).min(initial=ENDLESS)])
    towards = np.zeros(m)
    towards[i] = 1.0 - 2 * side
    for scale in SCALES:
        program = linprog(
            towards,
            A_ub=scale * planes,
            b_ub=scale * allowed,
            bounds=[(0.0, ENDLESS)] * m,
            method="highs-ds",
            options=TOLERANCES,
        )
        if program.status == 0:
            return cast(Floats, program.x)
    return None
