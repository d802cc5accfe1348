"""The functions of kernels/embedding.py for hosts in C and C++: pointers and numbers in, numbers out.

Each docstring begins with the prototype, from which ``fastcmdp.embed`` makes the signature and the header. Pointers
arrive as addresses (int64). Nothing raises into C: what can fail returns a status below 0 (see STATUS).
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from fastcmdp.kernels import draws, seeding, tables
from fastcmdp.kernels import embedding as pieces
from fastcmdp.kernels.asgd import Momentum
from fastcmdp.kernels.embedding import BAD_SIZE, NO_MEMORY, NULL_POINTER, OK, OUT_OF_RANGE, Model, Policy
from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.streams import LANES

VERSION = 1
_LINE = 64  # bytes

STATUS = (
    ("OK", pieces.OK, ""),
    ("NULL_POINTER", pieces.NULL_POINTER, "a pointer is NULL"),
    ("BAD_SIZE", pieces.BAD_SIZE, "a size is below its least, too large, or at odds with another"),
    (
        "BAD_OFFSETS",
        pieces.BAD_OFFSETS,
        "state_to_choice or choice_to_branch does not rise from 0 to the end",
    ),
    ("BAD_TARGET", pieces.BAD_TARGET, "branch_target leads out of the states"),
    ("BAD_PROBABILITY", pieces.BAD_PROBABILITY, "probabilities are negative, NaN, or do not sum to 1"),
    ("NOT_FINITE", pieces.NOT_FINITE, "a signal is NaN or infinite"),
    ("BAD_DISCOUNT", pieces.BAD_DISCOUNT, "gamma is not between 0 and 1"),
    ("OUT_OF_RANGE", pieces.OUT_OF_RANGE, "a state or a choice is out of range"),
    ("NO_MEMORY", pieces.NO_MEMORY, "no memory for work space"),
)

# The structs that C sees, all members of eight bytes: (type, name, what it is).
ROWS = (
    ("int64_t", "n_states", "S"),
    ("int64_t", "n_choices", "C, the actions of all states together"),
    ("int64_t", "n_branches", "B"),
    ("int64_t", "n_signals", "1 + m: the reward and m constraints"),
    ("const int64_t *", "state_to_choice", "[S+1]"),
    ("const int64_t *", "choice_to_branch", "[C+1]"),
    ("const int32_t *", "branch_target", "[B], next states"),
    ("const double *", "branch_prob", "[B]; those of a choice sum to 1"),
    ("const double *", "signals", "[C][1+m]"),
    ("const double *", "start", "[S], the start distribution"),
    ("double", "gamma", "discount factor, in (0, 1)"),
)
MODEL = (
    ("int64_t", "n_states", "S"),
    ("int64_t", "n_choices", "C"),
    ("int64_t", "n_branches", "B"),
    ("int64_t", "n_signals", "1 + m"),
    ("int64_t", "n_starts", "start states"),
    ("int64_t", "n_entries", "P: a policy has uint32_t entry[3 * P]"),
    ("int64_t", "record", "8-byte words of a choice's record"),
    ("double", "log_gamma_inverse", "1 / log(gamma)"),
    ("double", "horizon", "1 / (1 - gamma)"),
    ("const int64_t *", "state_to_choice", "[S+1]"),
    ("const int32_t *", "choice_state", "[C], the state of a choice"),
    ("const double *", "choice_signal", "[C][record]; signal k of choice q in column 1 + k"),
    ("const uint32_t *", "start_entry", ""),
    ("const uint32_t *", "branch_entry", ""),
    ("const uint32_t *", "state_row", ""),
    ("const int32_t *", "row_state", ""),
)


@intrinsic
def _pointer(typing_context, address):
    """The pointer with this address."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


@inlined
def _doubles(address, n):
    return carray(_pointer(address), (n,), np.float64)


@inlined
def _integers(address, n):
    return carray(_pointer(address), (n,), np.int64)


@inlined
def _words(address, n):
    return carray(_pointer(address), (n,), np.uint64)


@inlined
def _table(address, rows, columns):
    return carray(_pointer(address), (rows, columns), np.float64)


@inlined
def _rng(address):
    return carray(_pointer(address), (4,), np.uint64)


@inlined
def _entries(address, n):
    return carray(_pointer(address), (n, 3), np.uint32)


@inlined
def _model(address):
    """The Model over the arrays that a fcmdp_model points to."""
    i, x = _integers(address, 16), _doubles(address, 16)
    n_states, n_choices, n_branches, n_starts, n_entries, record = i[0], i[1], i[2], i[4], i[5], i[6]
    return Model(
        _entries(i[12], n_starts),
        _entries(i[13], n_branches),
        carray(_pointer(i[11]), (n_choices, record), np.uint64),
        _table(i[11], n_choices, record),
        carray(_pointer(i[10]), (n_choices,), np.int32),
        _integers(i[9], n_states + 1),
        carray(_pointer(i[14]), (n_states,), np.uint32),
        x[7],
        x[8],
        i[3],
        carray(_pointer(i[15]), (n_entries,), np.int32),
        carray(_pointer(i[12]), (3 * n_starts,), np.uint32),
        carray(_pointer(i[13]), (3 * n_branches,), np.uint32),
        _words(i[11], n_choices * record),
    )


