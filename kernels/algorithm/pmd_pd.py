"""The outer loop of PMD-PD: policy mirror descent with a modified multiplier, on an explicit model.

Its alpha and eta' are given, or measured along the run,

    alpha_k = c sqrt(N_L),    eta'_ik = c' sqrt(N_r / N_ci) / max |J_ci| so far,

N_f the level of the mean over states of the variance of Q_f over actions, evenly weighted: of the outer steps before k
for alpha, of all batches before that of J_ci for eta' (`levels`). Until something is measured sqrt(N_L) stands at a
fifteenth of 1/(1-gamma), N_r / N_ci at 1 and max |J_ci| at 1/(1-gamma). An estimate of J_ci keeps the eta' that it was
first used with, so that modified multipliers cannot be negative.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.learning.levels import cut, level_of, spread_over_actions, update_level
from fastcmdp.kernels.policy.softmax import refresh_all
from fastcmdp.kernels.sampling.tables import RowSpace
from fastcmdp.kernels.sampling.truncated import NoTally, truncated
from fastcmdp.kernels.stop import finishes, leaves


class Steps(NamedTuple):
    """Settings of the outer loop."""

    n_sweeps: int  # t_k: inner updates of all states
    n_rollouts: int  # M_Q: rollouts a choice and sweep
    n_starts: int  # M_V: rollouts from the start distribution
    n_pairs: int  # N: pairs of a rollout
    gamma: float
    alpha: float  # weight of KL(pi || pi_k), or c
    eta: float  # an inner update goes to softmax(Q / alpha) by the share eta alpha / (1-gamma), at most all the way
    dual_step: np.ndarray  # float64[m]: eta', or c'
    adaptive_alpha: bool
    adaptive_dual: bool


class RunState(NamedTuple):
    """A run of R replicates: all that is needed to go on, and nothing else."""

    theta: np.ndarray  # float64[R, C]: log pi_k
    dual: np.ndarray  # float64[R, m]
    estimate: np.ndarray  # float64[R, 1+m]: of J at theta; NaN before the first step
    rng: np.ndarray  # uint64[R, 4, LANES]
    outer: np.ndarray  # int64[R]
    samples: np.ndarray  # int64[R]
    failed: np.ndarray  # int64[R]
    recent: np.ndarray  # float64[R, 2+m]: levels of Q_L, Q_r, Q_ci over actions
    average: np.ndarray  # float64[R, 2+m]
    longest: np.ndarray  # float64[R, 1+m]: largest root of the spread of Q_L and |J_ci| so far
    rate: np.ndarray  # float64[R, m]: eta' of the estimate at hand
    sums: (
        np.ndarray
    )  # float64[R, 1+2m]: of the estimates of J, and of the modified multipliers lt that prices use


class Work(NamedTuple):
    """Work space of one thread."""

    anchor: np.ndarray  # float64[C]: log pi_k
    signal: np.ndarray  # float64[C, 1+m]: r + lt.c - alpha KL(pi_t || pi_k), and c_1 .. c_m
    divergence: np.ndarray  # float64[S]: alpha KL(pi_t || pi_k)
    total: np.ndarray  # float64[C, 1+m]: Q hat of these
    reward: np.ndarray  # float64[C]: Q hat of r
    modified: np.ndarray  # float64[m]: lt
    start_total: np.ndarray  # float64[1, 1+m]
    choices: np.ndarray  # int64[C]: 0, 1, ..
    drawn: np.ndarray  # int64[1]: -1
    space: RowSpace


@kernel
def log_softmax(state_to_choice, z):
    """Subtract from the logits of each state the logarithm of the sum of their exponentials."""
    for s in range(state_to_choice.shape[0] - 1):
        first, last = state_to_choice[s], state_to_choice[s + 1]
        top = -np.inf
        for q in range(first, last):
            top = max(top, z[q])
        total = 0.0
        for q in range(first, last):
            total += math.exp(z[q] - top)
        shift = top + math.log(total)
        for q in range(first, last):
            z[q] -= shift


@kernel
def sample_q(tables, actions, steps, state, signals, alpha, work, r):
    """Estimate Q of all choices into work.total, with pi_t = exp(theta) and the anchor pi_k; return transitions.

    The first column is rt(s, a) + sum_{j>=1} gamma^j [rt(s_j, a_j) - alpha KL(pi_t || pi_k)(s_j)], the sum over
    truncated rollouts, with the exact divergence of each state visited; the others are those of c_1 .. c_m.
    """
    theta, anchor = state.theta[r], work.anchor
    state_to_choice = tables.state_to_choice
    signal, total = work.signal, work.total
    for s in range(state_to_choice.shape[0] - 1):
        divergence = 0.0
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            divergence += math.exp(theta[q]) * (theta[q] - anchor[q])
        work.divergence[s] = alpha * divergence
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            signal[q, 0] = signals[q, 0] - work.divergence[s]
            for i in range(work.modified.shape[0]):
                signal[q, 0] += work.modified[i] * signals[q, 1 + i]
    transitions = truncated(
        tables,
        actions,
        state.rng[r],
        work.choices,
        steps.n_rollouts,
        signal,
        steps.gamma,
        steps.n_pairs,
        total,
        NoTally(),
    )
    for q in range(total.shape[0]):
        for k in range(total.shape[1]):
            total[q, k] /= steps.n_rollouts
        total[q, 0] += work.divergence[tables.choice_state[q]]  # the first pair has none
    return transitions


@kernel
def choose_alpha(tables, steps, state, work, r):
    """Alpha of this outer step from the levels before it; then its own spreads are folded in.

    A step longer than all before it is cut to the longest of them: by a larger alpha.
    """
    total, reward, modified = work.total, work.reward, work.modified
    state_to_choice = tables.state_to_choice
    norm = spread_over_actions(state_to_choice, reward, total[:, 0], True)
    level = level_of(state, r, 0)
    shorter = cut(state, r, 0, math.sqrt(norm))
    alpha = steps.alpha
    if steps.adaptive_alpha:
        alpha *= math.sqrt(level) / shorter if level > 0.0 else tables.horizon / 15.0
    update_level(state, r, 0, norm, 0)
    for q in range(total.shape[0]):
        reward[q] = total[q, 0]
        for i in range(modified.shape[0]):
            reward[q] -= modified[i] * total[q, 1 + i]
    update_level(state, r, 1, spread_over_actions(state_to_choice, reward, reward, True), 0)
    for i in range(modified.shape[0]):
        spread = spread_over_actions(state_to_choice, reward, total[:, 1 + i], True)
        update_level(state, r, 2 + i, spread, 0)
    return alpha


@kernel
def estimate_values(tables, actions, steps, state, signals, work, r):
    """Estimate J of the policy at hand, for all signals, into state.estimate; return the transitions."""
    out = work.start_total
    transitions = truncated(
        tables,
        actions,
        state.rng[r],
        work.drawn,
        steps.n_starts,
        signals,
        steps.gamma,
        steps.n_pairs,
        out,
        NoTally(),
    )
    for k in range(signals.shape[1]):
        state.estimate[r, k] = out[0, k] / steps.n_starts
    return transitions


@kernel
def choose_dual_rates(tables, steps, state, r):
    """Eta' for the estimate at hand, from the levels and estimates before it; a longer step is cut to the longest."""
    reward = level_of(state, r, 1)
    for i in range(steps.dual_step.shape[0]):
        longest = state.longest[r, 1 + i]
        shorter = cut(state, r, 1 + i, abs(state.estimate[r, 1 + i]))
        state.rate[r, i] = steps.dual_step[i]
        if steps.adaptive_dual:
            state.rate[r, i] *= shorter / longest if longest > 0.0 else 1.0 / tables.horizon
            cost = level_of(state, r, 2 + i)
            if reward > 0.0 and cost > 0.0:
                state.rate[r, i] *= math.sqrt(reward / cost)


