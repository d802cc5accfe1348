"""Errors of CRPO over three decades of budget, and its speed beside PD-ANPG's sampler.

    python bench/crpo.py [--quick] [--speed]

Error: the larger of gap / J_r* and violation over the constraint's range, of the mixture, means over replicates;
settings are those of ``for_samples``. Speed: medians over interleaved rounds, processor time of one thread, of ratios
within a round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import fastcmdp as fc
from fastcmdp.kernels.pd_anpg import sample_batch
from fastcmdp.kernels.td import run_td
from fastcmdp.problem import Problem
from fastcmdp.tables import build_tables


def errors(name: str, cmdp: fc.CMDP, budgets: list[float], replicates: int) -> None:
    best = fc.optimum(cmdp)
    span = np.diff(best.constraint_range, axis=1)[:, 0]
    cases: list[tuple[str, type[Any], dict[str, Any]]] = [
        ("crpo-softmax", fc.CRPOSoftmax, {}),
        ("crpo-softmax, carry_over=False", fc.CRPOSoftmax, {"carry_over": False, "c_step": 10.0}),
        ("crpo", fc.CRPO, {}),
    ]
    for label, algorithm, settings in cases:
        row = []
        for samples in budgets:
            made = algorithm.for_samples(cmdp, samples, **settings)
            result = fc.solve(cmdp, made, replicates=replicates, seed=1, optimum=best)
            gap = max(float(result.gap.mean()), 0.0) / abs(best.reward)
            violation = float((result.violation / span).max(axis=1).mean())
            flag = f", {result.empty.sum()} empty" if result.empty.any() else ""
            row.append(f"{max(gap, violation):.4f} ({gap:.4f}, {violation:.4f}{flag})")
        print(f"{name:20} {label:32} " + "  ".join(row), flush=True)


def nanoseconds(call: Callable[[], int]) -> float:
    began, drawn = time.thread_time(), 0
    while time.thread_time() - began < 0.01:
        drawn += call()
    return (time.thread_time() - began) * 1e9 / drawn


def chains(run: Any, work: Any, n_steps: int, n_signals: int) -> int:
    """Transitions alone (no signals, so no critics), or with their TD updates."""
    tables, policy, steps = run.problem.tables._replace(n_signals=n_signals), run.problem.policy, run.steps
    d = policy.n_parameters
    run_td(
        tables, run.actions[0], run.state.rng[0], run.state.chain[0], steps.rule, policy.data, steps.gamma, n_steps,
        d, steps.origin, run.state.critic[0, : n_signals * d], work.mean[: n_signals * d], work.total[:n_signals],
        work.pair,
    )  # fmt: skip
    return n_steps


def whole(run: Any, work: Any) -> int:
    run.advance(0, 10, work)
    return int(10 * run.settings.inner)


def speed(n_states: int, gamma: float, rounds: int) -> None:
    cmdp = fc.envs.garnet(n_states=n_states, gamma=gamma)
    problem = Problem(cmdp, build_tables(cmdp), fc.TabularSoftmax().bind(cmdp), None)
    base = fc.PDANPG(outer=10, inner=100).run(problem, 0, 1)
    base_work = base.work()
    inner = 20 * cmdp.n_choices
    calls: dict[str, Callable[[], int]] = {
        "PD-ANPG's sampler": lambda: sample_batch(
            base.problem.tables, base.actions[0], base.state.rng[0], 100, True, base_work
        )
    }
    for algorithm in (fc.CRPOSoftmax, fc.CRPO):
        run = algorithm(outer=10**9, inner=inner).run(problem, 0, 1)
        work = run.work()
        calls[f"chains of {algorithm.name}"] = partial(chains, run, work, 10 * inner, 0)
        calls[f"chains and critics of {algorithm.name}"] = partial(chains, run, work, 10 * inner, 2)
        calls[algorithm.name] = partial(whole, run, work)
    times: dict[str, list[float]] = {label: [] for label in calls}
    for call in calls.values():
        call()  # compiles
    for _ in range(rounds):
        for label, call in calls.items():
            times[label].append(nanoseconds(call))
    sampler = times["PD-ANPG's sampler"]
    print(
        f"S = {n_states}, gamma = {gamma}: PD-ANPG's sampler {statistics.median(sampler):.1f} ns a transition"
    )
    for label in list(calls)[1:]:
        ratio = statistics.median(x / y for x, y in zip(times[label], sampler, strict=True))
        print(f"  {label:36} {statistics.median(times[label]):5.1f} ns, {ratio:.2f} times", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--speed", action="store_true", help="speed only")
    args = parser.parse_args()
    quick = args.quick
    for n_states in (20, 100, 1000):
        for gamma in (0.9, 0.99):
            speed(n_states, gamma, 3 if quick else 15)
    if args.speed:
        return
    budgets = [1e5, 1e6] if quick else [1e5, 1e6, 1e7, 1e8]
    errors("garnet", fc.envs.garnet(), budgets, 2 if quick else 8)
    errors("resource gathering", fc.envs.resource_gathering(), budgets, 2 if quick else 8)


if __name__ == "__main__":
    main()
