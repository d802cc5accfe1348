"""Several algorithms on one model at the same budgets of samples, beside the exact optimum.

What is compared, by default, is the *mixture* of a run's policies (draw k uniformly once, then follow pi_k): the
object of the guarantees. Over replicates,

    gap                      J_r* - mean of J_r(mixture),
    violation                the positive part of the mean excess over a limit: the mean over outer steps and over
                             replicates comes first, since guarantees are in expectation; the worst constraint,
    violation_per_replicate  the mean of each replicate's own positive part, at least as large,
    error                    the mean over replicates of the larger of gap and violation of each, relative to the
                             ranges of J_r and of J_c over all policies (``Scales``).

What an output is, is the method's own: pi_0..pi_{K-1}, pi_1..pi_K, or members of N_0 (``fastcmdp.runs.record``). A
range can be wide beside a limit, and a limit missed many times over then makes a small error: ``notes`` tells it.

Every budget has a schedule of its own (``Algorithm.for_samples``): a guarantee is about a run to its end, with step
sizes chosen for that end, so a long run's beginning is no substitute for a short run.

All methods get the same budget of expected transitions, the same seeds, and the same tables. Compilation is not in
the seconds: a run that is over at once goes first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.algorithms.base import Algorithm
from fastcmdp.algorithms.variants import Variant, name_of, variant
from fastcmdp.bootstrap import Interval, bootstrap
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.exact import Optimum
from fastcmdp.exact import optimum as exact_optimum
from fastcmdp.plots import curves
from fastcmdp.policies import Policy, TabularSoftmax
from fastcmdp.runs import Averages, Result, excess
from fastcmdp.runs.scales import Scales
from fastcmdp.solve import Progress
from fastcmdp.solve import solve as run
from fastcmdp.tuned import check_constants, constants_for, read_constants
from fastcmdp.worlds import EXACT_CHOICES

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

        made = result.to_dict() | {
            "name": self.variant.label,
            "budget": self.budget,
            "reward": bootstrap(mixture.reward).to_dict(),
            **_gap_and_violation(cmdp, best, mixture),
            "violation_per_replicate": bootstrap(mixture.violation.max(axis=1, initial=0.0)).to_dict(),
            "error": bootstrap(scales.errors(cmdp, mixture)).to_dict(),
            "last": _gap_and_violation(cmdp, best, last),
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
        made["last_quarter"] |= {"reward": bootstrap(late.reward).to_dict()}
        made["last_quarter"] |= _gap_and_violation(cmdp, best, late)
        return made


def _values(averages: Averages) -> Float:
    """J_r and the constraint values, float64[R, 1+m]."""
    return np.concatenate([averages.reward[:, None], averages.constraints], axis=1)


def _least(slack: Float) -> Float:
    """By how much the tightest limit is met; NaN where there is none."""
    return np.asarray(slack.min(axis=-1) if slack.shape[-1] else np.full(slack.shape[:-1], np.nan))


def _gap_and_violation(cmdp: CMDP, best: Optimum, averages: Averages) -> dict[str, Any]:
    def violation(mean: Float) -> Float:
        return np.asarray(excess(cmdp, mean).max(axis=-1, initial=0.0))

    return {
        "gap": bootstrap(averages.gap).to_dict(),
        "violation": bootstrap(_values(averages), violation).to_dict(),
    }


class Line(NamedTuple):
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
        >>> found = fc.compare(fc.envs.river_swim(), samples=1e5, replicates=2)
        >>> sorted(key for key in found.rows()[0] if key.startswith("last_gap"))
        ['last_gap', 'last_gap_high', 'last_gap_low']
        """
        return [_flat(entry) for entry in self.to_dict()]

    def lines(self) -> list[Line]:
        """What ``plot`` draws, by method: along the run where there is one budget, else the ends of the runs."""
        budgets = {entry.budget for entry in self.entries}
        labels = dict.fromkeys(entry.variant.label for entry in self.entries)
        made = []
        for label in labels:
            own = [entry.result for entry in self.entries if entry.variant.label == label]
            if len(budgets) == 1:
                samples, _, values = curves(own[0])
                made.append(self._line(label, samples[1:], values[:, 1:]))
            else:
                ends = [(float(r.samples.mean()), _values(r.mixture)) for r in own if r.trace.done > 1]
                if ends:
                    samples, values = np.array([x for x, _ in ends]), np.stack([v for _, v in ends], axis=1)
                    made.append(self._line(label, samples, values))
        return made

    def _line(self, label: str, samples: Float, values: Float) -> Line:
        def gap(mean: Float) -> Float:
            return np.asarray((self.optimum.reward - mean[..., 0]) / self.scales.reward)

        def violation(mean: Float) -> Float:
            missed = excess(self.cmdp, mean) / self.scales.constraints
            return np.asarray(missed.max(axis=-1, initial=0.0))

        return Line(label, samples, bootstrap(values, gap), bootstrap(values, violation))

    def notes(self) -> list[str]:
        """Limits that are missed by much of their own size, whatever that is beside their range."""
        made = []
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
                    made.append(
                        f"{entry.variant.label} at {entry.budget:.3g} samples misses the limit {self.cmdp.sense[i]} "
                        f"{limit:.6g} of {name} by {missed[i]:.3g}, {missed[i] / abs(limit):.3g} times the limit, "
                        f"{missed[i] / self.scales.constraints[i]:.2%} of its range"
                    )
        return made

    def table(self) -> str:
        """Text for reading: one line a method and budget."""
        return _table(self)

    def plot(self, path: str | Path | None = None, *, title: str | None = None) -> Figure:
        """Gap and violation against samples; see ``fastcmdp.plots.plot_comparison``."""
        from fastcmdp.plots import plot_comparison

        return plot_comparison(self, path, title=title)


