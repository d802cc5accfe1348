"""Rollouts through a simulator: its functions are called by address, its policies evaluated on the fly.

A simulator's state is a vector, so that it can be copied: Q and V rollouts start again at the state that the
occupancy rollout reached. One function makes a whole rollout, compiled for the simulator and the kind of policy in
each process (fastcmdp/simulators/rolls.py), so that nothing stands between the user's code and the loop. All else is
compiled once and cached: it takes that function as an address, which is a number like any other.

Where tables number their choices, a *visited pair* has the number slot * A + action here, with the slot of
``visited`` where its state stands; a row code is slot + 1, and 0 the start distribution. Rollouts run one after the
other on the replicate's lane 0. One draws from it, in this order: a word for the horizon T; what reset or fork draw;
then for every pair one word for the action (none for a first pair that is given) and what step draws. The reward of
a pair may depend on the next state, so T + 1 transitions are made, and counted.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.policy.live import live_logits, live_score
from fastcmdp.kernels.policy.scores import collect_scores
from fastcmdp.kernels.policy.softmax import refresh_changed
from fastcmdp.kernels.sampling.rollouts import rollouts
from fastcmdp.kernels.sampling.tables import Tables
from fastcmdp.kernels.stop import leaves


class Addresses(NamedTuple):
    """What the sampler reads of a simulator, in the place of ``Tables``; addresses of functions are int64."""

    roll: int  # one rollout: see fastcmdp/simulators/rolls.py; 0 where chains are run
    step: int  # and 0, these two, where rollouts are
    reset: int
    features: int  # of a state, or of all its pairs; 0: the state itself
    forks: bool  # a state's copy is more than its numbers
    n_state: int
    n_actions: int
    n_features: int
    by_choice: bool  # features are of a state and an action
    factor: np.ndarray  # float64[1+m]: signal = factor * (reward or cost) + offset, in kernel units
    offset: np.ndarray  # float64[1+m]
    log_gamma_inverse: float
    horizon: float
    n_signals: int
    stop: np.ndarray  # int64[1]: see stop.py


class LiveActions(NamedTuple):
    """A policy evaluated where it is needed, in the place of ``Actions``; with a replicate's scratch space."""

    policy: Any
    theta: np.ndarray  # float64[d]
    visited: np.ndarray  # float64[H+1, n_state]: last states of rollouts from the start, by the job's number
    state: np.ndarray  # float64[n_state]
    before: np.ndarray  # float64[n_state]: where a fault was found
    total: (
        np.ndarray
    )  # float64[3 (1+m)]: sums of a rollout, in the user's units; with a critic, what rolls.py says
    features: np.ndarray  # float64[n_features], or A times that
    logit: np.ndarray  # float64[A]
    hidden: np.ndarray  # float64[widths of the network]
    back: np.ndarray  # the same
    fault: (
        np.ndarray
    )  # int64[4]: what went wrong (0: nothing), after how many steps, at which action; the last action


STEP_FAULT, STATE_FAULT, FEATURES_FAULT, RESET_FAULT, RAISED = 1, 2, 3, 4, 5
WALK_FAULT, WALK_RESET_FAULT = 6, 7  # where what raised cannot be told from what was not finite


# Calls by address.

_P, _I, _D = ir.DoubleType().as_pointer(), ir.IntType(64), ir.DoubleType()
_W = ir.IntType(64).as_pointer()


def _call(result, kinds, *arguments):
    """Signature and code of a call of the function at an address: of an array it gets its data.

    ``result`` and ``arguments`` are types of numba, ``kinds`` those of the arguments in C.
    """
    returned = {types.void: ir.VoidType(), types.float64: _D, types.int64: _I}[result]

    def generate(context, builder, signature, args):
        values = [
            context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args[1:], args[1:], strict=True)
        ]
        pointer = builder.inttoptr(args[0], ir.FunctionType(returned, kinds).as_pointer())
        value = builder.call(pointer, values)
        return context.get_dummy_value() if result is types.void else value

    return result(types.int64, *arguments), generate


