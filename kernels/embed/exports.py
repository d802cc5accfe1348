"""The functions of pieces.py for hosts in C and C++: pointers and numbers in, numbers out.

Pointers arrive as addresses (int64). Nothing raises into C: what can fail returns a status below 0 (see STATUS in
memory.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.np.numpy_support import carray

from fastcmdp.kernels import draws, seeding
from fastcmdp.kernels.addresses import pointer
from fastcmdp.kernels.embed import model as rows_of
from fastcmdp.kernels.embed import pieces
from fastcmdp.kernels.embed.memory import (
    doubles,
    entries,
    integers,
    is_choice,
    is_state,
    model_at,
    policy_at,
    stream_at,
    table,
)
from fastcmdp.kernels.embed.model import BAD_SIZE, NO_MEMORY, NULL_POINTER, OK, OUT_OF_RANGE
from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.learning.asgd import Momentum
from fastcmdp.kernels.sampling import tables
from fastcmdp.kernels.streams import LANES

_LINE = 64  # bytes


class Export(NamedTuple):
    """A function as C sees it: types of its result and of its parameters, by name; its docstring is the comment."""

    function: Callable[..., Any]
    returns: str
    parameters: dict[str, str]


EXPORTS: list[Export] = []  # in the order of the header's struct: new ones at the end


def export(returns, **parameters):
    """Register a function for C; a type is written as in C."""

    def register(function):
        code = function.__code__
        assert tuple(parameters) == code.co_varnames[: code.co_argcount], function.__name__
        EXPORTS.append(Export(function, returns, parameters))
        return function

    return register


# Streams and draws.


@export("void", seed="uint64_t", replicate="uint64_t", lane="uint64_t", rng="uint64_t *")
def stream(seed, replicate, lane, rng):
    """Set rng[4] to numpy.random.SFC64(numpy.random.SeedSequence(seed, spawn_key=(replicate, lane)))."""
    seeding.seed_stream(seed, replicate, lane, stream_at(rng))


@export("void", seed="uint64_t", replicate="uint64_t", lanes="uint64_t *")
def streams(seed, replicate, lanes):
    """Set lanes[4][FCMDP_LANES] to all lanes of a replicate: word w of lane l in lanes[w * FCMDP_LANES + l]."""
    seeding.seed_lanes(seed, replicate, carray(pointer(lanes), (4, LANES), np.uint64))


@export("uint64_t", rng="uint64_t *")
def word(rng):
    """64 random bits. This and the draws below advance rng[4] by one word each."""
    return draws.word(stream_at(rng))


@export("double", rng="uint64_t *")
def uniform(rng):
    """A number in [0, 1), a multiple of 2^-53."""
    return draws.uniform(stream_at(rng))


@export("double", rng="uint64_t *")
def normal(rng):
    """A standard normal number."""
    return draws.normal(stream_at(rng))


@export("double", rng="uint64_t *")
def exponential(rng):
    """An exponential number of mean 1."""
    return draws.exponential(stream_at(rng))


@export("int64_t", rng="uint64_t *", gamma="double")
def geometric(rng, gamma):
    """T = 0, 1, 2, ... with probability (1-gamma) gamma^T; 0 < gamma < 1."""
    return draws.geometric(stream_at(rng), gamma)


@export("int64_t", rng="uint64_t *", weight="const double *", n="int64_t")
def categorical(rng, weight, n):
    """0 <= i < n with probability proportional to weight[i] >= 0; -1 if all are 0."""
    return draws.categorical(stream_at(rng), doubles(weight, n))


# Tables.


@kernel
def _bytes(n_states, n_choices, n_branches, n_starts, n_entries, record):
    """Memory of a model: eight-byte numbers first, from a cache line on; then those of four bytes."""
    eight = n_choices * record + n_states + 1
    four = n_choices + 3 * n_starts + 3 * n_branches + n_states + n_entries
    return _LINE + 8 * eight + 4 * four


@kernel
def _checked(rows):
    """OK, or what is wrong with a fcmdp_rows."""
    if rows == 0:
        return NULL_POINTER
    i, x = integers(rows, 11), doubles(rows, 11)
    for k in range(4, 10):
        if i[k] == 0:
            return NULL_POINTER
    n_states, n_choices, n_branches, n_signals = i[0], i[1], i[2], i[3]
    if min(n_states, n_choices, n_branches, n_signals) < 1 or n_signals > 2**20:
        return BAD_SIZE
    return rows_of.check(
        integers(i[4], n_states + 1),
        integers(i[5], n_choices + 1),
        carray(pointer(i[6]), (n_branches,), np.int32),
        doubles(i[7], n_branches),
        table(i[8], n_choices, n_signals),
        doubles(i[9], n_states),
        x[10],
    )


@kernel
def _sizes(rows):
    """(start states, action entries, words of a record) of a checked fcmdp_rows."""
    i = integers(rows, 11)
    return (
        tables.supported(doubles(i[9], i[0])),
        tables.row_entries(integers(i[4], i[0] + 1)),
        tables.record_words(i[3]),
    )


@export("int64_t", rows="const fcmdp_rows *")
def memory(rows):
    """The bytes that build needs for this model, or a status below 0 that says what is wrong with it."""
    status = _checked(rows)
    if status != OK:
        return status
    i = integers(rows, 11)
    n_starts, n_entries, record = _sizes(rows)
    return _bytes(i[0], i[1], i[2], n_starts, n_entries, record)


@export("int64_t", rows="const fcmdp_rows *", memory="void *", model="fcmdp_model *")
def build(rows, memory, model):
    """Build the tables in memory, of at least memory(rows) bytes, and set *model, which points into it: status. The
    rows may be freed afterwards, the memory not. Draws are within (n + 1) 2^-32 of a row of n in total variation.
    """
    if memory == 0 or model == 0:
        return NULL_POINTER
    status = _checked(rows)
    if status != OK:
        return status
    sizes, x = integers(rows, 11), doubles(rows, 11)
    out, numbers = integers(model, 16), doubles(model, 16)
    n_states, n_choices, n_branches, n_signals = sizes[0], sizes[1], sizes[2], sizes[3]
    n_starts, n_entries, record = _sizes(rows)
    for k in range(4):
        out[k] = sizes[k]
    out[4] = n_starts
    out[5] = n_entries
    out[6] = record
    numbers[7] = 1.0 / np.log(x[10])
    numbers[8] = 1.0 / (1.0 - x[10])
    at = (memory + _LINE - 1) // _LINE * _LINE
    out[11] = at
    at += 8 * n_choices * record
    out[9] = at
    at += 8 * (n_states + 1)
    out[10] = at
    at += 4 * n_choices
    out[12] = at
    at += 12 * n_starts
    out[13] = at
    at += 12 * n_branches
    out[14] = at
    at += 4 * n_states
    out[15] = at
    built = model_at(model)
    state_to_choice = integers(sizes[4], n_states + 1)
    for s in range(n_states + 1):
        built.state_to_choice[s] = state_to_choice[s]
    built.choice_word[:] = np.uint64(0)
    try:
        tables.fill_tables(
            integers(sizes[5], n_choices + 1),
            carray(pointer(sizes[6]), (n_branches,), np.int32),
            doubles(sizes[7], n_branches),
            table(sizes[8], n_choices, n_signals),
            doubles(sizes[9], n_states),
            built,
        )
    except Exception:
        return NO_MEMORY
    return OK


# Policies.


@export("int64_t", model="const fcmdp_model *", prob="const double *", entry="uint32_t *")
def policy(model, prob, entry):
    """Set entry[3 * n_entries] so that draws follow prob[C], each state's sum 1: status."""
    if model == 0 or prob == 0 or entry == 0:
        return NULL_POINTER
    view = model_at(model)
    actions = policy_at(view, entry, prob)
    offset = view.state_to_choice
    for s in range(offset.shape[0] - 1):
        status = rows_of.check_row(actions.prob, offset[s], offset[s + 1])
        if status != OK:
            return status
    try:
        rows_of.refresh(view, actions)
    except Exception:
        return NO_MEMORY
    return OK


