"""The pieces of the solvers, cut so that other people's loops can call them: see ``fastcmdp.embed``.

A ``Model`` is what the sampler reads of a CMDP, and where a row code leads back to a state. Steps and rollouts here
run on one stream, uint64[4], one after another; ``sample_batch`` and ``rollouts`` run many side by side on the lanes
of a replicate, uint64[4, LANES], and are faster. One rollout spends its words as a lane of kernels/rollouts.py does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from fastcmdp.kernels import asgd as inner_loop
from fastcmdp.kernels import pd_anpg, policies, rollouts, tables
from fastcmdp.kernels.draws import word
from fastcmdp.kernels.jit import INLINE, inlined, kernel
from fastcmdp.kernels.seeding import seed_lanes, seed_stream
from fastcmdp.kernels.streams import LANES

_U64 = np.uint64
_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_LENGTH = np.uint64((1 << 24) - 1)
_LINE = 8  # words in a cache line
_RECORD = 4  # a choice's record is a multiple of this many words

# What ``check`` finds. C hosts get the same numbers.
OK = 0
NULL_POINTER = -1
BAD_SIZE = -2
BAD_OFFSETS = -3
BAD_TARGET = -4
BAD_PROBABILITY = -5
NOT_FINITE = -6
BAD_DISCOUNT = -7
OUT_OF_RANGE = -8
NO_MEMORY = -9


class Model(NamedTuple):
    """What the sampler reads of a model: the fields of ``Tables``, in that order, and more of them for single steps.

    The flat arrays are views. Made anew in each step, or reached through a tuple in a tuple, they would cost four
    times the step itself in reference counts.
    """

    start_entry: np.ndarray
    branch_entry: np.ndarray
    choice_word: np.ndarray
    choice_signal: np.ndarray  # float64[C, W]: columns 1..1+m hold the reward and the constraints of a choice
    choice_state: np.ndarray  # int32[C]: the state of a choice
    state_to_choice: np.ndarray  # int64[S+1]: choices of a state
    state_row: np.ndarray
    log_gamma_inverse: float
    horizon: float  # 1 / (1 - gamma)
    n_signals: int  # 1 + m
    row_state: np.ndarray  # int32[P]: the state whose action entries begin here
    flat_start: np.ndarray
    flat_branch: np.ndarray
    flat_word: np.ndarray  # uint64[C W]


class Policy(NamedTuple):
    """Action probabilities and their alias entries: the fields of ``Actions``, and a flat view."""

    entry: np.ndarray
    prob: np.ndarray  # float64[C]
    flat: np.ndarray


@inlined
def tables_of(model):
    """The fields that the solvers' kernels take, in their type: so one compilation serves both."""
    return tables.Tables(
        model.start_entry,
        model.branch_entry,
        model.choice_word,
        model.choice_signal,
        model.choice_state,
        model.state_to_choice,
        model.state_row,
        model.log_gamma_inverse,
        model.horizon,
        model.n_signals,
        model.state_to_choice,  # in the place of stop: it begins with 0, go on
    )


@inlined
def actions_of(policy):
    """The same of a policy."""
    return tables.Actions(policy.entry, policy.prob)


class Batch(NamedTuple):
    """H samples of Algorithm 1, and the work space to draw them."""

    pair: np.ndarray  # int64[H+1]: choice h ~ nu
    occupancy_total: np.ndarray  # float64[H+1, 1+m]: an estimate of J each; row H is the fresh one
    advantage: np.ndarray  # float64[H, 1+m]: an estimate of Q - V at pair h
    value_total: np.ndarray  # float64[2H, 1+m]: Q and V
    last_pair: np.ndarray  # int64[2H]
    job_choice: np.ndarray  # int64[2H+1]
    job_row: np.ndarray  # uint32[2H+1]


class DenseScores(NamedTuple):
    """Scores as a matrix."""

    dense: np.ndarray  # float64[H, d]


# Streams.


@kernel
def stream(seed, replicate, lane):
    """The stream of a lane of a replicate, uint64[4]."""
    rng = np.empty(4, np.uint64)
    seed_stream(_U64(seed), _U64(replicate), _U64(lane), rng)
    return rng


@kernel
def streams(seed, replicate):
    """All lanes of a replicate, uint64[4, LANES]."""
    rng = np.empty((4, LANES), np.uint64)
    seed_lanes(_U64(seed), _U64(replicate), rng)
    return rng


# The model.


