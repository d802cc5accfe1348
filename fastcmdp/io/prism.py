"""PRISM's explicit files: `.tra` with, beside it or named, what else `prism -exportmodel m.all` writes.

`.tra` begins with `STATES CHOICES TRANSITIONS` (a chain: `STATES TRANSITIONS`) or, in older files of Storm, with the
word `mdp` or `dtmc`; then come lines `s k t p [action]` (chain: `s t p`), k being the number of the choice in its
state. The rows variant has a line `s p:t p:t ... [action]` for each choice. `.lab` tells labels, `.sta` the values of
the states' variables, `.srew` rewards of states, `.trew` rewards of branches, in the same two variants. Files of
several rewards are numbered, `m1.srew m1.trew m2.srew ...`: what has one number is one reward, and a comment in the
head of either gives its name. All may be packed by gzip or xz, and have .gz or .xz behind their names then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.files import about, packing
from fastcmdp.io.description import Description, Reward, compact, uniform
from fastcmdp.io.place import Place
from fastcmdp.io.prism_parts import branch_reward, labels_in, state_reward, variables_in
from fastcmdp.io.prism_rows import Table, entries, model_of
from fastcmdp.io.prism_text import (
    branch_reward_lines,
    label_lines,
    state_reward_lines,
    transition_lines,
    variable_lines,
)
from fastcmdp.io.text import Ints
from fastcmdp.io.words import aliases, renamed, safe_words

INITIAL = "init"
PARTS = (".lab", ".sta", ".srew", ".trew")
_UNQUOTABLE = r'["\x00-\x1f\x7f]'
_FILE = re.compile(r"(.*?)(\.[a-z]+)?(\.(?:gz|xz))?", re.DOTALL | re.IGNORECASE)


def read(place: Place) -> Description:
    """The description of a `.tra` and what goes with it."""
    files = beside(place.path) if place.files is None else list(place.files)
    odd = [file for file in files if _ending(file) not in PARTS]
    if odd:
        raise ModelError(f"{odd[0]}: files that go with a .tra end in .lab, .sta, .srew or .trew")
    model, actions, names, notes = model_of(*entries(place.path), place.renormalize)
    n_states = len(model.state_to_choice) - 1
    labels, comment = _labels(files, n_states)
    parts = _rewards(files, place.path, model)
    variables: dict[str, NDArray[Any]] = {}
    for file in files:
        if _ending(file) == ".sta":
            with about(file.name):
                variables |= variables_in(file, n_states)
    initial = labels.pop(INITIAL, np.empty(0, dtype=np.int64))
    rewards = {
        name: compact(model.choice_to_branch, part.get(".srew"), None, part.get(".trew"))
        for name, part in zip(renamed(parts, comment, "rewards"), parts.values(), strict=True)
    }
    return Description(
        *model,
        rewards=rewards,
        labels=dict(zip(renamed(labels, comment, "labels"), labels.values(), strict=True)),
        start=uniform(initial, n_states),
        actions=actions,
        action_names=tuple(renamed(names, comment, "actions")),
        notes=notes,
        variables=dict(zip(renamed(variables, comment, "variables"), variables.values(), strict=True)),
    )


def beside(path: Path) -> list[Path]:
    """The files that go with a `.tra`: the same name, or with a number behind it for one of several rewards."""
    stem = _stem(path)
    pattern = re.compile(re.escape(stem) + r"(\d*)(\.lab|\.sta|\.srew|\.trew)(?:\.gz|\.xz)?")
    files: list[tuple[bool, int, str, Path]] = []
    for file in path.parent.iterdir():
        match = pattern.fullmatch(file.name)
        if match is None or not file.is_file() or (match[1] and match[2] in (".lab", ".sta")):
            continue
        # m12.srew belongs to m12.tra if there is one.
        if not match[1] or not any(
            _named(path, match[1] + ".tra" + end).exists() for end in ("", ".gz", ".xz")
        ):
            files.append((match[2] in (".srew", ".trew"), int(match[1] or 0), match[2], file))
    return [file for *_, file in sorted(files)]


def write(description: Description, place: Place) -> None:
    """Write a `.tra` and the files beside it.

    Raises
    ------
    ModelError
        Other files lie beside it and would be read as parts of this model.
    """
    rewards = description.stored_rewards()
    names = {
        "actions": description.action_names,
        "labels": description.labels,
        "rewards": rewards,
        "variables": description.variables,
    }
    words = {
        "actions": safe_words(description.action_names),
        "labels": safe_words(description.labels, (INITIAL,), _UNQUOTABLE),
        "rewards": safe_words(rewards, (), _UNQUOTABLE),
        "variables": safe_words(description.variables, (), r"[^A-Za-z0-9_.]"),
    }
    contents = _parts(description, rewards, words, aliases(names, words))
    end = f".{place.packing}" if place.packing else ""
    files = {_named(place.path, ending + end): lines for ending, lines in contents.items()}
    stale = [file for file in beside(place.path) if file not in files]
    if stale:
        raise ModelError(f"{stale[0]} lies beside and would be read as a part of this model: remove it first")
    files[place.path] = transition_lines(description, words["actions"])
    for path, lines in files.items():
        with packing(path, place.packing) as file:
            for text in lines:
                file.write(text.encode("utf-8"))


def _stem(path: Path) -> str:
    return _FILE.fullmatch(path.name)[1]  # type: ignore[index]  # it matches all


def _ending(path: Path) -> str | None:
    return _FILE.fullmatch(path.name)[2]  # type: ignore[index]


def _named(path: Path, ending: str) -> Path:
    """A file beside a `.tra`."""
    return path.with_name(_stem(path) + ending)


def _labels(files: Sequence[Path], n_states: int) -> tuple[dict[str, Ints], Any]:
    """The labels in all `.lab` files, and what a comment there says of names."""
    labels: dict[str, Ints] = {}
    remark: Any = None
    for file in files:
        if _ending(file) == ".lab":
            with about(file.name):
                own, comment = labels_in(file, n_states)
                twice = labels.keys() & own.keys()
                if twice:
                    raise ModelError(f"label {min(twice)!r} is in two files")
            labels |= own
            remark = remark or comment
    return labels, remark


def _rewards(files: Sequence[Path], path: Path, model: Table) -> dict[str, dict[str, NDArray[np.float64]]]:
    """The parts of all rewards by their names; a file whose head gives none has that of its other half."""
    parts: dict[str, dict[str, NDArray[np.float64]]] = {}
    rewards = []
    name_of: dict[Path, str] = {}
    for file in files:
        kind = _ending(file)
        if kind in (".srew", ".trew"):
            with about(file.name):
                name, values = (
                    state_reward(file, len(model.state_to_choice) - 1)
                    if kind == ".srew"
                    else branch_reward(file, model)
                )
            rewards.append((file, kind, name, values))
            if name is not None:
                name_of.setdefault(_named(file, ""), name)
    for file, kind, name, values in rewards:
        name = name or name_of.get(_named(file, "")) or _default_name(file, path)
        if kind in parts.setdefault(name, {}):
            what = "states" if kind == ".srew" else "branches"
            raise ModelError(f"{file.name}: a second reward of {what} with the name {name!r}")
        parts[name][kind] = values
    return parts


def _default_name(file: Path, path: Path) -> str:
    """The name of a reward whose file tells none: `reward`, with the number in the file's name."""
    number = _stem(file).removeprefix(_stem(path))
    return f"reward{number}" if re.fullmatch(r"\d*", number) else _stem(file)


def _parts(
    description: Description, rewards: dict[str, Reward], words: dict[str, list[str]], comment: str
) -> dict[str, Iterator[str]]:
    """The lines of all files beside the `.tra`, by what follows its name there."""
    contents: dict[str, Iterator[str]] = {}
    initial, _ = description.initial_states()
    labels = {INITIAL: initial} | dict(zip(words["labels"], description.labels.values(), strict=True))
    if initial.size or description.labels or comment:
        contents[".lab"] = label_lines(labels, comment)
    if description.variables:
        contents[".sta"] = variable_lines(words["variables"], list(description.variables.values()))
    for i, (word, reward) in enumerate(zip(words["rewards"], rewards.values(), strict=True), start=1):
        number = str(i) if len(rewards) > 1 else ""
        title = f'# Reward structure "{word}"\n'
        on_choices = reward.choices is not None or reward.branches is not None
        if reward.states is not None:
            contents[number + ".srew"] = state_reward_lines(title, reward.states)
        if reward.states is None or on_choices:
            contents[number + ".trew"] = branch_reward_lines(title, description, reward)
    return contents
