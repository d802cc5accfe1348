"""PD-NAC for the average reward: against its twin, the law of its estimates, averages of plain rows, simulators."""

from __future__ import annotations

from typing import Any

import naive
import numpy as np
import pytest
import scipy
from numba import njit

import fastcmdp as fc
from fastcmdp.algorithms.pd_nac_average import PDNACAverageRun
from fastcmdp.cmdp import CMDP
from fastcmdp.exact import average_of
from fastcmdp.kernels.streams import LANES
from fastcmdp.worlds import TableWorld, world_of

SEED = 4
MODELS = {name: CMDP(**rows) for name, rows in naive.MODELS.items() if name != "many states"}
SETTINGS = {
    "measured steps": fc.PDNACAverage(outer=40, inner=6),
    "given steps, plain chain": fc.PDNACAverage(
        outer=20, inner=5, alpha=0.3, beta=0.2, restart=False, longest=8, lambda_max=0.5
    ),
    "critics anew, single transitions": fc.PDNACAverage(outer=20, inner=9, longest=1, carry_over=False),
}


def features(cmdp: CMDP, kind: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    return np.eye(cmdp.n_choices) if kind == "tabular" else rng.normal(size=(cmdp.n_choices, 3))


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize(
    ("kind", "draws"), [("tabular", "fast"), ("tabular", "exact"), ("dense", "fast"), ("sparse", "fast")]
)
@pytest.mark.parametrize("name", MODELS)
def test_it_is_its_twin(name: str, kind: str, draws: str, settings: fc.PDNACAverage) -> None:
    cmdp = MODELS[name]
    phi = features(cmdp, kind)
    rows = scipy.sparse.csr_array(phi) if kind == "sparse" else phi
    policy = fc.TabularSoftmax() if kind == "tabular" else fc.LogLinear(rows)
    run = settings.run(TableWorld.of(cmdp, policy, False, draws), SEED, 2)
    model = naive.plain(cmdp, draws == "exact")
    twin = naive.AverageActorCritic(model, phi.shape[1], cmdp.n_constraints, naive.streams(SEED, 1, LANES)[0])
    work, got = run.work(), run.state
    for n_steps in (7, settings.outer - 7):
        run.advance(1, n_steps, work)
        naive.pd_nac_average(model, phi, run.steps, twin, settings.inner, n_steps)
        assert got.chain[1, :2].tolist() == [twin.pair, twin.left]
        assert got.samples[1] == twin.samples
        near = {"rtol": 1e-9, "atol": 1e-11}
        for array in ("theta", "dual", "critic", "mean", "square", "largest", "sums"):
            np.testing.assert_allclose(getattr(got, array)[1], getattr(twin, array), **near, err_msg=array)
    assert not got.theta[0].any()


def feasibility_problem() -> CMDP:
    """Two actions, of which one has a cost; nothing to gain."""
    return CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 0.0]], [[0.0, 1.0]], gamma=0.5, limits=[0.4])


