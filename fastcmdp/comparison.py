"""What a comparison found: methods, budgets, gaps and violations, as rows, as a table and as curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp import latex
from fastcmdp.aggregates import improvement, iqm, profile
from fastcmdp.algorithms.variants import Variant
from fastcmdp.bootstrap import Interval, bootstrap
from fastcmdp.check import optional
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.exact import Optimum
from fastcmdp.runs import Averages, Result, curves, excess
from fastcmdp.runs.scales import Scales
from fastcmdp.text import number, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Float = NDArray[np.float64]

TOLERANCE = 0.01  # of the range of J_c: what counts as met when a small violation is allowed
MISSED = 0.1  # of the limit itself: what is told although it may be little beside the range


@dataclass(frozen=True)
class Entry:
    """One method at one budget.

    Attributes
    ----------
    variant : Variant
    budget : float
        Expected transitions of one replicate.
    constants : dict or None
        Tuned constants that its schedule was made with; None: defaults.
    result : Result
    """

    variant: Variant
    budget: float
    constants: Mapping[str, float] | None
    result: Result

    def to_dict(self, scales: Scales) -> dict[str, Any]:
        """The entry in the command line's JSON: that of ``Result.to_dict`` with bootstrap intervals, and more."""
        result = self.result
        cmdp, best = result.cmdp, result.optimum
        assert best is not None
        mixture, late, last = result.mixture, result.last_quarter, result.last
        slack = cmdp.slack(_values(mixture))
        known = np.isfinite(mixture.reward)
        relative = (mixture.violation / scales.constraints).max(axis=1, initial=0.0)

        def share(met: Any) -> float | None:
            return float(met[known].mean()) if known.any() else None

        entry = result.to_dict() | {
            "name": self.variant.label,
            "budget": self.budget,
            "reward": bootstrap(mixture.reward).to_dict(),
            **_gap_and_violation(cmdp, mixture),
            "violation_per_replicate": bootstrap(mixture.violation.max(axis=1, initial=0.0)).to_dict(),
            "error": bootstrap(scales.errors(cmdp, mixture)).to_dict(),
            "error_iqm": iqm([scales.errors(cmdp, mixture)]).to_dict(),
            "last": _gap_and_violation(cmdp, last),
            "feasibility": {
                "strict": {
                    "share": share((slack >= 0).all(axis=1)),
                    "slack": bootstrap(_values(mixture), lambda v: _least(cmdp.slack(v))).to_dict(),
                },
                "relaxed": {"share": share(relative <= TOLERANCE), "tolerance": TOLERANCE},
            },
            "seed": result.seed,
            "policy": type(result.policy_class).__name__,
            "constants": None if self.constants is None else dict(self.constants),
            "settings": asdict(result.algorithm),
        }
        entry["last_quarter"] |= {"reward": bootstrap(late.reward).to_dict()}
        entry["last_quarter"] |= _gap_and_violation(cmdp, late)
        return entry


def _values(averages: Averages) -> Float:
    """J_r and the constraint values, float64[R, 1+m]."""
    return np.concatenate([averages.reward[:, None], averages.constraints], axis=1)


def _least(slack: Float) -> Float:
    """By how much the tightest limit is met; NaN where there is none."""
    return np.asarray(slack.min(axis=-1) if slack.shape[-1] else np.full(slack.shape[:-1], np.nan))


def _gap_and_violation(cmdp: CMDP, averages: Averages) -> dict[str, Any]:
    def violation(mean: Float) -> Float:
        return np.asarray(excess(cmdp, mean).max(axis=-1, initial=0.0))

    return {
        "gap": bootstrap(averages.gap).to_dict(),
        "violation": bootstrap(_values(averages), violation).to_dict(),
    }


class Curve(NamedTuple):
    """What is drawn of one method: relative gap and violation of the mixture against samples, n points."""

    label: str
    samples: Float
    gap: Interval
    violation: Interval


