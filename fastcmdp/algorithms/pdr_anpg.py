"""PDR-ANPG: PD-ANPG with entropy and quadratic regularisers, a last iterate (Mondal, Aggarwal, TMLR 2026).

With lambda_0 = 0 and for k = 0..K-1, from fresh samples of pi_k,

    omega_k      = tail average of H steps of ASGD towards F^+ grad of J_r + lambda_k J_c + tau H(pi_k)
    theta_{k+1}  = theta_k + eta omega_k
    lambda_{k+1} = clip((1 - zeta tau) lambda_k - zeta J_c estimate, 0, lambda_max)

H(pi) = -E sum gamma^t log pi(a_t|s_t). The output is pi_K.

Certain, from its abstract (arXiv 2408.11513): both regularisers on PD-ANPG, and that the last iterate takes ~eps^-2
min(eps^-2, eps_bias^(-1/3)) samples, so ~eps^-4 for complete classes of policies. Recalled: the recursion; the
analysis has eta = zeta. Derived: the estimate of the entropy's advantage from the last pairs of the Q and V rollouts,
-tau log pi(a_T|s_T)/(1-gamma) each, unbiased and free (``kernels/algorithm/pdr_anpg.py``). The schedule K = c_K/e^2, H
= c_H kappa log(1/e), tau = c_tau e and the measured steps are this project's. A fixed tau leaves a bias of its order.
The entropy bonus needs probabilities of numbered choices: tables, with any policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from fastcmdp.algorithms.base import Output, check_constants, check_words, relative_target
from fastcmdp.algorithms.pd_anpg import C_H, C_K, PDANPG
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm.pdr_anpg import Regularised
from fastcmdp.kernels.learning.duals import Ridge
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World


@dataclass(frozen=True)
class PDRANPG(PDANPG):
    """Settings of PDR-ANPG.

    Parameters
    ----------
    outer, inner, eta, zeta, c_eta, c_zeta, lambda_max, dual_estimate, pilot, margin
        As of `PDANPG`.
    dual : "plain"
        The ridge is its form.
    critic : "none"
        The entropy's advantage is read off the ends of Q and V rollouts, and with a critic there are none of V.
    g_squared, mu_f, kappa, alpha, beta, xi, delta, method, average, kappa_tilde
        As of `PDANPG`, for the inner loop.
    tau : float
        Weight of both regularisers, in kernel units.

    Raises
    ------
    SettingError
        A value out of range.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.PDRANPG(outer=20, inner=10))
    >>> result.finished
    True
    """

    tau: float = 0.01

    name: ClassVar[str] = "pdr-anpg"
    simulation: ClassVar[Literal["rollouts", "chains", ""]] = ""
    output: ClassVar[Output] = Output(after=True, last=0.0)
    version: ClassVar[int] = 1
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {**PDANPG.constants, "c_tau": (0.01, 1.0)}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(positive=("tau",))
        check_words(self, {"dual": ("plain",), "critic": ("none",)})

    def solver(self, world: World) -> Any:
        """The ASGD steps, and the weight of the entropy."""
        return Regularised(self.momentum(world.policy.score_bound), self.tau)

    def form(self) -> Ridge:
        """The form of the multipliers."""
        return Ridge(self.tau)

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = C_K, c_H: float = C_H, c_tau: float = 0.1,
        **settings: Any,
    ) -> Self:  # fmt: skip
        """Settings for a target ``epsilon`` in kernel units: those of `PDANPG.for_epsilon`, and tau = c_tau e.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> round(fc.PDRANPG.for_epsilon(fc.envs.garnet(gamma=0.9), 1.0).tau, 4)
        0.01
        """
        check_constants(c_tau=c_tau)
        scheduled = {"tau": c_tau * relative_target(cmdp, epsilon)}
        return super().for_epsilon(cmdp, epsilon, c_K=c_K, c_H=c_H, **(scheduled | settings))
