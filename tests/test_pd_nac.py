"""PD-NAC: the lazy loop against its dense twin, the law of its draws, what its critics and multipliers tend to."""

from __future__ import annotations

import dataclasses

import naive
import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp import exact
from fastcmdp.algorithms.pd_nac import PDNACRun
from fastcmdp.cmdp import CMDP
from fastcmdp.compare import Scales
from fastcmdp.kernels.streams import LANES
from fastcmdp.policies import TabularSoftmax
from fastcmdp.tables import build_tables
from fastcmdp.worlds import TableWorld

SEED = 4
MODELS = {name: CMDP(**rows) for name, rows in naive.MODELS.items() if name != "many states"}
# Steps as those of K = 1e5: with those of K = 600 the recursion itself makes rounding grow.
SHORT = {"outer": 600, "c_alpha": 0.01, "c_dual": 0.01}
SETTINGS = {
    "powers of K": fc.PDNAC(**SHORT),
    "plain chain": fc.PDNAC(restart=False, **SHORT),
    "sum": fc.PDNAC(dual_estimate="sum", lambda_max=0.5, **SHORT),
    "sum on the plain chain": fc.PDNAC(dual_estimate="sum", restart=False, **SHORT),
    "long steps": fc.PDNAC(outer=900, alpha=0.02, eta=0.05, beta=0.5, explore=0.05),
    "always exploring": fc.PDNAC(outer=600, alpha=0.01, explore=1.0),
}


def make_run(cmdp: CMDP, settings: fc.PDNAC, replicates: int = 1, draws: str = "fast") -> PDNACRun:
    problem = TableWorld.of(cmdp, TabularSoftmax(), False, draws)
    return settings.run(problem, SEED, replicates)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("draws", ["fast", "exact"])
@pytest.mark.parametrize("name", MODELS)
def test_lazy_equals_dense(name: str, draws: str, settings: fc.PDNAC) -> None:
    """The twin moves all entries of theta at each step and sums all exponentials at each draw."""
    cmdp = MODELS[name]
    run = make_run(cmdp, settings, 2, draws)
    state = naive.ActorCritic(naive.plain(cmdp), cmdp.n_constraints, naive.streams(SEED, 1, LANES)[0])
    work, got = run.work(), run.state
    third = settings.outer // 3
    for n_steps in (third, settings.outer - third):
        run.advance(1, n_steps, work)
        naive.pd_nac(naive.plain(cmdp, draws == "exact"), run.steps, state, n_steps)
        assert got.choice[1] == state.pair
        assert got.left[1] == state.left
        assert got.rng[1, :, 0].tolist() == [row[0] for row in naive.state_words([state.stream])]
        # To 1e-12 of the largest logit: a softmax turns what rounding does to logits into relative errors.
        near = {"rtol": 1e-12, "atol": 1e-12 * max(1.0, np.abs(state.theta).max())}
        pi = naive.refresh_all(naive.plain(cmdp), naive.identity(cmdp.n_choices), state.theta)
        np.testing.assert_allclose(run.policies()[1], pi, **near)
        np.testing.assert_allclose(got.critic[1][:, : 1 + cmdp.n_constraints], state.critic, **near)
        np.testing.assert_allclose(got.dual[1], state.dual, **near)
        np.testing.assert_allclose(got.sums[1], state.sums, rtol=1e-11, atol=1e-9)
        np.testing.assert_allclose(got.drawn[1], state.drawn, **near)
    # After step K theta itself is up to date, row for row.
    np.testing.assert_allclose(got.theta[1], state.theta, **near)
    assert got.outer.tolist() == got.samples.tolist() == [0, settings.outer]
    assert not got.theta[0].any()


def test_long_steps_reject_and_renew() -> None:
    """The rare path is taken in the tests above: entries are older than theta, and newer than the start."""
    run = make_run(MODELS["many actions"], SETTINGS["long steps"])
    run.advance(0, 900, run.work())
    moved = np.abs(run.state.drawn[0]) > 0
    assert moved.sum() > 5
    assert (run.state.drawn[0] != run.state.theta[0])[moved].any()


def test_a_loaded_run_draws_from_the_entries_it_had(tmp_path) -> None:
    """Entries lag behind theta: made of theta instead, draws are lawful but not those of the run without a stop."""
    cmdp, settings = MODELS["many actions"], SETTINGS["long steps"]
    whole = fc.solve(cmdp, settings, seed=SEED, optimum=False)

    def stop(progress) -> None:
        if progress.outer >= 450:
            raise KeyboardInterrupt

    path = tmp_path / "run.npz"
    fc.solve(cmdp, settings, seed=SEED, optimum=False, piece=1, progress=stop, checkpoint=path)
    half = fc.load_run(path, cmdp, optimum=False)
    assert 0 < half.run.state.outer[0] < settings.outer
    assert (half.run.state.drawn != half.run.state.theta).any()
    rest = fc.resume(half)
    for name, value in rest.run.state._asdict().items():
        np.testing.assert_array_equal(value, getattr(whole.run.state, name), err_msg=name)


