"""Settings of the theory's functions, checked."""

from __future__ import annotations

import math

import numpy as np

from fastcmdp.errors import SettingError

SMALLEST = 1e-50  # squares and reciprocals of what is checked stay finite


def check_positive(name: str, value: float) -> float:
    """The value as a float.

    Raises
    ------
    SettingError
        Not a positive finite number.
    """
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not SMALLEST <= value < math.inf:
        raise SettingError(f"{name} = {value!r}: a positive number of at least {SMALLEST} is expected")
    return float(value)
