"""What a worker does: a batch of tasks, one thread, from models it builds itself.

A batch names models by specification or file; the worker builds each once and compares its fingerprint with that of
the plan, so that a file that has changed, or a generator that draws otherwise on that machine, is found out.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastcmdp
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.algorithms import algorithm as algorithm_by_name
from fastcmdp.algorithms.base import Algorithm
from fastcmdp.errors import SettingError
from fastcmdp.exact import evaluate_many
from fastcmdp.kernels.sources import digest
from fastcmdp.policy_names import policy_named
from fastcmdp.runs import Record, new_record
from fastcmdp.runs.loop import Crew, Stopped, follow
from fastcmdp.streams import streams
from fastcmdp.sweep.models import NamedModel
from fastcmdp.sweep.tasks import DRAWS, ROWS, Configuration, build
from fastcmdp.units import Units
from fastcmdp.worlds import World, world_of

Float = NDArray[np.float64]

_MODELS = 32  # kept by a worker


class Refused(SettingError):
    """This worker cannot take part: its results would not be those of the others."""


@dataclass(frozen=True)
class Group:
    """Tasks of one configuration: they differ in their seeds only."""

    model: NamedModel
    fingerprint: str
    algorithm: str
    settings: dict[str, Any]
    points: int
    seeds: tuple[int, ...]
    policy: str = "tabular"
    policy_fingerprint: str = "tabular-softmax"


def group_of(
    configuration: Configuration, seeds: tuple[int, ...], points: int | None = None, **settings: Any
) -> Group:
    """Runs of a configuration from these seeds; with other trace points or settings for a probe."""
    points = configuration.points if points is None else points
    return Group(
        configuration.model, configuration.fingerprint, configuration.algorithm, configuration.settings | settings,
        points, seeds, configuration.policy, configuration.policy_fingerprint,
    )  # fmt: skip


@dataclass(frozen=True)
class TaskBatch:
    """What is sent to a worker: a few hundred bytes a group."""

    identity: dict[str, Any]
    groups: tuple[Group, ...]
    threads: int = 1


@dataclass
class Runs:
    """What a group leaves: the record of its runs, with units for a model, and what is known besides.

    Attributes
    ----------
    record : Record
        Its ``cmdp`` is a bare Units, so that no model travels.
    diverged : int64[R]
        Outer step at which numbers ceased to be finite, or -1.
    best : float
        J_r*, or NaN.
    """

    record: Record
    diverged: NDArray[np.int64]
    best: float

    @property
    def mixture(self) -> Float:
        """J of the output so far at each point, user's units, float64[R, n, 1+m]; exact, or the run's own estimates."""
        units = self.record.cmdp
        if self.record.exact:
            return self.record.means()[0]
        values: Float = units.to_user_values(self.record.estimates()[:, :, : 1 + units.n_constraints])
        return values

    @property
    def duals(self) -> Float:
        """Mean multipliers so far, user's units, float64[R, n, m]."""
        units = self.record.cmdp
        means = self.record.estimates()[:, :, 1 + units.n_constraints :]
        duals: Float = units.to_user_duals(means)
        return duals


@dataclass
class Outcome:
    """What a worker gives back: for each group its runs, or the text of a traceback, and what it took."""

    groups: list[Runs | str]
    kernels: list[float]  # seconds within kernels, a group each
    seconds: list[float]  # seconds altogether, models and optima included
    other: float = 0.0  # seconds of preparation that belong to no group: compiling
    host: str = field(default_factory=platform.node)
    process: int = field(default_factory=os.getpid)


def identity() -> dict[str, Any]:
    """What must agree between the coordinator and its workers: versions, and the sources of all kernels."""
    return {
        "fastcmdp": fastcmdp.__version__,
        "kernels": digest(""),
        "rows": ROWS,
        "algorithms": {name: method.version for name, method in ALGORITHMS.items()},
    }


def execute(batch: TaskBatch, stop: threading.Event | None = None) -> Outcome:
    """Run a batch.

    Raises
    ------
    Refused
        Another version of fastcmdp here, or a model that differs from the plan's.
    Stopped
        ``stop`` was set.
    """
    own = identity()
    if own != batch.identity:
        differing = [key for key in own if own[key] != batch.identity.get(key)]
        said = ", ".join(
            f"{key} {own[key]} here, {batch.identity.get(key)} at the coordinator" for key in differing
        )
        raise Refused(
            f"the worker on {platform.node()} has another fastcmdp ({said}): results would mix. Install the "
            "same version everywhere"
        )
    outcome = Outcome([], [], [])
    with _one_thread():
        for group in batch.groups:
            began = time.perf_counter()
            clock = _Clock()
            try:
                runs: Runs | str = _run_group(group, batch.threads, stop, clock)
            except (Refused, Stopped):
                raise
            except Exception:
                runs = traceback.format_exc()
            outcome.groups.append(runs)
            outcome.kernels.append(clock.kernels)
            outcome.seconds.append(time.perf_counter() - began - clock.compiling)
            outcome.other += clock.compiling
    return outcome


@dataclass
class _Clock:
    """Seconds of one group: within kernels, and of having them compiled."""

    kernels: float = 0.0
    compiling: float = 0.0


