"""What kernels hold of their arguments: no counts of references, and nothing is freed too early or too late."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError
from numba.core.runtime import _nrt_python as counters
from numba.core.runtime import rtsys
from numba.core.target_extension import cpu_target, jit_registry

from fastcmdp.envs import garnet
from fastcmdp.kernels.callees import BorrowingCompiler
from fastcmdp.kernels.sampling.rollouts import rollouts
from fastcmdp.streams import streams
from fastcmdp.tables import build_actions, build_tables

borrowing = njit(pipeline_class=BorrowingCompiler)


class Row(NamedTuple):
    x: Any


class Table(NamedTuple):
    rows: Any
    row: Row


@borrowing
def add_up(table, n):
    """Views in a loop, used in one branch or another."""
    total = 0.0
    for i in range(n):
        row = table.rows[i % 3]
        if total > 10.0:
            for y in row:
                total += y * table.row.x[i % 2]
        else:
            total += row[0] + 1.0
    return float(total)


@borrowing
def one_of(x, n):
    """A variable that stands for an argument, a view of it, or an array of its own."""
    y = x
    for i in range(n):
        if i % 3 == 0:
            y = x[1:] if i % 2 else x
        elif i % 3 == 1:
            y = np.ones(4)
        else:
            y = y[:2]
    return y


@borrowing
def returned(table, n):
    own = np.arange(3.0)
    x = table.row.x
    copy = table.rows[np.array([1, 0])]
    return table, x, x[:1], copy, own, one_of(x, n), Row(table.rows[0])


@borrowing
def chained(table, n):
    total = 0.0
    for _ in range(n):
        whole, x, view, copy, own, some, row = returned(table, n)
        table = whole
        total += x[0] + view[0] + copy[1, 1] + own[2] + some[-1] + row.x[0]
    return float(total)


@pytest.fixture
def count() -> Iterator[None]:
    counters.memsys_enable_stats()
    yield
    counters.memsys_disable_stats()


@pytest.mark.usefixtures("count")
def test_what_arguments_hold_is_counted_right_by_not_counting() -> None:
    table = Table(np.arange(12.0).reshape(3, 4), Row(np.arange(5.0)))
    arrays = (table.rows, table.row.x)
    for call in (add_up, one_of, returned, chained):
        argument = table.row.x if call is one_of else table
        for n in (1, 2, 3, 6, 7):
            expected, got = call.py_func(argument, n), call(argument, n)
            assert repr(got) == repr(expected)
            del expected, got
            before = [sys.getrefcount(x) for x in arrays], rtsys.get_allocation_stats()
            for _ in range(100):
                call(argument, n)
            after = [sys.getrefcount(x) for x in arrays], rtsys.get_allocation_stats()
            assert after[0] == before[0]
            assert after[1].mi_alloc - before[1].mi_alloc == after[1].mi_free - before[1].mi_free
    assert table.rows.sum() == 66.0


def test_rollouts_count_no_references() -> None:
    """(As numba has it they did in each round with fewer lanes than all, and of every array of the tables.)"""
    cmdp = garnet(n_states=5)
    tables = build_tables(cmdp)
    actions = build_actions(tables, np.full(cmdp.n_choices, 0.25))
    rng, choice, row = streams(0, 1)[0], np.full(20, -1), np.zeros(20, np.uint32)
    for options, counts in (({"pipeline_class": BorrowingCompiler}, False), ({}, True)):
        compiled = njit(**options)(rollouts.py_func)
        compiled(tables, actions, rng, choice, row, np.zeros((20, 2)), np.zeros(20, np.int64))
        (text,) = compiled.inspect_llvm().values()
        assert ("call void @NRT_incref" in text) == counts


def test_others_compile_as_before() -> None:
    """How numba compiles its own functions is exchanged while a kernel is compiled, and given back after an error."""
    usual = jit_registry[cpu_target]
    assert borrowing(lambda n: np.zeros(n).sum() + max(n, 2))(3) == 3.0
    with pytest.raises(TypingError):
        borrowing(lambda n: np.zeros(n).nothing)(3)
    assert jit_registry[cpu_target] is usual
    assert njit(lambda n: np.zeros(n).sum() + max(n, 2))(1) == 2.0
