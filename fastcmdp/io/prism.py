"""PRISM's explicit files: `.tra` with, beside it or named, `.lab`, `.srew` and `.trew` (`prism -exportmodel m.all`).

`.tra` begins with `STATES CHOICES TRANSITIONS` (a chain: `STATES TRANSITIONS`) or, in older files of Storm, with the
word `mdp` or `dtmc`; then come lines `s k t p [action]` (chain: `s t p`), k being the number of the choice in its
state. The rows variant has a line `s p:t p:t ... [action]` for each choice. `.lab` tells labels, `.srew` rewards
of states, `.trew` rewards of branches, in the same two variants. Files of several rewards are numbered:
`m1.srew m1.trew m2.srew ...`; a comment in their head gives the name of the reward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.files import about, opened, replacing
from fastcmdp.io.description import Description, Reward, checked_rows, compact, grouped, uniform
from fastcmdp.io.text import Ints, Lines, Vocabulary, pieces
from fastcmdp.io.words import (
    ALIASES,
    OTHER_KINDS,
    aliases,
    formatted,
    numbers_of,
    parsed_aliases,
    renamed,
    safe_words,
)

INITIAL = "init"
LONGEST_HEAD = 1 << 20
CHOICES_AT_A_TIME = 50_000  # in writing
_NAME = re.compile(r'#\s*Reward structure:?\s*"(.*)"')
_UNQUOTABLE = r'["\x00-\x1f\x7f]'
_DECLARED = re.compile(r'\s*(\d+)="([^"]*)"')


@dataclass
class _Rows:
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
class _Head:
    """The head of a file: the name in its comments, and the numbers or the word of its first line."""

    reward: str | None = None
    counts: tuple[int, ...] = ()
    word: str = ""
    lines: int = 0
    end: int = 0  # in bytes
    variant: str = "plain"  # or "rows"


class _Table(NamedTuple):
    """The rows of a model."""

    state_to_choice: Ints
    choice_to_branch: Ints
    targets: NDArray[np.int32]
    prob: NDArray[np.float64]


def read(path: Path, *, files: Sequence[Path] | None = None, renormalize: bool = False) -> Description:
    """The description of a `.tra` and what goes with it: ``files``, or what is found beside it."""
    found = beside(path) if files is None else list(files)
    odd = [file for file in found if file.suffix not in (".lab", ".srew", ".trew")]
    if odd:
        raise ModelError(f"{odd[0]}: files that go with a .tra end in .lab, .srew or .trew")
    head, entries = _entries(path)
    model, actions, names, notes = _model(head, entries, renormalize)
    n_states = len(model.state_to_choice) - 1
    told: Any = None
    labels: dict[str, Ints] = {}
    parts: dict[str, dict[str, NDArray[np.float64]]] = {}
    for file in found:
        with about(file.name):
            if file.suffix == ".lab":
                found_labels, comment = _labels(file, n_states)
                twice = labels.keys() & found_labels.keys()
                if twice:
                    raise ModelError(f"label {min(twice)!r} is in two files")
                labels |= found_labels
                told = told or comment
                continue
            kind = "states" if file.suffix == ".srew" else "branches"
            name, values = _state_reward(file, n_states) if kind == "states" else _branch_reward(file, model)
            name = name or _default_name(file, path)
            if kind in parts.setdefault(name, {}):
                raise ModelError(f"a second reward of {kind} with the name {name!r}")
            parts[name][kind] = values
    initial = labels.pop(INITIAL, np.empty(0, dtype=np.int64))
    rewards = {
        name: compact(model.choice_to_branch, part.get("states"), None, part.get("branches"))
        for name, part in zip(renamed(parts, told, "rewards"), parts.values(), strict=True)
    }
    labels = dict(zip(renamed(labels, told, "labels"), labels.values(), strict=True))
    return Description(
        *model,
        rewards=rewards,
        labels=labels,
        start=uniform(initial, n_states),
        actions=actions,
        action_names=tuple(renamed(names, told, "actions")),
        notes=notes,
    )


def beside(path: Path) -> list[Path]:
    """The files that go with a `.tra`: the same name, or with a number behind it for one of several rewards."""
    stem = path.with_suffix("").name
    pattern = re.compile(re.escape(stem) + r"(\d*)(\.srew|\.trew)")
    found: list[tuple[int, str, Path]] = []
    for file in path.parent.iterdir():
        match = pattern.fullmatch(file.name)
        # m12.srew belongs to m12.tra if there is one.
        if match and file.is_file() and (not match[1] or not file.with_suffix(".tra").exists()):
            found.append((int(match[1] or 0), match[2], file))
    labels = path.with_suffix(".lab")
    return [labels] * labels.is_file() + [file for _, _, file in sorted(found)]


def write(description: Description, path: Path) -> None:
    """Write a `.tra` and the files beside it.

    Raises
    ------
    ModelError
        Other files lie beside it and would be read as parts of this model.
    """
    contents: dict[Path, Iterator[str]] = {}
    initial, _ = description.initial_states()
    rewards = description.stored_rewards()
    words = {
        "actions": safe_words(description.action_names),
        "labels": safe_words(description.labels, (INITIAL,), _UNQUOTABLE),
        "rewards": safe_words(rewards, (), _UNQUOTABLE),
    }
    comment = aliases(
        {"actions": description.action_names, "labels": description.labels, "rewards": rewards}, words
    )
    labels = {INITIAL: initial} | dict(zip(words["labels"], description.labels.values(), strict=True))
    if initial.size or description.labels or comment:
        contents[path.with_suffix(".lab")] = _label_lines(labels, comment)
    for i, (word, reward) in enumerate(zip(words["rewards"], rewards.values(), strict=True), start=1):
        stem = path.with_suffix("").name + (str(i) if len(rewards) > 1 else "")
        title = f'# Reward structure "{word}"\n'
        on_choices = reward.choices is not None or reward.branches is not None
        if reward.states is not None:
            contents[path.with_name(stem + ".srew")] = _state_reward_lines(title, reward.states)
        if reward.states is None or on_choices:
            contents[path.with_name(stem + ".trew")] = _branch_reward_lines(title, description, reward)
    stale = [file for file in beside(path) if file not in contents]
    if stale:
        raise ModelError(f"{stale[0]} lies beside and would be read as a part of this model: remove it first")
    contents[path] = _transition_lines(description, words["actions"])
    for file_path, lines in contents.items():
        with replacing(file_path) as file:
            for text in lines:
                file.write(text.encode("utf-8"))


# Reading.


def _entries(path: Path, n_states: int | None = None, chain: bool = False) -> tuple[_Head, _Rows]:
    """The head and all entries of a `.tra`, or with ``n_states`` of a `.trew`."""
    with opened(path) as file:
        head = _head(file.read(LONGEST_HEAD), n_states)
        if n_states is None:
            chain = len(head.counts) == 2 or head.word == "dtmc"
        file.seek(head.end)
        rows = _Rows()
        for lines in pieces(file, head.lines + 1):
            lines.drop_comments(b"#")
            (_add_rows if head.variant == "rows" else _add_plain)(lines, rows, chain)
    return head, rows


def _head(text: bytes, n_states: int | None) -> _Head:
    """The head of a `.tra`, or with ``n_states`` of a `.srew` or `.trew`, which may have none."""
    reward, number, at = None, 0, 0
    while at < len(text):
        end = text.find(b"\n", at) + 1 or len(text)
        line = text[at:end].decode("utf-8", "replace").strip()
        number += 1
        if line and not line.startswith("#"):
            break
        if found := _NAME.match(line):
            reward = found[1]
        at = end
    else:
        raise ModelError("the file is empty")
    words = line.split()
    numeric = all(re.fullmatch(r"\d{1,15}", word) for word in words)
    if n_states is not None and not (numeric and int(words[0]) == n_states):
        end, number, words = at, number - 1, []  # no state has that number, so an entry it is
    elif n_states is None and line.lower() not in ("mdp", "dtmc"):
        if line.lower() in OTHER_KINDS:
            raise ModelError(f"line {number}: a model of type {line}: {OTHER_KINDS[line.lower()]}")
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
        return _Head(reward, (), line.lower(), number, end, variant)
    return _Head(reward, tuple(map(int, words)), "", number, end, variant)


def _add_plain(lines: Lines, rows: _Rows, chain: bool) -> None:
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


def _add_rows(lines: Lines, rows: _Rows, chain: bool) -> None:
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


def _model(
    head: _Head, rows: _Rows, renormalize: bool
) -> tuple[_Table, NDArray[np.int32] | None, tuple[str, ...], tuple[str, ...]]:
    """The rows, the actions, their names, and notes."""
    if not len(rows):
        raise ModelError("the file has no transitions")
    if head.counts and len(rows) != head.counts[-1]:
        raise ModelError(f"the file has {len(rows)} transitions; its head says {head.counts[-1]}")
    states, numbers, targets = map(np.concatenate, (rows.states, rows.choices, rows.targets))
    values, codes, lines = (
        np.concatenate(rows.values),
        np.concatenate(rows.actions),
        np.concatenate(rows.lines),
    )
    steps = np.diff(states), np.diff(numbers)
    if not ((steps[0] > 0) | ((steps[0] == 0) & (steps[1] >= 0))).all():
        order = np.lexsort((numbers, states))
        states, numbers, targets = states[order], numbers[order], targets[order]
        values, codes, lines = values[order], codes[order], lines[order]
        steps = np.diff(states), np.diff(numbers)
    n_states = head.counts[0] if head.counts else int(max(states.max(), targets.max())) + 1
    for ends in (states, targets):
        beyond = np.flatnonzero(ends >= n_states)
        if beyond.size:
            raise ModelError(
                f"line {lines[beyond[0]]}: state {ends[beyond[0]]}; there are {n_states}, numbered from 0"
            )
    first = np.flatnonzero(np.append(True, (steps[0] != 0) | (steps[1] != 0)))
    owners = states[first]
    heads = np.flatnonzero(np.append(True, np.diff(owners) != 0))
    if len(heads) < n_states:
        present = owners[heads]
        missing = int(np.append(np.flatnonzero(present != np.arange(len(present))), len(present))[0])
        raise ModelError(
            f"state {missing} has no choice (a deadlock): give it a loop, as PRISM does unless told not to"
        )
    state_to_choice = np.append(heads, len(first))
    expected = np.arange(len(first)) - np.repeat(heads, np.diff(state_to_choice))
    wrong = np.flatnonzero(numbers[first] != expected)
    if wrong.size:
        q = int(first[wrong[0]])
        raise ModelError(
            f"line {lines[q]}: choice {numbers[q]} of state {states[q]}, which has no choice {expected[wrong[0]]}"
        )
    if len(head.counts) == 3 and len(first) != head.counts[1]:
        raise ModelError(f"the file has {len(first)} choices; its head says {head.counts[1]}")
    choice_to_branch = np.append(first, len(states))
    actions = codes[first]
    mixed = np.flatnonzero(codes != np.repeat(actions, np.diff(choice_to_branch)))
    if mixed.size:
        raise ModelError(f"line {lines[mixed[0]]}: another action than in the first line of this choice")
    prob, notes = checked_rows(
        choice_to_branch, values, rows.digits, lambda q: f"the choice in line {lines[first[q]]}", renormalize
    )
    names = rows.names.names
    if (actions < 0).any():
        actions, names = np.where(actions < 0, len(names), actions), [*names, ""]
    return _Table(state_to_choice, choice_to_branch, targets, prob), *numbers_of(actions, names, ""), notes


def _joined(parts: list[Any]) -> Any:
    """Arrays as one; the list is emptied, since both together take much memory."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def _labels(path: Path, n_states: int) -> tuple[dict[str, Ints], Any]:
    """The states of each label of a `.lab`, and what a comment there says of names."""
    with opened(path) as file:
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
            found = (
                lines.integers(*spans, "a label") if vocabulary is None else lines.names(*spans, vocabulary)
            )
            unknown = np.flatnonzero(found >= len(names))
            if unknown.size:
                raise lines.error(int(spans[0][unknown[0]]), "a label that is not declared")
            states.append(np.repeat(owners, counts))
            codes.append(found)
    return grouped(np.concatenate(states), np.concatenate(codes), names), comment


