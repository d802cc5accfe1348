"""The outer loop of PD-ANPG (Algorithm 2 of the paper) on a model or a simulator, for any inner solver.

The solver is data: `Momentum` stands for ASGD (or plain SGD), `Projected` for the inner loop of NPG-PD; and so is the
form in which multipliers follow violations (`duals`), with pace K^-1/2, the order of what rates of order K^-1/2 swing
with; and so is whether a critic helps (`NoCritic`, or those of ``pd_anpg_critic.py``). Their classes pick the code.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fastcmdp.kernels.algorithm.npg_pd import Projected, projected
from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.learning.asgd import InnerState, Momentum, Weights, asgd, fill_weights
from fastcmdp.kernels.learning.compatible import weigh
from fastcmdp.kernels.learning.control import add_estimates
from fastcmdp.kernels.learning.duals import move
from fastcmdp.kernels.learning.levels import cut, dual_rate, level_of, update_level
from fastcmdp.kernels.policy.scores import collect_scores, forget_scores, natural_norm
from fastcmdp.kernels.policy.softmax import step_touched
from fastcmdp.kernels.sampling.tables import RowSpace
from fastcmdp.kernels.simulator.simulate import row_of_choice, run_jobs
from fastcmdp.kernels.stop import finishes, leaves


class Steps(NamedTuple):
    """Settings of the outer loop.

    With ``adaptive``, eta = eta_scale / sqrt(K N) and zeta_i = zeta_scale_i sigma_r / (sigma_i^2 sqrt(K)): N is
    the level of omega.F omega, sigma_r and sigma_i the standard deviations of one estimate of J_r and J_ci. All
    levels are measured along the run, over the batches before the one at hand, first in ``n_pilot`` outer steps that
    move nothing; no step is longer than the longest before it (`levels`). Without, eta = eta_scale and zeta_i =
    zeta_scale_i.
    """

    n_outer: int  # K
    n_inner: int  # H
    length: float  # expected transitions of a rollout
    n_skipped: int  # inner steps before the average of omega begins
    n_pilot: int
    eta_scale: float
    zeta_scale: np.ndarray  # float64[m]
    adaptive_eta: bool
    adaptive_zeta: bool
    fresh: bool  # J_c for the dual step from a rollout of its own (the paper), else the mean of the H at hand
    margin: np.ndarray  # float64[m]: the dual step asks for J_c >= margin
    dual_max: np.ndarray  # float64[m]
    gamma: float
    n_wanders: int  # exploring rollouts of an outer step, for a critic
    score_bound: float  # G^2


class RunState(NamedTuple):
    """A run of R replicates: all that is needed to go on, and nothing else."""

    theta: np.ndarray  # float64[R, d]
    dual: np.ndarray  # float64[R, m]
    memory: np.ndarray  # float64[R, m, width]: of the multipliers, see duals
    rng: np.ndarray  # uint64[R, 4, LANES]
    outer: np.ndarray  # int64[R]: outer steps done; -n_pilot at the start
    samples: np.ndarray  # int64[R]: transitions drawn
    failed: np.ndarray  # int64[R]: outer step at which a number ceased to be finite, or -1
    recent: np.ndarray  # float64[R, 2+m]: levels of omega.F omega and of the variances of J, lately
    average: np.ndarray  # float64[R, 2+m]: the same since the start
    longest: np.ndarray  # float64[R, 1+m]: largest root of omega.F omega and |J_ci estimate - margin| so far
    sums: np.ndarray  # float64[R, 1+2m]: sums over outer steps of the estimates of J and of the multipliers
    control: np.ndarray  # float64[R, 2+m]: see kernels/learning/control.py
    critic: np.ndarray  # these three as in pd_anpg_cv.RunState; without a critic they are empty
    evidence: np.ndarray
    direction: np.ndarray


class Work(NamedTuple):
    """Work space of one thread."""

    job_choice: np.ndarray  # int64[2H+1]
    job_row: np.ndarray  # uint32[2H+1]
    pair: np.ndarray  # int64[2H+1]: H+1 of them, and for a critic choices of the same states in turn
    last_pair: np.ndarray  # int64[2H]
    occupancy_total: np.ndarray  # float64[H+1, 1+m]
    value_total: np.ndarray  # float64[2H, 1+m]
    advantage: np.ndarray  # float64[H, 1+m]
    target: np.ndarray  # float64[H]
    scores: Any  # SparseScores or DenseScores
    inner: InnerState
    weights: Weights
    omega: np.ndarray  # float64[slots]
    space: RowSpace
    critic: Any  # NoCritic, CriticBatch or Started


class NoCritic(NamedTuple):
    """The paper's estimates, and an inner loop that begins at zero."""


