"""What a sweep tells: how it goes while it runs, and how it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastcmdp.sweep.store import Failure, Store
from fastcmdp.sweep.tasks import Plan


class SweepProgress(NamedTuple):
    """What a progress callback is told, about once a second.

    Attributes
    ----------
    tasks, done, failed : int
        Tasks of the sweep; with a result, whoever computed it; failed in this session.
    running : int
        Tasks under way here.
    transitions : float
        Drawn in this session's finished batches.
    seconds : float
        Since this session began.
    rate : float
        Transitions per second, of all workers together.
    left : float or None
        Expected seconds until all is done; None before anything is known.
    note : str
        Something worth a line of its own; else empty.
    """

    tasks: int
    done: int
    failed: int
    running: int
    transitions: float
    seconds: float
    rate: float
    left: float | None
    note: str = ""


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


def status_of(store: Store, plan: Plan) -> Status:
    """How a sweep stands, from its folder."""
    store.scan()
    done, failures = store.done, store.failures()
    own = plan.name.tolist()
    is_done = np.array([name in done for name in own], bool)
    is_failed = np.array([name in failures for name in own], bool)
    by: dict[str, dict[str, int]] = {}
    counts = np.zeros((len(plan.configurations), 2), np.int64)
    for column, flags in enumerate((is_done, is_failed)):
        counts[:, column] = np.bincount(plan.owner[flags], minlength=len(counts))
    for each, (n_done, n_failed) in zip(plan.configurations, counts.tolist(), strict=True):
        row = by.setdefault(each.label, {"tasks": 0, "done": 0, "failed": 0})
        row["tasks"] += each.replicates
        row["done"] += n_done
        row["failed"] += n_failed
    names = set(own)
    return Status(
        str(store.path), len(plan), int(is_done.sum()), int(is_failed.sum()), len(plan.omitted),
        failures=[failure for name, failure in failures.items() if name in names],
        running=[name for name in store.claims.running() if name != store.claims.session],
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
