"""The policies' steps of natural gradients without a regulariser: plain, and with ReLOAD's extrapolation.

    theta_{k+1} = theta_k + step A_k,     or     theta_{k+1} = theta_k + step (2 A_k - A_{k-1}),

A_k the advantage of r + lambda_k c under pi_k, lambda_k included; A_{-1} = A_0.
"""

from __future__ import annotations

from typing import NamedTuple

from fastcmdp.kernels.algorithm.tabular import improve, subtract_means


class Natural(NamedTuple):
    """Natural gradient ascent."""


class Extrapolated(NamedTuple):
    """Natural gradient ascent along twice this gradient less the one before; base: that before."""


@improve.on(Natural)
def improve_naturally(rule, tables, prob, step, first, theta, base, work):
    x = work.lagrangian
    subtract_means(tables.state_to_choice, prob, x)
    for q in range(x.shape[0]):
        x[q] = theta[q] + step * x[q]


@improve.on(Extrapolated)
def improve_by_extrapolation(rule, tables, prob, step, first, theta, base, work):
    x = work.lagrangian
    subtract_means(tables.state_to_choice, prob, x)
    for q in range(x.shape[0]):
        before = x[q] if first else base[q]
        base[q] = x[q]
        x[q] = theta[q] + step * (2.0 * x[q] - before)
