"""A certificate: which assumptions of the paper hold on a problem, with which constants, and what its bounds say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastcmdp.algorithms.pd_anpg import PDANPG
from fastcmdp.assumptions.constants import SMALLEST, Constants, constants, slater_holds
from fastcmdp.assumptions.points import Parametrisation, Point, point
from fastcmdp.check import positive, seed_number, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.exact import Optimum
from fastcmdp.exact import optimum as exact_optimum
from fastcmdp.policies import Policy, TabularSoftmax
from fastcmdp.theory import bounds, global_bounds
from fastcmdp.theory.bounds import Decay
from fastcmdp.theory.inequality import Inequality
from fastcmdp.theory.paths import theorem_path
from fastcmdp.theory.schedules import (
    Schedule,
    expected_samples,
    practical_schedule,
    theorem_schedule,
)

MOST_WORK = 5e9  # H C r^2 of exact second moments; beyond, draws


@dataclass(frozen=True)
class Assumption:
    """An assumption of the paper on a given problem.

    Attributes
    ----------
    name : str
    holds : bool or None
        As the paper states it, for all theta; None: measured at some, and not known for all.
    detail : str
        The constants, and where it fails.
    """

    name: str
    holds: bool | None
    detail: str


@dataclass(frozen=True, eq=False)
class Certificate:
    """The theory of the paper on one problem and policy class; kernel units except where said.

    Attributes
    ----------
    model, policy : str
    epsilon : float
        Kernel units.
    user_epsilon : tuple of float
        The same in the units of the reward and of each constraint.
    assumptions : tuple of Assumption
    constants : Constants
    duals : tuple of float
        lambda*.
    theorem : Schedule or None
        None where Assumption 1 fails.
    practical : PDANPG
    practical_samples : float
        Expected transitions of ``practical``, its pilot included.
    bounds : tuple of Inequality
    decay : Decay
        Of the first-order error of the inner loop at the first theta.
    """

    model: str
    policy: str
    epsilon: float
    user_epsilon: tuple[float, ...]
    assumptions: tuple[Assumption, ...]
    constants: Constants
    duals: tuple[float, ...]
    theorem: Schedule | None
    practical: PDANPG
    practical_samples: float
    bounds: tuple[Inequality, ...]
    decay: Decay

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON; numbers that are not finite become None."""
        measured = self.constants
        contents: dict[str, Any] = {
            "model": self.model,
            "policy": self.policy,
            "epsilon": self.epsilon,
            "user_epsilon": list(self.user_epsilon),
            "units": "kernel: reward in [0, 1], constraints in [-1, 1], J not normalised by 1-gamma",
            "assumptions": [asdict(assumption) for assumption in self.assumptions],
            "constants": measured.to_dict(),
            "duals": list(self.duals),
            "schedules": {
                "theorem_1": None if self.theorem is None else self.theorem.to_dict(),
                "practical": {
                    "outer": self.practical.outer,
                    "inner": self.practical.inner,
                    "c_eta": self.practical.c_eta,
                    "c_zeta": self.practical.c_zeta,
                    "samples": self.practical_samples,
                },
            },
            "bounds": [bound.to_dict() for bound in self.bounds],
            "first_order_decay": asdict(self.decay),
        }
        plain: dict[str, Any] = _finite(contents)
        return plain

    def text(self) -> str:
        """The certificate to read."""
        return "\n".join(self._lines())

    __str__ = text

    def _lines(self) -> Iterator[str]:
        theory = self.constants
        yield f"PD-ANPG's theory on {self.model}, {self.policy}"
        units = ", ".join(f"{value:.6g}" for value in self.user_epsilon)
        yield f"epsilon = {self.epsilon:.6g} in kernel units; in the units of reward and constraints: {units}"
        yield ""
        yield "Assumptions (for all theta, as the paper states them)"
        for assumption in self.assumptions:
            verdict = {True: "holds", False: "FAILS", None: "open"}[assumption.holds]
            first, *rest = assumption.detail.split("\n")
            yield f"  {assumption.name:32}{verdict:7}{first}"
            yield from (f"  {'':39}{line}" for line in rest)
        yield ""
        yield f"Constants ({theory.n_thetas} theta)"
        for label, largest, measured in (
            ("G", theory.G, theory.G_measured),
            ("B", theory.B, theory.B_measured),
            ("|A_L|", theory.advantage_bound, theory.advantage_measured),
            ("sigma^2", theory.sigma2, theory.sigma2_measured),
            ("kappa = G^2/mu_F", theory.kappa, theory.R2_measured / theory.mu_F),
            ("kappa~", theory.kappa, theory.kappa_tilde_measured),
        ):
            yield f"  {label:20}bound {largest:<14.6g}measured {measured:.6g}"
        yield f"  {'f_0, f_1':20}{theory.f0():.6g}, {theory.f1():.6g} (C = 1)"
        yield f"  {'KL(pi* || pi_0)':20}{theory.kl:.6g}"
        yield ""
        yield from self._schedule_lines()
        yield ""
        yield "Bounds: both sides (kernel units)"
        for bound in self.bounds:
            verdict = {True: "holds", False: "FAILS", None: "open"}[bound.holds]
            sides = f"{bound.left:>12.5g} {bound.relation:2} {bound.right:<12.5g}"
            yield f"  {bound.name:24}{sides}{verdict:7}{bound.statement} [{bound.how}]"
        rates = [bound.right for bound in self.bounds if bound.name.startswith("Theorem 1")]
        if rates and min(rates) > 1.0 / (1.0 - theory.gamma):
            yield (
                f"  Theorem 1's rates lie above {1.0 / (1.0 - theory.gamma):.6g}, the range of J: at these K and H "
                "they hold and say nothing."
            )
        decay = self.decay
        yield ""
        yield (
            f"First-order error of the inner loop: {decay.bias[0]:.4g} at H = {decay.steps[0]}, {decay.bias[1]:.4g} at "
            f"H = {decay.steps[1]}:"
        )
        yield (
            f"  it falls as exp(-{decay.measured:.4g} H) there, as exp(-{decay.asymptotic:.4g} H) in the limit; "
            f"guaranteed mu_F/(40 G^2) = {decay.guaranteed:.4g}"
        )

    def _schedule_lines(self) -> Iterator[str]:
        theorem, practical = self.theorem, self.practical
        yield f"Schedules for epsilon   {'Theorem 1':<18}practical"

        def row(label: str, exact: str, scaled: str) -> str:
            return f"  {label:22}{exact:<18}{scaled}"

        momentum = practical.momentum(self.constants.G**2)

        def of_theorem(name: str) -> str:
            return "-" if theorem is None else f"{getattr(theorem, name):.6g}"

        yield row("K, outer steps", of_theorem("outer"), f"{practical.outer}")
        yield row("H, inner steps", of_theorem("inner"), f"{practical.inner}")
        yield row("samples", of_theorem("samples"), f"{self.practical_samples:.4g}")
        yield row("eta", of_theorem("eta"), f"{practical.c_eta:g} x measured")
        yield row("zeta", of_theorem("zeta"), f"{practical.c_zeta:g} x measured")
        yield row("lambda_max", of_theorem("lambda_max"), "the same")
        for name in ("alpha", "beta", "xi", "delta"):
            yield row(name, of_theorem(name), f"{getattr(momentum, name):.6g}")
        if theorem is not None:
            yield (
                f"  Theorem 1 with C = {theorem.C:g} and C_bar = {theorem.C_bar:g} (the paper does not give them) and "
                "mu_F as measured."
            )
            yield (
                "  The practical schedule keeps the exponents of epsilon, with constants from measurement: no theorem "
                "stands behind it."
            )


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def certificate(
    cmdp: CMDP,
    policy: Policy | None = None,
    *,
    epsilon: float,
    thetas: ArrayLike | None = None,
    optimum: Optimum | None = None,
    outer: int = 20,
    inner: int = 40,
    replicates: int = 8,
    seed: int = 0,
    C: float = 1.0,
    C_bar: float = 1.0,
) -> Certificate:
    """Check the paper's theory on a problem: assumptions, constants, schedules and both sides of each bound.

    Parameters
    ----------
    cmdp : CMDP
    policy : TabularSoftmax or LogLinear
        None: TabularSoftmax().
    epsilon : float
        Target, kernel units, in (0, 1/(1-gamma)).
    thetas : float64[n, d]
        Where constants without a formula are measured; None: zeros, where PD-ANPG starts. The bounds at a point are
        taken at the first of them, with lambda = lambda*.
    optimum : Optimum
        None: computed.
    outer, inner, replicates, seed : int
        The runs on which Lemma 3, Corollary 1 and Theorem 1 are measured.
    C, C_bar : float
        Universal constants of Lemma 6.

    Raises
    ------
    InfeasibleError
        No policy meets the constraints.
    ModelError, SettingError
        As `constants`; a setting out of range.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> found = certificate(fc.envs.garnet(n_states=4, seed=1), epsilon=0.1, outer=4, inner=6, replicates=8)
    >>> [assumption.holds for assumption in found.assumptions]
    [True, True, True, False]
    >>> all(bound.holds for bound in found.bounds)
    True
    """
    for name, value in (("epsilon", epsilon), ("C", C), ("C_bar", C_bar)):
        positive(name, value, SMALLEST)
    outer, inner, replicates = (
        whole(name, count, 1)
        for name, count in (("outer", outer), ("inner", inner), ("replicates", replicates))
    )
    seed = seed_number(seed)
    policy = policy or TabularSoftmax()
    parametrisation = Parametrisation(cmdp, policy)
    best = exact_optimum(cmdp) if optimum is None else optimum
    rows = None if thetas is None else np.atleast_2d(np.asarray(thetas, np.float64))
    measured = constants(cmdp, parametrisation, rows, optimum=best)
    slater = math.isfinite(measured.lambda_max)
    at = point(cmdp, parametrisation, None if rows is None else rows[0], best.raw_duals if slater else ())
    practical = practical_schedule(cmdp, epsilon)
    inequalities = [*_at_point(at, measured, policy, inner, C), *_about_problem(cmdp, at, best)]
    if slater:
        path, along = theorem_path(
            cmdp, policy, outer=outer, inner=inner, seed=seed, replicates=replicates, optimum=best
        )
        inequalities += [
            global_bounds.lagrange_descent(path),
            global_bounds.lagrange_convergence(path),
            global_bounds.lagrange_global_convergence(path, along, C),
            *(global_bounds.dual_drift(path, along) if cmdp.n_constraints else ()),
            *global_bounds.theorem_1(path, along, C),
        ]
    scales = (cmdp.reward_scale, *cmdp.constraint_scale.tolist())
    return Certificate(
        model=repr(cmdp),
        policy="tabular softmax"
        if parametrisation.is_tabular
        else f"softmax linear in {parametrisation.n_parameters} features",
        epsilon=float(epsilon),
        user_epsilon=tuple(float(epsilon * scale) for scale in scales),
        assumptions=_assumptions(measured, at, best),
        constants=measured,
        duals=tuple(best.raw_duals.tolist()),
        theorem=theorem_schedule(measured, epsilon, C=C, C_bar=C_bar) if slater else None,
        practical=practical,
        practical_samples=expected_samples(cmdp.gamma, practical.outer + practical.pilot, practical.inner),
        bounds=tuple(inequalities),
        decay=bounds.first_order_decay(at, measured),
    )


