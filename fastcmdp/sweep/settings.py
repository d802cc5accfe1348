"""What the tables of a specification share: numbers, lists, texts, and where a key stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fastcmdp.check import is_number, require
from fastcmdp.text import plain

Where = Callable[..., str]
"""The place of a key, as what a message begins with."""

Places = Mapping[str, str]
"""Where the keys of a table stand, for messages, and under "" the table itself; empty for what is made in Python."""


def places_of(where: Where, name: str, i: int, table: Mapping[str, Any]) -> Places:
    """Where the keys of the i-th table of a name stand."""
    return {"": where(name, i)} | {key: where(name, i, key) for key in table}


def place_of(places: Places, message: str) -> str:
    """The place of the first key that a message names, or of the table."""
    named = (key for key in places if key and re.search(rf"(?<![\w&?]){re.escape(key)}\b(?!=)", message))
    return places.get(next(named, ""), "")


def require_at(holds: object, where: str, name: str, value: object, accepted: str) -> None:
    """`require`, with the place before the name."""
    require(holds, where + name, value, accepted)


def is_positive(value: Any) -> bool:
    """Whether value is one positive finite number."""
    return is_number(value) and value > 0


def as_list(value: Any) -> list[Any]:
    """A sequence as a list, anything else as a list of it."""
    return list(value) if isinstance(value, list | tuple | range) else [value]


def floats(values: Any) -> list[Any]:
    """Numbers as floats, anything else as it is, to be refused later."""
    items = () if values is None else as_list(plain(values))
    return [float(v) if is_positive(v) else v for v in items]


def query_text(value: Any) -> str:
    """A setting as in `env:NAME?key=value`."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(query_text(part) for part in value)
    return quote(value, safe="/:<>= ") if isinstance(value, str) else repr(value)


def path_text(keys: Sequence[Any]) -> str:
    """Where a key stands, as `models[0].gamma`."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return text.removeprefix(".")
