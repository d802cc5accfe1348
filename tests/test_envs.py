"""The generators against independent constructions of their models, the limits against programmes."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import linprog

from fastcmdp.cmdp import CMDP
from fastcmdp.envs import (
    GENERATORS,
    from_gymnasium,
    from_spec,
    from_steps,
    garnet,
    grid_world,
    halfway_limit,
    inventory,
    queue,
    resource_gathering,
    river_swim,
)
from fastcmdp.envs import garnets as garnets_module
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.exact import optimum

MODELS = Path(__file__).parents[2] / "shared" / "models"
KNOWN = {  # optimum and multipliers: found by a programme over occupancies in scipy's linprog as well
    "maintenance": (157.780139, [0.28075, 2.77859]),
    "dam": (601972.878, [1409.16, 5332.56]),
    "wireless": (-540.374617, [5.73689, 0.356179]),
    "treatment": (0.475162411, [0.00709249]),
    "two_echelon": (-165.025823, [0.0, 17.2086]),
    "taxi": (73.6977645, [4.40897, 0.0, 100.896]),
}
SPECS = [
    f"env:{name}" for name in GENERATORS if name not in {"hard_instance", *KNOWN}
]  # it has a file of its own
TABLES = ["gym:FrozenLake-v1", "gym:CliffWalking-v1", "gym:Taxi-v4"]


def dense(cmdp: CMDP) -> dict[tuple[int, int], dict[int, float]]:
    """{(state, action): {next state: probability}}, read off the compressed rows one by one."""
    rows: dict[tuple[int, int], dict[int, float]] = {}
    for s in range(cmdp.n_states):
        for q in range(cmdp.state_to_choice[s], cmdp.state_to_choice[s + 1]):
            row: dict[int, float] = {}
            for b in range(cmdp.choice_to_branch[q], cmdp.choice_to_branch[q + 1]):
                to = int(cmdp.branch_target[b])
                row[to] = row.get(to, 0.0) + float(cmdp.branch_prob[b])
            rows[s, int(cmdp.action_of_choice[q])] = row
    return rows


def programme(cmdp: CMDP, goal: NDArray[Any], upper: Any = None, limits: Any = None) -> Any:
    """min goal . x over occupancy measures x (unnormalised) with upper x <= limits."""
    flow = np.zeros((cmdp.n_states, cmdp.n_choices))
    flow[cmdp.choice_state, np.arange(cmdp.n_choices)] = 1.0
    flow -= cmdp.gamma * cmdp.transition_matrix().toarray().T
    result = linprog(goal, A_eq=flow, b_eq=cmdp.start, A_ub=upper, b_ub=limits, method="highs")
    assert result.status == 0
    return result


def losses(cmdp: CMDP) -> NDArray[np.float64]:
    return cmdp.costs * np.array([1.0 if sense == "<=" else -1.0 for sense in cmdp.sense])


def halfway_by_programmes(cmdp: CMDP) -> float:
    """The halfway rule for one constraint "<=": greatest reward, then least cost among such policies."""
    cost = cmdp.costs[:, 0]
    greatest = -programme(cmdp, -cmdp.reward).fun
    best = programme(cmdp, cost, -cmdp.reward[None, :], [-greatest + 1e-9 * abs(greatest)]).fun
    return float(best + programme(cmdp, cost).fun) / 2


# Every problem by its defaults


@pytest.mark.parametrize("spec", SPECS + TABLES)
def test_defaults_have_an_active_constraint_and_room(spec: str) -> None:
    cmdp = load(spec)
    best = programme(cmdp, -cmdp.reward, losses(cmdp).T, cmdp.limits)
    multiplier = -best.ineqlin.marginals[0]
    answer = optimum(cmdp)
    assert answer.duals == pytest.approx(multiplier, rel=1e-6)
    assert multiplier > 1e-3 * cmdp.reward_scale / cmdp.constraint_scale[0]
    least, greatest = answer.constraint_range[0]
    assert cmdp.limits[0] - least > 0.01 * (greatest - least)
    assert answer.slater > 0.01


@pytest.mark.parametrize("spec", [s for s in SPECS if s != "env:resource_gathering"] + TABLES[:2])
def test_default_limits_are_halfway(spec: str) -> None:
    cmdp = load(spec)
    # The programme that breaks ties gives away 1e-9 of the reward, worth up to 1e-7 of the cost.
    np.testing.assert_allclose(cmdp.limits[0], halfway_by_programmes(cmdp), rtol=1e-6)


@pytest.mark.parametrize("spec", SPECS + TABLES)
def test_choices_start_and_rows_are_sound(spec: str) -> None:
    cmdp = load(spec)
    np.testing.assert_allclose([sum(row.values()) for row in dense(cmdp).values()], 1.0, rtol=1e-14)
    assert cmdp.start.sum() == pytest.approx(1.0, abs=1e-14)
    assert cmdp.n_constraints == 1
    given = from_spec(spec + "?limit=0.125&gamma=0.5")
    assert given.limits.tolist() == [0.125]
    assert given.gamma == 0.5
    assert given.branch_prob.tolist() == cmdp.branch_prob.tolist()


def load(spec: str) -> CMDP:
    if spec.startswith("gym:"):
        pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    return from_spec(spec)


# The halfway rule


def test_halfway_on_paper() -> None:
    """One state, choices worth 2, 2, 0 that cost 3, 1, 0; gamma 1/2 doubles all. The tie goes to 1."""
    cmdp = CMDP([0, 3], [0, 1, 2, 3], [0, 0, 0], [1, 1, 1], [2, 2, 0], [3, 1, 0], gamma=0.5, limits=9)
    assert halfway_limit(cmdp).tolist() == [(2 * 1 + 0) / 2]


def test_halfway_for_a_utility() -> None:
    """The tie goes to the greater utility: 2 * 2 of at most 2 * 5."""
    cmdp = CMDP(
        [0, 3], [0, 1, 2, 3], [0, 0, 0], [1, 1, 1], [2, 2, 0], [1, 2, 5], gamma=0.5, limits=0, sense=">="
    )
    assert halfway_limit(cmdp).tolist() == [(4 + 10) / 2]


@pytest.mark.parametrize("seed", range(5))
def test_halfway_with_ties_everywhere(seed: int) -> None:
    """Rewards and costs of few values, a state-dependent number of actions, several best policies."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, size=6)
    choices = int(counts.sum())
    cmdp = CMDP(
        np.r_[0, np.cumsum(counts)],
        np.arange(choices + 1) * 2,
        rng.integers(0, 6, size=2 * choices),
        np.full(2 * choices, 0.5),
        rng.integers(0, 2, size=choices),
        rng.integers(0, 2, size=choices),
        gamma=0.9,
        limits=0,
    )
    greatest = -programme(cmdp, -cmdp.reward).fun
    cost = cmdp.costs[:, 0]
    best = programme(cmdp, cost, -cmdp.reward[None, :], [-greatest + 1e-9]).fun
    if best - programme(cmdp, cost).fun > 1e-6:
        np.testing.assert_allclose(halfway_limit(cmdp), halfway_by_programmes(cmdp), rtol=1e-6)
    else:
        assert halfway_limit(cmdp)[0] > best + 1e-3


