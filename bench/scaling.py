"""Threads, size, memory and preparation: the figures of docs/performance.md that peers.py does not give.

python bench/scaling.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
from numba import njit

import fastcmdp as fc
from fastcmdp.kernels.algorithm.pd_anpg import sample_batch
from fastcmdp.kernels.learning.asgd import asgd
from fastcmdp.kernels.policy.scores import collect_scores, forget_scores
from fastcmdp.kernels.policy.softmax import refresh_all
from fastcmdp.tables import build_tables
from fastcmdp.worlds import TableWorld

MODEL_ARRAYS = (
    "state_to_choice", "choice_to_branch", "branch_target", "branch_prob", "action_of_choice", "choice_state",
    "start", "reward", "costs", "signals",
)  # fmt: skip


def garnet(n_states: int, branches: int | None, gamma: float) -> fc.CMDP:
    return fc.envs.garnet(
        n_states=n_states, n_actions=4, n_branches=branches, gamma=gamma, seed=0, limit=0.5 / (1 - gamma)
    )


def new_run(cmdp: fc.CMDP, policy, **settings):
    problem = TableWorld.of(cmdp, policy)
    return fc.PDANPG(outer=10**9, inner=100, **{"pilot": 0} | settings).run(problem, 0, 1)


def resident() -> tuple[float, float]:
    """Resident memory now and at its highest since the mark was reset, MiB."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(lines[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))


@njit
def sample_many(tables, actions, rng, times, work):
    drawn = 0
    for _ in range(times):
        drawn += sample_batch(tables, actions, rng, 100, True, work)
    return drawn


def whole_over_sampler(rounds: int) -> None:
    """A whole outer step beside its sampling alone: H = 100, gamma = 0.95, S = 100 dense."""
    cmdp = garnet(100, None, 0.95)
    features = np.random.default_rng(0).standard_normal((cmdp.n_choices, 64)) / 8
    for name, policy in (("tabular", fc.TabularSoftmax()), ("log-linear, d = 64", fc.LogLinear(features))):
        run = new_run(cmdp, policy)
        work, tables = run.work(), run.world.tables
        ratios = []
        run.advance(0, 5, work)
        sample_many(tables, run.actions[0], run.state.rng[0], 1, work)  # compiles
        for _ in range(rounds):
            began, drawn = time.perf_counter(), int(run.state.samples[0])
            run.advance(0, 50, work)
            whole = (time.perf_counter() - began) / (int(run.state.samples[0]) - drawn)
            began = time.perf_counter()
            drawn = sample_many(tables, run.actions[0], run.state.rng[0], 50, work)
            ratios.append(whole / ((time.perf_counter() - began) / drawn))
        print(f"whole run / its sampler, {name}: {statistics.median(ratios):.3f}", flush=True)


def critic_over_none(rounds: int) -> None:
    """A transition of a run with a critic beside one of a run without: H = 100."""
    dense = garnet(100, None, 0.99)
    features = np.random.default_rng(0).standard_normal((dense.n_choices, 64)) / 8
    tabular = fc.TabularSoftmax()
    for name, cmdp, policy in (
        ("tabular, S = 100 dense, gamma 0.99", dense, tabular),
        ("log-linear, d = 64, S = 100 dense, gamma 0.99", dense, fc.LogLinear(features)),
        ("tabular, S = 100, 5 branches, gamma 0.99", garnet(100, 5, 0.99), tabular),
        ("tabular, S = 20, 5 branches, gamma 0.9", garnet(20, 5, 0.9), tabular),
    ):
        runs = [new_run(cmdp, policy, critic=critic) for critic in ("none", "control", "control+start")]
        works = [run.work() for run in runs]
        each: list[list[float]] = [[] for _ in runs]
        for i in range(rounds + 1):
            for run, work, spans in zip(runs, works, each, strict=True):
                began, drawn = time.perf_counter(), int(run.state.samples[0])
                run.advance(0, 20, work)
                if i > 0:  # the first compiles
                    spans.append((time.perf_counter() - began) / (int(run.state.samples[0]) - drawn))
        for critic, spans in zip(("control", "control+start"), each[1:], strict=True):
            ratio = statistics.median(b / a for a, b in zip(each[0], spans, strict=True))
            print(f"a transition with critic={critic!r} / without, {name}: {ratio:.3f}", flush=True)


@njit
def collect_many(data, theta, tables, actions, pair, scores, times):
    for _ in range(times):
        forget_scores(scores, collect_scores(data, theta, tables, actions, pair, 100, scores))


