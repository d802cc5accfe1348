"""PMD-PD: truncated rollouts and outer steps against their twins, and the decay of its error with exact values."""

from __future__ import annotations

import naive
import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp import exact
from fastcmdp.kernels.sampling.truncated import NoTally, truncated
from fastcmdp.kernels.streams import LANES
from fastcmdp.streams import streams
from fastcmdp.tables import build_actions, build_tables
from fastcmdp.worlds import TableWorld


def uneven() -> fc.CMDP:
    """Five states of one to three choices, two constraints."""
    rng = np.random.default_rng(7)
    available = np.arange(3) <= np.arange(5)[:, None] % 3
    return fc.CMDP.from_arrays(
        rng.dirichlet(np.full(5, 0.5), (5, 3)),
        rng.random((5, 3)),
        [rng.random((5, 3)), rng.random((5, 3))],
        gamma=0.8,
        limits=[1.5, 3.4],
        available=available,
    )


def some_policy() -> np.ndarray:
    weight = np.random.default_rng(1).random(MODEL.n_choices)
    return weight / np.add.reduceat(weight, MODEL.state_to_choice[:-1])[MODEL.choice_state]


MODEL = uneven()
BEST = fc.optimum(MODEL)


@pytest.mark.parametrize("draws", ["fast", "exact"])
@pytest.mark.parametrize(("repeats", "n_pairs"), [(1, 1), (1, 4), (7, 3), (40, 6)])
def test_truncated_rollouts(draws: str, repeats: int, n_pairs: int) -> None:
    tables = build_tables(MODEL, draws)
    prob = some_policy()
    actions, rng = build_actions(tables, prob), streams(3, 1)[0]
    starts = np.array([-1, *range(MODEL.n_choices)])
    out = np.empty((len(starts), 3))
    n = truncated(tables, actions, rng, starts, repeats, MODEL.signals, MODEL.gamma, n_pairs, out, NoTally())
    assert n == len(starts) * repeats * (n_pairs - 1)
    lanes = naive.streams(3, 0, LANES)
    want = naive.truncated(
        naive.plain(MODEL, draws == "exact"), prob.tolist(), lanes,
        [None, *range(MODEL.n_choices)], repeats, MODEL.signals.tolist(), n_pairs,
    )  # fmt: skip
    np.testing.assert_allclose(out, want, rtol=1e-13, atol=1e-13)  # sums in another order
    assert rng.tolist() == naive.state_words(lanes)


def test_truncated_rollouts_have_the_right_mean() -> None:
    """Against exact Q, 40,000 rollouts of 60 pairs (bias below 1e-5): five standard errors in 33 means, and not
    with a discount that is off by one step (negative control)."""
    tables = build_tables(MODEL)
    prob = some_policy()
    n, q = 40_000, exact.q_values(MODEL, prob)
    out = np.empty(q.shape)
    truncated(
        tables,
        build_actions(tables, prob),
        streams(3, 1)[0],
        np.arange(len(q)),
        n,
        MODEL.signals,
        MODEL.gamma,
        60,
        out,
        NoTally(),
    )
    error = (
        0.5 / (1 - MODEL.gamma) / np.sqrt(n)
    )  # sums of [0, 1] signals deviate by less than half their range
    assert np.abs(out / n - q).max() < 5 * error
    assert np.abs(MODEL.signals + (out / n - MODEL.signals) / MODEL.gamma - q).max() > 5 * error


