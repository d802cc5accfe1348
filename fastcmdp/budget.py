"""Planning a run for a budget or an accuracy: how many outer steps now, and whether to go on.

A run that is to reach a target, or to take so many seconds, is made in stages of twice the outer steps each: after a
stage its accuracy is looked at, and the speed that was measured says how many steps the time that is left affords. What
a method's rates take from K they take from the K of their stage; PD-ANPG-CV takes nothing, so that its stages are one
run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from fastcmdp.algorithms.base import Algorithm
from fastcmdp.check import MOST, is_positive, require
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.runs import Result
from fastcmdp.runs.accuracy import accuracy
from fastcmdp.runs.record import even_points
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.text import duration, number

MOST_SAMPLES = 1e9  # transitions of a replicate that a target may take, where nothing else bounds them
WINDOWS = 200  # of the record by default, if their evaluations take up to a fifth of the run
LEAST_WINDOWS = 8
STAGE = 50  # windows that a stage adds to the record, at most
_FIRST = 1e5, 50  # transitions and outer steps of a first stage, at least
_SPEED = 2e7  # transitions a second and thread; roughly, as the following
_EVALUATION = 4e-4, 2e-7  # seconds of one exact evaluation, and of it for each branch of the model
_SHORT = 0.2  # seconds of evaluations that nobody minds
_MARGIN = 0.9  # of the time that is left is planned for
_WORTH = 1.05  # as many outer steps as there are, at least, for another stage


@dataclass(frozen=True)
class Budget:
    """What a run may take and what it is to reach; None: not bounded by that.

    Attributes
    ----------
    samples : float or None
        Transitions of a replicate.
    seconds : float or None
        Of the wall clock, from here on.
    target : float or None
        Relative error of the last quarter; see `fastcmdp.runs.accuracy`.
    """

    samples: float | None = None
    seconds: float | None = None
    target: float | None = None

    def __post_init__(self) -> None:
        for name in ("samples", "seconds", "target"):
            value = getattr(self, name)
            require(value is None or is_positive(value), name, value, "a positive number")

    @property
    def staged(self) -> bool:
        """Whether the run is made in stages."""
        return self.seconds is not None or self.target is not None

    def likely(self, speed: float) -> float:
        """Transitions of a replicate that a run in stages may come to, at so many a second."""
        return MOST_SAMPLES if self.seconds is None else min(MOST_SAMPLES, self.seconds * speed)

    def most(self, settings: Algorithm, model: CMDP | Simulator) -> int:
        """Outer steps of these settings that the samples allow; time alone allows any number.

        Raises
        ------
        SettingError
            Outer steps draw no samples, so that samples, or a target without a time, bound nothing.
        """
        samples = self.samples
        if samples is None and self.seconds is not None and settings.outer_samples(model) == 0.0:
            return MOST
        if samples is None:
            samples = float("inf") if self.target is None else MOST_SAMPLES
        steps = (samples - settings.fixed_samples(model)) / settings.paid_samples(model)
        return int(min(max(round(steps) if steps < MOST else MOST, 1), MOST))

    def first(self, settings: Algorithm, model: CMDP | Simulator, most: int) -> int:
        """Outer steps of the first stage: ``most`` halved while enough is left."""
        if not self.staged:
            return most
        samples, steps = _FIRST
        each = settings.outer_samples(model)
        least = max(steps, samples / each) if each > 0.0 else steps
        while most // 2 >= least:
            most = -(-most // 2)
        return most


class Stages:
    """The stages of one call of ``resume``."""

    def __init__(self, budget: Budget, most: int) -> None:
        self.budget, self.most = budget, most
        self.began = self.staged = time.monotonic()
        self.outer = self.looks = 0

    def next(self, result: Result) -> int | None:
        """Outer steps to go on to, after a stage is done; None: it is over. Says in the result what was reached."""
        outer = result.algorithm.outer
        now = time.monotonic()
        per_step = (now - self.staged) / max(outer - self.outer, 1)
        self.staged, self.outer = now, outer
        if not result.finished:
            return None
        budget = self.budget
        if budget.target is not None and self._is_reached(result, budget.target):
            result.reached = f"The target of {_percent(budget.target)} is reached: error {result.accuracy}."
            return None
        further = min(self.most, 2 * outer) if budget.staged else self.most
        if budget.seconds is not None:
            left = budget.seconds - (now - self.began)
            further = min(further, outer + int(_MARGIN * left / max(per_step, 1e-9)))
        if further < min(_WORTH * outer, self.most) or further <= outer:
            if budget.target is not None:
                result.reached = (
                    f"The target of {_percent(budget.target)} was not reached within {self._bounds(result)}: error "
                    f"{result.accuracy}. More samples= or seconds= may reach it."
                )
            return None
        return further

    def _is_reached(self, result: Result, target: float) -> bool:
        """Whether the error is below the target.

        The 5 % for a mistake are shared by all looks, 5 % / (j (j + 1)) for the j-th, since the first success ends it.
        """
        self.looks += 1
        share = 0.05 / (self.looks * (self.looks + 1))
        return accuracy(result, 1.0 - share).high <= target

    def _bounds(self, result: Result) -> str:
        seconds = self.budget.seconds
        spent = f"{result.samples.mean():.3g} transitions a replicate"
        return spent if seconds is None else f"{spent} and {duration(seconds)}"


def _percent(value: float) -> str:
    return f"{number(100.0 * value)} %"


def further_outer(result: Result, outer: int | None, budget: Budget) -> int:
    """Outer steps that ``resume`` may go on to.

    Raises
    ------
    SettingError
        Fewer than the run has, or outer steps and samples at once.
    """
    settings: Algorithm = result.algorithm
    done = settings.outer
    if outer is not None and budget.samples is not None:
        raise SettingError(f"outer = {outer} and samples = {budget.samples}: give one of them, each sets K")
    if outer is None and budget.samples is None and not budget.staged:
        return done
    most = budget.most(settings, result.run.world.model) if outer is None else outer
    if most < done and outer is not None:
        raise SettingError(f"outer = {outer}: the run has {done} outer steps; as many or more are expected")
    if most < done and budget.samples is not None:  # in outer steps, since plans round to whole ones
        there = settings.expected_samples(result.run.world.model)
        raise SettingError(
            f"samples = {budget.samples:g}: the run is to have {there:.4g} transitions a replicate; as many or more "
            "are expected"
        )
    return max(most, done)


def default_windows(cmdp: CMDP, algorithm: Algorithm) -> int:
    """How many windows a trace has by default.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> large = fc.envs.garnet(n_states=2000, seed=1)
    >>> default_windows(large, fc.PDANPG(outer=100)), default_windows(large, fc.PDANPG(outer=1_000_000))
    (19, 200)
    """
    affordable = _evaluations(cmdp, algorithm)
    counts = range(WINDOWS, LEAST_WINDOWS, -1)
    return next((n for n in counts if len(even_points(algorithm.outer, n)) <= affordable), LEAST_WINDOWS)


def stage_windows(result: Result, further: int) -> int:
    """How many windows a stage that goes on to ``further`` outer steps adds to the record."""
    if result.run.world.optimum is None:
        return STAGE
    stage = replace(result.algorithm, outer=further - result.algorithm.outer)
    return max(min(STAGE, int(_evaluations(result.run.world.table, stage))), LEAST_WINDOWS)


def _evaluations(cmdp: CMDP, algorithm: Algorithm) -> float:
    """Exact evaluations of a policy that a run affords."""
    return affordable_seconds(cmdp, algorithm) / (_EVALUATION[0] + _EVALUATION[1] * cmdp.n_branches)


def affordable_seconds(cmdp: CMDP, algorithm: Algorithm) -> float:
    """Seconds that exact answers may take for each replicate: of replicates at work on two threads, with evaluations
    between, a fifth of all."""
    return max(algorithm.expected_samples(cmdp) / _SPEED / 8, _SHORT)