def _declared(text: bytes) -> tuple[list[str], Vocabulary | None, int, Any]:
    """Labels declared in a `.lab`; for the older style of Storm their vocabulary; the end of that; comments."""
    at, told = 0, None
    while at < len(text):
        end = text.find(b"\n", at) + 1 or len(text)
        line = text[at:end].decode("utf-8", "replace").strip()
        if line.startswith("# " + ALIASES):
            told = parsed_aliases(line.removeprefix("# "))
        if line == "#DECLARATION":
            found = re.compile(rb"\s#END[ \t]*\r?(?:\n|\Z)").search(text, end - 1)
            if found is None:
                raise ModelError("'#DECLARATION' without '#END'")
            vocabulary = Vocabulary()
            for word in text[end : found.start()].decode("utf-8", "replace").split():
                vocabulary.code(word)
            return vocabulary.names, vocabulary, found.end(), told
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
            return names, None, end, told
        at = end
    raise ModelError("the file has no declaration of labels")


def _state_reward(path: Path, n_states: int) -> tuple[str | None, NDArray[np.float64]]:
    values = np.zeros(n_states)
    with opened(path) as file:
        head = _head(file.read(LONGEST_HEAD), n_states)
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


def _branch_reward(path: Path, model: _Table) -> tuple[str | None, NDArray[np.float64]]:
    n_states = len(model.state_to_choice) - 1
    n_choices = len(model.choice_to_branch) - 1
    values = np.zeros(len(model.targets))
    # A chain's file lacks the column of choices; a model with one choice a state may be one.
    chain = n_choices == n_states and _columns(path, n_states) in (0, 3)
    head, rows = _entries(path, n_states, chain)
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
    entries = np.argsort(asked, kind="stable")
    asked, lines = asked[entries], lines[entries]
    left, right = np.searchsorted(keys, asked), np.searchsorted(keys, asked, side="right")
    refuse(left == right, "the model has no such transition")
    begin = np.searchsorted(asked, asked)
    count = np.searchsorted(asked, asked, side="right") - begin
    # A target that stands twice in a choice may have a reward for each time, or one for all.
    refuse((count != right - left) & (count != 1), "the reward of this transition is told before")
    places = np.where(count == right - left, left + np.arange(len(asked)) - begin, left)
    spread = np.where(count == right - left, 1, right - left)
    places = np.repeat(places - (np.cumsum(spread) - spread), spread) + np.arange(spread.sum())
    values[order[places]] = np.repeat(rewards[entries], spread)
    return head.reward, values


