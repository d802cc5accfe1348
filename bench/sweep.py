"""What sweeps must stand and what they may cost: `python bench/sweep.py kills|overhead|plan|rehearsal|runs
[--help]`.

kills     kill -9 of the coordinator at random moments and at every durable step of it, of process workers, of Dask
          workers; a full disk; a truncated part; two coordinators at once. The store must equal an uninterrupted run.
overhead  share of a worker's time, in batches of 30 s, that is not spent in kernels.
plan      100,000 tasks: planned, resumed, reported; seconds and peak memory.
rehearsal 1,000,000 tasks: planned, run as no-ops on Dask with 4 workers, killed midway, resumed, compacted, reported.
runs      a sweep of 2,000 runs on 20-state garnets, K = 1000, H = 50, gamma 0.9, on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from fastcmdp import sweep as sweeps
from fastcmdp.algorithms.base import Output
from fastcmdp.runs import new_record
from fastcmdp.sweep import Algorithms, Models, Sweep, worker
from fastcmdp.sweep.store import Store

MAIN = "import sys; from fastcmdp.cli import main; sys.exit(main())"
# Dies of SIGKILL at the n-th call of something that makes a file durable: what a power cut would do, without its luck.
DYING = """
import os, signal, sys
left = int(sys.argv.pop(1))
def dying(call):
    def wrapped(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return wrapped
os.fsync, os.replace = dying(os.fsync), dying(os.replace)
from fastcmdp.cli import main
sys.exit(main())
"""


def small(runs: int = 16, samples: float = 6e6) -> Sweep:
    """A sweep of a few dozen runs of a tenth of a second."""
    models = [Models(generator="garnet", settings={"n_states": [10], "gamma": [0.9], "seed": [0, 1]})]
    return Sweep(models, ["pd-anpg"], samples=[samples / 4, samples], replicates=runs)


def command(spec: Path, out: Path, *more: str, script: str = MAIN, before: tuple[str, ...] = ()) -> list[str]:
    """A `sweep run` in a process of its own."""
    return [
        sys.executable, "-c", script, *before, "sweep", "run", str(spec), "--out", str(out), "--batch", "0.5",
        "--workers", "2", "--quiet", *more,
    ]  # fmt: skip


def children(process: int) -> list[int]:
    """Processes below one, their command lines those of workers."""
    parents, stats = {process}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                stats[int(entry.name)] = (
                    int((entry / "stat").read_text().rpartition(")")[2].split()[1]),
                    (entry / "cmdline").read_text(),
                )
    for _ in range(4):
        parents |= {child for child, (parent, _) in stats.items() if parent in parents}
    return [child for child in parents - {process} if "spawn_main" in stats[child][1]]


def finish(spec: Path, out: Path, *more: str) -> str:
    """Run to the end; the digest of the rows."""
    made = subprocess.run(command(spec, out, *more), capture_output=True, text=True, timeout=600)
    if made.returncode != 0:
        raise SystemExit(f"exit code {made.returncode}: {made.stderr}")
    return Store(out).digest()


def kill_coordinator(spec: Path, out: Path, engine: str, times: int, rng: random.Random) -> tuple[int, int]:
    """Kill the coordinator so many times after random waits; how often it died of that, and tasks stored by then."""
    killed = 0
    for _ in range(times):
        process = subprocess.Popen(
            command(spec, out, "--engine", engine), start_new_session=True, stderr=subprocess.DEVNULL
        )
        own = f"*.{rng.randint(1, 4)}.json"  # from its so-many-th claim on
        while process.poll() is None and not claimed_by(process.pid, out, own):
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 0.4))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
    return killed, len(Store(out).scan()) if out.exists() else 0


def claimed_by(process: int, out: Path, pattern: str) -> bool:
    """Whether the session of a process has made a claim of that name."""
    for claim in (out / "claims").glob(pattern):
        with contextlib.suppress(OSError, ValueError):
            session = json.loads((out / "sessions" / f"{claim.name.partition('.')[0]}.json").read_text())
            if session["process"] == process:
                return True
    return False


def kill_workers(spec: Path, out: Path, engine: str, times: int, rng: random.Random) -> int:
    """Kill workers at random moments while the coordinator goes on; how many died."""
    process = subprocess.Popen(command(spec, out, "--engine", engine), stderr=subprocess.DEVNULL)
    killed = 0
    until = time.monotonic() + 300
    due = math.inf  # set when work has begun
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
        busy = (out / "claims").is_dir() and any((out / "claims").iterdir())
        if busy and due == math.inf:
            due = time.monotonic() + rng.uniform(0.0, 1.0)
        below = children(process.pid) if busy and time.monotonic() > due else []
        if below and killed < times and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(below), signal.SIGKILL)
                killed += 1
            due = time.monotonic() + rng.uniform(1.0, 3.0)
    if process.wait() != 0:
        raise SystemExit(f"the coordinator ended with {process.returncode}")
    return killed


def kills(rounds: int, seed: int, only: str) -> None:
    """All that a sweep must stand."""
    rng = random.Random(seed)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        spec = root / "spec.toml"
        spec.write_text(small().to_toml())
        right = finish(spec, root / "whole")
        print(f"uninterrupted: {right}")

        def compare(what: str, out: Path) -> None:
            found = finish(spec, out)
            print(f"{'equal' if found == right else 'DIFFERENT'}: {what}", flush=True)
            if found != right:
                raise SystemExit(1)

        for engine in ("threads", "processes", "dask") if only in ("all", "random") else ():
            for i in range(rounds):
                out = root / f"coordinator-{engine}-{i}"
                killed, stored = kill_coordinator(spec, out, engine, 3, rng)
                compare(
                    f"coordinator killed {killed} times, {engine}; {stored} tasks were stored by then", out
                )
        for engine in ("processes", "dask") if only in ("all", "random") else ():
            for i in range(rounds):
                out = root / f"workers-{engine}-{i}"
                killed = kill_workers(spec, out, engine, 2, rng)
                compare(f"{killed} workers killed, {engine}", out)
        if only == "random":
            return
        step = 1
        while True:
            out = root / f"step-{step}"
            died = subprocess.run(command(spec, out, script=DYING, before=(str(step),))).returncode
            compare(f"killed at durable step {step}", out)
            if died == 0:
                break
            step += max(1, step // 4)
        full_disk(spec, root, compare)
        out = root / "truncated"
        finish(spec, out)
        for part in rng.sample(sorted((out / "parts").iterdir()), 2):
            os.truncate(part, rng.randrange(part.stat().st_size))
        compare("two parts truncated", out)
        assert len(list((out / "aside").iterdir())) == 2
        out = root / "two"
        both = [subprocess.Popen(command(spec, out)) for _ in range(2)]
        if any(process.wait() for process in both):
            raise SystemExit("one of two coordinators failed")
        compare("two coordinators at once", out)
        rows = sum(len(tasks) for tasks in scanned(out).parts.values())
        print(f"two coordinators: {rows} tasks in parts, none twice: {rows == len(scanned(out).done)}")


def scanned(out: Path) -> Store:
    """A store that has looked at its parts."""
    store = Store(out)
    store.scan()
    return store


def full_disk(spec: Path, root: Path, compare: object) -> None:
    """Run on a file system of 300 kB until it is full, make it larger, run again."""
    out = root / "full"
    out.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(out)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        print("skipped: full disk (no permission to mount)")
        return
    try:
        made = subprocess.run(command(spec, out / "sweep"), capture_output=True, text=True)
        print(f"full disk: exit code {made.returncode}, {made.stderr.strip().splitlines()[-1]}")
        assert made.returncode == 2
        assert "Free some space" in made.stderr
        subprocess.run(["mount", "-o", "remount,size=64m", str(out)], check=True)
        compare("the disk was full", out / "sweep")  # type: ignore[operator]
    finally:
        subprocess.run(["umount", str(out)], check=True)


def overhead(samples: float, batches: int) -> None:
    """Share of wall time outside of kernels, threads engine, batches of 30 s."""
    runs = max(int(batches * 30 / (samples * 1.5e-8)), 2)
    models = [Models(generator="garnet", settings={"n_states": [20], "gamma": [0.9], "seed": list(range(8))})]
    algorithm = Algorithms("pd-anpg", settings={"inner": 50})
    spec = Sweep(models, [algorithm], samples=[samples], replicates=max(runs // 8, 1))
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        sweeps.run(Sweep(models, [algorithm], samples=[1e5], replicates=1), Path(name) / "warm", workers=1)
        began = time.monotonic()
        found = sweeps.run(spec, out, workers=1, batch_seconds=30)
        wall = time.monotonic() - began
        meta = read_metadata(out)
        kernels = sum(entry["kernels"] for entry in meta)
        work = sum(entry["seconds"] for entry in meta)
        lengths = [round(entry["seconds"], 1) for entry in meta]
        print(
            f"{found.tasks} runs of {samples:.3g} transitions, one worker, {len(meta)} batches of {lengths} s"
        )
        print(f"wall {wall:.2f} s, in workers {work:.2f} s, in kernels {kernels:.2f} s")
        print(
            f"outside of kernels: {1 - kernels / wall:.2%} of wall time; coordinator alone {1 - work / wall:.2%}"
        )


def read_metadata(out: Path) -> list[dict[str, object]]:
    """What stands beside the rows of the parts."""
    return scanned(out).metadata()


def made_up(outer: np.ndarray, samples: np.ndarray, value: np.ndarray) -> worker.Runs:
    """Runs with J = value, float64[R, n, 2], at all points: the output is the last policy; the optimum has J_r = 10."""
    facts = {"gamma": 0.9, "limits": np.ones(1), "anchors": np.ones(1), "sense": ("<=",),
             "names": ("reward", "cost"), "reward_shift": 0.0,
             "reward_scale": 1.0, "constraint_scale": np.ones(1)}  # fmt: skip
    method = SimpleNamespace(output=Output(last=0.0))
    units = worker.bare_units(SimpleNamespace(**facts))
    record = new_record(method, units, outer, len(samples), exact=True, occupancies=False)
    record.samples[:], record.values[:], record.done = samples, value, len(outer)
    return worker.Runs(record, np.full(len(samples), -1), 10.0)


def plan(n_models: int, replicates: int) -> None:
    """Plan, store (with made-up results), resume and report 100,000 tasks."""
    import pyarrow as pa

    from fastcmdp.sweep.prepare import prepare
    from fastcmdp.sweep.progress import status
    from fastcmdp.sweep.report import report
    from fastcmdp.sweep.rows import rows

    models = [
        Models(generator="garnet", settings={"n_states": [20], "gamma": [0.9], "seed": list(range(n_models))})
    ]
    epsilons = [float(e) for e in np.geomspace(3, 0.3, 10)]
    spec = Sweep(models, ["pd-anpg"], epsilon=epsilons, replicates=replicates)
    clock: dict[str, float] = {}
    used: dict[str, float] = {}
    skipped = [time.process_time()]

    def timed(what: str, began: float) -> None:
        clock[what] = time.monotonic() - began
        used[what] = time.process_time() - sum(used.values()) - skipped[0]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{what}: {clock[what]:.1f} s ({used[what]:.1f} of a processor), peak {peak:.2f} GiB", flush=True
        )

    with tempfile.TemporaryDirectory() as name:
        store = Store(Path(name) / "out")
        began = time.monotonic()
        made = prepare(spec, store, False, lambda _: None)
        timed(f"planned {len(made):,} tasks", began)
        rng = np.random.default_rng(0)
        tables, first = [], 0
        began = time.monotonic()
        for i, each in enumerate(made.configurations):
            n, outer = 21, np.linspace(0, each.settings["outer"], 21).astype(np.int64)
            shape = (each.replicates, n)
            samples = np.broadcast_to((outer * each.samples / outer[-1]).astype(np.int64), shape)
            error = 20 * (1 + samples) ** -0.5 * rng.lognormal(0, 0.3, (each.replicates, 1))
            value = np.stack([10 - error, 1 - error], axis=2)
            tables.append(
                rows(each, made, np.arange(first, first + each.replicates), made_up(outer, samples, value))
            )
            first += each.replicates
            if len(tables) == 60 or i == len(made.configurations) - 1:
                store.write_part(pa.concat_tables(tables), {"observed": []})
                tables = []
        print(f"(made-up results stored in {time.monotonic() - began:.0f} s, not counted)")
        skipped[0] = time.process_time() - sum(used.values())
        parts = list((store.path / "parts").iterdir())
        size = sum(path.stat().st_size for path in parts) / 2**20
        print(f"{len(parts)} parts, {size:.0f} MiB")
        drop = parts[0]
        drop.unlink()
        began = time.monotonic()
        again = Store(store.path)
        made = prepare(spec, again, False, lambda _: None)
        again.scan()
        left = len(made) - len(again.done)
        timed(f"resumed, {left} tasks left", began)
        began = time.monotonic()
        found = status(store.path)
        timed(f"status, {found.done:,} done", began)
        began = time.monotonic()
        told = report(store.path)
        timed("reported", began)
        print(told.text())
        total, processor = (
            sum(seconds for what, seconds in taken.items() if not what.startswith("status"))
            for taken in (clock, used)
        )
        print(f"planned, resumed and reported: {total:.1f} s ({processor:.1f} of a processor)")


def runs(n: int, engine: str) -> None:
    """The sweep of 2,000 runs, or the first n of it."""
    models = [
        Models(generator="garnet", settings={"n_states": [20], "gamma": [0.9], "seed": list(range(n // 8))})
    ]
    cmdp = models[0].expand()[0].build()
    import fastcmdp as fc

    samples = fc.PDANPG(outer=1000, inner=50).expected_samples(cmdp)
    spec = Sweep(models, [Algorithms("pd-anpg", settings={"inner": 50})], samples=[samples], replicates=8)
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        began = time.monotonic()
        found = sweeps.run(spec, out, engine, workers=2)
        wall = time.monotonic() - began
        settings = Store(out).plan().configurations[0].settings
        print(
            f"{found.done} runs, K = {settings['outer']}, H = {settings['inner']}, engine {engine}: {wall:.1f} s"
        )
        print(f"2,000 runs: {wall * 2000 / found.done / 60:.1f} min at this pace")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    kill = verbs.add_parser("kills")
    kill.add_argument("--rounds", type=int, default=3)
    kill.add_argument("--only", choices=["all", "random", "steps"], default="all")
    kill.add_argument("--seed", type=int, default=int(time.time()))
    over = verbs.add_parser("overhead")
    over.add_argument("--samples", type=float, default=3e7)
    over.add_argument("--batches", type=int, default=2)
    many = verbs.add_parser("plan")
    many.add_argument("--models", type=int, default=1250)
    many.add_argument("--replicates", type=int, default=8)
    whole = verbs.add_parser("rehearsal")
    whole.add_argument("--tasks", type=float, default=1e6)
    whole.add_argument(
        "--batch", type=float, default=600.0, help="seconds that the runs of a batch pretend to take"
    )
    whole.add_argument("--root", help="folder of the sweep's folder, which is removed in the end")
    some = verbs.add_parser("runs")
    some.add_argument("--runs", type=int, default=2000)
    some.add_argument("--engine", default="threads")
    given = parser.parse_args()
    if given.verb == "kills":
        kills(given.rounds, given.seed, given.only)
    elif given.verb == "overhead":
        overhead(given.samples, given.batches)
    elif given.verb == "plan":
        plan(given.models, given.replicates)
    elif given.verb == "rehearsal":
        from rehearsal import rehearse

        rehearse(int(given.tasks), given.batch, given.root)
    else:
        runs(given.runs, given.engine)


if __name__ == "__main__":
    main()
