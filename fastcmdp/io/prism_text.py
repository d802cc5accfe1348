"""The lines of PRISM's files, for `fastcmdp.io.prism`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.io.comments import value_texts
from fastcmdp.io.description import Description, Reward
from fastcmdp.io.text import Ints
from fastcmdp.io.words import formatted

CHOICES_AT_A_TIME = 50_000


def label_lines(labels: Mapping[str, Ints], comment: str) -> Iterator[str]:
    yield f"# {comment}\n" if comment else ""
    yield " ".join(f'{i}="{name}"' for i, name in enumerate(labels)) + "\n"
    states = np.concatenate(list(labels.values()))
    codes = np.repeat(np.arange(len(labels)), [len(members) for members in labels.values()])
    order = np.argsort(states, kind="stable")
    states, codes = states[order], codes[order]
    begin = np.flatnonzero(np.append(True, np.diff(states) != 0)[: len(states)])
    words = list(map(str, codes.tolist()))
    edges = np.append(begin, len(states)).tolist()
    heads = states[begin].tolist()
    yield "".join(
        f"{s}: {' '.join(words[a:b])}\n" for s, a, b in zip(heads, edges[:-1], edges[1:], strict=True)
    )


def variable_lines(words: Sequence[str], variables: Sequence[NDArray[Any]]) -> Iterator[str]:
    """The lines of a `.sta`."""
    yield f"({','.join(words)})\n"
    columns = [
        [str(value).lower() for value in values.tolist()] if values.dtype == np.bool_ else value_texts(values)
        for values in variables
    ]
    yield "".join(f"{s}:({','.join(row)})\n" for s, row in enumerate(zip(*columns, strict=True)))


def state_reward_lines(title: str, values: NDArray[np.float64]) -> Iterator[str]:
    states = np.flatnonzero(values)
    yield f"{title}# State rewards\n{len(values)} {len(states)}\n"
    pairs = zip(states.tolist(), formatted(values[states]), strict=True)
    yield "".join(f"{s} {value}\n" for s, value in pairs)


def branch_reward_lines(title: str, description: Description, reward: Reward) -> Iterator[str]:
    lengths = np.diff(description.choice_to_branch)
    values = np.zeros(description.n_branches)
    if reward.choices is not None:
        values += np.repeat(reward.choices, lengths)
    if reward.branches is not None:
        values += reward.branches
    owners = np.repeat(np.arange(description.n_choices), lengths)
    keys = np.sort(owners * description.n_states + description.branch_target)
    # Where a target stands twice in a choice, zeros must be told for entries to be matched one to one.
    written = np.ones(len(values), dtype=np.bool_) if (np.diff(keys) == 0).any() else values != 0
    yield f"{title}# Transition rewards\n{description.n_states} {description.n_choices} {written.sum()}\n"
    yield from _branch_lines(description, values, written, None)


def transition_lines(description: Description, action_words: Sequence[str]) -> Iterator[str]:
    yield f"{description.n_states} {description.n_choices} {description.n_branches}\n"
    written = np.ones(description.n_branches, dtype=np.bool_)
    words: list[str] | None = None
    if description.actions is not None:
        numbers = description.actions.tolist()
        words = [action_words[a] for a in numbers] if action_words else list(map(str, numbers))
    yield from _branch_lines(description, description.branch_prob, written, words)


def _branch_lines(
    description: Description, values: NDArray[np.float64], written: NDArray[np.bool_], words: list[str] | None
) -> Iterator[str]:
    """Lines `s k t value [word of the choice]` of the branches to be told."""
    choice_state = description.choice_state
    numbers = np.arange(description.n_choices) - description.state_to_choice[choice_state]
    for start in range(0, description.n_choices, CHOICES_AT_A_TIME):
        stop = min(start + CHOICES_AT_A_TIME, description.n_choices)
        first, last = description.choice_to_branch[[start, stop]]
        chosen = first + np.flatnonzero(written[first:last])
        owners = np.repeat(np.arange(start, stop), np.diff(description.choice_to_branch[start : stop + 1]))
        owners = owners[written[first:last]]
        heads = [
            f"{s} {k} "
            for s, k in zip(choice_state[start:stop].tolist(), numbers[start:stop].tolist(), strict=True)
        ]
        tails = [f" {word}\n" for word in words[start:stop]] if words else ["\n"] * (stop - start)
        columns = owners - start, description.branch_target[chosen]
        entries = zip(*(column.tolist() for column in columns), formatted(values[chosen]), strict=True)
        yield "".join(f"{heads[q]}{t} {value}{tails[q]}" for q, t, value in entries)
