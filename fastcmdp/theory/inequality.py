"""Both sides of a statement, and how they compare: exactly, or on the average of runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROUNDING = 1e-9  # relative, in comparisons of exact sides
IDENTITY = 1e-10  # relative, in identities
FALSE_ALARM = 1e-4  # of an interval


@dataclass(frozen=True)
class Inequality:
    """Both sides of a statement of the paper on a given problem.

    Attributes
    ----------
    name : str
        "Lemma 2", ...
    statement : str
        What is compared.
    relation : "<=" or "="
    left, right : float
        Both sides in kernel units; of a random statement their means over runs; of an identity of vectors
        their Euclidean norms.
    holds : bool or None
        None: the runs are too few to tell.
    how : str
        How the sides were found.
    interval : (float, float) or None
        99.99 % confidence interval of the left side by Student's t over runs (of left - right, moved to the right
        side's mean, where that is random too); None where both are exact.
    """

    name: str
    statement: str
    relation: Literal["<=", "="]
    left: float
    right: float
    holds: bool | None
    how: str
    interval: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return fields | {"interval": None if self.interval is None else list(self.interval)}


def at_most(name: str, statement: str, left: float, right: float, how: str = "exact") -> Inequality:
    holds = bool(left <= right + ROUNDING * (abs(left) + abs(right)))
    return Inequality(name, statement, "<=", float(left), float(right), holds, how)


def equal(
    name: str, statement: str, left: Any, right: Any, how: str, tolerance: float = IDENTITY
) -> Inequality:
    a, b = np.atleast_1d(np.asarray(left, np.float64)), np.atleast_1d(np.asarray(right, np.float64))
    apart = float(np.abs(a - b).max(initial=0.0))
    holds = bool(apart <= tolerance * max(1.0, float(np.abs(b).max(initial=0.0))))
    sides = (
        (float(a[0]), float(b[0])) if a.size == 1 else (float(np.linalg.norm(a)), float(np.linalg.norm(b)))
    )
    return Inequality(name, statement, "=", *sides, holds, f"{how}; largest difference {apart:.1e}")


def half_width(values: Floats, false_alarm: float = FALSE_ALARM) -> Any:
    """Half the width of the t interval of a mean over runs (axis 0)."""
    n = len(values)
    if n < 2:
        return np.full(values.shape[1:], np.inf)
    from scipy.special import stdtrit  # here, since it is slow to import

    return stdtrit(n - 1, 1.0 - false_alarm / 2.0) * values.std(axis=0, ddof=1) / math.sqrt(n)


def verdict(low: float, high: float, right: float) -> bool | None:
    """Whether left <= right, for a left side that lies between low and high; None: cannot be told."""
    return True if high <= right else False if low > right else None


def on_average(name: str, statement: str, left: Floats, right: Floats | float) -> Inequality:
    """From one value of each side a run; a number on the right is exact."""
    mean, bound = float(left.mean()), float(np.mean(right))
    half = float(half_width(left - right if isinstance(right, np.ndarray) else left))
    low, high = mean - half, mean + half
    how = f"{len(left)} runs"
    return Inequality(name, statement, "<=", mean, bound, verdict(low, high, bound), how, (low, high))
