"""CRPO's critics on a simulator: one chain with restarts through the user's functions, and what is told from critics.

What ``chains.py``, ``td.py`` and ``crpo.py`` do on tables, with one chain on the replicate's lane 0 and tangent
features (``critics.py``) for every kind of policy. A segment begins with a word for the horizon T, what reset draws
and a word for the action; then each of its T + 1 transitions spends what step draws and a word for the next action.
A round of TD is one transition. Where a state's copy is more than its numbers (``forks``), no chain outlives an
outer step: the first segment of each then begins at a start, so that its pairs lean towards the start by about
1/((1-gamma) K_in) of their law.
"""

from __future__ import annotations

import math

import numpy as np

from fastcmdp.kernels.draws import uniform, word
from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.learning.critics import Tangent, nudge, predict, shortening
from fastcmdp.kernels.learning.td import begin, finish, project
from fastcmdp.kernels.policy.live import live_logits, live_score
from fastcmdp.kernels.sampling.rollouts import geometric_horizon
from fastcmdp.kernels.simulator.simulate import (
    FEATURES_FAULT,
    STATE_FAULT,
    WALK_FAULT,
    WALK_RESET_FAULT,
    call_reset,
    call_step,
    draw_weighted,
    is_finite,
    softmax_weights,
    write_features,
)
from fastcmdp.kernels.stop import leaves
from fastcmdp.kernels.vectors import dot_at


@kernel
def weigh_actions(world, policy, theta, x, hidden, state, z):
    """Write the features of a state to x and the weights of its actions to z; return their sum, or NaN."""
    write_features(world.features, world.n_state, state, x)
    n_rows = world.n_actions if world.by_choice else 1
    live_logits(policy, theta, x, world.n_features, n_rows, hidden, z)
    return softmax_weights(z, world.n_actions)


@kernel
def write_live_gradient(world, policy, theta, x, hidden, back, z, weight, action, gradient):
    """Write the gradient of an action's logit in a state with features x."""
    n = world.n_features
    row, output = (action, 0) if world.by_choice else (0, action)
    weight[:] = 0.0
    weight[output] = 1.0
    live_score(policy, theta, x[row * n : (row + 1) * n], n, 1, hidden, back, z, weight, gradient)


# Steps of a walk. They are inlined: as calls, while references to the arrays of their tuples were counted, a walk took
# 1.85 times as long.


@inlined
def write_row(world, actions, policy, theta, bound, action, weight, row):
    """Write to row, float64[d+1], the gradient of an action's logit where the features are, and its shortening."""
    d = theta.shape[0]
    write_live_gradient(
        world,
        policy,
        theta,
        actions.features,
        actions.hidden,
        actions.back,
        actions.logit,
        weight,
        action,
        row[:d],
    )
    row[d] = shortening(row[:d], bound)


@inlined
def draw_start(world, actions, stream):
    """Bring actions.state to a start; what is wrong with it stands in actions.fault."""
    state = actions.state
    for i in range(world.n_state):
        state[i] = 0.0
    call_reset(world.reset, state, stream)
    if not is_finite(state, world.n_state):
        actions.fault[0] = WALK_RESET_FAULT


@inlined
def choose(world, actions, policy, theta, stream):
    """An action drawn in actions.state, or -1 where its features or logits are at fault."""
    weights = weigh_actions(
        world, policy, theta, actions.features, actions.hidden, actions.state, actions.logit
    )
    if not weights >= 1.0:
        actions.fault[0] = FEATURES_FAULT
        return -1
    return draw_weighted(actions.logit, world.n_actions, uniform(stream) * weights)


@inlined
def make_transition(world, actions, action, stream, costs, signal):
    """Move actions.state on, with its signals in kernel units; what is wrong with them stands in actions.fault."""
    state, before, factor, offset = actions.state, actions.before, world.factor, world.offset
    for i in range(world.n_state):
        before[i] = state[i]
    costs[:] = 0.0
    reward = call_step(world.step, state, action, stream, costs)
    signal[0] = factor[0] * reward + offset[0]
    for i in range(1, world.n_signals):
        signal[i] = factor[i] * costs[i - 1] + offset[i]
    if not is_finite(signal, world.n_signals):
        actions.fault[0] = WALK_FAULT
    elif not is_finite(state, world.n_state):
        actions.fault[0] = STATE_FAULT


@kernel
def tell_fault(world, actions, age, action):
    """Say where actions.fault was found: after how many steps, at which action, in which state."""
    fault = actions.fault
    fault[1], fault[2] = age, action
    if fault[0] == FEATURES_FAULT:
        fault[2] = -1
        for i in range(world.n_state):
            actions.before[i] = actions.state[i]


@kernel
def keep_place(world, actions, place, n_visited):
    """Keep where the chain stands; return how many states of law nu are visited: at least one, a state reached."""
    for i in range(world.n_state):
        place[i] = actions.state[i]
        if n_visited == 0:
            actions.visited[0, i] = actions.state[i]
    return max(n_visited, 1)


