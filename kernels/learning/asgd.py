"""The inner loop: accelerated stochastic gradient descent with tail averaging (Algorithm 2 of the paper).

With the score g_h and target A_h of sample h, the gradient estimate at y is rank one, (g_h . y - A_h) g_h, and

    y   = alpha x + (1 - alpha) v                               (eq. asgd_1)
    e   = g_h . y - A_h
    x'  = y - delta e g_h                                       (eq. asgd_2)
    v'  = beta y + (1 - beta) v - xi e g_h                      (eq. asgd_3, asgd_4)
    omega = mean of x_h over H - floor(H/2) last steps          (eq. tail_average; odd H handled)

from x = v = 0. Where g is zero the pair (x, v) only undergoes the matrix M = [[alpha, 1-alpha], [alpha beta,
1 - alpha beta]] with eigenvalues 1 and decay = alpha (1 - beta). In the coordinates

    u = p x + (1 - p) v  (conserved),    w = x - v  (times decay a step),    p = alpha beta / (1 - decay)

an impulse at step h adds to u and w, and its whole effect on the tail average is known at once (``push``). Both
forms run in these: ``asgd_dense`` over all coordinates, three fused updates in one sweep; ``asgd_lazy`` over the
nonzeros of g, catching w up when a coordinate is visited. (The recursion as it stands is in the tests.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import inlined, kernel, reassociated
from fastcmdp.kernels.policy.scores import DenseScores, SparseScores


class Momentum(NamedTuple):
    """Step sizes of ASGD; the paper's xi is the Slater-free one."""

    alpha: float
    beta: float
    xi: float
    delta: float


class Weights(NamedTuple):
    """What is known beforehand from the step sizes and H."""

    decay_power: np.ndarray  # float64[H+1]: decay ** n
    push: np.ndarray  # float64[H]: effect of an impulse at step h on the tail average


class InnerState(NamedTuple):
    """Work space of an inner loop, one entry a slot."""

    u: np.ndarray  # float64[slots]
    w: np.ndarray  # float64[slots]
    last: np.ndarray  # int64[slots]: step up to which w is current


@inlined
def coefficients(momentum):
    """(decay, mix, into_u, into_w): y = u + mix w, and an impulse e g takes into_u e g from u, into_w e g from w."""
    decay = momentum.alpha * (1.0 - momentum.beta)
    p = momentum.alpha * momentum.beta / (1.0 - momentum.alpha + momentum.alpha * momentum.beta)
    return (
        decay,
        momentum.alpha - p,
        p * momentum.delta + (1.0 - p) * momentum.xi,
        momentum.delta - momentum.xi,
    )


@kernel
def fill_weights(momentum, tail, weights):
    """Fill the tables for H = weights.push.shape[0] and an average over the steps after the first ``tail``."""
    n_steps = weights.push.shape[0]
    decay, mix, into_u, into_w = coefficients(momentum)
    rest = 1.0 - momentum.alpha + momentum.alpha * momentum.beta
    p = momentum.alpha - mix
    for n in range(n_steps + 1):
        weights.decay_power[n] = decay**n
    for h in range(n_steps):
        first = max(h + 1, tail + 1)
        n = n_steps - first + 1
        geometric = weights.decay_power[first - h - 1] * (1.0 - weights.decay_power[n]) / rest
        weights.push[h] = (into_u * n + into_w * (1.0 - p) * geometric) / (n_steps - tail)


@generic("scores")
def asgd(scores, momentum, weights, target, n_steps, n_slots, inner, omega):
    """Run H = n_steps steps; omega[0:n_slots] is the tail average."""


@asgd.on(SparseScores)
def asgd_lazy(scores, momentum, weights, target, n_steps, n_slots, inner, omega):
    u, w, last = inner.u, inner.w, inner.last
    decay, mix, into_u, into_w = coefficients(momentum)
    for i in range(n_slots):
        u[i] = 0.0
        w[i] = 0.0
        last[i] = 0
        omega[i] = 0.0
    for h in range(n_steps):
        first = scores.first[h]
        end = scores.first[h + 1]
        e = -target[h]
        for k in range(first, end):
            i = scores.slot[k]
            w[i] *= weights.decay_power[h - last[i]]
            e += scores.value[k] * (u[i] + mix * w[i])
        push = weights.push[h] * e
        for k in range(first, end):
            i = scores.slot[k]
            g = scores.value[k]
            u[i] -= into_u * e * g
            w[i] = decay * w[i] - into_w * e * g
            last[i] = h + 1
            omega[i] -= push * g


@reassociated
def _step(g, target, u, w, omega, decay, mix, into_u, into_w, push):
    """One dense step: e, then the three updates in one sweep."""
    e = -target
    for j in range(g.shape[0]):
        e += g[j] * (u[j] + mix * w[j])
    for j in range(g.shape[0]):
        u[j] -= into_u * e * g[j]
        w[j] = decay * w[j] - into_w * e * g[j]
        omega[j] -= push * e * g[j]


@asgd.on(DenseScores)
def asgd_dense(scores, momentum, weights, target, n_steps, n_slots, inner, omega):
    u, w, d = inner.u, inner.w, n_slots
    decay, mix, into_u, into_w = coefficients(momentum)
    u[:d] = 0.0
    w[:d] = 0.0
    omega[:d] = 0.0
    for h in range(n_steps):
        _step(scores.dense[h], target[h], u, w, omega, decay, mix, into_u, into_w, weights.push[h])