@kernel
def sample_occupancy(tables, actions, rng, n_pairs, fresh, work):
    """The occupancy rollouts of Algorithm 1 side by side, one more if ``fresh``; return the transitions made.

    work.pair[h] ~ nu, work.occupancy_total[h] estimates J, for all signals; the fresh estimate stands in row H.
    """
    n = n_pairs + 1 if fresh else n_pairs
    job_choice, job_row = work.job_choice, work.job_row
    for j in range(n):
        job_choice[j] = -1
        job_row[j] = 0
    return run_jobs(tables, actions, rng, job_choice[:n], job_row[:n], work.occupancy_total, work.pair)


@kernel
def sample_advantages(tables, actions, rng, n_pairs, work):
    """Q and V rollouts from work.pair: work.advantage[h] = Q - V there; return the transitions made."""
    job_choice, job_row = work.job_choice, work.job_row
    for h in range(n_pairs):
        q = work.pair[h]
        job_choice[2 * h] = q
        job_choice[2 * h + 1] = -1
        job_row[2 * h + 1] = row_of_choice(tables, q)
    n = 2 * n_pairs
    transitions = run_jobs(
        tables, actions, rng, job_choice[:n], job_row[:n], work.value_total, work.last_pair
    )
    for h in range(n_pairs):
        for k in range(tables.n_signals):
            work.advantage[h, k] = work.value_total[2 * h, k] - work.value_total[2 * h + 1, k]
    return transitions


@kernel
def sample_batch(tables, actions, rng, n_pairs, fresh, work):
    """Draw H samples of Algorithm 1, and one more J estimate if ``fresh``; return the transitions made.

    First all occupancy rollouts side by side, then all Q and V rollouts.
    """
    transitions = sample_occupancy(tables, actions, rng, n_pairs, fresh, work)
    return transitions + sample_advantages(tables, actions, rng, n_pairs, work)


@generic("solver")
def prepare(solver, n_skipped, weights):
    """Fill what a solver keeps for all outer steps."""


@prepare.on(Momentum)
def prepare_momentum(solver, n_skipped, weights):
    fill_weights(solver, n_skipped, weights)


@prepare.on(Projected)
def prepare_nothing(solver, n_skipped, weights):
    pass


@generic("solver")
def solve(solver, scores, weights, target, n_pairs, n_slots, inner, omega):
    """Run the inner loop over the collected scores and their targets; omega is the outcome."""


@solve.on(Momentum)
def accelerate(solver, scores, weights, target, n_pairs, n_slots, inner, omega):
    asgd(scores, solver, weights, target, n_pairs, n_slots, inner, omega)


@solve.on(Projected)
def project(solver, scores, weights, target, n_pairs, n_slots, inner, omega):
    projected(scores, solver, target, n_pairs, n_slots, inner, omega)


@kernel
def mean_and_variance(total, n, k):
    """Sample mean and variance of signal k over n rollouts; of one alone, its square in place of the variance."""
    mean = 0.0
    for h in range(n):
        mean += total[h, k]
    mean /= n
    if n == 1:  # one value has no spread, and learning rates need a scale
        return mean, mean * mean
    square = 0.0
    for h in range(n):
        square += (total[h, k] - mean) ** 2
    return mean, square / (n - 1)


@generic("critic")
def draw_batch(critic, tables, actions, steps, state, r, work):
    """Draw the batch: pairs to work.pair, estimates of J and of what the inner loop is to learn.

    Return how many transitions were written down, how many were made, and by how much the mean length of the occupancy
    rollouts exceeds its expectation, where that tells of the estimates' errors.
    """


@draw_batch.on(NoCritic)
def draw_plain(critic, tables, actions, steps, state, r, work):
    n, rng = steps.n_inner, state.rng[r]
    first = sample_occupancy(tables, actions, rng, n, steps.fresh, work)
    excess = first / (n + 1 if steps.fresh else n) - steps.length
    if leaves(tables.stop):  # then pairs are none
        return 0, first, excess
    return 0, first + sample_advantages(tables, actions, rng, n, work), excess


@generic("critic")
def rows_to_collect(critic, policy, n_pairs):
    """How many scores are collected: those of the pairs, and those from which a start is learned."""


@rows_to_collect.otherwise
def rows_of_pairs_alone(critic, policy, n_pairs):
    return n_pairs


@generic("critic")
def add_known(critic, policy, state, r, work):
    """Add to the targets what the critic knows of them and the start of the inner loop leaves out."""


@generic("critic")
def add_start(critic, policy, tables, state, r, n_slots, work):
    """Add to omega where the inner loop begins: ASGD moves from there as from zero on what is left of the targets."""


@generic("critic")
def variance_of_sums(critic, tables, state, r, n, k, work):
    """Variance of signal k's sums over the occupancy rollouts of Algorithm 1."""


@generic("critic")
def learn_critic_of(critic, policy, tables, actions, steps, state, r, n_seen, work):
    """Learn from the batch, for the next one, while policy and theta are those of the batch."""


@add_known.on(NoCritic)
def nothing_known(critic, policy, state, r, work):
    pass


