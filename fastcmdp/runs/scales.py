"""What gaps and violations are relative to: the ranges that policies can attain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastcmdp.exact import Optimum

Float = NDArray[np.float64]

_NOTHING = 1e-6  # of the range that is conceivable: what is attainable below it is rounding


@dataclass(frozen=True)
class Scales:
    """What relative errors are relative to, in the user's units.

    Attributes
    ----------
    reward : float
        The range of J_r over all policies; where it hardly depends on the policy, or without an optimum, the range
        that it could have.
    constraints : float64[m]
        The same of each J_ci.
    """

    reward: float
    constraints: Float

    @classmethod
    def of(cls, cmdp: Any, best: Optimum | None) -> Self:
        """Those of a model.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> cmdp = fc.envs.river_swim()
        >>> best = fc.optimum(cmdp)
        >>> scales = Scales.of(cmdp, best)
        >>> ranges = best.reward_range, best.constraint_range[0]
        >>> [bool(a == np.ptp(b)) for a, b in zip((scales.reward, scales.constraints[0]), ranges)]
        [True, True]
        """
        unit = 1.0 - cmdp.gamma  # values range over the signals' scales divided by this
        conceivable = np.abs(np.append(cmdp.reward_scale, cmdp.constraint_scale)) / unit
        if best is None:
            return cls(float(conceivable[0]), conceivable[1:])
        attainable = np.append(np.ptp(best.reward_range), np.ptp(best.constraint_range, axis=1))
        width = np.where(attainable > _NOTHING * conceivable, attainable, conceivable)
        return cls(float(width[0]), width[1:])

    def errors(self, cmdp: Any, averages: Any) -> Float:
        """The larger of gap and worst violation of each replicate, relative; float64[R], NaN where unknown."""
        worst = (averages.violation / self.constraints).max(axis=1, initial=0.0)
        return np.asarray(np.maximum(averages.gap / self.reward, worst))
