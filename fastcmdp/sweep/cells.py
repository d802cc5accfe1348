"""The runs of each configuration of a sweep, from the rows of its store, and their error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastcmdp.errors import SettingError
from fastcmdp.sweep.store import Store

Float = NDArray[np.float64]


@dataclass
class Cell:
    """All runs of one configuration.

    Attributes
    ----------
    algorithm, name, model : str
        Label, name in the registry, label.
    gamma : float
    epsilon, budget : float or None
    capped : bool
    samples : float64[n]
        Mean over replicates at each trace point.
    gap : float64[R, n]
        Of the mixture so far, kernel units, signed.
    slack : float64[R, n, m]
        By how much the mixture so far meets each limit, kernel units, signed.
    diverged : int
        Runs whose numbers ceased to be finite: left out of the means.
    band : (float64[n], float64[n]) or None
        The central 95 % of bootstrapped errors, once `analyse` has made them.
    """

    algorithm: str
    name: str
    model: str
    gamma: float
    epsilon: float | None
    budget: float | None
    capped: bool
    samples: Float
    gap: Float
    slack: Float
    diverged: int = 0
    band: tuple[Float, Float] | None = None

    def error(self, weights: Float | None = None) -> Float:
        """Equation (1) at each point, float64[n]; with weights of replicates, float64[B, R], float64[B, n]."""
        n_runs, n, m = self.slack.shape
        w = np.full((1, n_runs), 1.0 / n_runs) if weights is None else weights
        errors = np.maximum(w @ self.gap, 0.0)
        if m:
            mean = (w @ self.slack.reshape(n_runs, n * m)).reshape(len(w), n, m)
            errors = np.maximum(errors, -mean.min(axis=2))
        return errors[0] if weights is None else errors


def cells(store: Store) -> list[Cell]:
    """The configurations of a store that have results, in the order of its plan; only finite runs.

    Raises
    ------
    SettingError
        There are none, or none with an optimum to compare with.
    """
    columns = ["configuration", "replicate", "point", "samples", "kernel_gap", "kernel_slack", "diverged"]
    runs: dict[str, list[_Runs]] = {}
    plan = store.plan()
    for table in store.pieces(columns, only=set(plan.name.tolist())):
        for key, piece in _runs(table):
            runs.setdefault(key, []).append(piece)
    if not runs:
        raise SettingError(f"{store.path}: no results yet; `fastcmdp sweep run` makes some")
    every = []
    for each in plan.configurations:
        if each.key not in runs:
            continue
        replicate, samples, gap, slack, diverged = (
            np.concatenate(arrays) for arrays in zip(*runs.pop(each.key), strict=True)
        )
        order = np.argsort(replicate)  # whatever parts they were in
        good = order[(diverged[order] < 0) & np.isfinite(gap[order]).all(axis=1)]
        samples = samples[good].mean(axis=0) if good.size else np.full(gap.shape[1], np.nan)
        every.append(
            Cell(
                each.label, each.algorithm, each.model.label, each.gamma, each.epsilon, each.budget, each.capped,
                samples, gap[good], slack[good], int((diverged >= 0).sum()),
            )
        )  # fmt: skip
    if not any(len(cell.gap) for cell in every):
        raise SettingError(
            f"{store.path}: no run has an exact optimum to compare with (models of more than 20,000 choices), or all "
            "of them diverged"
        )
    return every


_Runs = tuple[
    NDArray[Any], NDArray[Any], Float, Float, NDArray[Any]
]  # replicate, samples, gap, slack, diverged


def _runs(table: pa.Table) -> Iterator[tuple[str, _Runs]]:
    """The runs of each configuration in the rows of a part."""
    names = table["configuration"].unify_dictionaries().combine_chunks()
    names = names.chunk(0) if isinstance(names, pa.ChunkedArray) else names
    index = names.indices.to_numpy()
    columns = {
        name: table[name].to_numpy() for name in ("replicate", "point", "samples", "kernel_gap", "diverged")
    }
    lists = table["kernel_slack"].combine_chunks()
    lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
    offsets, slacks = np.asarray(lists.offsets), np.asarray(lists.values)
    # A configuration's rows are together, a run's points too: cut where either changes.
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(index)) + 1, [len(index)]])
    keys = names.dictionary.to_pylist()
    for begin, end in pairwise(cuts.tolist()):
        rows = slice(begin, end)
        n_runs = int((columns["point"][rows] == 0).sum())
        shape = (n_runs, -1)
        yield (
            keys[index[begin]],
            (
                columns["replicate"][rows].reshape(shape)[:, 0],
                columns["samples"][rows].reshape(shape).astype(np.float64),
                columns["kernel_gap"][rows].reshape(shape),
                slacks[offsets[begin] : offsets[end]].reshape(n_runs, (end - begin) // n_runs, -1),
                columns["diverged"][rows].reshape(shape)[:, 0],
            ),
        )
