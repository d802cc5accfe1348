"""The outer loop of PMD-PD on an explicit model: regularised mirror descent on truncated rollouts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.policies import refresh_states
from fastcmdp.kernels.tables import RowSpace
from fastcmdp.kernels.truncated import truncated


class Steps(NamedTuple):
    """Settings of the outer loop."""

    n_outer: int  # K
    n_sweeps: int  # t_k
    n_rollouts: int  # M_Q, of each choice and sweep
    n_dual: int  # M_V
    length: int  # N
    gamma: float
    alpha: float  # weight of the divergence from the anchor
    step: float  # eta alpha / (1-gamma), in (0, 1]
    eta: np.ndarray  # float64[m]: eta' of the multipliers
    dual_max: np.ndarray  # float64[m]


class RunState(NamedTuple):
    """A run of R replicates: all that is needed to go on, and nothing else."""

    theta: np.ndarray  # float64[R, C]: log pi
    dual: np.ndarray  # float64[R, m]: the modified multipliers lambda - eta' J_c
    rng: np.ndarray  # uint64[R, 4, LANES]
    outer: np.ndarray  # int64[R]: outer steps done; -1 before the first estimate of J
    samples: np.ndarray  # int64[R]
    failed: np.ndarray  # int64[R]: outer step at which a number ceased to be finite, or -1
    plain: np.ndarray  # float64[R, m]: the multipliers lambda themselves
    sums: np.ndarray  # float64[R, 1+2m]: of the estimates of J at pi_1..pi_k, of the modified multipliers used


class Work(NamedTuple):
    """Work space of one thread."""

    choices: np.ndarray  # int64[n]: choices of states with more than one
    states: np.ndarray  # int64[S]
    start: np.ndarray  # int64[1]: -1
    record: np.ndarray  # uint64[C, 2]: a choice's branches, its regularised signal
    signal: np.ndarray  # float64[C, 2]: the same memory
    anchor: np.ndarray  # float64[C]: log pi_k
    paid: np.ndarray  # float64[C]: r + modified multipliers times c
    later: np.ndarray  # float64[n, 1]: what follows the first pair
    value: np.ndarray  # float64[1, 1+m]: J
    logit: np.ndarray  # float64[C]
    space: RowSpace


@kernel
def normalise(state_to_choice, logit):
    """Make logits log-probabilities, in place; return whether all are finite."""
    finite = True
    for s in range(state_to_choice.shape[0] - 1):
        first, last = state_to_choice[s], state_to_choice[s + 1]
        top = logit[first]
        for q in range(first + 1, last):
            top = max(top, logit[q])
        total = 0.0
        for q in range(first, last):
            total += math.exp(logit[q] - top)
        top += math.log(total)
        for q in range(first, last):
            logit[q] -= top
            finite &= math.isfinite(logit[q])
    return finite


@kernel
def fill_signal(tables, prob, theta, anchor, paid, alpha, signal):
    """Signal of the regularised problem, paid - alpha KL(pi(.|s) || pi_k(.|s)), for every choice of every state."""
    for s in range(tables.state_row.shape[0]):
        first, last = tables.state_to_choice[s], tables.state_to_choice[s + 1]
        divergence = 0.0
        for q in range(first, last):
            divergence += prob[q] * (theta[q] - anchor[q])
        for q in range(first, last):
            signal[q, 1] = paid[q] - alpha * divergence


@kernel
def estimate_values(tables, actions, steps, rng, work):
    """J of all signals from M_V rollouts into work.value[0]; return the transitions made."""
    return truncated(
        tables, actions, rng, tables.choice_word, tables.choice_signal, work.start, steps.n_dual, steps.length,
        steps.gamma, work.value,
    )  # fmt: skip


@kernel
def advance(policy, tables, actions, steps, state, work, r, n_steps):
    """Make n_steps outer steps of replicate r, whose policy is ``actions``; the first only estimates J(pi_0)."""
    m = tables.n_signals - 1
    theta, dual, plain, sums, rng = state.theta[r], state.dual[r], state.plain[r], state.sums[r], state.rng[r]
    choices, anchor, paid, logit, later = work.choices, work.anchor, work.paid, work.logit, work.later
    n_choices = theta.shape[0]
    for _ in range(n_steps):
        if state.failed[r] >= 0:
            break
        learning = state.outer[r] >= 0
        if learning:
            for q in range(n_choices):
                anchor[q] = theta[q]
                paid[q] = tables.choice_signal[q, 1]
                for i in range(m):
                    paid[q] += dual[i] * tables.choice_signal[q, 2 + i]
                work.record[q, 0] = tables.choice_word[q, 0]
            finite = True
            for _ in range(steps.n_sweeps):
                fill_signal(tables, actions.prob, theta, anchor, paid, steps.alpha, work.signal)
                state.samples[r] += truncated(
                    tables, actions, rng, work.record, work.signal, choices, steps.n_rollouts, steps.length,
                    steps.gamma, later,
                )  # fmt: skip
                for q in range(n_choices):
                    logit[q] = theta[q]
                for k in range(choices.shape[0]):
                    q = choices[k]
                    # pi_(t+1) ~ pi_t^(1 - step) exp(step Q / alpha), Q = paid + alpha log pi_k + what follows
                    target = anchor[q] + (paid[q] + later[k, 0]) / steps.alpha
                    logit[q] = (1.0 - steps.step) * theta[q] + steps.step * target
                finite = normalise(tables.state_to_choice, logit)
                if not finite:
                    break
                for q in range(n_choices):
                    theta[q] = logit[q]
                refresh_states(policy, theta, tables, actions, work.space, work.states, work.states.shape[0])
            if not finite:
                state.failed[r] = state.outer[r]
                break
        state.samples[r] += estimate_values(tables, actions, steps, rng, work)
        if learning:
            sums[0] += work.value[0, 0]
        for i in range(m):
            estimate = work.value[0, 1 + i]
            step = steps.eta[i] * estimate
            if learning:
                sums[1 + i] += estimate
                sums[1 + m + i] += dual[i]
                plain[i] = min(max(step, plain[i] - step), max(step, steps.dual_max[i]))
            else:
                plain[i] = max(step, 0.0)
            dual[i] = plain[i] - step
        state.outer[r] += 1