@inlined
def _policy(model, entry, prob):
    """The Policy over entries and probabilities; single draws need no probabilities."""
    n = model.row_state.shape[0]
    return Policy(
        _entries(entry, n),
        _doubles(prob, model.choice_state.shape[0]),
        carray(_pointer(entry), (3 * n,), np.uint32),
    )


@inlined
def _is_choice(model, q):
    return 0 <= q < _integers(model, 2)[1]


@inlined
def _is_state(model, s):
    return 0 <= s < _integers(model, 1)[0]


# Streams and draws.


def stream(seed, replicate, lane, rng):
    """void stream(uint64_t seed, uint64_t replicate, uint64_t lane, uint64_t *rng)

    Set rng[4] to numpy.random.SFC64(numpy.random.SeedSequence(seed, spawn_key=(replicate, lane))).
    """
    seeding.seed_stream(seed, replicate, lane, _rng(rng))


def streams(seed, replicate, lanes):
    """void streams(uint64_t seed, uint64_t replicate, uint64_t *lanes)

    Set lanes[4][FCMDP_LANES] to all lanes of a replicate: word w of lane l in lanes[w * FCMDP_LANES + l].
    """
    seeding.seed_lanes(seed, replicate, carray(_pointer(lanes), (4, LANES), np.uint64))


def word(rng):
    """uint64_t word(uint64_t *rng)

    64 random bits. This and the draws below advance rng[4] by one word each.
    """
    return draws.word(_rng(rng))


def uniform(rng):
    """double uniform(uint64_t *rng)

    A number in [0, 1), a multiple of 2^-53.
    """
    return draws.uniform(_rng(rng))


def normal(rng):
    """double normal(uint64_t *rng)

    A standard normal number.
    """
    return draws.normal(_rng(rng))


def exponential(rng):
    """double exponential(uint64_t *rng)

    An exponential number of mean 1.
    """
    return draws.exponential(_rng(rng))


def geometric(rng, gamma):
    """int64_t geometric(uint64_t *rng, double gamma)

    T = 0, 1, 2, ... with probability (1-gamma) gamma^T; 0 < gamma < 1.
    """
    return draws.geometric(_rng(rng), gamma)


def categorical(rng, weight, n):
    """int64_t categorical(uint64_t *rng, const double *weight, int64_t n)

    0 <= i < n with probability proportional to weight[i] >= 0; -1 if all are 0.
    """
    return draws.categorical(_rng(rng), _doubles(weight, n))


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
    i, x = _integers(rows, 11), _doubles(rows, 11)
    for k in range(4, 10):
        if i[k] == 0:
            return NULL_POINTER
    n_states, n_choices, n_branches, n_signals = i[0], i[1], i[2], i[3]
    if min(n_states, n_choices, n_branches, n_signals) < 1 or n_signals > 2**20:
        return BAD_SIZE
    return pieces.check(
        _integers(i[4], n_states + 1),
        _integers(i[5], n_choices + 1),
        carray(_pointer(i[6]), (n_branches,), np.int32),
        _doubles(i[7], n_branches),
        _table(i[8], n_choices, n_signals),
        _doubles(i[9], n_states),
        x[10],
    )


@kernel
def _sizes(rows):
    """(start states, action entries, words of a record) of a checked fcmdp_rows."""
    i = _integers(rows, 11)
    return (
        pieces.supported(_doubles(i[9], i[0])),
        pieces.row_entries(_integers(i[4], i[0] + 1)),
        pieces.record_words(i[3]),
    )


def memory(rows):
    """int64_t memory(const fcmdp_rows *rows)

    The bytes that build needs for this model, or a status below 0 that says what is wrong with it.
    """
    found = _checked(rows)
    if found != OK:
        return found
    i = _integers(rows, 11)
    n_starts, n_entries, record = _sizes(rows)
    return _bytes(i[0], i[1], i[2], n_starts, n_entries, record)


