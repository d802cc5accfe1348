"""What the natural-gradient primal-dual methods share: PD-ANPG, NPG-PD and C-NPG-PDA.

With lambda_0 = 0 and for k = 0..K-1, from fresh samples of pi_k = pi_theta_k,

    omega_k      = some H steps of stochastic gradient descent towards F(theta_k)^+ grad J_L(theta_k, lambda_k)
    theta_{k+1}  = theta_k + eta omega_k
    lambda_{k+1} = clip(lambda_k - zeta (J_c estimate - margin), 0, lambda_max)

They differ in the inner solver, in the margin, and in the cap.

Learning rates. The published ones are safe for every problem and far too small for most. The defaults keep their
scaling in K and take the constants from measurements:

    eta_k  = c_eta sqrt(2 log A) / sqrt(K N_k),     zeta_ik = c_zeta sigma_r / (sigma_i^2 sqrt(K)),

N_k the level of omega.F omega, sigma_r and sigma_i the standard deviations of one estimate of J_r and J_ci,
A the largest number of choices in a state. The first minimises the mirror-descent bound KL(pi* || pi_0) /
(eta K) + eta N / 2 with KL <= log A; the second moves the multiplier by its natural scale sigma_r / sigma_i
under noise alone over the run. The level N_k is the larger of its average so far and of that of the last twenty outer
steps, and so are sigma_r^2 and sigma_i^2; all are of the outer steps before k, the pilot's included, so that given the
past E[eta_k omega_k] = eta_k E[omega_k]: a rate that knew its own batch would shorten the steps that say most. A step
longer than all before it, in the natural norm or in |J_ci estimate - margin|, is cut to the longest of them, so that a
policy that has just found a reward does not jump. Cuts become rare, and those of a whole run add up to less than its
longest step (``kernels/learning/levels.py``). This rule is the project's own, and no theorem covers it. With ``eta=``
and ``zeta=`` given, the recursion is the published one.

Multipliers. ``dual="plain"`` is the recursion above, and what the theorems are about. With e = margin - J_c estimate,

    "optimistic":  lambda <- clip(lambda + zeta (2 e - e of the step before), 0, lambda_max)
    "pi":          s <- s + min(1, 3 w) (e - s),  I <- clip(I + zeta e, 0, lambda_max),
                   lambda = clip(I + (2 zeta / w) s, 0, lambda_max),       w = K^-1/2

damp the swings of policy and multiplier, whose frequency is of the order w with rates of the order K^-1/2 (derived);
the filter keeps most of one step's noise out. No theorem is known for either from samples.

Critics. ``critic="none"`` is Algorithm 1 of the paper: rollouts that remember nothing. With "control" a critic W that
is fixed before the batch carries what earlier batches have seen (`PDANPGCV` has the same one: from counts on tables,
linear in the features on simulators). With C_f the sum along a rollout of f + gamma Wbar_f(s') - W_f(s, a),

    J_f estimate   = (critic's J_f) + C_f of an occupancy rollout
    A_f,h estimate = W_f(s_h, a_h) - Wbar_f(s_h) + C_f of a rollout from (s_h, a_h),    Wbar_f(s) = E_pi W_f(s, .)

so that one rollout stands where Q and V had one each. "control+start" also begins the inner loop at omega_0, the
critic's advantage of the Lagrangian over 1-gamma: on tabular softmax in every state, else by weights with g . w near
it (``kernels/learning/compatible.py``). What is proved: E[C_f | s, a] = Q_f - W_f for every W that is fixed before the
batch, and a baseline of the state changes no gradient, so that all estimates are unbiased given the past as the
paper's are; its analysis of ASGD holds from any omega_0 that is fixed before the batch, with |omega_0 - omega*| in
place of |omega*|. What is heuristic: how W and w are learned, and that variances which the rates zeta_i read are those
of sums without a critic, as W tells them: with a critic's own, multipliers would jump where it is right.

W learns from the batch after it was used. "control" draws no rollouts for that; "control+start", whose steps W leads,
also floor(H/2) exploring rollouts as `PDANPGCV` does, which feed W alone. A corrected rollout makes one transition
more, and all are counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.base import DUALS, Algorithm, Run, check_words, dual_cap, per_constraint
from fastcmdp.algorithms.critic import Critic, critic_of
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm import pd_anpg, pd_anpg_critic
from fastcmdp.kernels.learning import asgd, duals
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.kernels.vectors import on_line
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

CRITICS = "none", "control", "control+start"
_NONE = Critic((0, 0), 0, pd_anpg.NoCritic)
NOMINAL_KAPPA = 20.0  # G^2 / mu_F where mu_F is not given: F has no positive lower bound for tabular softmax


def learning_rates(settings: Any, cmdp: CMDP | Simulator) -> dict[str, Any]:
    """What the kernels' Steps take of eta, zeta, c_eta and c_zeta: given rates, or factors on measured ones."""
    eta = settings.c_eta * math.sqrt(2.0 * math.log(cmdp.widest)) if settings.eta is None else settings.eta
    zeta = settings.c_zeta if settings.zeta is None else settings.zeta
    return {
        "eta_scale": float(eta),
        "zeta_scale": per_constraint(zeta, cmdp.n_constraints, "zeta"),
        "adaptive_eta": settings.eta is None,
        "adaptive_zeta": settings.zeta is None,
    }


