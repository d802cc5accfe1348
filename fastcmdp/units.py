"""Units: what a user states, and what kernels see.

A problem asks to maximise J_r subject to J_gi <= d_i or J_gi >= d_i in the user's units. The kernels see it shifted
and scaled, once, by equations (3) to (7) of ``fastcmdp.cmdp``. Models and simulators share what is here.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcmdp.errors import ModelError
from fastcmdp.text import visible

FloatArray = npt.NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
TINY = 1e-3  # signals that are smaller are scaled up: solvers' tolerances are absolute
HUGE = 1e150  # beyond this, sums and products of values would overflow
FAR = 1e3  # spans of the costs beyond what they can sum to: a limit that far is as good as any beyond
FORBIDDEN = (
    ". Leave out actions that a state must not take: from_arrays(..., available=np.isfinite(R)), R (S, A)"
)


class Units:
    """Limits and scales of a problem; values and multipliers between the user's units and the kernels'."""

    gamma: float
    limits: FloatArray
    anchors: FloatArray  # limits as kernels see them: `anchors_of`
    sense: tuple[str, ...]
    names: tuple[str, ...]
    reward_shift: float
    reward_scale: float
    constraint_scale: FloatArray

    @property
    def n_constraints(self) -> int:
        """Number of constraints m."""
        return len(self.limits)

    @property
    def unit(self) -> float:
        """1 - gamma: the chance that a step is the last one; it takes sums to means."""
        return 1.0 - self.gamma

    @property
    def horizon(self) -> float:
        """1 / (1 - gamma): the mean number of steps, and the discounted sum of ones."""
        return 1.0 / (1.0 - self.gamma)

    def to_user_values(self, values: npt.ArrayLike) -> FloatArray:
        """J in kernel units, (..., 1+m), to the user's units, equation (6).

        Examples
        --------
        >>> import fastcmdp as fc
        >>> cmdp = fc.CMDP([0, 1], [0, 1], [0], [1], [3], [4], gamma=0.5, limits=9)
        >>> cmdp.to_user_values(cmdp.signals[0] / (1 - 0.5)).tolist()
        [6.0, 8.0]
        """
        kernel = _last_axis(values, 1 + self.n_constraints, "values")
        user = np.empty_like(kernel)
        user[..., 0] = self.reward_scale * kernel[..., 0] + self.reward_shift / (1.0 - self.gamma)
        user[..., 1:] = self.anchors - self._sign * self.constraint_scale * kernel[..., 1:]
        return user

    def to_user_duals(self, duals: npt.ArrayLike) -> FloatArray:
        """Multipliers in kernel units, (..., m), to the user's units, equation (7)."""
        return _last_axis(duals, self.n_constraints, "duals") * (self.reward_scale / self.constraint_scale)

    def from_user_duals(self, duals: npt.ArrayLike) -> FloatArray:
        """Multipliers in the user's units, (..., m), to kernel units: the inverse of `to_user_duals`."""
        return _last_axis(duals, self.n_constraints, "duals") * (self.constraint_scale / self.reward_scale)

    def slack(self, values: npt.ArrayLike) -> FloatArray:
        """By how much values in the user's units, (..., 1+m), meet the limits, (..., m); negative if not.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> fc.CMDP([0, 1], [0, 1], [0], [1], [1], [1], gamma=0.5, limits=3).slack([2.0, 2.0]).tolist()
        [1.0]
        """
        user = _last_axis(values, 1 + self.n_constraints, "values")
        return self._sign * (self.limits - user[..., 1:])

    @property
    def rollout_length(self) -> float:
        """Expected transitions of a rollout with a geometric horizon: the reward of its last pair needs none."""
        return self.gamma / (1.0 - self.gamma)

    @property
    def signal_factor(self) -> FloatArray:
        """Signals in kernel units are this times rewards and costs, plus `signal_offset`, (1+m,)."""
        factor: FloatArray = np.append(1.0, -self._sign) / np.append(self.reward_scale, self.constraint_scale)
        return factor

    @property
    def signal_offset(self) -> FloatArray:
        """What a signal of zero reward or cost is in kernel units, (1+m,)."""
        shift: FloatArray = np.append(-self.reward_shift, self._sign * (1.0 - self.gamma) * self.anchors)
        shift /= np.append(self.reward_scale, self.constraint_scale)
        return shift

    @property
    def anchored(self) -> FloatArray:
        """By how much more room the anchors leave than the limits do, in the user's units, (m,)."""
        return self._sign * (self.anchors - self.limits)

    @property
    def _sign(self) -> FloatArray:
        """σ of equation (5), (m,)."""
        return np.array([1.0 if sign == "<=" else -1.0 for sign in self.sense])


