"""The coordinator of a sweep: hand out batches, write what comes back, until every task has a result or has failed."""

from __future__ import annotations

import contextlib
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fastcmdp.check import is_positive, require, whole
from fastcmdp.errors import SettingError
from fastcmdp.sweep import claims
from fastcmdp.sweep.batches import BATCH, Batches, Tasks
from fastcmdp.sweep.compaction import MANY, compact_store
from fastcmdp.sweep.cost import Cost, observations
from fastcmdp.sweep.engines import Engine, WorkerDied, check_engine, refuse_unguarded
from fastcmdp.sweep.engines import engine as choose_engine
from fastcmdp.sweep.prepare import machine, prepare
from fastcmdp.sweep.progress import Status, SweepProgress, status_of
from fastcmdp.sweep.rows import rows
from fastcmdp.sweep.specification import Sweep
from fastcmdp.sweep.store import Failure, Store
from fastcmdp.sweep.tasks import Configuration, Plan
from fastcmdp.sweep.worker import Outcome, Runs, TaskBatch, group_of, identity

ATTEMPTS = 3  # of a batch whose worker dies
_TICK = 1.0


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
    progress: Callable[[SweepProgress], object] | None = None,
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
        Called with a SweepProgress about once a second.

    Returns
    -------
    Status
        Also after Ctrl-C, with ``stopped``.

    Raises
    ------
    SettingError
        The folder has another specification (the message says what differs), a model file has changed, the
        scheduler cannot be reached; a script that starts processes has no main guard.
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
    refuse_unguarded()
    if not isinstance(sweep, Sweep | str | Path):
        raise SettingError(
            f"sweep = {sweep!r}: a Sweep is expected, or the path of a TOML file or of a sweep's folder"
        )
    store = Store(_folder_of(sweep, folder))
    require(is_positive(batch_seconds) and np.ndim(batch_seconds) == 0, "batch_seconds", batch_seconds,
            "a positive number")  # fmt: skip
    threads, workers = whole("threads", threads, 1), None if workers is None else whole("workers", workers, 1)
    check_engine(engine, workers, scheduler)
    tell = progress or (lambda _: None)
    store.claims.say = _sayer(progress)
    plan = prepare(sweep, store, extend, tell)
    session = _Session(store, plan, threads, batch_seconds, tell)
    if session.nothing_to_do():
        return session.status()
    return session.run(choose_engine(engine, workers, scheduler))


def _folder_of(sweep: Sweep | str | Path, folder: str | Path | None) -> Path:
    if folder is not None:
        return Path(folder)
    if not isinstance(sweep, Sweep) and Path(sweep).is_dir():
        return Path(sweep)
    raise SettingError("a folder for the results is missing")


def _sayer(progress: Callable[[SweepProgress], object] | None) -> Callable[[str], object]:
    """What says at once what holds a session up: a note, or a warning to those who asked for no progress."""
    if progress is None:
        return lambda text: warnings.warn(text, RuntimeWarning, stacklevel=2)
    return lambda text: progress(SweepProgress(0, 0, 0, 0, 0.0, 0.0, 0.0, None, text))


@dataclass
class _Handed:
    """A batch under way."""

    tasks: Tasks
    claim: Path
    attempt: int = 1


