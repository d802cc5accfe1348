"""The kernels of `fastcmdp.kernels.exact.bellman` on blocks of states, on as many threads as are asked for.

The blocks do not depend on the number of threads, and every number is made within one block or from the blocks in
their order: results are the same to the last bit for any number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.exact import abreast, bellman
from fastcmdp.kernels.exact.lanes import LANES

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BLOCK = 1 << 14  # states
LONG_BLOCKS = 4  # of a model in sweeps in place, for at most so many threads
THREADED = 400_000  # entries from which threads save more than it costs to start them

_workers: tuple[int, ThreadPoolExecutor] | None = None  # of the process with this number: a fork has none


def available_threads() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pool() -> ThreadPoolExecutor:
    global _workers
    if _workers is None or _workers[0] != os.getpid():
        _workers = os.getpid(), ThreadPoolExecutor(max(1, available_threads() - 1), "fastcmdp-exact")
    return _workers[1]


def _by_blocks(
    kernel: Callable[..., None],
    arrays: tuple[Any, ...],
    rows: int,
    entries: int,
    threads: int,
    block: int | None = None,
) -> None:
    block = block or BLOCK
    blocks = -(-rows // block)
    parts = min(threads, blocks) if entries >= THREADED else 1
    if parts <= 1:
        kernel(*arrays, block, 0, blocks)
        return
    bounds = [blocks * i // parts for i in range(parts + 1)]
    others = [_pool().submit(kernel, *arrays, block, begin, end) for begin, end in pairwise(bounds[1:])]
    try:
        kernel(*arrays, block, bounds[0], bounds[1])
    finally:
        wait(others)  # also after Ctrl-C: they write to arrays of the caller
    for other in others:
        other.result()


def _long(n_states: int) -> int:
    """States of a block for sweeps in place: from one block to the next a value takes a sweep, so there are few."""
    return max(BLOCK, -(-n_states // LONG_BLOCKS))


class Chain(NamedTuple):
    """The rows of a stochastic matrix P_pi, or of its transpose."""

    offset: Integers  # (S+1,)
    target: NDArray[np.int32]
    prob: Floats
    gamma: float
    threads: int

    @property
    def n_states(self) -> int:
        """Number of rows."""
        return len(self.offset) - 1

    def step(self, right: Floats, value: Floats, out: Floats) -> Floats:
        """out = right + gamma P value, for one or two columns; (k, 3): least, greatest and sum of |out - value|."""
        change: Floats = np.empty((-(-self.n_states // BLOCK), value.shape[1], 3))
        arrays = (*self[:3], right, self.gamma, value, out, change)
        _by_blocks(bellman.follow, arrays, self.n_states, len(self.prob), self.threads)
        if len(change) == 1:
            return change.reshape(change.shape[1:])
        return np.stack((change[:, :, 0].min(0), change[:, :, 1].max(0), change[:, :, 2].sum(0)), axis=1)

    def relax(self, right: Floats, old: Floats, out: Floats, backward: bool) -> None:
        """A Gauss-Seidel sweep, one column."""
        arrays = (*self[:3], right, self.gamma, old, out, backward)
        _by_blocks(bellman.relax, arrays, self.n_states, len(self.prob), self.threads, _long(self.n_states))

    def transposed(self) -> Chain:
        """The same entries by columns."""
        back, source = np.empty_like(self.offset), np.empty_like(self.target)
        weight = np.empty_like(self.prob)
        bellman.transpose(*self[:3], back, source, weight)
        return Chain(back, source, weight, self.gamma, self.threads)

    def matrix(self) -> Any:
        """As a SciPy matrix."""
        from scipy import sparse

        return sparse.csr_array((self.prob, self.target, self.offset), shape=(self.n_states, self.n_states))


class Rows:
    """The rows of a model."""

    def __init__(self, cmdp: CMDP, threads: int | None = None) -> None:
        self.arrays = (cmdp.state_to_choice, cmdp.choice_to_branch, cmdp.branch_target, cmdp.branch_prob)
        self.n_states, self.entries = cmdp.n_states, cmdp.n_branches
        self.gamma = cmdp.gamma
        self.threads = available_threads() if threads is None else threads
        self._last: tuple[Chain, Integers] | None = None  # that `chosen` gave, and its choices

    def improve(self, signal: Floats, value: Floats, out: Floats, choices: Integers) -> tuple[float, float]:
        """out = T value, and the first best choices; least and greatest entry of out - value."""
        change = np.empty((-(-self.n_states // BLOCK), 2))
        arrays = (*self.arrays, signal, self.gamma, value, out, choices, change)
        _by_blocks(bellman.improve, arrays, self.n_states, self.entries, self.threads)
        return float(change[:, 0].min()), float(change[:, 1].max())

    def improve_in_place(self, signal: Floats, old: Floats, out: Floats, backward: bool) -> None:
        """A Gauss-Seidel sweep of T."""
        arrays = (*self.arrays, signal, self.gamma, old, out, backward)
        _by_blocks(
            bellman.improve_in_place, arrays, self.n_states, self.entries, self.threads, _long(self.n_states)
        )

    def chain(self, pi: Floats, signals: Floats) -> tuple[Chain, Floats]:
        """P_pi, and the mean of each signal over the choices of a state."""
        offset = np.empty(self.n_states + 1, dtype=np.int64)
        bellman.count_entries(*self.arrays[:2], pi, offset)
        target, prob = np.empty(offset[-1], dtype=np.int32), np.empty(offset[-1])
        right = np.empty((self.n_states, signals.shape[1]))
        arrays = (*self.arrays, pi, signals, offset, target, prob, right)
        _by_blocks(bellman.fill_chain, arrays, self.n_states, len(prob), self.threads)
        return Chain(offset, target, prob, self.gamma, self.threads), right

    def chosen(self, choices: Integers) -> Chain:
        """P_pi of one choice in each state, in place of the last one that was asked for."""
        offset = np.empty(self.n_states + 1, dtype=np.int64)
        bellman.count_chosen(self.arrays[1], choices, offset)
        if self._last is None or not np.array_equal(offset, self._last[0].offset):
            target, prob = np.empty(offset[-1], dtype=np.int32), np.empty(offset[-1])
            self._last = Chain(offset, target, prob, self.gamma, self.threads), np.full(self.n_states, -1)
        chain, written = self._last
        arrays = (*self.arrays[1:], choices, written, *chain[:3])
        _by_blocks(bellman.fill_chosen, arrays, self.n_states, len(chain.prob), self.threads)
        return chain


class Merged(NamedTuple):
    """The choices that any of eight policies takes, state by state, each once."""

    offset: Integers  # (S+1,) where those of a state begin
    row: Integers  # (n,) which they are
    entry: Integers  # (n+1,) where the branches of each begin
    target: NDArray[np.int32]
    prob: Floats  # times gamma
    signals: Floats  # (n, 2)


class Abreast:
    """Sweeps of a model with two signals for eight weightings (8, 2) of them, side by side in columns (S, 8)."""

    def __init__(self, rows: Rows, signals: Floats) -> None:
        self.rows, self.signals = rows, np.ascontiguousarray(signals)
        self.gamma = rows.gamma

    def improve(self, weights: Floats, value: Floats, out: Floats, choice: Floats) -> tuple[Floats, Floats]:
        """out = T value, and the first best choices, as floats; least and greatest entry of out - value."""
        model, change = self.rows, self._change()
        columns = np.ascontiguousarray(weights.T)
        arrays = (*model.arrays, self.signals, columns, self.gamma, value, out, choice, change)
        _by_blocks(abreast.improve, arrays, model.n_states, LANES * model.entries, model.threads)
        return _ends(change)

    def merged(self, choice: Floats) -> Merged:
        """The choices that any column takes."""
        model, most = self.rows, min(choice.size, len(self.signals))
        offset, row = np.empty(model.n_states + 1, dtype=np.int64), np.empty(most, dtype=np.int64)
        entry = np.empty(most + 1, dtype=np.int64)
        n = abreast.merge(model.arrays[1], choice, offset, row, entry)
        row, entry = row[:n], entry[: n + 1]
        target, prob = np.empty(entry[-1], dtype=np.int32), np.empty(entry[-1])
        signals = np.empty((n, 2))
        arrays = (*model.arrays[1:], self.signals, self.gamma, row, entry, target, prob, signals)
        _by_blocks(abreast.gather, arrays, n, len(prob), model.threads)
        return Merged(offset, row, entry, target, prob, signals)

    def follow(
        self, weights: Floats, rows: Merged, choice: Floats, value: Floats, out: Floats
    ) -> tuple[Floats, Floats]:
        """out = T value along the choices, whose ``rows`` `merged` gives; least and greatest entry of out - value."""
        model, change = self.rows, self._change()
        arrays = (*rows, np.ascontiguousarray(weights.T), choice, value, out, change)
        _by_blocks(abreast.follow, arrays, model.n_states, LANES * len(rows.prob), model.threads)
        return _ends(change)

    def _change(self) -> Floats:
        return np.empty((-(-self.rows.n_states // BLOCK), 2, LANES))


def _ends(change: Floats) -> tuple[Floats, Floats]:
    if len(change) == 1:
        return change[0, 0], change[0, 1]
    return change[:, 0].min(axis=0), change[:, 1].max(axis=0)
