"""Runs that go on: to an accuracy, for so long, beyond their K; what comes out of them, and policies that act."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.budget import STAGE, Budget, Stages, stage_windows
from fastcmdp.runs.accuracy import Accuracy, accuracy, batch_interval
from fastcmdp.runs.best import _mixed, _simulated, _weights
from fastcmdp.runs.outputs import suffix_fraction, weighted


@pytest.fixture(scope="module")
def river():
    return fc.envs.river_swim()


def test_stages_are_one_run(river):
    """PD-ANPG-CV takes nothing from K: grown by stages it is the run that was asked for at once, to the bit."""
    staged = fc.solve(river, samples=1e6, target=1e-9, replicates=2)
    whole = fc.solve(river, samples=1e6, replicates=2)
    assert staged.algorithm == whole.algorithm
    assert (staged.theta == whole.theta).all()
    assert (staged.samples == whole.samples).all()
    assert staged.replanned == []
    np.testing.assert_allclose(staged.last_quarter.duals, whole.last_quarter.duals, rtol=0.02)
    np.testing.assert_allclose(staged.last_quarter.reward, whole.last_quarter.reward, rtol=1e-3)
    value = fc.evaluate(river, staged.policy("last_quarter"))
    assert value.reward == pytest.approx(staged.last_quarter.reward[0], abs=1e-9)
    value = fc.evaluate(river, staged.policy("mixture"))
    assert value.reward == pytest.approx(staged.mixture.reward[0], abs=1e-9)


def test_a_target_is_reached_early_or_told(river):
    near = fc.solve(river, target=0.02, replicates=2)
    assert near.finished
    assert near.accuracy.high <= 0.02
    assert near.samples.max() < 1e7
    scales = np.ptp(near.optimum.reward_range), np.ptp(near.optimum.constraint_range[0])
    off = np.maximum(near.last_quarter.gap / scales[0], near.last_quarter.violation[:, 0] / scales[1])
    assert near.accuracy.error == pytest.approx(max(off.max(), 0.0))
    assert near.notes()[0].startswith("The target of 2 % is reached: error")
    far = fc.solve(river, target=1e-7, samples=2e5)
    assert f"was not reached within {far.samples.max():.3g} transitions a replicate" in far.notes()[0]
    assert far.samples[0] == pytest.approx(2e5, rel=0.02)


def test_a_target_without_an_optimum(river):
    """From the run's own estimates: an interval that holds what the exact values say."""
    blind = fc.solve(river, target=0.05, samples=3e7, optimum=False, replicates=2)
    assert not blind.accuracy.exact
    assert blind.accuracy.high <= 0.05
    assert "own estimates" in blind.notes()[0]
    best = fc.optimum(river)
    late = blind.last_quarter
    assert (best.reward - late.reward).max() / np.ptp(best.reward_range) <= 0.05
    assert (late.constraints - river.limits).max() / np.ptp(best.constraint_range[0]) <= 0.05


def test_seconds(river):
    fc.solve(river, samples=1e4)  # compile
    began = time.monotonic()
    result = fc.solve(river, seconds=2.0)
    assert result.finished
    assert 0.5 < time.monotonic() - began < 6.0
    assert result.samples[0] > 1e6


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_goes_on_beyond_its_first_k(name):
    cmdp = fc.envs.garnet(n_states=5, n_actions=2, n_branches=2, gamma=0.7, seed=1)
    settings = ALGORITHMS[name].for_samples(cmdp, 2e4)
    result = fc.solve(cmdp, settings, replicates=2)
    samples, first = result.samples.copy(), settings.outer
    fc.resume(result, outer=2 * first)
    assert result.finished
    assert (result.samples > samples).all()
    assert result.trace.outer[-1] == result.algorithm.outer == 2 * first
    assert (np.diff(result.trace.outer) > 0).all()
    value = fc.evaluate(cmdp, result.policy("last_quarter"))
    assert value.reward == pytest.approx(result.last_quarter.reward[0], abs=1e-8)
    assert all("are those for K" in text for text in result.replanned)
    assert result.replanned == [] or name != "pd-anpg-cv"
    assert result.replanned != [] or name != "pd-anpg"