@dataclass(frozen=True)
class PrimalDual(Algorithm):
    """Settings that these methods share.

    Attributes
    ----------
    outer, inner : int
        K outer steps of H inner steps. One outer step draws 3 H + 1 rollouts of mean length gamma / (1 - gamma).
    eta, zeta, c_eta, c_zeta, lambda_max, dual, dual_estimate, pilot, critic
        See the methods.
    cap_factor : float
        The default cap is this over (1-gamma) c_slater.
    """

    cap_factor: ClassVar[float] = 2.0
    simulation: ClassVar[Literal["rollouts", "corrected", "chains", ""]] = "rollouts"
    version: ClassVar[int] = 2

    outer: int = 2000
    inner: int = 100
    eta: float | None = None
    zeta: float | Sequence[float] | None = None
    c_eta: float = 1.0
    c_zeta: float = 1.0
    lambda_max: float | Sequence[float] | None = None
    dual: Literal["plain", "pi", "optimistic"] = "plain"
    dual_estimate: Literal["fresh", "inner"] = "fresh"
    pilot: int = 40
    critic: Literal["none", "control", "control+start"] = "none"

    def __post_init__(self) -> None:
        self.check(
            {"outer": 1, "inner": 1, "pilot": 0}, ("c_eta", "c_zeta"), ("eta",), ("zeta", "lambda_max")
        )
        check_words(self, {"dual": tuple(DUALS), "dual_estimate": ("fresh", "inner"), "critic": CRITICS})

    def solver(self, world: World) -> Any:
        """What the kernel takes as inner solver."""
        raise NotImplementedError

    def form(self) -> Any:
        """The form of the multipliers, as the kernel takes it."""
        return DUALS[self.dual]

    def n_skipped(self) -> int:
        """Inner steps before the average of omega begins, for solvers that average evenly."""
        return 0

    def tightening(self, world: World) -> NDArray[np.float64]:
        """By how much the dual step tightens each constraint, kernel units, float64[m]."""
        return np.zeros(world.model.n_constraints)

    @property
    def n_wanders(self) -> int:
        """Exploring rollouts of an outer step."""
        return self.inner // 2 if self.critic == "control+start" else 0

    @property
    def n_rollouts(self) -> int:
        """Rollouts of an outer step."""
        legs = 3 if self.critic == "none" else 2
        return legs * self.inner + (self.dual_estimate == "fresh") + self.n_wanders

    @property
    def rolls(self) -> str:
        """With a critic, "corrected" rollouts."""
        return self.simulation if self.critic == "none" else "corrected"

    def outer_samples(self, cmdp: CMDP | Simulator) -> float:
        """Expected transitions of one outer step: gamma/(1-gamma) a rollout, or 1/(1-gamma) a corrected one."""
        transitions = cmdp.gamma if self.critic == "none" else 1.0
        return float(self.n_rollouts) * transitions / (1.0 - cmdp.gamma)

    def fixed_samples(self, cmdp: CMDP | Simulator) -> float:
        """Expected transitions of the pilot."""
        return self.pilot * self.outer_samples(cmdp)

    @classmethod
    def shortest(cls) -> Self:
        """Settings of a run that is over at once."""
        return cls(outer=1, inner=2)

    def run(self, world: World, seed: int, replicates: int) -> PrimalDualRun:
        """Set up replicates that have not moved yet."""
        return PrimalDualRun(self, world, seed, replicates)


