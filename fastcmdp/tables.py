"""The sampler's tables of a model, and the action tables of policies: allocate, then let kernels fill."""

from __future__ import annotations

import math

import numpy as np

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.kernels.sampling import tables as kt

_DRAWS: dict[str, type[np.generic]] = {"fast": np.uint32, "exact": np.float64}
_WORDS = 4  # a choice's record is a multiple of this many 64-bit words


def entry_type(draws: str) -> type[np.generic]:
    """Type of alias entries for ``draws``: "fast" (32 random bits a draw) or "exact" (53)."""
    if draws not in _DRAWS:
        raise SettingError(f"draws = {draws!r}: 'fast' or 'exact' is expected")
    return _DRAWS[draws]


def build_tables(cmdp: CMDP, draws: str = "fast") -> kt.Tables:
    """Build the tables that draws from ``cmdp`` read: O(branches) time, about 12 bytes a branch and 32 a choice.

    ``draws``: "fast" spends one random word a transition and is within (n + 1) 2^-32 of a row of n in total
    variation; "exact" spends two and is within (n + 1) 2^-53, with entries twice as large.

    Raises
    ------
    ModelError
        More branches in one choice than a row word can count, or more choices than a row code can.
    """
    widest = int(np.diff(cmdp.choice_to_branch).max())
    if widest >= 1 << int(kt.LENGTH_BITS):
        raise ModelError(f"a choice has {widest} branches; the sampler takes fewer than 2^{kt.LENGTH_BITS}")
    state_row = np.empty(cmdp.n_states, np.uint32)
    if 4 * cmdp.n_choices >= 1 << 32:
        raise ModelError(f"the model has {cmdp.n_choices} choices; the sampler takes fewer than 2^30")
    kt.build_state_rows(cmdp.state_to_choice, state_row)
    kind = entry_type(draws)
    branch_entry = np.empty((cmdp.n_branches, 3), kind)
    kt.build_branches(cmdp.choice_to_branch, cmdp.branch_target, cmdp.branch_prob, state_row, branch_entry)
    n_words = -(-(1 + max(2, 1 + cmdp.n_constraints)) // _WORDS) * _WORDS
    choice_word = _on_cache_lines(cmdp.n_choices, n_words)
    kt.build_choice_words(cmdp.choice_to_branch, choice_word)
    choice_signal = choice_word.view(np.float64)
    choice_signal[:, 1 : 2 + cmdp.n_constraints] = cmdp.signals
    start_entry = np.empty((int(np.count_nonzero(cmdp.start)), 3), kind)
    kt.build_start(cmdp.start, state_row, start_entry)
    return kt.Tables(
        start_entry=start_entry,
        branch_entry=branch_entry,
        choice_word=choice_word,
        choice_signal=choice_signal,
        choice_state=cmdp.choice_state.copy(),  # read-only arrays are a type of their own, compiled for once more
        state_to_choice=cmdp.state_to_choice.copy(),
        state_row=state_row,
        log_gamma_inverse=1.0 / math.log(cmdp.gamma),
        horizon=1.0 / (1.0 - cmdp.gamma),
        n_signals=1 + cmdp.n_constraints,
        stop=np.zeros(1, np.int64),
    )


def _on_cache_lines(rows: int, words: int) -> np.ndarray:
    """Zeros uint64[rows, words] that begin at a multiple of 64 bytes: a record of four words stays on one line."""
    memory = np.zeros(rows * words + 8, np.uint64)
    first = -memory.ctypes.data % 64 // 8
    return memory[first : first + rows * words].reshape(rows, words)


def n_action_entries(tables: kt.Tables) -> int:
    """Number of action entries P of a policy: the sum of the row lengths."""
    code = tables.state_row.astype(np.int64)
    return int((code & -code).sum())


def row_states(tables: kt.Tables) -> np.ndarray:
    """State of the row that begins at an action entry, int32[P]."""
    code = tables.state_row.astype(np.int64)
    states = np.zeros(n_action_entries(tables), np.int32)
    states[(code - (code & -code)) // 2] = np.arange(len(code))
    return states


def build_actions(tables: kt.Tables, prob: np.ndarray) -> kt.Actions:
    """Alias entries of a policy given as probabilities of choices, float64[C]."""
    actions = kt.Actions(
        np.empty((n_action_entries(tables), 3), tables.branch_entry.dtype), np.array(prob, np.float64)
    )
    widest = int(np.diff(tables.state_to_choice).max())
    kt.fill_actions(tables, actions, kt.row_space(2 * widest))
    return actions
