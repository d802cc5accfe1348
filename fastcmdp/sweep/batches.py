"""Which tasks are handed out next: the longest first, in batches of about a given time, after a probe if need be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastcmdp.sweep.cost import Cost
from fastcmdp.sweep.tasks import Plan

BATCH = 60.0  # seconds of work aimed at; what comes out is between half and twice that
PROBE = 2.0  # of the first batch of an algorithm, whose speed is not known
AHEAD = 1 << 16  # tasks looked at for a batch, so that one of a million costs no more than one of a thousand
LEAST = 1.0  # near the end batches get smaller, so that workers end together; not smaller than this

Tasks = NDArray[np.int64]  # numbers of tasks in the plan, a configuration's together


class Batches:
    """Tasks that wait, in the order in which they are handed out.

    Attributes
    ----------
    waiting : int64[n]
    again : list of (int64[n], int)
        Batches whose worker died, to be tried once more, and the number of the attempt.
    """

    def __init__(self, plan: Plan, cost: Cost, waiting: Tasks, seconds: float) -> None:
        self.plan, self.cost, self.seconds = plan, cost, seconds
        self.waiting = waiting
        self._left = self._count(waiting)
        self.again: list[tuple[Tasks, int]] = []

    def __bool__(self) -> bool:
        return bool(self.waiting.size or self.again)

    def _count(self, tasks: Tasks) -> NDArray[np.int64]:
        return np.bincount(self.plan.owner[tasks], minlength=len(self.plan.configurations))

    def left(self) -> NDArray[np.int64]:
        """How many tasks of each configuration wait."""
        return self._left

    def sort(self) -> None:
        """The longest runs first, so that none of them is left for the end; tasks of a model stay together."""
        order = np.argsort(-self.cost.seconds()[self.plan.owner[self.waiting]], kind="stable")
        self.waiting = self.waiting[order]

    def drop(self, gone: NDArray[np.bool_]) -> None:
        """Wait no longer for the tasks that are marked, bool of all tasks of the plan."""
        self.waiting = self.waiting[~gone[self.waiting]]
        self._left = self._count(self.waiting)

    def take(self, slots: int, claimed: Sequence[int], asked: set[str]) -> Tasks:
        """The next batch from what waits and is not claimed elsewhere; empty if there is none.

        ``slots`` batches can be under way at once; of the algorithms ``asked`` one is, so that they need no probe.
        """
        free, left = self.waiting, self._left
        if claimed:
            elsewhere = np.zeros(len(self.plan), bool)
            elsewhere[claimed] = True
            free = free[~elsewhere[free]]
            left = self._count(free)
        if free.size == 0:
            return free
        begin, end = self._choose(free, left, slots, asked)
        chosen = free[begin:end]
        if begin == 0 and not claimed:
            self.waiting = free[end:]
            self._left -= self._count(chosen)
        else:
            taken = np.zeros(len(self.plan), bool)
            taken[chosen] = True
            self.drop(taken)
        return chosen

    def _choose(self, free: Tasks, left: NDArray[np.int64], slots: int, asked: set[str]) -> tuple[int, int]:
        """Where the next batch begins and ends in ``free``, of whose configurations so many are ``left``."""
        first = self._unknown(free, left, asked)
        if first is not None:  # one run, to learn from
            return first, first + 1
        seconds = self.cost.seconds()
        owner = self.plan.owner[free[:AHEAD]]
        # Shares of what is left, so that workers end at the same time, of up to the length aimed at.
        aim = min(self.seconds, max(float(left @ seconds) / (2 * slots), LEAST))
        if not self.cost.known()[owner[0]]:
            aim = min(aim, PROBE)
        n = max(int(np.searchsorted(np.cumsum(seconds[owner]), aim, "right")), 1)
        last = int(np.flatnonzero(owner == owner[n - 1])[-1])
        return 0, max(n, last + 1) if last < n * 1.25 else n  # rather the whole of a configuration

    def _unknown(self, free: Tasks, left: NDArray[np.int64], asked: set[str]) -> int | None:
        """The cheapest task of an algorithm of which nothing is known and nothing is under way."""
        known = self.cost.known()
        if known[left > 0].all():
            return None
        owner = self.plan.owner[free]
        present, at = np.unique(owner, return_index=True)
        unknown = [
            (self.cost.samples[c], int(i))
            for c, i in zip(present, at, strict=True)
            if self.plan.configurations[c].algorithm not in asked and not known[c]
        ]
        return min(unknown)[1] if unknown else None
