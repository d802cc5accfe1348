"""The tabular methods that read a whole table of Q: against their twin, with exact gradients, and broken on purpose."""

from __future__ import annotations

import math
from typing import Any

import naive
import numpy as np
import pytest
import scipy

import fastcmdp as fc
from fastcmdp import exact
from fastcmdp.kernels.algorithm import tabular
from fastcmdp.kernels.sampling.q_tables import Exact, Sampled
from fastcmdp.kernels.sampling.rollouts import rollouts
from fastcmdp.kernels.sampling.truncated import NoTally, truncated
from fastcmdp.kernels.streams import LANES
from fastcmdp.streams import streams
from fastcmdp.tables import build_actions, build_tables
from fastcmdp.worlds import TableWorld


def two_costs() -> fc.CMDP:
    """Five states of one to three choices, two costs of what pays."""
    rng = np.random.default_rng(7)
    available = np.arange(3) <= np.arange(5)[:, None] % 3
    reward = rng.random((5, 3))
    return fc.CMDP.from_arrays(
        rng.dirichlet(np.full(5, 0.5), (5, 3)), reward, [0.7 * reward + 0.3 * rng.random((5, 3)) for _ in range(2)],
        gamma=0.8, limits=[5.0, 5.0], sense=["<=", "<="], available=available,
    )  # fmt: skip


def uniform(model: fc.CMDP) -> Any:
    """The probabilities of the uniform policy."""
    counts = np.diff(model.state_to_choice)
    return np.repeat(1.0 / counts, counts)


def missed(model: fc.CMDP) -> fc.CMDP:
    """With limits that the uniform policy misses."""
    costs = fc.evaluate(model, uniform(model)).constraints
    return model.with_limits(costs - 0.3 * (costs - fc.optimum(model).constraint_range[:, 0]))


MODEL = missed(two_costs())
BEST = fc.optimum(MODEL)
SAMPLED: dict[str, Any] = {"outer": 6, "rollouts": 3, "pairs": 5, "c_eta": 3.0}
SETTINGS = {
    "rpg-pd": fc.RPGPD(tau=0.2, **SAMPLED),
    "opg-pd": fc.OPGPD(**SAMPLED),
    "opg-pd, multiplicative": fc.OPGPD(update="multiplicative", c_zeta=2.0, **SAMPLED),
    "reload": fc.ReLOAD(**SAMPLED),
    "pi-pd": fc.PIPD(**SAMPLED),
    "al-pqa": fc.ALPQA(sweeps=3, **SAMPLED),
    "arnpg-epd": fc.ARNPG(sweeps=3, zeta=[0.5, 0.1], **(SAMPLED | {"c_eta": 1.2})),
    "constant steps": fc.RPGPD(
        outer=5, rollouts=2, pairs=4, eta=0.3, zeta=[0.2, 0.3], tau=0.1, lambda_max=0.2
    ),
    "exact rpg-pd": fc.RPGPD(outer=8, rollouts=0, tau=0.2, c_eta=3.0),
    "exact opg-pd": fc.OPGPD(outer=8, rollouts=0, c_eta=3.0),
    "exact al-pqa": fc.ALPQA(outer=5, rollouts=0, sweeps=4, c_eta=3.0),
    "exact arnpg-epd": fc.ARNPG(outer=5, rollouts=0),
}


def twin_of(run: Any, n_steps: int) -> naive.TableState:
    """The twin's state after so many outer steps."""
    model = naive.plain(MODEL)
    state = naive.TableState(
        model, MODEL.n_constraints, run.state.base[0].tolist(), naive.streams(5, 1, LANES)
    )
    naive.advance_table(model, run.rule, run.dual, run.source, run.steps, state, n_steps)
    return state


