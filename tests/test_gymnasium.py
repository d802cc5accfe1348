"""Models as Gymnasium environments: twins, laws, Gymnasium's own vector environment, and bad input."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import naive
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from scipy import stats

import fastcmdp as fc
from fastcmdp.cmdp import CMDP
from fastcmdp.envs import to_gymnasium, to_gymnasium_vector

HOLDS, FAILS = 5e-5, 1e-12  # p-values on fixed seeds: as in test_estimators.py
MODELS = {
    name: CMDP(**naive.MODELS[name]) for name in ("random", "no constraint", "three constraints", "absorbing")
}
every_model = pytest.mark.parametrize("cmdp", MODELS.values(), ids=MODELS.keys())
RANDOM = MODELS["random"]


def allowed(rng: np.random.Generator, mask: np.ndarray) -> int:
    return int(rng.choice(np.flatnonzero(mask)))


@every_model
@pytest.mark.parametrize("time_limit", [None, 3])
def test_steps_equal_their_twin(cmdp: CMDP, time_limit: int | None) -> None:
    env = to_gymnasium(cmdp, time_limit=time_limit)
    twin = naive.Episodes(
        naive.plain(cmdp, exact=True), np.random.SeedSequence(5, spawn_key=(0, 0)), time_limit
    )
    pick = np.random.default_rng(0)
    state, info = env.reset(seed=5)
    assert state == twin.begin()
    for _ in range(200):
        a = allowed(pick, info["action_mask"])
        q = cmdp.state_to_choice[state] + a
        state, reward, terminated, truncated, info = env.step(a)
        wanted, ended = twin.step(int(q))
        assert state == wanted
        assert reward == cmdp.reward[q]
        assert np.array_equal(info["cost"], cmdp.costs[q] if cmdp.n_constraints > 1 else sum(cmdp.costs[q]))
        assert (terminated, truncated) == ((False, ended) if time_limit else (ended, False))
        assert env.observation_space.contains(state)
        if ended:
            state, info = env.reset()
            assert state == twin.begin()


@pytest.mark.parametrize(
    "make",
    [
        lambda: to_gymnasium(fc.envs.river_swim()),
        lambda: to_gymnasium(fc.envs.river_swim(), time_limit=20),
        lambda: to_gymnasium(fc.envs.from_gymnasium("FrozenLake-v1"), unavailable="first"),
        lambda: to_gymnasium(MODELS["three constraints"], unavailable="first"),
    ],
)
def test_gymnasiums_own_check(make: Any) -> None:
    check_env(make())  # warnings are errors here


def test_a_spec_makes_another() -> None:
    env = to_gymnasium(fc.envs.river_swim(), time_limit=7)
    other = gymnasium.make(env.spec)
    assert other.reset(seed=1)[0] == env.reset(seed=1)[0]
    assert [other.step(1)[3] for _ in range(7)] == [False] * 6 + [True]


# Many at once.


def same(ours: Any, theirs: Any) -> None:
    """Equality of what two vector environments return, types of arrays included."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, tuple):
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert ours.tolist() == theirs.tolist()
    else:
        assert ours == theirs


def without_final_costs(step: Any) -> Any:
    """Ours say the cost of an episode's last step in info["cost"] too."""
    *values, info = step
    ended = info.get("_final_obs", np.zeros(len(info["_cost"]), bool))
    assert np.array_equal(
        info["cost"][ended], info["final_info"]["cost"][ended] if ended.any() else info["cost"][ended]
    )
    info = info | {"cost": info["cost"].copy(), "_cost": info["_cost"] & ~ended}
    info["cost"][ended] = 0.0
    return (*values, info)


