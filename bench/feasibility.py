"""Strict and relaxed feasibility on a model whose uniform policy breaks the limit: a table of docs/algorithms.md.

    python bench/feasibility.py [--quick]

Slack is the limit minus the mean cost of the mixture over replicates, over the range that the cost can take: negative
means that the mixture violates the limit in expectation. Every method has its default constants.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import fastcmdp as fc
from fastcmdp.runs import interval

MARGIN = 0.05  # of the cost's range, for PD-ANPG


def tight_garnet() -> fc.CMDP:
    """The 20-state garnet with its limit a third of the way from the least cost to the uniform policy's."""
    cmdp = fc.envs.garnet()
    uniform = 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]
    least = fc.optimum(cmdp).constraint_range[0, 0]
    return cmdp.with_limits(least + (fc.evaluate(cmdp, uniform).constraints - least) / 3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    quick = parser.parse_args().quick
    began = time.perf_counter()
    cmdp = tight_garnet()
    best = fc.optimum(cmdp)
    span = float(np.ptp(best.constraint_range))
    replicates = 4 if quick else 24
    print(f"{cmdp!r}; slack and gap of the mixture, {replicates} replicates, 95 % intervals")
    for samples in (1e5,) if quick else (1e5, 1e6, 1e7):
        for label, name, changes in (
            ("pd-anpg", "pd-anpg", {}),
            (f"pd-anpg, margin {MARGIN:.0%}", "pd-anpg", {"margin": MARGIN * span}),
            ("npg-pd", "npg-pd", {}),
            ("npg-pd-softmax", "npg-pd-softmax", {}),
            ("c-npg-pda", "c-npg-pda", {}),
            ("c-npg-pda, c_kappa = 0.3", "c-npg-pda", {"c_kappa": 0.3}),
        ):
            made = fc.ALGORITHMS[name].for_samples(cmdp, samples, **changes)
            result = fc.solve(cmdp, made, replicates=replicates, seed=2, optimum=best, trace=50)
            cells = []
            for x in (
                (cmdp.limits[0] - result.mixture.constraints[:, 0]) / span,
                result.mixture.gap / abs(best.reward),
            ):
                found = interval(x)
                cells.append(f"{found['mean']:>+9.4f} [{found['low']:+.4f}, {found['high']:+.4f}]")
            print(f"{samples:8.0e}  {label:28}" + " ".join(cells), flush=True)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