def build(rows, memory, model):
    """int64_t build(const fcmdp_rows *rows, void *memory, fcmdp_model *model)

    Build the tables in memory, of at least memory(rows) bytes, and set *model, which points into it: status. The
    rows may be freed afterwards, the memory not. Draws are within (n + 1) 2^-32 of a row of n in total variation.
    """
    if memory == 0 or model == 0:
        return NULL_POINTER
    found = _checked(rows)
    if found != OK:
        return found
    given, x = _integers(rows, 11), _doubles(rows, 11)
    out, numbers = _integers(model, 16), _doubles(model, 16)
    n_states, n_choices, n_branches, n_signals = given[0], given[1], given[2], given[3]
    n_starts, n_entries, record = _sizes(rows)
    for k in range(4):
        out[k] = given[k]
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
    made = _model(model)
    state_to_choice = _integers(given[4], n_states + 1)
    for s in range(n_states + 1):
        made.state_to_choice[s] = state_to_choice[s]
    made.flat_word[:] = np.uint64(0)
    try:
        pieces.fill_model(
            state_to_choice,
            _integers(given[5], n_choices + 1),
            carray(_pointer(given[6]), (n_branches,), np.int32),
            _doubles(given[7], n_branches),
            _table(given[8], n_choices, n_signals),
            _doubles(given[9], n_states),
            made,
        )
    except Exception:
        return NO_MEMORY
    return OK


# Policies.


def policy(model, prob, entry):
    """int64_t policy(const fcmdp_model *model, const double *prob, uint32_t *entry)

    Set entry[3 * n_entries] so that draws follow prob[C], each state's sum 1: status.
    """
    if model == 0 or prob == 0 or entry == 0:
        return NULL_POINTER
    made = _model(model)
    actions = _policy(made, entry, prob)
    offset = made.state_to_choice
    for s in range(offset.shape[0] - 1):
        found = pieces.check_row(actions.prob, offset[s], offset[s + 1])
        if found != OK:
            return found
    try:
        pieces.refresh(made, actions)
    except Exception:
        return NO_MEMORY
    return OK


def softmax(model, theta, prob, entry):
    """int64_t softmax(const fcmdp_model *model, const double *theta, double *prob, uint32_t *entry)

    Set prob[C] to the softmax of theta[C] in each state, and entry to draw from it: status.
    """
    if model == 0 or theta == 0 or prob == 0 or entry == 0:
        return NULL_POINTER
    made = _model(model)
    logits = _doubles(theta, made.choice_state.shape[0])
    for q in range(logits.shape[0]):
        if not np.isfinite(logits[q]):
            return pieces.NOT_FINITE
    try:
        pieces.softmax(made, logits, _policy(made, entry, prob))
    except Exception:
        return NO_MEMORY
    return OK


# Transitions.


def first_state(model, rng):
    """int64_t first_state(const fcmdp_model *model, uint64_t *rng)

    A state from the start distribution; one word.
    """
    return pieces.first_state(_model(model), _rng(rng))


def next_state(model, rng, q):
    """int64_t next_state(const fcmdp_model *model, uint64_t *rng, int64_t q)

    The state after choice q, or FCMDP_OUT_OF_RANGE; one word.
    """
    if not _is_choice(model, q):
        return OUT_OF_RANGE
    return pieces.next_state(_model(model), _rng(rng), q)


def act(model, entry, rng, s):
    """int64_t act(const fcmdp_model *model, const uint32_t *entry, uint64_t *rng, int64_t s)

    A choice of state s from the policy, or FCMDP_OUT_OF_RANGE; one word.
    """
    if not _is_state(model, s):
        return OUT_OF_RANGE
    made = _model(model)
    return pieces.act(made, _policy(made, entry, entry), _rng(rng), s)


def first_pair(model, entry, rng):
    """int64_t first_pair(const fcmdp_model *model, const uint32_t *entry, uint64_t *rng)

    State and action at the start, as a choice; one word for both.
    """
    made = _model(model)
    return pieces.first_pair(made, _policy(made, entry, entry), _rng(rng))


def step(model, entry, rng, q):
    """int64_t step(const fcmdp_model *model, const uint32_t *entry, uint64_t *rng, int64_t q)

    One transition: the next state after choice q and its action, as a choice, or FCMDP_OUT_OF_RANGE; one word.
    """
    if not _is_choice(model, q):
        return OUT_OF_RANGE
    made = _model(model)
    return pieces.step(made, _policy(made, entry, entry), _rng(rng), q)


def rollout(model, entry, rng, q, total, last):
    """int64_t rollout(const fcmdp_model *model, const uint32_t *entry, uint64_t *rng, int64_t q, double
        *total, int64_t *last)

    A rollout with a geometric horizon from choice q, or from the start if q = -1: the number T of transitions, or
    a status. total[1+m]: sums of the signals over its T + 1 pairs, with expectation Q(q) or J; *last: its last pair.
    """
    if model == 0 or entry == 0 or rng == 0 or total == 0 or last == 0:
        return NULL_POINTER
    if q != -1 and not _is_choice(model, q):
        return OUT_OF_RANGE
    made = _model(model)
    found, transitions = pieces.rollout(
        made, _policy(made, entry, entry), _rng(rng), q, _doubles(total, made.n_signals)
    )
    _integers(last, 1)[0] = found
    return transitions


