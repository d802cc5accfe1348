"""How far a run is from the optimum, with an interval: what a target is compared with.

The error of a replicate is the larger of gap / range of J_r and violation / range of that limit, of the last quarter of
its outer steps, and that of a run the error of its worst replicate. The interval is Student's t for means over batches
of the last quarter: consecutive policies are like one another, batches less so.

With the exact optimum, ranges are what policies attain and means those of exact values. Without it, means are those of
the run's own estimates, ranges are what the run has gone through, and in place of the gap stands the larger of

    the rise of J_r from the quarter before to the last one,     sum_i lambda_i (slack of limit i).

Both vanish at the optimum; the second is part of the gap by weak duality. Neither sees a better policy that the run has
never come near, so that an error without an optimum is an indication and no bound.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.runs.record import LAST_QUARTER, Record
from fastcmdp.runs.scales import Scales
from fastcmdp.text import number

if TYPE_CHECKING:
    from fastcmdp.runs.result import Result

Float = NDArray[np.float64]

BATCHES = 10  # of the last quarter, at most
FEWEST = 4  # with fewer no interval is known


class Accuracy(NamedTuple):
    """The relative error of a run's last quarter, of its worst replicate, and its 95 % interval.

    Attributes
    ----------
    error, low, high : float
        NaN where nothing is known; ``high`` is infinite while there are too few recorded points. ``low`` is the
        largest of the lower ends of all replicates and limits, so that with many of them it lies rather high.
    exact : bool
        From exact values and the exact optimum, or from the run's own estimates (see the module's text).
    """

    error: float
    low: float
    high: float
    exact: bool

    def to_dict(self) -> dict[str, float | bool | None]:
        """The same for JSON, with null for what is not known."""
        ends = zip(("mean", "low", "high"), self[:3], strict=True)
        return {**{name: x if np.isfinite(x) else None for name, x in ends}, "exact": self.exact}

    def __str__(self) -> str:
        known = "" if self.exact else ", by the run's own estimates"
        error, low, high = (number(100.0 * x, ".2g", "?") for x in self[:3])
        return f"{error} % ({low} to {high} %{known})"


def accuracy(result: Result, confidence: float = 0.95) -> Accuracy:
    """See `Accuracy`; with another confidence than 95 % where asked for."""
    trace, alive = result.trace, result.failed < 0
    exact = trace.exact and result.optimum is not None
    if trace.done < 2 or not alive.any():
        return Accuracy(np.nan, np.nan, np.inf, exact)
    series = windows(trace, exact)[alive]
    late = trace.begin(trace.done - 1, LAST_QUARTER)
    mean, half = batch_interval(series[:, late:], confidence)
    slack, m = trace.cmdp.slack(mean), trace.cmdp.n_constraints
    if exact:
        scales = Scales.of(trace.cmdp, result.optimum)
        assert result.optimum is not None
        mean, within = (part[alive] for part in trace.mean(LAST_QUARTER))
        half += within  # what lies between recorded points
        slack = trace.cmdp.slack(mean)
        width = np.append(scales.reward, scales.constraints)
        gap, gap_half = result.optimum.reward - mean[:, 0], half[:, 0]
    else:
        # fmax and fmin pass over what is NaN: windows of which no step counts for the output
        width = np.fmax.reduce(np.fmax.reduce(series, axis=1) - np.fmin.reduce(series, axis=1), axis=0)
        before = trace.begin(trace.done - 1, 2 * LAST_QUARTER)
        earlier, earlier_half = batch_interval(series[:, before:late], confidence)
        duals = result.averages(LAST_QUARTER, "estimate").duals[alive]
        rise, priced = mean[:, 0] - earlier[:, 0], (duals * slack).sum(axis=1)
        # The larger of two, and the larger of their upper ends.
        gap = np.maximum(rise, priced)
        priced_half = np.where(duals != 0.0, np.abs(duals) * half[:, 1:], 0.0).sum(axis=1)
        gap_half = np.maximum(rise + half[:, 0] + earlier_half[:, 0], priced + priced_half) - gap
    width = np.where(width > 0.0, width, np.inf if m else 1.0)
    off = np.concatenate([gap[:, None], -slack], axis=1) / width
    half = np.concatenate([gap_half[:, None], half[:, 1:]], axis=1)
    half = np.where(np.isfinite(half), half, np.inf) / np.where(np.isfinite(half), width, 1.0)
    error, low, high = (float(np.maximum(x, 0.0).max()) for x in (off, off - half, off + half))
    return Accuracy(error, low, np.inf if np.isnan(high) else high, exact)


def windows(trace: Record, exact: bool) -> Float:
    """J_r and J_c along the run, float64[R, n, 1+m] user's units: at points, or means of the windows between."""
    n = trace.done
    if exact:
        return trace.values[:, :n]
    m = trace.cmdp.n_constraints
    steps = np.diff(trace.kept[:, :n], axis=1)[:, :, None].astype(np.float64)
    sums = np.diff(trace.sums[:, :n, : 1 + m], axis=1)
    means = np.where(steps > 0, sums / np.maximum(steps, 1), np.nan)
    first = means[:, :1]  # so that windows have the numbers of the points at their ends
    values: Float = trace.cmdp.to_user_values(np.concatenate([first, means], axis=1))
    return values


def batch_interval(series: Float, confidence: float = 0.95) -> tuple[Float, Float]:
    """Means of float64[R, n, k] over n and half the width of their intervals, float64[R, k] each.

    Examples
    --------
    >>> mean, half = batch_interval(np.tile([0.0, 1.0], 20)[None, :, None])
    >>> float(mean[0, 0]), float(half[0, 0])
    (0.5, 0.0)
    """
    n = series.shape[1]
    if n == 0:
        nothing = np.full((len(series), series.shape[2]), np.nan)
        return nothing, nothing + np.inf
    known = np.where(np.isfinite(series), series, np.nan)
    batches = min(BATCHES, n // 2)
    if batches < FEWEST:
        return np.asarray(known.mean(axis=1)), np.full((len(series), series.shape[2]), np.inf)
    from scipy.special import stdtrit  # here, since it is slow to import

    cut = np.round(np.linspace(0, n, batches + 1)).astype(int)
    means = np.stack([known[:, a:b].mean(axis=1) for a, b in pairwise(cut)], axis=1)
    half = float(stdtrit(batches - 1, 0.5 + confidence / 2.0)) * means.std(axis=1, ddof=1) / np.sqrt(batches)
    return np.asarray(known.mean(axis=1)), np.asarray(half)
