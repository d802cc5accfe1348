"""PD-ANPG: primal-dual accelerated natural policy gradient (Algorithms 1 and 2 of the paper).

With lambda_0 = 0 and for k = 0..K-1, from fresh samples of pi_k = pi_theta_k,

    omega_k      = tail average of H steps of ASGD towards F(theta_k)^+ grad J_L(theta_k, lambda_k)
    theta_{k+1}  = theta_k + eta omega_k
    lambda_{k+1} = clip(lambda_k - zeta J_c estimate, 0, lambda_max)

The guarantee (Theorem 1) is about the mixture: draw k uniformly from 0..K-1 once, then follow pi_k.

Learning rates. Theorem 1's eta = (1-gamma)^2 / ((1+lambda_max) sqrt(K)) is safe for every problem and 30 to
1,000 times too small for most. The defaults keep its scaling in K and take the constants from measurements:

    eta_k  = c_eta sqrt(2 log A) / sqrt(K N_k),     zeta_ik = c_zeta sigma_r / (sigma_i^2 sqrt(K)),

N_k the level of omega.F omega, sigma_r and sigma_i the standard deviations of one estimate of J_r and J_ci,
A the largest number of choices in a state. The first minimises the mirror-descent bound KL(pi* || pi_0) /
(eta K) + eta N / 2 with KL <= log A; the second moves the multiplier by its natural scale sigma_r / sigma_i
under noise alone over the run. The level N_k is the larger of its average so far and of the last twenty outer
steps, this one included, and no step has a natural norm above three times its root: so a policy that has just found a
reward does not jump. This rule is the project's own, not the paper's, and Theorem 1 does not cover it: eta_k depends,
weakly, on omega_k itself. With ``eta=`` and ``zeta=`` given, the run is the paper's Algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from fastcmdp.algorithms.base import Algorithm, Run, dual_cap, is_finite, per_constraint, require
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels import asgd, pd_anpg
from fastcmdp.problem import Problem, streams

NOMINAL_KAPPA = 20.0  # G^2 / mu_F where mu_F is not given: F has no positive lower bound for tabular softmax


_WORDS = {"method": ("asgd", "sgd"), "average": ("tail", "uniform"), "dual_estimate": ("fresh", "inner")}


@dataclass(frozen=True)
class PDANPG(Algorithm):
    """Settings of PD-ANPG.

    Parameters
    ----------
    outer, inner : int
        K outer steps of H ASGD steps; both at least 1. One outer step draws 3 H + 1 rollouts of mean length
        gamma / (1 - gamma).
    eta, zeta : float or None
        Learning rates of theta and of the multipliers (zeta: one, or one a constraint), in kernel units and
        constant. None: measured along the run, see the module's text.
    c_eta, c_zeta : float
        Factors on the measured learning rates.
    lambda_max : float or None
        Cap of the multipliers, in the user's units. None: 2 / ((1-gamma) c_slater) as in Theorem 1 where the
        Slater value is known, else no cap.
    g_squared, mu_f : float or None
        G^2 and mu_F of the ASGD steps of Lemma 6. None: the policy's own bound, and G^2 / 20.
    alpha, beta, xi, delta : float or None
        ASGD step sizes. None: Lemma 6's, from G^2 and mu_F.
    dual_estimate : "fresh" or "inner"
        J_c for the dual step from a rollout of its own (the paper), or the mean over the H occupancy rollouts
        at hand: also unbiased, H times less variance, no sample more.
    margin : float or sequence
        Aim at the limits tightened by this much, in the user's units.
    pilot : int
        Outer steps that only measure, first; their samples are counted.
    method : "asgd" or "sgd"
        The inner loop: accelerated (the paper), or plain stochastic gradient descent with step ``delta``.
    average : "tail" or "uniform"
        omega is the mean over the last half of the inner steps (the paper), or over all.
    kappa_tilde : float or None
        Statistical condition number of ASGD. None: kappa = G^2 / mu_F, the paper's choice, with which nothing is
        accelerated (docs/algorithms.md); smaller values make long steps.

    Raises
    ------
    SettingError
        A value out of range.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> fc.PDANPG(outer=500, inner=50).outer
    500
    """

    outer: int = 2000
    inner: int = 100
    eta: float | None = None
    zeta: float | Sequence[float] | None = None
    c_eta: float = 1.0
    c_zeta: float = 1.0
    lambda_max: float | None = None
    g_squared: float | None = None
    mu_f: float | None = None
    alpha: float | None = None
    beta: float | None = None
    xi: float | None = None
    delta: float | None = None
    dual_estimate: Literal["fresh", "inner"] = "fresh"
    margin: float | Sequence[float] = 0.0
    pilot: int = 40
    method: Literal["asgd", "sgd"] = "asgd"
    average: Literal["tail", "uniform"] = "tail"
    kappa_tilde: float | None = None

    name: ClassVar[str] = "pd-anpg"
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_H": (0.2, 5.0),
        "c_eta": (0.1, 10.0),
        "c_zeta": (0.1, 10.0),
    }

    def __post_init__(self) -> None:
        self.check(
            {"outer": 1, "inner": 1, "pilot": 0},
            ("c_eta", "c_zeta"),
            ("eta", "lambda_max", "g_squared", "mu_f", "kappa_tilde", "xi", "delta"),
        )
        if self.zeta is not None:
            require(
                is_finite(self.zeta) and (np.asarray(self.zeta) > 0).all(),
                "zeta",
                self.zeta,
                "a positive number",
            )
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            inside = value is None or (is_finite(value) and np.ndim(value) == 0 and 0 < value < 1)
            require(inside, name, value, "a number between 0 and 1")
            if value is not None:
                object.__setattr__(self, name, float(value))
        require(is_finite(self.margin), "margin", self.margin, "one number, or one a constraint,")
        for name, words in _WORDS.items():
            value = getattr(self, name)
            require(value in words, name, value, " or ".join(map(repr, words)))

    def momentum(self, g_squared: float) -> asgd.Momentum:
        """Step sizes of ASGD for a policy class with this bound on its scores (Lemma 6)."""
        g2 = self.g_squared or g_squared
        mu = self.mu_f or g2 / NOMINAL_KAPPA
        require(mu <= g2, "mu_f", mu, f"at most G^2 = {g2:g}, the largest eigenvalue F can have,")
        kappa = g2 / mu
        require(
            self.kappa_tilde is None or self.kappa_tilde <= kappa, "kappa_tilde", self.kappa_tilde,
            f"at most kappa = G^2 / mu_F = {kappa:g}",
        )  # fmt: skip
        root = 3.0 * math.sqrt(5.0)
        q = math.sqrt(kappa * (self.kappa_tilde or kappa))
        delta = self.delta or 1.0 / (5.0 * g2)
        xi = self.xi or 1.0 / (root * mu * q)
        return asgd.Momentum(
            alpha=self.alpha or root * q / (1.0 + root * q),
            beta=self.beta or 1.0 / (9.0 * q),
            xi=delta if self.method == "sgd" else xi,  # then x = v, and both are plain SGD
            delta=delta,
        )

    def n_skipped(self) -> int:
        """Inner steps before the average begins."""
        return self.inner // 2 if self.average == "tail" else 0

    def outer_samples(self, cmdp: CMDP) -> float:
        """Expected transitions of one outer step: 3H + 1 rollouts of mean length gamma/(1-gamma), or 3H."""
        fresh = self.dual_estimate == "fresh"
        return (3.0 * self.inner + fresh) * cmdp.gamma / (1.0 - cmdp.gamma)

    def fixed_samples(self, cmdp: CMDP) -> float:
        """Expected transitions of the pilot."""
        return self.pilot * self.outer_samples(cmdp)

    @classmethod
    def for_epsilon(
        cls,
        cmdp: CMDP,
        epsilon: float,
        *,
        c_K: float | None = None,
        kappa: float | None = None,
        **settings: Any,
    ) -> Self:
        """Settings for a target gap and violation ``epsilon``, by ``fastcmdp.theory.practical_schedule``.

        Parameters
        ----------
        cmdp : CMDP
        epsilon : float
            In kernel units: rewards in [0, 1], constraints in [-1, 1].
        c_K, kappa : float, optional
            Of the schedule; default: its own.
        **settings
            ``c_H`` of the schedule, and settings of this class.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> fc.PDANPG.for_epsilon(fc.envs.garnet(), 0.5, c_K=10).outer
        4000
        """
        from fastcmdp.theory.schedules import practical_schedule  # here, since it imports this module

        settings |= {name: value for name, value in (("c_K", c_K), ("kappa", kappa)) if value is not None}
        return cast(Self, practical_schedule(cmdp, epsilon, **settings))

    @classmethod
    def shortest(cls) -> Self:
        """Settings of a run that is over at once."""
        return cls(outer=1, inner=2)

    def run(self, problem: Problem, seed: int, replicates: int) -> PDANPGRun:
        """Set up replicates that have not moved yet."""
        return PDANPGRun(self, problem, seed, replicates)


class PDANPGRun(Run):
    """Replicates of PD-ANPG under way."""

    def __init__(self, settings: PDANPG, problem: Problem, seed: int, replicates: int) -> None:
        super().__init__(settings, problem)
        cmdp, policy, m = problem.cmdp, problem.policy, problem.cmdp.n_constraints
        self.momentum = settings.momentum(policy.score_bound)
        widest = int(np.diff(cmdp.state_to_choice).max())
        eta = settings.c_eta * math.sqrt(2.0 * math.log(widest)) if settings.eta is None else settings.eta
        zeta = settings.c_zeta if settings.zeta is None else settings.zeta
        self.steps = pd_anpg.Steps(
            n_outer=settings.outer,
            n_inner=settings.inner,
            n_skipped=settings.n_skipped(),
            n_pilot=settings.pilot,
            eta_scale=float(eta),
            zeta_scale=per_constraint(zeta, m, "zeta"),
            adaptive_eta=settings.eta is None,
            adaptive_zeta=settings.zeta is None,
            fresh=settings.dual_estimate == "fresh",
            margin=per_constraint(settings.margin, m, "margin") / cmdp.constraint_scale,
            dual_max=dual_cap(problem, settings.lambda_max),
        )
        self.state = pd_anpg.RunState(
            theta=self.initial_theta(replicates),
            dual=np.zeros((replicates, m)),
            rng=streams(seed, replicates),
            outer=np.full(replicates, -settings.pilot, np.int64),
            samples=np.zeros(replicates, np.int64),
            failed=np.full(replicates, -1, np.int64),
            recent=np.zeros((replicates, 2 + m)),
            average=np.zeros((replicates, 2 + m)),
            sums=np.zeros((replicates, 1 + 2 * m)),
        )
        self.set_up_actions(problem.tables.horizon * (3 * settings.inner + 1))

    def work(self) -> pd_anpg.Work:
        """Work space for one thread."""
        h, n_signals = self.settings.inner, 1 + self.problem.cmdp.n_constraints
        scores = self.scores(h)
        slots = len(scores.coordinate)
        return pd_anpg.Work(
            job_choice=np.zeros(2 * h + 1, np.int64),
            job_row=np.zeros(2 * h + 1, np.uint32),
            pair=np.zeros(h + 1, np.int64),
            last_pair=np.zeros(2 * h, np.int64),
            occupancy_total=np.zeros((h + 1, n_signals)),
            value_total=np.zeros((2 * h, n_signals)),
            advantage=np.zeros((h, n_signals)),
            target=np.zeros(h),
            scores=scores,
            inner=asgd.InnerState(np.zeros(slots), np.zeros(slots), np.zeros(slots, np.int64)),
            weights=asgd.Weights(np.zeros(h + 1), np.zeros(h)),
            omega=np.zeros(slots),
            space=self.row_space(),
        )

    def advance(self, r: int, n_steps: int, work: pd_anpg.Work) -> None:
        """Make up to n_steps outer steps (pilot steps included) of replicate r."""
        pd_anpg.advance(
            self.problem.tables, self.problem.policy.data, self.momentum, self.steps, self.state,
            self.actions[r], work, r, n_steps,
        )  # fmt: skip