def _columns(path: Path, n_states: int) -> int:
    """Number of words in the first entry of a `.trew`; 0 if there is none."""
    with opened(path) as file:
        text = file.read(LONGEST_HEAD)
    return len(text[_head(text, n_states).end :].split(b"\n", 1)[0].split())


def _default_name(file: Path, path: Path) -> str:
    """The name of a reward whose file tells none: `reward`, with the number in the file's name."""
    stem = path.with_suffix("").name
    number = file.with_suffix("").name.removeprefix(stem)
    return f"reward{number}" if re.fullmatch(r"\d*", number) else file.with_suffix("").name


# Writing.


def _label_lines(labels: Mapping[str, Ints], comment: str) -> Iterator[str]:
    yield f"# {comment}\n" if comment else ""
    yield " ".join(f'{i}="{name}"' for i, name in enumerate(labels)) + "\n"
    states = np.concatenate(list(labels.values()))
    codes = np.repeat(np.arange(len(labels)), [len(found) for found in labels.values()])
    order = np.argsort(states, kind="stable")
    states, codes = states[order], codes[order]
    begin = np.flatnonzero(np.append(True, np.diff(states) != 0)[: len(states)])
    words = list(map(str, codes.tolist()))
    edges = np.append(begin, len(states)).tolist()
    heads = states[begin].tolist()
    yield "".join(
        f"{s}: {' '.join(words[a:b])}\n" for s, a, b in zip(heads, edges[:-1], edges[1:], strict=True)
    )


