"""Concave utilities: against SciPy's general solver, by their own certificates, and by the optimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize
from scipy.sparse import csr_array, eye_array

import fastcmdp as fc
from fastcmdp import CMDP
from fastcmdp.errors import InfeasibleError, ModelError
from fastcmdp.exact import Utility, at_least, entropy, even_values, imitation, log_values, maximise


def utilities(cmdp: CMDP) -> list[Utility]:
    rng = np.random.default_rng(3)
    return [
        entropy(cmdp),
        log_values(cmdp),
        log_values(cmdp, [2.0, 0.0]),
        even_values(cmdp, 0.7),
        imitation(cmdp, rng.dirichlet(np.ones(cmdp.n_states))),
        imitation(cmdp, rng.dirichlet(np.ones(cmdp.n_choices))),
    ]


def by_scipy(cmdp: CMDP, utility: Utility, above: tuple[Utility, ...] = ()) -> float:
    """SLSQP over occupancies, from that of the uniform policy; ``above``: constraints g >= 0."""
    flow = -cmdp.gamma * cmdp.transition_matrix().toarray().T
    flow[cmdp.choice_state, np.arange(cmdp.n_choices)] += 1.0
    room = cmdp.signals[:, 1:].T
    first = fc.occupancy(cmdp, 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state])

    def scaled(g: Utility) -> NonlinearConstraint:
        size = np.ptp(g.gradient(first))
        return NonlinearConstraint(
            lambda nu: g.value(nu) / size, 0.0, np.inf, jac=lambda nu: g.gradient(nu)[None] / size
        )

    found = minimize(
        lambda nu: -utility.value(nu),
        first,
        jac=lambda nu: -utility.gradient(nu),
        bounds=[(0.0, 1.0)] * cmdp.n_choices,
        constraints=[
            LinearConstraint(flow, cmdp.unit * cmdp.start, cmdp.unit * cmdp.start),
            LinearConstraint(room, 0.0, np.inf),
            *(scaled(g) for g in above),
        ],
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-10},
    )
    # 8, with constraints: no direction is better to rounding, at a tolerance of 1e-10 that curved sets may not reach.
    assert found.success or (above and found.status == 8), found.message
    return float(-found.fun)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("which", range(6))
def test_the_best_utility_is_that_of_a_general_solver(seed: int, which: int) -> None:
    cmdp = fc.envs.garnet(n_states=6, n_actions=3, seed=seed)
    utility = utilities(cmdp)[which]
    best = maximise(cmdp, utility)
    assert best.value == pytest.approx(by_scipy(cmdp, utility), abs=2e-6)
    assert best.gap <= 1e-6
    assert (cmdp.unit * best.values.raw[1:] >= -1e-7).all()


def concave_constraints(cmdp: CMDP) -> list[Utility]:
    """Entropies and spreads halfway between those of the best policy without them and the most there is."""
    free = maximise(cmdp, log_values(cmdp, [1.0] + [0.0] * cmdp.n_constraints))
    found = []
    for g in (entropy(cmdp), even_values(cmdp, 0.7)):
        most = maximise(cmdp, g)
        found.append(at_least(g, 0.5 * (g.value(free.occupancy) + most.value)))
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_concave_constraints_are_those_of_a_general_solver(seed: int, which: tuple[int, ...]) -> None:
    cmdp = fc.envs.garnet(n_states=6, n_actions=3, seed=seed)
    above = tuple(concave_constraints(cmdp)[i] for i in which)
    goal = log_values(cmdp, [1.0, 0.0])
    try:
        best = maximise(cmdp, goal, subject_to=above)
    except InfeasibleError:
        assert len(which) == 2  # each alone is met halfway, both may not be
        return
    assert best.value == pytest.approx(by_scipy(cmdp, goal, above), abs=5e-5)
    assert best.gap <= 1e-6
    free = maximise(cmdp, goal)
    assert best.value <= free.value + 1e-6
    for g in above:
        assert g.value(best.occupancy) >= -4e-6 * np.ptp(g.gradient(best.occupancy))
        if g.value(free.occupancy) < -1e-3:
            assert best.value < free.value - 1e-5
    assert best.duals.shape == best.values.constraints.shape == (1,)


@pytest.mark.parametrize("which", range(6))
def test_gradients_are_those_of_the_values(which: int) -> None:
    cmdp = fc.envs.garnet(n_states=5, seed=1)
    utility = utilities(cmdp)[which]
    nu = fc.occupancy(cmdp, 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state])
    for q in range(0, cmdp.n_choices, 3):
        e = 1e-6 * np.eye(cmdp.n_choices)[q]
        slope = (utility.value(nu + e) - utility.value(nu - e)) / 2e-6
        assert slope == pytest.approx(utility.gradient(nu)[q], rel=1e-5, abs=1e-6)


def test_multipliers_are_the_price_of_a_limit() -> None:
    cmdp = fc.envs.garnet(n_states=6, seed=0)
    step = 1e-3
    best = maximise(cmdp, log_values(cmdp, [1.0, 0.0]))
    assert best.duals[0] > 0.1
    more = maximise(cmdp.with_limits(cmdp.limits + step), log_values(cmdp, [1.0, 0.0]))
    assert (more.value - best.value) / step == pytest.approx(best.duals[0], rel=0.02)
    linear = fc.optimum(cmdp)  # log J is monotone: the same policy, and the multiplier by the chain rule
    assert best.value == pytest.approx(np.log(linear.reward), abs=1e-7)
    assert best.duals[0] == pytest.approx(linear.duals[0] / linear.reward, rel=1e-4)


def test_a_gap_is_no_less_than_what_is_missing() -> None:
    """A target out of reach, and an answer that is compared with every deterministic mixture met on the way."""
    cmdp = fc.envs.river_swim().with_constraints([])
    target = np.eye(cmdp.n_states)[-1]
    best = maximise(cmdp, imitation(cmdp, target))
    assert -1.0 < best.value < -1e-3
    assert best.gap <= 1e-6
    rng = np.random.default_rng(0)
    utility = imitation(cmdp, target)
    for _ in range(200):
        raw = rng.dirichlet(np.ones(cmdp.n_choices))
        pi = raw / np.add.reduceat(raw, cmdp.state_to_choice[:-1])[cmdp.choice_state]
        assert utility.value(fc.occupancy(cmdp, pi)) <= best.value + best.gap


def test_states_that_are_never_reached_are_left_out() -> None:
    transition = np.zeros((3, 2, 3))
    transition[:2, 0, 0] = transition[:2, 1, 1] = transition[2, :, 2] = 1.0
    cmdp = CMDP.from_arrays(transition, np.zeros((3, 2)), gamma=0.9, start=0)
    best = maximise(cmdp, entropy(cmdp))
    assert best.value == pytest.approx(np.log(2), abs=1e-6)
    assert best.policy[4:].tolist() == [0.5, 0.5]


def far_grid(n: int, slip: float) -> CMDP:
    """n x n cells, four moves that go astray with probability ``slip``, all starts in a corner, gamma 0.99."""
    row, column = np.divmod(np.arange(n * n), n)
    moves = []
    for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        to = np.clip(row + down, 0, n - 1) * n + np.clip(column + right, 0, n - 1)
        moves.append(csr_array((np.ones(n * n), (np.arange(n * n), to)), shape=(n * n, n * n)))
    astray = sum(moves[1:], moves[0]) / 4.0
    rows = [(1.0 - slip) * move + slip * astray for move in moves]
    return CMDP.from_arrays(rows, np.zeros((n * n, 4)), gamma=0.99, start=0)


@pytest.mark.parametrize("slip", [0.0, 0.3])
def test_entropy_of_a_grid_whose_far_cells_a_random_walk_does_not_reach(slip: float) -> None:
    """10,000 cells: the occupancy of the uniform policy is below 1e-8 in most of them."""
    cmdp = far_grid(100, slip)
    walk = fc.exact.state_occupancy(cmdp, np.full(cmdp.n_choices, 0.25))
    assert np.median(walk) < 1e-8
    best = maximise(cmdp, entropy(cmdp))
    assert best.gap <= 1e-4
    assert entropy(cmdp).value(fc.occupancy(cmdp, best.policy)) == pytest.approx(best.value, abs=1e-9)


def test_faults_are_told() -> None:
    cmdp = fc.envs.garnet(n_states=5, seed=1)
    with pytest.raises(ModelError, match="target has shape"):
        imitation(cmdp, [1.0])
    with pytest.raises(ModelError, match="weights"):
        log_values(cmdp, [-1.0, 1.0])
    with pytest.raises(ModelError, match="penalty"):
        even_values(cmdp, -1.0)
    with pytest.raises(ModelError, match="choices"):
        maximise(fc.envs.garnet(n_states=6, seed=1), entropy(cmdp))
    with pytest.raises(InfeasibleError):
        maximise(cmdp.with_limits(0.0), entropy(cmdp))
    with pytest.raises(InfeasibleError):
        maximise(cmdp, entropy(cmdp), subject_to=[at_least(entropy(cmdp), np.log(5.1))])
    with pytest.raises(ModelError, match="choices"):
        maximise(cmdp, entropy(cmdp), subject_to=[entropy(fc.envs.garnet(n_states=6, seed=1))])


def two_arms() -> CMDP:
    """One action has the reward, the other the cost: J_r + J_c = 2."""
    return CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], [[1.0, 0.0]], gamma=0.5, limits=[9.0])


@pytest.mark.parametrize("least", [1e-3, 0.5, 1.5, 1.999])
def test_a_concave_constraint_on_a_logarithm_is_met(least: float) -> None:
    """The best policy without it leaves J_c at 1e-10, where the slope of its logarithm is 1e10."""
    cmdp = two_arms()
    above = at_least(log_values(cmdp, [0.0, 1.0]), np.log(least))
    best = maximise(cmdp, log_values(cmdp, [1.0, 0.0]), subject_to=[above])
    assert best.values.constraints[0] == pytest.approx(least, rel=1e-5)
    assert best.value == pytest.approx(np.log(2.0 - least), abs=1e-5 / (2.0 - least))
    assert best.gap < 1e-6


def test_a_logarithm_of_a_reward_that_is_hard_to_come_to_is_met() -> None:
    """Of 50 states in a row one leads on and one back: the uniform policy's J_c is below 1e-12."""
    n = 50
    transition = np.zeros((n, 2, n))
    transition[np.arange(n), 0, 0] = transition[np.arange(n), 1, np.minimum(np.arange(n) + 1, n - 1)] = 1.0
    reward, cost = np.zeros((n, 2)), np.zeros((n, 2))
    reward[:, 0], cost[n - 1, 1] = 1.0, 1.0
    cmdp = CMDP.from_arrays(transition, reward, cost, gamma=0.95, start=0, limits=[99.0])
    uniform = fc.evaluate(cmdp, np.full(2 * n, 0.5)).constraints[0]
    assert uniform < 1e-12
    above = at_least(log_values(cmdp, [0.0, 1.0]), 0.0)
    best = maximise(cmdp, log_values(cmdp, [1.0, 0.0]), subject_to=[above])
    assert best.values.constraints[0] == pytest.approx(1.0, rel=1e-5)
    linear = fc.optimum(cmdp.with_costs(cmdp.costs[:, 0], 1.0, ">="))
    assert best.values.reward == pytest.approx(linear.reward, rel=1e-5)


