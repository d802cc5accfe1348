"""Memory of hosts in C: the structs and status numbers of the header, arrays over addresses, models over structs."""

from __future__ import annotations

import numpy as np
from numba.np.numpy_support import carray

from fastcmdp.kernels.addresses import pointer
from fastcmdp.kernels.embed import model as rows
from fastcmdp.kernels.jit import inlined
from fastcmdp.kernels.sampling.tables import Actions, Tables

VERSION = 1

STATUS = (
    ("OK", rows.OK, ""),
    ("NULL_POINTER", rows.NULL_POINTER, "a pointer is NULL"),
    ("BAD_SIZE", rows.BAD_SIZE, "a size is below its least, too large, or at odds with another"),
    (
        "BAD_OFFSETS",
        rows.BAD_OFFSETS,
        "state_to_choice or choice_to_branch does not rise from 0 to the end",
    ),
    ("BAD_TARGET", rows.BAD_TARGET, "branch_target leads out of the states"),
    ("BAD_PROBABILITY", rows.BAD_PROBABILITY, "probabilities are negative, NaN, or do not sum to 1"),
    ("NOT_FINITE", rows.NOT_FINITE, "a signal is NaN or infinite"),
    ("BAD_DISCOUNT", rows.BAD_DISCOUNT, "gamma is not between 0 and 1"),
    ("OUT_OF_RANGE", rows.OUT_OF_RANGE, "a state or a choice is out of range"),
    ("NO_MEMORY", rows.NO_MEMORY, "no memory for work space"),
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


@inlined
def doubles(address, n):
    return carray(pointer(address), (n,), np.float64)


@inlined
def integers(address, n):
    return carray(pointer(address), (n,), np.int64)


@inlined
def words(address, n):
    return carray(pointer(address), (n,), np.uint64)


@inlined
def table(address, rows, columns):
    return carray(pointer(address), (rows, columns), np.float64)


@inlined
def stream_at(address):
    return carray(pointer(address), (4,), np.uint64)


@inlined
def entries(address, n):
    return carray(pointer(address), (3 * n,), np.uint32)


@inlined
def model_at(address):
    """The Tables over the arrays that a fcmdp_model points to."""
    i, x = integers(address, 16), doubles(address, 16)
    n_states, n_choices, n_branches, n_starts, n_entries, record = i[0], i[1], i[2], i[4], i[5], i[6]
    return Tables(
        entries(i[12], n_starts),
        entries(i[13], n_branches),
        words(i[11], n_choices * record),
        doubles(i[11], n_choices * record),
        table(i[11], n_choices, record),
        carray(pointer(i[10]), (n_choices,), np.int32),
        integers(i[9], n_states + 1),
        carray(pointer(i[14]), (n_states,), np.uint32),
        carray(pointer(i[15]), (n_entries,), np.int32),
        record,
        x[7],
        x[8],
        i[3],
        integers(i[9], 1),  # in the place of stop: state_to_choice begins with 0, go on
    )


@inlined
def policy_at(model, entry, prob):
    """The Actions over entries and probabilities; single draws need no probabilities."""
    return Actions(entries(entry, model.row_state.shape[0]), doubles(prob, model.choice_state.shape[0]))


@inlined
def is_choice(model, q):
    return 0 <= q < integers(model, 2)[1]


@inlined
def is_state(model, s):
    return 0 <= s < integers(model, 1)[0]
