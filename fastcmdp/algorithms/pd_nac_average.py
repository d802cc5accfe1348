"""PD-NAC for the average reward: primal-dual natural actor-critic with multi-level Monte Carlo.

Xu, Ganesh, Mondal, Bai, Aggarwal (NeurIPS 2025). For k = 0..K-1, J_f the average of signal f, eta_f its estimate and
zeta_f . phi(s) that of the differential value,

    critics, H times:      eta_f  -= c_pace rate (eta_f - f(s, a)),                                           (1)
                           zeta_f -= rate phi(s) [eta_f - f(s, a) + zeta_f . (phi(s) - phi(s'))]
    direction, H times:    omega  -= natural g [g . omega - A],   g = grad log pi_k(a|s),  omega_0 = 0,       (2)
                           A = sum_f (1, lambda)_f (f(s, a) - eta_f + zeta_f . (phi(s') - phi(s)))
    theta += alpha omega,   lambda_i = clip(lambda_i - beta eta_ci, 0, B)                                     (3)

where every bracket times its vector is an estimate by multi-level Monte Carlo on one running chain: Q geometric with
P(Q = q) = 2^-q, v = v^0 + 1{2^Q <= T_max} 2^Q (v^Q - v^{Q-1}), v^j the mean over the first 2^j transitions. The output
is the mixture over pi_0..pi_{K-1}, alpha and beta ~ K^(-1/2), H ~ log K: gap and violation are O~(T^-1/2) in the
transitions T where the mixing time is known.

Provenance. Equation (3), the exponents and the rate are the source's (certain); (1), (2) and the form of the estimate
are recalled. B = 2 / Slater value is the source's. The scales in front of the powers are not known:

    alpha = 30 c_alpha / (sqrt(K) (N_r + sum_i lambda_i N_i)),   rate = 0.1 c_rate / B_phi,
    beta_i = 3 c_dual N_r / (sqrt(K) N_i M_i),                    natural = 0.2 c_natural / G^2,   c_pace = 0.1 B_phi

are this project's, found by search. N_f is the root mean square of the critic's errors on signal f lately, M_i the
largest size of eta_ci so far; both are of earlier outer steps. N_i stands for N_r where the reward is constant: it
has no errors. B_phi is the largest squared norm of phi, G^2 that of a score. phi(s) is the mean of the policy's own
features over actions.

What is derived here, and differs:

- *Which average.* The chain follows gamma P + (1-gamma) rho by default, whose averages are (1-gamma) J of the
  discounted model, for every policy. Under ``criterion="average"`` these are the averages of the given model
  (docs/average.md). ``restart=False`` runs P itself: the plain average of the rows.
- *T_max is bounded*: a longer one makes rare steps that are larger. The chain runs on between trajectories, so that
  these begin near the stationary law of a policy that moves slowly, and what is left to the levels is little.
- *Critics are carried over* from one outer step to the next by default; the source's start anew (recalled).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fastcmdp.algorithms.base import (
    Algorithm,
    Run,
    check_constants,
    check_words,
    dual_cap,
    per_constraint,
    relative_target,
    whole,
)
from fastcmdp.check import require
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.kernels.algorithm import pd_nac_average as kernel
from fastcmdp.policies import BoundPolicy
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

ALPHA, BETA, RATE, PACE, NATURAL = 30.0, 3.0, 0.1, 0.1, 0.2  # docs/algorithms.md


@dataclass(frozen=True)
class PDNACAverage(Algorithm):
    """Settings of PD-NAC for the average reward, for tabular and log-linear policies.

    Parameters
    ----------
    outer, inner : int
        K outer steps of H steps of the critics and H of the direction; both at least 1.
    longest : int
        T_max, a power of two: the most transitions that one estimate takes; log2 T_max in the mean.
    alpha, beta : float or None
        Steps of theta and of the multipliers (beta: one, or one a constraint). Kernel units. None: as the module says.
    c_alpha, c_dual, c_rate, c_natural : float
        Factors on the steps of theta, of the multipliers, of the critics and of the direction.
    lambda_max : float, sequence or None
        Cap of the multipliers, one or one a constraint, in the user's units. None: 2 / Slater value where that is
        known, else no cap.
    restart : bool
        Restart the chain with probability 1-gamma a step, or let it run: see the module's text.
    carry_over : bool
        Whether critics start from those of the last outer step; else from 0.

    Raises
    ------
    SettingError
        A value out of range; a policy that is neither tabular nor log-linear.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> cmdp = fc.envs.garnet(n_states=5).with_criterion("average", limits=[0.4])
    >>> result = fc.solve(cmdp, fc.PDNACAverage(outer=20), optimum=False)
    >>> result.finished
    True
    """

    outer: int = 10_000
    inner: int = 25
    longest: int = 16
    alpha: float | None = None
    beta: float | Sequence[float] | None = None
    c_alpha: float = 1.0
    c_dual: float = 1.0
    c_rate: float = 1.0
    c_natural: float = 1.0
    lambda_max: float | Sequence[float] | None = None
    restart: bool = True
    carry_over: bool = True

    name: ClassVar[str] = "pd-nac-average"
    simulation: ClassVar[Literal["rollouts", "corrected", "chains", ""]] = "chains"
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_alpha": (0.1, 10.0),
        "c_dual": (0.1, 10.0),
        "c_rate": (0.1, 5.0),
        "c_natural": (0.1, 5.0),
    }

    def __post_init__(self) -> None:
        self.check(
            {"outer": 1, "inner": 1, "longest": 1},
            ("c_alpha", "c_dual", "c_rate", "c_natural"),
            ("alpha",),
            ("beta", "lambda_max"),
        )
        holds = self.longest & (self.longest - 1) == 0 and self.longest <= 1 << 20
        require(holds, "longest", self.longest, "a power of two up to 2^20")
        check_words(self, {"restart": (True, False), "carry_over": (True, False)})

    def outer_samples(self, cmdp: CMDP | Simulator) -> float:
        """2 H trajectories of log2 T_max + 1/T_max transitions in the mean."""
        return 2.0 * self.inner * (math.log2(self.longest) + 1.0 / self.longest)

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = 1.0, c_H: float = 2.0, **settings: Any
    ) -> Self:
        """Settings for a target gap and violation ``epsilon`` in kernel units: K = c_K / e^2, H = c_H log(1 + K).

        e = (1-gamma) epsilon, the target for averages.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> fc.PDNACAverage.for_epsilon(fc.envs.garnet(gamma=0.9), 0.1).outer
        10000
        """
        check_constants(c_K=c_K, c_H=c_H)
        outer = whole(c_K / relative_target(cmdp, epsilon) ** 2)
        return cls(**({"outer": outer, "inner": whole(c_H * math.log1p(outer))} | settings))

    @classmethod
    def check_policy(cls, policy: BoundPolicy) -> None:
        """Raise a SettingError unless the policy is tabular or log-linear."""
        if math.isnan(policy.mean_bound):
            raise SettingError(
                f"{cls.name} has critics linear in fixed features: give TabularSoftmax() or LogLinear(...), or choose "
                "a method for general policies"
            )

    def run(self, world: World, seed: int, replicates: int) -> PDNACAverageRun:
        """Set up replicates that have not moved yet."""
        return PDNACAverageRun(self, world, seed, replicates)


class PDNACAverageRun(Run):
    """Replicates under way."""

    def __init__(self, settings: PDNACAverage, world: World, seed: int, replicates: int) -> None:
        super().__init__(settings, world)
        m, policy = world.model.n_constraints, world.policy
        slow, rate = settings.outer**-0.5, RATE * settings.c_rate
        step = BETA * settings.c_dual * slow if settings.beta is None else settings.beta
        self.steps = kernel.Steps(
            longest=settings.longest,
            alpha=settings.alpha or ALPHA * settings.c_alpha * slow,
            beta=per_constraint(step, m, "beta"),
            adaptive_alpha=settings.alpha is None,
            adaptive_beta=settings.beta is None,
            rate=rate / policy.mean_bound,
            pace=PACE * rate,
            natural=NATURAL * settings.c_natural / policy.score_bound,
            restart=settings.restart,
            carry_over=settings.carry_over,
            dual_max=dual_cap(world, settings.lambda_max),
        )
        self.state = kernel.RunState(
            **self.common_state(seed, replicates),
            chain=np.tile(np.array([-1, 0, 0]), (replicates, 1)),
            place=np.zeros((replicates, world.n_state)),
            critic=np.zeros((replicates, 1 + m, policy.n_parameters)),
            mean=np.zeros((replicates, 1 + m)),
            square=np.zeros((replicates, 1 + m)),
            largest=np.zeros((replicates, 1 + m)),
        )
        self.set_up_actions()

    @property
    def n_visited(self) -> int:
        """States of a batch, one more than its transitions."""
        return int(self.settings.inner * self.settings.longest + 1)

    def work(self) -> kernel.Work:
        """Work space for one thread."""
        settings, m, d = self.settings, self.world.model.n_constraints, self.world.policy.n_parameters
        n = self.n_visited - 1
        return kernel.Work(
            trail=kernel.Trail(
                length=np.zeros(settings.inner, np.int64),
                pair=np.zeros(n + 1, np.int64),
                signal=np.zeros((n, 1 + m)),
                row=np.zeros((n + 1 if self.world.n_state else 0, d)),
            ),
            scores=self.scores(n),
            error=np.zeros(settings.longest),
            square=np.zeros(1 + m),
            price=np.zeros(1 + m),
            omega=np.zeros(d),
            space=self.row_space(),
        )

    def advance(self, r: int, n_steps: int, work: kernel.Work) -> None:
        """Make up to n_steps outer steps of replicate r."""
        kernel.advance(
            self.world.tables, self.world.policy.data, self.steps, self.state, self.actions[r], work, r,
            n_steps,
        )  # fmt: skip
