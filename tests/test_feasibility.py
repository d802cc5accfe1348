"""What is feasible, and why not: against fractions, over all deterministic policies of small models."""

from __future__ import annotations

import warnings
from fractions import Fraction
from itertools import combinations, product

import naive
import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp.errors import InfeasibleError, NearlyInfeasibleWarning

TOLERANCE = Fraction(1, 10**9)  # of (1-gamma) J in kernel units: missed by less, a limit counts as met


def dyadic_model(seed):
    """Two or three states, probabilities, signals and gamma that are eighths and so exact as floats."""
    rng = np.random.default_rng(seed)
    n_states, m = int(rng.integers(2, 4)), int(rng.integers(1, 3))
    counts = rng.integers(1, 4, n_states)
    n_choices = int(counts.sum())
    cuts = rng.integers(0, 9, n_choices)
    return fc.CMDP(
        np.append(0, np.cumsum(counts)),
        2 * np.arange(n_choices + 1),
        rng.integers(0, n_states, 2 * n_choices),
        np.column_stack((cuts, 8 - cuts)).ravel() / 8,
        rng.integers(0, 9, n_choices) / 8,
        list(rng.integers(0, 9, (m, n_choices)) / 8),
        gamma=float(rng.choice([0.5, 0.75, 0.875])),
        limits=[0.0] * m,
    )


def solved(matrix, right):
    """Gauss's elimination in fractions; the diagonal dominates, so no pivot is sought."""
    n = len(matrix)
    for k in range(n):
        for i in range(k + 1, n):
            factor = matrix[i][k] / matrix[k][k]
            matrix[i] = [a - factor * b for a, b in zip(matrix[i], matrix[k], strict=True)]
            right[i] = [a - factor * b for a, b in zip(right[i], right[k], strict=True)]
    for k in reversed(range(n)):
        for i in range(k + 1, n):
            right[k] = [a - matrix[k][i] * b for a, b in zip(right[k], right[i], strict=True)]
        right[k] = [a / matrix[k][k] for a in right[k]]
    return right


def all_values(cmdp):
    """J of the reward and the costs, in the user's units, of each deterministic policy: fractions."""
    model, gamma = naive.plain(cmdp), Fraction(cmdp.gamma)
    signals = np.column_stack((cmdp.reward, cmdp.costs)).tolist()
    found = []
    for policy in product(*(naive.choices(model, s) for s in range(cmdp.n_states))):
        matrix = [[Fraction(int(s == t)) for t in range(cmdp.n_states)] for s in range(cmdp.n_states)]
        for s, q in enumerate(policy):
            for b in naive.branches(model, q):
                matrix[s][model.branch_target[b]] -= gamma * Fraction(model.branch_prob[b])
        values = solved(matrix, [[Fraction(x) for x in signals[q]] for q in policy])
        found.append([sum(column, Fraction(0)) / cmdp.n_states for column in zip(*values, strict=True)])
    return found


def best_mixture(points, limits, scales):
    """Largest t such that a mixture has (limit_i - cost_i) / scale_i >= t for each i: over pairs, for m <= 2."""
    slacks = [[(d - x) / c for x, d, c in zip(p[1:], limits, scales, strict=True)] for p in points]
    best = max(min(s) for s in slacks)
    if len(limits) == 2:
        for a, b in combinations(slacks, 2):
            bend = (a[0] - a[1]) - (b[0] - b[1])
            share = (a[0] - a[1]) / bend if bend else Fraction(0)
            if 0 < share < 1:
                best = max(best, (1 - share) * a[0] + share * b[0])
    return best


def best_reward(points, limit):
    """The optimum with one constraint, over pairs."""
    best = max((p[0] for p in points if p[1] <= limit), default=None)
    for a, b in combinations(points, 2):
        if (a[1] - limit) * (b[1] - limit) < 0:
            share = (limit - a[1]) / (b[1] - a[1])
            value = (1 - share) * a[0] + share * b[0]
            best = value if best is None or value > best else best
    return best


