"""Why no policy meets the limits: a proof, a smallest set that conflicts, and by how much limits would have to move.

In kernel units a constraint is met when J_ci >= 0. The common slack t* = max over policies of min_i J_ci is attained by
a policy and, for weights mu >= 0 of sum 1, equals max over policies of sum_i mu_i J_ci. Where it is below 0 the
weights prove that no policy meets all limits (Farkas), and the policy is the one that violates least.
"""

from __future__ import annotations

import math
import warnings
from itertools import combinations

import numpy as np

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import InfeasibleError, NearlyInfeasibleWarning
from fastcmdp.exact.linear import Floats
from fastcmdp.exact.mixtures import FEASIBLE, Answer, common_slack
from fastcmdp.exact.pool import Pool

NEARLY = 1e-6  # room on the scale of (1-gamma) J below which a warning is due
MOST_SUBSETS = 200  # of constraints that are tried for a smallest conflict


def check_feasible(cmdp: CMDP, ranges: Floats, least_violating: Answer | None, method: str) -> None:
    """Raise InfeasibleError when no policy meets all constraints; warn when hardly one does.

    ``ranges`` are the least and greatest values of each signal, ``least_violating`` solves the Slater problem.
    """
    if least_violating is None:
        return
    unit = 1 - cmdp.gamma
    slater = float(least_violating.raw[1:].min())
    if unit * slater >= -FEASIBLE:
        tight = least_violating.weights[1:] > NEARLY
        tight &= unit * ranges[1:, 0] < -NEARLY  # some policy breaks it: else the limit cannot be missed
        if unit * slater < NEARLY and tight.any():
            warnings.warn(
                f"the limits of {', '.join(np.array(cmdp.names[1:])[tight])} leave hardly any room (Slater value "
                f"{slater:.3g} in kernel units): multipliers may be huge, and rounding decides what is feasible",
                NearlyInfeasibleWarning,
                stacklevel=4,
            )
        return
    conflict = _smallest_conflict(cmdp, ranges, method)
    alone = [_alone(cmdp, i, ranges, method) for i in range(cmdp.n_constraints)]
    best = cmdp.to_user_values(ranges[:, 1])[1:]
    unmet = np.flatnonzero(unit * ranges[1:, 1] < -FEASIBLE).tolist()
    each = "" if unmet else " although each can be met alone"
    terms = [
        f"{cmdp.names[1 + i]} {cmdp.sense[i]} {cmdp.limits[i]:.9g} (best attainable {best[i]:.9g})"
        for i in unmet or conflict
    ]
    raise InfeasibleError(
        f"no policy meets the constraints{each}: {'; '.join(terms)}. Loosen a limit",
        best=tuple(best.tolist()),
        policy=least_violating.policy,
        weights=tuple(least_violating.weights[1:].tolist()),
        value=slater + least_violating.gap,
        conflict=conflict,
        alone=tuple(alone),
        together=tuple((-slater * cmdp.constraint_scale + cmdp.anchored).tolist()),
    )


def _smallest_conflict(cmdp: CMDP, ranges: Floats, method: str) -> tuple[int, ...]:
    """Numbers of the fewest constraints that no policy meets together.

    Subsets are tried by size. Where there are too many, constraints are left out one by one as long as the rest
    conflicts: then none can be left out, but fewer others might do.
    """
    m = cmdp.n_constraints
    unmet = np.flatnonzero((1 - cmdp.gamma) * ranges[1:, 1] < -FEASIBLE)
    if unmet.size:
        return (int(unmet[0]),)
    if 2**m <= MOST_SUBSETS:
        for size in range(2, m):
            for kept in combinations(range(m), size):
                if _conflicts(cmdp, list(kept), method):
                    return kept
        return tuple(range(m))
    kept_on = list(range(m))
    for i in range(m):
        rest = [j for j in kept_on if j != i]
        if len(rest) > 1 and _conflicts(cmdp, rest, method):
            kept_on = rest
    return tuple(kept_on)


def _conflicts(cmdp: CMDP, kept: list[int], method: str) -> bool:
    return (1 - cmdp.gamma) * _slack(cmdp.with_constraints(kept), np.ones(len(kept)), method) < -FEASIBLE


def _slack(cmdp: CMDP, rates: Floats, method: str) -> float:
    """Largest t such that some policy has J_ci >= rate_i t for each i."""
    pool = Pool(cmdp)
    for weights in np.eye(1 + cmdp.n_constraints):
        pool.respond(weights)
    if cmdp.n_constraints == 1:
        return float(pool.values[1][1] / rates[0])
    raw = common_slack(cmdp, pool, rates, method).raw[1:]
    return float((raw[rates > 0] / rates[rates > 0]).min())


def _alone(cmdp: CMDP, i: int, ranges: Floats, method: str) -> float:
    """By how much limit i would have to be loosened if the others stay, in the user's units."""
    others = [j for j in range(cmdp.n_constraints) if j != i]
    if not others:
        return float(-ranges[1, 1] * cmdp.constraint_scale[0] + cmdp.anchored[0])
    rest = cmdp.with_constraints(others)
    if _slack(rest, np.ones(len(others)), method) < 0:
        return math.inf
    slack = common_slack_of(cmdp, i, method) * float(cmdp.constraint_scale[i])
    return max(0.0, float(cmdp.anchored[i]) - slack)


def common_slack_of(cmdp: CMDP, i: int, method: str = "auto") -> float:
    """max J_ci over policies that meet the other constraints, kernel units."""
    rates = np.zeros(cmdp.n_constraints)
    rates[i] = 1.0
    return _slack(cmdp, rates, method)
