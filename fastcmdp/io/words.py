"""Names and numbers as words of text formats.

Words end at blanks. A name that has some, or would mean something else, is written as another word, and a comment
that only our readers know gives the names back:

    fastcmdp names: {"actions": {"turn_left": "turn left"}, "rewards": {"cost_0": "cost 0"}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_ACTION = 2**31 - 1
_CONTINUOUS = "a model in continuous time; only discrete time is supported"
_GAME = "a game; models of one player (MDP) or none (DTMC) are supported"
OTHER_KINDS = {
    "ctmc": _CONTINUOUS,
    "ctmdp": _CONTINUOUS,
    "ma": _CONTINUOUS,
    "markov automaton": _CONTINUOUS,
    "pomdp": "partial observability is not supported",
    "s2pg": _GAME,
    "smg": _GAME,
    "stpg": _GAME,
    "tsg": _GAME,
    "csg": _GAME,
    "lts": "a model without probabilities, which is not supported",
    **dict.fromkeys(("idtmc", "imdp", "ipomdp"), "interval models are not supported, only single numbers"),
}
"""Kinds of models that are refused, and why."""

ALIASES = "fastcmdp names: "
LONGEST = 200  # letters of a word


def safe_words(
    names: Iterable[str], taken: Iterable[str] = (), unsafe: str = r'^(//|\[|#)|[\s\x00-\x1f\x7f"]'
) -> list[str]:
    """Names without what would end a word or mean something else, all different, none of them empty."""
    words = dict.fromkeys(taken, "")
    n_taken = len(words)
    for name in names:
        word = re.sub(unsafe, "_", name)[:LONGEST] or "_"
        numbered, i = word, 1
        while numbered in words:
            i += 1
            numbered = f"{word}_{i}"
        words[numbered] = name
    return list(words)[n_taken:]


def aliases(names: Mapping[str, Iterable[str]], words: Mapping[str, Sequence[str]]) -> str:
    """The comment that gives the names of such words back, or nothing where all are their own names."""
    changed = {
        kind: {word: name for word, name in zip(words[kind], names[kind], strict=True) if word != name}
        for kind in words
    }
    changed = {kind: table for kind, table in changed.items() if table}
    return ALIASES + json.dumps(changed) if changed else ""


def parsed_aliases(comment: str) -> Any:
    """What such a comment says; None if it says nothing that can be read."""
    try:
        return json.loads(comment.removeprefix(ALIASES))
    except (ValueError, RecursionError):
        return None


def renamed(words: Iterable[str], tables: Any, kind: str) -> list[str]:
    """Words as the names that a comment gives them."""
    words = list(words)
    table = tables.get(kind) if isinstance(tables, dict) else None
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        return words
    names = [table.get(word, word) for word in words]
    return names if len(set(names)) == len(names) else words


def numbers_of(
    codes: NDArray[Any], names: list[str], missing: str
) -> tuple[NDArray[np.int32] | None, tuple[str, ...]]:
    """Actions from the codes of their names: numbers if all names are such, None if all are ``missing``."""
    if not names or names == [missing]:
        return None, ()
    if all(re.fullmatch(r"0|[1-9]\d{0,9}", name) and int(name) <= MAX_ACTION for name in names):
        return np.array([int(name) for name in names], dtype=np.int32)[codes], ()
    return codes.astype(np.int32), tuple(names)


def formatted(values: NDArray[Any]) -> list[str]:
    """Numbers as text that gives the same bits back."""
    distinct, index = np.unique(values, return_inverse=True)
    if len(distinct) < len(values) // 4:
        table = written(distinct)
        return [table[i] for i in index.tolist()]
    return written(values)


def written(values: NDArray[Any]) -> list[str]:
    """`formatted` without looking for repetitions."""
    return [text[:-2] if text.endswith(".0") else text for text in map(repr, values.tolist())]
