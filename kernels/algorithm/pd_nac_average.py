"""The outer loop of PD-NAC for the average reward: critic and direction from trajectories of random length.

A batch is H trajectories, end to end on one chain. Trajectory h is one transition, or 2^Q <= T_max of them, Q geometric
with mean 2. With x_i what transition i asks for, multi-level Monte Carlo takes x_0 + 2^Q (mean over all - mean over the
first half): weights 0 for the first transition, -1 for the rest of the first half, 1 for the second half; or 1 for the
one. Its mean is that of the mean over T_max transitions, of which log2 T_max are drawn.

Words come from lane 0: one a trajectory for its length, before the batch; then for every transition what the branch
takes, where the chain restarts one for the time to the next and one for the state, and what the action takes; on
simulators what step and reset draw and a word for the action. A chain begins as it restarts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fastcmdp.kernels.algorithm.pd_nac import low_bits
from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.draws import word as draw_word
from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.policy.live import live_score
from fastcmdp.kernels.policy.means import add_mean, mean_times
from fastcmdp.kernels.policy.scores import add_score, collect_scores, forget_scores, score_times
from fastcmdp.kernels.policy.softmax import refresh_touched
from fastcmdp.kernels.sampling.lanes import branch_bits
from fastcmdp.kernels.sampling.rollouts import geometric_horizon
from fastcmdp.kernels.sampling.tables import (
    RowSpace,
    branch_row,
    draw_action,
    draw_label,
    draw_start,
    prepare_row,
)
from fastcmdp.kernels.simulator.simulate import LiveActions, write_features
from fastcmdp.kernels.simulator.walks import choose, make_transition, tell_fault
from fastcmdp.kernels.simulator.walks import draw_start as draw_live_start
from fastcmdp.kernels.stop import finishes, leaves
from fastcmdp.kernels.streams import next_word
from fastcmdp.kernels.vectors import dot
from fastcmdp.kernels.words import ONE, U64

MEMORY = 0.99  # of the levels, in outer steps


class Steps(NamedTuple):
    """Settings of the outer loop.

    With ``adaptive_alpha`` the step of theta is alpha / (N_r + sum_i lambda_i N_i), with ``adaptive_beta`` those of the
    multipliers are beta_i N_r / (N_i M_i): N_f is the root mean square of the critic's errors on signal f, M_i the
    largest size of eta_ci, both of earlier outer steps; N_i stands for N_r where the reward is constant. Without, they
    are alpha and beta_i.
    """

    longest: int  # T_max, a power of two
    alpha: float
    beta: np.ndarray  # float64[m]
    adaptive_alpha: bool
    adaptive_beta: bool
    rate: float  # of the critics
    pace: float  # of the averages
    natural: float  # of the direction
    restart: bool  # the chain restarts with probability 1 - gamma a step
    carry_over: bool  # critics start from the last outer step's, else from 0
    dual_max: np.ndarray  # float64[m]


class RunState(NamedTuple):
    """A run of R replicates: all that is needed to go on, and nothing else. F = 1 + m signals."""

    theta: np.ndarray  # float64[R, d]
    dual: np.ndarray  # float64[R, m]
    rng: np.ndarray  # uint64[R, 4, LANES]; lane 0 serves
    outer: np.ndarray  # int64[R]
    samples: np.ndarray  # int64[R]
    failed: np.ndarray  # int64[R]
    chain: (
        np.ndarray
    )  # int64[R, 3]: the pair (on simulators action) at hand, -1 before; steps to a restart; since
    place: np.ndarray  # float64[R, n_state]: on a simulator, the state at hand
    critic: np.ndarray  # float64[R, F, d]: zeta
    mean: np.ndarray  # float64[R, F]: eta, averages of the signals
    square: np.ndarray  # float64[R, F]: N^2
    largest: np.ndarray  # float64[R, F]: M
    sums: np.ndarray  # float64[R, 1+2m]


class Trail(NamedTuple):
    """The batch: trajectories of length[h] transitions, transition j from pair j to pair j + 1."""

    length: np.ndarray  # int64[H]
    pair: np.ndarray  # int64[n+1]
    signal: np.ndarray  # float64[n, F]
    row: np.ndarray  # float64[n+1, d]: on simulators, features of the pairs' states


class Work(NamedTuple):
    """Work space of one thread."""

    trail: Trail
    scores: Any
    error: np.ndarray  # float64[T_max]
    square: np.ndarray  # float64[F]: of the critics' errors on the batch, their mean
    price: np.ndarray  # float64[F]: 1 and the multipliers
    omega: np.ndarray  # float64[d]: 0 between outer steps
    space: RowSpace


@kernel
def draw_lengths(rng, longest, length):
    """Draw the lengths of the trajectories; return their sum."""
    total = 0
    for h in range(length.shape[0]):
        word, n = next_word(rng, 0), 2
        while n <= longest and word & ONE == U64(0):
            n, word = 2 * n, word >> ONE
        length[h] = n if n <= longest else 1
        total += length[h]
    return total


@inlined
def weight_in(i, n):
    """Weight of transition i of n in a trajectory's estimate."""
    if n == 1:
        return 1.0
    if i == 0:
        return 0.0
    return -1.0 if 2 * i < n else 1.0