@every_model
@pytest.mark.parametrize("autoreset", list(AutoresetMode))
@pytest.mark.parametrize("time_limit", [None, 4])
def test_vector_equals_gymnasiums(cmdp: CMDP, autoreset: AutoresetMode, time_limit: int | None) -> None:
    n = 6
    settings: dict[str, Any] = {"time_limit": time_limit, "unavailable": "first"}
    ours: VectorEnv[Any, Any, Any] = to_gymnasium_vector(cmdp, n, autoreset=autoreset, **settings)
    theirs = SyncVectorEnv([lambda: to_gymnasium(cmdp, **settings)] * n, autoreset_mode=autoreset)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    actions = np.random.default_rng(1).integers(0, cmdp.n_actions, (150, n))
    resets = 0
    for t in range(150):
        if t in (0, 40):
            seed = 11 if t == 0 else [3, 3, 9, 2, 1, 0]
            same(ours.reset(seed=seed), theirs.reset(seed=seed))
        step = ours.step(actions[t])
        ended = step[2] | step[3]
        resets += int(ended.sum())
        expected = theirs.step(actions[t])
        if "cost" not in expected[-1]:  # all began anew: Gymnasium leaves out what no environment says
            expected[-1].update({"cost": np.zeros_like(step[-1]["cost"]), "_cost": np.zeros(n, bool)})
        same(without_final_costs(step), expected)
        if autoreset is AutoresetMode.DISABLED and ended.any():
            with pytest.raises(ResetNeeded, match=f"environment {np.argmax(ended)}"):
                ours.step(actions[t])
            # A copy each: Gymnasium takes the mask out of the options.
            same(
                ours.reset(options={"reset_mask": ended}),
                theirs.reset(options={"reset_mask": ended.copy()}),
            )
    assert resets > 20


def test_a_vector_is_the_vectors_it_splits_into() -> None:
    cmdp, seeds = RANDOM, list(range(20, 37))
    actions = np.random.default_rng(2).integers(0, cmdp.n_actions, (50, len(seeds)))

    def run(part: slice) -> list[np.ndarray]:
        envs = to_gymnasium_vector(cmdp, len(seeds[part]), unavailable="first", six_values=True)
        first, _ = envs.reset(seed=seeds[part])
        steps = [envs.step(row[part])[:5] for row in actions]
        return [first, *(x for step in steps for x in step)]

    whole = run(slice(None))
    parts = zip(run(slice(0, 1)), run(slice(1, 9)), run(slice(9, None)), strict=True)
    assert [x.tolist() for x in whole] == [np.concatenate(three).tolist() for three in parts]


def test_arrays_of_a_step_are_the_callers() -> None:
    """What a caller writes into them, or keeps, has no part in what comes later."""
    actions = np.random.default_rng(5).integers(0, RANDOM.n_actions, (150, 5))
    for autoreset in ("NextStep", "SameStep"):
        spoilt, clean = (
            to_gymnasium_vector(RANDOM, 5, autoreset=autoreset, unavailable="first") for _ in range(2)
        )
        spoilt.reset(seed=1)
        clean.reset(seed=1)
        kept: list[Any] = []
        for row in actions:
            given = spoilt.step(row)
            kept.append((clean.step(row), [x.tolist() for x in given[:4]]))
            same((*given[:4], given[4]), (*kept[-1][0][:4], kept[-1][0][4]))
            arrays = [*given[:4], *given[4].values(), *given[4].get("final_info", {}).values()]
            for array in arrays:
                if isinstance(array, np.ndarray) and array.dtype != object:
                    array[:] = 1
        assert all([x.tolist() for x in step[:4]] == then for step, then in kept)


def through_read_only_buffers(x: Any) -> Any:
    buffers: list[Any] = []
    text = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(text, buffers=[bytes(buffer) for buffer in buffers])


@pytest.mark.parametrize(
    "clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), through_read_only_buffers]
)
def test_a_copy_goes_its_own_way(clone: Any) -> None:
    """On from where it was made, with the same numbers, whatever the other does."""
    actions = np.random.default_rng(5).integers(0, RANDOM.n_actions, (100, 5))
    envs = to_gymnasium_vector(RANDOM, 5, autoreset="SameStep", unavailable="first")
    env = to_gymnasium(RANDOM, unavailable="first", time_limit=1000)
    envs.reset(seed=1)
    env.reset(seed=1)
    envs.step(actions[0])
    envs_2, env_2 = clone(envs), clone(env)
    ours = [(envs.step(row), env.step(row[0])) for row in actions]
    theirs = [(envs_2.step(row), env_2.step(row[0])) for row in actions]
    same(tuple(ours), tuple(theirs))


def test_actions_of_any_integers() -> None:
    steps = []
    numbers = np.array([1, 0, 1])
    for actions in (
        numbers,
        [1, 0, 1],
        numbers.astype(np.uint8),
        numbers.astype(">i8"),
        numbers.repeat(2)[::2],
    ):
        envs = to_gymnasium_vector(fc.envs.river_swim(), 3)
        envs.reset(seed=0)
        steps.append(envs.step(actions))
    for step in steps:
        same(step, steps[0])


