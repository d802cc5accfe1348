"""The entries of PRISM's `.tra` and `.trew` files, in the plain and the rows variant, and the rows of a model."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.files import Unpacked
from fastcmdp.io.description import checked_rows
from fastcmdp.io.text import Ints, Lines, Vocabulary, pieces
from fastcmdp.io.words import OTHER_KINDS, numbers_of

LONGEST_HEAD = 1 << 20
MOST_OFF = 0.1  # of the sum of a chain's row; beyond, its numbers are rates
_NAME = re.compile(r'#\s*Reward structure:?\s*"(.*)"')
_TYPE = re.compile(r"#\s*Transitions\s*\((\w+)\)")


@dataclass
class TextRows:
    """Entries of a `.tra` or `.trew`: parallel lists of arrays, one for each piece of the file."""

    states: list[NDArray[np.int32]] = field(default_factory=list)
    choices: list[NDArray[np.int32]] = field(default_factory=list)  # numbers within the state
    targets: list[NDArray[np.int32]] = field(default_factory=list)
    values: list[NDArray[np.float64]] = field(default_factory=list)
    actions: list[NDArray[np.int32]] = field(default_factory=list)  # codes; -1: none
    lines: list[Ints] = field(default_factory=list)
    names: Vocabulary = field(default_factory=Vocabulary)
    digits: int = 0
    last: tuple[int, int] = (-1, -1)  # the last state and choice of the rows variant

    def add(
        self,
        states: Ints,
        choices: Ints,
        targets: Ints,
        values: NDArray[np.float64],
        actions: Ints,
        lines: Ints,
    ) -> None:
        self.states.append(states.astype(np.int32))
        self.choices.append(choices.astype(np.int32))
        self.targets.append(targets.astype(np.int32))
        self.values.append(values)
        self.actions.append(actions.astype(np.int32))
        self.lines.append(lines)

    def __len__(self) -> int:
        return sum(map(len, self.values))


@dataclass(frozen=True)
class Head:
    """The head of a file: the name or the type in its comments, and the numbers or the word of its first line."""

    reward: str | None = None
    counts: tuple[int, ...] = ()
    word: str = ""
    lines: int = 0
    end: int = 0  # in bytes
    variant: str = "plain"  # or "rows"


class Table(NamedTuple):
    """The rows of a model."""

    state_to_choice: Ints
    choice_to_branch: Ints
    targets: NDArray[np.int32]
    prob: NDArray[np.float64]


def entries(path: Path, n_states: int | None = None, chain: bool = False) -> tuple[Head, TextRows]:
    """The head and all entries of a `.tra`, or with ``n_states`` of a `.trew`."""
    with Unpacked(path) as file:
        head = head_of(file.read(LONGEST_HEAD), n_states)
        if n_states is None:
            chain = len(head.counts) == 2 or head.word == "dtmc"
        file.seek(head.end)
        rows = TextRows()
        for lines in pieces(file, head.lines + 1):
            lines.drop_comments(b"#")
            (_add_rows if head.variant == "rows" else _add_plain)(lines, rows, chain)
    return head, rows


def head_of(text: bytes, n_states: int | None) -> Head:
    """The head of a `.tra`, or with ``n_states`` of a `.srew` or `.trew`, which may have none."""
    reward, word, number, at = None, "", 0, 0
    while at < len(text):
        end = text.find(b"\n", at) + 1 or len(text)
        line = text[at:end].decode("utf-8", "replace").strip()
        number += 1
        if line and not line.startswith("#"):
            break
        if match := _NAME.match(line):
            reward = match[1]
        if match := _TYPE.match(line):
            word = match[1].lower()
            _refuse_other_kinds(word, number)
        at = end
    else:
        raise ModelError("the file is empty")
    words = line.split()
    numeric = all(re.fullmatch(r"\d{1,15}", word) for word in words)
    if n_states is not None and not (numeric and int(words[0]) == n_states):
        end, number, words = at, number - 1, []  # no state has that number, so an entry it is
    elif n_states is None and line.lower() not in ("mdp", "dtmc"):
        _refuse_other_kinds(line.lower(), number)
        if numeric and len(words) == 4:
            raise ModelError("a head of four numbers: partial observability (POMDP) is not supported")
        if not numeric or len(words) not in (2, 3):
            raise ModelError(
                f"line {number}: {line[:60]!r} where 'STATES CHOICES TRANSITIONS', 'STATES TRANSITIONS', 'mdp' "
                "or 'dtmc' is expected"
            )
    following = text[end:].split(b"\n", 1)[0].split()
    variant = "rows" if len(following) == 1 or (following and b":" in following[1]) else "plain"
    if words and not numeric:
        return Head(reward, (), line.lower(), number, end, variant)
    return Head(reward, tuple(map(int, words)), word, number, end, variant)


def _refuse_other_kinds(word: str, number: int) -> None:
    if word in OTHER_KINDS:
        raise ModelError(f"line {number}: a model of type {word.upper()}: {OTHER_KINDS[word]}")


def _add_plain(lines: Lines, rows: TextRows, chain: bool) -> None:
    """Lines `s k t value [action]`, or `s t value` of a chain."""
    filled = np.flatnonzero(lines.counts)
    width = 3 if chain else 4
    counts = lines.counts[filled]
    bad = np.flatnonzero((counts != width) & (counts != width + 1))
    if bad.size:
        at, end = int(lines.starts[lines.begin[filled[bad[0]]]]), int(lines.breaks[filled[bad[0]]])
        asked = "s t value" if chain else "s k t value [action]"
        raise lines.error(at, f"{lines.text(at, end)} where '{asked}' is expected")
    if not filled.size:
        return
    first = lines.begin[filled]
    same = counts[0] if len(filled) == len(lines.counts) and (counts == counts[0]).all() else 0
    columns = lines.columns(same) if same else [lines.spans(first + i) for i in range(width)]
    values, digits = lines.numbers(*columns[width - 1], "the value")
    rows.digits = max(rows.digits, digits)
    codes = np.full(len(filled), -1)
    named = counts > width
    codes[named] = lines.names(*lines.spans(first[named] + width), rows.names)
    rows.add(
        lines.integers(*columns[0], "a state"),
        np.zeros(len(filled), dtype=np.int64)
        if chain
        else lines.integers(*columns[1], "the number of a choice"),
        lines.integers(*columns[width - 2], "a target"),
        values,
        codes,
        lines.first_line + filled,
    )


def _add_rows(lines: Lines, rows: TextRows, chain: bool) -> None:
    """Lines `s value:t value:t ... [action]`, one a choice, choices in their order."""
    filled = np.flatnonzero(lines.counts)
    if not filled.size:
        return
    first, last = lines.begin[filled], lines.begin[filled + 1] - 1
    states = lines.integers(*lines.spans(first), "a state")
    starts, ends = lines.spans(last)
    named = (lines.find(":", starts, ends) == ends) & (last > first)
    codes = np.full(len(filled), -1)
    codes[named] = lines.names(*lines.spans(last[named]), rows.names)
    counts = last - first - named
    before = np.cumsum(counts) - counts
    starts, ends = lines.spans(np.repeat(first + 1 - before, counts) + np.arange(counts.sum()))
    colons = lines.find(":", starts, ends)
    bad = np.flatnonzero(colons == ends)
    if bad.size:
        at, end = int(starts[bad[0]]), int(ends[bad[0]])
        raise lines.error(at, f"{lines.text(at, end)} where 'value:target' is expected")
    values, digits = lines.numbers(starts, colons, "the value")
    rows.digits = max(rows.digits, digits)
    # The number of a choice counts the lines of its state so far; pieces of a file may part these.
    begin = np.flatnonzero(np.append(True, np.diff(states) != 0))
    choices = np.arange(len(states)) - np.repeat(begin, np.diff(np.append(begin, len(states))))
    if states[0] == rows.last[0]:
        choices[: int(np.append(begin, len(states))[1])] += rows.last[1] + 1
    rows.last = int(states[-1]), int(choices[-1])
    if chain and choices.any():
        at = int(lines.starts[first[choices.argmax()]])
        raise lines.error(at, "a second line for a state of a chain")
    rows.add(
        np.repeat(states, counts),
        np.repeat(choices, counts),
        lines.integers(colons + 1, ends, "a target"),
        values,
        np.repeat(codes, counts),
        np.repeat(lines.first_line + filled, counts),
    )


def model_of(
    head: Head, rows: TextRows, renormalize: bool
) -> tuple[Table, NDArray[np.int32] | None, tuple[str, ...], tuple[str, ...]]:
    """The rows, the actions, their names, and notes."""
    if not len(rows):
        raise ModelError("the file has no transitions")
    if head.counts and len(rows) != head.counts[-1]:
        raise ModelError(f"the file has {len(rows)} transitions; its head says {head.counts[-1]}")
    states, numbers, targets, values, codes, lines = _in_order(rows)
    n_states = head.counts[0] if head.counts else int(max(states.max(), targets.max())) + 1
    for ends in (states, targets):
        beyond = np.flatnonzero(ends >= n_states)
        if beyond.size:
            raise ModelError(
                f"line {lines[beyond[0]]}: state {ends[beyond[0]]}; there are {n_states}, numbered from 0"
            )
    first = np.flatnonzero(np.append(True, (np.diff(states) != 0) | (np.diff(numbers) != 0)))
    state_to_choice = _state_rows(states[first], numbers[first], lines[first], n_states)
    if len(head.counts) == 3 and len(first) != head.counts[1]:
        raise ModelError(f"the file has {len(first)} choices; its head says {head.counts[1]}")
    choice_to_branch = np.append(first, len(states))
    actions = codes[first]
    mixed = np.flatnonzero(codes != np.repeat(actions, np.diff(choice_to_branch)))
    if mixed.size:
        raise ModelError(f"line {lines[mixed[0]]}: another action than in the first line of this choice")
    if len(head.counts) == 2 and head.word != "dtmc":
        _refuse_rates(choice_to_branch, values, lines)
    prob, notes = checked_rows(
        choice_to_branch, values, rows.digits, lambda q: f"the choice in line {lines[first[q]]}", renormalize
    )
    names = rows.names.names
    if (actions < 0).any():
        actions, names = np.where(actions < 0, len(names), actions), [*names, ""]
    return Table(state_to_choice, choice_to_branch, targets, prob), *numbers_of(actions, names, ""), notes


def _in_order(rows: TextRows) -> list[NDArray[Any]]:
    """States, choices, targets, values, actions and lines of all entries, by state and choice."""
    columns = rows.states, rows.choices, rows.targets, rows.values, rows.actions, rows.lines
    entries = [np.concatenate(column) for column in columns]
    steps = np.diff(entries[0]), np.diff(entries[1])
    if ((steps[0] > 0) | ((steps[0] == 0) & (steps[1] >= 0))).all():
        return entries
    order = np.lexsort((entries[1], entries[0]))
    return [column[order] for column in entries]


def _state_rows(owners: Ints, numbers: Ints, lines: Ints, n_states: int) -> Ints:
    """Where the choices of each state begin, from the states and the numbers of all choices."""
    heads = np.flatnonzero(np.append(True, np.diff(owners) != 0))
    if len(heads) < n_states:
        present = owners[heads]
        missing = int(np.append(np.flatnonzero(present != np.arange(len(present))), len(present))[0])
        raise ModelError(
            f"state {missing} has no choice (a deadlock): give it a loop, as PRISM does unless told not to"
        )
    state_to_choice = np.append(heads, len(owners))
    expected = np.arange(len(owners)) - np.repeat(heads, np.diff(state_to_choice))
    wrong = np.flatnonzero(numbers != expected)
    if wrong.size:
        q = int(wrong[0])
        raise ModelError(
            f"line {lines[q]}: choice {numbers[q]} of state {owners[q]}, which has no choice {expected[q]}"
        )
    return state_to_choice


def _refuse_rates(offsets: Ints, values: NDArray[np.float64], lines: Ints) -> None:
    """A ModelError where the numbers of a chain whose file does not tell its type can be no probabilities."""
    sums = np.add.reduceat(values, offsets[:-1])
    rates = np.flatnonzero(~(np.abs(sums - 1.0) <= MOST_OFF))
    if rates.size and (values >= 0.0).all():
        raise ModelError(
            f"line {lines[offsets[rates[0]]]}: the numbers of this state sum to {sums[rates[0]]}, as rates do and "
            f"probabilities do not: {OTHER_KINDS['ctmc']}. (The word dtmc in place of the head says that it is none.)"
        )
