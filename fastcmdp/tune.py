"""One search for good constants of every method: the same trials, the same budget, seeds that no report uses.

Trial 0 is the method's defaults; trial i > 0 puts each constant at low (high/low)^u within its range of
``Algorithm.constants``, u the i-th point of a Kronecker sequence with a random shift,

    u_i = frac(shift + i a),      a_j = phi^-j,  j = 1..d,      phi^(d+1) = phi + 1,

which covers a box of d dimensions evenly for any number of points (phi as in Roberts' generalised golden ratio). Each
trial is a run of ``replicates`` at the budget; its score is the error of ``compare``: the mean over replicates of the
larger of gap and violation of the mixture, relative. A trial in which a number ceases to be finite, or whose
schedule does not fit the budget, scores infinity. The least score wins.

Trials are made in rounds, trial i of every method before trial i+1 of any, and only whole rounds count: so after
Ctrl-C, too, all have had the same number.

Seeds. All trials of all methods run with the seed

    int.from_bytes(SeedSequence(seed, spawn_key=(20250,)).generate_state(4).tobytes(), "little")

a number of up to 128 bits, which is not ``seed`` and not a number that anybody types: what ``compare`` and ``solve``
report with ``seed`` is from other random streams than those that chose the constants. The winner's score is too good,
as the least of many; ``compare`` measures it afresh.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.base import Algorithm
from fastcmdp.algorithms.variants import Variant
from fastcmdp.check import seed_number, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.compare import Algorithms, check_budgets, check_problem, exact_problem, variants
from fastcmdp.errors import SettingError
from fastcmdp.exact import Optimum
from fastcmdp.policies import BoundPolicy, Policy
from fastcmdp.runs.scales import Scales
from fastcmdp.solve import solve as run
from fastcmdp.tuned import Constants, write_constants

Float = NDArray[np.float64]

WINDOWS = 50  # of the trace: policies are evaluated at their ends; 200 change the error by 1e-4 of itself
SPAWN_KEY = (20250,)  # of SeedSequence, for the seed of the trials; (1,) and (2,) beside it for shifts


@dataclass(frozen=True)
class Trial:
    """One set of constants and its score.

    Attributes
    ----------
    constants : dict
        Empty for the defaults.
    error : float
        Relative error; infinite for a failure.
    """

    constants: dict[str, float]
    error: float


class Tuning(NamedTuple):
    """What a progress callback is told, after each trial."""

    done: int  # trials of all methods
    total: int
    label: str  # of the method
    error: float  # of this trial
    best: float  # of the method so far


@dataclass
class Tuned:
    """What a search found.

    Attributes
    ----------
    trials : dict of lists of Trial
        By method; the first of each is the defaults. All lists are equally long.
    meta : dict
        Where the constants are from, as it is written to the file.
    skipped : list of str
        What could not be run, and why.
    finished : bool
        False after Ctrl-C: the trials are then what there is.
    """

    trials: dict[str, list[Trial]]
    meta: dict[str, Any] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    finished: bool = True

    @property
    def best(self) -> dict[str, Trial]:
        """The trial with the least error of each method that has any; of equal ones the first."""
        return {
            label: min(trials, key=lambda trial: trial.error)
            for label, trials in self.trials.items()
            if trials
        }

    @property
    def constants(self) -> Constants:
        """Constants of the best trials, for ``compare`` and ``for_samples``; empty where the defaults won."""
        return {label: dict(trial.constants) for label, trial in self.best.items()}

    def save(self, path: str | Path) -> None:
        """Write the constants and where they are from (see ``fastcmdp.tuned``), whole or not at all."""
        best = {label: trial.error for label, trial in self.best.items()}
        defaults = {label: trials[0].error for label, trials in self.trials.items() if trials}
        write_constants(path, self.constants, self.meta | {"error": best, "error_of_defaults": defaults})

    def table(self) -> str:
        """Text for reading: one line a method."""
        width = max(map(len, self.trials), default=0)
        n = max(map(len, self.trials.values()), default=0)
        lines = [f"{n} trials each; relative error of the best and of the defaults, and the best constants"]
        for label, trial in self.best.items():
            best = ", ".join(f"{key} {value:.4g}" for key, value in trial.constants.items()) or "the defaults"
            first = self.trials[label][0].error
            lines.append(f"{label:{width}}  {trial.error:8.2%}  {first:8.2%}  {best}")
        return "\n".join(lines)


def trial_seed(seed: int) -> int:
    """Seed of all trials of a search with this seed.

    Examples
    --------
    >>> trial_seed(0) != trial_seed(1), trial_seed(0) > 2**64
    (True, True)
    """
    words = np.random.SeedSequence(seed, spawn_key=SPAWN_KEY).generate_state(4)
    return int.from_bytes(words.astype("<u4").tobytes(), "little")


def points(trials: int, d: int, seed: int) -> Float:
    """Trials 1, 2, ... as points of the unit cube, float64[trials - 1, d]: evenly spread, whatever their number.

    Examples
    --------
    >>> found = np.sort(points(9, 1, seed=0)[:, 0])
    >>> bool(np.diff(found).max() < 0.25)  # 8 random numbers leave 0.34 on average
    True
    """
    phi = 2.0
    for _ in range(100):
        phi = (1.0 + phi) ** (1.0 / (d + 1.0))
    steps = phi ** -np.arange(1.0, d + 1.0)
    shift = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(*SPAWN_KEY, d))).random(d)
    return np.asarray((shift + np.arange(1.0, trials)[:, None] * steps) % 1.0)


def trial_constants(method: Variant, trials: int, seed: int) -> list[dict[str, float]]:
    """The constants of each trial; the defaults first, as an empty dict."""
    spans = method.searched
    low, high = (np.log([span[end] for span in spans.values()]) for end in (0, 1))
    values = np.exp(low + (high - low) * points(trials, len(spans), seed)) if spans else np.zeros((0, 0))
    return [{}] + [{key: float(f"{x:.6g}") for key, x in zip(spans, row, strict=True)} for row in values]


def tune(
    cmdp: CMDP,
    algorithms: Algorithms | str | None = None,
    samples: float = 1_000_000,
    *,
    trials: int = 32,
    replicates: int = 4,
    seed: int = 0,
    policy: Policy | None = None,
    threads: int | None = None,
    optimum: Optimum | bool | None = None,
    progress: Callable[[Tuning], object] | None = None,
) -> Tuned:
    """Search for the constants with which each method errs least at a budget of samples.

    Parameters
    ----------
    cmdp : CMDP
        Of up to 20,000 choices, or with ``optimum``.
    algorithms : names, classes of settings or Variants; default: all
        Settings of a variant, ``"pd-anpg?inner=50"``, stay fixed; its other constants are searched.
    samples : float
        Expected transitions of one replicate of one trial.
    trials : int
        Of each method, the defaults included.
    replicates : int
        Runs of each trial; the same random streams in every trial, so that differences are the constants'.
    seed : int
        Nonnegative. The same seed gives the same trials, on any number of threads. Reports with this seed use other
        random streams.
    policy : TabularSoftmax, LogLinear, ...
    threads : int, optional
    optimum : Optimum or True, optional
        One that you have; True: compute it however large the model is.
    progress : callable, optional
        Called with a Tuning after each trial.

    Returns
    -------
    Tuned
        Its ``constants`` go to ``compare``, its ``save`` writes them to a file. A method whose schedule never fits the
        budget, or a tabular one on another policy, is left out and named in ``skipped``. After Ctrl-C: what there is.

    Raises
    ------
    SettingError
        A setting is out of range or unknown, the model is too large, or nothing of what was asked for can be run.
    InfeasibleError
        No policy meets the constraints.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> found = fc.tune(fc.envs.river_swim(), "pd-anpg", samples=1e5, trials=3, replicates=2)
    >>> len(found.trials["pd-anpg"]), found.trials["pd-anpg"][0].constants
    (3, {})
    """
    from fastcmdp import __version__

    (budget,) = _one_budget(samples)
    trials, replicates, seed = (
        whole("trials", trials, 1),
        whole("replicates", replicates, 1),
        seed_number(seed),
    )
    policy = check_problem(cmdp, policy, optimum)
    chosen, skipped = _fitting(variants(algorithms), policy.bind(cmdp))
    if not chosen:
        raise SettingError("; ".join(skipped))
    best = exact_problem(cmdp, optimum)
    scales = Scales.of(cmdp, best)
    planned = {each.label: trial_constants(each, int(trials), int(seed)) for each in chosen}
    tuned = Tuned({each.label: [] for each in chosen}, skipped=skipped)
    tuned.meta = {
        "fastcmdp": __version__,
        "model": repr(cmdp),
        "fingerprint": cmdp.fingerprint(),
        "samples": budget,
        "trials": 0,
        "replicates": int(replicates),
        "seed": int(seed),
        "policy": type(policy).__name__,
    }
    options: dict[str, Any] = {
        "policy": policy,
        "seed": trial_seed(seed),
        "replicates": replicates,
        "threads": threads,
        "optimum": best,
        "trace": WINDOWS,
        "progress": lambda _: None,  # so that Ctrl-C is reported once, here
    }
    refused: dict[str, SettingError] = {}
    try:
        for i in range(int(trials)):
            scores: dict[str, Trial] = {}
            for each in chosen:
                constants = planned[each.label][min(i, len(planned[each.label]) - 1)]
                try:
                    error = _score(cmdp, each.for_samples(cmdp, budget, constants), scales, options)
                except SettingError as stop:
                    refused.setdefault(each.label, stop)
                    error = math.inf
                scores[each.label] = Trial(constants, error)
                if progress is not None:
                    so_far = min((trial.error for trial in tuned.trials[each.label]), default=math.inf)
                    done, total = i * len(chosen) + len(scores), int(trials) * len(chosen)
                    progress(Tuning(done, total, each.label, error, min(error, so_far)))
            for label, trial in scores.items():
                tuned.trials[label].append(trial)
            tuned.meta["trials"] = i + 1
    except KeyboardInterrupt:
        if not tuned.meta["trials"]:
            raise
        tuned.finished = False
    _leave_out(tuned, refused, budget)
    return tuned


def _leave_out(tuned: Tuned, refused: Mapping[str, SettingError], budget: float) -> None:
    """Name the methods whose schedule never fitted the budget; an error if none did."""
    for label, reason in refused.items():
        if not math.isfinite(tuned.best[label].error):
            del tuned.trials[label]
            tuned.skipped.append(f"{label} at {budget:.3g} samples: {reason}")
    if not tuned.trials:
        raise SettingError("; ".join(tuned.skipped))


def _fitting(asked: list[Variant], bound: BoundPolicy) -> tuple[list[Variant], list[str]]:
    """The methods that work on a policy class, and why the others do not."""
    chosen, skipped = [], []
    for each in asked:
        try:
            each.algorithm.check_policy(bound)
            chosen.append(each)
        except SettingError as refusal:
            skipped.append(f"{each.label}: {refusal}")
    return chosen, skipped


def _one_budget(samples: float) -> list[float]:
    if np.ndim(samples) > 0:
        raise SettingError(f"samples = {samples!r}: one budget is expected; constants are for a budget")
    return check_budgets(samples)


def _score(cmdp: CMDP, settings: Algorithm, scales: Scales, options: dict[str, Any]) -> float:
    """Mean over replicates of the relative error of the mixture, infinite if one fails; passes a Ctrl-C on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "numbers ceased to be finite", RuntimeWarning)
        result = run(cmdp, settings, **options)
    if result.interrupted:
        raise KeyboardInterrupt
    error = float(scales.errors(cmdp, result.mixture).mean())
    return error if math.isfinite(error) else math.inf
