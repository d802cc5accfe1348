"""Simulators: against tables, against plain Python on the same stream, from C, from Gymnasium; and their faults."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import math
import os
import pickle
import random
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from numba import jit, njit
from test_estimators import FAILS, HOLDS, law_test, mean_test, p_value

import fastcmdp as fc
from fastcmdp import exact
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.kernels import draws
from fastcmdp.kernels.sampling.rollouts import geometric_horizon
from fastcmdp.kernels.simulator import simulate
from fastcmdp.kernels.streams import LANES
from fastcmdp.simulators.estimates import controlled
from fastcmdp.streams import streams
from fastcmdp.worlds import SimulatedWorld

SMALL = {"lead_time": 1, "orders": 3, "capacity": 6, "lot": 2, "gamma": 0.8}


@pytest.fixture(scope="module")
def queue() -> fc.Simulator:
    return fc.simulators.tandem_queue(gamma=0.8)


@pytest.fixture(scope="module")
def stock() -> fc.Simulator:
    return fc.simulators.inventory(**SMALL)  # type: ignore[arg-type]


def make_run(simulator: fc.Simulator, policy: Any, settings: fc.PDANPG, theta: Any = None) -> Any:
    bound = policy.bind(simulator)
    run = settings.run(SimulatedWorld(simulator, simulator.world(bound), bound), 6, 1)
    if theta is not None:
        run.state.theta[0] = theta
    return run


# Against tables.


class Pair:
    """A simulator and its table under one log-linear policy, features of the former in rows of the latter."""

    def __init__(self, simulator: fc.Simulator, table: fc.CMDP, index: Callable[[Any], Any]) -> None:
        self.simulator, self.table, self.index = simulator, table, index
        self.theta = 0.5 * np.random.default_rng(2).standard_normal(
            simulator.n_actions * simulator.n_features
        )

    def solve(self, states: Any) -> None:
        """Bind the policy to the table: states is each table state's vector."""
        A, n = self.simulator.n_actions, self.simulator.n_features
        phi = np.zeros((self.table.n_choices, A, n))
        for s, state in enumerate(states):
            for a in range(A):
                phi[s * A + a, a] = self.simulator.features(state)
        self.phi = phi.reshape(-1, A * n)
        z = (self.phi @ self.theta).reshape(-1, A)
        weight = np.exp(z - z.max(axis=1, keepdims=True))
        self.pi = (weight / weight.sum(axis=1, keepdims=True)).ravel()
        mean = np.repeat((self.pi[:, None] * self.phi).reshape(-1, A, A * n).sum(axis=1), A, axis=0)
        self.scores = self.phi - mean

    def batch(self, n: int, dual: float) -> Any:
        """One inner loop's samples in a pilot step."""
        run = make_run(self.simulator, fc.LogLinear(), fc.PDANPG(inner=n, pilot=1), self.theta)
        run.state.dual[0] = self.simulator.from_user_duals([dual])
        work = run.work()
        run.advance(0, 1, work)
        visited = run.actions[0].visited[:n]
        return work, self.index(visited) * self.simulator.n_actions + work.pair[:n] % self.simulator.n_actions


@pytest.fixture(scope="module", params=["queue", "stock"])
def pair(request: pytest.FixtureRequest, queue: fc.Simulator, stock: fc.Simulator) -> Pair:
    if request.param == "queue":
        size = 16
        made = Pair(
            queue,
            fc.simulators.tandem_queue_table(size - 1, gamma=0.8),
            lambda v: (v[:, 0] * size + v[:, 1]).astype(int),
        )
        made.solve([(i, j) for i in range(size) for j in range(size)])
        full = np.arange(size * size) % size == size - 1
        full |= np.arange(size * size) // size == size - 1
        law = exact.occupancy(made.table, made.pi).reshape(-1, 4).sum(axis=1)
        assert law[full].sum() < 2e-6  # what the truncation can change
        return made
    made = Pair(
        stock,
        fc.simulators.inventory_table(**SMALL),
        lambda v: (v[:, 0] * 3 + v[:, 1] / 2).astype(int),  # type: ignore[arg-type]
    )
    made.solve([(i, 2 * j) for i in range(7) for j in range(3)])
    return made


def test_j_occupancy_and_gradient_agree_with_the_table(pair: Pair) -> None:
    """p > 5e-5 on a fixed seed: a false alarm below 1e-4 each were it drawn anew. The controls must fail."""
    n, dual = 60_000, 3.0
    work, visited = pair.batch(n, dual)
    table, simulator = pair.table, pair.simulator
    law = exact.occupancy(table, pair.pi)
    counts = np.bincount(visited, minlength=table.n_choices)
    assert p_value(law_test(counts, law)) > HOLDS
    late = (law @ table.transition_matrix())[table.choice_state] * pair.pi  # one transition too many
    assert p_value(law_test(counts, late)) < FAILS

    value = exact.evaluate(table, pair.pi)
    expected = np.append(value.reward, value.constraints)
    estimates = simulator.to_user_values(work.occupancy_total[:n])
    assert p_value(mean_test(estimates, expected)) > HOLDS
    assert (
        p_value(mean_test(estimates - table.to_user_values(table.signals[visited]) * 0.2, expected)) < FAILS
    )

    # In the simulator's kernel units, with the gradient of J_r + dual J_c.
    gradient = work.scores.dense * work.target[:, None]
    user = np.column_stack([table.reward, -table._sign * table.costs]) @ [1.0, dual]
    q = exact.q_values(fc.CMDP(
        table.state_to_choice, table.choice_to_branch, table.branch_target, table.branch_prob, user, gamma=table.gamma
    ), pair.pi)[:, 0]  # fmt: skip
    base = fc.CMDP(
        table.state_to_choice, table.choice_to_branch, table.branch_target, table.branch_prob, user, gamma=table.gamma
    )  # fmt: skip
    q = q * base.reward_scale / simulator.reward_scale
    exact_gradient = (law * q) @ pair.scores / (1 - table.gamma)
    assert p_value(mean_test(gradient, exact_gradient)) > HOLDS
    assert p_value(mean_test(gradient, exact_gradient * (1 - table.gamma))) < FAILS
    other = (law * q) @ pair.phi / (1 - table.gamma)  # features not centred
    assert p_value(mean_test(gradient, other)) < FAILS


def test_evaluate_covers_the_exact_value(pair: Pair) -> None:
    """Two intervals that miss with probability 2.5e-5 each: a false alarm below 1e-4 were the seed drawn anew.

    Negative controls: the value of another policy, and of a discount of 0.75 instead of 0.8.
    """
    found = pair.simulator.evaluate(
        fc.LogLinear(), pair.theta, rollouts=20_000, confidence=1 - 2.5e-5, seed=1
    )
    value = exact.evaluate(pair.table, pair.pi)
    assert found.reward_interval[0] < value.reward < found.reward_interval[1]
    assert found.constraint_intervals[0, 0] < value.constraints[0] < found.constraint_intervals[0, 1]
    again = pair.simulator.evaluate(fc.LogLinear(), pair.theta, rollouts=20_000, seed=1, threads=1)
    assert (again.reward, again.transitions) == (found.reward, found.transitions)
    table = pair.table
    other = exact.evaluate(
        fc.CMDP(
            table.state_to_choice, table.choice_to_branch, table.branch_target, table.branch_prob, table.reward,
            list(table.costs.T), gamma=0.75, start=table.start, limits=table.limits,
        ),
        pair.pi,
    )  # fmt: skip
    assert not found.reward_interval[0] < other.reward < found.reward_interval[1]
    assert not found.constraint_intervals[0, 0] < other.constraints[0] < found.constraint_intervals[0, 1]
    off = pair.simulator.evaluate(
        fc.LogLinear(), 0 * pair.theta, rollouts=20_000, confidence=1 - 2.5e-5, seed=1
    )
    assert not off.constraint_intervals[0, 0] < value.constraints[0] < off.constraint_intervals[0, 1]


