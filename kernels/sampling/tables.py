"""Tables for draws in constant time: Walker's alias method (Vose's construction), packed for few cache lines.

An *entry* is three 32-bit numbers (threshold, accepted label, rejected label). A draw from a row of n entries
spends 32 random bits u: with x = u * n, the entry is number x >> 32 and its coin the low half of x; the coin
below the threshold accepts. Reaching a label costs loads from 12 bytes that stand together.

Error of a draw against the exact law: of the 2^32 values of u, those that pick an entry and accept number
within 1 of threshold / n, those that pick it within 1 of 2^32 / n, and a threshold is cut to a multiple of
2^-32. Added up over the row, total variation <= (n + 1) 2^-32: 1.4e-9 for five branches, 2.3e-7 for 1,000.
Where that matters, entries of three doubles serve instead (``draws="exact"``): the threshold then has 53 bits,
and every draw spends a word of its own through a double in [0, 1), with total variation <= (n + 1) 2^-53.
The code is chosen by the entries' type.

Three kinds of rows are drawn from: the start distribution, the branches of a choice, the choices of a state.
The labels of the first two are *row codes* of states: the row of action entries that belongs to the state, as
code = 2 * first + n with first a multiple of n and n a power of two. The lowest set bit of a code is n. So a
drawn state costs no look-up of where its actions stand.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.streams import to_unit
from fastcmdp.kernels.words import HALF, LOW, ONE, U32, U64

WIDTH = np.uint64(3)  # of an entry
LENGTH_BITS = np.uint64(24)  # of a choice's word 0: first branch entry << 24 | number of branches
_LENGTH = np.uint64((1 << 24) - 1)
_LINE = 8  # words of a cache line
_RECORD = 4  # a choice's record is a multiple of this many words


class Tables(NamedTuple):
    """What the sampler reads of a model; built once, shared by replicates and threads.

    ``choice_word``, ``choice_number`` and ``choice_signal`` are views of the same memory, one record of W 64-bit words
    a choice: word 0 where its branch entries stand, words 1..1+m its reward and constraints (word 2 is 0 where m = 0).
    W is a multiple of four, so a record does not straddle cache lines more than it must. Kernels read flat arrays,
    for what they know of strides; ``choice_signal`` is for other people's loops.
    """

    start_entry: np.ndarray  # uint32[3 n] or float64[3 n]: entries of the start distribution
    branch_entry: np.ndarray  # the same type, [3 B]
    choice_word: np.ndarray  # uint64[C W]
    choice_number: np.ndarray  # float64[C W]
    choice_signal: np.ndarray  # float64[C, W]: columns 1..1+m hold the reward and the constraints of a choice
    choice_state: np.ndarray  # int32[C]: the state of a choice
    state_to_choice: np.ndarray  # int64[S+1]: choices of a state
    state_row: np.ndarray  # uint32[S]: row code of a state's action entries
    row_state: np.ndarray  # int32[P]: the state whose action entries begin here
    words: int  # W
    log_gamma_inverse: float  # 1 / log(gamma)
    horizon: float  # 1 / (1 - gamma)
    n_signals: int  # 1 + m
    stop: np.ndarray  # int64[1]: see stop.py


class Actions(NamedTuple):
    """The action probabilities of one policy and their alias entries."""

    entry: np.ndarray  # uint32[3 P] or float64[3 P], labels are choices; P = sum of the row lengths
    prob: np.ndarray  # float64[C]


@generic("actions", inline=True)
def prepare_row(actions, tables, code):
    """Make sure that the row of action entries with this code is up to date."""


@prepare_row.otherwise
def keep_row(actions, tables, code):
    pass


@generic("entry", inline=True)
def threshold_of(entry, p):
    """The threshold that accepts with probability p < 1, in the entries' type."""


@threshold_of.on(types.uint32)
def packed_threshold(entry, p):
    return U32(min(p * 4294967296.0, 4294967295.0))


@threshold_of.on(types.float64)
def exact_threshold(entry, p):
    return p


class RowSpace(NamedTuple):
    """Work space for rows of up to n entries."""

    below: np.ndarray  # int64[n]
    scaled: np.ndarray  # float64[n]
    label: np.ndarray  # uint32[n]


def new_row_space(n: Any) -> RowSpace:
    """Work space for rows of up to n entries, made by Python; kernels make theirs by ``row_space``."""
    return RowSpace(np.empty(n, np.int64), np.empty(n), np.empty(n, np.uint32))


row_space = kernel(new_row_space)


