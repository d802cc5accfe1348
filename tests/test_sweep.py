"""Running sweeps: the same rows from every engine, a store that mends itself, failures kept, reports."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp import sweep as sweeps
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.cli import main
from fastcmdp.errors import SettingError
from fastcmdp.policies import TabularSoftmax
from fastcmdp.solve import resume, start
from fastcmdp.sweep import Algorithms, Models, Refused, Store, StoreError, Sweep, coordinator, prepare, worker
from fastcmdp.sweep.analysis import analyse, reaching
from fastcmdp.sweep.cells import Cell, cells
from fastcmdp.sweep.cost import Cost
from fastcmdp.sweep.report import report
from fastcmdp.sweep.rows import rows
from fastcmdp.sweep.tasks import plan
from fastcmdp.sweep.worker import trace_points

spec = importlib.util.spec_from_file_location("bench_sweep", Path(__file__).parents[1] / "bench" / "sweep.py")
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)


def small(**changes):
    """Twelve runs of a few milliseconds."""
    models = changes.pop(
        "models", [Models(generator="garnet", settings={"n_states": 5, "gamma": 0.8, "seed": [0, 1]})]
    )
    base = {"samples": [1e4, 1e5], "replicates": 3, "points": 6}
    return Sweep(models, changes.pop("algorithms", ["pd-anpg"]), **(base | changes))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished sweep; not to be changed."""
    path = tmp_path_factory.mktemp("sweeps") / "whole"
    sweeps.run(small(), path)
    return path


