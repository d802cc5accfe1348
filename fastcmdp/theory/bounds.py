"""The paper's statements about one pair (theta, lambda), as functions that return both sides: Lemmas 1, 2, 5, 6.

Kernel units, m constraints (`constants`: Lambda stands for 1 + lambda_max). Lemmas carry the number of their label
in the paper's source; in print, where lemmas are simply counted, lemma_5 is the fourth and lemma_second_order
(here Lemma 6) the fifth.

Both sides are exact where ``how`` says "exact": expectations over Algorithm 1 come from its law (`moments`), the
inner loop's from (`inner`), values from linear systems. `global_bounds` has what is about whole runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.algorithms.pd_anpg import PDANPG
from fastcmdp.assumptions.constants import SMALLEST, Constants, asgd_steps
from fastcmdp.assumptions.points import Point
from fastcmdp.check import positive
from fastcmdp.errors import SettingError
from fastcmdp.exact import evaluate, occupancy, q_values, values
from fastcmdp.policies import Policy
from fastcmdp.theory.inequality import ROUNDING, Inequality, at_most, equal, on_average
from fastcmdp.theory.inner import conditional_mean, error_factors, error_matrices, inner_moments
from fastcmdp.theory.paths import sampled_steps

Floats = NDArray[np.float64]


def _check_covered(at: Point, constants: Constants) -> None:
    if at.mu < constants.mu_F * (1.0 - ROUNDING) or float(at.dual.max(initial=0.0)) > constants.lambda_max * (
        1.0 + ROUNDING
    ):
        raise SettingError(
            f"these constants do not cover the point (mu_F {constants.mu_F:.3g} against {at.mu:.3g} there, multipliers "
            f"{at.dual} against a cap of {constants.lambda_max:.3g}): give its theta to constants(thetas=...)"
        )


def unbiased_estimates(at: Point, omega: ArrayLike | None = None) -> tuple[Inequality, ...]:
    """Lemma 1 (lemma_unbiased) and the identities in its proof, from the law of Algorithm 1 in closed form.

    Parameters
    ----------
    at : Point
    omega : float64[d]
        Where the gradient of L is estimated; None: at omega = (1, ..., 1).

    Returns
    -------
    tuple of Inequality
        The pair's law, E[Q_hat], E[V_hat], E[J_hat], E[F_hat], and E[gradient estimate].
    """
    cmdp, law, g = at.cmdp, at.law, at.scores
    weights = np.ones(g.shape[1]) if omega is None else np.asarray(omega, np.float64)
    how = "exact, the law of the horizon summed in closed form"
    fisher = g.T @ (law.pair[:, None] * g)
    lagrangian = (law.q_mean - law.v_mean[cmdp.choice_state]) @ at.weights
    gradient = fisher @ weights - g.T @ (law.pair * lagrangian) / (1.0 - cmdp.gamma)
    return (
        equal("Lemma 1", "Pr(s_hat, a_hat) = nu", law.pair, at.nu, how),
        equal("Lemma 1", "E[Q_hat] = Q", law.q_mean, q_values(cmdp, at.pi), how),
        equal("Lemma 1", "E[V_hat] = V", law.v_mean, values(cmdp, at.pi), how),
        equal("Lemma 1", "E[J_hat] = J", law.j_mean, evaluate(cmdp, at.pi).raw, how),
        equal("Lemma 1", "E[F_hat] = F", fisher, at.fisher, how),
        equal("Lemma 1", "E[grad L estimate] = grad L", gradient, at.fisher @ weights - at.gradient, how),
    )


def estimator_moments(at: Point) -> tuple[Inequality, ...]:
    """E[Q_hat^2], E[V_hat^2] and E[J_hat^2] of every signal against (1+gamma)/(1-gamma)^2 (eq_42, eq_appndx_66)."""
    law, gamma = at.law, at.cmdp.gamma
    bound = (1.0 + gamma) / (1.0 - gamma) ** 2
    parts = {"Q": law.q_second, "V": law.v_second, "J": law.j_second}
    return tuple(
        at_most(
            "eq. 66" if name == "J" else "eq. 42",
            f"E[{name}_hat^2] <= (1+gamma)/(1-gamma)^2",
            float(np.einsum("...ii->...i", second).max()),
            bound,
        )
        for name, second in parts.items()
    )


def advantage_bound(at: Point, constants: Constants) -> Inequality:
    """|A_L| <= (1 + 2 m lambda_max)/(1-gamma), the corrected form of what the proof of Lemma 2 says."""
    _check_covered(at, constants)
    largest = float(np.abs(at.lagrangian).max())
    return at_most("in Lemma 2", "|A_L| <= (1+2 m lambda_max)/(1-gamma)", largest, constants.advantage_bound)


def gradient_bound(at: Point, constants: Constants) -> Inequality:
    """Lemma 2 (lemma_2): |grad J_L| <= G (1 + lambda_max)/(1-gamma)^2.

    The paper's proof uses |A_L| <= (1+lambda)/(1-gamma), which is false; the statement is true all the same,
    since E[A_L g] = E[Q_L g] and |Q_L| <= (1+lambda)/(1-gamma) (derived here).
    """
    _check_covered(at, constants)
    bound = constants.G * constants.Lambda / (1.0 - constants.gamma) ** 2
    return at_most("Lemma 2", "|grad J_L| <= G Lambda/(1-gamma)^2", float(np.linalg.norm(at.gradient)), bound)


def initial_loss_bound(at: Point, constants: Constants) -> Inequality:
    """l(0) = E[(A_L/(1-gamma))^2]/2 <= (1 + lambda_max)^2 / (2 (1-gamma)^4) (eq_51_appndx).

    True as it stands although |A_L| can be larger: within a state E[A_L^2] is the variance of Q_L, at most its
    second moment (derived here).
    """
    _check_covered(at, constants)
    unit = 1.0 - constants.gamma
    left = float(at.nu @ at.lagrangian**2) / (2.0 * unit**2)
    bound = constants.Lambda**2 / (2.0 * unit**4)
    return at_most("eq. 51", "L(0) <= Lambda^2/(2 (1-gamma)^4)", left, bound)


def gradient_noise(at: Point, constants: Constants) -> Inequality:
    """Lemma 5 (lemma_5): E[estimate x estimate] at omega* <= sigma^2 F; left is the smallest such sigma^2."""
    _check_covered(at, constants)
    return at_most(
        "Lemma 5",
        "least sigma^2 <= (2 G^4/mu_F^2 + 32) Lambda^2/(1-gamma)^4",
        at.whitened_norm(at.residual_second_moment()),
        constants.sigma2,
    )


def moment_conditions(at: Point, constants: Constants) -> tuple[Inequality, Inequality]:
    """S3 (b) and (c) in the proof of Lemma 6: E[|g|^2 g g'] <= G^2 F and E[|g|^2_{F^+} g g'] <= G^2/mu_F F.

    Left is the least number for which the matrix inequality holds.
    """
    _check_covered(at, constants)
    squares = np.einsum("qi,qi->q", at.scores, at.scores)
    return (
        at_most("S3 (b)", "least R^2 <= G^2", at.whitened_norm(squares), constants.G**2),
        at_most("S3 (c)", "least kappa~ <= G^2/mu_F", at.whitened_norm(at.whitened_squares), constants.kappa),
    )


def performance_difference(at: Point, action_probabilities: ArrayLike) -> Inequality:
    """Performance difference (lemma_helper): J_L(pi_1) - J_L(pi_2) = E_{nu_1}[A_L of pi_2]/(1-gamma).

    pi_1 is given, pi_2 is the point's policy.
    """
    cmdp = at.cmdp
    left = float((evaluate(cmdp, action_probabilities).raw - at.raw) @ at.weights)
    right = float(occupancy(cmdp, action_probabilities) @ at.lagrangian) / (1.0 - cmdp.gamma)
    return equal(
        "performance difference", "J_L(pi_1) - J_L(pi_2) = E_{nu_1}[A_L]/(1-gamma)", left, right, "exact"
    )


def local_convergence(
    at: Point, constants: Constants, n_steps: int, C: float = 1.0
) -> tuple[Inequality, Inequality]:
    """Lemma 6 (lemma_second_order), both bounds, for H = n_steps with the lemma's ASGD steps.

    Second order: E|omega - omega*|^2 <= 22 sigma^2 d/(mu_F H) + C exp(-mu_F H/(20 G^2)) Lambda^2/(mu_F (1-gamma)^4).
    First order: |E[omega] - omega*| <= sqrt(C) exp(-mu_F H/(40 G^2)) Lambda/(sqrt(mu_F) (1-gamma)^2). Given
    (theta, lambda); the lemma's outer expectation follows.

    Parameters
    ----------
    at : Point
    constants : Constants
        Must cover the point; sigma^2 is Lemma 5's bound.
    n_steps : int
        H >= 1.
    C : float
        The universal constant.
    """
    return second_order_bound(at, constants, n_steps, C), first_order_bound(at, constants, n_steps, C)


def second_order_bound(at: Point, constants: Constants, n_steps: int, C: float = 1.0) -> Inequality:
    """The first of `local_convergence`: eq:second_order_bound_lemma, exact by the recursion of second moments."""
    _check_covered(at, constants)
    return at_most(
        "Lemma 6, second order",
        f"E|omega - omega*|^2 <= 22 sigma^2 d/(mu_F H) + ..., H = {n_steps}",
        inner_moments(at, constants.momentum, n_steps).error_second,
        _second_order(constants, n_steps, C),
    )


def first_order_bound(at: Point, constants: Constants, n_steps: int, C: float = 1.0) -> Inequality:
    """The second of `local_convergence`: eq:first_order_bound_nested_exp_lemma, exact by deterministic ASGD."""
    _check_covered(at, constants)
    positive("C", C, SMALLEST)
    error = conditional_mean(at, constants.momentum, n_steps) - at.natural
    return at_most(
        "Lemma 6, first order",
        f"|E[omega] - omega*| <= sqrt(C) exp(-mu_F H/(40 G^2)) ..., H = {n_steps}",
        float(np.linalg.norm(error)),
        math.sqrt(C * math.exp(-n_steps / (20.0 * constants.kappa)) * lemma_scale(constants)),
    )


def second_moment_expansion(at: Point, constants: Constants, n_steps: int) -> Inequality:
    """eq_second_order_expand: E|omega|^2 <= 2 E|omega - omega*|^2 + 2 G^2 Lambda^2/(mu_F^2 (1-gamma)^4)."""
    _check_covered(at, constants)
    moments = inner_moments(at, constants.momentum, n_steps)
    exact_step = constants.G**2 * constants.Lambda**2 / (constants.mu_F**2 * (1.0 - constants.gamma) ** 4)
    return at_most(
        "second-order term",
        f"E|omega|^2 <= 2 E|omega - omega*|^2 + 2 G^2 Lambda^2/..., H = {n_steps}",
        moments.norm_second,
        2.0 * moments.error_second + 2.0 * exact_step,
    )


def _second_order(constants: Constants, n_steps: int, C: float) -> float:
    positive("C", C, SMALLEST)
    decay = math.exp(-n_steps / (20.0 * constants.kappa))
    return variance_bound(constants, n_steps) + C * decay * lemma_scale(constants)


def local_convergence_sampled(
    at: Point,
    constants: Constants,
    policy: Policy | None,
    n_steps: int,
    *,
    draws: int = 200,
    seed: int = 0,
    C: float = 1.0,
) -> Inequality:
    """Lemma 6's second-order bound with its left side from draws of the compiled inner loop.

    For models whose exact moments (`local_convergence`) take too long.

    Parameters
    ----------
    at, of, n_steps, C
        As in `local_convergence`.
    policy : TabularSoftmax or LogLinear
        The class that ``at`` belongs to.
    draws, seed : int
        Independent inner loops, and their seed.
    """
    _check_covered(at, constants)
    settings = PDANPG(outer=1, inner=n_steps, g_squared=constants.G**2, mu_f=constants.mu_F)
    errors = sampled_steps(at, policy, settings, draws, seed) - at.natural
    statement = f"E|omega - omega*|^2 <= 22 sigma^2 d/(mu_F H) + ..., H = {n_steps}"
    inequality = on_average(
        "Lemma 6, second order", statement, (errors**2).sum(axis=1), _second_order(constants, n_steps, C)
    )
    return replace(inequality, how=f"{draws} inner loops")


def lemma_scale(constants: Constants) -> float:
    """Lambda^2/(mu_F (1-gamma)^4)."""
    return constants.Lambda**2 / (constants.mu_F * (1.0 - constants.gamma) ** 4)


def variance_bound(constants: Constants, n_steps: int) -> float:
    """22 sigma^2 d/(mu_F H)."""
    return 22.0 * constants.sigma2 * constants.n_parameters / (constants.mu_F * n_steps)


def smallest_C(
    at: Point, constants: Constants, n_steps: int, sigma2: float | None = None
) -> tuple[float, float]:
    """Least C for which Lemma 6's second-order and first-order bounds hold at a point.

    The first-order one never exceeds sup over z in [mu_F, G^2] of p_H(z)^2 (mu_F/z) exp(H/(20 kappa)), which is
    below 1 for every kappa and H that were tried (derived here; see `universal_first_order_C`).

    Parameters
    ----------
    at, of, n_steps
        As in `local_convergence`.
    sigma2 : float
        None: Lemma 5's bound; ``of.sigma2_measured`` makes the second-order bound as tight as it gets.
    """
    _check_covered(at, constants)
    moments = inner_moments(at, constants.momentum, n_steps)
    growth = math.exp(n_steps / (20.0 * constants.kappa)) / lemma_scale(constants)
    variance = variance_bound(constants, n_steps) * (1.0 if sigma2 is None else sigma2 / constants.sigma2)
    return max(moments.error_second - variance, 0.0) * growth, moments.bias**2 * growth


@dataclass(frozen=True)
class Decay:
    """How fast the first-order error falls with H.

    Attributes
    ----------
    measured : float
        -d log|E[omega] - omega*| / dH between ``steps``.
    asymptotic : float
        Its limit: minus half the log of the largest spectral radius of the recursion (half, for the tail
        average starts at H/2).
    guaranteed : float
        mu_F/(40 G^2), Lemma 6.
    steps : (int, int)
        The two H.
    bias : (float, float)
        The first-order errors there.
    """

    measured: float
    asymptotic: float
    guaranteed: float
    steps: tuple[int, int]
    bias: tuple[float, float]


def first_order_decay(at: Point, constants: Constants, steps: tuple[int, int] | None = None) -> Decay:
    """Measured rate of the first-order term of Lemma 6 beside the guaranteed one.

    Parameters
    ----------
    at, of
        As in `local_convergence`.
    steps : (int, int)
        Two even H, rising; None: about 10 and 20 kappa.
    """
    _check_covered(at, constants)
    first = 2 * math.ceil(5.0 * constants.kappa)
    short, long = steps or (first, 2 * first)
    bias = [
        float(np.linalg.norm(conditional_mean(at, constants.momentum, h) - at.natural)) for h in (short, long)
    ]
    radius = float(np.abs(np.linalg.eigvals(error_matrices(at.eigenvalues, constants.momentum))).max())
    measured = (math.log(bias[0]) - math.log(bias[1])) / (long - short) if min(bias) > 0 else math.inf
    return Decay(
        measured=measured,
        asymptotic=-0.5 * math.log(radius),
        guaranteed=1.0 / (40.0 * constants.kappa),
        steps=(short, long),
        bias=(bias[0], bias[1]),
    )


def universal_first_order_C(kappa: float, n_steps: int, n_eigenvalues: int = 200) -> float:
    """sup over z in [mu_F, G^2] of p_H(z)^2 (mu_F/z) exp(H/(20 kappa)), on a grid: what Lemma 6's first-order
    bound needs of C for any problem with this kappa and H (derived here).

    Examples
    --------
    >>> universal_first_order_C(10.0, 7) < 1
    True
    """
    z = np.geomspace(1.0 / kappa, 1.0, n_eigenvalues)
    factors = error_factors(z, asgd_steps(1.0, 1.0 / kappa), n_steps)
    return float((factors**2 / (kappa * z)).max() * math.exp(n_steps / (20.0 * kappa)))
