"""Arrays in the convention of the MDP toolboxes, in a `.npz` or a `.mat` file (up to version 7).

`P` is (A, S, S), P[a, s, t] the probability of going from s to t by action a, or a cell array of A sparse (S, S)
matrices, or MATLAB's (S, S, A), or (S, A, S). Where the shape does not tell, that is taken whose rows sum to 1, and if
several have that, `axes` in the file or said says which: "ast", "sta" or "sat". Rewards follow P. A row of zeros means
that the state does not have the action. Every other array of the shape (S, A), (S,), or like P's, is a reward named as
the array is (`R` in most files); per transition it becomes its expectation. `start` (S,) and `discount` or `gamma` tell
the start and the discount, boolean arrays (S,) are labels, `actions` are the names of actions. Rewards and labels whose
names cannot be names of variables, and the reward that `R` is, are told by `names`, a JSON object from variables to
names; `variables` is another, from arrays (S,) to the variables of states whose values they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.files import budget
from fastcmdp.io.description import (
    TEXT_DIGITS,
    Description,
    Problem,
    Reward,
    check_offsets,
    checked_rows,
    compact,
)
from fastcmdp.io.matfile import SparseMatrix
from fastcmdp.io.place import AXES, Place
from fastcmdp.npz import read_arrays, write_arrays
from fastcmdp.rows import MOST_OFF, precision, rounded_up

LARGEST_TABLE = 1 << 30  # bytes of a dense P that is written
LARGEST_SMALL_TABLE = 1 << 23  # up to here dense in a .mat as well
MOST_ACTIONS = 1 << 16
_TOLD = ("P", "start", "discount", "gamma", "actions", "names", "variables", "axes")
_RESERVED = {*_TOLD, "R", "file", "allow_pickle"}


def read(place: Place) -> Description:
    """The description in a .npz of such arrays."""
    return described(read_arrays(place.path, budget(place.path)), place)


def write(description: Description, place: Place) -> None:
    """Write a .npz of such arrays."""
    write_arrays(place.path, arrays_for(description, mat=False))


def described(arrays: Mapping[str, Any], place: Place) -> Description:
    """The description in such arrays."""
    if "P" not in arrays:
        names = ", ".join(list(arrays)[:20]) or "none"
        raise ModelError(
            f"no model: neither one that fastcmdp saved nor an array 'P' is among its arrays ({names})"
        )
    axes, axes_notes = _axes_of(arrays["P"], place.axes or _said_axes(arrays), place.renormalize)
    entries, shape = _entries(arrays["P"], "P", axes)
    states, actions, targets, prob = entries
    n_states, n_actions = shape
    keys = states * n_actions + actions
    first = np.flatnonzero(np.append(True, np.diff(keys) != 0)[: len(keys)])
    owners, numbers = states[first], actions[first]
    state_to_choice = np.searchsorted(owners, np.arange(n_states + 1))
    choice_to_branch = np.append(first, len(keys))
    check_offsets(state_to_choice, choice_to_branch, len(keys))

    def name_of(q: int) -> str:
        return f"state {owners[q]}, action {numbers[q]}"

    rows, notes = checked_rows(choice_to_branch, prob, TEXT_DIGITS, name_of, place.renormalize)
    variables = _names(arrays, "variables")
    signals = {
        name: array
        for name, array in arrays.items()
        if name not in _TOLD and not name.startswith("__") and name not in variables
    }
    rewards, labels, unused = _signals(signals, _names(arrays, "names"), entries, shape, first, axes)
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
        notes=(*axes_notes, *notes, *unused),
        variables={variables[key]: np.ravel(arrays[key]) for key in variables if key in arrays},
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
    variables: dict[str, str] = {}
    for name, values in description.variables.items():
        variable = _variable(f"state_{name}", arrays)
        arrays[variable], variables[variable] = values, name
    texts = {"names": json.dumps(names)} if names else {}
    texts |= {"variables": json.dumps(variables)} if variables else {}
    texts |= {"axes": "ast"} if n_states == n_actions else {}  # the shape of P does not tell
    return arrays | {key: text if mat else np.array(text) for key, text in texts.items()}


_Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[Any]]
_MEANT = {
    "ast": "P[action, state, next state]",
    "sta": "P(state, next state, action)",
    "sat": "P[state, action, next state]",
}


def _by_action(array: NDArray[Any], axes: str) -> NDArray[Any]:
    """A table with the axes action, state, next state."""
    return array.transpose([axes.index(axis) for axis in "ast"])


def _fits(shape: tuple[int, ...], axes: str) -> bool:
    return shape[axes.index("s")] == shape[axes.index("t")]


def _axes_of(table: Any, said: str | None, renormalize: bool) -> tuple[str, tuple[str, ...]]:
    """The axes of P, and what is to be told of the choice: those that are said, else those whose rows sum to 1."""
    array = table if isinstance(table, np.ndarray) else None
    if array is None or array.ndim != 3 or array.size == 0:
        return (
            "sta" if isinstance(table, list) else "ast"
        ), ()  # cells are MATLAB's; other shapes are refused later
    if said is not None:
        if not _fits(array.shape, said):
            raise ModelError(f"P has shape {array.shape}, which cannot be {_MEANT[said]} of axes={said!r}")
        return said, ()
    fitting = [axes for axes in AXES if _fits(array.shape, axes)]
    if len(fitting) < 2:
        return (fitting or ["ast"])[0], ()
    tables = {axes: _by_action(_real(array, "P"), axes) for axes in AXES}
    ours, matlab = _is_stochastic(tables["ast"]), _is_stochastic(tables["sta"])
    choice = f"P has shape {array.shape}, as many states as actions, and may be " + ", ".join(
        f"{_MEANT[axes]} (axes={axes!r})" for axes in AXES
    )
    if matlab and not ours:
        return "sta", ()
    if matlab and not np.array_equal(tables["ast"], tables["sta"]):
        raise ModelError(f"{choice}: rows sum to 1 in each, and these are different models. Give axes=")
    if renormalize and not ours:
        raise ModelError(
            f"{choice}: in none of these do all rows sum to 1, so renormalize=True needs axes= as well"
        )
    return "ast", (f"{choice}; read as the first of these",) * (
        not np.array_equal(tables["ast"], tables["sat"])
    )


def _is_stochastic(table: NDArray[Any]) -> bool:
    """Whether all rows (A, S, S) are probabilities, up to rounding, or zeros for an action that is not there."""
    sums = table.sum(axis=2, dtype=np.float64)
    return bool(
        ((np.abs(sums - 1.0) <= MOST_OFF) | (table == 0).all(axis=2)).all() and table.min() >= -MOST_OFF
    )


def _said_axes(arrays: Mapping[str, Any]) -> str | None:
    """What a file says of its axes, as our own do where these are not plain from the shape."""
    words = _words(arrays.get("axes"))
    return words[0] if len(words) == 1 and words[0] in AXES else None


def _entries(table: Any, what: str, axes: str) -> tuple[_Entries, tuple[int, int]]:
    """States, actions, targets and values of a table's nonzero entries in order; (S, A)."""
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
            array, axes = array[None], "ast"  # Matlab drops a last axis of one action
        if array.ndim != 3 or not _fits(array.shape, axes) or array.size == 0:
            raise ModelError(
                f"{what} has shape {np.shape(table)}; it must be (A, S, S): action, state, next state"
            )
        array = _by_action(array, axes)
        n_actions, n_states = array.shape[:2]
        states, actions, targets = np.nonzero(array.swapaxes(0, 1))
        values = array[actions, states, targets]
    keys = states * n_actions + actions
    if not (np.diff(keys) > 0).all():
        order = np.lexsort((targets, keys))
        states, actions, targets, values = states[order], actions[order], targets[order], values[order]
    # A sparse matrix may store zeros; what is negative by rounding alone is one.
    stored = values != 0
    if values.dtype.kind == "f":
        stored &= rounded_up(values.astype(np.float64), precision(values.dtype)) != 0
    kept = tuple(part[stored] for part in (states, actions, targets, values))
    return (kept[0], kept[1], kept[2], kept[3]), (n_states, n_actions)