def test_no_limit_and_no_range_enters_an_evaluation(queue: fc.Simulator) -> None:
    """Each of these once added noise of its own size times the standard deviation of a rollout's length."""

    def value(**units: Any) -> Any:
        simulator = fc.Simulator(
            queue._step.alive, queue._reset.alive, n_state=2, n_actions=4, gamma=0.8, limits=units.pop("limits", [4.0]),
            **units,
        )  # fmt: skip
        found = simulator.evaluate(fc.LogLinear(), rollouts=300)
        return found.reward, found.constraints.tolist(), found.constraint_intervals.tolist()

    plain = value()
    assert plain[1][0] > 0
    for units in ({"limits": [1e5]}, {"reward_range": (1e6, 2e6)}, {"cost_ranges": (1e6, 2e6)}):
        assert value(**units) == plain


def test_what_a_run_estimates_is_free_of_the_noise_of_a_limit_out_of_reach() -> None:
    """The uniform policy's power is 4, its limit 1e5: the estimates once were off by hundreds, and negative."""
    simulator = fc.simulators.tandem_queue(budget=1e5, gamma=0.8)
    settings = fc.PDANPG(outer=60, inner=20, pilot=0, eta=1e-12)
    result = fc.solve(simulator, settings, replicates=8)
    value = simulator.evaluate(fc.LogLinear(), rollouts=20_000)
    for averages in (result.mixture, result.last_quarter):
        assert (averages.constraints > 0).all()
        np.testing.assert_allclose(averages.constraints[:, 0], value.constraints[0], rtol=0.2)
    wrong = fc.Simulator(
        simulator._step.alive, simulator._reset.alive, n_state=2, n_actions=4, gamma=0.8, limits=[4.0],
        reward_range=(1e4, 2e4),
    )  # fmt: skip
    reward = fc.solve(wrong, settings, replicates=8).mixture.reward
    np.testing.assert_allclose(reward, value.reward, rtol=0.2)


@pytest.mark.parametrize("inner", [1, 8])
def test_estimates_of_a_run_are_unbiased_and_no_noisier(inner: int) -> None:
    """On a table, where J is known; p > 5e-5, and the control, another gamma, must fail."""
    table = walk_table()
    settings = fc.PDANPG(outer=400, inner=inner, pilot=0, eta=1e-12, zeta=1e-12)
    result = fc.solve(table, settings, replicates=400, optimum=False, trace=1)  # no exact values on the way
    found = result.averages(source="estimate")
    estimates = np.column_stack([found.reward, found.constraints])
    value = exact.evaluate(table, np.full(8, 0.5))
    expected = np.append(value.reward, value.constraints)
    assert p_value(mean_test(estimates, expected)) > HOLDS
    assert p_value(mean_test(estimates, expected * 0.95)) < FAILS
    # Variances over 400 steps of inner + 1 rollouts: below plain sums, and as low as with the shift that suits best.
    drawn = plain_table_sums(table, 4000)
    variance = np.var(estimates, axis=0) * 400 * (inner + 1)
    assert (variance < 0.75 * np.var(drawn[:, :2], axis=0)).all()
    assert variance[1] < 1.25 * np.var(drawn[:, 1] - 0.2 * table.limits[0] * drawn[:, 2])


def plain_table_sums(table: fc.CMDP, n: int) -> Any:
    """Sums of reward and cost, and the number of pairs, of rollouts under the uniform policy, float64[n, 3]."""
    rng = np.random.default_rng(4)
    transition, out = table.transition_matrix().toarray(), np.zeros((n, 3))
    for row in out:
        s = 0
        for _ in range(rng.geometric(1 - table.gamma)):
            q = 2 * s + rng.integers(2)
            row += [table.reward[q], table.costs[q, 0], 1.0]
            s = rng.choice(4, p=transition[q])
    return out


NOISE = {"n_state": 1, "n_actions": 1, "gamma": 1e-9, "limits": None, "trial": 5}  # every rollout is one pair


def test_an_evaluation_is_the_students_interval_of_its_own_streams() -> None:
    """Literally: a word for the horizon, one for the action, then what step draws; no stream is one of solve's."""
    simulator = make(with_step("return draws.normal(rng)"), **NOISE)
    found = simulator.evaluate(fc.LogLinear(), rollouts=7, seed=3, confidence=0.9)

    def normals(key: tuple[int, ...]) -> list[float]:
        bits: Any = np.random.SFC64(np.random.SeedSequence(3, spawn_key=key))
        rng = bits.state["state"]["state"].copy()
        return [[draws.word(rng), draws.word(rng), draws.normal(rng)][2] for _ in range(7)]

    values = normals((0, 0, 0))
    half = (
        1.9431802805153 * np.std(values, ddof=1) / 7**0.5
    )  # t of 6 degrees of freedom at 0.95, from a table
    assert found.reward == pytest.approx(np.mean(values), rel=1e-12)
    np.testing.assert_allclose(
        found.reward_interval, [np.mean(values) - half, np.mean(values) + half], rtol=1e-9
    )
    assert found.unseen == pytest.approx(1 - 0.1 ** (1 / 7), rel=1e-12)
    for r in range(3):
        assert abs(found.reward - np.mean(normals((r, 0)))) > 1e-6


@pytest.mark.parametrize("rollouts", [3, 10])
def test_intervals_of_few_rollouts_cover(rollouts: int) -> None:
    """Normal values, where t is exact: 0.99 of 2,000 intervals, with a standard deviation of 0.0022."""
    simulator = make(with_step("return draws.normal(rng)"), **NOISE)
    values = [
        simulator.evaluate(fc.LogLinear(), rollouts=rollouts, seed=k, confidence=0.99, threads=1)
        for k in range(2000)
    ]
    covered = np.mean([v.reward_interval[0] < 0.0 < v.reward_interval[1] for v in values])
    assert abs(covered - 0.99) < 0.005  # the normal quantile covers 0.971 of ten, and 0.876 of three


def test_intervals_cover_where_lengths_vary(queue: fc.Simulator, pair: Pair) -> None:
    """300 intervals of 0.9, with a standard deviation of 0.017; estimates are skew, so a little less is right."""
    value = exact.evaluate(pair.table, pair.pi)
    found = [pair.simulator.evaluate(fc.LogLinear(), pair.theta, rollouts=200, seed=k, confidence=0.9, threads=1)
             for k in range(300)]  # fmt: skip
    for low, high, expected in (
        (*np.array([v.reward_interval for v in found]).T, value.reward),
        (*np.array([v.constraint_intervals[0] for v in found]).T, value.constraints[0]),
    ):
        assert 0.84 < np.mean((low < expected) & (expected < high)) < 0.96


def test_a_control_variate_takes_the_noise_of_lengths_away() -> None:
    """Sums of 3 a pair and a noise of 1: the lengths' standard deviation is 9.5, and 0.05 are 3.5 standard errors."""
    rng = np.random.default_rng(0)
    length = rng.geometric(0.1, 5000).astype(float)
    total = 3.0 * length[:, None] + rng.normal(size=(5000, 1))
    found = controlled(total, length, 0.9)
    assert total.std() > 20.0
    assert found.std() < 1.05
    assert found.mean() == pytest.approx(30.0, abs=0.05)


def test_a_limit_that_drowns_the_costs_is_told() -> None:
    with pytest.warns(RuntimeWarning, match=r"limits\[0\] = 1e\+15 is so far beyond .* lose digits"):
        fc.simulators.tandem_queue(budget=1e15)


