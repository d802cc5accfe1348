"""RPG-PD: regularised policy gradient primal-dual, a last iterate (Ding, Wei, Zhang, Ribeiro, NeurIPS 2023).

    L_tau(pi, lambda) = J_r + lambda J_c + tau H(pi) + tau lambda^2 / 2,    H = -E sum gamma^t log pi(a_t|s_t)
    pi_{k+1}          = maximum over p(.|s) of p . Q_{L, tau} - KL(p, pi_k)/step, with Q_{L, tau} that of L_tau at pi_k
    lambda_{k+1}      = clip((1 - zeta tau) lambda_k - zeta J_c, 0, lambda_max)

The output is pi_K. Fixed tau leaves a bias of order tau, which vanishes with tau alone.

Recalled: the recursion (the source has one step size for both, and a floor under probabilities that is left out here);
its rate, Phi_{t+1} <= exp(-eta tau t) Phi_1 + O(eta/tau), hence tau ~ eps^2, eta ~ eps^4 and ~eps^-6 iterations with
exact values. From samples no theorem was at hand. The schedule here, K = c_K/e^2 and tau = c_tau e, is this project's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fastcmdp.algorithms.base import check_constants, relative_target
from fastcmdp.algorithms.tabular import TabularPrimalDual
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm.rpg_pd import Entropic
from fastcmdp.kernels.learning.duals import Ridge
from fastcmdp.simulators.simulator import Simulator


@dataclass(frozen=True)
class RPGPD(TabularPrimalDual):
    """Settings of RPG-PD, for the tabular softmax policy and a generative model.

    Parameters
    ----------
    outer, rollouts, pairs, eta, zeta, c_eta, c_zeta, lambda_max
        As of `ReLOAD`.
    tau : float
        Weight of both regularisers, in kernel units.

    Raises
    ------
    SettingError
        A value out of range; a policy other than the tabular softmax.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.RPGPD(outer=20))
    >>> result.finished
    True
    """

    tau: float = 0.01

    name: ClassVar[str] = "rpg-pd"
    extra: ClassVar[int] = 1
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_eta": (0.1, 10.0),
        "c_tau": (0.01, 1.0),
        "c_zeta": (0.1, 10.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(positive=("tau",))

    def shortest_runs(self) -> dict[str, Any]:
        """Without optimism long steps swing up: the policy's are of the order K^-1/2; the multipliers' may be long."""
        return {"shortest_eta": float(self.outer), "shortest_zeta": 1.0}

    def rule(self, cmdp: CMDP) -> Entropic:
        """The policy's step."""
        return Entropic(self.tau)

    def dual(self, cmdp: CMDP) -> Ridge:
        """The multipliers forget at the rate tau."""
        return Ridge(self.tau)

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = 40.0, c_N: float = 0.1, c_tau: float = 0.1,
        **settings: Any,
    ) -> Self:  # fmt: skip
        """Settings for a target ``epsilon`` in kernel units: K = c_K / e^2, gamma^N = c_N e and tau = c_tau e.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> round(fc.RPGPD.for_epsilon(fc.envs.garnet(gamma=0.9), 1.0).tau, 4)
        0.01
        """
        check_constants(c_tau=c_tau)
        scheduled = {"tau": c_tau * relative_target(cmdp, epsilon)}
        return super().for_epsilon(cmdp, epsilon, c_K=c_K, c_N=c_N, **(scheduled | settings))
