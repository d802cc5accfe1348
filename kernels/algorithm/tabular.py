"""The outer loop of the primal-dual methods that read a whole table of Q: one for all of them.

What a method does with the table is a small `Rule` of its own file, how its multiplier moves a form of `duals`, where
the table comes from a `source` of `q_tables`. With lambda_0 = 0 and for k = 0..K-1,

    for each of so many sweeps:  Q_f of all choices, f = r, c_1..c_m and the rule's own signal;  J_f = sum rho pi Q_f
        lambda   = the multiplier that J_c has moved (``ahead``), else that of the outer step before
        theta   <- what the rule makes of Q_r + sum_i lambda_i Q_ci
    lambda moves by -J_c

Steps are eta / (1-gamma) and zeta as they are given, or measured along the run,

    step   = c_eta sqrt(2 log A) / sqrt(n N_L + K D_L),
    zeta_i = c_zeta sqrt(N_r / N_ci) / sqrt(n' max J_ci^2 so far + K D_ci),

n and n' 10 (`shortest_eta`, `shortest_zeta`), K the evaluations of the whole run. N_f is the level of the mean over
states of the variance of Q_f over actions, evenly weighted, which does not vanish as policies become certain; D_L is
that of the change of Q_L from one evaluation to the next, D_ci the level of the squared change of J_ci. Under noise the
change is the noise, and steps are of the order K^-1/2 of averages; with exact values it is what the step itself moves,
and steps are as long as the game is smooth: the step size of optimistic gradients, whose regret the changes bound. All
levels are of the outer steps before (`levels`), so that the first, and without sweeps the second, only measures.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.learning.duals import move
from fastcmdp.kernels.learning.levels import cut, level_of, spread_over_actions, update_level
from fastcmdp.kernels.policy.softmax import refresh_all
from fastcmdp.kernels.sampling.q_tables import evaluate
from fastcmdp.kernels.sampling.tables import RowSpace
from fastcmdp.kernels.stop import finishes, leaves

LEAST_LOG = -700.0  # logarithm of the probability of an action that a projection has left out


class Steps(NamedTuple):
    """Settings of the outer loop."""

    n_outer: int  # K
    n_sweeps: int  # evaluations of the policy, each with a step of it, in an outer step
    gamma: float
    eta_scale: float
    zeta_scale: np.ndarray  # float64[m]
    adaptive_eta: bool
    adaptive_zeta: bool
    shortest_eta: float  # outer steps of a run whose measured steps are as long as they get: of the policy
    shortest_zeta: float  # and of the multipliers
    dual_max: np.ndarray  # float64[m]
    ahead: bool  # the policy's step uses the multiplier that this step's J_c has moved
    each: bool  # and every sweep moves it anew, from the multiplier of the outer step before
    start: np.ndarray  # float64[S]


class RunState(NamedTuple):
    """A run of R replicates: all that is needed to go on, and nothing else."""

    theta: np.ndarray  # float64[R, C], or [R, d] where the rule takes other policies
    dual: np.ndarray  # float64[R, m]
    memory: np.ndarray  # float64[R, m, width]: of the multipliers, see duals
    base: np.ndarray  # float64[R, C]: what the rule keeps from step to step
    rng: np.ndarray  # uint64[R, 4, LANES]
    outer: np.ndarray  # int64[R]
    samples: np.ndarray  # int64[R]
    failed: np.ndarray  # int64[R]
    before: np.ndarray  # float64[R, C]: Q hat of r + lambda c as the last evaluation had it
    last_value: np.ndarray  # float64[R, m]: J_c hat of the outer step before
    recent: np.ndarray  # float64[R, 3+3m]: levels of Q_L, Q_r, Q_ci; of Q_ci under the policy; D_L, D_ci
    average: np.ndarray  # float64[R, 3+3m]
    longest: np.ndarray  # float64[R, 1+m]: largest root of the level of Q_L and |J_ci| so far
    sums: np.ndarray  # float64[R, 1+2m]: of the estimates of J and of the multipliers that policies used


class Work(NamedTuple):
    """Work space of one thread."""

    signal: np.ndarray  # float64[C, n]: r, c_1..c_m, and the rule's own where it has one
    estimate: np.ndarray  # float64[C, n]: Q hat
    lagrangian: np.ndarray  # float64[C]: Q hat of r + lambda c
    moved: (
        np.ndarray
    )  # of the length of theta: the new one; the same array as lagrangian for tabular policies
    anchor: np.ndarray  # float64[C]: logarithms of the policy's probabilities at the start of the outer step
    value: np.ndarray  # float64[1+m]: J hat
    scratch: np.ndarray  # float64[m, width]
    price: np.ndarray  # float64[m]: the multipliers that the policy's step uses
    rate: np.ndarray  # float64[m]: zeta
    pace: np.ndarray  # float64[m]
    space: RowSpace
    tally: Any  # of visits, where the rule needs to know them
    own: Any  # the rule's own work space


@generic("rule")
def fill_signal(rule, tables, prob, anchor, signal):
    """Write the rule's own signal, that of the policy at hand, to the last column of ``signal``."""


