"""Criteria other than the discounted sum, each told as a discounted model with the same policies and the same values.

Nothing that runs knows of them: methods, exact answers, sweeps and files see a discounted model. See docs/average.md
and docs/horizon.md for the identities and their proofs.
"""

from __future__ import annotations

from collections.abc import Callable

from fastcmdp.criteria.average import average, one_class
from fastcmdp.criteria.episodes import episodes
from fastcmdp.criteria.plain import PlainRows, Restated, criterion_of
from fastcmdp.criteria.steps import unrolled

CRITERIA: dict[str, Callable[[PlainRows], Restated]] = {
    "average": average,
    "episodes": episodes,
    "steps": episodes,  # of rows that are unrolled over time
}

__all__ = [
    "CRITERIA",
    "PlainRows",
    "Restated",
    "average",
    "criterion_of",
    "episodes",
    "one_class",
    "unrolled",
]
