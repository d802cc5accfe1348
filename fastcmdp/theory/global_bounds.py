"""The inequalities about whole runs and about the problem itself: Lemma 3, Corollary 1, Theorem 1, duality.

What `bounds` says of units, numbers of lemmas and exactness holds here too. The path of the outer loop is random, so
inequalities about it compare means over runs, with an interval; all that is averaged is exact at each step.

Lemma 3 is about any multipliers and any inner loop. What speaks of constants asks more of a path, and a path that a
statement is not about is refused:

    constants of its model and policy class, and no cap above lambda_max           Corollary 1, eq. 64 and 71, Theorem 1
    tail averages of Lemma 6's ASGD steps; mu_F, epsilon_bias, KL that hold on it  Corollary 1, Theorem 1
    the plain multiplier, no margin, the cap lambda_max                            eq. 64 and 71, Theorem 1
    eta and zeta of Theorem 1, lambda_max >= 2/((1-gamma) c_slater)                Theorem 1
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.assumptions.constants import (
    Constants,
    asgd_steps,
    cap_ratio,
    check_slater,
    slater_holds,
    theorem_rates,
)
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.exact import Optimum, evaluate
from fastcmdp.exact import optimum as exact_optimum
from fastcmdp.theory.bounds import lemma_scale, variance_bound
from fastcmdp.theory.duality import dual_minimum
from fastcmdp.theory.inequality import (
    FALSE_ALARM,
    ROUNDING,
    Inequality,
    at_most,
    equal,
    half_width,
    on_average,
    verdict,
)
from fastcmdp.theory.paths import Path

Floats = NDArray[np.float64]


def _rates(path: Path) -> tuple[float, int, int]:
    assert path.settings.eta is not None
    return path.settings.eta, path.settings.outer, path.settings.inner


def lagrange_descent(path: Path) -> Inequality:
    """The proof of Lemma 3 along every single path, before any expectation is taken; exact.

    mean_k gap_k <= mean_k sqrt(2 L_{nu*}(omega*_k)) + mean_k E_{nu*}[g . (omega*_k - omega_k)]
    + B eta/2 mean_k |omega_k|^2 + (KL_0 - KL_K)/(eta K); the path with the least room is returned.
    """
    eta, outer, _ = _rates(path)
    left = path.lagrange_gap.mean(axis=1)
    smooth = path.parametrisation.smoothness * eta / 2.0 * path.step
    right = (np.sqrt(path.transfer) + path.aim - path.pull + smooth).mean(axis=1)
    right = right + (path.kl[:, 0] - path.kl[:, -1]) / (eta * outer)
    r = int(np.argmin(right - left))
    how = f"exact, on each of {len(left)} paths; the tightest"
    return at_most("Lemma 3, pathwise", "mean Lagrange gap <= its decomposition", left[r], right[r], how)


def lagrange_convergence(path: Path) -> Inequality:
    """Lemma 3 (lemma_lagrange_convergence), eq:general_bound.

    mean_k E[J_L(pi*, lambda_k) - J_L(theta_k, lambda_k)] <= sqrt(epsilon_bias) + G mean_k E|E[omega_k] - omega*_k|
    + B eta/2 mean_k E|omega_k|^2 + KL_0/(eta K), with epsilon_bias the largest transfer error on the path.
    """
    eta, outer, _ = _rates(path)
    parametrisation = path.parametrisation
    right = (
        math.sqrt(float(path.transfer.max()))
        + math.sqrt(parametrisation.score_bound) * path.bias.mean(axis=1)
        + parametrisation.smoothness * eta / 2.0 * path.step.mean(axis=1)
        + path.kl[:, 0] / (eta * outer)
    )
    return on_average(
        "Lemma 3",
        "E mean Lagrange gap <= sqrt(eps_bias) + G bias + B eta/2 |omega|^2 + KL/(eta K)",
        path.lagrange_gap.mean(axis=1),
        right,
    )


def _expect(holds: bool, setting: str, expected: str) -> None:
    if not holds:
        raise SettingError(f"{setting} on the path; {expected} is expected (theorem_settings, theorem_path)")


def _near(a: ArrayLike, b: ArrayLike) -> bool:
    return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=ROUNDING, atol=0.0)


def _check_model(path: Path, constants: Constants) -> None:
    """The constants are of the path's model and policy class, and its multipliers stay in their box."""
    check_slater(constants)
    parametrisation = path.parametrisation
    own = {
        "gamma": path.cmdp.gamma,
        "n_parameters": path.theta.shape[2],
        "n_constraints": path.dual.shape[2],
        "G": math.sqrt(parametrisation.score_bound),
        "B": parametrisation.smoothness,
    }
    for name, value in own.items():
        constant = getattr(constants, name)
        if not _near(constant, value):
            raise SettingError(
                f"constants.{name} = {constant:.6g}, but {value:.6g} on the path: constants of its model and policy "
                "class are expected, constants(path.cmdp, path.parametrisation, path.thetas)"
            )
    cap, most = float(path.cap.max(initial=0.0)), constants.lambda_max
    _expect(cap <= most * (1.0 + ROUNDING), f"lambda_max = {cap:.6g}", f"at most the constants' {most:.6g}")