@fill_signal.otherwise
def fill_nothing(rule, tables, prob, anchor, signal):
    pass


@generic("rule")
def improve(rule, tables, prob, step, first, theta, base, work):
    """Write the new theta to work.moved, from Q_L in work.lagrangian; renew base; ``first``: of the run.

    work.estimate has the rule's own Q in its last column, the pair's own signal of the state included.
    """


@kernel
def log_probabilities(prob, out):
    """Logarithms that stay finite."""
    for q in range(prob.shape[0]):
        out[q] = math.log(prob[q]) if prob[q] > 0.0 else LEAST_LOG


@kernel
def subtract_means(state_to_choice, prob, x):
    """Make of Q the advantage, in place."""
    for s in range(state_to_choice.shape[0] - 1):
        mean = 0.0
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            mean += prob[q] * x[q]
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            x[q] -= mean


@kernel
def project(state_to_choice, x):
    """Replace the numbers of every state by the nearest probabilities (Euclid), in place."""
    for s in range(state_to_choice.shape[0] - 1):
        first, last = state_to_choice[s], state_to_choice[s + 1]
        row = np.sort(x[first:last])
        total = 0.0
        shift = 0.0
        for i in range(last - first):
            total += row[last - first - 1 - i]
            if row[last - first - 1 - i] > (total - 1.0) / (i + 1):
                shift = (total - 1.0) / (i + 1)
        for q in range(first, last):
            x[q] = max(x[q] - shift, 0.0)


@kernel
def measure(tables, prob, estimate, r, state):
    """Fold the levels of this outer step in, after their last use; Q_L's is folded in by the caller."""
    m = state.dual.shape[1]
    for k in range(1 + m):
        square = spread_over_actions(tables.state_to_choice, prob, estimate[:, k], True)
        update_level(state, r, 1 + k, square, 0)
        if k > 0:
            square = spread_over_actions(tables.state_to_choice, prob, estimate[:, k], False)
            update_level(state, r, 1 + m + k, square, 0)


@kernel
def change_of(tables, prob, x, before):
    """Evenly weighted variance of x - before; then x takes the place of before."""
    for q in range(x.shape[0]):
        before[q] = x[q] - before[q]
    change = spread_over_actions(tables.state_to_choice, prob, before, True)
    before[:] = x
    return change


@kernel
def measure_changes(steps, state, change, work, r):
    """Fold the levels of the changes in: of Q_L, summed over sweeps, and of J_c; the first evaluation has none."""
    m = work.price.shape[0]
    for i in range(m):
        moved = work.value[1 + i] - state.last_value[r, i]
        state.last_value[r, i] = work.value[1 + i]
        if state.outer[r] > 0:
            update_level(state, r, 3 + 2 * m + i, moved * moved, -1)
    n_changes = steps.n_sweeps - (1 if state.outer[r] == 0 else 0)
    if n_changes > 0:
        update_level(state, r, 2 + 2 * m, change / n_changes, 0 if steps.n_sweeps > 1 else -1)


