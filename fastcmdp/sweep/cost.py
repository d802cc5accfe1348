"""What tasks will take: a model of the seconds that learns from every batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.sweep.tasks import Configuration

PER_TRANSITION = 2e-8  # seconds, before anything is known; within a factor of two for most methods here
PER_RUN = 5e-3  # seconds besides kernels: set-up and exact evaluations
MEMORY = 0.5  # share of the past that a new batch leaves


class Cost:
    """Expected seconds of a run of each configuration: rate times expected transitions, plus what is besides.

    A *kind* is an algorithm on a size of model. Its rate is learned; a kind not seen yet has that of its algorithm.
    """

    def __init__(self, configurations: Sequence[Configuration]) -> None:
        kinds: dict[str, int] = {}
        names: dict[str, int] = {}
        self.samples = np.array([made.samples for made in configurations], np.float64)
        self.kind = np.array(
            [kinds.setdefault(kind_of(made), len(kinds)) for made in configurations], np.int64
        )
        for made in configurations:
            names.setdefault(made.algorithm, len(names))
        self.kinds, self.names = kinds, names
        self.name_of = np.array([names[kind.split(" ")[0]] for kind in kinds], np.int64)
        self.seen = np.zeros((len(kinds), 4))  # kernel seconds, transitions, other seconds, runs

    def learn(self, observed: Iterable[Mapping[str, Any]]) -> None:
        """Take in what the metadata of a part tells: entries with kind, kernels, transitions, other, runs."""
        for entry in observed:
            kind = self.kinds.get(str(entry["kind"]))
            if kind is not None and entry["transitions"] > 0:
                fresh = [entry[name] for name in ("kernels", "transitions", "other", "runs")]
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
        rate = np.full(len(self.seen), PER_TRANSITION)
        other = np.full(len(self.seen), PER_RUN if total[3] == 0 else total[2] / total[3])
        for source in (by_name[self.name_of], self.seen):
            known = source[:, 1] > 0
            rate[known] = source[known, 0] / source[known, 1]
            other[known] = source[known, 2] / np.maximum(source[known, 3], 1)
        seconds: NDArray[np.float64] = rate[self.kind] * self.samples + other[self.kind]
        return seconds


def kind_of(made: Configuration) -> str:
    """The kind of a configuration."""
    return f"{made.algorithm} {made.size[0]} {made.size[1]} {made.gamma!r}"
