"""OPG-PD: optimistic policy gradient primal-dual, a last iterate (Ding, Wei, Zhang, Ribeiro, NeurIPS 2023).

With base_0 = pi_0 and base multipliers mu_0 = 0, and for k = 0..K-1, from Q and J of pi_k,

    base_{k+1}(.|s) = P[base_k(.|s) + step Q_{r + lambda_k c}(s, .)],    mu_{k+1} = clip(mu_k - zeta J_c)
    pi_{k+1}(.|s)   = P[base_{k+1}(.|s) + step Q_{r + lambda_k c}(s, .)],  lambda_{k+1} = clip(mu_{k+1} - zeta J_c)

clips to [0, lambda_max], P projects a state's numbers on probabilities (Euclid).
``update="multiplicative"`` has the same sums of logits,
OMWU-PD's. The output is pi_K.

Recalled: the recursion; the source has one step size for both. Certain, from its abstract: with exact values the last
iterate converges linearly, with a constant of the problem. From samples no theorem was at hand; schedule K = c_K/e^2
and measured steps are this project's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.base import check_words
from fastcmdp.algorithms.tabular import TabularPrimalDual
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm.opg_pd import OptimisticMultiplicative, OptimisticProjected
from fastcmdp.kernels.learning.duals import PI


@dataclass(frozen=True)
class OPGPD(TabularPrimalDual):
    """Settings of OPG-PD, for the tabular softmax policy and a generative model.

    Parameters
    ----------
    outer, rollouts, pairs, eta, zeta, c_eta, c_zeta, lambda_max
        As of `ReLOAD`.
    update : "projected" or "multiplicative"
        The policy's step: Euclidean projection, or exponential weights.

    Raises
    ------
    SettingError
        A value out of range; a policy other than the tabular softmax.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.OPGPD(outer=20))
    >>> result.finished
    True
    """

    update: Literal["projected", "multiplicative"] = "projected"

    name: ClassVar[str] = "opg-pd"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_words(self, {"update": ("projected", "multiplicative")})

    def rule(self, cmdp: CMDP) -> OptimisticProjected | OptimisticMultiplicative:
        """The policy's step."""
        return OptimisticProjected() if self.update == "projected" else OptimisticMultiplicative()

    def dual(self, cmdp: CMDP) -> PI:
        """A base that integrates, and one step more from it."""
        return PI(lead=1.0, share=1.0)

    def base(self, theta: NDArray[np.float64], prob: NDArray[np.float64]) -> NDArray[np.float64]:
        """The first policy, or its logits."""
        return prob if self.update == "projected" else theta
