"""Where batches run: threads, processes, or the workers of a Dask cluster, behind one protocol.

An engine has ``slots``, ``submit`` and ``as_completed`` like an executor of `concurrent.futures`; any such executor
(`mpi4py.futures.MPIPoolExecutor`, say) and any `distributed.Client` can be given instead of a name.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from fastcmdp.check import optional, whole
from fastcmdp.errors import SettingError
from fastcmdp.sweep.worker import Outcome, Refused, TaskBatch, execute, identity
from fastcmdp.text import unknown

ENGINES = ("threads", "processes", "dask")
_REACH = 20  # seconds to reach a scheduler
_FRESH = 1.0  # seconds for which the number of its threads is taken to hold


class WorkerDied(Exception):
    """The process that had a batch is gone."""


class Engine(Protocol):
    """What runs batches."""

    name: str

    @property
    def slots(self) -> int:
        """Batches that can be under way at once."""

    def submit(self, batch: TaskBatch) -> Any:
        """Begin a batch; a future whose result is an Outcome."""

    def as_completed(self, futures: Iterable[Any], timeout: float) -> Iterator[Any]:
        """Those futures that are done, after waiting up to so many seconds for the first."""

    def outcome(self, future: Any) -> Outcome:
        """The result of a future that is done; raises WorkerDied, Refused, or what the batch raised."""

    def close(self) -> None:
        """Stop at once; batches under way are lost."""


GUARD = """a script that starts processes needs a main guard, for each of them imports it: put what runs the sweep under

    if __name__ == "__main__":
        ...
"""


def refuse_unguarded() -> None:
    """Refuse a sweep within the import by which a fresh process gets to know the script that started it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SettingError(f"a sweep is begun while a process of the same script starts: {GUARD}")


class _Futures:
    """An engine whose futures are those of `concurrent.futures`."""

    def as_completed(self, futures: Iterable[Any], timeout: float) -> Iterator[Any]:
        """See Engine."""
        return iter(wait(futures, timeout, "FIRST_COMPLETED").done)


class Threads(_Futures):
    """Threads of this process: kernels release the interpreter's lock."""

    name = "threads"

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="sweep")

    @property
    def slots(self) -> int:
        """One a thread."""
        return self._workers

    def submit(self, batch: TaskBatch) -> Future[Outcome]:
        """Begin a batch."""
        return self._pool.submit(execute, batch, self._stop)

    def outcome(self, future: Future[Outcome]) -> Outcome:
        """See Engine."""
        return future.result()

    def close(self) -> None:
        """Stop within a fraction of a second."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)


class Processes(_Futures):
    """Fresh processes of this machine, each with one batch at a time, so that it is known which one died."""

    name = "processes"

    def __init__(self, workers: int) -> None:
        self._pools: list[ProcessPoolExecutor | None] = [None] * workers
        self._busy: dict[Future[Outcome], int] = {}
        self._tried = False  # whether a process has started well

    @property
    def slots(self) -> int:
        """One a process."""
        return len(self._pools)

    def submit(self, batch: TaskBatch) -> Future[Outcome]:
        """Begin a batch in an idle process, or a new one."""
        i = next(i for i in range(len(self._pools)) if i not in self._busy.values())
        for _ in range(2):  # a process may have died while it was idle
            pool = self._pools[i] or self._start(i)
            try:
                future = pool.submit(execute, batch)
                break
            except BrokenProcessPool:
                self._pools[i] = None
        else:
            raise WorkerDied
        self._busy[future] = i
        return future

    def _start(self, i: int) -> ProcessPoolExecutor:
        """A process; the first one of all is waited for, so that a script that cannot be imported is told at once."""
        context = multiprocessing.get_context("spawn")
        pool = self._pools[i] = ProcessPoolExecutor(1, mp_context=context, initializer=_attend)
        if not self._tried:
            future = pool.submit(identity)
            processes = list((pool._processes or {}).values())
            try:
                future.result()
                self._tried = True
            except BrokenProcessPool as error:
                for process in processes:
                    process.join()
                if any(process.exitcode == 1 for process in processes):  # an error; else it was killed
                    raise SettingError(
                        f"a process ended while it started; its own error stands above. Most often: {GUARD}"
                    ) from error
        return pool

    def outcome(self, future: Future[Outcome]) -> Outcome:
        """See Engine."""
        i = self._busy.pop(future)
        try:
            return future.result()
        except BrokenProcessPool as error:
            self._pools[i] = None
            raise WorkerDied from error

    def close(self) -> None:
        """Kill the processes."""
        for pool in self._pools:
            if pool is not None:
                for process in list((pool._processes or {}).values()):
                    process.kill()
                pool.shutdown(wait=True, cancel_futures=True)
        self._pools = [None] * len(self._pools)


def _attend() -> None:
    """In a fresh worker: leave Ctrl-C to the coordinator, and end when it does, however it does."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Borrowed(_Futures):
    """An executor that the caller made and closes."""

    def __init__(self, executor: Executor, slots: int) -> None:
        self.name = type(executor).__name__
        self._executor, self._slots = executor, slots

    @property
    def slots(self) -> int:
        """As told, or the executor's number of workers."""
        return self._slots

    def submit(self, batch: TaskBatch) -> Future[Outcome]:
        """Begin a batch."""
        return self._executor.submit(execute, batch)

    def outcome(self, future: Future[Outcome]) -> Outcome:
        """See Engine."""
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise SettingError(
                f"{self.name}: a worker died and took the executor with it; what was finished is stored, give the same "
                "command again"
            ) from error

    def close(self) -> None:
        """Leave the executor to its owner."""


