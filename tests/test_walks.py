"""CRPO on simulators: against plain Python on the same stream, against a table, and what faults say."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
from numba import config, njit
from scipy import stats
from test_estimators import FAILS, HOLDS, law_test, mean_test, p_value

import fastcmdp as fc
from fastcmdp.algorithms import crpo as crpo_module
from fastcmdp.kernels import draws
from fastcmdp.kernels.learning.td import Averaged
from fastcmdp.kernels.sampling.rollouts import geometric_horizon
from fastcmdp.kernels.simulator.walks import run_walk
from fastcmdp.kernels.streams import LANES
from fastcmdp.streams import streams
from fastcmdp.worlds import SimulatedWorld

if config.DISABLE_JIT:
    pytest.skip("simulators are compiled", allow_module_level=True)

SEED = 6


@pytest.fixture(scope="module")
def queue() -> fc.Simulator:
    return fc.simulators.tandem_queue(gamma=0.8)


@pytest.fixture(scope="module")
def cart() -> fc.Simulator:
    return fc.simulators.linear_quadratic(levels=3, gamma=0.8)


def make_run(simulator: fc.Simulator, policy: Any, settings: Any, replicates: int = 1) -> Any:
    bound = policy.bind(simulator)
    world = SimulatedWorld(simulator, simulator.world(bound, True), bound)
    return settings.run(world, SEED, replicates)


# Against plain Python on the same stream.


class Plain:
    """One replicate as the documentation has it; ``logits`` of (theta, state) may be complex."""

    def __init__(self, run: Any, r: int, logits: Callable[[Any, Any], Any]) -> None:
        self.simulator, self.steps, self.world = run.world.model, run.steps, run.world.tables
        self.logits, self.bound = logits, run.world.policy.critic_bound
        self.theta, self.rng = run.state.theta[r].copy(), streams(SEED, r + 1)[r][:, 0].copy()
        n = self.world.n_signals
        self.critic = np.zeros((n, self.theta.size))
        self.place: Any = None  # state and action, where a segment goes on
        self.left = self.kept = self.outer = self.samples = 0
        self.recent, self.average, self.longest, self.sums = (np.zeros(n) for _ in range(4))

    def probabilities(self, state: Any) -> Any:
        z = np.real(self.logits(self.theta, state))
        weights = np.exp(z - z.max())
        return weights / weights.sum()

    def act(self, state: Any) -> int:
        total = np.cumsum(self.probabilities(state))
        return int(np.searchsorted(total, draws.uniform(self.rng) * total[-1], side="right"))

    def gradients(self, state: Any) -> Any:
        """Of all logits, by complex steps."""
        columns = []
        for j in range(self.theta.size):
            moved = self.theta.astype(complex)
            moved[j] += 1e-30j
            columns.append(np.imag(self.logits(moved, state)) / 1e-30)
        return np.transpose(columns)

    def start(self) -> Any:
        state = np.zeros(self.simulator.n_state)
        self.simulator._reset.python(state, self.rng)
        return state

    def learn(self) -> Any:
        """Critics, the states of law nu, and sums of the signals."""
        w, mean, total, visited = self.critic, 0.0, 0.0, []
        rule, gamma, n = self.steps.rule, self.simulator.gamma, self.steps.n_inner
        for _ in range(n):
            if self.left == 0:
                self.left = int(geometric_horizon(np.uint64(draws.word(self.rng)), 1 / math.log(gamma))) + 1
                state = self.start()
                self.place = state, self.act(state)
            state, action = self.place
            after, costs = state.copy(), np.zeros(self.simulator.n_constraints)
            reward = self.simulator._step.python(after, action, self.rng, costs)
            signal = self.world.factor * np.append(reward, costs) + self.world.offset
            then = self.act(after)
            g = self.gradients(state)[action]
            error = signal + gamma * w @ self.gradients(after)[then] - w @ g
            cut = min(1.0, self.bound / max(g @ g, self.bound))
            w = w + rule.rate * cut * error[:, None] * g
            length = np.sqrt((w**2).sum(axis=1, keepdims=True))
            w = w * np.minimum(rule.radius / np.maximum(length, rule.radius), 1.0)
            mean, total = mean + w / n, total + signal
            self.left -= 1
            if self.left == 0:
                visited.append(state)
            self.place = after, then
        return mean, (visited or [self.place[0]])[: min(n, crpo_module.MOST_PAIRS)], total

    def advance(self, n_steps: int) -> None:
        """Outer steps with measured alpha and tolerances."""
        steps, root = self.steps, math.sqrt(self.steps.n_outer)
        for _ in range(n_steps):
            self.critic, visited, total = self.learn()
            self.samples += steps.n_inner
            square = 0.0
            for state in visited:
                q = self.critic @ self.gradients(state).T
                pi = self.probabilities(state)
                square = square + ((q - (q @ pi)[:, None]) ** 2 @ pi) / len(visited)
            value = 0.0
            for _ in range(steps.n_start_draws):
                state = self.start()
                value = value + self.critic @ self.gradients(state).T @ self.probabilities(state)
            value = value / steps.n_start_draws
            level = np.maximum(self.recent, self.average)  # of the critics before
            missed = np.flatnonzero(value[1:] < -steps.tol * np.sqrt(level[1:]) / root) + 1
            f = missed[0] if len(missed) else 0
            if len(missed) > 1:
                f = missed[(int(draws.word(self.rng)) >> 32) * len(missed) >> 32]
            if f == 0:
                self.kept += 1
                self.sums += total / steps.n_inner / (1 - self.simulator.gamma)
            if level[f] > 0:
                length = math.sqrt(square[f])
                cut = self.longest[f] / length if length > self.longest[f] else 1.0
                h = steps.step / root / math.sqrt(level[f]) * cut
                self.theta = self.theta + h * self.critic[f]
            self.longest = np.maximum(self.longest, np.sqrt(square))
            self.average += (square - self.average) / (self.outer + 1)
            self.recent += (square - self.recent) * max(0.05, 1 / (self.outer + 1))
            self.outer += 1


POLICIES: dict[str, Any] = {
    "linear": (fc.LogLinear(), (), False),
    "network": (fc.NeuralSoftmax(hidden=(4, 3), activation="relu"), (4, 3), True),
}


@pytest.mark.parametrize("which", ["queue", "cart"])  # features of states, and of choices
@pytest.mark.parametrize("kind", POLICIES)
def test_runs_replay(which: str, kind: str, request: pytest.FixtureRequest) -> None:
    simulator: fc.Simulator = request.getfixturevalue(which)
    policy, hidden, relu = POLICIES[kind]
    n_outputs = 1 if simulator.by_choice else simulator.n_actions

    def logits(theta: Any, state: Any) -> Any:
        rows = np.atleast_2d(simulator.features(state))
        if not hidden:
            return np.concatenate([theta.reshape(n_outputs, -1) @ x for x in rows])
        net = naive.Network([], simulator.by_choice, hidden, n_outputs, relu)
        return np.concatenate([naive.forward(net, theta, x) for x in rows])

    settings = fc.CRPO(outer=7, inner=45, c_step=2.0, radius=1.0 if which == "cart" else None)
    run = make_run(simulator, policy, settings, replicates=2)
    run.state.theta[1] += 0.4 * np.random.default_rng(1).standard_normal(run.state.theta.shape[1])
    twin = Plain(run, 1, logits)
    run.advance(1, 4, run.work())
    run.advance(1, 3, run.work())
    twin.advance(7)
    got = run.state
    assert got.failed.tolist() == [-1, -1]
    assert got.rng[1, :, 0].tolist() == twin.rng.tolist()
    assert (got.rng[1, :, 1:] == streams(SEED, 2)[1][:, 1:]).all()
    for name in ("outer", "samples", "kept"):
        assert getattr(got, name).tolist() == [0, getattr(twin, name)]
    assert got.chain[1, 1, 0] == twin.left
    if twin.left:
        assert (got.place[1].tolist(), got.chain[1, 0, 0]) == (twin.place[0].tolist(), twin.place[1])
    # Rounding of 1e-16 an update, in 45 of them an outer step, fed back through seven outer steps.
    close = {"rtol": 1e-9, "atol": 1e-10}
    np.testing.assert_allclose(got.theta[1], twin.theta, **close)
    np.testing.assert_allclose(got.critic[1], twin.critic.ravel(), **close)
    for name in ("recent", "average", "longest"):
        np.testing.assert_allclose(getattr(got, name)[1], getattr(twin, name), **close)
    np.testing.assert_allclose(got.sums[1, : 1 + simulator.n_constraints], twin.sums, **close)


# Against a table.

N_STATES, N_ACTIONS = 4, 3
_RNG = np.random.default_rng(3)
TABLE = fc.CMDP.from_arrays(
    _RNG.dirichlet(np.full(N_STATES, 0.3), (N_STATES, N_ACTIONS)), *_RNG.random((2, N_STATES, N_ACTIONS)), 0.8,
    start=_RNG.dirichlet(np.full(N_STATES, 0.5)), limits=[2.0],
)  # fmt: skip


def table_simulator() -> fc.Simulator:
    """The table as functions; one-hot features, so that log-linear policies are the tabular ones."""
    p = TABLE.transition_matrix().toarray().cumsum(axis=1)
    start, reward, cost = TABLE.start.cumsum(), TABLE.reward.copy(), TABLE.costs[:, 0].copy()
    n, k = N_STATES, N_ACTIONS

    @njit  # type: ignore[untyped-decorator]
    def step(state: Any, action: int, rng: Any, costs: Any) -> float:
        q = int(state[0]) * k + action
        costs[0] = cost[q]
        state[0] = min(np.searchsorted(p[q], draws.uniform(rng), side="right"), n - 1)
        return reward[q]  # type: ignore[no-any-return]

    @njit  # type: ignore[untyped-decorator]
    def reset(state: Any, rng: Any) -> None:
        state[0] = min(np.searchsorted(start, draws.uniform(rng), side="right"), n - 1)

    @njit  # type: ignore[untyped-decorator]
    def features(state: Any, out: Any) -> None:
        out[:] = 0.0
        out[int(state[0])] = 1.0

    return fc.Simulator(
        step, reset, n_state=1, n_actions=k, gamma=TABLE.gamma, limits=TABLE.limits, sense=TABLE.sense,
        state_features=features, n_features=n,
    )  # fmt: skip


@pytest.fixture(scope="module")
def long_walks() -> Any:
    """24 long walks under a policy of some spread: critics, states at the ends of segments, sums of the signals."""
    simulator, policy, n, R = table_simulator(), fc.LogLinear(), 40_000, 24
    bound = policy.bind(simulator)
    world = simulator.world(bound, True)
    d = bound.n_parameters
    theta = 0.7 * np.random.default_rng(3).standard_normal(d)
    actions = simulator.live_actions(bound, theta, n)
    words = streams(SEED, R)
    critic, total, ends = np.zeros((R, 2, d)), np.zeros((R, 2)), np.zeros(N_STATES)
    for r in range(R):
        w, sums, chain, place = np.zeros(2 * d), np.zeros(2), np.zeros((2, LANES), np.int64), np.zeros(1)
        for steps in (n // 4, n):  # the first towards the critics' fixed point
            found = run_walk(
                world, actions, words[r], chain, place, Averaged(0.05, math.inf), bound.data, theta, 1.0,
                simulator.gamma, steps, d, np.zeros(d), w, np.zeros(2 * d), sums, n,
            )  # fmt: skip
        ends += np.bincount(actions.visited[:found, 0].astype(int), minlength=N_STATES)
        critic[r], total[r] = w.reshape(2, d), sums / n
    z = theta.reshape(N_ACTIONS, N_STATES).T
    pi = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return simulator, world, pi.ravel(), critic, total, ends


def test_segments_end_by_the_occupancy(long_walks: Any) -> None:
    """p > 5e-5 on a fixed seed; the control, starts of segments, must fail."""
    _, _, pi, _, _, ends = long_walks
    law = fc.occupancy(TABLE, pi).reshape(-1, N_ACTIONS).sum(axis=1)
    assert p_value(law_test(ends, law)) > HOLDS
    assert p_value(law_test(ends, TABLE.start)) < FAILS


def test_signals_and_critics_agree_with_the_table(long_walks: Any) -> None:
    """Means over walks: signals (1-gamma) J; critics exact Q, but for what is left of their start, 2 % of it."""
    simulator, world, pi, critic, total, _ = long_walks
    raw = np.column_stack([TABLE.reward, TABLE.costs])
    signals = world.factor * raw + world.offset
    law = fc.occupancy(TABLE, pi)
    assert p_value(mean_test(total, law @ signals)) > HOLDS
    assert p_value(mean_test(total, pi / pi.sum() @ signals)) < FAILS
    step = TABLE.transition_matrix().toarray() @ np.kron(np.eye(N_STATES), np.ones((1, N_ACTIONS))) * pi
    right = np.linalg.solve(np.eye(len(pi)) - simulator.gamma * step, signals).T
    wrong = np.linalg.solve(np.eye(len(pi)) - (simulator.gamma - 0.05) * step, signals).T
    found = critic.reshape(-1, 2, N_ACTIONS, N_STATES).swapaxes(2, 3).reshape(len(critic), 2, -1)
    spread = found.std(axis=0, ddof=1) / math.sqrt(len(found))

    def excess(exact: Any) -> float:
        """Smallest p over entries, Bonferroni."""
        off = np.maximum(np.abs(found.mean(axis=0) - exact) - 0.02 * np.abs(exact).max(), 0.0)
        return float(2 * stats.t.sf((off / spread).max(), len(found) - 1) * off.size)

    assert excess(right) > HOLDS
    assert excess(wrong) < 1e-6


# Against Monte Carlo and the table of the ready queue.


def still(simulator: fc.Simulator, policy: Any, theta: Any, replicates: int = 8) -> tuple[Any, Any]:
    """Plug-in estimates of the last of five outer steps, and means of the signals, of a policy that stays."""
    run = make_run(
        simulator, policy, fc.CRPO(outer=5, inner=50_000, alpha=1e-300, tol=1e300, c_step=0.1), replicates
    )
    run.state.theta[:] = theta
    work, value = run.work(), np.empty((replicates, 1 + simulator.n_constraints))
    for r in range(replicates):
        run.advance(r, 5, work)
        value[r] = work.value
    assert (run.kept() == 5).all()
    return simulator.to_user_values(value), simulator.to_user_values(run.state.sums[:, : value.shape[1]] / 5)


@pytest.mark.parametrize("policy", [fc.LogLinear(), fc.NeuralSoftmax(hidden=(6,))], ids=["linear", "network"])
def test_estimates_of_a_policy_that_stays(queue: fc.Simulator, policy: Any) -> None:
    """Signals: J of the table, p > 5e-5. Plug-in: that within 1.5 %, the bias of a constant rate (0.5 to 1 % here)."""
    theta = 0.5 * np.random.default_rng(0).standard_normal(policy.bind(queue).n_parameters)
    value, signals = still(queue, policy, theta)
    table = fc.simulators.tandem_queue_table(buffer=25, gamma=0.8)
    rows = np.array([queue.features([n, k]) for n in range(26) for k in range(26)]).reshape(26 * 26, -1)
    if isinstance(policy, fc.LogLinear):
        z = rows @ theta.reshape(4, -1).T
    else:
        (inner, bias), (outer, last) = (theta[:30], theta[30:36]), (theta[36:60], theta[60:])
        z = np.tanh(rows @ inner.reshape(5, 6) + bias) @ outer.reshape(4, 6).T + last
    pi = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    exact = fc.occupancy(table, pi.ravel()) @ np.column_stack([table.reward, table.costs]) / 0.2
    assert p_value(mean_test(signals, exact)) > HOLDS
    assert p_value(mean_test(signals, 1.015 * exact)) < FAILS
    np.testing.assert_allclose(value.mean(axis=0), exact, rtol=0.015)
    np.testing.assert_allclose(
        queue.evaluate(policy, theta, rollouts=50_000).constraints, exact[1:], rtol=0.015
    )


def test_features_without_a_constant_are_told(queue: fc.Simulator) -> None:
    """Critics are then far off: features of the start are 0, and so is Q."""

    @njit  # type: ignore[untyped-decorator]
    def features(state: Any, out: Any) -> None:
        out[0], out[1] = state[0] / (1.0 + state[0]), state[1] / (1.0 + state[1])

    bare = fc.Simulator(queue._step.compiled, queue._reset.compiled, n_state=2, n_actions=4, gamma=0.8, limits=[2.5],
                        state_features=features, n_features=2)  # fmt: skip
    with pytest.warns(RuntimeWarning, match=r"features is constant .*out\[0\] = 1.0"):
        value, signals = still(bare, fc.LogLinear(), np.zeros(8), 2)
    assert value[:, 1] == pytest.approx([2.5, 2.5])
    assert (signals[:, 1] > 4.5).all()


# Runs.


def test_features_of_choices_learn_and_their_ball_is_out_of_reach() -> None:
    cart = fc.simulators.linear_quadratic(levels=3, gamma=0.9)
    one, two = (
        fc.solve(cart, fc.CRPO(outer=300, inner=3000, radius=radius), replicates=2) for radius in (None, 1e9)
    )
    assert (one.theta == two.theta).all()
    assert not one.empty.any()
    assert (one.last_quarter.constraints < 1.1 * cart.limits).all()
    assert (one.last_quarter.reward > -5.0).all()  # -33 at the start


def test_an_empty_output_is_told(queue: fc.Simulator) -> None:
    """No policy spends less than nothing."""
    idle = fc.simulators.tandem_queue(gamma=0.8, budget=-3.0)
    result = fc.solve(idle, fc.CRPO(outer=20, inner=400, tol=0.0))
    assert result.empty.all()
    assert np.isnan(result.mixture.reward).all()
    assert "they have no output; raise tol or inner" in result.summary()


@pytest.mark.parametrize("policy", [fc.LogLinear(), fc.NeuralSoftmax(hidden=(8,))], ids=["linear", "network"])
def test_it_learns(policy: Any) -> None:
    """The delivery fleet, in the mean of replicates: more earned than at random, within 10 % of the limit.

    Single replicates with a network differ: since rates come from earlier batches alone, from 4.6 to 8.6.
    """
    fleet = fc.simulators.delivery_fleet()
    result = fc.solve(fleet, fc.CRPO(outer=400, inner=1000), policy=policy, replicates=4, seed=3)
    assert result.finished
    assert not result.empty.any()
    assert np.isnan(result.gap).all()
    late, first = result.last_quarter, fleet.evaluate(policy, rollouts=4000)
    assert (late.reward > first.reward).all()
    assert late.reward.mean() > 1.5 * first.reward
    assert (late.constraints.mean(axis=0) < 1.1 * fleet.limits).all()
    assert "delivery fleet" in result.summary()


def bits(result: fc.Result) -> Any:
    return [array.tobytes() for array in result.run.state], result.trace.sums.tobytes()


def test_threads_pieces_and_files_give_the_same_bits(queue: fc.Simulator, tmp_path: Path) -> None:
    settings, path = fc.CRPO(outer=30, inner=25), tmp_path / "run.npz"
    whole = fc.solve(queue, settings, replicates=3, threads=1)

    def interrupt(progress: Any) -> None:
        if progress.outer >= 12:
            raise KeyboardInterrupt

    cut = fc.solve(queue, settings, replicates=3, threads=2, piece=5, progress=interrupt, checkpoint=path)
    assert not cut.finished
    assert bits(fc.resume(fc.load_run(path, queue))) == bits(whole)


def test_schedules_count_a_simulators_actions(queue: fc.Simulator) -> None:
    problem: Any = queue
    settings = fc.CRPO.for_samples(problem, 1e5)
    assert settings.outer * settings.inner == pytest.approx(1e5, rel=0.05)


@pytest.mark.parametrize(
    ("step_body", "reset_body", "message"),
    [
        ("state[0] += 1.0; return np.nan if state[0] > 300.0 else 0.0", "", r"reward or a cost.*\(state \[300.0\]"),
        ("state[0] = np.nan if state[0] > 299 else state[0] + 1; return 0.0", "", r"left a state.*\(state \[300.0\]"),
        ("state[0] += 1.0\n    if state[0] > 300.0: raise ValueError('late')\n    return 0.0", "", "step raised"),
        ("state[0] += 1.0; return 0.0", "if draws.uniform(rng) < 1e-3: raise ValueError('no')", "reset raised"),
        ("state[0] += 1.0; return 0.0", "", r"features raised or were not finite.*\(state \[301.0\], 301 steps"),
    ],
    ids=["reward", "state", "raise", "reset", "features"],
)  # fmt: skip
def test_a_fault_stops_a_run_and_says_where(step_body: str, reset_body: str, message: str) -> None:
    """The trial run, 50 steps, does not get that far."""
    scope: dict[str, Any] = {"np": np, "draws": draws}
    late = "features" in message
    exec(f"def step(state, action, rng, costs):\n    {step_body}\n", scope)
    exec(f"def reset(state, rng):\n    {reset_body or 'pass'}\n    state[0] = 0.0\n", scope)

    @njit  # type: ignore[untyped-decorator]
    def features(state: Any, out: Any) -> None:
        out[0] = np.nan if late and state[0] > 300.0 else 0.01 * state[0]
        out[1] = 1.0

    simulator = fc.Simulator(
        njit(scope["step"]),
        njit(scope["reset"]),
        n_state=1,
        n_actions=2,
        gamma=0.99,
        trial=50,
        state_features=features,
        n_features=2,
    )
    with pytest.warns(RuntimeWarning, match=message):
        result = fc.solve(simulator, fc.CRPO(outer=300, inner=500), replicates=2)
    assert (result.failed >= 0).all()
    assert np.isfinite(result.theta).all()


def test_gymnasium_environments_run() -> None:
    """A chain begins anew with each outer step: so replicates that share a thread do not disturb each other."""
    pytest.importorskip("gymnasium")
    cart = fc.GymSimulator("CartPole-v1", cost=lambda o, a, after, info: abs(after[0]) > 0.5, gamma=0.9, limits=[1.0],
                           trial=30)  # fmt: skip
    settings = fc.CRPO(outer=4, inner=40)
    one, two = (fc.solve(cart, settings, replicates=3, threads=threads) for threads in (1, 2))
    assert one.finished
    assert bits(one) == bits(two)
    assert np.abs(one.theta).max() > 0
