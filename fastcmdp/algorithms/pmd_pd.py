"""PMD-PD: policy mirror descent primal-dual, with a modified multiplier (Liu, Zhou, Kalathil, Kumar, Tian, 2021).

From the uniform pi_0, an estimate J_i of J_ci(pi_0) and lambda_i = max(0, eta' J_i), for k = 0..K-1,

    lt_i = lambda_i - eta' J_i,      rt = r + sum_i lt_i c_i                          (lt_i >= 0: the same J_i)     (1)
    pi^(0) = pi_k;  for t = 0..t_k-1, for all (s, a):
        Q(s, a) = rt(s, a) + alpha log pi_k(a|s) + E sum_{j>=1} gamma^j [rt_j - alpha KL(pi^(t) || pi_k)(s_j)]      (2)
        pi^(t+1)(a|s) ~ pi^(t)(a|s)^(1 - eta alpha/(1-gamma)) exp(eta Q(s, a)/(1-gamma))                            (3)
    pi_{k+1} = pi^(t_k);      J_i = a new estimate of J_ci(pi_{k+1})
    lambda_i = max(eta' J_i, lambda_i - eta' J_i)                                                                   (4)

The output is the mixture over pi_1..pi_K. With eta = (1-gamma)/alpha, the default, (3) is softmax(Q / alpha): soft
policy iteration, a contraction by gamma. There is no cap on lambda, and it may be positive where the limits hold.

Sampled as the source describes it: (2) for every choice from M_Q rollouts of the generative model, truncated at N pairs
and discounted, with the exact divergence at each state visited; J from M_V such rollouts from the start distribution.

Provenance: (1) and (4) are confirmed by scripts of the same group; (2), (3) and the sampling are recalled; that an
exact run halves its error with each doubling of K is checked in the tests. The source's alpha = 2 gamma^2 m
eta'/(1-gamma)^3 is recalled, alpha >= m eta'/(1-gamma)^3 derived to suffice here; both are far too large to be of use
(the source's experiments took 0.2 and one sweep). The defaults, measured along the run, are this project's,

    alpha_k = 0.25 c_alpha sqrt(N_L),    eta'_ik = 0.35 c_dual sqrt(N_r / N_ci) / max |J_ci| so far

(``kernels/algorithm/pmd_pd.py``): in proportion to what choices differ by, and to what a multiplier weighs. Neither
falls with K, as in the source. Rates: K = c/eps, t_k = c
log(1/eps)/(1-gamma), M_Q, M_V = c/eps^2, N = log(1/eps)/log(1/gamma), hence eps^-3 samples up to logarithms, with high
probability. Rollouts are cut at N pairs, so estimates have a bias of up to gamma^N / (1-gamma).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fastcmdp.algorithms.base import (
    Algorithm,
    Output,
    Run,
    check_constants,
    per_constraint,
    relative_target,
    whole,
)
from fastcmdp.algorithms.tabular import pairs_for
from fastcmdp.check import require
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm import pmd_pd
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

C_K, C_M = 4.0, 0.1  # docs/algorithms.md
ALPHA, DUAL = (
    0.25,
    0.35,
)  # alpha over the measured spread of Q; how far a multiplier moves at most, over its unit


@dataclass(frozen=True)
class PMDPD(Algorithm):
    """Settings of PMD-PD, for the tabular softmax policy and a generative model.

    Parameters
    ----------
    outer : int
        K, at least 1. An outer step draws sweeps * rollouts rollouts from each choice and ``starts`` from the start
        distribution, N - 1 transitions each.
    sweeps : int
        t_k, inner updates of all states in an outer step.
    rollouts, starts : int
        M_Q from each choice and M_V from the start distribution.
    pairs : int or None
        N, the pairs of a rollout; at least 1. None: such that gamma^N <= 0.01, 1 % of the range of J.
    alpha : float or None
        Weight of KL(pi || pi_k), in kernel units. None: measured.
    eta : float or None
        Step of (3), at most (1-gamma)/alpha, which is the default; above a measured alpha's it counts as that.
    dual_step : float, sequence or None
        eta' of (1) and (4), one or one a constraint, kernel units. None: measured.
    c_alpha, c_dual : float
        Factors on the measured alpha and dual_step.

    Raises
    ------
    SettingError
        A value out of range; a policy other than the tabular softmax.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.PMDPD(outer=20, rollouts=10))
    >>> result.finished
    True
    """

    outer: int = 100
    sweeps: int = 1
    rollouts: int = 100
    starts: int = 1000
    pairs: int | None = None
    alpha: float | None = None
    eta: float | None = None
    dual_step: float | Sequence[float] | None = None
    c_alpha: float = 1.0
    c_dual: float = 1.0

    name: ClassVar[str] = "pmd-pd"
    tabular_only: ClassVar[bool] = True
    output: ClassVar[Output] = Output(after=True)
    version: ClassVar[int] = 2
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_M": (0.01, 10.0),
        "c_alpha": (0.1, 10.0),
        "c_dual": (0.1, 10.0),
        "c_t": (0.01, 1.0),
    }

    def __post_init__(self) -> None:
        self.check(
            {"outer": 1, "sweeps": 1, "rollouts": 1, "starts": 1},
            ("c_alpha", "c_dual"),
            ("alpha", "eta"),
            ("dual_step",),
        )
        if self.pairs is not None:
            self.check({"pairs": 1})

    def n_pairs(self, gamma: float) -> int:
        """N, the pairs of a rollout."""
        return self.pairs or pairs_for(0.01, gamma)

    def outer_samples(self, cmdp: CMDP | Simulator) -> float:
        """Transitions of one outer step: (t_k C M_Q + M_V) (N - 1)."""
        rollouts = self.sweeps * cmdp.n_choices * self.rollouts + self.starts
        return float(rollouts * (self.n_pairs(cmdp.gamma) - 1))

    def fixed_samples(self, cmdp: CMDP | Simulator) -> float:
        """Transitions for the estimate of J at the uniform policy."""
        return float(self.starts * (self.n_pairs(cmdp.gamma) - 1))

    @classmethod
    def for_epsilon(
        cls,
        cmdp: CMDP | Simulator,
        epsilon: float,
        *,
        c_K: float = C_K,
        c_M: float = C_M,
        c_t: float = 0.02,
        c_N: float = 0.1,
        **settings: Any,
    ) -> Self:
        """Settings for a target gap and violation ``epsilon`` in kernel units, 0 < epsilon < 1/(1-gamma).

        With e = (1-gamma) epsilon: K = c_K/e, t_k = c_t log(1/e)/(1-gamma), M_Q = c_M/e^2, M_V = 10 c_M/e^2 and
        gamma^N = c_N e, each rounded up.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> coarse, fine = (fc.PMDPD.for_epsilon(fc.envs.garnet(), e) for e in (0.2, 0.1))
        >>> fine.outer / coarse.outer, fine.rollouts / coarse.rollouts
        (2.0, 4.0)
        """
        e = relative_target(cmdp, epsilon)
        check_constants(c_K=c_K, c_M=c_M, c_t=c_t, c_N=c_N)
        horizon = 1.0 / (1.0 - cmdp.gamma)
        scheduled: dict[str, Any] = {
            "outer": whole(c_K / e),
            "sweeps": whole(c_t * horizon * math.log(1.0 / e)),
            "rollouts": whole(c_M / e**2),
            "starts": whole(10.0 * c_M / e**2),
            "pairs": pairs_for(min(c_N * e, 0.5), cmdp.gamma),
        }
        return cls(**(scheduled | settings))

    @classmethod
    def shortest(cls) -> Self:
        """Settings of a run that is over at once."""
        return cls(outer=1, rollouts=1, starts=1, pairs=2)

    def run(self, world: World, seed: int, replicates: int) -> PMDPDRun:
        """Set up replicates that have not moved yet."""
        return PMDPDRun(self, world, seed, replicates)


class PMDPDRun(Run):
    """Replicates of PMD-PD under way."""

    def __init__(self, settings: PMDPD, world: World, seed: int, replicates: int) -> None:
        super().__init__(settings, world)
        cmdp, m = world.table, world.table.n_constraints
        unit = 1.0 - cmdp.gamma
        if settings.alpha is not None and settings.eta is not None:
            most = unit / settings.alpha
            require(
                settings.eta <= most * (1 + 1e-12),
                "eta",
                settings.eta,
                f"at most (1-gamma)/alpha = {most:.6g}",
            )
        adaptive = settings.dual_step is None
        dual_step = DUAL * settings.c_dual if adaptive else settings.dual_step
        self.steps = pmd_pd.Steps(
            n_sweeps=settings.sweeps,
            n_rollouts=settings.rollouts,
            n_starts=settings.starts,
            n_pairs=settings.n_pairs(cmdp.gamma),
            gamma=cmdp.gamma,
            alpha=ALPHA * settings.c_alpha if settings.alpha is None else settings.alpha,
            eta=math.inf if settings.eta is None else settings.eta,
            dual_step=per_constraint(dual_step, m, "dual_step"),
            adaptive_alpha=settings.alpha is None,
            adaptive_dual=adaptive,
        )
        self.state = pmd_pd.RunState(
            **self.common_state(seed, replicates),
            estimate=np.full((replicates, 1 + m), np.nan),
            recent=np.zeros((replicates, 2 + m)),
            average=np.zeros((replicates, 2 + m)),
            longest=np.zeros((replicates, 1 + m)),
            rate=np.zeros((replicates, m)),
        )
        self.set_up_actions()

    def work(self) -> pmd_pd.Work:
        """Work space for one thread."""
        cmdp = self.world.table
        n = cmdp.n_choices
        return pmd_pd.Work(
            anchor=np.zeros(n),
            signal=cmdp.signals.copy(),
            divergence=np.zeros(cmdp.n_states),
            total=np.zeros((n, 1 + cmdp.n_constraints)),
            reward=np.zeros(n),
            modified=np.zeros(cmdp.n_constraints),
            start_total=np.zeros((1, 1 + cmdp.n_constraints)),
            choices=np.arange(n),
            drawn=np.full(1, -1),
            space=self.row_space(),
        )

    def advance(self, r: int, n_steps: int, work: pmd_pd.Work) -> None:
        """Make up to n_steps outer steps of replicate r."""
        pmd_pd.advance(
            self.world.tables, self.world.policy.data, self.world.table.signals, self.steps, self.state,
            self.actions[r], work, r, n_steps,
        )  # fmt: skip
