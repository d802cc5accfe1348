"""What pages on criteria tell: `python bench/criteria.py [average] [utilities] [horizon]`, the names of the pages.

Errors do not depend on the machine; seconds do. All parts take about an hour of two cores; `--quick` some minutes, with
smaller budgets.

average    error against samples of PDNACAverage, of PD-ANPG-CV and PD-ANPG on the restated model, with the slope of
           log error in log samples; then the default at the largest budget, untuned
utilities  entropy on a grid of 10,000 cells; utilities learned with a concave constraint beside them
horizon    FrozenLake with 100 steps: against backward induction, and played in Gymnasium's own environment

Errors of averages are the larger of |gap| over the optimum and violation over the constraint's range, means over four
replicates. Slopes are of least squares over budgets half a decade apart, with their standard errors; budgets
below one outer step of a method are left out.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from scipy.sparse import csr_array

import fastcmdp as fc
from fastcmdp.errors import BudgetError
from fastcmdp.exact import at_least, entropy, log_values, maximise
from fastcmdp.exact import horizon as induction
from fastcmdp.runs import Averages

SLOPES = {"pd-nac-average": ("garnet", "dense", "inventory", "queue"), "pd-anpg-cv": ("garnet", "dense"),
          "pd-anpg": ("garnet", "dense")}  # fmt: skip


def averages() -> dict[str, fc.CMDP]:
    """The models, with limits (1 - gamma) d on averages."""
    plain = {
        "garnet": fc.envs.garnet(n_states=20),
        "dense": fc.envs.garnet(n_states=20, n_branches=None),
        "inventory": fc.envs.inventory(),
        "queue": fc.envs.queue(),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the sparse garnet restarts
        return {
            name: model.with_criterion("average", limits=model.unit * model.limits)
            for name, model in plain.items()
        }


def shares(best: fc.exact.Optimum, found: Averages) -> tuple[np.ndarray, np.ndarray]:
    """Gap over the optimum and violation over the constraint's range, of each replicate."""
    span = np.ptp(best.constraint_range, axis=1)
    worst = (found.violation / span).max(axis=1, initial=0.0)
    return found.gap / abs(best.reward), worst


def error(best: fc.exact.Optimum, found: Averages) -> float:
    """Of means over replicates."""
    gap, violation = shares(best, found)
    return float(max(abs(gap.mean()), violation.mean()))


def slope(errors: dict[float, float]) -> str:
    """Of log error in log samples, with its standard error."""
    (steepness, _), covariance = np.polyfit(np.log(list(errors)), np.log(list(errors.values())), 1, cov=True)
    return f"{steepness:.2f} +- {np.sqrt(covariance[0, 0]):.2f}"


def average(quick: bool) -> None:
    """Slopes, then the default."""
    models = averages()
    best = {name: fc.optimum(model) for name, model in models.items()}
    budgets = [float(n) for n in 10.0 ** np.arange(5.0, 6.51 if quick else 8.01, 0.5)]
    print(f"| | | slope, mixture | last quarter | last quarter's error at {budgets[0]:.0e}, a decade apart |")
    print("|---|---|---|---|---|")
    for method, names in SLOPES.items():
        for name in names:
            mixture: dict[float, float] = {}
            late: dict[float, float] = {}
            for samples in budgets:
                try:
                    settings = fc.ALGORITHMS[method].for_samples(models[name], samples)
                except BudgetError:
                    continue
                result = fc.solve(models[name], settings, replicates=4, seed=1, optimum=best[name])
                mixture[samples] = error(best[name], result.mixture)
                late[samples] = error(best[name], result.last_quarter)
            decades = ", ".join(f"{100 * late[n]:.2g} %" if n in late else "-" for n in budgets[::2])
            print(f"| {method} | {name} | {slope(mixture)} | {slope(late)} | {decades} |", flush=True)
    print(f"\n| {budgets[-1]:.0e} samples, worst of 2 x 4 replicates | gamma | gap | violation |")
    print("|---|---|---|---|")
    for name, model in models.items():
        worst = np.zeros(2)
        for seed in (0, 1):
            result = fc.solve(model, samples=budgets[-1], replicates=4, seed=seed, optimum=best[name])
            gap, violation = shares(best[name], result.last_quarter)
            worst = np.maximum(worst, [np.abs(gap).max(), violation.max()])
        print(f"| {name} | {model.gamma:.6g} | {worst[0]:.2%} | {worst[1]:.2%} |", flush=True)