def check_one(seed):
    rng = np.random.default_rng([seed, 1])
    cmdp = dyadic_model(seed)
    points = all_values(cmdp)
    least, most = (
        np.array([f(p[1 + i] for p in points) for i in range(cmdp.n_constraints)]) for f in (min, max)
    )
    kind = rng.choice(["inside", "beyond", "edge", "near"], p=[0.5, 0.3, 0.1, 0.1])
    part = {"inside": rng.uniform(0.05, 1.2), "beyond": -rng.uniform(0.01, 0.5), "edge": 0.0}.get(
        kind, float(rng.choice([-1e-6, 1e-6]))
    )
    limits = (least + Fraction(part) * (most - least + Fraction(int((least == most).any())))).astype(float)
    cmdp = cmdp.with_limits(limits)
    unit = 1 - Fraction(cmdp.gamma)
    scales = [Fraction(float(scale)) for scale in cmdp.constraint_scale]
    slack = best_mixture(points, [Fraction(float(d)) for d in limits], scales)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NearlyInfeasibleWarning)
        try:
            best = fc.optimum(cmdp)
        except InfeasibleError as error:
            assert unit * slack < -TOLERANCE / 2, (seed, kind)
            check_proof(cmdp, points, error, float(slack))
            return "infeasible"
    assert unit * slack >= -TOLERANCE * 2, (seed, kind)
    assert best.slater == pytest.approx(float(slack), abs=1e-9)
    assert (1 - cmdp.gamma) * best.gap <= 1e-9 * (1 + best.duals.sum())
    if cmdp.n_constraints == 1 and slack >= 0:
        assert best.reward == pytest.approx(float(best_reward(points, Fraction(float(limits[0])))), abs=1e-8)
    return "feasible"


def check_proof(cmdp, points, error, slack):
    """Weights >= 0 of sum 1 under which no policy has a mean slack of 0; a policy that attains the common slack."""
    weights = np.array(error.weights)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    slacks = (cmdp.limits - np.array([[float(x) for x in p[1:]] for p in points])) / cmdp.constraint_scale
    assert (slacks @ weights).max() == pytest.approx(error.value, abs=1e-9)
    assert error.value == pytest.approx(slack, abs=1e-9)
    assert error.value < 0
    attained = fc.evaluate(cmdp, error.policy).raw[1:].min()
    assert attained == pytest.approx(slack, abs=1e-9)
    assert error.together == pytest.approx(-slack * cmdp.constraint_scale, abs=1e-9)


def test_classified_as_fractions_say():
    kinds = [check_one(seed) for seed in range(60)]
    assert 15 <= kinds.count("infeasible") <= 45


@pytest.mark.slow
def test_a_thousand_models_classified_as_fractions_say():
    kinds = [check_one(seed) for seed in range(1000)]
    assert kinds.count("infeasible") >= 300


@pytest.fixture
def opposed():
    """One state, gamma 1/2: "left" or "right" earns 3, J_left + J_right = 6; a third cost that any limit of 1 meets."""
    return fc.CMDP.from_arrays(
        np.ones((1, 2, 1)),
        [[0.0, 1.0]],
        [[[3.0, 0.0]], [[0.25, 0.25]], [[0.0, 3.0]]],
        gamma=0.5,
        limits=[4.0, 1.0, 4.5],
        sense=[">=", "<=", ">="],
        names=["gain", "left", "toll", "right"],
    )


def test_a_conflict_on_paper(opposed):
    with pytest.raises(InfeasibleError, match=r"each can be met alone: left >= 4 .*; right >= 4.5") as caught:
        fc.optimum(opposed)
    error = caught.value
    assert "toll" not in str(error)
    assert error.conflict == (0, 2)
    # Alone: 6 - 4.5 = 1.5 is 2.5 short of 4, 6 - 4 = 2 is 2.5 short of 4.5; moving the toll is no help.
    assert error.alone == pytest.approx((2.5, np.inf, 2.5), abs=1e-9)
    # Together, by the scales 2 (left) and 2.25 (right): 4 - 2 t + 4.5 - 2.25 t = 6.
    t = 2.5 / 4.25
    assert error.together[0] == pytest.approx(2 * t, abs=1e-9)
    assert error.together[2] == pytest.approx(2.25 * t, abs=1e-9)
    assert error.weights == pytest.approx((2 / 4.25, 0.0, 2.25 / 4.25), abs=1e-9)