@contextmanager
def _one_thread() -> Iterator[None]:
    """Linear algebra on one thread: workers fill the machine already, and sums keep one order."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # no pool that could be limited is known then
        yield
        return
    with _LIMITING:
        limits = threadpool_limits(1) if _LIMITED[0] == 0 else None
        _LIMITED[0] += 1
        if limits is not None:
            _LIMITED[1] = limits
    try:
        yield
    finally:
        with _LIMITING:
            _LIMITED[0] -= 1
            if _LIMITED[0] == 0:
                _LIMITED[1].restore_original_limits()


_LIMITING = threading.Lock()
_LIMITED: list[Any] = [0, None]  # batches under way in this process, and what lifts the limit after the last


_COMPILED: set[tuple[Algorithm, type, type]] = set()
_COMPILING = threading.Lock()


def _brief(settings: Algorithm) -> Algorithm:
    """A run that is over at once with the kernels of these settings: words among them pick kernels."""
    names = [name for name in settings.setting_names() if isinstance(getattr(settings, name), str)]
    words: dict[str, Any] = {name: getattr(settings, name) for name in names}
    return replace(settings.shortest(), **words)


def _compile(world: World, settings: Algorithm) -> float:
    """Have the kernels of an algorithm ready, so that no run's time includes it; the seconds that took."""
    began = time.perf_counter()
    brief = _brief(settings)
    kind = brief, type(world.policy.data), type(world.tables)
    with _COMPILING:
        if kind not in _COMPILED:
            run_all(world, brief, (0,), 1)
            _COMPILED.add(kind)
    return time.perf_counter() - began


class _Cache:
    """Problems by the fingerprint of their model; two threads never prepare the same one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worlds: OrderedDict[str, tuple[threading.Lock, list[World]]] = OrderedDict()

    def get(self, group: Group, simulation: str) -> World:
        """The problem of a group; a simulator is prepared for what ``Algorithm.rolls`` says."""
        key = f"{group.fingerprint} {group.model.label} {group.policy_fingerprint} {simulation}"
        with self.lock:
            entry = self.worlds.setdefault(key, (threading.Lock(), []))
            self.worlds.move_to_end(key)
            while len(self.worlds) > _MODELS:
                self.worlds.popitem(last=False)
        with entry[0]:
            if not entry[1]:
                entry[1].append(_world(group, simulation))
            return entry[1][0]


_CACHE = _Cache()


def _world(group: Group, simulation: str) -> World:
    model = build(group.model)
    if model.fingerprint() != group.fingerprint:
        raise Refused(changed(group.model, f"on {platform.node()}"))
    named = policy_named(group.policy)
    policy = named.build(model)
    if policy.fingerprint() != group.policy_fingerprint:
        raise Refused(
            f"{named.features or named}: the policy has changed since the sweep began: results would mix"
        )
    return world_of(model, policy, None, DRAWS, simulation=simulation)


def changed(model: NamedModel, where: str = "") -> str:
    """What to say of a model that is not the one that was planned."""
    if model.is_file:
        return (
            f"{model.spec} has changed since the sweep began{' or differs ' + where if where else ''}: its results "
            "would mix. Put the old file back, or begin another sweep in another folder"
        )
    return (
        f"{model.label} builds another model {where} than where the sweep was planned: results would mix. Use the same "
        "versions of numpy and scipy everywhere"
    )


def _run_group(group: Group, threads: int, stop: threading.Event | None, clock: _Clock) -> Runs:
    arguments = {k: tuple(v) if isinstance(v, list) else v for k, v in group.settings.items()}
    kind: Any = algorithm_by_name(group.algorithm)
    settings: Algorithm = kind(**arguments)
    world = _CACHE.get(group, settings.rolls)
    clock.compiling += _compile(world, settings)
    return run_all(world, settings, group.seeds, group.points, threads, stop, clock)


def run_all(
    world: World,
    settings: Algorithm,
    seeds: tuple[int, ...],
    points: int,
    threads: int = 1,
    stop: threading.Event | None = None,
    clock: _Clock | None = None,
) -> Runs:
    """Run one replicate from each seed, as ``solve(..., seed=seed, replicates=1)`` would, and evaluate it.

    ``clock.kernels`` grows by the seconds spent in kernels.
    """
    cmdp, n_runs = world.model, len(seeds)
    run = settings.run(world, 0, n_runs)
    for r, seed in enumerate(seeds):
        run.state.rng[r] = streams(seed, 1)[0]  # a run draws nothing before its first step
    exact = world.optimum is not None
    outer = trace_points(settings.outer, points)
    record = new_record(settings, cmdp, outer, n_runs, exact=exact, occupancies=False)
    policies = np.full((n_runs, len(outer), cmdp.n_choices if exact else 0), np.nan)

    def noted() -> None:
        if exact:
            going = run.state.failed < 0
            policies[going, record.done - 1] = run.policies()[going]

    with Crew(run, threads) as crew:
        try:
            follow(crew, record, stop, noted=noted)
        finally:
            if clock is not None:
                clock.kernels += crew.seconds
    if exact:  # all at once, which is faster than one by one
        alive = np.isfinite(policies).all(axis=2)
        record.values[alive] = cmdp.to_user_values(evaluate_many(world.table, policies[alive]))
    record.cmdp = bare_units(cmdp)
    best = world.optimum.reward if world.optimum is not None else np.nan
    return Runs(record, np.array(run.state.failed), float(best))


def bare_units(units: Units) -> Units:
    """The units of a model without the model."""
    bare = Units()
    for name in Units.__annotations__:
        setattr(bare, name, getattr(units, name))
    return bare


def trace_points(n_outer: int, points: int) -> NDArray[np.int64]:
    """Outer steps at which a run is looked at, 0 and so many more up to K: half of them even, half geometric.

    So that the time at which an error is reached is known to a share of itself, early or late.

    Examples
    --------
    >>> trace_points(1000, 6).tolist()
    [0, 10, 32, 100, 333, 667, 1000]
    """
    even = np.linspace(0, n_outer, max(points // 2 + 1, 2))
    n_early = points - (len(even) - 1)
    early = n_outer / 10.0 ** np.linspace(2, 1, n_early) if n_early > 1 else np.full(n_early, n_outer / 10.0)
    return np.unique(np.round(np.concatenate([even, early])).astype(np.int64))
