"""C-PG: plain policy gradient with a ridge on the multipliers, a last iterate (Montenegro et al., NeurIPS 2024).

With lambda = 0 at first and for k = 0..K-1, from B trajectories of pi_k for the values and B more for the gradients,

    lambda_i    = clip((1 - zeta ridge) lambda_i - zeta J_ci hat, 0, lambda_max)
    theta_{k+1} = theta_k + eta (grad J_r hat + sum_i lambda_i grad J_ci hat)

Gradients are GPOMDP's: every score times the discounted sum from its pair on, here less the mean of the other
trajectories, which changes no expectation. Trajectories are cut at N pairs. With ``cvar`` = a > 0 a constraint is on
the conditional value at risk of the discounted sum in place of its mean: with the loss L = -sum gamma^t c_t and an
auxiliary variable u, which goes down its own gradient,

    J_ci = -(u + E[L - u]_+ / (1-a)),       u <- u - scale (1 - Pr(L > u) / (1-a)),     scale = sd(L) / sqrt(k+1),

at most -min over u of the same, the mean of L over its worst share 1-a. The output is pi_K.

Certain, from the source's public code: ridge, GPOMDP, CVaR by an auxiliary variable; from its abstract: global
last-iterate convergence under gradient domination, in a number of iterations that does not depend on dimensions.
Recalled: that the multipliers move on values of the new policy. This project's: the baseline, separate trajectories for
values and gradients, so that multiplier and gradient are independent given the past; the scale of u, the schedule K =
c_K/e^2, ridge = c_ridge epsilon; and measured steps (``kernels/algorithm/c_pg.py``). Tables, with any policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fastcmdp.algorithms.base import (
    check_constants,
    dual_cap,
    per_constraint,
    relative_target,
    whole,
)
from fastcmdp.algorithms.tabular import pairs_for
from fastcmdp.algorithms.vanilla import Vanilla, VanillaRun
from fastcmdp.check import is_finite, require
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm import c_pg
from fastcmdp.kernels.learning.duals import Ridge, width
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World


@dataclass(frozen=True)
class CPG(Vanilla):
    """Settings of C-PG.

    Parameters
    ----------
    outer : int
        Outer steps K.
    trajectories, pairs : int, int or None
        B trajectories of N pairs for the values and as many for the gradients, N - 1 transitions each; B at least 2.
        ``pairs=None``: such that gamma^N <= 0.01. ``trajectories=0`` draws none: values and gradients are exact.
    eta, zeta : float or None
        Steps of theta and of the multipliers (zeta: one, or one a constraint), in kernel units and constant. None:
        measured along the run.
    c_eta, c_zeta : float
        Factors on the measured steps.
    ridge : float
        Weight of |lambda|^2 / 2 in the Lagrangian, in kernel units.
    cvar : float or sequence
        Level in [0, 1) of the conditional value at risk that a constraint limits, one or one a constraint: 0.9 is the
        mean over the worst tenth of the trajectories. 0: the mean over all.
    lambda_max : float, sequence or None
        Cap of the multipliers, in the user's units. None: 2 / ((1-gamma) c_slater) where the Slater value is known
        and no constraint has a level, else no cap.

    Raises
    ------
    SettingError
        A value out of range; a simulator.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.CPG(outer=5))
    >>> result.finished
    True
    """

    eta: float | None = None
    zeta: float | Sequence[float] | None = None
    c_eta: float = 1.0
    c_zeta: float = 1.0
    ridge: float = 0.01
    cvar: float | Sequence[float] = 0.0
    lambda_max: float | Sequence[float] | None = None

    name: ClassVar[str] = "c-pg"
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_eta": (0.1, 10.0),
        "c_zeta": (0.1, 10.0),
        "c_ridge": (0.01, 1.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check({}, ("c_eta", "c_zeta", "ridge"), ("eta",), ("zeta", "lambda_max"))
        levels = self.cvar
        holds = is_finite(levels) and bool(((np.asarray(levels) >= 0) & (np.asarray(levels) < 1)).all())
        require(holds, "cvar", levels, "a number from 0 to below 1, or one a constraint,")
        require(
            self.trajectories > 0 or not np.any(levels),
            "cvar",
            levels,
            "0 with trajectories=0: exact values are of means",
        )

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = 40.0, c_N: float = 0.1, c_ridge: float = 0.1,
        **settings: Any,
    ) -> Self:  # fmt: skip
        """Settings for a target ``epsilon`` in kernel units: K = c_K / e^2, gamma^N = c_N e, ridge = c_ridge epsilon.

        e = (1-gamma) epsilon; steps are rounded up.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> coarse, fine = (fc.CPG.for_epsilon(fc.envs.garnet(), e) for e in (0.2, 0.1))
        >>> fine.outer / coarse.outer
        4.0
        """
        e = relative_target(cmdp, epsilon)
        check_constants(c_K=c_K, c_N=c_N, c_ridge=c_ridge)
        scheduled: dict[str, Any] = {
            "outer": whole(c_K / e**2),
            "pairs": pairs_for(min(c_N * e, 0.5), cmdp.gamma),
            "ridge": c_ridge * float(epsilon),
        }
        return cls(**(scheduled | settings))

    def run(self, world: World, seed: int, replicates: int) -> VanillaRun:
        """Set up replicates that have not moved yet."""
        cmdp, m = world.table, world.table.n_constraints
        levels = per_constraint(self.cvar, m, "cvar")
        cap = (
            np.full(m, np.inf)
            if levels.any() and self.lambda_max is None
            else dual_cap(world, self.lambda_max)
        )
        zeta = per_constraint(self.c_zeta if self.zeta is None else self.zeta, m, "zeta")
        steps = c_pg.Steps(
            n_outer=self.outer,
            eta_scale=self.c_eta * math.sqrt(world.policy.n_parameters) if self.eta is None else self.eta,
            zeta_scale=zeta,
            adaptive_eta=self.eta is None,
            adaptive_zeta=self.zeta is None,
            dual_max=cap,
        )
        form = Ridge(self.ridge)
        return VanillaRun(
            self, world, seed, replicates, rule=c_pg.Alternating(form), steps=steps, width=width(form),
            source=self.source(cmdp, levels),
        )  # fmt: skip