def grid(n: int) -> fc.CMDP:
    """n x n cells, four moves, all starts in a corner."""
    row, column = np.divmod(np.arange(n * n), n)
    moves = []
    for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        to = np.clip(row + down, 0, n - 1) * n + np.clip(column + right, 0, n - 1)
        moves.append(csr_array((np.ones(n * n), (np.arange(n * n), to)), shape=(n * n, n * n)))
    return fc.CMDP.from_arrays(moves, np.zeros((n * n, 4)), gamma=0.99, start=0)


def utilities(quick: bool) -> None:
    """Exact on a grid, then learned."""
    cmdp = grid(100)
    began = time.perf_counter()
    best = maximise(cmdp, entropy(cmdp))
    print(
        f"entropy of {cmdp.n_states} cells: gap {best.gap:.1e}, {time.perf_counter() - began:.1f} s",
        flush=True,
    )
    small, queue, garnet = fc.envs.garnet(n_states=8, seed=1), fc.envs.queue(), fc.envs.garnet(n_states=20)
    problems = {
        "garnet, 8 states, log reward; entropy": (small, log_values(small, [1.0, 0.0]), entropy(small)),
        "queue, log reward; entropy": (queue, log_values(queue, [1.0, 0.0]), entropy(queue)),
        "garnet, 20 states, entropy; log reward + log cost": (garnet, entropy(garnet), log_values(garnet)),
    }
    budgets = (1e5, 1e6) if quick else (1e7, 1e8)
    print("\n| utility; constraint | samples | f short by | constraint missed by | limit missed by |")
    print("|---|---|---|---|---|")
    for name, (model, utility, beside) in problems.items():
        low, high = beside.value(maximise(model, utility).occupancy), maximise(model, beside).value
        bound = at_least(beside, 0.5 * (low + high))
        most = maximise(model, utility, subject_to=[bound]).value
        for samples in budgets:
            learned = fc.learn_utility(model, utility, samples=samples, rounds=20, seed=1, subject_to=[bound])
            own, value = fc.occupancy(model, learned.policy), fc.evaluate(model, learned.policy)
            short = (most - utility.value(own)) / abs(most)
            missed = max(0.0, -bound.value(own)) / abs(high)
            slack = model.slack(np.append(value.reward, value.constraints)) / np.abs(model.limits)
            print(
                f"| {name} | {samples:.0e} | {short:.2%} | {missed:.2%} | {max(0.0, -slack.min()):.2%} |",
                flush=True,
            )


def horizon(quick: bool) -> None:
    """FrozenLake: exact, and played."""
    import gymnasium

    lake = fc.envs.from_gymnasium("FrozenLake-v1", start="environment", limit=0.5)
    timed = lake.with_criterion("steps", steps=100, limits=[1.0])
    best = fc.optimum(timed)
    print(f"optimum {best.reward:.12f}, less backward induction {best.reward - induction(lake, 100)[0]:.1e}")
    first = timed.state_to_choice
    choice = {
        (int(timed.variables["t"][s]), int(timed.variables["state"][s])): int(
            timed.action_of_choice[first[s] + best.policy[first[s] : first[s + 1]].argmax()]
        )
        for s in range(timed.n_states)
    }
    env, n, won = gymnasium.make("FrozenLake-v1"), 500 if quick else 20_000, 0.0
    for episode in range(n):
        s, _ = env.reset(seed=episode)
        over, t = False, 0
        while not over:
            s, reward, ended, cut, _ = env.step(choice[t, int(s)])
            won, over, t = won + float(reward), ended or cut, t + 1
    deviation = np.sqrt(best.reward * (1.0 - best.reward) / n)
    print(
        f"{n} episodes of Gymnasium's: {won / n:.5f}, {(won / n - best.reward) / deviation:+.1f} standard errors"
    )


PARTS = {"average": average, "utilities": utilities, "horizon": horizon}


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="small budgets")
    given = parser.parse_args()
    for part in given.parts or PARTS:
        if part not in PARTS:
            parser.error(f"{part}: give {', '.join(PARTS)}")
        print(f"\n## {part}\n", flush=True)
        PARTS[part](given.quick)


if __name__ == "__main__":
    main()
