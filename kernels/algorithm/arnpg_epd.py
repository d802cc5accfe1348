"""The policy's step of ARNPG: natural gradient of the value with KL(pi || pi_k) to an anchor, of weight alpha.

    log pi <- (1 - step alpha) log pi + step (Q_L + alpha log pi_k + Q_KL) up to a constant a state,
    Q_KL(s, a) = -alpha E sum_{j>=1} gamma^j KL(pi(.|s_j) || pi_k(.|s_j))

It is the policy gradient with the reward r + l c + alpha log pi_k - alpha log pi, whose term of the pair itself stands
outside Q_KL. The anchor pi_k stays through the sweeps of an outer step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fastcmdp.kernels.algorithm.tabular import LEAST_LOG, fill_signal, improve, subtract_means


class Anchored(NamedTuple):
    """Weight of the divergence from the anchor."""

    alpha: float


@fill_signal.on(Anchored)
def fill_divergences(rule, tables, prob, anchor, signal):
    state_to_choice, last = tables.state_to_choice, signal.shape[1] - 1
    for s in range(state_to_choice.shape[0] - 1):
        divergence = 0.0
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            if prob[q] > 0.0:
                divergence += prob[q] * (math.log(prob[q]) - anchor[q])
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            signal[q, last] = -rule.alpha * divergence


@improve.on(Anchored)
def improve_near_anchor(rule, tables, prob, step, first, theta, base, work):
    last = work.signal.shape[1] - 1
    x = work.lagrangian
    share = min(step * rule.alpha, 1.0)
    for q in range(x.shape[0]):
        own = math.log(prob[q]) if prob[q] > 0.0 else LEAST_LOG
        later = work.estimate[q, last] - work.signal[q, last]
        x[q] = (1.0 - share) * own + share * ((x[q] + later) / rule.alpha + work.anchor[q])
    subtract_means(tables.state_to_choice, prob, x)
