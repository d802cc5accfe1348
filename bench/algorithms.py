"""Nanoseconds a transition of every algorithm's whole run, beside PD-ANPG's sampler alone.

    python bench/algorithms.py [--quick]

A whole run samples, updates and rebuilds action rows, so its ratio is an upper bound on the sampler's own. NPG-PD and
C-NPG-PDA call PD-ANPG's sampler; that of tabular NPG-PD is timed on its own too. Rounds are interleaved; the table has
medians over rounds, and ratios are medians of the ratios within a round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from numba import njit

import fastcmdp as fc
from fastcmdp.kernels.pd_anpg import sample_batch
from fastcmdp.kernels.rollouts import rollouts
from fastcmdp.problem import Problem
from fastcmdp.tables import build_tables


@njit
def sample_many(tables, actions, rng, n_pairs, times, work):
    drawn = 0
    for _ in range(times):
        drawn += sample_batch(tables, actions, rng, n_pairs, True, work)
    return drawn


@njit
def sample_every_choice(tables, actions, rng, times, work):
    drawn = 0
    for _ in range(times):
        drawn += rollouts(tables, actions, rng, work.job_choice, work.job_row, work.total, work.last_pair)
    return drawn


def nanoseconds(run: Any, work: Any, n_steps: int) -> float:
    before, began = int(run.state.samples[0]), time.perf_counter()
    run.advance(0, n_steps, work)
    return (time.perf_counter() - began) * 1e9 / (int(run.state.samples[0]) - before)


def measure(name: str, cmdp: fc.CMDP, samples: float, rounds: int) -> None:
    problem = Problem(cmdp, build_tables(cmdp), fc.TabularSoftmax().bind(cmdp), fc.optimum(cmdp))
    base = fc.PDANPG(outer=10, inner=100).run(problem, 0, 1)
    base_work = base.work()
    runs = {}
    for label, algorithm in fc.ALGORITHMS.items():
        made = algorithm.for_samples(cmdp, samples)
        run = made.run(problem, 0, 1)
        n_steps = max(round(samples / 10 / made.outer_samples(cmdp)), 1)
        runs[label] = (run, run.work(), n_steps)
    times: dict[str, list[float]] = {label: [] for label in runs}
    sampler: list[float] = []
    every: list[float] = []
    for i in range(rounds + 1):
        began = time.perf_counter()
        drawn = sample_many(problem.tables, base.actions[0], base.state.rng[0], 100, 50, base_work)
        alone = (time.perf_counter() - began) * 1e9 / drawn
        for label, (run, work, n_steps) in runs.items():
            found = nanoseconds(run, work, n_steps)
            if i > 0:  # the first compiles
                times[label].append(found)
        run, work, n_steps = runs["npg-pd-softmax"]
        began = time.perf_counter()
        drawn = sample_every_choice(problem.tables, run.actions[0], run.state.rng[0], n_steps, work)
        if i > 0:
            sampler.append(alone)
            every.append((time.perf_counter() - began) * 1e9 / drawn)
    print(f"\n{name}: PD-ANPG's sampler {statistics.median(sampler):.2f} ns a transition")
    ratio = statistics.median(x / y for x, y in zip(every, sampler, strict=True))
    print(f"every choice, the sampler of npg-pd-softmax: {ratio:.2f} times that")
    for label, found in times.items():
        ratio = statistics.median(x / y for x, y in zip(found, sampler, strict=True))
        print(
            f"{label:16} whole run {statistics.median(found):6.2f} ns, {ratio:.2f} times the sampler",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    measure("garnet, S = 20, gamma = 0.9", fc.envs.garnet(), 1e6, 2 if quick else 9)
    measure("resource gathering", fc.envs.resource_gathering(), 1e6, 2 if quick else 9)
    if not quick:
        measure("garnet, S = 100, gamma = 0.99", fc.envs.garnet(n_states=100, gamma=0.99), 1e8, 5)


if __name__ == "__main__":
    main()
