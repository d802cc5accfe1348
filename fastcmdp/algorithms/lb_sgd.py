"""LB-SGD: policy gradient of a logarithmic barrier, limits met throughout (Ni, Kamgarpour, arXiv 2312.00561).

For k = 0..K-1, from B trajectories of pi_k for the values and B more for the gradients (GPOMDP, as those of `CPG`),
theta moves along the gradient of J_r + barrier sum_i log J_ci, by a step that keeps half of every J_ci's lower
confidence bound (``kernels/algorithm/lb_sgd.py``). The output is pi_K.

With M_f bounds on the second derivatives (``smoothness``) and confident bounds on J, all policies from the first that
meets the limits strictly meet them, with probability at least 1 - delta; the barrier leaves a gap of about m barrier.
While limits are missed, in confidence, the unit gradients of those are followed beside the barrier of the others, and
the reward's is left out.

Certain, from its abstract: feasible throughout with high probability, ~eps^-6 samples. Recalled: the step, from the log
barrier method of Usmanova, As, Kamgarpour, Krause. This project's: the way in from a policy that misses limits; normal
confidence bounds, z = sqrt(2 log(K m / delta)) standard errors, K that of the settings at hand; M_f = largest
|grad J_f hat| so far / reach in place of a bound, which no theorem covers and whose first outer step only measures; the
schedule K = c_K/e^2, B = c_B/e^4, barrier = c_barrier epsilon / m. Tables, with any policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fastcmdp.algorithms.base import check_constants, relative_target, whole
from fastcmdp.algorithms.tabular import pairs_for
from fastcmdp.algorithms.vanilla import Vanilla, VanillaRun
from fastcmdp.check import is_finite, is_positive, require
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.kernels.algorithm import lb_sgd
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World


@dataclass(frozen=True)
class LBSGD(Vanilla):
    """Settings of LB-SGD.

    Parameters
    ----------
    outer, trajectories, pairs
        As of `CPG`.
    barrier : float
        Weight of the logarithms, in kernel units.
    delta : float
        Probability, in (0, 1), with which any lower bound on a J_ci may fail in a run of K outer steps. A run that goes
        on from K to K' > K (``resume``, or the next stage of ``target=`` or ``seconds=``) made its first K with the
        smaller z of K: each time adds up to delta (1 - K/K'). Give the last K at once to have delta for all.
    smoothness : float, sequence or None
        Bounds on the second derivatives of J_r, J_c1, .. in theta, in kernel units: one, or 1 + m. None: measured.
    reach : float
        Parameters' distance over which a measured gradient is taken to hold.

    Raises
    ------
    SettingError
        A value out of range; a simulator.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.LBSGD(outer=5))
    >>> result.finished
    True
    """

    trajectories: int = 100
    barrier: float = 0.05
    delta: float = 0.05
    smoothness: float | Sequence[float] | None = None
    reach: float = 4.0

    name: ClassVar[str] = "lb-sgd"
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_B": (0.01, 1.0),
        "c_barrier": (0.01, 1.0),
        "reach": (0.4, 40.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check({}, ("barrier", "reach"))
        holds = is_finite(self.delta) and np.ndim(self.delta) == 0 and 0 < self.delta < 1
        require(holds, "delta", self.delta, "a number between 0 and 1")
        holds = self.smoothness is None or is_positive(self.smoothness)
        require(
            holds,
            "smoothness",
            self.smoothness,
            "a positive number, or one for the reward and each constraint,",
        )

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = 3.0, c_B: float = 0.1, c_N: float = 0.1,
        c_barrier: float = 0.1, **settings: Any,
    ) -> Self:  # fmt: skip
        """Settings for a target ``epsilon`` in kernel units: K = c_K/e^2, B = c_B/e^4, barrier = c_barrier epsilon/m.

        e = (1-gamma) epsilon and gamma^N = c_N e; all are rounded up, B is at least 2.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> coarse, fine = (fc.LBSGD.for_epsilon(fc.envs.garnet(), e) for e in (2, 1))
        >>> fine.outer / coarse.outer
        4.0
        """
        e = relative_target(cmdp, epsilon)
        check_constants(c_K=c_K, c_B=c_B, c_N=c_N, c_barrier=c_barrier)
        scheduled: dict[str, Any] = {
            "outer": whole(c_K / e**2),
            "trajectories": max(whole(c_B / e**4), 2),
            "pairs": pairs_for(min(c_N * e, 0.5), cmdp.gamma),
            "barrier": c_barrier * float(epsilon) / max(cmdp.n_constraints, 1),
        }
        return cls(**(scheduled | settings))

    def run(self, world: World, seed: int, replicates: int) -> VanillaRun:
        """Set up replicates that have not moved yet."""
        cmdp, m = world.table, world.table.n_constraints
        curvatures = np.atleast_1d(
            np.asarray(0.0 if self.smoothness is None else self.smoothness, np.float64)
        )
        if curvatures.shape not in ((1,), (1 + m,)):
            raise SettingError(
                f"smoothness has {curvatures.size} values; give one, or {1 + m}: of the reward and each constraint"
            )
        steps = lb_sgd.Steps(
            barrier=self.barrier,
            z=math.sqrt(2.0 * math.log(self.outer * max(m, 1) / self.delta)),
            bias=cmdp.gamma ** self.n_pairs(cmdp.gamma) / (1.0 - cmdp.gamma) if self.trajectories else 0.0,
            smoothness=np.broadcast_to(curvatures, 1 + m).copy(),
            reach=self.reach,
        )
        return VanillaRun(
            self,
            world,
            seed,
            replicates,
            source=self.source(cmdp, np.zeros(m)),
            rule=lb_sgd.Barrier(),
            steps=steps,
        )
