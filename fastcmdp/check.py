"""Settings, checked: each kind of number in one spelling, and one form of message, NAME = VALUE: WHAT is expected."""

from __future__ import annotations

import importlib
import math
import numbers
import os
from decimal import Decimal
from typing import Any, TypeGuard

import numpy as np

from fastcmdp.errors import SettingError

LONG = 2**64  # an integer that is still shown with all its digits
Fault = type[ValueError]

MOST = 2**40  # of anything that is counted: beyond, counters and memory end before the run does


def require(holds: object, name: str, value: object, accepted: str, error: Fault = SettingError) -> None:
    """Raise an error that names the setting, its value and what would be accepted, unless it holds."""
    if not holds:
        raise error(f"{name} = {_shown(value)}: {accepted} is expected")


def _shown(value: object) -> str:
    """As in Python; an integer beyond all use without its digits, of which there may be too many to print."""
    if not is_whole(value) or value <= LONG:
        return repr(value)
    return f"{Decimal(int(value)):.3e}"


def is_whole(value: object, low: int = 0, high: int | None = None) -> TypeGuard[int]:
    """Whether value is an integer, of Python or NumPy, from low to high; True is none.

    Examples
    --------
    >>> [is_whole(value, 1) for value in (1, np.int8(3), 0, 1.0, True)]
    [True, True, False, False, False]
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        return False
    return int(value) >= low and (high is None or int(value) <= high)


def is_number(value: object) -> TypeGuard[float]:
    """Whether value is a finite real number, of Python or NumPy, that a double can be; True is none."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond all doubles
        return False


def is_finite(value: object) -> bool:
    """Whether value is a number, or an array of numbers, all finite."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of several lengths
        return False
    return array.dtype.kind in "iuf" and array.size > 0 and bool(np.isfinite(array).all())


def is_positive(value: Any) -> bool:
    """Whether value is a positive finite number, or several."""
    return is_finite(value) and bool((np.asarray(value) > 0).all())


def whole(name: str, value: Any, low: int, high: int | None = MOST, *, error: Fault = SettingError) -> int:
    """`value` as an int from low to high, None: without end; floats without a fraction (1e6) are taken as well.

    Raises
    ------
    error
        By default a SettingError: no such number.

    Examples
    --------
    >>> whole("outer", 1e6, 1)
    1000000
    >>> whole("outer", 2.5, 1)
    Traceback (most recent call last):
    fastcmdp.errors.SettingError: outer = 2.5: an integer of at least 1 is expected
    """
    integral = isinstance(value, float | np.floating) and float(value).is_integer()
    number = int(value) if integral else value
    if high is None or (high == MOST and not (is_whole(number) and number > MOST)):
        accepted = f"an integer of at least {low}"
    else:
        accepted = f"an integer from {low} to {high if high < MOST else '2^40'}"
    require(is_whole(number, low, high), name, value, accepted, error)
    return int(number)


def seed_number(value: Any, *, error: Fault = SettingError) -> int:
    """A seed as an int: any whole number from 0 on.

    Examples
    --------
    >>> seed_number(2**70) == 2**70
    True
    """
    return whole("seed", value, 0, None, error=error)


def real(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    inside: bool = False,
    error: Fault = SettingError,
) -> float:
    """`value` as a finite float from low to high, or strictly between the two with ``inside``.

    Raises
    ------
    error
        By default a SettingError: no such number.

    Examples
    --------
    >>> real("gamma", np.float32(0.5), 0, 1, inside=True)
    0.5
    """
    number = float(value) if is_number(value) else math.nan
    within = low < number < high if inside else low <= number <= high
    left, right = ("(", ")") if inside else ("[", "]")
    require(within, name, value, f"a number in {left}{low:g}, {high:g}{right}", error)
    return number


def positive(name: str, value: Any, low: float = 0.0) -> float:
    """`value` as a float that is positive, finite and at least ``low``.

    Examples
    --------
    >>> positive("eta", 2)
    2.0
    """
    accepted = "a positive number" + (f" of at least {low:g}" if low else "")
    require(is_number(value) and value > 0 and value >= low, name, value, accepted)
    return float(value)


def optional(name: str, user: str, extra: str) -> Any:
    """An optional library, by its name and that of what needs it.

    Raises
    ------
    SettingError
        It is not installed; the message says how to get it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingError(f"{user} needs {name} ({error}): pip install 'fastcmdp[{extra}]'") from error


def check_memory(size: float, /, **settings: object) -> None:
    """A SettingError that names the settings if so many bytes are more than the memory of this machine.

    Examples
    --------
    >>> check_memory(1e15, n_states=10**9)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fastcmdp.errors.SettingError: n_states = 1000000000: a model of this size takes about 931,323 GiB; ...
    """
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > there:
        listed = ", ".join(f"{name} = {value}" for name, value in settings.items())
        raise SettingError(
            f"{listed}: a model of this size takes about {size / 2**30:,.0f} GiB; this machine has "
            f"{there / 2**30:.0f} GiB"
        )
