"""Which tasks are handed out next: the longest first, in batches of about a given time, after a probe if need be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastcmdp.sweep.cost import Cost
from fastcmdp.sweep.tasks import Plan

BATCH = 60.0  # seconds of work aimed at; what comes out is between half and twice that
PROBE = 2.0  # of the first batch of an algorithm, whose speed is not known
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
        self.again: list[tuple[Tasks, int]] = []

    def __bool__(self) -> bool:
        return bool(self.waiting.size or self.again)

    def sort(self) -> None:
        """The longest runs first, so that none of them is left for the end; tasks of a model stay together."""
        order = np.argsort(-self.cost.seconds()[self.plan.owner[self.waiting]], kind="stable")
        self.waiting = self.waiting[order]

    def drop(self, gone: NDArray[np.bool_]) -> None:
        """Wait no longer for the tasks that are marked, bool of all tasks of the plan."""
        self.waiting = self.waiting[~gone[self.waiting]]

    def take(self, slots: int, claimed: set[bytes], asked: set[str]) -> Tasks:
        """The next batch from what waits and is not claimed elsewhere; empty if there is none.

        ``slots`` batches can be under way at once; of the algorithms ``asked`` one is, so that they need no probe.
        """
        free = self.waiting
        if claimed:
            elsewhere = np.array([name in claimed for name in self.plan.name[free].tolist()], bool)
            free = free[~elsewhere]
        if free.size == 0:
            return free
        chosen = self._choose(free, slots, asked)
        taken = np.zeros(len(self.plan), bool)
        taken[chosen] = True
        self.drop(taken)
        return chosen

    def _choose(self, free: Tasks, slots: int, asked: set[str]) -> Tasks:
        first = self._unknown(free, asked)
        if first is not None:  # one run, to learn from
            return free[first : first + 1]
        total = np.cumsum(self.cost.seconds()[self.plan.owner[free]])
        # Shares of what is left, so that workers end at the same time, of up to the length aimed at.
        aim = min(self.seconds, max(total[-1] / (2 * slots), LEAST))
        if not self.cost.known()[self.plan.owner[free[0]]]:
            aim = min(aim, PROBE)
        n = max(int(np.searchsorted(total, aim, "right")), 1)
        last = int(np.flatnonzero(self.plan.owner[free] == self.plan.owner[free[:n][-1]])[-1])
        return (
            free[: max(n, last + 1)] if last < n * 1.25 else free[:n]
        )  # rather the whole of a configuration

    def _unknown(self, free: Tasks, asked: set[str]) -> int | None:
        """The cheapest task of an algorithm of which nothing is known and nothing is under way."""
        owner, known = self.plan.owner[free], self.cost.known()
        if known[owner].all():
            return None
        present, at = np.unique(owner, return_index=True)
        unknown = [
            (self.cost.samples[c], int(i))
            for c, i in zip(present, at, strict=True)
            if self.plan.configurations[c].algorithm not in asked and not known[c]
        ]
        return min(unknown)[1] if unknown else None
