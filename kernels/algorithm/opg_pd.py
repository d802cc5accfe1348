"""The policy's step of OPG-PD: optimistic ascent from a base, projected on the simplex or multiplicative.

    base_{k+1}(.|s) = P[base_k(.|s) + step Q_L(s, .)],     pi_{k+1}(.|s) = P[base_{k+1}(.|s) + step Q_L(s, .)],

Q_L of pi_k and lambda_k, P the Euclidean projection on probabilities. Multiplicative: the same sums of logarithms, P
their softmax.
"""

from __future__ import annotations

from typing import NamedTuple

from fastcmdp.kernels.algorithm.tabular import improve, log_probabilities, project, subtract_means


class OptimisticProjected(NamedTuple):
    """Base: probabilities."""


class OptimisticMultiplicative(NamedTuple):
    """Base: logits."""


@improve.on(OptimisticProjected)
def improve_from_projected_base(rule, tables, prob, step, first, theta, base, work):
    x = work.lagrangian
    for q in range(x.shape[0]):
        base[q] += step * x[q]
    project(tables.state_to_choice, base)
    for q in range(x.shape[0]):
        x[q] = base[q] + step * x[q]
    project(tables.state_to_choice, x)
    log_probabilities(x, x)


@improve.on(OptimisticMultiplicative)
def improve_from_logits(rule, tables, prob, step, first, theta, base, work):
    x = work.lagrangian
    subtract_means(tables.state_to_choice, prob, x)
    for q in range(x.shape[0]):
        base[q] += step * x[q]
        x[q] = base[q] + step * x[q]
