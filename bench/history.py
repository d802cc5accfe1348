"""A history of ratios: the benchmarks of test_kernels.py, each divided by a plain loop on the same machine that day.

    python bench/history.py            # measure, and add a line to bench/history.jsonl
    python bench/history.py --show     # the last lines side by side, with what changed by more than a tenth

Nanoseconds of two machines say nothing to each other; ratios to the same work do. The yardstick is a chain of dependent
draws and look-ups in numba, timed before and after the benchmarks; its median counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numba import njit

import fastcmdp

HERE = Path(__file__).parent
HISTORY = HERE / "history.jsonl"
SHOWN = 4


@njit
def chain(table: np.ndarray, n: int) -> int:
    """A walk of n steps through a table, each step from the last one's outcome."""
    at, word = 0, np.uint64(88172645463325252)
    for _ in range(n):
        word ^= word << np.uint64(13)
        word ^= word >> np.uint64(7)
        word ^= word << np.uint64(17)
        at = table[(at + np.int64(word & np.uint64(1023))) & 1023]
    return at


def yardstick() -> float:
    """Seconds of a step of the chain, median of nine."""
    table = np.random.default_rng(0).permutation(1024)
    chain(table, 10)
    times = []
    for _ in range(9):
        began = time.perf_counter()
        chain(table, 2_000_000)
        times.append((time.perf_counter() - began) / 2_000_000)
    return float(np.median(times))


def measure() -> dict[str, object]:
    """One line of the history."""
    before = yardstick()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, "-m", "pytest", str(HERE / "test_kernels.py"), "--benchmark-only", "-q"]
        subprocess.run([*command, f"--benchmark-json={out}"], check=True, cwd=HERE.parent)
        found = json.loads(out.read_text())
    unit = float(np.median([before, yardstick()]))
    ratios = {each["name"]: round(each["stats"]["median"] / unit, 1) for each in found["benchmarks"]}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "version": fastcmdp.__version__,
        "commit": commit.stdout.strip(),
        "yardstick_ns": round(1e9 * unit, 3),
        "ratios": ratios,
    }


def show(lines: list[dict]) -> str:
    """The last lines, a column each; marked where the last differs by more than a tenth from the one before."""
    last = lines[-SHOWN:]
    names = list(dict.fromkeys(name for line in last for name in line["ratios"]))
    width = max(map(len, names), default=1)
    rows = [" " * width + "".join(f"{line['commit'] or line['date']:>12}" for line in last)]
    for name in names:
        values = [line["ratios"].get(name) for line in last]
        row = name.ljust(width) + "".join(f"{'-' if x is None else format(x, '.1f'):>12}" for x in values)
        if len(values) > 1 and None not in values[-2:] and abs(values[-1] / values[-2] - 1) > 0.1:
            row += f"   {values[-1] / values[-2]:.2f} times"
        rows.append(row)
    return "\n".join(rows)


def main(arguments: list[str]) -> None:
    """Measure and add, or show."""
    if "--show" not in arguments:
        with HISTORY.open("a", encoding="utf-8") as file:
            file.write(json.dumps(measure()) + "\n")
    print(show([json.loads(line) for line in HISTORY.read_text(encoding="utf-8").splitlines()]))


if __name__ == "__main__":
    main(sys.argv[1:])
