"""ARNPG-EPD: anchored natural gradient, extrapolated multiplier (Zhou, Liu, Kalathil, Kumar, Tian, NeurIPS 2022).

For k = 0..K-1, from J_c of pi_k,

    lambda_k = max(lambda_{k-1} - zeta J_c(pi_k), zeta J_c(pi_k)),       l = lambda_k - zeta J_c(pi_k)
    t times:   log pi <- (1 - share) log pi + share Q / alpha,
               Q of r + l c + alpha log pi_k at the pair, r + l c - alpha KL(pi || pi_k) later

and pi_{k+1} is the policy after the last. The output is the mixture over pi_1..pi_K.

Certain: the recursion, read in public code of its authors; its exact rate is O~(1/T) on average (abstract). It is
PMD-PD with steps of natural gradient in place of its sweeps, and lambda_0 is |zeta J_c(pi_0)| here. The defaults alpha
= c_alpha / (60 (1-gamma)) and zeta = 2 c_zeta (1-gamma), and share = 0.5 c_eta (at most 1), are this project's.
From samples no theorem was at hand; the schedule has K = c_K/e outer steps and M = c_M/e^2 rollouts, as PMD-PD's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fastcmdp.algorithms.base import Output, check_constants, per_constraint, relative_target, whole
from fastcmdp.algorithms.tabular import TabularPrimalDual
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.kernels.algorithm.arnpg_epd import Anchored
from fastcmdp.kernels.learning.duals import Modified
from fastcmdp.simulators.simulator import Simulator


@dataclass(frozen=True)
class ARNPG(TabularPrimalDual):
    """Settings of ARNPG-EPD, for the tabular softmax policy and a generative model.

    Parameters
    ----------
    outer, rollouts, pairs, eta, zeta, c_eta, c_zeta
        As of `ReLOAD`.
    lambda_max : None
        The multipliers have no cap.
    sweeps : int
        t, steps of natural gradient in an outer step.
    alpha : float or None
        Weight of KL(pi || pi_k), in kernel units. None: c_alpha / (60 (1-gamma)).
    c_alpha : float
        Factor on the default alpha.

    Raises
    ------
    SettingError
        A value out of range; a policy other than the tabular softmax.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.ARNPG(outer=20))
    >>> result.finished
    True
    """

    sweeps: int = 2
    alpha: float | None = None
    c_alpha: float = 1.0

    name: ClassVar[str] = "arnpg-epd"
    output: ClassVar[Output] = Output(after=True)
    extra: ClassVar[int] = 1
    ahead: ClassVar[bool] = True
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_M": (0.01, 10.0),
        "c_alpha": (0.1, 10.0),
        "c_eta": (0.1, 2.0),
        "c_zeta": (0.1, 10.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check({"sweeps": 1}, ("c_alpha",), ("alpha",))
        if self.lambda_max is not None:
            raise SettingError(f"lambda_max = {self.lambda_max!r}: {self.name} has no cap; leave it out")

    @property
    def n_sweeps(self) -> int:
        """t."""
        return self.sweeps

    def weight(self, cmdp: CMDP) -> float:
        """alpha."""
        return self.alpha or self.c_alpha / (60.0 * (1.0 - cmdp.gamma))

    def rule(self, cmdp: CMDP) -> Anchored:
        """The policy's step."""
        return Anchored(self.weight(cmdp))

    def dual(self, cmdp: CMDP) -> Modified:
        """The multipliers' step."""
        return Modified()

    def rates(self, cmdp: CMDP) -> dict[str, Any]:
        """Constant steps, given or in proportion to the ranges of Q and J."""
        unit = 1.0 - cmdp.gamma
        zeta = 2.0 * self.c_zeta * unit if self.zeta is None else self.zeta
        return {
            "eta_scale": self.eta or min(0.5 * self.c_eta, 1.0) * unit / self.weight(cmdp),
            "zeta_scale": per_constraint(zeta, cmdp.n_constraints, "zeta"),
            "adaptive_eta": False,
            "adaptive_zeta": False,
        }

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = 4.0, c_M: float = 0.1, c_N: float = 0.1,
        **settings: Any,
    ) -> Self:  # fmt: skip
        """Settings for a target ``epsilon`` in kernel units: K = c_K/e, M = c_M/e^2 and gamma^N = c_N e.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> coarse, fine = (fc.ARNPG.for_epsilon(fc.envs.garnet(), e) for e in (0.2, 0.1))
        >>> fine.outer / coarse.outer, fine.rollouts / coarse.rollouts
        (2.0, 4.0)
        """
        e = relative_target(cmdp, epsilon)
        check_constants(c_K=c_K, c_M=c_M, c_N=c_N)
        scheduled = cls.schedule(e, c_K, c_N, cmdp.gamma)
        scheduled |= {"outer": whole(c_K / e), "rollouts": whole(c_M / e**2)}
        return cls(**(scheduled | settings))
