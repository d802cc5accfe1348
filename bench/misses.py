"""Limits that are missed, and what helps: `python bench/misses.py [--samples N ..]`, a few minutes.

Maintenance of a machine: wear 0..24; run, repair (from wear 1 on) or replace (from wear 5 on); two limits, downtime and
budget, which range from 0.3 to more than 4 times their limits. Printed: by how much the mixture and the last quarter
of each method miss each limit, as a share of the limit, the gap relative to the optimum, and the multipliers.
"""

from __future__ import annotations

import argparse

import numpy as np

import fastcmdp as fc
from fastcmdp.algorithms import ALGORITHMS


def maintenance() -> fc.CMDP:
    """The model."""
    n_wear, n_actions = 25, 3
    transition = np.zeros((n_wear, n_actions, n_wear))
    output, downtime, budget = np.zeros((3, n_wear, n_actions))
    available = np.zeros((n_wear, n_actions), bool)
    for wear in range(n_wear):
        if wear < n_wear - 1:  # run
            available[wear, 0] = True
            for more, p in ((0, 0.4), (1, 0.4), (2, 0.15), (3, 0.05)):
                transition[wear, 0, min(wear + more, n_wear - 1)] += p
            output[wear, 0] = 10 - 0.3 * wear
        if wear > 0:  # repair
            available[wear, 1] = True
            transition[wear, 1, max(wear - 5, 0)] = 0.8
            transition[wear, 1, wear] += 0.2
            downtime[wear, 1], budget[wear, 1] = 1, 3
        if wear >= 5:  # replace
            available[wear, 2] = True
            transition[wear, 2, 0] = 1
            downtime[wear, 2], budget[wear, 2] = 2, 15
    return fc.CMDP.from_arrays(
        transition, output, [downtime, budget], gamma=0.95, limits=[2.0, 8.0], available=available, start=0,
        names=["output", "downtime", "budget"],
    )  # fmt: skip


def main() -> None:
    """Run all methods at each budget, and PD-ANPG with other numbers of inner steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=float, nargs="+", default=[1e6, 1e7])
    cmdp, samples = maintenance(), parser.parse_args().samples
    best = fc.optimum(cmdp)
    print("| method | samples | mixture misses | last quarter misses | gap | multipliers |")
    print("|---|---|---|---|---|---|")
    runs = [(name, n, {}) for n in samples for name in ALGORITHMS]
    runs += [("pd-anpg", n, {"inner": inner}) for n in samples for inner in (25, 400)]
    for name, n, fixed in runs:
        settings = ALGORITHMS[name].for_samples(cmdp, n, **fixed)
        result = fc.solve(cmdp, settings, replicates=4, optimum=best)
        missed = [
            ", ".join(f"{share:.1%}" for share in averages.violation.mean(axis=0) / cmdp.limits)
            for averages in (result.mixture, result.last_quarter)
        ]
        duals = ", ".join("-" if x != x else f"{x:.2g}" for x in result.duals.mean(axis=0))
        title = name + "".join(f", {key} = {value}" for key, value in fixed.items())
        gap = result.gap.mean() / best.reward
        print(f"| {title} | {n:.0e} | {missed[0]} | {missed[1]} | {gap:.1%} | {duals} |", flush=True)


if __name__ == "__main__":
    main()
