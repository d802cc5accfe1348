"""NPG-PD for general policies: natural policy gradient primal-dual with a projected SGD inner loop.

With lambda_0 = 0 and for t = 0..T-1, from fresh samples of pi_t = pi_theta_t (g the score, A_L hat = Q hat - V hat of
r + lambda c at a pair drawn from nu),

    w_0 = 0,   w_{k+1} = Proj_{|w| <= W} [w_k - a_k 2 (w_k . g - A_L hat) g],      k = 0..H-1         (1)
    w          = mean of w_1..w_H                        ("uniform", 2020)                             (2a)
               = 2/(H (H+1)) sum_k (k+1) w_{k+1}         ("weighted", JMLR)                            (2b)
    theta_{t+1}  = theta_t + eta/(1-gamma) w
    lambda_{t+1} = clip(lambda_t - zeta J_c estimate, 0, 2/((1-gamma) c_slater))

The guarantee is in expectation about the mixture over t, up to the policy class's transfer error.

Sources: Ding, Zhang, Basar, Jovanovic, Natural Policy Gradient Primal-Dual Method for Constrained MDPs (NeurIPS 2020),
(1) with a_k = W/(Gamma sqrt(H)) constant, Gamma^2 a bound on E|2 (w.g - A) g|^2, and (2a); with Duan in JMLR
(2025): a_k of order 1/(sigma_F (k+1)) and (2b). Provenance: the recursion, eta = zeta = T^-1/2 and (2a) are recalled;
(2b) and its steps too, with low confidence to a factor of 2; whether the average begins with w_0 is not known, and with
w_1 it serves one inner step. That (2a) needs H ~ eps^-4, and so T H ~ eps^-6 as in Table 1 of the PD-ANPG paper, is
derived here: the inner error H^-1/2 enters under a root. (2b) with strongly convex steps needs H ~ eps^-2. The
no-regret argument sees w only through omega = w/(1-gamma), which is what the kernel runs in.

Choices of this project. Published W and Gamma are bounds, not numbers. Here (a) 2 a_0 G^2 = c_step / sqrt(H) for
(2a), which is W/(Gamma sqrt(H)) where the iterate's own part of the gradient, 2 G^2 W, is the larger one, and
(b) a_k = 1/(1/a_0 + sigma_F k) for (2b): of order 1/(sigma_F (k+1)) with a first step that does not overshoot,
2 a_0 G^2 = c_step. The literal a_k = 1/(sigma_F (k+1)) is ``step = 1/sigma_F``; it overshoots in its first kappa steps,
and then a tight ``radius`` is essential. The default radius is the bound |w*| <= G max|A_L|/sigma_F <=
2 G (1 + 2 sum_i lambda_max,i)/(sigma_F (1-gamma)), infinite without caps; with steps that do not overshoot, iterates
stay far inside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fastcmdp.algorithms.base import (
    check_constants,
    check_words,
    dual_cap,
    relative_target,
    whole,
)
from fastcmdp.algorithms.primal_dual import NOMINAL_KAPPA, PrimalDual
from fastcmdp.check import require
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm.npg_pd import Projected
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

C_K = 40.0  # outer steps: see docs/algorithms.md
C_H = 4.0
ORDER = {"uniform": 4, "weighted": 2}  # H ~ epsilon to this power, inverted


@dataclass(frozen=True)
class NPGPD(PrimalDual):
    """Settings of NPG-PD for any policy class.

    Parameters
    ----------
    outer, inner : int
        T outer steps of H projected SGD steps; both at least 1. One outer step draws 3 H + 1 rollouts of mean length
        gamma / (1 - gamma).
    eta, zeta : float or None
        Learning rates (eta_1, eta_2 of the source) of theta and of the multipliers (zeta: one, or one a constraint),
        in kernel units and constant; the source has T^-1/2 for both. None: measured along the run, see
        `fastcmdp.algorithms.primal_dual`.
    dual : "plain", "pi" or "optimistic"
        How multipliers follow violations, see `fastcmdp.algorithms.primal_dual`; "plain" is the source's.
    c_eta, c_zeta, lambda_max, dual_estimate, pilot, critic
        As of `PDANPG`; with "control+start" the ball of the projections is about omega_0.
    average : "uniform" or "weighted"
        (2a) of 2020, or (2b) of JMLR, each with its steps.
    step : float or None
        First step a_0. None: c_step / (2 G^2 sqrt(H)) or c_step / (2 G^2), see the module's text.
    c_step : float
        Factor on the default step.
    sigma_f : float or None
        Strong convexity that the steps of "weighted" assume. None: G^2 / 20.
    radius : float or None
        W. None: the bound in the module's text; math.inf: no projection.

    Raises
    ------
    SettingError
        A value out of range.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> cmdp = fc.envs.river_swim()
    >>> result = fc.solve(cmdp, fc.NPGPD(outer=50, inner=20))
    >>> result.finished
    True
    """

    average: Literal["uniform", "weighted"] = "uniform"
    step: float | None = None
    c_step: float = 1.0
    sigma_f: float | None = None
    radius: float | None = None

    name: ClassVar[str] = "npg-pd"
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_H": (0.2, 20.0),
        "c_step": (0.1, 10.0),
        "c_eta": (0.1, 10.0),
        "c_zeta": (0.1, 10.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(positive=("c_step",), optional=("step", "sigma_f"))
        if self.radius != math.inf:
            self.check(optional=("radius",))
        check_words(self, {"average": ("uniform", "weighted")})

    def solver(self, world: World) -> Projected:
        """Ball, steps and weights in terms of omega = w/(1-gamma); the 2 of the gradient is in the steps."""
        unit, g2, n = 1.0 - world.model.gamma, world.policy.score_bound, self.inner
        sigma = self.sigma_f or g2 / NOMINAL_KAPPA
        k = np.arange(n)
        if self.average == "uniform":
            step = np.full(n, self.step or self.c_step / (2.0 * g2 * math.sqrt(n)))
            weight = np.full(n, 1.0 / n)
        else:
            first = self.step or self.c_step / (2.0 * g2)
            step = 1.0 / (1.0 / first + sigma * k)
            weight = 2.0 * (k + 1) / (n * (n + 1))
        radius = self.radius
        if radius is None:
            caps = dual_cap(world, self.lambda_max, self.cap_factor)
            radius = 2.0 * math.sqrt(g2) * (1.0 + 2.0 * float(caps.sum())) / (sigma * unit)
        return Projected(float(radius) / unit, 2.0 * step, weight)

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = C_K, c_H: float = C_H, **settings: Any
    ) -> Self:
        """Settings for a target gap and violation ``epsilon`` in kernel units, 0 < epsilon < 1/(1-gamma).

        With e = (1-gamma) epsilon: T = c_K / e^2 and H = c_H / e^4 for "uniform", c_H / e^2 for "weighted".

        Examples
        --------
        >>> import fastcmdp as fc
        >>> coarse, fine = (fc.NPGPD.for_epsilon(fc.envs.garnet(), e) for e in (2, 1))
        >>> fine.outer // coarse.outer, fine.inner // coarse.inner
        (4, 16)
        """
        e = relative_target(cmdp, epsilon)
        average = settings.get("average", cls.average)
        require(average in ORDER, "average", average, "'uniform' or 'weighted'")
        check_constants(c_K=c_K, c_H=c_H)
        return cls(**({"outer": whole(c_K / e**2), "inner": whole(c_H / e ** ORDER[average])} | settings))
