"""Checks of the ready simulators' parameters."""

from __future__ import annotations

import math

import numpy as np

from fastcmdp.errors import ModelError


def check_number(value: object, name: str, low: float, high: float = math.inf) -> float:
    """A finite number from low to high."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        raise ModelError(f"{name} = {value!r}: a number is expected")
    if not math.isfinite(value) or not low <= value <= high:
        raise ModelError(f"{name} = {value!r}: a number from {low:g} to {high:g} is expected")
    return float(value)


def check_count(value: object, name: str, low: int, high: int) -> int:
    """A whole number from low to high."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        raise ModelError(f"{name} = {value!r}: an integer from {low} to {high} is expected")
    return int(value)
