"""The exceptions that bad input raises."""

from __future__ import annotations


class ModelError(ValueError):
    """A model, a policy or a file cannot be used; the message names the place, the value and the remedy."""


class SettingError(ValueError):
    """A setting is out of range or unknown; the message names it, its value and what would be accepted."""


class BudgetError(SettingError):
    """A budget of samples is less than one outer step of the algorithm takes."""


class UnsavedWarning(RuntimeWarning):
    """The file that was to keep a run could not be written at its end."""


class InfeasibleError(ModelError):
    """No policy meets the constraints.

    Attributes
    ----------
    best : tuple of float
        The most favourable attainable value of each constraint taken alone, in the user's units.
    """

    def __init__(self, message: str, best: tuple[float, ...] = ()) -> None:
        super().__init__(message)
        self.best = best