@intrinsic
def call_step(typing, address, state, action, rng, costs):
    """double step(double *state, int64_t action, uint64_t *rng, double *costs)"""
    return _call(types.float64, [_P, _I, _W, _P], state, types.int64, rng, costs)


@intrinsic
def call_reset(typing, address, state, rng):
    """void reset(double *state, uint64_t *rng)"""
    return _call(types.void, [_P, _W], state, rng)


@intrinsic
def call_fork(typing, address, state, keep, rng):
    """void fork(double *state, int64_t keep, uint64_t *rng)"""
    return _call(types.void, [_P, _I, _W], state, types.int64, rng)


@intrinsic
def call_state_features(typing, address, state, out):
    """void state_features(const double *state, double *out)"""
    return _call(types.void, [_P, _P], state, out)


@intrinsic
def call_choice_features(typing, address, state, action, out):
    """void choice_features(const double *state, int64_t action, double *out)"""
    return _call(types.void, [_P, _I, _P], state, types.int64, out)


@intrinsic
def call_roll(
    typing, address, theta, rng, visited, slot, action, job, careful, wanders, critic, tape, total, before, fault, stop
):  # fmt: skip
    """int64_t roll(double *theta, uint64_t *rng, double *visited, int64_t slot, .. double *total, .. fault, stop)"""
    kinds, n = [_P, _W, _P, _I, _I, _I, _I, _I, _P, _P, _P, _P, _W, _W], types.int64
    return _call(n, kinds, theta, rng, visited, n, n, n, n, n, critic, tape, total, before, fault, stop)


# Policies.


@inlined
def write_features(features, n_state, state, out):
    """Write the features of a state, or of all its pairs."""
    if features == 0:
        for i in range(n_state):
            out[i] = state[i]
    else:
        call_state_features(features, state, out)


@inlined
def softmax_weights(z, n):
    """Replace logits by exp(z - max z); return their sum, at least 1, or NaN."""
    top = z[0]
    for a in range(1, n):
        top = max(top, z[a])
    total = 0.0
    for a in range(n):
        z[a] = math.exp(z[a] - top)
        total += z[a]
    return total


@inlined
def draw_weighted(weight, n, u):
    """The action that u in [0, sum of the weights) falls on."""
    action = n - 1
    for a in range(n - 1):
        u -= weight[a]
        if u < 0.0:
            action = a
            break
    while action > 0 and weight[action] == 0.0:  # rounding let u past the last that is possible
        action -= 1
    return action


# Rollouts.


@inlined
def is_finite(x, n):
    """Whether x[0:n] are finite."""
    finite = True
    for i in range(n):
        finite &= math.isfinite(x[i])
    return finite


@kernel
def simulate(world, actions, rng, job_choice, job_row, out_total, out_choice):
    """Run one rollout a job, as ``rollouts`` does; return the transitions made.

    job_choice : int64[J], number of a visited pair to begin with, or -1: then the action is drawn in the state of
    job_row : uint32[J], slot + 1 of a visited state, or 0: the start; such a job's last state is kept in its slot
    out_total : float64[J, 1+m], sums of the signals over the T + 1 pairs; with one more column, for T + 1
    out_choice : int64[J], the visited pair, of jobs from the start

    After a fault all sums are NaN: estimates from a part of the jobs would be biased.
    """
    none, wanders = np.empty(0), np.zeros(job_choice.shape[0], np.uint64)
    return simulate_with(
        world, actions, rng, job_choice, job_row, wanders, none, none, out_total, out_choice, out_total[:0]
    )


