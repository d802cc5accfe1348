"""The lines of DRN files, for `fastcmdp.io.drn`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastcmdp.io.comments import valuation_comments
from fastcmdp.io.description import Description, Reward
from fastcmdp.io.text import Ints
from fastcmdp.io.words import aliases, formatted, safe_words

INITIAL = "init"
NO_ACTION = "__NOLABEL__"
STATES_AT_A_TIME = 20_000


def lines(description: Description) -> Iterator[str]:
    """The text of a DRN file, a piece after the other."""
    rewards = description.stored_rewards()
    words = {
        "rewards": safe_words(rewards),
        "actions": safe_words(description.action_names),
        "labels": safe_words(description.labels, taken=(INITIAL,)),
        "variables": safe_words(description.variables, unsafe=r"[^A-Za-z0-9_.]"),
    }
    names = {
        "rewards": rewards, "actions": description.action_names, "labels": description.labels,
        "variables": description.variables,
    }  # fmt: skip
    comment = aliases(names, words)
    header = ["// written by fastcmdp"] + ([f"// {comment}"] if comment else [])
    header += ["@type: MDP", "@value_type: double", "@parameters", ""]
    header += ["@reward_models", " ".join(words["rewards"])]
    header += [
        "@nr_states",
        str(description.n_states),
        "@nr_choices",
        str(description.n_choices),
        "@model",
        "",
    ]
    yield "\n".join(header)
    labels = dict(zip(words["labels"], description.labels.values(), strict=True))
    labels = {INITIAL: description.initial_states()[0]} | labels
    for first in range(0, description.n_states, STATES_AT_A_TIME):
        last = min(first + STATES_AT_A_TIME, description.n_states)
        valuations = valuation_comments(description.variables, words["variables"], first, last)
        yield _states(description, first, last, list(rewards.values()), labels, words["actions"], valuations)


def _states(
    description: Description,
    first: int,
    last: int,
    rewards: Sequence[Reward],
    labels: Mapping[str, Ints],
    action_words: Sequence[str],
    valuations: Sequence[str],
) -> str:
    """The lines of states first..last-1 with their choices and branches."""
    choices = slice(*description.state_to_choice[[first, last]])
    branches = slice(*description.choice_to_branch[[choices.start, choices.stop]])
    on_states = _lists(rewards, [reward.states for reward in rewards], slice(first, last))
    on_choices = _lists(rewards, _parts_on_choices(description, rewards), choices)
    marks = [""] * (last - first)
    for label, states in labels.items():
        for s in states[slice(*np.searchsorted(states, [first, last]))].tolist():
            marks[s - first] += f" {label}"
    numbers = map(str, range(first, last))
    state_lines = [
        f"state {s}{values}{mark}\n{comment}"
        for s, values, mark, comment in zip(numbers, on_states, marks, valuations, strict=True)
    ]
    actions = _action_column(description, choices, action_words)
    choice_lines = [
        f"\taction {action}{values}\n" for action, values in zip(actions, on_choices, strict=True)
    ]
    targets = description.branch_target[branches].tolist()
    probabilities = formatted(description.branch_prob[branches])
    branch_lines = [f"\t\t{t} : {p}\n" for t, p in zip(targets, probabilities, strict=True)]
    # A state's line comes before those of its choices, a choice's before those of its branches.
    choice_of_state = description.state_to_choice[first:last] - choices.start
    branch_of_choice = description.choice_to_branch[choices] - branches.start
    states_up_to = np.searchsorted(choice_of_state, np.arange(len(choice_lines)), side="right")
    choices_up_to = np.searchsorted(branch_of_choice, np.arange(len(branch_lines)), side="right")
    ordered = np.empty(len(state_lines) + len(choice_lines) + len(branch_lines), dtype=object)
    at_choices = np.arange(len(choice_lines)) + states_up_to + branch_of_choice
    ordered[at_choices] = choice_lines
    ordered[np.arange(len(branch_lines)) + choices_up_to + states_up_to[choices_up_to - 1]] = branch_lines
    ordered[at_choices[choice_of_state] - 1] = state_lines
    return "".join(ordered.tolist())


def _parts_on_choices(
    description: Description, rewards: Sequence[Reward]
) -> list[NDArray[np.float64] | None]:
    """Rewards on choices and branches, the latter by expectation: the format has none on branches."""
    parts: list[NDArray[np.float64] | None] = []
    for reward in rewards:
        if reward.branches is None:
            parts.append(reward.choices)
        else:
            parts.append(description.on_choices_of(Reward(choices=reward.choices, branches=reward.branches)))
    return parts


def _lists(rewards: Sequence[Reward], parts: Sequence[NDArray[np.float64] | None], part: slice) -> list[str]:
    """Lists of rewards in brackets for some states or choices."""
    size = part.stop - part.start
    if not rewards:
        return [""] * size
    columns = [["0"] * size if values is None else formatted(values[part]) for values in parts]
    return [f" [{', '.join(row)}]" for row in zip(*columns, strict=True)]


def _action_column(description: Description, choices: slice, words: Sequence[str]) -> list[str]:
    if description.actions is None:
        return [NO_ACTION] * (choices.stop - choices.start)
    numbers = description.actions[choices].tolist()
    return [words[a] for a in numbers] if words else list(map(str, numbers))