def _check_dual(path: Path, constants: Constants) -> None:
    """The multipliers are those of the paper: projected steps along J_c itself, in the box of the constants."""
    settings, m, cap = path.settings, constants.n_constraints, constants.lambda_max
    if m == 0:
        return
    _expect(settings.dual == "plain", f"dual = {settings.dual!r}", "'plain', the paper's multiplier,")
    _expect(not np.any(settings.margin), f"margin = {settings.margin!r}", "0")
    _expect(
        _near(path.cap, np.full(m, cap)), f"lambda_max = {path.cap.tolist()}", f"the constants' {cap:.6g}"
    )


def _check_path(path: Path, constants: Constants) -> None:
    """The inner loop is the paper's, and the measured constants hold on the path."""
    _check_model(path, constants)
    settings = path.settings
    _expect(settings.average == "tail", f"average = {settings.average!r}", "'tail', the paper's,")
    _expect(
        settings.critic == "none", f"critic = {settings.critic!r}", "'none': targets are then the paper's,"
    )
    least, used = float(path.mu.min()), path.mu_used
    if min(least, used) < constants.mu_F * (1.0 - 1e-6) or used > least * (1.0 + 1e-6):
        raise SettingError(
            f"the smallest eigenvalue of F on the path is {least:.3g}, the ASGD steps assume {used:.3g} and the "
            f"constants {constants.mu_F:.3g}: the bounds ask for constants <= steps <= path; see theorem_path"
        )
    steps, own = settings.momentum(path.parametrisation.score_bound), asgd_steps(constants.G**2, used)
    _expect(_near(steps, own), f"ASGD steps {tuple(steps)}", f"Lemma 6's {tuple(own)}")
    # Where the class has no transfer error, both sides are rounding: of squares of advantages over 1-gamma.
    rounding = (ROUNDING * constants.advantage_bound / (1.0 - constants.gamma)) ** 2
    largest = {
        "epsilon_bias": (float(path.transfer.max()), rounding),
        "kl": (float(path.kl[:, 0].max()), ROUNDING),
    }
    for name, (value, slack) in largest.items():
        constant = getattr(constants, name)
        if value > constant * (1.0 + ROUNDING) + slack:
            raise SettingError(
                f"constants.{name} = {constant:.6g}, but {value:.6g} on the path: at least that is expected; "
                "constants(path.cmdp, path.parametrisation, path.thetas) and theorem_path have it"
            )


def lagrange_global_convergence(path: Path, constants: Constants, C: float = 1.0) -> Inequality:
    """Corollary 1 (corr_lagrange_global_convergence), eq:general_bound_corr.

    Raises
    ------
    SettingError
        The path is not one that it is about, with these constants.
    """
    _check_path(path, constants)
    eta, outer, inner = _rates(path)
    decay = math.exp(-inner / (40.0 * constants.kappa))
    scale = lemma_scale(constants)
    exact_step = constants.G**2 * constants.Lambda**2 / (constants.mu_F**2 * (1.0 - constants.gamma) ** 4)
    right = (
        math.sqrt(constants.epsilon_bias)
        + constants.G * math.sqrt(C * scale) * decay
        + constants.B * eta * (variance_bound(constants, inner) + C * decay**2 * scale + exact_step)
        + constants.kl / (eta * outer)
    )
    return on_average(
        "Corollary 1",
        "E mean Lagrange gap <= bound in H, K, eta",
        path.lagrange_gap.mean(axis=1),
        right,
    )


