"""What the rows of a sweep say: samples needed for each epsilon, exponents with intervals, error against samples.

The error of a cell (an algorithm on a model with a target) after n samples is what the guarantees bound: the larger of
the gap and the worst constraint's violation of the mixture so far, in kernel units, each the positive part of a *mean*
over the replicates,

    e(n) = max(mean_r gap_r(n), max_i -mean_r slack_ri(n), 0).                                            (1)

It is **reached** at the first samples from which on e stays at or below epsilon until the run ends, with log e
interpolated linearly in log n between trace points. A schedule for epsilon is asked for its own epsilon only; runs at
budgets are all asked, and the least samples count. Targets that are not reached are missing, and counted.

The exponent p of an algorithm is the slope of log samples against log 1/epsilon, with an intercept of its own for each
model, by least squares over all (model, epsilon) that were reached:

    log n(model, epsilon) = a_model + p log(1/epsilon).                                                   (2)

What is met by the first policy already takes no part. A second exponent is that of the errors at the ends of the runs,

    log e(model, n) = a_model - (1/p) log n,                                                              (3)

n all samples of a run. It asks what a schedule attains, and not whether that is the epsilon it is for; and it regresses
e, which is measured, on n, which is given. With budgets for targets it is the only one.

Intervals are percentile bootstraps: models are drawn with replacement, and the replicates of each model anew for each
algorithm and target; everything from (1) on is computed again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.bootstrap import LEVEL, resampled
from fastcmdp.errors import SettingError
from fastcmdp.sweep.cells import Cell, Float, cells
from fastcmdp.sweep.store import Store
from fastcmdp.sweep.tasks import Plan

CLAIMED: dict[str, tuple[float, str]] = {
    "pmd-pd": (3.0, "O(ε⁻³)"),
    "pd-nac": (6.0, "O(ε⁻⁶)"),
    "npg-pd-softmax": (2.0, "O((1-γ)⁻⁵ ε⁻²)"),
    "crpo-softmax": (4.0, "O((1-γ)⁻⁷ ε⁻⁴)"),
    "npg-pd": (6.0, "O((1-γ)⁻⁸ ε⁻⁶)"),
    "crpo": (6.0, "O((1-γ)⁻¹³ ε⁻⁶)"),
    "c-npg-pda": (4.0, "Õ((1-γ)⁻⁸ ε⁻⁴)"),
    "pd-anpg": (2.0, "Õ((1-γ)⁻⁷ ε⁻²)"),
}
"""Table 1 of the paper: exponent of samples in 1/epsilon, and the bound."""

DECADE = 12.0  # a fit whose samples span no more, budgets of one decade, says little
MOST_DRAWS = 1000
_WORK = 2_500_000  # cells times draws, at most


@dataclass
class Reached:
    """Samples that an algorithm needed on a model for an epsilon; NaN where it did not get there."""

    algorithm: str
    model: str
    epsilon: float
    samples: float
    low: float
    high: float
    share: float  # of bootstrap draws in which it was reached
    scheduled: float  # samples of the run that was made for it, NaN if there is none
    capped: bool


@dataclass
class Exponent:
    """The fitted exponent of an algorithm.

    Attributes
    ----------
    algorithm, name : str
    exponent, low, high : float
        Equation (2) with its 95 % interval, or (3) for budgets; NaN where there are too few points.
    ends, ends_low, ends_high : float
        Equation (3) with its 95 % interval.
    claimed : float or None
        Of Table 1, for a name that is in it.
    bound, policies : str
    method : "reached" or "budget"
        Equation (2) or (3).
    points, asked : int
        (model, target) pairs in the fit, and all there were, those beyond the cap included; for budgets the targets
        are the runs' ends.
    span : float
        Largest ratio of the samples of two points of one model in the fit; 1 if there are no two.
    models, replicates : int
    capped : int
        Configurations whose schedule was cut to the cap.
    diverged : int
        Runs whose numbers ceased to be finite.
    """

    algorithm: str
    name: str
    exponent: float
    low: float
    high: float
    ends: float
    ends_low: float
    ends_high: float
    claimed: float | None
    bound: str
    policies: str
    method: str
    points: int
    asked: int
    models: int
    replicates: int
    capped: int
    diverged: int
    span: float


def reaching(samples: Float, errors: Float, epsilon: float) -> Float:
    """Samples from which on errors, float64[B, n], stay at or below epsilon; NaN where they end above it.

    Examples
    --------
    >>> reaching(np.array([0.0, 100.0, 10_000.0]), np.array([[1.0, 0.5, 0.05]]), 0.5).round(9).tolist()
    [100.0]
    """
    above = errors > epsilon
    n = above.shape[1]
    last = np.where(above.any(axis=1), n - 1 - above[:, ::-1].argmax(axis=1), -1)  # the last point above
    needed = np.full(len(errors), np.nan)
    needed[last == -1] = samples[0]
    rows = np.flatnonzero((last >= 0) & (last < n - 1))
    i = last[rows]
    tiny = 1e-12
    before, after = (np.log(np.maximum(errors[rows, k], tiny)) for k in (i, i + 1))
    x0, x1 = (np.log(np.maximum(samples[k], 1.0)) for k in (i, i + 1))
    share = (before - math.log(epsilon)) / np.maximum(before - after, tiny)
    needed[rows] = np.exp(x0 + np.clip(share, 0.0, 1.0) * (x1 - x0))
    return needed


@dataclass
class Analysis:
    """All that a report shows.

    Attributes
    ----------
    cells : list of Cell
    epsilons : list of float
    reached : list of Reached
    exponents : list of Exponent
    draws : int
        Of the bootstrap.
    """

    cells: list[Cell]
    epsilons: list[float]
    reached: list[Reached]
    exponents: list[Exponent]
    draws: int

    def remarks(self) -> list[str]:
        """What a reader of the exponents should know."""
        lines = []
        by_budget = [e.algorithm for e in self.exponents if e.method == "budget"]
        if by_budget:
            lines.append(
                f"{', '.join(by_budget)}: runs at budgets have no epsilon to reach, so the one exponent is that of the "
                "errors at their ends"
            )
        lines += [
            f"{e.algorithm}: its fit spans a factor of {e.span:.2g} in samples, hardly a decade: an exponent from so "
            "little says little; add budgets or targets until it spans two"
            for e in self.exponents
            if math.isfinite(e.exponent) and e.span <= DECADE
        ]
        return lines


def analyse(
    store: Store | str | Path, epsilon: float | Sequence[float] | None = None, seed: int = 0
) -> Analysis:
    """Everything from the rows of a store.

    Parameters
    ----------
    store : Store, or path of the folder of a sweep
    epsilon : float or sequence of float, optional
        Targets for runs at budgets, kernel units; default: five between the errors of the least and the largest
        budgets. Schedules for an epsilon are asked for their own only.
    seed : int
        Of the bootstrap.
    """
    store = store if isinstance(store, Store) else Store(store)
    store.check()
    all_cells = cells(store)
    plan = store.plan()
    usable = [cell for cell in all_cells if len(cell.gap)]
    with_target = sorted({c.epsilon for c in usable if c.epsilon is not None}, reverse=True)
    budgets = [cell for cell in usable if cell.budget is not None]
    if epsilon is not None:
        values = np.atleast_1d(np.asarray(epsilon))
        if (
            values.dtype.kind not in "iuf"
            or values.ndim > 1
            or not (np.isfinite(values) & (values > 0)).all()
        ):
            raise SettingError(f"epsilon = {epsilon!r}: positive numbers are expected")
        targets = sorted(set(values.astype(np.float64).tolist()), reverse=True)
    else:
        targets = _between(budgets)
    draws = int(min(MOST_DRAWS, max(_WORK // max(len(usable), 1), 200)))
    rng = np.random.default_rng(seed)
    models = list(dict.fromkeys(cell.model for cell in usable))
    weight = rng.multinomial(len(models), np.full(len(models), 1 / len(models)), size=draws).astype(
        np.float64
    )
    reached: list[Reached] = []
    exponents = []
    for label in dict.fromkeys(cell.algorithm for cell in all_cells):
        own = [cell for cell in usable if cell.algorithm == label]
        drawn = [_draw(cell, targets, draws, rng) for cell in own]
        points = _reached_by(own, drawn, targets, reached)
        every = [cell for cell in all_cells if cell.algorithm == label]
        ends = _fit_ends(own, drawn, models, weight)
        by_budget = not any(cell.epsilon is not None for cell in every)
        fit = ends if by_budget else _fit([p for p in points if p[3]], models, weight)
        exponents.append(_exponent(every, plan, by_budget, fit, ends))
    return Analysis(
        all_cells, sorted(set(with_target) | set(targets), reverse=True), reached, exponents, draws
    )


def _exponent(every: Sequence[Cell], plan: Plan, by_budget: bool, fit: _Fit, ends: _Fit) -> Exponent:
    """The row of an algorithm, from all its cells and its fits."""
    label, name = every[0].algorithm, every[0].name
    claim, bound = CLAIMED.get(name, (None, ""))
    targets_of = [cell.epsilon for cell in every]
    targets_of += [each.epsilon for each in plan.omitted if each.label == label]
    return Exponent(
        label,
        name,
        *fit[:3],
        *ends[:3],
        claim,
        bound,
        "" if claim is None else "softmax" if ALGORITHMS[name].tabular_only else "general",
        "budget" if by_budget else "reached",
        fit.points,
        sum((target is None) == by_budget for target in targets_of),
        len({cell.model for cell in every if len(cell.gap)}),
        max((len(cell.gap) for cell in every), default=0),
        sum(cell.capped for cell in every),
        sum(cell.diverged for cell in every),
        fit.span,
    )


def _between(budgets: Sequence[Cell]) -> list[float]:
    """Five targets that most runs at budgets pass on their way."""
    if not budgets:
        return []
    ends = [float(cell.error()[-1]) for cell in budgets]
    starts = [float(cell.error()[0]) for cell in budgets]
    low, high = float(np.median(ends)), float(np.median(starts)) / 2
    if not 0 < low < high:
        return []
    return [float(f"{e:.2g}") for e in np.geomspace(high, low, 5)]


@dataclass
class _Drawn:
    """What is kept of the bootstrap of a cell; the first of each is not drawn but as it is."""

    end: Float  # error at the last point, float64[1 + draws]
    needed: list[Float]  # samples for its own epsilon, or for each target


def _draw(cell: Cell, targets: Sequence[float], draws: int, rng: np.random.Generator) -> _Drawn:
    """Errors of means over replicates drawn with replacement; sets the cell's band."""
    n_runs = len(cell.gap)
    weights = resampled(n_runs, draws, rng)
    errors = cell.error(np.concatenate([np.full((1, n_runs), 1 / n_runs), weights]))
    asked = targets if cell.epsilon is None else [cell.epsilon]
    needed = [reaching(cell.samples, errors, epsilon) for epsilon in asked]
    ranked = np.sort(errors[1:], axis=0)
    low, high = _ranks(draws)
    cell.band = (ranked[low].copy(), ranked[high].copy())
    return _Drawn(errors[:, -1].copy(), needed)