@add_start.otherwise
def begin_at_zero(critic, policy, tables, state, r, n_slots, work):
    pass


@variance_of_sums.on(NoCritic)
def sample_variance(critic, tables, state, r, n, k, work):
    _, variance = mean_and_variance(work.occupancy_total, n, k)
    return variance


@learn_critic_of.on(NoCritic)
def learn_nothing(critic, policy, tables, actions, steps, state, r, n_seen, work):
    pass


@generic("critic")
def take_step(critic, policy, theta, tables, actions, eta, norm, n_slots, work):
    """theta += eta omega, and all that follows from it; return False, and leave all, where a number is not finite."""


@take_step.otherwise
def step_of_batch(critic, policy, theta, tables, actions, eta, norm, n_slots, work):
    """Of the coordinates that the batch has met: elsewhere omega is zero."""
    if not norm > 0.0:
        return True
    return step_touched(policy, theta, tables, actions, eta, work.omega, work.scores, n_slots, work.space)


@generic("solver")
def add_bonus(solver, tables, actions, last_pair, target):
    """Add to the targets what a regulariser of the solver says of the rollouts' last pairs."""


@add_bonus.otherwise
def add_nothing(solver, tables, actions, last_pair, target):
    pass


@kernel
def move_duals(form, steps, state, total, r, n_inner, root_k):
    """The dual step of replicate r, from the batch's estimates of J; in a pilot step its lengths are measured only."""
    dual = state.dual[r]
    m = dual.shape[0]
    for i in range(m):
        estimate = total[n_inner, 1 + i]
        if not steps.fresh:
            estimate, _ = mean_and_variance(total, n_inner, 1 + i)
        zeta = steps.zeta_scale[i]
        if steps.adaptive_zeta:
            zeta *= dual_rate(level_of(state, r, 1), level_of(state, r, 2 + i), root_k)
            zeta *= cut(state, r, 1 + i, abs(estimate - steps.margin[i]))
        if state.outer[r] >= 0:
            state.sums[r, 1 + m + i] += dual[i]
            violation = steps.margin[i] - estimate
            dual[i] = move(form, state.memory[r, i], violation, zeta, 1.0 / root_k, steps.dual_max[i])


@kernel
def advance(tables, policy, solver, form, steps, state, actions, work, r, n_steps):
    """Make n_steps outer steps of replicate r, whose policy is ``actions``; pilot steps count.

    It stops early where a number ceases to be finite.
    """
    n_inner, n_signals, critic = steps.n_inner, tables.n_signals, work.critic
    theta, dual, omega = state.theta[r], state.dual[r], work.omega
    root_k = math.sqrt(steps.n_outer)
    prepare(solver, steps.n_skipped, work.weights)
    for _ in range(n_steps):
        if state.failed[r] >= 0 or finishes(tables.stop):
            break
        n_seen, transitions, excess = draw_batch(critic, tables, actions, steps, state, r, work)
        state.samples[r] += transitions
        if leaves(tables.stop):
            break
        rows = rows_to_collect(critic, policy, n_inner)
        n_slots = collect_scores(policy, theta, tables, actions, work.pair, rows, work.scores)
        weigh(work.advantage, dual, n_inner, work.target)
        add_known(critic, policy, state, r, work)
        for h in range(n_inner):
            work.target[h] *= tables.horizon
        add_bonus(solver, tables, actions, work.last_pair, work.target[:n_inner])
        solve(solver, work.scores, work.weights, work.target, n_inner, n_slots, work.inner, omega)
        add_start(critic, policy, tables, state, r, n_slots, work)
        norm = natural_norm(work.scores, omega[:n_slots], n_inner)
        if not math.isfinite(norm):
            state.failed[r] = max(state.outer[r], 0)
            forget_scores(work.scores, n_slots)
            break
        learning = state.outer[r] >= 0
        if learning:
            n = n_inner + 1 if steps.fresh else n_inner
            add_estimates(state, r, work.occupancy_total[:n], n, excess)
        move_duals(form, steps, state, work.occupancy_total, r, n_inner, root_k)
        eta = steps.eta_scale
        if steps.adaptive_eta:
            level = level_of(state, r, 0)
            eta *= cut(state, r, 0, math.sqrt(norm))
            eta = eta / (root_k * math.sqrt(level)) if level > 0.0 else 0.0
        update_level(state, r, 0, norm, steps.n_pilot)
        for k in range(n_signals):
            update_level(
                state, r, 1 + k, variance_of_sums(critic, tables, state, r, n_inner, k, work), steps.n_pilot
            )
        learn_critic_of(critic, policy, tables, actions, steps, state, r, n_seen, work)
        if learning and not take_step(critic, policy, theta, tables, actions, eta, norm, n_slots, work):
            state.failed[r] = state.outer[r]
            forget_scores(work.scores, n_slots)
            break
        forget_scores(work.scores, n_slots)
        state.outer[r] += 1
