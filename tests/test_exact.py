"""Exact answers against answers on paper, series summed term by term, and the dual function minimised."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
import scipy.sparse.linalg
from scipy.optimize import OptimizeResult, linprog

from fastcmdp.cmdp import CMDP
from fastcmdp.envs import garnet
from fastcmdp.errors import InfeasibleError, ModelError, NearlyInfeasibleWarning, SettingError
from fastcmdp.exact import (
    advantages,
    dual_value,
    evaluate,
    evaluate_many,
    fisher,
    linear,
    natural_gradient,
    occupancy,
    optimum,
    policy_gradient,
    q_values,
    state_occupancy,
    values,
)
from fastcmdp.exact.evaluation import occupancy_each

METHODS = ["lp", "decomposition"]


def random_model(seed, n_states=6, m=1, gamma=0.9, form="ragged"):
    """A random model whose limits lie inside the attainable ranges, most often active."""
    rng = np.random.default_rng(seed)
    if form == "ragged":
        counts = rng.integers(1, 4, n_states)
        branches = rng.integers(1, 4, counts.sum())
        prob = np.concatenate([rng.dirichlet(np.ones(n)) for n in branches])
        offsets = [np.append(0, np.cumsum(n)) for n in (counts, branches)]
        size = counts.sum()
        targets = rng.integers(0, n_states, branches.sum())
        cmdp = CMDP(
            *offsets,
            targets,
            prob,
            rng.random(size),
            list(rng.random((m, size))) or None,
            gamma=gamma,
            start=0,
            limits=[0.0] * m,
        )
    else:
        shape = (n_states, 3)
        table = rng.dirichlet(np.ones(n_states), shape)
        if form == "sparse":
            keep = rng.random(table.shape) < 0.4
            keep[..., 0] = True
            table = np.where(keep, table, 0.0)
            table /= table.sum(-1, keepdims=True)
            table = [sp.csr_array(table[:, a]) for a in range(3)]
        costs = list(rng.random((m, *shape))) or None
        cmdp = CMDP.from_arrays(table, rng.random(shape), costs, gamma=gamma, limits=[0.0] * m)
    if m == 0:
        return cmdp
    # Halfway between the uniform policy and a cheap one: attainable, and the best rewards cost more.
    cheap = greedy_by_value_iteration(cmdp, np.append(0.0, np.ones(m)))
    ends = evaluate_many(cmdp, [uniform(cmdp), cheap])
    return cmdp.with_limits(cmdp.to_user_values(ends.mean(axis=0))[1:] + 0.01)


def uniform(cmdp):
    return 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]


def random_policy(cmdp, seed=0):
    weights = np.random.default_rng(seed).exponential(size=cmdp.n_choices)
    return weights / np.add.reduceat(weights, cmdp.state_to_choice[:-1])[cmdp.choice_state]


def naive_occupancy(cmdp, pi):
    """(1-gamma) sum_t gamma^t Pr(choice q at time t), term by term over the model's rows."""
    state, total, weight = np.array(cmdp.start), np.zeros(cmdp.n_choices), 1 - cmdp.gamma
    while weight > 1e-16:
        after = np.zeros(cmdp.n_states)
        for s in range(cmdp.n_states):
            for q in range(cmdp.state_to_choice[s], cmdp.state_to_choice[s + 1]):
                total[q] += weight * state[s] * pi[q]
                for b in range(cmdp.choice_to_branch[q], cmdp.choice_to_branch[q + 1]):
                    after[cmdp.branch_target[b]] += state[s] * pi[q] * cmdp.branch_prob[b]
        state, weight = after, weight * cmdp.gamma
    return total


def naive_values(cmdp, pi):
    """V = W (f + gamma P V) iterated from zero."""
    found = np.zeros((cmdp.n_states, 1 + cmdp.n_constraints))
    transition = cmdp.transition_matrix().toarray()
    for _ in range(int(np.log(1e-15) / np.log(cmdp.gamma)) + 1):
        q = pi[:, None] * (cmdp.signals + cmdp.gamma * transition @ found)
        found = np.add.reduceat(q, cmdp.state_to_choice[:-1])
    return found


def greedy_by_value_iteration(cmdp, weights):
    transition, signal, found = cmdp.transition_matrix(), cmdp.signals @ weights, np.zeros(cmdp.n_states)
    for _ in range(int(np.log(1e-14) / np.log(cmdp.gamma)) + 1):
        q = signal + cmdp.gamma * (transition @ found)
        found = np.maximum.reduceat(q, cmdp.state_to_choice[:-1])
    pi = np.zeros(cmdp.n_choices)
    for begin, end in zip(cmdp.state_to_choice[:-1], cmdp.state_to_choice[1:], strict=True):
        pi[begin + np.argmax(q[begin:end])] = 1.0
    return pi


def minimised_dual(cmdp):
    """min over lambda >= 0 of the dual function, by cutting planes on value iteration: (least value, lambda)."""
    m = cmdp.n_constraints
    lam, planes, model = np.zeros(m), [], -np.inf
    for _ in range(200):
        raw = evaluate(cmdp, greedy_by_value_iteration(cmdp, np.append(1.0, lam))).raw
        if raw @ np.append(1.0, lam) <= model + 1e-11:
            return model, lam
        planes.append(raw)
        cuts = np.array(planes)
        answer = linprog(
            np.append(np.zeros(m), 1.0),
            A_ub=np.column_stack((cuts[:, 1:], -np.ones(len(cuts)))),
            b_ub=-cuts[:, 0],
            bounds=[(0, 1e3)] * m + [(None, None)],
            method="highs-ds",
        )
        lam, model = answer.x[:m], answer.fun
    raise AssertionError("cutting planes have not converged")


