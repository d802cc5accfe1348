"""The outer loop of PD-ANPG with a critic as control variate."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fastcmdp.kernels.algorithm.cv_batch import CriticBatch, sample_corrected
from fastcmdp.kernels.algorithm.cv_critic import learn_critic, look_at_pairs
from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.learning.asgd import InnerState, Momentum, Weights, asgd, fill_weights
from fastcmdp.kernels.learning.compatible import (
    add_misfit,
    critic_advantage,
    holding,
    learn_direction,
    n_rows,
    response,
    step_along,
    weigh,
)
from fastcmdp.kernels.policy.scores import collect_scores, forget_scores
from fastcmdp.kernels.policy.softmax import refresh_changed
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.kernels.sampling.tables import RowSpace
from fastcmdp.kernels.stop import finishes, leaves

# Constants of the recursion, found on a dozen problems; docs/algorithms.md has them by name.
TAIL = 30.0  # steps fall like TAIL / sqrt(k) once that is below c_eta
PROXIMAL = 0.05  # weight of the multipliers' proximal term
DUAL_MOST = 100.0  # multipliers in units of sd_r / sd_i, at most
MEMORY = 0.97  # of the measurements
LEAST = 0.01  # of the signals' own spreads stays where they cancel, as in a model with one decision
PULL = 2.0  # theta is drawn to the start by PULL / k, where it is no logit
ROUNDING = (64.0 * 2.0**-52) ** 2  # a smaller spread, relative to the horizon squared, is none
DEPTH = (
    15.0  # logits are at most so far below the largest of their state; further for advantages that are far
)
TRUST = 0.3  # of Lemma 6's steps, where the targets' noise is below the advantages' spread; less where it is above


class Steps(NamedTuple):
    """Settings of the outer loop."""

    n_inner: int  # H
    n_wanders: int  # exploring rollouts of an outer step
    n_skipped: int  # inner steps before the average begins
    gamma: float
    eta: float  # largest step of the logits, in units of the advantages' spread
    dual: float  # share of a violation that a step of length 1 is to undo
    far: np.ndarray  # float64[F]: an advantage beyond counts as this much in measurements
    score_bound: float  # G^2


class RunState(NamedTuple):
    """A run of R replicates: all that is needed to go on, and nothing else. F = 1 + m signals."""

    theta: np.ndarray  # float64[R, d]
    dual: np.ndarray  # float64[R, m]
    rng: np.ndarray  # uint64[R, 4, LANES]
    outer: np.ndarray  # int64[R]: outer steps done
    samples: np.ndarray  # int64[R]: transitions drawn
    failed: np.ndarray  # int64[R]: outer step at which a number ceased to be finite, or -1
    sums: np.ndarray  # float64[R, 1+2m]: sums over outer steps of the estimates of J and of the multipliers
    critic: np.ndarray  # float64[R, C, F]: W; on simulators float64[R, F, d], its weights
    evidence: (
        np.ndarray
    )  # float64[R, B + C]: counts of branches and of choices; on simulators see least_squares.py
    dual_mean: np.ndarray  # float64[R, m]: multipliers lately
    gram: np.ndarray  # float64[R, F, F]: E_nu E_pi of products of the critic's advantages
    spread: np.ndarray  # float64[R, F, F]: E_nu of covariances of W over uniform actions
    excess: np.ndarray  # float64[R, F]: by how much J exceeds the critic's
    value: np.ndarray  # float64[R, F]: J as it is known before the batch at hand
    noise: np.ndarray  # float64[R]: mean square of the targets of the inner loop; 0: none yet
    direction: np.ndarray  # float64[R, F, d]: where the inner loop begins, or none (compatible.py)


class Work(NamedTuple):
    """Work space of one thread."""

    job_choice: np.ndarray  # int64[2H]
    pair: np.ndarray  # int64[2H]: those of the batch, and choices of the same states in turn
    last_pair: np.ndarray  # int64[2H]
    occupancy_total: np.ndarray  # float64[H, F]
    control: CriticBatch
    matrix: np.ndarray  # float64[m, m]
    linear: np.ndarray  # float64[m]
    origin: np.ndarray  # float64[d]: theta at the start
    target: np.ndarray  # float64[H]
    scores: Any
    inner: InnerState
    weights: Weights
    omega: np.ndarray  # float64[slots]
    row_space: RowSpace


@kernel
def quadratic(matrix, linear, x):
    """Minimise x . matrix x / 2 + linear . x over x >= 0 by projected Gauss-Seidel, from x."""
    m = x.shape[0]
    for _ in range(100):
        change = 0.0
        for i in range(m):
            slope = linear[i]
            for j in range(m):
                slope += matrix[i, j] * x[j]
            new = max(x[i] - slope / matrix[i, i], 0.0)
            change = max(change, abs(new - x[i]))
            x[i] = new
        if change == 0.0:
            break


@kernel
def spread_of(state, r, f, horizon):
    """Sigma_ff, or 0 where it is rounding: a constant signal, or one that was not seen yet."""
    spread = state.spread[r, f, f]
    return spread if spread > ROUNDING * horizon * horizon else 0.0


@kernel
def lagrangian_square(state, r, horizon):
    """sigma^2 of the Lagrangian's advantages over uniform actions: from earlier batches only.

    Where the reward has no spread, that of the constraints with multipliers of at least 1.
    """
    spread, dual_mean = state.spread[r], state.dual_mean[r]
    m = dual_mean.shape[0]
    if spread_of(state, r, 0, horizon) == 0.0:
        alone = 0.0
        for i in range(m):
            alone += max(dual_mean[i] * dual_mean[i], 1.0) * spread_of(state, r, 1 + i, horizon)
        return alone
    square, apart = spread[0, 0], spread[0, 0]
    for i in range(m):
        apart += dual_mean[i] * dual_mean[i] * spread[1 + i, 1 + i]
        square += 2.0 * dual_mean[i] * spread[0, 1 + i]
        for j in range(m):
            square += dual_mean[i] * dual_mean[j] * spread[1 + i, 1 + j]
    return max(square, LEAST * apart)


@kernel
def cautious(momentum, sigma, noise):
    """ASGD's steps for a larger bound G^2 on the scores, chosen before the batch by how noisy targets were."""
    trust = TRUST * min(1.0, sigma / math.sqrt(noise)) if noise > 0.0 else 0.0
    return Momentum(momentum.alpha, momentum.beta, momentum.xi * trust, momentum.delta * trust)


