"""PD-ANPG: primal-dual accelerated natural policy gradient (Algorithms 1 and 2 of the paper).

With lambda_0 = 0 and for k = 0..K-1, from fresh samples of pi_k = pi_theta_k,

    omega_k      = tail average of H steps of ASGD towards F(theta_k)^+ grad J_L(theta_k, lambda_k)
    theta_{k+1}  = theta_k + eta omega_k
    lambda_{k+1} = clip(lambda_k - zeta J_c estimate, 0, lambda_max)

The guarantee (Theorem 1) is about the mixture: draw k uniformly from 0..K-1 once, then follow pi_k.

Learning rates. Theorem 1's eta = (1-gamma)^2 / ((1+lambda_max) sqrt(K)) is safe for every problem and 30 to
1,000 times too small for most. The defaults keep its scaling in K and take the constants from measurements:

    eta_k  = c_eta sqrt(2 log A) / sqrt(K N_k),     zeta_ik = c_zeta sigma_r / (sigma_i^2 sqrt(K)),

N_k the level of omega.F omega, sigma_r and sigma_i the standard deviations of one estimate of J_r and J_ci,
A the largest number of choices in a state. The first minimises the mirror-descent bound KL(pi* || pi_0) /
(eta K) + eta N / 2 with KL <= log A; the second moves the multiplier by its natural scale sigma_r / sigma_i
under noise alone over the run. The level N_k is the larger of its average so far and of the last twenty outer
steps, this one included, and no step has a natural norm above three times its root: so a policy that has just found a
reward does not jump. This rule is the project's own, not the paper's, and Theorem 1 does not cover it: eta_k depends,
weakly, on omega_k itself. With ``eta=`` and ``zeta=`` given, the run is the paper's Algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.kernels import asgd, pd_anpg, policies
from fastcmdp.kernels.tables import Actions, row_space
from fastcmdp.problem import Problem, streams
from fastcmdp.tables import n_action_entries

NOMINAL_KAPPA = 20.0  # G^2 / mu_F where mu_F is not given: F has no positive lower bound for tabular softmax


def _require(holds: object, name: str, value: object, accepted: str) -> None:
    if not holds:
        raise SettingError(f"{name} = {value!r}: {accepted} is expected")


_MOST = 2**40  # outer or inner steps: beyond, counters and memory end before the run does


def _is_integer(value: object, least: int) -> bool:
    return (
        isinstance(value, int | np.integer) and not isinstance(value, bool) and least <= int(value) <= _MOST
    )


def _is_finite(value: object) -> bool:
    array = np.asarray(value)
    return array.dtype.kind in "iuf" and array.size > 0 and bool(np.isfinite(array).all())


@dataclass(frozen=True)
class PDANPG:
    """Settings of PD-ANPG.

    Parameters
    ----------
    outer, inner : int
        K outer steps of H ASGD steps; both at least 1. One outer step draws 3 H + 1 rollouts of mean length
        gamma / (1 - gamma).
    eta, zeta : float or None
        Learning rates of theta and of the multipliers (zeta: one, or one a constraint), in kernel units and
        constant. None: measured along the run, see the module's text.
    c_eta, c_zeta : float
        Factors on the measured learning rates.
    lambda_max : float or None
        Cap of the multipliers, in the user's units. None: 2 / ((1-gamma) c_slater) as in Theorem 1 where the
        Slater value is known, else no cap.
    g_squared, mu_f : float or None
        G^2 and mu_F of the ASGD steps of Lemma 6. None: the policy's own bound, and G^2 / 20.
    alpha, beta, xi, delta : float or None
        ASGD step sizes. None: Lemma 6's, from G^2 and mu_F.
    dual_estimate : "fresh" or "inner"
        J_c for the dual step from a rollout of its own (the paper), or the mean over the H occupancy rollouts
        at hand: also unbiased, H times less variance, no sample more.
    margin : float or sequence
        Aim at the limits tightened by this much, in the user's units.
    pilot : int
        Outer steps that only measure, first; their samples are counted.

    Raises
    ------
    SettingError
        A value out of range.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> fc.PDANPG(outer=500, inner=50).outer
    500
    """

    outer: int = 2000
    inner: int = 100
    eta: float | None = None
    zeta: float | Sequence[float] | None = None
    c_eta: float = 1.0
    c_zeta: float = 1.0
    lambda_max: float | None = None
    g_squared: float | None = None
    mu_f: float | None = None
    alpha: float | None = None
    beta: float | None = None
    xi: float | None = None
    delta: float | None = None
    dual_estimate: Literal["fresh", "inner"] = "fresh"
    margin: float | Sequence[float] = 0.0
    pilot: int = 40

    name: ClassVar[str] = "pd-anpg"

    def __post_init__(self) -> None:
        for name, least in (("outer", 1), ("inner", 1), ("pilot", 0)):
            value = getattr(self, name)
            _require(_is_integer(value, least), name, value, f"an integer of at least {least}")
            object.__setattr__(self, name, int(value))  # kernels know plain numbers: no np.int8 beyond here
        for name in ("eta", "zeta", "c_eta", "c_zeta", "lambda_max", "g_squared", "mu_f", "xi", "delta"):
            value = getattr(self, name)
            if value is None and name not in ("c_eta", "c_zeta"):
                continue
            _require(_is_finite(value) and (np.asarray(value) > 0).all(), name, value, "a positive number")
            _require(name == "zeta" or np.ndim(value) == 0, name, value, "one number")
            if name != "zeta":
                object.__setattr__(self, name, float(value))
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            inside = value is None or (_is_finite(value) and np.ndim(value) == 0 and 0 < value < 1)
            _require(inside, name, value, "a number between 0 and 1")
            if value is not None:
                object.__setattr__(self, name, float(value))
        _require(_is_finite(self.margin), "margin", self.margin, "one number, or one a constraint,")
        _require(
            self.dual_estimate in ("fresh", "inner"),
            "dual_estimate",
            self.dual_estimate,
            "'fresh' or 'inner'",
        )

    def momentum(self, g_squared: float) -> asgd.Momentum:
        """Step sizes of ASGD for a policy class with this bound on its scores (Lemma 6)."""
        g2 = self.g_squared or g_squared
        mu = self.mu_f or g2 / NOMINAL_KAPPA
        _require(mu <= g2, "mu_f", mu, f"at most G^2 = {g2:g}, the largest eigenvalue F can have,")
        root = 3.0 * math.sqrt(5.0)
        return asgd.Momentum(
            alpha=self.alpha or root * g2 / (mu + root * g2),
            beta=self.beta or mu / (9.0 * g2),
            xi=self.xi or 1.0 / (root * g2),
            delta=self.delta or 1.0 / (5.0 * g2),
        )

    @classmethod
    def for_epsilon(cls, cmdp: CMDP, epsilon: float, **settings: Any) -> PDANPG:
        """Settings for a target gap and violation ``epsilon``, by ``fastcmdp.theory.practical_schedule``.

        Parameters
        ----------
        cmdp : CMDP
        epsilon : float
            In kernel units: rewards in [0, 1], constraints in [-1, 1].
        **settings
            ``c_K``, ``c_H`` and the like of the schedule, and other settings of this class.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> fc.PDANPG.for_epsilon(fc.envs.garnet(), 0.5, c_K=10).outer
        4000
        """
        from fastcmdp.theory.schedules import practical_schedule  # here, since it imports this module

        return practical_schedule(cmdp, epsilon, **settings)

    @classmethod
    def for_samples(cls, gamma: float, samples: int, **settings: Any) -> PDANPG:
        """Settings whose run is expected to draw ``samples`` transitions, the pilot's included.

        An outer step draws 3H + 1 rollouts (3H with ``dual_estimate="inner"``) of mean length gamma/(1-gamma).

        Raises
        ------
        SettingError
            Fewer samples than the pilot and one outer step take.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> fc.PDANPG.for_samples(0.5, 31_000, inner=10, pilot=0).outer
        1000
        """
        made = cls(**settings)
        fresh = made.dual_estimate == "fresh"
        outer = round(samples * (1.0 - gamma) / gamma / (3 * made.inner + fresh)) - made.pilot
        _require(outer >= 1, "samples", samples, "enough for the pilot and one outer step")
        return replace(made, outer=outer)

    def run(self, problem: Problem, seed: int, replicates: int) -> Run:
        """Set up replicates that have not moved yet."""
        return Run(self, problem, seed, replicates)


def _per_constraint(value: Any, m: int, name: str) -> np.ndarray:
    array = np.atleast_1d(np.asarray(value, np.float64))
    if array.shape not in ((1,), (m,)):
        raise SettingError(
            f"{name} has {array.size} values; give one, or one for each of the {m} constraints"
        )
    return np.broadcast_to(array, m).copy()


class Run:
    """Replicates of PD-ANPG under way: arrays, and the one call that moves one of them on."""

    def __init__(self, settings: PDANPG, problem: Problem, seed: int, replicates: int) -> None:
        cmdp, policy, m = problem.cmdp, problem.policy, problem.cmdp.n_constraints
        self.problem = problem
        self.settings = settings
        self.momentum = settings.momentum(policy.score_bound)
        widest = int(np.diff(cmdp.state_to_choice).max())
        eta = settings.c_eta * math.sqrt(2.0 * math.log(widest)) if settings.eta is None else settings.eta
        zeta = settings.c_zeta if settings.zeta is None else settings.zeta
        self.steps = pd_anpg.Steps(
            n_outer=settings.outer,
            n_inner=settings.inner,
            n_pilot=settings.pilot,
            eta_scale=float(eta),
            zeta_scale=_per_constraint(zeta, m, "zeta"),
            adaptive_eta=settings.eta is None,
            adaptive_zeta=settings.zeta is None,
            fresh=settings.dual_estimate == "fresh",
            margin=_per_constraint(settings.margin, m, "margin") / cmdp.constraint_scale,
            dual_max=self._dual_max(settings.lambda_max),
        )
        self.state = pd_anpg.RunState(
            theta=self._initial_theta(replicates),
            dual=np.zeros((replicates, m)),
            rng=streams(seed, replicates),
            outer=np.full(replicates, -settings.pilot, np.int64),
            samples=np.zeros(replicates, np.int64),
            failed=np.full(replicates, -1, np.int64),
            recent=np.zeros((replicates, 2 + m)),
            average=np.zeros((replicates, 2 + m)),
            sums=np.zeros((replicates, 1 + 2 * m)),
        )
        self.actions = [self._actions(r) for r in range(replicates)]
        self.refresh()

    def _initial_theta(self, replicates: int) -> np.ndarray:
        policy = self.problem.policy
        theta = np.zeros((replicates, policy.n_parameters))
        if policy.initial is not None:
            theta[:] = policy.initial
        return theta

    def _actions(self, r: int) -> Any:
        """Action tables of replicate r: kept up to date, or made where a draw needs them."""
        problem = self.problem
        tables, policy = problem.tables, problem.policy
        n_states, h = problem.cmdp.n_states, self.settings.inner
        entry = np.empty((n_action_entries(tables), 3), tables.branch_entry.dtype)
        prob = np.empty(problem.cmdp.n_choices)
        transitions = (3 * h + 1) * tables.horizon
        if isinstance(policy.data, policies.Tabular) or transitions > n_states:
            return Actions(entry, prob)
        row_state = np.empty(len(entry), np.int32)
        code = tables.state_row.astype(np.int64)
        row_state[(code - (code & -code)) // 2] = np.arange(n_states)
        return policies.LazyActions(
            entry, prob, np.zeros(n_states, np.int64), np.ones(1, np.int64), row_state,
            policy.data, self.state.theta[r], self._row_space(), np.zeros(1, np.int64),
        )  # fmt: skip

    def _dual_max(self, given: float | None) -> np.ndarray:
        problem, m = self.problem, self.problem.cmdp.n_constraints
        if given is not None:
            return np.asarray(problem.cmdp.from_user_duals(np.full(m, given)), np.float64)
        slater = None if problem.optimum is None else problem.optimum.slater
        if m == 0 or slater is None or not slater > 0:
            return np.full(m, np.inf)
        return np.full(m, 2.0 / ((1.0 - problem.cmdp.gamma) * slater))

    def refresh(self) -> None:
        """Rebuild the action tables from theta: at the start, and after loading a state."""
        for actions in self.actions:
            if isinstance(actions, policies.LazyActions):
                actions.now[0] += 1
        self._refresh([a for a in self.actions if isinstance(a, Actions)])

    def _refresh(self, tables: list[Any]) -> None:
        for r, actions in enumerate(self.actions):
            if any(actions is one for one in tables):
                policies.refresh_all(
                    self.problem.policy.data, self.state.theta[r], self.problem.tables,
                    Actions(actions.entry, actions.prob), self._row_space(),
                )  # fmt: skip

    def policies(self) -> np.ndarray:
        """Action probabilities of all replicates, float64[R, C]."""
        self._refresh([a for a in self.actions if isinstance(a, policies.LazyActions)])
        return np.stack([actions.prob for actions in self.actions])

    def _row_space(self) -> Any:
        return row_space(2 * int(np.diff(self.problem.cmdp.state_to_choice).max()))

    def work(self) -> pd_anpg.Work:
        """Work space for one thread."""
        policy, h, n_signals = self.problem.policy, self.settings.inner, 1 + self.problem.cmdp.n_constraints
        d, support = policy.n_parameters, policy.support
        slots = min(d, h * support) if support else d
        scores = policies.Scores(
            first=np.zeros(h + 1, np.int64),
            slot=np.zeros(h * support, np.int32),
            value=np.zeros(h * support),
            coordinate=np.arange(slots, dtype=np.int32),
            position=np.zeros(slots, np.int64),
            mark=np.full(d, -1, np.int32),
            dense=np.zeros((0, 0) if support else (h, d)),
        )
        return pd_anpg.Work(
            job_choice=np.zeros(2 * h + 1, np.int64),
            job_row=np.zeros(2 * h + 1, np.uint32),
            pair=np.zeros(h + 1, np.int64),
            last_pair=np.zeros(2 * h, np.int64),
            occupancy_total=np.zeros((h + 1, n_signals)),
            value_total=np.zeros((2 * h, n_signals)),
            advantage=np.zeros((h, n_signals)),
            target=np.zeros(h),
            scores=scores,
            inner=asgd.InnerState(np.zeros(slots), np.zeros(slots), np.zeros(slots, np.int64)),
            weights=asgd.Weights(np.zeros(h + 1), np.zeros(h)),
            omega=np.zeros(slots),
            space=self._row_space(),
        )

    def advance(self, r: int, n_steps: int, work: pd_anpg.Work) -> None:
        """Make up to n_steps outer steps (pilot steps included) of replicate r."""
        pd_anpg.advance(
            self.problem.tables, self.problem.policy.data, self.momentum, self.steps, self.state,
            self.actions[r], work, r, n_steps,
        )  # fmt: skip
