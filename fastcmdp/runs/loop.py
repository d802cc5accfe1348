"""The one loop that moves runs on: threads, pieces short enough to be stopped between, and a record on the way.

A run supplies arrays with a leading replicate axis and one call that moves one replicate on by n outer steps.
Everything here is about when to call it. Results do not depend on how the steps are cut into calls, nor on which
thread makes them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import numpy as np

from fastcmdp.algorithms.base import Run
from fastcmdp.kernels.stop import FINISH, LEAVE
from fastcmdp.runs.record import Record

_PIECE = 0.2  # seconds between two looks at the clock
_LONG_STEPS = 8  # outer steps a piece, or fewer: each takes a good part of _PIECE
_GRACE = 0.5  # seconds in which pieces may end of themselves after Ctrl-C


class Stopped(Exception):
    """The run was told to stop."""


class Crew:
    """Threads with a work space each, and how many outer steps they make at a time.

    Attributes
    ----------
    piece : int
        Outer steps a call; adapted to rounds of about 0.2 s unless it was given.
    seconds : float
        Spent in kernels so far.
    abandoned : bool
        A second Ctrl-C came while pieces were brought to an end: threads may be at work yet.
    """

    def __init__(self, run: Run, threads: int | None = None, piece: int | None = None) -> None:
        n = min(threads or len(os.sched_getaffinity(0)), len(run.state.outer))
        self.run, self.fixed, self.piece, self.seconds = run, piece is not None, piece or 1, 0.0
        self.works: SimpleQueue[Any] = SimpleQueue()
        for _ in range(n):
            self.works.put(run.work())
        self.pool = ThreadPoolExecutor(n, thread_name_prefix="fastcmdp")
        self.word = run.world.tables.stop
        self.word[0] = 0
        self.abandoned = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pool.shutdown(wait=not self.abandoned)

    def step(self, left: Any, stop: threading.Event | None = None) -> None:
        """One round: every replicate makes up to ``piece`` of the outer steps that it has left, int64[R].

        Raises
        ------
        Stopped
            ``stop`` was set, and pieces at work were brought to an end.
        """
        if not self.abandoned:
            self.word[0] = 0  # an earlier call may have been told to stop
        began = time.perf_counter()
        tasks = [
            self.pool.submit(self._advance, int(r), min(int(left[r]), self.piece))
            for r in np.flatnonzero(left)
        ]
        try:
            while wait(tasks, None if stop is None else _PIECE).not_done:
                if stop is not None and stop.is_set():
                    self._stop(tasks)
                    raise Stopped
        except KeyboardInterrupt:
            self._stop(tasks)
            raise
        for task in tasks:
            task.result()
        seconds = time.perf_counter() - began
        self.seconds += seconds
        # A round that was cut short by its target says nothing of how long a full one takes.
        if not self.fixed and int(left.max()) >= self.piece:
            self.piece = max(1, int(self.piece * min(2.0, _PIECE / max(seconds, 1e-9))))

    @property
    def _keeps(self) -> bool:
        """Whether states before a piece are kept: not where outer steps are short and copies might be felt."""
        return self.fixed or self.piece <= _LONG_STEPS

    def _stop(self, tasks: list[Future[None]]) -> None:
        """Have all replicates stand at whole outer steps soon: the last begun, or where that takes long, those before.

        A second Ctrl-C waits for nothing: then no thread is to be relied upon, nor the state.
        """
        self.abandoned = True
        self.word[0] = FINISH
        try:
            _, late = wait([task for task in tasks if not task.cancel()], _GRACE)
            if late and self._keeps:
                self.word[0] = LEAVE
            wait(late)
        except KeyboardInterrupt:
            self.word[0] = LEAVE if self._keeps else FINISH
            raise
        self.abandoned = False

    def _advance(self, r: int, n_steps: int) -> None:
        run, work = self.run, self.works.get()
        rows = run.rows(r) if self._keeps else None
        try:
            run.advance(r, n_steps, work)
        finally:
            if rows is not None and self.word[0] == LEAVE:
                run.put_back(r, rows)
            self.works.put(work)


def advance_all(
    crew: Crew,
    target: int,
    stop: threading.Event | None = None,
    tell: Callable[[], object] | None = None,
) -> None:
    """Move every replicate that has not failed to outer step ``target``, its pilot included.

    Parameters
    ----------
    crew : Crew
    target : int
    stop : Event, optional
        Looked at before each round and while it lasts.
    tell : callable, optional
        Called after each round.

    Raises
    ------
    Stopped
        ``stop`` was set.
    KeyboardInterrupt
        Ctrl-C; all replicates stand at whole outer steps, and a later call goes on.
    """
    state = crew.run.state
    while (left := np.where(state.failed >= 0, 0, target - state.outer)).any():
        if stop is not None and stop.is_set():
            raise Stopped
        crew.step(left, stop)
        if tell is not None:
            tell()


def follow(
    crew: Crew,
    record: Record,
    stop: threading.Event | None = None,
    tell: Callable[[], object] | None = None,
    noted: Callable[[], object] | None = None,
) -> None:
    """Move a run on to its last recorded point and write its record; ``noted`` is called after each point.

    Exceptions as `advance_all`; what is recorded stays, and a later call goes on.
    """
    while record.done < len(record.outer):
        if record.done > 0:
            if record.undecided:  # one step more tells whether the policy at the last point is in the output
                advance_all(crew, int(record.outer[record.done - 1]) + 1, stop, tell)
                record.decide(crew.run)
            advance_all(crew, int(record.outer[record.done]), stop, tell)
        record.write(crew.run)
        if noted is not None:
            noted()


__all__ = ["Crew", "Stopped", "advance_all", "follow"]