@pytest.mark.parametrize(
    "settings",
    [
        fc.PMDPD(rollouts=3, starts=20, pairs=5),
        fc.PMDPD(rollouts=2, starts=5, pairs=4, sweeps=3, dual_step=[0.3, 0.1]),
        fc.PMDPD(rollouts=2, starts=5, pairs=4, sweeps=2, alpha=0.4, eta=0.2, dual_step=1.0),
    ],
)
def test_outer_steps(settings: fc.PMDPD) -> None:
    problem = TableWorld.of(MODEL, fc.TabularSoftmax(), BEST)
    run = settings.run(problem, 5, 2)
    twin = naive.MirrorState(naive.plain(MODEL), 2, naive.streams(5, 1, LANES))
    run.advance(1, 4, run.work())
    naive.pmd_pd(naive.plain(MODEL), run.steps, twin, 4)
    np.testing.assert_allclose(run.state.theta[1], twin.log_pi, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(run.state.dual[1], twin.dual, rtol=1e-9)
    np.testing.assert_allclose(run.state.estimate[1], twin.estimate, rtol=1e-11)
    assert run.state.outer.tolist() == [0, 4]
    assert run.state.samples[1] == settings.expected_samples(MODEL) - (
        settings.outer - 4
    ) * settings.outer_samples(MODEL)
    assert (run.state.dual[1] > 0).any()
    assert np.abs(run.state.theta[1] - run.state.theta[0]).max() > 0.1


def exact_run(model: fc.CMDP, alpha: float, dual_step: float, n_outer: int, n_sweeps: int) -> np.ndarray:
    """Mean over pi_1..pi_K of the exact J, kernel units, of PMD-PD with exact evaluations."""
    first = model.state_to_choice[:-1]

    def softmax(z: np.ndarray) -> np.ndarray:
        z = z - np.maximum.reduceat(z, first)[model.choice_state]
        return z - np.log(np.add.reduceat(np.exp(z), first))[model.choice_state]

    log_pi = softmax(np.zeros(model.n_choices))
    values = model.start @ exact.values(model, np.exp(log_pi))
    dual, total = np.maximum(dual_step * values[1:], 0.0), np.zeros_like(values)
    for _ in range(n_outer):
        reward = model.signals[:, 0] + model.signals[:, 1:] @ (dual - dual_step * values[1:])
        anchor = log_pi
        for _ in range(n_sweeps):
            kl = np.add.reduceat(np.exp(log_pi) * (log_pi - anchor), first)
            signal = reward - alpha * kl[model.choice_state]
            flow = model.transition_matrix() @ np.eye(model.n_states)
            policy = np.zeros((model.n_states, model.n_choices))
            policy[model.choice_state, np.arange(model.n_choices)] = np.exp(log_pi)
            v = np.linalg.solve(np.eye(model.n_states) - model.gamma * policy @ flow, policy @ signal)
            log_pi = softmax((reward + alpha * anchor + model.gamma * flow @ v) / alpha)
        values = model.start @ exact.values(model, np.exp(log_pi))
        dual = np.maximum(dual_step * values[1:], dual - dual_step * values[1:])
        total += values
    return total / n_outer


def test_error_falls_like_one_over_the_outer_steps() -> None:
    """The recursion itself with exact evaluations (`exact_run`, no kernel): K = 20 to 160, halved by each doubling."""
    model = fc.envs.garnet(n_states=6, n_actions=3, gamma=0.8, seed=2)
    best = fc.optimum(model)
    assert best.duals[0] > 0.05
    errors = []
    for n_outer in (20, 40, 80, 160):
        mean = exact_run(model, 0.3, 0.3, n_outer, 30)
        errors.append(max(best.raw[0] - mean[0], -mean[1]))
    assert errors[-1] > 1e-4  # far above rounding
    np.testing.assert_allclose(np.array(errors[1:]) / errors[:-1], 0.5, atol=0.05)


def test_the_kernels_follow_the_exact_recursion() -> None:
    """Through the run's kernels: with many rollouts the multipliers and the mean of J over pi_1..pi_K are those of the
    recursion with exact evaluations, and a longer run is better."""
    model = fc.envs.garnet(n_states=6, n_actions=3, gamma=0.8, seed=2)
    best = fc.optimum(model)
    errors = []
    for n_outer in (5, 20):
        made = fc.PMDPD(
            outer=n_outer, sweeps=3, rollouts=3000, starts=30_000, pairs=60, alpha=0.3, dual_step=0.3
        )
        problem = TableWorld.of(model, fc.TabularSoftmax(), best)
        run = made.run(problem, 7, 1)
        work, total = run.work(), np.zeros(2)
        for _ in range(n_outer):
            run.advance(0, 1, work)
            total += fc.evaluate(model, run.policies()[0]).raw
        # Sums of signals deviate by some 2 a rollout: 0.01 in an estimate of J, less in the mean of many.
        np.testing.assert_allclose(total / n_outer, exact_run(model, 0.3, 0.3, n_outer, 3), atol=0.02)
        errors.append(max(best.raw[0] - total[0] / n_outer, -total[1] / n_outer))
    assert errors[1] < errors[0] / 2
    for alpha, dual_step in ((0.3, 0.03), (1.0, 0.3)):  # other steps would be noticed
        off = exact_run(model, alpha, dual_step, 20, 3) - exact_run(model, 0.3, 0.3, 20, 3)
        assert np.abs(off).max() > 0.1


def test_settings_are_checked_and_overflow_stops_the_run() -> None:
    with pytest.raises(fc.SettingError, match=r"at most \(1-gamma\)/alpha"):
        fc.solve(MODEL, fc.PMDPD(outer=1, alpha=1.0, eta=0.3))
    for wrong in ({"rollouts": 0}, {"pairs": 0}, {"alpha": -1.0}, {"dual_step": [1.0, 0.0]}, {"sweeps": 1.5}):
        with pytest.raises(fc.SettingError, match=next(iter(wrong))):
            fc.PMDPD(**wrong)
    with pytest.raises(fc.SettingError, match="dual_step has 3 values"):
        fc.solve(MODEL, fc.PMDPD(outer=1, dual_step=[1.0, 1.0, 1.0]))
    with pytest.warns(RuntimeWarning, match="ceased to be finite"):
        lost = fc.solve(MODEL, fc.PMDPD(outer=5, rollouts=1, starts=1, alpha=1e-310), optimum=BEST)
    assert lost.failed[0] >= 0