@export("int64_t", model="const fcmdp_model *", theta="const double *", prob="double *", entry="uint32_t *")
def softmax(model, theta, prob, entry):
    """Set prob[C] to the softmax of theta[C] in each state, and entry to draw from it: status."""
    if model == 0 or theta == 0 or prob == 0 or entry == 0:
        return NULL_POINTER
    view = model_at(model)
    logits = doubles(theta, view.choice_state.shape[0])
    for q in range(logits.shape[0]):
        if not np.isfinite(logits[q]):
            return rows_of.NOT_FINITE
    try:
        rows_of.softmax(view, logits, policy_at(view, entry, prob))
    except Exception:
        return NO_MEMORY
    return OK


# Transitions.


@export("int64_t", model="const fcmdp_model *", rng="uint64_t *")
def first_state(model, rng):
    """A state from the start distribution; one word."""
    return pieces.first_state(model_at(model), stream_at(rng))


@export("int64_t", model="const fcmdp_model *", rng="uint64_t *", q="int64_t")
def next_state(model, rng, q):
    """The state after choice q, or FCMDP_OUT_OF_RANGE; one word."""
    if not is_choice(model, q):
        return OUT_OF_RANGE
    return pieces.next_state(model_at(model), stream_at(rng), q)


@export("int64_t", model="const fcmdp_model *", entry="const uint32_t *", rng="uint64_t *", s="int64_t")
def act(model, entry, rng, s):
    """A choice of state s from the policy, or FCMDP_OUT_OF_RANGE; one word."""
    if not is_state(model, s):
        return OUT_OF_RANGE
    view = model_at(model)
    return pieces.act(view, policy_at(view, entry, entry), stream_at(rng), s)


