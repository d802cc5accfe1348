"""Sampler, tables, both forms of ASGD and whole runs, each beside its naive twin.

    pytest bench --benchmark-only [--benchmark-group-by=group]

Times are per call; every call does the work named in the group. Compilation stands before the timed body.
"""

from __future__ import annotations

import naive
import numpy as np
import pytest
from numba import njit

import fastcmdp as fc
from fastcmdp.kernels.algorithm import pd_anpg
from fastcmdp.kernels.learning import asgd
from fastcmdp.kernels.policy.scores import collect_scores
from fastcmdp.streams import streams
from fastcmdp.tables import build_actions, build_tables

H = 100


@pytest.mark.benchmark(group="sampler: 100 samples of Algorithm 1, S = 100 dense, gamma = 0.95")
@pytest.mark.parametrize("who", ["fastcmdp", "exact draws", "naive"])
def test_sampler(benchmark, dense, new_run, who):
    prob = np.full(dense.n_choices, 0.25)
    if who == "naive":
        model, words = naive.plain(dense), naive.streams(0, 0, 16)
        benchmark.pedantic(naive.sample_batch, (model, prob.tolist(), words, H, True), rounds=2)
        return
    tables = build_tables(dense, "exact" if who == "exact draws" else "fast")
    actions, rng, work = (
        build_actions(tables, prob),
        streams(0, 1)[0],
        new_run(dense, fc.TabularSoftmax()).work(),
    )
    pd_anpg.sample_batch(tables, actions, rng, H, True, work)
    transitions = benchmark(pd_anpg.sample_batch, tables, actions, rng, H, True, work)
    assert transitions > 0


@pytest.mark.benchmark(group="sampler: 1,000 samples, 5 branches, gamma = 0.99")
@pytest.mark.parametrize("n_states", [1_000, 100_000])
def test_sampler_beyond_the_cache(benchmark, new_run, n_states):
    cmdp = fc.envs.garnet(n_states=n_states, n_actions=4, n_branches=5, gamma=0.99, limit=50.0)
    tables = build_tables(cmdp)
    actions, rng = build_actions(tables, np.full(cmdp.n_choices, 0.25)), streams(0, 1)[0]
    work = new_run(cmdp, fc.TabularSoftmax(), inner=1000).work()
    pd_anpg.sample_batch(tables, actions, rng, 1000, True, work)
    benchmark(pd_anpg.sample_batch, tables, actions, rng, 1000, True, work)


@pytest.mark.benchmark(group="tables of 40,000 branches")
@pytest.mark.parametrize("who", ["fastcmdp", "naive"])
def test_tables(benchmark, dense, who):
    if who == "naive":
        benchmark.pedantic(naive.build_branches, (naive.plain(dense),), rounds=2)
        return
    build_tables(dense)
    benchmark(build_tables, dense)


def batch(run):
    """Work space with one batch of scores and targets collected."""
    work, tables, data = run.work(), run.world.tables, run.world.policy.data
    pd_anpg.sample_batch(tables, run.actions[0], run.state.rng[0], H, True, work)
    n_slots = collect(data, run.state.theta[0], tables, run.actions[0], work.pair, work.scores)
    work.target[:] = work.advantage[:, 0] * tables.horizon
    asgd.fill_weights(run.solver, run.steps.n_skipped, work.weights)
    return work, n_slots


@njit
def inner_loop(scores, momentum, weights, target, n_steps, n_slots, inner, omega):
    asgd.asgd(scores, momentum, weights, target, n_steps, n_slots, inner, omega)


@njit
def collect(data, theta, tables, actions, pair, scores):
    return collect_scores(data, theta, tables, actions, pair, H, scores)


@pytest.mark.benchmark(group="ASGD: 100 steps")
@pytest.mark.parametrize("form", ["lazy, 4 nonzeros", "dense, d = 64", "naive, d = 64"])
def test_asgd(benchmark, dense, features, new_run, form):
    lazy = form.startswith("lazy")
    run = new_run(dense, fc.TabularSoftmax() if lazy else fc.LogLinear(features))
    work, n_slots = batch(run)
    if not form.startswith("naive"):
        call = (work.scores, run.solver, work.weights, work.target, H, n_slots, work.inner, work.omega)
        inner_loop(*call)
        benchmark(inner_loop, *call)
    else:
        rows, target = work.scores.dense.tolist(), work.target.tolist()
        benchmark.pedantic(naive.asgd_dense, (run.solver, rows, target), rounds=2)


@pytest.mark.benchmark(group="whole run: one outer step, H = 100, S = 100 dense, gamma = 0.95")
@pytest.mark.parametrize("who", ["tabular", "log-linear, d = 64", "naive, tabular"])
def test_whole_run(benchmark, dense, features, new_run, who):
    run = new_run(dense, fc.LogLinear(features) if who.startswith("log") else fc.TabularSoftmax())
    if who.startswith("naive"):
        state = naive.State(dense.n_choices, 1, 0, naive.streams(0, 0, 16))
        state.control = run.state.control[0].tolist()
        arguments = (naive.plain(dense), naive.identity(dense.n_choices), run.solver, run.steps, state, 1)
        benchmark.pedantic(naive.advance, arguments, rounds=2)
        return
    work = run.work()
    run.advance(0, 10, work)
    benchmark(run.advance, 0, 1, work)
    assert run.state.failed[0] < 0
