"""The outer loop of PMD-PD: policy mirror descent with a modified multiplier, on an explicit model."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.policy.softmax import refresh_all
from fastcmdp.kernels.sampling.tables import RowSpace
from fastcmdp.kernels.sampling.truncated import truncated
from fastcmdp.kernels.stop import finishes, leaves


class Steps(NamedTuple):
    """Settings of the outer loop."""

    n_sweeps: int  # t_k: inner updates of all states
    n_rollouts: int  # M_Q: rollouts a choice and sweep
    n_starts: int  # M_V: rollouts from the start distribution
    n_pairs: int  # N: pairs of a rollout
    gamma: float
    alpha: float  # weight of KL(pi || pi_k)
    share: float  # eta alpha / (1-gamma): how far an inner update goes to softmax(Q / alpha)
    dual_step: np.ndarray  # float64[m], eta'


class RunState(NamedTuple):
    """A run of R replicates: all that is needed to go on, and nothing else."""

    theta: np.ndarray  # float64[R, C]: log pi_k
    dual: np.ndarray  # float64[R, m]
    estimate: np.ndarray  # float64[R, 1+m]: of J at theta; NaN before the first step
    rng: np.ndarray  # uint64[R, 4, LANES]
    outer: np.ndarray  # int64[R]
    samples: np.ndarray  # int64[R]
    failed: np.ndarray  # int64[R]
    sums: (
        np.ndarray
    )  # float64[R, 1+2m]: of the estimates of J, and of the modified multipliers lt that prices use


class Work(NamedTuple):
    """Work space of one thread."""

    anchor: np.ndarray  # float64[C]: log pi_k
    signal: np.ndarray  # float64[C, 1]: r + lt.c - alpha KL(pi_t || pi_k)
    divergence: np.ndarray  # float64[S]: alpha KL(pi_t || pi_k)
    total: np.ndarray  # float64[C, 1]
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
def regularised_q(tables, actions, steps, state, signals, anchor, modified, work, r):
    """Estimate Q^alpha of all choices into work.total, with pi_t = exp(theta) and the anchor pi_k; return transitions.

    Q^alpha(s, a) = rt(s, a) + alpha log pi_k(a|s) + sum_{j>=1} gamma^j [rt(s_j, a_j) - alpha KL(pi_t || pi_k)(s_j)],
    the last sum over truncated rollouts, with the exact divergence of each state visited.
    """
    theta = state.theta[r]
    state_to_choice = tables.state_to_choice
    signal, total = work.signal, work.total
    n_signals = signals.shape[1]
    for s in range(state_to_choice.shape[0] - 1):
        divergence = 0.0
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            divergence += math.exp(theta[q]) * (theta[q] - anchor[q])
        divergence *= steps.alpha
        work.divergence[s] = divergence
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            value = signals[q, 0]
            for i in range(n_signals - 1):
                value += modified[i] * signals[q, 1 + i]
            signal[q, 0] = value - divergence
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
    )
    for q in range(total.shape[0]):  # the first pair has alpha log pi_k, and no divergence
        first = work.divergence[tables.choice_state[q]] + steps.alpha * anchor[q]
        total[q, 0] = total[q, 0] / steps.n_rollouts + first
    return transitions


@kernel
def estimate_values(tables, actions, steps, state, signals, work, r):
    """Estimate J of the policy at hand, for all signals, into state.estimate; return the transitions."""
    out = work.start_total
    transitions = truncated(
        tables, actions, state.rng[r], work.drawn, steps.n_starts, signals, steps.gamma, steps.n_pairs, out
    )
    for k in range(signals.shape[1]):
        state.estimate[r, k] = out[0, k] / steps.n_starts
    return transitions


@kernel
def advance(tables, policy, signals, steps, state, actions, work, r, n_steps):
    """Make n_steps outer steps of replicate r, whose policy is ``actions``; stop where a number is not finite."""
    theta, dual, sums, estimate = state.theta[r], state.dual[r], state.sums[r], state.estimate[r]
    anchor, total = work.anchor, work.total
    n_choices, m = theta.shape[0], dual.shape[0]
    modified = np.empty(m)
    for _ in range(n_steps):
        if state.failed[r] >= 0 or finishes(tables.stop):
            break
        if math.isnan(estimate[0]):
            log_softmax(tables.state_to_choice, theta)
            state.samples[r] += estimate_values(tables, actions, steps, state, signals, work, r)
            for i in range(m):
                dual[i] = max(0.0, steps.dual_step[i] * estimate[1 + i])
        for i in range(m):
            modified[i] = dual[i] - steps.dual_step[i] * estimate[1 + i]
        for q in range(n_choices):
            anchor[q] = theta[q]
        finite = True
        for _ in range(steps.n_sweeps):
            state.samples[r] += regularised_q(
                tables, actions, steps, state, signals, anchor, modified, work, r
            )
            if leaves(tables.stop):
                break
            for q in range(n_choices):
                theta[q] = (1.0 - steps.share) * theta[q] + steps.share * (total[q, 0] / steps.alpha)
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
        state.samples[r] += estimate_values(tables, actions, steps, state, signals, work, r)
        sums[0] += estimate[0]
        for i in range(m):
            sums[1 + i] += estimate[1 + i]
            sums[1 + m + i] += modified[i]
            dual[i] = max(
                steps.dual_step[i] * estimate[1 + i], dual[i] - steps.dual_step[i] * estimate[1 + i]
            )
        state.outer[r] += 1
