"""kill -9 at many moments, and at the moments when files are made durable; a full disk. bench/sweep.py has more."""

from __future__ import annotations

import importlib.util
import random
import subprocess
from pathlib import Path

import pytest

from fastcmdp.sweep import Store

spec = importlib.util.spec_from_file_location("bench_sweep", Path(__file__).parents[1] / "bench" / "sweep.py")
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)


@pytest.fixture
def rng(request):
    """Moments of its own for each test, the same in every session: `bench/sweep.py kills` tries others."""
    return random.Random(request.node.name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Specification, and the digest of its rows without an interruption."""
    folder = tmp_path_factory.mktemp("kills")
    path = folder / "spec.toml"
    path.write_text(bench.small(runs=6, samples=3e6).to_toml())
    return path, bench.finish(path, folder / "whole")


@pytest.mark.parametrize(("engine", "times"), [("threads", 2), ("processes", 1), ("dask", 1)])
def test_a_killed_coordinator(engine, times, whole, rng, tmp_path):
    if engine == "dask":
        pytest.importorskip("distributed")
    path, right = whole
    for attempt in range(6):  # the moment is random: it may be after the end
        out = tmp_path / str(attempt)
        if bench.kill_coordinator(path, out, engine, times, rng)[0] > 0:
            break
    else:
        pytest.fail("no coordinator was killed before it had finished")
    assert bench.finish(path, out) == right
    assert not list((out / "aside").iterdir())


@pytest.mark.parametrize("engine", ["processes", "dask"])
def test_a_killed_worker(engine, whole, rng, tmp_path):
    if engine == "dask":
        pytest.importorskip("distributed")
    path, right = whole
    for attempt in range(6):  # the moment is random: it may be after the end
        out = tmp_path / str(attempt)
        killed = bench.kill_workers(path, out, engine, 1, rng)
        assert Store(out).digest() == right
        if killed == 1:
            return
    pytest.fail("no worker was killed before the sweep had finished")


@pytest.mark.parametrize("part", range(3))
def test_killed_where_a_file_is_made_durable(part, whole, rng, tmp_path):
    """Some of the calls of fsync and replace; those of the first part make the folder, later ones batches."""
    path, right = whole
    step = rng.randint(8 * part + 1, 8 * part + 8)
    command = bench.command(path, tmp_path / "out", script=bench.DYING, before=(str(step),))
    died = subprocess.run(command, capture_output=True, timeout=120).returncode
    assert died == -9 or part == 2, f"step {step}"
    assert bench.finish(path, tmp_path / "out") == right, f"step {step}"


def test_a_full_disk(whole, tmp_path):
    """A limit on the size of files does what a full disk does: writing fails somewhere within the file."""
    path, right = whole
    script = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from fastcmdp import sweep
spec, out, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
coordinator = sweep.coordinator
real = coordinator.Store.write_part
def full(self, table, meta):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    return real(self, table, meta)
coordinator.Store.write_part = full
sys.argv = ["fastcmdp"]
from fastcmdp.cli import main
sys.exit(main(["sweep", "run", spec, "--out", out, "--batch", "0.5", "--quiet"]))
"""
    import sys

    command = [sys.executable, "-c", script, str(path), str(tmp_path / "out"), "5000"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert made.returncode == 2, made.stderr
    assert "could not be written" in made.stderr
    assert "Free some space, then give the same command again" in made.stderr
    assert "Traceback" not in made.stderr
    parts = list((tmp_path / "out" / "parts").iterdir())
    assert not [p for p in parts if p.name.startswith(".")], "a torn file was left"
    assert bench.finish(path, tmp_path / "out") == right
    assert not list((tmp_path / "out" / "aside").iterdir())
