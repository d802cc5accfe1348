"""PD-ANPG-CV: PD-ANPG whose rollouts are corrected by what earlier ones have learned.

Signals f = r, c_1 .. c_m in kernel units; W_f(s, a) a critic and Wbar_f(s) = sum_a pi_k(a|s) W_f(s, a), all zero at
the start, as theta, lambda and the measurements are. For k = 0..K-1, with pi_k = pi_theta_k,

    C_f        = sum_{j<=T} [f(s_j, a_j) + gamma Wbar_f(s_{j+1}) - W_f(s_j, a_j)] on a rollout, T ~ Geo(1-gamma)   (1)
    J_f        = sum_s rho(s) Wbar_f(s) + mean of C_f over H rollouts from (s_0, a_0) ~ rho pi_k,
                 which end at (s_h, a_h) ~ nu
    A_f,h      = W_f(s_h, a_h) - Wbar_f(s_h) + C_f of a rollout from (s_h, a_h)
    eta        = min(c_eta, 30 / sqrt(k)) / sigma,      sigma^2 = (1, lambda_mean) . Sigma (1, lambda_mean)       (2)
    lambda     = argmin over l >= 0 of l . M l / 2 + g . l                                                        (3)
    omega      = tail average of H steps of ASGD towards E[(g_h . omega - A_r,h - sum_i lambda_i A_ci,h)^2],
                 from x_0 = v_0 = w_r + sum_i lambda_i w_ci                                                       (4)
    theta     += eta omega,  then it is kept in bounds                                                            (5)
    W, w, Sigma, G, J^ from this batch and H/2 exploring rollouts, for the next outer step                        (6)

The first outer step only measures. The output is the mixture over pi_0..pi_{K-1}; ``last_quarter`` leaves its burn-in
out. K enters nothing else: a run of more outer steps begins with the same ones.

(3) With G_fg = E_nu E_pi[d_f d_g], d_f = g . w_f what logits move by along w_f, a step eta omega changes J_ci by
eta/(1-gamma) (G_0i + sum_j lambda_j G_ij) to first order. lambda is that for which this undoes the share 0.1 c_dual
eta sigma of each violation, at least where lambda_i = 0: M_ij = G_ij + 1{i=j} d_i, g_i = G_0i + 0.1 c_dual sigma
(1-gamma) J^_ci - d_i lambda_i^old. The proximal d_i = 0.05 Sigma_ii moves no fixed point, which is a stationary
policy with J_c = 0, or with lambda = 0 and J_c > 0, and bounds the gain where the policy hardly reacts. lambda_i is
at most 100 sqrt(Sigma_00 / Sigma_ii), and 0 where no action acts on constraint i.

(4), (5) Tabular softmax: w_f = W_f - Wbar_f, in every state; then theta(s, .) -= max_a theta(s, a), theta = max(theta,
-15 - log x), where x >= 1 is how many times as far off as "far" a constraint's advantage is (``PDANPGCVRun._far``); far
also bounds what enters G and Sigma. Other policies: weights with g . w_f near W_f - Wbar_f on visited states
(``kernels/learning/compatible.py``); then theta -= min(2/k, 1) (theta - theta_0), which holds their logits as a mean
of directions would.

(2), (4), (6) Sigma: E_nu of the covariances of W_f over uniform actions; J^: the critic's J plus the mean of C_f.
These, G and lambda_mean are means that forget 0.03 an outer step. sigma^2 is at least 0.01 of what it were if the
signals were uncorrelated. ASGD's xi and delta are 0.3 min(1, sigma / e) of Lemma 6's for kappa = 20, e^2 the level of
its first errors' squares: those of a larger G^2, and little where the targets are noise.

W on tables, for every policy class: by counts, backwards over all transitions of the batch (``counts.py``); an action
that was never tried has the mean of W over those that were. On simulators: linear in the features and their products,
by least squares (``least_squares.py``); the critic's J is the mean of Wbar over the batch's starts. Exploring rollouts
feed W alone. On tables they begin with the choices that were tried least in all states which the batch's occupancy
rollouts visited, each once; on simulators in the states s_h with a uniform action. Later each action is uniform with
probability 1/2.

What is the paper's: pi_k, T, nu, ASGD and the form of its steps (Lemma 6), the tail average, the mixture. What is
proved: E[C_f | s_0, a_0] = Q_f - W_f for every W that is fixed before the batch (``kernels/sampling/corrected.py``),
so that J_f and A_f are unbiased given the past, and omega estimates the same natural gradient; W, w, lambda, eta and
the steps of ASGD are functions of earlier batches alone. ASGD from x_0 = v_0 is covered by the paper's analysis with
|x_0 - omega*| in place of |omega*|; in place of V(s_h), the third rollout of Algorithm 1, stands Wbar(s_h), since a
baseline of the state changes no gradient. What is derived here to first order: (3). What is heuristic: (2), the
constants, the bounds of (5), how w is learned and what is explored; no theorem covers this rule for lambda.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.base import (
    Algorithm,
    Run,
    check_constants,
    check_samples,
    relative_target,
    whole,
)
from fastcmdp.algorithms.critic import critic_of
from fastcmdp.algorithms.pd_anpg import PDANPG
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm import pd_anpg_cv
from fastcmdp.kernels.learning import asgd
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.kernels.vectors import on_line
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

C_K = 1.0  # outer steps for a relative target of 1
_DUAL = 0.1  # share of a violation that a step of the logits by one standard deviation is to undo
_FAR = 10.0  # times the largest c_i / (1-gamma): see PDANPGCVRun._far
_DRAWN = 2.0  # transitions a choice in an outer step of a large model
_LEAST_OUTER = 2000  # outer steps that are not given up for that


@dataclass(frozen=True)
class PDANPGCV(Algorithm):
    """Settings of PD-ANPG-CV, for every policy class, on models with a table and on simulators.

    Parameters
    ----------
    outer, inner : int
        K outer steps of H pairs; both at least 1. An outer step draws 2 H + floor(H/2) rollouts of mean length
        1 / (1 - gamma). Many outer steps of few pairs do best: the critic remembers.
    c_eta : float
        Length of a step of the logits, in standard deviations of the critic over actions.
    c_dual : float
        Factor on the share of a violation, a tenth for a step of length 1, that an outer step is to undo.

    Raises
    ------
    SettingError
        A value out of range.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.PDANPGCV(outer=500))
    >>> result.finished, bool(abs(result.last_quarter.gap[0]) < 0.5)
    (True, True)
    """

    outer: int = 5000
    inner: int = 15
    c_eta: float = 1.0
    c_dual: float = 1.0

    name: ClassVar[str] = "pd-anpg-cv"
    version: ClassVar[int] = 2
    simulation: ClassVar[Literal["rollouts", "corrected", "chains", ""]] = "corrected"
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {"c_eta": (0.2, 5.0), "c_dual": (0.2, 5.0)}

    def __post_init__(self) -> None:
        self.check({"outer": 1, "inner": 1}, ("c_eta", "c_dual"))

    @property
    def n_rollouts(self) -> int:
        """Rollouts of an outer step."""
        return 2 * self.inner + self.inner // 2

    def outer_samples(self, cmdp: CMDP | Simulator) -> float:
        """Expected transitions of one outer step: 2 H + floor(H/2) rollouts of mean length 1/(1-gamma)."""
        return self.n_rollouts / (1.0 - cmdp.gamma)

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_K: float = C_K, **settings: Any
    ) -> Self:
        """Settings for a target gap and violation ``epsilon``: K = c_K / e^2, e = (1-gamma) epsilon.

        The order is Theorem 1's, up to H, which stays: the critic carries on what H steps leave. c_K is measured.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> fc.PDANPGCV.for_epsilon(fc.envs.garnet(gamma=0.9), 0.1).outer
        10000
        """
        check_constants(c_K=c_K)
        e = relative_target(cmdp, epsilon)
        return cls(**({"outer": whole(c_K / e**2)} | settings))

    @classmethod
    def for_samples(
        cls, cmdp: CMDP | Simulator, samples: float, *, c_K: float = C_K, **settings: Any
    ) -> Self:
        """Settings whose run is expected to draw ``samples`` transitions: K makes up the number.

        H is 15, and more where a model is so large that an outer step, which sees every choice, would take longer than
        its rollouts: transitions of an outer step are then twice the choices, but K at least 2,000.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> cmdp = fc.envs.garnet(gamma=0.9)
        >>> made = fc.PDANPGCV.for_samples(cmdp, 1e6)
        >>> made.inner, round(made.expected_samples(cmdp) / 1e6, 2)
        (15, 1.0)
        """
        check_constants(c_K=c_K)
        check_samples(samples)
        return cls(**({"inner": _pairs(cmdp, samples)} | settings | {"outer": 1})).filled(cmdp, samples)

    @classmethod
    def shortest(cls) -> Self:
        """Settings of a run that is over at once."""
        return cls(outer=2, inner=2)

    def run(self, world: World, seed: int, replicates: int) -> PDANPGCVRun:
        """Set up replicates that have not moved yet."""
        return PDANPGCVRun(self, world, seed, replicates)


def _pairs(cmdp: CMDP | Simulator, samples: float) -> int:
    """H for a budget; see ``PDANPGCV.for_samples``."""
    choices = getattr(cmdp, "n_choices", 0)  # those of a simulator have no numbers
    enough = _DRAWN * choices * (1.0 - cmdp.gamma) / 2.5
    most = samples * (1.0 - cmdp.gamma) / (2.5 * _LEAST_OUTER)
    return max(PDANPGCV.inner, int(min(enough, most)))


class PDANPGCVRun(Run):
    """Replicates of PD-ANPG-CV under way."""

    def __init__(self, settings: PDANPGCV, world: World, seed: int, replicates: int) -> None:
        super().__init__(settings, world)
        self.critic = critic_of(world, settings.inner, settings.n_rollouts)
        m, policy = world.model.n_constraints, world.policy
        n_signals = 1 + m
        self.momentum = PDANPG().momentum(policy.score_bound)
        self.steps = pd_anpg_cv.Steps(
            n_inner=settings.inner,
            n_wanders=settings.inner // 2,
            n_skipped=settings.inner // 2,
            gamma=float(world.model.gamma),
            eta=settings.c_eta,
            dual=_DUAL * settings.c_dual,
            far=self._far(),
            score_bound=float(policy.score_bound),
        )
        own = isinstance(policy.data, Tabular)
        self.state = pd_anpg_cv.RunState(
            **self.common_state(seed, replicates),
            critic=np.zeros((replicates, *self.critic.shape)),
            evidence=np.zeros((replicates, self.critic.n_evidence)),
            dual_mean=np.zeros((replicates, m)),
            gram=np.zeros((replicates, n_signals, n_signals)),
            spread=np.zeros((replicates, n_signals, n_signals)),
            excess=np.zeros((replicates, n_signals)),
            value=np.zeros((replicates, n_signals)),
            noise=np.zeros(replicates),
            direction=np.zeros((replicates, n_signals, 0 if own else policy.n_parameters)),
        )
        self.set_up_actions()

    def _far(self) -> NDArray[np.float64]:
        """From where on advantages count as far, float64[1+m]: none of the reward, and none that limits do not tell of.

        A policy that meets limit i has E_nu[c_i] >= 0, so that x times max c_i / (1-gamma) can be lost once in x
        horizons at most: what costs many times that is avoided, and says nothing of how large other steps should be.
        Simulators do not tell their largest c_i: none is far there.
        """
        far = np.full(1 + self.world.model.n_constraints, np.inf)
        if self.world.n_state == 0:
            cmdp = self.world.table
            room = cmdp.signals.max(axis=0)
            far = np.where(room > 0.0, _FAR * room / (1.0 - cmdp.gamma), np.inf)
            far[0] = np.inf
        return far

    @property
    def n_draws(self) -> float:
        """Infinite: the critic reads the probabilities of every state, so all rows are kept up to date."""
        return math.inf

    @property
    def n_visited(self) -> int:
        """The last state of each occupancy rollout."""
        return int(self.settings.inner)

    def work(self) -> pd_anpg_cv.Work:
        """Work space for one thread."""
        h, m = self.settings.inner, self.world.model.n_constraints
        n_signals = 1 + m
        scores = self.scores(2 * h)
        slots = len(scores.coordinate)
        return pd_anpg_cv.Work(
            job_choice=np.zeros(2 * h, np.int64),
            pair=np.zeros(2 * h, np.int64),
            last_pair=np.zeros(2 * h, np.int64),
            occupancy_total=np.zeros((h, n_signals)),
            control=self.critic.control(),
            matrix=np.zeros((m, m)),
            linear=np.zeros(m),
            origin=self.initial_theta(1)[0],
            target=np.zeros(h),
            scores=scores,
            inner=asgd.InnerState(
                on_line(np.zeros(slots)), on_line(np.zeros(slots)), np.zeros(slots, np.int64)
            ),
            weights=asgd.Weights(np.zeros(h + 1), np.zeros(h)),
            omega=on_line(np.zeros(slots)),
            row_space=self.row_space(),
        )

    def advance(self, r: int, n_steps: int, work: pd_anpg_cv.Work) -> None:
        """Make up to n_steps outer steps of replicate r."""
        pd_anpg_cv.advance(
            self.world.tables, self.world.policy.data, self.momentum, self.steps, self.state, self.actions[r], work,
            r, n_steps,
        )  # fmt: skip
