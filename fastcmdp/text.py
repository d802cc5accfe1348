"""Text for people and for files: names made visible, aligned tables, numbers, TOML, JSON."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def visible(text: object, keep: str = "") -> str:
    r"""Text as it may be shown: control characters, escape sequences and what turns lines around as \x1b and such.

    Characters in ``keep``, such as the ends of lines of a message, stay; doing it twice changes nothing.

    Examples
    --------
    >>> visible("cost\x1b[2J\n"), visible("größe α")
    ('cost\\x1b[2J\\n', 'größe α')
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


class VisibleStream:
    r"""A stream of text on which all is `visible`, letters too that its encoding does not have.

    Examples
    --------
    >>> import io, sys
    >>> ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    >>> print("größe\x1b[2J", file=VisibleStream(ascii_only), flush=True)
    >>> ascii_only.buffer.getvalue()
    b'gr\\xf6\\xdfe\\x1b[2J\n'
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text; ends of lines, tabs and carriage returns stay."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        shown = visible(text, keep="\n\t\r").encode(encoding, "backslashreplace").decode(encoding)
        self._stream.write(shown)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def number(value: float | None, form: str = ".3g", missing: str = "-") -> str:
    """A number in this form; a mark where it is missing or not finite, and never a negative zero.

    Examples
    --------
    >>> number(0.12345), number(None), number(-0.0)
    ('0.123', '-', '0')
    """
    return missing if value is None or not math.isfinite(value) else format(value + 0.0, form)


def duration(seconds: float) -> str:
    """A time in the unit in which it is a small number.

    Examples
    --------
    >>> duration(3.21), duration(300), duration(86400), duration(1e9)
    ('3.2 s', '5.0 min', '24.0 h', '11,574.1 days')
    """
    for unit, length in (("s", 1.0), ("min", 60.0), ("h", 3600.0)):
        if seconds < 90.0 * length if unit != "h" else seconds < 48.0 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds / 86400.0:,.1f} days"


def down(value: float) -> str:
    """A largest value that is accepted, in three digits, and rounded so that it is accepted as it stands.

    Examples
    --------
    >>> down(2.0**40), down(0.12345)
    ('1.09e+12', '0.123')
    """
    text = f"{value:.3g}"
    return (
        text if float(text) <= value else f"{float(text) - 10.0 ** (math.floor(math.log10(value)) - 2):.3g}"
    )


def table(rows: Iterable[Sequence[str]], left: Iterable[int] = (0,), gap: str = "  ") -> str:
    """Rows of cells in columns: those in ``left`` begin at the same place, the others end there.

    Examples
    --------
    >>> print(table([("name", "size"), ("a", "12"), ("bcdef", "3")]))
    name   size
    a        12
    bcdef     3
    """
    rows, left = [list(row) for row in rows], set(left)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        gap.join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def unknown(what: str, word: object, valid: Iterable[str]) -> str:
    """The message for an unknown name: what was found, the nearest valid one, all valid ones.

    Examples
    --------
    >>> unknown("colour", "gren", ["red", "green"])
    "unknown colour: 'gren'; did you mean 'green'? valid: green, red"
    """
    names = sorted(valid)
    return f"unknown {what}: {word!r}; {nearest(str(word), names)}valid: {', '.join(map(visible, names))}"


def nearest(word: str, names: Sequence[str]) -> str:
    """The question whether the nearest name was meant, or nothing where none is near."""
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def plain(value: Any) -> Any:
    """A value in the types of JSON and TOML: arrays and tuples as lists, NumPy's numbers as Python's.

    Examples
    --------
    >>> plain({"a": np.array([1.0, 2.0]), "b": (np.int64(2), range(2))})
    {'a': [1.0, 2.0], 'b': [2, [0, 1]]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple | range):
        return [plain(part) for part in value]
    return value


def finite(value: Any) -> Any:
    """`plain`, with None for numbers that are not finite, which strict JSON lacks.

    Examples
    --------
    >>> finite([1.0, np.nan, (np.inf,)])
    [1.0, None, [None]]
    """
    value = plain(value)
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def toml(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """A table of TOML: its own values, then the tables in it under their headers.

    Examples
    --------
    >>> print(toml({"a": 1, "b c": {"d": [0.5, True], "e": "x"}}), end="")
    a = 1
    <BLANKLINE>
    ["b c"]
    d = [0.5, true]
    e = "x"
    """
    inner = {key: part for key, part in table.items() if isinstance(part, Mapping)}
    lines = [f"{toml_key(key)} = {toml_value(part)}\n" for key, part in table.items() if key not in inner]
    for key, part in inner.items():
        below = (*path, key)
        lines.append(f"\n[{'.'.join(map(toml_key, below))}]\n{toml(part, below)}")
    return "".join(lines)


def toml_key(name: str) -> str:
    """A key of TOML, in quotes where it needs them."""
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else toml_value(name)


def toml_value(value: Any) -> str:
    """A value of TOML on one line; tables in braces.

    Examples
    --------
    >>> toml_value({"x": (1, 2.5), "y": 'say "a"'})
    '{ x = [1, 2.5], y = "say \\\\"a\\\\"" }'
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(part)}" for key, part in value.items()) + " }"
    if isinstance(value, np.ndarray | np.generic):
        return toml_value(value.tolist())
    if isinstance(value, list | tuple | range):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, int | float):
        return repr(value)  # 1e-05, inf and nan are the same in TOML
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
