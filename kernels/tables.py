"""Tables for draws in constant time: Walker's alias method (Vose's construction), packed for few cache lines.

An *entry* is three 32-bit numbers (threshold, accepted label, rejected label). A draw from a row of n entries
spends 32 random bits u: with x = u * n, the entry is number x >> 32 and its coin the low half of x; the coin
below the threshold accepts. Reaching a label costs one load of 12 bytes beside each other.

Error of a draw against the exact law: u takes 2^32 values, so an entry is picked with probability within
2^-32 of 1/n and its coin falls on multiples of gcd-free spacing at most n 2^-32; with the rounding of the
threshold, total variation <= n 2^-32. (n = 5 branches: 1.2e-9.)

Three kinds of rows are drawn from: the start distribution, the branches of a choice, the choices of a state.
The labels of the first two are *row codes* of states: the row of action entries that belongs to the state, as
code = 2 * first + n with first a multiple of n and n a power of two. The lowest set bit of a code is n. So a
drawn state costs no look-up of where its actions stand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import inlined, kernel

_U32 = np.uint32
_U64 = np.uint64
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
LENGTH_BITS = np.uint64(24)  # of a choice's row word: first branch entry << 24 | number of branches
_LENGTH_MASK = np.uint64((1 << 24) - 1)


class Tables(NamedTuple):
    """What the sampler reads of a model; built once, shared by replicates and threads.

    ``choice_word`` and ``choice_signal`` are two views of the same memory, one record of W 64-bit words a
    choice: word 0 where its branch entries stand, words 1..1+m its reward and constraints (word 2 is 0 where
    m = 0). W is a multiple of four, so a record does not straddle cache lines more than it must.
    """

    start_entry: np.ndarray  # uint32[n, 3]: entries of the start distribution
    branch_entry: np.ndarray  # uint32[B, 3]
    choice_word: np.ndarray  # uint64[C, W]
    choice_signal: np.ndarray  # float64[C, W]
    choice_state: np.ndarray  # int32[C]
    state_to_choice: np.ndarray  # int64[S+1]
    state_row: np.ndarray  # uint32[S]: row code of a state's action entries
    log_gamma_inverse: float  # 1 / log(gamma)
    horizon: float  # 1 / (1 - gamma)
    n_signals: int  # 1 + m


class Actions(NamedTuple):
    """The action probabilities of one policy and their alias entries."""

    entry: np.ndarray  # uint32[P, 3], labels are choices; P = sum of the row lengths
    prob: np.ndarray  # float64[C]


@kernel
def fill_alias_row(weight, first, n, label, entry, entry_first, n_entries, small, large):
    """Write the alias entries of one row: weights ``weight[first:first+n]`` with sum 1, labels likewise.

    ``n_entries`` >= n; surplus entries have weight zero and always reject. ``small`` and ``large`` are work
    space of n_entries. A label of weight zero is never drawn: its threshold is 0, and only labels that are
    large enough to give are drawn from.
    """
    n_small = 0
    n_large = 0
    scaled = np.empty(n_entries)
    for i in range(n_entries):
        p = weight[first + i] * n_entries if i < n else 0.0
        scaled[i] = p
        if p < 1.0:
            small[n_small] = i
            n_small += 1
        else:
            large[n_large] = i
            n_large += 1
    while n_small > 0 and n_large > 0:
        n_small -= 1
        i = small[n_small]
        j = large[n_large - 1]
        e = entry_first + i
        entry[e, 0] = _U32(min(scaled[i] * 4294967296.0, 4294967295.0))
        entry[e, 1] = label[first + i] if i < n else label[first + j]
        entry[e, 2] = label[first + j]
        scaled[j] -= 1.0 - scaled[i]
        if scaled[j] < 1.0:
            n_large -= 1
            small[n_small] = j
            n_small += 1
    # What is left holds 1 up to rounding, in either list. A weight of zero cannot be left over unless rounding
    # used up every large one; it then takes the label of the heaviest.
    heaviest = 0
    for i in range(1, n):
        if weight[first + i] > weight[first + heaviest]:
            heaviest = i
    while n_large > 0 or n_small > 0:
        if n_large > 0:
            n_large -= 1
            i = large[n_large]
        else:
            n_small -= 1
            i = small[n_small]
        k = i if i < n and weight[first + i] > 0.0 else heaviest
        e = entry_first + i
        entry[e, 0] = _U32(0)
        entry[e, 1] = label[first + k]
        entry[e, 2] = label[first + k]


@inlined
def draw_label(entry, first, n, half_word):
    """Label drawn from entries ``first .. first+n-1`` by 32 random bits in a uint64."""
    x = half_word * n
    e = first + (x >> _HALF)
    return entry[e, _U64(2) - _U64((x & _LOW) < _U64(entry[e, 0]))]


@inlined
def draw_action(entry, code, half_word):
    """Choice drawn from the row of action entries with this row code (uint64)."""
    n = code & (~code + _U64(1))
    return draw_label(entry, (code ^ n) >> _U64(1), n, half_word)


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
                state_row[s] = _U32(2 * first + length)
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
    small = np.empty(longest, np.int64)
    large = np.empty(longest, np.int64)
    label = np.empty(longest, np.uint32)
    weight = np.empty(longest)
    for q in range(n_choices):
        first = choice_to_branch[q]
        n = choice_to_branch[q + 1] - first
        for i in range(n):
            label[i] = state_row[branch_target[first + i]]
            weight[i] = branch_prob[first + i]
        fill_alias_row(weight, 0, n, label, entry, first, n, small, large)


@kernel
def build_choice_words(choice_to_branch, choice_word):
    """Write word 0 of every choice record: where its branch entries stand."""
    for q in range(choice_to_branch.shape[0] - 1):
        first = choice_to_branch[q]
        choice_word[q, 0] = (_U64(first) << LENGTH_BITS) | _U64(choice_to_branch[q + 1] - first)


@kernel
def build_start(start, state_row, entry):
    """Fill the entries of the start distribution over its support (entry has one row a supported state)."""
    n = entry.shape[0]
    label = np.empty(n, np.uint32)
    weight = np.empty(n)
    i = 0
    for s in range(start.shape[0]):
        if start[s] > 0.0:
            label[i] = state_row[s]
            weight[i] = start[s]
            i += 1
    fill_alias_row(weight, 0, n, label, entry, 0, n, np.empty(n, np.int64), np.empty(n, np.int64))


@kernel
def fill_action_row(tables, actions, s, small, large):
    """Rebuild the action entries of state s from its probabilities."""
    code = tables.state_row[s]
    n_entries = code & (~code + _U32(1))
    first = tables.state_to_choice[s]
    n = tables.state_to_choice[s + 1] - first
    label = np.empty(n, np.uint32)
    for i in range(n):
        label[i] = _U32(first + i)
    fill_alias_row(
        actions.prob[first : first + n], 0, n, label, actions.entry, (code ^ n_entries) >> _U32(1),
        np.int64(n_entries), small, large,
    )  # fmt: skip


@kernel
def fill_actions(tables, actions):
    """Rebuild the action entries of all states from their probabilities."""
    n_states = tables.state_row.shape[0]
    longest = 1
    for s in range(n_states):
        longest = max(longest, tables.state_to_choice[s + 1] - tables.state_to_choice[s])
    small = np.empty(2 * longest, np.int64)
    large = np.empty(2 * longest, np.int64)
    for s in range(n_states):
        fill_action_row(tables, actions, s, small, large)