def test_draws_follow_the_policy_of_the_step() -> None:
    """One state, five actions, large steps of theta: the frequency of each action is the sum of its probabilities.

    The sum of (indicator - probability) is a martingale, within 4.5 standard deviations of 0 in 5 sums (false alarm
    3e-5). Negative control: entries never renewed, which is the uniform policy of the start.
    """
    cmdp = MODELS["one state"]
    n, explore = 20_000, 0.1
    run = make_run(cmdp, fc.PDNAC(outer=n, alpha=0.002, eta=0.01, beta=0.05, explore=explore))
    work = run.work()
    counts, expected, variance = np.zeros(5), np.zeros(5), np.zeros(5)
    run.advance(0, 1, work)
    for _ in range(n - 1):
        pi = explore / 5 + (1 - explore) * run.policies()[0]
        run.advance(0, 1, work)
        counts[run.state.choice[0]] += 1
        expected += pi
        variance += pi * (1 - pi)
    assert np.abs(expected - (n - 1) / 5).max() > 1000
    assert (np.abs(counts - expected) < 4.5 * np.sqrt(variance)).all()
    assert (np.abs(counts - (n - 1) / 5) > 4.5 * np.sqrt(variance)).any()


@pytest.mark.parametrize("restart", [True, False])
def test_critics_tend_to_q_of_the_behaviour_policy(restart: bool) -> None:
    """theta almost still: Q within 0.1 by temporal differences, under one policy and not under that without exploring.

    Standing noise: beta = 1e-3 and (1/(1-gamma))^2 = 25 give standard deviations of about 0.03.
    """
    cmdp = MODELS["absorbing"] if restart else CMDP(**naive.random_rows(1, gamma=0.8))
    policy = TabularSoftmax().bind(cmdp)
    theta = 2.0 * np.random.default_rng(1).normal(size=cmdp.n_choices)
    bound = dataclasses.replace(policy, initial=theta)
    explore = 0.7
    settings = fc.PDNAC(outer=400_000, alpha=1e-12, eta=1e-12, beta=1e-3, explore=explore, restart=restart)
    run = settings.run(TableWorld(cmdp, build_tables(cmdp), bound), SEED, 1)
    run.advance(0, settings.outer, run.work())
    widths = np.diff(cmdp.state_to_choice)[cmdp.choice_state]
    pi = run.policies()[0]
    q = exact.q_values(cmdp, explore / widths + (1 - explore) * pi)
    assert np.abs(run.state.critic[0] - q).max() < 0.1
    assert np.abs(run.state.critic[0] - exact.q_values(cmdp, pi)).max() > 0.15


def test_looks_estimate_the_sum() -> None:
    """Over a run that moves little, J by looks and J by sums agree within 5 standard errors."""
    cmdp = MODELS["random"]
    common = {"outer": 200_000, "alpha": 1e-9, "eta": 1e-9, "beta": 1e-2, "explore": 0.2}
    means = []
    for estimate in ("sample", "sum"):
        run = make_run(cmdp, fc.PDNAC(dual_estimate=estimate, **common), replicates=8)
        for r in range(8):
            run.advance(r, 200_000, run.work())
        means.append(run.state.sums[:, :2] / 200_000)
    error = np.sqrt(sum(x.var(axis=0, ddof=1) / 8 for x in means))
    assert (np.abs(means[0].mean(axis=0) - means[1].mean(axis=0)) < 5 * error).all()
    assert (error < 0.02 * means[1].mean(axis=0)).any()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"alpha": 1e300}, "alpha"),
        ({"beta": 1.5}, "beta"),
        ({"explore": 2.0}, "explore"),
        ({"eta": [0.1, -1.0]}, "eta"),
        ({"dual_estimate": "all"}, "dual_estimate"),
        ({"restart": 1}, "restart"),
    ],
)
def test_settings_out_of_range(settings: dict[str, object], name: str) -> None:
    with pytest.raises(fc.SettingError, match=name):
        make_run(MODELS["random"], fc.PDNAC(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [fc.envs.garnet, fc.envs.resource_gathering, fc.envs.river_swim])
def test_error_falls_with_the_budget(make) -> None:
    """At defaults, the error that `compare` reports: 1e5 and 3e6 transitions, four replicates."""
    cmdp = make()
    best, errors = fc.optimum(cmdp), []
    for samples in (1e5, 3e6):
        made = fc.PDNAC.for_samples(cmdp, samples)
        found = fc.solve(cmdp, made, replicates=4, optimum=best, trace=50).mixture
        errors.append(Scales.of(cmdp, best).errors(cmdp, found).mean())
    assert errors[1] < 0.6 * errors[0]
    assert errors[1] < 0.1