@dataclass
class Comparison:
    """What ``compare`` found.

    Attributes
    ----------
    cmdp, optimum
    scales : Scales
    entries : list of Entry
        By budget, then method.
    skipped : list of str
        What could not be run, and why.
    finished : bool
        False after Ctrl-C: entries are then what there is.
    """

    cmdp: CMDP
    optimum: Optimum
    scales: Scales
    entries: list[Entry] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    finished: bool = True

    def to_dict(self) -> list[dict[str, Any]]:
        """One entry a method and budget: ``algorithms`` in the command line's JSON."""
        return [entry.to_dict(self.scales) for entry in self.entries]

    def rows(self) -> list[dict[str, Any]]:
        """The same, flat, for a data frame: nested names are joined by underscores, an interval's mean has none.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> found = fc.compare(fc.envs.river_swim(), "pd-anpg", samples=1e5, replicates=2)
        >>> sorted(key for key in found.rows()[0] if key.startswith("last_gap"))
        ['last_gap', 'last_gap_high', 'last_gap_low']
        """
        return [_flat(entry) for entry in self.to_dict()]

    def to_pandas(self) -> Any:
        """`rows` as a pandas frame.

        Raises
        ------
        SettingError
            Pandas is not installed.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> found = fc.compare(fc.envs.river_swim(), "pd-anpg", samples=[1e5, 2e5], replicates=2)
        >>> found.to_pandas()[["name", "budget"]].to_numpy().tolist()
        [['pd-anpg', 100000], ['pd-anpg', 200000]]
        """
        return optional("pandas", "to_pandas()", "frames").DataFrame(self.rows())

    def to_latex(
        self,
        figures: Sequence[str] = ("error",),
        *,
        caption: str | None = None,
        label: str | None = None,
    ) -> str:
        r"""A table for a paper, with the rules of booktabs, 95 % intervals, and the best of each column in bold.

        Methods are rows; each budget has a column for each of ``figures``: "error" and "error_iqm" (the interquartile
        mean) in per cent of what policies can attain, "gap", "violation" and "reward" in the user's units. Of gaps and
        rewards the best is the best among methods that miss no limit by more than a hundredth of its range.

        Raises
        ------
        SettingError
            An unknown figure.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> found = fc.compare(fc.envs.river_swim(), ["pd-anpg", "pmd-pd"], samples=1e5, replicates=2)
        >>> print(found.to_latex().splitlines()[-1])
        \end{tabular}
        """
        contents = self.to_dict()
        for shown, entry in zip(contents, self.entries, strict=True):
            missed = excess(self.cmdp, np.nanmean(_values(entry.result.mixture), axis=0))
            shown["missed"] = bool((missed > TOLERANCE * self.scales.constraints).any())
        return latex.table(contents, figures, caption, label)

    def errors(self, budget: float | None = None) -> dict[str, list[Float]]:
        """By method, the error of each replicate (`Scales.errors`), float64[R] for each budget, or for one alone.

        Methods that were not run at all of these budgets are left out. Failed replicates are NaN.

        Raises
        ------
        SettingError
            No method was run at that budget.
        """
        budgets = {entry.budget for entry in self.entries} if budget is None else {budget}
        errors: dict[str, list[Float]] = {}
        for entry in self.entries:
            if entry.budget in budgets:
                own = errors.setdefault(entry.variant.label, [])
                own.append(self.scales.errors(self.cmdp, entry.result.mixture))
        if not errors:
            known = sorted({entry.budget for entry in self.entries})
            raise SettingError(
                f"budget = {budget!r}: one of {', '.join(f'{x:g}' for x in known)} is expected"
            )
        return {label: own for label, own in errors.items() if len(own) == len(budgets)}

    def profiles(self, thresholds: Sequence[float], budget: float | None = None) -> dict[str, Interval]:
        """By method, the share of runs whose error is at most each threshold: `fastcmdp.aggregates.profile`.

        Over all budgets, or at one.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> found = fc.compare(fc.envs.river_swim(), "pd-anpg", samples=1e5, replicates=2)
        >>> found.profiles([0.0, 10.0])["pd-anpg"].mean.tolist()
        [0.0, 1.0]
        """
        levels = np.asarray(thresholds, np.float64)
        return {label: profile(own, levels) for label, own in self.errors(budget).items()}

    def improvement(self, first: str, second: str, budget: float | None = None) -> Interval:
        """The probability that a run of one method has a smaller error than one of another: `aggregates.improvement`.

        Over all budgets, or at one.

        Raises
        ------
        SettingError
            A method that was not run at these budgets.
        """
        errors = self.errors(budget)
        for label in (first, second):
            if label not in errors:
                raise SettingError(f"method {label!r}: one of {', '.join(errors)} is expected")
        return improvement(errors[first], errors[second])

    def lines(self) -> list[Curve]:
        """What ``plot`` draws, by method: along the run where there is one budget, else the ends of the runs."""
        budgets = {entry.budget for entry in self.entries}
        labels = dict.fromkeys(entry.variant.label for entry in self.entries)
        rows = []
        for label in labels:
            own = [entry.result for entry in self.entries if entry.variant.label == label]
            if len(budgets) == 1:
                samples, _, values = curves(own[0])
                rows.append(self._line(label, samples[1:], values[:, 1:]))
            else:
                ends = [(float(r.samples.mean()), _values(r.mixture)) for r in own if r.trace.done > 1]
                if ends:
                    samples, values = np.array([x for x, _ in ends]), np.stack([v for _, v in ends], axis=1)
                    rows.append(self._line(label, samples, values))
        return rows

    def _line(self, label: str, samples: Float, values: Float) -> Curve:
        def gap(mean: Float) -> Float:
            return np.asarray((self.optimum.reward - mean[..., 0]) / self.scales.reward)

        def violation(mean: Float) -> Float:
            missed = excess(self.cmdp, mean) / self.scales.constraints
            return np.asarray(missed.max(axis=-1, initial=0.0))

        return Curve(label, samples, bootstrap(values, gap), bootstrap(values, violation))

    def notes(self) -> list[str]:
        """Limits that are missed by much of their own size, whatever that is beside their range."""
        notes = []
        for entry in self.entries:
            values = _values(entry.result.mixture)
            known = values[np.isfinite(values).all(axis=1)]
            missed = (
                excess(self.cmdp, known.mean(axis=0)) if len(known) else np.zeros(self.cmdp.n_constraints)
            )
            for i, name in enumerate(self.cmdp.names[1:]):
                limit = float(self.cmdp.limits[i])
                if (
                    limit
                    and missed[i] > MISSED * abs(limit)
                    and missed[i] > TOLERANCE**2 * self.scales.constraints[i]
                ):
                    notes.append(
                        f"{entry.variant.label} at {entry.budget:.3g} samples misses the limit {self.cmdp.sense[i]} "
                        f"{limit:.6g} of {name} by {missed[i]:.3g}, {missed[i] / abs(limit):.3g} times the limit, "
                        f"{missed[i] / self.scales.constraints[i]:.2%} of its range"
                    )
        return notes

    def table(self) -> str:
        """Text for reading: one line a method and budget."""
        return _table(self)

    def plot(self, path: str | Path | None = None, *, title: str | None = None) -> Figure:
        """Gap and violation against samples; see ``fastcmdp.plots.plot_comparison``."""
        from fastcmdp.plots import plot_comparison

        return plot_comparison(self, path, title=title)


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for key, value in nested.items():
        name = prefix + ("" if key == "mean" else ("_" if prefix else "") + key)
        columns |= _flat(value, name) if isinstance(value, Mapping) else {name: value}
    return columns


