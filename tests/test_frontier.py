"""The frontier against one linear programme for each limit."""

from __future__ import annotations

import warnings

import naive
import numpy as np
import pytest
from scipy.optimize import linprog

import fastcmdp as fc
from fastcmdp.errors import InfeasibleError, SettingError
from fastcmdp.exact.pool import Pool


def model(seed, m=1, n_states=6, **changes):
    return fc.CMDP(**naive.random_rows(seed, n_states=n_states, m=m, **changes))


def best_reward(cmdp, limits):
    """The programme over occupancies, in the user's units; None if it has no solution."""
    flow = np.zeros((cmdp.n_states, cmdp.n_choices))
    flow[cmdp.choice_state, np.arange(cmdp.n_choices)] = 1.0
    flow -= cmdp.gamma * cmdp.transition_matrix().toarray().T
    sign = np.array([1.0 if sense == "<=" else -1.0 for sense in cmdp.sense])
    answer = linprog(
        -cmdp.reward,
        A_ub=(cmdp.costs * sign).T,
        b_ub=sign * limits,
        A_eq=flow,
        b_eq=cmdp.start,
        method="highs-ds",
    )
    return -answer.fun if answer.status == 0 else None


@pytest.mark.parametrize("seed", range(20))
def test_every_point_is_its_own_programme(seed):
    cmdp = model(seed, sense="<=" if seed % 2 else ">=")
    found = fc.frontier(cmdp)
    assert found.complete
    assert (np.diff(found.limits) > 0).all()
    between = 0.3 * found.limits[:-1] + 0.7 * found.limits[1:]  # and on the chords
    loose, tight = (0, -1) if cmdp.sense[0] == ">=" else (-1, 0)
    for limit in (*found.limits, *between):
        slack = 0.0 if limit != found.limits[tight] else 1e-10 * (1 if tight == 0 else -1)  # of the programme
        assert found.reward(limit) == pytest.approx(best_reward(cmdp, [limit + slack]), abs=1e-8)
    width = np.ptp(found.limits) + 1.0
    outwards = 1 if loose == -1 else -1
    assert found.reward(found.limits[loose] + outwards * width) == found.rewards[loose]
    assert np.isnan(found.reward(found.limits[tight] - outwards * 1e-6 * width))
    assert best_reward(cmdp, [found.limits[tight] - outwards * 1e-6 * width]) is None
    assert found.duals[loose, 0] == 0.0
    assert found.duals[tight, 1] == np.inf


@pytest.mark.parametrize("seed", range(4))
def test_multipliers_and_policies_are_those_of_the_optimum(seed):
    cmdp = model(seed)
    found = fc.frontier(cmdp)
    limit = 0.4 * found.limits[0] + 0.6 * found.limits[1]
    best = fc.optimum(cmdp.with_limits(limit))
    assert found.duals[0, 0] == pytest.approx(best.duals[0], abs=1e-7)
    assert found.duals[1, 1] == pytest.approx(best.duals[0], abs=1e-7)
    value = fc.evaluate(cmdp, found.policy(limit))
    assert value.reward == pytest.approx(best.reward, abs=1e-8)
    assert value.constraints == pytest.approx([limit], abs=1e-8)
    least, most = found.duals[1]
    at_corner = fc.optimum(cmdp.with_limits(found.limits[1])).duals[0]
    assert least - 1e-6 <= at_corner <= most + 1e-6
    for k, corner in enumerate(found.limits):
        policy = found.policy(corner)
        assert set(np.round(policy, 6)) <= {0.0, 1.0, 0.5, round(1 / 3, 6)}  # uniform where it never goes
        assert fc.evaluate(cmdp, policy).reward == pytest.approx(found.rewards[k], abs=1e-8)
    with pytest.raises(InfeasibleError):
        found.policy(found.limits[0] - 0.1)


@pytest.mark.parametrize("seed", range(4))
def test_a_multiplier_at_a_corner_has_two_ends(seed):
    cmdp = model(seed, sense="<=" if seed % 2 else ">=")
    found = fc.frontier(cmdp)
    for limit, duals in zip(found.limits, found.duals, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fc.errors.NearlyInfeasibleWarning)
            ends = fc.exact.multiplier_range(cmdp.with_limits(limit))
        assert ends[0] == pytest.approx(duals, abs=1e-5)
    between = cmdp.with_limits(0.4 * found.limits[0] + 0.6 * found.limits[1])
    assert np.ptp(fc.exact.multiplier_range(between)) < 1e-6


def test_a_multiplier_that_is_unique_has_ends_that_agree():
    """3,000 states, where policies next to the optimum differ in few of them."""
    cmdp = fc.envs.garnet(n_states=3_000, seed=1)
    best = fc.optimum(cmdp)
    ends = fc.exact.multiplier_range(cmdp, best)
    assert np.ptp(ends) < 1e-7
    assert ends[0, 0] <= best.duals[0] <= ends[0, 1]


@pytest.mark.parametrize("seed", range(4))
def test_ends_of_multipliers_are_slopes_of_the_programme(seed):
    """Two constraints, the first at the value of a deterministic policy: slopes on either side, by differences."""
    cmdp = model(seed, m=2)
    corner = fc.frontier(cmdp.with_constraints([0])).limits[1]
    costs = fc.evaluate(cmdp, fc.optimum(cmdp.with_constraints([0]).with_limits(corner)).policy).constraints
    cmdp = cmdp.with_limits([corner, costs[1] + (0.1 if seed % 2 else 0.0)])
    ends = fc.exact.multiplier_range(cmdp)
    here, step = best_reward(cmdp, cmdp.limits), 1e-4
    for i, (least, greatest) in enumerate(ends):
        change = step * np.eye(2)[i]
        assert (best_reward(cmdp, cmdp.limits + change) - here) / step == pytest.approx(least, abs=1e-4)
        tighter = best_reward(cmdp, cmdp.limits - change)
        if tighter is None:
            assert np.isinf(greatest)
        else:
            assert (here - tighter) / step == pytest.approx(greatest, abs=1e-4)
    assert (ends[:, 1] - ends[:, 0]).max() > 1e-3


