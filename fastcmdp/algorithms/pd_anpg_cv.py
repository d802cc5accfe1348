"""PD-ANPG-CV: PD-ANPG whose rollouts are corrected by what earlier ones have learned (tables, tabular softmax).

Signals f = r, c_1 .. c_m in kernel units; W_f(s, a) a critic and Wbar_f(s) = sum_a pi_k(a|s) W_f(s, a), all zero at
the start, as theta, lambda and the measurements are. For k = 0..K-1, with pi_k = pi_theta_k,

    C_f        = sum_{j<=T} [f(s_j, a_j) + gamma Wbar_f(s_{j+1}) - W_f(s_j, a_j)] on a rollout, T ~ Geo(1-gamma)   (1)
    J_f        = sum_s rho(s) Wbar_f(s) + mean of C_f over H rollouts from (s_0, a_0) ~ rho pi_k,
                 which end at (s_h, a_h) ~ nu
    A_f,h      = W_f(s_h, a_h) - Wbar_f(s_h) + C_f of a rollout from (s_h, a_h)
    eta        = min(c_eta, 30 / sqrt(k)) / sigma,      sigma^2 = (1, lambda_mean) . Sigma (1, lambda_mean)       (2)
    lambda     = argmin over l >= 0 of l . M l / 2 + g . l                                                        (3)
    omega      = tail average of H steps of ASGD towards E[(g_h . omega - A_r,h - sum_i lambda_i A_ci,h)^2],
                 from the critic's advantage x_0 = v_0 = W_L - Wbar_L,  W_L = W_r + sum_i lambda_i W_ci           (4)
    theta     += eta omega,  then  theta(s, .) -= max_a theta(s, a),  theta = max(theta, -15 - log x)              (5)
    W, Sigma, G, J^ from this batch and H/2 exploring rollouts, for the next outer step                           (6)

The first outer step only measures. The output is the mixture over pi_0..pi_{K-1}; ``last_quarter`` leaves its burn-in
out. K enters nothing else: a run of more outer steps begins with the same ones.

(3) With G_fg = E_nu E_pi[A_f A_g] of the critic's advantages A_f = W_f - Wbar_f, a step eta omega changes J_ci by
eta/(1-gamma) (G_0i + sum_j lambda_j G_ij) to first order. lambda is that for which this undoes the share 0.1 c_dual
eta sigma of each violation, at least where lambda_i = 0: M_ij = G_ij + 1{i=j} d_i, g_i = G_0i + 0.1 c_dual sigma
(1-gamma) J^_ci - d_i lambda_i^old. The proximal d_i = 0.05 Sigma_ii moves no fixed point, which is a stationary
policy with J_c = 0, or with lambda = 0 and J_c > 0, and bounds the gain where the policy hardly reacts. lambda_i is
at most 100 sqrt(Sigma_00 / Sigma_ii), and 0 where no action acts on constraint i.

(2), (4), (6) Sigma: E_nu of the covariances of W_f over uniform actions; J^: the critic's J plus the mean of C_f.
These, G and lambda_mean are means that forget 0.03 an outer step. sigma^2 is at least 0.01 of what it were if the
signals were uncorrelated. In G and Sigma |A_ci| counts as at most f_i = 10 max c_i / (1-gamma), and x in (5) is the
largest of 1 and all -A_ci / f_i: a policy that meets limit i can lose f_i once in ten horizons at most, so what costs
more is avoided and sets no scale. ASGD's xi and delta are 0.3 min(1, sigma / e) of Lemma 6's for kappa = 20, e^2 the
level of (C_r + sum_i lambda_i C_ci)^2: those of a larger G^2, and little where the targets are noise. W by counts, backwards
over all transitions of the batch (``kernels/learning/counts.py``). Exploring rollouts start from the states s_h with a
uniform action, and take one with probability 1/2 later; they feed W alone. An action that was never tried has the mean
of W over those that were.

What is the paper's: pi_k, T, nu, ASGD and the form of its steps (Lemma 6), the tail average, the mixture. What is
proved: E[C_f | s_0, a_0] = Q_f - W_f for every W that is fixed before the batch (``kernels/sampling/corrected.py``),
so that J_f and A_f are unbiased given the past, and omega estimates the same natural gradient; W, lambda, eta and the
steps of ASGD are functions of earlier batches alone. ASGD from x_0 = v_0 is covered by the paper's analysis with |x_0 -
omega*| in place of |omega*|; in place of V(s_h), the third rollout of Algorithm 1, stands Wbar(s_h), since a baseline
of the state changes no gradient. What is derived here to first order: (3). What is heuristic: (2), the constants, the
15 of (5), f_i and what is explored; no theorem covers this rule for lambda.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.base import (
    Algorithm,
    Run,
    check_constants,
    relative_target,
    whole,
)
from fastcmdp.algorithms.pd_anpg import PDANPG
from fastcmdp.check import MOST, is_finite, require
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import BudgetError
from fastcmdp.kernels.algorithm import pd_anpg_cv
from fastcmdp.kernels.learning import asgd, counts
from fastcmdp.kernels.streams import LANES
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.text import down
from fastcmdp.worlds.world import World

C_K = 1.0  # outer steps for a relative target of 1
_DUAL = 0.1  # share of a violation that a step of the logits by one standard deviation is to undo
_FAR = 10.0  # times the largest c_i / (1-gamma): see PDANPGCVRun._far
_MOST_SEEN = (
    2**22
)  # transitions that are kept of a batch for the critic, at most; those beyond teach it nothing
_RARE = 40.0  # a batch is longer than what is kept of it with probability e^-40


@dataclass(frozen=True)
class PDANPGCV(Algorithm):
    """Settings of PD-ANPG-CV, for the tabular softmax policy on models with a table.

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
        A value out of range; when run, a policy that is not tabular.

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
    tabular_only: ClassVar[bool] = True
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

        Parameters
        ----------
        cmdp : CMDP
            Only gamma is used.
        epsilon : float
            In kernel units: rewards in [0, 1], constraints in [-1, 1]; in (0, 1/(1-gamma)).
        c_K : float
            Tunable constant, > 0.
        **settings
            Settings of this class, which win.

        Raises
        ------
        SettingError
            A number out of range.

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
        """Settings whose run is expected to draw ``samples`` transitions: H stays, K makes up the number.

        Raises
        ------
        BudgetError
            Fewer samples than one outer step takes.
        SettingError
            Another bad setting.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> cmdp = fc.envs.garnet(gamma=0.9)
        >>> made = fc.PDANPGCV.for_samples(cmdp, 1e6)
        >>> made.inner, round(made.expected_samples(cmdp) / 1e6, 2)
        (15, 1.0)
        """
        check_constants(c_K=c_K)
        require(
            is_finite(samples) and np.ndim(samples) == 0 and samples > 0,
            "samples",
            samples,
            "a positive number",
        )
        one = cls(**(settings | {"outer": 1}))
        steps = samples / one.outer_samples(cmdp)
        most = f"at most {down(MOST * one.outer_samples(cmdp))} transitions, 2^40 outer steps of {cls.name},"
        require(steps <= MOST, "samples", samples, most)
        if steps < 1.0:
            least = math.ceil(one.outer_samples(cmdp))
            raise BudgetError(
                f"samples = {samples!r}: at least {least:,} for one outer step of {cls.name} is expected"
            )
        return replace(one, outer=round(steps))

    @classmethod
    def shortest(cls) -> Self:
        """Settings of a run that is over at once."""
        return cls(outer=2, inner=2)

    def run(self, world: World, seed: int, replicates: int) -> PDANPGCVRun:
        """Set up replicates that have not moved yet."""
        return PDANPGCVRun(self, world, seed, replicates)


