"""PD-ANPG-CV: rollouts and outer steps against twins, unbiasedness by enumeration, and what breaks it."""

from __future__ import annotations

import math
from typing import Any

import naive
import numpy as np
import pytest
import scipy.sparse

import fastcmdp as fc
from fastcmdp import exact
from fastcmdp.algorithms.pd_anpg_cv import PDANPGCV, PDANPGCVRun
from fastcmdp.kernels.algorithm.cv_critic import read_critic
from fastcmdp.kernels.algorithm.pd_anpg_cv import quadratic
from fastcmdp.kernels.learning import counts
from fastcmdp.kernels.sampling.corrected import corrected_rollouts
from fastcmdp.kernels.streams import LANES
from fastcmdp.streams import streams
from fastcmdp.tables import build_actions
from fastcmdp.worlds import TableWorld

SEED = 4
MODELS = {name: fc.CMDP(**rows) for name, rows in naive.MODELS.items()}
MODELS["many branches"] = fc.envs.garnet(n_states=40, n_actions=2, n_branches=40, gamma=0.7)


def make_run(cmdp: fc.CMDP, settings: PDANPGCV, draws: str = "fast", replicates: int = 1) -> PDANPGCVRun:
    return settings.run(TableWorld.of(cmdp, fc.TabularSoftmax(), False, draws), SEED, replicates)


def some_policy(cmdp: fc.CMDP) -> np.ndarray:
    weight = np.random.default_rng(1).random(cmdp.n_choices) + 0.05
    return weight / np.add.reduceat(weight, cmdp.state_to_choice[:-1])[cmdp.choice_state]


def means(cmdp: fc.CMDP, prob: np.ndarray, critic: np.ndarray) -> np.ndarray:
    """Wbar."""
    return np.add.reduceat(prob[:, None] * critic, cmdp.state_to_choice[:-1])


class Sampler:
    """Rollouts with a random W and some policy."""

    def __init__(self, cmdp: fc.CMDP, draws: str = "fast", scale: float = 3.0) -> None:
        self.cmdp, self.run = cmdp, make_run(cmdp, PDANPGCV(outer=1, inner=2), draws)
        self.prob = some_policy(cmdp)
        self.critic = scale * np.random.default_rng(2).normal(size=cmdp.signals.shape)
        self.mean = means(cmdp, self.prob, self.critic)
        self.work = self.run.work()
        self.space = self.work.control.space
        self.rng = streams(SEED, 1)[0]

    def __call__(
        self, job_choice: np.ndarray, job_wanders: np.ndarray, n_seen: int = 0, room: int = 10**6
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int]:
        tables, space = self.run.world.tables, self.space
        read_critic(
            tables, space.graph, self.cmdp.gamma, self.prob, self.critic, np.ones(self.cmdp.n_choices), space.record,
            space.mean, self.work.control.plug,
        )  # fmt: skip
        total = np.full((len(job_choice), self.cmdp.signals.shape[1]), np.nan)
        last, seen = np.full(len(job_choice), -1), np.zeros(room, np.uint64)
        n_seen, made = corrected_rollouts(
            tables, build_actions(tables, self.prob), tables.row_state, self.cmdp.gamma, self.rng, job_choice,
            job_wanders, space.mean, space.record, total, last, seen, n_seen,
        )  # fmt: skip
        return total, last, seen, n_seen, made


@pytest.mark.parametrize("draws", ["fast", "exact"])
@pytest.mark.parametrize("name", MODELS)
def test_rollouts(name: str, draws: str) -> None:
    cmdp = MODELS[name]
    sample = Sampler(cmdp, draws)
    n = 3 * LANES + 5
    job_choice = np.where(np.arange(n) % 3, np.arange(n) % cmdp.n_choices, -1)
    wanders = (np.arange(n) % 3 == 1).astype(np.uint64)
    total, last, seen, n_seen, made = sample(job_choice, wanders, n_seen=7)
    lanes = naive.streams(SEED, 0, LANES)
    jobs = [(None if q < 0 else int(q), bool(w)) for q, w in zip(job_choice, wanders, strict=True)]
    want = naive.corrected_rollouts(
        naive.plain(cmdp, draws == "exact"), sample.prob.tolist(), lanes, jobs, sample.critic.tolist(),
        sample.mean.tolist(),
    )  # fmt: skip
    assert sample.rng.tolist() == naive.state_words(lanes)
    assert last.tolist() == want.choice
    assert (made, n_seen) == (len(want.seen), len(want.seen) + 7)
    np.testing.assert_allclose(total, want.total, rtol=1e-10, atol=1e-10)
    assert transitions(sample, seen[7:n_seen]) == want.seen


