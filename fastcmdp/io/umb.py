"""UMB, the unified Markov binary format (https://github.com/pmc-tools/umb, version 1), written by Storm, PRISM, Modest.

A tar file, plain or compressed by gzip or xz. `index.json` tells the numbers of states, choices and branches,
from which follows to the byte how large every other member must be; that is compared before a member is read.
Discrete-time models of one player or none are read, with probabilities and rewards of type double or rational.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.files import Unpacked, packing
from fastcmdp.io.description import (
    TEXT_DIGITS,
    Description,
    check_offsets,
    checked_rows,
    compact,
    uniform,
)
from fastcmdp.io.place import Place
from fastcmdp.io.tar import members, write_members
from fastcmdp.io.valuations import (
    VALUATIONS,
    Valuations,
    described_valuations,
    read_valuations,
    written_valuations,
)
from fastcmdp.rows import MAX_STATES

INDEX = "index.json"
LARGEST_INDEX = 1 << 24
LARGEST_STRINGS = 1 << 26
LONGEST_ID = 60
_KINDS = ("states", "choices", "branches")


@dataclass(frozen=True)
class _Numbers:
    """The type of stored numbers: doubles, or rationals of so many bytes."""

    rational: bool
    size: int


@dataclass(frozen=True)
class _Index:
    """What index.json says, checked."""

    states: int
    choices: int
    branches: int
    initial: int
    actions: int
    probability: _Numbers
    rewards: Mapping[
        str, tuple[str, tuple[str, ...], _Numbers]
    ]  # by identifier: name, where it applies, type
    labels: Mapping[str, str]
    valuations: Valuations

    def count(self, kind: str) -> int:
        return {"states": self.states, "choices": self.choices, "branches": self.branches}[kind]

    def sizes(self) -> dict[str, int]:
        """Bytes of every member that is read."""
        bits = 8 * -(-self.states // 64)
        sizes = {
            "state-to-choices.bin": 8 * (self.states + 1),
            "choice-to-branches.bin": 8 * (self.choices + 1),
            "branch-to-target.bin": 8 * self.branches,
            "branch-to-probability.bin": self.probability.size * self.branches,
            "state-is-initial.bin": bits,
        }
        if self.actions:
            sizes["actions/choices/values.bin"] = 4 * self.choices
            sizes["actions/choices/string-mapping.bin"] = 8 * (self.actions + 1)
        for key, (_, kinds, numbers) in self.rewards.items():
            for kind in kinds:
                sizes[f"annotations/rewards/{key}/{kind}/values.bin"] = numbers.size * self.count(kind)
        sizes |= {f"annotations/aps/{key}/states/values.bin": bits for key in self.labels}
        if self.valuations.bits:
            sizes[VALUATIONS] = self.valuations.bits // 8 * self.states
        return sizes


def read(place: Place) -> Description:
    """The description of a UMB file."""
    index, parts = _parts_of(place.path)
    for name in ("branch-to-target.bin", "branch-to-probability.bin"):
        if name not in parts:
            raise ModelError(f"{name} is missing from the archive")
    state_to_choice = _offsets(parts, "state-to-choices.bin", index.states, index.choices)
    choice_to_branch = _offsets(parts, "choice-to-branches.bin", index.choices, index.branches)

    check_offsets(state_to_choice, choice_to_branch, index.branches)

    def name_of(q: int) -> str:
        s = int(np.searchsorted(state_to_choice, q, side="right")) - 1
        return f"state {s}, choice {q - state_to_choice[s]}"

    target = np.frombuffer(parts["branch-to-target.bin"], "<u8")
    if target.size and target.max() >= index.states:
        b = int(target.argmax())
        raise ModelError(f"branch {b} leads to state {target[b]}; there are {index.states} states")
    weights = _values(parts["branch-to-probability.bin"], index.probability, "branch-to-probability.bin")
    prob, notes = checked_rows(choice_to_branch, weights, TEXT_DIGITS, name_of, place.renormalize)
    rewards = {}
    for key, (reward, kinds, numbers) in index.rewards.items():
        columns: dict[str, Any] = dict.fromkeys(_KINDS)
        for kind in kinds:
            member = f"annotations/rewards/{key}/{kind}/values.bin"
            if member in parts:
                columns[kind] = _values(parts[member], numbers, member)
        rewards[reward] = compact(choice_to_branch, **columns)
    labels = {
        label: _marked(parts.get(f"annotations/aps/{key}/states/values.bin"), index.states)
        for key, label in index.labels.items()
    }
    initial = _marked(parts.get("state-is-initial.bin"), index.states)
    if len(initial) != index.initial:
        raise ModelError(f"{len(initial)} states are marked as initial; {INDEX} says {index.initial}")
    actions, action_names = _actions(parts, index)
    variables, untold = read_valuations(index.valuations, parts, index.states)
    return Description(
        state_to_choice,
        choice_to_branch,
        target.astype(np.int32),
        prob,
        rewards=rewards,
        labels=labels,
        start=uniform(initial, index.states),
        actions=actions,
        action_names=action_names,
        notes=(*notes, *untold),
        variables=variables,
    )


def write(description: Description, place: Place) -> None:
    """Write a UMB file; compressed ones take longer and a fraction of the space."""
    with packing(place.path, place.packing) as file:
        write_members(file, _members(description))


# Reading.


def _parts_of(path: Path) -> tuple[_Index, dict[str, bytes]]:
    """The index, and the contents of those members that are read."""
    with Unpacked(path) as source:
        index = _index_of(source)
    sizes = index.sizes()
    parts: dict[str, bytes] = {}
    with Unpacked(path) as source:
        for name, size, content in members(source):
            if name in sizes:
                if size != sizes[name]:
                    raise ModelError(f"{name} has {size} bytes; by {INDEX} it must have {sizes[name]}")
                parts[name] = content()
            elif name == "actions/choices/strings.bin" and size <= LARGEST_STRINGS:
                parts[name] = content()
    return index, parts


def _index_of(source: Unpacked) -> _Index:
    for name, size, content in members(source):
        if name == INDEX:
            if size > LARGEST_INDEX:
                raise ModelError(f"{INDEX} has {size} bytes; at most {LARGEST_INDEX} are accepted")
            return _parsed(content())
    raise ModelError(f"the archive has no {INDEX}: not a UMB file")


def _parsed(text: bytes) -> _Index:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ModelError(f"{INDEX} has {twice!r} twice")
        return entries

    try:
        index = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except ModelError:
        raise
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{INDEX} is no JSON: {error}") from error
    version = _get(index, "format-version", int)
    if version != 1:
        raise ModelError(f"UMB of version {version}; version 1 is supported")
    system = _get(index, "transition-system", dict)
    _refuse_other_systems(system)
    counts = {
        name: _count(system, f"#{name}", default)
        for name, default in {
            "states": None, "choices": None, "branches": None, "initial-states": 0, "choice-actions": 0,
        }.items()
    }  # fmt: skip
    annotations = _get(index, "annotations", dict, {})
    rewards: dict[str, tuple[str, tuple[str, ...], _Numbers]] = {}
    for key, entry in _get(annotations, "rewards", dict, {}).items():
        name = _get(entry, "alias", str, key)
        if "probability-type" in entry:
            raise ModelError(f"reward {name!r} is random; only fixed values are supported")
        applies = _get(entry, "applies-to", list)
        if not applies or not all(kind in _KINDS for kind in applies):
            raise ModelError(f"reward {name!r} applies to {applies}; any of {', '.join(_KINDS)} is expected")
        numbers = _number_type(_get(entry, "type", dict), f"reward {name!r}")
        rewards[key] = name, tuple(dict.fromkeys(applies)), numbers
    labels = {
        key: _get(entry, "alias", str, key) for key, entry in _get(annotations, "aps", dict, {}).items()
    }
    _check_different("reward", [name for name, _, _ in rewards.values()])
    _check_different("label", list(labels.values()))
    return _Index(
        counts["states"],
        counts["choices"],
        counts["branches"],
        counts["initial-states"],
        counts["choice-actions"],
        _number_type(_get(system, "branch-probability-type", dict), "the probability of a branch"),
        rewards,
        labels,
        described_valuations(_get(_get(index, "valuations", dict, {}), "states", dict, {})),
    )


def _refuse_other_systems(system: Mapping[str, Any]) -> None:
    time, players = _get(system, "time", str), _get(system, "#players", int)
    if time != "discrete":
        raise ModelError(f"a model in continuous time ({time!r}); only discrete time is supported")
    if players not in (0, 1):
        raise ModelError(f"a game of {players} players; models of one player (MDP) or none are supported")
    if _get(system, "#observations", int, 0):
        raise ModelError("a model with observations: partial observability (POMDP) is not supported")
    if "branch-probability-type" not in system:
        raise ModelError("a model without probabilities (LTS), which is not supported")


def _number_type(kind: Mapping[str, Any], what: str) -> _Numbers:
    name = _get(kind, "type", str)
    if name.endswith("-interval"):
        raise ModelError(f"{what} is of type {name}: interval models are not supported, only single numbers")
    if name == "double" and _get(kind, "size", int, 64) == 64:
        return _Numbers(False, 8)
    bits = _get(kind, "size", int, 128)
    if name == "rational" and bits % 128 == 0 and 0 < bits <= 1 << 16:
        return _Numbers(True, bits // 8)
    raise ModelError(f"{what} is of type {dict(kind)}; double (64 bits) and rational are supported")


def _values(data: bytes, numbers: _Numbers, what: str) -> NDArray[np.float64]:
    if not numbers.rational:
        return np.frombuffer(data, "<f8").astype(np.float64)
    half = numbers.size // 2
    values = np.empty(len(data) // numbers.size)
    small = np.zeros(len(values), dtype=np.bool_)
    if half == 8:
        pairs = np.frombuffer(data, np.dtype([("top", "<i8"), ("bottom", "<u8")]))
        # Below 2^53 both are doubles, and their quotient is the nearest one.
        small = (np.abs(pairs["top"]) < 1 << 53) & (pairs["bottom"] < 1 << 53) & (pairs["bottom"] > 0)
        values[small] = pairs["top"][small] / pairs["bottom"][small]
    for i in np.flatnonzero(~small):
        at = int(i) * numbers.size
        top = int.from_bytes(data[at : at + half], "little", signed=True)
        bottom = int.from_bytes(data[at + half : at + 2 * half], "little")
        try:
            values[i] = float(Fraction(top, bottom))
        except (ZeroDivisionError, OverflowError):
            raise ModelError(f"{what}: entry {i} is {top}/{bottom}, which is not finite") from None
    return values


def _offsets(parts: Mapping[str, bytes], name: str, rows: int, size: int) -> NDArray[np.int64]:
    if name not in parts:
        if rows != size:
            raise ModelError(f"{name} is missing, but {rows} rows for {size} entries are not one each")
        return np.arange(rows + 1)
    offsets = np.frombuffer(parts[name], "<u8")
    if offsets.max() > size:
        raise ModelError(f"{name} has the entry {offsets.max()}; there are {size} entries to point to")
    return offsets.astype(np.int64)


def _marked(bits: bytes | None, size: int) -> NDArray[np.int64]:
    if bits is None:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), count=size, bitorder="little"))


def _actions(parts: Mapping[str, bytes], index: _Index) -> tuple[NDArray[np.int32] | None, tuple[str, ...]]:
    if not index.actions:
        return None, ()
    values = np.zeros(index.choices, dtype=np.int32)
    if "actions/choices/values.bin" in parts:
        numbers = np.frombuffer(parts["actions/choices/values.bin"], "<u4")
        if numbers.max() >= min(index.actions, MAX_STATES):
            raise ModelError(f"an action {numbers.max()}; {INDEX} says {index.actions} actions")
        values = numbers.astype(np.int32)
    if "actions/choices/string-mapping.bin" not in parts:
        return values, ()
    strings = parts.get("actions/choices/strings.bin")
    if strings is None:
        raise ModelError("actions/choices/strings.bin is missing, or too large, beside string-mapping.bin")
    bounds = np.frombuffer(parts["actions/choices/string-mapping.bin"], "<u8")
    if bounds.max() > len(strings) or (bounds[1:] < bounds[:-1]).any():
        raise ModelError("actions/choices/string-mapping.bin does not fit strings.bin")
    try:
        edges = bounds.tolist()
        names = [strings[a:b].decode("utf-8") for a, b in pairwise(edges)]
    except UnicodeDecodeError as error:
        raise ModelError(f"actions/choices/strings.bin: {error}") from None
    return values, tuple(names)


def _get(entry: Any, key: str, kind: type, default: Any = None) -> Any:
    if not isinstance(entry, dict):
        raise ModelError(f"{INDEX} has {str(entry)[:60]!r} where an object with {key!r} is expected")
    value = entry.get(key, default)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ModelError(
            f"{INDEX}: {key!r} is {str(value)[:60]!r}; a value of type {kind.__name__} is expected"
        )
    return value


def _count(system: Mapping[str, Any], key: str, default: int | None) -> int:
    value = int(_get(system, key, int, default))
    most = MAX_STATES if key == "#states" else 1 << 48
    if not int(default is None) <= value <= most:
        raise ModelError(
            f"{INDEX}: {key} is {str(value)[:60]}; {int(default is None)} to {most} are accepted"
        )
    return value


def _check_different(what: str, names: list[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ModelError(f"two {what}s have the name {twice!r}")


# Writing.


def _members(description: Description) -> dict[str, Any]:
    parts: dict[str, Any] = {
        INDEX: b"",  # first in the archive
        "state-to-choices.bin": description.state_to_choice.astype("<u8"),
        "choice-to-branches.bin": description.choice_to_branch.astype("<u8"),
        "branch-to-target.bin": description.branch_target.astype("<u8"),
        "branch-to-probability.bin": description.branch_prob.astype("<f8"),
    }
    initial, _ = description.initial_states()
    if initial.size:
        parts["state-is-initial.bin"] = _bits(initial, description.n_states)
    if description.actions is not None:
        parts["actions/choices/values.bin"] = description.actions.astype("<u4")
        if description.action_names:
            names = [name.encode("utf-8") for name in description.action_names]
            bounds = np.cumsum([0, *map(len, names)])
            parts["actions/choices/string-mapping.bin"] = bounds.astype("<u8")
            parts["actions/choices/strings.bin"] = b"".join(names)
    rewards: dict[str, Any] = {}
    for name, reward in description.stored_rewards().items():
        key = _identifier(name, rewards)
        values = {kind: getattr(reward, kind) for kind in _KINDS if getattr(reward, kind) is not None}
        rewards[key] = {
            "alias": name,
            "applies-to": list(values) or ["choices"],
            "type": {"type": "double", "size": 64},
        }
        for kind, part in values.items():
            parts[f"annotations/rewards/{key}/{kind}/values.bin"] = part.astype("<f8")
    labels: dict[str, Any] = {}
    for name, states in description.labels.items():
        key = _identifier(name, labels)
        labels[key] = {"alias": name, "applies-to": ["states"], "type": {"type": "bool", "size": 1}}
        parts[f"annotations/aps/{key}/states/values.bin"] = _bits(states, description.n_states)
    index: dict[str, Any] = {
        "format-version": 1,
        "format-revision": 0,
        "file-data": {"tool": "fastcmdp"},
        "transition-system": {
            "time": "discrete",
            "#players": 1,
            "#states": description.n_states,
            "#initial-states": len(initial),
            "#choices": description.n_choices,
            "#choice-actions": _action_count(description),
            "#branches": description.n_branches,
            "#branch-actions": 0,
            "#observations": 0,
            "branch-probability-type": {"type": "double", "size": 64},
        },
        "annotations": {"rewards": rewards, "aps": labels},
    }
    if description.variables:
        index["valuations"], parts[VALUATIONS] = written_valuations(
            description.variables, description.n_states
        )
    parts[INDEX] = json.dumps(index, indent=2).encode()
    return parts


def _action_count(description: Description) -> int:
    if description.actions is None:
        return 0
    return len(description.action_names) or int(description.actions.max()) + 1


def _bits(states: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
    marks = np.zeros(64 * -(-size // 64), dtype=np.uint8)
    marks[states] = 1
    return np.packbits(marks, bitorder="little")


def _identifier(name: str, taken: Mapping[str, Any]) -> str:
    """A name in the letters that a UMB identifier may have; other bytes as their hexadecimal number."""
    safe = re.sub(rb"[^0-9a-z_-]", lambda match: b"0x%02x" % match[0][0], name.encode("utf-8")).decode()
    safe = safe[:LONGEST_ID] or "0x"
    numbered, i = safe, 1
    while numbered in taken:
        i += 1
        numbered = f"{safe}-{i}"
    return numbered