def compare(run: Any, twin: naive.TableState) -> None:
    got = run.state
    assert got.samples[1] == twin.samples
    assert got.rng[1].tolist() == naive.state_words(twin.rng)
    # Sums in another order, a solved system for sweeps to 1e-10 of the range, a projection by bisection.
    for name in ("theta", "dual", "recent", "average", "longest", "sums"):
        np.testing.assert_allclose(
            getattr(got, name)[1], getattr(twin, name), rtol=1e-7, atol=1e-8, err_msg=name
        )


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_outer_steps(settings: Any) -> None:
    run = settings.run(TableWorld.of(MODEL, fc.TabularSoftmax(), BEST), 5, 2)
    run.advance(1, settings.outer, run.work())
    compare(run, twin_of(run, settings.outer))
    assert run.state.outer.tolist() == [0, settings.outer]
    assert run.state.samples[1] == settings.expected_samples(MODEL)
    assert np.abs(run.policies()[1] - run.policies()[0]).max() > 0.05
    assert (
        run.state.sums[1, -MODEL.n_constraints :] > 0
    ).any()  # along the run: it may end with a step back to 0
    assert not run.state.sums[0].any()


# AL-PQA for log-linear policies.

FEATURES = np.random.default_rng(11).normal(
    size=(MODEL.n_choices, 2)
)  # fewer than policies have: weights count


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", ["al-pqa", "exact al-pqa"])
def test_outer_steps_of_log_linear_policies(name: str, kind: str) -> None:
    settings: Any = SETTINGS[name]
    phi = scipy.sparse.csr_array(FEATURES) if kind == "sparse" else FEATURES
    run = settings.run(TableWorld.of(MODEL, fc.LogLinear(phi), BEST), 5, 2)
    run.advance(1, settings.outer, run.work())
    model = naive.plain(MODEL)
    twin = naive.TableState(
        model, MODEL.n_constraints, run.state.base[0].tolist(), naive.streams(5, 1, LANES)
    )
    twin.theta = [0.0] * FEATURES.shape[1]
    phi = FEATURES.tolist()
    naive.advance_table(model, run.rule, run.dual, run.source, run.steps, twin, settings.outer, phi)
    compare(run, twin)
    assert np.abs(run.policies()[1] - run.policies()[0]).max() > 0.05
    assert run.state.samples[1] == settings.expected_samples(MODEL)  # visits are of the same rollouts


def test_which_policies_al_pqa_takes() -> None:
    for policy, words in (
        (fc.NeuralSoftmax(choice_features=FEATURES, hidden=(3,)), "tabular and log-linear"),
        (fc.LogLinear(np.ones((MODEL.n_choices, 1001))), "1,001"),
    ):
        with pytest.raises(fc.SettingError, match=words):
            fc.solve(MODEL, fc.ALPQA(outer=1), policy=policy, optimum=BEST)


# Defects that public implementations of these methods have had, put into the twin: each is noticed.


def wrong_discount(model: Any, prob: Any, signal: Any, source: Any, rng: Any) -> Any:
    """sqrt(gamma) as the chance to go on."""
    return evaluate(model._replace(gamma=math.sqrt(model.gamma)), prob, signal, source, rng)


def stale_index(form: Any, history: Any, cap: float) -> float:
    """The multiplier of one constraint for all."""
    LAST.setdefault(len(history), multiplier(form, history, cap))
    return LAST[len(history)]


def one_step_apart(model: Any, prob: Any, signal: Any, source: Any, rng: Any) -> Any:
    """The table of a pair's Q recorded at the pair before."""
    found, moves = evaluate(model, prob, signal, source, rng)
    return [found[-1], *found[:-1]], moves


def elementwise(
    model: Any, rule: Any, state: Any, prob: Any, step: float, q: Any, later: Any, anchor: Any
) -> Any:
    """pi * Q where their product over the actions is meant: nothing is subtracted from an entry but its own share."""
    return [t + step * (a - p * a) for t, a, p in zip(state.theta, q, prob, strict=True)]


evaluate, multiplier = naive.evaluate, naive.multiplier
LAST: dict[int, float] = {}
DEFECTS = {
    "evaluate, discount": ("evaluate", wrong_discount, "reload"),
    "evaluate, pair": ("evaluate", one_step_apart, "reload"),
    "multiplier": ("multiplier", stale_index, "constant steps"),
    "table_step": ("table_step", elementwise, "pi-pd"),
}


