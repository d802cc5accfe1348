"""The outputs of a run: which policies are averaged, how, and what is guaranteed of it.

Which policies a method's own output mixes is `Output`'s; here are the averages that any run has besides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastcmdp.runs.accuracy import batch_interval, windows
from fastcmdp.runs.record import Record

Float = NDArray[np.float64]

GUARANTEES = {
    "mixture": "what the method's theorem bounds, in expectation or with high probability, where it has one",
    "last_quarter": "none of its own; where J settles it is the mixture without its burn-in",
    "suffix": "none: as the last quarter, its length chosen by the run's own record",
    "weighted": "none; the mixture with weights that grow with the outer step",
    "last": "none: a single iterate; exactly evaluated where a table is known",
    "best": "its value is exact where a table is known, else within its interval; not that it is optimal",
}
FRACTIONS = (0.75, 0.5, 0.25, 0.125)  # of the outer steps, of which a suffix is the longest that has settled


@dataclass(frozen=True)
class Averages:
    """Means over a stretch of outer steps, one row a replicate, in the user's units.

    Attributes
    ----------
    reward, constraints, duals : float64[R], float64[R, m] twice
        Means of J_r, of the constraint values, and of the multipliers.
    gap : float64[R]
        J_r* minus the mean of J_r; may be negative; NaN without an optimum.
    violation : float64[R, m]
        By how much the mean over outer steps misses the limit, or 0: the positive part is taken after that mean,
        replicate by replicate (so a mean over replicates errs on the side of caution).
    source : "exact" or "estimate"
        Estimates are of the policies that samples were drawn from: where the output is pi_1 .. pi_K (PMD-PD, last
        iterates) they are of pi_0 .. pi_{K-1}, one step earlier.
    within : float64[R, 1+m]
        How far off exact means of J_r and of the constraint values are at most, for what lies between the recorded
        points, if J moves one way from each to the next; 0 where every policy of the output is recorded, NaN for
        estimates.
    guarantee : str
        What is proved of such an average.
    """

    reward: Float
    constraints: Float
    duals: Float
    gap: Float
    violation: Float
    source: str
    within: Float
    guarantee: str = ""


def interval(values: Float) -> dict[str, float | None]:
    """Mean over replicates and its 95 % interval by Student's t; the ends equal the mean for one replicate."""
    x = values[np.isfinite(values)]
    if x.size == 0:
        return {"mean": None, "low": None, "high": None}
    from scipy.special import stdtrit  # here, since it is slow to import

    mean = float(x.mean())
    half = float(stdtrit(x.size - 1, 0.975) * x.std(ddof=1) / np.sqrt(x.size)) if x.size > 1 else 0.0
    return {"mean": mean, "low": mean - half, "high": mean + half}


def suffix_fraction(trace: Record) -> float:
    """The largest of `FRACTIONS` whose halves agree in all signals, within 95 % intervals of means over replicates.

    Else the least of them. Replicates that have failed have no say.
    """
    n = trace.done - 1
    series = windows(trace, trace.exact)
    series = series[np.isfinite(series).any(axis=(1, 2)) & np.isfinite(series[:, -1]).all(axis=1)]
    for fraction in FRACTIONS:
        begin = trace.begin(n, fraction)
        middle = trace.begin(n, fraction / 2)
        (one, one_half), (two, two_half) = (
            batch_interval(series[:, begin:middle]),
            batch_interval(series[:, middle:]),
        )
        if not len(series) or not np.isfinite(one_half + two_half).all():
            continue
        half = np.sqrt((one_half**2 + two_half**2).sum(axis=0)) / len(series)
        if (np.abs((one - two).mean(axis=0)) <= half).all():
            return fraction
    return FRACTIONS[-1]


def weighted(points: Float, values: Float) -> Float:
    """Means of values float64[n, k], linear between their points, with weights that grow linearly from 0.

    Examples
    --------
    >>> weighted(np.array([0.0, 3.0]), np.array([[0.0, 1.0], [3.0, 1.0]]))
    array([2., 1.])
    """
    a, b = points[:-1, None], points[1:, None]
    left, right = values[:-1], values[1:]
    # Simpson's rule is exact for the product of two linear functions.
    pieces = (b - a) / 6.0 * (a * left + (a + b) * (left + right) + b * right)
    return np.asarray(2.0 * pieces.sum(axis=0) / (points[-1] ** 2 - points[0] ** 2))
