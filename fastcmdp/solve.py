"""`solve`: set up a run and move it on, with progress, checkpoints and Ctrl-C. The loop is `fastcmdp.runs.loop`'s."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms import PDANPGCV, check_simulation
from fastcmdp.algorithms import algorithm as algorithm_by_name
from fastcmdp.algorithms.base import Algorithm
from fastcmdp.budget import (
    WINDOWS,
    Budget,
    Stages,
    affordable_seconds,
    default_windows,
    further_outer,
    stage_windows,
)
from fastcmdp.check import is_number, seed_number, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError, UnsavedWarning
from fastcmdp.exact import Optimum
from fastcmdp.policies import Policy, check_policy
from fastcmdp.runs import Result, even_points, new_record, read_run, restore
from fastcmdp.runs.growth import grow
from fastcmdp.runs.loop import Crew, follow
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.text import duration
from fastcmdp.worlds import EXACT_CHOICES, default_policy, has_table, world_of

# Choices up to which the optimum is computed unasked where it takes a fifth of the run at most.
AFFORDABLE_CHOICES = 1_000_000
_LEARNT = 1e6  # transitions a second of PD-ANPG-CV on models so large that its H depends on the budget
_OPTIMUM = 2e-6  # seconds of the optimum for each branch
_TRANSITION = 2e-8  # seconds, within a factor of two for most methods and models
_LONG = 5.0  # seconds of silence that are told beforehand
_CHECKPOINT = 30.0  # seconds between two saves


class Progress(NamedTuple):
    """What a progress callback is told."""

    outer: int  # outer steps done by every replicate
    total: int  # outer steps asked for
    samples: int  # transitions drawn by all replicates
    seconds: float  # spent running, evaluation and saving not counted
    result: Result  # as it stands


def solve(
    cmdp: CMDP | Simulator,
    algorithm: Algorithm | None = None,
    *,
    samples: float | None = None,
    target: float | None = None,
    seconds: float | None = None,
    policy: Policy | None = None,
    seed: int = 0,
    replicates: int = 1,
    threads: int | None = None,
    trace: int | None = None,
    draws: str = "fast",
    optimum: Optimum | bool | None = None,
    progress: Callable[[Progress], object] | None = None,
    checkpoint: str | Path | None = None,
    piece: int | None = None,
) -> Result:
    """Run an algorithm on a model and set its result beside the exact optimum.

    Parameters
    ----------
    cmdp : CMDP or Simulator
        With a simulator there is no optimum and no exact evaluation: the gap is NaN and averages are the run's own
        estimates; ``simulator.evaluate`` measures a policy.
    algorithm : PDANPGCV or another settings object
        Default: ``PDANPGCV()``.
    samples : float, optional
        In place of ``algorithm``: the default method, with K and H made for about so many transitions a replicate.
        Other methods plan by ``PDANPG.for_samples(cmdp, samples)`` and the like.
    target : float, optional
        Go on until the relative error of the last quarter is below it with 95 % confidence (``result.accuracy``): from
        exact values and the exact optimum where they are computed, else from the run's own estimates. At most
        ``samples``, or the outer steps of ``algorithm``, or 1e9 transitions a replicate; a target that is not reached
        is told in ``result.notes()``.
    seconds : float, optional
        Go on for about so long by the wall clock, compilation and evaluations included, or until the target.
    policy : TabularSoftmax, LogLinear or NeuralSoftmax, default TabularSoftmax(); for a simulator LogLinear()
    seed : int
        Nonnegative. The same seed gives the same bits on any number of threads, for any ``piece``, and across
        interruptions.
    replicates : int
        Independent runs; replicate r is the same whatever their number.
    threads : int, optional
        Default: the processors at hand, at most one a replicate.
    trace : int, optional
        Number of windows of equal length into which the run is cut for its record; policies are evaluated at their
        ends, and at steps 1, 2, 4, .. of the first. Default: 200, or as many as evaluations take a fifth of the run
        for, but 8 at least (judged by the sizes of model and run alone, so that it is the same everywhere).
    draws : "fast" or "exact"
        One random word a transition, each draw from n branches within (n + 1) 2^-32 of its law in total
        variation; or two words and 2^-53, at about half the speed.
    optimum : Optimum, bool or None
        An optimum that you have; True: compute it; False: do without (no gap, no Slater value, trace from
        estimates only). None: compute it for models of up to 20,000 choices, and of up to a million where it takes
        a fifth of the run at most (judged as for ``trace``).
    progress : callable, optional
        Called with a Progress a few times a second.
    checkpoint : path, optional
        The run is saved there every 30 s, at the end and at Ctrl-C; ``resume`` goes on from it.
    piece : int, optional
        Outer steps per kernel call; default: about 0.2 s worth.

    Returns
    -------
    Result
        Also after Ctrl-C: what there is, with ``finished`` False. ``resume(result)`` goes on.

    Raises
    ------
    InfeasibleError
        No policy meets the constraints (where the optimum is computed).
    ModelError, SettingError
        The policy does not fit the model, or a setting is out of range.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.PDANPG(outer=200, inner=50), replicates=2)
    >>> result.finished, result.gap.shape, result.violation.shape
    (True, (2,), (2, 1))
    >>> result = fc.solve(fc.envs.river_swim(), samples=1e6)
    >>> result.algorithm.name, bool(abs(result.last_quarter.gap[0]) < 0.1)
    ('pd-anpg-cv', True)
    """
    policy, budget = policy or default_policy(cmdp), Budget(samples, seconds, target)
    how = _how(threads=threads, progress=progress, checkpoint=checkpoint, piece=piece)
    if algorithm is None:
        kind: Any = PDANPGCV
        planned = kind.for_samples(cmdp, samples or budget.likely(_LEARNT))
        algorithm = planned if samples is not None or budget.staged else kind()
        most = algorithm.outer if samples is not None or not budget.staged else budget.most(algorithm, cmdp)
    elif samples is not None:
        maker = _kind(algorithm)
        raise SettingError(
            f"samples = {samples!r} beside an algorithm: the settings of one have outer steps of their own; give "
            f"{maker.__name__}.for_samples(cmdp, {samples!r}) as the algorithm"
        )
    else:
        most = _checked(algorithm).outer
    replicates, seed = whole("replicates", replicates, 1), seed_number(seed)
    windows = None if trace is None else whole("trace", trace, 1)
    if budget.staged:
        algorithm = replace(algorithm, outer=budget.first(algorithm, cmdp, most))
    result = start(cmdp, algorithm, policy, seed, replicates, windows, optimum, draws)
    return _stages(result, Stages(budget, most), **how)


def _checked(algorithm: Algorithm) -> Algorithm:
    if not isinstance(algorithm, Algorithm):
        meant = f"; or samples={algorithm!r}, for a budget" if is_number(algorithm) else ""
        kind = _kind(algorithm).__name__
        raise SettingError(f"algorithm = {algorithm!r}: give a settings object such as {kind}(){meant}")
    return algorithm


def _kind(algorithm: object) -> type[Algorithm]:
    """The class of settings that is meant: of an object, by its name, or itself; else the default."""
    if isinstance(algorithm, str):
        return algorithm_by_name(algorithm)
    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    return kind if issubclass(kind, Algorithm) else PDANPGCV


def start(
    cmdp: CMDP | Simulator,
    algorithm: Algorithm,
    policy: Policy,
    seed: int,
    replicates: int,
    windows: int | NDArray[np.int64] | None,
    known: Optimum | bool | None = None,
    draws: str = "fast",
) -> Result:
    """Set up a run that has not moved; ``resume`` moves it. ``windows``: their number, or the steps to record."""
    exact_model = has_table(cmdp)
    _checked(algorithm)
    check_policy(policy)
    if not exact_model:
        check_simulation(type(algorithm))
    if known is None and has_table(cmdp) and EXACT_CHOICES < cmdp.n_choices <= AFFORDABLE_CHOICES:
        known = _OPTIMUM * cmdp.n_branches <= affordable_seconds(cmdp, algorithm)
    try:
        world = world_of(cmdp, policy, known, draws, simulation=algorithm.rolls)
        run = algorithm.run(world, seed, replicates)
    except MemoryError as error:
        raise SettingError(
            f"not enough memory for replicates = {replicates} with policy = {policy!r} and {algorithm!r} ({error}); "
            "give fewer, a smaller policy, or smaller settings"
        ) from error
    exact = world.optimum is not None
    try:
        if windows is None:
            windows = default_windows(world.table, algorithm) if exact else WINDOWS
        points = even_points(algorithm.outer, windows) if isinstance(windows, int) else windows.copy()
        trace = new_record(algorithm, cmdp, points, replicates, exact=exact)
    except MemoryError as error:
        raise SettingError(
            f"not enough memory for the record of trace = {windows} windows of {replicates} replicates ({error}); give "
            "a smaller trace, or fewer replicates"
        ) from error
    return Result(algorithm=algorithm, policy_class=policy, seed=seed, run=run, trace=trace)


def resume(
    result: Result,
    *,
    outer: int | None = None,
    samples: float | None = None,
    target: float | None = None,
    seconds: float | None = None,
    threads: int | None = None,
    progress: Callable[[Progress], object] | None = None,
    checkpoint: str | Path | None = None,
    piece: int | None = None,
) -> Result:
    """Go on with a run that was interrupted or loaded, to its last outer step or beyond it.

    Parameters
    ----------
    outer, samples : int, float, optional
        Go on to so many outer steps, or transitions a replicate, those that are made included. Rates that depend on K
        are made anew for the larger one, which ``result.notes()`` says; PD-ANPG-CV has none, and goes on as if it had
        been asked for as much at once.
    target, seconds : float, optional
        As in ``solve``; go on until then.
    threads, progress, checkpoint, piece
        As in ``solve``.

    Raises
    ------
    SettingError
        Fewer outer steps or samples than are made; another setting out of range.

    Examples
    --------
    >>> import tempfile, fastcmdp as fc
    >>> cmdp = fc.envs.river_swim()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/run.npz"
    ...     whole = fc.solve(cmdp, fc.PDANPG(outer=40, inner=5), checkpoint=path)
    ...     again = fc.resume(fc.load_run(path, cmdp))
    >>> bool((again.theta == whole.theta).all())
    True
    """
    if not isinstance(result, Result):
        raise SettingError(
            f"resume takes a Result, not {result!r}; load_run(path, cmdp) reads one from a file"
        )
    budget = Budget(samples, seconds, target)
    how = _how(threads=threads, progress=progress, checkpoint=checkpoint, piece=piece)
    outer = None if outer is None else whole("outer", outer, 1)
    stages = Stages(budget, further_outer(result, outer, budget))
    return _stages(result, stages, **how)


def _how(*, checkpoint: str | Path | None, **how: Any) -> dict[str, Any]:
    """What the loop is told, checked before anything is computed."""
    for name in ("threads", "piece"):
        how[name] = None if how[name] is None else whole(name, how[name], 1)
    if checkpoint is not None and (not Path(checkpoint).name or not Path(checkpoint).parent.is_dir()):
        raise SettingError(f"checkpoint = {str(checkpoint)!r}: a file in a folder that exists is expected")
    if checkpoint is not None and Path(checkpoint).is_dir():
        raise SettingError(f"checkpoint = {str(checkpoint)!r}: a folder; give the name of a file in it")
    return how | {"checkpoint": checkpoint}


def _stages(result: Result, stages: Stages, **how: Any) -> Result:
    """Finish the stage at hand and those that follow."""
    result.reached = ""
    if result.interrupted:
        _tell_cost(result)
    while True:
        _Loop(result, **how).run()
        further = stages.next(result)
        if further is None:
            break
        grow(result, further, stage_windows(result, further))
    if (result.run.state.failed >= 0).any():
        failed = np.flatnonzero(result.run.state.failed >= 0)
        steps = result.run.state.failed[failed]
        warnings.warn(
            f"numbers ceased to be finite in replicates {failed.tolist()} at outer steps {steps.tolist()}; they "
            f"stopped there. {result.run.fault(failed[0]) or 'Smaller learning rates help.'}",
            RuntimeWarning,
            stacklevel=4,
        )
    return result


def _tell_cost(result: Result) -> None:
    """Say beforehand what a run will be silent about for long."""
    settings, model = result.algorithm, result.cmdp
    step, pilot = settings.outer_samples(model), settings.fixed_samples(model)
    costs = {"one outer step": step}
    if pilot > settings.outer * step:  # else it is a small part of a run that tells how it goes on
        costs["the pilot"] = pilot
    for what, samples in costs.items():
        if samples * _TRANSITION > _LONG:
            warnings.warn(
                f"{what} of {settings.name} draws {samples:.3g} transitions a replicate, which takes about "
                f"{duration(samples * _TRANSITION)} on tables, and the run tells nothing until it is over; "
                f"{'fewer inner steps or a smaller gamma' if what == 'one outer step' else 'a smaller pilot'} makes "
                "it shorter",
                RuntimeWarning,
                stacklevel=5,
            )


class _Loop:
    """One call of ``resume``."""

    def __init__(
        self,
        result: Result,
        threads: int | None,
        progress: Callable[[Progress], object] | None,
        checkpoint: str | Path | None,
        piece: int | None,
    ) -> None:
        self.result = result
        try:
            self.crew = Crew(result.run, threads, piece)
        except MemoryError as error:
            raise SettingError(
                f"not enough memory for an outer step of {result.algorithm!r} ({error}); give fewer inner steps, or a "
                "smaller policy"
            ) from error
        self.progress, self.checkpoint = progress, checkpoint
        self.saved = time.monotonic()
        self.before = result.trace.seconds

    def run(self) -> None:
        try:
            with self.crew:
                follow(self.crew, self.result.trace, tell=self._tell, noted=self._noted)
        except KeyboardInterrupt:
            if self.crew.abandoned:
                raise
            if self.progress is None and self.checkpoint is None:
                warnings.warn("interrupted: the result holds what there is", RuntimeWarning, stacklevel=5)
        finally:
            if self.checkpoint is not None and not self.crew.abandoned:
                self._save(UnsavedWarning)

    def _tell(self) -> None:
        """After each round of pieces."""
        trace, state = self.result.trace, self.result.run.state
        trace.seconds = self.before + self.crew.seconds
        if self.progress is not None:
            outer = max(int(state.outer.min()), 0)
            total, samples = self.result.algorithm.outer, int(state.samples.sum())
            self.progress(Progress(outer, total, samples, trace.seconds, self.result))

    def _noted(self) -> None:
        """After each point of the record."""
        if self.checkpoint is not None and time.monotonic() - self.saved > _CHECKPOINT:
            self._save()

    def _save(self, category: type[RuntimeWarning] = RuntimeWarning) -> None:
        """Save, or say that it failed and go on: a run is worth more than its checkpoint."""
        assert self.checkpoint is not None
        try:
            self.result.save(self.checkpoint)
        except OSError as error:
            reason = error.strerror or error
            warnings.warn(
                f"{self.checkpoint} could not be written ({reason}); free some space or save the result elsewhere",
                category,
                stacklevel=6,
            )
        self.saved = time.monotonic()


def load_run(
    path: str | Path,
    cmdp: CMDP | Simulator,
    policy: Policy | None = None,
    optimum: Optimum | bool | None = None,
) -> Result:
    """Read a run that ``Result.save`` or a checkpoint wrote; ``resume`` goes on with it.

    Parameters
    ----------
    path : path
    cmdp, policy
        The model and policy class the run was started with; the file knows their fingerprints.
    optimum : Optimum, bool or None
        As in ``solve``.

    Raises
    ------
    ModelError
        Not a saved run, damaged, or of another model or policy class.
    """
    head, arrays = read_run(path)
    try:
        settings: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in head["settings"].items()
        }
        algorithm = algorithm_by_name(head["algorithm"])(**settings)
        replicates, points = len(arrays["state_outer"]), arrays["trace_outer"]
        seed, exact, draws = int(head["seed"]), bool(head["exact"]), str(head["draws"])
        if seed < 0 or draws not in ("fast", "exact"):
            raise ValueError(f"seed {seed}, draws {draws!r}")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ModelError(f"{path}: the header of the saved run is damaged ({error})") from error
    result = start(
        cmdp,
        algorithm,
        policy or default_policy(cmdp),
        seed,
        replicates,
        points,
        (exact and has_table(cmdp)) if optimum is None else optimum,
        draws,
    )
    restore(result, path, head, arrays)
    return result


__all__ = ["EXACT_CHOICES", "Progress", "load_run", "resume", "solve"]
