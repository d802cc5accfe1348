"""A rehearsal of a large sweep: planned, run as no-ops on Dask, killed midway, resumed, compacted, reported.

Workers draw nothing: they give back made-up results of the right shapes, and say that a run took a second on average.
So the coordinator sees as many batches of a minute, and the store as many rows, as from a sweep that took a core-year.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from sweep import made_up

from fastcmdp import sweep as sweeps
from fastcmdp.sweep import Models, Sweep, worker
from fastcmdp.sweep.prepare import prepare
from fastcmdp.sweep.store import Store
from fastcmdp.sweep.worker import Outcome, TaskBatch, trace_points

TARGETS, REPLICATES = 10, 80
SECOND = 5.3e-9  # pretended for a transition: a second for the mean run of these targets
STEP = 27  # transitions of an inner step of these models, about
WORKERS = 4
APART = 0.3  # seconds between two looks at memory


def specification(tasks: int) -> Sweep:
    """Garnets with ten targets and eighty replicates each."""
    seeds = list(range(max(tasks // (TARGETS * REPLICATES), 1)))
    models = [Models(generator="garnet", settings={"n_states": [20], "gamma": [0.9], "seed": seeds})]
    epsilon = [float(e) for e in np.geomspace(3, 0.3, TARGETS)]
    return Sweep(models, ["pd-anpg"], epsilon=epsilon, replicates=REPLICATES)


def no_op(batch: TaskBatch) -> Outcome:
    """What `execute` would give back, without the runs; the same for the same seeds."""
    outcome = Outcome([], [], [])
    for group in batch.groups:
        outer = trace_points(group.settings["outer"], group.points)
        samples = np.tile(outer * group.settings["inner"] * STEP, (len(group.seeds), 1))
        luck = [np.random.default_rng(seed).lognormal(0, 0.3) for seed in group.seeds]
        error = 20 * (1.0 + samples) ** -0.5 * np.array(luck)[:, None]
        outcome.groups.append(made_up(outer, samples, np.stack([10 - error, 1 - error], axis=2)))
        seconds = float(samples[:, -1].sum()) * SECOND
        outcome.kernels.append(seconds)
        outcome.seconds.append(seconds)
    return outcome


class NoOps(Client):
    """A client whose workers do nothing."""

    def submit(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """As Client does, of `no_op` for `execute`."""
        chosen = no_op if function is worker.execute else function
        return super().submit(chosen, *arguments, **options)


def phase(name: str, out: Path, tasks: int, batch: float) -> None:
    """One phase, in a process of its own; the last line says how it ended."""
    if name == "plan":
        print(f"{len(prepare(specification(tasks), Store(out), False, lambda _: None)):,} tasks")
    elif name == "run":
        tell = functools.partial(print, flush=True)
        with (
            LocalCluster(WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
            NoOps(cluster) as client,
        ):
            status = sweeps.run(
                out, engine=client, batch_seconds=batch, progress=lambda state: tell(state.done)
            )
        print(f"{status.done:,} tasks done, {status.new:,} of them now")
    elif name == "compact":
        print(sweeps.compact(out))
    elif name == "status":
        print(f"{sweeps.status(out).done:,} tasks done")
    else:
        print(sweeps.report(out).text().splitlines()[1])


def below(process: int) -> list[int]:
    """Processes below one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    family = {process}
    for _ in range(3):
        family |= {child for child, parent in parents.items() if parent in family}
    return sorted(family - {process})


def resident(process: int) -> int:
    """Bytes of memory of a process, what it shares with others in shares (Pss)."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def used(process: int) -> float:
    """Seconds of a processor that a process has had."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


class Watched:
    """A phase in a process of its own, its seconds and its peak of memory.

    Attributes
    ----------
    own, workers, together : int
        Bytes: the largest of the coordinator, of the workers in sum, and of all at one moment.
    """

    def __init__(self, name: str, out: Path, tasks: int, batch: float, until: int | None) -> None:
        self.own = self.workers = self.together = 0
        self._used: dict[int, float] = {}
        log = out.parent / "log"
        command = [sys.executable, __file__, name, str(out), str(tasks), str(batch)]
        began = time.monotonic()
        with log.open("w") as file:
            process = subprocess.Popen(command, stdout=file)
            while process.poll() is None:
                self._look(process.pid)
                if until is not None and _last_number(log) >= until:
                    process.kill()
                    until = None
                time.sleep(APART)
        self.seconds = time.monotonic() - began
        self.said = log.read_text().splitlines()[-1:]
        if process.returncode not in (0, -signal.SIGKILL):
            raise SystemExit(f"{name} ended with {process.returncode}")
        self.killed = process.returncode == -signal.SIGKILL

    def _look(self, process: int) -> None:
        family = below(process)
        for each in (process, *family):
            self._used[each] = max(used(each), self._used.get(each, 0.0))
        own, workers = resident(process), sum(map(resident, family))
        self.own, self.workers = max(self.own, own), max(self.workers, workers)
        self.together = max(self.together, own + workers)

    @property
    def processor(self) -> float:
        """Seconds of a processor, of all processes, up to the last look at each."""
        return sum(self._used.values())

    def __str__(self) -> str:
        own, workers, together = (f"{size / 2**20:,.0f}" for size in (self.own, self.workers, self.together))
        return (
            f"{self.seconds:.1f} s ({self.processor:.1f} of a processor), coordinator {own} MiB, "
            f"workers {workers} MiB, together {together} MiB"
        )


def _last_number(log: Path) -> int:
    lines = log.read_text().split()
    return int(lines[-1]) if lines and lines[-1].isdigit() else -1


def files(out: Path) -> str:
    """What the parts take."""
    parts = list((out / "parts").rglob("*.parquet"))
    size = sum(path.stat().st_size for path in parts)
    plan = (out / "plan.parquet").stat().st_size
    return f"{len(parts):,} parts, {size / 2**20:,.0f} MiB; plan {plan / 2**20:.1f} MiB"


def rehearse(tasks: int, batch: float, root: str | None) -> None:
    """All phases one after the other."""
    with tempfile.TemporaryDirectory(dir=root) as name:
        out = Path(name) / "out"
        seconds, processor, peak = 0.0, 0.0, 0
        for verb, until in (
            ("plan", None), ("run", tasks // 2), ("run", None), ("compact", None), ("status", None), ("report", None)
        ):  # fmt: skip
            watched = Watched(verb, out, tasks, batch, until)
            seconds, processor = seconds + watched.seconds, processor + watched.processor
            peak = max(peak, watched.together)
            said = "killed" if watched.killed else "".join(watched.said)
            print(f"{verb}: {watched}; {said}; {files(out)}", flush=True)
        print(
            f"in all: {seconds:.0f} s ({processor:.0f} of a processor), at most {peak / 2**30:.2f} GiB at one moment; "
            f"{os.cpu_count()} processors"
        )


if __name__ == "__main__":
    phase(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
