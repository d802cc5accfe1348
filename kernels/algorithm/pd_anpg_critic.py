"""What a critic adds to the outer loop of PD-ANPG: control variates (`CriticBatch`), and a start as well (`Started`).

The critic, its rollouts and its starts are those of PD-ANPG-CV; rates and multipliers are PD-ANPG's. Estimates of J are
the critic's J plus C of ``cv_batch``, each unbiased: so their spread says nothing of how large values are, and the
variances from which rates of multipliers are taken are those that sums without the critic would have.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.algorithm.cv_batch import CriticBatch, sample_corrected
from fastcmdp.kernels.algorithm.cv_critic import learn_critic, look_at_pairs, plain_variance
from fastcmdp.kernels.algorithm.pd_anpg import (
    add_known,
    add_start,
    draw_batch,
    learn_critic_of,
    mean_and_variance,
    rows_to_collect,
    take_step,
    variance_of_sums,
)
from fastcmdp.kernels.learning.compatible import add_misfit, learn_direction, n_rows, write_start
from fastcmdp.kernels.policy.softmax import refresh_changed
from fastcmdp.kernels.stop import leaves


class Started(NamedTuple):
    """A critic that also says where the inner loop begins."""

    control: CriticBatch
    begin: np.ndarray  # float64[d]


@draw_batch.on(CriticBatch)
def draw_corrected(critic, tables, actions, steps, state, r, work):
    """The inner loop is to learn C: what the critic knows is added to the targets, or where it begins."""
    n, n_signals = steps.n_inner, tables.n_signals
    n_first = n + 1 if steps.fresh else n
    n_seen, _, transitions = sample_corrected(
        tables, actions, steps.gamma, state.rng[r], n, n_first, steps.n_wanders, state.critic[r], state.evidence[r],
        critic, work,
    )  # fmt: skip
    if leaves(tables.stop):
        return n_seen, transitions, 0.0
    turn = state.outer[r] + steps.n_pilot
    look_at_pairs(tables, actions, state.critic[r], critic.space, work.pair, turn, n, critic.look)
    for h in range(n_first):
        for k in range(n_signals):
            work.occupancy_total[h, k] += critic.plug[k]
    for h in range(n):
        for k in range(n_signals):
            work.advantage[h, k] = critic.correction[h, k]
    return n_seen, transitions, 0.0


@draw_batch.on(Started)
def draw_for_start(critic, tables, actions, steps, state, r, work):
    return draw_batch(critic.control, tables, actions, steps, state, r, work)


@rows_to_collect.on(Started)
def rows_for_start(critic, policy, n_pairs):
    return n_rows(policy, n_pairs)


@add_known.on(CriticBatch)
def add_advantages(critic, policy, state, r, work):
    row, dual = critic.look.row, state.dual[r]
    for h in range(work.target.shape[0]):
        work.target[h] += row[h, 0]
        for i in range(dual.shape[0]):
            work.target[h] += dual[i] * row[h, 1 + i]


@add_known.on(Started)
def add_what_the_start_leaves(critic, policy, state, r, work):
    add_misfit(policy, work.scores, state.direction[r], state.dual[r], critic.control.look.row, work.target)


@add_start.on(Started)
def begin_at_critic(critic, policy, tables, state, r, n_slots, work):
    begin, control = critic.begin, critic.control
    write_start(policy, tables, state.critic[r], control.space, state.direction[r], state.dual[r], begin)
    for i in range(n_slots):
        work.omega[i] += begin[work.scores.coordinate[i]]


@variance_of_sums.on(CriticBatch)
def variance_without_critic(critic, tables, state, r, n, k, work):
    mean, _ = mean_and_variance(work.occupancy_total, n, k)
    return plain_variance(critic.space, tables, state.critic[r], work.pair, n, mean, k)


@variance_of_sums.on(Started)
def variance_without_start(critic, tables, state, r, n, k, work):
    return variance_of_sums(critic.control, tables, state, r, n, k, work)


@learn_critic_of.on(CriticBatch)
def learn_values(critic, policy, tables, actions, steps, state, r, n_seen, work):
    turn = state.outer[r] + steps.n_pilot
    learn_critic(tables, steps.gamma, actions, n_seen, turn, state.evidence[r], state.critic[r], critic.space)


@learn_critic_of.on(Started)
def learn_values_and_start(critic, policy, tables, actions, steps, state, r, n_seen, work):
    look = critic.control.look
    rows = n_rows(policy, steps.n_inner)
    learn_direction(policy, work.scores, rows, steps.score_bound, look.row, state.direction[r], look.move)
    learn_critic_of(critic.control, policy, tables, actions, steps, state, r, n_seen, work)


@take_step.on(Started)
def step_everywhere(critic, policy, theta, tables, actions, eta, norm, n_slots, work):
    """The start is a direction for every coordinate."""
    moved, coordinate, finite = critic.begin, work.scores.coordinate, True
    for j in range(theta.shape[0]):
        moved[j] = theta[j] + eta * moved[j]
    for i in range(n_slots):
        moved[coordinate[i]] = theta[coordinate[i]] + eta * work.omega[i]
    for j in range(theta.shape[0]):
        finite &= math.isfinite(moved[j])
    if finite:
        theta[:] = moved
        refresh_changed(policy, theta, tables, actions, work.space)
    return finite
