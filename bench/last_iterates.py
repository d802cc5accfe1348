"""The two tables of docs/algorithms.md under "Last iterates": `python bench/last_iterates.py`.

Exact values, K = 1,000, all defaults: error of the last iterate. Then 1e6 transitions, all defaults, 3 replicates:
error of each method's output. Per cent: the larger of relative gap, of either sign, and violation over the range that
the constraint can have.
"""

from __future__ import annotations

import numpy as np

import fastcmdp as fc
from fastcmdp.runs import Averages

MODELS = {"garnet, S = 20": fc.envs.garnet(n_states=20), "river-swim": fc.envs.river_swim()}
EXACT = {
    "PI-PD": fc.PIPD(outer=1000, rollouts=0),
    "ReLOAD": fc.ReLOAD(outer=1000, rollouts=0),
    "OPG-PD": fc.OPGPD(outer=1000, rollouts=0),
    "multiplicative": fc.OPGPD(outer=1000, rollouts=0, update="multiplicative"),
    "AL-PQA": fc.ALPQA(outer=1000, rollouts=0),
    "RPG-PD, tau = 0.01": fc.RPGPD(outer=1000, rollouts=0),
    "C-PG": fc.CPG(outer=1000, trajectories=0),
    "LB-SGD": fc.LBSGD(outer=1000, trajectories=0),
}
SAMPLED = (
    "pd-anpg", "pdr-anpg", "npg-pd-softmax", "pmd-pd", "rpg-pd", "opg-pd", "reload", "pi-pd", "al-pqa", "arnpg-epd",
    "c-pg", "lb-sgd",
)  # fmt: skip


def error(found: Averages, best: fc.exact.Optimum) -> float:
    """Of means over replicates."""
    low, high = best.constraint_range[0]
    return 100.0 * max(abs(found.gap.mean()) / abs(best.reward), found.violation.mean() / (high - low))


def log_linear(model: fc.CMDP) -> fc.LogLinear:
    """Random features that span all policies."""
    return fc.LogLinear(np.random.default_rng(1).normal(size=(model.n_choices, model.n_choices)))


def main() -> None:
    """Print a line a method."""
    best = {name: fc.optimum(model) for name, model in MODELS.items()}
    print("exact values, last iterate: " + "; ".join(MODELS))
    for label, settings in EXACT.items():
        cells = [
            f"{error(fc.solve(model, settings, optimum=best[name], trace=2).last, best[name]):.3f}"
            for name, model in MODELS.items()
        ]
        print(f"{label:30} {' | '.join(cells)}", flush=True)
    settings = EXACT["AL-PQA"]
    found = [
        fc.solve(model, settings, policy=log_linear(model), optimum=best[name], trace=2).last
        for name, model in MODELS.items()
    ]
    cells = [f"{error(last, best[name]):.3f}" for last, name in zip(found, MODELS, strict=True)]
    print(f"{'AL-PQA, log-linear':30} {' | '.join(cells)}", flush=True)
    print("1e6 transitions, output")
    for method in SAMPLED:
        cells = []
        for name, model in MODELS.items():
            settings = fc.ALGORITHMS[method].for_samples(model, 1e6)
            result = fc.solve(model, settings, optimum=best[name], trace=20, replicates=3)
            cells.append(f"{error(result.mixture, best[name]):.2f}")
        print(f"{method:30} {' | '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
