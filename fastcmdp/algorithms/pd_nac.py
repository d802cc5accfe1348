"""PD-NAC: primal-dual natural actor-critic in one loop on one trajectory (Zeng, Doan, Romberg, 2022).

With theta = 0, lambda = 0, Q_r = Q_ci = 0 and (s, a) at hand, for k = 0..K-1, all right-hand sides at index k,

    s' ~ P(. | s, a),   a' ~ behaviour(. | s') = epsilon / A + (1 - epsilon) pi_k(. | s')                 (1)
    theta += alpha (Q_r + sum_i lambda_i Q_ci),   all entries                                             (2)
    lambda_i = clip(lambda_i - eta J_i, 0, B),   J_i = sum_{s,a} rho(s) pi_k(a|s) Q_ci(s, a)              (3)
    Q_f(s, a) += beta [f(s, a) + gamma Q_f(s', a') - Q_f(s, a)]   for f in r, c_1..c_m                    (4)

and (s, a) = (s', a'). The output is the mixture over pi_0..pi_{K-1}, of pi and not of the behaviour policy. Constant
steps alpha, eta ~ K^(-5/6), beta ~ K^(-1/2), epsilon ~ K^(-1/6) make the error fall like K^(-1/6): K ~ eps^-6 samples.

Provenance. The setting and the rate are the abstract's (certain); the recursion and the exponents are recalled, and
consistent: 1/(alpha K), 1/(eta K), epsilon, beta/epsilon under the root and alpha/(beta epsilon) all are K^(-1/6)
(derived). B = 2/((1-gamma) c_slater) up to a constant is recalled. The scales in front of the powers are not known:

    alpha_k = 9 c_alpha K^(-5/6) / sqrt(N_k),   eta = 200 c_dual (1-gamma) K^(-5/6),
    beta = min(1, 15 c_beta sqrt(C / K)),   epsilon = min(1, 0.3 c_explore K^(-1/6))

are this project's, found by search on three models of ``fastcmdp.envs``; C is the number of choices, since a critic
sees one transition in about C. N_k is the mean, over the looks before k (below), of the variance of Q_r + lambda . Q_c
over the actions of the state where the chain stood, evenly weighted. It is since the start and forgets nothing, for
critics remember: a level that forgot sooner than they do would be high just while they hold what is rare.

What is derived here, and differs:

- *Restarts.* The source asks for an ergodic chain. Models with absorbing states have none, so by default the chain
  follows gamma P + (1-gamma) rho: after each transition, with probability 1-gamma, the next pair is drawn from rho and
  the behaviour policy. (4) uses the true (s', a') either way. ``restart=False`` runs the plain chain.
- *J by a look.* The sum in (3) over the start distribution costs as much as its support at every step. By default it is
  estimated: with probability 1-gamma a step, at the state s_0 ~ rho of a restart, by sum_a pi_k(a|s_0) Q_ci(s_0, a)
  / (1-gamma), whose expectation is the sum; all other steps leave lambda. ``dual_estimate="sum"`` is (3) itself.
- *First visits.* Where beta is not given, the nth visit of a choice takes a rate of at least 1/n, so that critics do
  not stay near the 0 where they begin while the policy learns to leave what they do not know yet.
- The estimates of J in ``sums`` are these plug-in ones: biased, for critics lag and follow the behaviour policy.
- Rows of theta are shifted alike by Q, which softmax does not see; they are not centred, since they stay small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

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
from fastcmdp.kernels.algorithm import pd_nac
from fastcmdp.kernels.policy.softmax import refresh_all
from fastcmdp.kernels.sampling.tables import Actions
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

ALPHA, ETA, BETA, EXPLORE = 9.0, 200.0, 15.0, 0.3  # docs/algorithms.md
LARGEST = 1e250  # no logit may come near the end of the numbers


@dataclass(frozen=True)
class PDNAC(Algorithm):
    """Settings of PD-NAC, for the tabular softmax policy; one outer step is one transition.

    Parameters
    ----------
    outer : int
        K, at least 1: transitions.
    alpha, eta, beta, explore : float or None
        Steps of theta, of the multipliers (eta: one, or one a constraint) and of the critics, beta <= 1; probability
        <= 1 to explore. Kernel units. None: the module's powers of K; with alpha measured, beta from first visits on.
    c_alpha, c_dual, c_beta, c_explore : float
        Factors on those.
    lambda_max : float, sequence or None
        Cap of the multipliers, one or one a constraint, in the user's units. None: 2 / ((1-gamma) c_slater) where the
        Slater value is known, else no cap.
    restart : bool
        Restart the chain with probability 1-gamma a step, or let it run.
    dual_estimate : "sample" or "sum"
        J for the dual step at a start state now and then, or the sum over all start states at every step.

    Raises
    ------
    SettingError
        A value out of range; a policy other than the tabular softmax.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.PDNAC(outer=10_000))
    >>> result.samples.tolist()
    [10000]
    """

    outer: int = 1_000_000
    alpha: float | None = None
    eta: float | Sequence[float] | None = None
    beta: float | None = None
    explore: float | None = None
    c_alpha: float = 1.0
    c_dual: float = 1.0
    c_beta: float = 1.0
    c_explore: float = 1.0
    lambda_max: float | Sequence[float] | None = None
    restart: bool = True
    dual_estimate: Literal["sample", "sum"] = "sample"

    name: ClassVar[str] = "pd-nac"
    tabular_only: ClassVar[bool] = True
    version: ClassVar[int] = 2
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_alpha": (0.1, 10.0),
        "c_dual": (0.1, 10.0),
        "c_beta": (0.1, 10.0),
        "c_explore": (0.1, 3.0),
    }

    def __post_init__(self) -> None:
        self.check(
            {"outer": 1},
            ("c_alpha", "c_dual", "c_beta", "c_explore"),
            ("alpha", "beta", "explore"),
            ("eta", "lambda_max"),
        )
        for name in ("beta", "explore"):
            value = getattr(self, name)
            require(value is None or value <= 1.0, name, value, "a number above 0 and up to 1")
        check_words(self, {"restart": (True, False), "dual_estimate": ("sample", "sum")})

    def outer_samples(self, cmdp: CMDP | Simulator) -> float:
        """One transition."""
        return 1.0

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = 1.0, **settings: Any
    ) -> Self:
        """Settings for a target gap and violation ``epsilon`` in kernel units: K = c_K / ((1-gamma) epsilon)^6.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> fc.PDNAC.for_epsilon(fc.envs.garnet(gamma=0.9), 1.0).outer
        1000000
        """
        check_constants(c_K=c_K)
        return cls(**({"outer": whole(c_K / relative_target(cmdp, epsilon) ** 6)} | settings))

    def run(self, world: World, seed: int, replicates: int) -> PDNACRun:
        """Set up replicates that have not moved yet."""
        return PDNACRun(self, world, seed, replicates)


class PDNACRun(Run):
    """Replicates of PD-NAC under way."""

    def __init__(self, settings: PDNAC, world: World, seed: int, replicates: int) -> None:
        super().__init__(settings, world)
        cmdp, m = world.table, world.table.n_constraints
        k, unit, width = float(settings.outer), 1.0 - cmdp.gamma, max(2, 1 + m)
        slow, adaptive = k ** (-5 / 6), settings.alpha is None
        self.steps = pd_nac.Steps(
            n_outer=settings.outer,
            alpha=ALPHA * settings.c_alpha * slow if settings.alpha is None else settings.alpha,
            adaptive=adaptive,
            eta=per_constraint(
                ETA * settings.c_dual * unit * slow if settings.eta is None else settings.eta, m, "eta"
            ),
            beta=settings.beta or min(BETA * settings.c_beta * math.sqrt(cmdp.n_choices / k), 1.0),
            first=float(settings.beta is None),
            explore=settings.explore or min(EXPLORE * settings.c_explore * k ** (-1 / 6), 1.0),
            restart=settings.restart,
            every=settings.dual_estimate == "sum",
            dual_max=dual_cap(world, settings.lambda_max),
        )
        # Critics are averages of the signals, so this bounds every number of the run: no step needs to look.
        with np.errstate(over="ignore"):
            price = 1.0 + np.minimum(self.steps.dual_max, self.steps.eta * k / unit**2).sum()
            reached = {
                "alpha": self.steps.alpha / (pd_nac.LEAST / unit if adaptive else 1.0) * k * price / unit,
                "eta": self.steps.eta.sum() * k / unit**2,
            }
        for name, most in reached.items():
            require(most < LARGEST, name, getattr(settings, name), "steps that leave numbers finite")
        common = self.common_state(seed, replicates)
        self.state = pd_nac.RunState(
            **common,
            drawn=common["theta"].copy(),
            top=np.zeros((replicates, cmdp.n_states)),
            critic=np.zeros((replicates, cmdp.n_choices, width)),
            visits=np.zeros((replicates, cmdp.n_choices), np.int64),
            highest=np.zeros((replicates, width)),
            since=np.zeros((replicates, cmdp.n_states, width)),
            choice=np.full(replicates, -1, np.int64),
            left=np.zeros(replicates, np.int64),
            gone=np.zeros((replicates, width)),
            spread=np.zeros((replicates, 2)),
        )
        self.set_up_actions()

    def drawn(self, r: int) -> NDArray[np.float64]:
        """The logits that entries were made of, which lag behind theta."""
        drawn: NDArray[np.float64] = self.state.drawn[r]
        return drawn

    def policies(self) -> NDArray[np.float64]:
        """Action probabilities of all replicates, float64[R, C], with every row brought up to date."""
        world = self.world
        prob: NDArray[np.float64] = np.empty_like(self.state.theta)
        logits = np.empty(world.table.n_choices)
        entry = np.empty_like(self.actions[0].entry)
        for r in range(len(prob)):
            pd_nac.logits(world.tables, self.state, r, logits)
            refresh_all(world.policy.data, logits, world.tables, Actions(entry, prob[r]), self.row_space())
        return prob

    def work(self) -> pd_nac.Work:
        """Work space for one thread."""
        cmdp = self.world.table
        support = np.flatnonzero(cmdp.start)
        return pd_nac.Work(
            start_state=support,
            start_prob=cmdp.start[support],
            prob=np.zeros(cmdp.widest),
            one=np.zeros(1, np.int64),
            space=self.row_space(),
        )

    def advance(self, r: int, n_steps: int, work: pd_nac.Work) -> None:
        """Make n_steps steps of replicate r."""
        pd_nac.advance(
            self.world.policy.data, self.world.tables, self.actions[r], self.steps, self.state, work, r,
            n_steps,
        )  # fmt: skip