@kernel
def choose_rates(tables, steps, state, work, r):
    """The rates of this outer step, from the levels before it: zeta and pace to work; the logits' step is returned."""
    m = work.value.shape[0] - 1
    norm = spread_over_actions(tables.state_to_choice, work.anchor, work.lagrangian, True)
    quiet = 1 if steps.n_sweeps == 1 else 0  # outer steps without a change to measure
    step = steps.eta_scale * tables.horizon
    if steps.adaptive_eta:
        changes = steps.n_outer * steps.n_sweeps * level_of(state, r, 2 + 2 * m)
        level = level_of(state, r, 0)
        step = steps.eta_scale * cut(state, r, 0, math.sqrt(norm))
        known = level > 0.0 and state.outer[r] > quiet
        step = step / math.sqrt(steps.shortest_eta * level + changes) if known else 0.0
    update_level(state, r, 0, norm, 0)
    for i in range(m):
        longest = state.longest[r, 1 + i]
        shorter = cut(state, r, 1 + i, abs(work.value[1 + i]))
        zeta = steps.zeta_scale[i]
        if steps.adaptive_zeta:
            reward, cost = level_of(state, r, 1), level_of(state, r, 2 + i)
            known = longest > 0.0 and cost > 0.0 and state.outer[r] > quiet
            scale = math.sqrt((reward if reward > 0.0 else cost) / cost) if known else 0.0
            changes = steps.n_outer * level_of(state, r, 3 + 2 * m + i)
            zeta *= shorter * scale / math.sqrt(steps.shortest_zeta * longest**2 + changes) if known else 0.0
        work.rate[i] = zeta
        square = step * zeta * level_of(state, r, 2 + m + i) * tables.horizon
        work.pace[i] = max(math.sqrt(square), 1.0 / math.sqrt(steps.n_outer))
    return step


@kernel
def move_duals(dual, steps, memory, work):
    """Move the multipliers' memory by -J_c and write those to use from now on to work.price."""
    for i in range(work.price.shape[0]):
        work.price[i] = move(
            dual, memory[i], -work.value[1 + i], work.rate[i], work.pace[i], steps.dual_max[i]
        )


@kernel
def plug_in(tables, start, prob, estimate, sweep, value):
    """Mean over the sweeps so far of J hat = sum of start(s) pi(a|s) Q hat(s, a), into ``value``."""
    for k in range(value.shape[0]):
        total = 0.0
        for q in range(prob.shape[0]):
            total += start[tables.choice_state[q]] * prob[q] * estimate[q, k]
        value[k] = (value[k] * sweep + total) / (sweep + 1) if sweep > 0 else total


@kernel
def fill_lagrangian(estimate, price, out):
    """Q hat of r + lambda c."""
    for q in range(out.shape[0]):
        out[q] = estimate[q, 0]
        for i in range(price.shape[0]):
            out[q] += price[i] * estimate[q, 1 + i]


@kernel
def advance(tables, policy, rule, dual, source, steps, state, actions, work, r, n_steps):
    """Make n_steps outer steps of replicate r, whose policy is ``actions``; stop where a number is not finite."""
    theta, prob = state.theta[r], actions.prob
    m = state.dual.shape[1]
    for _ in range(n_steps):
        if state.failed[r] >= 0 or finishes(tables.stop):
            break
        log_probabilities(prob, work.anchor)
        work.price[:] = state.dual[r]
        step, change, finite = 0.0, 0.0, True
        for sweep in range(steps.n_sweeps):
            fill_signal(rule, tables, prob, work.anchor, work.signal)
            state.samples[r] += evaluate(
                source, tables, actions, state.rng[r], work.signal, steps.gamma, work.estimate, work.tally
            )
            if leaves(tables.stop):
                break
            if sweep == 0 or steps.each:
                plug_in(tables, steps.start, prob, work.estimate, sweep, work.value)
            if sweep == 0:
                fill_lagrangian(work.estimate, work.price, work.lagrangian)
                step = choose_rates(tables, steps, state, work, r)
                measure(tables, prob, work.estimate, r, state)
            if steps.ahead and (sweep == 0 or steps.each):
                work.scratch[:] = state.memory[r]
                move_duals(dual, steps, work.scratch, work)
            fill_lagrangian(work.estimate, work.price, work.lagrangian)
            moved = change_of(tables, prob, work.lagrangian, state.before[r])
            change += moved if sweep + state.outer[r] > 0 else 0.0
            improve(rule, tables, prob, step, state.outer[r] == 0, theta, state.base[r], work)
            for q in range(theta.shape[0]):
                finite &= math.isfinite(work.moved[q])
            if not finite:
                break
            theta[:] = work.moved
            refresh_all(policy, theta, tables, actions, work.space)
        if leaves(tables.stop):
            break
        if not finite:
            state.failed[r] = state.outer[r]
            break
        measure_changes(steps, state, change, work, r)
        state.sums[r, : 1 + m] += work.value
        state.sums[r, 1 + m :] += work.price
        if steps.ahead:
            state.memory[r] = work.scratch
        else:
            move_duals(dual, steps, state.memory[r], work)
        state.dual[r] = work.price
        state.outer[r] += 1
