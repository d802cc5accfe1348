"""The sampler's tables of a model, and the action tables of policies: allocate, then let kernels fill."""

from __future__ import annotations

import numpy as np

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.kernels.sampling import tables as kt

_DRAWS: dict[str, type[np.generic]] = {"fast": np.uint32, "exact": np.float64}


def entry_type(draws: str) -> type[np.generic]:
    """Type of alias entries for ``draws``: "fast" (32 random bits a draw) or "exact" (53)."""
    if draws not in _DRAWS:
        raise SettingError(f"draws = {draws!r}: 'fast' or 'exact' is expected")
    return _DRAWS[draws]


def build_tables(cmdp: CMDP, draws: str = "fast") -> kt.Tables:
    """Build the tables that draws from ``cmdp`` read: O(branches) time, about 12 bytes a branch and 40 a choice.

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
    if 4 * cmdp.n_choices >= 1 << 32:
        raise ModelError(f"the model has {cmdp.n_choices} choices; the sampler takes fewer than 2^30")
    like = np.empty(0, entry_type(draws))
    tables: kt.Tables = kt.build_tables(
        cmdp.state_to_choice, cmdp.choice_to_branch, cmdp.branch_target, cmdp.branch_prob, cmdp.signals, cmdp.start,
        cmdp.gamma, like,
    )  # fmt: skip
    return tables


def build_actions(tables: kt.Tables, prob: np.ndarray) -> kt.Actions:
    """Alias entries of a policy given as probabilities of choices, float64[C]."""
    actions = kt.Actions(
        np.empty(3 * tables.row_state.size, tables.branch_entry.dtype), np.array(prob, np.float64)
    )
    widest = int(np.diff(tables.state_to_choice).max())
    kt.fill_actions(tables, actions, kt.new_row_space(2 * widest))
    return actions
