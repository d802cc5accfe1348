"""A battery of 60 constrained MDPs, a fixed list: `python bench/battery.py --half held --samples 1e7`.

Garnets, grids, queues, and forty problems written as an application would, in its own units: 5 to 6,000 states, gamma
0.5 to 0.995, one to three limits from slack to nearly infeasible. Pairs of the same kind with other numbers: the
constants of PD-ANPG-CV were chosen on the first of each pair (`--half first`), never on the second (`--half held`).

The error of a run is the larger of gap / attainable range of the reward and violation / attainable range of that limit,
of the last quarter, by exact values; of several replicates the worst counts. One line a model and method goes to
FOLDER/runs.jsonl as soon as it is there, and exact optima to FOLDER; called again, only what is missing is run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from battery_models import APPLICATIONS

import fastcmdp as fc
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.errors import BudgetError
from fastcmdp.exact import Optimum
from fastcmdp.runs.scales import Scales

Limits = list[float] | None
Entry = tuple[str, Callable[[], fc.CMDP], Limits]


def application(name: str, *numbers: Any) -> Callable[[], fc.CMDP]:
    """A generator of an application; the limits it is made with are none."""

    def make() -> fc.CMDP:
        problem = APPLICATIONS[name](*numbers)
        slack = [
            1e12 if s == "<=" else -1e12 for s in problem.get("sense", ["<="] * (len(problem["names"]) - 1))
        ]
        return fc.envs.from_steps(**problem, limit=slack)

    return make


def garnet(n: int, actions: int, branches: int, gamma: float, seed: int, m: int = 1) -> Callable[[], fc.CMDP]:
    """A generator of a garnet."""
    return partial(
        fc.envs.garnet, n_states=n, n_actions=actions, n_branches=branches, gamma=gamma, seed=seed, n_constraints=m,
        limit=[1e6] * m,
    )  # fmt: skip


FIRST: list[Entry] = [
    ("garnet 5", garnet(5, 3, 3, .5, 1), [0.4217427]),
    ("garnet 50 m2", garnet(50, 4, 5, .9, 3, 2), [4.429955, 3.555607]),
    ("garnet 200 m3", garnet(200, 6, 8, .97, 5, 3), [12.47222, 12.81083, 15.49475]),
    ("garnet 1000", garnet(1000, 4, 5, .95, 7), [4.864207]),
    ("garnet 5000", garnet(5000, 4, 4, .95, 9), [6.697438]),
    ("garnet 100 dense", garnet(100, 4, 100, .9, 11), [2.372475]),
    ("river 12", partial(fc.envs.river_swim, 12, .99), [20.0]),
    ("grid 8", partial(fc.envs.grid_world, 8, .1, .97), [10.263]),
    ("grid 12 cell", partial(fc.envs.grid_world, 12, .1, .98, start="cell"), [8.204347]),
    ("queue 30", partial(fc.envs.queue, 30, .6, .5, .99), [457.3519]),
    ("inventory 20", partial(fc.envs.inventory, 20, gamma=.97), [2.243676]),
    ("frozen 8", partial(fc.envs.from_gymnasium, "FrozenLake8x8-v1", gamma=.97), [0.1931962]),
    ("gathering .97", partial(fc.envs.resource_gathering, gamma=.97), [0.2571833]),
    ("admission", application("admission", 30, 0.6, 0.98), [244.3322, 52.0]),
    ("storage", application("storage", 20, 0.99), [36.4665, 0.4091445]),
    ("fishery", application("fishery", 30, 0.97), [9.334385, 24.33701]),
    ("epidemic", application("epidemic", 12, 0.96), [3.671762, 0.05644015]),
    ("cloud", application("cloud", 20, 5, 0.99), [17.86839, 0.8996357]),
    ("irrigation", application("irrigation", 0.98), [17791.97, 0.0003235257]),
    ("revenue", application("revenue", 25, 30, 0.995), [40.50122, 13.16702]),
    ("ward", application("ward", 15, 0.97), [3.52703, 417.0673]),
    ("machines", application("machines", 3, 4, 0.95), [7.039595, 299.7097]),
    ("patrol", application("patrol", 6, 0.95, 8), [1.748955, 0.7748693]),
    ("cash", application("cash", 20, 0.99), [2.504108, 30.91801]),
    ("maze 9", application("maze", 9, 0.97, 1), [8.674792]),
    ("perishable", application("perishable", 3, 4, 0.95), [2.466136, 1.471598]),
    ("uplink", application("uplink", 8, 0.98), [2698.307, 0.1187372, 0.08301655]),
    ("nearly infeasible", application("machines", 3, 3, 0.95), [8.193905, 326.6536]),
    ("all slack", application("ward", 12, 0.95), [7.195418, 300.666]),
    ("garnet 30 slow 2", garnet(30, 4, 3, .995, 14), [49.9235]),
]  # fmt: skip
HELD: list[Entry] = [
    ("garnet 7", garnet(7, 3, 3, .6, 2), [0.6919304]),
    ("garnet 60 m3", garnet(60, 5, 5, .9, 4, 3), [3.716943, 4.112477, 5.500396]),
    ("garnet 300 m2", garnet(300, 6, 6, .98, 6, 2), [14.10048, 19.03333]),
    ("garnet 800 m2", garnet(800, 5, 5, .97, 8, 2), [10.17321, 10.67916]),
    ("garnet 4000", garnet(4000, 4, 4, .9, 10), [3.887184]),
    ("garnet 80 slow", garnet(80, 4, 4, .99, 12), [24.20128]),
    ("river 6", partial(fc.envs.river_swim, 6, .9), [2.0]),
    ("grid 6", partial(fc.envs.grid_world, 6, .2, .95), [5.303305]),
    ("grid 10 cell", partial(fc.envs.grid_world, 10, .1, .97, start="cell"), [7.876939]),
    ("queue 15", partial(fc.envs.queue, 15, .5, .45, .97), [104.2428]),
    ("inventory 30", partial(fc.envs.inventory, 30, demand=6.0, gamma=.95), [1.612589]),
    ("cliff", partial(fc.envs.from_gymnasium, "CliffWalking-v1", gamma=.95), [3.811999]),
    ("gathering .98", partial(fc.envs.resource_gathering, gamma=.98), [0.2591716]),
    ("admission fast", application("admission", 20, 0.7, 0.95), [39.82656, 20.8]),
    ("storage big", application("storage", 40, 0.98), [9.760213, 0.2814447]),
    ("fishery .99", application("fishery", 24, 0.99), [29.403, 99.95075]),
    ("epidemic 20", application("epidemic", 20, 0.97), [2.042585, 0.004394562]),
    ("cloud small", application("cloud", 10, 3, 0.97), [12.71662, 0.7083482]),
    ("irrigation .95", application("irrigation", 0.95), [11606.98, 6.567339e-05]),
    ("revenue small", application("revenue", 12, 15, 0.99), [8.842128, 9.171997]),
    ("ward 20", application("ward", 20, 0.98), [3.137231, 1867.829]),
    ("machines 4", application("machines", 4, 4, 0.97), [21.7944, 732.0123]),
    ("patrol 8", application("patrol", 8, 0.96, 12), [1.484802, 0.8871102]),
    ("cash 40", application("cash", 40, 0.98), [0.5358856, 25.09562]),
    ("maze 12", application("maze", 12, 0.98, 3), [11.34178]),
    ("perishable 4", application("perishable", 4, 4, 0.97), [2.350838, 1.197]),
    ("uplink 12", application("uplink", 12, 0.99), [5128.592, 0.04850514, 0.06363767]),
    ("nearly infeasible 2", application("storage", 15, 0.97), [0.4254993, 0.006250323]),
    ("all slack 2", application("perishable", 3, 3, 0.9), [0.7244853, 3.597138]),
    ("garnet 30 slow", garnet(30, 4, 3, .995, 13), [61.16725]),
]  # fmt: skip


def attempts(half: str) -> list[Entry]:
    """The entries of a half, or of both."""
    return {"first": FIRST, "held": HELD, "all": FIRST + HELD}[half]


def build(entry: Entry) -> fc.CMDP:
    """The model of an entry, with its limits."""
    _, make, limits = entry
    return make() if limits is None else make().with_limits(limits)


def known(cmdp: fc.CMDP, file: Path) -> Optimum:
    """The exact optimum, from a file where it has been computed."""
    if file.exists():
        with np.load(file) as arrays:
            return Optimum(**{k: v[()] if v.ndim == 0 else v for k, v in arrays.items()})
    best = fc.optimum(cmdp)
    np.savez(file, **{field.name: getattr(best, field.name) for field in fields(best)})
    return best


def run(
    cmdp: fc.CMDP, best: Optimum, name: str, samples: float, options: argparse.Namespace
) -> dict[str, Any]:
    """One method on one model: errors of the replicates, and what they are made of."""
    try:
        settings = ALGORITHMS[name].for_samples(cmdp, samples)
    except BudgetError:
        return {"errors": None}
    began = time.process_time()
    result = fc.solve(
        cmdp,
        settings,
        seed=options.seed,
        replicates=options.replicates,
        threads=options.threads,
        optimum=best,
    )
    scales, late = Scales.of(cmdp, best), result.last_quarter
    return {
        "errors": scales.errors(cmdp, late).tolist(),
        "mixture": scales.errors(cmdp, result.mixture).tolist(),
        "gap": (late.gap / scales.reward).tolist(),
        "violation": (late.violation / scales.constraints).max(axis=0).tolist(),
        "duals": late.duals.mean(axis=0).tolist(),
        "exact duals": best.duals.tolist(),
        "seconds": time.process_time() - began,
    }


def missing(done: dict[tuple[Any, ...], Any], options: argparse.Namespace) -> Iterator[tuple[Entry, str]]:
    """What is to be run yet."""
    for entry in attempts(options.half):
        for name in options.algorithms.split(","):
            if key(entry[0], name, options) not in done and (
                not options.only or entry[0] in options.only.split(",")
            ):
                yield entry, name


def key(model: str, method: str, options: argparse.Namespace) -> tuple[Any, ...]:
    """What tells two lines of the file apart."""
    return model, method, ALGORITHMS[method].version, options.samples, options.replicates, options.seed


def read(file: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The lines of the file."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {tuple(line["key"]): line for line in map(json.loads, lines)}


def worst(line: dict[str, Any] | None) -> float:
    """The error of the worst replicate; NaN where there was none, infinite where the budget was too small."""
    if line is None:
        return float("nan")
    return float("inf") if line["errors"] is None else max(np.nan_to_num(line["errors"], nan=np.inf))


def report(done: dict[tuple[Any, ...], Any], options: argparse.Namespace) -> None:
    """Median and worst of each half and method, and the table."""
    names = options.algorithms.split(",")
    print(f"\n| model | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    errors = {}
    for entry in attempts(options.half):
        row = [worst(done.get(key(entry[0], name, options))) for name in names]
        errors[entry[0]] = row
        if not np.isnan(row).all():
            print(f"| {entry[0]} | {' | '.join('-' if np.isnan(e) else f'{100 * e:.2f} %' for e in row)} |")
    for half in ("first", "held") if options.half == "all" else (options.half,):
        for j, name in enumerate(names):
            found = [errors[e[0]][j] for e in attempts(half) if not np.isnan(errors[e[0]][j])]
            if found:
                middle, top = statistics.median(found), max(found)
                print(
                    f"{half}, {name}: {len(found)} models, median {100 * middle:.3f} %, worst {100 * top:.2f} %"
                )
    for j, name in enumerate(names[1:], 1):
        both = [row for row in errors.values() if not np.isnan([row[0], row[j]]).any()]
        better = sum(row[j] < row[0] for row in both)
        print(f"{name} is better than {names[0]} on {better} of {len(both)}")


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", choices=["first", "held", "all"], default="first")
    parser.add_argument("--samples", type=float, default=1e7)
    parser.add_argument("--replicates", type=int, default=2)
    parser.add_argument("--algorithms", default="pd-anpg-cv")
    parser.add_argument("--only", help="Names of models, separated by commas.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--folder", type=Path, default=Path("battery-runs"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    file = options.folder / "runs.jsonl"
    for entry, method in list(missing(read(file), options)):
        cmdp = build(entry)
        best = known(cmdp, options.folder / f"{entry[0].replace(' ', '_')}.npz")
        line = {"key": key(entry[0], method, options)} | run(cmdp, best, method, options.samples, options)
        with file.open("a") as out:
            print(json.dumps(line), file=out)
        print(
            f"{entry[0]:20} {method:15} {100 * worst(line):8.3f} %  {line.get('seconds', 0):.1f} s",
            flush=True,
        )
    report(read(file), options)


if __name__ == "__main__":
    main()