def test_halfway_where_good_news_travels_far() -> None:
    """29 steps of cost 1 lead to an endless reward that a few sweeps do not see from the start."""
    stay, step = np.eye(30), np.eye(30, k=1)
    step[-1, -1] = 1.0
    cost = np.tile([0.0, 1.0], (30, 1))
    cost[-1] = 0.0
    reward = np.r_[np.zeros(29), 1.0]
    cmdp = CMDP.from_arrays(np.stack([stay, step], axis=1), reward, cost, gamma=0.99, start=0, limits=0)
    assert halfway_limit(cmdp)[0] == pytest.approx((1 - 0.99**29) / (1 - 0.99) / 2)


def test_halfway_of_several_costs_is_half_of_what_is_attainable_together() -> None:
    cmdp = garnet(n_states=15, n_actions=3, seed=2, n_constraints=3)
    assert halfway_limit(cmdp).tolist() == cmdp.limits.tolist()
    best = cmdp.costs.T @ programme(cmdp, -cmdp.reward).x
    room = best - [programme(cmdp, cost).fun for cost in cmdp.costs.T]
    # Largest t with J <= best - t room, over occupancy measures and t together.
    flow = np.zeros((cmdp.n_states, cmdp.n_choices + 1))
    flow[cmdp.choice_state, np.arange(cmdp.n_choices)] = 1.0
    flow[:, :-1] -= cmdp.gamma * cmdp.transition_matrix().toarray().T
    reach = -linprog(
        np.r_[np.zeros(cmdp.n_choices), -1.0],
        A_eq=flow,
        b_eq=cmdp.start,
        A_ub=np.c_[cmdp.costs.T, room],
        b_ub=best,
    ).fun
    assert 0.1 < reach < 0.9  # otherwise this problem does not tell the rule from simpler ones
    np.testing.assert_allclose(cmdp.limits, best - reach / 2 * room, rtol=1e-7)


def test_opposite_costs_have_no_halfway() -> None:
    cmdp = garnet(n_constraints=1)
    opposite = CMDP(
        cmdp.state_to_choice,
        cmdp.choice_to_branch,
        cmdp.branch_target,
        cmdp.branch_prob,
        cmdp.reward,
        [cmdp.costs[:, 0], 1.0 - cmdp.costs[:, 0]],
        gamma=0.9,
        limits=[0, 0],
        names=("reward", "heat", "cold"),
    )
    with pytest.raises(ModelError, match="heat, cold trade against each other"):
        halfway_limit(opposite)


def test_nothing_to_trade() -> None:
    """The best policy is the cheapest: halfway to the uniform policy's cost; a tenth if all are equal."""
    cheap = CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [1, 0], [1, 3], gamma=0.5, limits=0)
    assert halfway_limit(cheap).tolist() == [(2 + 4) / 2]
    flat = CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [1, 0], [3, 3], gamma=0.5, limits=0)
    assert halfway_limit(flat).tolist() == [6.6]
    assert garnet(n_constraints=0).limits.shape == (0,)
    assert garnet(n_states=1, n_actions=1).n_choices == 1


# Garnets


@pytest.mark.parametrize(("n_states", "n_branches"), [(7, 3), (40, 30), (12, None), (5, 5), (300, 1)])
def test_garnet_rows(n_states: int, n_branches: int | None) -> None:
    cmdp = garnet(n_states, 3, n_branches, seed=4, limit=1.0)
    width = min(n_branches or n_states, n_states)
    targets = cmdp.branch_target.reshape(-1, width)
    assert targets.shape[0] == cmdp.n_choices == 3 * n_states
    assert (np.diff(targets, axis=1) > 0).all()
    assert targets.min() >= 0
    assert targets.max() < n_states
    assert cmdp.state_to_choice.tolist() == list(range(0, 3 * n_states + 1, 3))
    assert 0 <= cmdp.reward.min() < cmdp.reward.max() < 1
    assert 0 <= cmdp.costs.min() < cmdp.costs.max() < 1


