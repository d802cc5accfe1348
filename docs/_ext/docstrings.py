"""Docstrings as Sphinx reads them: they are written to be read as they stand, with |x| and x* in plain words."""

from __future__ import annotations

import re
from typing import Any

_LITERAL = re.compile(r"(``.+?``|`.+?`)")


def escaped(line: str) -> str:
    r"""A line in which bars, stars and names that end in an underscore mean themselves.

    Examples
    --------
    >>> escaped("E|x|^2 of x* in `|a|`")
    'E\\|x\\|^2 of x\\* in `|a|`'
    """
    parts = _LITERAL.split(line)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([|*])", r"\\\1", parts[i])
        parts[i] = re.sub(r"(\w)_(?=[\s,.;:)\]']|$)", r"\1\\_", parts[i])
    return "".join(parts)


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape the words of a docstring; blocks of code, tables and examples stay."""
    literal = False
    for i, line in enumerate(lines):
        if line.strip() and not line.startswith(" "):
            literal = False
        if not literal and not line.lstrip().startswith((">>>", "...", ":", "..", "+-", "==")):
            bullet = re.match(r"\s*\* ", line)
            start = bullet.end() if bullet else 0
            lines[i] = line[:start] + escaped(line[start:])
        if line.rstrip().endswith("::"):
            literal = True


def skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out fields of a NamedTuple, whose text of their own says nothing; the class describes them."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


def setup(app: Any) -> dict[str, bool]:
    """For Sphinx."""
    app.connect("autodoc-process-docstring", process, priority=100)  # before napoleon
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
