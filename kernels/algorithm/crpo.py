"""The outer loop of CRPO: a critic by temporal differences, then one step on the reward or on a violated constraint."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.learning.critics import Gradients, critic_form, feature_row, n_hidden, predict
from fastcmdp.kernels.learning.levels import cut, level_of, update_level
from fastcmdp.kernels.learning.td import run_td
from fastcmdp.kernels.policy.softmax import refresh_changed
from fastcmdp.kernels.sampling.tables import RowSpace, Tables, prepare_row
from fastcmdp.kernels.simulator.simulate import Addresses
from fastcmdp.kernels.simulator.walks import live_plug_in, live_squares, run_walk
from fastcmdp.kernels.stop import finishes, leaves
from fastcmdp.kernels.streams import next_word, to_unit
from fastcmdp.kernels.words import HALF, U64


class Steps(NamedTuple):
    """Settings of the outer loop.

    With ``adaptive_step`` the step on Q_f is step / sqrt(T N_f), with ``adaptive_tol`` the tolerance of constraint i
    is tol_i sqrt(N_i / T): N_f is the level of the mean square of Q_f - V_f over nu, measured along the run, before the
    critics at hand. Without, they are step and tol_i.
    """

    n_outer: int  # T
    n_inner: int  # K_in
    gamma: float
    rule: Any  # Decaying or Averaged
    step: float  # alpha / (1 - gamma)
    tol: np.ndarray  # float64[m]
    adaptive_step: bool
    adaptive_tol: bool
    origin: np.ndarray  # float64[d]: w_0 of the critics
    carry_over: bool  # critics start from the last outer step's, else from w_0
    start_state: np.ndarray  # int64[n]: support of rho; empty for simulators, as the next two
    start_prob: np.ndarray  # float64[n]
    start_sum: np.ndarray  # float64[n]: cumulative
    n_start_draws: int  # states drawn from rho for the estimates of J; 0: all of its support (tables)


class RunState(NamedTuple):
    """A run of R replicates: all that is needed to go on, and nothing else."""

    theta: np.ndarray  # float64[R, d]
    dual: np.ndarray  # float64[R, m]: NaN, the method has none
    rng: np.ndarray  # uint64[R, 4, LANES]
    outer: np.ndarray  # int64[R]
    samples: np.ndarray  # int64[R]
    failed: np.ndarray  # int64[R]
    kept: np.ndarray  # int64[R]: size of N_0 so far
    chain: np.ndarray  # int64[R, 2, LANES]: pairs where the chains stand, transitions left of their segments
    visits: np.ndarray  # int64[R, C]: updates of each choice's critic, or [R, 0] where the rule asks for none
    place: np.ndarray  # float64[R, n_state]: on a simulator, the state where its one chain stands
    critic: np.ndarray  # float64[R, (1+m) d]
    recent: np.ndarray  # float64[R, 1+m]: levels N lately
    average: np.ndarray  # float64[R, 1+m]: the same since the start
    longest: np.ndarray  # float64[R, 1+m]: largest root of the mean square of Q_f - V_f so far
    sums: np.ndarray  # float64[R, 1+2m]: sums of estimates of J over N_0; NaN for the multipliers


class Work(NamedTuple):
    """Work space of one thread."""

    mean: np.ndarray  # float64[(1+m) d]
    total: np.ndarray  # float64[1+m]
    value: np.ndarray  # float64[1+m]: plug-in estimates of J
    square: np.ndarray  # float64[1+m]
    violated: np.ndarray  # int64[m]
    level: np.ndarray  # float64[1+m]
    pair: np.ndarray  # int64[n]
    gradients: Gradients
    space: RowSpace


@kernel
def table_plug_in(policy, theta, gradients, tables, actions, steps, rng, critic, d, value):
    """value[k] = sum over s ~ rho, a ~ pi of Q_k: over the support of rho, or over states drawn from it."""
    form, first, column, phi = critic_form(policy, gradients)
    hidden = np.empty(n_hidden(form))
    prob, state_to_choice = actions.prob, tables.state_to_choice
    n_signals = value.shape[0]
    n = steps.n_start_draws if steps.n_start_draws > 0 else steps.start_state.shape[0]
    value[:] = 0.0
    for j in range(n):
        i = j
        weight = steps.start_prob[j]
        if steps.n_start_draws > 0:
            u = to_unit(next_word(rng, 0))
            i = min(np.searchsorted(steps.start_sum, u, "right"), steps.start_state.shape[0] - 1)
            weight = 1.0 / n
        s = steps.start_state[i]
        prepare_row(actions, tables, U64(tables.state_row[s]))
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            row = feature_row(form, first, phi, policy, theta, tables, gradients, q, -1)
            for k in range(n_signals):
                value[k] += weight * prob[q] * predict(form, first, column, phi, critic, k * d, row, hidden)


@kernel
def table_squares(policy, theta, gradients, tables, actions, critic, d, pair, n_pairs, level, square):
    """square[k] = mean over the pairs' states, and over a ~ pi, of (Q_k - V_k)^2; level: float64[1+m], work space."""
    form, first, column, phi = critic_form(policy, gradients)
    hidden = np.empty(n_hidden(form))
    prob, state_to_choice = actions.prob, tables.state_to_choice
    square[:] = 0.0
    for j in range(n_pairs):
        s = tables.choice_state[pair[j]]
        prepare_row(actions, tables, U64(tables.state_row[s]))
        level[:] = 0.0
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            row = feature_row(form, first, phi, policy, theta, tables, gradients, q, -1)
            for k in range(level.shape[0]):
                level[k] += prob[q] * predict(form, first, column, phi, critic, k * d, row, hidden)
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            row = feature_row(form, first, phi, policy, theta, tables, gradients, q, -1)
            for k in range(level.shape[0]):
                advantage = predict(form, first, column, phi, critic, k * d, row, hidden) - level[k]
                square[k] += prob[q] * advantage**2
    for k in range(square.shape[0]):
        square[k] /= n_pairs