@pytest.mark.parametrize(("n_states", "n_branches"), [(20, 5), (20, 18)], ids=["floyd", "shuffle"])
def test_garnet_targets_are_uniform_subsets(n_states: int, n_branches: int) -> None:
    """How often each state, and how many of the first half. False alarms: 2e-4, at a fixed seed."""
    cmdp = garnet(n_states, 500, n_branches, seed=1, limit=1.0)
    targets = cmdp.branch_target.reshape(-1, n_branches)
    assert (np.diff(targets, axis=1) > 0).all()
    marginal = np.bincount(targets.ravel(), minlength=n_states)
    expected = len(targets) * n_branches / n_states
    # The counts are negatively correlated by the fixed row length: their variance is expected * (1 - b/S) *
    # S/(S-1).
    scale = (1 - n_branches / n_states) * n_states / (n_states - 1)
    assert stats.chi2.sf(((marginal - expected) ** 2).sum() / expected / scale, n_states - 1) > 1e-4
    low = stats.hypergeom(n_states, 10, n_branches)
    found = np.bincount((targets < 10).sum(axis=1), minlength=n_branches + 1)
    law = low.pmf(np.arange(n_branches + 1)) * len(targets)
    likely = law > 5
    assert stats.chisquare(found[likely], law[likely] * found[likely].sum() / law[likely].sum()).pvalue > 1e-4
    # Negative control: drawing with replacement would show.
    replaced = stats.binom(n_branches, 0.5).pmf(np.arange(n_branches + 1))[likely]
    assert stats.chisquare(found[likely], replaced / replaced.sum() * found[likely].sum()).pvalue < 1e-4


def test_garnet_probabilities_are_uniform_on_the_simplex() -> None:
    """Each spacing of b - 1 uniform points is Beta(1, b - 1). False alarms: 3e-4, at a fixed seed."""
    prob = garnet(50, 40, 4, seed=3, limit=1.0).branch_prob.reshape(-1, 4)
    for column in (0, 1, 3):
        assert stats.kstest(prob[:, column], stats.beta(1, 3).cdf).pvalue > 1e-4
    normalised = np.random.default_rng(0).random((2000, 4))  # control: uniforms divided by their sum
    normalised /= normalised.sum(axis=1, keepdims=True)
    assert stats.kstest(normalised[:, 0], stats.beta(1, 3).cdf).pvalue < 1e-4


def test_garnet_seeds_and_streams() -> None:
    first, again, other = garnet(seed=5), garnet(seed=5), garnet(seed=6)
    assert first.branch_prob.tolist() == again.branch_prob.tolist()
    assert first.limits.tolist() == again.limits.tolist()
    assert first.branch_prob.tolist() != other.branch_prob.tolist()
    assert first.reward.tolist() != other.reward.tolist()
    more = garnet(seed=5, n_constraints=3)
    assert more.branch_target.tolist() == first.branch_target.tolist()
    assert more.reward.tolist() == first.reward.tolist()
    assert more.costs[:, 0].tolist() == first.costs[:, 0].tolist()