def reward_units(low: float, high: float) -> tuple[float, float]:
    """Shift and scale of rewards between low and high, equation (4)."""
    constant = high - low <= 8 * EPS * max(abs(low), abs(high))  # to rounding
    # Within range already, and not mostly offset: an offset is noise to estimates with a random horizon.
    fits = low >= 0.0 and high <= 1.0 and (constant or (low <= high - low and high - low >= TINY))
    return (0.0, 1.0) if fits else (low, 1.0 if constant else high - low)


def constraint_units(peaks: FloatArray) -> FloatArray:
    """Scales of constraints of which these are the largest sizes, equation (5)."""
    return np.where((peaks > 1.0) | ((peaks < TINY) & (peaks > 0.0)), peaks, 1.0)


def room_below(limits: FloatArray, gamma: float, costs: FloatArray) -> FloatArray:
    """(1-γ) d_i - g_i of equation (5), (..., m), with 0 for what is only the rounding of that difference.

    A cost that just spends its limit leaves room of a few eps, of either sign. Scaled to size 1, as the tiny
    values of `constraint_units` are, that would become a constraint which no policy meets.
    """
    even = (1.0 - gamma) * limits
    room = even - costs
    return np.where(np.abs(room) <= 4 * EPS * np.maximum(np.abs(even), np.abs(costs)), 0.0, room)


def anchors_of(limits: FloatArray, gamma: float, costs: FloatArray) -> FloatArray:
    """Limits from which (1-γ) d_i - g_i keeps the digits of g_i, (m,), for costs (C, m).

    A limit that is far beyond all that costs can sum to is met by every policy or by none, and so is a nearer one.

    Examples
    --------
    >>> anchors_of(np.array([1e15, 3.0]), 0.5, np.array([[0.0, 0.0], [1.0, 1.0]])).tolist()
    [2002.0, 3.0]
    """
    low, high = costs.min(axis=0), costs.max(axis=0)
    peak = np.maximum(np.abs(low), np.abs(high))
    width = FAR * np.where(high > low, high - low, np.where(peak > 0.0, peak, 1.0))
    return np.clip(limits, (low - width) / (1.0 - gamma), (high + width) / (1.0 - gamma))


def limits_of(limits: npt.ArrayLike | None, m: int) -> FloatArray:
    """Check limits, one for each of m costs."""
    bounds = np.atleast_1d(numbers_in([] if limits is None else limits, "limits")).astype(np.float64)
    if bounds.shape != (m,):
        fault = "missing" if limits is None else f"of shape {bounds.shape}"
        raise ModelError(f"limits are {fault} for {m} cost(s); pass one number per cost")
    check_finite(bounds, lambda i: f"limits[{i}]")
    return bounds


def discount(gamma: float) -> float:
    if not isinstance(gamma, numbers.Real) or not 0.0 < float(gamma) < 1.0:
        raise ModelError(f"gamma is {gamma!r}; it must be a number strictly between 0 and 1")
    return float(gamma)


def check_finite(values: FloatArray, place: Callable[[int], str], remedy: str = "") -> None:
    """A ModelError unless all values can be computed with; ``remedy`` is told where one is -inf."""
    good = np.abs(values) < HUGE
    if not good.all():
        i = int(np.argmin(good))
        raise ModelError(
            f"{place(i)} is {values[i]}; it must be a finite number, below {HUGE:g} in size"
            + (remedy if values[i] == -np.inf else "")
        )


def numbers_in(values: Any, what: str) -> npt.NDArray[Any]:
    """Values as an array of real numbers; not copied if they are one already."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{what} cannot be read as an array: {error}") from None
    if array.dtype.kind not in "biuf":
        raise ModelError(f"{what} has dtype {array.dtype}; it must hold real numbers")
    return array


def _last_axis(values: npt.ArrayLike, size: int, what: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or array.shape[-1] != size:
        raise ModelError(f"{what} has shape {array.shape}; its last axis must have {size} entries")
    return array


def senses(sense: str | Sequence[str], m: int) -> tuple[str, ...]:
    each = (sense,) if isinstance(sense, str) else tuple(sense)
    senses = each * m if isinstance(sense, str) else each
    if len(senses) != m or not all(s in ("<=", ">=") for s in each):
        raise ModelError(f'sense is {sense!r}; it must be "<=" or ">=", or {m} of them, one per cost')
    return senses


def signal_names(names: Sequence[str] | None, m: int) -> tuple[str, ...]:
    if names is None:
        return ("reward", "cost") if m == 1 else ("reward", *(f"cost {i}" for i in range(m)))
    if len(names) != 1 + m or len(set(names)) != 1 + m or not all(isinstance(name, str) for name in names):
        raise ModelError(
            f"names is {names!r}; it must be {1 + m} different strings: the reward's, then each cost's ({m} given)"
        )
    return tuple(map(visible, names))


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.setflags(write=False)
    return array