@kernel
def advance(tables, policy, signals, steps, state, actions, work, r, n_steps):
    """Make n_steps outer steps of replicate r, whose policy is ``actions``; stop where a number is not finite."""
    theta, dual, sums, estimate = state.theta[r], state.dual[r], state.sums[r], state.estimate[r]
    anchor, total, modified, rate = work.anchor, work.total, work.modified, state.rate[r]
    n_choices, m = theta.shape[0], dual.shape[0]
    for _ in range(n_steps):
        if state.failed[r] >= 0 or finishes(tables.stop):
            break
        if math.isnan(estimate[0]):
            log_softmax(tables.state_to_choice, theta)
            state.samples[r] += estimate_values(tables, actions, steps, state, signals, work, r)
            choose_dual_rates(tables, steps, state, r)
            for i in range(m):
                dual[i] = max(0.0, rate[i] * estimate[1 + i])
        for i in range(m):
            modified[i] = dual[i] - rate[i] * estimate[1 + i]
        for q in range(n_choices):
            anchor[q] = theta[q]
        finite, alpha = True, 0.0
        for sweep in range(steps.n_sweeps):
            state.samples[r] += sample_q(tables, actions, steps, state, signals, alpha, work, r)
            if leaves(tables.stop):
                break
            if sweep == 0:
                alpha = choose_alpha(tables, steps, state, work, r)
            share = min(steps.eta * alpha / (1.0 - steps.gamma), 1.0)
            for q in range(n_choices):
                theta[q] = (1.0 - share) * theta[q] + share * (total[q, 0] / alpha + anchor[q])
                finite &= math.isfinite(theta[q])
            if not finite:
                break
            log_softmax(tables.state_to_choice, theta)
            refresh_all(policy, theta, tables, actions, work.space)
        if not finite:
            for q in range(n_choices):
                theta[q] = anchor[q]
            state.failed[r] = state.outer[r]
            break
        for i in range(m):
            sums[1 + m + i] += modified[i]
        state.samples[r] += estimate_values(tables, actions, steps, state, signals, work, r)
        choose_dual_rates(tables, steps, state, r)
        sums[0] += estimate[0]
        for i in range(m):
            sums[1 + i] += estimate[1 + i]
            dual[i] = max(rate[i] * estimate[1 + i], dual[i] - rate[i] * estimate[1 + i])
        state.outer[r] += 1