@pytest.mark.parametrize("gamma", [0.9, 0.999])
def test_garnet_limit_of_large_models(gamma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against linear solves: halfway between the uniform and the greedy policy's costs."""
    monkeypatch.setattr(garnets_module, "_EXACT_STATES", 99)
    cmdp = garnet(300, 4, 5, gamma=gamma, seed=0, n_constraints=2)
    transition = cmdp.transition_matrix().toarray()
    total = cmdp.costs.sum(axis=1)
    for i, limit in enumerate(cmdp.limits):
        cost = cmdp.costs[:, i]
        greedy = [4 * s + int(np.argmin(total[4 * s : 4 * s + 4])) for s in range(300)]
        uniform = np.linalg.solve(
            np.eye(300) - gamma * transition.reshape(300, 4, 300).mean(axis=1),
            cost.reshape(300, 4).mean(axis=1),
        )
        careful = np.linalg.solve(np.eye(300) - gamma * transition[greedy], cost[greedy])
        np.testing.assert_allclose(limit, (uniform.mean() + careful.mean()) / 2, rtol=1e-5)


@pytest.mark.slow
def test_garnet_with_a_million_states() -> None:
    """Never more than 100 bytes a branch in all: run apart, for the peak of a process counts all before."""
    code = (
        "import resource; from fastcmdp.envs import garnet; c = garnet(1_000_000, 4, 5);"
        "print(c.n_branches, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    branches, kilobytes = map(int, out.split())
    assert branches == 20_000_000
    assert kilobytes < 2_000_000


# Grids


def test_grid_world_step_by_step() -> None:
    layout = ["..#", "SHG"]
    cmdp = grid_world(layout=layout, slip=0.2, limit=1.0)
    # States 0 and 1 are the first row, 2 S, 3 H, 4 G. Actions right, down, left, up.
    rows = dense(cmdp)
    assert rows[2, 0] == pytest.approx({3: 0.8, 0: 0.1, 2: 0.1})
    assert rows[2, 1] == pytest.approx({2: 0.9, 3: 0.1})
    assert rows[3, 0] == pytest.approx({4: 0.8, 1: 0.1, 3: 0.1})
    assert rows[3, 3] == pytest.approx({1: 0.8, 2: 0.1, 4: 0.1})
    assert rows[0, 2] == pytest.approx({0: 0.9, 2: 0.1})
    assert rows[1, 0] == pytest.approx({1: 0.9, 3: 0.1})
    assert all(rows[4, a] == pytest.approx({2: 1.0}) for a in range(4))
    assert cmdp.reward.reshape(5, 4).tolist() == [[0] * 4] * 4 + [[1] * 4]
    assert cmdp.costs.reshape(5, 4).tolist() == [[0] * 4] * 3 + [[1] * 4] + [[0] * 4]
    assert cmdp.start.tolist() == [0.2] * 5
    there = grid_world(layout="/".join(layout), slip=0.0, limit=1.0, start="cell")
    assert there.start.tolist() == [0, 0, 1, 0, 0]
    assert there.n_branches == there.n_choices


def test_grid_world_default_has_two_ways() -> None:
    cmdp = grid_world()
    assert cmdp.n_states == 36
    assert np.flatnonzero(cmdp.costs[::4, 0]).tolist() == [25, 26, 27, 28, 31, 32, 33, 34]
    assert np.flatnonzero(cmdp.reward[::4]).tolist() == [35]


def test_resource_gathering_is_the_published_model() -> None:
    """Every array against the benchmark's binary file, which is exact where its text is rounded."""
    path = MODELS / "resource-gathering-small.umb"
    if not path.exists():
        pytest.skip("the folder shared/models is not beside this repository")
    with tarfile.open(path) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}

    def read(name: str, dtype: str = "<f8") -> list[Any]:
        return np.frombuffer(files[name], dtype).tolist()

    cmdp = resource_gathering()
    sizes = json.loads(files["index.json"])["transition-system"]
    assert [cmdp.n_states, cmdp.n_choices, cmdp.n_branches] == [
        sizes[f"#{kind}"] for kind in ("states", "choices", "branches")
    ]
    assert cmdp.state_to_choice.tolist() == read("state-to-choices.bin", "<u8")
    assert cmdp.choice_to_branch.tolist() == read("choice-to-branches.bin", "<u8")
    assert cmdp.branch_target.tolist() == read("branch-to-target.bin", "<u8")
    assert cmdp.branch_prob.tolist() == read("branch-to-probability.bin")
    assert cmdp.reward.tolist() == read("annotations/rewards/rew_gold/choices/values.bin")
    attacks = read("annotations/rewards/attacks/states/values.bin")
    assert cmdp.costs[:, 0].tolist() == [attacks[s] for s in cmdp.choice_state]
    initial = np.unpackbits(np.frombuffer(files["state-is-initial.bin"], np.uint8), bitorder="little")
    assert cmdp.start.tolist() == initial[:94].tolist()
    strings = files["actions/choices/strings.bin"].decode()
    ends = read("actions/choices/string-mapping.bin", "<u8")
    labels = [strings[a:b] for a, b in pairwise(ends)]
    ours = ["right", "left", "top", "down"]
    theirs = [labels[i] for i in read("actions/choices/values.bin", "<u4")]
    assert [ours[a] for a in cmdp.action_of_choice] == theirs


def test_resource_gathering_optimum() -> None:
    """Known from a linear programme and from minimising the dual function: 1.540100, multiplier 1.190067."""
    cmdp = resource_gathering()
    best = programme(cmdp, -cmdp.reward, cmdp.costs.T, cmdp.limits)
    assert -best.fun == pytest.approx(1.540100, abs=1e-6)
    assert -best.ineqlin.marginals[0] == pytest.approx(1.190067, abs=1e-6)
    assert resource_gathering(limit=None).limits[0] == pytest.approx(0.252851, abs=5e-7)


def test_resource_gathering_extremes() -> None:
    assert resource_gathering(attack_probability=0.0, limit=1.0).costs.max() == 0
    certain = resource_gathering(attack_probability=1.0, limit=1.0)
    assert certain.n_branches == certain.n_choices
    # Nobody gets past an enemy, but the gold is reached around them, over (2, 5).
    assert certain.reward.max() == 1


# Lines


def test_river_swim_of_three() -> None:
    cmdp = river_swim(3, limit=1.0)
    rows = dense(cmdp)
    assert [rows[s, 0] for s in range(3)] == [{0: 1.0}, {0: 1.0}, {1: 1.0}]
    assert [rows[s, 1] for s in range(3)] == [{0: 0.4, 1: 0.6}, {0: 0.05, 1: 0.6, 2: 0.35}, {1: 0.4, 2: 0.6}]
    assert cmdp.reward.tolist() == [0.005, 0, 0, 0, 0, 1]
    assert cmdp.costs[:, 0].tolist() == [0, 1, 0, 1, 0, 1]
    assert river_swim(2, limit=1.0, start=1).start.tolist() == [0, 1]


def test_queue_slot_by_slot() -> None:
    cmdp = queue(capacity=2, arrival=0.5, service=0.25, limit=1.0)
    expected: dict[tuple[int, int], dict[int, float]] = {}
    for s in range(3):
        for action in range(2 if s < 2 else 1):
            row: dict[int, float] = {}
            for arrives in (0, 1):
                for served in (0, 1):
                    chance = 0.5 * (0.25 if served else 0.75)
                    to = s + arrives * action - (served if s else 0)
                    row[to] = row.get(to, 0.0) + chance
            expected[s, action] = row
    assert dense(cmdp) == expected
    assert cmdp.reward.tolist() == [0, 0.5, 0, 0.5, 0]
    assert cmdp.costs[:, 0].tolist() == [0, 0, 1, 1, 2]
    assert cmdp.start.tolist() == [1, 0, 0]


@pytest.mark.parametrize("constraint", ["stock-out", "holding"])
def test_inventory_day_by_day(constraint: str) -> None:
    cmdp = inventory(4, demand=1.5, price=2, order_cost=1, holding_cost=0.5, constraint=constraint, limit=1.0)
    demand = stats.poisson(1.5).pmf(np.arange(60))
    rows = dense(cmdp)
    assert list(rows) == [(s, a) for s in range(5) for a in range(5 - s)]
    for q, (s, a) in enumerate(rows):
        row: dict[int, float] = {}
        reward = cost = 0.0
        for d, p in enumerate(demand):
            left, sold = max(s + a - d, 0), min(s + a, d)
            row[left] = row.get(left, 0.0) + p
            reward += p * (2 * sold - a - 0.5 * left)
            cost += p * (left if constraint == "holding" else d - sold)
        assert rows[s, a] == pytest.approx(row, abs=1e-12)
        assert cmdp.reward[q] == pytest.approx(reward, abs=1e-12)
        assert cmdp.costs[q, 0] == pytest.approx(cost, abs=1e-12)
    assert cmdp.start[0] == 1


def test_inventory_survives_a_huge_demand() -> None:
    assert np.isfinite(inventory(3, demand=1000.0, limit=1.0).reward).all()


# Gymnasium


@pytest.fixture
def gymnasium() -> Any:
    return pytest.importorskip("gymnasium", reason="gymnasium is not installed")


@pytest.fixture
def frozen_lake(gymnasium: Any) -> Iterator[Any]:
    env = gymnasium.make("FrozenLake-v1")
    yield env
    env.close()


def test_frozen_lake_cell_by_cell(frozen_lake: Any) -> None:
    cmdp = from_gymnasium("FrozenLake-v1", limit=1.0)
    cells = "".join(cell.decode() for cell in frozen_lake.unwrapped.desc.ravel())
    assert cells == "SFFFFHFHFFFHHFFG"
    rows = dense(cmdp)
    choice = {pair: q for q, pair in enumerate(rows)}
    for s, cell in enumerate(cells):
        if cell in "HG":
            assert rows[s, 0] == {16: 1.0}
            assert (s, 1) not in rows
            assert cmdp.reward[choice[s, 0]] == cmdp.costs[choice[s, 0], 0] == 0
            continue
        for a in range(4):
            row: dict[int, float] = {}
            falls = goal = 0.0
            for turn in (-1, 0, 1):
                i, j = divmod(s, 4)
                direction = (a + turn) % 4  # left, down, right, up
                i = min(max(i + (direction == 1) - (direction == 3), 0), 3)
                j = min(max(j + (direction == 2) - (direction == 0), 0), 3)
                to = 4 * i + j
                falls += (cells[to] == "H") / 3
                goal += (cells[to] == "G") / 3
                to = 16 if cells[to] in "HG" else to
                row[to] = row.get(to, 0.0) + 1 / 3
            assert rows[s, a] == pytest.approx(row)
            assert cmdp.costs[choice[s, a], 0] == pytest.approx(falls)
            assert cmdp.reward[choice[s, a]] == pytest.approx(goal)
    assert rows[16, 0] == {16: 1.0}
    live = [cell in "SF" for cell in cells] + [False]
    np.testing.assert_allclose(cmdp.start, np.array(live) / 11)
    assert cmdp.names == ("reward", "hole")
    assert cmdp.gamma == 0.95


def test_environment_object_and_keywords(gymnasium: Any, frozen_lake: Any) -> None:
    of_id, of_object = from_gymnasium("FrozenLake-v1"), from_gymnasium(frozen_lake)
    assert of_id.limits.tolist() == of_object.limits.tolist()
    assert dense(of_id) == dense(of_object)
    assert from_gymnasium("FrozenLake-v1", map_name="8x8").n_states == 65
    certain = from_gymnasium("FrozenLake-v1", is_slippery=False, limit=1.0)
    assert certain.n_branches == certain.n_choices
    assert frozen_lake.reset(seed=0)[0] == 0  # still open: it is the caller's
    with pytest.raises(SettingError, match="is_slippery"):
        from_gymnasium(frozen_lake, is_slippery=False)


def test_start_of_an_environment(gymnasium: Any) -> None:
    def start(**settings: Any) -> NDArray[np.float64]:
        return from_gymnasium("FrozenLake-v1", limit=1.0, **settings).start

    assert start(start="environment").tolist() == [1.0] + [0.0] * 16
    assert start(start=6)[6] == 1
    single = np.r_[np.full(11, 1 / 11), np.zeros(5)].astype(np.float32)  # sums to 1 in its own precision only
    assert start(start=single)[:11] == pytest.approx(1 / 11)
    assert start(start=[0.0] * 15 + [0.5, 0.5])[16] == 0.5
    with pytest.raises(SettingError, match="start"):
        start(start="everywhere")
    # The cells of the cliff are never live, nor are taxis whose passenger has arrived.
    cliff = from_gymnasium("CliffWalking-v1", limit=1.0, start="uniform").start
    assert np.flatnonzero(cliff).tolist() == list(range(37))
    taxi = from_gymnasium("Taxi-v4", limit=1.0, start="uniform").start
    assert np.count_nonzero(taxi) == 400
    assert np.count_nonzero(from_gymnasium("Taxi-v4", limit=1.0).start) == 300


def test_costs_of_environments(gymnasium: Any, frozen_lake: Any) -> None:
    seen: list[tuple[Any, ...]] = []

    def cost(s: int, a: int, s_next: int, reward: float, terminated: bool) -> float:
        seen.append((s, a, s_next, reward, terminated))
        return 2.0 * (s_next == 15)

    cmdp = from_gymnasium(frozen_lake, cost=["hole", cost], limit=[1.0, 2.0])
    assert cmdp.names == ("reward", "hole", "cost 1")
    table = frozen_lake.unwrapped.P
    live = [s for s, cell in enumerate(frozen_lake.unwrapped.desc.ravel()) if cell in (b"S", b"F")]
    assert seen == [(s, a, *branch[1:]) for s in live for a in range(4) for branch in table[s][a]]
    assert cmdp.costs[:, 1] == pytest.approx(2.0 * cmdp.reward)

    def paying(cmdp: CMDP) -> list[tuple[int, int]]:
        pairs = zip(cmdp.choice_state.tolist(), cmdp.action_of_choice.tolist(), strict=True)
        return [pair for pair, value in zip(pairs, cmdp.costs[:, 0], strict=True) if value and pair[0] < 37]

    walk = {cost: from_gymnasium("CliffWalking-v1", cost=cost, limit=1.0) for cost in ("cliff", "edge")}
    # Down (2) from the cells over the cliff, right (1) from the start.
    assert paying(walk["cliff"]) == [(s, 2) for s in range(25, 35)] + [(36, 1)]
    assert (13, 2) in paying(walk["edge"])
    assert (24, 1) in paying(walk["edge"])
    assert (36, 0) not in paying(walk["edge"])
    taxi = from_gymnasium("Taxi-v4", cost="illegal", limit=1.0)
    assert ((taxi.reward == -10) == (taxi.costs[:, 0] == 1)).all()
    toll = from_gymnasium("Taxi-v4", limit=1.0)
    encode = gymnasium.make("Taxi-v4").unwrapped.encode
    q = toll.state_to_choice[encode(2, 2, 0, 1)]
    assert toll.costs[q : q + 6, 0].tolist() == [0, 0, 1, 0, 0, 0]  # action 2 goes east
    assert toll.names[1] == "toll"


def test_terminal_taxi_states_end(gymnasium: Any) -> None:
    """The table goes on after a drop-off; the model must not."""
    cmdp = from_gymnasium("Taxi-v4", limit=1.0)
    ended = [s for s in range(500) if np.diff(cmdp.state_to_choice)[s] == 1]
    assert len(ended) == 4
    delivered = cmdp.choice_to_branch[:-1][cmdp.reward == 20]
    assert (cmdp.branch_target[delivered] == 500).all()
    assert cmdp.reward[cmdp.state_to_choice[500]] == 0


def test_environments_that_cannot_be_read(gymnasium: Any, frozen_lake: Any) -> None:
    with pytest.raises(ModelError, match="Blackjack-v1 publishes no transition table"):
        from_gymnasium("Blackjack-v1")
    with pytest.raises(ModelError, match="NoSuchLake-v1"):
        from_gymnasium("NoSuchLake-v1")
    with pytest.raises(ModelError, match="map_name='9x9'"):
        from_gymnasium("FrozenLake-v1", map_name="9x9")
    with pytest.raises(ModelError, match="fickle_passenger"):
        from_gymnasium("Taxi-v4", fickle_passenger=True)
    with pytest.raises(SettingError, match="did you mean 'is_slippery'"):
        from_gymnasium("FrozenLake-v1", is_slipery=False)
    with pytest.raises(SettingError, match=r"unknown cost of FrozenLake-v1: 'holes'; did you mean 'hole'"):
        from_gymnasium("FrozenLake-v1", cost="holes")
    with pytest.raises(SettingError, match="unknown cost of CliffWalking-v1: 'hole'"):
        from_gymnasium("CliffWalking-v1", cost="hole")
    with pytest.raises(ModelError, match=r"\(0, 0, 0, 0.0, False\) is None"):
        from_gymnasium("FrozenLake-v1", cost=lambda *transition: None)

    class Custom:
        P = frozen_lake.unwrapped.P

    with pytest.raises(SettingError, match="Custom has no ready cost"):
        from_gymnasium(Custom())
    with pytest.raises(ModelError, match="Custom does not tell its start"):
        from_gymnasium(Custom(), cost=lambda *transition: 0.0)
    by_table = from_gymnasium(Custom(), cost=lambda *transition: 0.0, limit=1.0, start="uniform")
    assert by_table.start.tolist() == from_gymnasium(frozen_lake, limit=1.0).start.tolist()


def test_without_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ModelError, match=r"pip install 'fastcmdp\[gym\]'"):
        from_gymnasium("FrozenLake-v1")