@kernel
def move_dual(state, r, steps, sigma, horizon, work):
    """The multipliers for which the step at hand is predicted to undo a share of each violation.

    Predicted from earlier batches only; proximal, so that they climb slowly where the policy hardly reacts.
    """
    gram, dual, dual_mean = state.gram[r], state.dual[r], state.dual_mean[r]
    matrix, linear = work.matrix, work.linear
    m = dual.shape[0]
    for i in range(m):
        for j in range(m):
            matrix[i, j] = gram[1 + i, 1 + j]
        near = PROXIMAL * spread_of(state, r, 1 + i, horizon)
        if not near > 0.0:  # nothing acts on this constraint
            near = 1.0
        matrix[i, i] += near
        linear[i] = gram[0, 1 + i] - near * dual[i]
        linear[i] += steps.dual * sigma * (1.0 - steps.gamma) * state.value[r, 1 + i]
    quadratic(matrix, linear, dual)
    reward = math.sqrt(spread_of(state, r, 0, horizon))
    for i in range(m):
        width = math.sqrt(spread_of(state, r, 1 + i, horizon))
        most = reward / width if reward > 0.0 and width > 0.0 else 1.0
        dual[i] = min(dual[i], DUAL_MOST * most) if width > 0.0 else 0.0
        dual_mean[i] += (1.0 - MEMORY) * (dual[i] - dual_mean[i])


@kernel
def within(value, most):
    """The number in [-most, most] that is nearest to value."""
    return min(max(value, -most), most)


@kernel
def measure(policy, state, r, n_pairs, far, work):
    """Fold the batch into the measurements that later steps are made from."""
    gram, spread, look = state.gram[r], state.spread[r], work.control.look
    advantage, n_actions = look.advantage, look.n_actions
    n_signals = gram.shape[0]
    weight = max(1.0 - MEMORY, 1.0 / (state.outer[r] + 1.0))
    for f in range(n_signals):
        for h in range(n_pairs):
            for q in range(n_actions[h]):
                advantage[h, q, f] = within(advantage[h, q, f], far[f])
        for g in range(f + 1):
            product = response(policy, look.prob, advantage, n_actions, look.move, look.chance, n_pairs, f, g)
            covariance = 0.0
            for h in range(n_pairs):
                n = n_actions[h]
                both, of_f, of_g = 0.0, 0.0, 0.0
                for q in range(n):
                    a, b = advantage[h, q, f], advantage[h, q, g]
                    both += a * b
                    of_f += a
                    of_g += b
                share = 1.0 / n
                covariance += share * (both - share * of_f * of_g)
            gram[f, g] += weight * (product / n_pairs - gram[f, g])
            spread[f, g] += weight * (covariance / n_pairs - spread[f, g])
            gram[g, f], spread[g, f] = gram[f, g], spread[f, g]
        total = 0.0
        for h in range(n_pairs):
            total += work.occupancy_total[h, f]
        state.excess[r, f] += weight * (total / n_pairs - state.excess[r, f])
        state.value[r, f] = work.control.plug[f] + state.excess[r, f]


@generic("policy")
def move_policy(policy, tables, state, r, eta, far, work):
    """theta += eta (where the inner loop began)."""


