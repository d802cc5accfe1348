"""C-PG's multipliers and steps: ridge on the multipliers, which move first, on values of their own samples.

    lambda_i = clip((1 - zeta_i ridge) lambda_i - zeta_i J_ci),      step along G_r + sum_i lambda_i G_ci

Steps are given, or measured: step = c_eta sqrt(d / (K N)), N the level of the direction's squared norm, and zeta_i =
c_zeta sqrt(N_r / N_ci) / (sqrt(K) max |J_ci| so far), N_f that of |G_f|^2, of the outer steps before (`levels`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fastcmdp.kernels.algorithm.vanilla import aim, stride
from fastcmdp.kernels.learning.duals import move
from fastcmdp.kernels.learning.levels import cut, level_of, update_level


class Steps(NamedTuple):
    """Settings of the outer loop."""

    n_outer: int  # K
    eta_scale: float
    zeta_scale: np.ndarray  # float64[m]
    adaptive_eta: bool
    adaptive_zeta: bool
    dual_max: np.ndarray  # float64[m]


class Alternating(NamedTuple):
    """Multipliers first, in this form, then theta."""

    dual: Any


@aim.on(Alternating)
def move_multipliers(rule, steps, state, r, work):
    m = state.dual.shape[1]
    work.price[0] = 1.0
    for i in range(m):
        size, zeta = abs(work.value[1 + i]), steps.zeta_scale[i]
        longest = state.longest[r, 1 + i]
        shorter = cut(state, r, 1 + i, size)
        if steps.adaptive_zeta:
            reward, cost = level_of(state, r, 1), level_of(state, r, 2 + i)
            known = longest > 0.0 and cost > 0.0
            scale = math.sqrt((reward if reward > 0.0 else cost) / cost) if known else 0.0
            zeta *= shorter * scale / (math.sqrt(steps.n_outer) * longest) if known else 0.0
        state.dual[r, i] = move(
            rule.dual, state.memory[r, i], -work.value[1 + i], zeta, 1.0, steps.dual_max[i]
        )
        work.price[1 + i] = state.dual[r, i]
    for k in range(1 + m):
        update_level(state, r, 1 + k, work.square[k], 0)


@stride.on(Alternating)
def measured_stride(rule, steps, state, r, work, norm, n_slots):
    step = steps.eta_scale
    if steps.adaptive_eta:
        level = level_of(state, r, 0)
        step *= cut(state, r, 0, math.sqrt(norm))
        step = step / math.sqrt(steps.n_outer * level) if level > 0.0 else 0.0
    update_level(state, r, 0, norm, 0)
    return step