@kernel
def check_row(weight, first, end):
    """OK if these are probabilities: none negative or NaN, with sum 1 to 64 roundings a number."""
    total = 0.0
    for i in range(first, end):
        if not weight[i] >= 0.0:
            return BAD_PROBABILITY
        total += weight[i]
    if not abs(total - 1.0) <= 64.0 * math.sqrt(end - first) * 2.0**-52:
        return BAD_PROBABILITY
    return OK


@kernel
def _check_offsets(offset, end):
    """OK if these rise strictly from 0 to ``end``."""
    if offset[0] != 0 or offset[-1] != end:
        return BAD_OFFSETS
    for i in range(offset.shape[0] - 1):
        if offset[i + 1] <= offset[i]:
            return BAD_OFFSETS
    return OK


@kernel
def check(state_to_choice, choice_to_branch, branch_target, branch_prob, signals, start, gamma):
    """OK, or what is wrong with these compressed rows (one of the numbers above)."""
    n_states, n_choices = state_to_choice.shape[0] - 1, choice_to_branch.shape[0] - 1
    n_branches = branch_target.shape[0]
    if n_states < 1 or n_choices < n_states or n_branches < n_choices or signals.shape[1] < 1:
        return BAD_SIZE
    if n_states >= 2**31 or n_choices >= 2**30 or branch_prob.shape[0] != n_branches:
        return BAD_SIZE
    if signals.shape[0] != n_choices or start.shape[0] != n_states:
        return BAD_SIZE
    if not 0.0 < gamma < 1.0:
        return BAD_DISCOUNT
    if _check_offsets(state_to_choice, n_choices) != OK or _check_offsets(choice_to_branch, n_branches) != OK:
        return BAD_OFFSETS
    for b in range(n_branches):
        if branch_target[b] < 0 or branch_target[b] >= n_states:
            return BAD_TARGET
    for q in range(n_choices):
        if choice_to_branch[q + 1] - choice_to_branch[q] >= 2**24:
            return BAD_SIZE
        if check_row(branch_prob, choice_to_branch[q], choice_to_branch[q + 1]) != OK:
            return BAD_PROBABILITY
        for k in range(signals.shape[1]):
            if not math.isfinite(signals[q, k]):
                return NOT_FINITE
    return check_row(start, 0, n_states)


@kernel
def row_entries(state_to_choice):
    """P, the number of action entries: every state's choices rounded up to a power of two."""
    n = 0
    for s in range(state_to_choice.shape[0] - 1):
        length = 1
        while length < state_to_choice[s + 1] - state_to_choice[s]:
            length *= 2
        n += length
    return n


@kernel
def supported(start):
    """The number of start states."""
    n = 0
    for s in range(start.shape[0]):
        n += start[s] > 0.0
    return n