def transitions(sample: Sampler, seen: np.ndarray) -> list[tuple[int, int]]:
    """Choices and next states, through the counts of one transition each."""
    graph, found = sample.space.graph, []
    for word in seen:
        branch, choice = np.zeros(len(graph.target)), np.zeros(sample.cmdp.n_choices)
        counts.count(graph, np.array([word]), 1, branch, choice)
        (b,), (q,) = np.flatnonzero(branch), np.flatnonzero(choice)
        assert branch[b] == choice[q] == 1.0
        assert graph.choice_to_branch[q] <= b < graph.choice_to_branch[q + 1]
        found.append((int(q), int(graph.target[b])))
    return found


def test_what_there_is_no_room_for_is_counted_as_samples() -> None:
    """With room for three rounds the last transitions are kept, sums and samples are those of all."""
    full, short = (Sampler(MODELS["long horizon"]) for _ in range(2))
    jobs = np.full(20, -1), np.zeros(20, np.uint64)
    total, last, _, n_seen, made = full(*jobs)
    cut, cut_last, _, cut_seen, cut_made = short(*jobs, room=3 * LANES)
    assert made == cut_made == n_seen > 3 * LANES >= cut_seen
    np.testing.assert_array_equal(cut, total)
    np.testing.assert_array_equal(cut_last, last)


def test_there_is_room_for_a_batch() -> None:
    """Chernoff's bound e^-40 for the sum of n geometric lengths, at the room that a run makes."""
    for inner in (1, 2, 15, 200):
        for gamma in (0.1, 0.9, 0.999):
            cmdp = fc.envs.garnet(n_states=3, gamma=gamma)
            made = PDANPGCV(outer=1, inner=inner)
            room = len(make_run(cmdp, made).work().control.space.seen) - 2 * LANES
            ratio = room * (1 - gamma) / made.n_rollouts
            assert made.n_rollouts * (ratio - 1 - math.log(ratio)) > 40
            assert room < (60 + 4 * made.n_rollouts) / (1 - gamma) * 2


# Unbiasedness.


def three_states() -> tuple[fc.CMDP, np.ndarray, np.ndarray, np.ndarray]:
    """A model, a policy, a random W, and P with the policy's actions: pairs to pairs."""
    cmdp = fc.envs.garnet(n_states=3, n_actions=2, n_branches=2, gamma=0.8, seed=5)
    prob = some_policy(cmdp)
    step = np.zeros((cmdp.n_choices, cmdp.n_states))
    for q in range(cmdp.n_choices):
        for b in range(cmdp.choice_to_branch[q], cmdp.choice_to_branch[q + 1]):
            step[q, cmdp.branch_target[b]] += cmdp.branch_prob[b]
    critic = np.random.default_rng(3).normal(size=cmdp.signals.shape)
    return cmdp, prob, critic, step


