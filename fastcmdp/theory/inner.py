"""The inner loop's law: mean and second moment of the ASGD output at a fixed (theta, lambda).

In errors x~ = x - omega*, v~ = v - omega*, one step on the sample (g, A_hat) reads, with y~ = alpha x~ + (1-alpha) v~,

    e  = g . y~ + epsilon,                       epsilon = g . omega* - A_hat / (1-gamma)              (1)
    x~ <- y~ - delta e g,                        v~ <- beta y~ + (1-beta) v~ - xi e g                  (2)

Samples are independent of the past and E[epsilon g] = 0, so that means obey the deterministic recursion (paper,
eq_asgd_det_1): (2) with F y~ for e g. In an eigenvector of F with eigenvalue z it is two numbers, and the mean error
of the tail average is

    E[omega_k] - omega* = p_H(z) omega*      in that eigenvector, p_H a polynomial                    (3)

Second moments S of u = (x~, v~) obey, with y~ = L u and u <- B u - c (e g), B and c from (2),

    S <- B S B' - B S L' F c' - (B S L' F c')' + c c' E[e^2 g g'],
    E[e^2 g g'] = sum_q nu(q) (g' L S L' g + 2 E[epsilon|q] g . E[y~] + E[epsilon^2|q]) g g'           (4)

which is exact: no sampling, no bound. (4) is derived here; the paper only bounds the outcome (Lemma 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.assumptions.points import Point
from fastcmdp.check import whole
from fastcmdp.errors import SettingError
from fastcmdp.kernels.learning.asgd import Momentum

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class InnerMoments:
    """Exact moments of omega_k given (theta_k, lambda_k).

    Attributes
    ----------
    mean : float64[d]
        E[omega_k].
    bias : float
        |E[omega_k] - omega*|, the first-order error.
    error_second : float
        E|omega_k - omega*|^2, the second-order error.
    norm_second : float
        E|omega_k|^2.
    """

    mean: Floats
    bias: float
    error_second: float
    norm_second: float


def error_factors(
    eigenvalues: ArrayLike, momentum: Momentum, n_steps: int, n_skipped: int | None = None
) -> Floats:
    """p_H(z) of equation (3) for each eigenvalue z: -1 before the first step, 0 for an exact answer.

    Parameters
    ----------
    eigenvalues : float64[n], >= 0
    momentum : Momentum
    n_steps : int
        H >= 1.
    n_skipped : int
        Iterates before the average begins; None: floor(H/2), the tail.

    Examples
    --------
    One step from zero is a gradient step of size delta:

    >>> step = Momentum(alpha=0.9, beta=0.1, xi=0.2, delta=0.25)
    >>> error_factors([0.0, 1.0], step, 1)
    array([-1.  , -0.75])
    """
    n_steps = whole("n_steps", n_steps, 1)
    step = error_matrices(eigenvalues, momentum)
    # (u, s) -> (M u, s + M u) sums the tail; powers by squaring, so that H may be large.
    summing = np.zeros((len(step), 4, 4))
    summing[:, :2, :2] = summing[:, 2:, :2] = step
    summing[:, 2:, 2:] = np.eye(2)
    before = _skipped(n_steps, n_skipped)
    state = np.linalg.matrix_power(step, before) @ np.array([-1.0, -1.0])
    tail = np.linalg.matrix_power(summing, n_steps - before)[:, 2, :2]
    return cast(Floats, np.einsum("ni,ni->n", tail, state) / (n_steps - before))


def _skipped(n_steps: int, n_skipped: int | None) -> int:
    skipped = n_steps // 2 if n_skipped is None else whole("n_skipped", n_skipped, 0)
    if skipped >= n_steps:
        raise SettingError(f"n_skipped = {n_skipped}: fewer than the {n_steps} steps are expected")
    return skipped


def error_matrices(eigenvalues: ArrayLike, momentum: Momentum) -> Floats:
    """The step (x~, v~) -> M (x~, v~) of deterministic ASGD for each eigenvalue of F, float64[n, 2, 2]."""
    z = np.asarray(eigenvalues, np.float64)
    alpha, beta, xi, delta = momentum
    y = np.array([alpha, 1.0 - alpha])
    v = np.array([0.0, 1.0 - beta])
    return np.stack([(1.0 - delta * z)[:, None] * y, (beta - xi * z)[:, None] * y + v], axis=1)


def conditional_mean(at: Point, momentum: Momentum, n_steps: int, n_skipped: int | None = None) -> Floats:
    """E[omega_k | theta_k, lambda_k], float64[d], by deterministic ASGD (paper, eq:tail_average_det)."""
    basis = at.basis
    factors = error_factors(at.eigenvalues, momentum, n_steps, n_skipped)
    return at.natural + basis @ (factors * (basis.T @ at.natural))


def inner_moments(at: Point, momentum: Momentum, n_steps: int, n_skipped: int | None = None) -> InnerMoments:
    """Exact mean and second moment of the average of H steps: O(H C r^2) time, r the rank of F.

    Parameters
    ----------
    at : Point
    momentum : Momentum
    n_steps : int
        H >= 1.
    n_skipped : int
        Iterates before the average begins; None: floor(H/2), the tail.

    Examples
    --------
    Two choices that lead nowhere (gamma near 0: T is almost always 0), one step of size delta from zero: omega =
    delta A_hat g with A_hat = 1{a = 1} - 1{a' = 1}.

    >>> import fastcmdp as fc
    >>> from fastcmdp.theory import point
    >>> cmdp = fc.CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [0, 1], gamma=1e-9)
    >>> moments = inner_moments(point(cmdp), Momentum(0.9, 0.1, 0.2, 0.25), 1)
    >>> moments.mean.round(6).tolist()  # delta E[A g] = 1/4 (-1/4, 1/4)
    [-0.0625, 0.0625]
    >>> round(moments.norm_second, 6)  # delta^2 E[A_hat^2] |g|^2 = 1/16 1/2 1/2
    0.015625
    """
    n_steps = whole("n_steps", n_steps, 1)
    before = _skipped(n_steps, n_skipped)
    alpha, beta, xi, delta = momentum
    # In the eigenvectors of F, where F is diag(z). Iterates never leave their span, nor does omega*.
    z, basis, nu = at.eigenvalues, at.basis, at.nu
    g, natural = at.scores @ basis, basis.T @ at.natural
    drift, noise = at.residuals @ at.weights, at.residual_second_moment()

    mean_x, mean_v, mean_acc = -natural, -natural, np.zeros_like(z)
    start = np.outer(natural, natural)
    xx, xv, vv = start, start, start  # blocks of S; xv = E[x~ v~']
    acc_x, acc_v = (
        np.zeros_like(start),
        np.zeros_like(start),
    )  # E[acc x~'], E[acc v~'], acc the sum of the tail
    acc_square = 0.0
    for h in range(n_steps):
        mean_y = alpha * mean_x + (1.0 - alpha) * mean_v
        xy, vy = alpha * xx + (1.0 - alpha) * xv, alpha * xv.T + (1.0 - alpha) * vv  # E[x~ y~'], E[v~ y~']
        yy = alpha * xy + (1.0 - alpha) * vy
        zy = beta * yy + (1.0 - beta) * vy  # z~ = beta y~ + (1-beta) v~, before the impulse
        zz = beta**2 * yy + beta * (1.0 - beta) * (vy + vy.T) + (1.0 - beta) ** 2 * vv
        square = np.einsum("qi,qi->q", g @ yy, g) + 2.0 * drift * (g @ mean_y) + noise
        impulse = g.T @ ((nu * square)[:, None] * g)  # E[e^2 g g']
        acc_y = alpha * acc_x + (1.0 - alpha) * acc_v
        acc_z = beta * acc_y + (1.0 - beta) * acc_v
        acc_x, acc_v = acc_y - delta * acc_y * z, acc_z - xi * acc_y * z
        xx = yy - delta * (yy * z + (yy * z).T) + delta**2 * impulse  # E[y~ (e g)'] = E[y~ y~'] F
        xv = zy.T - xi * yy * z - delta * (zy * z).T + delta * xi * impulse
        vv = zz - xi * (zy * z + (zy * z).T) + xi**2 * impulse
        mean_x, mean_v = (1.0 - delta * z) * mean_y, beta * mean_y + (1.0 - beta) * mean_v - xi * z * mean_y
        if h >= before:
            acc_square += 2.0 * np.trace(acc_x) + np.trace(xx)
            acc_x, acc_v = acc_x + xx, acc_v + xv
            mean_acc = mean_acc + mean_x
    tail = n_steps - before
    error = mean_acc / tail
    error_second = float(acc_square) / tail**2
    return InnerMoments(
        mean=at.natural + basis @ error,
        bias=float(np.linalg.norm(error)),
        error_second=error_second,
        norm_second=error_second + 2.0 * float(natural @ error) + float(natural @ natural),
    )
