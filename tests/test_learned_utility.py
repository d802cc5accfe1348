"""Utilities from samples, against the exact answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array

import fastcmdp as fc
from fastcmdp.exact import at_least, entropy, log_values, maximise
from fastcmdp.utility import _between, sampled_occupancy


def test_sampled_occupancies_are_the_exact_ones() -> None:
    cmdp = fc.envs.river_swim()
    raw = np.random.default_rng(1).random(cmdp.n_choices)
    pi = raw / np.add.reduceat(raw, cmdp.state_to_choice[:-1])[cmdp.choice_state]
    n = 200_000
    found, used = sampled_occupancy(cmdp, pi, n, np.random.default_rng(2))
    exact = fc.occupancy(cmdp, pi)
    assert (np.abs(found - exact) <= 5 * np.sqrt(exact * (1 - exact) / n) + 1e-12).all()
    assert used / n == pytest.approx(cmdp.rollout_length, rel=0.02)


@pytest.mark.parametrize("utility", [entropy, log_values])
def test_a_learned_utility_is_near_the_best(utility) -> None:  # type: ignore[no-untyped-def]
    cmdp = fc.envs.garnet(n_states=8, seed=1)
    best = maximise(cmdp, utility(cmdp))
    learned = fc.learn_utility(cmdp, utility(cmdp), samples=2e6, rounds=10, seed=1)
    own = fc.occupancy(cmdp, learned.policy)
    assert utility(cmdp).value(own) == pytest.approx(best.value, rel=0.03)
    assert cmdp.unit * cmdp.slack(_values(cmdp, learned.policy))[0] >= -0.02
    assert learned.samples == pytest.approx(2e6, rel=0.3)


def test_a_concave_constraint_is_learned_beside_the_utility() -> None:
    """Entropy halfway between that of the best policy without the constraint, 8 % below the most, and the most."""
    cmdp = fc.envs.garnet(n_states=8, seed=1)
    reward, spread = log_values(cmdp, [1.0, 0.0]), entropy(cmdp)
    low, high = spread.value(maximise(cmdp, reward).occupancy), maximise(cmdp, spread).value
    wide = at_least(spread, 0.5 * (low + high))
    best = maximise(cmdp, reward, subject_to=[wide])
    learned = fc.learn_utility(cmdp, reward, samples=2e6, rounds=10, seed=1, subject_to=[wide])
    own = fc.occupancy(cmdp, learned.policy)
    assert reward.value(own) == pytest.approx(best.value, rel=0.03)
    assert wide.value(own) >= -0.01 * high
    assert wide.value(maximise(cmdp, reward).occupancy) < -0.03 * high


def two_arms() -> fc.CMDP:
    """One action has the reward, the other the cost: J_r + J_c = 2."""
    return fc.CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], [[1.0, 0.0]], gamma=0.5, limits=[9.0])


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("goal", ["log values", "entropy", "nothing"])
def test_a_line_search_meets_a_constraint_that_an_end_misses_without_bound(goal: str, first: int) -> None:
    """J_c, and its logarithm's slope, at an end of the segment: 0 and without bound; an entropy's in the middle: 0."""
    cmdp = two_arms()
    spread = replace(entropy(cmdp), features=eye_array(2, format="csr"))
    utility = {
        "log values": log_values(cmdp, [1.0, 0.0]),
        "entropy": spread,
        "nothing": replace(spread, features=csr_array((0, 2))),
    }[goal]
    least = 1.5
    ends = np.eye(2)[[first, 1 - first]]
    nu = _between(cmdp, utility, [at_least(log_values(cmdp, [0.0, 1.0]), np.log(least))], *ends)
    assert 2.0 * nu[0] >= least - 1e-3
    if goal != "nothing":
        assert 2.0 * nu[0] == pytest.approx(least, abs=1e-3)


def _values(cmdp: fc.CMDP, policy: np.ndarray) -> np.ndarray:
    value = fc.evaluate(cmdp, policy)
    return np.append(value.reward, value.constraints)