@generic("actions")
def walk(tables, policy, theta, actions, restart, rng, chain, place, n, trail):
    """Make n transitions, written down in the trail; False after a fault."""


@walk.otherwise
def walk_on_tables(tables, policy, theta, actions, restart, rng, chain, place, n, trail):
    start_entry, entry, alias = tables.start_entry, tables.branch_entry, actions.entry
    choice_word, signal, words = tables.choice_word, tables.choice_number, U64(tables.words)
    n_signals = trail.signal.shape[1]
    q, left = U64(chain[0]), chain[1]
    for j in range(-1 if chain[0] < 0 else 0, n):
        word, code = U64(0), U64(0)
        if j >= 0:
            trail.pair[j] = np.int64(q)
            for f in range(n_signals):
                trail.signal[j, f] = signal[words * q + U64(1 + f)]
            word = next_word(rng, 0)
            first, length = branch_row(choice_word[words * q])
            code = draw_label(entry, first, length, branch_bits(entry, word))
            left -= 1
        if j < 0 or (restart and left < 0):
            left = geometric_horizon(next_word(rng, 0), tables.log_gamma_inverse)
            word = next_word(rng, 0)
            code = draw_start(start_entry, branch_bits(entry, word))
        prepare_row(actions, tables, code)
        q = draw_action(alias, code, low_bits(alias, rng, word))
    trail.pair[n] = chain[0] = np.int64(q)
    chain[1] = left
    return True


@inlined
def write_mean_gradient(world, actions, policy, theta, weight, row):
    """Write to row the gradient of the mean logit in actions.state, whose features are at hand."""
    n_rows = world.n_actions if world.by_choice else 1
    live_score(
        policy, theta, actions.features, world.n_features, n_rows, actions.hidden, actions.back, actions.logit, weight,
        row,
    )  # fmt: skip


