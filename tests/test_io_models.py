"""Real models with known answers, and the scale that files and the exact optimum must stand."""

from __future__ import annotations

import numpy as np
import pytest
from io_cases import SHARED, file_of, needs_models

import fastcmdp as fc
from fastcmdp import io
from fastcmdp.errors import SettingError

SMALL = {"reward": "rew_gold", "constraints": ["attacks <= 0.252851"], "gamma": 0.95}
LARGE = {"reward": "rew_gold", "constraints": ["attacks <= 1.305208"], "gamma": 0.99}


@needs_models
@pytest.mark.parametrize("ending", ["umb", "drn"])
def test_resource_gathering_small(ending):
    cmdp = fc.load(SHARED / f"resource-gathering-small.{ending}", **SMALL)
    best = fc.optimum(cmdp)
    assert (cmdp.n_states, cmdp.n_choices, cmdp.n_branches) == (94, 302, 326)
    assert best.reward == pytest.approx(1.540100, abs=1e-5)
    assert best.duals[0] == pytest.approx(1.190067, abs=1e-5)
    # It is the generator's model, and so is all that follows from it.
    made = fc.envs.resource_gathering()
    assert cmdp.fingerprint() == made.fingerprint()
    same = fc.optimum(made)
    assert best.reward == same.reward
    for part in ("constraints", "duals", "policy", "occupancy"):
        assert getattr(best, part).tolist() == getattr(same, part).tolist()


@needs_models
def test_resource_gathering_large():
    cmdp = fc.load(SHARED / "resource-gathering-large.umb", **LARGE)
    assert (cmdp.n_states, cmdp.n_choices, cmdp.n_branches) == (24_064, 77_312, 83_456)
    best = fc.optimum(cmdp)
    assert best.reward == pytest.approx(9.455529, abs=1e-5)
    assert best.duals[0] == pytest.approx(1.023826, abs=1e-5)
    assert best.gap <= 1e-6


@needs_models
@pytest.mark.slow
def test_pd_anpg_learns_a_loaded_model_untuned():
    cmdp = fc.load(SHARED / "resource-gathering-small.umb", **SMALL)
    result = fc.solve(cmdp, fc.PDANPG(outer=16_000, inner=200), seed=0, replicates=4)
    late, best = result.last_quarter, result.optimum
    low, high = best.constraint_range[0]
    assert late.gap.mean() <= 0.05 * best.reward
    assert late.violation.mean() <= 0.02 * (high - low)


@pytest.mark.parametrize("kind", ["mat", "toolbox", "npz", "drn"])
def test_the_published_random_instance(tmp_path, kind):
    rng = np.random.RandomState(10)  # as it was published
    rows = rng.uniform(0, 1, (200, 20))
    rows /= rows.sum(axis=1, keepdims=True)
    reward, utility = rng.uniform(0, 1, 200), rng.uniform(0, 1, 200)
    cmdp = fc.CMDP.from_arrays(
        rows.reshape(20, 10, 20), reward.reshape(20, 10), utility.reshape(20, 10), gamma=0.8, limits=3, sense=">=",
        names=("reward", "utility"),
    )  # fmt: skip
    fc.save(cmdp, file_of(tmp_path, kind), format=kind)
    for bound, optimum, multiplier in ((3, 4.462443636, 0.242669711), (4, 4.005375626, 0.972290242)):
        found = fc.load(
            file_of(tmp_path, kind), reward="reward", constraints=[f"utility >= {bound}"], gamma=0.8
        )
        best = fc.optimum(found)
        assert best.reward == pytest.approx(optimum, abs=1e-8)
        assert best.duals[0] == pytest.approx(multiplier, abs=1e-7)


def wide(n_states: int, n_branches: int) -> fc.CMDP:
    """One choice of many branches in each state."""
    target = (np.arange(n_states * n_branches) * 7919) % n_states
    return fc.CMDP(
        np.arange(n_states + 1), np.arange(n_states + 1) * n_branches, target,
        np.full(len(target), 1 / n_branches), np.ones(n_states), gamma=0.5, start=0,
    )  # fmt: skip


def test_a_model_too_large_for_the_linear_programme_is_told_beforehand():
    cmdp = wide(1_001, 1_000)
    with pytest.raises(SettingError, match=r"1001000 branches is too large .*method='decomposition'"):
        fc.optimum(cmdp, method="lp")
    best = fc.optimum(cmdp)
    assert (best.reward, best.gap) == (pytest.approx(2.0, abs=1e-9), pytest.approx(0.0, abs=1e-9))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npz", "umb", "drn", "tra"])
def test_a_million_states_take_a_small_multiple_of_their_arrays(tmp_path, kind):
    tracemalloc = pytest.importorskip("tracemalloc")
    n = 1_000_000
    cmdp = fc.CMDP(
        np.arange(n + 1), np.arange(n + 1) * 3, np.arange(3 * n) * 7919 % n, np.tile([0.25, 0.25, 0.5], n),
        np.arange(n) % 7, [np.arange(n) % 3], gamma=0.99, limits=1.0, start=0,
    )  # fmt: skip
    path = file_of(tmp_path, kind)
    fc.save(cmdp, path, format=kind)
    arrays = sum(
        getattr(cmdp, name).nbytes
        for name in ("state_to_choice", "choice_to_branch", "branch_target", "branch_prob", "reward", "costs",
                     "signals", "start", "action_of_choice")
    )  # fmt: skip
    expected, cmdp = cmdp.fingerprint(), None
    tracemalloc.start()
    found = fc.load(path, reward="reward", constraints="cost <= 1", gamma=0.99)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.fingerprint() == expected
    assert peak < 6 * arrays


def test_notes_reach_the_user(tmp_path):
    io.write(io.describe(wide(3, 3)), tmp_path / "m.drn")
    text = (tmp_path / "m.drn").read_text().replace("0.3333333333333333", "0.3333333333")
    (tmp_path / "m.drn").write_text(text)
    with pytest.warns(UserWarning, match=r"m\.drn: 3 of 3 rows of probabilities miss 1"):
        fc.load(tmp_path / "m.drn", gamma=0.9)
