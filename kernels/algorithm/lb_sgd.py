"""LB-SGD's direction and step: the gradient of J_r + barrier sum_i log J_ci, no longer than keeps all J_ci positive.

With a_i = J_ci hat - z standard errors - bias, G the gradients, l_i = |G_i . u| along the direction's unit vector u,
and M_f bounds on second derivatives,

    direction = G_r + sum_i price_i G_i,        price_i = barrier / a_i
    step |direction| <= min_i a_i / (2 l_i + sqrt(a_i M_i)),
    step <= 1 / (M_r + sum_i price_i (10 M_i + 8 l_i^2 / a_i))

The first keeps half of every a_i: along a step of length t, J_ci falls by at most t l_i + t^2 M_i / 2. While some a_i
is not positive, the direction is the sum of those constraints' unit gradients, with the barrier of the others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.algorithm.vanilla import aim, stride
from fastcmdp.kernels.learning.levels import cut


class Steps(NamedTuple):
    """Settings of the outer loop."""

    barrier: float
    z: float
    bias: float  # of a value, at most: of trajectories that are cut
    smoothness: np.ndarray  # float64[1+m]: M_f; 0: the largest |G_f| so far over ``reach``
    reach: float


class Barrier(NamedTuple):
    """The logarithmic barrier."""


@aim.on(Barrier)
def price_by_barrier(rule, steps, state, r, work):
    m = state.dual.shape[1]
    work.price[0] = 1.0
    for i in range(m):
        if not work.value[1 + i] - steps.z * work.doubt[1 + i] > steps.bias:
            work.price[0] = 0.0
    for i in range(m):
        lower = work.value[1 + i] - steps.z * work.doubt[1 + i] - steps.bias
        norm = math.sqrt(work.square[1 + i])
        work.price[1 + i] = steps.barrier / lower if lower > 0.0 else (1.0 / norm if norm > 0.0 else 0.0)
        state.dual[r, i] = work.price[1 + i]


@stride.on(Barrier)
def safe_stride(rule, steps, state, r, work, norm, n_slots):
    m = state.dual.shape[1]
    length = math.sqrt(norm)
    curvature, bound, known = 0.0, math.inf, False
    for k in range(1 + m):
        size = math.sqrt(work.square[k])
        smoothness = steps.smoothness[k]
        if smoothness == 0.0:
            smoothness = state.longest[r, 1 + m + k] / steps.reach  # of the outer steps before
            cut(state, r, 1 + m + k, size)
        known |= smoothness > 0.0
        curvature += work.price[k] * smoothness if k == 0 else 0.0
        if k == 0 or length == 0.0:
            continue
        along = 0.0
        for i in range(n_slots):
            along += work.gradient[k, i] * work.omega[i]
        along = abs(along) / length
        lower = work.value[k] - steps.z * work.doubt[k] - steps.bias
        if lower > 0.0:
            bound = min(bound, lower / (2.0 * along + math.sqrt(lower * smoothness)))
            curvature += work.price[k] * (10.0 * smoothness + 8.0 * along * along / lower)
        else:
            curvature += work.price[k] * smoothness
    if not known or length == 0.0:  # the first outer step, which only measures, or a stationary point
        return 0.0
    return min(1.0 / curvature, bound / length)