def golden_section(convex, low, high):
    """Least value of a convex function on an interval, and where."""
    ratio = (np.sqrt(5) - 1) / 2
    for _ in range(75):  # the interval shrinks by 2e-16
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if convex(left) <= convex(right):
            high = right
        else:
            low = left
    return min(convex(low), convex(high)), low


def tabular_scores(cmdp, pi):
    """Row q is the gradient of log pi(q) in the logits: one-hot minus the policy of the state."""
    same = cmdp.choice_state[:, None] == cmdp.choice_state[None, :]
    return np.eye(cmdp.n_choices) - same * pi[None, :]


def softmax(cmdp, theta):
    weights = np.exp(theta)
    return weights / np.add.reduceat(weights, cmdp.state_to_choice[:-1])[cmdp.choice_state]


def random_walk(n_states, up=0.6):
    """Up or down one state: a long one-way path, on which plain Krylov methods stall."""
    s = np.arange(n_states)
    rows, targets = np.append(s, s), np.append(np.minimum(s + 1, n_states - 1), np.maximum(s - 1, 0))
    return sp.csr_array((np.repeat([up, 1 - up], n_states), (rows, targets)), shape=(n_states, n_states))


@pytest.fixture
def rest_or_work():
    """State 0: rest (reward 1/4) or work (reward 1, cost 1, then state 1). State 1: back to 0. gamma 1/2.

    With p = Pr(work): J_r = (1 + 3p)/(2 + p), J_cost = 4p/(2 + p), so J_r = 1/2 + 5/8 J_cost.
    """
    return CMDP(
        [0, 2, 3], [0, 1, 2, 3], [0, 1, 0], [1, 1, 1], [0.25, 1, 0], [0, 1, 0], gamma=0.5, start=0, limits=1.0
    )


@pytest.mark.parametrize("method", METHODS)
def test_two_states_on_paper(rest_or_work, method):
    best = optimum(rest_or_work, method=method)
    assert best.reward == pytest.approx(9 / 8, abs=1e-12)
    assert best.constraints == pytest.approx([1.0], abs=1e-12)
    assert best.duals == pytest.approx([5 / 8], abs=1e-12)
    assert best.policy == pytest.approx([1 / 3, 2 / 3, 1], abs=1e-12)
    assert best.occupancy == pytest.approx([1 / 4, 1 / 2, 1 / 4], abs=1e-12)
    assert best.slater == pytest.approx(1.0, abs=1e-12)
    assert best.constraint_range == pytest.approx(np.array([[0, 4 / 3]]), abs=1e-12)
    assert best.raw == pytest.approx([9 / 8, 0], abs=1e-12)
    assert best.raw_duals == pytest.approx(best.duals)
    assert best.gap <= 1e-12


def test_two_states_evaluated_on_paper(rest_or_work):
    value = evaluate(rest_or_work, [0.5, 0.5, 1.0])  # p = 1/2: J_r = 1, J_cost = 4/5
    assert value.reward == pytest.approx(1.0, abs=1e-14)
    assert value.constraints == pytest.approx([0.8], abs=1e-14)
    assert value.raw == pytest.approx([1.0, 0.2], abs=1e-14)
    assert state_occupancy(rest_or_work, [0.5, 0.5, 1.0]) == pytest.approx([0.8, 0.2], abs=1e-14)
    assert dual_value(rest_or_work, 5 / 8) == pytest.approx(9 / 8, abs=1e-14)
    assert dual_value(rest_or_work, [0.0]) == pytest.approx(4 / 3, abs=1e-14)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("limit", "reward", "dual"), [(3, 4.462443636, 0.242669711), (4, 4.005375626, 0.972290242)]
)
def test_published_random_instance(method, limit, reward, dual):
    draw = np.random.RandomState(10).uniform  # the generator that defines the instance
    table = draw(0, 1, (200, 20))
    table /= table.sum(1, keepdims=True)
    gain, utility = draw(0, 1, (20, 10)), draw(0, 1, (20, 10))
    cmdp = CMDP.from_arrays(
        table.reshape(20, 10, 20), gain, utility, gamma=0.8, limits=float(limit), sense=">="
    )
    best = optimum(cmdp, method=method)
    assert best.reward == pytest.approx(reward, abs=1e-8)
    assert best.duals == pytest.approx([dual], abs=1e-8)
    assert best.constraints == pytest.approx([limit], abs=1e-10)


@pytest.mark.parametrize("form", ["dense", "sparse", "ragged"])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_optimum_equals_minimised_dual(form, m):
    active = 0
    for seed in range(4):
        cmdp = random_model(seed, m=m, form=form)
        least, _ = minimised_dual(cmdp)
        for method in METHODS:
            best = optimum(cmdp, method=method)
            assert best.raw[0] == pytest.approx(least, abs=1e-8)
            assert dual_value(cmdp, best.raw_duals) == pytest.approx(least, abs=1e-8)
            assert cmdp.slack(np.append(best.reward, best.constraints)).min() >= -1e-8
            assert best.raw_duals @ best.raw[1:] == pytest.approx(0.0, abs=1e-8)
            assert evaluate(cmdp, best.policy).raw == pytest.approx(best.raw, abs=1e-12)
        active += bool(best.duals.any())
    assert active >= 2  # else the test says little


