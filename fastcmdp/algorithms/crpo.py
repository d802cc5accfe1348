"""CRPO: constraint-rectified policy optimisation, with function approximation (Xu, Liang, Lan 2021).

No multipliers. With theta_0 the policy's initial parameters and N_0 empty, for t = 0..T-1, from K_in transitions,

    W_f       = mean of the iterates of projected TD towards Q_f of pi_t, for f = r, c_1 .. c_m on the same transitions
    J_i       = sum over s ~ rho, a ~ pi_t of Q_ci(s, a; W_ci)                       (no transitions of its own)
    if all J_i >= -tol_i:   t joins N_0,   theta_{t+1} = theta_t + alpha / (1-gamma) W_r
    else:                   theta_{t+1} = theta_t + alpha / (1-gamma) W_ci,   i uniform among the violated

The output is pi_t, t uniform in N_0: the policy *before* the step. Where N_0 stays empty, a result says so
(``Result.empty``) and takes the evaluated policy that met the limits best.

What is certain: the switch, N_0, the actor's step. Recalled: the TD of the neural version (projection onto a ball
around W_0, mean of the iterates, rates). Derived here: chains with restarts (``kernels/sampling/chains.py``); sixteen
of them for one critic, on simulators one (``kernels/simulator/walks.py``); the critic starts from the last one; J_i is
the whole sum over rho where the support of rho has up to 1,024 states, else over that many states drawn from it, where
the original averages over pairs (on simulators over K_in / 4 starts, at most 1,024); and the measured rates. Estimates
of J over N_0 (``state.sums``) come from the transitions that put t into N_0, so they are optimistic about limits
(``docs/simulators.md``).

Learning rates. alpha and tol of the theorem are of the order T^(-1/2) with constants for the worst case. Left out, they
keep that order and take the constants from the critic: with N_f the level of E_nu[(Q_f - V_f)^2],

    alpha / (1-gamma) = c_alpha sqrt(2 log A / (T N_f)),    tol_i = c_tol sqrt(2 log A N_ci / T) / (1-gamma).

The first minimises the mirror-descent bound log A / (h T) + h N / 2, and that bound, over 1-gamma, is the unit of the
second. A level is the larger of a recent and an overall mean over the outer steps before t, and a step longer than
all before it is cut to the longest of them (``kernels/learning/levels.py``); the first outer step only measures. With
N <= 1/(1-gamma)^2 and c_tol = 2 this is the tolerance for which N_0 cannot be empty and mean gap and violation over N_0
are at most tol, if critics are exact (derived; ``docs/algorithms.md``).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.base import (
    Algorithm,
    Output,
    Run,
    check_constants,
    check_words,
    per_constraint,
    relative_target,
    whole,
)
from fastcmdp.check import is_finite, require
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm import crpo
from fastcmdp.kernels.learning.critics import Gradients
from fastcmdp.kernels.learning.td import Averaged, Decaying
from fastcmdp.kernels.streams import LANES
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

MOST_PAIRS = 64  # of law nu an outer step, from which the level of the advantages is measured
# Bytes of gradients of a network that are kept, or so many rows, but no more than _MOST bytes.
_GRADIENTS, _ROWS, _MOST = 2**22, 2 * LANES, 2**28
# Root mean square of 1 - w . phi for the best w, above which features are said to hold no constant.
_CONSTANT = 0.05
MOST_STARTS = 1024  # up to here J sums over the support of rho, beyond over as many states drawn from it


@dataclass(frozen=True)
class Rectified(Algorithm):
    """Settings that CRPO's two forms share, as they describe them."""

    outer: int = 1000
    inner: int = 1000
    alpha: float | None = None
    tol: float | Sequence[float] | None = None
    c_alpha: float = 1.0
    c_tol: float = 0.3

    output: ClassVar[Output] = Output(some=True)

    def __post_init__(self) -> None:
        self.check({"outer": 1, "inner": 1}, ("c_alpha", "c_tol"), ("alpha",))
        holds = self.tol is None or (is_finite(self.tol) and bool((np.asarray(self.tol) >= 0).all()))
        require(holds, "tol", self.tol, "a number of at least 0, or one a constraint,")

    def outer_samples(self, cmdp: CMDP | Simulator) -> float:
        """Transitions of one outer step: K_in."""
        return float(self.inner)