@pytest.mark.parametrize(("part", "defect", "name"), DEFECTS.values(), ids=DEFECTS)
def test_defects_are_noticed(part: str, defect: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = SETTINGS[name]
    run = settings.run(TableWorld.of(MODEL, fc.TabularSoftmax(), BEST), 5, 2)
    run.advance(1, settings.outer, run.work())
    compare(run, twin_of(run, settings.outer))
    LAST.clear()
    monkeypatch.setattr(naive, part, defect)
    with pytest.raises(AssertionError):
        compare(run, twin_of(run, settings.outer))


def test_q_from_rollouts_and_exact_q() -> None:
    """Both sources against a solved system; five standard errors, and not with sqrt(gamma) for gamma."""
    prob = np.repeat(1.0 / np.diff(MODEL.state_to_choice), np.diff(MODEL.state_to_choice))
    q = exact.q_values(MODEL, prob)
    for n_rollouts, within in ((0, 1e-8), (40_000, 5 * 0.5 / 0.2 / math.sqrt(40_000))):
        made = fc.ReLOAD(outer=1, rollouts=n_rollouts, pairs=60)
        run = made.run(TableWorld.of(MODEL, fc.TabularSoftmax(), BEST), 3, 1)
        assert isinstance(run.source, Sampled if n_rollouts else Exact)
        work = run.work()
        run.advance(0, 1, work)  # the first outer step measures only, so its table is the uniform policy's
        assert np.abs(work.estimate - q).max() < within
    out, n = np.empty(q.shape), 40_000
    tables = build_tables(MODEL)
    truncated(
        tables, build_actions(tables, prob), streams(3, 1)[0], np.arange(len(q)), n, MODEL.signals,
        math.sqrt(MODEL.gamma), 60, out, NoTally(),
    )  # fmt: skip
    assert np.abs(out / n - q).max() > within


def test_projection() -> None:
    """Against bisection, and idempotent."""
    rng, model = np.random.default_rng(2), naive.plain(MODEL)
    for scale in (0.1, 1.0, 100.0):
        x = rng.normal(0, scale, MODEL.n_choices)
        want = naive.by_state(model, x.tolist(), naive.nearest_probabilities)
        got = x.copy()
        tabular.project(MODEL.state_to_choice, got)
        np.testing.assert_allclose(got, want, atol=1e-12)
        again = got.copy()
        tabular.project(MODEL.state_to_choice, again)
        np.testing.assert_allclose(again, got, atol=1e-12)


# Exact gradients, through the kernels.

PROBLEMS = {"garnet": fc.envs.garnet(n_states=20), "river-swim": fc.envs.river_swim()}
OPTIMA = {name: fc.optimum(model) for name, model in PROBLEMS.items()}
FAST: dict[str, Any] = {"outer": 1000, "rollouts": 0}


def last_error(problem: str, settings: Any, **more: Any) -> float:
    """Larger of relative gap and violation over the constraint's range, of the last iterate, per cent."""
    best = OPTIMA[problem]
    result = fc.solve(PROBLEMS[problem], settings, optimum=best, trace=2, **more)
    assert result.samples.tolist() == [0]
    (low, high), last = best.constraint_range[0], result.last
    return 100 * max(abs(float(last.gap[0] / best.reward)), float(last.violation[0, 0] / (high - low)))


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(
    ("settings", "within"),
    [
        (fc.PIPD(**FAST), 0.1),
        (fc.ReLOAD(**FAST), 0.1),
        (fc.OPGPD(**FAST), 0.1),
        (fc.OPGPD(update="multiplicative", **FAST), 0.1),
        (fc.ALPQA(**FAST), 0.1),
        (fc.RPGPD(tau=0.01, **FAST), 1.5),
    ],
    ids=["pi-pd", "reload", "opg-pd", "multiplicative", "al-pqa", "rpg-pd"],
)
def test_last_iterates_converge_with_exact_gradients(problem: str, settings: Any, within: float) -> None:
    assert last_error(problem, settings) <= within


@pytest.mark.parametrize("problem", PROBLEMS)
def test_plain_ascent_swings_on_with_the_same_steps(problem: str) -> None:
    """The negative control: PI-PD's own run, its proportional part taken away; largest errors of the second half."""
    best, model = OPTIMA[problem], PROBLEMS[problem]
    low, high = best.constraint_range[0]
    worst = []
    for damping in (1.0, 1e-9):
        settings = fc.PIPD(outer=1000, rollouts=0, damping=damping)
        values = fc.solve(model, settings, optimum=best, trace=40).trace.values[0, -20:]
        sign = 1 if model.sense[0] == "<=" else -1
        violation = np.maximum(sign * (values[:, 1] - model.limits[0]), 0) / (high - low)
        worst.append(100 * max((np.abs(best.reward - values[:, 0]) / best.reward).max(), violation.max()))
    assert worst[0] < 0.05
    assert worst[1] > 1.0


@pytest.mark.parametrize("problem", PROBLEMS)
def test_al_pqa_with_features_that_span_all_policies_converges_with_exact_gradients(problem: str) -> None:
    n = PROBLEMS[problem].n_choices
    policy = fc.LogLinear(np.random.default_rng(1).normal(size=(n, n)))
    assert last_error(problem, fc.ALPQA(outer=300, rollouts=0), policy=policy) <= 0.1


@pytest.mark.parametrize("seed", [1, 2])
def test_al_pqa_rests_where_the_class_has_its_best_policy(seed: int) -> None:
    """One feature for nine choices, limits that are met: the best mixes actions, and a general search finds it."""
    model = MODEL.with_limits([100.0, 100.0])
    phi = np.random.default_rng(seed).normal(size=(model.n_choices, 1))

    def reward(theta: float) -> float:
        return fc.evaluate(
            model, np.array(naive.refresh_all(naive.plain(model), phi.tolist(), [theta]))
        ).reward

    best = scipy.optimize.minimize_scalar(lambda theta: -reward(theta), bounds=(-20, 20), method="bounded")
    result = fc.solve(model, fc.ALPQA(outer=100, rollouts=0), policy=fc.LogLinear(phi), optimum=False)
    assert result.theta[0, 0] == pytest.approx(best.x, abs=0.01)
    assert reward(result.theta[0, 0]) == pytest.approx(-best.fun, rel=1e-6)


def test_al_pqa_leaves_every_action_a_probability_that_can_grow_again() -> None:
    policy = fc.LogLinear(np.eye(MODEL.n_choices))
    result = fc.solve(MODEL.with_limits([100.0, 100.0]), fc.ALPQA(outer=200, rollouts=0), policy=policy)
    assert result.last.gap[0] <= 1e-6
    assert 1e-12 < result.policy("last").min() < 1e-5


def test_al_pqa_meets_limits_within_a_class() -> None:
    """Two features for nine choices: what SLSQP finds from several starts at best."""
    phi = np.random.default_rng(1).normal(size=(MODEL.n_choices, 2))
    plain = naive.plain(MODEL)

    def values(theta: np.ndarray) -> np.ndarray:
        value = fc.evaluate(MODEL, np.array(naive.refresh_all(plain, phi.tolist(), theta.tolist())))
        user = np.append(value.reward, value.constraints)
        return np.append(value.reward, MODEL.slack(user))

    room = {"type": "ineq", "fun": lambda theta: values(theta)[1:]}
    starts = np.random.default_rng(0).normal(0.0, 3.0, (8, 2))
    found = [
        values(scipy.optimize.minimize(lambda x: -values(x)[0], start, method="SLSQP", constraints=[room]).x)
        for start in starts
    ]
    best = max(v[0] for v in found if v[1:].min() >= -1e-5)
    result = fc.solve(MODEL, fc.ALPQA(outer=300, rollouts=0), policy=fc.LogLinear(phi), optimum=BEST)
    end = values(result.theta[0])
    assert end[1:].min() >= -1e-5
    assert end[0] == pytest.approx(best, rel=1e-3)


def test_the_regularisers_bias_is_of_their_order() -> None:
    """RPG-PD's exact last iterate: the bias grows with tau."""
    made: dict[str, Any] = {"outer": 3000, "rollouts": 0, "c_eta": 3.0, "c_zeta": 10.0}
    small, large = (last_error("garnet", fc.RPGPD(tau=tau, **made)) for tau in (0.01, 0.3))
    assert small < 1.0
    assert large > 3 * small


def test_arnpg_error_falls_like_one_over_the_outer_steps() -> None:
    """Mixture of exact runs with inner loops long enough to arrive: K = 20 to 160, halved by each doubling."""
    model = fc.envs.garnet(n_states=6, n_actions=3, gamma=0.8, seed=2)
    best = fc.optimum(model)
    assert best.duals[0] > 0.05
    errors = []
    for n_outer in (20, 40, 80, 160):
        made = fc.ARNPG(outer=n_outer, rollouts=0, sweeps=40, alpha=0.3, zeta=0.3, c_eta=2.0)
        result = fc.solve(model, made, optimum=best, trace=n_outer)
        gap, violation = (
            result.gap[0] / model.reward_scale,
            result.violation[0, 0] / model.constraint_scale[0],
        )
        errors.append(max(abs(gap), violation))
    assert errors[-1] > 1e-5  # far above rounding
    np.testing.assert_allclose(np.array(errors[1:]) / errors[:-1], 0.5, atol=0.1)


def test_settings_are_checked_and_overflow_stops_the_run() -> None:
    for made, wrong in (
        (fc.RPGPD, {"tau": 0.0}), (fc.OPGPD, {"update": "none"}), (fc.ALPQA, {"sweeps": 0}),
        (fc.ARNPG, {"alpha": -1.0}), (fc.PIPD, {"damping": 0.0}), (fc.ReLOAD, {"rollouts": -1}),
        (fc.ReLOAD, {"pairs": 0}), (fc.ReLOAD, {"zeta": [1.0, 0.0]}),
    ):  # fmt: skip
        with pytest.raises(fc.SettingError, match=next(iter(wrong))):
            made(**wrong)  # type: ignore[arg-type]
    with pytest.warns(RuntimeWarning, match="ceased to be finite"):
        lost = fc.solve(MODEL, fc.ReLOAD(outer=5, eta=1e308), optimum=BEST)
    assert lost.failed[0] >= 0


# PDR-ANPG's bonus. Its whole outer step has a twin in test_replay.py.


def test_the_entropy_bonus_is_unbiased() -> None:
    """-log pi at the last pair of a geometric rollout, over 1 - gamma, has the mean of the discounted sum."""
    weights = np.random.default_rng(1).random(MODEL.n_choices) + 0.05
    prob = weights / np.add.reduceat(weights, MODEL.state_to_choice[:-1])[MODEL.choice_state]
    tables = build_tables(MODEL)
    n, (job, row) = 40_000, (np.int64, np.uint32)
    surprise = -np.log(prob)
    chain = np.zeros((MODEL.n_states, MODEL.n_states))
    np.add.at(chain, MODEL.choice_state, prob[:, None] * MODEL.transition_matrix().toarray())
    mean = np.bincount(MODEL.choice_state, prob * surprise)
    v = np.linalg.solve(np.eye(MODEL.n_states) - MODEL.gamma * chain, mean)
    want = surprise + MODEL.gamma * (MODEL.transition_matrix() @ v)
    for q in (0, MODEL.n_choices - 1):
        total, last = np.zeros((n, tables.n_signals)), np.zeros(n, job)
        rollouts(
            tables,
            build_actions(tables, prob),
            streams(4, 1)[0],
            np.full(n, q, job),
            np.zeros(n, row),
            total,
            last,
        )
        found = surprise[last] / (1 - MODEL.gamma)
        error = found.std() / math.sqrt(n)
        assert abs(found.mean() - want[q]) < 5 * error
        assert abs(surprise[last].mean() - want[q]) > 5 * error  # not without the horizon


def test_arnpg_has_no_cap():
    with pytest.raises(fc.SettingError, match="arnpg-epd has no cap"):
        fc.ARNPG(lambda_max=1.0)