class Dask:
    """Workers of a Dask cluster, through its own client."""

    name = "dask"

    def __init__(self, client: Any, close: Callable[[], object] | None = None) -> None:
        self._client, self._close = client, close
        self._slots, self._asked = 1, -math.inf
        self._check()

    @property
    def slots(self) -> int:
        """Threads of all workers that are there, as the scheduler said within the last second."""
        if time.monotonic() - self._asked > _FRESH:
            self._slots = max(int(sum(self._client.nthreads().values())), 1)
            self._asked = time.monotonic()
        return self._slots

    def _check(self) -> None:
        """Refuse a cluster of whose workers one has another fastcmdp, before anything is computed."""
        self._client.wait_for_workers(1, timeout=300)
        own = identity()
        try:
            identities = self._client.run(identity, on_error="return")
        except (
            Exception
        ) as error:  # the function cannot even be told: no fastcmdp.sweep at the scheduler's workers
            raise Refused(f"workers do not answer: {error}; install the same fastcmdp everywhere") from error
        for worker, said in identities.items():
            if isinstance(said, BaseException):
                raise Refused(
                    f"worker {worker} cannot import fastcmdp.sweep ({said}); install the same fastcmdp everywhere"
                )
            if said != own:
                differing = ", ".join(
                    f"{k} {said.get(k)} there, {own[k]} here" for k in own if said.get(k) != own[k]
                )
                raise Refused(
                    f"worker {worker} has another fastcmdp ({differing}): results would mix. Install the same version "
                    "everywhere"
                )

    def submit(self, batch: TaskBatch) -> Any:
        """Begin a batch."""
        return self._client.submit(execute, batch, pure=False)

    def as_completed(self, futures: Iterable[Any], timeout: float) -> Iterator[Any]:
        """See Engine."""
        import distributed

        futures = list(futures)
        with contextlib.suppress(TimeoutError, distributed.TimeoutError):
            distributed.wait(futures, timeout, "FIRST_COMPLETED")
        if self._client.status not in ("running", "connecting"):
            raise SettingError(
                "the scheduler is gone; what was finished is stored: start it again, then give the same command again"
            )
        return iter([future for future in futures if future.done()])

    def outcome(self, future: Any) -> Outcome:
        """See Engine."""
        from distributed.scheduler import KilledWorker

        try:
            outcome: Outcome = future.result()
            return outcome
        except KilledWorker as error:
            raise WorkerDied from error
        except Exception as error:
            if future.status in ("cancelled", "lost"):
                raise WorkerDied from error
            raise

    def close(self) -> None:
        """Give up what is under way, and the cluster if it was started for this."""
        if self._close is not None:
            with contextlib.suppress(Exception):
                self._close()


def engine(
    chosen: str | Executor | Any = "threads", workers: int | None = None, scheduler: str | None = None
) -> Engine:
    """The engine of a name, an executor or a Dask client.

    Parameters
    ----------
    chosen : {"threads", "processes", "dask"}, Executor, or distributed.Client
    workers : int, optional
        Batches at once; default: the processors at hand. For an executor: its own number, if it tells one.
    scheduler : str, optional
        Address of a Dask scheduler; without one, "dask" starts a cluster on this machine.

    Raises
    ------
    SettingError
        An unknown name, no such package, a scheduler that cannot be reached.
    Refused
        A worker has another version of fastcmdp.
    """
    check_engine(chosen, workers, scheduler)
    at_hand = len(os.sched_getaffinity(0))
    if chosen == "threads":
        return Threads(workers or at_hand)
    if chosen == "processes":
        return Processes(workers or at_hand)
    if chosen == "dask":
        return _dask(workers or at_hand, scheduler)
    if hasattr(chosen, "scheduler_info"):
        return Dask(chosen)
    executor: Any = chosen
    return Borrowed(executor, workers or getattr(chosen, "_max_workers", None) or at_hand)


def check_engine(chosen: Any, workers: int | None, scheduler: str | None) -> None:
    """Refuse what cannot be an engine, before anything is started."""
    if isinstance(chosen, str):
        if chosen not in ENGINES:
            raise SettingError(unknown("engine", chosen, ENGINES))
    elif not hasattr(chosen, "submit"):
        raise SettingError(unknown("engine", chosen, ENGINES))
    if workers is not None:
        whole("workers", workers, 1)
    if scheduler is not None and chosen != "dask":
        raise SettingError(f"scheduler = {scheduler!r} goes with the engine 'dask', not with {chosen!r}")


def _dask(workers: int, scheduler: str | None) -> Dask:
    distributed = optional("distributed", "the engine 'dask'", "dask")
    if scheduler is None:
        try:
            cluster = distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
            )
            client = distributed.Client(cluster)
        except (RuntimeError, OSError, TimeoutError) as error:
            raise SettingError(
                f"no Dask cluster could be started on this machine ({error}). Most often: {GUARD}"
            ) from error

        def close() -> None:
            client.close()
            cluster.close()

        return Dask(client, close)
    try:
        client = distributed.Client(scheduler, timeout=_REACH)
    except (OSError, ValueError, TimeoutError) as error:
        raise SettingError(
            f"scheduler = {scheduler!r} cannot be reached within {_REACH} s ({error}); is it running, and is the "
            "address one that its log shows (tcp://HOST:PORT)?"
        ) from error
    try:
        return Dask(client, client.close)
    except BaseException:
        client.close()
        raise
