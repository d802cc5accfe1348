"""DRN, Storm's text format for explicit models (`storm --exportbuild model.drn`); PRISM writes it too.

After a header come, one a line, `state N [r1, r2] label label`, its choices `action NAME [r1, r2]` and their
branches `TARGET : PROBABILITY`; brackets may be missing where there are no rewards, and `//` starts a comment.
A comment `//[!done & x=3]` after a state tells the values of its variables. MDPs and chains (DTMC) are read. What
names may be is told in `fastcmdp.io.words`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.files import Unpacked, packing
from fastcmdp.io import drn_text
from fastcmdp.io.comments import Comments
from fastcmdp.io.description import Description, Reward, checked_rows, compact, grouped, uniform
from fastcmdp.io.drn_text import INITIAL, NO_ACTION
from fastcmdp.io.place import Place
from fastcmdp.io.text import Ints, Lines, Vocabulary, pieces
from fastcmdp.io.words import ALIASES, OTHER_KINDS, numbers_of, parsed_aliases, renamed
from fastcmdp.rows import rounded_up
from fastcmdp.units import EPS

LONGEST_HEADER = 1 << 20
MOST_REWARDS = 256
_LABELS = re.compile(r'"([^"]+)"|([^\s"]+)')
_STATE, _ACTION, _BRANCH, _NOTHING = range(4)


@dataclass
class _Header:
    kind: str = ""
    rewards: tuple[str, ...] = ()
    states: int = -1
    choices: int = -1
    names: Any = None
    end: int = 0  # of the header, in bytes
    lines: int = 0


class _Brackets(NamedTuple):
    """Which lines have a list of rewards, and where the lists of those end."""

    has: NDArray[np.bool_]
    closing: Ints


class _Body:
    """What the pieces of the file gave so far."""

    def __init__(self, header: _Header) -> None:
        self.width = len(header.rewards) or -1  # rewards in a bracket; -1 until the first bracket is met
        self.states = self.choices = self.branches = 0
        self.in_action = False  # whether a branch may come next
        self.first_choice: list[Ints] = []
        self.first_branch: list[Ints] = []
        self.state_lines: list[Ints] = []
        self.choice_lines: list[Ints] = []
        self.targets: list[NDArray[np.int32]] = []
        self.probabilities: list[NDArray[np.float64]] = []
        self.digits = 0
        # Numbers of states and of choices that have a list of rewards, and the lists.
        self.state_rewards: list[tuple[Ints, NDArray[np.float64]]] = []
        self.choice_rewards: list[tuple[Ints, NDArray[np.float64]]] = []
        self.actions: list[Ints] = []
        self.labelled: list[Ints] = []
        self.label_codes: list[Ints] = []
        self.labels = Vocabulary()
        self.names = Vocabulary()
        self.valuations = Comments()


def read(place: Place) -> Description:
    """The description of a DRN file."""
    with Unpacked(place.path) as file:
        header = _header(file.read(LONGEST_HEADER))
        file.seek(header.end)
        body = _Body(header)
        for lines in pieces(file, header.lines + 1):
            _add(lines, body, header)
    if body.states != header.states or not body.states:
        raise ModelError(f"the file has {body.states} states; its header says {header.states}")
    choice_lines = np.concatenate(body.choice_lines)
    state_to_choice = _closed(body.first_choice, body.choices, body.state_lines, "state", "action")
    choice_to_branch = _closed(body.first_branch, body.branches, body.choice_lines, "action", "branch")
    if header.choices >= 0 and body.choices != header.choices:
        raise ModelError(f"the file has {body.choices} choices; its header says {header.choices}")
    prob, notes = checked_rows(
        choice_to_branch,
        np.concatenate(body.probabilities),
        body.digits,
        lambda q: f"the action in line {choice_lines[q]}",
        place.renormalize,
    )
    labels = grouped(np.concatenate(body.labelled), np.concatenate(body.label_codes), body.labels.names)
    initial = labels.pop(INITIAL, np.empty(0, dtype=np.int64))
    labels = dict(zip(renamed(labels, header.names, "labels"), labels.values(), strict=True))
    words = renamed(body.names.names, header.names, "actions")
    actions, names = numbers_of(np.concatenate(body.actions), words, NO_ACTION)
    variables, untold = body.valuations.variables(header.states)
    return Description(
        state_to_choice,
        choice_to_branch,
        np.concatenate(body.targets),
        prob,
        rewards=_rewards(body, header, choice_to_branch),
        labels=labels,
        start=uniform(initial, header.states),
        actions=actions,
        action_names=names,
        notes=(*notes, *untold),
        variables=dict(zip(renamed(variables, header.names, "variables"), variables.values(), strict=True)),
    )


def write(description: Description, place: Place) -> None:
    """Write a DRN file; numbers have as many digits as it takes to get the same bits back, at most 17."""
    with packing(place.path, place.packing) as file:
        for text in drn_text.lines(description):
            file.write(text.encode("utf-8"))


# Reading.


def _header(text: bytes) -> _Header:
    header = _Header()
    match = re.search(rb"^@model[ \t]*\r?(?:\n|\Z)", text, re.MULTILINE)
    if match is None:
        raise ModelError("not a DRN file: no line '@model' ends its header")
    header.end = match.end()
    try:
        lines = text[: header.end].decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise ModelError("the header of the file is not UTF-8") from None
    header.lines = text.count(b"\n", 0, header.end)
    numbered = iter(enumerate((line.strip() for line in lines), start=1))
    for number, line in numbered:
        if line.startswith("// " + ALIASES):
            header.names = parsed_aliases(line.removeprefix("// "))
        elif line and not line.startswith("//"):
            _keyword(line, number, numbered, header)
    if not header.kind:
        raise ModelError("the header has no @type")
    if header.states < 1:
        raise ModelError("the header has no @nr_states of at least 1")
    _check_count(len(header.rewards))
    if len(set(header.rewards)) < len(header.rewards):
        twice = next(name for name in header.rewards if header.rewards.count(name) > 1)
        raise ModelError(f"two rewards have the name {twice!r}")
    return header


def _keyword(line: str, number: int, lines: Iterator[tuple[int, str]], header: _Header) -> None:
    key, _, value = line.partition(":")
    value = value.strip()
    if key == "@type":
        header.kind = value.upper()
        if header.kind not in ("MDP", "DTMC"):
            reason = OTHER_KINDS.get(value.lower(), "MDP and DTMC are supported")
            raise ModelError(f"line {number}: a model of type {value}: {reason}")
    elif key == "@value_type":
        if value.endswith("-interval"):
            raise ModelError(f"line {number}: values of type {value}: interval models are not supported")
        if value == "parametric":
            raise ModelError(f"line {number}: parametric models are not supported; instantiate it")
        if value not in ("double", "rational"):
            raise ModelError(f"line {number}: values of type {value!r}; double and rational are supported")
    elif line == "@parameters":
        if next(lines, (0, ""))[1]:
            raise ModelError(f"line {number}: the model has parameters: parametric models are not supported")
    elif line == "@placeholders":
        raise ModelError(f"line {number}: placeholders are of parametric models, which are not supported")
    elif line == "@reward_models":
        header.rewards = tuple(next(lines, (0, ""))[1].split())
    elif line in ("@nr_states", "@nr_choices"):
        place, count = next(lines, (number, ""))
        if not re.fullmatch(r"\d{1,10}", count) or not 0 < int(count) < 1 << 31:
            raise ModelError(f"line {place}: {line} is {count[:60]!r}; 1 to 2147483647 are accepted")
        setattr(header, "states" if line == "@nr_states" else "choices", int(count))
    elif line != "@model":
        raise ModelError(f"line {number}: {line[:60]!r} is not known in the header of a DRN file")


def _add(lines: Lines, body: _Body, header: _Header) -> None:
    """Take a piece of the file."""
    body.valuations.add(lines)
    lines.drop_comments(b"//")
    kinds = _kinds(lines)
    lines_of = [np.flatnonzero(kinds == kind) for kind in (_STATE, _ACTION, _BRANCH)]
    brackets = _prepare(lines, body, lines_of)
    states, actions, branches = lines_of
    _check_order(lines, body, states, actions, branches)
    begin = lines.begin

    ids = lines.integers(*lines.spans(begin[states] + 1), "the number of a state")
    wrong = np.flatnonzero(ids != body.states + np.arange(len(ids)))
    if wrong.size:
        at = int(lines.starts[begin[states[wrong[0]]]])
        raise lines.error(at, f"state {ids[wrong[0]]}, where state {body.states + wrong[0]} must come")
    targets = lines.integers(*lines.spans(begin[branches]), "the target of a branch")
    beyond = np.flatnonzero(targets >= header.states)
    if beyond.size:
        at = int(lines.starts[begin[branches[beyond[0]]]])
        raise lines.error(at, f"a branch to state {targets[beyond[0]]}; there are {header.states} states")
    last = begin[branches + 1] - 1
    probabilities, digits = lines.numbers(*lines.spans(last), "a probability")
    probabilities = rounded_up(probabilities, EPS)
    negative = np.flatnonzero((probabilities < 0.0) | (probabilities > 1.001))
    if negative.size:
        at = int(lines.starts[last[negative[0]]])
        raise lines.error(at, f"a probability of {probabilities[negative[0]]}; it must be in [0, 1]")

    body.first_choice.append(body.choices + np.searchsorted(actions, states))
    body.first_branch.append(body.branches + np.searchsorted(branches, actions))
    body.state_lines.append(lines.first_line + states)
    body.choice_lines.append(lines.first_line + actions)
    body.targets.append(targets.astype(np.int32))
    body.probabilities.append(probabilities)
    body.digits = max(body.digits, digits)
    for owners, lists, before, rewards in (
        (states, brackets[0], body.states, body.state_rewards),
        (actions, brackets[1], body.choices, body.choice_rewards),
    ):
        if lists.closing.size:
            rewards.append((before + np.flatnonzero(lists.has), _lists_of(lines, owners, lists, body.width)))
    body.actions.append(lines.names(*lines.spans(begin[actions] + 1), body.names))
    _add_labels(lines, states, brackets[0].has, body)
    extra = np.flatnonzero(lines.counts[actions] != 2 + brackets[1].has * max(body.width, 0))
    if extra.size:
        at = int(lines.starts[begin[actions[extra[0]]]])
        raise lines.error(at, "text after an action and its rewards")
    body.states += len(states)
    body.choices += len(actions)
    body.branches += len(branches)


def _kinds(lines: Lines) -> NDArray[np.int64]:
    """What each line is, by its first token."""
    kinds = np.full(len(lines.breaks), _NOTHING)
    filled = np.flatnonzero(lines.counts)
    first = lines.begin[filled]
    starts, lengths = lines.starts[first], lines.ends[first] - lines.starts[first]
    letters = lines.words[starts]
    kinds[filled[(lines.data[starts] >= ord("0")) & (lines.data[starts] <= ord("9"))]] = _BRANCH
    for kind, word in ((_STATE, b"state"), (_ACTION, b"action")):
        whole = np.uint64((1 << 8 * len(word)) - 1)
        same = ((letters & whole) == int.from_bytes(word, "little")) & (lengths == len(word))
        kinds[filled[same & (lines.counts[filled] > 1)]] = kind
    unknown = filled[kinds[filled] == _NOTHING]
    if unknown.size:
        at, end = int(lines.starts[lines.begin[unknown[0]]]), int(lines.breaks[unknown[0]])
        raise lines.error(at, f"{lines.text(at, end)} is no state, action or branch")
    return kinds


def _prepare(lines: Lines, body: _Body, lines_of: Sequence[Ints]) -> list[_Brackets]:
    """Blank out the punctuation of brackets and branches; return the brackets of states and of actions."""
    brackets = [_open_brackets(lines, body, owners) for owners in lines_of[:2]]
    branches = lines_of[2]
    middle = lines.starts[np.minimum(lines.begin[branches] + 1, len(lines.starts) - 1)]
    colon_alone = (lines.data[middle] == ord(":")) & (lines.data[middle + 1] <= ord(" "))
    tight = branches[~((lines.counts[branches] == 3) & colon_alone)]
    if tight.size:
        colons = np.flatnonzero(lines.data == ord(":"))
        line = np.searchsorted(lines.breaks, colons)
        counts = np.bincount(line, minlength=len(lines.breaks))[tight]
        lines.data[colons[np.isin(line, tight)]] = ord(" ")
    if tight.size or any(lists.closing.size for lists in brackets):
        lines.cut()
    if tight.size:
        wrong = tight[(lines.counts[tight] != 2) | (counts != 1)]
        if wrong.size:
            first = int(wrong[0])
            begin = lines.starts[lines.begin[first]]
            reason = "this is no branch 'TARGET : PROBABILITY'"
            if (lines.data[begin : lines.breaks[first]] == ord("[")).any():
                reason = "interval models are not supported, only single numbers"
            raise ModelError(f"line {lines.first_line + first}: {reason}")
    return brackets


def _open_brackets(lines: Lines, body: _Body, owners: Ints) -> _Brackets:
    """Blank out the [ , and ] of the lists of rewards on such lines."""
    third = lines.starts[np.minimum(lines.begin[owners] + 2, len(lines.starts) - 1)]
    has = (lines.counts[owners] > 2) & (lines.data[third] == ord("["))
    opening, line_ends = third[has], lines.breaks[owners[has]]
    closing = lines.find("]", opening, line_ends)
    if opening.size == 0:
        return _Brackets(has, closing)
    bad = np.flatnonzero(closing >= line_ends)
    if bad.size:
        raise lines.error(int(opening[bad[0]]), "a list of rewards without its ]")
    commas = np.flatnonzero(lines.data == ord(","))
    owner = np.searchsorted(opening, commas) - 1
    inside = (owner >= 0) & (commas < closing[owner])
    counts = 1 + np.bincount(owner[inside], minlength=len(opening))
    if body.width < 0:
        body.width = int(counts[0])
        _check_count(body.width)
    bad = np.flatnonzero(counts != body.width)
    if bad.size:
        raise lines.error(
            int(opening[bad[0]]), f"a list of {counts[bad[0]]} rewards; there are {body.width} reward models"
        )
    for places in (opening, closing, commas[inside]):
        lines.data[places] = ord(" ")
    return _Brackets(has, closing)


def _lists_of(lines: Lines, owners: Ints, brackets: _Brackets, width: int) -> NDArray[np.float64]:
    """The lists of rewards on those lines that have one."""
    first = lines.begin[owners[brackets.has]] + 2
    bad = np.flatnonzero(np.searchsorted(lines.starts, brackets.closing) - first != width)
    if bad.size:
        raise lines.error(int(brackets.closing[bad[0]]), "an empty place in a list of rewards")
    tokens = first[:, None] + np.arange(width)
    values, _ = lines.numbers(*lines.spans(tokens.ravel()), "a reward")
    return values.reshape(-1, width)


def _add_labels(lines: Lines, states: Ints, has: NDArray[np.bool_], body: _Body) -> None:
    first = lines.begin[states] + 2 + has * max(body.width, 0)
    last = lines.begin[states + 1]
    quoted = np.zeros(len(states), dtype=np.bool_)
    marks = np.flatnonzero(lines.data == ord('"'))
    if marks.size:
        quoted = np.isin(states, np.searchsorted(lines.breaks, marks))
    counts = np.where(quoted, 0, last - first)
    tokens = (
        np.repeat(first, counts) + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    )
    body.labelled.append(body.states + np.repeat(np.arange(len(states)), counts))
    body.label_codes.append(lines.names(*lines.spans(tokens), body.labels))
    for i in np.flatnonzero(quoted):
        start, end = int(lines.ends[first[i] - 1]), int(lines.breaks[states[i]])
        try:
            text = bytes(lines.data[start:end]).decode("utf-8")
        except UnicodeDecodeError:
            raise lines.error(start, "a label that is not UTF-8") from None
        words = [quote or word for quote, word in _LABELS.findall(text)]
        body.labelled.append(np.full(len(words), body.states + i))
        body.label_codes.append(np.array([body.labels.code(label) for label in words], dtype=np.int64))


def _check_order(lines: Lines, body: _Body, states: Ints, actions: Ints, branches: Ints) -> None:
    """Actions come after a state, branches after an action of the same state."""
    if not body.states and actions.size and (not states.size or actions[0] < states[0]):
        raise ModelError(f"line {lines.first_line + int(actions[0])}: an action before the first state")
    marks = np.concatenate([states, actions])
    order = np.argsort(marks)
    # What the last state or action before each branch is; before the first one here, that of the last piece.
    is_action = np.append(np.repeat([False, True], [len(states), len(actions)])[order], body.in_action)
    before = np.searchsorted(marks[order], branches) - 1
    orphan = np.flatnonzero(~is_action[before])
    if orphan.size:
        line = lines.first_line + int(branches[orphan[0]])
        raise ModelError(f"line {line}: a branch before the first action of its state")
    if marks.size:
        body.in_action = bool(is_action[-2])


def _closed(parts: list[Ints], total: int, lines: list[Ints], owner: str, owned: str) -> Ints:
    offsets = np.append(np.concatenate(parts), total)
    empty = np.flatnonzero(np.diff(offsets) == 0)
    if empty.size:
        line = np.concatenate(lines)[empty[0]]
        remedy = ": a deadlock; give it a loop" if owner == "state" else ""
        raise ModelError(f"line {line}: the {owner} has no {owned}{remedy}")
    return offsets


def _rewards(body: _Body, header: _Header, choice_to_branch: Ints) -> dict[str, Reward]:
    names = list(header.rewards) or [f"rew{i}" for i in range(max(body.width, 0))]
    rewards = {}
    for i, name in enumerate(renamed(names, header.names, "rewards")):
        on_states = _column(body.state_rewards, i, body.states)
        on_choices = _column(body.choice_rewards, i, body.choices)
        rewards[name] = compact(choice_to_branch, on_states, on_choices, None)
    return rewards


def _column(parts: list[tuple[Ints, NDArray[np.float64]]], i: int, size: int) -> NDArray[np.float64] | None:
    """The i-th reward of all states or choices, 0 for those without a list."""
    column = np.zeros(size)
    for owners, values in parts:
        column[owners] = values[:, i]
    return column


def _check_count(rewards: int) -> None:
    if rewards > MOST_REWARDS:
        raise ModelError(f"{rewards} reward models; at most {MOST_REWARDS} are accepted")
