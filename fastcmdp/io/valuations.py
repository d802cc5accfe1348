"""Valuations of states in UMB files: variables packed into bits, described in the index.

The values of a state stand one after the other in a little-endian number of so many bits, the first variable in the
lowest ones. Truth values, integers of up to 64 bits with an offset, doubles and rationals of 128 bits are read; of
other variables (text, optional ones, several classes) a note tells that they are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError

VALUATIONS = "valuations/states/valuations.bin"
MOST_BITS = 1 << 16  # of a state
_SIZES = {"bool": 1, "int": 64, "uint": 64, "double": 64, "rational": 128, "string": 64}


class _Variable(NamedTuple):
    """A variable: its name, the first of its bits, their number, its type and what is added to its numbers."""

    name: str
    first: int
    size: int
    kind: str
    offset: int


class Valuations(NamedTuple):
    """What the index says of the states' variables: those that are read, the bits of a state, notes on others."""

    variables: tuple[_Variable, ...] = ()
    bits: int = 0
    notes: tuple[str, ...] = ()


def described_valuations(states: Mapping[str, Any]) -> Valuations:
    """The variables in the part of an index about states; what makes no sense is left out, with a note."""
    classes = states.get("classes")
    if not classes:
        return Valuations()
    entries = (
        classes[0].get("variables") if isinstance(classes, list) and isinstance(classes[0], dict) else None
    )
    if not isinstance(entries, list) or len(classes) > 1:
        return Valuations(notes=("valuations of states of several classes are left out",))
    variables: list[_Variable] = []
    notes: list[str] = []
    bits = 0
    for entry in entries:
        if not isinstance(entry, dict):
            return Valuations(notes=("valuations of states that cannot be read are left out",))
        kind = entry.get("type")
        kind = kind if isinstance(kind, dict) else {}
        size = entry.get("padding", kind.get("size", _SIZES.get(str(kind.get("type")))))
        if not isinstance(size, int) or not 0 < size <= MOST_BITS or bits > MOST_BITS:
            return Valuations(notes=("valuations of states that cannot be read are left out",))
        optional = bool(entry.get("is-optional"))
        if "padding" not in entry:
            variable = _Variable(
                str(entry.get("name")), bits, size, str(kind.get("type")), entry.get("offset", 0)
            )
            if optional or not _is_read(variable) or variable.name in (known.name for known in variables):
                notes.append(f"the variable {variable.name!r} of states is left out: only numbers are read")
            else:
                variables.append(variable)
        bits += size + optional
    if bits % 8:
        return Valuations(notes=("valuations of states that are no whole bytes are left out",))
    return Valuations(tuple(variables), bits, tuple(notes))


def read_valuations(
    valuations: Valuations, parts: Mapping[str, bytes], n_states: int
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """The variables of the states, and notes on what is left out."""
    if VALUATIONS not in parts:
        return {}, valuations.notes
    rows = np.frombuffer(parts[VALUATIONS], np.uint8).reshape(n_states, valuations.bits // 8)
    return {variable.name: _values(rows, variable) for variable in valuations.variables}, valuations.notes


def written_valuations(
    variables: Mapping[str, NDArray[Any]], n_states: int
) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """The index's part about variables, each in whole bytes, and their values."""
    entries: list[dict[str, Any]] = []
    columns = []
    for name, values in variables.items():
        kind = {"b": "bool", "i": "int", "f": "double"}[values.dtype.kind]
        entries.append({"name": name, "type": {"type": kind, "size": _SIZES[kind]}})
        entries += [{"padding": 7}] if kind == "bool" else []
        little = values.astype(values.dtype.newbyteorder("<"))
        columns.append(little.view(np.uint8).reshape(n_states, values.dtype.itemsize))
    description = {"states": {"unique": False, "classes": [{"variables": entries}]}}
    return description, np.ascontiguousarray(np.hstack(columns))


def _is_read(variable: _Variable) -> bool:
    if not isinstance(variable.offset, int) or not abs(variable.offset) < 1 << 62:
        return False
    if variable.kind in ("double", "rational"):
        return variable.size == _SIZES[variable.kind]
    return variable.kind in ("bool", "int", "uint") and variable.size <= 64


def _values(rows: NDArray[np.uint8], variable: _Variable) -> NDArray[Any]:
    kind, size = variable.kind, variable.size
    if kind == "bool":
        flags: NDArray[np.bool_] = _bits(rows, variable.first, size) != 0
        return flags
    if kind == "double":
        doubles: NDArray[np.float64] = _bits(rows, variable.first, 64).view(np.float64)
        return doubles
    if kind == "rational":
        top, bottom = _bits(rows, variable.first, 64).view(np.int64), _bits(rows, variable.first + 64, 64)
        if not bottom.all():
            raise ModelError(
                f"the variable {variable.name!r} of state {int(bottom.argmin())} is divided by zero"
            )
        ratios: NDArray[np.float64] = top / bottom
        return ratios
    numbers = _bits(rows, variable.first, size).view(np.int64)
    if kind == "int":
        numbers = numbers << (64 - size) >> (64 - size)  # the sign is the highest bit
    unsigned = kind == "uint" and size == 64
    bad = np.flatnonzero((unsigned & (numbers < 0)) | (abs(numbers >> 1) >= 1 << 61) * bool(variable.offset))
    if bad.size:
        raise ModelError(f"the variable {variable.name!r} of state {bad[0]} is beyond 64 bits")
    shifted: NDArray[np.int64] = numbers + variable.offset
    return shifted


def _bits(rows: NDArray[np.uint8], first: int, size: int) -> NDArray[np.uint64]:
    """So many bits of each row, at most 64, as a number."""
    begin, shift = divmod(first, 8)
    end = -(-(first + size) // 8)
    words = np.zeros((len(rows), 16), np.uint8)
    words[:, : end - begin] = rows[:, begin:end]
    low, high = words.view("<u8").T
    number = low >> np.uint64(shift)
    if shift:
        number |= high << np.uint64(64 - shift)
    return number & np.uint64((1 << size) - 1)