class Stage(NamedTuple):
    """Where a comparison stands, for a progress callback."""

    label: str  # of the method
    budget: float
    number: int  # of the run, from 1
    total: int  # runs


class HasConstants(Protocol):
    """What ``tune`` returns."""

    @property
    def constants(self) -> Mapping[str, Mapping[str, float]]:
        """By method."""


Algorithms = Iterable[str | type[Algorithm] | Variant] | type[Algorithm] | Variant


def variants(algorithms: Algorithms | str | None) -> list[Variant]:
    """The methods that were asked for; None or "all": all of the registry; in one text a comma separates them.

    A comma that no letter follows belongs to a setting: `pd-anpg?zeta=1,2,crpo` is two methods.

    Raises
    ------
    SettingError
        An unknown name or setting, none at all, or one twice.
    """
    if algorithms is None or (
        isinstance(algorithms, str | list | tuple) and algorithms in ("all", ["all"], ("all",))
    ):
        algorithms = ALGORITHMS
    elif isinstance(algorithms, str):
        algorithms = re.split(r",\s*(?=[A-Za-z]|$)", algorithms)
    elif isinstance(algorithms, type | Variant) or not isinstance(algorithms, Iterable):
        algorithms = [algorithms]
    made = [_variant(given) for given in algorithms]
    labels = [given.label for given in made]
    if not made or len(set(labels)) < len(labels):
        raise SettingError(f"algorithms = {labels!r}: one or more, each once")
    return made


def _variant(given: Any) -> Variant:
    if isinstance(given, Variant):
        return given
    name = name_of(given)
    if name is not None:
        return variant(name)
    if isinstance(given, Algorithm):
        raise SettingError(
            f"algorithms: {given!r} has outer steps of its own, and here they follow from the budget; give its "
            f"name, and settings that stay fixed as text, such as {given.name + '?c_eta=2'!r}"
        )
    raise SettingError(f"algorithms: {given!r}: names are expected, {', '.join(ALGORITHMS)}")


