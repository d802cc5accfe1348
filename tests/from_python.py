"""Functions that compiled code alone calls, as Python functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def from_python(function: Callable[..., Any]) -> Any:
    """A function of kernels/, compiled at its first call; it may be one whose implementation a type picks."""
    return njit(lambda *arguments: function(*arguments))
