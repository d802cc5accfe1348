"""A model and a policy as single steps read them: what they are made of, checked, and filled."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.policy.softmax import refresh_all
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.kernels.sampling import tables
from fastcmdp.kernels.typed import are_alike
from fastcmdp.kernels.words import ONE, U64

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
        code = U64(model.state_row[s])
        model.row_state[(code ^ (code & (~code + ONE))) >> ONE] = s
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
def require_policy(model, actions):
    """ValueError unless the policy has the sizes of the model, and entries of its kind of draws."""
    n, n_choices = model.row_state.shape[0], model.choice_state.shape[0]
    fits = actions.entry.shape[0] == n and actions.entry.shape[1] == 3 and actions.flat.shape[0] == 3 * n
    if not fits or actions.prob.shape[0] != n_choices or not are_alike(actions.entry, model.branch_entry):
        raise ValueError("the policy belongs to another model; policy(model, prob) makes one for this")


@kernel
def widest_row(state_to_choice):
    """The largest number of choices in a state."""
    widest = 0
    for s in range(state_to_choice.shape[0] - 1):
        widest = max(widest, state_to_choice[s + 1] - state_to_choice[s])
    return widest


@kernel
def refresh(model, actions):
    """Make draws follow ``actions.prob`` after it has been changed.

    ValueError if the policy is of another model, or its numbers are no weights.
    """
    require_policy(model, actions)
    state_to_choice = model.state_to_choice
    for s in range(state_to_choice.shape[0] - 1):
        total = 0.0
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            total += actions.prob[q] if actions.prob[q] >= 0.0 else np.nan
        if not 0.0 < total < np.inf:
            raise ValueError("prob of a state is negative, NaN or infinite, or all 0")
    space = tables.row_space(2 * widest_row(model.state_to_choice))
    tables.fill_actions(tables_of(model), actions_of(actions), space)


@kernel
def softmax(model, theta, actions):
    """Set a policy to the tabular softmax of theta, float64[C]: pi(a|s) proportional to exp(theta[q]).

    ValueError unless theta is so long and finite, and the policy of this model.
    """
    require_policy(model, actions)
    if theta.shape[0] != model.choice_state.shape[0]:
        raise ValueError("theta has not one number a choice")
    for q in range(theta.shape[0]):
        if not math.isfinite(theta[q]):
            raise ValueError("theta is not finite")
    space = tables.row_space(2 * widest_row(model.state_to_choice))
    refresh_all(Tabular(theta.shape[0]), theta, tables_of(model), actions_of(actions), space)