@kernel
def run_walk(
    world, actions, rng, chain, place, rule, policy, theta, bound, gamma, n_steps, d, origin, w, mean, total, n_most
):  # fmt: skip
    """Make n_steps transitions with their updates; return how many states of law nu are visited[0:n], or -1.

    chain : int64[2, LANES]: [0, 0] the action taken next, [1, 0] transitions left of the segment, [1, 1] those made
    place : float64[n_state]: where the chain stands; moved on
    n_most : states that are wanted at most
    others as in ``td.run_td``. -1: a fault, told in actions.fault.
    """
    n_signals, n_state, n_actions = world.n_signals, world.n_state, world.n_actions
    state, before, visited, fault = actions.state, actions.before, actions.visited, actions.fault
    form, first, column, none = Tangent(d), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0)
    value = np.empty(2 * (d + 1))
    rows = value.reshape(2, d + 1)
    stream, weight = np.empty(4, np.uint64), np.empty(n_actions)
    costs, signal, square = np.zeros(max(n_signals - 1, 1)), np.empty(n_signals), np.zeros(n_signals)
    for k in range(4):
        stream[k] = rng[k, 0]
    action, left, age = chain[0, 0], 0 if world.forks else chain[1, 0], chain[1, 1]
    for i in range(n_state):
        state[i] = place[i]
    total[:] = 0.0
    fault[0] = 0
    begin(rule, d, origin, w, mean, square)
    now, after, known, n_visited = 0, 1, False, 0
    for k in range(n_steps):
        if leaves(world.stop):
            break
        if left == 0:
            left, age, known = geometric_horizon(word(stream), world.log_gamma_inverse) + 1, 0, False
            draw_start(world, actions, stream)
            if fault[0] == 0:
                action = choose(world, actions, policy, theta, stream)
            if fault[0] != 0:
                break
        elif not known:
            weigh_actions(world, policy, theta, actions.features, actions.hidden, state, actions.logit)
        if not known:
            write_row(world, actions, policy, theta, bound, action, weight, rows[now])
        make_transition(world, actions, action, stream, costs, signal)
        if fault[0] != 0:
            break
        age += 1
        then = choose(world, actions, policy, theta, stream)
        if fault[0] != 0:
            break
        write_row(world, actions, policy, theta, bound, then, weight, rows[after])
        share = (n_steps - k) / n_steps
        for f in range(n_signals):
            q = predict(form, first, column, value, w, f * d, now, none)
            ahead = predict(form, first, column, value, w, f * d, after, none)
            e = rule.rate * (signal[f] + gamma * ahead - q)
            square[f] += nudge(form, first, column, value, origin, w, f * d, now, q, e, mean, share, none)
            square[f] = project(rule, d, origin, w, f * d, mean, share, square[f])
            total[f] += signal[f]
        left -= 1
        if left == 0 and n_visited < n_most:  # the last pair of a segment has the law nu
            for i in range(n_state):
                visited[n_visited, i] = before[i]
            n_visited += 1
        now, after, action, known = after, now, then, True
    for k in range(4):
        rng[k, 0] = stream[k]
    if fault[0] != 0:
        tell_fault(world, actions, age, action)
        return -1
    chain[0, 0], chain[1, 0], chain[1, 1] = action, left, age
    finish(rule, w, mean)
    return keep_place(world, actions, place, n_visited)


@kernel
def live_plug_in(world, actions, policy, theta, n, rng, critic, value):
    """value[k] = mean over n starts, and over a ~ pi, of Q_k; NaN after a fault."""
    n_actions, n_features = world.n_actions, world.n_features
    state, x, z, hidden = actions.state, actions.features, actions.logit, actions.hidden
    d, n_rows = theta.shape[0], n_actions if world.by_choice else 1
    stream, weight, gradient = np.empty(4, np.uint64), np.empty(n_actions), np.empty(d)
    for k in range(4):
        stream[k] = rng[k, 0]
    value[:] = 0.0
    for _ in range(n):
        draw_start(world, actions, stream)
        if actions.fault[0] != 0:
            break
        weights = weigh_actions(world, policy, theta, x, hidden, state, z)
        if not weights >= 1.0:
            actions.fault[0] = FEATURES_FAULT
            break
        for a in range(n_actions):
            weight[a] = z[a] / weights
        # The gradient of the mean logit: sum_a pi(a) grad z_a.
        live_score(policy, theta, x, n_features, n_rows, hidden, actions.back, z, weight, gradient)
        add_products(gradient, critic, 1.0 / n, value)
    if actions.fault[0] != 0:
        value[:] = math.nan
        tell_fault(world, actions, 0, -1)
    for k in range(4):
        rng[k, 0] = stream[k]


@kernel
def add_products(gradient, w, share, value):
    """value[k] += share gradient . w_k."""
    d = gradient.shape[0]
    for k in range(value.shape[0]):
        value[k] += share * dot_at(gradient, 0, w, k * d, d)


@kernel
def live_squares(world, actions, policy, theta, critic, n_visited, level, square):
    """square[k] = mean over the visited states, and over a ~ pi, of (Q_k - V_k)^2; level: work space."""
    n_actions, n_features = world.n_actions, world.n_features
    x, z, hidden, back = actions.features, actions.logit, actions.hidden, actions.back
    d, n_rows = theta.shape[0], n_actions if world.by_choice else 1
    prob, weight = np.empty(n_actions), np.empty(n_actions)
    gradient, advantage = np.empty(d), np.empty(level.shape[0])
    square[:] = 0.0
    for j in range(n_visited):
        for i in range(world.n_state):
            actions.state[i] = actions.visited[j, i]
        weights = weigh_actions(world, policy, theta, x, hidden, actions.state, z)
        for a in range(n_actions):
            prob[a] = z[a] / weights
        level[:] = 0.0
        live_score(policy, theta, x, n_features, n_rows, hidden, back, z, prob, gradient)
        add_products(gradient, critic, 1.0, level)
        for a in range(n_actions):
            write_live_gradient(world, policy, theta, x, hidden, back, z, weight, a, gradient)
            advantage[:] = 0.0
            add_products(gradient, critic, 1.0, advantage)
            for k in range(level.shape[0]):
                square[k] += prob[a] * (advantage[k] - level[k]) ** 2
    for k in range(square.shape[0]):
        square[k] /= n_visited
