"""The dual function minimised by value iteration: a road to the optimum that meets no occupancy measure.

Kernel units. g(lambda) = max over policies of J_r + sum_i lambda_i J_ci (paper, appendix on strong duality) is the
maximum of the planes that single policies give, so Kelley's cutting planes find its minimum over lambda >= 0:

    lambda_n = argmin over a box of max over the policies so far of J_r + lambda . J_c,               (1)
    the next policy is greedy at the fixed point of V = max_a (r + lambda . c + gamma P V).            (2)

(1) bounds the minimum over the box from below, g(lambda_n) from above; the search ends when they meet inside the
box, which grows until they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.exact import evaluate

Floats = NDArray[np.float64]

MOST_SWEEPS = 200_000  # of value iteration
MOST_CUTS = 1_000  # policies
LARGEST_CAP = 1e9  # of the multipliers


@dataclass(frozen=True, eq=False)
class DualMinimum:
    """The least value of the dual function, in kernel units.

    Attributes
    ----------
    value : float
        Upper end: the dual function at ``duals``.
    lower : float
        Lower end, from the cutting planes; the optimal J_r lies between both.
    duals : float64[m]
        lambda*.
    cuts : int
        Policies that were needed.
    """

    value: float
    lower: float
    duals: Floats
    cuts: int


def value_iteration(cmdp: CMDP, weights: ArrayLike, accuracy: float = 1e-11) -> tuple[float, Floats]:
    """max over policies of J_f for f = signals @ weights, by value iteration (2), and a greedy policy.

    Parameters
    ----------
    cmdp : CMDP
    weights : float64[1+m]
    accuracy : float
        Largest error of the value, relative to the largest |f| / (1-gamma).

    Returns
    -------
    float, float64[C]
        The value and the action probabilities of a deterministic policy.

    Raises
    ------
    ModelError
        Not converged after 200,000 sweeps (gamma very near 1).

    Examples
    --------
    >>> import fastcmdp as fc
    >>> cmdp = fc.CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [0, 1], gamma=0.5)
    >>> value, policy = value_iteration(cmdp, [1.0])
    >>> round(value, 9), policy.tolist()
    (2.0, [0.0, 1.0])
    """
    first, transition, gamma = cmdp.state_to_choice[:-1], cmdp.transition_matrix(), cmdp.gamma
    signal = cmdp.signals @ np.asarray(weights, np.float64)
    target = accuracy * max(float(np.abs(signal).max()), 1e-300) / (1.0 - gamma)
    state_values = np.zeros(cmdp.n_states)
    for _ in range(MOST_SWEEPS):
        q = signal + gamma * (transition @ state_values)
        improved = np.maximum.reduceat(q, first)
        change = improved - state_values
        state_values = improved
        # V lies between V_n + gamma/(1-gamma) min change and the same with max (Puterman 1994, section 6.6).
        if gamma / (1.0 - gamma) * np.ptp(change) <= 2.0 * target:
            middle = state_values + gamma / (1.0 - gamma) * 0.5 * (change.max() + change.min())
            best = np.flatnonzero(q >= improved[cmdp.choice_state])
            policy = np.zeros(cmdp.n_choices)
            policy[best[np.unique(cmdp.choice_state[best], return_index=True)[1]]] = 1.0
            return float(cmdp.start @ middle), policy
    raise ModelError(f"value iteration has not settled after {MOST_SWEEPS} sweeps; gamma = {gamma}")


def dual_minimum(cmdp: CMDP, accuracy: float = 1e-10) -> DualMinimum:
    """Minimise the dual function over lambda >= 0 by cutting planes, equations (1) and (2).

    Parameters
    ----------
    cmdp : CMDP
    accuracy : float
        Largest distance between both ends, times 1-gamma.

    Raises
    ------
    ModelError
        No minimum (no policy meets the constraints), or not found with 1,000 cuts.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> cmdp = fc.envs.garnet(n_states=5, seed=1)
    >>> round(dual_minimum(cmdp).value - float(fc.optimum(cmdp).raw[0]), 8)
    0.0
    """
    from scipy.optimize import linprog  # here, since it is slow to import

    m, unit = cmdp.n_constraints, 1.0 - cmdp.gamma
    if m == 0:
        value, _ = value_iteration(cmdp, [1.0])
        return DualMinimum(value, value, np.zeros(0), 1)
    tolerances = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    planes = [evaluate(cmdp, value_iteration(cmdp, np.append(1.0, np.zeros(m)))[1]).raw]
    cap = 1.0
    while cap <= LARGEST_CAP and len(planes) < MOST_CUTS:
        cuts = unit * np.array(planes)
        answer = linprog(
            np.append(np.zeros(m), 1.0),
            A_ub=np.column_stack((cuts[:, 1:], -np.ones(len(cuts)))),
            b_ub=-cuts[:, 0],
            bounds=[(0.0, cap)] * m + [(None, None)],
            method="highs-ds",
            options=tolerances,
        )
        if answer.status != 0:
            raise ModelError(f"the dual's linear programme failed: {answer.message}")
        lam, lower = cast(Floats, answer.x[:m]), float(answer.fun) / unit
        value, policy = value_iteration(cmdp, np.append(1.0, lam), accuracy / 10.0)
        if unit * (value - lower) > accuracy * (1.0 + float(lam.sum())):
            planes.append(evaluate(cmdp, policy).raw)
        elif lam.max() < cap * (1.0 - 1e-9):
            return DualMinimum(value, lower, lam, len(planes))
        else:  # found, but on the wall of the box: by convexity the minimum lies beyond
            cap *= 8.0
    raise ModelError(
        "the dual function has no minimum that could be found: no policy meets the constraints strictly"
    )