@walk.on(LiveActions)
def walk_on_world(tables, policy, theta, actions, restart, rng, chain, place, n, trail):
    n_state, n_actions, state = tables.n_state, tables.n_actions, actions.state
    stream, weight = np.empty(4, np.uint64), np.full(n_actions, 1.0 / n_actions)
    costs = np.zeros(max(tables.n_signals - 1, 1))
    for k in range(4):
        stream[k] = rng[k, 0]
    for i in range(n_state):
        state[i] = place[i]
    actions.fault[0] = 0
    action, left, age = chain[0], chain[1], chain[2]
    for j in range(-1 if action < 0 or tables.forks else 0, n):
        if leaves(tables.stop):
            break
        if j >= 0:
            if j == 0:
                write_features(tables.features, n_state, state, actions.features)
            for i in range(n_state):
                actions.visited[j, i] = state[i]
            trail.pair[j] = j * n_actions + action
            write_mean_gradient(tables, actions, policy, theta, weight, trail.row[j])
            make_transition(tables, actions, action, stream, costs, trail.signal[j])
            left -= 1
            age += 1 if actions.fault[0] == 0 else 0
        if actions.fault[0] == 0 and (j < 0 or (restart and left < 0)):
            left, age = geometric_horizon(draw_word(stream), tables.log_gamma_inverse), 0
            draw_live_start(tables, actions, stream)
        if actions.fault[0] == 0:
            action = choose(tables, actions, policy, theta, stream)
        if actions.fault[0] != 0:
            tell_fault(tables, actions, age, action)
            return False
    for i in range(n_state):
        place[i] = actions.visited[n, i] = state[i]
    trail.pair[n] = n * n_actions + action
    write_mean_gradient(tables, actions, policy, theta, weight, trail.row[n])
    for k in range(4):
        rng[k, 0] = stream[k]
    chain[0], chain[1], chain[2] = action, left, age
    return True


@generic("actions", inline=True)
def state_times(actions, policy, tables, trail, j, w):
    """phi . w in the state of pair j."""


@state_times.otherwise
def table_state_times(actions, policy, tables, trail, j, w):
    return mean_times(policy, tables, tables.choice_state[trail.pair[j]], w)


@state_times.on(LiveActions)
def live_state_times(actions, policy, tables, trail, j, w):
    return dot(trail.row[j], w)


@generic("actions", inline=True)
def add_state(actions, policy, tables, trail, j, step, w):
    """w += step phi in the state of pair j."""


@add_state.otherwise
def add_table_state(actions, policy, tables, trail, j, step, w):
    add_mean(policy, tables, tables.choice_state[trail.pair[j]], step, w)


@add_state.on(LiveActions)
def add_live_state(actions, policy, tables, trail, j, step, w):
    row = trail.row[j]
    for i in range(w.shape[0]):
        w[i] += step * row[i]


@kernel
def learn_critics(tables, policy, actions, steps, critic, mean, work):
    """H steps of the critics and the averages, all signals on the same trajectories."""
    trail, error, square, at = work.trail, work.error, work.square, 0
    square[:] = 0.0
    for h in range(trail.length.shape[0]):
        n = trail.length[h]
        for f in range(mean.shape[0]):
            zeta, push = critic[f], 0.0
            for i in range(n):
                j, weight = at + i, weight_in(i, n)
                excess = trail.signal[j, f] - mean[f]
                push += weight * excess
                ahead = state_times(actions, policy, tables, trail, j + 1, zeta)
                e = excess + ahead - state_times(actions, policy, tables, trail, j, zeta)
                square[f] += e * e
                error[i] = weight * e
            for i in range(n):
                if error[i] != 0.0:
                    add_state(actions, policy, tables, trail, at + i, steps.rate * error[i], zeta)
            mean[f] = min(max(mean[f] + steps.pace * push, -1.0), 1.0)
        at += n
    for f in range(mean.shape[0]):
        square[f] /= at


@kernel
def learn_direction(tables, policy, actions, steps, critic, mean, work):
    """H steps of omega, from 0, for the advantages of the Lagrangian with the prices at hand."""
    trail, error, at = work.trail, work.error, 0
    for h in range(trail.length.shape[0]):
        n = trail.length[h]
        for i in range(n):
            j, advantage = at + i, 0.0
            for f in range(mean.shape[0]):
                ahead = state_times(actions, policy, tables, trail, j + 1, critic[f])
                here = state_times(actions, policy, tables, trail, j, critic[f])
                advantage += work.price[f] * (trail.signal[j, f] - mean[f] + ahead - here)
            error[i] = weight_in(i, n) * (advantage - score_times(work.scores, j, work.omega))
        for i in range(n):
            if error[i] != 0.0:
                add_score(work.scores, at + i, steps.natural * error[i], work.omega)
        at += n