def sample_batch(model, entry, lanes, n_pairs, fresh, pair, occupancy_total, advantage):
    """int64_t sample_batch(const fcmdp_model *model, const uint32_t *entry, uint64_t *lanes, int64_t
        n_pairs, int64_t fresh, int64_t *pair, double *occupancy_total, double *advantage)

    H = n_pairs samples, many rollouts side by side: the number of transitions, or a status. pair[H+1]: choices from
    the occupancy; occupancy_total[H+1][1+m]: an estimate of J each, in row H a fresh one if fresh is not 0;
    advantage[H][1+m]: an estimate of Q - V at each pair.
    """
    if model == 0 or entry == 0 or lanes == 0 or pair == 0 or occupancy_total == 0 or advantage == 0:
        return NULL_POINTER
    if n_pairs < 1:
        return BAD_SIZE
    made = _model(model)
    n_signals = made.n_signals
    try:
        room = pieces.Batch(
            _integers(pair, n_pairs + 1),
            _table(occupancy_total, n_pairs + 1, n_signals),
            _table(advantage, n_pairs, n_signals),
            np.zeros((2 * n_pairs, n_signals)),
            np.zeros(2 * n_pairs, np.int64),
            np.zeros(2 * n_pairs + 1, np.int64),
            np.zeros(2 * n_pairs + 1, np.uint32),
        )
        rng = carray(_pointer(lanes), (4, LANES), np.uint64)
        transitions = pieces.sample_batch(made, _policy(made, entry, entry), rng, fresh != 0, room)
    except Exception:
        return NO_MEMORY
    return transitions


# Updates.


def momentum(g_squared, mu_f, steps):
    """void momentum(double g_squared, double mu_f, double *steps)

    Set steps[4] to the ASGD step sizes alpha, beta, xi, delta for G^2 and mu_F (Lemma 6); 2 and 0.1 for softmax.
    """
    made = pieces.momentum(g_squared, mu_f)
    out = _doubles(steps, 4)
    out[0], out[1], out[2], out[3] = made.alpha, made.beta, made.xi, made.delta


@inlined
def _momentum(steps):
    x = _doubles(steps, 4)
    return Momentum(x[0], x[1], x[2], x[3])


def asgd(steps, score, target, n_steps, d, omega):
    """int64_t asgd(const double *steps, const double *score, const double *target, int64_t n_steps,
        int64_t d, double *omega)

    ASGD on score[H][d] and target[H]; omega[d] is set to the tail average: status.
    """
    if steps == 0 or score == 0 or target == 0 or omega == 0:
        return NULL_POINTER
    if n_steps < 1 or d < 1:
        return BAD_SIZE
    try:
        pieces.asgd(
            _momentum(steps), _table(score, n_steps, d), _doubles(target, n_steps), _doubles(omega, d)
        )
    except Exception:
        return NO_MEMORY
    return OK


def asgd_tabular(model, prob, steps, pair, target, n_steps, omega):
    """int64_t asgd_tabular(const fcmdp_model *model, const double *prob, const double *steps, const
        int64_t *pair, const double *target, int64_t n_steps, double *omega)

    ASGD on the scores of tabular softmax at pair[H], whose action probabilities are prob[C], and target[H]; omega[C]
    is set to the tail average: status.
    """
    if model == 0 or prob == 0 or steps == 0 or pair == 0 or target == 0 or omega == 0:
        return NULL_POINTER
    if n_steps < 1:
        return BAD_SIZE
    for h in range(n_steps):
        if not _is_choice(model, _integers(pair, n_steps)[h]):
            return OUT_OF_RANGE
    made = _model(model)
    try:
        pieces.asgd_tabular(
            made,
            tables.Actions(_entries(prob, 0), _doubles(prob, made.choice_state.shape[0])),
            _momentum(steps),
            _integers(pair, n_steps),
            _doubles(target, n_steps),
            _doubles(omega, made.choice_state.shape[0]),
        )
    except Exception:
        return NO_MEMORY
    return OK


def dual_step(dual, m, zeta, estimate, dual_max):
    """void dual_step(double *dual, int64_t m, double zeta, const double *estimate, double dual_max)

    dual[i] = min(max(dual[i] - zeta estimate[i], 0), dual_max), estimate[m] of J_c >= 0; dual_max may be INFINITY.
    """
    pieces.dual_step(_doubles(dual, m), zeta, _doubles(estimate, m), dual_max)


EXPORTS = (
    stream, streams, word, uniform, normal, exponential, geometric, categorical, memory, build, policy, softmax,
    first_state, next_state, act, first_pair, step, rollout, sample_batch, momentum, asgd, asgd_tabular, dual_step,
)  # fmt: skip