@inlined
def fill_alias_row(weight, first, n, label, entry, entry_first, n_entries, below, scaled):
    """Write the alias entries of one row: weights ``weight[first:first+n]`` with sum 1, labels ``label[0:n]``.

    ``n_entries`` >= n; surplus entries have weight zero and always reject. A label of weight zero is never
    drawn: its threshold is 0, and only labels that are large enough to give are drawn from.
    """
    # Both lists are linked: each entry names the one below it, so that their tops stand in registers. Nothing branches
    # on what is small: it would be guessed wrong half the time.
    top_small, top_large = -1, -1
    for i in range(n_entries):
        p = weight[first + i] * n_entries if i < n else 0.0
        scaled[i] = p
        is_small = p < 1.0
        below[i] = top_small if is_small else top_large
        top_small = i if is_small else top_small
        top_large = top_large if is_small else i
    while top_small >= 0 and top_large >= 0:
        i, j = top_small, top_large
        e = 3 * (entry_first + i)
        entry[e] = threshold_of(entry, scaled[i])
        entry[e + 1] = label[i if i < n else j]
        entry[e + 2] = label[j]
        left = scaled[j] - (1.0 - scaled[i])
        scaled[j] = left
        is_small = left < 1.0
        top_small, next_large = below[i], below[j]
        below[j] = top_small if is_small else next_large
        top_small = j if is_small else top_small
        top_large = next_large if is_small else j
    # What is left holds 1 up to rounding, in either list.
    left_over = max(top_small, top_large)
    while left_over >= 0:
        i = left_over
        left_over = below[i]
        j = i
        if i >= n or weight[first + i] == 0.0:  # only if rounding used up every large one
            j = 0
            for other in range(1, n):
                if weight[first + other] > weight[first + j]:
                    j = other
        e = 3 * (entry_first + i)
        entry[e] = 0
        entry[e + 1] = label[j]
        entry[e + 2] = label[j]


@generic("entry", inline=True)
def draw_label(entry, first, n, bits):
    """Label drawn from entries ``first .. first+n-1`` by bits: 32 of them in a uint64, or a word for exact draws.

    ``entry`` is flat, three numbers an entry: a width that the compiler knows saves a multiplication a load.
    """


@draw_label.on(types.uint32)
def draw_packed(entry, first, n, bits):
    x = bits * n
    e = WIDTH * (first + (x >> HALF))
    return U64(entry[e + U64(2) - U64((x & LOW) < U64(entry[e]))])


@draw_label.on(types.float64)
def draw_exact(entry, first, n, bits):
    x = to_unit(bits) * n
    i = min(U64(x), n - U64(1))  # the product may round up to n
    e = WIDTH * (first + i)
    return U64(entry[e + U64(2) - U64(x - i < entry[e])])


@inlined
def action_row(code):
    """First action entry and number of entries of the row with this code; all uint64."""
    n = code & (~code + ONE)
    return (code ^ n) >> ONE, n


@inlined
def branch_row(word):
    """First branch entry and number of branches of the choice whose word 0 this is; all uint64."""
    return word >> LENGTH_BITS, word & _LENGTH


