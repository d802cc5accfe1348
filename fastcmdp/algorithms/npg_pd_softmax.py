"""NPG-PD for the tabular softmax policy, every advantage estimated with a generative model.

With theta_0 = 0, lambda_0 = 0 and for t = 0..T-1, both steps from pi_t,

    Q_f(s, a)      = mean of M rollouts of geometric length from (s, a), f in {r, c_1..c_m}, for all (s, a)
    V_f(s)         = sum_a pi_t(a|s) Q_f(s, a),       J_f = sum_s rho(s) V_f(s)
    theta_{t+1}(s, a) = theta_t(s, a) + eta/(1-gamma) (Q_L - V_L)(s, a),        L = r + lambda_t c
    lambda_{t+1}   = clip(lambda_t - zeta J_c, 0, 2/((1-gamma) c_slater))

The guarantee is about the mixture over t, and for exact Q only: no theorem that was at hand covers the sampled method.

Source: Ding, Zhang, Basar, Jovanovic, Natural Policy Gradient Primal-Dual Method for Constrained MDPs (NeurIPS 2020;
with Duan in JMLR, 2025). The recursion and the sample-based form (M rollouts of geometric horizon, plug-in V and J)
agree with public code of the field; the theorem is recalled: with *exact* advantages and J, eta = 2 log A and zeta =
2 (1-gamma)/sqrt(T) give a gap of at most 7/((1-gamma)^2 sqrt(T)) and a violation of at most (2/xi + 4 xi)/((1-gamma)^2
sqrt(T)), xi the Slater value; both bounds are respected in exact runs (tests/test_npg_pd.py). Table 1 of the PD-ANPG
paper lists eps^-2 for this method; that entry counts iterations of the exact method, a trajectory each (derived here).
From samples an outer step costs C M rollouts, C the number of choices: eps^-2 as well, C times more of them.

With M = O(1) rollouts a constant eta, that of the theorem, leaves a floor: exact steps improve monotonically, noisy
ones do not, and policies wander. A step of order T^-1/2 keeps the rate (derived here). The default is the rule of
`fastcmdp.algorithms.primal_dual`,

    eta_t/(1-gamma) = c_eta sqrt(2 log A) / sqrt(T N_t),     zeta_it = c_zeta sigma_r / (sigma_i^2 sqrt(T)),

N_t the level of the mean over states of sum_a pi (Q_L - V_L)^2, sigma_f the spread of one rollout of f from rho and pi
about the level of J_f, all of the outer steps before t: J_c and its spread come from the same rollouts, and where costs
are rare a zeta that knew them would let the multiplier fall when none is seen, by more than it rises when one is. The
first outer step only measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fastcmdp.algorithms.base import (
    DUALS,
    Algorithm,
    Run,
    check_constants,
    check_words,
    dual_cap,
    relative_target,
    whole,
)
from fastcmdp.algorithms.primal_dual import learning_rates
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm import npg_pd_softmax
from fastcmdp.kernels.learning import duals
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

C_K = 100.0  # outer steps: see docs/algorithms.md


@dataclass(frozen=True)
class NPGPDSoftmax(Algorithm):
    """Settings of sample-based NPG-PD for the tabular softmax policy.

    Parameters
    ----------
    outer : int
        Outer steps T. Each draws M rollouts of mean length gamma / (1 - gamma) for every choice of the model.
    rollouts : int
        M.
    eta, zeta : float or None
        Learning rates (eta_1, eta_2 of the source) of theta and of the multipliers (zeta: one, or one a constraint),
        in kernel units and constant. For exact advantages the theorem has 2 log A and 2 (1-gamma)/sqrt(T). None:
        measured along the run, see the module's text.
    c_eta, c_zeta : float
        Factors on the measured learning rates.
    lambda_max : float, sequence or None
        Cap of the multipliers, one or one a constraint, in the user's units. None: 2 / ((1-gamma) c_slater) where the
        Slater value is known, else no cap.
    dual : "plain", "pi" or "optimistic"
        How multipliers follow violations, see `fastcmdp.algorithms.primal_dual`; "plain" is the source's.

    Raises
    ------
    SettingError
        A value out of range; a policy other than the tabular one.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.NPGPDSoftmax(outer=50))
    >>> result.finished
    True
    """

    rollouts: int = 1
    eta: float | None = None
    zeta: float | Sequence[float] | None = None
    c_eta: float = 1.0
    c_zeta: float = 1.0
    lambda_max: float | Sequence[float] | None = None
    dual: Literal["plain", "pi", "optimistic"] = "plain"

    name: ClassVar[str] = "npg-pd-softmax"
    tabular_only: ClassVar[bool] = True
    version: ClassVar[int] = 2
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {"c_eta": (0.1, 10.0), "c_zeta": (0.1, 10.0)}

    def __post_init__(self) -> None:
        self.check({"outer": 1, "rollouts": 1}, ("c_eta", "c_zeta"), ("eta",), ("zeta", "lambda_max"))
        check_words(self, {"dual": tuple(DUALS)})

    def outer_samples(self, cmdp: CMDP | Simulator) -> float:
        """Expected transitions of one outer step: M rollouts of mean length gamma/(1-gamma) for every choice."""
        return cmdp.n_choices * self.rollouts * cmdp.gamma / (1.0 - cmdp.gamma)

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = C_K, **settings: Any
    ) -> Self:
        """Settings for a target ``epsilon`` in kernel units: T = c_K / ((1-gamma) epsilon)^2.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> fc.NPGPDSoftmax.for_epsilon(fc.envs.garnet(gamma=0.9), 1.0).outer
        10000
        """
        e = relative_target(cmdp, epsilon)
        check_constants(c_K=c_K)
        return cls(**({"outer": whole(c_K / e**2)} | settings))

    def run(self, world: World, seed: int, replicates: int) -> NPGPDSoftmaxRun:
        """Set up replicates that have not moved yet."""
        return NPGPDSoftmaxRun(self, world, seed, replicates)


class NPGPDSoftmaxRun(Run):
    """Replicates of tabular NPG-PD under way."""

    def __init__(self, settings: NPGPDSoftmax, world: World, seed: int, replicates: int) -> None:
        super().__init__(settings, world)
        cmdp, m = world.table, world.table.n_constraints
        self.form = DUALS[settings.dual]
        self.steps = npg_pd_softmax.Steps(
            n_outer=settings.outer,
            n_rollouts=settings.rollouts,
            **learning_rates(settings, cmdp),
            dual_max=dual_cap(world, settings.lambda_max),
            start=cmdp.start.copy(),
        )
        self.state = npg_pd_softmax.RunState(
            **self.common_state(seed, replicates),
            memory=np.zeros((replicates, m, duals.width(self.form))),
            **self.measured_levels(replicates, 2 + m, 1 + m),
            centre=np.zeros((replicates, 1 + m)),
        )
        self.set_up_actions()

    def work(self) -> npg_pd_softmax.Work:
        """Work space for one thread."""
        n_choices, n_signals = self.world.table.n_choices, 1 + self.world.table.n_constraints
        n_jobs = n_choices * self.settings.rollouts
        return npg_pd_softmax.Work(
            job_choice=np.repeat(np.arange(n_choices), self.settings.rollouts),
            job_row=np.zeros(n_jobs, np.uint32),
            last_pair=np.zeros(n_jobs, np.int64),
            total=np.zeros((n_jobs, n_signals)),
            estimate=np.zeros((n_choices, n_signals)),
            value=np.zeros(n_signals),
            space=self.row_space(),
        )

    def advance(self, r: int, n_steps: int, work: npg_pd_softmax.Work) -> None:
        """Make up to n_steps outer steps of replicate r."""
        npg_pd_softmax.advance(
            self.world.tables,
            self.world.policy.data,
            self.form,
            self.steps,
            self.state,
            self.actions[r],
            work,
            r,
            n_steps,
        )