def test_draws_of_an_action_never_take_one_of_weight_zero() -> None:
    """Rounding can leave u at the sum of all weights."""
    assert simulate.draw_weighted(np.array([0.5, 0.5, 0.0, 0.0]), 4, 1.0) == 1
    assert simulate.draw_weighted(np.array([0.0, 1.0]), 2, 0.0) == 1
    assert [simulate.draw_weighted(np.array([0.25, 0.5, 0.25]), 3, u) for u in (0.2, 0.3, 0.7, 0.8)] == [
        0,
        1,
        1,
        2,
    ]


# Against plain Python on the same stream.


def plain_rollouts(
    simulator: fc.Simulator, probabilities: Callable[[Any], Any], rng: Any, jobs: list[tuple[Any, int | None]]
) -> Any:
    """Rollouts as simulate.py lays them down; a job is (state, action), None for what is drawn."""
    step, reset = simulator._step.python, simulator._reset.python
    assert step is not None
    assert reset is not None
    totals, ends, transitions = [], [], 0
    for state, action in jobs:
        horizon = int(geometric_horizon(np.uint64(draws.word(rng)), 1 / math.log(simulator.gamma)))
        total = np.zeros(1 + simulator.n_constraints)
        now = np.zeros(simulator.n_state)
        if state is None:
            reset(now, rng)
        else:
            now[:] = state
        for t in range(horizon + 1):
            if t > 0 or action is None:
                p = probabilities(now)
                action = int(np.searchsorted(np.cumsum(p), draws.uniform(rng) * p.sum(), side="right"))
            if t == horizon:
                ends.append((now.copy(), action))
            costs = np.zeros(simulator.n_constraints)
            total[0] += step(now, action, rng, costs)
            total[1:] += costs
        totals.append(total)
        transitions += horizon + 1
    return np.array(totals), ends, transitions


POLICIES = {
    "linear": (lambda: fc.LogLinear(), ()),
    "network": (lambda: fc.NeuralSoftmax(hidden=(4, 3), activation="relu"), (4, 3)),
}


@pytest.fixture(scope="module")
def cart() -> fc.Simulator:
    return fc.simulators.linear_quadratic(levels=3, gamma=0.8)


@pytest.mark.parametrize("which", ["queue", "cart"])  # features of states, and of choices
@pytest.mark.parametrize("kind", POLICIES)
def test_batches_and_scores_replay(which: str, kind: str, request: pytest.FixtureRequest) -> None:
    simulator: fc.Simulator = request.getfixturevalue(which)
    policy, hidden = POLICIES[kind][0](), POLICIES[kind][1]
    n, A = 25, simulator.n_actions
    d = policy.bind(simulator).n_parameters
    theta = 0.4 * np.random.default_rng(1).standard_normal(d)
    run = make_run(simulator, policy, fc.PDANPG(inner=n, pilot=1), theta)
    run.state.dual[0] = 0.7
    work = run.work()
    rng = run.state.rng[0, :, 0].copy()
    run.advance(0, 1, work)

    def logits(parameters: Any, state: Any) -> Any:
        rows = np.atleast_2d(simulator.features(state))
        if not hidden:
            return rows @ parameters if simulator.by_choice else parameters.reshape(A, -1) @ rows[0]
        net = naive.Network([], simulator.by_choice, hidden, 1 if simulator.by_choice else A, True)
        return np.concatenate([naive.forward(net, parameters, x) for x in rows])

    def probabilities(state: Any) -> Any:
        z = logits(theta, state)
        return np.exp(z - z.max())

    first, ends, made = plain_rollouts(simulator, probabilities, rng, [(None, None)] * (n + 1))
    jobs: list[Any] = []
    for state, action in ends[:n]:
        jobs += [(state, action), (state, None)]
    second, _, more = plain_rollouts(simulator, probabilities, rng, jobs)
    assert run.state.rng[0, :, 0].tolist() == rng.tolist()
    assert run.state.samples[0] == made + more
    assert (run.state.rng[0, :, 1:] == streams(6, 1)[0][:, 1:]).all()
    assert run.actions[0].visited[:n].tolist() == [state.tolist() for state, _ in ends[:n]]
    assert (work.pair[:n] % A).tolist() == [action for _, action in ends[:n]]
    world = simulator.world(policy.bind(simulator))
    signal = np.add(first[:, 0] * world.factor[0], 0)  # rewards have no offset
    np.testing.assert_allclose(work.occupancy_total[: n + 1, 0], signal, rtol=1e-12, atol=1e-12)
    reward = (second[::2, 0] - second[1::2, 0]) * world.factor[0]
    np.testing.assert_allclose(work.advantage[:, 0], reward, rtol=1e-12, atol=1e-12)
    for h, (state, action) in enumerate(ends[:n]):
        score = []
        for j in range(d):  # by complex steps
            moved = theta.astype(complex)
            moved[j] += 1e-30j
            z = logits(moved, state)
            log_pi = z[action] - np.log(np.exp(z - z.real.max()).sum())
            score.append(log_pi.imag / 1e-30)
        np.testing.assert_allclose(work.scores.dense[h], score, rtol=1e-10, atol=1e-12)


def test_signals_have_the_units_of_the_problem(queue: fc.Simulator) -> None:
    """A rollout of T + 1 pairs sums r / scale, and ((1-gamma) limit - cost) / scale."""
    bound = fc.LogLinear().bind(queue)
    actions = queue.live_actions(bound, np.zeros(bound.n_parameters), 50)
    rng = np.zeros((4, LANES), np.uint64)
    rng[:, 0] = queue.stream(4)
    total, choice = np.zeros((50, 2)), np.zeros(50, np.int64)
    plain = rng[:, 0].copy()
    made = simulate.simulate(
        queue.world(bound), actions, rng, np.full(50, -1), np.zeros(50, np.uint32), total, choice
    )
    raw, _, _ = plain_rollouts(queue, lambda state: np.ones(4), plain, [(None, None)] * 50)
    lengths = (total[:, 1] * queue.constraint_scale + raw[:, 1]) / (0.2 * queue.limits)
    np.testing.assert_allclose(total[:, 0] * queue.reward_scale, raw[:, 0], atol=1e-12)
    np.testing.assert_allclose(lengths, np.round(lengths), atol=1e-9)
    assert lengths.min() >= 1 - 1e-9
    assert lengths.sum() == pytest.approx(made)


# Runs.

