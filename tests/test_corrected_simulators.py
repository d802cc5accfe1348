"""PD-ANPG-CV on simulators: corrected rollouts against plain Python and exact values, least squares against numpy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from test_estimators import FAILS, HOLDS, mean_test, p_value

import fastcmdp as fc
from fastcmdp.kernels import draws
from fastcmdp.kernels.learning.least_squares import (
    BEYOND,
    EARNED,
    HEAD,
    Layout,
    bound_weights,
    gather,
    solve_weights,
)
from fastcmdp.kernels.sampling.rollouts import geometric_horizon
from fastcmdp.kernels.simulator.simulate import simulate_with
from fastcmdp.worlds import SimulatedWorld

SIZE = 16  # of the queue's table in each direction
INNER = 40


@pytest.fixture(scope="module")
def queue() -> fc.Simulator:
    return fc.simulators.tandem_queue(gamma=0.8)


def products(x: Any) -> Any:
    """Features and their products in pairs."""
    return np.concatenate([x, [x[i] * x[j] for i in range(len(x)) for j in range(i + 1)]])


class Batch:
    """One critic and policy with random weights on the queue, and what the kernels need to run rollouts."""

    def __init__(self, queue: fc.Simulator, n: int) -> None:
        rng = np.random.default_rng(3)
        self.queue, self.n = queue, n
        self.run = fc.PDANPGCV(outer=1, inner=n).run(
            SimulatedWorld.of(queue, fc.LogLinear(), "corrected"), 5, 1
        )
        self.theta = self.run.state.theta[0]
        self.theta[:] = 0.5 * rng.normal(size=20)
        self.space = self.run.work().control.space
        self.critic = rng.normal(size=(2, self.space.layout.d))
        self.rng = self.run.state.rng[0]

    def probabilities(self, state: Any) -> Any:
        z = self.theta.reshape(4, 5) @ self.queue.features(state)
        weight = np.exp(z - z.max())
        return weight / weight.sum()

    def values(self, state: Any) -> Any:
        """W_f(s, a), float64[2, 4]."""
        return self.critic.reshape(2, 4, 20) @ products(self.queue.features(state))

    def __call__(self, choice: Any, wanders: Any, value: Any = None) -> tuple[Any, Any, int]:
        n = len(choice)
        total, last = np.zeros((n, 2)), np.zeros(n, np.int64)
        value = np.zeros((n, 2)) if value is None else value
        self.space.tape[0] = 0.0
        made = simulate_with(
            self.run.world.tables, self.run.actions[0], self.rng, np.asarray(choice), np.zeros(n, np.uint32),
            np.asarray(wanders, np.uint64), self.critic.reshape(-1), self.space.tape, total, last, value,
        )  # fmt: skip
        return total, last, made


def plain(
    batch: Batch, stream: Any, job: tuple[Any, int, bool], tape: list[Any]
) -> tuple[Any, Any, Any, int]:
    """One corrected rollout in plain Python: C, Wbar of the first state, the last pair, and the transitions made."""
    queue, world, gamma = batch.queue, batch.run.world.tables, batch.queue.gamma
    horizon = geometric_horizon(np.uint64(draws.word(stream)), world.log_gamma_inverse)
    state, action, wanders = job
    state = queue.start(stream) if state is None else np.array(state)
    correction, first, end = np.zeros(2), np.zeros(2), None
    for t in range(horizon + 2):
        p, w = batch.probabilities(state), batch.values(state)
        mean = w @ p
        correction += gamma * mean if t else 0.0
        first = first if t else mean
        record = [-1.0, 0.0, 0.0, *products(queue.features(state)), *p]
        tape.append(record)
        if t > horizon:
            return correction, first, end, horizon + 1
        if t or action < 0 or wanders:
            u = draws.uniform(stream)
            if wanders and t == 0:
                action = int(u * 4)
            elif wanders and u < 0.5:
                action = int(2 * u * 4)
            else:
                left = 2 * u - 1 if wanders else u
                action = int(min((np.cumsum(p) <= left).sum(), 3))
        end = (state, action)
        then, reward, costs = queue.step(state, action, stream)
        correction += world.factor * [reward, *costs] + world.offset - w[:, action]
        record[:3] = [action, reward, *costs]
        state = then
    raise AssertionError


def test_corrected_rollouts_against_plain_python(queue: fc.Simulator) -> None:
    """Sums, last pairs, streams, and the tape, record for record: starts, given pairs, wanderers."""
    batch = Batch(queue, INNER)
    stream, tape = batch.rng[:, 0].copy(), []  # type: ignore[var-annotated]
    value = np.zeros((INNER, 2))
    total, last, made = batch(np.full(INNER, -1), np.zeros(INNER), value)
    number = int(batch.space.tape[0])
    kept = batch.space.tape[HEAD:].copy()
    found = [plain(batch, stream, (None, -1, False), tape) for _ in range(INNER)]
    visited = [pair[0] for _, _, pair, _ in found]
    np.testing.assert_allclose(total, [c for c, *_ in found], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(value, [w for _, w, *_ in found], rtol=1e-10, atol=1e-10)
    assert (last % 4).tolist() == [pair[1] for _, _, pair, _ in found]
    np.testing.assert_array_equal(batch.run.actions[0].visited[:INNER], visited)
    assert made == sum(n for *_, n in found)
    assert number == len(tape) == made + INNER
    words = batch.space.layout.words
    np.testing.assert_allclose(kept[: number * words].reshape(number, words), tape, rtol=1e-12, atol=1e-12)
    wanders = np.arange(INNER) % 2
    total, _, more = batch(last, wanders)
    again = [plain(batch, stream, (visited[h], int(last[h] % 4), bool(wanders[h])), []) for h in range(INNER)]
    np.testing.assert_allclose(total, [c for c, *_ in again], rtol=1e-10, atol=1e-10)
    assert more == sum(n for *_, n in again)
    assert batch.rng[:, 0].tolist() == stream.tolist()


def test_corrections_are_unbiased_for_a_random_critic(queue: fc.Simulator) -> None:
    """C from a given pair against the exact Q - W there, and Wbar(s_0) + C of starts against J.

    Negative controls: without Wbar(s_0), with Wbar of another policy, and with a critic that is not the batch's.
    """
    n = 60_000
    batch = Batch(queue, n)
    table = fc.simulators.tandem_queue_table(SIZE - 1, gamma=0.8)
    states = [(i, j) for i in range(SIZE) for j in range(SIZE)]
    pi = np.concatenate([batch.probabilities(s) for s in states])
    value = np.zeros((n, 2))
    total, _, _ = batch(np.full(n, -1), np.zeros(n), value)
    world, step = batch.run.world.tables, table.transition_matrix()
    signal = np.column_stack([table.reward, np.ravel(table.costs)]) * world.factor + world.offset
    mix = np.kron(np.eye(SIZE * SIZE), np.ones(4)) * pi  # states by pairs
    v = np.linalg.solve(np.eye(SIZE * SIZE) - 0.8 * mix @ step.toarray(), mix @ signal)
    assert p_value(mean_test(total + value, v[0])) > HOLDS
    assert p_value(mean_test(total, v[0])) < FAILS
    # From one pair: state (1, 1), action 2.
    at = SIZE + 1
    batch.run.actions[0].visited[0] = [1.0, 1.0]
    total, _, _ = batch(np.full(n, 2), np.zeros(n))
    w = batch.values([1.0, 1.0])
    want = signal[4 * at + 2] + 0.8 * (step @ v)[4 * at + 2] - w[:, 2]
    assert p_value(mean_test(total, want)) > HOLDS
    # Negative controls: W of a uniform policy's mean at the first state, W moved by a little within the batch.
    assert p_value(mean_test(total + w.mean(axis=1) - w @ batch.probabilities([1.0, 1.0]), want)) < FAILS
    batch.critic *= 0.9
    moved, _, _ = batch(np.full(n, 2), np.zeros(n))
    assert p_value(mean_test(moved, want)) < FAILS  # C for another W estimates Q minus that one
    assert p_value(mean_test(moved, want + 0.1 * w[:, 2])) > HOLDS


def test_least_squares_against_numpy(queue: fc.Simulator) -> None:
    batch = Batch(queue, INNER)
    batch(np.full(INNER, -1), np.arange(INNER) % 2)
    space, world = batch.space, batch.run.world.tables
    layout, d = space.layout, space.layout.d
    rows = space.tape[HEAD : HEAD + int(space.tape[0]) * layout.words].reshape(-1, layout.words)
    evidence = np.random.default_rng(0).normal(size=d * d + 2 * d + 2)
    evidence[-2:] = 7.0, 0.0
    matrix, right = evidence[: d * d].reshape(d, d).copy(), evidence[d * d : -2].reshape(2, d).copy()
    critic = batch.critic.copy()
    gather(space.tape, layout, world.factor, world.offset, 0.8, 0.25, space.expected, evidence)
    pairs, money = [], 20.0 * d
    for now, then in itertools.pairwise(rows):
        if now[0] >= 0:
            money += EARNED
            if money >= 20 * d:
                pairs.append((now, then))
                money -= 20 * d
    made = (rows[:, 0] >= 0).sum()
    assert 0.5 * made < len(pairs) < made
    matrix *= 0.75
    right *= 0.75
    square = 0.75 * 7.0
    for now, then in pairs:
        phi = np.zeros((4, 20))
        phi[int(now[0])] = now[3:23]
        square += 0.25 / made * float(phi.ravel() @ phi.ravel())
        ahead = np.outer(then[23:], then[3:23]).ravel()
        matrix += 0.25 / made * np.outer(phi.ravel(), phi.ravel() - 0.8 * ahead)
        for f in range(2):
            right[f] += 0.25 / made * phi.ravel() * (world.factor[f] * now[1 + f] + world.offset[f])
    np.testing.assert_allclose(evidence[: d * d].reshape(d, d), matrix, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(evidence[d * d : -2].reshape(2, d), right, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(evidence[-2], square, rtol=1e-10)
    evidence[-1] = 1e9
    assert solve_weights(layout, evidence, 0.8, space.matrix, space.right, critic)
    ridge = 1e-3 * np.maximum(np.diag(matrix), 0.0).sum() / d
    want = np.linalg.solve(matrix + ridge * np.eye(d), right.T + ridge * batch.critic.T).T
    np.testing.assert_allclose(critic, want, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("m_11", [-1e-9, -1e-3, 0.0])
def test_weights_stay_where_m_is_not_positive(m_11: float) -> None:
    """One feature, one action, phi = 1: E[phi (phi - gamma phibar')] at or below zero, as off-policy."""
    gamma, d = 0.9, 1
    layout = Layout(n_given=1, n=1, n_actions=1, n_rows=1, n_signals=1, d=1, words=4)
    evidence, critic = np.array([m_11, 1.0, 1.0, 1e9]), np.zeros((1, 1))
    assert solve_weights(layout, evidence, gamma, np.zeros((d, d)), np.zeros((d, 1)), critic)
    ridge = 1e-3 * (1.0 - math.sqrt(gamma))
    np.testing.assert_allclose(critic, 1.0 / (m_11 + ridge), rtol=1e-10)
    tape = np.array(
        [2.0, 2.0, 0.0, 0.5, 1.0, 1.0, -1.0, 0.0, 1.0, 1.0]
    )  # action, signal, feature, probability
    sign, one, zero = np.sign(critic[0, 0]), np.ones(1), np.zeros(1)
    bound_weights(layout, tape, one, zero, gamma, critic)
    np.testing.assert_allclose(critic, sign * BEYOND * 10.0, rtol=1e-12)
    critic[:] = -1e9
    tape[HEAD + 1] = 50.0  # values may then be so much larger
    bound_weights(layout, tape, one, zero, gamma, critic)
    np.testing.assert_allclose(critic, -BEYOND * 500.0, rtol=1e-12)
    bound_weights(layout, tape, 3.0 * one, 7.0 * one, gamma, critic)
    np.testing.assert_allclose(critic, -BEYOND * 500.0, rtol=1e-12)  # within: nothing moves


def test_what_is_bounded_is_what_rollouts_read(queue: fc.Simulator) -> None:
    """Largest |W| of the tape's choices and |Wbar| of its states, in plain Python; weights keep their direction."""
    batch = Batch(queue, INNER)
    batch(np.full(INNER, -1), np.arange(INNER) % 2)
    space, world, layout = batch.space, batch.run.world.tables, batch.space.layout
    rows = space.tape[HEAD : HEAD + int(space.tape[0]) * layout.words].reshape(-1, layout.words)
    critic = 1e6 * np.random.default_rng(1).normal(size=batch.critic.shape)
    before = critic.copy()
    bound_weights(layout, space.tape, world.factor, world.offset, 0.8, critic)
    for f in range(2):
        values = rows[:, 3:23] @ before[f].reshape(4, 20).T
        taken = values[np.arange(len(rows)), rows[:, 0].astype(int)][rows[:, 0] >= 0]
        largest = max(np.abs(taken).max(), np.abs((values * rows[:, 23:]).sum(axis=1)).max())
        signal = world.factor[f] * rows[rows[:, 0] >= 0, 1 + f] + world.offset[f]
        most = BEYOND * max(1.0, np.abs(signal).max()) / 0.2
        np.testing.assert_allclose(critic[f], before[f] * most / largest, rtol=1e-10)


def test_what_cannot_be_paid_for_is_left_out(queue: fc.Simulator) -> None:
    """Without the money for a solution the weights stay, and the batch counts all the same."""
    batch = Batch(queue, INNER)
    batch(np.full(INNER, -1), np.zeros(INNER))
    d, before = batch.space.layout.d, batch.critic.copy()
    evidence = np.zeros(d * d + 2 * d + 2)
    assert not solve_weights(
        batch.space.layout, evidence, 0.8, batch.space.matrix, batch.space.right, batch.critic
    )
    np.testing.assert_array_equal(batch.critic, before)


def cut_and_resumed(model: Any, settings: Any, policy: Any, path: Any) -> fc.Result:
    """A run of two replicates that is, bit for bit, the same in pieces on two threads, and after a pause and a file."""
    whole = fc.solve(model, settings, policy=policy, replicates=2, threads=1)
    cut = fc.solve(model, settings, policy=policy, replicates=2, threads=2, piece=1)

    def stop(progress: Any) -> None:
        if progress.outer >= 5:
            raise KeyboardInterrupt

    half = fc.solve(model, settings, policy=policy, replicates=2, piece=1, progress=stop, checkpoint=path)
    assert not half.finished
    rest = fc.resume(fc.load_run(path, model, policy=policy))
    assert rest.algorithm == settings
    for name, value in whole.run.state._asdict().items():
        np.testing.assert_array_equal(getattr(cut.run.state, name), value, err_msg=name)
        np.testing.assert_array_equal(getattr(rest.run.state, name), value, err_msg=name)
    return whole


@pytest.mark.parametrize("policy", [fc.LogLinear(), fc.NeuralSoftmax(hidden=(6,))], ids=["linear", "network"])
def test_pieces_threads_and_a_pause_change_nothing(queue: fc.Simulator, policy: Any, tmp_path: Any) -> None:
    whole = cut_and_resumed(queue, fc.PDANPGCV(outer=12, inner=4), policy, tmp_path / "run.npz")
    assert np.abs(whole.theta - whole.theta.mean(axis=0)).max() > 0.0
