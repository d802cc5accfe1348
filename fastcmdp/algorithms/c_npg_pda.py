"""C-NPG-PDA: conservative natural policy gradient primal-dual algorithm.

NPG-PD's scheme on the tightened problem J_c >= kappa, with plain SGD from zero and its uniform average. For k < K, from
fresh samples of pi_k (g the score, A_L hat = Q hat - V hat of r + lambda c at a pair drawn from nu),

    omega_0 = 0,   omega_{n+1} = omega_n - a g (g . omega_n - A_L hat/(1-gamma)),      n = 0..N-1
    omega        = mean of omega_1..omega_N
    theta_{k+1}  = theta_k + eta omega
    lambda_{k+1} = clip(lambda_k - zeta (J_c estimate - kappa), 0, lambda_max)

The guarantee is about the mixture over k: gap at most eps and J_c >= 0 in expectation, zero violation, for kappa of
order eps. A policy class that cannot represent the natural gradient adds a floor that kappa must absorb.

Source: Bai, Bedi, Aggarwal, Achieving Zero Constraint Violation for Constrained Reinforcement Learning via
Conservative Natural Policy Gradient Primal-Dual Algorithm (AAAI 2023). Certain: the scheme, the sign convention, the
rate eps^-4 (N and K of order eps^-2, from an inner error N^-1/2). Recalled: a = 1/(4 G^2), Bach and Moulines' constant
step, and zeta ~ K^-1/2. Not known: the paper's eta (recalled with low confidence as a constant of type mu^2/(4 G^2
L_J)), its constant in kappa and its cap. Derived here in their place: eta ~ K^-1/2, safe by Lemma 3 of the PD-ANPG
paper; kappa = C/sqrt(K), at most c_slater/2, which costs at most kappa/((1-gamma) c_slater) of reward (mix the optimum
with the Slater policy); lambda_max = 4/((1-gamma) c_slater), at least the tightened problem's 2/((1-gamma) (c_slater -
kappa)).

How much kappa is enough (derived here): unless a multiplier meets its cap, lambda_{k+1} >= lambda_k - zeta (J_c
estimate - kappa), so with a constant zeta, in expectation,

    mean J_c(pi_k) >= kappa - lambda_K / (zeta K),

and zero violation needs kappa >= E lambda_K/(zeta K), which is C/sqrt(K) for zeta ~ K^-1/2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.base import (
    check_constants,
    per_constraint,
    relative_target,
    whole,
)
from fastcmdp.algorithms.primal_dual import PrimalDual
from fastcmdp.check import is_finite, require
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.learning.asgd import Momentum
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

C_K = 40.0  # outer steps: see docs/algorithms.md
C_N = 4.0


@dataclass(frozen=True)
class CNPGPDA(PrimalDual):
    """Settings of C-NPG-PDA.

    Parameters
    ----------
    outer, inner : int
        K outer steps of N SGD steps; both at least 1. One outer step draws 3 N + 1 rollouts of mean length
        gamma / (1 - gamma).
    lambda_max : float, sequence or None
        Cap of the multipliers, one or one a constraint, in the user's units. None: 4 / ((1-gamma) c_slater) where the
        Slater value is known, else no cap.
    dual : "plain", "pi" or "optimistic"
        How multipliers follow violations, see `fastcmdp.algorithms.primal_dual`; "plain" is the source's.
    eta, zeta, c_eta, c_zeta, dual_estimate, pilot, critic
        As of `PDANPG`.
    step : float or None
        The SGD step a. None: 1 / (4 G^2).
    kappa : float, sequence or None
        By how much the limits are tightened, in the user's units: one, or one a constraint. None: c_kappa /
        ((1-gamma) sqrt(K)) in kernel units, at most half the Slater value where that is known.
    c_kappa : float
        Factor on the default kappa.

    Raises
    ------
    SettingError
        A value out of range.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.CNPGPDA(outer=50, inner=20))
    >>> result.finished
    True
    """

    cap_factor: ClassVar[float] = 4.0

    step: float | None = None
    kappa: float | Sequence[float] | None = None
    c_kappa: float = 0.1

    name: ClassVar[str] = "c-npg-pda"
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_N": (0.2, 20.0),
        "c_eta": (0.1, 10.0),
        "c_zeta": (0.1, 10.0),
        "c_kappa": (0.01, 1.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(positive=("c_kappa",), optional=("step",))
        if self.kappa is not None:
            holds = is_finite(self.kappa) and (np.asarray(self.kappa) >= 0).all()
            require(holds, "kappa", self.kappa, "a number of at least 0, or one a constraint,")

    def solver(self, world: World) -> Momentum:
        """Plain SGD: ASGD with equal steps for both sequences, whose mixing then does not matter."""
        step = self.step or 1.0 / (4.0 * world.policy.score_bound)
        return Momentum(alpha=0.5, beta=0.5, xi=step, delta=step)

    def tightening(self, world: World) -> NDArray[np.float64]:
        """Kappa in kernel units, float64[m]."""
        cmdp = world.model
        if self.kappa is not None:
            return per_constraint(self.kappa, cmdp.n_constraints, "kappa") / cmdp.constraint_scale
        kappa = self.c_kappa / ((1.0 - cmdp.gamma) * math.sqrt(self.outer))
        if world.optimum is not None and world.optimum.slater > 0:
            kappa = min(kappa, world.optimum.slater / 2.0)
        return np.full(cmdp.n_constraints, kappa)

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = C_K, c_N: float = C_N, **settings: Any
    ) -> Self:
        """Settings for a target ``epsilon`` in kernel units, 0 < epsilon < 1/(1-gamma).

        With e = (1-gamma) epsilon: K = c_K / e^2, N = c_N / e^2.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> coarse, fine = (fc.CNPGPDA.for_epsilon(fc.envs.garnet(), e) for e in (2, 1))
        >>> fine.outer // coarse.outer, fine.inner // coarse.inner
        (4, 4)
        """
        e = relative_target(cmdp, epsilon)
        check_constants(c_K=c_K, c_N=c_N)
        return cls(**({"outer": whole(c_K / e**2), "inner": whole(c_N / e**2)} | settings))