READY = [
    fc.simulators.delivery_fleet,
    pytest.param(fc.simulators.marketing, marks=pytest.mark.slow),
    pytest.param(fc.simulators.tandem_queue, marks=pytest.mark.slow),
    pytest.param(fc.simulators.inventory, marks=pytest.mark.slow),
    pytest.param(fc.simulators.linear_quadratic, marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize("make", READY)
def test_ready_simulators_learn(make: Any) -> None:
    """More reward than the uniform policy at the same constraint, or the limit met where that policy misses it."""
    simulator = make()
    result = fc.solve(simulator, fc.PDANPG(outer=400, inner=60), replicates=2, threads=2)
    assert result.finished
    assert np.isnan(result.gap).all()
    late, first = result.last_quarter, simulator.evaluate(fc.LogLinear(), rollouts=4000)
    assert late.source == "estimate"
    scale = simulator.constraint_scale / (1 - simulator.gamma)
    slack = simulator.slack(np.append(first.reward, first.constraints)) / scale
    assert (late.violation <= np.maximum(-0.5 * slack, 0.02) * scale).all()
    assert (late.reward > first.reward).all() or slack.min() < 0
    assert simulator.name in result.summary()


@pytest.mark.parametrize(
    "algorithm", [fc.NPGPD(outer=5, inner=6, pilot=2), fc.CNPGPDA(outer=5, inner=6, pilot=2)]
)
def test_other_sampling_algorithms_run(algorithm: Any, queue: fc.Simulator) -> None:
    result = fc.solve(queue, algorithm)
    assert result.finished
    assert np.abs(result.theta).max() > 0


def test_algorithms_that_need_a_table_say_so(queue: fc.Simulator) -> None:
    for algorithm in (fc.CRPOSoftmax(), fc.NPGPDSoftmax(), fc.PMDPD(), fc.PDNAC()):
        with pytest.raises(fc.SettingError, match="needs a model with a table") as said:
            fc.solve(queue, algorithm)
        for name, kind in ALGORITHMS.items():
            assert (f" {name} ({kind.__name__})" in str(said.value)) == bool(kind.simulation), name


def bits(result: fc.Result) -> Any:
    return [array.tolist() for array in result.run.state], result.trace.sums.tolist()


def test_threads_pieces_and_files_give_the_same_bits(queue: fc.Simulator, tmp_path: Path) -> None:
    settings = fc.PDANPG(outer=30, inner=8, pilot=4)
    policy = fc.NeuralSoftmax(hidden=(5,))
    whole = fc.solve(queue, settings, policy=policy, replicates=3, threads=1)
    path = tmp_path / "run.npz"

    def interrupt(progress: Any) -> None:
        if progress.outer >= 12:
            raise KeyboardInterrupt

    cut = fc.solve(
        queue, settings, policy=policy, replicates=3, threads=2, piece=5, progress=interrupt, checkpoint=path
    )
    assert not cut.finished
    again = fc.resume(fc.load_run(path, queue, policy))
    assert bits(again) == bits(whole)
    assert fc.simulators.tandem_queue(gamma=0.8).fingerprint() == queue.fingerprint()
    with pytest.raises(fc.ModelError, match="another model"):
        fc.load_run(path, fc.simulators.tandem_queue(gamma=0.8, fast=0.7), policy)
    fc.solve(walk_table(), settings).save(path)
    with pytest.raises(fc.ModelError, match="another model"):
        fc.load_run(path, queue)
    with pytest.raises(fc.ModelError, match="of type int; give a CMDP or a Simulator"):
        fc.load_run(path, 3)  # type: ignore[arg-type]


def test_what_a_simulator_cannot_answer_says_so(queue: fc.Simulator) -> None:
    result = fc.solve(queue, fc.PDANPG(outer=2, inner=2, pilot=0))
    with pytest.raises(fc.SettingError, match="no table"):
        result.policy("last")
    with pytest.raises(fc.SettingError, match="a simulator has none"):
        fc.solve(queue, optimum=True)
    for policy in (fc.TabularSoftmax(), fc.LogLinear(np.eye(4)), fc.NeuralSoftmax(np.eye(4))):
        with pytest.raises(fc.ModelError, match="a simulator has"):
            fc.solve(queue, policy=policy)
    for policy in (fc.LogLinear(), fc.NeuralSoftmax()):
        with pytest.raises(fc.ModelError, match="only a simulator's"):
            fc.solve(fc.envs.river_swim(), policy=policy)


def test_single_steps_check_their_arguments(queue: fc.Simulator) -> None:
    rng = queue.stream()
    for action in (-1, 4, 1.0):
        with pytest.raises(fc.SettingError, match="an integer from 0 to 3"):
            queue.step([0, 0], action, rng)  # type: ignore[arg-type]
    for state in ([0.0], [0.0, np.nan]):
        with pytest.raises(fc.SettingError, match="2 finite numbers"):
            queue.step(state, 0, rng)
    with pytest.raises(fc.SettingError, match="stream"):
        queue.step([0, 0], 0, np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(fc.SettingError, match=r"theta has shape \(3,\)"):
        queue.evaluate(fc.LogLinear(), np.zeros(3))
    for wrong in ({"rollouts": 1}, {"confidence": 1.0}, {"seed": -1}, {"threads": 0}):
        with pytest.raises(fc.SettingError, match=next(iter(wrong))):
            queue.evaluate(fc.LogLinear(), **wrong)  # type: ignore[arg-type]


# Faults.


@njit
def good_step(state: Any, action: int, rng: Any, costs: Any) -> float:
    state[0] = draws.uniform(rng)
    costs[0] = action
    return state[0]


@njit
def good_reset(state: Any, rng: Any) -> None:
    state[0] = 0.5


def with_body(arguments: str, body: str) -> Any:
    """An njit function of this body."""
    space: dict[str, Any] = {"draws": draws, "math": math, "np": np}
    exec(f"def function({arguments}):\n    {body}", space)
    return njit(space["function"])


def with_step(body: str) -> Any:
    return with_body("state, action, rng, costs", body)


def with_features(body: str) -> Any:
    return with_body("state, out", body)


def make(step: Any = good_step, reset: Any = good_reset, **arguments: Any) -> fc.Simulator:
    given = {"n_state": 1, "n_actions": 3, "gamma": 0.8, "limits": [1.0], "trial": 60} | arguments
    return fc.Simulator(step, reset, **given)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda state, action, rng, costs: 0.0, r"@numba.njit above the def.*\(state, action, rng, costs\)"),
        (functools.partial(len), "is a partial; kernels need compiled code"),
        (jit(good_step.py_func, forceobj=True), "may run as Python objects.*@numba.njit"),
        (njit(lambda state, action, rng: 0.0), r"takes other arguments than \(state, action, rng, costs\)"),
        (njit(lambda s, a, r, c, more: 0.0), r"\(s, a, r, c, more\) takes other arguments"),
        (3.5, "is no function"),
        (0, "null pointer"),
        (5, "step = 5 is no address"),
        (-(2**40), "is no address"),
        (2**70, "is no address"),
        (with_step("return np.nan"), "step gave reward nan in state"),
        (with_step("state[0] = np.inf; return 0.0"), "step gave next state"),
        (with_step("costs[0] = np.nan; return 0.0"), "step gave cost"),
        (
            with_step("if action >= 0: raise ValueError('no such thing')\n    return 0.0"),
            "raised ValueError: no such thing",
        ),
        (with_step("state[1] = 0.0; return 0.0"), "goes beyond its arrays.*state has 1 numbers"),
        (with_step("costs[action] = 0.0; return 0.0"), "goes beyond its arrays"),
        (with_step("return state"), "step gave reward .*one finite number"),
        (with_step("return undefined"), "does not compile.*numba says"),
        (with_step("return np.random.random()"), "gave other numbers the second time.*draw from rng only"),
    ],
    ids=range(19),
)
def test_faults_of_a_step_are_named(step: Any, message: str) -> None:
    with pytest.raises(fc.ModelError, match=message):
        make(step)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_state": 0}, "n_state = 0"),
        ({"n_actions": 2.5}, "n_actions = 2.5"),
        ({"gamma": 1.0}, "gamma"),
        ({"limits": [np.nan]}, "limits"),
        ({"sense": "="}, "sense"),
        ({"n_features": 2}, "n_features"),
        ({"state_features": good_reset}, "n_features"),
        ({"state_features": good_reset, "choice_features": good_reset, "n_features": 1}, "leave one out"),
        ({"reward_range": (1, 0)}, "reward_range"),
        ({"cost_ranges": (0, np.inf)}, "cost_ranges"),
        ({"trial": 0}, "trial"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(fc.ModelError, match=message):
        make(**arguments)


def test_what_a_simulator_keeps_between_calls_is_noticed() -> None:
    """Here in a callback; in C a static variable would do the same."""
    calls = []

    def step(state: int, action: int, rng: int, costs: int) -> float:
        calls.append(action)
        return float(len(calls) > 150)

    kinds = ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
    kept = ctypes.CFUNCTYPE(ctypes.c_double, *kinds)(step)
    with pytest.raises(fc.ModelError, match=r"second time, at transition 50; .*keep nothing between calls"):
        make(kept, limits=None, trial=100)
    with pytest.raises(fc.ModelError, match="step has 1 argtypes"):
        make(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(print))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (with_features("state[0] = 2.0"), "state_features changes the state in state"),
        (good_step, r"state_features = good_step\(.*takes other arguments than \(state, out\)"),
        (good_reset.py_func, "state_features = good_reset is a plain Python function"),
    ],
    ids=range(3),
)
def test_faults_of_features_are_named(features: Any, message: str) -> None:
    with pytest.raises(fc.ModelError, match=message):
        make(state_features=features, n_features=1)


