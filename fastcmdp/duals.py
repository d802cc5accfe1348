"""Multipliers of constraints for other people's training loops: the forms that this library's methods use.

A form says how the multiplier follows the violation e of its limit, positive where the limit is missed; its docstring
has the recursion. `Multiplier` is plain Python, without a compiled line; `move` is the same step for njit code. Both
run the functions of ``kernels/learning/duals.py``, so they agree to the last bit.

| form | provenance |
|---|---|
| `Ascent` | projected dual ascent, of every primal-dual method |
| `Ridge` | RPG-PD, PDR-ANPG and C-PG: a quadratic regulariser |
| `PI`, `Damped` | PI control, its proportional part filtered; `Damped` has gains for a damping ratio (derived here) |
| `NuPI` | recalled: Sohrabi et al., ICML 2024; nu = 0 is PI in increments |
| `Optimistic` | ReLOAD, recalled: Moskovitz et al., ICML 2023 |
| `PID` | certain: as in OmniSafe's code, Stooke, Achiam, Abbeel, ICML 2020 |
| `Modified` | PMD-PD and ARNPG-EPD, certain: public code of the authors |

In njit code, with ``memory`` of zeros, float64[`width` (form)], a multiplier each::

    weight = fastcmdp.duals.move(form, memory, violation, rate, pace, cap)

Examples
--------
>>> import fastcmdp as fc
>>> multiplier = fc.duals.Multiplier(fc.duals.PI(lead=2.0, share=0.5), rate=0.1)
>>> [round(multiplier.update(cost - 25.0), 3) for cost in (27.0, 26.0, 24.0)]
[0.6, 0.6, 0.25]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.check import is_finite, is_positive, require
from fastcmdp.kernels.learning.duals import (
    PI,
    PID,
    Ascent,
    Damped,
    Modified,
    NuPI,
    Optimistic,
    Ridge,
    move,
    width,
)

__all__ = [
    "PI",
    "PID",
    "Ascent",
    "Damped",
    "Modified",
    "Multiplier",
    "NuPI",
    "Optimistic",
    "Ridge",
    "move",
    "omnisafe",
    "width",
]


def omnisafe(
    kp: float = 0.1,
    ki: float = 0.01,
    kd: float = 0.01,
    *,
    smooth: float = 0.95,
    smooth_cost: float = 0.95,
    delay: int = 10,
    limit: float = 0.0,
) -> PID:
    """The PID form with OmniSafe's names of gains; give the multiplier ``rate=1``.

    Parameters
    ----------
    kp, ki, kd : float
        Gains.
    smooth, smooth_cost : float
        Factors of the moving averages of the violation and of the cost, in [0, 1).
    delay : int
        Steps between the two costs whose difference the derivative part takes, at least 1.
    limit : float
        Added to the violation: that part reads the cost itself, which matters for its first steps.

    Raises
    ------
    SettingError
        A value out of range.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> fc.duals.omnisafe(limit=25.0).integral
    0.01
    """
    for name, value in {"kp": kp, "ki": ki, "kd": kd}.items():
        require(is_finite(value) and value >= 0, name, value, "a number of at least 0")
    for name, value in {"smooth": smooth, "smooth_cost": smooth_cost}.items():
        require(is_finite(value) and 0 <= value < 1, name, value, "a number from 0 to below 1")
    require(isinstance(delay, int) and delay >= 1, "delay", delay, "an integer of at least 1")
    return PID(ki, kp, kd, smooth, smooth_cost, delay, limit)


class Multiplier:
    """One multiplier: `update` takes the violation of its limit and returns what to weigh the cost with from now on.

    Parameters
    ----------
    form : one of the forms of this module
    rate : float
        zeta, positive: multiplies all gains.
    initial : float
        Where it begins, at least 0 and at most cap.
    cap : float
        What it never exceeds (`Modified` has none).
    pace : float
        Radians a step with which multiplier and policy swing undamped, positive; `Damped` alone reads it. It may be set
        anew at any time.

    Attributes
    ----------
    value : float
        The multiplier.
    memory : float64[width]
        All that it remembers: saved and put back, it goes on as if nothing had been.

    Raises
    ------
    SettingError
        A value out of range; a form that is none.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> multiplier = fc.duals.Multiplier(fc.duals.Ascent(), rate=0.5, cap=10.0)
    >>> multiplier.update(3.0), multiplier.update(-4.0)
    (1.5, 0.0)
    """

    def __init__(
        self,
        form: Any,
        rate: float,
        *,
        initial: float = 0.0,
        cap: float = math.inf,
        pace: float = 1.0,
    ) -> None:
        names = ", ".join(kind.__name__ for kind in move.kinds)
        require(type(form) in move.kinds, "form", form, f"one of {names}")
        for name, value in {"rate": rate, "pace": pace}.items():
            require(is_positive(value) and np.ndim(value) == 0, name, value, "a positive number")
        require(cap > 0, "cap", cap, "a positive number")
        require(is_finite(initial) and 0 <= initial <= cap, "initial", initial, "a number from 0 to the cap")
        self.form, self.rate, self.cap, self.pace = form, float(rate), float(cap), float(pace)
        self.memory: NDArray[np.float64] = np.zeros(width(form))
        self.memory[1] = self.value = float(initial)

    def update(self, violation: float) -> float:
        """Move by the violation of the limit, positive where it is missed; return the multiplier."""
        require(is_finite(violation), "violation", violation, "a finite number")
        moved = move.kinds[type(self.form)](
            self.form, self.memory, float(violation), self.rate, self.pace, self.cap
        )
        self.value = float(moved)
        return self.value
