"""What exact control has to reach, each figure measured in a process of its own: `python bench/exact.py --targets`.

A line says what it is, what was measured, what is to be reached, and ``met`` or ``missed``. ``--small`` divides the
sizes by 100, to see that the harness works. On two quiet cores it takes less than fifteen minutes: what takes longer
than ``PATIENCE`` is stopped and counts as missed.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import exact
import numpy as np

import fastcmdp as fc
from fastcmdp.exact import sweeps

PATIENCE = 150.0  # seconds of a line
ONE = {"OPENBLAS_NUM_THREADS": "1"}  # its second thread spins when it has nothing to do, and would be counted
MODELS = Path(__file__).parents[2] / "shared/models"
Line = tuple[str, bool]  # what was measured, and whether that is enough
_divisor = 1.0


def size(states: float) -> int:
    return int(states / _divisor)


def side(states: float) -> int:
    return int(size(states) ** 0.5)


def threads(n: int) -> None:
    sweeps.available_threads = lambda: n


def wall(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def in_products(cmdp: fc.CMDP, most: float) -> Line:
    """Seconds of one thread in m, with the certificate."""
    threads(1)
    before, begun = exact.product(cmdp), time.process_time()
    best = fc.optimum(cmdp)
    seconds = time.process_time() - begun
    ratio = seconds / min(before, exact.product(cmdp))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    certified = best.gap <= 1e-6 * max(1.0, abs(best.reward))
    return f"{ratio:.0f} m, {seconds:.2f} s, gap {best.gap:.1e}, {peak:.1f} GiB", (
        ratio <= most and certified and peak <= 4.0
    )


def ring() -> Line:
    threads(1)
    cmdp = exact.ring(size(2e4))
    seconds = wall(lambda: fc.optimum(cmdp))
    return f"{seconds:.2f} s", seconds <= 2.0


def multipliers() -> Line:
    """Against both ends of all optimal multipliers, and against HiGHS on the programme."""
    worst = 0.0
    for cmdp in (exact.garnet(max(size(1e4), 200)), exact.ring(size(1e4), 0.95)):
        best = fc.optimum(cmdp)
        ends = fc.exact.multiplier_range(cmdp, best)
        outside = np.maximum(ends[:, 0] - best.duals, best.duals - ends[:, 1]).max()
        worst = max(worst, float(outside), float(np.ptp(ends)))
    cmdp = exact.garnet(300)
    duals = [fc.optimum(cmdp, method=method).duals for method in ("lp", "decomposition")]
    worst = max(worst, float(np.abs(duals[0] - duals[1]).max()))
    return f"{worst:.1e}", worst <= 1e-6


def two_constraints() -> Line:
    threads(1)
    seconds = []
    for m in (1, 2):
        cmdp, begun = exact.garnet(size(1e5), m=m), time.process_time()
        fc.optimum(cmdp)
        seconds.append(time.process_time() - begun)
    return f"{seconds[1] / seconds[0]:.2f} times, {seconds[1]:.2f} s", seconds[1] <= 3 * seconds[0]


def frontier() -> Line:
    """Least of five each, in turns."""
    threads(1)
    cmdp = exact.garnet(max(size(1e4), 300))
    fc.frontier(cmdp, points=20)
    seconds = np.array([[wall(lambda: fc.optimum(cmdp)), wall(lambda: fc.frontier(cmdp))] for _ in range(5)])
    one, all_points = seconds.min(axis=0)
    return f"{all_points / one:.2f} optima, {all_points:.2f} s", all_points <= 3 * one


def twenty_states() -> Line:
    small = exact.garnet(20)
    return f"{1e6 * exact.timed(lambda: fc.optimum(small), 200)[0]:.0f} us", True


def two_threads() -> Line:
    cmdp, seconds = exact.garnet(size(1e6)), []
    for n in (1, 2):
        threads(n)
        seconds.append(wall(lambda: fc.optimum(cmdp)))
    return f"{seconds[0] / seconds[1]:.2f} times, {seconds[1]:.1f} s", seconds[0] >= 1.6 * seconds[1]


def within_a_minute(make: Callable[[], fc.CMDP]) -> Line:
    """On two threads."""
    threads(2)
    cmdp = make()
    begun = time.perf_counter()
    best = fc.optimum(cmdp)
    seconds = time.perf_counter() - begun
    return (
        f"{seconds:.1f} s, S = {cmdp.n_states:,}, gap {best.gap:.1e}",
        seconds <= 60.0 and best.gap <= 1e-6 * max(1.0, abs(best.reward)),
    )


def gathering(name: str, gamma: float, limit: float) -> Line:
    path = MODELS / name
    if not path.exists():
        return f"no {path}", False
    return within_a_minute(lambda: fc.load(path, "rew_gold", f"attacks <= {limit}", gamma))


def inspect() -> Line:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "garnet.npz"
        fc.save(exact.garnet(size(1e6)), path)
        seconds = wall(
            lambda: subprocess.run(
                [sys.executable, "-m", "fastcmdp", "inspect", str(path)], check=True, capture_output=True
            )
        )
    return f"{seconds:.1f} s", seconds <= 60.0


def trace() -> Line:
    """A run of 24,000 choices with its trace and optimum, beside the same run with two looks and no optimum."""
    threads(2)
    cmdp = exact.garnet(max(size(6e3), 5_200))  # more than 20,000 choices, or all is exact whatever it costs
    method = fc.PDANPG.for_samples(cmdp, max(4e7 / _divisor, 4e6))

    def run(method: fc.PDANPG, **settings: object) -> Callable[[], object]:
        return lambda: fc.solve(cmdp, method, seed=0, replicates=2, **settings)

    run(fc.PDANPG(outer=2))()  # loads its kernels
    pairs = [(wall(run(method, optimum=False, trace=2)), wall(run(method))) for _ in range(3)]
    without, with_trace = np.min(pairs, axis=0)
    share = 1 - without / with_trace
    return f"{100 * share:.0f} % of {with_trace:.1f} s", share <= 0.2


LINES: dict[str, tuple[str, Callable[[], Line]]] = {
    "garnet, S = 1e5": ("800 m", lambda: in_products(exact.garnet(size(1e5)), 800)),
    "garnet, S = 1e6": ("1,000 m and 4 GiB", lambda: in_products(exact.garnet(size(1e6)), 1_000)),
    "garnet, S = 3e4, gamma 0.99": ("1,500 m", lambda: in_products(exact.garnet(size(3e4), 0.99), 1_500)),
    "ring, S = 2e4, gamma 0.99": ("2 s", ring),
    "multipliers": ("1e-6", multipliers),
    "two constraints, S = 1e5": ("3 times one", two_constraints),
    "200 points of a frontier, S = 1e4": ("3 optima", frontier),
    "twenty states": ("told", twenty_states),
    "two threads, S = 1e6": ("1.6 times one", two_threads),
    "resource-gathering-small.umb": (
        "60 s",
        lambda: gathering("resource-gathering-small.umb", 0.95, 0.252851),
    ),
    "resource-gathering-small.drn": (
        "60 s",
        lambda: gathering("resource-gathering-small.drn", 0.95, 0.252851),
    ),
    "resource-gathering-large.umb": (
        "60 s",
        lambda: gathering("resource-gathering-large.umb", 0.99, 1.305208),
    ),
    "two queues in a row": ("60 s", lambda: within_a_minute(lambda: exact.tandem(side(1e6) - 1))),
    "grid": ("60 s", lambda: within_a_minute(lambda: exact.grid(side(1e6)))),
    "stocks of two goods": ("60 s", lambda: within_a_minute(lambda: exact.inventories(side(1e6) - 1))),
    "ring of a million": ("60 s", lambda: within_a_minute(lambda: exact.ring(size(1e6)))),
    "inspect a million states": ("60 s", inspect),
    "the trace of a large run": ("20 %", trace),
}


def measure(name: str, small: bool) -> None:
    """One line, in this process."""
    global _divisor
    _divisor = 100.0 if small else 1.0
    fc.optimum(exact.garnet(300))  # loads the kernels
    fc.optimum(exact.ring(300))
    figure, enough = LINES[name][1]()
    print(f"{figure}\t{enough}")


def targets(small: bool) -> None:
    """All lines, each in a process of its own."""
    begun = time.perf_counter()
    for name, (figure, _) in LINES.items():
        command = [sys.executable, exact.__file__, "--line", name, *(["--small"] if small else [])]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE, check=True, env=os.environ | ONE
            )
            measured, enough = done.stdout.strip().split("\n")[-1].split("\t")
        except subprocess.TimeoutExpired:
            measured, enough = f"over {PATIENCE:.0f} s with the model", "False"
        except subprocess.CalledProcessError as error:
            measured, enough = error.stderr.strip().split("\n")[-1], "False"
        verdict = "met" if enough == "True" else "missed"
        print(f"{name:34} {measured:44} of {figure:18} {verdict}", flush=True)
    print(f"{(time.perf_counter() - begun) / 60:.1f} minutes")