@kernel
def step_of_theta(steps, state, r):
    """The step of theta; 0 where nothing is known yet."""
    if not steps.adaptive_alpha:
        return steps.alpha
    dual, square = state.dual[r], state.square[r]
    level = math.sqrt(square[0])
    for i in range(dual.shape[0]):
        level += dual[i] * math.sqrt(square[1 + i])
    return steps.alpha / level if level > 0.0 else 0.0


@kernel
def move_duals(steps, state, r):
    """Move the multipliers by what the critics say of the averages."""
    dual, square, mean = state.dual[r], state.square[r], state.mean[r]
    reward = square[0]
    for i in range(dual.shape[0]):
        step = steps.beta[i]
        if steps.adaptive_beta:
            cost, largest = square[1 + i], state.largest[r, 1 + i]
            known = cost > 0.0 and largest > 0.0
            step *= math.sqrt((reward if reward > 0.0 else cost) / cost) / largest if known else 0.0
        dual[i] = min(max(dual[i] - step * mean[1 + i], 0.0), steps.dual_max[i])


@kernel
def measure(state, r, square):
    """Fold the batch at hand into the levels."""
    share = max(1.0 - MEMORY, 1.0 / (state.outer[r] + 1.0))
    for f in range(square.shape[0]):
        state.square[r, f] += share * (square[f] - state.square[r, f])
        state.largest[r, f] = max(state.largest[r, f], abs(state.mean[r, f]))


@kernel
def advance(tables, policy, steps, state, actions, work, r, n_steps):
    """Make n_steps outer steps of replicate r; it stops early where a number ceases to be finite."""
    m, trail, price, omega = tables.n_signals - 1, work.trail, work.price, work.omega
    theta, dual, rng, sums = state.theta[r], state.dual[r], state.rng[r], state.sums[r]
    critic, mean, chain, place = state.critic[r], state.mean[r], state.chain[r], state.place[r]
    for _ in range(n_steps):
        if state.failed[r] >= 0 or finishes(tables.stop):
            break
        if not steps.carry_over:
            critic[:] = 0.0
            mean[:] = 0.0
        n = draw_lengths(rng, steps.longest, trail.length)
        fine = walk(tables, policy, theta, actions, steps.restart, rng, chain, place, n, trail)
        if leaves(tables.stop):
            break
        if fine:
            learn_critics(tables, policy, actions, steps, critic, mean, work)
            state.samples[r] += n
            n = draw_lengths(rng, steps.longest, trail.length)
            fine = walk(tables, policy, theta, actions, steps.restart, rng, chain, place, n, trail)
            if leaves(tables.stop):
                break
        if not fine:
            state.failed[r] = state.outer[r]
            break
        state.samples[r] += n
        n_slots = collect_scores(policy, theta, tables, actions, trail.pair, n, work.scores)
        price[0] = 1.0
        for i in range(m):
            price[1 + i] = dual[i]
        learn_direction(tables, policy, actions, steps, critic, mean, work)
        coordinate, total = work.scores.coordinate, 0.0
        for k in range(n_slots):
            total += omega[coordinate[k]]
        if math.isfinite(total):
            alpha = step_of_theta(steps, state, r)
            for k in range(n_slots):
                theta[coordinate[k]] += alpha * omega[coordinate[k]]
                omega[coordinate[k]] = 0.0
            for f in range(1 + m):
                sums[f] += mean[f] * tables.horizon
            for i in range(m):
                sums[1 + m + i] += dual[i]
            move_duals(steps, state, r)
            measure(state, r, work.square)
            refresh_touched(policy, theta, tables, actions, work.scores, n_slots, work.space)
        forget_scores(work.scores, n_slots)
        if not math.isfinite(total):
            omega[:] = 0.0
            state.failed[r] = state.outer[r]
            break
        state.outer[r] += 1