class PrimalDualRun(Run):
    """Replicates of such a method under way."""

    def __init__(self, settings: PrimalDual, world: World, seed: int, replicates: int) -> None:
        super().__init__(settings, world)
        cmdp, m = world.model, world.model.n_constraints
        self.solver, self.form = settings.solver(world), settings.form()
        self.critic = (
            _NONE if settings.critic == "none" else critic_of(world, settings.inner, settings.n_rollouts)
        )
        shape, starts = self.critic.shape, settings.critic == "control+start"
        self.learns_start = starts and not isinstance(world.policy.data, Tabular)
        self.steps = pd_anpg.Steps(
            n_outer=settings.outer,
            n_inner=settings.inner,
            length=cmdp.rollout_length,
            n_skipped=settings.n_skipped(),
            n_pilot=settings.pilot,
            **learning_rates(settings, cmdp),
            fresh=settings.dual_estimate == "fresh",
            margin=settings.tightening(world),
            dual_max=dual_cap(world, settings.lambda_max, settings.cap_factor),
            gamma=float(cmdp.gamma),
            n_wanders=settings.n_wanders,
            score_bound=float(world.policy.score_bound),
        )
        self.state = pd_anpg.RunState(
            **self.common_state(seed, replicates),
            memory=np.zeros((replicates, m, duals.width(self.form))),
            **self.measured_levels(replicates, 2 + m, 1 + m),
            control=np.tile(self._first_control(), (replicates, 1)),
            critic=np.zeros((replicates, *shape)),
            evidence=np.zeros((replicates, self.critic.n_evidence)),
            direction=np.zeros((replicates, 1 + m, world.policy.n_parameters if self.learns_start else 0)),
        )
        self.state.outer[:] = -settings.pilot
        self.set_up_actions()

    @property
    def n_draws(self) -> float:
        """A critic reads the probabilities of every state, so all rows are kept up to date."""
        return super().n_draws if self.settings.critic == "none" else math.inf

    @property
    def n_visited(self) -> int:
        """Visited states without a number that are kept at most, at a time."""
        return int(self.settings.inner) + 1

    def _first_control(self) -> NDArray[np.float64]:
        """The beginning of kernels/learning/control.py: the shifts, with the weight of one outer step, float64[2+m]."""
        cmdp, settings = self.world.model, self.settings
        rollouts = settings.inner + (settings.dual_estimate == "fresh")
        variance = cmdp.gamma / (1.0 - cmdp.gamma) ** 2 / rollouts
        control: NDArray[np.float64] = variance * np.append(1.0, cmdp.signal_offset)
        return control

    def work(self) -> pd_anpg.Work:
        """Work space for one thread."""
        h, n_signals = self.settings.inner, 1 + self.world.model.n_constraints
        scores = self.scores(2 * h if self.learns_start else h)
        slots = len(scores.coordinate)
        return pd_anpg.Work(
            job_choice=np.zeros(2 * h + 1, np.int64),
            job_row=np.zeros(2 * h + 1, np.uint32),
            pair=np.zeros(2 * h + 1, np.int64),
            last_pair=np.zeros(2 * h, np.int64),
            occupancy_total=np.zeros((h + 1, n_signals)),
            value_total=np.zeros((2 * h, n_signals)),
            advantage=np.zeros((h, n_signals)),
            target=np.zeros(h),
            scores=scores,
            inner=asgd.InnerState(
                on_line(np.zeros(slots)), on_line(np.zeros(slots)), np.zeros(slots, np.int64)
            ),
            weights=asgd.Weights(np.zeros(h + 1), np.zeros(h)),
            omega=on_line(np.zeros(slots)),
            space=self.row_space(),
            critic=self._critic_work(),
        )

    def _critic_work(self) -> Any:
        """Work space for the critic, whose class says what it does."""
        work = self.critic.control()
        if self.settings.critic != "control+start":
            return work
        return pd_anpg_critic.Started(work, np.zeros(self.world.policy.n_parameters))

    def advance(self, r: int, n_steps: int, work: pd_anpg.Work) -> None:
        """Make up to n_steps outer steps (pilot steps included) of replicate r."""
        pd_anpg.advance(
            self.world.tables, self.world.policy.data, self.solver, self.form, self.steps,
            self.state, self.actions[r], work, r, n_steps,
        )  # fmt: skip
