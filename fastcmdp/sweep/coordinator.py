"""The coordinator of a sweep: plan, hand out batches, write what comes back; again, and it goes on where it was."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

import fastcmdp
from fastcmdp.algorithms.base import is_integer, is_positive, require
from fastcmdp.errors import SettingError
from fastcmdp.sweep.cost import PER_RUN, Cost, kind_of
from fastcmdp.sweep.engines import Engine, WorkerDied, check_engine
from fastcmdp.sweep.engines import engine as choose_engine
from fastcmdp.sweep.progress import Progress
from fastcmdp.sweep.specification import Model, Sweep, differences, read
from fastcmdp.sweep.store import SCHEMA, Failure, Store
from fastcmdp.sweep.tasks import Configuration, Plan, file_digest, file_digests, plan
from fastcmdp.sweep.worker import Batch, Group, Outcome, Values, changed, execute, identity

BATCH = 60.0  # seconds of work aimed at; what comes out is between half and twice that
PROBE = 2.0  # of the first batch of an algorithm, whose speed is not known
LEAST = 1.0  # near the end batches get smaller, so that workers end together; not smaller than this
PROBED = 1e7  # transitions of a probe for an estimate
ATTEMPTS = 3  # of a batch whose worker dies
_TICK = 1.0


@dataclass
class Status:
    """How a sweep stands.

    Attributes
    ----------
    folder : str
    tasks, done, failed : int
        ``failed``: raised an error when last tried.
    omitted : int
        Targets left out: beyond the cap, or budgets of less than one outer step.
    new : int
        Results of this session.
    transitions, seconds : float
        Of this session.
    failures : list of Failure
    finished : bool
        Whether every task has a result.
    stopped : bool
        Whether the session ended by Ctrl-C.
    running : list of str
        Sessions under way.
    set_aside : list of str
        Damaged parts found now.
    by_algorithm : dict
        For each label: tasks, done, failed.
    """

    folder: str
    tasks: int
    done: int
    failed: int
    omitted: int
    new: int = 0
    transitions: float = 0.0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    stopped: bool = False
    running: list[str] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    by_algorithm: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether every task has a result."""
        return self.done == self.tasks

    @property
    def left(self) -> int:
        """Tasks that have neither a result nor failed."""
        return self.tasks - self.done - self.failed


@dataclass
class Estimate:
    """What a sweep would take.

    Attributes
    ----------
    configurations, tasks, omitted : int
    transitions : float
        Expected, of all tasks.
    largest : float
        Expected transitions of the longest run.
    capped : int
        Tasks whose schedule was cut to the cap.
    seconds : float
        On so many workers of this machine's speed.
    workers : int
    by_algorithm : dict
        For each label: tasks, transitions, seconds of one worker.
    """

    configurations: int
    tasks: int
    omitted: int
    transitions: float
    largest: float
    capped: int
    seconds: float
    workers: int
    by_algorithm: dict[str, dict[str, float]]


def estimate(sweep: Sweep, workers: int | None = None, probe: bool = True) -> Estimate:
    """Plan a sweep and tell what it would take.

    With ``probe`` each algorithm draws some ten million transitions first, to learn its speed here (and to compile its
    kernels, if need be).

    Examples
    --------
    >>> from fastcmdp.sweep import Models, Sweep
    >>> told = estimate(Sweep([Models(generator="garnet")], ["pd-anpg"], samples=[1e6, 1e7], replicates=4))
    >>> told.tasks, round(told.transitions / 1e6)
    (8, 44)
    """
    require(workers is None or is_integer(workers, 1), "workers", workers, "an integer of at least 1")
    made = plan(sweep)
    cost = Cost(made.configurations)
    if probe:
        probes: dict[str, Configuration] = {}
        for each in made.configurations:
            if each.algorithm not in probes or _fitness(each) > _fitness(probes[each.algorithm]):
                probes[each.algorithm] = each
        for each in probes.values():
            cost.learn(_observations([each], [1], _probe(each)))
    seconds = cost.seconds()
    by: dict[str, dict[str, float]] = {}
    for each, one in zip(made.configurations, seconds, strict=True):
        row = by.setdefault(each.label, {"tasks": 0, "transitions": 0.0, "seconds": 0.0})
        row["tasks"] += each.replicates
        row["transitions"] += each.samples * each.replicates
        row["seconds"] += float(one) * each.replicates
    n = workers or len(os.sched_getaffinity(0))
    total = sum(row["seconds"] for row in by.values())
    return Estimate(
        len(made.configurations), len(made), len(made.omitted), made.transitions,
        max((each.samples for each in made.configurations), default=0.0),
        sum(each.replicates for each in made.configurations if each.capped),
        max(total / n, float(seconds.max(initial=0.0))), n, by,
    )  # fmt: skip


