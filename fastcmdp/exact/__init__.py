"""Exact answers for an explicit model: evaluation, occupancy, optimum, Fisher matrix, natural gradient.

Notation. J_f(pi) is the discounted sum of the signal f from the start distribution, not normalised by
1-gamma. A policy is a vector ``pi`` of action probabilities, one for each choice q of the model, s_q the
state that owns q. P is the (C, S) matrix of transition probabilities, W_pi the (S, C) matrix that averages
over the choices of a state, P_pi = W_pi P the chain of a policy, d its occupancy of states and nu its
occupancy of choices::

    d = (1-gamma) start + gamma P_pi^T d,  sum d = 1          nu(q) = d(s_q) pi(q)                    (1)
    V = W_pi f + gamma P_pi V              Q = f + gamma P V          A(q) = Q(q) - V(s_q)             (2)
    J_f = sum_q nu(q) f(q) / (1-gamma) = start . V                                                   (3)
    A_L = A_r + sum_i lambda_i A_ci                                                                  (4)
    F   = sum_q nu(q) g_q g_q^T                                            (paper, eq_def_F_rho)     (5)
    grad J_L = 1/(1-gamma) sum_q nu(q) A_L(q) g_q                  (paper, eq:policy_grad_theorem)   (6)
    omega* = F^+ grad J_L                                             (paper, eq_quad_optimization)  (7)

with g_q the score, the gradient of log pi(q). "Kernel units" are those of ``CMDP.signals``: a reward in
[0, 1] and constraints in [-1, 1] that are met when J_ci >= 0. Everything else is in the user's units.
"""

from __future__ import annotations

from fastcmdp.exact.average import AverageOptimum, average_of, average_optimum, best_average, stationary
from fastcmdp.exact.constrained import Optimum, optimum
from fastcmdp.exact.control import dual_value
from fastcmdp.exact.deterministic import Deterministic, deterministic
from fastcmdp.exact.evaluation import (
    Value,
    advantages,
    evaluate,
    evaluate_many,
    occupancy,
    q_values,
    state_occupancy,
    values,
)
from fastcmdp.exact.frontier import Frontier, frontier
from fastcmdp.exact.gradients import fisher, natural_gradient, policy_gradient
from fastcmdp.exact.horizon import horizon
from fastcmdp.exact.mixtures import FEASIBLE
from fastcmdp.exact.pool import Stage
from fastcmdp.exact.sensitivity import multiplier_range
from fastcmdp.exact.utilities import (
    Best,
    Utility,
    at_least,
    entropy,
    even_values,
    imitation,
    log_values,
    maximise,
)

__all__ = [
    "FEASIBLE",
    "AverageOptimum",
    "Best",
    "Deterministic",
    "Frontier",
    "Optimum",
    "Stage",
    "Utility",
    "Value",
    "advantages",
    "at_least",
    "average_of",
    "average_optimum",
    "best_average",
    "deterministic",
    "dual_value",
    "entropy",
    "evaluate",
    "evaluate_many",
    "even_values",
    "fisher",
    "frontier",
    "horizon",
    "imitation",
    "log_values",
    "maximise",
    "multiplier_range",
    "natural_gradient",
    "occupancy",
    "optimum",
    "policy_gradient",
    "q_values",
    "state_occupancy",
    "stationary",
    "values",
]