@export("int64_t", model="const fcmdp_model *", entry="const uint32_t *", rng="uint64_t *")
def first_pair(model, entry, rng):
    """State and action at the start, as a choice; one word for both."""
    view = model_at(model)
    return pieces.first_pair(view, policy_at(view, entry, entry), stream_at(rng))


@export("int64_t", model="const fcmdp_model *", entry="const uint32_t *", rng="uint64_t *", q="int64_t")
def step(model, entry, rng, q):
    """One transition: the next state after choice q and its action, as a choice, or FCMDP_OUT_OF_RANGE; one word."""
    if not is_choice(model, q):
        return OUT_OF_RANGE
    view = model_at(model)
    return pieces.step(view, policy_at(view, entry, entry), stream_at(rng), q)


@export(
    "int64_t",
    model="const fcmdp_model *",
    entry="const uint32_t *",
    rng="uint64_t *",
    q="int64_t",
    total="double *",
    last="int64_t *",
)
def rollout(model, entry, rng, q, total, last):
    """A rollout with a geometric horizon from choice q, or from the start if q = -1: the number T of transitions, or
    a status. total[1+m]: sums of the signals over its T + 1 pairs, with expectation Q(q) or J; *last: its last pair.
    """
    if model == 0 or entry == 0 or rng == 0 or total == 0 or last == 0:
        return NULL_POINTER
    if q != -1 and not is_choice(model, q):
        return OUT_OF_RANGE
    view = model_at(model)
    final, transitions = pieces.rollout(
        view, policy_at(view, entry, entry), stream_at(rng), q, doubles(total, view.n_signals)
    )
    integers(last, 1)[0] = final
    return transitions