class _Session:
    """One call of `run`."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        threads: int,
        batch_seconds: float,
        tell: Callable[[SweepProgress], object],
    ) -> None:
        self.store, self.plan, self.threads, self.tell = store, plan, threads, tell
        self.claims = store.claims
        self.number = {name: i for i, name in enumerate(plan.name.tolist())}
        store.scan()
        self.began = time.monotonic()
        self.cost = Cost(plan.configurations)
        self.new, self.transitions, self.failed = 0, 0.0, 0
        self.stopped = False
        self.seen = set(store.parts)
        self.written = 0
        self.notes = [f"part {name} was damaged: set aside, computed again" for name in store.set_aside]
        self.said: set[tuple[str, bool]] = (
            set()
        )  # other sessions, and whether it was said that they are silent
        stored = store.done
        self.is_done = np.array([name in stored for name in plan.name.tolist()], bool)
        self.batches = Batches(plan, self.cost, np.flatnonzero(~self.is_done), batch_seconds)
        self.under_way: dict[Any, _Handed] = {}

    def nothing_to_do(self) -> bool:
        """Whether every task has a result."""
        return bool(self.is_done.all())

    def run(self, chosen: Engine) -> Status:
        """Hand out batches until every task has a result or has failed."""
        about = {"engine": chosen.name, "slots": chosen.slots, "began": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        try:
            self.claims.begin(about | machine())
            compact_store(self.store, MANY)
            self.seen = set(self.store.parts)
            self.cost.learn(entry for meta in self.store.metadata() for entry in meta.get("observed", ()))
            self.batches.sort()
            self._loop(chosen)
        except KeyboardInterrupt:
            self.stopped = True
        finally:
            chosen.close()
            with contextlib.suppress(OSError):
                self.claims.end({"new": self.new, "failed": self.failed, "transitions": self.transitions})
                self.store.forget_failures()
        return self.status()

    def _loop(self, chosen: Engine) -> None:
        last = 0.0
        while True:
            for future, handed in self._hand_out(chosen):
                self.under_way[future] = handed
            if not self.under_way and not self.batches:
                return
            if not self.under_way:
                # All that is left is under way elsewhere: see from time to time whether it is done, or given up.
                self._wait_for_others()
            else:
                for future in chosen.as_completed(list(self.under_way), _TICK):
                    self._take_in(chosen, future)
            if time.monotonic() - last >= _TICK:
                last = time.monotonic()
                self.claims.beat()
                self._tell(chosen.slots)

    def _wait_for_others(self) -> None:
        """Say once for whom this session waits, and once more if that session shows no life."""
        quiet = min(claims.QUIET, claims.LEASE / 2)
        others = {other.name: other for other in self.claims.others()}
        for name, other in others.items():
            n = len(other.tasks & self.number.keys())
            if n == 0:
                continue
            if (name, True) not in self.said and other.silent > quiet:
                self.said |= {(name, False), (name, True)}
                self.claims.say(
                    f"waiting for {n:,} tasks: {other} has given no sign of life for "
                    f"{other.silent:.0f} s (is it stopped?); after {claims.LEASE:g} s they are computed here"
                )
            elif (name, False) not in self.said:
                self.said.add((name, False))
                self.notes.append(f"waiting for {n:,} tasks that {other} has under way")
        time.sleep(_TICK)
        self._see_others()

    def _see_others(self) -> None:
        """Notice what other sessions have written."""
        self.store.scan()
        new = self.store.parts.keys() - self.seen
        self.seen = set(self.store.parts)
        for part in new:
            numbers = self._numbers(self.store.parts[part])
            if not self.is_done[numbers].all():
                self.is_done[numbers] = True
                self.batches.drop(self.is_done)

    def _numbers(self, names: set[bytes]) -> list[int]:
        """The tasks of the plan that have such names."""
        return [i for name in names if (i := self.number.get(name)) is not None]

    def _hand_out(self, chosen: Engine) -> Iterator[tuple[Any, _Handed]]:
        free = chosen.slots - len(self.under_way)
        while free > 0 and self.batches:
            attempt = 1
            with self.claims.lock():
                if self.batches.again:
                    tasks, attempt = self.batches.again.pop()
                else:
                    self._see_others()
                    claimed = [i for other in self.claims.others() for i in self._numbers(other.tasks)]
                    handed = [self.plan.owner[h.tasks[0]] for h in self.under_way.values()]
                    asked = {self.plan.configurations[i].algorithm for i in handed}
                    tasks = self.batches.take(chosen.slots, claimed, asked)
                    if tasks.size == 0:
                        return
                claim = self.claims.claim(self.plan.name[tasks].tolist())
            try:
                future = chosen.submit(self._batch(tasks))
            except WorkerDied:
                self.batches.again.append((tasks, attempt))
                self.claims.release(claim)
                continue
            free -= 1
            yield future, _Handed(tasks, claim, attempt)

    def _batch(self, tasks: Tasks) -> TaskBatch:
        groups = [
            group_of(configuration, tuple(self.plan.seed[part].tolist()))
            for part, configuration in self._groups(tasks)
        ]
        return TaskBatch(identity(), tuple(groups), self.threads)

    def _groups(self, tasks: Tasks) -> list[tuple[Tasks, Configuration]]:
        """Tasks cut where the configuration changes."""
        parts = np.split(tasks, np.flatnonzero(np.diff(self.plan.owner[tasks])) + 1)
        return [(part, self.plan.configurations[self.plan.owner[part[0]]]) for part in parts]

    def _take_in(self, chosen: Engine, future: Any) -> None:
        handed = self.under_way.pop(future)
        try:
            outcome = chosen.outcome(future)
        except WorkerDied:
            self._died(handed)
            return
        groups = self._groups(handed.tasks)
        tables, failures = [], []
        for (part, configuration), runs in zip(groups, outcome.groups, strict=True):
            if isinstance(runs, Runs):
                tables.append(rows(configuration, self.plan, part, runs))
                self.transitions += float(runs.record.samples[:, -1].sum())
            else:
                failures += [self._failure(int(i), runs, outcome.host) for i in part]
        if tables:
            self._write(
                tables, observations([m for _, m in groups], [p.size for p, _ in groups], outcome), outcome
            )
        if failures:
            self.store.write_failures(failures)
            self.failed += len(failures)
        self.claims.release(handed.claim)
        for (part, _), runs in zip(groups, outcome.groups, strict=True):
            if isinstance(runs, Runs):
                self.is_done[part] = True

    def _write(self, tables: list[pa.Table], observed: list[dict[str, Any]], outcome: Outcome) -> None:
        meta = {
            "session": self.claims.session, "host": outcome.host, "process": outcome.process,
            "seconds": sum(outcome.seconds), "kernels": sum(outcome.kernels), "preparation": outcome.other,
            "observed": observed,
        }  # fmt: skip
        self.new += len(self.store.write_part(pa.concat_tables(tables), meta))
        self.written += 1
        if self.written % MANY == 0:
            compact_store(self.store, MANY)
        self.cost.learn(observed)

    def _died(self, handed: _Handed) -> None:
        """Try the batch again; if its worker dies each time, in halves, down to the one task that does it."""
        self.claims.release(handed.claim)
        if handed.attempt < ATTEMPTS:
            self.batches.again.append((handed.tasks, handed.attempt + 1))
            self.notes.append(f"a worker died: its {handed.tasks.size} tasks are computed again")
        elif handed.tasks.size > 1:
            half = handed.tasks.size // 2
            self.batches.again += [(handed.tasks[:half], 1), (handed.tasks[half:], 1)]
        else:
            i = int(handed.tasks[0])
            text = f"the worker's process died {ATTEMPTS} times over this task (out of memory?)"
            self.store.write_failures([self._failure(i, text, platform.node())])
            self.failed += 1

    def _failure(self, i: int, text: str, host: str) -> Failure:
        configuration = self.plan.configurations[self.plan.owner[i]]
        inputs = {
            "model": configuration.model.label, "spec": configuration.model.spec, "algorithm": configuration.label,
            "settings": configuration.settings, "epsilon": configuration.epsilon, "budget": configuration.budget,
            "replicate": int(self.plan.replicate[i]), "seed": int(self.plan.seed[i]),
        }  # fmt: skip
        when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        return Failure(self.plan.name[i].decode(), inputs, text, host, when)

    def _tell(self, slots: int) -> None:
        seconds = time.monotonic() - self.began
        running = sum(handed.tasks.size for handed in self.under_way.values())
        left = None
        if self.new:
            per_run = self.cost.seconds()
            ahead = float(self.batches.left() @ per_run)
            ahead += sum(float(per_run[self.plan.owner[h.tasks]].sum()) / 2 for h in self.under_way.values())
            left = ahead / slots
        note, self.notes = "; ".join(self.notes), []
        done, rate = int(self.is_done.sum()), self.transitions / max(seconds, 1e-9)
        self.tell(
            SweepProgress(
                len(self.plan), done, self.failed, running, self.transitions, seconds, rate, left, note
            )
        )

    def status(self) -> Status:
        """How the sweep stands now."""
        status = status_of(self.store, self.plan)
        status.new, status.transitions = self.new, self.transitions
        status.seconds, status.stopped = time.monotonic() - self.began, self.stopped
        return status


__all__ = ["run"]