def test_features_are_zeros_when_called() -> None:
    """So that one-hot features need to set their 1 only."""
    sets = make(state_features=with_features("out[int(3.0 * state[0])] = 1.0"), n_features=3)
    both = make(state_features=with_features("out[:] = 0.0; out[int(3.0 * state[0])] = 1.0"), n_features=3)
    settings = fc.PDANPG(outer=20, inner=10, pilot=2)
    found = [bits(fc.solve(simulator, settings)) for simulator in (sets, both)]
    assert found[0] == found[1]


def test_a_loop_is_compiled_once_for_the_same_functions(queue: fc.Simulator) -> None:
    """Limits and ranges are no part of it; gamma, the policy's class and its sizes are."""

    def address(policy: Any, gamma: float = 0.8, **units: Any) -> int:
        simulator = fc.simulators.tandem_queue(gamma=gamma, **units)
        return simulator.world(policy.bind(simulator)).roll

    net = fc.NeuralSoftmax(hidden=(5,))
    assert address(fc.LogLinear(), budget=1e5) == queue.world(fc.LogLinear().bind(queue)).roll
    assert address(net, budget=1e5) == queue.world(net.bind(queue)).roll
    assert len({address(fc.LogLinear()), address(net), address(fc.LogLinear(), gamma=0.9)}) == 3


def test_a_loop_that_does_not_compile_is_named() -> None:
    """The trial run calls through Python, which has wider rules: it makes objects of what is not typed."""
    strided = njit("float64(float64[::1], uint8, uint64[::1], float64[::1])")(good_step.py_func)
    assert fc.solve(make(strided), fc.PDANPG(outer=2, inner=2, pilot=0)).finished
    simulator = make()
    object.__setattr__(simulator._step, "compiled", good_reset)
    with pytest.raises(fc.ModelError, match=r"do not compile together.*numba says"):
        fc.solve(simulator, fc.PDANPG(outer=2, inner=2, pilot=0))


@pytest.mark.parametrize(
    ("reset", "features", "message"),
    [
        (good_reset, "out[0] = np.nan if state[0] > 0.999 else 1.0",
         r"were not finite.*\(state \[0.999[0-9]+\], [1-9][0-9]* steps"),
        (good_reset, "if state[0] > 0.999: raise ValueError\n    out[0] = 1.0",
         r"state_features raised an exception \(state \[0.999[0-9]+\], [1-9][0-9]* steps"),
        ("state[0] = np.nan if draws.uniform(rng) > 0.999 else 0.5", "out[0] = 1.0",
         r"reset left a state that is not finite$"),
        ("state[0] = 0.5\n    if draws.uniform(rng) > 0.999: raise ValueError", "out[0] = 1.0",
         r"reset raised an exception$"),
    ],
    ids=["features", "raising features", "reset", "raising reset"],
)  # fmt: skip
def test_faults_of_other_functions_during_a_run(reset: Any, features: str, message: str) -> None:
    if isinstance(reset, str):
        reset = with_body("state, rng", reset)
    simulator = make(reset=reset, state_features=with_features(features), n_features=1, trial=20)
    with pytest.warns(RuntimeWarning, match=message):
        fc.solve(simulator, fc.PDANPG(outer=200, inner=50, pilot=0))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "state[0] += 1.0; return np.nan if state[0] > 400.0 and action == 2 else 0.0",
            r"reward or a cost.*\(state \[[0-9]+.5\], action 2",
        ),
        ("state[0] = np.nan if state[0] > 400.0 else state[0] + 1.0; return 0.0", "not finite"),
        (
            "state[0] += 1.0\n    if state[0] > 400.0: raise ValueError('late')\n    return 0.0",
            r"step raised an exception \(state \[399.5\], action [012], 399 steps into a rollout\)",
        ),
    ],
    ids=["reward", "state", "raise"],
)
def test_a_fault_during_a_run_stops_it_and_says_where(body: str, message: str) -> None:
    """The trial run never gets that far: with gamma 0.99 a rollout in two hundred does."""
    simulator = make(with_step(body), limits=None, gamma=0.99, trial=200)
    with pytest.warns(RuntimeWarning, match=message):
        result = fc.solve(simulator, fc.PDANPG(outer=200, inner=50, pilot=0), replicates=2)
    assert (result.failed >= 0).all()
    assert np.isfinite(result.theta).all()
    with pytest.raises(fc.ModelError, match=message):
        simulator.evaluate(fc.LogLinear(), rollouts=10_000)


# Simulators in C.

