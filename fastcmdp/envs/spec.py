"""Models named by a line of text: `env:NAME?key=value&...` and `gym:ID?key=value&...`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from urllib.parse import unquote

from fastcmdp.cmdp import CMDP
from fastcmdp.criteria import criterion_of
from fastcmdp.envs.applications import dam, maintenance, taxi, treatment, two_echelon, wireless
from fastcmdp.envs.chains import inventory, queue, river_swim
from fastcmdp.envs.garnets import garnet
from fastcmdp.envs.grids import grid_world, resource_gathering
from fastcmdp.envs.gym import from_gymnasium
from fastcmdp.envs.hard import hard_instance
from fastcmdp.errors import SettingError
from fastcmdp.text import unknown

GENERATORS: dict[str, Callable[..., CMDP]] = {
    "dam": dam,
    "garnet": garnet,
    "grid_world": grid_world,
    "hard_instance": hard_instance,
    "inventory": inventory,
    "maintenance": maintenance,
    "queue": queue,
    "resource_gathering": resource_gathering,
    "river_swim": river_swim,
    "taxi": taxi,
    "treatment": treatment,
    "two_echelon": two_echelon,
    "wireless": wireless,
}
"""The generators by the names they have in `env:NAME`."""

Value = bool | int | float | str | None | tuple[float, ...]


def from_spec(spec: str) -> CMDP:
    """The model of `env:NAME?key=value&...` (a generator) or `gym:ID?key=value&...` (Gymnasium).

    Values are read as an int, a float, `true` or `false`, `none`, numbers joined by commas, or else text;
    percent escapes are resolved. Dashes in NAME are read as underscores. After `gym:ID` the keys are `cost`,
    `limit`, `gamma`, `start`, and the keywords of the environment.

    Parameters
    ----------
    spec : str
        The line of text.

    Raises
    ------
    SettingError
        An unknown kind, name or key: the message lists the valid ones and the nearest. A key without a value,
        or twice.
    ModelError
        From the generator or the adapter.

    Examples
    --------
    >>> from fastcmdp.envs import from_spec
    >>> from_spec("env:river_swim?n_states=6&limit=5")
    CMDP(6 states, 12 choices, 22 branches, gamma=0.95, maximise reward, strokes <= 5)
    """
    kind, colon, rest = spec.partition(":")
    name, _, query = rest.partition("?")
    if not colon or kind not in ("env", "gym") or not name:
        raise SettingError(
            f"a generated model is env:NAME?key=value&... or gym:ID?key=value&..., got {spec!r}"
        )
    settings: dict[str, Any] = parse_settings(query.split("&") if query else (), repr(spec))
    if kind == "gym":
        if "env" in settings:
            raise SettingError(f"unknown key in {spec!r}: 'env'")
        return _stated(partial(from_gymnasium, name), settings)
    name = name.replace("-", "_")
    if name not in GENERATORS:
        raise SettingError(unknown("generator", name, GENERATORS))
    valid = inspect.signature(GENERATORS[name]).parameters
    for key in settings:
        if key not in valid:
            raise SettingError(unknown(f"setting of env:{name}", key, valid))
    return _stated(GENERATORS[name], settings)


def _stated(make: Callable[..., CMDP], settings: dict[str, Any]) -> CMDP:
    """The model, under the criterion that ``gamma`` names; limits that are not given become those of averages.

    A limit d on a discounted sum is (1 - gamma) d on the average, with the generator's own gamma. For episodes it is
    left as it is.
    """
    criterion = criterion_of(settings.get("gamma"))
    if criterion == "discounted":
        return make(**settings)
    plain = make(**{key: value for key, value in settings.items() if key != "gamma"})
    limited = criterion == "episodes" or settings.get("limit") is not None
    return plain.with_criterion(criterion, limits=plain.limits if limited else plain.unit * plain.limits)


def parse_settings(parts: Iterable[str], where: str) -> dict[str, Value]:
    """Settings written as key=value; percent escapes are resolved, ``where`` is what a message begins with.

    Raises
    ------
    SettingError
        Not of this form, or a key twice.

    Examples
    --------
    >>> parse_settings(["n_states=6", "limit=none"], "env:river_swim")
    {'n_states': 6, 'limit': None}
    """
    settings: dict[str, Value] = {}
    for part in parts:
        key, equals, text = part.partition("=")
        if not key or not equals or not text:
            raise SettingError(f"{where}: key=value is expected, found {part!r}")
        if key in settings:
            raise SettingError(f"{where}: {key} is given twice")
        settings[key] = parse_value(unquote(text))
    return settings


def parse_value(text: str) -> Value:
    """An int, a float, a bool, None, a tuple of numbers, or the text itself.

    Examples
    --------
    >>> [parse_value(text) for text in ("5", "0.5", "1e6", "true", "none", "0.2,0.3", "8x8")]
    [5, 0.5, 1000000.0, True, None, (0.2, 0.3), '8x8']
    """
    words: dict[str, Value] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for read in (int, float, _numbers):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _numbers(text: str) -> tuple[float, ...]:
    if "," not in text:
        raise ValueError(text)
    return tuple(float(part) for part in text.split(","))