def test_six_values() -> None:
    cmdp = MODELS["three constraints"]
    for m, model in ((3, cmdp), (1, RANDOM), (0, MODELS["no constraint"])):
        env = to_gymnasium(model, six_values=True)
        env.reset(seed=0)
        _, reward, cost, terminated, truncated, info = env.step(0)
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        assert np.shape(cost) == np.shape(info["cost"]) == ((3,) if m == 3 else ())
        envs = to_gymnasium_vector(model, 4, six_values=True, unavailable="first")
        envs.reset(seed=0)
        _, _, costs, _, _, infos = envs.step(np.zeros(4, int))
        assert costs.shape == infos["cost"].shape == ((4, 3) if m == 3 else (4,))
        assert np.array_equal(costs[0], cost)


# Laws.


def episodes(cmdp: CMDP, time_limit: int | None, n: int) -> np.ndarray:
    """Sums of reward and costs, discounted where a time limit ends episodes, over the first episode of n environments.

    Actions are uniform over those of the state.
    """
    envs = to_gymnasium_vector(cmdp, n, autoreset="SameStep", time_limit=time_limit, six_values=True)
    pick = np.random.default_rng(3)
    _, info = envs.reset(seed=4)
    total, live, weight = np.zeros((n, 1 + cmdp.n_constraints)), np.ones(n, bool), 1.0
    while live.any():
        actions = (pick.random((n, cmdp.n_actions)) * info["action_mask"]).argmax(axis=1)
        _, reward, cost, terminated, truncated, info = envs.step(actions)
        total[live] += weight * np.column_stack([reward, cost])[live]
        live &= ~(terminated | truncated)
        weight *= 1.0 if time_limit is None else cmdp.gamma
    return total


@pytest.mark.parametrize("time_limit", [None, 200])
def test_sums_have_expectation_j(time_limit: int | None) -> None:
    """A chi-square test of J_r and J_g together; gamma^200 is below rounding.

    Negative control: the values of the same model with a gamma of 0.78.
    """
    cmdp = CMDP(**naive.random_rows(12, n_states=4, n_actions=3, m=2, gamma=0.8))
    total = episodes(cmdp, time_limit, 20_000)
    uniform = 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]
    covariance = np.cov(total.T) / len(total)

    def p_value(model: CMDP) -> float:
        value = fc.evaluate(model, uniform)
        off = total.mean(axis=0) - np.array([value.reward, *value.constraints])
        return float(stats.chi2.sf(off @ np.linalg.solve(covariance, off), len(off)))

    assert p_value(cmdp) > HOLDS
    assert p_value(CMDP(**naive.random_rows(12, n_states=4, n_actions=3, m=2, gamma=0.78))) < FAILS


def test_rewards_are_in_the_users_units() -> None:
    cmdp = CMDP([0, 1], [0, 1], [0], [1.0], [-70.0], [400.0], gamma=0.5, limits=9.0)
    assert abs(cmdp.signals).max() <= 1.0
    env = to_gymnasium(cmdp)
    env.reset(seed=0)
    _, reward, *_, info = env.step(0)
    assert (reward, info["cost"]) == (-70.0, 400.0)


# Bad input.


def fewer() -> CMDP:
    """State 0 has actions 2 and 5, state 1 has 0."""
    return CMDP(
        [0, 2, 3],
        [0, 1, 2, 3],
        [1, 0, 1],
        [1, 1, 1],
        [0, 1, 0],
        gamma=0.9,
        start=0,
        action_of_choice=[2, 5, 0],
    )


def test_unavailable_actions() -> None:
    env = to_gymnasium(fewer())
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [0, 0, 1, 0, 0, 1]
    for action in (0, 1, 6, -1, 2**70):
        with pytest.raises(
            fc.SettingError, match=rf"action {action}: .*in state 0, which has actions \[2, 5\]"
        ):
            env.step(action)
    state, *_, info = env.step(2)
    assert state == 1
    assert info["action_mask"].tolist() == [1, 0, 0, 0, 0, 0]

    envs = to_gymnasium_vector(fewer(), 3)
    envs.reset(seed=0)
    with pytest.raises(fc.SettingError, match="action 3: environment 2 is in state 0"):
        envs.step(np.array([2, 5, 3]))
    assert envs.step(np.array([2, 5, 2]))[0].tolist() == [1, 0, 1]  # nothing had moved

    lenient = to_gymnasium(fewer(), unavailable="first")
    lenient.reset(seed=0)
    assert lenient.step(4)[0] == 1
    with pytest.raises(fc.SettingError):
        lenient.step(6)