@inlined
def draw_start(entry, bits):
    """Row code of a state drawn from all of these entries."""
    return draw_label(entry, U64(0), U64(entry.shape[0] // 3), bits)


@inlined
def draw_action(entry, code, bits):
    """Choice drawn from the row of action entries with this row code (uint64)."""
    first, n = action_row(code)
    return draw_label(entry, first, n, bits)


@inlined
def state_of_row(row_state, code):
    """State (uint64) whose row of action entries has this code, from the states of rows by their first entry."""
    first, _ = action_row(code)
    return U64(row_state[first])


@kernel
def build_state_rows(state_to_choice, state_row):
    """Fill the row codes of all states; return the number of action entries P."""
    # Rows of equal length stand together, longest first, so every row starts at a multiple of its length.
    n_states = state_row.shape[0]
    longest = 1
    for s in range(n_states):
        while longest < state_to_choice[s + 1] - state_to_choice[s]:
            longest *= 2
    first = 0
    length = longest
    while length > 0:
        for s in range(n_states):
            n = state_to_choice[s + 1] - state_to_choice[s]
            if n <= length and 2 * n > length:
                state_row[s] = U32(2 * first + length)
                first += length
        length //= 2
    return first


@kernel
def build_branches(choice_to_branch, branch_target, branch_prob, state_row, entry):
    """Fill the branch entries of every choice; labels are the row codes of the targets."""
    n_choices = choice_to_branch.shape[0] - 1
    longest = 1
    for q in range(n_choices):
        longest = max(longest, choice_to_branch[q + 1] - choice_to_branch[q])
    space = row_space(longest)
    label = space.label
    for q in range(n_choices):
        first = choice_to_branch[q]
        n = choice_to_branch[q + 1] - first
        for i in range(n):
            label[i] = state_row[branch_target[first + i]]
        fill_alias_row(branch_prob, first, n, label, entry, first, n, space.below, space.scaled)


@kernel
def build_start(start, state_row, entry):
    """Fill the entries of the start distribution over its support (one entry a supported state)."""
    n = entry.shape[0] // 3
    space = row_space(n)
    weight = np.empty(n)
    i = 0
    for s in range(start.shape[0]):
        if start[s] > 0.0:
            space.label[i] = state_row[s]
            weight[i] = start[s]
            i += 1
    fill_alias_row(weight, 0, n, space.label, entry, 0, n, space.below, space.scaled)


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
def fill_tables(choice_to_branch, branch_target, branch_prob, signals, start, tables):
    """Fill tables whose numbers and ``state_to_choice`` are set, and whose records are 0."""
    state_to_choice, choice_word, choice_number = (
        tables.state_to_choice,
        tables.choice_word,
        tables.choice_number,
    )
    build_state_rows(state_to_choice, tables.state_row)
    for s in range(tables.state_row.shape[0]):
        entry, _ = action_row(U64(tables.state_row[s]))
        tables.row_state[entry] = s
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            tables.choice_state[q] = s
    build_branches(choice_to_branch, branch_target, branch_prob, tables.state_row, tables.branch_entry)
    for q in range(signals.shape[0]):
        first, at = choice_to_branch[q], q * tables.words
        choice_word[at] = (U64(first) << LENGTH_BITS) | U64(choice_to_branch[q + 1] - first)
        for k in range(signals.shape[1]):
            choice_number[at + 1 + k] = signals[q, k]
    build_start(start, tables.state_row, tables.start_entry)


def build_tables(
    state_to_choice: Any, choice_to_branch: Any, branch_target: Any, branch_prob: Any, signals: Any, start: Any,
    gamma: Any, like: Any,
) -> Tables:  # fmt: skip
    """The tables of a model in compressed rows that are known to be right; entries have the type of those of ``like``.

    Python runs it as it stands: allocating costs a compiler much and Python nothing, and NumPy asks the system for huge
    pages, without which a large model has 60 times the page faults. ``embed`` compiles it.

    state_to_choice : int64[S+1]; choice_to_branch : int64[C+1]; branch_target : int32[B]
    branch_prob : float64[B], each choice's sum to 1; signals : float64[C, 1+m], the reward first; start : float64[S]
    """
    n_states, n_choices = state_to_choice.shape[0] - 1, choice_to_branch.shape[0] - 1
    words = record_words(signals.shape[1])
    memory = np.zeros(n_choices * words + _LINE, np.uint64)
    skip = -(np.int64(memory.ctypes.data) >> 3) % _LINE  # a record of four words then stays on its cache line
    choice_word = memory[skip : skip + n_choices * words]
    choice_number = choice_word.view(np.float64)
    tables = Tables(
        np.empty(3 * supported(start), like.dtype),
        np.empty(3 * branch_target.shape[0], like.dtype),
        choice_word,
        choice_number,
        choice_number.reshape(n_choices, words),
        np.empty(n_choices, np.int32),
        state_to_choice.astype(np.int64),  # a copy: read-only arrays are a type of their own, compiled anew
        np.empty(n_states, np.uint32),
        np.zeros(row_entries(state_to_choice), np.int32),
        words,
        1.0 / math.log(gamma),
        1.0 / (1.0 - gamma),
        signals.shape[1],
        np.zeros(1, np.int64),
    )
    fill_tables(choice_to_branch, branch_target, branch_prob, signals, start, tables)
    return tables


@kernel
def fill_actions(tables, actions, space):
    """Rebuild the action entries of all states from their probabilities."""
    state_to_choice, state_row, prob, entry = (
        tables.state_to_choice,
        tables.state_row,
        actions.prob,
        actions.entry,
    )
    label, below, scaled = space.label, space.below, space.scaled
    for s in range(state_row.shape[0]):
        fill_action_row(state_to_choice, state_row, prob, entry, s, label, below, scaled)


@inlined
def fill_action_row(state_to_choice, state_row, prob, entry, s, label, below, scaled):
    """Rebuild the action entries of state s from its probabilities."""
    entry_first, n_entries = action_row(U64(state_row[s]))
    first = state_to_choice[s]
    n = state_to_choice[s + 1] - first
    for i in range(n):
        label[i] = U32(first + i)
    fill_alias_row(prob, first, n, label, entry, np.int64(entry_first), np.int64(n_entries), below, scaled)
