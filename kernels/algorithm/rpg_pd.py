"""The policy's step of RPG-PD: natural gradient of the value with an entropy bonus, in closed form for a table.

    log pi_{k+1} = (1 - step tau) log pi_k + step (Q_L + tau Q_H) up to a constant a state,
    Q_H(s, a)    = E sum_{j>=1} gamma^j H(pi_k(.|s_j)),   H the entropy of a state's actions

It is the maximum over p(.|s) of p . (Q_L + tau Q_H - tau log pi_k) - KL(p, pi_k) / step, which makes it a contraction
by 1 - step tau.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fastcmdp.kernels.algorithm.tabular import fill_signal, improve, subtract_means


class Entropic(NamedTuple):
    """Weight of the entropy."""

    tau: float


@fill_signal.on(Entropic)
def fill_entropies(rule, tables, prob, anchor, signal):
    state_to_choice, last = tables.state_to_choice, signal.shape[1] - 1
    for s in range(state_to_choice.shape[0] - 1):
        entropy = 0.0
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            if prob[q] > 0.0:
                entropy -= prob[q] * math.log(prob[q])
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            signal[q, last] = entropy


@improve.on(Entropic)
def improve_with_entropy(rule, tables, prob, step, first, theta, base, work):
    last = work.signal.shape[1] - 1
    x = work.lagrangian
    kept = max(1.0 - step * rule.tau, 0.0)
    for q in range(x.shape[0]):
        later = work.estimate[q, last] - work.signal[q, last]  # the state's own entropy is in the step itself
        x[q] = kept * theta[q] + step * (x[q] + rule.tau * later)
    subtract_means(tables.state_to_choice, prob, x)
