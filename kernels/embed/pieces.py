"""The pieces of the solvers, cut so that other people's loops can call them.

Steps and rollouts here run on one stream, uint64[4], one after another; ``sample_batch`` runs many side by side on the
lanes of a replicate, uint64[4, LANES], and is faster. One rollout spends its words as a lane of
kernels/sampling/rollouts.py does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types

from fastcmdp.kernels.algorithm import pd_anpg
from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.draws import word
from fastcmdp.kernels.embed.model import require_policy, widest_row
from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.learning import asgd as inner_loop
from fastcmdp.kernels.policy.scores import DenseScores, SparseScores, collect_scores
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.kernels.sampling import rollouts, tables
from fastcmdp.kernels.sampling.lanes import branch_bits
from fastcmdp.kernels.seeding import seed_lanes, seed_stream
from fastcmdp.kernels.streams import LANES
from fastcmdp.kernels.typed import are_doubles, are_lanes, require_stream
from fastcmdp.kernels.words import LOW, U64


class Batch(NamedTuple):
    """H samples of Algorithm 1, and the work space to draw them."""

    pair: np.ndarray  # int64[H+1]: choice h ~ nu
    occupancy_total: np.ndarray  # float64[H+1, 1+m]: an estimate of J each; row H is the fresh one
    advantage: np.ndarray  # float64[H, 1+m]: an estimate of Q - V at pair h
    value_total: np.ndarray  # float64[2H, 1+m]: Q and V
    last_pair: np.ndarray  # int64[2H]
    job_choice: np.ndarray  # int64[2H+1]
    job_row: np.ndarray  # uint32[2H+1]


# Streams.


@kernel
def seeded_stream(seed, replicate, lane):
    """The stream of a lane of a replicate, uint64[4]; the numbers are uint64."""
    rng = np.empty(4, np.uint64)
    seed_stream(seed, replicate, lane, rng)
    return rng


@kernel
def seeded_lanes(seed, replicate):
    """All lanes of a replicate, uint64[4, LANES]."""
    rng = np.empty((4, LANES), np.uint64)
    seed_lanes(seed, replicate, rng)
    return rng


# Transitions on one stream.


@generic("entry", inline=True)
def second(entry, rng, drawn):
    """What draws an action where ``drawn`` has drawn a state: its low half, or for exact draws the next word."""


@second.on(types.uint32)
def low_half(entry, rng, drawn):
    return drawn & LOW


@second.on(types.float64)
def next_whole_word(entry, rng, drawn):
    return word(rng)


@inlined
def _start_code(model, drawn):
    """Row code of a start state."""
    return tables.draw_start(model.start_entry, branch_bits(model.start_entry, drawn))


@inlined
def _next_code(model, q, drawn):
    """Row code of the state after choice q."""
    first, n = tables.branch_row(model.choice_word[U64(q) * U64(model.words)])
    return tables.draw_label(model.branch_entry, first, n, branch_bits(model.branch_entry, drawn))


@inlined
def _state(model, code):
    return np.int64(tables.state_of_row(model.row_state, code))


@inlined
def first_state(model, rng):
    """A state drawn from the start distribution, with one word."""
    return _state(model, _start_code(model, word(rng)))


@inlined
def next_state(model, rng, q):
    """A state drawn from P(. | choice q), with one word."""
    return _state(model, _next_code(model, q, word(rng)))


@inlined
def act(model, actions, rng, s):
    """A choice of state s drawn from the policy, with one word."""
    bits = branch_bits(actions.entry, word(rng))
    return np.int64(tables.draw_action(actions.entry, U64(model.state_row[s]), bits))


@inlined
def first_pair(model, actions, rng):
    """State and action at the start, as a choice; one word for both (two for exact draws)."""
    drawn = word(rng)
    code = _start_code(model, drawn)
    return np.int64(tables.draw_action(actions.entry, code, second(actions.entry, rng, drawn)))


@inlined
def step(model, actions, rng, q):
    """One transition: the next state after choice q and its action, as a choice; one word (two for exact draws)."""
    drawn = word(rng)
    code = _next_code(model, q, drawn)
    return np.int64(tables.draw_action(actions.entry, code, second(actions.entry, rng, drawn)))


@kernel
def rollout(model, actions, rng, q, total):
    """One rollout with a geometric horizon from choice q, or from the start if q = -1.

    total : float64[1+m], set to the sums of the signals over the T + 1 pairs: their expectation is Q(q), or J.
    Return the last choice, whose law is the occupancy from there, and T, the number of transitions. ValueError if
    total is shorter or no float64, q no choice, rng no stream, or the policy of another model.
    """
    require_stream(rng)
    require_policy(model, actions)
    if not are_doubles(total) or total.shape[0] < model.n_signals:
        raise ValueError("total has fewer numbers than there are signals, or they are no float64")
    if rng.shape[0] != 4 or q >= model.choice_state.shape[0]:
        raise ValueError("rng is no uint64[4], or q no choice of the model")
    horizon = rollouts.geometric_horizon(word(rng), model.log_gamma_inverse)
    if q < 0:
        q = first_pair(model, actions, rng)
    for k in range(model.n_signals):
        total[k] = model.choice_signal[q, 1 + k]
    for _ in range(horizon):
        q = step(model, actions, rng, q)
        for k in range(model.n_signals):
            total[k] += model.choice_signal[q, 1 + k]
    return q, horizon


# Batches on the lanes of a replicate.


@kernel
def batch(model, n_pairs):
    """Room for H = n_pairs samples; ValueError if that is below 1."""
    if n_pairs < 1:
        raise ValueError("n_pairs is below 1")
    n_signals = model.n_signals
    return Batch(
        np.zeros(n_pairs + 1, np.int64),
        np.zeros((n_pairs + 1, n_signals)),
        np.zeros((n_pairs, n_signals)),
        np.zeros((2 * n_pairs, n_signals)),
        np.zeros(2 * n_pairs, np.int64),
        np.zeros(2 * n_pairs + 1, np.int64),
        np.zeros(2 * n_pairs + 1, np.uint32),
    )


@kernel
def fits(model, room, n_pairs):
    """Whether the arrays of a batch have the sizes of H = n_pairs and of the model."""
    k = model.n_signals
    wide = (
        room.occupancy_total.shape[1] == k and room.value_total.shape[1] == k and room.advantage.shape[1] == k
    )
    long = room.pair.shape[0] > n_pairs and room.occupancy_total.shape[0] > n_pairs
    twice = min(room.value_total.shape[0], room.last_pair.shape[0]) >= 2 * n_pairs
    return wide and long and twice and min(room.job_choice.shape[0], room.job_row.shape[0]) > 2 * n_pairs


@kernel
def sample_batch(model, actions, lanes, fresh, room):
    """Draw H samples of Algorithm 1 into ``room``, and a fresh J estimate if wanted; return the transitions made.

    ValueError if lanes are not those of ``streams``, uint64[4, LANES], or policy or room are of another model.
    """
    if not are_lanes(lanes) or lanes.shape[0] != 4 or lanes.shape[1] != LANES:
        raise ValueError("lanes are not uint64[4, LANES]; streams(seed, replicate) makes them")
    require_policy(model, actions)
    n_pairs = room.advantage.shape[0]
    if not fits(model, room, n_pairs):
        raise ValueError(
            "the batch belongs to another model or has arrays of several sizes; batch(model, n_pairs)"
        )
    return pd_anpg.sample_batch(model, actions, lanes, n_pairs, fresh, room)


# Updates.


@kernel
def momentum(g_squared, mu_f):
    """Step sizes of ASGD (Lemma 6) for scores of squared norm up to G^2 and a Fisher matrix of at least mu_F."""
    root = 3.0 * math.sqrt(5.0)
    return inner_loop.Momentum(
        root * g_squared / (mu_f + root * g_squared),
        mu_f / (9.0 * g_squared),
        1.0 / (root * g_squared),
        1.0 / (5.0 * g_squared),
    )


@kernel
def _inner_space(steps, n_steps, n_slots):
    """Work space of the inner loop, its weights filled."""
    weights = inner_loop.Weights(np.empty(n_steps + 1), np.empty(n_steps))
    inner_loop.fill_weights(steps, n_steps // 2, weights)
    return weights, inner_loop.InnerState(np.empty(n_slots), np.empty(n_slots), np.empty(n_slots, np.int64))


@kernel
def asgd(steps, score, target, omega):
    """ASGD on H dense scores, float64[H, d], and targets, float64[H]; omega, float64[d], is the tail average.

    ValueError if these sizes do not agree, or H is 0.
    """
    n_steps, d = score.shape
    if n_steps < 1 or target.shape[0] != n_steps or omega.shape[0] != d or not are_doubles(omega):
        raise ValueError(
            "sizes of score [H, d], target [H] and omega [d] do not agree, or H is 0, or omega no float64"
        )
    weights, space = _inner_space(steps, n_steps, d)
    rows = DenseScores(score, np.empty(0, np.int32))
    inner_loop.asgd(rows, steps, weights, target, n_steps, d, space, omega)


@kernel
def asgd_of_pairs(model, actions, steps, pair, target, omega):
    """``asgd_tabular`` of checked arguments, the policy as ``Actions``."""
    n_steps, n_choices = target.shape[0], model.choice_state.shape[0]
    support = widest_row(model.state_to_choice)
    n_slots = min(n_choices, n_steps * support)
    scores = SparseScores(
        np.empty(n_steps + 1, np.int64),
        np.empty(n_steps * support, np.int32),
        np.empty(n_steps * support),
        np.empty(n_slots, np.int32),
        np.empty(n_slots, np.int64),
        np.full(n_choices, -1, np.int32),
    )
    n = collect_scores(Tabular(n_choices), omega, model, actions, pair, n_steps, scores)
    weights, space = _inner_space(steps, n_steps, n_slots)
    estimate = np.empty(n_slots)
    inner_loop.asgd(scores, steps, weights, target, n_steps, n, space, estimate)
    omega[:] = 0.0
    for i in range(n):
        omega[scores.coordinate[i]] = estimate[i]


@kernel
def asgd_tabular(model, actions, steps, pair, target, omega):
    """ASGD on the scores of tabular softmax at H pairs; omega, float64[C], is 0 where no score reaches.

    pair : int64, at least H choices; target : float64[H]; actions : the policy that drew the pairs
    ValueError if these sizes do not agree, H is 0, pairs are no choices, or the policy is of another model.
    """
    require_policy(model, actions)
    n_steps, n_choices = target.shape[0], model.choice_state.shape[0]
    if n_steps < 1 or pair.shape[0] < n_steps or omega.shape[0] != n_choices:
        raise ValueError("sizes of pair [H or more], target [H] and omega [C] do not agree, or H is 0")
    if not are_doubles(omega):
        raise ValueError("omega is no float64[C]")
    for h in range(n_steps):
        if pair[h] < 0 or pair[h] >= n_choices:
            raise ValueError("pair holds a number that is no choice of the model")
    asgd_of_pairs(model, actions, steps, pair, target, omega)


@kernel
def dual_step(dual, zeta, estimate, dual_max):
    """Move multipliers against estimates of J_c >= 0: dual = clip(dual - zeta estimate, 0, dual_max), in place.

    dual, estimate : float64[m]; zeta, dual_max : numbers (dual_max may be inf). ValueError if sizes differ.
    """
    if dual.shape[0] != estimate.shape[0] or not are_doubles(dual):
        raise ValueError("dual and estimate have different sizes, or dual is no float64")
    for i in range(dual.shape[0]):
        dual[i] = min(max(dual[i] - zeta * estimate[i], 0.0), dual_max)