def test_a_constant_reward_leaves_a_problem_of_feasibility() -> None:
    cmdp = feasibility_problem()
    settings = fc.PDNACAverage(outer=2000)
    run = settings.run(TableWorld.of(cmdp, fc.TabularSoftmax(), False, "exact"), SEED, 2)
    twin = naive.AverageActorCritic(naive.plain(cmdp, True), 2, 1, naive.streams(SEED, 1, LANES)[0])
    run.advance(1, 20, run.work())
    naive.pd_nac_average(naive.plain(cmdp, True), np.eye(2), run.steps, twin, settings.inner, 20)
    np.testing.assert_allclose(run.state.theta[1], twin.theta, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(run.state.sums[1], twin.sums, rtol=1e-9, atol=1e-11)
    assert twin.sums[2] > 0  # of the multiplier

    result = fc.solve(cmdp, settings, replicates=2)
    assert np.abs(result.theta).max() > 0.1
    assert result.last_quarter.violation.mean() < 0.05 * 2.0  # of the range; the uniform policy's is 0.6


def test_estimates_by_levels_have_the_mean_of_the_longest() -> None:
    """Weights of the kernel's transitions: by enumeration over Q, sum_Q 2^-Q weight = 1 / T_max for each of T_max."""
    from fastcmdp.kernels.algorithm.pd_nac_average import weight_in

    longest = 16
    total = np.zeros(longest)
    left = 1.0
    for level in range(1, 5):
        n = 2**level
        total[:n] += 2.0**-level * np.array([weight_in.py_func(i, n) for i in range(n)])
        left -= 2.0**-level
    total[0] += left * weight_in.py_func(0, 1)
    np.testing.assert_allclose(total, 1.0 / longest, atol=1e-15)


@pytest.mark.parametrize("restart", [True, False])
def test_critics_know_averages_of_their_chain(restart: bool) -> None:
    """theta still: (1-gamma) J of the chain that restarts, else the average of the rows; and one is not the other."""
    cmdp = CMDP(**naive.random_rows(1, gamma=0.8))
    settings = fc.PDNACAverage(outer=4000, alpha=1e-12, beta=1e-12, c_rate=0.05, restart=restart)
    run: PDNACAverageRun = settings.run(TableWorld.of(cmdp, fc.TabularSoftmax(), False), SEED, 1)
    run.advance(0, settings.outer, run.work())
    width = np.diff(cmdp.state_to_choice)[cmdp.choice_state]
    discounted = cmdp.unit * fc.evaluate(cmdp, 1.0 / width).raw
    user = average_of(cmdp, 1.0 / width)
    averages = cmdp.signal_factor * user + cmdp.signal_offset
    here, there = (discounted, averages) if restart else (averages, discounted)
    assert np.abs(run.state.mean[0] - here).max() < 0.02
    assert np.abs(there - here).max() > 0.03


@pytest.mark.filterwarnings("ignore:no state is visited again:RuntimeWarning")
def test_it_learns_averages_without_a_state_of_renewal() -> None:
    plain = fc.envs.garnet(n_states=20)
    cmdp = plain.with_criterion("average", limits=plain.unit * plain.limits)
    best = fc.exact.average_optimum(plain, limits=plain.unit * plain.limits)
    result = fc.solve(cmdp, fc.PDNACAverage.for_samples(cmdp, 3e6), replicates=4)
    assert abs(result.last_quarter.gap.mean()) < 0.02 * best.reward
    assert result.last_quarter.violation.mean() < 0.02 * best.constraints[0]


def test_on_a_simulator_critics_know_averages_and_the_policy_learns() -> None:
    queue = fc.simulators.tandem_queue()
    still = fc.PDNACAverage(outer=4000, alpha=1e-12, beta=1e-12, c_rate=0.2)
    run = still.run(world_of(queue, simulation="chains"), SEED, 1)
    run.advance(0, still.outer, run.work())
    start = queue.evaluate(fc.LogLinear(), rollouts=20_000)
    user = queue.unit * np.append(start.reward, start.constraints)
    limits = queue.unit * queue.limits
    here = np.append(user[0] * queue.signal_factor[0] + queue.signal_offset[0], 0.0)
    here[1] = (limits - user[1:])[0] / queue.constraint_scale[0]
    np.testing.assert_allclose(run.state.mean[0], here, atol=0.02)

    free = fc.PDNACAverage.for_samples(queue, 2e6, lambda_max=1e-9)  # the reward alone
    result = fc.solve(queue, free, replicates=2, seed=1)
    assert result.finished
    values = [queue.evaluate(fc.LogLinear(), theta, rollouts=4000) for theta in result.theta]
    assert np.mean([v.reward for v in values]) > start.reward + 0.2 * abs(start.reward)


@pytest.mark.parametrize(
    ("step_limit", "feature_limit", "message"),
    [
        (300.0, np.inf, r"\(state \[300.0\], action [01], 300 steps"),
        (np.inf, 300.0, r"\(state \[301.0\], 301 steps"),
    ],
    ids=["reward", "features"],
)
def test_a_fault_is_counted_from_the_start_of_the_chain(
    step_limit: float, feature_limit: float, message: str
) -> None:
    """A chain that runs on over many batches, of 20 transitions at the most."""

    @njit  # type: ignore[untyped-decorator]
    def step(state: Any, action: int, rng: Any, costs: Any) -> float:
        before = state[0]
        state[0] += 1.0
        return np.nan if before >= step_limit else 0.01 * action

    @njit  # type: ignore[untyped-decorator]
    def reset(state: Any, rng: Any) -> None:
        state[0] = 0.0

    @njit  # type: ignore[untyped-decorator]
    def features(state: Any, out: Any) -> None:
        out[0] = np.nan if state[0] > feature_limit else 1.0

    simulator = fc.Simulator(
        step, reset, n_state=1, n_actions=2, gamma=0.9, trial=50, state_features=features, n_features=1
    )
    with pytest.warns(RuntimeWarning, match=message):
        result = fc.solve(simulator, fc.PDNACAverage(outer=200, inner=5, longest=4, restart=False))
    assert (result.failed > 10).all()


def test_other_policies_and_lengths_are_refused() -> None:
    cmdp = fc.envs.garnet(n_states=4)
    with pytest.raises(fc.SettingError, match="linear in fixed features"):
        fc.solve(cmdp, fc.PDNACAverage(outer=1), policy=fc.NeuralSoftmax(np.eye(4)), optimum=False)
    with pytest.raises(fc.SettingError, match="longest"):
        fc.PDNACAverage(longest=12)