def _state_reward_lines(title: str, values: NDArray[np.float64]) -> Iterator[str]:
    states = np.flatnonzero(values)
    yield f"{title}# State rewards\n{len(values)} {len(states)}\n"
    pairs = zip(states.tolist(), formatted(values[states]), strict=True)
    yield "".join(f"{s} {value}\n" for s, value in pairs)


def _branch_reward_lines(title: str, description: Description, reward: Reward) -> Iterator[str]:
    lengths = np.diff(description.choice_to_branch)
    values = np.zeros(description.n_branches)
    if reward.choices is not None:
        values += np.repeat(reward.choices, lengths)
    if reward.branches is not None:
        values += reward.branches
    owners = np.repeat(np.arange(description.n_choices), lengths)
    keys = np.sort(owners * description.n_states + description.branch_target)
    # Where a target stands twice in a choice, zeros must be told for entries to be matched one to one.
    told = np.ones(len(values), dtype=np.bool_) if (np.diff(keys) == 0).any() else values != 0
    yield f"{title}# Transition rewards\n{description.n_states} {description.n_choices} {told.sum()}\n"
    yield from _branch_lines(description, values, told, None)


def _transition_lines(description: Description, action_words: Sequence[str]) -> Iterator[str]:
    yield f"{description.n_states} {description.n_choices} {description.n_branches}\n"
    told = np.ones(description.n_branches, dtype=np.bool_)
    words: list[str] | None = None
    if description.actions is not None:
        numbers = description.actions.tolist()
        words = [action_words[a] for a in numbers] if action_words else list(map(str, numbers))
    yield from _branch_lines(description, description.branch_prob, told, words)


def _branch_lines(
    description: Description, values: NDArray[np.float64], told: NDArray[np.bool_], words: list[str] | None
) -> Iterator[str]:
    """Lines `s k t value [word of the choice]` of the branches to be told."""
    choice_state = description.choice_state
    numbers = np.arange(description.n_choices) - description.state_to_choice[choice_state]
    for start in range(0, description.n_choices, CHOICES_AT_A_TIME):
        stop = min(start + CHOICES_AT_A_TIME, description.n_choices)
        first, last = description.choice_to_branch[[start, stop]]
        chosen = first + np.flatnonzero(told[first:last])
        owners = np.repeat(np.arange(start, stop), np.diff(description.choice_to_branch[start : stop + 1]))
        owners = owners[told[first:last]]
        heads = [
            f"{s} {k} "
            for s, k in zip(choice_state[start:stop].tolist(), numbers[start:stop].tolist(), strict=True)
        ]
        tails = [f" {word}\n" for word in words[start:stop]] if words else ["\n"] * (stop - start)
        columns = owners - start, description.branch_target[chosen]
        entries = zip(*(column.tolist() for column in columns), formatted(values[chosen]), strict=True)
        yield "".join(f"{heads[q]}{t} {value}{tails[q]}" for q, t, value in entries)
