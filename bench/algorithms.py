"""Nanoseconds a transition of every algorithm's whole run, beside PD-ANPG's sampler alone.

    python bench/algorithms.py [--quick]

A whole run samples, updates and rebuilds action rows, so its ratio is an upper bound on the sampler's own. NPG-PD,
C-NPG-PDA and PDR-ANPG call PD-ANPG's sampler, so that their runs stand beside PD-ANPG's as well; those of tabular
NPG-PD and PD-NAC are timed on their own too. Rounds are interleaved; the table has medians over rounds, and ratios are
medians of the ratios within a round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
from numba import njit

import fastcmdp as fc
from fastcmdp.kernels.algorithm import pd_nac
from fastcmdp.kernels.algorithm.pd_anpg import sample_batch
from fastcmdp.kernels.sampling.lanes import branch_bits
from fastcmdp.kernels.sampling.rollouts import rollouts
from fastcmdp.kernels.sampling.tables import branch_row, draw_label, state_of_row
from fastcmdp.kernels.streams import next_word
from fastcmdp.worlds import TableWorld


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


@njit(error_model="numpy")
def walk(tables, actions, steps, state, work, n_steps):
    """PD-NAC's transitions and draws of actions, as its loop makes them, with nothing learned from them."""
    entry, alias = tables.branch_entry, actions.entry
    choice_word, state_to_choice, row_state = (
        tables.choice_word,
        tables.state_to_choice,
        tables.row_state,
    )
    words = np.uint64(tables.words)
    theta, drawn, critic = state.theta[0], state.drawn[0], state.critic[0].reshape(-1)
    since, top, highest, rng = state.since[0].reshape(-1), state.top[0], state.highest[0], state.rng[0]
    gone = np.zeros(state.critic.shape[2])
    explore = steps.explore
    here, doubts = np.uint64(state.choice[0]), 0
    for _ in range(n_steps):
        word = next_word(rng, 0)
        first, n = branch_row(choice_word[words * here])
        code = draw_label(entry, first, n, branch_bits(entry, word))
        here, doubt = pd_nac._draw(
            alias, state_to_choice, theta, drawn, critic, since, gone, top, highest, explore,
            state_of_row(row_state, code), code, rng, word,
        )  # fmt: skip
        doubts += doubt >= 0.0
    return here, doubts


def nanoseconds(run: Any, work: Any, n_steps: int) -> float:
    before, began = int(run.state.samples[0]), time.perf_counter()
    run.advance(0, n_steps, work)
    return (time.perf_counter() - began) * 1e9 / (int(run.state.samples[0]) - before)


def measure(name: str, cmdp: fc.CMDP, samples: float, rounds: int) -> None:
    problem = TableWorld.of(cmdp, fc.TabularSoftmax(), fc.optimum(cmdp))
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
    chain: list[float] = []
    for i in range(rounds + 1):
        began = time.perf_counter()
        drawn = sample_many(problem.tables, base.actions[0], base.state.rng[0], 100, 50, base_work)
        alone = (time.perf_counter() - began) * 1e9 / drawn
        for label, (run, work, n_steps) in runs.items():
            found = nanoseconds(run, work, n_steps)
            if i > 0:  # the first compiles
                times[label].append(found)
        run, work, _ = runs["pd-nac"]
        fresh = run.state._replace(since=np.zeros_like(run.state.since), top=np.zeros_like(run.state.top))
        steps = 20_000
        walked = time.perf_counter()
        walk(problem.tables, run.actions[0], run.steps, fresh, work, steps)
        walked = (time.perf_counter() - walked) * 1e9 / steps
        run, work, n_steps = runs["npg-pd-softmax"]
        began = time.perf_counter()
        drawn = sample_every_choice(problem.tables, run.actions[0], run.state.rng[0], n_steps, work)
        if i > 0:
            chain.append(walked)
            sampler.append(alone)
            every.append((time.perf_counter() - began) * 1e9 / drawn)
    print(f"\n{name}: PD-ANPG's sampler {statistics.median(sampler):.2f} ns a transition")
    ratio = statistics.median(x / y for x, y in zip(chain, sampler, strict=True))
    print(f"one chain, the sampler of pd-nac: {ratio:.2f} times that")
    ratio = statistics.median(x / y for x, y in zip(every, sampler, strict=True))
    print(f"every choice, the sampler of npg-pd-softmax: {ratio:.2f} times that")
    for label, found in times.items():
        ratio = statistics.median(x / y for x, y in zip(found, sampler, strict=True))
        beside = statistics.median(x / y for x, y in zip(found, times["pd-anpg"], strict=True))
        print(
            f"{label:16} whole run {statistics.median(found):6.2f} ns, {ratio:.2f} times the sampler, "
            f"{beside:.2f} times pd-anpg's run",
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
