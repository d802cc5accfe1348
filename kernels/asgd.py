"""The inner loop: accelerated stochastic gradient descent with tail averaging (Algorithm 2 of the paper).

With the score g_h and target A_h of sample h, the gradient estimate at y is rank one, (g_h . y - A_h) g_h, and

    y   = alpha x + (1 - alpha) v                               (eq. asgd_1)
    e   = g_h . y - A_h
    x'  = y - delta e g_h                                       (eq. asgd_2)
    v'  = beta y + (1 - beta) v - xi e g_h                      (eq. asgd_3, asgd_4)
    omega = mean of x_h over H - floor(H/2) last steps          (eq. tail_average; odd H handled)

from x = v = 0. ``asgd_dense`` runs it as it stands, O(d) a step. ``asgd_lazy`` costs O(nonzeros) a step: between
two visits of a coordinate the pair (x, v) only undergoes the matrix M = [[alpha, 1-alpha], [alpha beta,
1 - alpha beta]] with eigenvalues 1 and decay = alpha (1 - beta). In the coordinates

    u = p x + (1 - p) v  (conserved),    w = x - v  (times decay a step),    p = alpha beta / (1 - decay)

an impulse at step h adds to u and w, and its whole effect on the tail average is known at once (``push``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import kernel, reassociated


class Momentum(NamedTuple):
    """Step sizes of ASGD; the paper's xi is the Slater-free one."""

    alpha: float
    beta: float
    xi: float
    delta: float


class LazyWeights(NamedTuple):
    """What the lazy form precomputes from the step sizes and H."""

    decay_power: np.ndarray  # float64[H+1]: decay ** n
    push: np.ndarray  # float64[H]: effect of an impulse at step h on the tail average


class InnerState(NamedTuple):
    """Work space of an inner loop, one entry a slot."""

    x: np.ndarray  # float64[slots]: x, or u of the lazy form
    v: np.ndarray  # float64[slots]: v, or w
    last: np.ndarray  # int64[slots]: step up to which w is current


@kernel
def fill_lazy_weights(momentum, weights):
    """Fill the tables of the lazy form for H = weights.push.shape[0]."""
    n_steps = weights.push.shape[0]
    decay = momentum.alpha * (1.0 - momentum.beta)
    rest = 1.0 - momentum.alpha + momentum.alpha * momentum.beta
    p = momentum.alpha * momentum.beta / rest
    tail = n_steps // 2
    into_u = p * momentum.delta + (1.0 - p) * momentum.xi
    into_w = momentum.delta - momentum.xi
    for n in range(n_steps + 1):
        weights.decay_power[n] = decay**n
    for h in range(n_steps):
        first = max(h + 1, tail + 1)
        n = n_steps - first + 1
        geometric = weights.decay_power[first - h - 1] * (1.0 - weights.decay_power[n]) / rest
        weights.push[h] = (into_u * n + into_w * (1.0 - p) * geometric) / (n_steps - tail)


@kernel
def asgd_lazy(momentum, weights, scores, target, n_steps, n_slots, inner, omega):
    """Run H = n_steps steps on sparse scores; omega[0:n_slots] is the tail average."""
    u, w, last = inner.x, inner.v, inner.last
    decay = momentum.alpha * (1.0 - momentum.beta)
    p = momentum.alpha * momentum.beta / (1.0 - momentum.alpha + momentum.alpha * momentum.beta)
    into_u = p * momentum.delta + (1.0 - p) * momentum.xi
    into_w = momentum.delta - momentum.xi
    mix = momentum.alpha - p
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
def _residual(momentum, g, x, v, target):
    e = -target
    for j in range(x.shape[0]):
        e += g[j] * (momentum.alpha * x[j] + (1.0 - momentum.alpha) * v[j])
    return e


@reassociated
def _advance(momentum, g, x, v, omega, e, keep):
    for j in range(x.shape[0]):
        y = momentum.alpha * x[j] + (1.0 - momentum.alpha) * v[j]
        v[j] = momentum.beta * y + (1.0 - momentum.beta) * v[j] - momentum.xi * e * g[j]
        x[j] = y - momentum.delta * e * g[j]
        omega[j] += keep * x[j]


@kernel
def asgd_dense(momentum, scores, target, n_steps, d, inner, omega):
    """Run H = n_steps steps on dense scores; omega[0:d] is the tail average."""
    x, v = inner.x[:d], inner.v[:d]
    x[:] = 0.0
    v[:] = 0.0
    omega[:d] = 0.0
    tail = n_steps // 2
    for h in range(n_steps):
        g = scores.dense[h]
        e = _residual(momentum, g, x, v, target[h])
        _advance(momentum, g, x, v, omega[:d], e, 1.0 if h >= tail else 0.0)
    for j in range(d):
        omega[j] /= n_steps - tail


@kernel
def natural_norm(scores, omega, n_steps, is_dense):
    """omega . F omega with the batch's Fisher estimate F = mean of g g': the mean square of g_h . omega."""
    total = 0.0
    for h in range(n_steps):
        change = 0.0
        if is_dense:
            for j in range(omega.shape[0]):
                change += scores.dense[h, j] * omega[j]
        else:
            for k in range(scores.first[h], scores.first[h + 1]):
                change += scores.value[k] * omega[scores.slot[k]]
        total += change * change
    return total / n_steps