def _at_point(at: Point, measured: Constants, policy: Policy, inner: int, C: float) -> Iterator[Inequality]:
    *identities, gradient = bounds.unbiased_estimates(at)
    worst = [identity for identity in identities if not identity.holds]
    yield from worst
    yield gradient
    yield from bounds.estimator_moments(at)
    yield bounds.advantage_bound(at, measured)
    yield bounds.gradient_bound(at, measured)
    yield bounds.initial_loss_bound(at, measured)
    yield bounds.gradient_noise(at, measured)
    yield from bounds.moment_conditions(at, measured)
    if inner * len(at.nu) * at.rank**2 <= MOST_WORK:
        yield from bounds.local_convergence(at, measured, inner, C)
        yield bounds.second_moment_expansion(at, measured, inner)
    else:
        yield bounds.local_convergence_sampled(at, measured, policy, inner, C=C)
        yield bounds.first_order_bound(at, measured, inner, C)


def _about_problem(cmdp: CMDP, at: Point, best: Optimum) -> Iterator[Inequality]:
    yield bounds.performance_difference(at, best.policy)
    if cmdp.n_constraints == 0 or not slater_holds(cmdp, best):
        return
    yield global_bounds.strong_duality(cmdp, best)
    yield global_bounds.dual_bound(cmdp, best)
    yield global_bounds.constraint_extraction(cmdp, at.pi, best)