def _fitness(made: Configuration) -> tuple[float, float]:
    """How fit a configuration is for a probe: it should not be short, and be cut to length in whole outer steps."""
    step = made.samples / int(made.settings["outer"])
    return min(1.0, PROBED / step), min(1.0, made.samples / PROBED)


def _probe(made: Configuration) -> Outcome:
    """Run a configuration for a share of its outer steps, and tell what the whole would take."""
    steps = int(made.settings["outer"])
    cut = max(int(steps * min(1.0, PROBED / made.samples)), 1)
    group = Group(made.model, made.fingerprint, made.algorithm, made.settings | {"outer": cut}, 1, (0,))
    batch = Batch(identity(), (group,))
    execute(batch)  # once for the model and its optimum
    outcome = execute(batch)
    drawn = [float(v.samples[0, -1]) if isinstance(v, Values) else math.nan for v in outcome.groups]
    outcome.kernels = [taken * made.samples / n for taken, n in zip(outcome.kernels, drawn, strict=True)]
    outcome.seconds = [taken + PER_RUN for taken in outcome.kernels]
    return outcome


def run(
    sweep: Sweep | str | Path,
    folder: str | Path | None = None,
    engine: Any = "threads",
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    threads: int = 1,
    extend: bool = False,
    batch_seconds: float = BATCH,
    progress: Callable[[Progress], object] | None = None,
) -> Status:
    """Run what a sweep still lacks.

    Parameters
    ----------
    sweep : Sweep, or path of a TOML file, or of the folder of a sweep
        The latter goes on with that one.
    folder : path
        Where results are; made if it is not there.
    engine : {"threads", "processes", "dask"}, Executor or distributed.Client
    workers, scheduler
        See `fastcmdp.sweep.engine`.
    threads : int
        Of each worker.
    extend : bool
        Let the folder have another specification, and add the tasks that are new in this one.
    batch_seconds : float
        Work aimed at in a batch. What is under way when the sweep is killed is lost.
    progress : callable, optional
        Called with a Progress about once a second.

    Returns
    -------
    Status
        Also after Ctrl-C, with ``stopped``.

    Raises
    ------
    SettingError
        The folder has another specification (the message says what differs), a model file has changed, the
        scheduler cannot be reached.
    Refused
        A worker has another version of fastcmdp, or builds another model.
    StoreError
        The folder cannot be written; what is stored is safe, and the same call goes on.

    Examples
    --------
    >>> import tempfile
    >>> from fastcmdp.sweep import Models, Sweep
    >>> spec = Sweep([Models(generator="garnet")], ["pd-anpg"], samples=[1e5], replicates=2)
    >>> with tempfile.TemporaryDirectory() as path:
    ...     first = run(spec, f"{path}/out")
    ...     again = run(spec, f"{path}/out")
    >>> first.new, first.finished, again.new
    (2, True, 0)
    """
    if not isinstance(sweep, Sweep | str | Path):
        raise SettingError(
            f"sweep = {sweep!r}: a Sweep is expected, or the path of a TOML file or of a sweep's folder"
        )
    store = Store(_folder_of(sweep, folder))
    require(is_positive(batch_seconds) and np.ndim(batch_seconds) == 0, "batch_seconds", batch_seconds,
            "a positive number")  # fmt: skip
    require(is_integer(threads, 1), "threads", threads, "an integer of at least 1")
    check_engine(engine, workers, scheduler)
    tell = progress or (lambda _: None)
    made = prepare(sweep, store, extend, tell)
    session = _Session(store, made, threads, batch_seconds, tell)
    if session.nothing_to_do():
        return session.status()
    return session.run(choose_engine(engine, workers, scheduler))