@export(
    "int64_t",
    model="const fcmdp_model *",
    entry="const uint32_t *",
    lanes="uint64_t *",
    n_pairs="int64_t",
    fresh="int64_t",
    pair="int64_t *",
    occupancy_total="double *",
    advantage="double *",
)
def sample_batch(model, entry, lanes, n_pairs, fresh, pair, occupancy_total, advantage):
    """H = n_pairs samples, many rollouts side by side: the number of transitions, or a status. pair[H+1]: choices from
    the occupancy; occupancy_total[H+1][1+m]: an estimate of J each, in row H a fresh one if fresh is not 0;
    advantage[H][1+m]: an estimate of Q - V at each pair.
    """
    if model == 0 or entry == 0 or lanes == 0 or pair == 0 or occupancy_total == 0 or advantage == 0:
        return NULL_POINTER
    if n_pairs < 1:
        return BAD_SIZE
    view = model_at(model)
    n_signals = view.n_signals
    try:
        room = pieces.Batch(
            integers(pair, n_pairs + 1),
            table(occupancy_total, n_pairs + 1, n_signals),
            table(advantage, n_pairs, n_signals),
            np.zeros((2 * n_pairs, n_signals)),
            np.zeros(2 * n_pairs, np.int64),
            np.zeros(2 * n_pairs + 1, np.int64),
            np.zeros(2 * n_pairs + 1, np.uint32),
        )
        rng = carray(pointer(lanes), (4, LANES), np.uint64)
        transitions = pieces.sample_batch(view, policy_at(view, entry, entry), rng, fresh != 0, room)
    except Exception:
        return NO_MEMORY
    return transitions


# Updates.


@export("void", g_squared="double", mu_f="double", steps="double *")
def momentum(g_squared, mu_f, steps):
    """Set steps[4] to the ASGD step sizes alpha, beta, xi, delta for G^2 and mu_F (Lemma 6); 2 and 0.1 for softmax."""
    rates = pieces.momentum(g_squared, mu_f)
    out = doubles(steps, 4)
    out[0], out[1], out[2], out[3] = rates.alpha, rates.beta, rates.xi, rates.delta


@inlined
def _momentum(steps):
    x = doubles(steps, 4)
    return Momentum(x[0], x[1], x[2], x[3])


@export(
    "int64_t",
    steps="const double *",
    score="const double *",
    target="const double *",
    n_steps="int64_t",
    d="int64_t",
    omega="double *",
)
def asgd(steps, score, target, n_steps, d, omega):
    """ASGD on score[H][d] and target[H]; omega[d] is set to the tail average: status."""
    if steps == 0 or score == 0 or target == 0 or omega == 0:
        return NULL_POINTER
    if n_steps < 1 or d < 1:
        return BAD_SIZE
    try:
        pieces.asgd(_momentum(steps), table(score, n_steps, d), doubles(target, n_steps), doubles(omega, d))
    except Exception:
        return NO_MEMORY
    return OK


@export(
    "int64_t",
    model="const fcmdp_model *",
    prob="const double *",
    steps="const double *",
    pair="const int64_t *",
    target="const double *",
    n_steps="int64_t",
    omega="double *",
)
def asgd_tabular(model, prob, steps, pair, target, n_steps, omega):
    """ASGD on the scores of tabular softmax at pair[H], whose action probabilities are prob[C], and target[H]; omega[C]
    is set to the tail average: status.
    """
    if model == 0 or prob == 0 or steps == 0 or pair == 0 or target == 0 or omega == 0:
        return NULL_POINTER
    if n_steps < 1:
        return BAD_SIZE
    for h in range(n_steps):
        if not is_choice(model, integers(pair, n_steps)[h]):
            return OUT_OF_RANGE
    view = model_at(model)
    try:
        pieces.asgd_of_pairs(
            view,
            tables.Actions(entries(prob, 0), doubles(prob, view.choice_state.shape[0])),
            _momentum(steps),
            integers(pair, n_steps),
            doubles(target, n_steps),
            doubles(omega, view.choice_state.shape[0]),
        )
    except Exception:
        return NO_MEMORY
    return OK


@export("void", dual="double *", m="int64_t", zeta="double", estimate="const double *", dual_max="double")
def dual_step(dual, m, zeta, estimate, dual_max):
    """dual[i] = min(max(dual[i] - zeta estimate[i], 0), dual_max), estimate[m] of J_c >= 0; dual_max may be
    INFINITY.
    """
    pieces.dual_step(doubles(dual, m), zeta, doubles(estimate, m), dual_max)