@dataclass(frozen=True)
class CRPO(Rectified):
    """Settings of CRPO with function approximation.

    The critic has the features of the policy class. For ``ReluSoftmax`` this is the neural CRPO: actor and critics are
    networks of one shape, and a step adds the critic's weights to the actor's. For ``LogLinear`` (and
    ``TabularSoftmax``, one-hot features) it is a *log-linear stand-in*: Q = W . phi with the policy's features, so
    that adding W is the natural gradient with a compatible critic. For ``NeuralSoftmax`` the same holds to first order:
    Q = W . grad_theta z(s, a; theta_t), z the logit (``kernels/learning/critics.py``). The stand-ins are this
    project's, not the paper's.

    On a simulator the critic walks one chain with restarts; log-linear and neural policies are as above. Features of
    ``LogLinear`` must hold a constant there, else a warning says so: see ``docs/simulators.md``.

    Parameters
    ----------
    outer, inner : int
        T outer steps of K_in transitions each; both at least 1.
    alpha : float or None
        The actor adds alpha / (1-gamma) W, in kernel units. None: measured along the run, see the module's text.
    tol : float, sequence or None
        By how much an estimate of J may miss its limit for a step on the reward: one number, or one a constraint, in
        the user's units, at least 0. None: measured along the run.
    c_alpha, c_tol : float
        Factors on the measured alpha and tol.
    rate : float or None
        Step l of TD. None: c_step / (2 B), B the largest squared norm of a critic's gradient. For networks, and on
        simulators, B is measured at the start (theta_0, the trial run), and updates from longer gradients are
        shortened in proportion.
    c_step : float
        Factor on the default of ``rate``.
    radius : float or None
        Critics stay within this distance of W_0, kernel units. None: 2 sqrt(n / B) / (1-gamma), n the number of
        choices, which no one-hot critic reaches; n the number of actions for ``NeuralSoftmax``. For ``LogLinear`` on
        simulators, n / B is the sum of 1 / x^2 over parameters, x the largest value of its feature in the trial run.
    carry_over : bool
        Whether critics start from those of the last outer step; else from W_0, each time.

    Raises
    ------
    SettingError
        A value out of range.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.CRPO(outer=50, inner=500))
    >>> result.finished, bool(result.empty[0])
    (True, False)
    """

    rate: float | None = None
    c_step: float = 1.0
    radius: float | None = None
    carry_over: bool = True

    name: ClassVar[str] = "crpo"
    version: ClassVar[int] = 2
    simulation: ClassVar[Literal["rollouts", "corrected", "chains", ""]] = "chains"
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_in": (5e-6, 5e-4),
        "c_alpha": (0.2, 5.0),
        "c_tol": (0.03, 3.0),
        "c_step": (0.1, 1.6),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(positive=("c_step",), optional=("rate", "radius"))
        check_words(self, {"carry_over": (True, False)})

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_T: float = 1.0, c_in: float = 5e-5, **settings: Any
    ) -> Self:
        """Settings for a target gap and violation ``epsilon``: T = c_T / e^2 and K_in = c_in C / e^4.

        e = (1-gamma) epsilon, C the number of choices (of actions, for simulators). The exponents are those of the
        neural CRPO (eps^-6 in all), whose width is a parameter of the policy class here.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> cmdp = fc.envs.garnet(gamma=0.9)
        >>> coarse, fine = (fc.CRPO.for_epsilon(cmdp, e) for e in (0.4, 0.2))
        >>> fine.outer / coarse.outer, round(fine.inner / coarse.inner)
        (4.0, 16)
        """
        steps = scheduled(cmdp, epsilon, c_T, c_in, 4.0)
        return cls(**(steps | settings))

    def run(self, world: World, seed: int, replicates: int) -> CRPORun:
        """Set up replicates that have not moved yet."""
        bound = world.policy.critic_bound
        if world.policy.constant_gap > _CONSTANT:
            warnings.warn(
                f"{world.model!r}: no combination of its features is constant (the best is off by "
                f"{world.policy.constant_gap:.2g} of 1 in the trial run), so that critics misjudge J and CRPO can miss "
                "limits unnoticed; let the features hold a 1, such as out[0] = 1.0, or take policy=NeuralSoftmax()",
                RuntimeWarning,
                stacklevel=2,
            )
        horizon = 1.0 / (1.0 - world.model.gamma)
        radius = 2.0 * math.sqrt(world.policy.reach) * horizon
        rule = Averaged(self.rate or self.c_step / (2.0 * bound), self.radius or radius)
        return CRPORun(self, world, seed, replicates, rule)


