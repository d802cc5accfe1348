"""What the methods share that follow plain gradients of J_r and of every J_ci: C-PG and LB-SGD."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.base import Algorithm, Output, Run
from fastcmdp.algorithms.tabular import EXACT_TO, pairs_for
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm import vanilla
from fastcmdp.kernels.sampling.q_tables import Exact
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World


@dataclass(frozen=True)
class Vanilla(Algorithm):
    """Settings that these methods share.

    Attributes
    ----------
    trajectories, pairs
        See the methods.
    """

    output: ClassVar[Output] = Output(after=True, last=0.0)

    trajectories: int = 10
    pairs: int | None = None

    def __post_init__(self) -> None:
        self.check({"outer": 1, "trajectories": 0 if self.trajectories == 0 else 2})
        if self.pairs is not None:
            self.check({"pairs": 1})

    def n_pairs(self, gamma: float) -> int:
        """N, the pairs of a trajectory."""
        return self.pairs or pairs_for(0.01, gamma)

    def outer_samples(self, cmdp: CMDP | Simulator) -> float:
        """Transitions of one outer step: 2 B (N - 1)."""
        return 2.0 * self.trajectories * (self.n_pairs(cmdp.gamma) - 1)

    @classmethod
    def shortest(cls) -> Self:
        """Settings of a run that is over at once."""
        return cls(outer=1, trajectories=2, pairs=2)

    def source(self, cmdp: CMDP, tail: NDArray[np.float64]) -> vanilla.Recorded | vanilla.Known:
        """Where values and gradients come from; tail: levels of risk, float64[m]."""
        if self.trajectories:
            return vanilla.Recorded(cmdp.gamma, cmdp.signals, tail)
        exact = Exact(
            cmdp.choice_to_branch, cmdp.branch_target, cmdp.branch_prob, EXACT_TO / (1.0 - cmdp.gamma)
        )
        return vanilla.Known(exact, cmdp.gamma, cmdp.start.copy(), cmdp.signals)


class VanillaRun(Run):
    """Replicates of such a method under way: its source, its rule and its steps are data.

    ``width`` is that of a multiplier's memory.
    """

    def __init__(
        self, settings: Vanilla, world: World, seed: int, replicates: int, *, source: Any, rule: Any, steps: Any,
        width: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(settings, world)
        m = world.model.n_constraints
        self.source, self.rule, self.steps = source, rule, steps
        self.state = vanilla.RunState(
            **self.common_state(seed, replicates),
            memory=np.zeros((replicates, m, width)),
            quantile=np.zeros((replicates, m)),
            **self.measured_levels(replicates, 2 + 2 * m, 2 + 2 * m),
        )
        self.set_up_actions()

    @property
    def n_draws(self) -> float:
        """Actions drawn between two changes of theta; exact values read those of all states."""
        return math.inf if isinstance(self.source, vanilla.Known) else super().n_draws

    def work(self) -> vanilla.Work:
        """Work space for one thread."""
        model, b = self.world.table, self.settings.trajectories
        n = self.settings.n_pairs(model.gamma)
        signals = 1 + model.n_constraints
        choices = 0 if b else model.n_choices
        pairs = b * n + choices
        scores = self.scores(pairs)
        slots = len(scores.coordinate)
        return vanilla.Work(
            path=np.zeros((b, n), np.int64),
            togo=np.zeros((b, n, signals)),
            estimate=np.zeros((choices, signals)),
            reach=np.zeros((2, 0 if b else model.n_states)),
            pair=np.zeros(pairs, np.int64),
            weight=np.zeros((pairs, signals)),
            mean=np.zeros(signals),
            value=np.zeros(signals),
            doubt=np.zeros(signals),
            gradient=np.zeros((signals, slots)),
            square=np.zeros(signals),
            price=np.zeros(signals),
            scores=scores,
            omega=np.zeros(slots),
            space=self.row_space(),
        )

    def advance(self, r: int, n_steps: int, work: vanilla.Work) -> None:
        """Make up to n_steps outer steps of replicate r."""
        vanilla.advance(
            self.world.tables, self.world.policy.data, self.source, self.rule, self.steps, self.state,
            self.actions[r], work, r, n_steps,
        )  # fmt: skip
