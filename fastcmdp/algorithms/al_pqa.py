"""AL-PQA: inexact augmented Lagrangian with projected Q-ascent, a last iterate (Lu, Lin, Chen, Vaswani, 2026).

For k = 0..K-1, with n sweeps t each,

    l_i        = clip(lambda_i - beta_i J_ci, 0, lambda_max),     J_ci the mean of its estimates in the sweeps so far
    pi(.|s)   <- P[pi(.|s) + step Q_{r + l c}(s, .)]              (Euclid's projection on probabilities)

then lambda = l of the last sweep. The sweeps ascend the augmented Lagrangian J_r - sum_i ([lambda_i - beta_i J_ci]_+^2
- lambda_i^2) / (2 beta_i), whose policy gradient is that of r + l c. The output is the policy after the last sweep.

Certain, from its abstract (arXiv 2605.11694): inexact augmented Lagrangian, sub-problems by projected Q-ascent, global
last-iterate convergence with exact values. Derived: the form above, the standard one; that J_c is averaged over the
sweeps is this project's, against noise, and so are the schedule K n = c_K/e^2 and the measured steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fastcmdp.algorithms.base import check_constants
from fastcmdp.algorithms.tabular import TabularPrimalDual
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm.al_pqa import ProjectedAscent
from fastcmdp.simulators.simulator import Simulator


@dataclass(frozen=True)
class ALPQA(TabularPrimalDual):
    """Settings of AL-PQA, for the tabular softmax policy and a generative model.

    Parameters
    ----------
    outer, rollouts, pairs, eta, zeta, c_eta, c_zeta, lambda_max
        As of `ReLOAD`.
    sweeps : int
        n, evaluations of the policy and steps of it in an outer step.

    Raises
    ------
    SettingError
        A value out of range; a policy other than the tabular softmax.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.ALPQA(outer=20))
    >>> result.finished
    True
    """

    sweeps: int = 20

    name: ClassVar[str] = "al-pqa"
    ahead: ClassVar[bool] = True
    each: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check({"sweeps": 1})

    @property
    def n_sweeps(self) -> int:
        """n."""
        return self.sweeps

    def rule(self, cmdp: CMDP) -> ProjectedAscent:
        """The policy's step."""
        return ProjectedAscent()

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = 40.0, c_N: float = 0.1, **settings: Any
    ) -> Self:
        """Settings for a target ``epsilon`` in kernel units: K n = c_K / e^2 and gamma^N = c_N e, rounded up.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> fc.ALPQA.for_epsilon(fc.envs.garnet(gamma=0.9), 1.0).outer
        200
        """
        check_constants(c_K=c_K)
        per_step = c_K / cls(**settings).sweeps
        return super().for_epsilon(cmdp, epsilon, c_K=per_step, c_N=c_N, **settings)