def _signals(
    arrays: Mapping[str, Any],
    names: Mapping[str, str],
    entries: _Entries,
    shape: tuple[int, int],
    first: NDArray[np.int64],
    axes: str,
) -> tuple[dict[str, Reward], dict[str, NDArray[np.int64]], list[str]]:
    """The rewards and the labels in the arrays beside P, and notes on those that are neither."""
    rewards: dict[str, Reward] = {}
    labels: dict[str, NDArray[np.int64]] = {}
    notes = []
    for variable, array in arrays.items():
        kind, values = _signal(array, variable, entries, shape, first, axes)
        name = names.get(variable, variable.removeprefix("label_") if kind == "label" else variable)
        if name in (labels if kind == "label" else rewards):
            raise ModelError(f"two arrays have the name {name!r}")
        if kind == "label":
            labels[name] = np.flatnonzero(values)
        elif kind == "nothing":
            notes.append(f"the array {variable!r} of shape {np.shape(array)} is not used")
        else:
            parts = {"states": None, "choices": None, "branches": None} | {kind: values}
            rewards[name] = compact(np.append(first, len(entries[0])), **parts)
    return rewards, labels, notes


def _signal(
    array: Any, what: str, entries: _Entries, shape: tuple[int, int], first: NDArray[np.int64], axes: str
) -> tuple[str, Any]:
    """What an array beside P is, "states", "choices", "branches", "label" or "nothing", and its values there."""
    states, actions, targets, _ = entries
    n_states, n_actions = shape
    if _are_cells(array, shape):
        return "branches", _at_entries(_entries(array, what, axes)[0], entries, shape)
    if isinstance(array, SparseMatrix):
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
    if array.shape == (n_states, n_states) and n_actions == 1:
        return "branches", values[states, targets]
    for order in (axes, *AXES):  # what P tells, others follow, unless their shape says otherwise
        if array.shape == tuple({"a": n_actions, "s": n_states, "t": n_states}[axis] for axis in order):
            return "branches", _by_action(values, order)[actions, states, targets]
    return "nothing", None