def _assumptions(measured: Constants, at: Point, best: Optimum) -> tuple[Assumption, ...]:
    m = measured.n_constraints
    if m == 0:
        slater = Assumption("1 Slater", True, "there is no constraint")
    elif slater_holds(at.cmdp, best):
        detail = (
            f"c_slater = {measured.c_slater:.6g}, lambda_max = {measured.lambda_max:.6g}, lambda* = "
            + ", ".join(f"{dual:.6g}" for dual in best.raw_duals)
        )
        slater = Assumption("1 Slater", True, detail)
    else:
        detail = (
            f"c_slater = {measured.c_slater:.3g}: no policy meets the constraints strictly; loosen a limit"
        )
        slater = Assumption("1 Slater", False, detail)
    score = f"G = {measured.G:.6g}, B = {measured.B:.6g}, for all theta"
    where = "theta_0" if measured.n_thetas == 1 else f"the {measured.n_thetas} thetas"
    bias = f"epsilon_bias = {measured.epsilon_bias:.4g} at {where}, all multipliers"
    complete = at.parametrisation.is_tabular
    bias += "; a complete class: 0 but for rounding, for all theta" if complete else "; elsewhere not known"
    fisher = f"F -> 0 along thetas that make the policy deterministic; at {where}:\n"
    if measured.mu_full > 0:
        fisher += f"F >= {measured.mu_F:.6g} I"
    else:
        reason = "the scores of a state sum to zero" if at.parametrisation.is_tabular else "F is singular"
        fisher += (
            f"its smallest eigenvalue is 0 ({reason}; rank {measured.rank} of {measured.n_parameters});\n"
        )
        fisher += f"on the span of the visited scores, which ASGD never leaves, mu_F = {measured.mu_F:.6g}"
    return (
        slater,
        Assumption("2 bounded, smooth score", True, score),
        Assumption("3 transfer error", True if complete else None, bias),
        Assumption("4 Fisher non-degeneracy", False, fisher),
    )