def scheduled(
    cmdp: CMDP | Simulator, epsilon: float, c_T: float, c_in: float, power: float
) -> dict[str, int]:
    """Outer and inner steps: c_T / e^2 and c_in C / e^power, e = (1-gamma) epsilon."""
    e = relative_target(cmdp, epsilon)
    check_constants(c_T=c_T, c_in=c_in)
    return {"outer": whole(c_T / e**2), "inner": whole(c_in * cmdp.n_choices / e**power)}


class CRPORun(Run):
    """Replicates of CRPO under way, with function approximation or tabular: ``rule`` says how critics learn."""

    def __init__(
        self, settings: Any, world: World, seed: int, replicates: int, rule: Averaged | Decaying
    ) -> None:
        super().__init__(settings, world)
        cmdp, policy, m = world.model, world.policy, world.model.n_constraints
        horizon = 1.0 / (1.0 - cmdp.gamma)
        unit = math.sqrt(2.0 * math.log(max(cmdp.widest, 2)))
        tol = np.full(m, settings.c_tol * unit * horizon)
        if settings.tol is not None:
            tol = per_constraint(settings.tol, m, "tol") / cmdp.constraint_scale
        origin = np.zeros(policy.n_parameters)
        if policy.initial is not None and not policy.tangents:
            origin += policy.initial
        start = world.start
        support = np.flatnonzero(start)
        n_draws = MOST_STARTS if len(support) > MOST_STARTS else 0
        if start.size == 0:
            n_draws = min(MOST_STARTS, max(settings.inner // 4, 1))
        self.steps = crpo.Steps(
            n_outer=settings.outer,
            n_inner=settings.inner,
            gamma=float(cmdp.gamma),
            rule=rule,
            step=float(settings.c_alpha * unit if settings.alpha is None else settings.alpha * horizon),
            tol=tol,
            adaptive_step=settings.alpha is None,
            adaptive_tol=settings.tol is None,
            carry_over=settings.carry_over,
            origin=origin,
            start_state=support.astype(np.int64),
            start_prob=np.array(start[support], np.float64),
            start_sum=np.cumsum(start[support]),
            n_start_draws=n_draws,
        )
        self.state = crpo.RunState(
            **self.common_state(seed, replicates),
            kept=np.zeros(replicates, np.int64),
            chain=np.zeros((replicates, 2, LANES), np.int64),
            visits=np.zeros(
                (replicates, world.model.n_choices if isinstance(rule, Decaying) else 0), np.int64
            ),
            place=np.zeros((replicates, world.n_state)),
            critic=np.tile(self.steps.origin, (replicates, 1 + m)),
            recent=np.zeros((replicates, 1 + m)),
            average=np.zeros((replicates, 1 + m)),
            longest=np.zeros((replicates, 1 + m)),
        )
        self.state.dual[:] = self.state.sums[:, 1 + m :] = np.nan  # no multipliers
        self.set_up_actions()

    @property
    def n_visited(self) -> int:
        """Visited states of a simulator that are kept at most, at a time."""
        return MOST_PAIRS

    def kept(self) -> NDArray[np.int64]:
        """Size of N_0 so far, int64[R]."""
        kept: NDArray[np.int64] = self.state.kept.copy()
        return kept

    def work(self) -> crpo.Work:
        """Work space for one thread."""
        m, policy = self.world.model.n_constraints, self.world.policy
        d, rows = policy.n_parameters, 0
        if self.world.n_gradients:
            size = 8 * (d + 1)
            most = max(_GRADIENTS // size, min(_ROWS, _MOST // size), 1)
            rows = min(self.world.n_gradients, most)
        return crpo.Work(
            mean=np.zeros((1 + m) * d),
            total=np.zeros(1 + m),
            value=np.zeros(1 + m),
            square=np.zeros(1 + m),
            violated=np.zeros(m, np.int64),
            level=np.zeros(1 + m),
            pair=np.zeros(min(self.settings.inner, MOST_PAIRS), np.int64),
            gradients=Gradients(
                np.full(rows + 1, -1), np.zeros((rows + 1) * (d + 1) if rows else 0), policy.critic_bound
            ),
            space=self.row_space(),
        )

    def advance(self, r: int, n_steps: int, work: crpo.Work) -> None:
        """Make up to n_steps outer steps of replicate r."""
        crpo.advance(
            self.world.tables, self.world.policy.data, self.steps, self.state, self.actions[r], work, r,
            n_steps,
        )  # fmt: skip
