"""Kernels of exact control against plain loops; the same bits for any number of threads."""

from __future__ import annotations

import multiprocessing
import warnings

import naive
import numpy as np
import pytest
import scipy.sparse as sp

import fastcmdp as fc
from fastcmdp.exact import linear, sweeps
from fastcmdp.exact.control import Control
from fastcmdp.exact.pool import Pool

MODELS = [fc.CMDP(**naive.random_rows(seed, n_states=23, m=2)) for seed in range(4)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 5 states and threads for any model, so that a model of 23 states has five blocks."""
    monkeypatch.setattr(sweeps, "BLOCK", 5)
    monkeypatch.setattr(sweeps, "LONG_BLOCKS", 5)
    monkeypatch.setattr(sweeps, "THREADED", 0)


def random_policy(cmdp, rng):
    pi = rng.random(cmdp.n_choices) * (rng.random(cmdp.n_choices) < 0.7)
    pi[cmdp.state_to_choice[:-1]] += 0.1  # the first choice of each state is taken
    return pi / np.add.reduceat(pi, cmdp.state_to_choice[:-1])[cmdp.choice_state]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_improve(number, threads):
    cmdp, rng = MODELS[number], np.random.default_rng(number)
    signal, value = rng.random(cmdp.n_choices), rng.random(cmdp.n_states)
    out, choices = np.empty(cmdp.n_states), np.empty(cmdp.n_states, np.int64)
    low, high = sweeps.Rows(cmdp, threads).improve(signal, value, out, choices)
    expected, best = naive.improve(naive.plain(cmdp), signal.tolist(), value.tolist())
    assert out.tolist() == pytest.approx(expected, abs=1e-15)
    assert choices.tolist() == best
    assert (low, high) == (min(out - value), max(out - value))


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("threads", [1, 3])
def test_eight_abreast(number, threads):
    """Each column is a Bellman step of its own, and one along choices of its own."""
    cmdp, rng = MODELS[number].with_constraints([0]), np.random.default_rng(number)
    abreast = sweeps.Abreast(sweeps.Rows(cmdp, threads), cmdp.signals)
    weights = rng.uniform(-1.0, 2.0, (8, 2))
    value, out, choice = rng.random((3, cmdp.n_states, 8))
    ends = abreast.improve(weights, value, out, choice)
    model = naive.plain(cmdp)
    for j in range(8):
        signal = cmdp.signals @ weights[j]
        expected, best = naive.improve(model, signal.tolist(), value[:, j].tolist())
        assert out[:, j].tolist() == pytest.approx(expected, abs=1e-15)
        assert choice[:, j].tolist() == best
    moved = out - value
    assert (ends[0].tolist(), ends[1].tolist()) == (moved.min(0).tolist(), moved.max(0).tolist())
    # Policies that have most in common, as those of neighbours do, or nothing.
    first, end = cmdp.state_to_choice[:-1, None], cmdp.state_to_choice[1:, None]
    any_choice = rng.integers(first, end, choice.shape)
    for taken in (np.where(rng.random(choice.shape) < 0.1, any_choice, choice[:, :1]), any_choice * 1.0):
        rows = abreast.merged(taken)
        assert rows.row.tolist() == [q for row in taken for q in dict.fromkeys(row.tolist())]
        ends = abreast.follow(weights, rows, taken, value, out)
        for j in range(8):
            pi = np.zeros(cmdp.n_choices)
            pi[taken[:, j].astype(int)] = 1.0
            table = np.array(naive.chain_of(model, pi.tolist()))
            right = (cmdp.signals @ weights[j])[taken[:, j].astype(int)]
            assert out[:, j] == pytest.approx(right + cmdp.gamma * table @ value[:, j], abs=1e-14)
        moved = out - value
        assert (ends[0].tolist(), ends[1].tolist()) == (moved.min(0).tolist(), moved.max(0).tolist())


def test_the_first_of_equal_choices_is_taken():
    cmdp = fc.CMDP([0, 3], [0, 1, 2, 3], [0, 0, 0], [1, 1, 1], [0, 1, 1], gamma=0.5)
    choices = np.empty(1, np.int64)
    sweeps.Rows(cmdp).improve(np.array([0.0, 1.0, 1.0]), np.zeros(1), np.empty(1), choices)
    assert choices.tolist() == [1]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_gauss_seidel(number, backward):
    cmdp, rng = MODELS[number], np.random.default_rng(number)
    model, pi = naive.plain(cmdp), random_policy(cmdp, rng)
    signal, value = rng.random(cmdp.n_choices), rng.random(cmdp.n_states)
    out = np.empty(cmdp.n_states)
    for threads in (1, 3):
        rows = sweeps.Rows(cmdp, threads)
        rows.improve_in_place(signal, value, out, backward)
        expected = naive.improve_in_place(model, signal.tolist(), value.tolist(), backward, 5)
        assert out.tolist() == pytest.approx(expected, abs=1e-14)
        chain, right = rows.chain(pi, signal[:, None])
        chain.relax(right[:, 0].copy(), value, out, backward)
        table = naive.chain_of(model, pi.tolist())
        expected = naive.relax(table, right[:, 0].tolist(), cmdp.gamma, value.tolist(), backward, 5)
        assert out.tolist() == pytest.approx(expected, abs=1e-14)


def test_values_cross_a_model_in_as_many_sweeps_as_it_has_long_blocks():
    """A path to a state that pays: however small other blocks are."""
    n = 60
    path = sp.csr_array((np.ones(n), (np.arange(n), np.minimum(np.arange(n) + 1, n - 1))), shape=(n, n))
    cmdp = fc.CMDP.from_arrays([path], (np.arange(n) == n - 1).astype(float)[:, None], gamma=0.9)
    rows, value, other = sweeps.Rows(cmdp), np.zeros(n), np.empty(n)
    for _ in range(sweeps.LONG_BLOCKS):
        rows.improve_in_place(cmdp.signals[:, 0].copy(), value, other, True)
        value, other = other, value
    assert value == pytest.approx(10 * 0.9 ** np.arange(n)[::-1], abs=1e-12)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("number", range(4))
def test_chain_and_its_transpose(number, columns):
    cmdp, rng = MODELS[number], np.random.default_rng(number)
    pi, value = random_policy(cmdp, rng), rng.random((cmdp.n_states, columns))
    table = np.array(naive.chain_of(naive.plain(cmdp), pi.tolist()))
    for threads in (1, 2):
        chain, right = sweeps.Rows(cmdp, threads).chain(pi, cmdp.signals[:, :columns].copy())
        mean = np.add.reduceat(pi[:, None] * cmdp.signals[:, :columns], cmdp.state_to_choice[:-1])
        assert right == pytest.approx(mean, abs=1e-15)
        for one, matrix in ((chain, table), (chain.transposed(), table.T)):
            assert one.matrix().toarray() == pytest.approx(matrix, abs=1e-16)
            out = np.empty_like(value)
            change = one.step(right, value, out)
            assert out == pytest.approx(right + cmdp.gamma * matrix @ value, abs=1e-14)
            moved = out - value
            ends = np.stack((moved.min(0), moved.max(0), np.abs(moved).sum(0)), axis=1)
            assert change == pytest.approx(ends, abs=1e-14)


@pytest.mark.parametrize("number", range(4))
def test_the_chain_of_choices_is_rewritten_where_they_change(number):
    cmdp, rng = MODELS[number], np.random.default_rng(number)
    model, rows = naive.plain(cmdp), sweeps.Rows(cmdp, 2)
    taken = rng.integers(cmdp.state_to_choice[:-1], cmdp.state_to_choice[1:])
    for _ in range(20):  # some have rows of the same lengths, some have not
        s = rng.integers(cmdp.n_states)
        taken[s] = rng.integers(cmdp.state_to_choice[s], cmdp.state_to_choice[s + 1])
        pi = np.zeros(cmdp.n_choices)
        pi[taken] = 1.0
        assert rows.chosen(taken).matrix().toarray().tolist() == naive.chain_of(model, pi.tolist())


@pytest.mark.parametrize("weights", [[0.3, 2.0, -1.0], [1.0, 0.0, 0.5]])
def test_sums_of_columns(weights):
    columns, law = MODELS[0].signals, np.random.default_rng(0).random(MODELS[0].n_choices)
    assert linear.weighted(columns, np.array(weights)) == pytest.approx(columns @ weights, abs=1e-15)
    assert linear.means(law, columns) == pytest.approx(law @ columns, abs=1e-14)


def test_a_pool_moves_to_other_limits():
    cmdp = fc.envs.garnet(n_states=300, n_constraints=2, seed=1)
    other = cmdp.with_limits(cmdp.limits * [0.9, 1.2])
    pool = Pool(cmdp)
    for weights in (*np.eye(3), np.array([1.0, 0.5, 0.2])):
        pool.respond(weights)
    moved, again = pool.moved(other), Pool(other)
    for k in range(4):
        again.respond(moved.sizes[k] * moved.weights[k])
        assert moved.values[k] == pytest.approx(fc.evaluate(other, pool.policy(k)).raw, abs=1e-10)
        assert moved.bounds[k] == pytest.approx(again.bounds[k], abs=1e-9)
    assert fc.exact.constrained.solved(moved).reward == pytest.approx(fc.optimum(other).reward, abs=1e-8)


@pytest.mark.parametrize("order", [1, np.inf])
@pytest.mark.parametrize("patience", [150, 0])  # sweeps, or Krylov's method
def test_solutions_have_the_same_bits_for_any_number_of_threads(monkeypatch, order, patience):
    monkeypatch.setattr(linear, "PATIENCE", patience)
    monkeypatch.setattr(linear, "LOOK", 2)
    cmdp = fc.envs.garnet(n_states=300, n_constraints=2, seed=1)
    pi = random_policy(cmdp, np.random.default_rng(0))
    found = []
    for threads in (1, 2, 5):
        chain, right = sweeps.Rows(cmdp, threads).chain(pi, cmdp.signals)
        found.append(linear.solve(chain if order != 1 else chain.transposed(), right, order, "iterative"))
    matrix = chain.matrix().toarray() if order != 1 else chain.matrix().toarray().T
    assert found[0] == pytest.approx(np.linalg.solve(np.eye(300) - cmdp.gamma * matrix, right), abs=1e-10)
    assert found[1].tolist() == found[0].tolist()
    assert found[2].tolist() == found[0].tolist()


def test_optima_have_the_same_bits_for_any_number_of_threads(monkeypatch):
    cmdp = fc.envs.garnet(n_states=300, seed=1)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(sweeps, "available_threads", lambda threads=threads: threads)
        found.append(fc.optimum(cmdp))
    for other in found[1:]:
        assert other.policy.tolist() == found[0].policy.tolist()
        assert other.duals.tolist() == found[0].duals.tolist()
        assert other.gap == found[0].gap


def test_responses_abreast_are_those_that_come_one_by_one():
    cmdp = fc.envs.garnet(n_states=300, seed=1)
    weights = [np.array([1.0, x]) for x in (0.1, 0.4, 0.5, 0.9, 3.0)]
    found = []
    for threads in (1, 3):
        pool = Pool(cmdp)
        pool.control.rows.threads = threads
        for end in np.eye(2):
            pool.respond(end, 1e-9)
        assert pool.respond_all(weights, 1e-9) == [2, 3, 4, 5, 6]
        assert pool.abreast
        found.append(pool)
    one, other = found
    assert all(a.tolist() == b.tolist() for a, b in zip(one.values, other.values, strict=True))
    for k, row in enumerate(weights, 2):
        exact = Pool(cmdp)
        exact.respond(row)
        unit = (1 - cmdp.gamma) / row.sum()
        assert unit * one.values[k] @ row == pytest.approx(unit * exact.values[0] @ row, abs=2e-9)
        assert unit * one.bounds[k] >= unit * exact.values[0] @ row - 1e-15
        assert unit * (one.bounds[k] - one.values[k] @ row) <= 1e-9
        assert one.values[k] == pytest.approx(fc.evaluate(cmdp, one.policy(k)).raw, abs=2e-8)


def test_responses_abreast_give_way_where_sweeps_are_many():
    """Twice as many states as are solved by factors, on a ring."""
    n, rng = 256, np.random.default_rng(0)
    step = [
        sp.csr_array((np.ones(n), (np.arange(n), (np.arange(n) + way) % n)), shape=(n, n)) for way in (0, 1)
    ]
    cmdp = fc.CMDP.from_arrays(step, rng.random((n, 2)), rng.random((n, 2)), gamma=0.999, limits=500.0)
    pool = Pool(cmdp)
    assert pool.respond_all([np.array([1.0, 0.5]), np.array([1.0, 0.6])], 1e-9) == [0, 1]
    assert not pool.abreast
    for k in (0, 1):
        assert pool.values[k] == pytest.approx(fc.evaluate(cmdp, pool.policy(k)).raw, rel=1e-8)


def test_a_response_is_bounded_from_both_sides():
    for cmdp in MODELS:
        weights = np.array([1.0, 0.5, 0.25])
        response = Control(cmdp).respond(cmdp.signals, weights)
        assert response.attained <= response.bound <= response.attained + 1e-9
        value = np.zeros(cmdp.n_states)
        for _ in range(400):
            value = np.array(
                naive.improve(naive.plain(cmdp), (cmdp.signals @ weights).tolist(), value.tolist())[0]
            )
        assert response.attained == pytest.approx(cmdp.start @ value, abs=1e-10)


def _optimum_in_a_child(queue):
    queue.put(fc.optimum(fc.envs.garnet(n_states=300, seed=1)).reward)


def test_threads_after_a_fork():
    """A fork has none of its parent's threads: it starts its own."""
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("no fork here")
    reward = fc.optimum(fc.envs.garnet(n_states=300, seed=1)).reward
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_optimum_in_a_child, args=(queue,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of threads and forks
        child.start()
    assert queue.get(timeout=120) == reward
    child.join(timeout=60)
    assert child.exitcode == 0