def _ranks(n: int) -> tuple[int, int]:
    """Positions of the ends of the central 95 % among n sorted values."""
    outside = int((1 - LEVEL) / 2 * n)
    return outside, n - 1 - outside


_Point = tuple[str, float, Float, bool]  # model, epsilon, samples float64[1+B], whether it is of a schedule


def _reached_by(
    own: Sequence[Cell], drawn: Sequence[_Drawn], targets: Sequence[float], reached: list[Reached]
) -> list[_Point]:
    """Samples for each target of one algorithm; adds to ``reached``."""
    points: list[_Point] = []
    by_model: dict[str, list[tuple[Cell, _Drawn]]] = {}
    for cell, each in zip(own, drawn, strict=True):
        if cell.epsilon is not None:
            (needed,) = each.needed
            points.append((cell.model, cell.epsilon, needed, True))
            reached.append(_row(cell, cell.epsilon, needed, float(cell.samples[-1]), cell.capped))
        else:
            by_model.setdefault(cell.model, []).append((cell, each))
    for group in by_model.values():
        for k, epsilon in enumerate(targets):
            all_needed = np.stack([each.needed[k] for _, each in group])
            least = np.where(np.isnan(all_needed), np.inf, all_needed).min(axis=0)
            needed = np.where(np.isfinite(least), least, np.nan)
            points.append((group[0][0].model, epsilon, needed, False))
            reached.append(_row(group[0][0], epsilon, needed, np.nan, False))
    return points


