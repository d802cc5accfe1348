"""What goes with a `.tra`: labels, rewards of states and of branches, values of the states' variables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.files import Unpacked
from fastcmdp.io.comments import values_of
from fastcmdp.io.description import grouped
from fastcmdp.io.prism_rows import LONGEST_HEAD, Table, entries, head_of
from fastcmdp.io.text import Ints, Vocabulary, pieces
from fastcmdp.io.words import ALIASES, parsed_aliases

_DECLARED = re.compile(r'\s*(\d+)="([^"]*)"')


def labels_in(path: Path, n_states: int) -> tuple[dict[str, Ints], Any]:
    """The states of each label of a `.lab`, and what a comment there says of names."""
    with Unpacked(path) as file:
        text = file.read(LONGEST_HEAD)
        names, vocabulary, at, comment = _declared(text)
        file.seek(at)
        states, codes = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for lines in pieces(file, 1 + text.count(b"\n", 0, at)):
            lines.drop_comments(b"#")
            lines.data[lines.data == ord(":")] = ord(" ")
            lines.cut()
            filled = np.flatnonzero(lines.counts)
            first = lines.begin[filled]
            owners = lines.integers(*lines.spans(first), "a state")
            counts = lines.counts[filled] - 1
            beyond = np.flatnonzero(owners >= n_states)
            if beyond.size:
                at = int(lines.starts[first[beyond[0]]])
                raise lines.error(at, f"state {owners[beyond[0]]}; there are {n_states}, numbered from 0")
            is_label = np.ones(len(lines.starts), dtype=np.bool_)
            is_label[first] = False
            spans = lines.spans(np.flatnonzero(is_label))
            numbers = (
                lines.integers(*spans, "a label") if vocabulary is None else lines.names(*spans, vocabulary)
            )
            unknown = np.flatnonzero(numbers >= len(names))
            if unknown.size:
                raise lines.error(int(spans[0][unknown[0]]), "a label that is not declared")
            states.append(np.repeat(owners, counts))
            codes.append(numbers)
    return grouped(np.concatenate(states), np.concatenate(codes), names), comment


def _declared(text: bytes) -> tuple[list[str], Vocabulary | None, int, Any]:
    """Labels declared in a `.lab`; for the older style of Storm their vocabulary; the end of that; comments."""
    at, comment = 0, None
    while at < len(text):
        end = text.find(b"\n", at) + 1 or len(text)
        line = text[at:end].decode("utf-8", "replace").strip()
        if line.startswith("# " + ALIASES):
            comment = parsed_aliases(line.removeprefix("# "))
        if line == "#DECLARATION":
            match = re.compile(rb"\s#END[ \t]*\r?(?:\n|\Z)").search(text, end - 1)
            if match is None:
                raise ModelError("'#DECLARATION' without '#END'")
            vocabulary = Vocabulary()
            for word in text[end : match.start()].decode("utf-8", "replace").split():
                vocabulary.code(word)
            return vocabulary.names, vocabulary, match.end(), comment
        if line and not line.startswith("#"):
            pairs = _DECLARED.findall(line)
            if not pairs or _DECLARED.sub("", line).strip():
                raise ModelError(
                    f'{line[:60]!r} where declarations such as 0="init" 1="deadlock" are expected'
                )
            names = [name for _, name in pairs]
            if [int(number) for number, _ in pairs] != list(range(len(pairs))) or len(set(names)) < len(
                names
            ):
                raise ModelError("labels must be numbered from 0 and differ")
            return names, None, end, comment
        at = end
    raise ModelError("the file has no declaration of labels")


def variables_in(path: Path, n_states: int) -> dict[str, NDArray[Any]]:
    """The values of the variables of a `.sta`: `(x,done)`, then a line `0:(3,true)` for each state."""
    with Unpacked(path) as file:
        text = file.read(LONGEST_HEAD)
        head = text.split(b"\n", 1)[0]
        names = head.decode("utf-8", "replace").strip().removeprefix("(").removesuffix(")").split(",")
        if not head.strip().startswith(b"(") or len(set(names)) < len(names):
            raise ModelError("the first line must name the variables, (x,y)")
        file.seek(min(len(head) + 1, len(text)))
        columns: list[list[NDArray[Any]]] = [[] for _ in names]
        count = 0
        for lines in pieces(file, 2):
            lines.data[np.isin(lines.data, np.frombuffer(b"():,", np.uint8))] = ord(" ")
            lines.cut()
            filled = np.flatnonzero(lines.counts)
            bad = filled[lines.counts[filled] != 1 + len(names)]
            if bad.size:
                raise lines.error(
                    int(lines.starts[lines.begin[bad[0]]]), f"a state and {len(names)} values are expected"
                )
            first = lines.begin[filled]
            states = lines.integers(*lines.spans(first), "a state")
            if not np.array_equal(states, np.arange(count, count + len(states))):
                raise lines.error(
                    int(lines.starts[first[0]]), f"states must be numbered 0, 1, ... to {n_states - 1}"
                )
            count += len(states)
            for i, column in enumerate(columns, start=1):
                column.append(values_of(lines, *lines.spans(first + i)))
    if count != n_states:
        raise ModelError(f"the file has {count} states; the model has {n_states}")
    return {name: np.concatenate(parts) for name, parts in zip(names, columns, strict=True)}


def state_reward(path: Path, n_states: int) -> tuple[str | None, NDArray[np.float64]]:
    values = np.zeros(n_states)
    with Unpacked(path) as file:
        head = head_of(file.read(LONGEST_HEAD), n_states)
        file.seek(head.end)
        count = 0
        for lines in pieces(file, head.lines + 1):
            lines.drop_comments(b"#")
            filled = np.flatnonzero(lines.counts)
            bad = filled[lines.counts[filled] != 2]
            if bad.size:
                raise lines.error(int(lines.starts[lines.begin[bad[0]]]), "this line must be 's reward'")
            states = lines.integers(*lines.spans(lines.begin[filled]), "a state")
            beyond = np.flatnonzero(states >= n_states)
            if beyond.size:
                at = int(lines.starts[lines.begin[filled[beyond[0]]]])
                raise lines.error(at, f"state {states[beyond[0]]}; there are {n_states}, numbered from 0")
            values[states] = lines.numbers(*lines.spans(lines.begin[filled] + 1), "a reward")[0]
            count += len(filled)
    if head.counts and count != head.counts[-1]:
        raise ModelError(f"the file has {count} rewards; its head says {head.counts[-1]}")
    return head.reward, values


def branch_reward(path: Path, model: Table) -> tuple[str | None, NDArray[np.float64]]:
    n_states = len(model.state_to_choice) - 1
    n_choices = len(model.choice_to_branch) - 1
    values = np.zeros(len(model.targets))
    # A chain's file lacks the column of choices; a model with one choice a state may be one.
    chain = n_choices == n_states and _columns(path, n_states) in (0, 3)
    head, rows = entries(path, n_states, chain)
    if head.counts and len(rows) != head.counts[-1]:
        raise ModelError(f"the file has {len(rows)} rewards; its head says {head.counts[-1]}")
    if not len(rows):
        return head.reward, values
    states, numbers, targets = _joined(rows.states), _joined(rows.choices), _joined(rows.targets)
    rewards, lines = _joined(rows.values), _joined(rows.lines)

    def refuse(bad: NDArray[np.bool_], message: str) -> None:
        if bad.any():
            raise ModelError(f"line {lines[np.flatnonzero(bad)[0]]}: {message}")

    refuse((states >= n_states) | (targets >= n_states), f"there are {n_states} states, numbered from 0")
    choices = model.state_to_choice[states] + numbers
    refuse(choices >= model.state_to_choice[states + 1], "its state has no such choice")
    owners = np.repeat(np.arange(n_choices), np.diff(model.choice_to_branch))
    if np.array_equal(choices, owners) and np.array_equal(targets, model.targets):
        return head.reward, rewards
    # Branches and entries are matched in the order of (choice, target).
    keys = owners * n_states + model.targets
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    asked = choices * n_states + targets
    by_key = np.argsort(asked, kind="stable")
    asked, lines = asked[by_key], lines[by_key]
    left, right = np.searchsorted(keys, asked), np.searchsorted(keys, asked, side="right")
    refuse(left == right, "the model has no such transition")
    begin = np.searchsorted(asked, asked)
    count = np.searchsorted(asked, asked, side="right") - begin
    # A target that stands twice in a choice may have a reward for each time, or one for all.
    refuse((count != right - left) & (count != 1), "the reward of this transition is told before")
    places = np.where(count == right - left, left + np.arange(len(asked)) - begin, left)
    spread = np.where(count == right - left, 1, right - left)
    places = np.repeat(places - (np.cumsum(spread) - spread), spread) + np.arange(spread.sum())
    values[order[places]] = np.repeat(rewards[by_key], spread)
    return head.reward, values


def _columns(path: Path, n_states: int) -> int:
    """Number of words in the first entry of a `.trew`; 0 if there is none."""
    with Unpacked(path) as file:
        text = file.read(LONGEST_HEAD)
    return len(text[head_of(text, n_states).end :].split(b"\n", 1)[0].split())


def _joined(parts: list[Any]) -> Any:
    """Arrays as one; the list is emptied, since both together take much memory."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole
