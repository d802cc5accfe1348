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
from fastcmdp.exact.linear import Floats, frozen
from fastcmdp.exact.mixtures import FEASIBLE
from fastcmdp.exact.pool import Pool

SETTLED = 1e-10  # on the scale of (1-gamma) J: by so little a policy may exceed the optimum
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
    pool.what = "multipliers"
    for weights in (np.append(1.0, best.raw_duals), *np.eye(1 + cmdp.n_constraints)):
        pool.respond(weights)
    ends = np.empty((cmdp.n_constraints, 2))
    for i in range(cmdp.n_constraints):
        for side in (0, 1):
            end = _end(pool, best, i, side)
            ends[i, side] = (min, max)[side](end, float(best.raw_duals[i]))
    user = np.array([cmdp.to_user_duals(column) for column in ends.T]).T
    return frozen(np.where(ends >= ENDLESS, np.inf, user))


def _end(pool: Pool, best: Optimum, i: int, side: int) -> float:
    """The least (side 0) or greatest (1) lambda_i that is optimal."""
    from scipy.optimize import linprog

    m, unit = pool.cmdp.n_constraints, 1 - pool.cmdp.gamma
    towards = np.zeros(m)
    towards[i] = 1.0 - 2 * side
    box = [(0.0, ENDLESS)] * m
    for _ in range(MOST_CUTS):
        values = unit * np.array(pool.values)
        over = values[:, 0] - unit * best.raw[0]
        # The optimum's own multipliers may be off by rounding: what they miss is allowed, so that the set is not empty.
        allowed = np.maximum(SETTLED, over + values[:, 1:] @ best.raw_duals) - over
        program = linprog(
            towards, A_ub=values[:, 1:], b_ub=allowed, bounds=box, method="highs-ds", options=TOLERANCES
        )
        if program.status != 0:
            break
        last = unit * pool.values[pool.respond(np.append(1.0, program.x))]
        over_last = last[0] - unit * best.raw[0]
        missed = max(SETTLED, float(over_last + last[1:] @ best.raw_duals))
        if over_last + last[1:] @ program.x <= missed + SETTLED + FEASIBLE * program.x.sum():
            return cast(float, program.x[i])
    raise ModelError(
        f"the range of the multiplier of {pool.cmdp.names[1 + i]} has not settled: {program.message}"
    )