def _row(cell: Cell, epsilon: float, needed: Float, scheduled: float, capped: bool) -> Reached:
    point, low, high = _estimated(needed)
    share = float(np.isfinite(needed[1:]).mean())
    return Reached(cell.algorithm, cell.model, epsilon, point, low, high, share, scheduled, capped)


def _estimated(values: Float) -> tuple[float, float, float]:
    """The first value, and the interval of the others, which are draws; an estimate that is missing has none."""
    if not math.isfinite(values[0]):
        return math.nan, math.nan, math.nan
    return float(values[0]), *_interval(values[1:])


class _Fit(NamedTuple):
    """An exponent with its interval, the number of points, and how far their samples reach."""

    exponent: float
    low: float
    high: float
    points: int
    span: float


_NONE = _Fit(math.nan, math.nan, math.nan, 0, 1.0)


def _span(logarithms: Float, group: NDArray[np.int64]) -> float:
    """The largest ratio of samples within one model."""
    finite = np.isfinite(logarithms)
    spans = [np.ptp(logarithms[finite & (group == model)]) for model in np.unique(group[finite])]
    return float(np.exp(max(spans, default=0.0)))


def _interval(draws: Float) -> tuple[float, float]:
    """The central 95 % of what is finite; NaN where less than half is."""
    finite = draws[np.isfinite(draws)]
    if finite.size < max(len(draws) / 2, 1):
        return math.nan, math.nan
    finite.sort()
    low, high = _ranks(finite.size)
    return float(finite[low]), float(finite[high])


