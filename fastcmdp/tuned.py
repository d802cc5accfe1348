"""Files of tuned constants: what `fastcmdp tune` writes, and `compare`, `solve` and sweeps read.

TOML, one table an algorithm, with the constants of its schedule (the names in ``Algorithm.constants``); a constant
that is not there keeps its default, so an empty table says that nothing beat the defaults. A table may also be for an
algorithm with settings, `["pd-anpg?method=sgd"]`. The table ``meta`` says where the constants are from; it is
for people, and no part of the program depends on it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastcmdp.algorithms.variants import Variant, variant
from fastcmdp.check import is_finite
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.files import opened, replacing
from fastcmdp.text import toml, unknown

Constants = dict[str, dict[str, float]]

META = "meta"
MOST = 1 << 20  # bytes; a file of constants has hundreds
HEAD = (
    "# Constants of schedules, found by `fastcmdp tune`; `compare` and `solve` take them with --constants.\n"
)


def read_constants(path: str | Path) -> Constants:
    """The constants in a file, by algorithm.

    Raises
    ------
    FileNotFoundError, PermissionError
        As usual.
    ModelError
        Not a TOML file of tables.
    SettingError
        An unknown algorithm or constant, or a value that is not a finite positive number; the message names the
        file, the table, the key, and the nearest valid name.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/tuned.toml"
    ...     write_constants(path, {"pd-anpg": {"c_eta": 0.5}}, {"samples": 1_000_000})
    ...     read_constants(path), read_meta(path)
    ({'pd-anpg': {'c_eta': 0.5}}, {'samples': 1000000})
    """
    return check_constants({name: table for name, table in _read(path).items() if name != META}, str(path))


def read_meta(path: str | Path) -> dict[str, Any]:
    """What the file says of where its constants are from; empty where it says nothing."""
    meta = _read(path).get(META, {})
    return meta if isinstance(meta, dict) else {}


def check_constants(tables: Mapping[str, Any], where: str = "constants") -> Constants:
    """The same as plain floats, or a SettingError that names the place; ``where`` is what the message begins with."""
    checked: Constants = {}
    if not isinstance(tables, Mapping):
        raise SettingError(
            f"{where} = {tables!r}: a mapping of algorithms to constants is expected, or a file"
        )
    for name, table in tables.items():
        place = f"{where}: [{name}]"
        try:
            method = variant(name).algorithm
        except SettingError as error:
            raise SettingError(f"{place}: {error}") from error
        if not isinstance(table, Mapping):
            raise SettingError(f"{place}: a table of constants is expected, found {table!r}")
        for key, value in table.items():
            if key not in method.constants:
                raise SettingError(f"{place}: {unknown(f'constant of {method.name}', key, method.constants)}")
            if not is_finite(value) or np.ndim(value) > 0 or not value > 0:
                raise SettingError(f"{place} {key} = {value!r}: a finite positive number is expected")
        checked[name] = {key: float(value) for key, value in table.items()}
    return checked


def constants_for(method: Variant, constants: Mapping[str, Mapping[str, float]]) -> dict[str, float] | None:
    """Those of a variant: its own table, else its algorithm's, less what its settings fix; None without either."""
    table = constants.get(method.label, constants.get(method.algorithm.name))
    return None if table is None else {k: v for k, v in table.items() if k not in method.settings}


def write_constants(
    path: str | Path, constants: Mapping[str, Mapping[str, float]], meta: Mapping[str, Any] | None = None
) -> None:
    """Write constants, and where they are from, so that the file is either whole or as it was before.

    ``meta`` holds numbers, text and truth values, and tables of them.
    """
    checked = check_constants(constants)
    tables = {META: meta} if meta else {}
    text = HEAD + toml(tables | checked)
    with replacing(Path(path)) as file:
        file.write(text.encode())


def _read(path: str | Path) -> dict[str, Any]:
    try:
        with opened(Path(path)) as file:
            data = file.read(MOST + 1)
        if len(data) > MOST:
            raise ModelError(f"more than {MOST} bytes")
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        raise ModelError(f"{path}: not a file of constants ({error})") from error