def check_budgets(samples: float | Sequence[float]) -> list[float]:
    """Budgets in rising order, each once."""
    try:
        given = np.atleast_1d(np.asarray(samples))
    except ValueError:  # rows of several lengths
        given = np.zeros(0)
    if given.dtype.kind not in "iuf" or given.size == 0 or not (np.isfinite(given) & (given > 0)).all():
        raise SettingError(f"samples = {samples!r}: a positive number, or several, is expected")
    return sorted({int(x) if float(x).is_integer() and x < 2**53 else float(x) for x in given.ravel()})


def check_problem(cmdp: CMDP, policy: Policy | None, best: Optimum | bool | None) -> Policy:
    """The policy class, once model, policy and optimum are of the right kinds."""
    if not isinstance(cmdp, CMDP):
        raise SettingError(
            f"cmdp = {cmdp!r}: a CMDP is expected, from CMDP.from_arrays, fastcmdp.load or fastcmdp.envs; simulators "
            "have no exact optimum to compare with"
        )
    if policy is not None and not isinstance(policy, Policy):
        raise SettingError(
            f"policy = {policy!r}: give TabularSoftmax(), LogLinear(features) or NeuralSoftmax(features)"
        )
    if best is not None and best is not True and not isinstance(best, Optimum):
        raise SettingError(f"optimum = {best!r}: what fastcmdp.optimum returned, or True, is expected")
    return policy or TabularSoftmax()


def exact_problem(cmdp: CMDP, best: Optimum | bool | None) -> Optimum:
    """The optimum to compare with, or a SettingError where the model is large and nobody asked for it."""
    if best is None and cmdp.n_choices > EXACT_CHOICES:
        raise SettingError(
            f"the model has {cmdp.n_choices} choices; the exact optimum, which this needs, is computed unasked up to "
            f"{EXACT_CHOICES}: give optimum=True, or optimum=fastcmdp.optimum(cmdp) to have it once for several calls"
        )
    return best if isinstance(best, Optimum) else exact_optimum(cmdp)


def compare(
    cmdp: CMDP,
    algorithms: Algorithms | str | None = None,
    samples: float | Sequence[float] = 10_000_000,
    *,
    constants: Mapping[str, Mapping[str, float]] | HasConstants | str | Path | None = None,
    policy: Policy | None = None,
    replicates: int = 8,
    seed: int = 0,
    threads: int | None = None,
    optimum: Optimum | bool | None = None,
    progress: Callable[[Stage, Progress], object] | None = None,
) -> Comparison:
    """Run several algorithms at the same budgets of samples and set them beside the exact optimum.

    Parameters
    ----------
    cmdp : CMDP
        Of up to 20,000 choices, or with ``optimum``.
    algorithms : names, classes of settings or Variants; default: all
        A name may carry settings that stay fixed: ``"pd-anpg?method=sgd&average=uniform"``.
    samples : float or sequence
        Expected transitions of one replicate. Each budget has its own schedule.
    constants : mapping, what ``tune`` returned, or path of a file of ``fastcmdp tune``
        Constants of the schedules; methods that are not in it keep their defaults.
    policy : TabularSoftmax, LogLinear, ...
    replicates : int
        Independent runs of each; 8 or more for intervals that hold what they say.
    seed : int
        The run of ``solve`` with this seed, for every method and budget.
    threads : int, optional
    optimum : Optimum or True, optional
        One that you have; True: compute it however large the model is.
    progress : callable, optional
        Called with a Stage and ``solve``'s Progress a few times a second.

    Returns
    -------
    Comparison
        What cannot be run (a budget below one outer step, a tabular method on another policy) is left out and named in
        ``skipped``. After Ctrl-C: what there is, ``finished`` False.

    Raises
    ------
    SettingError
        A setting is out of range or unknown, the model is too large, or nothing of what was asked for can be run.
    InfeasibleError
        No policy meets the constraints.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> found = fc.compare(fc.envs.river_swim(), "pd-anpg", samples=[1e5, 2e5], replicates=2)
    >>> [(entry["name"], entry["budget"]) for entry in found.to_dict()]
    [('pd-anpg', 100000), ('pd-anpg', 200000)]
    """
    chosen, budgets = variants(algorithms), check_budgets(samples)
    policy = check_problem(cmdp, policy, optimum)
    if isinstance(constants, str | Path):
        constants = read_constants(constants)
    given: Any = getattr(constants, "constants", constants)
    tuned = check_constants({} if given is None else given)
    best = exact_problem(cmdp, optimum)
    made = Comparison(cmdp, best, Scales.of(cmdp, best))
    bound = policy.bind(cmdp)
    planned: list[tuple[float, Variant, Algorithm]] = []
    for budget in budgets:
        for each in chosen:
            try:
                each.algorithm.check_policy(bound)
                planned.append((budget, each, each.for_samples(cmdp, budget, constants_for(each, tuned))))
            except SettingError as error:
                made.skipped.append(f"{each.label} at {budget:.3g} samples: {error}")
    if not planned:
        raise SettingError("; ".join(made.skipped))
    options: dict[str, Any] = {"policy": policy, "seed": seed, "threads": threads, "optimum": best}
    warm: set[str] = set()
    try:
        for number, (budget, each, settings) in enumerate(planned, 1):
            if each.label not in warm:
                # With a callback Ctrl-C is told here alone, as an unfinished run.
                if not run(cmdp, each.shortest(), trace=1, progress=lambda _: None, **options).finished:
                    raise KeyboardInterrupt
                warm.add(each.label)
            stage = Stage(each.label, budget, number, len(planned))

            def tell(state: Progress, stage: Stage = stage) -> None:
                if progress is not None:
                    progress(stage, state)

            result = run(cmdp, settings, replicates=replicates, progress=tell, **options)
            made.entries.append(Entry(each, budget, constants_for(each, tuned), result))
            if not result.finished:
                made.finished = False
                break
    except KeyboardInterrupt:
        if not made.entries:
            raise
        made.finished = False
    return made


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in nested.items():
        name = prefix + ("" if key == "mean" else ("_" if prefix else "") + key)
        made |= _flat(value, name) if isinstance(value, Mapping) else {name: value}
    return made