@pytest.mark.filterwarnings("ignore:.*leave hardly any room")
@pytest.mark.parametrize("room", [0.0, 1e-9, 1e-5])
def test_a_concave_constraint_at_its_most_is_met_to_rounding(room: float) -> None:
    cmdp = two_arms()
    for g, most in ((log_values(cmdp, [0.0, 1.0]), np.log(2.0)), (entropy_of_choices(cmdp), np.log(2.0))):
        best = maximise(cmdp, log_values(cmdp, [1.0, 0.0]), subject_to=[at_least(g, most - room)])
        assert g.value(best.occupancy) == pytest.approx(most - room, abs=1e-5)


def entropy_of_choices(cmdp: CMDP) -> Utility:
    return replace(entropy(cmdp), name="entropy of choices", features=eye_array(cmdp.n_choices, format="csr"))


def test_a_concave_constraint_that_no_policy_meets_is_named() -> None:
    cmdp = two_arms()
    reward, cost = log_values(cmdp, [1.0, 0.0]), log_values(cmdp, [0.0, 1.0])
    with pytest.raises(
        InfeasibleError, match=r"'log values >= 1.09861' beside the limits: .* misses it by 0.405465"
    ):
        maximise(cmdp, reward, subject_to=[at_least(cost, np.log(3.0))])
    with pytest.raises(
        InfeasibleError, match=r"a cut of 'log values >= 0.405465', >= 0 \(best attainable 0.3"
    ):
        maximise(cmdp, reward, subject_to=[at_least(reward, np.log(1.5)), at_least(cost, np.log(1.5))])


def test_a_logarithm_of_what_no_policy_comes_to_is_named() -> None:
    """The second reward is paid in a state that cannot be reached."""
    transition = np.zeros((2, 1, 2))
    transition[:, 0, :] = np.eye(2)
    cmdp = fc.CMDP.from_arrays(transition, [1.0, 1.0], [0.0, 1.0], gamma=0.9, limits=9.0, start=[1.0, 0.0])
    with pytest.raises(ModelError, match="nowhere that a policy comes to"):
        log_values(cmdp)
