"""The native format: arrays in a .npz file, versioned, without pickle, and nothing of a model is lost.

`fastcmdp_model` is the version, `meta` is UTF-8 JSON with all names and the problem; numbers in it are written so
that they come back to the last bit. Other arrays: the rows, `start`, `actions`, the parts of reward number i as
`reward_i_states`, `reward_i_choices`, `reward_i_branches`; `label_i`, the states with label number i; and `variable_i`,
the values of a variable of the states.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.files import budget
from fastcmdp.io import toolbox
from fastcmdp.io.description import Constraint, Description, Problem, Reward, check_offsets, checked_rows
from fastcmdp.io.place import Place
from fastcmdp.npz import read_arrays, write_arrays

VERSION = 1
KEY = "fastcmdp_model"
_KINDS = ("states", "choices", "branches")
_ROWS = {"state_to_choice": "i8", "choice_to_branch": "i8", "branch_target": "i4", "branch_prob": "f8"}


def read(place: Place) -> Description:
    """The description in a .npz that `write` wrote, or one of toolboxes' arrays."""
    arrays = read_arrays(place.path, budget(place.path))
    if KEY not in arrays:
        return toolbox.described(arrays, place)
    version = int(_array(arrays, KEY, "i8", 0))
    if version != VERSION:
        raise ModelError(
            f"a model file of version {version}; this fastcmdp reads version {VERSION}: upgrade it"
        )
    meta = _meta(arrays)
    rows = {name: _array(arrays, name, kind, 1) for name, kind in _ROWS.items()}
    offsets = rows["choice_to_branch"]
    check_offsets(rows["state_to_choice"], offsets, len(rows["branch_prob"]))

    def name_of(q: int) -> str:
        s = int(np.searchsorted(rows["state_to_choice"], q, side="right")) - 1
        return f"state {s}, choice {q - rows['state_to_choice'][s]}"

    prob, notes = checked_rows(offsets, rows["branch_prob"], 17, name_of, place.renormalize)
    rewards = {}
    for i, name in enumerate(_strings(meta, "rewards")):
        keys = {kind: f"reward_{i}_{kind}" for kind in _KINDS}
        parts = {kind: _array(arrays, key, "f8", 1) for kind, key in keys.items() if key in arrays}
        rewards[name] = Reward(**parts)
    labels = {name: _array(arrays, f"label_{i}", "i8", 1) for i, name in enumerate(_strings(meta, "labels"))}
    return Description(
        rows["state_to_choice"],
        offsets,
        rows["branch_target"],
        prob,
        rewards=rewards,
        labels=labels,
        start=_array(arrays, "start", "f8", 1) if "start" in arrays else None,
        actions=_array(arrays, "actions", "i4", 1) if "actions" in arrays else None,
        action_names=tuple(_strings(meta, "action_names")),
        problem=_problem(meta),
        notes=notes,
        variables={
            name: arrays[f"variable_{i}"]
            for i, name in enumerate(_strings(meta, "variables"))
            if f"variable_{i}" in arrays
        },
    )


def write(description: Description, place: Place) -> None:
    """Write the native file."""
    problem = description.problem
    meta = {
        "rewards": list(description.rewards),
        "labels": list(description.labels),
        "action_names": list(description.action_names),
        "gamma": problem.gamma,
        "reward": problem.reward,
        "constraints": None if problem.constraints is None else [list(c) for c in problem.constraints],
    }
    if description.variables:
        meta["variables"] = list(description.variables)
    arrays: dict[str, NDArray[Any]] = {
        KEY: np.array(VERSION, dtype=np.int64),
        "meta": np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
        "state_to_choice": description.state_to_choice,
        "choice_to_branch": description.choice_to_branch,
        "branch_target": description.branch_target.astype(np.int32),
        "branch_prob": description.branch_prob.astype(np.float64),
    }
    for i, reward in enumerate(description.rewards.values()):
        for kind in _KINDS:
            part = getattr(reward, kind)
            if part is not None:
                arrays[f"reward_{i}_{kind}"] = part
    arrays |= {f"label_{i}": states for i, states in enumerate(description.labels.values())}
    arrays |= {f"variable_{i}": values for i, values in enumerate(description.variables.values())}
    if description.start is not None:
        arrays["start"] = description.start
    if description.actions is not None:
        arrays["actions"] = description.actions
    write_arrays(place.path, arrays)


def _array(arrays: dict[str, NDArray[Any]], name: str, kind: str, ndim: int) -> Any:
    if name not in arrays:
        raise ModelError(f"the array {name!r} is missing")
    array = arrays[name]
    if array.ndim != ndim or array.dtype != np.dtype(kind):
        raise ModelError(
            f"the array {name!r} has {array.ndim} axes and dtype {array.dtype}; {ndim} and {kind} are expected"
        )
    return np.ascontiguousarray(array) if ndim else array


def _meta(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    try:
        meta = json.loads(_array(arrays, "meta", "u1", 1).tobytes().decode("utf-8"))
    except ModelError:
        raise
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the array 'meta' is no JSON: {error}") from error
    if not isinstance(meta, dict):
        raise ModelError("the array 'meta' holds no JSON object")
    return meta


def _strings(meta: dict[str, Any], key: str) -> list[str]:
    names = meta.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelError(f"{key!r} in 'meta' must be a list of strings")
    if key != "action_names" and len(set(names)) < len(names):
        raise ModelError(f"{key!r} in 'meta' has a name twice")
    return names


def _problem(meta: dict[str, Any]) -> Problem:
    gamma, reward, constraints = meta.get("gamma"), meta.get("reward"), meta.get("constraints")
    if not (gamma is None or isinstance(gamma, float) or gamma in ("average", "episodes")) or not (
        reward is None or isinstance(reward, str)
    ):
        raise ModelError("'gamma' in 'meta' must be a number or a criterion, 'reward' a name")
    if constraints is None:
        return Problem(gamma, reward, None)
    kinds = (str, str, float)
    if not isinstance(constraints, list) or not all(
        isinstance(entry, list) and len(entry) == 3 and all(map(isinstance, entry, kinds))
        for entry in constraints
    ):
        raise ModelError("'constraints' in 'meta' must be a list of [name, sense, limit]")
    return Problem(gamma, reward, tuple(Constraint(*entry) for entry in constraints))
