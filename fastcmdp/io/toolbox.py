"""Arrays in the convention of the MDP toolboxes, in a `.npz` or a `.mat` file (up to version 7).

`P` is (A, S, S), P[a, s, t] the probability of going from s to t by action a, or in a `.mat` a cell array of A sparse
(S, S) matrices, or Matlab's (S, S, A). A row of zeros means that the state does not have the action. Every other array
of the shape (S, A), (S,), or like P's, is a reward named as the array is (`R` in most files); per transition it
becomes its expectation. `start` (S,) and `discount` or `gamma` tell the start and the discount, boolean arrays (S,)
are labels, `actions` are the names of actions. Rewards and labels whose names cannot be names of variables, and the
reward that `R` is, are told by `names`, a JSON object from variables to names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.io.description import (
    TEXT_DIGITS,
    Description,
    Problem,
    Reward,
    check_offsets,
    checked_rows,
    compact,
)
from fastcmdp.io.mat import Sparse

LARGEST_TABLE = 1 << 30  # bytes of a dense P that is written
LARGEST_SMALL_TABLE = 1 << 23  # up to here dense in a .mat as well
MOST_ACTIONS = 1 << 16
_TOLD = ("P", "start", "discount", "gamma", "actions", "names")
_RESERVED = {*_TOLD, "R", "file", "allow_pickle"}


def read(arrays: Mapping[str, Any], *, renormalize: bool = False) -> Description:
    """The description in such arrays."""
    if "P" not in arrays:
        found = ", ".join(list(arrays)[:20]) or "none"
        raise ModelError(
            f"no model: neither one that fastcmdp saved nor an array 'P' is among its arrays ({found})"
        )
    entries, (n_states, n_actions), matlab = _entries(arrays["P"], "P")
    states, actions, targets, prob = entries
    keys = states * n_actions + actions
    first = np.flatnonzero(np.append(True, np.diff(keys) != 0)[: len(keys)])
    owners, numbers = states[first], actions[first]
    state_to_choice = np.searchsorted(owners, np.arange(n_states + 1))
    choice_to_branch = np.append(first, len(keys))
    check_offsets(state_to_choice, choice_to_branch, len(keys))
    digits = 7 if prob.dtype.kind == "f" and prob.dtype.itemsize < 8 else TEXT_DIGITS
    rows, notes = checked_rows(
        choice_to_branch, prob, digits, lambda q: f"state {owners[q]}, action {numbers[q]}", renormalize
    )
    names = _names(arrays)
    rewards: dict[str, Reward] = {}
    labels: dict[str, NDArray[np.int64]] = {}
    for variable, array in arrays.items():
        if variable in _TOLD or variable.startswith("__"):
            continue
        kind, values = _signal(array, variable, entries, (n_states, n_actions), first, matlab)
        name = names.get(variable, variable.removeprefix("label_") if kind == "label" else variable)
        if name in (labels if kind == "label" else rewards):
            raise ModelError(f"two arrays have the name {name!r}")
        if kind == "label":
            labels[name] = np.flatnonzero(values)
        elif kind == "nothing":
            notes = (*notes, f"the array {variable!r} of shape {np.shape(array)} is not used")
        else:
            parts = {"states": None, "choices": None, "branches": None} | {kind: values}
            rewards[name] = compact(choice_to_branch, **parts)
    return Description(
        state_to_choice,
        choice_to_branch,
        targets.astype(np.int32),
        rows,
        rewards=rewards,
        labels=labels,
        start=_vector(arrays, "start", n_states),
        actions=numbers.astype(np.int32),
        action_names=_action_names(arrays, n_actions),
        problem=Problem(_discount(arrays)),
        notes=notes,
    )


def arrays_for(description: Description, *, mat: bool) -> dict[str, Any]:
    """The arrays that tell a description; for a `.mat` P is a list of sparse matrices unless it is small."""
    actions, action_names = _columns_of(description)
    n_states, n_actions = description.n_states, int(actions.max()) + 1
    size = 8 * n_actions * n_states**2
    arrays: dict[str, Any] = {}
    owners = description.choice_state
    lengths = np.diff(description.choice_to_branch)
    branch_action, branch_state = np.repeat(actions, lengths), np.repeat(owners, lengths)
    if mat and size > LARGEST_SMALL_TABLE:
        arrays["P"] = _cells(description, branch_action, branch_state, n_actions)
    elif size > LARGEST_TABLE:
        raise ModelError(
            f"a table of {n_states} states and {n_actions} actions takes {size / 2**30:.1f} GiB: save it as .mat, "
            "which is sparse, or in another format"
        )
    else:
        arrays["P"] = np.zeros((n_actions, n_states, n_states))
        np.add.at(
            arrays["P"], (branch_action, branch_state, description.branch_target), description.branch_prob
        )
    rewards = description.rewards
    chosen = description.problem.reward
    main = chosen if chosen in rewards else next(iter(rewards)) if len(rewards) == 1 else None
    names: dict[str, str] = {}
    for name, reward in rewards.items():
        variable = "R" if name == main else _variable(name, arrays)
        names |= {} if variable == name else {variable: name}
        if reward.states is not None and reward.choices is None and reward.branches is None:
            arrays[variable] = reward.states
        else:
            arrays[variable] = np.zeros((n_states, n_actions))
            arrays[variable][owners, actions] = description.on_choices(name)
    for name, states in description.labels.items():
        variable = _variable(f"label_{name}", arrays)
        names |= {} if variable == f"label_{name}" else {variable: name}
        arrays[variable] = np.zeros(n_states, dtype=np.bool_)
        arrays[variable][states] = True
    if description.start is not None:
        arrays["start"] = description.start
    if description.problem.gamma is not None:
        arrays["discount"] = np.array(description.problem.gamma)
    if action_names:
        arrays["actions"] = list(action_names) if mat else np.array(action_names, dtype=np.str_)
    if names:
        arrays["names"] = json.dumps(names) if mat else np.array(json.dumps(names))
    return arrays


# Reading.

_Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[Any]]


def _entries(table: Any, what: str) -> tuple[_Entries, tuple[int, int], bool]:
    """States, actions, targets and values of a table's nonzero entries in order; (S, A); Matlab's axes or not."""
    matlab = False
    if isinstance(table, list):
        parts = [_matrix(part, f"{what}{{{a + 1}}}") for a, part in enumerate(table)]
        shapes = {part.shape for part in parts}
        if len(shapes) != 1 or len(set(min(shapes))) != 1:
            raise ModelError(
                f"{what} has parts of shapes {sorted(shapes)}; all must be (S, S), one for each action"
            )
        n_states, n_actions = parts[0].shape[0], len(parts)
        states = np.concatenate([part.rows for part in parts])
        actions = np.repeat(np.arange(n_actions), [len(part.rows) for part in parts])
        targets = np.concatenate([part.columns for part in parts])
        values = np.concatenate([part.values for part in parts])
    else:
        array = _real(table, what)
        if array.ndim == 2 and array.shape[0] == array.shape[1]:
            array = array[None]  # Matlab drops a last axis of one action
        if array.ndim == 3 and array.shape[1] != array.shape[2] and array.shape[0] == array.shape[1]:
            array, matlab = np.moveaxis(array, 2, 0), True
        if array.ndim != 3 or array.shape[1] != array.shape[2] or array.size == 0:
            raise ModelError(
                f"{what} has shape {np.shape(table)}; it must be (A, S, S): action, state, next state"
            )
        n_actions, n_states = array.shape[:2]
        states, actions, targets = np.nonzero(array.swapaxes(0, 1))
        values = array[actions, states, targets]
    keys = states * n_actions + actions
    if not (np.diff(keys) > 0).all():
        order = np.lexsort((targets, keys))
        states, actions, targets, values = states[order], actions[order], targets[order], values[order]
    stored = values != 0  # a sparse matrix may store zeros
    kept = tuple(part[stored] for part in (states, actions, targets, values))
    return (kept[0], kept[1], kept[2], kept[3]), (n_states, n_actions), matlab


def _signal(
    array: Any, what: str, entries: _Entries, shape: tuple[int, int], first: NDArray[np.int64], matlab: bool
) -> tuple[str, Any]:
    """What an array beside P is, "states", "choices", "branches", "label" or "nothing", and its values there."""
    states, actions, targets, _ = entries
    n_states, n_actions = shape
    if (
        isinstance(array, list)
        and len(array) == n_actions
        and all(
            np.shape(part) == (n_states, n_states) or getattr(part, "shape", 0) == (n_states, n_states)
            for part in array
        )
    ):
        (s, a, t, values), _, _ = _entries(array, what)
        have, want = ((x * n_actions + y) * n_states + z for x, y, z in ((s, a, t), entries[:3]))
        at = np.minimum(np.searchsorted(have, want), max(len(have) - 1, 0))
        found = values[at].astype(np.float64) if len(have) else np.zeros(len(want))
        return "branches", np.where(have[at] == want, found, 0.0) if len(have) else found
    if isinstance(array, Sparse):
        array = (
            _dense(array) if array.shape in ((n_states, n_actions), (n_states, 1), (1, n_states)) else None
        )
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        return "nothing", None
    vector = array.ravel() if array.shape in ((n_states,), (1, n_states), (n_states, 1)) else None
    if vector is not None and array.dtype == np.bool_:
        return "label", vector
    values = array.astype(np.float64)
    if array.shape == (n_states, n_actions):
        return "choices", values[states[first], actions[first]]
    if vector is not None:
        return "states", values.ravel()
    if array.shape == (n_actions, n_states, n_states) and not matlab:
        return "branches", values[actions, states, targets]
    if array.shape == (n_states, n_states, n_actions):
        return "branches", values[states, targets, actions]
    return "nothing", None


def _matrix(part: Any, what: str) -> Sparse:
    if isinstance(part, Sparse):
        _real(part.values, what)
        return part
    array = _real(part, what)
    if array.ndim != 2:
        raise ModelError(f"{what} has shape {array.shape}; it must be (S, S)")
    rows, columns = np.nonzero(array)
    return Sparse(rows, columns, array[rows, columns], (array.shape[0], array.shape[1]))


def _dense(matrix: Sparse) -> NDArray[np.float64]:
    array = np.zeros(matrix.shape)
    np.add.at(array, (matrix.rows, matrix.columns), matrix.values)
    return array


def _real(table: Any, what: str) -> NDArray[Any]:
    if not isinstance(table, np.ndarray) or table.dtype.kind not in "biuf":
        kind = table.dtype if isinstance(table, np.ndarray) else type(table).__name__
        raise ModelError(f"{what} is of type {kind}; real numbers are expected")
    return table


def _vector(arrays: Mapping[str, Any], name: str, size: int) -> NDArray[np.float64] | None:
    if name not in arrays:
        return None
    array = _real(arrays[name], name)
    if array.size != size:
        raise ModelError(f"{name!r} has shape {array.shape}; {size} numbers are expected")
    return array.ravel().astype(np.float64)


def _discount(arrays: Mapping[str, Any]) -> float | None:
    for name in ("discount", "gamma"):
        if name in arrays:
            array = _real(arrays[name], name)
            if array.size != 1:
                raise ModelError(f"{name!r} has shape {array.shape}; one number is expected")
            return float(array.ravel()[0])
    return None


def _names(arrays: Mapping[str, Any]) -> dict[str, str]:
    if "names" not in arrays:
        return {}
    words = _words(arrays["names"])
    try:
        names = json.loads(words[0])
    except (ValueError, RecursionError, IndexError):
        names = None
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ModelError("'names' must be a JSON object from the names of arrays to other names")
    return names


def _words(array: Any) -> list[str]:
    """Text of a variable as a list."""
    if not isinstance(array, np.ndarray):
        return [part for part in (array if isinstance(array, list) else [array]) if isinstance(part, str)]
    size = array.dtype.itemsize
    if array.dtype.kind != "U" or size == 0:
        return []
    # Decoded here, since NumPy makes strings of code points that do not exist.
    coding = "utf-32-be" if array.dtype.str.startswith(">") else "utf-32-le"
    data = array.tobytes()
    try:
        return [data[i : i + size].decode(coding).rstrip("\0") for i in range(0, len(data), size)]
    except UnicodeDecodeError as error:
        raise ModelError(f"a text that cannot be read: {error}") from None


def _action_names(arrays: Mapping[str, Any], n_actions: int) -> tuple[str, ...]:
    if "actions" not in arrays:
        return ()
    words = _words(arrays["actions"])
    if len(words) != n_actions:
        raise ModelError(f"'actions' has {len(words)} names; there are {n_actions} actions")
    return tuple(words)


# Writing.


def _cells(
    description: Description, actions: NDArray[np.int64], states: NDArray[np.int64], n_actions: int
) -> list[Sparse]:
    shape = description.n_states, description.n_states
    cells = []
    for a in range(n_actions):
        chosen = np.flatnonzero(actions == a)
        targets = description.branch_target[chosen].astype(np.int64)
        cells.append(Sparse(states[chosen], targets, description.branch_prob[chosen], shape))
    return cells


def _columns_of(description: Description) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The action of each choice in the tables, and their names: places where numbers recur in a state."""
    owners = description.choice_state
    places = np.arange(description.n_choices) - description.state_to_choice[owners]
    if description.actions is None or description.actions.max() >= MOST_ACTIONS:
        return places, ()
    actions = description.actions.astype(np.int64)
    if len(np.unique(owners << 32 | actions)) < len(owners):
        return places, ()
    return actions, description.action_names[: int(actions.max()) + 1]


def _variable(name: str, taken: Mapping[str, Any]) -> str:
    """A name that a variable may have."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", name)[:50]
    word = word if re.match(r"[A-Za-z]", word) else f"r{word}"
    numbered, i = word, 1
    while numbered in taken or numbered in _RESERVED:
        i += 1
        numbered = f"{word}_{i}"
    return numbered
