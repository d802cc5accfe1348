"""PD-ANPG: primal-dual accelerated natural policy gradient (Algorithms 1 and 2 of the paper).

With lambda_0 = 0 and for k = 0..K-1, from fresh samples of pi_k = pi_theta_k,

    omega_k      = tail average of H steps of ASGD towards F(theta_k)^+ grad J_L(theta_k, lambda_k)
    theta_{k+1}  = theta_k + eta omega_k
    lambda_{k+1} = clip(lambda_k - zeta J_c estimate, 0, lambda_max)

The guarantee (Theorem 1) is about the mixture: draw k uniformly from 0..K-1 once, then follow pi_k.

Source: Mondal and Aggarwal, Sample-Efficient Constrained Reinforcement Learning with General Parameterization
(NeurIPS 2024), "the paper" throughout; its recursion was read there, so all of the above is certain. Theorem 1's
eta = (1-gamma)^2 / ((1+lambda_max) sqrt(K)) is safe for every problem and 30 to 1,000 times too small for most; the
defaults measure learning rates along the run instead (`fastcmdp.algorithms.primal_dual`), which Theorem 1 does not
cover. `PDANPG.paper` has the paper's own rates; with any ``eta=`` and ``zeta=`` given and ``pilot=0``, the run is
the paper's Algorithm 2. ``critic=`` and ``dual=`` other than the defaults are the project's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.base import (
    check_constants,
    check_words,
    per_constraint,
    relative_target,
    whole,
)
from fastcmdp.algorithms.primal_dual import NOMINAL_KAPPA, PrimalDual
from fastcmdp.assumptions.constants import Constants, check_slater, constants, theorem_rates
from fastcmdp.check import is_finite, require
from fastcmdp.cmdp import CMDP
from fastcmdp.exact import Optimum
from fastcmdp.kernels.learning import asgd
from fastcmdp.policies import Policy
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

TABULAR_G_SQUARED = 2.0  # of the tabular softmax policy
C_K, C_H = (
    100.0,
    4.0,
)  # docs/algorithms.md: few steps of little bias rather than many of much, for as many samples


@dataclass(frozen=True)
class PDANPG(PrimalDual):
    """Settings of PD-ANPG.

    Parameters
    ----------
    outer, inner : int
        K outer steps of H ASGD steps; both at least 1. One outer step draws 3 H + 1 rollouts of mean length
        gamma / (1 - gamma), or with a critic 2 H + 1 of mean length 1 / (1 - gamma).
    eta, zeta : float or None
        Learning rates of theta and of the multipliers (zeta: one, or one a constraint), in kernel units and
        constant. None: measured along the run, see `fastcmdp.algorithms.primal_dual`.
    c_eta, c_zeta : float
        Factors on the measured learning rates.
    lambda_max : float, sequence or None
        Cap of the multipliers, one or one a constraint, in the user's units. None: 2 / ((1-gamma) c_slater) as in
        Theorem 1 where the Slater value is known, else no cap.
    dual : "plain", "pi" or "optimistic"
        How multipliers follow violations, see `fastcmdp.algorithms.primal_dual`; "plain" is the source's.
    dual_estimate : "fresh" or "inner"
        J_c for the dual step from a rollout of its own (the paper), or the mean over the H occupancy rollouts
        at hand: also unbiased, H times less variance, no sample more.
    pilot : int
        Outer steps that only measure, first; their samples are counted.
    critic : "none", "control" or "control+start"
        What earlier batches taught is forgotten (the paper); or it corrects rollouts, without bias; or the inner loop
        begins there too, and floor(H/2) exploring rollouts more are drawn. See `fastcmdp.algorithms.primal_dual`.
    g_squared, mu_f : float or None
        G^2 and mu_F of the ASGD steps of Lemma 6. None: the policy's own bound, and G^2 / kappa.
    kappa : float or None
        G^2 / mu_F, at least 1, in place of ``mu_f``. None: from ``mu_f``, or 20 where that is not given either.
    alpha, beta, xi, delta : float or None
        ASGD step sizes. None: Lemma 6's, from G^2 and mu_F.
    margin : float or sequence
        Aim at the limits tightened by this much, in the user's units.
    method : "asgd" or "sgd"
        The inner loop: accelerated (the paper), or plain stochastic gradient descent with step ``delta``.
    average : "tail" or "uniform"
        omega is the mean over the last half of the inner steps (the paper), or over all.
    kappa_tilde : float or None
        Statistical condition number of ASGD, at most kappa. None: kappa, the paper's choice, with which nothing is
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
    >>> result = fc.solve(fc.envs.garnet(n_states=20), fc.PDANPG(outer=400, inner=15, critic="control+start"), seed=1)
    >>> bool(abs(result.last_quarter.gap[0]) < 1.0)
    True
    """

    g_squared: float | None = None
    mu_f: float | None = None
    kappa: float | None = None
    alpha: float | None = None
    beta: float | None = None
    xi: float | None = None
    delta: float | None = None
    margin: float | Sequence[float] = 0.0
    method: Literal["asgd", "sgd"] = "asgd"
    average: Literal["tail", "uniform"] = "tail"
    kappa_tilde: float | None = None

    name: ClassVar[str] = "pd-anpg"
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_H": (0.8, 20.0),
        "c_eta": (0.1, 10.0),
        "c_zeta": (0.1, 10.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(optional=("g_squared", "mu_f", "kappa", "kappa_tilde", "xi", "delta"))
        require(self.kappa is None or self.kappa >= 1.0, "kappa", self.kappa, "a number of at least 1")
        both = self.kappa is not None and self.mu_f is not None
        require(
            not both, "kappa", self.kappa, f"either kappa or mu_f (here {self.mu_f}), which say the same,"
        )
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            inside = value is None or (is_finite(value) and np.ndim(value) == 0 and 0 < value < 1)
            require(inside, name, value, "a number between 0 and 1")
            if value is not None:
                object.__setattr__(self, name, float(value))
        require(is_finite(self.margin), "margin", self.margin, "one number, or one a constraint,")
        check_words(self, {"method": ("asgd", "sgd"), "average": ("tail", "uniform")})

    def condition(self, g_squared: float) -> float:
        """kappa = G^2 / mu_F that H and the ASGD steps assume, for a policy class with this bound on its scores."""
        if self.kappa is not None or self.mu_f is None:
            return self.kappa or NOMINAL_KAPPA
        g2 = self.g_squared or g_squared
        require(
            self.mu_f <= g2, "mu_f", self.mu_f, f"at most G^2 = {g2:g}, the largest eigenvalue F can have,"
        )
        return g2 / self.mu_f

    def momentum(self, g_squared: float) -> asgd.Momentum:
        """Step sizes of ASGD for a policy class with this bound on its scores (Lemma 6)."""
        g2, kappa = self.g_squared or g_squared, self.condition(g_squared)
        require(
            self.kappa_tilde is None or self.kappa_tilde <= kappa, "kappa_tilde", self.kappa_tilde,
            f"at most kappa = G^2 / mu_F = {kappa:g}",
        )  # fmt: skip
        root = 3.0 * math.sqrt(5.0)
        q = math.sqrt(kappa * (self.kappa_tilde or kappa))
        delta = self.delta or 1.0 / (5.0 * g2)
        xi = self.xi or kappa / (root * g2 * q)
        return asgd.Momentum(
            alpha=self.alpha or root * q / (1.0 + root * q),
            beta=self.beta or 1.0 / (9.0 * q),
            xi=delta if self.method == "sgd" else xi,  # then x = v, and both are plain SGD
            delta=delta,
        )

    def solver(self, world: World) -> asgd.Momentum:
        """The ASGD steps."""
        return self.momentum(world.policy.score_bound)

    def n_skipped(self) -> int:
        """Inner steps before the average begins."""
        return self.inner // 2 if self.average == "tail" else 0

    def tightening(self, world: World) -> NDArray[np.float64]:
        """The margin in kernel units, float64[m]."""
        cmdp = world.model
        return per_constraint(self.margin, cmdp.n_constraints, "margin") / cmdp.constraint_scale

    @classmethod
    def for_epsilon(
        cls,
        cmdp: CMDP | Simulator,
        epsilon: float,
        *,
        c_K: float = C_K,
        c_H: float = C_H,
        **settings: Any,
    ) -> Self:
        """Settings for a target gap and violation ``epsilon``: K = c_K / e^2 and H = c_H kappa log(1/e).

        e = (1-gamma) epsilon; Theorem 1's orders of K and H (``fastcmdp.theory.theorem_schedule``) with constants of
        use. kappa is that of H and of the ASGD steps alike: ``kappa``, or G^2 / ``mu_f`` with G^2 = ``g_squared`` or
        the tabular policy's 2, or 20.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> fc.PDANPG.for_epsilon(fc.envs.garnet(), 0.5, c_K=10).outer
        4000
        """
        check_constants(c_K=c_K, c_H=c_H)
        e = relative_target(cmdp, epsilon)
        kappa = cls(**settings).condition(TABULAR_G_SQUARED)
        scheduled: dict[str, Any] = {
            "outer": whole(c_K / e**2),
            "inner": max(math.ceil(c_H * kappa * math.log(1.0 / e)), 1),
        }
        return cls(**(scheduled | settings))

    @classmethod
    def paper(
        cls,
        cmdp: CMDP,
        outer: int,
        inner: int,
        *,
        policy: Policy | None = None,
        optimum: Optimum | None = None,
        **settings: Any,
    ) -> Self:
        """The paper to the letter: Theorem 1's constant rates and cap, Lemma 6's steps, no pilot, for any K and H.

        eta = (1-gamma)^2/((1+lambda_max) sqrt(K)), zeta = lambda_max (1-gamma)/sqrt(K), lambda_max =
        2/((1-gamma) c_slater); G^2 of the policy class and mu_F at its initial parameters. Theorem 1's own K and H for
        an epsilon are `fastcmdp.theory.theorem_schedule`'s, far beyond what can be run.

        Parameters
        ----------
        cmdp : CMDP
        outer, inner : int
            K and H.
        policy : TabularSoftmax or LogLinear
            The class that will run. None: TabularSoftmax().
        optimum : Optimum
            ``fastcmdp.optimum(cmdp)``, for c_slater. None: computed.
        **settings
            Settings of this class, which win.

        Raises
        ------
        SettingError
            No policy meets the limits strictly (Assumption 1); a setting out of range.
        InfeasibleError
            No policy meets the limits.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> made = fc.PDANPG.paper(fc.envs.river_swim(), outer=400, inner=50)
        >>> made.pilot, made.dual_estimate, made.eta < 1e-3
        (0, 'fresh', True)
        """
        theorem = theorem_settings(constants(cmdp, policy, optimum=optimum), outer, inner)
        return cls(**({field.name: getattr(theorem, field.name) for field in fields(theorem)} | settings))


def theorem_settings(measured: Constants, outer: int, inner: int) -> PDANPG:
    """Settings that run PD-ANPG with Theorem 1's step sizes and these constants' cap for any K and H.

    The two rates of Theorem 1 hold for every K and H (`fastcmdp.theory.theorem_1`), so they can be measured on runs
    far shorter than `fastcmdp.theory.theorem_schedule` asks for. `PDANPG.paper` makes them from a model.

    Raises
    ------
    SettingError
        Assumption 1 fails (no finite cap); outer or inner out of range.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> from fastcmdp.theory import constants
    >>> settings = theorem_settings(constants(fc.envs.garnet(n_states=5, seed=1)), 100, 20)
    >>> settings.outer, settings.pilot, settings.eta < 1e-2
    (100, 0, True)
    """
    check_slater(measured)
    eta, zeta = theorem_rates(measured, outer)
    return PDANPG(
        outer=outer,
        inner=inner,
        eta=eta,
        zeta=zeta if measured.n_constraints else None,
        lambda_max=measured.user_lambda_max or None,
        g_squared=measured.G**2,
        mu_f=measured.mu_F,
        pilot=0,
    )
