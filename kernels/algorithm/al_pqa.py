"""The policy's step of projected Q-ascent: pi(.|s) <- P[pi(.|s) + step Q_L(s, .)], P the Euclidean projection.

With the multiplier [lambda - beta J_c]_+ in L, renewed every step, it ascends the augmented Lagrangian.
"""

from __future__ import annotations

from typing import NamedTuple

from fastcmdp.kernels.algorithm.tabular import improve, log_probabilities, project


class ProjectedAscent(NamedTuple):
    """Projected Q-ascent."""


@improve.on(ProjectedAscent)
def improve_by_projection(rule, tables, prob, step, first, theta, base, work):
    x = work.lagrangian
    for q in range(x.shape[0]):
        x[q] = prob[q] + step * x[q]
    project(tables.state_to_choice, x)
    log_probabilities(x, x)
