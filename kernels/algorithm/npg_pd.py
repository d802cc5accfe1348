"""The inner loop of NPG-PD: projected stochastic gradient descent with weighted averaging.

With the score g_h and target A_h of sample h, from omega_0 = 0,

    e           = g_h . omega_h - A_h
    omega_{h+1} = the point nearest to omega_h - step_h e g_h in the ball of this radius
    omega       = sum over h of weight_h omega_{h+1}

A projection shrinks every coordinate, and so does the average touch all. So omega_h = scale_h z_h with a vector z
that only impulses move, z <- z - (step_h e / scale_h) g_h, and the average is

    sum_h weight_h scale_{h+1} z_{h+1} = T_H z_H - sum_h (z_{h+1} - z_h) T_h,
    T_h = weight_0 scale_1 + .. + weight_{h-1} scale_h,

of which the second sum, called ``owed``, also moves with impulses alone. A step then costs the nonzeros of g. A scale
that gets small would lose digits in the difference of the two terms: then the average is brought up to date, z takes
the scale over and both begin anew.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import inlined, kernel, reassociated
from fastcmdp.kernels.policy.scores import DenseScores, SparseScores

_LEAST_SCALE = 1e-3  # costs three of sixteen digits


class Projected(NamedTuple):
    """Projected SGD: the ball, the steps and the weights of the average."""

    radius: float  # may be infinite
    step: np.ndarray  # float64[H]
    weight: np.ndarray  # float64[H], sum 1


@kernel
def settle(z, owed, omega, scale, total, n):
    """Bring the average omega up to date, and let z be the iterate itself."""
    for i in range(n):
        omega[i] += total * z[i] - owed[i]
        z[i] *= scale
        owed[i] = 0.0


@inlined
def _into_ball(scale, square, radius):
    """The scale, and the squared length of the iterate, after its projection; not a number where the length is none."""
    if square <= radius * radius:
        return scale, square
    return scale * (radius / math.sqrt(square) if math.isfinite(square) else math.nan), radius * radius


@generic("scores")
def projected(scores, solver, target, n_steps, n_slots, inner, omega):
    """Run H = n_steps steps; omega[0:n_slots] is the average."""


@projected.on(SparseScores)
def projected_lazy(scores, solver, target, n_steps, n_slots, inner, omega):
    z, owed = inner.u, inner.w
    starts, slot, value = scores.first, scores.slot, scores.value
    step, weight, radius = solver.step, solver.weight, solver.radius
    for i in range(n_slots):
        z[i] = 0.0
        owed[i] = 0.0
        omega[i] = 0.0
    scale, total, square = 1.0, 0.0, 0.0
    for h in range(n_steps):
        product, length = 0.0, 0.0
        for k in range(starts[h], starts[h + 1]):
            product += value[k] * z[slot[k]]
            length += value[k] * value[k]
        product *= scale
        push = step[h] * (product - target[h])
        change = push / scale
        later = change * total
        for k in range(starts[h], starts[h + 1]):
            z[slot[k]] -= change * value[k]
            owed[slot[k]] -= later * value[k]
        square += push * (push * length - 2.0 * product)
        scale, square = _into_ball(scale, square, radius)
        total += weight[h] * scale
        if scale < _LEAST_SCALE:
            settle(z, owed, omega, scale, total, n_slots)
            scale, total = 1.0, 0.0
    settle(z, owed, omega, scale, total, n_slots)


@reassociated
def _products(g, z):
    """g . z and g . g."""
    product, length = 0.0, 0.0
    for j in range(g.shape[0]):
        product += g[j] * z[j]
        length += g[j] * g[j]
    return product, length


@reassociated
def _move(g, z, owed, change, later):
    for j in range(g.shape[0]):
        z[j] -= change * g[j]
        owed[j] -= later * g[j]


@projected.on(DenseScores)
def projected_dense(scores, solver, target, n_steps, n_slots, inner, omega):
    z, owed, dense, d = inner.u, inner.w, scores.dense, n_slots
    step, weight, radius = solver.step, solver.weight, solver.radius
    z[:d] = 0.0
    owed[:d] = 0.0
    omega[:d] = 0.0
    scale, total, square = 1.0, 0.0, 0.0
    for h in range(n_steps):
        product, length = _products(dense[h], z)
        product *= scale
        push = step[h] * (product - target[h])
        change = push / scale
        _move(dense[h], z, owed, change, change * total)
        square += push * (push * length - 2.0 * product)
        scale, square = _into_ball(scale, square, radius)
        total += weight[h] * scale
        if scale < _LEAST_SCALE:
            settle(z, owed, omega, scale, total, d)
            scale, total = 1.0, 0.0
    settle(z, owed, omega, scale, total, d)