SOURCE = """
#include "fastcmdp_simulator.h"
/* Declared with the types of the header, so that the compiler checks them. */
fastcmdp_step queue_step, beyond;
fastcmdp_reset queue_reset;
fastcmdp_state_features queue_features;
double queue_step(double *state, int64_t action, uint64_t *rng, double *costs) {
    double reward = -(state[0] + state[1]);
    int64_t first = action % 2, second = action / 2;
    costs[0] = first + second;
    int done_first = fastcmdp_uniform(rng) < (first ? 0.8 : 0.3) && state[0] > 0;
    int done_second = fastcmdp_uniform(rng) < (second ? 0.8 : 0.3) && state[1] > 0;
    int arrived = fastcmdp_uniform(rng) < 0.4;
    state[0] += arrived - done_first;
    state[1] += done_first - done_second;
    return reward;
}
double beyond(double *state, int64_t action, uint64_t *rng, double *costs) {
    state[2] = costs[1] = action;
    return queue_step(state, action, rng, costs);
}
void queue_reset(double *state, uint64_t *rng) { state[0] = state[1] = 0; }
void queue_features(const double *state, double *out) {
    out[0] = 1.0;
    for (int i = 0; i < 2; i++) {
        out[1 + 2 * i] = state[i] / (1.0 + state[i]);
        out[2 + 2 * i] = state[i] / (8.0 + state[i]);
    }
}
void drawn(uint64_t *rng, double *out) {
    double weight[3] = {1.0, 0.0, 3.0};
    out[0] = fastcmdp_uniform(rng);
    out[1] = fastcmdp_exponential(rng);
    out[2] = fastcmdp_geometric(rng, 0.9);
    out[3] = fastcmdp_categorical(rng, weight, 3);
    out[4] = fastcmdp_normal(rng);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("c")
    (folder / "queue.c").write_text(SOURCE)
    include = str(Path(fc.__file__).parent / "include")
    command = [
        "cc",
        "-O2",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-I",
        include,
        "queue.c",
        "-o",
        "queue.so",
        "-lm",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return ctypes.CDLL(str(folder / "queue.so"))


def in_c(library: ctypes.CDLL, step: Any, limits: Any) -> fc.Simulator:
    return fc.Simulator(
        step, library.queue_reset, n_state=2, n_actions=4, gamma=0.8, limits=limits, names=["-customers", "power"],
        state_features=ctypes.cast(library.queue_features, ctypes.c_void_p).value, n_features=5,
        reward_range=(-20.0, 0.0), cost_ranges=(0.0, 2.0),
    )  # fmt: skip


def test_a_simulator_in_c_gives_the_bits_of_its_twin(library: ctypes.CDLL, queue: fc.Simulator) -> None:
    settings = fc.PDANPG(outer=20, inner=10, pilot=2)
    made = in_c(library, library.queue_step, queue.limits)
    assert made.fingerprint() == queue.fingerprint()
    assert bits(fc.solve(made, settings, replicates=2)) == bits(fc.solve(queue, settings, replicates=2))


DECLARED = """
double queue_step(double *state, int64_t action, uint64_t *rng, double *costs);
void queue_reset(double *state, uint64_t *rng);
void queue_features(const double *state, double *out);
float beyond(double *state, int64_t action, uint64_t *rng, double *costs);
void drawn(double *state, double *out);
"""


def test_functions_through_cffi(library: ctypes.CDLL, queue: fc.Simulator) -> None:
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()
    ffi.cdef(DECLARED)
    found = ffi.dlopen(library._name)

    def made(step: Any, reset: Any, features: Any) -> fc.Simulator:
        return fc.Simulator(
            step, reset, n_state=2, n_actions=4, gamma=0.8, limits=queue.limits, names=["-customers", "power"],
            state_features=features, n_features=5, reward_range=(-20.0, 0.0), cost_ranges=(0.0, 2.0),
        )  # fmt: skip

    functions = found.queue_step, found.queue_reset, found.queue_features
    simulator = made(*functions)
    assert simulator.fingerprint() == queue.fingerprint()
    settings = fc.PDANPG(outer=20, inner=10, pilot=2)
    assert bits(fc.solve(simulator, settings)) == bits(fc.solve(queue, settings))
    # cffi knows types, unlike ctypes.
    for k, wrong, message in [
        (0, found.beyond, r"step is declared as float\(\*\).*; double\(double \*, int64_t"),
        (0, found.queue_reset, r"step is declared as void\(\*\)\(double \*, uint64_t \*\); double"),
        (1, found.queue_step, "reset is declared as double"),
        (2, ffi.new("double[5]"), "state_features = .* is no C function"),
        (0, ffi.cast("double (*)(double *, int64_t, uint64_t *, double *)", 0), "null pointer"),
    ]:
        given = list(functions)
        given[k] = wrong
        with pytest.raises(fc.ModelError, match=message):
            made(*given)


def test_functions_of_a_module_built_by_cffi() -> None:
    """They can be called from Python only; here those of a stand-in, for building one takes a while."""
    name = type("Lib", (), {"__module__": "_cffi_backend"})

    class Builtin:
        __name__, __self__ = "queue_step", name()

    with pytest.raises(fc.ModelError, match=r'step = lib.queue_step .*ffi.addressof\(lib, "queue_step"\)'):
        make(Builtin())


def test_writing_beyond_arrays_in_c_is_noticed(library: ctypes.CDLL) -> None:
    with pytest.raises(fc.ModelError, match="step writes beyond the 1 numbers of its cost array"):
        in_c(library, library.beyond, [2.5])


def test_draws_of_the_header(library: ctypes.CDLL, queue: fc.Simulator) -> None:
    rng, twin, out = queue.stream(3), queue.stream(3), np.zeros(5)
    normal = []
    for _ in range(8000):
        library.drawn(ctypes.c_void_p(rng.ctypes.data), ctypes.c_void_p(out.ctypes.data))
        assert out[0] == draws.uniform(twin)
        assert out[1] == pytest.approx(draws.exponential(twin), rel=1e-14)
        assert out[2] == draws.geometric(twin, 0.9)
        assert out[3] == draws.categorical(twin, np.array([1.0, 0.0, 3.0]))
        draws.word(twin)
        draws.word(twin)
        normal.append(out[4])
    assert rng.tolist() == twin.tolist()
    x = np.array(normal)
    assert p_value(mean_test(np.column_stack([x, x**2]), np.array([0.0, 1.0]))) > HOLDS
    assert p_value(mean_test(np.column_stack([x, x**2]), np.array([0.0, 1.5]))) < FAILS


# Gymnasium environments.

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces


class Walk(gymnasium.Env):  # type: ignore[misc]
    """0, 1, 2, 3: to the right with probability 0.7 (action 6), else 0.3 (action 5); 3 ends it. Reward: the state."""

    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(2, start=5)

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = 0
        return self.at, {}

    def step(self, action: int) -> Any:
        earned, right = float(self.at), self.np_random.random() < (0.7 if action == 6 else 0.3)
        self.at = self.at + 1 if right else max(self.at - 1, 0)
        if self.fault == "raise" or (self.fault == "raise late" and earned == 2.0):
            raise RuntimeError("out of order")
        if self.fault == "global":
            earned = random.random()
        info = {} if self.fault in ("no cost", "six") else {"cost": float(action == 6)}
        end = self.at == 3
        if self.fault == "six":
            return self.at, earned, float(action == 6), end, False, info
        return (self.at, earned, end, info) if self.fault == "four" else (self.at, earned, end, False, info)


@pytest.fixture(scope="module")
def walk() -> fc.Simulator:
    """One for several tests: each has a loop to compile."""
    return fc.GymSimulator(Walk, gamma=0.8, limits=[1.5], trial=50)


def walk_table() -> fc.CMDP:
    p = np.zeros((4, 2, 4))
    for s in range(3):
        for a, right in enumerate((0.3, 0.7)):
            p[s, a, s + 1] += right
            p[s, a, max(s - 1, 0)] += 1 - right
    p[3, :, 3] = 1.0
    reward = np.array([0.0, 1.0, 2.0, 0.0])
    return fc.CMDP.from_arrays(p, reward, np.array([[0, 1.0]] * 3 + [[0, 0]]), 0.8, start=0, limits=[1.5])


def test_a_gymnasium_environment_agrees_with_its_table(walk: fc.Simulator) -> None:
    """J, occupancy and advantages under the uniform policy; as above, p > 5e-5 and controls that must fail."""
    table, n, simulator = walk_table(), 3000, walk
    assert (simulator.n_actions, simulator.n_features) == (2, 5)
    run = make_run(simulator, fc.LogLinear(), fc.PDANPG(inner=n, pilot=1, dual_estimate="inner"))
    work = run.work()
    run.advance(0, 1, work)
    pi = np.full(8, 0.5)
    law = exact.occupancy(table, pi)
    visited = run.actions[0].visited[:n, 2:].argmax(axis=1) * 2 + work.pair[:n] % 2
    counts = np.bincount(visited, minlength=8)
    assert p_value(law_test(counts, law)) > HOLDS
    late = (law @ table.transition_matrix())[table.choice_state] * pi  # one transition too many
    assert p_value(law_test(counts, late)) < FAILS
    value = exact.evaluate(table, pi)
    expected = np.append(value.reward, value.constraints)
    estimates = simulator.to_user_values(work.occupancy_total[:n])
    assert p_value(mean_test(estimates, expected)) > HOLDS
    assert p_value(mean_test(estimates, expected * 1.3)) < FAILS
    scales = [np.append(x.reward_scale, x.constraint_scale) for x in (table, simulator)]
    advantages = exact.advantages(table, pi) * scales[0] / scales[1]
    groups = [work.advantage[visited == q] for q in range(6)]
    assert p_value(*(mean_test(g, advantages[q]) for q, g in enumerate(groups))) > HOLDS
    swapped = advantages[[1, 0, 3, 2, 5, 4]]
    assert p_value(*(mean_test(g, swapped[q]) for q, g in enumerate(groups))) < FAILS


def test_copies_of_an_environment_draw_on_their_own() -> None:
    """Two rollouts from one visited state; with the original's generator both would make the same moves."""
    simulator = fc.GymSimulator(Walk, gamma=0.8, trial=5)
    rng = simulator.stream(1)
    kept = simulator.start(rng)
    assert simulator._fork.call is not None
    simulator._fork.call(kept, 1, rng)
    walks = []
    for _ in range(2):
        state = kept.copy()
        simulator._fork.call(state, 0, rng)
        for _ in range(30):
            state, _, _ = simulator.step(state, 0, rng)
            walks.append(state[2:].tolist())
    assert walks[:30] != walks[30:]  # equal by chance with a probability below 1e-4
    assert kept[2] == 1.0