def _number(value: float | None, form: str = ".3g") -> str:
    return "-" if value is None or not math.isfinite(value) else format(value, form)


def _interval(found: Mapping[str, float | None]) -> str:
    if found["mean"] is None or found["low"] == found["high"]:
        return _number(found["mean"])
    return f"{_number(found['mean'])} [{_number(found['low'])}, {_number(found['high'])}]"


def _table(of: Comparison) -> str:
    cmdp, best = of.cmdp, of.optimum
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
    for entry in of.to_dict():
        strict, speed = entry["feasibility"]["strict"], entry["transitions_per_second"]
        kept = entry["replicates"] - entry["failed"]
        met = "-" if strict["share"] is None else f"{round(strict['share'] * kept)} of {kept}"
        error = entry["error"]["mean"]
        cells = [f"{entry['budget']:.3g}", entry["name"] + "*" * (not entry["finished"])]
        cells += [_number(error, ".2%"), _interval(entry["gap"])]
        multipliers = ", ".join(_number(value) for value in entry["duals"])
        speeds = [_number(entry["seconds"], ".2f"), _number(speed and speed / 1e6, ".1f")]
        if cmdp.n_constraints:
            cells += [_interval(entry["violation"]), _number(entry["last"]["gap"]["mean"])]
            cells += [
                _number(entry["last"]["violation"]["mean"]),
                multipliers,
                met,
                _interval(strict["slack"]),
            ]
        else:
            cells += [_number(entry["last"]["gap"]["mean"])]
        rows.append(cells + speeds)
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines.append("")
    lines += [
        "  ".join(
            cell.ljust(n) if name == "method" else cell.rjust(n)
            for name, cell, n in zip(head, row, width, strict=True)
        ).rstrip()
        for row in rows
    ]
    lines.append("")
    lines.append(
        "Of the mixture of all policies unless it says last; means over replicates [95 % bootstrap interval]. "
        "error: the larger of"
    )
    lines.append(
        "gap and violation, relative to what reward and constraint can range over, mean over replicates."
    )
    lines += of.notes()
    return "\n".join(lines)