@generic("tables")
def learn(tables, policy, theta, actions, steps, rng, chain, visits, place, critic, d, work):
    """Critics by TD, in ``critic``; return how many pairs, or visited states, of law nu there are; -1: a fault."""


@learn.on(Addresses)
def learn_on_world(tables, policy, theta, actions, steps, rng, chain, visits, place, critic, d, work):
    return run_walk(
        tables, actions, rng, chain, place, steps.rule, policy, theta, work.gradients.bound, steps.gamma,
        steps.n_inner, d, steps.origin, critic, work.mean, work.total, work.pair.shape[0],
    )  # fmt: skip


@learn.on(Tables)
def learn_on_tables(tables, policy, theta, actions, steps, rng, chain, visits, place, critic, d, work):
    return run_td(
        tables, actions, rng, chain, visits, steps.rule, policy, theta, work.gradients, steps.gamma, steps.n_inner,
        d, steps.origin, critic, work.mean, work.total, work.pair,
    )  # fmt: skip


@generic("tables")
def estimate(tables, policy, theta, actions, steps, rng, critic, d, n_pairs, work):
    """From critics: work.value, estimates of J, and work.square, mean squares of Q - V over the pairs' states."""


@estimate.on(Addresses)
def estimate_on_world(tables, policy, theta, actions, steps, rng, critic, d, n_pairs, work):
    live_squares(tables, actions, policy, theta, critic, n_pairs, work.level, work.square)
    live_plug_in(tables, actions, policy, theta, steps.n_start_draws, rng, critic, work.value)


@estimate.on(Tables)
def estimate_on_tables(tables, policy, theta, actions, steps, rng, critic, d, n_pairs, work):
    gradients = work.gradients
    table_plug_in(policy, theta, gradients, tables, actions, steps, rng, critic, d, work.value)
    table_squares(
        policy, theta, gradients, tables, actions, critic, d, work.pair, n_pairs, work.level, work.square
    )


@kernel
def signal_to_improve(steps, state, value, violated, r, root_t):
    """One of the violated constraints, any as likely as another, else 0: the reward; violated: work space."""
    n_violated = 0
    for i in range(violated.shape[0]):
        tol = steps.tol[i]
        if steps.adaptive_tol:
            tol *= math.sqrt(level_of(state, r, 1 + i)) / root_t
        if not value[1 + i] >= -tol:
            violated[n_violated] = i
            n_violated += 1
    if n_violated == 0:
        return 0
    if n_violated == 1:
        return 1 + violated[0]
    return 1 + violated[((next_word(state.rng[r], 0) >> HALF) * U64(n_violated)) >> HALF]


@kernel
def advance(tables, policy, steps, state, actions, work, r, n_steps):
    """Make n_steps outer steps of replicate r; it stops early where a number ceases to be finite."""
    m = tables.n_signals - 1
    theta, critic, rng, sums = state.theta[r], state.critic[r], state.rng[r], state.sums[r]
    value, square = work.value, work.square
    d = theta.shape[0]
    root_t = math.sqrt(steps.n_outer)
    for _ in range(n_steps):
        if state.failed[r] >= 0 or finishes(tables.stop):
            break
        if not steps.carry_over:
            for k in range(1 + m):
                critic[k * d : (k + 1) * d] = steps.origin
            state.visits[r] = 0
        work.gradients.tag[:] = -1  # theta has changed
        n_pairs = learn(
            tables, policy, theta, actions, steps, rng, state.chain[r], state.visits[r], state.place[r], critic, d, work
        )  # fmt: skip
        if leaves(tables.stop):
            break
        if n_pairs < 0:
            state.failed[r] = state.outer[r]
            break
        state.samples[r] += steps.n_inner
        estimate(tables, policy, theta, actions, steps, rng, critic, d, n_pairs, work)
        signal = signal_to_improve(steps, state, value, work.violated, r, root_t)
        h = steps.step
        if steps.adaptive_step:
            level = level_of(state, r, signal)
            h = h / (root_t * math.sqrt(level)) if level > 0.0 else 0.0
        for k in range(1 + m):
            shorter = cut(state, r, k, math.sqrt(square[k]))
            if k == signal and steps.adaptive_step:
                h *= shorter
            update_level(state, r, k, square[k], 0)
        at = signal * d
        finite = True
        for k in range(1 + m):
            finite &= math.isfinite(value[k])
        for j in range(d):
            work.mean[j] = theta[j] + h * critic[at + j]
            finite &= math.isfinite(work.mean[j])
        if not finite:
            state.failed[r] = state.outer[r]
            break
        if signal == 0:  # t belongs to N_0: the policy before the step
            state.kept[r] += 1
            for k in range(1 + m):
                sums[k] += work.total[k] / steps.n_inner * tables.horizon
        for j in range(d):
            theta[j] = work.mean[j]
        refresh_changed(policy, theta, tables, actions, work.space)
        state.outer[r] += 1