@move_policy.on(Tabular)
def move_logits(policy, tables, state, r, eta, far, work):
    """The critic's advantages of the Lagrangian; logits then at most DEPTH below the largest, which is 0.

    Where a constraint's advantage is x times what is far, log x more, so that no probability times it is more.
    """
    theta, critic, dual, mean = state.theta[r], state.critic[r], state.dual[r], work.control.space.mean
    m = dual.shape[0]
    for s in range(mean.shape[0]):
        first, end = tables.state_to_choice[s], tables.state_to_choice[s + 1]
        top = -np.inf
        for q in range(first, end):
            theta[q] += eta * critic_advantage(critic, mean, dual, q, s)
            top = max(top, theta[q])
        for q in range(first, end):
            beyond = 1.0
            for i in range(m):
                beyond = max(beyond, (mean[s, 1 + i] - critic[q, 1 + i]) / far[1 + i])
            least = -DEPTH if beyond == 1.0 else -DEPTH - math.log(beyond)
            theta[q] = max(theta[q] - top, least)


@move_policy.otherwise
def move_weights(policy, tables, state, r, eta, far, work):
    """Weights without logits that could be held: they are drawn towards the start, as means of directions would be."""
    least, chance = 1.0, work.control.look.chance
    for row in range(chance.shape[0]):
        least = min(least, chance[row])
    share = PULL / state.outer[r]
    if least < math.exp(-DEPTH):
        share = max(share, holding(policy))
    share = min(share, 1.0)
    step_along(state.direction[r], state.dual[r], eta, share, work.origin, state.theta[r])


@kernel
def add_to_sums(state, r, n_pairs, plug, total):
    """Add the batch's estimates of J, and the multipliers, to the sums of replicate r."""
    sums, dual = state.sums[r], state.dual[r]
    n_signals = plug.shape[0]
    for f in range(n_signals):
        excess = 0.0
        for h in range(n_pairs):
            excess += total[h, f]
        sums[f] += plug[f] + excess / n_pairs
    for i in range(n_signals - 1):
        sums[n_signals + i] += dual[i]


@kernel
def advance(tables, policy, momentum, steps, state, actions, work, r, n_steps):
    """Make n_steps outer steps of replicate r, whose policy is ``actions``.

    It stops early where a number ceases to be finite.
    """
    n_inner, gamma, control = steps.n_inner, steps.gamma, work.control
    theta, dual, critic = state.theta[r], state.dual[r], state.critic[r]
    for _ in range(n_steps):
        if state.failed[r] >= 0 or finishes(tables.stop):
            break
        n_seen, _, transitions = sample_corrected(
            tables, actions, gamma, state.rng[r], n_inner, n_inner, steps.n_wanders, critic, state.evidence[r],
            control, work,
        )  # fmt: skip
        if leaves(tables.stop):
            break
        state.samples[r] += transitions
        look_at_pairs(
            tables, actions, critic, control.space, work.pair, state.outer[r], n_inner, control.look
        )
        rows = n_rows(policy, n_inner)
        n_slots = collect_scores(policy, theta, tables, actions, work.pair, rows, work.scores)
        k = float(state.outer[r])
        sigma = math.sqrt(lagrangian_square(state, r, tables.horizon))
        if sigma > 0.0:  # else no action makes a difference, or nothing is known yet
            eta = min(steps.eta, TAIL / math.sqrt(k)) / sigma
            move_dual(state, r, steps, sigma, tables.horizon, work)
            weigh(control.correction, dual, n_inner, work.target)
            add_misfit(policy, work.scores, state.direction[r], dual, control.look.row, work.target)
            finite, noise = math.isfinite(eta), 0.0
            for h in range(n_inner):
                noise += work.target[h] ** 2 / n_inner
                finite &= math.isfinite(work.target[h])
            if not finite:
                state.failed[r] = state.outer[r]
                forget_scores(work.scores, n_slots)
                break
            # Begun at the critic's advantage, ASGD moves from there as it moves from 0 on what the critic misses.
            inner = cautious(momentum, sigma, state.noise[r])
            fill_weights(inner, steps.n_skipped, work.weights)
            asgd(work.scores, inner, work.weights, work.target, n_inner, n_slots, work.inner, work.omega)
            weight = max(1.0 - MEMORY, 1.0 / k) if state.noise[r] > 0.0 else 1.0
            state.noise[r] += weight * (noise - state.noise[r])
            for i in range(n_slots):
                theta[work.scores.coordinate[i]] += eta * work.omega[i]
            move_policy(policy, tables, state, r, eta, steps.far, work)
        learn_direction(
            policy,
            work.scores,
            rows,
            steps.score_bound,
            control.look.row,
            state.direction[r],
            control.look.move,
        )
        forget_scores(work.scores, n_slots)
        measure(policy, state, r, n_inner, steps.far, work)
        add_to_sums(state, r, n_inner, control.plug, work.occupancy_total)
        learn_critic(tables, gamma, actions, n_seen, state.outer[r], state.evidence[r], critic, control.space)
        if sigma > 0.0:
            refresh_changed(policy, theta, tables, actions, work.row_space)
        state.outer[r] += 1
