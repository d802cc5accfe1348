"""What tasks will take: a model of the seconds that learns from every batch."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.check import whole
from fastcmdp.sweep.specification import Sweep
from fastcmdp.sweep.tasks import Configuration, plan
from fastcmdp.sweep.worker import Outcome, Runs, TaskBatch, execute, group_of, identity

PER_TRANSITION = 2e-8  # seconds, before anything is known; within a factor of two for most methods here
PER_RUN = 5e-3  # seconds besides kernels: set-up and exact evaluations
PROBED = 1e7  # transitions of a probe for an estimate
MEMORY = 0.5  # share of the past that a new batch leaves


class Cost:
    """Expected seconds of a run of each configuration: rate times `work_of` it, plus what is besides.

    A *kind* is an algorithm on a size of model. Its rate is learned; a kind not seen yet has that of its algorithm.
    """

    def __init__(self, configurations: Sequence[Configuration]) -> None:
        kinds: dict[str, int] = {}
        names: dict[str, int] = {}
        self.samples = np.array([configuration.samples for configuration in configurations], np.float64)
        self.work = np.array([work_of(configuration) for configuration in configurations], np.float64)
        self.kind = np.array(
            [kinds.setdefault(kind_of(configuration), len(kinds)) for configuration in configurations],
            np.int64,
        )
        for configuration in configurations:
            names.setdefault(configuration.algorithm, len(names))
        self.kinds, self.names = kinds, names
        self.name_of = np.array([names[kind.split(" ")[0]] for kind in kinds], np.int64)
        self.seen = np.zeros((len(kinds), 4))  # kernel seconds, transitions, other seconds, runs

    def learn(self, observed: Iterable[Mapping[str, Any]]) -> None:
        """Take in what the metadata of a part tells: entries with kind, kernels, work, other, runs."""
        for entry in observed:
            kind = self.kinds.get(str(entry["kind"]))
            if kind is not None and entry.get("work", 0.0) > 0:
                fresh = [entry[name] for name in ("kernels", "work", "other", "runs")]
                self.seen[kind] = MEMORY * self.seen[kind] + fresh

    def known(self) -> NDArray[np.bool_]:
        """Whether anything is known about the algorithm of each configuration."""
        seen = np.bincount(self.name_of, self.seen[:, 1], len(self.names)) > 0
        known: NDArray[np.bool_] = seen[self.name_of[self.kind]]
        return known

    def seconds(self) -> NDArray[np.float64]:
        """Expected seconds of one run of each configuration."""
        by_name = np.zeros((len(self.names), 4))
        np.add.at(by_name, self.name_of, self.seen)
        total = self.seen.sum(axis=0)
        rate = np.full(len(self.seen), np.nan)
        other = np.full(len(self.seen), PER_RUN if total[3] == 0 else total[2] / total[3])
        for source in (by_name[self.name_of], self.seen):
            known = source[:, 1] > 0
            rate[known] = source[known, 0] / source[known, 1]
            other[known] = source[known, 2] / np.maximum(source[known, 3], 1)
        kernels = np.where(
            np.isnan(rate[self.kind]), PER_TRANSITION * self.samples, rate[self.kind] * self.work
        )
        seconds: NDArray[np.float64] = kernels + other[self.kind]
        return seconds


def work_of(configuration: Configuration) -> float:
    """What a run's seconds in kernels are in proportion to: its transitions, and the choices of all its outer steps.

    Coarse targets have outer steps of a few transitions that touch every choice all the same: by transitions alone,
    their rate told of fine targets would be hundreds of times too slow.
    """
    return float(configuration.samples + int(configuration.settings["outer"]) * configuration.size[1])


def kind_of(configuration: Configuration) -> str:
    """The kind of a configuration."""
    policy = "" if configuration.policy == "tabular" else f" {configuration.policy}"
    return f"{configuration.algorithm} {configuration.size[0]} {configuration.size[1]} {configuration.gamma!r}{policy}"


def observations(
    configurations: list[Configuration], runs: list[int], outcome: Outcome
) -> list[dict[str, Any]]:
    """What a batch teaches about the time tasks take."""
    entries = []
    for each, n, values, kernels, seconds in zip(
        configurations, runs, outcome.groups, outcome.kernels, outcome.seconds, strict=True
    ):
        if isinstance(values, Runs):
            entries.append(
                {
                    "kind": kind_of(each),
                    "kernels": kernels,
                    "work": work_of(each) * n,
                    "other": max(seconds - kernels, 0.0),
                    "runs": n,
                }
            )
    return entries


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
    workers = None if workers is None else whole("workers", workers, 1)
    tasks = plan(sweep)
    cost = Cost(tasks.configurations)
    if probe:
        probes: dict[str, Configuration] = {}
        for each in tasks.configurations:
            if each.algorithm not in probes or _fitness(each) > _fitness(probes[each.algorithm]):
                probes[each.algorithm] = each
        for each in probes.values():
            cost.learn(observations([each], [1], _probe(each)))
    seconds = cost.seconds()
    by: dict[str, dict[str, float]] = {}
    for each, one in zip(tasks.configurations, seconds, strict=True):
        row = by.setdefault(each.label, {"tasks": 0, "transitions": 0.0, "seconds": 0.0})
        row["tasks"] += each.replicates
        row["transitions"] += each.samples * each.replicates
        row["seconds"] += float(one) * each.replicates
    n = workers or len(os.sched_getaffinity(0))
    total = sum(row["seconds"] for row in by.values())
    return Estimate(
        len(tasks.configurations), len(tasks), len(tasks.omitted), tasks.transitions,
        max((each.samples for each in tasks.configurations), default=0.0),
        sum(each.replicates for each in tasks.configurations if each.capped),
        max(total / n, float(seconds.max(initial=0.0))), n, by,
    )  # fmt: skip


def _fitness(configuration: Configuration) -> tuple[float, float]:
    """How fit a configuration is for a probe: it should not be short, and be cut to length in whole outer steps."""
    step = configuration.samples / int(configuration.settings["outer"])
    return min(1.0, PROBED / step), min(1.0, configuration.samples / PROBED)


def _probe(configuration: Configuration) -> Outcome:
    """Run a configuration for a share of its outer steps, and tell what the whole would take."""
    steps = int(configuration.settings["outer"])
    cut = max(int(steps * min(1.0, PROBED / configuration.samples)), 1)
    group = group_of(configuration, (0,), outer=cut, points=1)
    batch = TaskBatch(identity(), (group,))
    execute(batch)  # once for the model and its optimum
    outcome = execute(batch)
    drawn = [float(v.record.samples[0, -1]) if isinstance(v, Runs) else math.nan for v in outcome.groups]
    outcome.kernels = [
        taken * configuration.samples / n for taken, n in zip(outcome.kernels, drawn, strict=True)
    ]
    outcome.seconds = [taken + PER_RUN for taken in outcome.kernels]
    return outcome
