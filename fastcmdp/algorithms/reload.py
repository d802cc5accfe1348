"""ReLOAD: optimism for both players of the Lagrangian game, a last iterate (Moskovitz et al., ICML 2023).

    theta_{k+1}  = theta_k + step (2 A_k - A_{k-1}),             A_k the advantage of r + lambda_k c under pi_k
    lambda_{k+1} = clip(lambda_k - zeta (2 J_c(pi_k) - J_c(pi_{k-1})), 0, lambda_max)

with A_{-1} = A_0 and J(pi_{-1}) = J(pi_0). The output is pi_K.

Recalled: the recursion; certain, from its abstract: a last-iterate guarantee for the convex form over occupancy
measures, with exact gradients. This form in logits is what the source runs in practice, without a theorem. Schedule K
= c_K/e^2 and measured steps are this project's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fastcmdp.algorithms.tabular import TabularPrimalDual
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm.reload import Extrapolated
from fastcmdp.kernels.learning.duals import Optimistic


@dataclass(frozen=True)
class ReLOAD(TabularPrimalDual):
    """Settings of ReLOAD, for the tabular softmax policy and a generative model.

    Parameters
    ----------
    outer : int
        Outer steps K.
    rollouts, pairs : int, int or None
        M rollouts of N pairs from every choice, N - 1 transitions each; ``pairs=None``: such that gamma^N <= 0.01.
        ``rollouts=0`` draws none: Q is exact, and the run shows the method without noise.
    eta, zeta : float or None
        Steps of policy and multipliers (zeta: one, or one a constraint), in kernel units and constant; logits or
        probabilities move by eta/(1-gamma) Q. None: measured along the run (``kernels/algorithm/tabular.py``).
    c_eta, c_zeta : float
        Factors on the measured steps.
    lambda_max : float, sequence or None
        Cap of the multipliers, in the user's units. None: 2 / ((1-gamma) c_slater) where the Slater value is known,
        else no cap.

    Raises
    ------
    SettingError
        A value out of range; a policy other than the tabular softmax.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.ReLOAD(outer=20))
    >>> result.finished
    True
    """

    name: ClassVar[str] = "reload"

    def rule(self, cmdp: CMDP) -> Extrapolated:
        """The policy's step."""
        return Extrapolated()

    def dual(self, cmdp: CMDP) -> Optimistic:
        """The multipliers' step."""
        return Optimistic()