def test_going_on_is_saved_and_refused_backwards(river, tmp_path):
    path = tmp_path / "run.npz"
    fc.solve(river, samples=5e4, checkpoint=path)
    again = fc.resume(fc.load_run(path, river), samples=2e5, checkpoint=path)
    whole = fc.solve(river, samples=2e5)
    assert (again.theta == whole.theta).all()
    loaded = fc.load_run(path, river)
    assert loaded.finished
    assert (loaded.policy("last_quarter") == again.policy("last_quarter")).all()
    with pytest.raises(fc.SettingError, match=r"samples = 1000: the run is to have 1.998e\+05"):
        fc.resume(loaded, samples=1000)
    with pytest.raises(fc.SettingError, match="outer = 3: the run has"):
        fc.resume(loaded, outer=3)
    with pytest.raises(fc.SettingError, match="give one of them"):
        fc.resume(loaded, outer=10**6, samples=1e9)


def test_best_is_feasible_and_exact():
    """Garnets whose last quarter misses its limit by a hair: the mixture of occupancies does not."""
    for seed in range(4):
        cmdp = fc.envs.garnet(n_states=20, n_constraints=2, seed=seed)
        result = fc.solve(cmdp, samples=3e5, replicates=2)
        best = result.best
        value = fc.evaluate(cmdp, best.policy)
        assert best.feasible
        assert (value.constraints <= cmdp.limits).all()
        assert value.reward == best.reward
        assert 0.0 <= best.gap < 0.02 * np.ptp(result.optimum.reward_range)
        late = result.last_quarter
        feasible = (late.violation == 0).all(axis=1)
        assert best.reward >= np.where(feasible, late.reward, -np.inf).max() - 1e-9


def test_best_asks_for_no_masses(river):
    """Occupancies of windows that hold more or fewer policies count alike: a mixture weighs them anew."""
    result = fc.solve(river, samples=1e5, replicates=2)
    trace, scale = result.trace, np.array([[3.0], [0.5]])
    other = SimpleNamespace(
        occupancies=trace.occupancies * scale,
        policy_occupancy=lambda late: trace.policy_occupancy(late=late) / scale,
    )
    same = _mixed(SimpleNamespace(trace=other, cmdp=result.cmdp, run=result.run))
    np.testing.assert_allclose(same, _mixed(result), atol=1e-9)


def test_best_of_what_misses_is_the_least_miss():
    cmdp = fc.envs.river_swim(limit=0.1)
    best = fc.solve(cmdp, fc.PDANPG(outer=2, inner=2)).best
    assert not best.feasible
    assert best.violation[0] > 0.0


def test_averages_by_hand():
    steps, values = np.arange(5.0), np.arange(5.0)[:, None] ** 1
    assert weighted(steps, values)[0] == pytest.approx(2 * 4**3 / 3 / 4**2)
    noise = np.random.default_rng(0).standard_normal((2000, 40, 1))
    mean, half = batch_interval(noise)
    assert (np.abs(mean) <= half).mean() == pytest.approx(0.95, abs=0.02)


def test_outputs_say_what_is_guaranteed(river):
    result = fc.solve(river, samples=1e6)
    names = ("mixture", "last_quarter", "suffix", "weighted", "last")
    said = [getattr(result, name).guarantee for name in names]
    assert len(set(said)) == len(names)
    errors = {name: abs(getattr(result, name).gap[0]) for name in names}
    assert errors["weighted"] < errors["mixture"]
    assert errors["suffix"] < errors["mixture"]


# Policies that act


def frequencies(agent, observation, n=4000):
    rng = np.random.default_rng(1)
    drawn = [agent.act(observation, rng) for _ in range(n)]
    return dict(zip(*(part.tolist() for part in np.unique(drawn, return_counts=True)), strict=True))