def _fit(points: Sequence[_Point], models: Sequence[str], weight: Float) -> _Fit:
    """Equation (2)."""
    if not points:
        return _NONE
    x = np.array([-math.log(epsilon) for _, epsilon, _, _ in points])
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.log(np.stack([needed for _, _, needed, _ in points]))  # (points, 1 + draws)
    y[~np.isfinite(y)] = np.nan
    group = np.array([models.index(model) for model, *_ in points])
    slopes = _slopes(x[:, None], y, group, weight)
    return _Fit(*_estimated(slopes), int(np.isfinite(y[:, 0]).sum()), _span(y[:, 0], group))


def _fit_ends(own: Sequence[Cell], drawn: Sequence[_Drawn], models: Sequence[str], weight: Float) -> _Fit:
    """Equation (3)."""
    if not own:
        return _NONE
    x = np.array([math.log(cell.samples[-1]) for cell in own])
    with np.errstate(divide="ignore"):
        y = np.log(np.stack([each.end for each in drawn]))
    y[~np.isfinite(y)] = np.nan
    group = np.array([models.index(cell.model) for cell in own])
    slopes = _slopes(x[:, None], y, group, weight)
    with np.errstate(divide="ignore", invalid="ignore"):
        exponents = np.where(slopes < 0, -1.0 / slopes, np.nan)
    seen = np.isfinite(y[:, 0])
    return _Fit(*_estimated(exponents), int(seen.sum()), _span(np.where(seen, x, np.nan), group))


def _slopes(x: Float, y: Float, group: NDArray[np.int64], weight: Float) -> Float:
    """Common slope of y, float64[P, 1+B], on x, with an intercept for each model; weight[b-1] of models in column b.

    NaN where fewer than two points of one model are there.
    """
    w = np.concatenate([np.ones((1, weight.shape[1])), weight])[:, group].T * np.isfinite(y)
    y = np.where(np.isfinite(y), y, 0.0)
    top, bottom = np.zeros(y.shape[1]), np.zeros(y.shape[1])
    for model in np.unique(group):
        rows = group == model
        wm, ym, xm = w[rows], y[rows], np.broadcast_to(x[rows], y[rows].shape)
        total = np.maximum(wm.sum(axis=0), 1e-300)
        dx = xm - (wm * xm).sum(axis=0) / total
        dy = ym - (wm * ym).sum(axis=0) / total
        top += (wm * dx * dy).sum(axis=0)
        bottom += (wm * dx * dx).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(bottom > 1e-12, top / bottom, np.nan)