def dual_drift(path: Path, constants: Constants) -> tuple[Inequality, Inequality]:
    """What the dual step alone guarantees (eq_appndx_64 to eq_appndx_71), summed over the constraints.

    mean_k E[lambda_k . J_c(theta_k)] <= m zeta/(1-gamma)^2 and
    mean_k E[(lambda_k - lambda_max) . J_c(theta_k)] <= m (lambda_max^2/(2 zeta K) + zeta/(1-gamma)^2),
    for any zeta, from lambda_0 = 0. It does not matter how theta_k is chosen.

    Raises
    ------
    SettingError
        There is no constraint, or zeta differs between constraints; the path is not one that this is about.
    """
    zeta, m, outer = path.settings.zeta, constants.n_constraints, path.settings.outer
    if m == 0 or not isinstance(zeta, int | float):
        raise SettingError(f"zeta = {zeta!r} for {m} constraints: one number, and a constraint, are expected")
    _check_model(path, constants)
    _check_dual(path, constants)
    slack, dual = path.raw[..., 1:], path.dual[:, :-1]
    noise = zeta / (1.0 - constants.gamma) ** 2
    return (
        on_average(
            "eq. 64",
            "E mean lambda . J_c <= m zeta/(1-gamma)^2",
            (dual * slack).sum(axis=-1).mean(axis=1),
            m * noise,
        ),
        on_average(
            "eq. 71",
            "E mean (lambda - lambda_max) . J_c <= m (lambda_max^2/(2 zeta K) + zeta/(1-gamma)^2)",
            ((dual - constants.lambda_max) * slack).sum(axis=-1).mean(axis=1),
            m * (constants.lambda_max**2 / (2.0 * zeta * outer) + noise),
        ),
    )


def theorem_1(path: Path, constants: Constants, C: float = 1.0) -> tuple[Inequality, ...]:
    """Theorem 1's two rates (eq_appndx_67, eq_appndx_74_new) on a path with its step sizes, any K and H.

    E mean gap <= sqrt(eps_bias) + f0 Lambda/(1-gamma)^2 exp(-mu_F H/(40 G^2)) + (f1+1) Lambda/((1-gamma)^2 sqrt(K)) and
    sum_i [-E mean J_ci]_+ <= 2/lambda_max (the same with f1+2). For m = 1 the left side is -E mean J_c, as in the
    paper; the sum over constraints is derived here. m = 0: the first alone, with f1 for f1+1.

    Raises
    ------
    SettingError
        The path is not one that it is about, with these constants.
    """
    _check_path(path, constants)
    _check_dual(path, constants)
    cap_ratio(constants)
    eta, outer, inner = _rates(path)
    unit, m = 1.0 - constants.gamma, constants.n_constraints
    rates = theorem_rates(constants, outer)
    _expect(_near(eta, rates[0]), f"eta = {eta:.6g}", f"Theorem 1's {rates[0]:.6g}")
    zeta = np.broadcast_to(np.asarray(path.settings.zeta, np.float64), m)
    _expect(
        _near(zeta, np.full(m, rates[1])), f"zeta = {path.settings.zeta!r}", f"Theorem 1's {rates[1]:.6g}"
    )
    decay, scale = math.exp(-inner / (40.0 * constants.kappa)), constants.Lambda / unit**2

    def rate(extra: float) -> float:
        stochastic = (constants.f1(C) + extra) * scale / math.sqrt(outer)
        return math.sqrt(constants.epsilon_bias) + constants.f0(C) * scale * decay + stochastic

    means = path.raw.mean(axis=1)
    gap = on_average(
        "Theorem 1, objective",
        "E mean [J_r* - J_r] <= rate in H, K",
        path.optimum.raw[0] - means[:, 0],
        rate(1.0 if m else 0.0),
    )
    if m == 0:
        return (gap,)
    right = 2.0 / constants.lambda_max * rate(2.0)
    name, statement = "Theorem 1, violation", "-E mean J_c <= rate in H, K"
    if m == 1:
        return gap, on_average(name, statement, -means[:, 1], right)
    short = -means[:, 1:].mean(axis=0)
    half = half_width(means[:, 1:], FALSE_ALARM / m)
    left, low, high = (float(np.maximum(x, 0.0).sum()) for x in (short, short - half, short + half))
    statement = "sum_i [-E mean J_ci]_+ <= rate in H, K"
    how = f"{len(means)} runs"
    return gap, Inequality(name, statement, "<=", left, right, verdict(low, high, right), how, (low, high))


