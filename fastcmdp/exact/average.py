"""Average reward on the rows themselves, for unichain models with or without a state of renewal.

J_f = lim (1/T) E sum_t f(s_t, a_t). The programme over stationary occupancies x (Altman, Constrained Markov Decision
Processes, 1999, chapter 4) is

    max x . r  s.t.  sum_{a} x(s', a) = sum_q P(s'|q) x(q),  sum x = 1,  x >= 0,  x . g_i within its limit.      (1)

For any h and multipliers lambda >= 0, with L = r + sum_i lambda_i (room of g_i below its limit),

    J_L of every policy, from every start  <=  max over (s, a) of L(s, a) + sum_s' P(s'|s,a) h(s') - h(s),      (2)

so one sweep over the rows with the multipliers h of the balance proves how good an answer is. `best_average` finds h by
relative value iteration instead: a second road to the same number. That a model is unichain cannot be checked in
polynomial time (Tsitsiklis, Oper. Res. Lett. 35, 2007); what is checked is that the policy at hand has one class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import ArrayLike

from fastcmdp.cmdp import CMDP, table_of
from fastcmdp.criteria import one_class
from fastcmdp.errors import InfeasibleError, ModelError
from fastcmdp.exact.linear import Floats, frozen
from fastcmdp.exact.mixtures import policy_of

DENSE = 1_000  # states up to which the stationary law is found with dense factors
LAZY = 0.5  # share of staying put in relative value iteration, against periods (Schweitzer)
MOST_SWEEPS = 1_000_000
TRUST = 1e-8  # of a gap, on the scale of rewards and multipliers


@dataclass(frozen=True, eq=False, repr=False)
class AverageOptimum:
    """The best policy for average reward under limits on averages.

    Attributes
    ----------
    reward, constraints : float, float64 (m,)
        Averages of ``policy``, by its own stationary law, in the user's units.
    duals : float64 (m,)
        Multipliers >= 0: average reward gained per unit by which a limit is loosened.
    policy, occupancy : float64 (C,)
    gap : float
        No policy that meets the limits has an average above ``reward + gap``, from any start: (2).
    """

    reward: float
    constraints: Floats
    duals: Floats
    policy: Floats
    occupancy: Floats
    gap: float

    def __repr__(self) -> str:
        return f"AverageOptimum(reward={self.reward:.8g}, constraints={self.constraints}, gap={self.gap:.3g})"


def stationary(cmdp: CMDP, action_probabilities: ArrayLike) -> Floats:
    """Stationary law of the choices (C,) of a policy with one recurrent class.

    Raises
    ------
    ModelError
        No policy, or one with several recurrent classes: two of them are named.

    Examples
    --------
    >>> cycle = np.array([[[0.0, 1.0]], [[1.0, 0.0]]])
    >>> stationary(CMDP.from_arrays(cycle, [0.0, 1.0], gamma=0.5), [1.0, 1.0]).tolist()
    [0.5, 0.5]
    """
    model = table_of(cmdp)
    pi = model.action_probabilities(action_probabilities)
    recurrent = one_class(model.plain(), pi > 0)
    law = np.zeros(model.n_states)
    chain = scipy.sparse.csr_array(
        (pi, np.arange(model.n_choices), model.state_to_choice), shape=(model.n_states, model.n_choices)
    )
    inner = (chain @ model.transition_matrix())[recurrent][:, recurrent]
    law[recurrent] = _law(inner)
    return law[model.choice_state] * pi


def _law(chain: scipy.sparse.csr_array) -> Floats:
    """x with x P = x, sum x = 1, of an irreducible chain: x_0 = 1, the others by a solve without its row."""
    n = chain.shape[0]
    x = np.ones(n)
    if n > 1:
        system = scipy.sparse.csc_array(scipy.sparse.eye_array(n - 1) - chain[1:, 1:].T)
        right = chain[[0], 1:].toarray().ravel()
        if n <= DENSE:
            x[1:] = np.linalg.solve(system.toarray(), right)
        else:
            from scipy.sparse.linalg import spsolve

            x[1:] = spsolve(system, right)
    x = np.maximum(x, 0.0)
    return cast(Floats, x / x.sum())


def average_of(cmdp: CMDP, action_probabilities: ArrayLike) -> Floats:
    """Averages of reward and costs of a policy, (1+m,), in the user's units; errors as of `stationary`.

    Examples
    --------
    >>> cycle = np.array([[[0.0, 1.0]], [[1.0, 0.0]]])
    >>> average_of(CMDP.from_arrays(cycle, [0.0, 1.0], gamma=0.5), [1.0, 1.0]).tolist()
    [0.5]
    """
    law = stationary(cmdp, action_probabilities)
    return cast(Floats, np.einsum("q,qk->k", law, np.column_stack([cmdp.reward, cmdp.costs])))


def average_optimum(cmdp: CMDP, *, limits: ArrayLike | None = None) -> AverageOptimum:
    """The best policy for average reward under limits on averages, by the programme (1), proven by (2).

    Parameters
    ----------
    cmdp : CMDP
        A discounted model as it stands: its gamma and start play no part.
    limits : m floats, optional
        On the averages, in the user's units; by default the numbers of the model.

    Raises
    ------
    InfeasibleError
        No stationary occupancy meets the limits.
    ModelError
        The answer has several recurrent classes (named), or fails the check (2).

    Examples
    --------
    >>> stay = np.ones((1, 2, 1))
    >>> cmdp = CMDP.from_arrays(stay, [[0.0, 1.0]], [[0.0, 1.0]], gamma=0.5, limits=[0.25])
    >>> average_optimum(cmdp)
    AverageOptimum(reward=0.25, constraints=[0.25], gap=0)
    """
    model = table_of(cmdp)
    model = model if limits is None else model.with_limits(limits)
    step, sign = model.transition_matrix(), model._sign
    balance = scipy.sparse.csr_array(
        (np.ones(model.n_choices), (model.choice_state, np.arange(model.n_choices))),
        shape=(model.n_states, model.n_choices),
    ) - scipy.sparse.csr_array(step.T)
    from scipy.optimize import linprog

    tolerances = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    result = linprog(
        -model.reward,
        A_ub=(model.costs * sign).T if model.n_constraints else None,
        b_ub=sign * model.limits if model.n_constraints else None,
        A_eq=scipy.sparse.vstack([balance, np.ones((1, model.n_choices))], format="csr"),
        b_eq=np.append(np.zeros(model.n_states), 1.0),
        method="highs-ds",
        options=tolerances,
    )
    if result.status == 2:
        raise InfeasibleError("no policy meets the limits on averages: loosen one")
    if result.status != 0:
        raise ModelError(f"HiGHS: status {result.status}, {result.message}")
    duals = np.maximum(0.0, -result.ineqlin.marginals) if model.n_constraints else np.empty(0)
    policy = policy_of(model, np.maximum(result.x, 0.0))
    law = stationary(model, policy)
    averages = law @ np.column_stack([model.reward, model.costs])
    room = sign * (model.limits - model.costs)
    worth = model.reward + room @ duals
    h = -result.eqlin.marginals[: model.n_states]  # HiGHS minimises
    bound = float((worth + step @ h - h[model.choice_state]).max())
    gap = max(0.0, bound - float(averages[0]))
    short = float((sign * (model.limits - averages[1:])).min(initial=0.0))
    size = 1.0 + np.abs(worth).max()
    if gap > TRUST * size or short < -TRUST * size:
        raise ModelError(
            f"the average optimum is off by {gap:.3g} in value and {-short:.3g} in a limit (the best answer may mix "
            "several recurrent classes): is the model unichain?"
        )
    return AverageOptimum(
        float(averages[0]), frozen(averages[1:]), frozen(duals), frozen(policy), frozen(law), gap
    )


def best_average(cmdp: CMDP, signal: ArrayLike, *, relative: float = 1e-10) -> tuple[float, float, Floats]:
    """The greatest average of a signal over policies, between two bounds, by relative value iteration.

    Parameters
    ----------
    cmdp : CMDP
        Unichain.
    signal : (C,)
    relative : float
        Width of the bounds, of the largest entry of the signal.

    Returns
    -------
    float, float, float64 (S,)
        Lower and upper bound, and the relative values h of (2).

    Raises
    ------
    ModelError
        Bounds that have not met after a million sweeps: chains that mix slowly, or several classes.

    Examples
    --------
    >>> stay, move = np.eye(2), np.eye(2)[::-1]
    >>> cmdp = CMDP.from_arrays(np.stack([stay, move], axis=1), [[0, 0], [2, 0]], gamma=0.9)
    >>> low, high, _ = best_average(cmdp, cmdp.reward)
    >>> round(low, 6), round(high, 6)
    (2.0, 2.0)
    """
    model = table_of(cmdp)
    worth = np.asarray(signal, dtype=np.float64)
    step, first = model.transition_matrix(), model.state_to_choice[:-1]
    goal = relative * max(float(np.abs(worth).max()), 1e-300)
    h = np.zeros(model.n_states)
    for _ in range(MOST_SWEEPS):
        change = np.maximum.reduceat(worth + step @ h, first) - h
        low, high = float(change.min()), float(change.max())
        if high - low <= goal:
            return low, high, h
        h += LAZY * change
        h -= h[0]
    raise ModelError(
        f"relative value iteration has not settled: the average lies between {low:.9g} and {high:.9g}"
    )
