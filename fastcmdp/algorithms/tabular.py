"""What the tabular primal-dual methods share that read a whole table of Q in every outer step.

They differ in the policy's step (a rule), in the form of the multiplier (`fastcmdp.duals`), in when it moves, and in
what they put out; the recursion, the measured rates and the two sources of Q are ``kernels/algorithm/tabular.py``'s. Q
comes from M rollouts of N pairs from every choice of a generative model, discounted and cut at N, so that estimates
have a bias of up to gamma^N / (1-gamma); J_c is plugged in, sum rho pi Q. With ``rollouts=0`` Q is exact and no
samples are drawn: what the method does without noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.base import (
    Algorithm,
    Output,
    Run,
    check_constants,
    dual_cap,
    relative_target,
    whole,
)
from fastcmdp.algorithms.primal_dual import learning_rates
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm import tabular
from fastcmdp.kernels.learning import duals
from fastcmdp.kernels.sampling.q_tables import Exact, Sampled
from fastcmdp.kernels.sampling.truncated import NoTally
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

EXACT_TO = (
    1e-10  # exact Q: the last sweep over the states moved no value by more than this over the range of J
)


def pairs_for(share: float, gamma: float) -> int:
    """The least N with gamma^N <= share; at least 2, for a rollout of one pair shows no transition."""
    return max(math.ceil(math.log(share) / math.log(gamma)), 2)


@dataclass(frozen=True)
class TabularPrimalDual(Algorithm):
    """Settings that these methods share.

    Attributes
    ----------
    outer, rollouts, pairs, eta, zeta, c_eta, c_zeta, lambda_max
        See `ReLOAD`.
    extra : int
        1 where the rule has a signal of its own.
    ahead, each : bool
        Whether the policy's step uses the multiplier that the same step's J_c has moved, and in every sweep anew.
    c_K, c_N : float
        Defaults of the schedule's constants.
    """

    tabular_only: ClassVar[bool] = True
    version: ClassVar[int] = 2
    output: ClassVar[Output] = Output(after=True, last=0.0)
    extra: ClassVar[int] = 0
    ahead: ClassVar[bool] = False
    each: ClassVar[bool] = False
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {"c_eta": (0.1, 10.0), "c_zeta": (0.1, 10.0)}

    rollouts: int = 1
    pairs: int | None = None
    eta: float | None = None
    zeta: float | Sequence[float] | None = None
    c_eta: float = 1.0
    c_zeta: float = 1.0
    lambda_max: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        self.check({"outer": 1, "rollouts": 0}, ("c_eta", "c_zeta"), ("eta",), ("zeta", "lambda_max"))
        if self.pairs is not None:
            self.check({"pairs": 1})

    def rule(self, cmdp: CMDP) -> Any:
        """The policy's step, as the kernel takes it."""
        raise NotImplementedError

    def dual(self, cmdp: CMDP) -> Any:
        """The form of the multipliers."""
        return duals.Ascent()

    def rates(self, cmdp: CMDP) -> dict[str, Any]:
        """What the kernel's Steps take of eta and zeta."""
        return learning_rates(self, cmdp)

    def shortest_runs(self) -> dict[str, Any]:
        """Outer steps of a run whose measured steps are as long as they get, policy's and multipliers'."""
        return {"shortest_eta": 10.0, "shortest_zeta": 10.0}

    def base(self, theta: NDArray[np.float64], prob: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the rule keeps, before the first step; from the parameters and the policy, float64[C]."""
        return np.zeros_like(prob)

    @property
    def n_sweeps(self) -> int:
        """Evaluations of the policy, each with a step of it, in an outer step."""
        return 1

    def n_pairs(self, gamma: float) -> int:
        """N, the pairs of a rollout."""
        return self.pairs or pairs_for(0.01, gamma)

    def outer_samples(self, cmdp: CMDP | Simulator) -> float:
        """Transitions of one outer step: C M (N - 1) a sweep."""
        return float(self.n_sweeps * cmdp.n_choices * self.rollouts * (self.n_pairs(cmdp.gamma) - 1))

    @classmethod
    def schedule(cls, e: float, c_K: float, c_N: float, gamma: float) -> dict[str, Any]:
        """K = c_K / e^2 and gamma^N = c_N e, rounded up."""
        return {
            "outer": whole(c_K / e**2),
            "pairs": pairs_for(min(c_N * e, 0.5), gamma),
        }

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = 40.0, c_N: float = 0.1, **settings: Any
    ) -> Self:
        """Settings for a target gap and violation ``epsilon`` in kernel units, 0 < epsilon < 1/(1-gamma).

        With e = (1-gamma) epsilon: K = c_K / e^2 and gamma^N = c_N e, rounded up. The order of K is that of averages
        under noise; for last iterates from samples it is this project's choice (docs/algorithms.md).

        Examples
        --------
        >>> import fastcmdp as fc
        >>> coarse, fine = (fc.ReLOAD.for_epsilon(fc.envs.garnet(), e) for e in (0.2, 0.1))
        >>> fine.outer / coarse.outer
        4.0
        """
        e = relative_target(cmdp, epsilon)
        check_constants(c_K=c_K, c_N=c_N)
        return cls(**(cls.schedule(e, c_K, c_N, cmdp.gamma) | settings))

    @classmethod
    def shortest(cls) -> Self:
        """Settings of a run that is over at once."""
        return cls(outer=1, pairs=2)

    def run(self, world: World, seed: int, replicates: int) -> TabularRun:
        """Set up replicates that have not moved yet."""
        return TabularRun(self, world, seed, replicates)


class TabularRun(Run):
    """Replicates of such a method under way."""

    def __init__(self, settings: TabularPrimalDual, world: World, seed: int, replicates: int) -> None:
        super().__init__(settings, world)
        cmdp, m = world.table, world.table.n_constraints
        self.rule, self.dual = self.own_rule(), settings.dual(cmdp)
        self.source = (
            Sampled(settings.rollouts, settings.n_pairs(cmdp.gamma), np.arange(cmdp.n_choices))
            if settings.rollouts
            else Exact(
                cmdp.choice_to_branch, cmdp.branch_target, cmdp.branch_prob, EXACT_TO / (1.0 - cmdp.gamma)
            )
        )
        self.steps = tabular.Steps(
            n_outer=settings.outer,
            n_sweeps=settings.n_sweeps,
            gamma=cmdp.gamma,
            **settings.rates(cmdp),
            **settings.shortest_runs(),
            dual_max=dual_cap(world, settings.lambda_max),
            ahead=settings.ahead,
            each=settings.each,
            start=cmdp.start.copy(),
        )
        width = duals.width(self.dual)
        self.state = tabular.RunState(
            **self.common_state(seed, replicates),
            memory=np.zeros((replicates, m, width)),
            base=np.zeros((replicates, cmdp.n_choices)),
            **self.measured_levels(replicates, 3 + 3 * m, 1 + m),
            before=np.zeros((replicates, cmdp.n_choices)),
            last_value=np.zeros((replicates, m)),
        )
        self.set_up_actions()
        for r, prob in enumerate(self.policies()):
            self.state.base[r] = settings.base(self.state.theta[r], prob)

    def own_rule(self) -> Any:
        """The policy's step, for the policy class at hand."""
        return self.settings.rule(self.world.table)

    def work(self) -> tabular.Work:
        """Work space for one thread."""
        cmdp, extra = self.world.table, self.settings.extra
        n, m = cmdp.n_choices, cmdp.n_constraints
        lagrangian = np.zeros(n)
        return tabular.Work(
            signal=np.hstack([cmdp.signals, np.zeros((n, extra))]),
            estimate=np.zeros((n, 1 + m + extra)),
            lagrangian=lagrangian,
            moved=lagrangian,
            anchor=np.zeros(n),
            value=np.zeros(1 + m),
            scratch=np.zeros((m, duals.width(self.dual))),
            price=np.zeros(m),
            rate=np.zeros(m),
            pace=np.zeros(m),
            space=self.row_space(),
            tally=NoTally(),
            own=NoTally(),
        )

    def advance(self, r: int, n_steps: int, work: tabular.Work) -> None:
        """Make up to n_steps outer steps of replicate r."""
        tabular.advance(
            self.world.tables, self.world.policy.data, self.rule, self.dual, self.source, self.steps,
            self.state, self.actions[r], work, r, n_steps,
        )  # fmt: skip
