"""Time and samples to 1 % on FrozenLake: `python bench/time_to_accuracy.py [--plot FILE.png]`, some minutes.

From a warm start: kernels are compiled and the exact optimum is known before the clock begins. Each method plans for
budgets of 1e4, 3e4, 1e5, .. transitions, one replicate on one thread; its time to 1 % is that of the first budget at
which the last quarter is within 1 % (the larger of gap / range of the reward and violation / range of the limit; mean
of so many seeds). Methods that know no K, or grow, gain nothing by this. PPO with a Lagrangian penalty, by
Stable-Baselines3, stands beside them where that is installed: its network's policy is evaluated exactly.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path

import numpy as np

import fastcmdp as fc
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.errors import BudgetError
from fastcmdp.runs.scales import Scales

Curve = list[tuple[float, float, float]]  # samples, seconds, error


def curve(
    cmdp: fc.CMDP, best: object, name: str, most: float, seeds: int, limit: float, target: float
) -> Curve:
    """Errors of a method at growing budgets, until it is at the target or takes longer than ``limit`` seconds."""
    found: Curve = []
    fc.solve(cmdp, ALGORITHMS[name].shortest(), optimum=best)  # compile
    for budget in 10.0 ** np.arange(4.0, np.log10(most) + 0.01, 0.5):
        try:
            settings = ALGORITHMS[name].for_samples(cmdp, budget)
        except BudgetError:
            continue
        runs = [fc.solve(cmdp, settings, seed=seed, optimum=best, threads=1) for seed in range(seeds)]
        error = float(np.mean([Scales.of(cmdp, best).errors(cmdp, run.last_quarter) for run in runs]))
        seconds = float(np.mean([run.trace.seconds for run in runs]))
        found.append((float(np.mean([run.samples for run in runs])), seconds, error))
        print(f"{name:16} {found[-1][0]:.1e} transitions {seconds:8.3f} s {100 * error:7.2f} %", flush=True)
        if error <= target or seconds > limit:
            break
    return found


def ppo(cmdp: fc.CMDP, best: object, iterations: int) -> Curve:
    """PPO-Lagrangian of examples/gymnasium_train.py at growing numbers of iterations of 1,024 transitions."""
    if importlib.util.find_spec("stable_baselines3") is None:
        print(
            "Stable-Baselines3 is not installed: pip install stable-baselines3 to have PPO-Lagrangian beside them"
        )
        return []
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    from gymnasium_train import train

    found: Curve = []
    while len(found) == 0 or 2 * found[-1][0] <= iterations * 1024:
        n = 10 if not found else round(2 * found[-1][0] / 1024)
        began = time.perf_counter()
        policy, _ = train(cmdp, n, 1024, rate=0.1, seed=0)
        seconds, value = time.perf_counter() - began, fc.evaluate(cmdp, policy)
        scales = Scales.of(cmdp, best)
        short = max(float(value.constraints[0] - cmdp.limits[0]), 0.0) / scales.constraints[0]
        error = max((best.reward - value.reward) / scales.reward, short)  # type: ignore[attr-defined]
        found.append((n * 1024.0, seconds, error))
        print(
            f"{'PPO-Lagrangian':16} {n * 1024:.1e} transitions {seconds:8.1f} s {100 * error:7.2f} %",
            flush=True,
        )
    return found


def draw(curves: dict[str, Curve], target: float, file: Path) -> None:
    """Error against seconds, one line a method."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.5))
    for name, found in curves.items():
        if found:
            axes.loglog(
                [s for _, s, _ in found], [100.0 * max(e, 1e-6) for *_, e in found], "o-", ms=3, label=name
            )
    axes.axhline(100.0 * target, color="0.4", linewidth=0.8)
    axes.set(xlabel="seconds of one thread", ylabel="error of the last quarter, %", title="FrozenLake")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=150)


def main() -> None:
    """Print times to the target and draw them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    parser.add_argument("--target", type=float, default=0.01)
    parser.add_argument("--most", type=float, default=1e9, help="Transitions at most.")
    parser.add_argument(
        "--limit", type=float, default=30.0, help="No larger budget once a run takes so many seconds."
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ppo", type=int, default=160, help="Iterations at most; 0: none.")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    cmdp = fc.envs.from_gymnasium("FrozenLake-v1")
    best = fc.optimum(cmdp)
    curves = {
        name: curve(cmdp, best, name, options.most, options.seeds, options.limit, options.target)
        for name in options.algorithms.split(",")
    }
    if options.ppo:
        curves["PPO-Lagrangian"] = ppo(cmdp, best, options.ppo)
    print(f"\n| method | transitions to {100 * options.target:g} % | seconds |\n|---|---|---|")
    for name, found in curves.items():
        reached = [(n, s) for n, s, e in found if e <= options.target]
        last = found[-1] if found else (0.0, 0.0, float("nan"))
        beyond = f"not by {last[0]:.1e} ({100 * last[2]:.1f} %) | more than {last[1]:.3g}"
        told = f"{reached[0][0]:.1e} | {reached[0][1]:.3g}" if reached else beyond
        print(f"| {name} | {told} |")
    if options.plot is not None:
        draw(curves, options.target, options.plot)


if __name__ == "__main__":
    main()