def dual_bound(cmdp: CMDP, optimum: Optimum | None = None) -> Inequality:
    """Dual bound (lemma_appndx_bound_lambda): 0 <= sum_i lambda*_i <= 1/((1-gamma) c_slater).

    Raises
    ------
    SettingError
        Assumption 1 fails, or there is no constraint.
    """
    best = exact_optimum(cmdp) if optimum is None else optimum
    if cmdp.n_constraints == 0 or not slater_holds(cmdp, best):
        raise SettingError("the bound on lambda* needs a constraint and a positive Slater value")
    total, right = float(best.raw_duals.sum()), 1.0 / ((1.0 - cmdp.gamma) * best.slater)
    inequality = at_most("dual bound", "0 <= sum_i lambda*_i <= 1/((1-gamma) c_slater)", total, right)
    return inequality if total >= 0 else replace(inequality, holds=False)


def strong_duality(cmdp: CMDP, optimum: Optimum | None = None, tolerance: float = 1e-8) -> Inequality:
    """Strong duality (lemma_appndx_strong_duality): J_r* of the linear programme is the least dual value.

    The dual function is minimised by value iteration (`duality.dual_minimum`).
    """
    best = exact_optimum(cmdp) if optimum is None else optimum
    least = dual_minimum(cmdp)
    how = f"linear programme against {least.cuts} policies of value iteration"
    return equal(
        "strong duality", "J_r* = min over lambda >= 0 of the dual", best.raw[0], least.value, how, tolerance
    )


def constraint_extraction(
    cmdp: CMDP, action_probabilities: ArrayLike, optimum: Optimum | None = None, C: float | None = None
) -> Inequality:
    """Constraint extraction (lemma_appndx_constraint_extraction) for a policy: violation <= 2x/C.

    x = J_r* - J_r + C sum_i [-J_ci]_+ with C >= 2 max_i lambda*_i; the left side is sum_i [-J_ci]_+ (derived
    here for m > 1).

    Parameters
    ----------
    C : float
        None: 2 max lambda*, the least that is allowed (1 where lambda* = 0).

    Raises
    ------
    SettingError
        C is too small.
    """
    best = exact_optimum(cmdp) if optimum is None else optimum
    least = 2.0 * float(best.raw_duals.max(initial=0.0))
    factor = (least or 1.0) if C is None else float(C)
    if factor < least * (1.0 - ROUNDING) or factor <= 0:
        raise SettingError(f"C = {C!r}: at least 2 max lambda* = {least:.6g} is expected, and above 0")
    raw = evaluate(cmdp, action_probabilities).raw
    short = float(np.maximum(-raw[1:], 0.0).sum())
    x = float(best.raw[0] - raw[0]) + factor * short
    statement = f"violation <= 2 x/C, C = {factor:.6g}"
    # x >= 0 by duality; at the optimum itself both sides are 0 and the solver's accuracy counts.
    slack = 1e-8 / (1.0 - cmdp.gamma)
    inequality = at_most("constraint extraction", statement, short, 2.0 * x / factor)
    holds = bool(short <= 2.0 * x / factor + slack)
    return replace(inequality, holds=holds)
