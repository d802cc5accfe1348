"""Checks of what simulators are given: parameters, sizes, ranges, states, streams."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcmdp.check import real, whole
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.units import numbers_in

Float = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

LARGEST = 65_536  # numbers in a state, actions, features


def check_number(value: object, name: str, low: float, high: float = math.inf) -> float:
    """A finite number from low to high."""
    return real(name, value, low, high, error=ModelError)


def check_count(value: object, name: str, low: int, high: int) -> int:
    """A whole number from low to high."""
    return whole(name, value, low, high, error=ModelError)


def stream_of(rng: Any) -> Words:
    fits = isinstance(rng, np.ndarray) and rng.dtype == np.uint64 and rng.shape == (4,)
    if not fits or not (rng.flags.carray and rng.dtype.isnative):
        raise SettingError(
            "rng is no stream; simulator.stream(seed) makes one (uint64[4], contiguous, writeable)"
        )
    return rng  # type: ignore[no-any-return]


def numbers_or_none(values: Any) -> Float:
    """A copy as float64; of what is none, an array without elements."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        return np.empty(0)


def check_size(value: Any, name: str) -> int:
    return check_count(value, name, 1, LARGEST)


def check_pairs(values: Any, n: int, name: str) -> Float:
    pairs = np.asarray(numbers_in(values, name), np.float64)
    if pairs.ndim == 1:
        pairs = np.broadcast_to(pairs, (n, *pairs.shape))
    if pairs.shape != (n, 2) or not np.isfinite(pairs).all() or (pairs[:, 0] > pairs[:, 1]).any():
        raise ModelError(
            f"{name} = {values!r}: pairs (low, high) of finite numbers are expected, {n} of them"
        )
    return pairs