def test_one_multiplier_by_golden_section():
    cmdp = random_model(1)
    least, at = golden_section(lambda lam: dual_value(cmdp, lam), 0.0, 50.0)
    best = optimum(cmdp)
    assert best.raw_duals[0] > 0.01
    assert least == pytest.approx(best.raw[0], abs=1e-10)
    assert at == pytest.approx(best.raw_duals[0], abs=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_slater_value_and_ranges(method):
    for seed in range(2):
        cmdp = random_model(seed, m=2)
        best = optimum(cmdp, method=method)

        def mixed(weight, cmdp=cmdp):
            weights = np.array([0.0, weight, 1 - weight])
            return weights @ evaluate(cmdp, greedy_by_value_iteration(cmdp, weights)).raw

        # max over policies of the least = min over weights of the largest weighted mean
        assert best.slater == pytest.approx(golden_section(mixed, 0.0, 1.0)[0], abs=1e-10)
        for i in range(2):
            # both costs are "<=", so the largest J_c is the least cost
            least = evaluate(cmdp, greedy_by_value_iteration(cmdp, np.eye(3)[1 + i])).constraints[i]
            greatest = evaluate(cmdp, greedy_by_value_iteration(cmdp, -np.eye(3)[1 + i])).constraints[i]
            assert best.constraint_range[i] == pytest.approx([least, greatest], abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_slater_value_on_paper(method):
    # One state, gamma 1/2, utilities (1, 0) or (0, 1), each to reach 0.2: half and half has J = 1 for both.
    cmdp = CMDP.from_arrays(
        np.ones((1, 2, 1)),
        [[0.0, 1.0]],
        [[[1.0, 0.0]], [[0.0, 1.0]]],
        gamma=0.5,
        limits=[0.2, 0.2],
        sense=">=",
    )
    best = optimum(cmdp, method=method)
    assert best.slater == pytest.approx(0.8, abs=1e-12)
    assert best.constraint_range == pytest.approx(np.array([[0, 2], [0, 2]]), abs=1e-12)
    assert best.policy == pytest.approx([0.1, 0.9], abs=1e-12)
    assert best.duals == pytest.approx([1, 0], abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_slater_value_is_the_least_room(method):
    """One state, gamma 1/2, utilities that no action acts on: 1 and 1/2 a step, to reach 0.2 and 0.6: room 1.8, 0.4."""
    both = [np.full((1, 2), 1.0), np.full((1, 2), 0.5)]
    cmdp = CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], both, gamma=0.5, limits=[0.2, 0.6], sense=">=")
    assert cmdp.constraint_scale.tolist() == [1.0, 1.0]
    assert optimum(cmdp, method=method).slater == pytest.approx(0.4, abs=1e-12)


def test_users_units_and_sense():
    rng = np.random.default_rng(5)
    table, gain, cost = rng.dirichlet(np.ones(5), (5, 3)), rng.random((5, 3)), rng.random((5, 3))
    cost[0] = [0, 1, 1]  # so that the kernels see the cost as it is
    plain = optimum(CMDP.from_arrays(table, gain, cost, gamma=0.9, limits=4.0))
    assert plain.duals[0] > 0.01
    scaled = optimum(CMDP.from_arrays(table, 50 * gain - 30, 7 * cost, gamma=0.9, limits=28.0))
    turned = optimum(CMDP.from_arrays(table, gain, -cost, gamma=0.9, limits=-4.0, sense=">="))
    assert scaled.reward == pytest.approx(50 * plain.reward - 300, abs=1e-9)
    assert scaled.constraints == pytest.approx([28.0], abs=1e-9)
    assert scaled.duals == pytest.approx(plain.duals * 50 / 7, abs=1e-9)
    assert scaled.constraint_range == pytest.approx(7 * plain.constraint_range, abs=1e-9)
    assert turned.reward == pytest.approx(plain.reward, abs=1e-9)
    assert turned.duals == pytest.approx(plain.duals, abs=1e-9)
    assert turned.constraint_range == pytest.approx(-plain.constraint_range[:, ::-1], abs=1e-9)
    for best in (plain, scaled, turned):
        assert best.policy == pytest.approx(plain.policy, abs=1e-9)


def test_multiplier_is_the_price_of_the_limit():
    cmdp = random_model(1)
    best, step = optimum(cmdp), 1e-4
    higher = optimum(cmdp.with_limits(cmdp.limits + step)).reward
    lower = optimum(cmdp.with_limits(cmdp.limits - step)).reward
    assert best.duals[0] > 0.01
    assert (higher - lower) / (2 * step) == pytest.approx(best.duals[0], rel=1e-6)


def test_inactive_limit_leaves_the_unconstrained_optimum():
    cmdp = random_model(2).with_limits(1e3)
    best = optimum(cmdp)
    assert best.duals.tolist() == [0.0]
    assert best.raw[0] == pytest.approx(dual_value(cmdp, 0.0), abs=1e-12)
    assert best.gap <= 1e-10


@pytest.mark.parametrize("method", METHODS)
def test_limit_at_the_edge_of_the_attainable(method):
    for seed in range(4):
        cmdp = random_model(seed)
        least = optimum(cmdp).constraint_range[0, 0]
        with pytest.warns(NearlyInfeasibleWarning, match="limits of cost leave hardly any room"):
            best = optimum(cmdp.with_limits(least), method=method)
        assert best.constraints == pytest.approx([least], abs=1e-8)
        assert best.slater == pytest.approx(0.0, abs=1e-8)


def test_results_are_frozen(rest_or_work):
    best = optimum(rest_or_work)
    with pytest.raises(AttributeError):
        best.reward = 0.0
    with pytest.raises(ValueError, match="read-only"):
        best.policy[0] = 1.0


# Evaluation


@pytest.mark.parametrize("form", ["dense", "ragged"])
def test_evaluation_equals_the_series(form):
    cmdp = random_model(3, m=2, form=form)
    pi = random_policy(cmdp)
    nu, state_values = naive_occupancy(cmdp, pi), naive_values(cmdp, pi)
    raw = nu @ cmdp.signals / (1 - cmdp.gamma)
    q = cmdp.signals + cmdp.gamma * cmdp.transition_matrix() @ state_values
    value = evaluate(cmdp, pi)
    assert occupancy(cmdp, pi) == pytest.approx(nu, abs=1e-13)
    assert state_occupancy(cmdp, pi) == pytest.approx(
        np.add.reduceat(nu, cmdp.state_to_choice[:-1]), abs=1e-13
    )
    assert value.raw == pytest.approx(raw, abs=1e-12)
    assert np.append(value.reward, value.constraints) == pytest.approx(cmdp.to_user_values(raw), abs=1e-12)
    assert values(cmdp, pi) == pytest.approx(state_values, abs=1e-12)
    assert cmdp.start @ values(cmdp, pi) == pytest.approx(raw, abs=1e-12)
    assert q_values(cmdp, pi) == pytest.approx(q, abs=1e-12)
    gains = advantages(cmdp, pi)
    assert gains == pytest.approx(q - state_values[cmdp.choice_state], abs=1e-12)
    assert np.add.reduceat(pi[:, None] * gains, cmdp.state_to_choice[:-1]) == pytest.approx(0.0, abs=1e-12)


def large_models():
    rng = np.random.default_rng(0)
    walk = random_walk(2_500)
    lottery = sp.csr_array(
        (rng.dirichlet(np.ones(5), 2_000).ravel(), rng.integers(0, 1_000, 10_000), np.arange(0, 10_001, 5)),
        shape=(2_000, 1_000),
    )
    with pytest.warns(UserWarning, match="divided by their sums"):
        both = CMDP.from_arrays(
            [walk, walk.T / 1.0], rng.random((2_500, 2)), gamma=0.999, start=0, renormalize=True
        )
    yield both
    yield CMDP.from_arrays(lottery, rng.random((1_000, 2)), rng.random((1_000, 2)), gamma=0.99, limits=5.0)
    dense = rng.dirichlet(np.ones(150), (150, 2))
    yield CMDP.from_arrays(dense, rng.random((150, 2)), rng.random((150, 2)), gamma=0.95, limits=5.0)


@pytest.mark.parametrize("number", range(3))
def test_iterative_equals_direct(number):
    cmdp = list(large_models())[number]
    pi = random_policy(cmdp)
    direct = evaluate(cmdp, pi, method="direct").raw
    # each promises max(1e-12, 16 eps/(1-gamma)), relative to the largest possible value
    allowed = 2 * max(1e-12, 4e-15 / (1 - cmdp.gamma)) / (1 - cmdp.gamma)
    assert evaluate(cmdp, pi, method="iterative").raw == pytest.approx(direct, abs=allowed)
    assert evaluate(cmdp, pi).raw == pytest.approx(direct, abs=allowed)
    found = values(cmdp, pi, method="iterative")
    assert found == pytest.approx(values(cmdp, pi, method="direct"), abs=allowed)
    assert cmdp.start @ found == pytest.approx(direct, abs=allowed)


@pytest.mark.parametrize("n_states", [5, 100, 150])  # one block, two halves, iteration
def test_occupancy_is_a_flow(n_states):
    cmdp = random_model(4, n_states=n_states)
    pi = random_policy(cmdp)
    nu, d = occupancy(cmdp, pi), state_occupancy(cmdp, pi)
    assert nu.sum() == pytest.approx(1.0, abs=1e-14)
    assert nu.min() >= 0
    assert np.add.reduceat(nu, cmdp.state_to_choice[:-1]) == pytest.approx(d, abs=1e-15)
    inflow = (1 - cmdp.gamma) * cmdp.start + cmdp.gamma * cmdp.transition_matrix().T @ nu
    assert d == pytest.approx(inflow, abs=1e-13)
    assert nu == pytest.approx(naive_occupancy(cmdp, pi), abs=1e-12)


@pytest.mark.parametrize("n_states", [5, 100, 150])
def test_many_policies_at_once(n_states):
    cmdp = random_model(4, n_states=n_states, m=2)
    policies = np.array([random_policy(cmdp, seed) for seed in range(61)])
    together = evaluate_many(cmdp, policies)
    assert together.shape == (61, 3)
    assert together[7] == pytest.approx(naive_occupancy(cmdp, policies[7]) @ cmdp.signals * 10, abs=1e-11)
    chunks = [evaluate_many(cmdp, policies[k : k + 7]) for k in range(0, 61, 7)]
    assert np.concatenate(chunks).tolist() == together.tolist()  # to the last bit
    assert evaluate(cmdp, policies[60]).raw.tolist() == together[60].tolist()
    assert evaluate_many(cmdp, policies[:0]).shape == (0, 3)


@pytest.mark.parametrize("method", ["direct", "iterative"])
def test_occupancies_at_once_have_the_bits_of_each(method):
    cmdp = random_model(4, n_states=30, m=2)
    policies = [random_policy(cmdp, seed) for seed in range(5)]
    starts = np.array([occupancy(cmdp, policy) for policy in policies[::-1]])
    for begin in (None, starts):
        together = occupancy_each(cmdp, policies, method, begin)
        for k, policy in enumerate(policies):
            start = None if begin is None else begin[k]
            assert together[k].tolist() == occupancy(cmdp, policy, method=method, start=start).tolist()


def test_policy_given_as_a_table():
    cmdp = random_model(0, form="dense")
    pi = random_policy(cmdp)
    assert evaluate(cmdp, pi.reshape(6, 3)).raw.tolist() == evaluate(cmdp, pi).raw.tolist()


def test_many_states_take_little_memory():
    walk = random_walk(100_000)
    cmdp = CMDP.from_arrays([walk], np.ones((100_000, 1)), gamma=0.9)
    tracemalloc.start()
    try:
        value = evaluate(cmdp, np.ones(100_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert value.reward == pytest.approx(10.0, rel=1e-11)
    assert peak < 100e6  # dense: 8e10


def test_stalled_iteration_is_an_error_and_auto_falls_back(monkeypatch):
    cmdp = CMDP.from_arrays([random_walk(300)], np.linspace(0, 1, 300), gamma=0.9999, start=0)
    direct = evaluate(cmdp, np.ones(300), method="direct").raw
    monkeypatch.setattr(linear, "KRYLOV_STEPS", 0)
    with pytest.raises(ModelError, match=r"'iterative'\) has not converged: residual .* Try method='direct'"):
        evaluate(cmdp, np.ones(300), method="iterative")
    assert evaluate(cmdp, np.ones(300)).raw == pytest.approx(direct, rel=1e-10)
    monkeypatch.setattr(
        scipy.sparse.linalg,
        "splu",
        lambda system, **_: type("Wrong", (), {"solve": staticmethod(np.zeros_like)}),
    )
    monkeypatch.setattr(linear, "LARGEST_DENSE", 0)
    with pytest.raises(ModelError, match=r"'direct'\) has not converged"):
        evaluate(cmdp, np.ones(300))


# Gradients


def test_policy_gradient_by_finite_differences():
    cmdp = random_model(6, m=2)
    dual, theta = np.array([0.3, 1.7]), np.random.default_rng(0).normal(size=cmdp.n_choices)
    pi = softmax(cmdp, theta)
    found = policy_gradient(cmdp, tabular_scores(cmdp, pi), pi, dual)
    step, differences = 1e-5, []
    for unit in np.eye(cmdp.n_choices):
        ends = evaluate_many(cmdp, [softmax(cmdp, theta + sign * step * unit) for sign in (1, -1)])
        differences.append((ends[0] - ends[1]) @ np.append(1.0, dual) / (2 * step))
    assert np.abs(found).max() > 0.01
    assert found == pytest.approx(np.array(differences), abs=1e-8)  # error step^2 times third derivatives


def test_fisher_matrix_term_by_term():
    cmdp = random_model(6)
    pi = random_policy(cmdp)
    scores = np.random.default_rng(1).normal(size=(cmdp.n_choices, 4))
    nu = naive_occupancy(cmdp, pi)
    expected = np.zeros((4, 4))
    for q in range(cmdp.n_choices):
        expected += nu[q] * np.outer(scores[q], scores[q])
    assert fisher(cmdp, scores, pi) == pytest.approx(expected, abs=1e-12)
    sparse = fisher(cmdp, sp.csr_array(scores), pi)
    assert isinstance(sparse, np.ndarray)
    assert sparse == pytest.approx(expected, abs=1e-12)


def test_natural_gradient_of_the_tabular_softmax():
    # Two states that are never reached get no gradient; elsewhere A_L/(1-gamma) minus its unweighted row mean.
    base = random_model(8, m=1)
    counts = np.append(np.diff(base.state_to_choice), [2, 3])
    cmdp = CMDP(
        np.append(0, np.cumsum(counts)),
        np.append(base.choice_to_branch, base.choice_to_branch[-1] + np.arange(1, 6)),
        np.append(base.branch_target, [0, 7, 1, 6, 2]),
        np.append(base.branch_prob, np.ones(5)),
        np.append(base.reward, [0.1, 0.2, 0.3, 0.4, 0.5]),
        np.append(base.costs[:, 0], [0.5, 0.4, 0.3, 0.2, 0.1]),
        gamma=0.9,
        start=0,
        limits=base.limits,
    )
    pi, dual = random_policy(cmdp), 0.7
    assert state_occupancy(cmdp, pi)[:6].min() > 1e-4
    assert state_occupancy(cmdp, pi)[6:].tolist() == [0.0, 0.0]
    gains = advantages(cmdp, pi) @ [1.0, dual] / (1 - cmdp.gamma)
    first = cmdp.state_to_choice[:-1]
    expected = gains - (np.add.reduceat(gains, first) / counts)[cmdp.choice_state]
    expected[cmdp.choice_state >= 6] = 0.0
    scores = tabular_scores(cmdp, pi)
    assert np.abs(expected).max() > 0.1
    assert natural_gradient(cmdp, scores, pi, dual) == pytest.approx(expected, abs=1e-9)
    assert natural_gradient(cmdp, sp.csr_array(scores), pi, [dual]) == pytest.approx(expected, abs=1e-9)


def test_natural_gradient_has_least_norm():
    cmdp = random_model(6)
    pi = random_policy(cmdp)
    scores = np.random.default_rng(1).normal(size=(cmdp.n_choices, 4))
    scores = np.column_stack((scores, scores[:, 0]))  # a direction that no score sees
    omega = natural_gradient(cmdp, scores, pi, 0.5)
    gradient = policy_gradient(cmdp, scores, pi, 0.5)
    assert fisher(cmdp, scores, pi) @ omega == pytest.approx(gradient, abs=1e-10)
    assert omega[0] == pytest.approx(omega[4], abs=1e-10)
    assert omega == pytest.approx(np.linalg.pinv(fisher(cmdp, scores, pi)) @ gradient, abs=1e-9)
    assert not natural_gradient(cmdp, 0 * scores, pi, 0.5).any()
    cut = natural_gradient(cmdp, scores, pi, 0.5, cutoff=0.5)
    assert np.linalg.norm(cut) < np.linalg.norm(omega)


# Degenerate models


@pytest.mark.parametrize("method", METHODS)
def test_one_state(method):
    cmdp = CMDP.from_arrays(np.ones((1, 3, 1)), [[0, 1, 0.5]], [[0, 1, 0.1]], gamma=0.9, limits=2.0)
    best = optimum(cmdp, method=method)  # mixtures of choices 2 (5, 1) and 1 (10, 10): slope 5/9
    assert best.reward == pytest.approx(5 + 5 / 9, abs=1e-11)
    assert best.duals == pytest.approx([5 / 9], abs=1e-11)
    assert best.policy == pytest.approx([0, 1 / 9, 8 / 9], abs=1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_one_action_everywhere(method):
    cmdp = CMDP.from_arrays([random_walk(4)], [0, 0, 0, 1.0], [1.0, 0, 0, 0], gamma=0.9, limits=9.0, start=0)
    best = optimum(cmdp, method=method)
    assert best.policy.tolist() == [1.0] * 4
    assert best.reward == evaluate(cmdp, np.ones(4)).reward
    assert best.constraint_range == pytest.approx(np.full((1, 2), best.constraints[0]), abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_absorbing_states_and_states_out_of_reach(method):
    # From 0: to 1 (reward 1, cost 1 for ever) or to 2 (nothing, for ever); nothing leads to 3.
    cmdp = CMDP(
        [0, 2, 3, 4, 6],
        [0, 1, 2, 3, 4, 5, 6],
        [1, 2, 1, 2, 0, 3],
        np.ones(6),
        [0, 0, 1, 0, 1, 1],
        [0, 0, 1, 0, 0, 0],
        gamma=0.5,
        start=0,
        limits=0.25,
    )
    best = optimum(cmdp, method=method)
    assert best.reward == pytest.approx(0.25, abs=1e-12)
    assert best.duals == pytest.approx([1.0], abs=1e-12)
    assert best.policy == pytest.approx([0.25, 0.75, 1, 1, 0.5, 0.5], abs=1e-12)
    assert best.occupancy[4:].tolist() == [0.0, 0.0]
    free = optimum(cmdp.with_limits(1.0), method=method)  # no limit is active: the same rule
    assert free.policy.tolist() == [1, 0, 1, 1, 0.5, 0.5]


@pytest.mark.parametrize("method", METHODS)
def test_constant_reward(method):
    cost = np.random.default_rng(0).random((6, 3))
    table = np.random.default_rng(1).dirichlet(np.ones(6), (6, 3))
    cmdp = CMDP.from_arrays(table, np.full((6, 3), -7.0), cost, gamma=0.9, limits=3.0)
    best = optimum(cmdp, method=method)
    assert best.reward == pytest.approx(-70.0, abs=1e-10)
    assert best.constraints[0] <= 3.0 + 1e-9
    assert best.duals == pytest.approx([0.0], abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_no_constraint(method):
    cmdp = random_model(3, m=0)
    best = optimum(cmdp, method=method)
    expected = evaluate(cmdp, greedy_by_value_iteration(cmdp, np.ones(1)))
    assert best.reward == pytest.approx(expected.reward, abs=1e-11)
    assert dual_value(cmdp) == pytest.approx(best.raw[0], abs=1e-12)
    assert best.slater == np.inf
    assert best.constraints.shape == best.duals.shape == (0,)
    assert best.constraint_range.shape == (0, 2)
    assert set(best.policy.tolist()) <= {0.0, 1.0, 0.5, 1 / 3}
    assert natural_gradient(cmdp, np.eye(cmdp.n_choices), best.policy).shape == (cmdp.n_choices,)


# Faults


@pytest.mark.parametrize("method", METHODS)
def test_infeasible_says_the_best_attainable(rest_or_work, method):
    with pytest.raises(
        InfeasibleError, match=r"no policy meets.*cost <= -0\.5 \(best attainable 0\)"
    ) as caught:
        optimum(rest_or_work.with_limits(-0.5), method=method)
    assert caught.value.best == pytest.approx((0.0,), abs=1e-12)
    cmdp = CMDP.from_arrays(
        np.ones((1, 2, 1)),
        [[0.0, 1.0]],
        [[[3.0, 0.0]], [[0.0, 3.0]]],
        gamma=0.5,
        limits=[4.0, 4.5],
        sense=">=",
        names=["gain", "left", "right"],
    )
    with pytest.raises(
        InfeasibleError, match=r"each can be met alone: left >= 4 \(best attainable 6\); right"
    ) as c:
        optimum(cmdp, method=method)
    assert c.value.best == pytest.approx((6.0, 6.0), abs=1e-12)


@pytest.mark.parametrize("sense", ["<=", ">="])
@pytest.mark.parametrize(("cost", "gamma"), [(1.0, 0.9), (0.1, 0.7), (3.3, 0.99), (1e-7, 0.95)])
def test_a_limit_that_is_just_spent_is_met(cost, gamma, sense):
    """(1-gamma) limit - cost is a few eps of either sign: no policy breaks the limit, none has room."""
    for nudge in (-1, 0, 1):
        limit = np.nextafter(cost / (1 - gamma), np.inf * nudge) if nudge else cost / (1 - gamma)
        cmdp = CMDP.from_arrays(np.ones((1, 1, 1)), [[1.0]], [[cost]], gamma=gamma, limits=limit, sense=sense)
        best = optimum(cmdp)
        assert best.slater == 0.0
        assert best.constraints == pytest.approx([limit], rel=1e-14)
        assert best.duals.tolist() == [0.0]


def test_infeasible_names_only_the_limits_that_are_not_met():
    """Costs of one state: 1 a step for ever, which its limit allows, and 2, which its limit does not."""
    cmdp = CMDP.from_arrays(
        np.ones((1, 1, 1)), [[1.0]], [[[1.0]], [[2.0]]], gamma=0.9, limits=[10.0, 19.0], names=["r", "a", "b"]
    )
    with pytest.raises(InfeasibleError) as caught:
        optimum(cmdp)
    assert "constraints: b <= 19 (best attainable 20). Loosen" in str(caught.value)
    assert caught.value.best == pytest.approx((10.0, 20.0), rel=1e-14)


@pytest.mark.parametrize("method", METHODS)
def test_range_of_the_reward(method):
    for seed in range(3):
        cmdp = random_model(seed, m=2)
        best = optimum(cmdp, method=method)
        ends = [
            evaluate(cmdp, greedy_by_value_iteration(cmdp, sign * np.eye(3)[0])).reward for sign in (-1, 1)
        ]
        assert best.reward_range == pytest.approx(ends, abs=1e-10)
        assert best.reward_range[0] <= best.reward <= best.reward_range[1] + 1e-12


def test_numerical_difficulties_are_retried(rest_or_work, monkeypatch):
    tried = []

    def fragile(*args, method, **kwargs):
        tried.append(method)
        if len(tried) == 1:
            return OptimizeResult(status=4, message="numerical difficulties", x=None)
        return linprog(*args, method=method, **kwargs)

    monkeypatch.setattr(scipy.optimize, "linprog", fragile)
    assert optimum(rest_or_work, method="lp").reward == pytest.approx(9 / 8, abs=1e-12)
    assert len(set(tried)) == 2

    def hopeless(*args, method, **kwargs):
        return OptimizeResult(status=4, message="numerical difficulties", x=None)

    monkeypatch.setattr(scipy.optimize, "linprog", hopeless)
    for method in METHODS:
        with pytest.raises(ModelError, match=r"highs-ipm.*status 4.*highs-ds.*Try the other method"):
            optimum(random_model(0, m=2), method=method)
    # One multiplier is found without a programme.
    assert optimum(rest_or_work, method="decomposition").reward == pytest.approx(9 / 8, abs=1e-12)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda x: x[[1, 0, 2]], "its policy evaluates to"),  # no flow at all
        (lambda x: np.array([0, 2 / 3, 1 / 3]), "misses a constraint"),  # always work
        (lambda x: np.array([1.0, 0, 0]), "leave a gap"),  # always rest
    ],
)
def test_wrong_answers_are_caught(rest_or_work, monkeypatch, spoil, complaint):
    def wrong(*args, **kwargs):
        result = linprog(*args, **kwargs)
        result.x = spoil(result.x)
        return result

    monkeypatch.setattr(scipy.optimize, "linprog", wrong)
    with pytest.raises(ModelError, match=complaint):
        optimum(rest_or_work, method="lp")

    def wrong_when_large(
        cost, *args, **kwargs
    ):  # the occupancies of three choices, not mixtures of two policies
        return wrong(cost, *args, **kwargs) if len(cost) == 3 else linprog(cost, *args, **kwargs)

    monkeypatch.setattr(scipy.optimize, "linprog", wrong_when_large)
    assert optimum(rest_or_work).reward == pytest.approx(9 / 8, abs=1e-12)


def test_bad_input(rest_or_work):
    pi, scores = [0.5, 0.5, 1.0], np.eye(3)
    with pytest.raises(SettingError, match="'fast'"):
        evaluate(rest_or_work, pi, method="fast")
    with pytest.raises(SettingError, match="'fast'"):
        values(rest_or_work, pi, method="fast")
    with pytest.raises(SettingError, match="'simplex'"):
        optimum(rest_or_work, method="simplex")
    for call in (evaluate, values, q_values, advantages, occupancy, state_occupancy):
        with pytest.raises(ModelError):
            call(rest_or_work, [0.5, 0.6, 1.0])
    with pytest.raises(ModelError):
        evaluate_many(rest_or_work, [pi, [0.5, np.nan, 1.0]])
    with pytest.raises(ModelError, match=r"\(3,\)"):
        evaluate_many(rest_or_work, pi)
    with pytest.raises(ModelError, match=r"scores have shape \(2, 3\)"):
        fisher(rest_or_work, scores[:2], pi)
    with pytest.raises(ModelError, match="not finite"):
        policy_gradient(rest_or_work, np.full((3, 2), np.nan), pi, 0.0)
    with pytest.raises(ModelError, match="not finite"):
        fisher(rest_or_work, sp.csr_array(np.full((3, 2), np.inf)), pi)
    with pytest.raises(SettingError, match=r"\(1,\) is expected"):
        policy_gradient(rest_or_work, scores, pi)
    with pytest.raises(SettingError, match=">= 0"):
        dual_value(rest_or_work, -1.0)
    with pytest.raises(SettingError, match="finite"):
        dual_value(rest_or_work, [np.inf])
    with pytest.raises(SettingError, match="cutoff is 1"):
        natural_gradient(rest_or_work, scores, pi, 0.0, cutoff=1)


@pytest.mark.parametrize(("of_reward", "of_cost"), [(1, 1e-9), (1e-9, 1), (1e-12, 1e-12), (1e8, 1e-8)])
def test_optimum_does_not_depend_on_units(of_reward: float, of_cost: float) -> None:
    rng = np.random.default_rng(0)
    transition, reward = rng.dirichlet(np.ones(5), size=(5, 3)), rng.random((5, 3))
    cost = reward + 0.1 * rng.random((5, 3))
    plain = optimum(CMDP.from_arrays(transition, reward, cost, 0.9, limits=6.0))
    other = optimum(
        CMDP.from_arrays(transition, of_reward * reward, of_cost * cost, 0.9, limits=6.0 * of_cost)
    )
    assert other.reward / of_reward == pytest.approx(plain.reward, rel=1e-7)
    assert other.constraints[0] / of_cost == pytest.approx(6.0, rel=1e-7)
    assert other.duals[0] * of_cost / of_reward == pytest.approx(plain.duals[0], rel=1e-6)


@pytest.mark.filterwarnings("ignore::fastcmdp.errors.NearlyInfeasibleWarning")
@pytest.mark.parametrize(("seed", "n_states", "gamma", "limits"), [
    (79, 2, 0.98, [14.73, 31.5]), (113, 3, 0.9, [4.82, 3.78]),
])  # fmt: skip
def test_a_search_by_cuts_ends_with_an_exact_response(seed, n_states, gamma, limits) -> None:
    """A response that was only as exact as it had to be gains nothing over the first cuts, and proves nothing."""
    cmdp = garnet(n_states, 2, 2, gamma, seed=seed, n_constraints=2, limit=limits)
    by_cuts, by_lp = (optimum(cmdp, method=method) for method in ("decomposition", "lp"))
    assert by_cuts.reward == pytest.approx(by_lp.reward, rel=1e-9)


@pytest.mark.filterwarnings(
    "ignore::fastcmdp.errors.NearlyInfeasibleWarning"
)  # rounding decides whether it comes
def test_an_entry_that_drowns_its_limit_is_named() -> None:
    rng = np.random.default_rng(0)
    transition, reward = rng.dirichlet(np.ones(5), size=(5, 3)), rng.random((5, 3))
    cost = reward + 0.1 * rng.random((5, 3))
    cost[4, 2] = 1e12
    with pytest.raises(ModelError, match="cost reaches 1e\\+12 in one choice"):
        optimum(CMDP.from_arrays(transition, reward, cost, 0.9, limits=4.0))
    # Where the answer survives the rounding, it is given: the one for an entry that is merely prohibitive.
    drowned = optimum(CMDP.from_arrays(transition, reward, cost, 0.9, limits=6.0))
    cost[4, 2] = 1e3
    plain = optimum(CMDP.from_arrays(transition, reward, cost, 0.9, limits=6.0))
    assert drowned.reward == pytest.approx(plain.reward, abs=1e-8)
    assert drowned.duals == pytest.approx(plain.duals, abs=1e-6)


# Progress and Ctrl-C


def stop_after(number):
    def tell(stage):
        if stage.responses >= number:
            raise KeyboardInterrupt

    return tell


@pytest.mark.parametrize("m", [1, 2])
def test_ctrl_c_leaves_the_best_so_far(m):
    cmdp = random_model(1, n_states=40, m=m)
    told = []
    best = optimum(cmdp, method="decomposition", progress=told.append)
    assert best.finished
    assert best.duals.any()
    assert {stage.what for stage in told} == {"ranges", "multipliers"} | (
        {"Slater value"} if m == 2 else set()
    )
    assert (np.diff([stage.responses for stage in told]) > 0).all()
    gaps = [stage.gap for stage in told if np.isfinite(stage.gap)]
    assert gaps[-1] <= 1e-8 < gaps[0]
    unfinished = 0
    for stage in told:
        if stage.what != "multipliers":
            continue
        one = optimum(cmdp, method="decomposition", progress=stop_after(stage.responses))
        unfinished += not one.finished
        assert one.reward <= best.reward + 1e-8 <= one.reward + one.gap + 2e-8
        assert cmdp.slack(np.append(one.reward, one.constraints)).min() >= -1e-6
    assert unfinished >= 2


def test_ctrl_c_before_anything_is_known_is_ctrl_c():
    with pytest.raises(KeyboardInterrupt):
        optimum(random_model(1), progress=stop_after(1))


@pytest.mark.parametrize("seed", range(4))
def test_the_range_of_the_reward_is_that_of_deterministic_policies(seed):
    """Some of them is the worst and one the best: all are tried."""
    cmdp = garnet(n_states=3, n_actions=2, n_branches=2, gamma=0.7, seed=seed)
    found = []
    for actions in itertools.product(range(2), repeat=3):
        pi = np.zeros(6)
        pi[[2 * s + a for s, a in enumerate(actions)]] = 1.0
        found.append(evaluate(cmdp, pi).reward)
    np.testing.assert_allclose(optimum(cmdp).reward_range, [min(found), max(found)], rtol=1e-9)
