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

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.algorithms.base import Algorithm
from fastcmdp.algorithms.variants import Variant, name_of, variant
from fastcmdp.cmdp import CMDP
from fastcmdp.comparison import Comparison, Entry
from fastcmdp.errors import SettingError
from fastcmdp.exact import Optimum
from fastcmdp.exact import optimum as exact_optimum
from fastcmdp.policies import Policy, TabularSoftmax
from fastcmdp.runs.scales import Scales
from fastcmdp.solve import Progress
from fastcmdp.solve import solve as run
from fastcmdp.tuned import check_constants, constants_for, read_constants
from fastcmdp.worlds import EXACT_CHOICES

if TYPE_CHECKING:
    pass

Float = NDArray[np.float64]


class ComparedRun(NamedTuple):
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
    chosen = [_variant(item) for item in algorithms]
    labels = [item.label for item in chosen]
    if not chosen or len(set(labels)) < len(labels):
        raise SettingError(f"algorithms = {labels!r}: one or more, each once")
    return chosen


def _variant(item: Any) -> Variant:
    if isinstance(item, Variant):
        return item
    name = name_of(item)
    if name is not None:
        return variant(name)
    if isinstance(item, Algorithm):
        raise SettingError(
            f"algorithms: {item!r} has outer steps of its own, and here they follow from the budget; give its "
            f"name, and settings that stay fixed as text, such as {item.name + '?c_eta=2'!r}"
        )
    raise SettingError(f"algorithms: {item!r}: names are expected, {', '.join(ALGORITHMS)}")


def check_budgets(samples: float | Sequence[float]) -> list[float]:
    """Budgets in rising order, each once."""
    try:
        budgets = np.atleast_1d(np.asarray(samples))
    except ValueError:  # rows of several lengths
        budgets = np.zeros(0)
    if (
        budgets.dtype.kind not in "iuf"
        or budgets.size == 0
        or not (np.isfinite(budgets) & (budgets > 0)).all()
    ):
        raise SettingError(f"samples = {samples!r}: a positive number, or several, is expected")
    return sorted({int(x) if float(x).is_integer() and x < 2**53 else float(x) for x in budgets.ravel()})


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
    progress: Callable[[ComparedRun, Progress], object] | None = None,
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
        Called with a ComparedRun and ``solve``'s Progress a few times a second.

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
    tables: Any = getattr(constants, "constants", constants)
    tuned = check_constants({} if tables is None else tables)
    best = exact_problem(cmdp, optimum)
    comparison = Comparison(cmdp, best, Scales.of(cmdp, best))
    bound = policy.bind(cmdp)
    planned: list[tuple[float, Variant, Algorithm]] = []
    for budget in budgets:
        for each in chosen:
            try:
                each.algorithm.check_policy(bound)
                planned.append((budget, each, each.for_samples(cmdp, budget, constants_for(each, tuned))))
            except SettingError as error:
                comparison.skipped.append(f"{each.label} at {budget:.3g} samples: {error}")
    if not planned:
        raise SettingError("; ".join(comparison.skipped))
    options: dict[str, Any] = {"policy": policy, "seed": seed, "threads": threads, "optimum": best}
    warm: set[str] = set()
    try:
        for number, (budget, each, settings) in enumerate(planned, 1):
            if each.label not in warm:
                # With a callback Ctrl-C is told here alone, as an unfinished run.
                if run(cmdp, each.shortest(), trace=1, progress=lambda _: None, **options).interrupted:
                    raise KeyboardInterrupt
                warm.add(each.label)
            stage = ComparedRun(each.label, budget, number, len(planned))

            def tell(state: Progress, stage: ComparedRun = stage) -> None:
                if progress is not None:
                    progress(stage, state)

            result = run(cmdp, settings, replicates=replicates, progress=tell, **options)
            comparison.entries.append(Entry(each, budget, constants_for(each, tuned), result))
            if result.interrupted:
                comparison.finished = False
                break
    except KeyboardInterrupt:
        if not comparison.entries:
            raise
        comparison.finished = False
    return comparison