@kernel
def record_words(n_signals):
    """W, the 64-bit words of a choice's record."""
    return -(-(1 + max(2, n_signals)) // _RECORD) * _RECORD


@kernel
def fill_model(
    state_to_choice, choice_to_branch, branch_target, branch_prob, signals, start, model
):  # fmt: skip
    """Fill the arrays of a model whose scalars and state_to_choice are set."""
    tables.build_state_rows(state_to_choice, model.state_row)
    for s in range(model.state_row.shape[0]):
        code = _U64(model.state_row[s])
        model.row_state[(code ^ (code & (~code + _ONE))) >> _ONE] = s
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            model.choice_state[q] = s
    tables.build_branches(choice_to_branch, branch_target, branch_prob, model.state_row, model.branch_entry)
    tables.build_choice_words(choice_to_branch, model.choice_word)
    for q in range(signals.shape[0]):
        for k in range(signals.shape[1]):
            model.choice_signal[q, 1 + k] = signals[q, k]
    tables.build_start(start, model.state_row, model.start_entry)


@kernel
def build(state_to_choice, choice_to_branch, branch_target, branch_prob, signals, start, gamma):
    """The tables of a model in compressed rows; ValueError if it is none.

    state_to_choice : int64[S+1]; choice_to_branch : int64[C+1]; branch_target : int32[B]
    branch_prob : float64[B], each choice's sum to 1; signals : float64[C, 1+m], the reward first; start : float64[S]
    """
    found = check(state_to_choice, choice_to_branch, branch_target, branch_prob, signals, start, gamma)
    if found != OK:
        if found == BAD_SIZE:
            raise ValueError("sizes of the arrays do not agree, or are too large")
        if found == BAD_OFFSETS:
            raise ValueError("state_to_choice or choice_to_branch does not rise from 0 to the end")
        if found == BAD_TARGET:
            raise ValueError("branch_target leads out of the states 0..S-1")
        if found == BAD_PROBABILITY:
            raise ValueError(
                "branch_prob of a choice, or start, is negative, NaN, or does not sum to 1 (as float64, to rounding); "
                "fastcmdp.CMDP of the same rows names the place"
            )
        if found == NOT_FINITE:
            raise ValueError("signals are not finite")
        raise ValueError("gamma is not between 0 and 1")
    n_states, n_choices = state_to_choice.shape[0] - 1, choice_to_branch.shape[0] - 1
    words = record_words(signals.shape[1])
    memory = np.zeros(n_choices * words + _LINE, np.uint64)
    first = (
        _LINE - (np.int64(memory.ctypes.data) >> 3) % _LINE
    ) % _LINE  # a record then stays on its cache line
    choice_word = memory[first : first + n_choices * words].reshape(n_choices, words)
    start_entry = np.empty((supported(start), 3), np.uint32)
    branch_entry = np.empty((branch_target.shape[0], 3), np.uint32)
    model = Model(
        start_entry,
        branch_entry,
        choice_word,
        choice_word.view(np.float64),
        np.empty(n_choices, np.int32),
        state_to_choice.astype(np.int64),
        np.empty(n_states, np.uint32),
        1.0 / math.log(gamma),
        1.0 / (1.0 - gamma),
        signals.shape[1],
        np.zeros(row_entries(state_to_choice), np.int32),
        start_entry.reshape(-1),
        branch_entry.reshape(-1),
        choice_word.reshape(-1),
    )
    fill_model(state_to_choice, choice_to_branch, branch_target, branch_prob, signals, start, model)
    return model


# Policies.


@kernel
def policy(model, prob):
    """A policy given as probabilities of choices, float64[C]; ValueError unless each state's sum to 1."""
    state_to_choice = model.state_to_choice
    if prob.shape[0] != state_to_choice[-1]:
        raise ValueError("prob has not one number a choice")
    for s in range(state_to_choice.shape[0] - 1):
        if check_row(prob, state_to_choice[s], state_to_choice[s + 1]) != OK:
            raise ValueError(
                "prob of a state is negative, NaN, or does not sum to 1 (as float64, to rounding)"
            )
    entry = np.empty((model.row_state.shape[0], 3), model.branch_entry.dtype)
    actions = Policy(entry, prob.astype(np.float64), entry.reshape(-1))
    refresh(model, actions)
    return actions


@kernel
def widest_row(state_to_choice):
    """The largest number of choices in a state."""
    widest = 0
    for s in range(state_to_choice.shape[0] - 1):
        widest = max(widest, state_to_choice[s + 1] - state_to_choice[s])
    return widest


@kernel
def refresh(model, actions):
    """Make draws follow ``actions.prob`` after it has been changed."""
    space = tables.row_space(2 * widest_row(model.state_to_choice))
    tables.fill_actions(tables_of(model), actions_of(actions), space)


@kernel
def softmax(model, theta, actions):
    """Set a policy to the tabular softmax of theta, float64[C]: pi(a|s) proportional to exp(theta[q]).

    ValueError unless theta is so long and finite.
    """
    if theta.shape[0] != model.choice_state.shape[0]:
        raise ValueError("theta has not one number a choice")
    for q in range(theta.shape[0]):
        if not math.isfinite(theta[q]):
            raise ValueError("theta is not finite")
    space = tables.row_space(2 * widest_row(model.state_to_choice))
    policies.refresh_all(
        policies.Tabular(theta.shape[0]), theta, tables_of(model), actions_of(actions), space
    )


# Transitions on one stream.


def _second(entry, rng, drawn):
    """What draws an action where ``drawn`` has drawn a state: its low half, or for exact draws the next word."""
    raise NotImplementedError


@overload(_second, jit_options=INLINE)
def _second_overload(entry, rng, drawn):
    if entry.dtype == types.uint32:
        return lambda entry, rng, drawn: drawn & _LOW
    return lambda entry, rng, drawn: word(rng)


@inlined
def _start_code(model, drawn):
    """Row code of a start state."""
    bits = rollouts.branch_bits(model.flat_start, drawn)
    return tables.draw_label(model.flat_start, _U64(0), _U64(model.start_entry.shape[0]), bits)


@inlined
def _next_code(model, q, drawn):
    """Row code of the state after choice q."""
    row = model.flat_word[_U64(q) * _U64(model.choice_word.shape[1])]
    bits = rollouts.branch_bits(model.flat_branch, drawn)
    return tables.draw_label(model.flat_branch, row >> tables.LENGTH_BITS, row & _LENGTH, bits)


@inlined
def _state(model, code):
    n = code & (~code + _ONE)
    return np.int64(model.row_state[(code ^ n) >> _ONE])


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
    bits = rollouts.branch_bits(actions.flat, word(rng))
    return np.int64(tables.draw_action(actions.flat, _U64(model.state_row[s]), bits))


@inlined
def first_pair(model, actions, rng):
    """State and action at the start, as a choice; one word for both (two for exact draws)."""
    drawn = word(rng)
    code = _start_code(model, drawn)
    return np.int64(tables.draw_action(actions.flat, code, _second(actions.flat, rng, drawn)))


@inlined
def step(model, actions, rng, q):
    """One transition: the next state after choice q and its action, as a choice; one word (two for exact draws)."""
    drawn = word(rng)
    code = _next_code(model, q, drawn)
    return np.int64(tables.draw_action(actions.flat, code, _second(actions.flat, rng, drawn)))


@kernel
def rollout(model, actions, rng, q, total):
    """One rollout with a geometric horizon from choice q, or from the start if q = -1.

    total : float64[1+m], set to the sums of the signals over the T + 1 pairs: their expectation is Q(q), or J.
    Return the last choice, whose law is the occupancy from there, and T, the number of transitions.
    """
    if total.shape[0] < model.n_signals:
        raise ValueError("total has fewer numbers than there are signals")
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
def sample_batch(model, actions, lanes, fresh, room):
    """Draw H samples of Algorithm 1 into ``room``, and a fresh J estimate if wanted; return the transitions made.

    ValueError if lanes are not those of ``streams``, uint64[4, LANES].
    """
    if lanes.shape[0] != 4 or lanes.shape[1] != LANES:
        raise ValueError("lanes are not uint64[4, LANES]; streams(seed, replicate) makes them")
    n_pairs = room.advantage.shape[0]
    return pd_anpg.sample_batch(tables_of(model), actions_of(actions), lanes, n_pairs, fresh, room)


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
    if n_steps < 1 or target.shape[0] != n_steps or omega.shape[0] != d:
        raise ValueError("sizes of score [H, d], target [H] and omega [d] do not agree, or H is 0")
    weights, space = _inner_space(steps, n_steps, d)
    inner_loop.asgd_dense(steps, weights, DenseScores(score), target, n_steps, d, space, omega)


@kernel
def asgd_tabular(model, actions, steps, pair, target, omega):
    """ASGD on the scores of tabular softmax at H pairs; omega, float64[C], is 0 where no score reaches.

    pair : int64, at least H choices; target : float64[H]; actions : the policy that drew the pairs
    ValueError if these sizes do not agree, or H is 0.
    """
    n_steps, n_choices = target.shape[0], model.choice_state.shape[0]
    if n_steps < 1 or pair.shape[0] < n_steps or omega.shape[0] != n_choices:
        raise ValueError("sizes of pair [H or more], target [H] and omega [C] do not agree, or H is 0")
    support = widest_row(model.state_to_choice)
    n_slots = min(n_choices, n_steps * support)
    scores = policies.Scores(
        np.empty(n_steps + 1, np.int64),
        np.empty(n_steps * support, np.int32),
        np.empty(n_steps * support),
        np.empty(n_slots, np.int32),
        np.empty(n_slots, np.int64),
        np.full(n_choices, -1, np.int32),
        np.empty((0, 0)),
    )
    n = policies.collect_scores(
        policies.Tabular(n_choices), omega, tables_of(model), actions_of(actions), pair, n_steps, scores
    )
    weights, space = _inner_space(steps, n_steps, n_slots)
    found = np.empty(n_slots)
    inner_loop.asgd_lazy(steps, weights, scores, target, n_steps, n, space, found)
    omega[:] = 0.0
    for i in range(n):
        omega[scores.coordinate[i]] = found[i]


@kernel
def dual_step(dual, zeta, estimate, dual_max):
    """Move multipliers against estimates of J_c >= 0: dual = clip(dual - zeta estimate, 0, dual_max), in place.

    dual, estimate : float64[m]; zeta, dual_max : numbers (dual_max may be inf). ValueError if sizes differ.
    """
    if dual.shape[0] != estimate.shape[0]:
        raise ValueError("dual and estimate have different sizes")
    for i in range(dual.shape[0]):
        dual[i] = min(max(dual[i] - zeta * estimate[i], 0.0), dual_max)