def _folder_of(sweep: Sweep | str | Path, folder: str | Path | None) -> Path:
    if folder is not None:
        return Path(folder)
    if not isinstance(sweep, Sweep) and Path(sweep).is_dir():
        return Path(sweep)
    raise SettingError("a folder for the results is missing")


def prepare(
    sweep: Sweep | str | Path, store: Store, extend: bool, tell: Callable[[Progress], object]
) -> Plan:
    """The plan of a sweep, in its folder: read if it is there, else made."""
    if isinstance(sweep, Sweep):
        wanted = sweep
    elif Path(sweep).is_dir():
        Store(sweep).check()
        wanted = Store(sweep).spec()
    else:
        wanted = read(sweep)
    if not store.exists:
        made = plan(wanted, _planning(tell))
        if store.create(wanted, made, _manifest(wanted, made)):
            return made
    store.check()
    manifest = store.manifest()
    _check_files(manifest)
    old = store.spec()
    differing = differences(old, wanted)
    if differing and not extend:
        shown = "\n".join(f"  {line}" for line in differing[:12])
        more = f"\n  and {len(differing) - 12} more" if len(differing) > 12 else ""
        raise SettingError(
            f"{store.path} holds a sweep of another specification:\n{shown}{more}\nChoose another folder, or give "
            "--extend (extend=True) to add the tasks that are new; what is stored stays"
        )
    same_program = manifest.get("identity") == identity()
    if not differing and same_program and (store.path / "plan.parquet").exists():
        return store.plan()
    made = plan(wanted, _planning(tell))
    store.write_plan(wanted, made)
    store.rewrite_manifest(_manifest(wanted, made), manifest)
    return made


def _planning(tell: Callable[[Progress], object]) -> Callable[[int, int], object]:
    last = [time.monotonic()]

    def told(done: int, models: int) -> None:
        if time.monotonic() - last[0] > 2 * _TICK:
            last[0] = time.monotonic()
            tell(Progress(0, 0, 0, 0, 0.0, 0.0, 0.0, None, f"planning: {done:,} of {models:,} models"))

    return told


def _manifest(sweep: Sweep, made: Plan) -> dict[str, Any]:
    models = list({each.model.label: each.model for each in made.configurations}.values())
    return {
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "folder": str(sweep.folder),
        "identity": identity(),
        "files": file_digests(models),
    } | machine()


def machine() -> dict[str, Any]:
    """Versions and facts of this machine."""
    cpu = ""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    versions = {
        "fastcmdp": fastcmdp.__version__, "python": platform.python_version(), "numpy": np.__version__,
        "scipy": scipy.__version__, "numba": numba.__version__, "pyarrow": pa.__version__,
    }  # fmt: skip
    return {
        "versions": versions,
        "machine": {
            "host": platform.node(),
            "system": platform.platform(),
            "processor": cpu or platform.processor(),
            "processors": os.cpu_count(),
        },
    }


def _check_files(manifest: dict[str, Any]) -> None:
    for path, was in manifest.get("files", {}).items():
        try:
            now = file_digest(path)
        except OSError as error:
            raise SettingError(
                f"{path}: the sweep's model cannot be read ({error.strerror}); put it back where it was when the "
                "sweep began"
            ) from error
        if now != was:
            raise SettingError(changed(Model(path, path)))