def test_gymnasium_runs_have_the_same_bits_on_any_number_of_threads(walk: fc.Simulator) -> None:
    settings = fc.PDANPG(outer=4, inner=5, pilot=1)
    one, two = (fc.solve(walk, settings, replicates=3, threads=threads) for threads in (1, 2))
    assert bits(one) == bits(two)


class Drift(gymnasium.Env):  # type: ignore[misc]
    """Its one observation array is changed in place; moves are drawn from a generator that ``source`` names."""

    observation_space = spaces.Box(-1e9, 1e9, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, source: str = "np_random") -> None:
        self.source, self.own = source, np.random.default_rng(1)
        self.at = np.zeros(1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at[0] = 0.0
        return self.at, {}

    def step(self, action: int) -> Any:
        generator = self.np_random if self.source == "np_random" else self.own
        self.at += 1.0 + generator.random()
        return self.at, 1.0, False, False, {}


def test_costs_see_the_observation_before_the_step_where_the_next_is_written_in_its_place() -> None:
    """The difference of two observations is between 1 and 2; once it was 0."""
    simulator = fc.GymSimulator(
        Drift, cost=lambda o, a, after, i: after[0] - o[0], gamma=0.8, limits=[1.5], trial=30
    )
    value = simulator.evaluate(fc.LogLinear(), rollouts=50)
    assert value.constraints[0] > value.reward
    assert 1.0 <= simulator.trial.low[1] < simulator.trial.high[1] <= 2.0


def test_a_copy_goes_on_from_its_own_observation() -> None:
    """Two kept states; the first step of a copy pays for the way from its own, not from the other's."""
    simulator = fc.GymSimulator(Drift, cost=lambda o, a, after, i: o[0], gamma=0.8, limits=[1.5], trial=5)
    rng, fork = simulator.stream(1), simulator._fork.call
    assert fork is not None
    state = simulator.start(rng)
    kept = []
    for _ in range(2):
        for _ in range(5):
            state, _, _ = simulator.step(state, 0, rng)
        copied = state.copy()
        fork(copied, 1, rng)
        kept.append(copied)
    for k in (0, 1, 0):
        state = kept[k].copy()
        fork(state, 0, rng)
        _, _, costs = simulator.step(state, 0, rng)
        assert costs[0] == kept[k][2]
    assert kept[0][2] != kept[1][2]


def test_a_gymnasium_step_takes_the_last_state_only() -> None:
    simulator = fc.GymSimulator(Drift, gamma=0.8, trial=5)
    rng = simulator.stream(0)
    first = simulator.start(rng)
    second, _, _ = simulator.step(first, 0, rng)
    third, _, _ = simulator.step(second.tolist(), 0, rng)
    assert third[2] > second[2]
    for other in (first, second, np.append(third[:2], 5.0)):
        with pytest.raises(fc.SettingError, match="goes on from where it is only"):
            simulator.step(other, 0, rng)
    simulator.evaluate(fc.LogLinear(), rollouts=5)
    again = simulator.start(rng)
    same = simulator.start(rng)  # looks the same, but is of another episode
    assert again[2] == same[2]
    with pytest.raises(fc.SettingError, match="goes on from where it is only"):
        simulator.step(again, 0, rng)
    assert simulator.step(same, 0, rng)[1] == 1.0


def test_a_generator_that_no_seed_sets_is_noticed() -> None:
    """Copies of it would repeat themselves in every episode."""
    with pytest.raises(
        fc.ModelError, match=r"two episodes .*differ the second time, at step 1: .*np_random only"
    ):
        fc.GymSimulator(lambda: Drift("own"), gamma=0.8, trial=20)
    assert fc.GymSimulator(Drift, gamma=0.8, trial=20).name == "Drift"


def test_seeds_of_environments_have_32_bits() -> None:
    """Of 8 bits all would be among 256, and their number is no secret of the environment's."""
    seeds = []

    class Told(Drift):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            seeds.append(seed)
            return super().reset(seed=seed)

    simulator = fc.GymSimulator(Told, gamma=0.8, trial=5)
    seeds.clear()
    rng, twin = simulator.stream(2), simulator.stream(2)
    for _ in range(200):
        simulator.start(rng)
    assert seeds == [int(draws.word(twin)) >> 32 for _ in range(200)]
    assert len(set(seeds)) == 200
    assert max(seeds) > 2**31


class Odd(Walk):
    def __init__(self, observation_space: Any = None, action_space: Any = None, fault: str = "") -> None:
        super().__init__(fault)
        if observation_space is not None:
            self.observation_space = observation_space
        if action_space is not None:
            self.action_space = action_space

    def __deepcopy__(self, memo: Any) -> Any:
        if self.fault == "no copy":
            raise TypeError("cannot pickle a window")
        return type(self)(self.observation_space, self.action_space, self.fault)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: Odd(action_space=spaces.Box(-1, 1)), r"action space is Box.*only Discrete"),
        (lambda: Odd(spaces.Tuple([spaces.Discrete(4), spaces.Text(3)])), "a part Text.*are supported"),
        (lambda: Odd(fault="no copy"), "cannot be copied.*cannot pickle a window"),
        (lambda: Walk("raise"), "RuntimeError: out of order"),
        (lambda: Walk("no cost"), 'info has no "cost"'),
        (lambda: Walk("four"), r"returned 4 values; five are expected \(observation"),
        (lambda: Walk("global"), "second time.*draw from the environment's np_random only"),
        (lambda: Odd(spaces.Box(0, 1, (300, 300))), "are 90000 numbers, more than 65534"),
        (lambda: None, "makes None, which is no gymnasium.Env"),
        (lambda x: x, "<lambda> cannot be made: TypeError"),
        ("NoSuch-v0", "'NoSuch-v0' cannot be made: NameNotFound"),
        (7, "give an ID, or a function"),
    ],
    ids=range(12),
)
def test_faults_of_gymnasium_environments_are_named(env: Any, message: str) -> None:
    with pytest.raises(fc.ModelError, match=message):
        fc.GymSimulator(env, gamma=0.8, limits=[1.5], trial=20)


def test_bad_arguments_of_gymnasium_simulators_are_named() -> None:
    for arguments, message in [
        ({"cost": 3.0}, "cost = 3.0: a function"),
        ({"cost": lambda *_: 0.0, "limits": None}, "cost is given without limits"),
        ({"cost": lambda *_: (1.0, 2.0)}, r"costs have shape \(2,\) for 1 limits.*with action"),
        ({"options": 3}, "options = 3: a dict"),
        ({"options": {"speed": 3}}, "cannot be made: .*speed"),
    ]:
        with pytest.raises(fc.ModelError, match=message):
            fc.GymSimulator(Walk, **({"gamma": 0.8, "limits": [1.5], "trial": 20} | arguments))  # type: ignore[arg-type]


def test_costs_are_of_the_actions_of_the_environment() -> None:
    """Those of Walk are 5 and 6."""
    seen = set()

    def cost(observation: int, action: int, after: int, info: Any) -> float:
        seen.add(action)
        return info["cost"]  # type: ignore[no-any-return]

    simulator = fc.GymSimulator(Walk, cost=cost, gamma=0.8, limits=[1.5], trial=50)
    assert seen == {5, 6}
    third = fc.GymSimulator(lambda: Walk("six"), gamma=0.8, limits=[1.5], trial=50)
    assert third.fingerprint() == simulator.fingerprint()


