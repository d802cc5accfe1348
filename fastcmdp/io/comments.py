"""Values of the states' variables in the comments of DRN files: `//[!done & x=3]` after the line of each state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.io.text import Ints, Lines, Vocabulary
from fastcmdp.io.words import formatted

EMPTY = "?"
_OPENING = int.from_bytes(b"//[", "little")
_MASK = np.uint64((1 << 24) - 1)


class Comments:
    """The comments of a file that tell values of variables, taken piece by piece."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []
        self._states = 0

    def add(self, lines: Lines) -> None:
        """Take those of a piece, before its comments are dropped."""
        first = lines.begin[:-1][lines.counts > 0]
        starts = lines.starts[first]
        starts = starts[(lines.words[starts] & _MASK) == _OPENING]
        if starts.size == 0:
            return
        ends = lines.breaks[np.searchsorted(lines.breaks, starts)]
        inside = np.zeros(len(lines.data) + 1, dtype=np.int8)
        inside[starts + 2] = 1
        inside[np.minimum(ends + 1, len(lines.data))] -= 1
        text = lines.data[np.cumsum(inside[:-1], dtype=np.int8).view(np.bool_)]
        _mark_empty(text)
        text[np.isin(text, np.frombuffer(b"[&]", np.uint8))] = ord(" ")
        self._texts.append(text.tobytes())
        self._states += len(starts)

    def variables(self, n_states: int) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
        """The values by variable, and a note if they are left out."""
        if not self._states:
            return {}, ()
        loss = "values of the states' variables, in comments, are left out"
        if self._states != n_states:
            return {}, (f"{loss}: there are {self._states} for {n_states} states",)
        try:
            text = b"".join(part if part.endswith(b"\n") else part + b"\n" for part in self._texts)
            values = _parsed(text)
        except ModelError as error:
            return {}, (f"{loss}: of these, {error}",)
        nameless = values.pop("", None) is not None
        return values, (f"{loss}: one that is true in all states has no name here",) * nameless


def valuation_comments(
    variables: Mapping[str, NDArray[Any]], words: Sequence[str], first: int, last: int
) -> list[str]:
    """The comments of states first..last-1, each with the end of its line; empty where there are no variables."""
    if not variables:
        return [""] * (last - first)
    columns = []
    for word, values in zip(words, variables.values(), strict=True):
        part = values[first:last]
        if part.dtype == np.bool_:
            columns.append([word if value else f"!{word}" for value in part.tolist()])
        else:
            columns.append([f"{word}={text}" for text in value_texts(part)])
    return ["//[" + "\t& ".join(row) + "]\n" for row in zip(*columns, strict=True)]


def _mark_empty(text: NDArray[np.uint8]) -> None:
    """Put a mark into empty places between separators: Storm leaves out the names of variables that are true."""
    places = np.flatnonzero(np.isin(text, np.frombuffer(b"[&]", np.uint8)))
    filled = np.append(0, np.cumsum(text > ord(" ")))
    left, right = places[:-1], places[1:]
    empty = (filled[right] == filled[left + 1]) & (right > left + 1) & (text[left] != ord("]"))
    text[left[empty] + 1] = ord(EMPTY)


def _parsed(text: bytes) -> dict[str, NDArray[Any]]:
    lines = Lines(text, 1)
    width = int(lines.counts[0])
    odd = np.flatnonzero(lines.counts != width)
    if not width or odd.size:
        raise ModelError(
            f"number {int(odd[0]) + 1 if odd.size else 1} has another number of variables than the first"
        )
    columns: dict[str, NDArray[Any]] = {}
    for starts, ends in lines.columns(width):
        name, values = _column(lines, starts, ends)
        if name in columns and name:
            raise ModelError(f"the variable {name!r} stands twice")
        columns[name] = values
    return columns


def _column(lines: Lines, starts: Ints, ends: Ints) -> tuple[str, NDArray[Any]]:
    """The name and the values of a variable in words `name=3`, or `name` and `!name`."""
    equals = lines.find("=", starts, ends)
    negated = lines.data[starts] == ord("!")
    names = Vocabulary()
    filled = lines.data[starts] != ord(EMPTY)
    lines.names((starts + negated)[filled], equals[filled], names)
    whole = (equals == ends).all()
    if not names.names:
        return "", filled
    if len(names.names) != 1 or not (whole or ((equals < ends) & filled).all()):
        raise ModelError(f"{lines.text(int(starts[0]), int(ends[0]))} does not recur in each")
    if whole:
        return names.names[0], ~negated
    return names.names[0], values_of(lines, equals + 1, ends)


def values_of(lines: Lines, starts: Ints, ends: Ints) -> NDArray[Any]:
    """Words as truth values where all are true or false, as integers where all are written so, else as numbers."""
    if starts.size and lines.data[starts[0]] in b"tf":
        names = Vocabulary()
        codes = lines.names(starts, ends, names)
        if set(names.names) <= {"true", "false"}:
            return np.array([name == "true" for name in names.names])[codes]
    values, _ = lines.numbers(starts, ends, "a value")
    points = np.minimum.reduce([lines.find(mark, starts, ends) for mark in ".eE/"])
    exact = (points == ends).all() and (np.abs(values) < 1 << 53).all()
    return values.astype(np.int64) if exact else values


def value_texts(values: NDArray[Any]) -> list[str]:
    """Numbers as text that tells integers from others."""
    if values.dtype.kind == "i":
        return list(map(str, values.tolist()))
    return [text if set(text) & set(".en") else f"{text}.0" for text in formatted(values)]