@pytest.fixture
def copy(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def scanned(path):
    store = Store(path)
    store.scan()
    return store


# engines


def test_processes_and_borrowed_executors_give_the_same_rows(whole, tmp_path):
    right = Store(whole).digest()
    sweeps.run(small(), tmp_path / "processes", "processes", workers=2, batch_seconds=0.1)
    assert Store(tmp_path / "processes").digest() == right
    with ThreadPoolExecutor(2) as pool:
        sweeps.run(small(), tmp_path / "pool", pool)
    assert Store(tmp_path / "pool").digest() == right
    sweeps.run(small(), tmp_path / "two", threads=2, workers=1)
    assert Store(tmp_path / "two").digest() == right
    sweeps.run(small(seed=1), tmp_path / "other")
    assert Store(tmp_path / "other").digest() != right


def test_dask_gives_the_same_rows_and_refuses_other_versions(whole, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None
    ) as cluster:
        sweeps.run(small(), tmp_path / "dask", "dask", scheduler=cluster.scheduler_address)
        assert Store(tmp_path / "dask").digest() == Store(whole).digest()
        with distributed.Client(cluster) as client:
            client.run(_pretend_another_version)
            with pytest.raises(Refused, match=r"another fastcmdp .*9\.9 there.*results would mix"):
                sweeps.run(small(seed=1), tmp_path / "mixed", client)
    assert not list((tmp_path / "mixed" / "parts").iterdir())


def _pretend_another_version():
    import fastcmdp

    fastcmdp.__version__ = "9.9"


def test_a_worker_refuses_a_batch_of_another_version():
    batch = worker.TaskBatch(worker.identity() | {"kernels": "other"}, ())
    with pytest.raises(Refused, match=r"kernels .* here, other at the coordinator"):
        worker.execute(batch)


def test_what_cannot_be_an_engine(tmp_path):
    with pytest.raises(SettingError, match="did you mean 'threads'"):
        sweeps.engine("thread")
    with pytest.raises(SettingError, match="workers = 0"):
        sweeps.engine("threads", workers=0)
    with pytest.raises(SettingError, match="goes with the engine 'dask'"):
        sweeps.engine("threads", scheduler="tcp://127.0.0.1:1")


def test_a_scheduler_that_cannot_be_reached(monkeypatch, capsys, tmp_path):
    pytest.importorskip("distributed")
    monkeypatch.setattr("fastcmdp.sweep.engines._REACH", 1)
    (tmp_path / "spec.toml").write_text(small().to_toml())
    arguments = ["sweep", "run", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out")]
    assert main([*arguments, "--engine", "dask", "--scheduler", "tcp://127.0.0.1:9"]) == 2
    assert "cannot be reached" in capsys.readouterr().err


# rows


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_rows_are_those_of_solve(name, tmp_path):
    """Replicates run together here, each from its own seed; alone they are the same, to the last bit."""
    spec = small(algorithms=[name], samples=[2e5], points=8, cap=3e7)
    made = sweeps.plan(spec)
    if not made.configurations:
        spec = small(algorithms=[name], samples=[2e6], points=8)
        made = sweeps.plan(spec)
    sweeps.run(spec, tmp_path / "out")
    table = Store(tmp_path / "out").read().to_pandas()
    made = made.configurations[0]
    of = ALGORITHMS[name]
    settings = of(**{k: tuple(v) if isinstance(v, list) else v for k, v in made.settings.items()})
    cmdp = made.model.build()
    for replicate in (0, 2):
        rows = table[(table.configuration == made.key) & (table.replicate == replicate)].sort_values("point")
        points = trace_points(settings.outer, 8)
        result = start(cmdp, settings, TabularSoftmax(), int(rows.seed.iloc[0]), 1, points)
        resume(result)
        assert not np.signbit(rows.violation).any()
        assert not np.signbit(rows.last_violation).any()
        assert rows.outer.tolist() == result.trace.outer.tolist()
        assert rows.samples.tolist() == result.trace.samples[0].tolist()
        np.testing.assert_array_equal(rows.diverged, result.failed[0])
        last = rows.iloc[-1]
        np.testing.assert_allclose(rows.last_reward, result.trace.reward[0], rtol=1e-9)
        np.testing.assert_allclose(last.reward, result.mixture.reward[0], rtol=1e-9)
        np.testing.assert_allclose(last.gap, result.gap[0], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(last.constraints, result.mixture.constraints[0], rtol=1e-9)
        np.testing.assert_allclose(last.violation, result.violation[0].max(), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(last.duals, result.mixture.duals[0], rtol=1e-9, atol=1e-12)


def test_error_is_in_kernel_units(tmp_path):
    """A model in other units has other gaps, and the same errors."""
    cmdp = fc.envs.garnet(n_states=5, gamma=0.8)
    rows = cmdp.transition_matrix().toarray().reshape(5, -1, 5)
    shape = rows.shape[:2]
    for scale in (1.0, 50.0):
        made = fc.CMDP.from_arrays(
            rows, scale * cmdp.reward.reshape(shape), scale * cmdp.costs.reshape(shape), gamma=0.8, start=cmdp.start,
            limits=scale * cmdp.limits, sense="<=",
        )  # fmt: skip
        fc.save(made, tmp_path / f"{scale:g}.npz")
        spec = small(models=[Models(file=str(tmp_path / f"{scale:g}.npz"))], samples=[1e5])
        sweeps.run(spec, tmp_path / f"out-{scale:g}")
    one, many = (Store(tmp_path / f"out-{s}").read().to_pandas().groupby("point") for s in ("1", "50"))
    first = one[["gap", "error", "samples"]].first().iloc[0]
    second = many[["gap", "error", "samples"]].first().iloc[0]
    assert second.gap == pytest.approx(50 * first.gap, rel=1e-9)
    scale = fc.load(tmp_path / "50.npz").reward_scale / fc.load(tmp_path / "1.npz").reward_scale
    assert scale == pytest.approx(50, rel=0.2)
    assert second.error == pytest.approx(first.error, rel=0.3)


def test_numbers_that_cease_to_be_finite_are_no_failure(tmp_path):
    wild = Algorithms("pd-anpg", {"eta": 1e308, "delta": 1e3})
    found = sweeps.run(small(algorithms=[wild], samples=[1e5]), tmp_path / "out")
    assert found.finished
    assert found.failed == 0
    table = Store(tmp_path / "out").read().to_pandas()
    assert (table.diverged >= 0).all()
    assert table[table.point == table.point.max()].reward.isna().all()
    assert table[table.point == 0].reward.notna().all()
    assert sweeps.run(small(algorithms=[wild], samples=[1e5]), tmp_path / "out").new == 0
    with pytest.raises(SettingError, match="all of them diverged"):
        report(tmp_path / "out")


def test_other_programs_read_the_folder(whole):
    ours = Store(whole).read()
    pandas, polars, duckdb = (pytest.importorskip(name) for name in ("pandas", "polars", "duckdb"))
    parts = whole / "parts"
    frame = pandas.read_parquet(parts)
    assert len(frame) == len(ours)
    assert set(frame.columns) == set(ours.column_names)
    other = polars.read_parquet(parts / "*.parquet")
    assert other.height == len(ours)
    (row,) = duckdb.sql(
        f"select count(*), count(distinct task), sum(samples) from '{parts}/*.parquet'"
    ).fetchall()
    assert row == (len(ours), 12, sum(ours["samples"].to_pylist()))
    assert other["samples"].sum() == frame.samples.sum() == row[2]


# the store


def test_the_same_again_does_nothing_and_a_folder_is_a_specification(copy):
    before = sorted(p.name for p in (copy / "parts").iterdir())
    assert sweeps.run(copy).new == 0
    assert sweeps.run(small(), copy).new == 0
    assert sorted(p.name for p in (copy / "parts").iterdir()) == before


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_part_is_set_aside_and_computed_again(whole, copy, damage):
    part = max((copy / "parts").iterdir(), key=lambda p: p.stat().st_size)
    data = bytearray(part.read_bytes())
    if damage == "flip":
        data[len(data) // 3] ^= 1
    part.write_bytes({"truncate": data[: len(data) // 2], "flip": data, "empty": b""}[damage])
    assert sweeps.status(copy).done < 12
    assert not part.exists()
    assert len(list((copy / "aside").iterdir())) == 1
    found = sweeps.run(small(), copy)
    assert 0 < found.new < 12
    assert Store(copy).digest() == Store(whole).digest()


def test_rows_that_two_sessions_wrote_count_once(copy):
    store = scanned(copy)
    table, right = store.read(), store.digest()
    other = Store(copy)
    other.claims.lock = _no_lock  # as on a file system without locks
    other.scan = lambda: set()  # and before this one saw the other's part
    other.write_part(table.cast(sweeps.store.SCHEMA).slice(0, len(table) // 2), {})
    assert len(Store(copy).read()) == len(table)
    assert Store(copy).digest() == right
    assert sweeps.status(copy).done == 12
    assert [len(cell.gap) for cell in cells(Store(copy))] == [len(cell.gap) for cell in cells(store)]
    # A part all of whose rows stand elsewhere has nothing to tell.
    other.write_part(table.cast(sweeps.store.SCHEMA), {})
    assert [len(cell.gap) for cell in cells(Store(copy))] == [len(cell.gap) for cell in cells(store)]


def test_a_report_is_about_the_plan_not_about_all_that_is_stored(copy):
    """After an extension with other trace points or another seed, rows of the old plan stay, and count no more."""
    right = [cell.gap.shape for cell in cells(Store(copy))]
    for change in ({"points": 5}, {"seed": 7}):
        sweeps.run(small(**change), copy, extend=True)
        assert [cell.gap.shape[0] for cell in cells(Store(copy))] == [shape[0] for shape in right]
    assert Store(copy).read().num_rows > 12


def _no_lock():
    import contextlib

    return contextlib.nullcontext()


def test_tasks_under_way_elsewhere_are_left_alone(whole, tmp_path):
    """Two coordinators at once: between them every task once."""
    found = []

    def run():
        found.append(sweeps.run(small(replicates=12), tmp_path / "two", workers=1, batch_seconds=0.05))

    sweeps.run(small(replicates=3), tmp_path / "two")  # so that both find the folder
    with pytest.raises(SettingError, match="replicates: was 3, is 12"):
        run()
    prepare.prepare(small(replicates=12), Store(tmp_path / "two"), True, lambda _: None)
    both = [threading.Thread(target=run) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert sum(status.new for status in found) == 36
    store = scanned(tmp_path / "two")
    assert sum(len(tasks) for tasks in store.parts.values()) == len(store.done) == 48


@pytest.mark.parametrize("end", ["given up", "killed"])
def test_claims_hold_as_long_as_their_session_lives(end, tmp_path):
    path = tmp_path / "out"
    made = prepare.prepare(small(), Store(path), False, lambda _: None)
    script = f"""
import sys, time
from fastcmdp.sweep import Store
store = Store({str(path)!r})
store.claims.begin({{}})
claim = store.claims.claim({made.name[4:7].tolist()!r})
print("claimed", flush=True)
sys.stdin.read()
store.claims.release(claim)
time.sleep(100)
"""
    other = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    seen, found = [], []
    thread = threading.Thread(
        target=lambda: found.append(sweeps.run(small(), path, progress=lambda state: seen.append(state.done)))
    )
    try:
        assert other.stdout.readline() == b"claimed\n"
        thread.start()
        while seen.count(9) < 2:  # nine are done, and for a second nothing more
            assert thread.is_alive()
            assert max(seen, default=0) <= 9
            time.sleep(0.05)
        assert len(scanned(path).done) == 9
        if end == "given up":
            other.stdin.close()
        else:
            other.kill()
            other.wait()
        thread.join(timeout=60)
        assert found[0].new == 12
    finally:
        other.kill()
        other.wait()
        other.stdin.close()
        other.stdout.close()


def test_an_extension_adds_and_keeps(whole, copy):
    before = set(scanned(copy).done)
    with pytest.raises(SettingError, match=r"samples: was \[10000.0, 100000.0\], is \[100000.0, 200000.0\]"):
        sweeps.run(small(samples=[1e5, 2e5]), copy)
    found = sweeps.run(small(samples=[1e5, 2e5]), copy, extend=True)
    assert (found.tasks, found.done, found.new) == (12, 12, 6)
    assert before < scanned(copy).done
    assert (copy / "spec-1.toml").exists()
    assert sweeps.loads((copy / "spec.toml").read_text()) == small(samples=[1e5, 2e5])


def test_a_model_file_that_changed_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    fc.save(fc.envs.garnet(n_states=5, gamma=0.8), path)
    spec = small(models=[Models(file=str(path))])
    sweeps.run(spec, tmp_path / "out")
    fc.save(fc.envs.garnet(n_states=5, gamma=0.8, seed=3), path)
    with pytest.raises(SettingError, match=r"model\.npz has changed since the sweep began"):
        sweeps.run(spec, tmp_path / "out")
    path.unlink()
    with pytest.raises(SettingError, match="put it back"):
        sweeps.run(spec, tmp_path / "out")


def test_a_model_that_changes_under_way_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    fc.save(fc.envs.garnet(n_states=5, gamma=0.8, seed=4), path)
    made = sweeps.plan(small(models=[Models(file=str(path))])).configurations[0]
    fc.save(fc.envs.garnet(n_states=5, gamma=0.8, seed=5), path)
    group = worker.Group(made.model, made.fingerprint, made.algorithm, made.settings, 2, (0,))
    with pytest.raises(Refused, match="has changed since the sweep began"):
        worker.execute(worker.TaskBatch(worker.identity(), (group,)))


def test_folders_that_will_not_do(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(SettingError, match="not empty"):
        sweeps.run(small(), tmp_path / "mine")
    with pytest.raises(SettingError, match="no sweep here"):
        sweeps.status(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises((SettingError, StoreError)):
        sweeps.run(small(), tmp_path / "file")


def test_nothing_is_made_where_the_engine_will_not_do(tmp_path):
    for bad in ({"workers": 0}, {"engine": "thread"}, {"engine": 3}, {"scheduler": "tcp://127.0.0.1:1"},
                {"threads": 1.5}, {"batch_seconds": "x"}):  # fmt: skip
        with pytest.raises(SettingError):
            sweeps.run(small(), tmp_path / "out", **bad)
    with pytest.raises(SettingError, match="a Sweep is expected"):
        sweeps.run({"models": []}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_two_sessions_may_begin_one_folder(monkeypatch, whole, tmp_path):
    """The second finds no manifest, plans, and meets the folder that the first has made meanwhile."""
    path, real, first = tmp_path / "out", prepare.plan, []

    def slow(*given):
        made = real(*given)
        monkeypatch.setattr(prepare, "plan", real)
        sweeps.run(small(), path)
        first.append(os.stat(path / "manifest.json").st_ino)
        return made

    monkeypatch.setattr(prepare, "plan", slow)
    assert sweeps.run(small(), path).finished
    assert [os.stat(path / "manifest.json").st_ino] == first
    assert Store(path).digest() == Store(whole).digest()


def test_what_is_no_file_of_ours_does_no_harm(whole, copy):
    """A folder among the parts, JSON of other shapes, a session on another machine touched years ahead."""
    Store(copy).check()
    (copy / "parts" / "folder.parquet").mkdir()
    shutil.copy(copy / "plan.parquet", copy / "parts" / "plan.parquet")
    min(path for path in (copy / "parts").glob("*.parquet") if path.is_file()).unlink()
    tasks = [name.decode() for name in Store(copy).plan().name]
    for name, body in (
        ("sessions/number.json", 3), ("sessions/far.json", {"host": "elsewhere"}), ("claims/far.1.json", tasks),
        ("claims/number.1.json", 3), ("claims/numbers.1.json", [3, None]), ("failures/a.json", 3),
        ("failures/b.json", [3]), ("failures/c.json", [{"task": 3}]),
        ("sessions/near.json", {"host": "elsewhere"}), ("claims/near.1.json", 3), ("claims/near.2.json", [3, None]),
    ):  # fmt: skip
        (copy / name).write_text(json.dumps(body))
    ahead = time.time() + 1e8
    os.utime(copy / "sessions" / "far.json", (ahead, ahead))
    assert sweeps.status(copy).running == ["near"]
    assert sweeps.run(copy).finished
    assert Store(copy).digest() == Store(whole).digest()


def test_a_store_that_is_not_whole_says_so(copy):
    (copy / "plan.parquet").unlink()
    with pytest.raises(fc.ModelError, match=r"plan\.parquet is missing"):
        sweeps.status(copy)
    assert sweeps.run(copy).finished
    (copy / "spec.toml").unlink()
    with pytest.raises(fc.ModelError, match=r"spec\.toml is missing"):
        sweeps.run(copy)
    (copy / "manifest.json").write_text("3")
    with pytest.raises(fc.ModelError, match=r"manifest\.json: damaged \(no JSON object"):
        sweeps.status(copy)
    for call in ("read", "digest", "plan"):
        with pytest.raises(SettingError, match="no sweep here"):
            getattr(Store(copy / "nowhere"), call)()


def test_the_functions_of_the_package(whole, tmp_path):
    made = sweeps.report(whole, tmp_path, epsilon=0.5)
    assert isinstance(made, sweeps.Report)
    assert {r.epsilon for r in sweeps.analyse(whole, np.array([0.5])).reached} == {0.5}
    with pytest.raises(SettingError, match="did you mean 'error'"):
        Store(whole).read(["eror"])
    pq = pytest.importorskip("pyarrow.parquet")
    kinds = {field.name: str(field.type) for field in pq.read_schema(whole / "plan.parquet")}
    assert (kinds["epsilon"], kinds["budget"]) == ("double", "double")  # whether or not there are any
    lines = (tmp_path / "ends.csv").read_text().splitlines()
    ends = {tuple(line.split(",")[1:5]): line.split(",") for line in lines[1:]}
    assert len(ends) == len(Store(whole).plan().configurations)
    head = [name.strip('"') for name in lines[0].split(",")]
    for cell in cells(Store(whole)):
        row = ends[f'"{cell.model}"', repr(cell.gamma), "", f"{cell.budget:.0f}"]
        found = dict(zip(head, row, strict=True))
        assert float(found["error"]) == cell.error()[-1]
        assert float(found["error"]) == pytest.approx(
            max(float(found["gap"]), float(found["violation"])), rel=1e-12
        )
        assert float(found["samples"]) == cell.samples[-1]


def test_failures_and_damage_are_told_once_each(capsys, tmp_path):
    spec = small(
        models=[Models(generator="garnet", settings={"n_states": 5, "limit": [0.0, 4.5]})], samples=[1e4]
    )
    (tmp_path / "spec.toml").write_text(spec.to_toml())
    folder = tmp_path / "out"
    assert main(["sweep", "run", str(tmp_path / "spec.toml"), "--out", str(folder), "-q"]) == 1
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("failed: ")]
    assert len(told) == 1
    assert "samples 10000: " in told[0]
    assert "no policy meets the constraints" in told[0]
    assert told[0].endswith("(3 runs)")
    part = next((folder / "parts").iterdir())
    os.truncate(part, 100)
    main(["sweep", "status", str(folder)])
    assert (
        f"a part was damaged, and its tasks are computed again by `sweep run`: {part.stem}"
        in capsys.readouterr().out
    )


def test_no_permission_to_write(tmp_path):
    """Root may write anywhere but in /sys."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    place = Path("/sys/kernel") if os.geteuid() == 0 else closed
    with pytest.raises(StoreError, match=r"no folder can be made.*choose another folder"):
        sweeps.run(small(), place / "out")


# failures


def test_a_failed_task_is_kept_and_tried_again(monkeypatch, capsys, tmp_path):
    real = worker.run_all

    def failing(problem, settings, seeds, *rest):
        if settings.outer > 100 and problem.model.fingerprint() == first:
            raise ZeroDivisionError("of course")
        return real(problem, settings, seeds, *rest)

    first = sweeps.plan(small()).configurations[0].fingerprint
    monkeypatch.setattr(worker, "run_all", failing)
    (tmp_path / "spec.toml").write_text(small().to_toml())
    arguments = ["sweep", "run", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--json"]
    assert main(arguments) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["failed"] + told["done"] == 12
    assert told["failed"] in (3, 6)
    failure = told["failures"][0]
    assert "ZeroDivisionError: of course" in failure["traceback"]
    assert failure["inputs"]["model"].startswith("env:garnet")
    assert failure["inputs"]["seed"] > 0
    assert main(["sweep", "status", str(tmp_path / "out")]) == 0
    assert "ZeroDivisionError: of course" in capsys.readouterr().out
    monkeypatch.setattr(worker, "run_all", real)
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["failed"], told["done"]) == (0, 12)
    assert told["new"] in (3, 6)
    assert not list((tmp_path / "out" / "failures").iterdir())


class Box:
    def __init__(self, batch):
        self.batch = batch


class Deadly:
    """An engine whose worker dies whenever it gets one of these seeds."""

    name, slots = "deadly", 1

    def __init__(self, seeds):
        self.seeds, self.deaths = seeds, 0

    def submit(self, batch):
        return Box(batch)

    def as_completed(self, futures, timeout):
        return iter(list(futures)[:1])

    def outcome(self, box):
        batch = box.batch
        if any(seed in self.seeds for group in batch.groups for seed in group.seeds):
            self.deaths += 1
            raise sweeps.engines.WorkerDied
        return worker.execute(batch)

    def close(self):
        pass


def test_a_task_that_kills_its_worker_is_found_and_the_others_go_on(monkeypatch, tmp_path):
    deadly = Deadly({int(sweeps.plan(small()).seed[5])})
    monkeypatch.setattr(coordinator, "choose_engine", lambda *_: deadly)
    found = sweeps.run(small(), tmp_path / "out")
    assert (found.done, found.failed) == (11, 1)
    assert "died 3 times" in found.failures[0].traceback
    assert deadly.deaths >= 3
    deadly.seeds = set()
    assert sweeps.run(small(), tmp_path / "out").new == 1


# the command line, reports


def test_dry_run_status_and_report_as_json(whole, capsys, tmp_path):
    (tmp_path / "spec.toml").write_text(small().to_toml())
    assert main(["sweep", "run", str(tmp_path / "spec.toml"), "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["tasks"], told["configurations"]) == (12, 4)
    assert told["transitions"] == pytest.approx(6 * 1.1e5, rel=0.05)
    assert told["seconds"] > 0
    assert main(["sweep", "status", str(whole), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 12
    assert main(["sweep", "report", str(whole), "--out", str(tmp_path / "report"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["exponents"][0]["claimed"] == 2.0
    assert set(told["files"]) >= {"html", "samples_csv", "exponents_png", "curves_svg"}
    assert all(Path(path).stat().st_size > 40 for path in told["files"].values())
    assert main(["sweep", "run", str(tmp_path / "spec.toml")]) == 2
    assert "--out DIR is missing" in capsys.readouterr().err


def test_reaching_is_from_there_on():
    samples = np.array([0.0, 10.0, 100.0, 1000.0, 10_000.0])
    errors = np.array([
        [1.0, 0.4, 0.8, 0.2, 0.1],  # below, above again: only the second time counts
        [1.0, 0.9, 0.8, 0.7, 0.6],  # never
        [0.3, 0.2, 0.2, 0.2, 0.2],  # from the start
        [1.0, 0.4, 0.3, 0.2, 0.9],  # not to the end
    ])  # fmt: skip
    found = reaching(samples, errors, 0.5)
    assert 100 < found[0] < 1000
    assert found[0] == pytest.approx(100 * 10 ** (math.log(0.8 / 0.5) / math.log(0.8 / 0.2)))
    assert math.isnan(found[1])
    assert math.isnan(found[3])
    assert found[2] == 0.0


def made_up(tmp_path, exponent, noise=0.02, budgets=False):
    """A store of made-up results: error = (1000 c_model / n)^(1/exponent), schedules ten times what that takes."""
    import pyarrow as pa

    epsilon = [] if budgets else [0.4, 0.2, 0.1, 0.05]
    spec = small(
        models=[Models(generator="garnet", settings={"n_states": 5, "gamma": 0.8, "seed": [0, 1, 2]})],
        epsilon=epsilon, samples=[1e4, 1e5, 1e6] if budgets else [], replicates=4,
    )  # fmt: skip
    store = Store(tmp_path / "out")
    made = prepare.prepare(spec, store, False, lambda _: None)
    rng = np.random.default_rng(0)
    tables = []
    for i, each in enumerate(made.configurations):
        tasks = np.flatnonzero(made.owner == i)
        c = 1.0 + 3.0 * int(each.model.label[-1])
        total = each.budget or 1e4 * c * each.epsilon**-exponent
        samples = np.geomspace(total * 1e-3, total, 12).astype(np.int64)[None].repeat(4, axis=0)
        error = (1000 * c / samples) ** (1 / exponent) * rng.lognormal(0, noise, (4, 1))
        value = np.stack([10 - error, 1 - error / 2], axis=2)
        tables.append(rows(each, made, tasks, bench.made_up(np.arange(12), samples, value)))
    store.write_part(pa.concat_tables(tables), {})
    return store


@pytest.mark.parametrize("exponent", [2.0, 6.0])
@pytest.mark.parametrize("budgets", [False, True])
def test_known_exponents_are_found(tmp_path, exponent, budgets):
    """Noise of 2 % a run; the interval is 95 % of a bootstrap over 12 runs, so it is asked to be near, not to cover."""
    found = analyse(made_up(tmp_path, exponent, budgets=budgets))
    (fit,) = found.exponents
    assert fit.exponent == pytest.approx(exponent, abs=0.1 * exponent)
    assert fit.low <= fit.exponent <= fit.high
    assert fit.high - fit.low < 0.3 * exponent
    assert fit.ends == pytest.approx(exponent, abs=0.1 * exponent)
    assert fit.points == fit.asked
    if not budgets:
        for row in found.reached:
            assert row.samples == pytest.approx(row.scheduled / 10, rel=0.5)
            assert row.low <= row.samples <= row.high


def test_error_is_of_the_mean_over_replicates(tmp_path):
    """Gaps +1 and -1, slacks -1 and +3: the mean misses nothing and has no gap, each run alone has."""
    gap, slack = np.array([[1.0], [-1.0]]), np.array([[[-1.0]], [[3.0]]])
    cell = Cell("a", "a", "m", 0.9, 1.0, None, False, np.array([10.0]), gap, slack)
    assert cell.error().tolist() == [0.0]
    assert cell.error(np.array([[1.0, 0.0], [0.0, 1.0]]))[:, 0].tolist() == [1.0, 0.0]
    worse = Cell("a", "a", "m", 0.9, 1.0, None, False, np.array([10.0]), gap, slack - 2.5)
    assert worse.error().tolist() == [1.5]


def test_cells_are_the_rows(whole):
    store = Store(whole)
    table = store.read().to_pandas()
    for cell, made in zip(cells(store), store.plan().configurations, strict=True):
        rows = table[table.configuration == made.key].sort_values(["replicate", "point"])
        assert sorted(cell.gap[:, -1]) == sorted(rows.groupby("replicate").kernel_gap.last())
        means = rows.groupby("point")[["samples", "kernel_gap"]].mean()
        np.testing.assert_allclose(cell.samples, means.samples)
        np.testing.assert_allclose(cell.gap.mean(axis=0), means.kernel_gap)


def chromium():
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


PROBE = """
<script>
const texts = () => [...document.querySelectorAll("#samples tbody tr")].map(row => row.cells[3].textContent);
const images = [...document.images];
Promise.all(images.map(image => image.decode())).then(() => {
  const before = texts();
  const head = document.querySelectorAll("#samples th button")[3];
  head.click(); const up = texts();
  head.click(); const down = texts();
  document.title = "PROBED " + JSON.stringify({
    before, up, down, sorted: head.parentElement.getAttribute("aria-sort"),
    widths: images.map(image => image.naturalWidth), shown: images.map(image => image.getBoundingClientRect().height),
    outside: performance.getEntriesByType("resource").map(entry => entry.name)
      .filter(name => !name.startsWith("data:")),
    overflow: document.documentElement.scrollWidth > window.innerWidth,
    tables: document.querySelectorAll("table").length, pre: document.querySelector("pre").textContent.length,
  });
});
</script>
"""


def test_the_page_in_a_browser(tmp_path):
    browser = chromium()
    if browser is None:
        pytest.skip("no chromium here: the page was not looked at in a browser")
    store = made_up(tmp_path, 2.0)
    made = report(store.path)
    text = Path(made.files["html"]).read_text()
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    (tmp_path / "probe.html").write_text(text.replace("</body>", PROBE + "</body>"))
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom",
        "--window-size=1300,900", f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "probe.html").as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | {"HOME": str(tmp_path)}
    )
    (title,) = [line for line in dom.stdout.splitlines() if "<title>PROBED" in line] or [dom.stdout[:500]]
    import html

    found = json.loads(html.unescape(title.split("PROBED ", 1)[1].split("</title>")[0]))
    numbers = [float(text) for text in found["up"]]
    assert len(numbers) == 12
    assert numbers == sorted(numbers)
    assert found["before"] != found["up"]
    assert found["down"] == found["up"][::-1]
    assert found["sorted"] == "descending"
    assert found["outside"] == []
    assert len(found["widths"]) == 2
    assert min(found["widths"]) > 300
    assert min(found["shown"]) > 100
    assert not found["overflow"]
    assert found["tables"] == 2
    assert found["pre"] > 50


def test_the_shortest_run_tells_of_the_longest() -> None:
    """Outer steps of one transition take the time of an outer step: no rate a transition for all targets."""
    made = plan(Sweep("env:garnet", "crpo", epsilon=[3.0, 0.7], cap=1e9)).configurations

    def truth(each: sweeps.tasks.Configuration) -> float:
        return 5e-8 * each.samples + 4e-6 * each.settings["outer"]

    coarse, fine = sorted(made, key=lambda each: each.samples)
    cost = Cost(made)
    kind = next(iter(cost.kinds))
    seen = {"kind": kind, "kernels": truth(coarse), "other": 0.0, "runs": 1}
    cost.learn([seen | {"work": cost.work[made.index(coarse)]}])
    told = cost.seconds()[made.index(fine)]
    assert truth(coarse) / coarse.samples > 10 * truth(fine) / fine.samples
    assert truth(fine) / 3 < told < 3 * truth(fine)
