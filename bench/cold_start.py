"""What a first use costs: `python bench/cold_start.py [--rounds N] [--quick]`, some ten minutes; `--quick` within two.

Each command is a process of its own. Cold ones begin with a NUMBA_CACHE_DIR of their own that is empty, warm ones with
one that a run of the same command has filled. Printed: medians over rounds of processor seconds (user and system, all
threads) and of seconds of the wall, and how many files of machine code the cache holds then. Python's own byte code is
stored beforehand. `fastcmdp warmup` runs once; `--quick` leaves it out, with one round of the rest.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

RUN = "import fastcmdp as fc; fc.solve(fc.envs.river_swim(), fc.PDANPGCV(outer=2), optimum=False)"
SOLVE = ["-m", "fastcmdp", "solve", "env:river_swim"]


class Command(NamedTuple):
    """What is timed, and how."""

    label: str
    arguments: list[str]
    cold: bool
    rounds: int  # at most


COMMANDS = (
    Command("`import numba`", ["-c", "import numba"], False, 99),
    Command("`import fastcmdp`", ["-c", "import fastcmdp"], False, 99),
    Command("import, and a run of two outer steps", ["-c", RUN], False, 99),
    Command("`fastcmdp solve env:river_swim --outer 2`", [*SOLVE, "--outer", "2"], False, 99),
    Command("first `fastcmdp solve env:river_swim --outer 2`", [*SOLVE, "--outer", "2"], True, 99),
    Command("first `fastcmdp solve env:river_swim`", SOLVE, True, 99),
    Command("first `embed.c_api()`", ["-c", "import fastcmdp as fc; fc.embed.c_api()"], True, 99),
    Command("`fastcmdp warmup`, nothing stored", ["-m", "fastcmdp", "warmup"], True, 1),
)


def timed(arguments: list[str], cache: str) -> tuple[float, float]:
    """Processor seconds and seconds of the wall of one process."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} ended with code {done.returncode}:\n{done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main() -> None:
    """Print a line a command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="of each command; three times as many of warm ones"
    )
    parser.add_argument("--quick", action="store_true", help="one round, no warmup")
    given = parser.parse_args()
    print("| | processor seconds | wall | files of machine code | rounds |\n|---|---|---|---|---|")
    for command in COMMANDS:
        if given.quick and command.rounds == 1:
            continue
        rounds = 1 if given.quick else min(command.rounds, given.rounds * (1 if command.cold else 3))
        times, files = [], 0
        with tempfile.TemporaryDirectory() as warm:
            if not command.cold:
                timed(command.arguments, warm)
            for _ in range(rounds):
                with tempfile.TemporaryDirectory() as empty:
                    cache = empty if command.cold else warm
                    times.append(timed(command.arguments, cache))
                    files = sum(1 for _ in Path(cache).rglob("*.nbc"))
        processor, wall = (median(column) for column in zip(*times, strict=True))
        print(f"| {command.label} | {processor:.2f} | {wall:.2f} | {files or ''} | {rounds} |", flush=True)


if __name__ == "__main__":
    main()
