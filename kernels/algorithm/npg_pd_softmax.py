"""The outer loop of tabular NPG-PD with a generative model: every choice is estimated in every outer step."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.learning.duals import move
from fastcmdp.kernels.learning.levels import MEMORY, cut, dual_rate, level_of, update_level
from fastcmdp.kernels.policy.softmax import refresh_all
from fastcmdp.kernels.sampling.rollouts import rollouts
from fastcmdp.kernels.sampling.tables import RowSpace
from fastcmdp.kernels.stop import finishes, leaves


class Steps(NamedTuple):
    """Settings of the outer loop; learning rates as in pd_anpg.Steps, with the logits' step eta/(1-gamma)."""

    n_outer: int  # T
    n_rollouts: int  # M, of each choice
    eta_scale: float
    zeta_scale: np.ndarray  # float64[m]
    adaptive_eta: bool
    adaptive_zeta: bool
    dual_max: np.ndarray  # float64[m]
    start: np.ndarray  # float64[S]


class RunState(NamedTuple):
    """A run of R replicates: all that is needed to go on, and nothing else."""

    theta: np.ndarray  # float64[R, C]
    dual: np.ndarray  # float64[R, m]
    memory: np.ndarray  # float64[R, m, width]: of the multipliers, see duals
    rng: np.ndarray  # uint64[R, 4, LANES]
    outer: np.ndarray  # int64[R]
    samples: np.ndarray  # int64[R]
    failed: np.ndarray  # int64[R]
    recent: (
        np.ndarray
    )  # float64[R, 2+m]: levels of the mean square advantage and of the variances of J, lately
    average: np.ndarray  # float64[R, 2+m]: the same since the start
    longest: np.ndarray  # float64[R, 1+m]: largest root of the mean square advantage and |J_ci| so far
    centre: np.ndarray  # float64[R, 1+m]: J, lately
    sums: np.ndarray  # float64[R, 1+2m]: sums over outer steps of the estimates of J and of the multipliers


class Work(NamedTuple):
    """Work space of one thread."""

    job_choice: np.ndarray  # int64[C M], every choice M times
    job_row: np.ndarray  # uint32[C M], zeros
    last_pair: np.ndarray  # int64[C M]
    total: np.ndarray  # float64[C M, 1+m]
    estimate: np.ndarray  # float64[C, 1+m]: Q hat
    value: np.ndarray  # float64[1+m]: V hat of a state, then J hat
    space: RowSpace


@kernel
def mean_estimates(total, n_rollouts, estimate):
    """Average the M rollouts of each choice."""
    for q in range(estimate.shape[0]):
        for k in range(estimate.shape[1]):
            x = 0.0
            for j in range(q * n_rollouts, (q + 1) * n_rollouts):
                x += total[j, k]
            estimate[q, k] = x / n_rollouts


@kernel
def plug_in(state_to_choice, prob, start, estimate, k):
    """J hat of signal k: sum of start(s) pi(a|s) Q hat(s, a)."""
    x = 0.0
    for s in range(start.shape[0]):
        if start[s] > 0.0:
            v = 0.0
            for q in range(state_to_choice[s], state_to_choice[s + 1]):
                v += prob[q] * estimate[q, k]
            x += start[s] * v
    return x


@kernel
def spread(state_to_choice, prob, start, total, n_rollouts, k, centre):
    """Mean square distance from ``centre`` of one rollout of signal k from the start distribution and policy."""
    x = 0.0
    for s in range(start.shape[0]):
        if start[s] > 0.0:
            for q in range(state_to_choice[s], state_to_choice[s + 1]):
                square = 0.0
                for j in range(q * n_rollouts, (q + 1) * n_rollouts):
                    square += (total[j, k] - centre) ** 2
                x += start[s] * prob[q] * square / n_rollouts
    return x


@kernel
def advantage_lagrangian(state_to_choice, prob, dual, estimate):
    """Overwrite column 0 of Q hat by A hat of r + lambda c; return its mean square under pi, a mean over states."""
    n_states = state_to_choice.shape[0] - 1
    level = 0.0
    for s in range(n_states):
        mean = 0.0
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            for i in range(dual.shape[0]):
                estimate[q, 0] += dual[i] * estimate[q, 1 + i]
            mean += prob[q] * estimate[q, 0]
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            estimate[q, 0] -= mean
            level += prob[q] * estimate[q, 0] ** 2
    return level / n_states


@kernel
def advance(tables, policy, form, steps, state, actions, work, r, n_steps):
    """Make n_steps outer steps of replicate r, whose policy is ``actions``, with a form of multiplier as PD-ANPG's.

    It stops early where a number ceases to be finite.
    """
    m = tables.n_signals - 1
    theta, dual, centre, sums = state.theta[r], state.dual[r], state.centre[r], state.sums[r]
    state_to_choice, prob, start, estimate = tables.state_to_choice, actions.prob, steps.start, work.estimate
    root = math.sqrt(steps.n_outer)
    for _ in range(n_steps):
        if state.failed[r] >= 0 or finishes(tables.stop):
            break
        state.samples[r] += rollouts(
            tables, actions, state.rng[r], work.job_choice, work.job_row, work.total, work.last_pair
        )
        if leaves(tables.stop):
            break
        mean_estimates(work.total, steps.n_rollouts, estimate)
        for k in range(1 + m):
            work.value[k] = plug_in(state_to_choice, prob, start, estimate, k)
        norm = advantage_lagrangian(state_to_choice, prob, dual, estimate)  # before the dual step
        if not math.isfinite(norm):
            state.failed[r] = state.outer[r]
            break
        for i in range(m):
            zeta = steps.zeta_scale[i]
            if steps.adaptive_zeta:
                zeta *= dual_rate(level_of(state, r, 1), level_of(state, r, 2 + i), root)
                zeta *= cut(state, r, 1 + i, abs(work.value[1 + i]))
            sums[1 + m + i] += dual[i]
            dual[i] = move(form, state.memory[r, i], -work.value[1 + i], zeta, 1.0 / root, steps.dual_max[i])
        step = steps.eta_scale
        if steps.adaptive_eta:
            level = level_of(state, r, 0)
            step *= cut(state, r, 0, math.sqrt(norm))
            step = step / (root * math.sqrt(level)) if level > 0.0 else 0.0
        else:
            step *= tables.horizon
        update_level(state, r, 0, norm, 0)
        weight = max(1.0 - MEMORY, 1.0 / (state.outer[r] + 1))
        for k in range(1 + m):
            sums[k] += work.value[k]
            centre[k] += (work.value[k] - centre[k]) * weight
            square = spread(state_to_choice, prob, start, work.total, steps.n_rollouts, k, centre[k])
            update_level(state, r, 1 + k, square, 0)
        if norm > 0.0:
            finite = True
            for q in range(theta.shape[0]):
                estimate[q, 0] = theta[q] + step * estimate[q, 0]
                finite &= math.isfinite(estimate[q, 0])
            if not finite:
                state.failed[r] = state.outer[r]
                break
            for q in range(theta.shape[0]):
                theta[q] = estimate[q, 0]
            refresh_all(policy, theta, tables, actions, work.space)
        state.outer[r] += 1