def moments(
    cmdp: fc.CMDP, prob: np.ndarray, critic: np.ndarray, mean: np.ndarray, step: np.ndarray, first: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of W + C for each pair, summed over all horizons and paths: T + ``first`` transitions.

    With X the mean and Y the mean square of what is left of C before a transition that is made for sure,
    X = E[d + gamma X'], Y = E[d^2 + 2 gamma d X' + gamma Y'], d = f + gamma Wbar(s') - W.
    """
    c, gamma = cmdp.n_choices, cmdp.gamma
    d = cmdp.signals[:, 0, None] + gamma * mean[None, :, 0] - critic[:, 0, None]
    x, y = np.zeros(c), np.zeros(c)
    for _ in range(400):
        at, at2 = (np.add.reduceat(prob * z, cmdp.state_to_choice[:-1])[None, :] for z in (x, y))
        x, y = (
            (step * (d + gamma * at)).sum(axis=1),
            (step * (d**2 + 2 * gamma * d * at + gamma * at2)).sum(axis=1),
        )
    if first == 0:  # T transitions: the first is made with probability gamma
        x, y = gamma * x, gamma * y
    return critic[:, 0] + x, y - x**2


def test_corrections_are_unbiased_for_any_critic() -> None:
    """By enumeration: Q for a random W, to 1e-10; and not with T transitions, nor with a stale Wbar."""
    cmdp, prob, critic, step = three_states()
    q = exact.q_values(cmdp, prob)[:, 0]
    mean = means(cmdp, prob, critic)
    found, _ = moments(cmdp, prob, critic, mean, step)
    np.testing.assert_allclose(found, q, rtol=0, atol=1e-10)
    short, _ = moments(cmdp, prob, critic, mean, step, first=0)
    assert np.abs(short - q).max() > 0.1
    stale = means(cmdp, np.full(len(prob), 0.5), critic)
    found, _ = moments(cmdp, prob, critic, stale, step)
    assert np.abs(found - q).max() > 0.1


def test_variance_is_that_of_transitions_alone_where_the_critic_is_right() -> None:
    cmdp, prob, _, step = three_states()
    values = exact.q_values(cmdp, prob)
    mean = means(cmdp, prob, values)
    _, variance = moments(cmdp, prob, values, mean, step)
    v = mean[:, 0]
    noise = cmdp.gamma**2 * (step @ v**2 - (step @ v) ** 2)  # of one transition
    chain = step @ (np.repeat(np.eye(3), 2, axis=0) * prob[:, None]).T
    np.testing.assert_allclose(variance, np.linalg.solve(np.eye(6) - cmdp.gamma * chain, noise), rtol=1e-9)
    zero = np.zeros_like(values)
    _, plain = moments(cmdp, prob, zero, means(cmdp, prob, zero), step)
    assert (variance < 0.3 * plain).all()


def z_scores(sample: Sampler, want: np.ndarray, n: int = 60_000) -> np.ndarray:
    """Deviations of W + C from what is wanted, in standard errors, for every pair and signal."""
    found = []
    for q in range(sample.cmdp.n_choices):
        total, *_ = sample(np.full(n, q), np.zeros(n, np.uint64), room=2 * LANES)
        mean, error = total.mean(axis=0), total.std(axis=0) / math.sqrt(n)
        found.append((sample.critic[q] + mean - want[q]) / np.maximum(error, 1e-12))
    return np.array(found)


def test_the_kernel_has_the_enumerated_moments() -> None:
    cmdp, prob, critic, step = three_states()
    sample = Sampler(cmdp)
    sample.prob, sample.critic = prob, critic.copy()
    assert np.abs(z_scores(sample, exact.q_values(cmdp, prob))).max() < 4.5
    _, variance = moments(cmdp, prob, critic, means(cmdp, prob, critic), step)
    total, *_ = sample(np.zeros(60_000, np.int64), np.zeros(60_000, np.uint64), room=2 * LANES)
    assert total[:, 0].var() == pytest.approx(variance[0], rel=0.03)


def test_a_critic_that_learns_within_the_batch_is_biased() -> None:
    """Negative control, in plain numpy: W moved at each transition towards its target, then read again."""
    cmdp, prob, critic, step = three_states()
    rng = np.random.default_rng(0)
    q_value = exact.q_values(cmdp, prob)[0, 0]

    def estimates(learning: bool) -> np.ndarray:
        found = []
        for _ in range(20_000):
            w = critic[:, 0].copy()
            q, total = 0, w[0]
            while True:
                s = int(rng.random() > step[q, 0]) if step[q, 2] == 0 else int(rng.choice(3, p=step[q]))
                mine = slice(cmdp.state_to_choice[s], cmdp.state_to_choice[s + 1])
                d = cmdp.signals[q, 0] + cmdp.gamma * prob[mine] @ w[mine] - w[q]
                total += d
                if learning:
                    w[q] += 0.5 * d
                if rng.random() > cmdp.gamma:
                    break
                q = mine.start + int(rng.random() > prob[mine.start])
            found.append(total)
        return np.array(found)

    for learning in (False, True):
        x = estimates(learning)
        off = abs(x.mean() - q_value) / (x.std() / math.sqrt(len(x)))
        assert off > 6 if learning else off < 4


def test_pairs_and_wanderers_have_their_laws() -> None:
    """Last pairs follow nu. A wanderer's first pair is as given, later actions half uniform and half pi."""
    cmdp, prob, _, _ = three_states()
    sample = Sampler(cmdp)
    sample.prob = prob
    n = 40_000
    _, last, *_ = sample(np.full(n, -1), np.zeros(n, np.uint64), room=2 * LANES)
    nu = fc.exact.occupancy(cmdp, prob)
    share = np.bincount(last, minlength=cmdp.n_choices) / n
    assert (np.abs(share - nu) < 5 * np.sqrt(nu / n)).all()
    uniform = np.full(cmdp.n_choices, 0.5)
    for q in range(cmdp.n_choices):
        _, _, seen, n_seen, _ = sample(np.full(n, q), np.ones(n, np.uint64))
        visited = (seen[:n_seen] >> np.uint64(32)).astype(int)
        begun = (seen[:LANES] >> np.uint64(32)).astype(int)
        assert (begun == q).all()
        number = np.bincount(visited, minlength=cmdp.n_choices)
        # Expected visits: the occupancy from the pair on, in the mixture policy.
        mixed = 0.5 * prob + 0.5 * uniform
        from_q = fc.CMDP(
            cmdp.state_to_choice, cmdp.choice_to_branch, cmdp.branch_target, cmdp.branch_prob, cmdp.reward,
            gamma=cmdp.gamma, start=np.eye(3)[q // 2],
        )  # fmt: skip
        chain = np.zeros((6, 6))
        for a in range(6):
            for b in range(cmdp.choice_to_branch[a], cmdp.choice_to_branch[a + 1]):
                t = cmdp.branch_target[b]
                chain[a, 2 * t : 2 * t + 2] += cmdp.branch_prob[b] * mixed[2 * t : 2 * t + 2]
        first = np.eye(6)[q]
        want = np.linalg.solve(np.eye(6) - from_q.gamma * chain.T, first)
        assert number / n == pytest.approx(want, rel=0.05)


# The whole recursion.


# Exact draws are in the rollouts alone, whose test is above: their outer loop is a kernel of its own to compile.
@pytest.mark.parametrize("draws", ["fast", pytest.param("exact", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MODELS)
def test_outer_steps(name: str, draws: str) -> None:
    cmdp = MODELS[name]
    settings = PDANPGCV(outer=15, inner=6)
    run = make_run(cmdp, settings, draws)
    work = run.work()
    for _ in range(15):
        run.advance(0, 1, work)
    model = naive.plain(cmdp, draws == "exact")
    state = naive.Improver(model, naive.streams(SEED, 0, LANES))
    naive.pd_anpg_cv(model, run.momentum, run.steps, state, 15, counts.EARNED)
    assert run.state.rng[0].tolist() == naive.state_words(state.rng)
    assert (run.state.samples[0], run.state.outer[0], run.state.failed[0]) == (state.samples, 15, -1)
    pairs = {
        "theta": state.theta, "dual": state.dual, "critic": state.critic, "dual_mean": state.dual_mean,
        "gram": state.gram, "spread": state.spread, "excess": state.excess,
        "value": state.value, "noise": state.noise, "sums": state.sums,
    }  # fmt: skip
    for field, want in pairs.items():
        got = getattr(run.state, field)[0]
        scale = max(np.abs(np.asarray(want)).max(initial=0.0), 1e-3)
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-7 * scale, err_msg=field)
    want_count = np.zeros(cmdp.n_choices)
    for (q, _), n in state.count.items():
        want_count[q] += n
    branch_count, choice_count = np.split(run.state.evidence[0], [cmdp.n_branches])
    np.testing.assert_array_equal(choice_count, want_count)
    assert branch_count.sum() == state.samples
    if cmdp.widest > 1 and name != "no reward":
        assert np.abs(run.state.theta).max() > 0.1


def test_a_choice_of_very_many_branches_is_learned() -> None:
    """More branches than all transitions of a batch pay for: the latest is backed up all the same."""
    n = 1200  # state 0 has two choices that lead to all others, which lead back
    cmdp = fc.CMDP(
        np.append(0, np.arange(2, n + 2)),
        np.concatenate([[0, n - 1], 2 * (n - 1) + np.arange(n)]),
        np.concatenate([np.arange(1, n), np.arange(1, n), np.zeros(n - 1, np.int64)]),
        np.concatenate([np.full(2 * (n - 1), 1.0 / (n - 1)), np.ones(n - 1)]),
        np.concatenate([[0.0, 0.5], np.linspace(0.0, 1.0, n - 1)]),
        gamma=0.7,
    )
    settings, n_steps = PDANPGCV(outer=20, inner=2), 20
    run = make_run(cmdp, settings)
    work, most = run.work(), 0
    for _ in range(n_steps):
        before = int(run.state.samples[0])
        run.advance(0, 1, work)
        most = max(most, int(run.state.samples[0]) - before)
    assert counts.EARNED * (most + 1) < n - 1
    model = naive.plain(cmdp, False)
    state = naive.Improver(model, naive.streams(SEED, 0, LANES))
    naive.pd_anpg_cv(model, run.momentum, run.steps, state, n_steps, counts.EARNED)
    assert run.state.samples[0] == state.samples
    np.testing.assert_allclose(run.state.critic[0], state.critic, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(run.state.theta[0], state.theta, rtol=1e-7, atol=1e-7)
    assert run.state.critic[0][:2].max() > 0.5


def general_policy(kind: str, cmdp: fc.CMDP) -> tuple[Any, Any]:
    """A policy class and what the twin reads of it."""
    rng = np.random.default_rng(6)
    if kind == "network":
        x = rng.normal(size=(cmdp.n_states, 3))
        net = naive.Network(x.tolist(), False, (5,), cmdp.widest, False)
        return fc.NeuralSoftmax(x, hidden=(5,)), net
    phi = rng.normal(size=(cmdp.n_choices, 4))
    if kind == "sparse":
        phi *= rng.random(phi.shape) < 0.6
        return fc.LogLinear(scipy.sparse.csr_array(phi)), phi.tolist()
    return fc.LogLinear(phi), phi.tolist()


@pytest.mark.parametrize("kind", ["dense", "sparse", "network"])
def test_outer_steps_of_general_policies(kind: str) -> None:
    """The critic is the same; where the inner loop begins is learned, two choices a visited state."""
    cmdp = MODELS["random"]
    policy, phi = general_policy(kind, cmdp)
    run = PDANPGCV(outer=12, inner=6).run(TableWorld.of(cmdp, policy), SEED, 1)
    work = run.work()
    for _ in range(12):
        run.advance(0, 1, work)
    model = naive.plain(cmdp, False)
    state = naive.Improver(
        model, naive.streams(SEED, 0, LANES), run.world.policy.initial if kind == "network" else [0.0] * 4
    )
    naive.pd_anpg_cv(model, run.momentum, run.steps, state, 12, counts.EARNED, phi)
    assert run.state.rng[0].tolist() == naive.state_words(state.rng)
    for field in ("theta", "dual", "critic", "direction", "gram", "value", "noise", "sums"):
        got, want = getattr(run.state, field)[0], np.asarray(getattr(state, field))
        scale = max(np.abs(want).max(initial=0.0), 1e-3)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6 * scale, err_msg=field)
    assert np.abs(run.state.theta[0] - np.asarray(state.origin)).max() > 0.1


@pytest.mark.parametrize("kind", ["one-hot", "random", "network"])
def test_general_policies_learn_fast(kind: str) -> None:
    """A run of seconds on twenty states: every one of these classes holds a policy near the optimum."""
    cmdp = fc.envs.garnet(n_states=20)
    policy = {
        "one-hot": fc.LogLinear(np.eye(cmdp.n_choices)),
        "random": fc.LogLinear(np.random.default_rng(7).normal(size=(cmdp.n_choices, 64))),
        "network": fc.NeuralSoftmax(np.eye(cmdp.n_states)),
    }[kind]
    result = fc.solve(cmdp, samples=8e6, policy=policy, replicates=2)
    best, late = result.optimum, result.last_quarter
    assert best is not None
    assert np.abs(late.gap).max() < 0.02 * np.ptp(best.reward_range)
    assert late.violation.max() < 0.02 * np.ptp(best.constraint_range)


def test_multipliers_solve_the_quadratic_programme() -> None:
    """Against the enumeration of active sets, and the sign: a violation raises a multiplier, slack lowers it."""
    rng = np.random.default_rng(0)
    for m in (1, 2, 3):
        for _ in range(20):
            root = rng.normal(size=(m, m))
            matrix, linear = root @ root.T + 0.1 * np.eye(m), rng.normal(size=m)
            x = np.full(m, 0.5)
            quadratic(matrix, linear, x)
            slope = matrix @ x + linear
            assert (x >= 0).all()
            assert (slope > -1e-6).all()
            assert np.abs(slope * x).max() < 1e-6


def measured(value: float, dual: float = 1.0) -> Any:
    run = make_run(MODELS["random"], PDANPGCV(outer=100))
    run.state.outer[:] = 10
    run.state.dual[:] = run.state.dual_mean[:] = dual
    run.state.noise[:] = 1.0
    run.state.spread[0] = [[1.0, 0.2], [0.2, 0.5]]
    run.state.gram[0] = [[0.3, -0.2], [-0.2, 0.2]]
    run.state.value[0] = [0.0, value]
    return run


def test_a_violation_raises_the_multiplier() -> None:
    """G_0i + lambda G_ii = 0 at lambda = 1: it stays there where J_c = 0, and moves against J_c."""
    moved = {}
    for value in (-1.0, 0.0, 1.0):
        run = measured(value)
        run.advance(0, 1, run.work())
        moved[value] = run.state.dual[0, 0] - 1.0
    assert moved[0.0] == pytest.approx(0.0, abs=1e-12)
    assert moved[-1.0] > 0.01
    assert moved[1.0] < -0.01


def test_steps_and_multipliers_come_from_earlier_batches() -> None:
    """Other draws of the batch at hand change theta, and leave lambda as it is."""
    one, other = measured(-1.0), measured(-1.0)
    other.state.rng[:] = streams(SEED + 1, 1)
    for run in (one, other):
        run.state.critic[:] = 0.3 * np.random.default_rng(1).normal(size=run.state.critic.shape)
        run.state.evidence[:] = 1.0
        run.advance(0, 1, run.work())
    assert one.state.dual.tolist() == other.state.dual.tolist()
    assert (one.state.theta != other.state.theta).any()
    assert (one.state.critic != other.state.critic).any()


def test_a_rare_event_that_decides() -> None:
    """Action 1 of state 0 is worth twice action 0, by an event of probability 0.002."""
    p, gamma = 0.002, 0.5
    cmdp = fc.CMDP(
        [0, 2, 3], [0, 1, 3, 4], [0, 1, 0, 0], [1.0, p, 1 - p, 1.0], [p * gamma / 2, 0.0, 1.0], gamma=gamma,
        start=[1.0, 0.0],
    )  # fmt: skip
    result = fc.solve(cmdp, PDANPGCV(outer=20_000), replicates=4, trace=10)
    assert (result.run.policies()[:, 1] > 0.9).all()
    assert np.abs(result.last_quarter.gap).max() < 0.1 * p


def test_a_constraint_that_no_action_acts_on_has_no_multiplier() -> None:
    cmdp = fc.CMDP.from_arrays(
        np.ones((1, 2, 1)), [[0.0, 1.0]], [np.full((1, 2), 0.25)], gamma=0.8, limits=[2.0], sense="<="
    )
    result = fc.solve(cmdp, PDANPGCV(outer=200), replicates=2)
    assert result.last_quarter.gap == pytest.approx(0.0, abs=1e-3)
    assert (result.run.state.dual == 0.0).all()


def test_steps_stay_bounded_where_reward_and_constraint_cancel() -> None:
    """One decision: at the right multiplier no action has an advantage, and steps in units of it would be endless."""
    cmdp = fc.CMDP.from_arrays(
        np.full((2, 2, 2), 0.5), [[0.0, 1.0], [0.5, 0.5]], [[[0.0, 1.0], [0.2, 0.2]]], gamma=0.9, limits=[3.0]
    )
    result = fc.solve(cmdp, PDANPGCV(outer=60_000), replicates=2)
    assert np.abs(result.last_quarter.gap).max() < 0.02
    assert result.last_quarter.violation.max() < 0.02


def test_it_is_fast_to_learn() -> None:
    """3e6 transitions on twenty states: an error of some thousandths, in the last quarter."""
    cmdp = fc.envs.garnet(n_states=20)
    result = fc.solve(cmdp, samples=3e6, replicates=2)
    assert isinstance(result.algorithm, PDANPGCV)
    best = result.optimum
    assert best is not None
    late = result.last_quarter
    assert np.abs(late.gap).max() < 0.005 * np.ptp(best.reward_range)
    assert late.violation.max() < 0.005 * np.ptp(best.constraint_range)


@pytest.mark.filterwarnings("ignore::fastcmdp.errors.NearlyInfeasibleWarning")
@pytest.mark.parametrize("penalty", [1e3, 1e6, 1e9])
def test_a_choice_that_costs_a_million_times_as_much(penalty: float) -> None:
    """What is avoided sets neither the length of steps, nor the multiplier's bounds, nor what its probability costs."""
    transition = np.random.default_rng(0).dirichlet(np.ones(20), size=(20, 4))
    reward, cost = np.random.default_rng(1).random((2, 20, 4))
    cost[3, 1] = penalty
    cmdp = fc.CMDP.from_arrays(transition, reward, cost, gamma=0.9, limits=4.5)
    result = fc.solve(cmdp, samples=3e6, replicates=2)
    late, best = result.last_quarter, result.optimum
    assert best is not None
    assert late.violation.max() < 0.02
    assert np.abs(late.gap).max() < 0.02
    assert late.duals == pytest.approx(np.full((2, 1), best.duals[0]), rel=0.2)


def test_the_default_method() -> None:
    cmdp, features = MODELS["random"], np.eye(MODELS["random"].n_choices)
    queue = fc.simulators.tandem_queue(gamma=0.8)
    for model, policy in ((cmdp, None), (cmdp, fc.LogLinear(features)), (queue, None)):
        made = fc.solve(model, samples=2e4, policy=policy, optimum=False).algorithm
        assert made == PDANPGCV.for_samples(model, 2e4)
    for algorithm in (fc.PDANPG(outer=5), fc.PDANPG):
        with pytest.raises(fc.SettingError, match=r"PDANPG.for_samples\(cmdp, 100000.0\)"):
            fc.solve(cmdp, algorithm, samples=1e5)  # type: ignore[arg-type]
    with pytest.raises(fc.SettingError, match="samples = -1"):
        fc.solve(cmdp, samples=-1)


def test_large_models_get_more_pairs_an_outer_step() -> None:
    """Transitions of an outer step are twice the choices, unless that leaves fewer than 2,000 outer steps."""
    small, large = (fc.envs.garnet(n_states=n, gamma=0.95) for n in (20, 5000))
    assert PDANPGCV.for_samples(small, 1e8).inner == 15
    made = PDANPGCV.for_samples(large, 1e9)
    assert made.outer_samples(large) == pytest.approx(2 * large.n_choices, rel=0.01)
    short = PDANPGCV.for_samples(large, 1e7)
    assert short.inner > 15
    assert 1990 < short.outer < 2300


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"inner": 0}, "inner = 0"),
        ({"c_eta": -1.0}, "c_eta = -1.0"),
        ({"c_dual": "fast"}, "c_dual = 'fast'"),
    ],
)
def test_wrong_settings_name_the_setting(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(fc.SettingError, match=message):
        PDANPGCV(**wrong)


@pytest.mark.parametrize("kind", ["zero", "constant", "unseen"])
def test_limits_are_met_where_the_reward_tells_nothing(kind: str) -> None:
    """States with a cheap and a dear action: the uniform policy breaks the limit, and no reward says which to take."""
    transition = np.random.default_rng(0).dirichlet(np.ones(3), size=(3, 2))
    cost = np.tile([0.0, 1.0], (3, 1))
    reward = np.full((3, 2), {"zero": 0.0, "constant": 1.0, "unseen": 0.0}[kind])
    if kind == "unseen":  # a fourth state that is reached with probability 1e-7 alone pays
        wide = np.zeros((4, 2, 4))
        wide[:3, :, :3], wide[:3, :, 3], wide[3, :, 3] = transition * (1 - 1e-7), 1e-7, 1.0
        transition, reward, cost = (
            wide,
            np.pad(reward, ((0, 1), (0, 0)), constant_values=1.0),
            np.vstack([cost, [0, 0]]),
        )
    cmdp = fc.CMDP.from_arrays(transition, reward, cost, gamma=0.9, limits=2.0)
    result = fc.solve(cmdp, PDANPGCV(outer=400), seed=3)
    assert result.last_quarter.constraints[0, 0] < 2.1
    assert result.first.constraints[0, 0] > 3.5
