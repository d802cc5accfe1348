"""The outer loop of the methods that follow plain gradients of J_r and of every J_ci: C-PG and LB-SGD.

Where values and gradients come from is data, a source; what a method makes of them is a rule of its own file. For
k = 0..K-1, from samples of pi_k,

    J_f and G_f = grad J_f hat = sum_h weight_hf g_h,       f = r, c_1 .. c_m, g_h the score of pair h
    theta_{k+1} = theta_k + step (sum_f price_f G_f),       price and step: the rule's

Sources: `Recorded`, trajectories of N pairs (GPOMDP), also for the conditional value at risk of a constraint's
discounted sum; `Known`, exact values, so that a method can be seen without noise in the same machine code.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fastcmdp.kernels.algorithm.pd_anpg import mean_and_variance
from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.learning.levels import level_of, update_level
from fastcmdp.kernels.policy.scores import DenseScores, SparseScores, collect_scores, forget_scores
from fastcmdp.kernels.policy.softmax import step_touched
from fastcmdp.kernels.sampling.q_tables import Exact, evaluate, reach_exactly
from fastcmdp.kernels.sampling.tables import RowSpace
from fastcmdp.kernels.sampling.trajectories import trajectories
from fastcmdp.kernels.sampling.truncated import NoTally
from fastcmdp.kernels.stop import finishes, leaves


class Recorded(NamedTuple):
    """B trajectories of N pairs for the values, and B more for the gradients."""

    gamma: float
    signal: np.ndarray  # float64[C, 1+m]
    tail: np.ndarray  # float64[m]: level of the value at risk that is limited; 0: the mean is


class Known(NamedTuple):
    """Exact values, occupancy and advantages of a table."""

    exact: Exact
    gamma: float
    start: np.ndarray  # float64[S]
    signal: np.ndarray  # float64[C, 1+m]


class RunState(NamedTuple):
    """A run of R replicates: all that is needed to go on, and nothing else."""

    theta: np.ndarray  # float64[R, d]
    dual: np.ndarray  # float64[R, m]
    memory: np.ndarray  # float64[R, m, width]: of multipliers, see duals; width 0 where a method has none
    quantile: np.ndarray  # float64[R, m]: of the loss -sum gamma^t c_t, for a limited value at risk
    rng: np.ndarray  # uint64[R, 4, LANES]
    outer: np.ndarray  # int64[R]
    samples: np.ndarray  # int64[R]
    failed: np.ndarray  # int64[R]
    recent: (
        np.ndarray
    )  # float64[R, 2+2m]: levels of |step direction|^2, of all |G_f|^2, of the losses' variances
    average: np.ndarray  # float64[R, 2+2m]
    longest: np.ndarray  # float64[R, 2+2m]: largest |direction|, |J_ci|, |G_f| so far
    sums: np.ndarray  # float64[R, 1+2m]: of the estimates of J and of the multipliers


class Work(NamedTuple):
    """Work space of one thread; what a source does not use is empty."""

    path: np.ndarray  # int64[B, N]
    togo: np.ndarray  # float64[B, N, 1+m]
    estimate: np.ndarray  # float64[C, 1+m]: Q
    reach: np.ndarray  # float64[2, S]: discounted visits
    pair: np.ndarray  # int64[n]
    weight: np.ndarray  # float64[n, 1+m]: G_f = sum over pairs of weight times score
    mean: np.ndarray  # float64[1+m]: J hat
    value: np.ndarray  # float64[1+m]: J hat, or what is limited in its place
    doubt: np.ndarray  # float64[1+m]: standard errors of ``value``
    gradient: np.ndarray  # float64[1+m, slots]
    square: np.ndarray  # float64[1+m]: |G_f|^2
    price: np.ndarray  # float64[1+m]
    scores: Any
    omega: np.ndarray  # float64[slots]: the direction, then the new parameters
    space: RowSpace


@generic("source")
def gather(source, tables, actions, state, r, work):
    """Draw: work.pair, weight, mean, value and doubt; return the transitions made."""


@kernel
def sum_to_go(source, path, togo):
    """togo[b, l, f] = sum_{t >= l} gamma^t f(pair t of trajectory b)."""
    n_pairs = path.shape[1]
    for b in range(path.shape[0]):
        for k in range(togo.shape[2]):
            total = 0.0
            for j in range(n_pairs - 1, -1, -1):
                total += source.gamma**j * source.signal[path[b, j], k]
                togo[b, j, k] = total


@kernel
def limit_values(source, state, r, work):
    """From trajectories for the values: means, and what is limited; the quantiles move after their last use."""
    n = work.path.shape[0]
    for k in range(work.mean.shape[0]):
        work.mean[k], variance = mean_and_variance(work.togo[:, 0, :], n, k)
        work.value[k], work.doubt[k] = work.mean[k], math.sqrt(variance / n)
        if k == 0 or source.tail[k - 1] == 0.0:
            continue
        share, level = 1.0 - source.tail[k - 1], 1 + work.mean.shape[0] + k - 1
        quantile = -work.mean[k] if state.outer[r] == 0 else state.quantile[r, k - 1]
        beyond, excess = 0.0, 0.0
        for b in range(n):
            loss = -work.togo[b, 0, k]
            beyond += 1.0 if loss > quantile else 0.0
            excess += max(loss - quantile, 0.0)
        work.value[k] = -(quantile + excess / (n * share))
        scale = math.sqrt(level_of(state, r, level) / (state.outer[r] + 1))
        state.quantile[r, k - 1] = quantile + scale * (beyond / (n * share) - 1.0)
        update_level(state, r, level, variance, 0)


@gather.on(Recorded)
def gather_trajectories(source, tables, actions, state, r, work):
    path, togo = work.path, work.togo
    n_paths, n_pairs, n_signals = togo.shape
    drawn = trajectories(tables, actions, state.rng[r], path)
    if leaves(tables.stop):
        return drawn
    sum_to_go(source, path, togo)
    kept = state.quantile[r].copy()  # the gradient is that of the value as it was estimated
    limit_values(source, state, r, work)
    drawn += trajectories(tables, actions, state.rng[r], path)
    if leaves(tables.stop):
        return drawn
    sum_to_go(source, path, togo)
    for k in range(1, n_signals):
        if source.tail[k - 1] > 0.0:
            quantile = kept[k - 1] if state.outer[r] > 0 else -work.mean[k]
            for b in range(n_paths):
                togo[b, :, k] = -max(-togo[b, 0, k] - quantile, 0.0) / (1.0 - source.tail[k - 1])
    for j in range(n_pairs):
        for k in range(n_signals):
            total = 0.0
            for b in range(n_paths):
                total += togo[b, j, k]
            for b in range(
                n_paths
            ):  # less the mean of the other trajectories, which are independent of this one
                own = togo[b, j, k]
                work.weight[b * n_pairs + j, k] = (own - (total - own) / (n_paths - 1)) / n_paths
    for b in range(n_paths):
        for j in range(n_pairs):
            work.pair[b * n_pairs + j] = path[b, j]
    return drawn


@gather.on(Known)
def gather_exactly(source, tables, actions, state, r, work):
    prob, exact, state_to_choice = actions.prob, source.exact, tables.state_to_choice
    evaluate(exact, tables, actions, state.rng[r], source.signal, source.gamma, work.estimate, NoTally())
    reach = work.reach[0]
    reach_exactly(exact, tables, prob, source.gamma, source.start, reach, work.reach[1])
    work.mean[:] = 0.0
    for s in range(reach.shape[0]):
        first, last = state_to_choice[s], state_to_choice[s + 1]
        for k in range(work.mean.shape[0]):
            v = 0.0
            for q in range(first, last):
                v += prob[q] * work.estimate[q, k]
            work.mean[k] += source.start[s] * v
            for q in range(first, last):
                work.weight[q, k] = reach[s] * prob[q] * (work.estimate[q, k] - v)
    for q in range(prob.shape[0]):
        work.pair[q] = q
    work.value[:] = work.mean
    work.doubt[:] = 0.0
    return 0


@generic("scores")
def add_gradients(scores, weight, n_slots, gradient):
    """gradient[f, slot] = sum over pairs of weight[h, f] times score; all slots begin at 0."""


@add_gradients.on(DenseScores)
def add_rows(scores, weight, n_slots, gradient):
    for h in range(weight.shape[0]):
        for k in range(weight.shape[1]):
            for i in range(n_slots):
                gradient[k, i] += weight[h, k] * scores.dense[h, i]


@add_gradients.on(SparseScores)
def add_lists(scores, weight, n_slots, gradient):
    for h in range(weight.shape[0]):
        for j in range(scores.first[h], scores.first[h + 1]):
            for k in range(weight.shape[1]):
                gradient[k, scores.slot[j]] += weight[h, k] * scores.value[j]


@generic("rule")
def aim(rule, steps, state, r, work):
    """From values, doubts and |G_f|^2: move the multipliers, if any; price of every gradient to work.price."""


@generic("rule")
def stride(rule, steps, state, r, work, norm, n_slots):
    """The step along work.omega, whose squared norm is ``norm``."""


@kernel
def direction(work, n_slots):
    """work.omega = sum_f price_f G_f; return its squared norm."""
    norm = 0.0
    for i in range(n_slots):
        x = 0.0
        for k in range(work.price.shape[0]):
            x += work.price[k] * work.gradient[k, i]
        work.omega[i] = x
        norm += x * x
    return norm


@kernel
def advance(tables, policy, source, rule, steps, state, actions, work, r, n_steps):
    """Make n_steps outer steps of replicate r, whose policy is ``actions``; stop where a number is not finite."""
    theta = state.theta[r]
    m = state.dual.shape[1]
    for _ in range(n_steps):
        if state.failed[r] >= 0 or finishes(tables.stop):
            break
        drawn = gather(source, tables, actions, state, r, work)
        if leaves(tables.stop):
            break
        state.samples[r] += drawn
        n_pairs = work.weight.shape[0]
        n_slots = collect_scores(policy, theta, tables, actions, work.pair, n_pairs, work.scores)
        work.gradient[:, :n_slots] = 0.0
        add_gradients(work.scores, work.weight, n_slots, work.gradient)
        for k in range(1 + m):
            work.square[k] = 0.0
            for i in range(n_slots):
                work.square[k] += work.gradient[k, i] ** 2
        aim(rule, steps, state, r, work)
        norm = direction(work, n_slots)
        step = stride(rule, steps, state, r, work, norm, n_slots)
        finite = math.isfinite(norm) and math.isfinite(step)
        if not finite or not step_touched(
            policy, theta, tables, actions, step, work.omega, work.scores, n_slots, work.space
        ):
            state.failed[r] = state.outer[r]
            forget_scores(work.scores, n_slots)
            break
        forget_scores(work.scores, n_slots)
        state.sums[r, : 1 + m] += work.mean
        state.sums[r, 1 + m :] += state.dual[r]
        state.outer[r] += 1