@kernel
def simulate_with(
    world, actions, rng, job_choice, job_row, job_wanders, critic, tape, out_total, out_choice, out_value
):  # fmt: skip
    """As ``simulate``, for a roll that a critic corrects (``rolls.py``); only its mistakes are then summed.

    job_wanders : uint64[J], 1 or 0: then the first action is uniform, later ones with probability 1/2
    critic : float64[F d], its weights, or none; tape : see ``least_squares.py``, or none
    out_value : float64[J, 1+m], Wbar of the first state, or none
    """
    theta, visited, total, before, fault = (
        actions.theta, actions.visited, actions.total, actions.before, actions.fault,
    )  # fmt: skip
    roll, n_actions, n_signals, forks = world.roll, world.n_actions, world.n_signals, world.forks
    stream, saved = np.empty(4, np.uint64), np.empty(4, np.uint64)
    for k in range(4):
        stream[k] = rng[k, 0]
    transitions = 0
    for job in range(job_choice.shape[0]):
        if fault[0] != 0 or leaves(world.stop):  # then visited pairs are of no use
            break
        for k in range(4):
            saved[k] = stream[k]
        slot, action, wanders = np.int64(job_row[job]) - 1, np.int64(-1), np.int64(job_wanders[job])
        if job_choice[job] >= 0:
            slot, action = job_choice[job] // n_actions, job_choice[job] % n_actions
        n = call_roll(
            roll,
            theta,
            stream,
            visited,
            slot,
            action,
            job,
            0,
            wanders,
            critic,
            tape,
            total,
            before,
            fault,
            world.stop,
        )
        if fault[0] != 0 and not forks:  # once more, to see where
            n = call_roll(
                roll, theta, saved, visited, slot, action, job, 1, wanders, critic, tape, total, before, fault,
                world.stop,
            )  # fmt: skip
        transitions += n
        out_choice[job] = job * n_actions + fault[3]
        for k in range(n_signals):
            out_total[job, k] = world.factor[k] * total[k] + world.offset[k] * n
        if out_total.shape[1] > n_signals:
            out_total[job, n_signals] = n
        for k in range(n_signals if out_value.shape[0] > 0 else 0):
            out_total[job, k] += total[n_signals + k]
            out_value[job, k] = total[2 * n_signals + k]
    if fault[0] != 0:
        out_total[:] = np.nan
        for job in range(job_choice.shape[0]):
            out_choice[job] = 0
    for k in range(4):
        rng[k, 0] = stream[k]
    return transitions


@generic("tables")
def run_jobs(tables, actions, rng, job_choice, job_row, out_total, out_choice):
    """Run one rollout a job, through tables or a simulator; return the transitions made."""


@run_jobs.on(Tables)
def run_table_jobs(tables, actions, rng, job_choice, job_row, out_total, out_choice):
    return rollouts(tables, actions, rng, job_choice, job_row, out_total, out_choice)


@run_jobs.on(Addresses)
def run_world_jobs(tables, actions, rng, job_choice, job_row, out_total, out_choice):
    return simulate(tables, actions, rng, job_choice, job_row, out_total, out_choice)


@generic("tables", inline=True)
def row_of_choice(tables, q):
    """Row code of the state of choice q."""


@row_of_choice.on(Tables)
def table_row_of_choice(tables, q):
    return tables.state_row[tables.choice_state[q]]


@row_of_choice.on(Addresses)
def slot_of_choice(tables, q):
    return np.uint32(q // tables.n_actions + 1)


@refresh_changed.on(LiveActions)
def refresh_nothing(policy, theta, tables, actions, space):
    pass


@collect_scores.on(LiveActions)
def collect_live_scores(policy, theta, tables, actions, pair, n_pairs, scores):
    visited, state, x, z = actions.visited, actions.state, actions.features, actions.logit
    n_state, n_actions, n_features = tables.n_state, tables.n_actions, tables.n_features
    n_rows = n_actions if tables.by_choice else 1
    weight = np.empty(n_actions)
    for h in range(n_pairs):
        slot, chosen = pair[h] // n_actions, pair[h] % n_actions
        for i in range(n_state):
            state[i] = visited[slot, i]
        write_features(tables.features, n_state, state, x)
        live_logits(policy, theta, x, n_features, n_rows, actions.hidden, z)
        share = 1.0 / softmax_weights(z, n_actions)
        for a in range(n_actions):
            weight[a] = (1.0 if a == chosen else 0.0) - z[a] * share
        live_score(
            policy, theta, x, n_features, n_rows, actions.hidden, actions.back, z, weight, scores.dense[h]
        )
    return scores.dense.shape[1]
