"""Checks of settings; a SettingError names the setting, its value and what is accepted."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from fastcmdp.errors import SettingError


def integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """`value` as an int within [low, high]; floats without a fraction (1e6) are accepted."""
    accepted = f"an integer of at least {low}" if high is None else f"an integer in [{low}, {high}]"
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole and not (isinstance(value, float | np.floating) and float(value).is_integer()):
        raise SettingError(f"{name} must be {accepted}, got {value!r}")
    number = int(value)
    if number < low or (high is not None and number > high):
        raise SettingError(f"{name} must be {accepted}, got {number}")
    return number


def real(
    name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, inside: bool = False
) -> float:
    """`value` as a finite float within [low, high], or strictly between the two with `inside`."""
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    within = low < number < high if inside else low <= number <= high
    if not (within and math.isfinite(number)):
        left, right = ("(", ")") if inside else ("[", "]")
        raise SettingError(f"{name} must be a number in {left}{low:g}, {high:g}{right}, got {value!r}")
    return number


def unknown(what: str, found: object, valid: Iterable[str]) -> str:
    """The message for an unknown name: what was found, the nearest valid one, all valid ones."""
    names = sorted(valid)
    near = difflib.get_close_matches(str(found), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what}: {found!r}; {hint}valid: {', '.join(names)}"
