"""Runs of PD-ANPG, followed step by step and measured exactly at every step.

A path is what `fastcmdp.solve` would do with the same settings and seed: the same kernels, one outer step at a
time. eta is constant, so omega_k = (theta_{k+1} - theta_k)/eta is known, and at every (theta_k, lambda_k) all that
Lemma 3 and Theorem 1 speak of is computed exactly: nothing is random but the path itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.pd_anpg import PDANPG, theorem_settings
from fastcmdp.algorithms.primal_dual import PrimalDualRun
from fastcmdp.assumptions.constants import Constants, constants, default_cap, kl_divergence
from fastcmdp.assumptions.points import Parametrisation, Point, point
from fastcmdp.check import seed_number, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.exact import Optimum
from fastcmdp.exact import optimum as exact_optimum
from fastcmdp.policies import Policy, TabularSoftmax
from fastcmdp.runs.loop import Crew, advance_all
from fastcmdp.theory.inner import conditional_mean
from fastcmdp.worlds import TableWorld

Floats = NDArray[np.float64]

MOST_RETRIES = 8


@dataclass(frozen=True, eq=False)
class Path:
    """R runs of K outer steps and what is exact at each of them; kernel units, expectations given (theta_k, lambda_k).

    Attributes
    ----------
    cmdp : CMDP
    parametrisation : Parametrisation
    settings : PDANPG
    optimum : Optimum
    cap : float64[m]
        Caps of the multipliers.
    theta, dual : float64[R, K+1, d], float64[R, K+1, m]
    raw : float64[R, K, 1+m]
        J(theta_k).
    kl : float64[R, K+1]
        E_{d*} KL(pi* || pi_k).
    pull : float64[R, K]
        E_{nu*}[g . omega_k] at theta_k.
    aim : float64[R, K]
        E_{nu*}[g . omega*_k] at theta_k.
    step : float64[R, K]
        |omega_k|^2.
    bias : float64[R, K]
        |E[omega_k | theta_k, lambda_k] - omega*_k|.
    natural : float64[R, K]
        |omega*_k|^2.
    transfer : float64[R, K]
        2 L_{nu*}(omega*_k, theta_k, lambda_k): Assumption 3's quantity.
    mu : float64[R, K]
        Smallest eigenvalue of F(theta_k) on the span of the visited scores.
    """

    cmdp: CMDP
    parametrisation: Parametrisation
    settings: PDANPG
    optimum: Optimum
    cap: Floats
    theta: Floats
    dual: Floats
    raw: Floats
    kl: Floats
    pull: Floats
    aim: Floats
    step: Floats
    bias: Floats
    natural: Floats
    transfer: Floats
    mu: Floats

    @property
    def thetas(self) -> Floats:
        """All theta_k, k < K, of all runs: float64[R K, d]."""
        return self.theta[:, :-1].reshape(-1, self.theta.shape[2])

    @property
    def lagrange_gap(self) -> Floats:
        """J_L(pi*, lambda_k) - J_L(theta_k, lambda_k), float64[R, K]."""
        lost = self.optimum.raw - self.raw
        return cast(Floats, lost[..., 0] + (self.dual[:, :-1] * lost[..., 1:]).sum(axis=-1))

    @property
    def mu_used(self) -> float:
        """mu_F that the ASGD steps assume."""
        bound_given, bound = self.settings.g_squared, self.parametrisation.score_bound
        momentum = self.settings.momentum(bound)
        return 9.0 * momentum.beta * (bound_given or bound)

    def point(self, replicate: int, k: int) -> Point:
        """The exact quantities at (theta_k, lambda_k) of a run."""
        return point(self.cmdp, self.parametrisation, self.theta[replicate, k], self.dual[replicate, k])


def follow(
    cmdp: CMDP,
    settings: PDANPG,
    policy: Policy | None = None,
    *,
    seed: int = 0,
    replicates: int = 1,
    optimum: Optimum | None = None,
) -> Path:
    """Run PD-ANPG and measure every outer step exactly. Meant for small models and some hundreds of steps in all.

    Parameters
    ----------
    cmdp : CMDP
    settings : PDANPG
        With ``eta`` and ``zeta`` given (no ``zeta`` where m = 0) and ``pilot`` 0, as the theory has it. What else a
        theorem asks of them it checks itself: see `fastcmdp.theory.global_bounds`.
    policy : TabularSoftmax or LogLinear
        None: TabularSoftmax().
    seed, replicates : int
        As in `fastcmdp.solve`; run r is the same whatever their number.
    optimum : Optimum
        None: computed.

    Raises
    ------
    SettingError
        Measured learning rates are asked for, or a pilot, or a start; numbers ceased to be finite.
    InfeasibleError
        No policy meets the constraints.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> path = follow(fc.envs.garnet(n_states=3, seed=1), fc.PDANPG(outer=5, inner=4, eta=0.1, zeta=0.1, pilot=0))
    >>> path.theta.shape, path.bias.shape
    ((1, 6, 12), (1, 5))
    """
    measured = settings.eta is None or (settings.zeta is None and cmdp.n_constraints > 0)
    if measured or settings.pilot:
        raise SettingError(
            "the theory is about constant learning rates: give eta and zeta, and pilot=0 "
            f"(eta = {settings.eta!r}, zeta = {settings.zeta!r}, pilot = {settings.pilot!r})"
        )
    if settings.critic == "control+start":
        raise SettingError(
            f"critic = {settings.critic!r}: the bias that is measured here is that of ASGD from zero; give 'none', or "
            "'control'"
        )
    replicates, seed = whole("replicates", replicates, 1), seed_number(seed)
    policy = policy or TabularSoftmax()
    best = exact_optimum(cmdp) if optimum is None else optimum
    run = settings.run(TableWorld.of(cmdp, policy, best), seed, replicates)
    theta, dual = _advance(run, settings.outer)
    return _measure(Parametrisation(cmdp, policy), settings, best, run.steps.dual_max, theta, dual)


def _advance(run: PrimalDualRun, n_outer: int) -> tuple[Floats, Floats]:
    state = run.state
    thetas, duals = [state.theta.copy()], [state.dual.copy()]
    with Crew(run, 1) as crew:
        for k in range(n_outer):
            advance_all(crew, k + 1)
            thetas.append(state.theta.copy())
            duals.append(state.dual.copy())
    if (state.failed >= 0).any():
        raise SettingError("numbers ceased to be finite on the path; a smaller eta or zeta is expected")
    return np.stack(thetas, axis=1), np.stack(duals, axis=1)


def _measure(
    parametrisation: Parametrisation,
    settings: PDANPG,
    best: Optimum,
    cap: Floats,
    theta: Floats,
    dual: Floats,
) -> Path:
    cmdp, n_skipped = parametrisation.cmdp, settings.n_skipped()
    replicates, n_outer = theta.shape[0], theta.shape[1] - 1
    eta, momentum = settings.eta, settings.momentum(parametrisation.score_bound)
    assert eta is not None
    names = ("pull", "aim", "step", "bias", "natural", "transfer", "mu")
    series = {name: np.empty((replicates, n_outer)) for name in names}
    raw = np.empty((replicates, n_outer, 1 + cmdp.n_constraints))
    kl = np.empty((replicates, n_outer + 1))
    for r in range(replicates):
        for k in range(n_outer):
            at = point(cmdp, parametrisation, theta[r, k], dual[r, k])
            omega = (theta[r, k + 1] - theta[r, k]) / eta
            natural = at.natural
            raw[r, k] = at.raw
            kl[r, k] = kl_divergence(best, at.log_pi)
            series["pull"][r, k] = best.occupancy @ (at.scores @ omega)
            series["aim"][r, k] = best.occupancy @ (at.scores @ natural)
            series["step"][r, k] = omega @ omega
            mean = conditional_mean(at, momentum, settings.inner, n_skipped)
            series["bias"][r, k] = np.linalg.norm(mean - natural)
            series["natural"][r, k] = natural @ natural
            series["transfer"][r, k] = at.transfer_error(best.occupancy)
            series["mu"][r, k] = at.mu
        kl[r, n_outer] = kl_divergence(best, parametrisation.log_policy(theta[r, n_outer]))
    return Path(
        cmdp=cmdp,
        parametrisation=parametrisation,
        settings=settings,
        optimum=best,
        cap=cap,
        theta=theta,
        dual=dual,
        raw=raw,
        kl=kl,
        **series,
    )


def theorem_path(
    cmdp: CMDP,
    policy: Policy | None = None,
    *,
    outer: int = 40,
    inner: int = 40,
    seed: int = 0,
    replicates: int = 8,
    optimum: Optimum | None = None,
) -> tuple[Path, Constants]:
    """Run PD-ANPG with Theorem 1's step sizes such that its assumptions hold along the run.

    mu_F is not known before the run. It is taken at theta_0 and, where some F(theta_k) has a smaller eigenvalue,
    lowered to that and the run repeated. The constants that come back are valid for this path: mu_F as it was
    used, epsilon_bias the largest of the path.

    Raises
    ------
    SettingError
        As `follow` and `constants`; Assumption 1 fails; mu_F does not settle in 8 runs.
    """
    parametrisation = Parametrisation(cmdp, policy)
    best = exact_optimum(cmdp) if optimum is None else optimum
    if not np.isfinite(default_cap(cmdp, best)):
        raise SettingError(f"Assumption 1 fails: the Slater value is {best.slater:.3g}")
    measured = constants(cmdp, parametrisation, optimum=best)
    for _ in range(MOST_RETRIES):
        path = follow(
            cmdp,
            theorem_settings(measured, outer, inner),
            policy,
            seed=seed,
            replicates=replicates,
            optimum=best,
        )
        least = float(path.mu.min())
        if least >= measured.mu_F:
            return path, replace(measured, epsilon_bias=float(path.transfer.max()))
        measured = replace(measured, mu_F=0.99 * least)
    raise SettingError(
        f"the smallest eigenvalue of F still falls along the path ({least:.3g} in the end); fewer outer steps "
        "are expected"
    )


def sampled_steps(at: Point, policy: Policy | None, settings: PDANPG, n: int, seed: int = 0) -> Floats:
    """n independent draws of omega at a fixed (theta, lambda) from the compiled sampler and ASGD, float64[n, d].

    Parameters
    ----------
    at : Point
    policy : TabularSoftmax or LogLinear
        The class that ``at`` belongs to.
    settings : PDANPG
        Its H and ASGD steps are used.
    """
    n, seed = whole("n", n, 1), seed_number(seed)
    policy = policy or TabularSoftmax()
    unit = replace(settings, outer=1, eta=1.0, zeta=1.0, pilot=0)
    run = unit.run(TableWorld.of(at.cmdp, policy), seed, 1)
    out = np.empty((n, len(at.theta)))
    with Crew(run, 1, piece=1) as crew:
        for k, row in enumerate(out):
            run.state.theta[0], run.state.dual[0] = at.theta, at.dual
            run.refresh()
            advance_all(crew, k + 1)
            row[:] = run.state.theta[0] - at.theta
    return out


__all__ = ["Path", "follow", "sampled_steps", "theorem_path"]
