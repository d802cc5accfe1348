"""The exceptions that bad input raises."""

from __future__ import annotations

import errno
from typing import Any


class ModelError(ValueError):
    """A model, a policy or a file cannot be used; the message names the place, the value and the remedy."""


class SettingError(ValueError):
    """A setting is out of range or unknown; the message names it, its value and what would be accepted."""


class BudgetError(SettingError):
    """A budget of samples is less than one outer step of the algorithm takes."""


class MissingFileError(FileNotFoundError):
    """A file, or the folder for one, is not there; the message says which, and what to do."""

    def __init__(self, path: Any, reason: str) -> None:
        super().__init__(errno.ENOENT, reason, str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"

    def __reduce__(self) -> Any:
        return type(self), (self.filename, self.strerror)


class UnsavedWarning(RuntimeWarning):
    """The file that was to keep a run could not be written at its end."""


class InfeasibleError(ModelError):
    """No policy meets the constraints. What is known about why is attached; fields that nobody found are empty.

    Attributes
    ----------
    best : tuple of float
        The most favourable attainable value of each constraint taken alone, in the user's units.
    policy : float64[C] or None
        The policy that violates least: the greatest least slack, in kernel units.
    weights : tuple of float
        The proof, >= 0 and of sum 1: for no policy is the weighted sum of the slacks (kernel units) above
        ``value``, which is below 0, so no policy has them all >= 0 (Farkas).
    value : float
        The greatest weighted sum of slacks, in kernel units.
    conflict : tuple of int
        Numbers of a smallest set of constraints that no policy meets together.
    alone : tuple of float
        By how much each limit would have to be loosened, in the user's units, if the others stay: infinite
        where the others conflict among themselves.
    together : tuple of float
        By how much each limit would have to be loosened if all are at once, by the same in kernel units.
    """

    def __init__(
        self,
        message: str,
        best: tuple[float, ...] = (),
        policy: Any = None,
        weights: tuple[float, ...] = (),
        value: float = float("nan"),
        conflict: tuple[int, ...] = (),
        alone: tuple[float, ...] = (),
        together: tuple[float, ...] = (),
    ) -> None:
        super().__init__(message)
        self.best = best
        self.policy, self.weights, self.value = policy, weights, value
        self.conflict, self.alone, self.together = conflict, alone, together


class NearlyInfeasibleWarning(UserWarning):
    """Limits that leave hardly any room: multipliers may be huge, and rounding decides what is feasible."""