@pytest.mark.parametrize("limit", [1e9, 1e12, 1e15, 1e100])
def test_a_limit_far_beyond_what_can_be_loses_no_digits(limit: float) -> None:
    """Values, optimum, attainable ranges and what loosening would take, as with a limit nearby."""
    cmdp = fc.envs.garnet(n_states=6, seed=2)
    uniform = np.repeat(1 / np.diff(cmdp.state_to_choice), np.diff(cmdp.state_to_choice))
    near, far = cmdp.with_limits([100.0]), cmdp.with_limits([limit])
    assert fc.evaluate(far, uniform).constraints == pytest.approx(
        fc.evaluate(near, uniform).constraints, rel=1e-11
    )
    best, other = fc.optimum(near), fc.optimum(far)
    assert other.constraints == pytest.approx(best.constraints, rel=1e-11)
    assert other.constraint_range == pytest.approx(best.constraint_range, rel=1e-9)
    result = fc.solve(far, fc.PDANPG(outer=20, inner=4), optimum=other)
    assert result.last.constraints[0, 0] == pytest.approx(
        fc.evaluate(near, result.policy("last")).constraints[0], rel=1e-9
    )
    least = float(best.constraint_range[0][0])
    with pytest.raises(InfeasibleError) as caught:
        fc.optimum(cmdp.with_limits([-limit]))
    assert caught.value.best[0] == pytest.approx(least, rel=1e-9)
    assert caught.value.alone == caught.value.together == pytest.approx((limit + least,), rel=1e-12)


@pytest.mark.parametrize("which", ["alone", "together"])
def test_limits_that_are_moved_as_told_are_met(opposed, which):
    with pytest.raises(InfeasibleError) as caught:
        fc.optimum(opposed)
    loosened = np.array([-1.0, 1.0, -1.0]) * getattr(caught.value, which)
    if which == "alone":
        loosened[1:] = 0.0
    assert fc.optimum(opposed.with_limits(opposed.limits + 1.001 * loosened)).slater > 0
    with pytest.raises(InfeasibleError):
        fc.optimum(opposed.with_limits(opposed.limits + 0.999 * loosened))


def test_with_constraints(opposed):
    kept = opposed.with_constraints([2])
    assert kept.names == ("gain", "right")
    assert kept.limits.tolist() == [4.5]
    assert kept.sense == (">=",)
    assert kept.signals[:, 1].tolist() == opposed.signals[:, 3].tolist()
    for wrong in ([3], [-1], [0, 0]):
        with pytest.raises(fc.ModelError, match="different numbers from 0 to 2"):
            opposed.with_constraints(wrong)


# The best deterministic policy


@pytest.mark.parametrize("seed", range(40))
def test_the_best_deterministic_policy_is_the_best_of_all(seed):
    cmdp = dyadic_model(seed)
    points = np.array(all_values(cmdp), dtype=float)
    least, most = points[:, 1:].min(axis=0), points[:, 1:].max(axis=0)
    cmdp = cmdp.with_limits(least + np.random.default_rng(seed).uniform(0.2, 0.9) * (most - least) + 1e-3)
    meets = (points[:, 1:] <= cmdp.limits + 1e-9).all(axis=1)
    expected = points[meets, 0].max(initial=-np.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NearlyInfeasibleWarning)
        try:
            found = fc.exact.deterministic(cmdp)
            rounded = fc.exact.deterministic(cmdp, nodes=1)
        except InfeasibleError:
            assert not meets.any()
            return
    assert found.reward == pytest.approx(expected, abs=1e-8)
    assert found.proven
    assert rounded.reward <= expected + 1e-8 <= rounded.bound + 2e-8
    if found.policy is not None:
        assert set(found.policy.tolist()) <= {0.0, 1.0}
        value = fc.evaluate(cmdp, found.policy)
        assert value.reward == found.reward
        assert (value.constraints <= cmdp.limits + 1e-8).all()


def test_a_tree_that_is_cut_short_still_bounds():
    cmdp = fc.envs.garnet(n_states=12, n_actions=3, seed=2)
    short, long = fc.exact.deterministic(cmdp, nodes=4), fc.exact.deterministic(cmdp, nodes=5000)
    assert long.proven
    assert short.nodes <= 4
    assert short.reward <= long.reward + 1e-9 <= short.bound + 2e-9
    assert long.reward < fc.optimum(cmdp).reward - 1e-6