def test_few_points_leave_a_gap_that_holds():
    cmdp = fc.envs.garnet(n_states=60, seed=1)
    whole, part = fc.frontier(cmdp, points=10_000), fc.frontier(cmdp, points=12)
    assert whole.complete
    assert not part.complete
    assert len(part.limits) <= 12 < len(whole.limits)
    short = whole.reward(whole.limits) - part.reward(whole.limits)
    inside = (whole.limits >= part.limits[0]) & (whole.limits <= part.limits[-1])
    where = np.clip(np.searchsorted(part.limits, whole.limits, side="right") - 1, 0, len(part.gaps) - 1)
    assert short[inside].min() >= -1e-8
    assert (short <= part.gaps[where] + 1e-8)[inside].all()
    assert short[inside].max() > 1e-6  # so that the gap says something
    assert part.gaps.max() < 0.03 * np.ptp(whole.rewards)


@pytest.mark.parametrize("points", [20, 90])
def test_corners_that_come_several_at_once(points):
    """300 states: each corner is a policy's value, no response to a slope beside it is better, and gaps hold."""
    cmdp = fc.envs.garnet(n_states=300, seed=1)
    found = fc.frontier(cmdp, points=points)
    assert len(found.limits) == points
    assert (np.diff(found.limits) > 0).all()
    assert (np.diff(found.duals[:, 0]) < 0).all()  # concave
    between = 0.5 * (found.limits[:-1] + found.limits[1:])
    for k in range(1, points - 1, 7):
        near = 1e-8 + 1e-9 * found.duals[k, 1]  # a limit met but for 1e-9 gains so much
        value = fc.evaluate(cmdp, found.policy(found.limits[k]))
        assert value.reward == pytest.approx(found.rewards[k], abs=1e-8)
        best = fc.optimum(cmdp.with_limits(between[k])).reward
        assert -near <= best - found.reward(between[k]) <= found.gaps[k] + near
        at = fc.optimum(cmdp.with_limits(found.limits[k])).reward
        assert at == pytest.approx(found.rewards[k], abs=near)


def test_several_constraints_follow_a_path():
    cmdp = model(3, m=2, limits=[6.0, 5.5])
    found = fc.frontier(cmdp, "cost 1", points=5)
    assert found.name == "cost 1"
    for limit, reward in zip(found.limits, found.rewards, strict=True):
        assert reward == pytest.approx(best_reward(cmdp, np.array([6.0, limit + 1e-8])), abs=1e-6)
    assert best_reward(cmdp, np.array([6.0, found.limits[0] - 1e-4])) is None
    assert best_reward(cmdp, np.array([6.0, found.limits[-1] + 1.0])) == pytest.approx(
        found.rewards[-1], abs=1e-7
    )


def test_nothing_to_trade():
    """The dearest action is also the worst: a frontier of one point."""
    cmdp = fc.CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [1, 0], [0, 1], gamma=0.5, limits=1)
    found = fc.frontier(cmdp)
    assert found.limits.tolist() == [0.0]
    assert found.rewards.tolist() == [2.0]
    assert found.duals.tolist() == [[0.0, np.inf]]
    assert found.policy(3.0).tolist() == [1.0, 0.0]


def test_bad_questions():
    cmdp = model(0, m=2)
    for wrong in (None, 2, -1, "cost", True):
        with pytest.raises(SettingError, match=r"cost 0, cost 1"):
            fc.frontier(cmdp, wrong)
    with pytest.raises(SettingError, match="--of 'cost 0'"):
        fc.frontier(cmdp)
    with pytest.raises(SettingError, match="no constraint whose limit could vary"):
        fc.frontier(fc.envs.garnet(n_states=3, n_constraints=0))
    with pytest.raises(SettingError, match="points"):
        fc.frontier(model(0), points=1)


def test_a_chain_found_to_mix_slowly_in_its_last_evaluation():
    """Two queues in a row: every response has the values of its own policy, signal by signal."""
    side, a, b = 30, *np.divmod(np.arange(900), 30)
    moved = np.where((a > 0) & (b < side - 1), (a - 1) * side + b + 1, a * side + b)
    served = a * side + np.maximum(b - 1, 0)
    table = np.zeros((900, 2, 900))
    for admit in (0, 1):
        joined = np.minimum(a + admit, side - 1) * side + b
        for probability, to in ((0.3, joined), (0.4, moved), (0.3, served)):
            table[np.arange(900), admit, to] += probability
    reward = np.column_stack((np.zeros(900), 0.3 * (a < side - 1)))
    held = np.column_stack((a + b, a + b)) / 58.0
    cmdp = fc.CMDP.from_arrays(table, reward, held, gamma=0.99, start=0, limits=2.0)
    pool = Pool(cmdp)
    for weights in np.eye(2):
        k = pool.respond(weights)
        assert pool.values[k] == pytest.approx(fc.evaluate(cmdp, pool.policy(k)).raw, abs=1e-8)
    assert fc.optimum(cmdp).constraints[0] == pytest.approx(2.0)
