"""The bench: which runs are made, and what became of them. Runs are a sweep's, and so are their store and its habits.

A run is a method on a model at a budget from a seed. Its error is that of the mixture of its output (draw one of the
policies of the run once, then follow it), evaluated exactly up to 20,000 choices and by the run's own estimates beyond:
the larger of gap and worst violation, each relative to what policies attain. A budget that is too small for a method, a
number that is not finite, and a run that is missing count as worse than any error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.bench.frozen import Frozen, frozen, suite
from fastcmdp.compare import variants
from fastcmdp.errors import SettingError
from fastcmdp.sweep import Algorithms, Models, Status, Store, Sweep, SweepProgress
from fastcmdp.sweep import run as run_sweep

Float = NDArray[np.float64]

BUDGETS = (1e5, 1e6)
REPLICATES = 5
SEED = 20_000
POINTS = 100  # at which the policies of a run are evaluated: its mixture is joined from these


@dataclass(frozen=True)
class Measured:
    """Errors of one method on one model at one budget.

    Attributes
    ----------
    method : str
    model : Frozen
    budget : float
    errors : float64[R]
        NaN where there is none.
    gaps, violations : float64[R]
        Relative; their signed gap, and the worst violation.
    source : "exact", "estimate" or "none"
    """

    method: str
    model: Frozen
    budget: float
    errors: Float
    gaps: Float
    violations: Float
    source: str


def chosen(models: Iterable[str] | str | None) -> list[Frozen]:
    """The frozen models of these names; None: all.

    Raises
    ------
    SettingError
        An unknown name, or none at all.
    """
    if models is None:
        return suite()
    names = [models] if isinstance(models, str) else list(models)
    if not names:
        raise SettingError("models: one or more of the bench are expected")
    return [frozen(name) for name in dict.fromkeys(names)]


def specification(
    methods: Sequence[str] | str | None = None,
    models: Iterable[str] | str | None = None,
    budgets: Sequence[float] = BUDGETS,
    replicates: int = REPLICATES,
    seed: int = SEED,
) -> Sweep:
    """The sweep that the bench is.

    Examples
    --------
    >>> made = specification(["pmd-pd"], ["river-swim-8"])
    >>> len(made.models), made.replicates
    (1, 5)
    """
    taken = variants(methods if methods is not None else list(ALGORITHMS))
    return Sweep(
        [Models(model=each.model) for each in chosen(models)],
        [Algorithms(each.label) for each in taken],
        samples=list(budgets),
        replicates=replicates,
        seed=seed,
        points=POINTS,
        title="bench",
    )


def run(
    folder: str | Path,
    methods: Sequence[str] | str | None = None,
    models: Iterable[str] | str | None = None,
    *,
    budgets: Sequence[float] = BUDGETS,
    replicates: int = REPLICATES,
    seed: int = SEED,
    workers: int | None = None,
    progress: Callable[[SweepProgress], object] | None = None,
) -> Status:
    """Make the runs that the folder lacks; the same call goes on where the last one ended, and more methods add theirs.

    Parameters
    ----------
    folder : path
    methods : names, with settings as for `compare`; default: all of the registry
    models : names of frozen models; default: all thirty
    budgets : sequence of float
        Transitions of one run. Other budgets, replicates or seeds than the default make another bench.
    replicates, seed : int
    workers : int, optional
        Runs at a time; default: the processors at hand. Results do not depend on it.
    progress : callable, optional
        As for `fastcmdp.sweep.run`.

    Returns
    -------
    Status
        Also after Ctrl-C, with ``stopped``.

    Raises
    ------
    SettingError
        An unknown name; a model that is not the one that was frozen.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run(folder, ["pmd-pd"], ["river-swim-8"], budgets=[2e4], replicates=2).finished
    True
    """
    for each in chosen(models):
        if each.states <= 1000:  # the sweep compares the others with its plan
            each.build()
    wanted = specification(methods, models, budgets, replicates, seed)
    return run_sweep(wanted, folder, workers=workers, extend=True, progress=progress)


def measured(folder: str | Path) -> list[Measured]:
    """What is known of the runs in a folder, by budget, method and model.

    Raises
    ------
    SettingError
        The folder holds no bench, or a model that is not the one that was frozen.
    """
    store = Store(folder)
    plan = store.plan()
    known = {each.model: each for each in suite()}
    labels = {configuration.model.label: configuration.fingerprint for configuration in plan.configurations}
    for label, fingerprint in labels.items():
        if label not in known:
            raise SettingError(f"{folder}: {label} is no model of the bench")
        if known[label].fingerprint != fingerprint:
            raise SettingError(f"{folder}: {label} is not the model that was frozen")
    columns = ["algorithm", "model", "budget", "replicate", "point", "reward", "constraints", "source"]
    rows = store.read(columns).to_pylist()
    ends: dict[tuple[str, str, float], dict[int, dict[str, object]]] = {}
    for row in rows:  # in the order of points: the last one stays
        ends.setdefault((row["algorithm"], row["model"], row["budget"]), {})[row["replicate"]] = row
    methods = list(
        dict.fromkeys(
            [configuration.label for configuration in plan.configurations] + [key[0] for key in ends]
        )
    )
    budgets = sorted({budget for _, _, budget in ends})
    return [
        _measured(method, known[label], budget, ends.get((method, label, budget), {}))
        for budget in budgets
        for method in methods
        for label in labels
    ]


def _measured(method: str, model: Frozen, budget: float, runs: dict[int, dict[str, object]]) -> Measured:
    n = max(len(runs), 1)
    reward = np.array([runs[r]["reward"] for r in sorted(runs)] or [np.nan] * n, np.float64)
    values = np.array(
        [runs[r]["constraints"] for r in sorted(runs)] or [[np.nan] * model.constraints], np.float64
    )
    values = values.reshape(n, model.constraints)
    gaps = (model.reward - reward) / model.reward_range
    errors = model.errors(reward, values)
    lost = np.isnan(reward)
    violations = np.where(lost, np.nan, np.maximum(model.errors(np.full(n, np.inf), values), 0.0))
    sources = {str(row["source"]) for row in runs.values()} or {"none"}
    return Measured(method, model, budget, errors, gaps, violations, sources.pop())
