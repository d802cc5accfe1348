"""What acceleration, tail averaging and a critic are worth to PD-ANPG: the tables of docs/algorithms.md.

    python bench/ablation.py [--quick] [--samples N] [--critics]

The first table is exact (no sampling): bias and root mean square error of omega against the natural gradient at fixed
(theta, lambda), both relative to its norm, for the same H and so the same samples. The second is whole runs at one
budget: error of the mixture, the larger of relative gap and of violation over the constraint's range. With --critics
there is one table in their place, of whole runs with critic= and dual=, of 1e7 transitions or as --samples says.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

import fastcmdp as fc
from fastcmdp import theory
from fastcmdp.algorithms.primal_dual import CRITICS
from fastcmdp.assumptions.points import Point
from fastcmdp.compare import Scales
from fastcmdp.policies import LogLinear, Policy, TabularSoftmax
from fastcmdp.runs import interval

VARIANTS = {
    "SGD, uniform": {"method": "sgd", "average": "uniform"},
    "SGD, tail": {"method": "sgd", "average": "tail"},
    "ASGD, tail": {},
}
SHARES = (0.1, 0.01)  # kappa_tilde / kappa


def near_optimal(cmdp: fc.CMDP, share: float) -> np.ndarray:
    """Logits of the optimal policy mixed with a share of the uniform one."""
    uniform = 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]
    return np.log((1.0 - share) * fc.optimum(cmdp).policy + share * uniform)


def points() -> dict[str, tuple[Point, Policy]]:
    """Where the inner loop is looked at."""
    garnet = fc.envs.garnet()
    dual = fc.optimum(garnet).raw_duals
    rng = np.random.default_rng(0)
    even = rng.standard_normal((garnet.n_choices, 10)) / math.sqrt(10)
    steep = even * np.geomspace(1.0, 0.1, 10)
    found: dict[str, tuple[Point, Policy]] = {}
    for name, policy, theta in (
        ("tabular, uniform policy", TabularSoftmax(), np.zeros(garnet.n_choices)),
        ("tabular, near the optimum", TabularSoftmax(), near_optimal(garnet, 0.2)),
        ("10 features", LogLinear(even), np.zeros(10)),
        ("10 features of scales 1 to 0.1", LogLinear(steep), np.zeros(10)),
    ):
        found[name] = theory.point(garnet, policy, theta, dual), policy
    return found


def fixed_points(lengths: tuple[int, ...]) -> None:
    for name, (at, _) in points().items():
        g2 = at.parametrisation.score_bound
        kappa, statistical = g2 / at.mu, float(at.whitened_squares.max())
        print(f"\n{name}: kappa = {kappa:.3g}, kappa_tilde = {statistical:.3g}")
        print(f"{'bias, RMS error at H =':36}" + "".join(f"{h:>20}" for h in lengths))
        nominal = fc.PDANPG(g_squared=g2)
        true = fc.PDANPG(g_squared=g2, mu_f=at.mu)
        rows = {f"{label}, kappa = 20": replace(nominal, **changes) for label, changes in VARIANTS.items()}
        rows["ASGD, tail, this kappa"] = true
        rows["ASGD, tail, this kappa_tilde"] = replace(true, kappa_tilde=min(statistical, kappa))
        rows |= {f"ASGD, tail, kappa_tilde = {x} kappa": replace(true, kappa_tilde=x * kappa) for x in SHARES}
        for label, made in rows.items():
            cells = []
            for h in lengths:
                skipped = replace(made, inner=h).n_skipped()
                moments = theory.inner_moments(at, made.momentum(g2), h, skipped)
                size = float(np.linalg.norm(at.natural))
                cells.append(f"{moments.bias / size:>11.3f}{math.sqrt(moments.error_second) / size:>9.2f}")
            print(f"{label:36}" + "".join(cells), flush=True)


def whole_runs(samples: float, replicates: int) -> None:
    rows: dict[str, dict[str, Any]] = {label: dict(changes) for label, changes in VARIANTS.items()}
    rows["SGD, tail, 5 times the step"] = {"method": "sgd", "times": 5.0}
    rows |= {f"ASGD, tail, kappa_tilde = {x:g}": {"kappa_tilde": x} for x in (5.0, 1.0, 0.2)}
    garnet, easy = fc.envs.garnet(), fc.envs.garnet(gamma=0.5)
    phi = np.random.default_rng(0).standard_normal((easy.n_choices, 10)) * np.geomspace(1.0, 0.1, 10)
    h = fc.PDANPG.for_samples(garnet, samples).inner
    cases: dict[str, tuple[fc.CMDP, Policy, int]] = {
        f"garnet, H = {h}": (garnet, TabularSoftmax(), h),
        f"resource gathering, H = {h}": (fc.envs.resource_gathering(), TabularSoftmax(), h),
        "steep features, gamma = 0.5, H = 100": (easy, LogLinear(phi), 100),
        "the same, H = 1000": (easy, LogLinear(phi), 1000),
    }
    for name, (cmdp, policy, inner) in cases.items():
        best = fc.optimum(cmdp)
        scales = Scales.of(cmdp, best)
        print(
            f"\n{name}, {samples:.0e} transitions, {replicates} replicates: error of the mixture, last quarter"
        )
        for label, changes in rows.items():
            made = fc.PDANPG(inner=inner)
            outer = max(round(samples / made.outer_samples(cmdp)) - made.pilot, 10)
            changes = dict(changes)
            if times := changes.pop("times", None):
                changes["delta"] = times / (5.0 * policy.bind(cmdp).score_bound)
            made = replace(made, outer=outer, **changes)
            result = fc.solve(
                cmdp, made, policy=policy, replicates=replicates, seed=1, optimum=best, trace=40
            )
            cells = []
            for x in (result.mixture, result.last_quarter):
                found = interval(scales.errors(cmdp, x))
                cells.append(f"{found['mean']:>8.3f} [{found['low']:.3f}, {found['high']:.3f}]")
            print(f"{label:34}" + " ".join(cells), flush=True)


def critics(samples: float, replicates: int) -> None:
    """Error over the attainable ranges with each critic and form of the multiplier: mixture, and last quarter."""
    models = {"garnet 20": fc.envs.garnet(n_states=20), "river-swim": fc.envs.river_swim()}
    optima = {name: fc.optimum(cmdp) for name, cmdp in models.items()}
    print(
        f"\n{samples:.0e} transitions, the worst of {replicates} replicates, per cent: mixture, last quarter"
    )
    print(f"{'':28}" + "".join(f"{name:>20}" for name in models))
    for inner, critic, dual in itertools.product((None, 15), CRITICS, ("plain", "pi")):
        own: dict[str, Any] = {"critic": critic, "dual": dual} | ({"inner": inner} if inner else {})
        cells = []
        for name, cmdp in models.items():
            scales, settings = Scales.of(cmdp, optima[name]), fc.PDANPG.for_samples(cmdp, samples, **own)
            result = fc.solve(cmdp, settings, replicates=replicates, seed=1, optimum=optima[name], trace=40)
            errors = [scales.errors(cmdp, x).max() for x in (result.mixture, result.last_quarter)]
            cells.append(f"H={settings.inner:<4}{100 * errors[0]:>6.2f}{100 * errors[1]:>7.2f}")
        print(f"{critic + ', ' + dual:28}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--samples", type=float, help="budget of the whole runs: 3e6, or 1e7 with --critics")
    parser.add_argument("--critics", action="store_true", help="the table of critic= and dual= alone")
    options = parser.parse_args()
    began = time.perf_counter()
    budget = 3e4 if options.quick else options.samples or (1e7 if options.critics else 3e6)
    if options.critics:
        critics(budget, 2 if options.quick else 4)
    else:
        fixed_points((10, 40) if options.quick else (20, 100, 500))
        whole_runs(budget, 2 if options.quick else 8)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