def test_policy_tables_and_agents_agree():
    cmdp = fc.envs.maintenance()
    result = fc.solve(cmdp, samples=1e6)
    table = result.policy_table("last")
    assert table.shape == (25, 3)
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    assert table[0, 1] == table[24, 0] == 0.0  # not there
    agent = result.agent("last")
    for state in (0, 3, 7, 24):
        actions, chance = agent.probabilities(state)
        np.testing.assert_allclose(table[state, actions], chance)
        for action, count in frequencies(agent, state).items():
            assert count / 4000 == pytest.approx(table[state, action], abs=0.04)
    with pytest.raises(fc.SettingError, match="a state, an integer from 0 to 24"):
        agent(25)


def test_agents_of_features_act_by_their_logits(river):
    features = np.random.default_rng(0).standard_normal((river.n_choices, 3))
    result = fc.solve(river, fc.PDANPG(outer=100, inner=20), policy=fc.LogLinear(features))
    z = features @ result.theta[0]
    for state in range(8):
        own = slice(*river.state_to_choice[state : state + 2])
        weight = np.exp(z[own] - z[own].max())
        np.testing.assert_allclose(
            result.agent("last").probabilities(state)[1], weight / weight.sum(), rtol=1e-9
        )


def test_an_agent_in_a_gymnasium_loop_earns_what_it_is_worth():
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    cmdp = fc.envs.from_gymnasium("FrozenLake-v1", gamma=0.95, start=0)
    result = fc.solve(cmdp, samples=1e6)
    agent, gamma = result.agent(seed=0), 0.95
    env, returns = gymnasium.make("FrozenLake-v1"), []
    for episode in range(1000):
        state, _ = env.reset(seed=episode)
        total, weight, ended = 0.0, 1.0, False
        while not ended:
            state, reward, terminated, truncated, _ = env.step(agent(state))
            total, weight, ended = total + weight * float(reward), weight * gamma, terminated or truncated
        returns.append(total)
    error = np.std(returns) / np.sqrt(len(returns))
    assert np.mean(returns) == pytest.approx(result.best.reward, abs=4 * error)


def test_agents_on_simulators_see_what_rollouts_see(tmp_path):
    queue = fc.simulators.tandem_queue()
    result = fc.solve(queue, fc.PDANPG(outer=30, inner=20))
    agent, state = result.agent("last"), [3.0, 1.0]
    x, theta = queue.features(state), result.theta[0]
    z = x @ theta if queue.by_choice else theta.reshape(queue.n_actions, -1) @ x
    weight = np.exp(z - z.max())
    np.testing.assert_allclose(agent.probabilities(state)[1], weight / weight.sum(), rtol=1e-9)
    best = result.best
    assert best.reward_interval[0] < best.reward < best.reward_interval[1]
    path = tmp_path / "policy.npz"
    fc.save_policy(path, agent)
    again = fc.load_policy(path, queue)
    assert (again.probabilities(state)[1] == agent.probabilities(state)[1]).all()
    with pytest.raises(fc.ModelError, match="another model"):
        fc.load_policy(path, fc.envs.river_swim())


def test_an_agent_of_a_gymnasium_simulator_takes_its_observations():
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    cart = fc.GymSimulator(
        "CartPole-v1", cost=lambda o, a, p, i: abs(p[0]) > 0.5, gamma=0.9, limits=[1.0], trial=50
    )
    result = fc.solve(cart, fc.PDANPG(outer=3, inner=5, pilot=1))
    agent, env = result.agent("last", seed=0), gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    z = result.theta[0].reshape(2, -1) @ np.append(1.0, observation)
    np.testing.assert_allclose(agent.probabilities(observation)[1], np.exp(z) / np.exp(z).sum(), rtol=1e-6)
    for _ in range(5):
        observation, *_ = env.step(agent(observation))
    with pytest.raises(fc.SettingError, match="observation"):
        agent("here")


