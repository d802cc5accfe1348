"""Average reward, episodes and horizons: the discounted models that state them, against direct answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import fastcmdp as fc
from fastcmdp import CMDP
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.exact import average_of, average_optimum, best_average, horizon, stationary


def random_model(seed: int, gamma: float | str = 0.9) -> CMDP:
    """A unichain model with one cost, whose limit is active or not as it comes."""
    rng = np.random.default_rng(seed)
    n, a = int(rng.integers(2, 9)), int(rng.integers(1, 4))
    transition = rng.dirichlet(np.full(n, 0.3), size=(n, a))
    transition = 0.9 * transition + 0.1 * rng.dirichlet(np.ones(n))  # one row that all share: unichain
    reward, cost = rng.normal(size=(n, a)), rng.random((n, a))
    return CMDP.from_arrays(transition, reward, [cost], gamma, limits=[0.5])


def averages(cmdp: CMDP, pi: np.ndarray) -> np.ndarray:
    """Averages of reward and costs by the stationary law, a dense solve."""
    n = cmdp.n_states
    weights = np.zeros((n, cmdp.n_choices))
    weights[cmdp.choice_state, np.arange(cmdp.n_choices)] = pi
    chain = weights @ cmdp.transition_matrix().toarray()
    system = np.vstack([np.eye(n) - chain.T, np.ones(n)])
    law = np.linalg.lstsq(system, np.append(np.zeros(n), 1.0), rcond=None)[0]
    return law[cmdp.choice_state] * pi @ np.column_stack([cmdp.reward, cmdp.costs])


def linear_programme(cmdp: CMDP) -> Any:
    """The programme over stationary occupancies: sum_a x(s', a) = sum P x, sum x = 1."""
    balance = -cmdp.transition_matrix().toarray().T
    balance[cmdp.choice_state, np.arange(cmdp.n_choices)] += 1.0
    return linprog(
        -cmdp.reward,
        A_ub=cmdp.costs.T,
        b_ub=cmdp.limits,
        A_eq=np.vstack([balance, np.ones(cmdp.n_choices)]),
        b_eq=np.append(np.zeros(cmdp.n_states), 1.0),
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )


@pytest.mark.parametrize("seed", range(50))
def test_average_optimum_is_that_of_the_linear_programme(seed: int) -> None:
    plain = random_model(seed)
    cmdp = plain.with_criterion("average")
    direct = linear_programme(plain)
    if direct.status == 2:
        with pytest.raises(fc.InfeasibleError):
            fc.optimum(cmdp)
        return
    assert direct.status == 0
    best = fc.optimum(cmdp)
    assert best.reward == pytest.approx(-direct.fun, abs=1e-8)
    assert best.duals[0] == pytest.approx(-direct.ineqlin.marginals[0], abs=1e-6)
    found = averages(plain, best.policy[:-1])
    np.testing.assert_allclose(found, [best.reward, *best.constraints], atol=1e-8)
    assert found[1] <= plain.limits[0] + 1e-8


@pytest.mark.parametrize("seed", range(50))
def test_average_without_a_state_of_renewal(seed: int) -> None:
    """Models in general: the programme, the sweeps of its multipliers and the stationary law say the same."""
    plain = random_model(seed) if seed % 2 else fc.envs.garnet(n_states=20, seed=seed, limit=4.0)
    bounds = plain.limits if seed % 2 else 0.1 * plain.limits
    try:
        best = average_optimum(plain, limits=bounds)
    except fc.InfeasibleError:
        assert linear_programme(plain.with_limits(bounds)).status == 2
        return
    assert best.gap <= 1e-8
    low, high, _ = best_average(plain, plain.reward + (bounds - plain.costs) @ best.duals)
    assert low - 1e-8 <= best.reward <= high + 1e-8
    assert high - low <= 1e-8
    np.testing.assert_allclose(average_of(plain, best.policy), averages(plain, best.policy), atol=1e-9)
    if seed % 2:
        assert fc.optimum(plain.with_criterion("average")).reward == pytest.approx(best.reward, abs=1e-8)


@pytest.mark.parametrize("seed", range(50))
def test_average_of_any_policy(seed: int) -> None:
    plain = random_model(seed)
    raw = np.random.default_rng(1000 + seed).random(plain.n_choices)
    pi = raw / np.add.reduceat(raw, plain.state_to_choice[:-1])[plain.choice_state]
    value = fc.evaluate(plain.with_criterion("average"), np.append(pi, 1.0))
    np.testing.assert_allclose([value.reward, *value.constraints], averages(plain, pi), atol=1e-9)


@pytest.mark.parametrize("seed", range(50))
def test_average_of_the_optimum_in_a_long_simulation(seed: int) -> None:
    """100 chains of 2000 steps of the optimum's policy: four standard errors of their means, and the start's bias."""
    plain = random_model(seed)
    try:
        best = fc.optimum(plain.with_criterion("average"))
    except fc.InfeasibleError:
        pytest.skip("no policy meets the limit")
    rng = np.random.default_rng(seed)
    chains, steps = 100, 2_000
    above = np.cumsum(best.policy[:-1]) - 1e-15
    begin = np.concatenate(([0.0], np.cumsum(best.policy[:-1])))[plain.state_to_choice[:-1]]
    step = np.cumsum(plain.transition_matrix().toarray(), axis=1)
    state, total = np.zeros(chains, int), np.zeros(chains)
    for _ in range(steps):
        q = np.searchsorted(above, begin[state] + rng.random(chains))
        q = np.minimum(q, plain.state_to_choice[state + 1] - 1)
        total += plain.reward[q]
        state = (step[q] < rng.random((chains, 1))).sum(axis=1).clip(max=plain.n_states - 1)
    mean = total / steps
    bias = 10 * np.ptp(plain.reward) / steps  # it begins anew with probability 0.1 a step
    assert abs(mean.mean() - best.reward) <= 4 * mean.std() / np.sqrt(chains) + bias


def test_average_of_a_multichain_model_is_refused_with_its_classes() -> None:
    stay = np.eye(3)[:, None]
    with pytest.raises(ModelError, match=r"multichain: .*\{0\} and \{1\}"):
        CMDP.from_arrays(stay, [[0.0], [1.0], [2.0]], criterion="average")
    move = np.eye(3)[[1, 2, 0]][:, None]
    both = np.concatenate([stay, move], axis=1)  # each policy of one class alone is fine; staying is not
    with pytest.raises(ModelError, match="multichain"):
        CMDP.from_arrays(both, np.zeros((3, 2)), criterion="average")


def without_a_common_state() -> CMDP:
    """From each of three states to either other: policies settle in any two of the three."""
    transition = np.zeros((3, 2, 3))
    for s in range(3):
        for a in range(2):
            transition[s, a, (s + 1 + a) % 3] = 1.0
    return CMDP.from_arrays(transition, [[1.0, 0.0], [0.2, 0.4], [0.0, 0.3]], gamma=0.5)


def test_average_without_a_common_state_restarts_and_says_so() -> None:
    plain = without_a_common_state()
    with pytest.warns(RuntimeWarning, match="restarts with probability 0.001 a step.*average_of"):
        cmdp = plain.with_criterion("average")
    assert cmdp.n_choices == plain.n_choices
    assert cmdp.gamma == pytest.approx(0.999, abs=1e-12)
    np.testing.assert_allclose(cmdp.start, 1 / 3, atol=1e-12)  # the uniform policy's stationary law
    assert fc.optimum(cmdp).reward == pytest.approx(average_optimum(plain).reward, abs=1e-3)


@pytest.mark.filterwarnings("ignore:no state is visited again:RuntimeWarning")
@pytest.mark.parametrize("seed", range(50))
def test_averages_of_a_chain_that_restarts_are_off_by_what_is_stated(seed: int) -> None:
    """Sparse models of 20 states: the uniform policy's averages to rounding, those of any to the first-order term."""
    plain = fc.envs.garnet(n_states=20, seed=seed, limit=4.0)
    cmdp = plain.with_criterion("average", limits=0.1 * plain.limits)
    if "rest" in cmdp.variables:
        pytest.skip("it has a state of renewal")
    rng = np.random.default_rng(seed)
    uniform = np.full(plain.n_choices, 0.25)
    for pi in (uniform, *(rng.dirichlet(np.full(4, 0.3), size=20).ravel() for _ in range(5))):
        exact = average_of(plain, pi)
        value = fc.evaluate(cmdp, pi)
        found = np.array([value.reward, *value.constraints])
        # h by a dense solve: (I - P + 1 d) h = f - J, d . h = 0
        weights = np.zeros((20, plain.n_choices))
        weights[plain.choice_state, np.arange(plain.n_choices)] = pi
        chain = weights @ plain.transition_matrix().toarray()
        law = np.add.reduceat(stationary(plain, pi), plain.state_to_choice[:-1])
        signals = weights @ np.column_stack([plain.reward, plain.costs]) - exact
        h = np.linalg.solve(np.eye(20) - chain + law, signals)
        off = cmdp.unit * cmdp.start @ h
        np.testing.assert_allclose(found, exact + off, atol=20 * (cmdp.unit * np.ptp(h)) ** 2)
        np.testing.assert_allclose(found, exact, atol=1e-9 if pi is uniform else 3e-4)


def test_criterion_is_given_once() -> None:
    one = np.ones((1, 1, 1))
    with pytest.raises(ModelError, match="takes no gamma"):
        CMDP.from_arrays(one, [[1.0]], gamma=0.9, criterion="average")
    with pytest.raises(ModelError, match="averag"):
        CMDP.from_arrays(one, [[1.0]], gamma="averag")
    with pytest.raises(SettingError, match="steps"):
        random_model(0).with_criterion("steps")
    assert CMDP.from_arrays(one, [[3.0]], gamma="average").gamma == 0.5
    assert fc.evaluate(CMDP.from_arrays(one, [[3.0]], gamma="average"), [1.0, 1.0]).reward == pytest.approx(
        3.0
    )


def frozen_lake() -> CMDP:
    pytest.importorskip("gymnasium")
    return fc.envs.from_gymnasium("FrozenLake-v1", start="environment", limit=0.5)


def test_frozen_lake_of_100_steps_is_backward_induction() -> None:
    lake = frozen_lake()
    timed = lake.with_criterion("steps", steps=100, limits=[1.0])
    best = fc.optimum(timed)
    assert best.reward == pytest.approx(horizon(lake, 100)[0], abs=1e-12)
    pi = np.random.default_rng(0).dirichlet(np.ones(lake.n_actions), size=lake.n_states)
    pi = np.where(np.arange(lake.n_actions) < np.diff(lake.state_to_choice)[:, None], pi, 0.0)
    pi /= pi.sum(axis=1, keepdims=True)
    state = timed.variables["state"][timed.choice_state]
    carried = np.where(state < 0, 1.0, pi[state, timed.action_of_choice])
    value = fc.evaluate(timed, carried)
    np.testing.assert_allclose([value.reward, *value.constraints], horizon(lake, 100, pi), atol=1e-12)


def test_frozen_lake_of_100_steps_is_what_gymnasium_plays() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    lake = frozen_lake()
    timed = lake.with_criterion("steps", steps=100, limits=[1.0])
    best = fc.optimum(timed)
    choice = {
        (int(timed.variables["t"][s]), int(timed.variables["state"][s])): int(
            timed.action_of_choice[q0 + best.policy[q0:q1].argmax()]
        )
        for s, (q0, q1) in enumerate(zip(timed.state_to_choice[:-1], timed.state_to_choice[1:], strict=True))
    }
    env = gymnasium.make("FrozenLake-v1")
    n, won = 2_000, 0.0
    for episode in range(n):
        s, _ = env.reset(seed=episode)
        over, t = False, 0
        while not over:
            s, reward, ended, cut, _ = env.step(choice[t, int(s)])
            won, over, t = won + float(reward), ended or cut, t + 1
        assert t <= 100
    p = best.reward
    assert 0.5 < p < 1.0
    assert abs(won / n - p) <= 4 * np.sqrt(p * (1 - p) / n)


def test_episodes_without_discount() -> None:
    """A gambler between 0 and 5: the exact chances to reach 5, and the length of play."""
    n, p = 6, 0.4
    transition = np.zeros((n, 1, n))
    for s in range(1, n - 1):
        transition[s, 0, [s - 1, s + 1]] = 1 - p, p
    transition[[0, n - 1], 0, [0, n - 1]] = 1.0
    reward = np.zeros((n, 1, n))
    reward[n - 2, 0, n - 1] = 1.0
    cost = np.ones((n, 1))
    cost[[0, -1]] = 0.0
    cmdp = CMDP.from_arrays(transition, transition[:, :, 5:][:, :, 0] * np.isin(np.arange(n), [n - 2])[:, None],
                            [cost], gamma=1, start=2, limits=[100.0])  # fmt: skip
    ratio = (1 - p) / p
    value = fc.evaluate(cmdp, np.ones(n))
    chance = (ratio**2 - 1) / (ratio**5 - 1)
    assert value.reward == pytest.approx(chance, rel=1e-12)
    assert value.constraints[0] == pytest.approx((2 - 5 * chance) / (1 - 2 * p), rel=1e-12)


def test_a_policy_that_never_ends_is_named() -> None:
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[1, 0, 0] = transition[0, 1, 2] = transition[1, 1, 2] = 1.0
    transition[2, :, 2] = 1.0
    reward = [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    with pytest.raises(ModelError, match="action 0 in state 0, action 0 in state 1 stays among states 0, 1"):
        CMDP.from_arrays(transition, reward, criterion="episodes", start=0)
    with pytest.raises(ModelError, match="needs an end"):
        CMDP.from_arrays(transition, np.ones((3, 2)), gamma=1)


def test_average_by_name_in_specs_files_and_sweeps(tmp_path: Any) -> None:
    from fastcmdp.envs import from_spec
    from fastcmdp.sweep.reading import loads

    sweep = loads(
        'samples = 1e4\ngamma = "average"\nmodels = ["env:garnet?n_states=6"]\nalgorithms = "pd-anpg"'
    )
    (model,) = sweep.grids[0].expand(gammas=sweep.gamma)
    assert model.label == "env:garnet?n_states=6&gamma=average"
    named = from_spec("env:garnet?n_states=6&gamma=average")
    plain = fc.envs.garnet(n_states=6)
    assert model.build().fingerprint() == named.fingerprint()
    expected = plain.with_criterion("average", limits=plain.unit * plain.limits)
    assert named.fingerprint() == expected.fingerprint()
    fc.save(plain, tmp_path / "m.npz")
    loaded = fc.load(tmp_path / "m.npz", gamma="average")
    assert loaded.fingerprint() == plain.with_criterion("average").fingerprint()


def ending_model(seed: int) -> CMDP:
    """Random sparse rows with two ends and starts anywhere; some have policies that never end."""
    rng = np.random.default_rng(seed)
    n, a = 5, 2
    transition = np.zeros((n, a, n))
    for s in range(n - 2):
        for action in range(a):
            transition[s, action, rng.choice(n, size=2, replace=False)] = rng.dirichlet(np.ones(2))
    transition[[n - 2, n - 1], :, [n - 2, n - 1]] = 1.0
    live = (np.arange(n) < n - 2)[:, None]
    signals = rng.normal(size=(2, n, a)) * live
    return CMDP.from_arrays(
        transition, signals[0], [signals[1]], 0.5, start=rng.dirichlet(np.ones(n)), limits=[100.0]
    )


@pytest.mark.parametrize("seed", range(60))
def test_sums_of_random_episodes_and_which_models_are_refused(seed: int) -> None:
    """Each deterministic policy in turn: does it end, and what is its sum? Against dense solves."""
    plain = ending_model(seed)
    chains = []
    for number in range(2**3):
        choice = np.array([2 * s + (number >> s & 1 if s < 3 else 0) for s in range(5)])
        chains.append((choice, plain.transition_matrix().toarray()[choice][:3, :3]))
    stuck = any(np.abs(np.linalg.eigvals(inner)).max() > 1 - 1e-12 for _, inner in chains)
    if stuck:
        with pytest.raises(ModelError, match="never ends"):
            plain.with_criterion("episodes")
        return
    cmdp = plain.with_criterion("episodes")
    for choice, inner in chains:
        pi = np.zeros(10)
        pi[choice] = 1.0
        signals = np.column_stack([plain.reward, plain.costs])[choice[:3]]
        exact = plain.start[:3] @ np.linalg.solve(np.eye(3) - inner, signals)
        value = fc.evaluate(cmdp, pi)
        np.testing.assert_allclose([value.reward, *value.constraints], exact, rtol=1e-9, atol=1e-9)


def test_an_action_that_may_end_is_not_named_as_one_that_stays() -> None:
    transition = np.zeros((2, 2, 2))
    transition[0, 0] = [0.5, 0.5]  # may end
    transition[0, 1, 0] = transition[1, :, 1] = 1.0
    with pytest.raises(ModelError, match="takes action 1 in state 0 stays"):
        CMDP.from_arrays(transition, [[1.0, 1.0], [0.0, 0.0]], gamma=1, start=0)


@pytest.mark.parametrize("ends", [(1e-6, 0.999001e-6), (1e-8, 0.9001e-8)])
def test_the_longest_time_is_the_greatest_where_ends_are_rare(ends: tuple[float, float]) -> None:
    """Two actions that end nearly as seldom: each has its own sum of rewards, 1 / the probability of its end."""
    transition = np.zeros((2, 2, 2))
    transition[0, :, 1], transition[0, :, 0] = ends, 1.0 - np.array(ends)
    transition[1, :, 1] = 1.0
    cmdp = CMDP.from_arrays(transition, np.array([[1.0] * 2, [0.0] * 2]), gamma=1, start=[1.0, 0.0])
    for action, end in enumerate(ends):
        pi = np.zeros((2, 2))
        pi[0, action] = pi[1, 0] = 1.0
        assert fc.evaluate(cmdp, pi).reward == pytest.approx(1.0 / end, rel=1e-6)


def test_times_beyond_double_precision_are_refused() -> None:
    transition = np.array([[[1.0 - 1e-12, 1e-12]], [[0.0, 1.0]]])
    with pytest.raises(ModelError, match=r"steps in the mean from state 0.*probabilities of an end"):
        CMDP.from_arrays(transition, np.array([[1.0], [0.0]]), gamma=1, start=[1.0, 0.0])


@pytest.mark.parametrize("rare", [1e-10, 1e-13, 1e-17])
def test_a_state_that_is_hardly_ever_visited_is_no_state_of_renewal(rare: float) -> None:
    """State 0 is one; it takes 1 / rare steps to state 1."""
    cmdp = CMDP.from_arrays([[[1.0 - rare, rare]], [[0.5, 0.5]]], [[1.0], [0.0]], criterion="average")
    assert cmdp.horizon <= 10.0
    assert fc.evaluate(cmdp, np.ones(3)).reward == pytest.approx(1.0, abs=1e-9)


def test_an_average_of_states_that_are_each_rare_under_some_policy() -> None:
    """From each of three states an action stays there but for 1e-11: none is visited soon under every policy."""
    stay = (1.0 - 1.5e-11) * np.eye(3) + 0.5e-11
    cycle = np.roll(np.eye(3), 1, axis=1)
    transition = np.stack([stay, 0.9 * cycle + 0.1 / 3], axis=1)
    reward = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    with pytest.warns(RuntimeWarning, match="or not in 1e\\+09 steps"):
        cmdp = CMDP.from_arrays(transition, reward, criterion="average")
    assert fc.evaluate(cmdp, np.tile([0.5, 0.5], 3)).reward == pytest.approx(1 / 3, abs=1e-9)


@pytest.mark.parametrize("rare", [1e-11, 1e-17])
def test_an_average_over_parts_that_are_hardly_ever_left_is_refused(rare: float) -> None:
    transition = [[[1.0 - rare, rare]], [[rare, 1.0 - rare]]]
    with pytest.raises(
        ModelError, match=r"steps to forget where it was.*least probabilities, or give a discount"
    ):
        CMDP.from_arrays(transition, [[1.0], [0.0]], criterion="average")