def _interval(ends: Mapping[str, float | None]) -> str:
    if ends["mean"] is None or ends["low"] == ends["high"]:
        return number(ends["mean"])
    return f"{number(ends['mean'])} [{number(ends['low'])}, {number(ends['high'])}]"


def _table(comparison: Comparison) -> str:
    cmdp, best = comparison.cmdp, comparison.optimum
    lines = [f"{cmdp!r}", f"optimum: {cmdp.names[0]} {best.reward:.6g}"]
    for i, name in enumerate(cmdp.names[1:]):
        lines[-1] += (
            f"; {name} {best.constraints[i]:.6g} (limit {cmdp.sense[i]} {cmdp.limits[i]:.6g}), "
            f"multiplier {best.duals[i]:.4g}"
        )
    head = ["samples", "method", "error", "gap", "violation", "last: gap", "violation"]
    head += ["multiplier", "limits met", "slack", "seconds", "M/s"]
    if not cmdp.n_constraints:
        head = [name for name in head if name not in ("violation", "multiplier", "limits met", "slack")]
    rows = [head]
    for entry in comparison.to_dict():
        strict, speed = entry["feasibility"]["strict"], entry["transitions_per_second"]
        kept = entry["replicates"] - entry["failed"]
        met = "-" if strict["share"] is None else f"{round(strict['share'] * kept)} of {kept}"
        error = entry["error"]["mean"]
        cells = [f"{entry['budget']:.3g}", entry["name"] + "*" * (not entry["finished"])]
        cells += [number(error, ".2%"), _interval(entry["gap"])]
        multipliers = ", ".join(number(value) for value in entry["duals"])
        speeds = [number(entry["seconds"], ".2f"), number(speed and speed / 1e6, ".1f")]
        if cmdp.n_constraints:
            cells += [_interval(entry["violation"]), number(entry["last"]["gap"]["mean"])]
            cells += [
                number(entry["last"]["violation"]["mean"]),
                multipliers,
                met,
                _interval(strict["slack"]),
            ]
        else:
            cells += [number(entry["last"]["gap"]["mean"])]
        rows.append(cells + speeds)
    lines += ["", table(rows, left=(1,)), ""]
    lines.append(
        "Of the mixture of all policies unless it says last; means over replicates [95 % bootstrap interval]. "
        "error: the larger of"
    )
    lines.append(
        "gap and violation, relative to what reward and constraint can range over, mean over replicates."
    )
    lines += comparison.notes()
    return "\n".join(lines)