@pytest.mark.parametrize(
    "action", [1.0, np.float64(1), True, "1", None, [1], np.array([1]), np.array(1.0), np.nan]
)
def test_an_action_is_one_integer(action: Any) -> None:
    env = to_gymnasium(fc.envs.river_swim())
    env.reset(seed=0)
    with pytest.raises(fc.SettingError, match="action must be one integer"):
        env.step(action)
    for whole in (1, np.int8(1), np.uint64(1), np.array(1)):
        env.reset(seed=0)
        env.step(whole)


@pytest.mark.parametrize(
    "actions",
    [
        1,
        [1, 1],
        np.ones(4, int),
        np.ones((3, 1), int),
        np.ones(3),
        np.full(3, np.nan),
        [True] * 3,
        "abc",
        [[1], [1, 0], 1],
    ],
)
def test_vector_actions_are_integers(actions: Any) -> None:
    envs = to_gymnasium_vector(fc.envs.river_swim(), 3)
    envs.reset(seed=0)
    with pytest.raises(fc.SettingError, match=r"actions must be integers of shape \(3,\)"):
        envs.step(actions)
    envs.step([1, 0, 1])
    with pytest.raises(fc.SettingError, match="action 18446744073709551615: environment 0"):
        envs.step(np.full(3, 2**64 - 1, np.uint64))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"time_limit": 0}, "time_limit"),
        ({"time_limit": 2.5}, "time_limit"),
        ({"unavailable": "frist"}, "did you mean 'first'"),
    ],
)
def test_settings(settings: dict[str, Any], message: str) -> None:
    for make in (
        lambda: to_gymnasium(RANDOM, **settings),
        lambda: to_gymnasium_vector(RANDOM, 2, **settings),
    ):
        with pytest.raises(fc.SettingError, match=message):
            make()


def test_settings_of_vectors() -> None:
    with pytest.raises(fc.SettingError, match="num_envs"):
        to_gymnasium_vector(RANDOM, 0)
    with pytest.raises(fc.SettingError, match="SameStep"):
        to_gymnasium_vector(RANDOM, 2, autoreset="same step")
    with pytest.raises(fc.SettingError, match="CMDP is expected"):
        to_gymnasium("FrozenLake-v1")  # type: ignore[arg-type]


def test_resets() -> None:
    env, envs = to_gymnasium(RANDOM), to_gymnasium_vector(RANDOM, 2)
    for one, action in ((env, 0), (envs, np.zeros(2, int))):
        with pytest.raises(ResetNeeded):
            one.step(action)
        for seed in (-1, 1.5, "x"):
            with pytest.raises(fc.SettingError, match="seed"):
                one.reset(seed=seed)  # type: ignore[arg-type]
        with pytest.raises(fc.SettingError, match="state"):
            one.reset(options={"state": 3})
    with pytest.raises(fc.SettingError, match="3 entries"):
        envs.reset(seed=[1, 2, 3])
    for mask in ([True, False], np.ones(3, bool), np.ones(2), np.zeros(2, bool)):
        with pytest.raises(fc.SettingError, match="reset_mask"):
            envs.reset(options={"reset_mask": mask})
    with pytest.raises(ResetNeeded, match="all environments"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    env = to_gymnasium(fewer(), time_limit=1)
    env.reset(seed=0)
    env.step(2)
    with pytest.raises(ResetNeeded):
        env.step(2)


def test_without_a_seed_streams_differ_and_go_on() -> None:
    cmdp = fc.envs.garnet(n_states=50, limit=10.0)
    first = [to_gymnasium_vector(cmdp, 30).reset()[0].tolist() for _ in range(2)]
    assert first[0] != first[1]
    envs = to_gymnasium_vector(cmdp, 30)
    again = [envs.reset(seed=7)[0].tolist(), envs.reset()[0].tolist(), envs.reset(seed=7)[0].tolist()]
    assert again[0] == again[2] != again[1]


def test_gymnasium_is_imported_only_when_needed() -> None:
    code = """
import sys, fastcmdp as fc
assert "gymnasium" not in sys.modules
sys.modules["gymnasium"] = None
try:
    fc.envs.to_gymnasium(fc.envs.river_swim())
except fc.ModelError as error:
    assert "fastcmdp[gym]" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_library_trains() -> None:
    if importlib.util.find_spec("stable_baselines3") is None:
        pytest.skip("stable-baselines3 is not installed")
    path = Path(__file__).parents[1] / "examples" / "gymnasium_train.py"
    code = f"import runpy; runpy.run_path({str(path)!r})['main'](2, 256)"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "optimum 7.330" in printed