@pytest.mark.parametrize("short", [1e-8, 1e-7, 1e-6, 1e-5, 1e-3])
def test_the_best_of_points_that_all_miss_by_little(short):
    """Weights of a mixture, however near the limit the points are: no worse than the least violation there is."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        values = np.column_stack([rng.random(12), -short * rng.random(12)])
        weights = _weights(values)
        assert weights.sum() == pytest.approx(1.0)
        assert weights @ values[:, 1] >= values[:, 1].max() - 2e-7


def test_looks_share_the_chance_of_a_mistake(monkeypatch):
    """The j-th look asks for 1 - 5 % / (j (j + 1)): added up, 5 %."""
    asked = []

    def look(result, confidence=0.95):
        asked.append(confidence)
        return Accuracy(1.0, 1.0, 1.0, True)

    monkeypatch.setattr("fastcmdp.budget.accuracy", look)
    stages = Stages(Budget(target=0.5), 10)
    assert not any(stages._is_reached(None, 0.5) for _ in range(50))
    np.testing.assert_allclose(1.0 - np.array(asked), [0.05 / (j * (j + 1)) for j in range(1, 51)])
    assert sum(1.0 - np.array(asked)) <= 0.05


def test_the_noise_of_slack_is_part_of_an_estimated_error():
    """A reward without noise beside a noisy cost: the interval is that of multiplier times slack."""
    cmdp = fc.envs.garnet(n_states=5)
    result = fc.solve(cmdp, samples=2e5, optimum=False)
    trace = result.trace
    assert trace.values.size == 0 or not accuracy(result).exact
    rng, m = np.random.default_rng(0), cmdp.n_constraints
    steps = np.diff(trace.kept, axis=1)[:, :, None]
    noise = rng.normal(0.0, 0.05, (1, steps.shape[1], m))
    level = np.minimum(np.linspace(0.0, 2.0, steps.shape[1]), 1.0)  # J_r rises to the middle and stays
    trace.sums[:, 1:, 0] = np.cumsum(steps[:, :, 0] * level, axis=1)
    trace.sums[:, 1:, 1 : 1 + m] = np.cumsum(steps * (5.0 + noise), axis=1)  # far on the safe side
    trace.sums[:, 1:, 1 + m :] = np.cumsum(steps * 100.0, axis=1)  # and a multiplier all the same
    found = accuracy(result)
    assert found.error > 0.0
    assert found.high > 1.0005 * found.error


def test_the_suffix_is_the_longest_whose_halves_agree(river):
    """All values are lower by 1 up to some outer step, halfway through the first half of a suffix: the next serves."""
    result = fc.solve(river, fc.PDANPG(outer=800, inner=2), trace=400)
    n = result.trace.done
    noise = np.random.default_rng(4).normal(0.0, 0.01, (n, 2))
    for level_from, fraction in ((0.0, 0.75), (0.45, 0.5), (0.63, 0.25), (0.82, 0.125)):
        result.trace.values[0] = noise - (np.arange(n) < level_from * n)[:, None]
        assert suffix_fraction(result.trace) == fraction


def test_accuracy_knows_what_lies_between_recorded_points(river):
    """Values as level as can be but for one step of 1 between two points: half of that window may be off by it."""
    result = fc.solve(river, fc.PDANPG(outer=400, inner=2), trace=40)
    trace, best = result.trace, result.optimum
    trace.values[0] = [best.reward - 0.5, river.limits[0] - 1.0]
    width = np.ptp(best.reward_range)
    level = accuracy(result)
    assert level.low == pytest.approx(level.error, rel=1e-12)
    assert level.error == pytest.approx(0.5 / width)
    assert level.high == pytest.approx(level.error)
    late, i = trace.begin(trace.done - 1, 0.25), trace.done - 3
    trace.values[0, i:, 0] = best.reward - 1.5
    found = accuracy(result)
    gap = trace.outer[i] - trace.outer[i - 1] - 1  # steps between the two points, half the window off by 1
    within = trace.mean(0.25)[1][0, 0]
    assert within == pytest.approx(0.5 * gap / (trace.outer[-1] - trace.outer[late]), rel=1e-12)
    half = batch_interval(trace.values[:, late : trace.done])[1][0, 0]
    assert found.high - found.error == pytest.approx((half + within) / width, rel=1e-9)


def test_failed_replicates_have_no_say_in_how_long_the_suffix_is(river):
    result = fc.solve(river, samples=3e6, replicates=4)
    before = suffix_fraction(result.trace)
    assert before > 0.125, "the test needs a run that has settled"
    result.trace.values[0, result.trace.done // 2 :] = np.nan
    assert suffix_fraction(result.trace) > 0.125


def test_of_simulated_policies_one_that_surely_meets_limits_is_taken():
    """One has more reward and a slack of 0.01 +- 0.05, the other a slack of 1 +- 0.05."""

    def evaluate(policy, theta, rollouts, seed, confidence=0.95):
        reward, slack = (5.0, 0.01) if theta[0] == 0.0 else (4.9, 1.0)
        ends = np.array([[slack - 0.05, slack + 0.05]])
        asked.append(confidence)
        return SimpleNamespace(
            reward=reward, constraints=ends.mean(axis=1), reward_interval=np.repeat(reward, 2),
            constraint_intervals=ends,
        )  # fmt: skip

    asked: list[float] = []
    units = SimpleNamespace(n_constraints=1, slack=lambda values: np.asarray(values)[..., 1:])
    result = SimpleNamespace(
        run=SimpleNamespace(world=SimpleNamespace(model=SimpleNamespace(evaluate=evaluate))),
        cmdp=units, theta=np.array([[0.0], [1.0]]), policy_class=None,
    )  # fmt: skip
    found = _simulated(result)
    assert found.replicate == 1
    assert found.feasible
    assert asked[-1] == 0.95  # of one limit; of m, 1 - 0.05 / m


NO_DRAWS = [
    fc.ReLOAD(rollouts=0),
    fc.CPG(trajectories=0),
    fc.LBSGD(trajectories=0),
    fc.PMDPD(pairs=1),
    fc.OPGPD(pairs=1),
]


@pytest.mark.parametrize("settings", NO_DRAWS, ids=lambda s: s.name)
def test_what_draws_no_samples_is_bounded_by_time_or_outer_steps_alone(settings, river):
    own = {
        key: getattr(settings, key) for key in ("rollouts", "trajectories", "pairs") if hasattr(settings, key)
    }
    why = "|".join(f"{key}={value}" for key, value in own.items())
    expected = pytest.raises(
        fc.SettingError, match=rf"^({why}) draws no samples .*{settings.name}.*: give outer="
    )
    with expected:
        type(settings).for_samples(river, 1e5, **own)
    with expected:
        settings.filled(river, 1e5)
    with expected:
        Budget(samples=1e5).most(settings, river)
    with expected:
        Budget(target=0.01).most(settings, river)
    assert (
        Budget(seconds=1.0).most(settings, river)
        == Budget(seconds=1.0, target=0.01).most(settings, river)
        == 2**40
    )
    assert Budget(seconds=1.0).first(settings, river, 1000) == 63


def test_a_rollout_has_a_transition_at_any_gamma():
    """gamma^1 < 0.01 would do for the accuracy, but one pair shows nothing: then pairs=None is 2."""
    cmdp = fc.envs.garnet(gamma=0.005)
    for kind in (fc.CPG, fc.LBSGD, fc.ReLOAD, fc.PMDPD):
        assert kind().n_pairs(cmdp.gamma) == 2
        assert kind().filled(cmdp, 1e6).expected_samples(cmdp) == pytest.approx(1e6, rel=0.1)


def test_exact_values_run_for_a_time(river):
    result = fc.solve(river, fc.ReLOAD(rollouts=0, outer=2000), seconds=20.0)
    assert result.finished
    assert result.samples[0] == 0


def test_a_time_plans_for_large_models_and_few_evaluations():
    """On many choices H follows from the transitions that the time allows, and a stage records what it affords."""
    large = fc.envs.garnet(n_states=3000, seed=1)
    result = fc.solve(large, seconds=1.0)
    planned = fc.PDANPGCV.for_samples(large, 1e6)
    assert result.algorithm.inner == planned.inner > fc.PDANPGCV().inner
    affordable = int(0.2 / (4e-4 + 2e-7 * large.n_branches))
    assert stage_windows(result, 2 * result.algorithm.outer) == affordable < STAGE
