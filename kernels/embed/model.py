"""A model and a policy as single steps read them: what they are made of, checked, and filled."""

from __future__ import annotations

import math

import numpy as np

from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.policy.softmax import refresh_all
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.kernels.sampling import tables
from fastcmdp.kernels.typed import are_alike

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


build_tables = kernel(tables.build_tables)


@kernel
def build(state_to_choice, choice_to_branch, branch_target, branch_prob, signals, start, gamma):
    """The tables of a model in compressed rows; ValueError if it is none.

    state_to_choice : int64[S+1]; choice_to_branch : int64[C+1]; branch_target : int32[B]
    branch_prob : float64[B], each choice's sum to 1; signals : float64[C, 1+m], the reward first; start : float64[S]
    """
    status = check(state_to_choice, choice_to_branch, branch_target, branch_prob, signals, start, gamma)
    if status != OK:
        if status == BAD_SIZE:
            raise ValueError("sizes of the arrays do not agree, or are too large")
        if status == BAD_OFFSETS:
            raise ValueError("state_to_choice or choice_to_branch does not rise from 0 to the end")
        if status == BAD_TARGET:
            raise ValueError("branch_target leads out of the states 0..S-1")
        if status == BAD_PROBABILITY:
            raise ValueError(
                "branch_prob of a choice, or start, is negative, NaN, or does not sum to 1 (as float64, to rounding); "
                "fastcmdp.CMDP of the same rows names the place"
            )
        if status == NOT_FINITE:
            raise ValueError("signals are not finite")
        raise ValueError("gamma is not between 0 and 1")
    like = np.empty(0, np.uint32)
    return build_tables(
        state_to_choice, choice_to_branch, branch_target, branch_prob, signals, start, gamma, like
    )


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
    entry = np.empty(3 * model.row_state.shape[0], model.branch_entry.dtype)
    actions = tables.Actions(entry, prob.astype(np.float64))
    refresh(model, actions)
    return actions


@kernel
def require_policy(model, actions):
    """ValueError unless the policy has the sizes of the model, and entries of its kind of draws."""
    n, n_choices = model.row_state.shape[0], model.choice_state.shape[0]
    fits = actions.entry.shape[0] == 3 * n and actions.prob.shape[0] == n_choices
    if not fits or not are_alike(actions.entry, model.branch_entry):
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
    tables.fill_actions(model, actions, space)


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
    refresh_all(Tabular(theta.shape[0]), theta, model, actions, space)