class PDANPGCVRun(Run):
    """Replicates of PD-ANPG-CV under way."""

    def __init__(self, settings: PDANPGCV, world: World, seed: int, replicates: int) -> None:
        super().__init__(settings, world)
        cmdp, tables = world.table, self.world.tables
        m, n_signals = cmdp.n_constraints, 1 + cmdp.n_constraints
        support = np.flatnonzero(cmdp.start)
        self.graph = counts.Graph(
            choice_to_branch=cmdp.choice_to_branch.copy(),
            target=cmdp.branch_target.copy(),
            rejected=np.empty(cmdp.n_branches, np.int32),
            start_state=support.astype(np.int64),
            start_prob=np.array(cmdp.start[support], np.float64),
        )
        counts.fill_rejected(tables, self.graph)
        self.momentum = PDANPG().momentum(world.policy.score_bound)
        self.steps = pd_anpg_cv.Steps(
            n_inner=settings.inner,
            n_wanders=settings.inner // 2,
            n_skipped=settings.inner // 2,
            gamma=float(cmdp.gamma),
            eta=settings.c_eta,
            dual=_DUAL * settings.c_dual,
            far=self._far(),
        )
        self.state = pd_anpg_cv.RunState(
            **self.common_state(seed, replicates),
            critic=np.zeros((replicates, cmdp.n_choices, n_signals)),
            branch_count=np.zeros((replicates, cmdp.n_branches)),
            choice_count=np.zeros((replicates, cmdp.n_choices)),
            dual_mean=np.zeros((replicates, m)),
            gram=np.zeros((replicates, n_signals, n_signals)),
            spread=np.zeros((replicates, n_signals, n_signals)),
            excess=np.zeros((replicates, n_signals)),
            value=np.zeros((replicates, n_signals)),
            noise=np.zeros(replicates),
        )
        self.set_up_actions()

    def _far(self) -> NDArray[np.float64]:
        """From where on advantages count as far, float64[1+m]: none of the reward, and none that limits do not tell of.

        A policy that meets limit i has E_nu[c_i] >= 0, so that x times max c_i / (1-gamma) can be lost once in x
        horizons at most: what costs many times that is avoided, and says nothing of how large other steps should be.
        """
        cmdp = self.world.table
        room = cmdp.signals.max(axis=0)
        far = np.where(room > 0.0, _FAR * room / (1.0 - cmdp.gamma), np.inf)
        far[0] = np.inf
        return far

    def _n_seen(self) -> int:
        """Transitions of a batch that there is room for: the mean, and so many more that it practically suffices."""
        n, more = int(self.settings.n_rollouts), 1.0
        while n * (more - math.log1p(more)) < _RARE:  # Chernoff's bound for n geometric numbers
            more *= 1.25
        length: int = math.ceil(n * (1.0 + more) / (1.0 - self.world.model.gamma))
        return min(length, _MOST_SEEN) + 2 * LANES

    def work(self) -> pd_anpg_cv.Work:
        """Work space for one thread."""
        h, cmdp = self.settings.inner, self.world.table
        m, n_signals = cmdp.n_constraints, 1 + cmdp.n_constraints
        scores = self.scores(h)
        slots = len(scores.coordinate)
        tables = self.world.tables
        words = tables.choice_word.copy()
        words.reshape(-1, tables.words)[:, 1:] = 0
        return pd_anpg_cv.Work(
            job_choice=np.zeros(2 * h, np.int64),
            job_wanders=np.zeros(2 * h, np.uint64),
            pair=np.zeros(h, np.int64),
            last_pair=np.zeros(2 * h, np.int64),
            occupancy_total=np.zeros((h, n_signals)),
            correction=np.zeros((2 * h, n_signals)),
            record=(words, words.view(np.float64)),
            seen=np.zeros(self._n_seen(), np.uint64),
            mean=np.zeros((cmdp.n_states, n_signals)),
            plug=np.zeros(n_signals),
            matrix=np.zeros((m, m)),
            linear=np.zeros(m),
            target=np.zeros(h),
            scores=scores,
            inner=asgd.InnerState(np.zeros(slots), np.zeros(slots), np.zeros(slots, np.int64)),
            weights=asgd.Weights(np.zeros(h + 1), np.zeros(h)),
            omega=np.zeros(slots),
            space=self.row_space(),
        )

    def advance(self, r: int, n_steps: int, work: pd_anpg_cv.Work) -> None:
        """Make up to n_steps outer steps of replicate r."""
        pd_anpg_cv.advance(
            self.world.tables, self.graph, self.world.policy.data, self.momentum, self.steps, self.state,
            self.actions[r], work, r, n_steps,
        )  # fmt: skip