@dataclass
class _Handed:
    """A batch under way."""

    tasks: NDArray[np.int64]  # numbers of tasks in the plan, a configuration's together
    claim: Path
    attempt: int = 1


class _Session:
    """One call of `run`."""

    def __init__(
        self,
        store: Store,
        made: Plan,
        threads: int,
        batch_seconds: float,
        tell: Callable[[Progress], object],
    ) -> None:
        self.store, self.plan, self.threads = store, made, threads
        self.batch_seconds, self.tell = batch_seconds, tell
        self.number = {name: i for i, name in enumerate(made.name.tolist())}
        store.scan()
        self.began = time.monotonic()
        self.cost = Cost(made.configurations)
        self.new, self.transitions, self.failed = 0, 0.0, 0
        self.stopped = False
        self.seen = set(store.parts)
        self.note = "; ".join(
            f"part {name} was damaged: set aside, computed again" for name in store.set_aside
        )
        stored = store.done
        self.is_done = np.array([name in stored for name in made.name.tolist()], bool)
        self.waiting = np.flatnonzero(~self.is_done)
        self.again: list[tuple[NDArray[np.int64], int]] = []  # batches whose worker died
        self.under_way: dict[Any, _Handed] = {}

    def nothing_to_do(self) -> bool:
        """Whether every task has a result."""
        return self.waiting.size == 0

    def run(self, chosen: Engine) -> Status:
        """Hand out batches until every task has a result or has failed."""
        about = {"engine": chosen.name, "slots": chosen.slots, "began": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        try:
            self.store.begin(about | machine())
            self.cost.learn(entry for meta in self.store.metadata() for entry in meta.get("observed", ()))
            # The longest runs first, so that none of them is left for the end; tasks of a model stay together.
            order = np.argsort(-self.cost.seconds()[self.plan.of[self.waiting]], kind="stable")
            self.waiting = self.waiting[order]
            self._loop(chosen)
        except KeyboardInterrupt:
            self.stopped = True
        finally:
            chosen.close()
            with contextlib.suppress(OSError):
                self.store.end({"new": self.new, "failed": self.failed, "transitions": self.transitions})
                self.store.forget_failures()
        return self.status()

    def _loop(self, chosen: Engine) -> None:
        told = 0.0
        while True:
            for handed in self._hand_out(chosen):
                self.under_way[handed[0]] = handed[1]
            if not self.under_way and self.waiting.size == 0 and not self.again:
                return
            if not self.under_way:
                # All that is left is under way elsewhere: see from time to time whether it is done, or given up.
                time.sleep(_TICK)
                self._see_others()
            else:
                for future in chosen.as_completed(list(self.under_way), _TICK):
                    self._take_in(chosen, future)
            if time.monotonic() - told >= _TICK:
                told = time.monotonic()
                self.store.beat()
                self._tell(chosen)

    def _see_others(self) -> None:
        """Notice what other sessions have written."""
        self.store.scan()
        for part in self.store.parts.keys() - self.seen:
            self.seen.add(part)
            for name in self.store.parts[part]:
                if (i := self.number.get(name)) is not None:
                    self.is_done[i] = True
        self.waiting = self.waiting[~self.is_done[self.waiting]]

    def _hand_out(self, chosen: Engine) -> Iterator[tuple[Any, _Handed]]:
        free = chosen.slots - len(self.under_way)
        while free > 0 and (self.again or self.waiting.size):
            attempt = 1
            with self.store.lock():
                if self.again:
                    tasks, attempt = self.again.pop()
                else:
                    self._see_others()
                    claimed = self.store.claimed()
                    tasks = self._next(chosen.slots, claimed)
                    if tasks.size == 0:
                        return
                claim = self.store.claim(self.plan.name[tasks].tolist())
            try:
                future = chosen.submit(self._batch(tasks))
            except WorkerDied:
                self.again.append((tasks, attempt))
                self.store.release(claim)
                continue
            free -= 1
            yield future, _Handed(tasks, claim, attempt)

    def _next(self, slots: int, claimed: set[bytes]) -> NDArray[np.int64]:
        """Take the next batch from what waits and is not under way elsewhere."""
        if claimed:
            elsewhere = np.array([name in claimed for name in self.plan.name[self.waiting].tolist()], bool)
        else:
            elsewhere = np.zeros(self.waiting.size, bool)
        free: NDArray[np.int64] = self.waiting[~elsewhere]
        if free.size == 0:
            return free
        per_run = self.cost.seconds()[self.plan.of[free]]
        total = np.cumsum(per_run)
        first = self._unknown(free)
        if first is not None:  # one run, to learn from
            chosen: NDArray[np.int64] = free[first : first + 1]
        else:
            # Shares of what is left, so that workers end at the same time, of up to the length aimed at.
            aim = min(self.batch_seconds, max(total[-1] / (2 * slots), LEAST))
            if not self.cost.known()[self.plan.of[free[0]]]:
                aim = min(aim, PROBE)
            chosen = free[: max(int(np.searchsorted(total, aim, "right")), 1)]
            same = np.flatnonzero(self.plan.of[free] == self.plan.of[chosen[-1]])
            if same[-1] < chosen.size * 1.25:  # rather the whole of a configuration
                chosen = free[: max(chosen.size, int(same[-1]) + 1)]
        taken = np.zeros(len(self.plan), bool)
        taken[chosen] = True
        self.waiting = self.waiting[~taken[self.waiting]]
        return chosen

    def _unknown(self, free: NDArray[np.int64]) -> int | None:
        """The cheapest task of an algorithm of which nothing is known and nothing is under way."""
        of, known = self.plan.of[free], self.cost.known()
        if known[of].all():
            return None
        asked = {
            self.plan.configurations[self.plan.of[i]].algorithm
            for handed in self.under_way.values()
            for i in handed.tasks[:1]
        }
        present, at = np.unique(of, return_index=True)
        unknown = [
            (self.cost.samples[c], int(i))
            for c, i in zip(present, at, strict=True)
            if self.plan.configurations[c].algorithm not in asked and not known[c]
        ]
        return min(unknown)[1] if unknown else None

    def _batch(self, tasks: NDArray[np.int64]) -> Batch:
        groups = []
        for part in self._groups(tasks):
            made = self.plan.configurations[self.plan.of[part[0]]]
            seeds = tuple(self.plan.seed[part].tolist())
            groups.append(
                Group(made.model, made.fingerprint, made.algorithm, made.settings, made.points, seeds)
            )
        return Batch(identity(), tuple(groups), self.threads)

    def _groups(self, tasks: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Tasks cut where the configuration changes."""
        cuts = np.flatnonzero(np.diff(self.plan.of[tasks])) + 1
        return np.split(tasks, cuts)

    def _take_in(self, chosen: Engine, future: Any) -> None:
        handed = self.under_way.pop(future)
        try:
            outcome = chosen.outcome(future)
        except WorkerDied:
            self._died(handed)
            return
        groups = self._groups(handed.tasks)
        made = [self.plan.configurations[self.plan.of[part[0]]] for part in groups]
        tables, failures = [], []
        for part, each, values in zip(groups, made, outcome.groups, strict=True):
            if isinstance(values, Values):
                tables.append(rows(each, self.plan, part, values))
                self.transitions += float(values.samples[:, -1].sum())
            else:
                failures += [self._failure(int(i), values, outcome.host) for i in part]
        if tables:
            observed = _observations(made, [part.size for part in groups], outcome)
            meta = {
                "session": self.store.session, "host": outcome.host, "process": outcome.process,
                "seconds": sum(outcome.seconds), "kernels": sum(outcome.kernels), "preparation": outcome.other,
                "observed": observed,
            }  # fmt: skip
            self.new += len(self.store.write_part(pa.concat_tables(tables), meta))
            self.cost.learn(observed)
        if failures:
            self.store.write_failures(failures)
            self.failed += len(failures)
        self.store.release(handed.claim)
        for part, values in zip(groups, outcome.groups, strict=True):
            if isinstance(values, Values):
                self.is_done[part] = True

    def _died(self, handed: _Handed) -> None:
        """Try the batch again; if its worker dies each time, in halves, down to the one task that does it."""
        self.store.release(handed.claim)
        if handed.attempt < ATTEMPTS:
            self.again.append((handed.tasks, handed.attempt + 1))
            self.note = f"a worker died: its {handed.tasks.size} tasks are computed again"
        elif handed.tasks.size > 1:
            half = handed.tasks.size // 2
            self.again += [(handed.tasks[:half], 1), (handed.tasks[half:], 1)]
        else:
            i = int(handed.tasks[0])
            text = f"the worker's process died {ATTEMPTS} times over this task (out of memory?)"
            self.store.write_failures([self._failure(i, text, platform.node())])
            self.failed += 1

    def _failure(self, i: int, text: str, host: str) -> Failure:
        made = self.plan.configurations[self.plan.of[i]]
        inputs = {
            "model": made.model.label, "spec": made.model.spec, "algorithm": made.label, "settings": made.settings,
            "epsilon": made.epsilon, "budget": made.budget, "replicate": int(self.plan.replicate[i]),
            "seed": int(self.plan.seed[i]),
        }  # fmt: skip
        when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        return Failure(self.plan.name[i].decode(), inputs, text, host, when)

    def _tell(self, chosen: Engine) -> None:
        seconds = time.monotonic() - self.began
        running = sum(handed.tasks.size for handed in self.under_way.values())
        left = None
        if self.new:
            per_run = self.cost.seconds()
            ahead = float(per_run[self.plan.of[self.waiting]].sum())
            ahead += sum(float(per_run[self.plan.of[h.tasks]].sum()) / 2 for h in self.under_way.values())
            left = ahead / chosen.slots
        note, self.note = self.note, ""
        self.tell(
            Progress(
                len(self.plan),
                int(self.is_done.sum()),
                self.failed,
                running,
                self.transitions,
                seconds,
                self.transitions / max(seconds, 1e-9),
                left,
                note,
            )
        )

    def status(self) -> Status:
        """How the sweep stands now."""
        found = status_of(self.store, self.plan)
        found.new, found.transitions = self.new, self.transitions
        found.seconds, found.stopped = time.monotonic() - self.began, self.stopped
        return found


def status_of(store: Store, made: Plan) -> Status:
    """How a sweep stands, from its folder."""
    store.scan()
    done, failures = store.done, store.failures()
    own = made.name.tolist()
    is_done = np.array([name in done for name in own], bool)
    is_failed = np.array([name in failures for name in own], bool)
    by: dict[str, dict[str, int]] = {}
    counts = np.zeros((len(made.configurations), 2), np.int64)
    for column, flags in enumerate((is_done, is_failed)):
        counts[:, column] = np.bincount(made.of[flags], minlength=len(counts))
    for each, (n_done, n_failed) in zip(made.configurations, counts.tolist(), strict=True):
        row = by.setdefault(each.label, {"tasks": 0, "done": 0, "failed": 0})
        row["tasks"] += each.replicates
        row["done"] += n_done
        row["failed"] += n_failed
    names = set(own)
    return Status(
        str(store.path), len(made), int(is_done.sum()), int(is_failed.sum()), len(made.omitted),
        failures=[failure for name, failure in failures.items() if name in names],
        running=[name for name in store.running() if name != store.session],
        set_aside=list(store.set_aside), by_algorithm=by,
    )  # fmt: skip


def status(folder: str | Path) -> Status:
    """How the sweep in a folder stands.

    Raises
    ------
    SettingError
        There is no sweep in it.
    """
    store = Store(folder)
    store.check()
    return status_of(store, store.plan())


def _observations(made: list[Configuration], runs: list[int], outcome: Outcome) -> list[dict[str, Any]]:
    """What a batch teaches about the time tasks take."""
    entries = []
    for each, n, values, kernels, seconds in zip(
        made, runs, outcome.groups, outcome.kernels, outcome.seconds, strict=True
    ):
        if isinstance(values, Values):
            entries.append(
                {
                    "kind": kind_of(each),
                    "kernels": kernels,
                    "transitions": each.samples * n,
                    "other": max(seconds - kernels, 0.0),
                    "runs": n,
                }
            )
    return entries


def rows(made: Configuration, of: Plan, tasks: NDArray[np.int64], values: Values) -> pa.Table:
    """The rows of one configuration's tasks, a run's points together."""
    n_runs, n = values.samples.shape
    m = values.limits.size
    size = n_runs * n
    sign, limits = values.sign, values.limits

    def slack(of: NDArray[np.float64]) -> NDArray[np.float64]:
        return sign * (limits - of[:, :, 1:])

    def text(value: str) -> Any:
        return pa.DictionaryArray.from_arrays(np.zeros(size, np.int32), pa.array([value])).cast(pa.string())

    def constant(value: Any, kind: Any) -> Any:
        return pa.nulls(size, kind) if value is None else pa.array(np.full(size, value), kind)

    def lists(array: NDArray[np.float64]) -> Any:
        offsets = np.arange(size + 1, dtype=np.int32) * m
        return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(array).reshape(-1)))

    def floats(array: NDArray[np.float64]) -> Any:
        return pa.array(np.ascontiguousarray(array).reshape(-1))

    gap = values.best - values.mixture[:, :, 0]
    kernel_gap = gap / values.reward_scale
    kernel_slack = slack(values.mixture) / values.constraint_scale
    missed = -kernel_slack.min(axis=2, initial=0.0)
    lost = np.isnan(values.mixture).any(axis=2)
    violation = np.where(lost, np.nan, 0.0 - slack(values.mixture).min(axis=2, initial=0.0))  # no -0.0
    last_lost = np.isnan(values.last).any(axis=2)
    last_violation = np.where(last_lost, np.nan, 0.0 - slack(values.last).min(axis=2, initial=0.0))
    columns = {
        "task": np.repeat(of.name[tasks].astype("U32"), n),
        "configuration": text(made.key),
        "algorithm": text(made.label),
        "model": text(made.model.label),
        "gamma": constant(made.gamma, pa.float64()),
        "epsilon": constant(made.epsilon, pa.float64()),
        "budget": constant(made.budget, pa.float64()),
        "capped": constant(made.capped, pa.bool_()),
        "replicate": np.repeat(of.replicate[tasks], n),
        "seed": np.repeat(of.seed[tasks], n),
        "point": np.tile(np.arange(n, dtype=np.int32), n_runs),
        "outer": np.tile(values.outer, n_runs),
        "samples": values.samples.reshape(-1),
        "reward": floats(values.mixture[:, :, 0]),
        "gap": floats(gap),
        "violation": floats(violation),
        "error": floats(np.where(lost, np.nan, np.maximum(kernel_gap, missed))),
        "kernel_gap": floats(kernel_gap),
        "kernel_slack": lists(kernel_slack),
        "constraints": lists(values.mixture[:, :, 1:]),
        "duals": lists(values.duals),
        "last_reward": floats(values.last[:, :, 0]),
        "last_gap": floats(values.best - values.last[:, :, 0]),
        "last_violation": floats(last_violation),
        "last_constraints": lists(values.last[:, :, 1:]),
        "diverged": np.repeat(values.diverged, n),
        "source": text("exact" if values.exact else "estimate"),
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


__all__ = ["Estimate", "Status", "estimate", "rows", "run", "status"]
