"""Time a transition of CRPO beside PD-ANPG's sampler: chains alone, with critics, whole runs.

    python bench/crpo.py [--quick]

Medians over interleaved rounds, processor time of one thread, of ratios within a round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import fastcmdp as fc
from fastcmdp.kernels.algorithm.pd_anpg import sample_batch
from fastcmdp.kernels.learning.td import run_td
from fastcmdp.worlds import TableWorld


def nanoseconds(call: Callable[[], int]) -> float:
    began, drawn = time.thread_time(), 0
    while time.thread_time() - began < 0.01:
        drawn += call()
    return (time.thread_time() - began) * 1e9 / drawn


def chains(run: Any, work: Any, n_steps: int, n_signals: int) -> int:
    """Transitions alone (no signals, so no critics), or with their TD updates."""
    tables, policy, steps = run.world.tables._replace(n_signals=n_signals), run.world.policy, run.steps
    d = policy.n_parameters
    run_td(
        tables, run.actions[0], run.state.rng[0], run.state.chain[0], run.state.visits[0], steps.rule, policy.data,
        run.state.theta[0], work.gradients, steps.gamma, n_steps, d, steps.origin, run.state.critic[0, : n_signals * d],
        work.mean[: n_signals * d], work.total[:n_signals], work.pair,
    )  # fmt: skip
    return n_steps


def whole(run: Any, work: Any) -> int:
    run.advance(0, 10, work)
    return int(10 * run.settings.inner)


def speed(n_states: int, gamma: float, rounds: int) -> None:
    cmdp = fc.envs.garnet(n_states=n_states, gamma=gamma)
    problem = TableWorld.of(cmdp, fc.TabularSoftmax())
    base = fc.PDANPG(outer=10, inner=100).run(problem, 0, 1)
    base_work = base.work()
    inner = 20 * cmdp.n_choices
    calls: dict[str, Callable[[], int]] = {
        "PD-ANPG's sampler": lambda: sample_batch(
            base.world.tables, base.actions[0], base.state.rng[0], 100, True, base_work
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
    quick = parser.parse_args().quick
    for n_states in (20, 100, 1000):
        for gamma in (0.9, 0.99):
            speed(n_states, gamma, 3 if quick else 15)


if __name__ == "__main__":
    main()