@njit
def refresh_many(data, theta, tables, actions, space, times):
    for _ in range(times):
        refresh_all(data, theta, tables, actions, space)


@njit
def asgd_many(momentum, weights, scores, target, inner, omega, times):
    for _ in range(times):
        asgd(scores, momentum, weights, target, 100, omega.shape[0], inner, omega)


def log_linear_parts(rounds: int) -> None:
    """Microseconds an outer step of the log-linear run: sampler, action rows, scores, ASGD."""
    cmdp = garnet(100, None, 0.95)
    run = new_run(cmdp, fc.LogLinear(np.random.default_rng(0).standard_normal((cmdp.n_choices, 64)) / 8))
    work, tables, data, actions = run.work(), run.world.tables, run.world.policy.data, run.actions[0]
    run.advance(0, 5, work)
    parts = {
        "sampler": (sample_many, (tables, actions, run.state.rng[0], 50, work)),
        "rows": (refresh_many, (data, run.state.theta[0], tables, actions, work.space, 50)),
        "scores": (
            collect_many,
            (data, run.state.theta[0], tables, actions, work.pair, work.scores, 50),
        ),
        "ASGD": (
            asgd_many,
            (run.solver, work.weights, work.scores, work.target, work.inner, work.omega, 50),
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for i in range(rounds + 1):
        for name, (call, arguments) in parts.items():
            began = time.perf_counter()
            call(*arguments)
            if i > 0:  # the first compiles
                times[name].append((time.perf_counter() - began) / 50 * 1e6)
    shares = ", ".join(f"{name} {statistics.median(t):.1f}" for name, t in times.items())
    print(f"log-linear, d = 64, us an outer step: {shares}", flush=True)


def threads(rounds: int) -> None:
    """Throughput of two threads over one, 16 replicates."""
    cmdp = garnet(100, None, 0.95)
    settings = fc.PDANPG(outer=3000, inner=100, pilot=0)
    ratios = []
    for _ in range(rounds + 1):
        speed = []
        for n in (1, 2):
            result = fc.solve(cmdp, settings, replicates=16, threads=n, optimum=False, trace=2)
            speed.append(result.samples.sum() / result.trace.seconds)
        ratios.append(speed[1] / speed[0])
    print(
        f"two threads / one, 16 replicates: {statistics.median(ratios[1:]):.3f} times the throughput",
        flush=True,
    )


def size(quick: bool, rounds: int) -> None:
    """An outer step on a large model beside a small one, memory, and the time to build tables."""
    settings = {}
    before = resident()[0]
    for n_states in (1_000, 100_000 if quick else 1_000_000):
        cmdp = garnet(n_states, 5, 0.95)
        Path("/proc/self/clear_refs").write_text("5")  # forget the generator's own peak
        spans = []
        for _ in range(5):
            began = time.perf_counter()
            build_tables(cmdp)
            spans.append((time.perf_counter() - began) / cmdp.n_branches)
        build = statistics.median(spans)
        run = new_run(cmdp, fc.TabularSoftmax())
        settings[n_states] = (cmdp, run, run.work(), build, resident())
        run.advance(0, 20, settings[n_states][2])
    times: dict[int, list[float]] = {n: [] for n in settings}
    for _ in range(rounds):
        for n, (_, run, work, _, _) in settings.items():
            began = time.perf_counter()
            run.advance(0, 50, work)
            times[n].append((time.perf_counter() - began) / 50)
    small, large = settings
    ratio = statistics.median(b / a for a, b in zip(times[small], times[large], strict=True))
    print(f"outer step, S = {large:,} / S = {small:,}: {ratio:.2f} times", flush=True)
    cmdp, _, _, build, (_, peak) = settings[large]
    own = sum(getattr(cmdp, name).nbytes for name in MODEL_ARRAYS) / 2**20
    print(f"building tables, S = {large:,}: {build * 1e9:.1f} ns a branch", flush=True)
    print(
        f"peak memory of a run, S = {large:,}: {(peak - before) / own:.2f} times the model's arrays ({own:.0f} MiB)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rounds = 5 if options.quick else 11
    whole_over_sampler(4 * rounds)
    critic_over_none(4 * rounds)
    log_linear_parts(4 * rounds)
    threads(rounds if options.quick else 5)
    size(options.quick, rounds)


if __name__ == "__main__":
    main()
