"""Untuned on 10,000 to 30,000 states: `python bench/large.py [--seconds 60] [--only "NAME;.."]`.

The default, `fc.solve(model, seconds=60)`, one replicate a core, on garnets, a grid, two applications and, where it is
there, a file: error of the last quarter, the larger of gap and violation relative to what policies attain, by exact
values; the worst replicate, the multipliers beside the exact ones, and the transitions that the time allowed.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from battery import application, garnet

import fastcmdp as fc
from fastcmdp.runs.scales import Scales

FILE = Path(__file__).parents[2] / "shared" / "models" / "resource-gathering-large.umb"
MODELS = {
    "garnet 10,000": garnet(10_000, 4, 5, 0.95, 15),
    "garnet 30,000": garnet(30_000, 4, 5, 0.95, 16),
    "garnet 30,000 m2": garnet(30_000, 4, 5, 0.97, 17, 2),
    "grid 100 x 100": partial(fc.envs.grid_world, 100, 0.1, 0.98),
    "machines": application("machines", 5, 6, 0.95),
    "perishable": application("perishable", 6, 7, 0.95),
    "gathering 24,064": partial(
        fc.load, FILE, reward="rew_gold", constraints=["attacks <= 1.305208"], gamma=0.99
    ),
}


def limited(model: fc.CMDP) -> fc.CMDP:
    """The model with limits between what the best policy costs and what a thrifty one does, but for a file's own."""
    if "attacks" in model.names:
        return model
    free = model.with_limits(np.full(model.n_constraints, 1e12))
    best = fc.optimum(free)
    weights = 1.0 / np.ptp(best.constraint_range, axis=1)
    thrifty = fc.optimum(free.with_reward(-model.costs @ weights))
    return model.with_limits(0.45 * best.constraints + 0.55 * thrifty.constraints)


def main() -> None:
    """Run all and print a line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", help="Names of models, separated by semicolons.")
    options = parser.parse_args()
    for name, make in MODELS.items():
        if (options.only and name not in options.only.split(";")) or ("24,064" in name and not FILE.exists()):
            continue
        model = limited(make())
        best = fc.optimum(model)
        result = fc.solve(model, seconds=options.seconds, replicates=os.cpu_count() or 1, optimum=best)
        late = result.last_quarter
        error = Scales.of(model, best).errors(model, late).max()
        print(
            f"| {name} | {100 * error:.2f} % | {np.round(late.duals.mean(axis=0), 3)} ({np.round(best.duals, 3)}) | "
            f"{result.samples.mean():.2g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