def _are_cells(array: Any, shape: tuple[int, int]) -> bool:
    """Whether an array is a list of matrices (S, S), one for each action."""
    n_states, n_actions = shape
    return (
        isinstance(array, list)
        and len(array) == n_actions
        and all(getattr(part, "shape", None) == (n_states, n_states) for part in array)
    )


def _at_entries(have: _Entries, want: _Entries, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Values of the entries of one table at those of another, 0 where it has none."""
    n_states, n_actions = shape
    keys, asked = ((s * n_actions + a) * n_states + t for s, a, t, _ in (have, want))
    if not len(keys):
        return np.zeros(len(asked))
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[at] == asked, have[3][at].astype(np.float64), 0.0)


def _matrix(part: Any, what: str) -> SparseMatrix:
    if isinstance(part, SparseMatrix):
        _real(part.values, what)
        return part
    array = _real(part, what)
    if array.ndim != 2:
        raise ModelError(f"{what} has shape {array.shape}; it must be (S, S)")
    rows, columns = np.nonzero(array)
    return SparseMatrix(rows, columns, array[rows, columns], (array.shape[0], array.shape[1]))


def _dense(matrix: SparseMatrix) -> NDArray[np.float64]:
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


def _names(arrays: Mapping[str, Any], what: str) -> dict[str, str]:
    if what not in arrays:
        return {}
    words = _words(arrays[what])
    try:
        names = json.loads(words[0])
    except (ValueError, RecursionError, IndexError):
        names = None
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ModelError(f"{what!r} must be a JSON object from the names of arrays to other names")
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


def _cells(
    description: Description, actions: NDArray[np.int64], states: NDArray[np.int64], n_actions: int
) -> list[SparseMatrix]:
    shape = description.n_states, description.n_states
    cells = []
    for a in range(n_actions):
        chosen = np.flatnonzero(actions == a)
        targets = description.branch_target[chosen].astype(np.int64)
        cells.append(SparseMatrix(states[chosen], targets, description.branch_prob[chosen], shape))
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
