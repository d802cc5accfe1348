"""Specifications in TOML: read with the lines of what is wrong, and compared."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fastcmdp.check import is_number
from fastcmdp.errors import SettingError
from fastcmdp.files import opened
from fastcmdp.sweep.models import KINDS, Models
from fastcmdp.sweep.settings import as_list, path_text, places_of
from fastcmdp.sweep.specification import OWN, Algorithms, Sweep, check, constants_of, named

MOST = 1 << 22  # bytes of a specification


def read(path: str | Path) -> Sweep:
    """The specification in a TOML file; files of constants are read, and hold from then on.

    Raises
    ------
    FileNotFoundError, PermissionError
        As usual.
    SettingError
        Not TOML, an unknown key or a bad value; the message names the line and the nearest valid name.
    """
    path = Path(path)
    with opened(path) as file:
        data = file.read(MOST + 1)
    if len(data) > MOST:
        raise SettingError(f"{path}: more than {MOST} bytes are no specification")
    try:
        return loads(data.decode(), path.parent, str(path))
    except UnicodeDecodeError as error:
        raise SettingError(f"{path}: not UTF-8 ({error})") from error


def loads(text: str, folder: Path = Path(), name: str = "specification") -> Sweep:
    """The specification in a text; see `read`.

    Examples
    --------
    >>> loads('replicate = 4')
    Traceback (most recent call last):
    fastcmdp.errors.SettingError: specification, line 1: unknown key: 'replicate'; did you mean 'replicates'? ...
    """
    try:
        contents = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise SettingError(f"{name}: not TOML ({error})") from error
    lines = _lines(text)

    def where(*keys: Any) -> str:
        at = next((lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in lines), None)
        return f"{name}: " if at is None else f"{name}, line {at}: "

    for table in (contents, *(t for t in as_list(contents.get("algorithms")) if isinstance(t, dict))):
        for key in ("epsilon", "samples", "gamma"):
            if table is contents or key != "gamma":
                value = table.get(key)
                one = is_number(value) or (key == "gamma" and isinstance(value, str))
                table |= {key: [value]} if one else {}
    if isinstance(contents.get("algorithms"), str | list):
        contents["algorithms"] = named(as_list(contents["algorithms"]))
    if isinstance(contents.get("models"), list):
        contents["models"] = [{"model": m} if isinstance(m, str) else m for m in contents["models"]]
    if isinstance(contents.get("algorithms"), list):
        contents["algorithms"] = [{"name": a} if isinstance(a, str) else a for a in contents["algorithms"]]
    check(contents, where)
    shared = contents.pop("constants", None)
    models = [
        Models(**{k: v for k, v in table.items() if k in KINDS},
               settings={k: v for k, v in table.items() if k not in KINDS}, places=places_of(where, "models", i, table))
        for i, table in enumerate(contents.pop("models"))
    ]  # fmt: skip
    algorithms = []
    for i, table in enumerate(contents.pop("algorithms")):
        constants = table.get("constants", shared)
        at = ("algorithms", i, "constants") if "constants" in table else ("constants",)
        chosen = Algorithms(
            **{k: v for k, v in table.items() if k in OWN and k != "constants"},
            settings={k: v for k, v in table.items() if k not in OWN},
            places=places_of(where, "algorithms", i, table),
        )
        values = constants_of(constants, chosen.variant(), folder, where(*at))
        algorithms.append(Algorithms(**{**chosen.__dict__, "constants": values or None}))
    return Sweep(models=models, algorithms=algorithms, folder=folder, **contents)


def differences(old: Sweep, new: Sweep) -> list[str]:
    """What differs between two specifications, a line each; empty if nothing does."""
    before, after = dict(_leaves(old.to_dict())), dict(_leaves(new.to_dict()))
    lines = []
    for key in [*before, *(key for key in after if key not in before)]:
        if before.get(key) != after.get(key):
            was, now = (json.dumps(d[key]) if key in d else "nothing" for d in (before, after))
            lines.append(f"{path_text(key)}: was {was}, is {now}")
    return lines


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The values of a specification by their places; lists of plain values are one value."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for i, part in enumerate(value):
            yield from _leaves(part, (*path, i))
    else:
        yield path, value


_HEADER = re.compile(r"\s*\[\[\s*(\w+)\s*\]\]")
_ENTRY = re.compile(r"\s*(?:\"([^\"]*)\"|'([^']*)'|([\w-]+))\s*(?:=|\.)")


def _lines(text: str) -> dict[tuple[Any, ...], int]:
    """The lines on which keys stand. A scan, not a parser: what it misses is told without a line."""
    numbers: dict[tuple[Any, ...], int] = {}
    counts: dict[str, int] = {}
    table: tuple[Any, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            name = header.group(1)
            table = (name, counts.get(name, 0))
            counts[name] = counts.get(name, 0) + 1
            numbers.setdefault(table[:1], number)
            numbers[table] = number
        elif single := re.match(r"\s*\[\s*([\w-]+)", line):
            table = (single.group(1),)
            numbers.setdefault(table, number)
        elif entry := _ENTRY.match(line):
            numbers.setdefault((*table, next(part for part in entry.groups() if part is not None)), number)
    return numbers