def test_import_is_cheap() -> None:
    late = ("gymnasium", "scipy.optimize")
    code = f"import sys, fastcmdp.envs; print([name for name in {late} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


# Lines of text


def test_spec_calls_the_generator() -> None:
    named = from_spec("env:garnet?n_states=1e1&n_actions=2&n_branches=none&seed=3&n_constraints=2&limit=4,5")
    called = garnet(10, 2, None, seed=3, n_constraints=2, limit=[4, 5])
    assert dense(named) == dense(called)
    assert named.limits.tolist() == [4, 5]
    assert from_spec("env:river-swim").n_states == 8
    assert from_spec("env:grid_world?layout=S%23G/...&limit=1&start=cell").n_states == 5
    assert from_spec("env:resource_gathering?limit=halfway").limits[0] == pytest.approx(0.252851, abs=5e-7)


def test_spec_passes_keywords_to_gymnasium(gymnasium: Any) -> None:
    spec = "gym:FrozenLake-v1?map_name=8x8&is_slippery=False&cost=hole&limit=0.5&gamma=0.9&start=0"
    cmdp = from_spec(spec)
    assert (cmdp.n_states, cmdp.gamma, cmdp.limits.tolist(), cmdp.start[0]) == (65, 0.9, [0.5], 1)
    assert cmdp.n_branches == cmdp.n_choices


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("env:garnat", "'garnat'; did you mean 'garnet'.*valid: dam, garnet, grid_world"),
        ("env:garnet?n_state=3", "'n_state'; did you mean 'n_states'.*valid: gamma"),
        ("env:", "env:NAME"),
        ("garnet", "env:NAME"),
        ("file:garnet", "env:NAME"),
        ("env:garnet?seed", "'seed'"),
        ("env:garnet?seed=", "'seed='"),
        ("env:garnet?seed=1&seed=2", "seed is given twice"),
        ("env:garnet?n_states=0", r"n_states = 0: an integer from 1 to 2147483647 is expected"),
        ("env:garnet?n_states=2.5", r"n_states = 2.5: an integer from"),
        ("env:garnet?n_states=many", r"n_states = .many.: an integer from"),
        ("env:garnet?n_actions=true", "n_actions = True: an integer of at least 1"),
        ("env:garnet?seed=-1", "seed"),
        ("env:garnet?n_branches=0", "n_branches"),
        ("env:garnet?n_states=10&n_branches=20", "n_branches = 20: an integer from 1 to 10 is expected"),
        (
            "env:garnet?n_states=1e9",
            "n_states = 1000000000, n_actions = 4, n_branches = 5: .* takes about .* GiB",
        ),
        ("env:river_swim?n_states=1e9", "n_states = 1000000000: .* GiB"),
        ("env:queue?capacity=1e9", "capacity = 1000000000: .* GiB"),
        ("env:inventory?capacity=1e9", "capacity = 1000000000: .* GiB"),
        ("env:grid_world?size=1e9", "size = 1000000000: .* GiB"),
        ("env:hard_instance?n_gadgets=1e12", "n_gadgets = 1000000000000, n_actions = 3, depth = 1: .* GiB"),
        ("env:garnet?gamma=0", r"gamma = 0: a number in \(0, 1\) is expected"),
        ("env:garnet?gamma=true", r"gamma = True: a number in \(0, 1\)"),
        ("env:garnet?gamma=nan", r"gamma = nan: a number in \(0, 1\)"),
        ("env:garnet?limit=tight", "'halfway', got 'tight'"),
        ("env:river_swim?n_states=1", "n_states"),
        ("env:river_swim?start=8", r"start = 8: an integer from 0 to 7"),
        ("env:queue?arrival=1.5", r"arrival = 1.5: a number in \[0, 1\]"),
        ("env:queue?capacity=0", "capacity"),
        ("env:inventory?demand=0", "demand"),
        ("env:inventory?constraint=profit", "'stock-out' or 'holding', got 'profit'"),
        ("env:grid_world?size=2", "size"),
        ("env:grid_world?start=home", "'uniform' or 'cell', got 'home'"),
        ("env:grid_world?layout=SG/.", "equal length"),
        ("env:grid_world?layout=SXG", "got 'X'"),
        ("env:grid_world?layout=S..", "exactly one G, got 0"),
        ("env:resource_gathering?attack_probability=-0.1", "attack_probability"),
    ],
)
def test_bad_settings_say_what_is_accepted(spec: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        from_spec(spec)


def test_gamma_1_asks_for_episodes_that_end() -> None:
    with pytest.raises(ModelError, match="gamma = 1 needs an end"):
        from_spec("env:garnet?gamma=1")


def test_seeds_are_of_any_size() -> None:
    assert dense(garnet(3, seed=2**70, limit=1.0)) == dense(
        from_spec(f"env:garnet?n_states=3&seed={2**70}&limit=1")
    )
    assert dense(garnet(3, seed=2**70, limit=1.0)) != dense(garnet(3, seed=2**70 + 1, limit=1.0))


def test_garnet_has_few_branches_unless_told() -> None:
    assert garnet(20, limit=1.0).n_branches == 20 * 4 * 5
    assert garnet(3, limit=1.0).n_branches == 3 * 4 * 3


# Tables of Gymnasium that people wrote.


class Table:
    """An environment with a table P and, if given, a start distribution."""

    def __init__(self, table, start=None) -> None:
        self.P = table
        if start is not None:
            self.initial_state_distrib = np.asarray(start)


def no_cost(*_) -> float:
    return 0.0


def value_of(env, **options) -> float:
    cmdp = from_gymnasium(env, cost=no_cost, limit=1.0, gamma=0.9, **options)
    return optimum(cmdp).reward


# State 0 leads to 1, where the one action leaves for good and earns 5.
EXIT = {0: {0: [(1.0, 1, 0.0, False)]}, 1: {0: [(1.0, 1, 5.0, True)]}}


@pytest.mark.parametrize("start", [0, [1.0, 0.0], np.array([1.0, 0.0, 0.0])], ids=["state", "states", "all"])
def test_what_is_paid_on_leaving_counts(start) -> None:
    assert value_of(Table(EXIT), start=start) == pytest.approx(4.5)
    assert value_of(Table(EXIT, [1.0, 0.0])) == pytest.approx(4.5)
    assert value_of(Table(EXIT), start="uniform") == pytest.approx((4.5 + 5) / 2)
    assert value_of(Table(EXIT, [0.0, 1.0]), start=0) == pytest.approx(4.5)
    alone = {0: {0: [(1.0, 0, 5.0, True)]}}  # a state that nothing but its own end leads to
    assert value_of(Table(alone), start="uniform") == pytest.approx(5.0)


def test_a_state_entered_with_an_end_only_is_none_to_be_in() -> None:
    hole = {0: {0: [(0.5, 1, 1.0, True), (0.5, 0, 0.0, False)]}, 1: {0: [(1.0, 1, 7.0, True)]}}
    assert value_of(Table(hole), start=0) == pytest.approx(0.5 / (1 - 0.45))
    assert value_of(Table(hole), start="uniform") == pytest.approx(0.5 / (1 - 0.45))
    assert value_of(Table(hole), start=1) == pytest.approx(7.0)
    # The start that is used says so, not the environment's.
    for start in (1, [0.0, 1.0]):
        assert value_of(Table(hole, [1.0, 0.0]), start=start) == pytest.approx(7.0)
    assert value_of(Table(hole, [0.0, 1.0]), start=0) == pytest.approx(0.5 / (1 - 0.45))


def test_states_without_actions_have_ended() -> None:
    for nothing in ({}, [], {0: []}):
        table = {0: {0: [(1.0, 1, 2.0, False)], 1: [(1.0, 0, 0.1, False)]}, 1: nothing}
        assert value_of(Table(table), start=0) == pytest.approx(2.0)
        assert value_of(Table(list(table.values())), start=0) == pytest.approx(2.0)


def test_states_may_have_fewer_actions() -> None:
    table = {0: {1: [(1.0, 1, 0.0, False)]}, 1: {0: [(1.0, 0, 1.0, False)], 2: [(1.0, 1, 0.0, False)]}}
    cmdp = from_gymnasium(Table(table), cost=no_cost, limit=1.0, gamma=0.9, start=0)
    assert cmdp.action_of_choice.tolist() == [1, 0, 2, 0]


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_probabilities_of_a_table_are_judged_by_their_type(kind) -> None:
    thirds = [(kind(1 / 3), s, 0.0, False) for s in range(3)]
    assert abs(float(kind(1 / 3)) * 3 - 1) > 1e-9
    cmdp = from_gymnasium(Table({s: {0: thirds} for s in range(3)}), cost=no_cost, limit=1.0, start=0)
    assert cmdp.branch_prob[:3].sum() == pytest.approx(1.0, abs=1e-15)
    loose = [(float(p), *rest) for p, *rest in thirds]
    with pytest.raises(ModelError, match="sum to"):
        from_gymnasium(Table({s: {0: loose} for s in range(3)}), cost=no_cost, limit=1.0, start=0)


STEP = [(1.0, 0, 0.0, False)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({0: {0: STEP}, 2: {0: STEP}}, r"P of Table has 2 states, but no P\[1\]; they are numbered from 0"),
        ({"a": {0: STEP}}, r"no P\[0\]"),
        ({}, "P of Table is of type dict"),
        (3, "P of Table is of type int"),
        ({0: 3}, r"P\[0\] of Table is 3; its actions"),
        ({0: {0: 3}}, r"P\[0\]\[0\] is 3; a list of \(probability, next state, reward, terminated\)"),
        (
            {0: {0: [(1.0, 0, 0.0)]}},
            r"P\[0\]\[0\]\[0\] is \(1.0, 0, 0.0\); \(probability, next state, reward, term",
        ),
        ({0: {0: [(1.0, 0, 0.0, False, {})]}}, r"P\[0\]\[0\]\[0\] is .*; \(probability, next state"),
        ({0: {0: [3]}}, r"P\[0\]\[0\]\[0\] is 3; \(probability, next state"),
        ({0: {0: [(1.0, 1, 0.0, False)]}}, r"P\[0\]\[0\]\[0\], the next state = 1: an integer from 0 to 0"),
        ({0: {0: [(1.0, -1, 0.0, False)]}}, r"the next state = -1: an integer from 0 to 0"),
        ({0: {0: [(1.0, None, 0.0, False)]}}, r"the next state = None: an integer"),
        ({0: {0: [("x", 0, 0.0, False)]}}, r"P\[0\]\[0\]\[0\], the probability = 'x': a number"),
        ({0: {0: [(1.0, 0, None, False)]}}, r"P\[0\]\[0\]\[0\], the reward = None: a number"),
        ({0: {0: [(1.0, 0, np.nan, False)]}}, r"the reward = nan: a number"),
        ({0: {0: [(0.5, 0, 0.0, False)]}}, r"state 0, action 0 sum to 0\.5"),
        ({0: {"up": STEP}}, r"an action in P\[0\] = 'up': an integer"),
    ],
)
def test_faults_of_tables_name_the_place(table, message) -> None:
    with pytest.raises(ModelError, match=message):
        from_gymnasium(Table(table), cost=no_cost, limit=1.0, start=0)


