"""Tables over states and actions as compressed rows; sparse ones are never made dense."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy  # its parts load at their first use: `import fastcmdp` then takes half the time

from fastcmdp.errors import ModelError
from fastcmdp.rows import MOST_OFF, IntArray, check_states, cumulated
from fastcmdp.units import FORBIDDEN, FloatArray, check_finite, numbers_in

Table = Any  # what a user may pass: an array-like, a scipy.sparse array or matrix, or a list of those


class TableRows(NamedTuple):
    """What tables say, in the arguments of `CMDP`."""

    state_to_choice: IntArray
    choice_to_branch: npt.NDArray[Any]
    branch_target: npt.NDArray[Any]
    branch_prob: npt.NDArray[Any]
    reward: npt.NDArray[Any]
    costs: list[npt.NDArray[Any]]
    action_of_choice: npt.NDArray[Any]


def rows_of_tables(
    transition: Table, reward: Table, costs: Table, available: npt.ArrayLike | None
) -> TableRows:
    """The rows of tables in any of the forms that `CMDP.from_arrays` takes."""
    table = stacked(transition, "transition")
    if available is None:
        refuse_other_axes(transition)
    S = int(table.shape[1])
    A = int(table.shape[0]) // S
    mask = mask_of(available, S, A)
    chosen = np.flatnonzero(mask)
    table = table if mask.all() else table[chosen]
    prob = table.data
    if getattr(transition, "dtype", None) == np.float16:  # unknown to scipy.sparse, but its rounding counts
        prob = prob.astype(np.float16)
    signals = [reward, *signals_in(costs, {(S,), (S, A), (S, A, S)})]
    names = ["reward", *(f"cost {i}" for i in range(len(signals) - 1))]
    values = [_on_rows(signal, name, mask, table) for signal, name in zip(signals, names, strict=True)]
    return TableRows(
        cumulated(np.count_nonzero(mask, axis=1)),
        table.indptr,
        table.indices,
        prob,
        values[0],
        values[1:],
        chosen % A,
    )


def _on_rows(
    signal: Table, what: str, mask: npt.NDArray[np.bool_], table: scipy.sparse.csr_array
) -> npt.NDArray[Any]:
    """A signal per state, per chosen pair of ``mask``, or per entry of the chosen rows of ``table``."""
    S, A = mask.shape
    if not is_sparse(signal):
        array = numbers_in(signal, what)
        if array.shape == (S,):
            return array
        if array.shape == (S, A):
            return array[mask]
        if array.shape != (S, A, S):
            raise ModelError(
                f"{what} has shape {array.shape}; for {S} states and {A} actions it must be "
                f"({S}, {A}), ({S},), ({S}, {A}, {S}), or sparse in a form that `transition` may have"
            )
    rows = stacked(signal, what)
    if rows.shape != (S * A, S):
        raise ModelError(f"{what} has sparse rows {rows.shape}; `transition` has {(S * A, S)}")
    chosen = np.flatnonzero(mask)
    rows = rows if mask.all() else rows[chosen]

    def place(i: int) -> str:
        s, a = divmod(int(chosen[np.searchsorted(rows.indptr, i, side="right") - 1]), A)
        return f"{what} of state {s}, action {a}, next state {rows.indices[i]}"

    values = rows.data.astype(np.float64)
    check_finite(values, place, FORBIDDEN)
    return values_at(rows, values, table)


def is_sparse(values: Table) -> bool:
    """Whether values is sparse, or a list or tuple with something sparse in it."""
    return scipy.sparse.issparse(values) or (
        isinstance(values, (list, tuple)) and any(map(scipy.sparse.issparse, values))
    )


def signals_in(costs: Table, shapes: set[tuple[int, ...]]) -> list[Table]:
    """The m signals in what was passed as costs; shapes are those that one of them may have as an array."""
    if costs is None:
        return []
    if scipy.sparse.issparse(costs):
        return [costs]
    if isinstance(costs, (list, tuple)) and (
        not costs or any(isinstance(part, np.ndarray) or is_sparse(part) for part in costs)
    ):
        return list(costs)
    array = numbers_in(costs, "costs")
    one, many = array.shape in shapes, array.shape[1:] in shapes
    if one and many and array.ndim == 3:
        raise ModelError(
            f"costs has shape {array.shape}, one cost (S, A, S) or {len(array)} costs (m, S, A): "
            "pass [costs] for the first, list(costs) for the second"
        )
    return list(array) if many and not one else [array]


def mask_of(available: npt.ArrayLike | None, n_states: int, n_actions: int) -> npt.NDArray[np.bool_]:
    if available is None:
        return np.ones((n_states, n_actions), dtype=np.bool_)
    mask = np.asarray(available)
    if mask.shape != (n_states, n_actions) or mask.dtype != np.bool_:
        raise ModelError(
            f"available has shape {mask.shape} and dtype {mask.dtype}; it must be ({n_states}, {n_actions}) "
            "and bool"
        )
    return mask


def stacked(table: Table, what: str) -> scipy.sparse.csr_array:
    """A table per transition, in any of its three forms, as one canonical CSR array (S*A, S), row s*A + a."""
    if scipy.sparse.issparse(table):
        rows, states = table.shape if table.ndim == 2 else (1, 0)
        if states == 0 or rows == 0 or rows % states:
            raise ModelError(f"sparse {what} has shape {table.shape}; it must be (S*A, S) with row s*A + a")
        check_states(states)
        return canonical(table, what)
    if is_sparse(table):
        shapes = {part.shape if scipy.sparse.issparse(part) else None for part in table}
        shape = shapes.pop()
        if shapes or shape is None or len(shape) != 2 or shape[0] != shape[1]:
            raise ModelError(
                f"{what} is a list with a sparse part; all parts must be sparse (S, S), one per action"
            )
        check_states(shape[0])
        by_action = scipy.sparse.vstack([canonical(part, what) for part in table], format="csr")
        order = np.arange(by_action.shape[0]).reshape(len(table), -1).T.reshape(-1)
        return by_action[order]
    array = numbers_in(table, what)
    if array.ndim != 3 or array.shape[0] != array.shape[2] or array.size == 0:
        raise ModelError(
            f"{what} has shape {array.shape}; a dense one must be (S, A, S): state, action, next state. "
            "np.swapaxes(x, 0, 1) makes that of (A, S, S), np.swapaxes(x, 1, 2) that of (S, S, A)"
        )
    if array.dtype == np.float16:  # unknown to scipy.sparse
        array = array.astype(np.float32)
    rows = array.reshape(-1, array.shape[2])
    stored = rows != 0  # NaN too
    targets = np.broadcast_to(np.arange(rows.shape[1], dtype=np.int32), rows.shape)[stored]
    offsets = cumulated(np.count_nonzero(stored, axis=1))
    return scipy.sparse.csr_array((rows[stored], targets, offsets), shape=rows.shape)


def refuse_other_axes(table: Table) -> None:
    """A ModelError where a dense table has as many states as actions and is one, but as P(s, s', a) of MATLAB."""
    array = None if is_sparse(table) else numbers_in(table, "transition")
    if array is None or array.ndim != 3 or len(set(array.shape)) > 1 or array.dtype.kind not in "biuf":
        return
    ours, matlab = (np.abs(array.sum(axis=axis, dtype=np.float64) - 1.0).max() <= MOST_OFF for axis in (2, 1))
    if matlab and not ours:
        raise ModelError(
            f"transition has shape {array.shape} and sums to 1 over its second axis, not over its last: it is P(state, "
            "next state, action), and (S, A, S) is expected, which np.swapaxes(x, 1, 2) makes of it"
        )


def canonical(table: Table, what: str) -> scipy.sparse.csr_array:
    """Any sparse table as CSR with sorted rows and no duplicates, real; the user's own is left as it is."""
    if table.dtype.kind not in "biuf":
        raise ModelError(f"{what} has dtype {table.dtype}; it must hold real numbers")
    rows = scipy.sparse.csr_array(table)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def values_at(
    table: scipy.sparse.csr_array, values: FloatArray, pattern: scipy.sparse.csr_array
) -> FloatArray:
    """A CSR table, with these values, at the stored entries of another, 0 if it has none; both canonical."""
    if np.array_equal(table.indptr, pattern.indptr) and np.array_equal(table.indices, pattern.indices):
        return values
    have, want = (
        np.repeat(np.arange(rows.shape[0]) * rows.shape[1], np.diff(rows.indptr)) + rows.indices
        for rows in (table, pattern)
    )
    at = np.searchsorted(have, want)
    have, values = np.append(have, -1), np.append(values, 0.0)  # for what is beyond the last entry
    return np.where(have[at] == want, values[at], 0.0)
