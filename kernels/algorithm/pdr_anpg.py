"""What PDR-ANPG adds to the outer loop of PD-ANPG: entropy in the targets. Its dual step is `Ridge` of duals.

The entropy's advantage needs no rollout of its own: the last pair (s_T, a_T) of a rollout of geometric length has the
discounted law of the pairs after its start, so that -log pi(a_T|s_T) / (1-gamma) estimates without bias the sum that
the Q and V rollouts would make of the signal -log pi.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fastcmdp.kernels.algorithm.pd_anpg import add_bonus, prepare, solve
from fastcmdp.kernels.learning.asgd import Momentum, asgd, fill_weights


class Regularised(NamedTuple):
    """ASGD with an entropy bonus in the targets."""

    momentum: Momentum
    tau: float


@prepare.on(Regularised)
def prepare_momentum_of(solver, n_skipped, weights):
    fill_weights(solver.momentum, n_skipped, weights)


@solve.on(Regularised)
def accelerate_regularised(solver, scores, weights, target, n_pairs, n_slots, inner, omega):
    asgd(scores, solver.momentum, weights, target, n_pairs, n_slots, inner, omega)


@add_bonus.on(Regularised)
def add_entropy(solver, tables, actions, last_pair, target):
    weight = solver.tau * tables.horizon * tables.horizon
    for h in range(target.shape[0]):
        p, baseline = actions.prob[last_pair[2 * h]], actions.prob[last_pair[2 * h + 1]]
        target[h] -= weight * (math.log(p) - math.log(baseline))
