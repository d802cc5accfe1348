"""PI-PD: natural policy gradient with a multiplier under proportional and integral control, a last iterate.

    e_k         = -J_c(pi_k)                                 (positive where the limit is missed)
    s_k         = s_{k-1} + share (e_k - s_{k-1}),           s_0 = e_0
    I_{k+1}     = clip(I_k + zeta e_k, 0, lambda_max)
    lambda_k    = clip(I_{k+1} + kp s_k, 0, lambda_max)
    theta_{k+1} = theta_k + step A_k,                        A_k the advantage of r + lambda_k c under pi_k

Gains (derived): along A_c the rate of change of J_c is N_c = E_nu A_c^2 / (1-gamma); linearised at the saddle the pair
swings with the frequency w = sqrt(step zeta N_c) a step, and kp = 2 damping zeta / w damps it by the ratio ``damping``;
share = min(1, follow w) keeps the noise of J_c out of the proportional part. N_c is measured along the run, with states
weighted evenly, and w is at least K^-1/2. The output is pi_K.

Guarantee: none from samples. Certain: in the single-step first-order regime such control is the augmented Lagrangian
method, whose local convergence with exact gradients is linear (arXiv 2509.22500). PI control of multipliers is Stooke,
Achiam, Abbeel's (ICML 2020); the gains from N_c, the schedule K = c_K/e^2 and the measured steps are this project's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fastcmdp.algorithms.tabular import TabularPrimalDual
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm.reload import Natural
from fastcmdp.kernels.learning.duals import Damped


@dataclass(frozen=True)
class PIPD(TabularPrimalDual):
    """Settings of PI-PD, for the tabular softmax policy and a generative model.

    Parameters
    ----------
    outer, rollouts, pairs, eta, zeta, c_eta, c_zeta, lambda_max
        As of `ReLOAD`.
    damping : float
        Damping ratio of the swings of policy and multiplier; 0.5 to 1 is of use.
    follow : float
        How fast the filtered J_c follows, in frequencies of those swings; 1 to 3 is of use.

    Raises
    ------
    SettingError
        A value out of range; a policy other than the tabular softmax.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.PIPD(outer=20))
    >>> result.finished
    True
    """

    damping: float = 1.0
    follow: float = 3.0

    name: ClassVar[str] = "pi-pd"
    ahead: ClassVar[bool] = True
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_eta": (0.1, 10.0),
        "c_zeta": (0.1, 10.0),
        "damping": (0.3, 3.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(positive=("damping", "follow"))

    def rule(self, cmdp: CMDP) -> Natural:
        """The policy's step."""
        return Natural()

    def dual(self, cmdp: CMDP) -> Damped:
        """The multipliers' step."""
        return Damped(self.damping, self.follow)
