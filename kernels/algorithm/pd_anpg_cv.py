"""The outer loop of PD-ANPG with a critic as control variate, on tables with tabular softmax policies."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.learning.asgd import InnerState, Momentum, Weights, asgd, fill_weights
from fastcmdp.kernels.learning.counts import back_up, count
from fastcmdp.kernels.policy.scores import collect_scores, forget_scores
from fastcmdp.kernels.policy.softmax import refresh_changed
from fastcmdp.kernels.sampling.corrected import corrected_rollouts
from fastcmdp.kernels.sampling.tables import RowSpace
from fastcmdp.kernels.stop import finishes, leaves
from fastcmdp.kernels.words import U64

# Constants of the recursion, found on a dozen problems; docs/algorithms.md has them by name.
TAIL = 30.0  # steps fall like TAIL / sqrt(k) once that is below c_eta
PROXIMAL = 0.05  # weight of the multipliers' proximal term
DUAL_MOST = 100.0  # multipliers in units of sd_r / sd_i, at most
MEMORY = 0.97  # of the measurements
LEAST = 0.01  # of the signals' own spreads stays where they cancel, as in a model with one decision
ROUNDING = (64.0 * 2.0**-52) ** 2  # a smaller spread, relative to the horizon squared, is none
DEPTH = (
    15.0  # logits are at most so far below the largest of their state, or further for advantages that are far
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


class RunState(NamedTuple):
    """A run of R replicates: all that is needed to go on, and nothing else. F = 1 + m signals."""

    theta: np.ndarray  # float64[R, C]
    dual: np.ndarray  # float64[R, m]
    rng: np.ndarray  # uint64[R, 4, LANES]
    outer: np.ndarray  # int64[R]: outer steps done
    samples: np.ndarray  # int64[R]: transitions drawn
    failed: np.ndarray  # int64[R]: outer step at which a number ceased to be finite, or -1
    sums: np.ndarray  # float64[R, 1+2m]: sums over outer steps of the estimates of J and of the multipliers
    critic: np.ndarray  # float64[R, C, F]: W
    branch_count: np.ndarray  # float64[R, B]
    choice_count: np.ndarray  # float64[R, C]
    dual_mean: np.ndarray  # float64[R, m]: multipliers lately
    gram: np.ndarray  # float64[R, F, F]: E_nu E_pi of products of the critic's advantages
    spread: np.ndarray  # float64[R, F, F]: E_nu of covariances of W over uniform actions
    excess: np.ndarray  # float64[R, F]: by how much J exceeds the critic's
    value: np.ndarray  # float64[R, F]: J as it is known before the batch at hand
    noise: np.ndarray  # float64[R]: mean square of the targets of the inner loop; 0: none yet


class Work(NamedTuple):
    """Work space of one thread."""

    job_choice: np.ndarray  # int64[2H]
    job_wanders: np.ndarray  # uint64[2H]
    pair: np.ndarray  # int64[H]
    last_pair: np.ndarray  # int64[2H]
    occupancy_total: np.ndarray  # float64[H, F]
    correction: np.ndarray  # float64[2H, F]
    record: Any  # (uint64[C W], float64[C W]): see corrected.py
    seen: np.ndarray  # uint64[n]
    mean: np.ndarray  # float64[S, F]: Wbar
    plug: np.ndarray  # float64[F]: the critic's J
    matrix: np.ndarray  # float64[m, m]
    linear: np.ndarray  # float64[m]
    target: np.ndarray  # float64[H]
    scores: Any
    inner: InnerState
    weights: Weights
    omega: np.ndarray  # float64[slots]
    space: RowSpace


@kernel
def read_critic(tables, graph, gamma, prob, critic, choice_count, record, mean, plug):
    """Fill Wbar under pi, the records of the rollouts and the critic's J.

    An action that was never tried counts as the average of those that were: W is written there.
    """
    state_to_choice, signal, n_signals = tables.state_to_choice, tables.choice_signal, tables.n_signals
    out, words = record[1], tables.words
    for s in range(mean.shape[0]):
        first, end = state_to_choice[s], state_to_choice[s + 1]
        tried = 0.0
        for k in range(n_signals):
            mean[s, k] = 0.0
        for q in range(first, end):
            if choice_count[q] > 0.0:
                tried += prob[q]
                for k in range(n_signals):
                    mean[s, k] += prob[q] * critic[q, k]
        if tried > 0.0:
            for k in range(n_signals):
                mean[s, k] /= tried
        for q in range(first, end):
            for k in range(n_signals):
                if choice_count[q] == 0.0:
                    critic[q, k] = mean[s, k]
                out[words * q + 1 + k] = signal[q, 1 + k] + gamma * mean[s, k] - critic[q, k]
    plug[:] = 0.0
    for i in range(graph.start_state.shape[0]):
        for k in range(n_signals):
            plug[k] += graph.start_prob[i] * mean[graph.start_state[i], k]


@kernel
def sample_batch(tables, actions, graph, steps, rng, work):
    """Draw the batch: occupancy rollouts, then those from their last pairs and the exploring ones side by side.

    Return how many transitions were written down, and how many were made. work.pair[h] ~ nu;
    work.occupancy_total[h] and work.correction[h] estimate J minus the critic's, and Q - W at the pair.
    """
    n, n_wanders = steps.n_inner, steps.n_wanders
    job_choice, job_wanders = work.job_choice, work.job_wanders
    for j in range(n):
        job_choice[j] = -1
    job_wanders[:] = U64(0)
    n_seen, first = corrected_rollouts(
        tables, actions, tables.row_state, steps.gamma, rng, job_choice[:n], job_wanders[:n], work.mean, work.record,
        work.occupancy_total, work.pair, work.seen, 0,
    )  # fmt: skip
    if leaves(tables.stop):  # then pairs are none
        return n_seen, first
    for h in range(n):
        job_choice[h] = work.pair[h]
    for h in range(n_wanders):
        job_choice[n + h] = work.pair[h]
        job_wanders[n + h] = U64(1)
    jobs = n + n_wanders
    n_seen, second = corrected_rollouts(
        tables, actions, tables.row_state, steps.gamma, rng, job_choice[:jobs], job_wanders[:jobs], work.mean,
        work.record, work.correction, work.last_pair, work.seen, n_seen,
    )  # fmt: skip
    return n_seen, first + second


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
def measure(tables, prob, state, r, n_pairs, far, work):
    """Fold the batch into the measurements that later steps are made from."""
    critic, gram, spread = state.critic[r], state.gram[r], state.spread[r]
    mean, pair = work.mean, work.pair
    n_signals = tables.n_signals
    weight = max(1.0 - MEMORY, 1.0 / (state.outer[r] + 1.0))
    for f in range(n_signals):
        for g in range(f + 1):
            product, covariance = 0.0, 0.0
            for h in range(n_pairs):
                s = tables.choice_state[pair[h]]
                first, end = tables.state_to_choice[s], tables.state_to_choice[s + 1]
                both, of_f, of_g = 0.0, 0.0, 0.0
                for q in range(first, end):
                    a, b = (
                        within(critic[q, f] - mean[s, f], far[f]),
                        within(critic[q, g] - mean[s, g], far[g]),
                    )
                    product += prob[q] * a * b
                    both += a * b
                    of_f += a
                    of_g += b
                share = 1.0 / (end - first)
                covariance += share * (both - share * of_f * of_g)
            gram[f, g] += weight * (product / n_pairs - gram[f, g])
            spread[f, g] += weight * (covariance / n_pairs - spread[f, g])
            gram[g, f], spread[g, f] = gram[f, g], spread[f, g]
        total = 0.0
        for h in range(n_pairs):
            total += work.occupancy_total[h, f]
        state.excess[r, f] += weight * (total / n_pairs - state.excess[r, f])
        state.value[r, f] = work.plug[f] + state.excess[r, f]


@kernel
def move_policy(tables, critic, mean, dual, eta, far, theta):
    """theta += eta (critic's advantages of the Lagrangian); logits at most DEPTH below the largest, which is 0.

    Where a constraint's advantage is x times what is far, log x more, so that no probability times it is more.
    """
    m = dual.shape[0]
    for s in range(mean.shape[0]):
        first, end = tables.state_to_choice[s], tables.state_to_choice[s + 1]
        top = -np.inf
        for q in range(first, end):
            advantage = critic[q, 0] - mean[s, 0]
            for i in range(m):
                advantage += dual[i] * (critic[q, 1 + i] - mean[s, 1 + i])
            theta[q] += eta * advantage
            top = max(top, theta[q])
        for q in range(first, end):
            beyond = 1.0
            for i in range(m):
                beyond = max(beyond, (mean[s, 1 + i] - critic[q, 1 + i]) / far[1 + i])
            least = -DEPTH if beyond == 1.0 else -DEPTH - math.log(beyond)
            theta[q] = max(theta[q] - top, least)


@kernel
def advance(tables, graph, policy, momentum, steps, state, actions, work, r, n_steps):
    """Make n_steps outer steps of replicate r, whose policy is ``actions``.

    It stops early where a number ceases to be finite.
    """
    m = tables.n_signals - 1
    n_inner, gamma = steps.n_inner, steps.gamma
    theta, dual, critic = state.theta[r], state.dual[r], state.critic[r]
    branch_count, choice_count = state.branch_count[r], state.choice_count[r]
    correction, prob = work.correction, actions.prob
    for _ in range(n_steps):
        if state.failed[r] >= 0 or finishes(tables.stop):
            break
        read_critic(tables, graph, gamma, prob, critic, choice_count, work.record, work.mean, work.plug)
        n_seen, transitions = sample_batch(tables, actions, graph, steps, state.rng[r], work)
        if leaves(tables.stop):
            break
        state.samples[r] += transitions
        k = float(state.outer[r])
        sigma = math.sqrt(lagrangian_square(state, r, tables.horizon))
        eta, n_slots = 0.0, 0
        if sigma > 0.0:  # else no action makes a difference, or nothing is known yet
            eta = min(steps.eta, TAIL / math.sqrt(k)) / sigma
            move_dual(state, r, steps, sigma, tables.horizon, work)
            n_slots = collect_scores(policy, theta, tables, actions, work.pair, n_inner, work.scores)
            finite, noise = math.isfinite(eta), 0.0
            for h in range(n_inner):
                e = correction[h, 0]
                for i in range(m):
                    e += dual[i] * correction[h, 1 + i]
                work.target[h] = e
                noise += e * e / n_inner
                finite &= math.isfinite(e)
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
            forget_scores(work.scores, n_slots)
            move_policy(tables, critic, work.mean, dual, eta, steps.far, theta)
        measure(tables, prob, state, r, n_inner, steps.far, work)
        for f in range(1 + m):
            total = 0.0
            for h in range(n_inner):
                total += work.occupancy_total[h, f]
            state.sums[r, f] += work.plug[f] + total / n_inner
        for i in range(m):
            state.sums[r, 1 + m + i] += dual[i]
        count(graph, work.seen, n_seen, branch_count, choice_count)
        back_up(tables, graph, gamma, prob, work.seen, n_seen, branch_count, choice_count, critic, work.mean)
        if sigma > 0.0:
            refresh_changed(policy, theta, tables, actions, work.space)
        state.outer[r] += 1