def test_a_gymnasium_run_goes_on_from_its_file(walk: fc.Simulator, tmp_path: Path) -> None:
    settings, path = fc.PDANPG(outer=6, inner=5, pilot=1), tmp_path / "run.npz"
    whole = fc.solve(walk, settings)

    def interrupt(progress: Any) -> None:
        raise KeyboardInterrupt

    fc.solve(walk, settings, piece=2, progress=interrupt, checkpoint=path)
    again = fc.GymSimulator(Walk, gamma=0.8, limits=[1.5], trial=50)
    assert bits(fc.resume(fc.load_run(path, again))) == bits(whole)
    with pytest.raises(fc.ModelError, match="another model"):
        fc.load_run(path, fc.GymSimulator(Walk, gamma=0.8, limits=[1.4], trial=50))


def test_what_an_environment_raises_in_a_run_is_told_once() -> None:
    faulty = fc.GymSimulator(lambda: Walk("raise late"), gamma=0.8, limits=[1.5], trial=2)
    with pytest.warns(RuntimeWarning, match="step raised RuntimeError: out of order$"):
        fc.solve(faulty, fc.PDANPG(outer=20, inner=20, pilot=0))
    with pytest.raises(fc.ModelError, match="step raised RuntimeError: out of order"):
        faulty.evaluate(fc.LogLinear(), rollouts=200)
    bound = fc.LogLinear().bind(faulty)
    actions = faulty.live_actions(bound, np.zeros(bound.n_parameters), 1)
    faulty.world(bound)  # another run: what the last one raised has no part in it
    actions.fault[0] = simulate.STEP_FAULT
    assert faulty.fault(actions) == "the reward or a cost of step was not finite"


def test_an_interrupt_in_the_trial_run_is_not_lost() -> None:
    """Callbacks of C functions would print and forget it."""

    class Stopped(Walk):
        def step(self, action: int) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fc.GymSimulator(Stopped, gamma=0.8, limits=[1.5], trial=20)


def test_an_evaluation_lets_copies_go() -> None:
    """The environments kept are those of the last batch of rollouts, at most a chunk's."""
    simulator = fc.GymSimulator(Walk, gamma=0.5, limits=[1.5], trial=5)
    most = []
    fork = simulator._envs.fork

    def counted(state: Any, keep: int, rng: Any) -> None:
        fork(state, keep, rng)
        most.append(len(simulator._envs.local.kept))

    simulator._envs.fork = counted  # type: ignore[method-assign]
    simulator.evaluate(fc.LogLinear(), rollouts=2100, threads=1)
    assert max(most) == 1000


# Other processes.

IN_ANOTHER_PROCESS = """
import json, pickle, sys
simulator, result = pickle.load(open(sys.argv[1], "rb"))
import fastcmdp as fc
value = simulator.evaluate(fc.LogLinear(), rollouts=50)
more = fc.resume(result)
print(json.dumps([simulator.fingerprint(), value.reward, more.theta.tolist(), more.trace.sums.tolist()]))
"""


@pytest.mark.parametrize("make_it", ["queue", "walk"])
def test_simulators_and_results_go_to_other_processes(
    make_it: str, queue: fc.Simulator, tmp_path: Path
) -> None:
    """And a run goes on there, from where it was interrupted, with the same bits."""
    cart = {"gamma": 0.9, "trial": 20, "reward_range": (0, 1)}
    simulator = queue if make_it == "queue" else fc.GymSimulator("CartPole-v1", **cart)  # type: ignore[arg-type]
    settings = fc.PDANPG(outer=6, inner=4, pilot=1)
    whole = fc.solve(simulator, settings)

    def interrupt(progress: Any) -> None:
        raise KeyboardInterrupt

    cut = fc.solve(simulator, settings, piece=3, progress=interrupt)
    assert not cut.finished
    path = tmp_path / "both.pickle"
    path.write_bytes(pickle.dumps((simulator, cut)))
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(path)]
    environment = os.environ | {"PYTHONPATH": str(Path(fc.__file__).parents[1])}
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    value = simulator.evaluate(fc.LogLinear(), rollouts=50)
    found = json.loads(out)
    assert found[:3] == [simulator.fingerprint(), value.reward, whole.theta.tolist()]
    np.testing.assert_array_equal(found[3], whole.trace.sums)


def test_what_cannot_go_to_other_processes_says_what_to_do(library: ctypes.CDLL, queue: fc.Simulator) -> None:
    with pytest.raises(TypeError, match=r"whose step is a C function.*anew in each process"):
        pickle.dumps(in_c(library, library.queue_step, queue.limits))
    with pytest.raises(TypeError, match=r"whose env is .*<lambda>.*at the top of a module"):
        pickle.dumps(fc.GymSimulator(lambda: Walk(), gamma=0.8, trial=5))


def test_results_on_tables_keep_their_bits_when_pickled() -> None:
    """Also where actions are made on demand from theta, which they must share with the run."""
    cmdp = fc.envs.garnet(n_states=300, n_actions=3, gamma=0.5)
    settings = fc.PDANPG(outer=4, inner=3, pilot=1)
    policy = fc.LogLinear(sp.csr_array(np.random.default_rng(0).standard_normal((cmdp.n_choices, 3))))
    whole = fc.solve(cmdp, settings, policy=policy)

    def interrupt(progress: Any) -> None:
        raise KeyboardInterrupt

    cut = fc.solve(cmdp, settings, policy=policy, piece=2, progress=interrupt)
    assert not cut.finished
    again = pickle.loads(pickle.dumps(cut))
    assert bits(fc.resume(again)) == bits(whole)
    np.testing.assert_array_equal(again.mixture.reward, whole.mixture.reward)


# What the documentation and the example say.

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("number", range(4))
def test_documented_python_runs(number: int) -> None:
    page = ROOT / "docs" / "simulators.md"
    if not page.exists():
        pytest.skip("docs are not installed")
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    blocks = [block for block in blocks if "libqueue" not in block]
    assert len(blocks) == 4
    space: dict[str, Any] = {}
    exec(compile(blocks[number], str(page), "exec"), space)
    assert space["result"].finished


def test_documented_c_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page says, in one folder: C file, shell lines, both blocks of Python."""
    page = ROOT / "docs" / "simulators.md"
    if not page.exists() or shutil.which("cc") is None:
        pytest.skip("docs are not installed, or there is no C compiler")
    blocks = {
        kind: re.findall(rf"```{kind}\n(.*?)```", page.read_text(), re.DOTALL)
        for kind in ("c", "sh", "python")
    }
    (code,), (shell,) = blocks["c"], blocks["sh"]
    (tmp_path / "queue.c").write_text(code)
    shell = shell.replace("$(python", f"$({sys.executable}").replace("cc -O2", "cc -O2 -Wall -Werror")
    environment = os.environ | {"PYTHONPATH": str(Path(fc.__file__).parents[1])}
    subprocess.run(["sh", "-ec", shell], cwd=tmp_path, check=True, capture_output=True, env=environment)
    monkeypatch.chdir(tmp_path)
    found = []
    for block in (x for x in blocks["python"] if "libqueue" in x):
        if "cffi" in block and importlib.util.find_spec("cffi") is None:
            continue
        space: dict[str, Any] = {}
        exec(compile(block, str(page), "exec"), space)
        found.append(space["queue"].fingerprint())
    assert len(set(found)) == 1


def test_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "examples" / "own_simulator.py"
    if not path.exists():
        pytest.skip("examples are not installed")
    runpy.run_path(str(path), run_name="__main__")
    assert "never a second doctor" in capsys.readouterr().out
