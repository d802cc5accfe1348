"""Merged parts: the same rows to the bit, also after a kill, read while under way, or met by sessions that go on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastcmdp import sweep as sweeps
from fastcmdp.sweep import Models, Store, Sweep, batches, compaction, coordinator
from fastcmdp.sweep.batches import Batches
from fastcmdp.sweep.cells import cells
from fastcmdp.sweep.cost import Cost
from fastcmdp.sweep.parquet import parquet_bytes
from fastcmdp.sweep.rows import SCHEMA
from fastcmdp.sweep.tasks import plan

# In one process, for each durable step: a copy of the folder, and a fork that dies of SIGKILL there while it merges.
DYING = """
import os, shutil, signal, sys
from fastcmdp.sweep import compact
folder, copies = sys.argv[1:]
calls = {name: getattr(os, name) for name in ("fsync", "replace", "unlink")}
def dying(call, left):
    def wrapped(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return wrapped
for step in range(1, 100):
    path = f"{copies}/{step}"
    shutil.copytree(folder, path)
    if (child := os.fork()) == 0:
        left = [step]
        for name, call in calls.items():
            setattr(os, name, dying(call, left))
        compact(path)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


def small(replicates=3):
    """Runs of a few milliseconds, on two models with two targets."""
    models = [Models(generator="garnet", settings={"n_states": 5, "gamma": 0.8, "seed": [0, 1]})]
    return Sweep(models, ["pd-anpg"], samples=[1e4, 1e5], replicates=replicates, points=6)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished sweep with a part for each of its twelve tasks; not to be changed."""
    path = tmp_path_factory.mktemp("compaction") / "whole"
    sweeps.run(small(), path, workers=1, batch_seconds=1e-9)
    assert len(parts(path)) >= 6
    return path


@pytest.fixture
def copy(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def parts(path):
    return sorted(entry.name for entry in (path / "parts").iterdir())


def state(path):
    """Rows, tasks done, and the cells of a report, with their bits."""
    told = [
        (c.model, c.budget, c.samples.tobytes(), c.gap.tobytes(), c.slack.tobytes())
        for c in cells(Store(path))
    ]
    return Store(path).digest(), sweeps.status(path).done, told


def batches_of(path):
    """What stands beside the rows of each batch, in any order."""
    store = Store(path)
    store.scan()
    return sorted(json.dumps(entry, sort_keys=True) for entry in store.metadata())


def test_merged_parts_hold_the_same_to_the_bit(whole, copy):
    fewer = sweeps.compact(copy)
    (name,) = parts(copy)
    assert fewer == len(parts(whole)) - 1
    assert state(copy) == state(whole)
    assert batches_of(copy) == batches_of(whole)
    table = pq.ParquetFile(copy / "parts" / name).read()
    assert table.schema.equals(SCHEMA)
    assert len(table) == len(Store(whole).read())
    assert sweeps.compact(copy) == 0
    assert sweeps.run(copy).new == 0


def test_several_groups_and_parts_beside_merged_ones(whole, copy, monkeypatch):
    """With bounds of a part's size: several merged ones, each of some; what is large already stays as it is."""
    size = max(entry.stat().st_size for entry in (copy / "parts").iterdir())
    monkeypatch.setattr(compaction, "LARGE", 3 * size)
    monkeypatch.setattr(compaction, "SMALL", size + 1)
    monkeypatch.setattr(compaction, "_TOGETHER", 2)
    sweeps.compact(copy)
    assert 1 < len(parts(copy)) < len(parts(whole))
    assert state(copy) == state(whole)
    assert sweeps.run(small(replicates=4), copy, extend=True, batch_seconds=1e-9).new == 4
    assert sweeps.status(copy).done == 16


def test_killed_at_each_durable_step(whole, tmp_path):
    """Two of fsync, one of replace, then a removal for each part: nothing is lost, and nothing counts twice."""
    command = [sys.executable, "-c", DYING, str(whole), str(tmp_path)]
    subprocess.run(command, check=True, timeout=120)
    right, n = state(whole), len(parts(whole))
    copies = sorted(tmp_path.iterdir(), key=lambda path: int(path.name))
    assert len(copies) == 3 + n + 1
    for path in copies:
        doubled = [name for name in parts(path) if name in parts(whole)]
        assert state(path) == right, f"step {path.name}"
        assert sweeps.run(path).new == 0
        sweeps.compact(path)
        (name,) = [name for name in parts(path) if not name.startswith(".")]
        assert len(pq.ParquetFile(path / "parts" / name).read()) == len(Store(whole).read())
        assert state(path) == right, f"step {path.name}, {len(doubled)} parts were left"


def test_what_a_large_part_has_is_left_out(whole, copy, monkeypatch):
    """Killed before the removal, and the new part is too large to be merged again; two parts came later."""
    for name in parts(whole)[-2:]:
        (copy / "parts" / name).unlink()
    sweeps.compact(copy)
    for name in parts(whole):
        shutil.copy(whole / "parts" / name, copy / "parts" / name)
    monkeypatch.setattr(compaction, "SMALL", 1 + max(p.stat().st_size for p in (whole / "parts").iterdir()))
    assert sweeps.compact(copy) == len(parts(whole)) - 1
    assert len(parts(copy)) == 2
    assert state(copy) == state(whole)
    rows = [pq.ParquetFile(copy / "parts" / name).metadata.num_rows for name in parts(copy)]
    assert sum(rows) == len(Store(whole).read())


def test_parts_that_are_merged_while_they_are_read(whole, copy):
    pieces = Store(copy).pieces()
    tables = [next(pieces)]
    sweeps.compact(copy)
    tables += list(pieces)
    names = [name for table in tables for name in set(table["task"].to_pylist())]
    assert len(names) == len(set(names)) == 12
    assert sum(map(len, tables)) == len(Store(whole).read())


def test_another_session_goes_on_over_merged_parts(whole, copy):
    """One that looked before the merge writes nothing twice, and counts nothing as gone."""
    store = Store(copy)
    store.scan()
    table = Store(whole).read().cast(SCHEMA)
    sweeps.compact(copy)
    assert store.write_part(table, {}) == set()
    assert len(store.done) == 12
    assert len(store.parts) == 1


def test_parts_of_another_version_stay(whole, copy):
    table = (
        Store(whole).read().cast(SCHEMA).drop_columns(["duals"]).replace_schema_metadata({"fastcmdp": "{}"})
    )
    data = parquet_bytes(table.set_column(0, "task", pa.array([f"old {i}" for i in range(len(table))])))
    store = Store(copy)
    with store.claims.lock():
        old = store._put(data, {b"old"})
    sweeps.compact(copy)
    assert old in parts(copy)
    assert len(parts(copy)) == 2


def test_a_damaged_part_is_set_aside_by_the_merge(whole, copy):
    store = Store(copy)
    store.scan()
    broken = copy / "parts" / parts(copy)[0]
    lost = store.parts[broken.name]
    broken.write_bytes(broken.read_bytes()[:-9])
    compaction.compact_store(store, 2)
    assert len(os.listdir(copy / "aside")) == 1
    assert len(parts(copy)) == 1
    assert sweeps.status(copy).done == 12 - len(lost)
    assert sweeps.run(copy).new == len(lost)
    assert state(copy) == state(whole)


def test_a_sweep_merges_as_it_goes(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "MANY", 4)
    status = sweeps.run(small(), tmp_path / "out", workers=1, batch_seconds=1e-9)
    assert status.new == 12
    assert len(parts(tmp_path / "out")) < 4 + 3
    assert len(parts(tmp_path / "out")) < len(parts(whole))
    assert state(tmp_path / "out") == state(whole)


def test_a_sweep_that_goes_on_removes_what_a_killed_merge_left(whole, copy):
    sweeps.compact(copy)
    for name in parts(whole):
        shutil.copy(whole / "parts" / name, copy / "parts" / name)
    sweeps.run(small(replicates=4), copy, extend=True, workers=1)
    store = Store(copy)
    store.scan()
    assert sum(map(len, store.parts.values())) == len(store.done) == 16


@pytest.mark.parametrize("claimed", [[], [0, 5, 11]])
def test_every_task_is_handed_out_once_however_few_are_looked_at(claimed, monkeypatch):
    monkeypatch.setattr(batches, "AHEAD", 2)
    tasks = plan(small())
    waiting = Batches(tasks, Cost(tasks.configurations), np.arange(len(tasks)), 60.0)
    waiting.cost.learn(
        [{"kind": kind, "kernels": 1.0, "work": 1e6, "other": 0.1, "runs": 1} for kind in waiting.cost.kinds]
    )
    waiting.sort()
    taken = []
    while (batch := waiting.take(2, claimed, set())).size:
        taken += batch.tolist()
        assert batch.size <= 2
        assert waiting.left().sum() == waiting.waiting.size == 12 - len(taken)
    assert sorted(taken) == sorted(set(range(12)) - set(claimed))