# Applications


@pytest.mark.parametrize("name", KNOWN)
def test_applications_have_the_known_optimum(name: str) -> None:
    cmdp, (reward, duals) = GENERATORS[name](), KNOWN[name]
    best = optimum(cmdp)
    np.testing.assert_allclose([sum(row.values()) for row in dense(cmdp).values()], 1.0, rtol=1e-14)
    assert best.reward == pytest.approx(reward, rel=1e-8)
    assert best.duals == pytest.approx(duals, rel=1e-5, abs=1e-9)


def test_from_steps_makes_what_its_function_says() -> None:
    def step(state: tuple[int, int]) -> Any:
        x, y = state
        stay = ([(1.0, state)], 0.0, [0.0])
        if x == 2:
            return {5: stay}
        return {
            3: ([(0.25, (x + 1, y)), (0.5, (x, 1 - y)), (0.25, (x + 1, y)), (0.0, (9, 9))], 2.0, [x]),
            7: stay,
        }

    cmdp = from_steps(
        {(0, 0): 0.5, (0, 1): 0.5},
        step,
        gamma=0.5,
        names=["r", "c"],
        limit=1.0,
        sense=">=",
        variables=["x", "y"],
    )
    states = list(zip(*(cmdp.variables[name].tolist() for name in ("x", "y")), strict=True))
    assert states[:2] == [(0, 0), (0, 1)]
    assert sorted(states) == [(x, y) for x in range(3) for y in range(2)]
    rows, at = dense(cmdp), states.index
    assert rows[0, 3] == {at((1, 0)): 0.5, 1: 0.5}
    assert rows[at((2, 1)), 5] == {at((2, 1)): 1.0}
    assert (cmdp.start[:2].tolist(), cmdp.limits.tolist(), cmdp.sense) == ([0.5, 0.5], [1.0], (">=",))
    assert cmdp.costs[cmdp.action_of_choice == 3, 0].tolist() == [x for x, _ in states if x < 2]


def test_from_steps_names_what_is_wrong() -> None:
    def with_costs(costs: list[float]) -> Any:
        return lambda state: {0: ([(1.0, 0)], 0.0, costs)}

    with pytest.raises(ModelError, match=r"state 0, action 0: 2 costs, and 1 are named"):
        from_steps(0, with_costs([1.0, 2.0]), gamma=0.5, names=["r", "c"], limit=1.0)
    with pytest.raises(ModelError, match=r"state 0 has no options"):
        from_steps(0, lambda state: {}, gamma=0.5, names=["r"])
