"""AL-PQA: inexact augmented Lagrangian with projected Q-ascent, a last iterate (Lu, Lin, Chen, Vaswani, 2026).

For k = 0..K-1, with n sweeps t each,

    l_i        = clip(lambda_i - beta_i J_ci, 0, lambda_max),     J_ci the mean of its estimates in the sweeps so far
    pi(.|s)   <- P[pi(.|s) + step Q_{r + l c}(s, .)]

then lambda = l of the last sweep. The sweeps ascend the augmented Lagrangian J_r - sum_i ([lambda_i - beta_i J_ci]_+^2
- lambda_i^2) / (2 beta_i), whose policy gradient is that of r + l c. The output is the policy after the last sweep.

P is Euclid's projection: of each state's numbers on probabilities for tabular policies; on the class for log-linear
ones, states weighted by their visits, by one damped step of Gauss and Newton: least squares of the tabular step on
pi g, g the score (``kernels/algorithm/al_pqa.py``). With one-hot features both are the same up to that step's error.

Certain, from its abstract (arXiv 2605.11694): inexact augmented Lagrangian, sub-problems by projected Q-ascent, global
last-iterate convergence with exact values; for log-linear policies "an efficient, projected variant" with guarantees.
Derived: the form above, the standard one; that J_c is averaged over the sweeps is this project's, against noise, and so
are the schedule K n = c_K/e^2 and the measured steps. The log-linear projection is derived here, for the source's was
not at hand: a point where it rests is stationary in the class, which a projection by divergence does not give. Visits
cost no samples: a rollout from every choice, weighted by rho pi of that choice, has the discounted occupancy, cut at N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fastcmdp.algorithms.base import check_constants
from fastcmdp.algorithms.tabular import TabularPrimalDual, TabularRun
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.kernels.algorithm import tabular
from fastcmdp.kernels.algorithm.al_pqa import FitSpace, FittedAscent, ProjectedAscent
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.kernels.sampling.truncated import Tally
from fastcmdp.policies import BoundPolicy
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

MOST_FEATURES = 1000  # a step solves a dense system of their number


@dataclass(frozen=True)
class ALPQA(TabularPrimalDual):
    """Settings of AL-PQA, for tabular and log-linear policies and a generative model.

    Parameters
    ----------
    outer, rollouts, pairs, eta, zeta, c_eta, c_zeta, lambda_max
        As of `ReLOAD`.
    sweeps : int
        n, evaluations of the policy and steps of it in an outer step.

    Raises
    ------
    SettingError
        A value out of range; a policy that is neither tabular nor log-linear, or one of more than 1,000 features.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.ALPQA(outer=20))
    >>> result.finished
    True
    """

    sweeps: int = 20

    name: ClassVar[str] = "al-pqa"
    tabular_only: ClassVar[bool] = False
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
    def check_policy(cls, policy: BoundPolicy) -> None:
        """Raise a SettingError unless the policy is tabular or log-linear, with few features."""
        if math.isnan(policy.mean_bound):
            raise SettingError(
                f"{cls.name} takes tabular and log-linear policies: give TabularSoftmax() or LogLinear(..)"
            )
        if not isinstance(policy.data, Tabular) and policy.n_parameters > MOST_FEATURES:
            raise SettingError(
                f"{cls.name} solves systems of the number of features, {policy.n_parameters:,}: give up to "
                f"{MOST_FEATURES:,}, or TabularSoftmax()"
            )

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

    def run(self, world: World, seed: int, replicates: int) -> TabularRun:
        """Set up replicates that have not moved yet."""
        kind = TabularRun if isinstance(world.policy.data, Tabular) else FittedRun
        return kind(self, world, seed, replicates)


class FittedRun(TabularRun):
    """Replicates with log-linear policies."""

    def own_rule(self) -> FittedAscent:
        """The policy's step within the class."""
        return FittedAscent(self.world.policy.data)

    @property
    def n_draws(self) -> float:
        """Every state is drawn from, or evaluated, in each sweep."""
        return math.inf

    def work(self) -> tabular.Work:
        """Work space for one thread."""
        n, d = self.world.table.n_choices, self.world.policy.n_parameters
        return (
            super()
            .work()
            ._replace(
                moved=np.zeros(d),
                tally=Tally(start=self.steps.start, chance=np.zeros(n), visit=np.zeros(n)),
                own=FitSpace(
                    goal=np.zeros(n),
                    trial=np.zeros(n),
                    weight=np.zeros(self.world.table.n_states),
                    nearness=np.zeros((d, d)),
                    metric=np.zeros((d, d)),
                    factor=np.zeros((d, d)),
                    right=np.zeros(d),
                    row=np.zeros(d),
                    pair=np.arange(n),
                    scores=self.scores(n),
                ),
            )
        )
