"""C-PG and LB-SGD: against their twin, with exact gradients, value at risk, and broken on purpose."""

from __future__ import annotations

import math
from typing import Any

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from test_tabular import two_costs, uniform

import fastcmdp as fc
from fastcmdp import exact
from fastcmdp.algorithms.vanilla import VanillaRun
from fastcmdp.kernels.sampling.trajectories import trajectories
from fastcmdp.kernels.streams import LANES
from fastcmdp.streams import streams
from fastcmdp.tables import build_actions, build_tables
from fastcmdp.worlds import TableWorld


def uneven(slack: float) -> fc.CMDP:
    """Two costs, of which the uniform policy is this share of their range within limits."""
    model = two_costs()
    low, high = fc.optimum(model).constraint_range.T
    return model.with_limits(fc.evaluate(model, uniform(model)).constraints + slack * (high - low))


MISSED, MET = uneven(-0.2), uneven(0.15)
SMALL: dict[str, Any] = {"outer": 5, "trajectories": 5, "pairs": 6}
SETTINGS: dict[str, Any] = {
    "c-pg": fc.CPG(**SMALL, ridge=0.2),
    "c-pg, many": fc.CPG(outer=3, trajectories=LANES + 3, pairs=4),
    "c-pg, constant": fc.CPG(**SMALL, eta=0.5, zeta=[0.2, 0.3], lambda_max=0.3),
    "c-pg, value at risk": fc.CPG(**SMALL, cvar=[0.5, 0.0], c_eta=2.0),
    "c-pg, exact": fc.CPG(outer=6, trajectories=0, c_zeta=3.0),
    "lb-sgd": fc.LBSGD(**SMALL, delta=0.9),
    "lb-sgd, smoothness": fc.LBSGD(**SMALL, smoothness=[3.0, 2.0, 1.0], barrier=0.3, delta=0.9),
    "lb-sgd, exact": fc.LBSGD(outer=6, trajectories=0),
}


def pair_of_runs(model: fc.CMDP, policy: Any, settings: Any) -> tuple[VanillaRun, Any, Any]:
    """A run, its twin's state, and what moves the twin to the run's end."""
    run = settings.run(TableWorld.of(model, policy, False), 5, 2)
    plain = naive.plain(model)
    phi = naive.identity(model.n_choices) if isinstance(policy, fc.TabularSoftmax) else PHI.tolist()
    state = naive.GradientState(len(phi[0]), model.n_constraints, naive.streams(5, 1, LANES))
    size = (settings.trajectories, settings.n_pairs(model.gamma))

    def follow() -> None:
        naive.advance_gradients(plain, phi, run.source, run.rule, run.steps, state, size, settings.outer)

    return run, state, follow


PHI = np.random.default_rng(4).standard_normal((MISSED.n_choices, 4))
POLICIES = {
    "tabular": fc.TabularSoftmax(),
    "dense": fc.LogLinear(PHI),
    "sparse": fc.LogLinear(sp.csr_array(PHI)),
}


def compare(run: VanillaRun, state: Any) -> None:
    got = run.state
    assert got.samples[1] == state.samples
    assert got.rng[1].tolist() == naive.state_words(state.rng)
    for name in ("theta", "dual", "quantile", "recent", "average", "longest", "sums"):
        # Sums in another order; systems solved by sweeps to 1e-10 of the range.
        np.testing.assert_allclose(
            getattr(got, name)[1], getattr(state, name), rtol=1e-7, atol=1e-8, err_msg=name
        )


@pytest.mark.parametrize("model", [MISSED, MET], ids=["missed", "met"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_outer_steps(settings: Any, policy: Any, model: fc.CMDP) -> None:
    run, state, follow = pair_of_runs(model, policy, settings)
    run.advance(1, settings.outer, run.work())
    follow()
    compare(run, state)
    assert run.state.outer.tolist() == [0, settings.outer]
    assert run.state.samples[1] == settings.expected_samples(model)
    assert np.abs(run.state.theta[1]).max() > 1e-3
    assert not run.state.theta[0].any()


def stale_index(real: Any) -> Any:
    """The multiplier of the first outer step, for ever."""
    return lambda form, history, cap: real(form, history[:1], cap)


def one_step_apart(real: Any) -> Any:
    """Every pair's weight on the score of the pair before."""
    return lambda m, phi, prob, pairs, theta: real(m, phi, prob, [pairs[-1], *pairs[:-1]], theta)


def wrong_discount(real: Any) -> Any:
    """sqrt(gamma) for gamma."""
    return lambda m, *rest: real(m._replace(gamma=math.sqrt(m.gamma)), *rest)


def discounted_twice(real: Any) -> Any:
    """gamma^l before a sum that has it already."""
    return lambda m, path, first, k: real(m, path, first, k) * m.gamma**first


def twice_as_far(real: Any) -> Any:
    """A step that the bounds do not cover."""
    return lambda *given: 2 * real(*given)


def no_way_in(real: Any) -> Any:
    """The reward's gradient while limits are missed."""
    return lambda *given: [1.0, *real(*given)[1:]]


# As public implementations of the family have had them, and what would be worst here.
DEFECTS = {
    "stale index": ("multiplier", "c-pg, constant", stale_index),
    "pairs one step apart": ("collect_scores", "c-pg", one_step_apart),
    "sqrt(gamma)": ("discounted", "c-pg", wrong_discount),
    "discounted twice": ("discounted", "c-pg", discounted_twice),
    "whole step": ("safe_step", "lb-sgd", twice_as_far),
    "no way in": ("barrier_prices", "lb-sgd", no_way_in),
}


@pytest.mark.parametrize(("part", "name", "defect"), DEFECTS.values(), ids=DEFECTS)
def test_defects_are_noticed(part: str, name: str, defect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, state, follow = pair_of_runs(MISSED, fc.TabularSoftmax(), SETTINGS[name])
    run.advance(1, SETTINGS[name].outer, run.work())
    monkeypatch.setattr(naive, part, defect(getattr(naive, part)))
    follow()
    with pytest.raises(AssertionError):
        compare(run, state)


def weights() -> Any:
    x = np.random.default_rng(1).random(MISSED.n_choices) + 0.05
    return x / np.add.reduceat(x, MISSED.state_to_choice[:-1])[MISSED.choice_state]


def test_gradients_of_both_sources() -> None:
    """Exact ones against the library's, those of trajectories within five standard errors."""
    theta = np.log(weights())
    for settings, n in (
        (fc.CPG(outer=1, trajectories=0), 1),
        (fc.CPG(outer=1, trajectories=50, pairs=80), 400),
    ):
        run = settings.run(TableWorld.of(MISSED, fc.TabularSoftmax(), False), 3, n)
        run.state.theta[:] = theta
        run.refresh()
        work, found = run.work(), []
        eye = np.eye(MISSED.n_choices) - weights() * (MISSED.choice_state[:, None] == MISSED.choice_state)
        for r in range(n):
            run.advance(r, 1, work)  # the first step measures only
            found.append(work.weight.T @ eye[work.pair])
        want = np.stack(
            [exact.policy_gradient(MISSED, eye, weights(), dual) for dual in ([0, 0], [1, 0], [0, 1])]
        )
        want[1:] -= want[0]
        mean = np.mean(found, axis=0)
        error = np.std(found, axis=0) / math.sqrt(n) if n > 1 else 1e-9
        assert (np.abs(mean - want) < 5 * error + 1e-9).all()
        assert np.abs(want).max() > 0.1


def returns(model: fc.CMDP, prob: Any, n: int, n_pairs: int) -> Any:
    """Discounted sums of all signals along so many trajectories, float64[n, 1+m]."""
    path = np.zeros((n, n_pairs), np.int64)
    tables = build_tables(model)
    trajectories(tables, build_actions(tables, prob), streams(9, 1)[0], path)
    return (model.gamma ** np.arange(n_pairs)[:, None] * model.signals[path]).sum(axis=1)


def at_risk(losses: Any, level: float) -> float:
    """Mean of the worst share 1 - level."""
    worst = np.sort(losses)[int(level * len(losses)) :]
    return float(worst.mean())


def test_trajectories_have_the_right_law() -> None:
    """Mean discounted sums are the exact values of kernel units, within five standard errors."""
    sums = returns(MISSED, weights(), 40_000, 60)
    q = exact.q_values(MISSED, weights())
    want = (MISSED.start[MISSED.choice_state] * weights()) @ q
    assert (np.abs(sums.mean(axis=0) - want) < 5 * sums.std(axis=0) / 200 + 1e-4).all()


def risky() -> fc.CMDP:
    """No cost, or one of 1 with probability one half that pays: the mean allows the gamble, the worst half does not."""
    step = np.zeros((3, 2, 3))
    step[0, 0] = [0.0, 1.0, 0.0]
    step[0, 1] = [0.0, 0.5, 0.5]
    step[1:, :, 1] = 1.0
    step[2, :, 1], step[2, :, 2] = 0.0, 1.0
    reward = np.zeros((3, 2))
    reward[0] = [0.0, 0.5]
    cost = np.zeros((3, 2))
    cost[2] = 1.0
    return fc.CMDP.from_arrays(step, reward, [cost], gamma=0.5, limits=[0.6], start=[1.0, 0.0, 0.0])


def test_a_limit_on_the_value_at_risk() -> None:
    """The gamble costs half its chance on average, always within the limit, and its chance in the worst half."""
    model = risky()
    risk = {}
    for level in (0.0, 0.5):
        made = fc.CPG(outer=4000, trajectories=20, pairs=30, cvar=level)
        policies = fc.solve(model, made, seed=2, replicates=4, trace=20).run.policies()
        risk[level] = []
        for prob in policies:
            costs = 0.6 - returns(model, prob, 20_000, 30)[:, 1] * model.constraint_scale[0]
            np.testing.assert_allclose(at_risk(costs, 0.5), prob[1], atol=0.03)
            risk[level].append(at_risk(costs, 0.5))
    assert min(risk[0.0]) > 0.9
    assert max(risk[0.5]) < 0.6


# Exact gradients, through the kernels.

GARNET = fc.envs.garnet(n_states=6, n_actions=3, gamma=0.8, seed=2)
BEST = fc.optimum(GARNET)


def late(settings: Any) -> tuple[float, float, float]:
    """Of the last quarter of a run: error of its last iterate, its largest error, spread of its multiplier.

    Errors are the larger of relative gap, either sign, and violation over the constraint's range, per cent.
    """
    result = fc.solve(GARNET, settings, optimum=BEST, trace=40)
    assert result.samples.tolist() == [0]
    (low, high), values = BEST.constraint_range[0], result.trace.values[0, -10:]
    gap = np.abs(BEST.reward - values[:, 0]) / BEST.reward
    violation = np.maximum(values[:, 1] - GARNET.limits[0], 0) / (high - low)
    errors = 100 * np.maximum(gap, violation)
    return float(errors[-1]), float(errors.max()), float(result.trace.duals[0, -10:, 0].std())


def test_c_pg_converges_with_exact_gradients() -> None:
    """With a ridge the last iterate settles, off by what the ridge takes; without one it swings on."""
    made: dict[str, Any] = {"outer": 3000, "trajectories": 0, "eta": 1.0, "zeta": 1.0}
    error, worst, spread = late(fc.CPG(ridge=0.005, **made))
    assert error < 0.1
    assert worst < 0.1
    assert spread < 1e-3
    _, worst, spread = late(fc.CPG(ridge=1e-9, **made))
    assert worst > 0.5
    assert spread > 0.05
    small, large = (late(fc.CPG(ridge=ridge, **made))[0] for ridge in (0.02, 0.1))
    np.testing.assert_allclose(large / small, 5.0, rtol=0.1)


def excess(result: Any) -> Any:
    """Recorded costs less their limits, user units, float64[R, n+1, m]."""
    return result.trace.values[:, :, 1:] - result.cmdp.limits


def test_lb_sgd_stays_feasible_and_arrives_at_its_barrier() -> None:
    """Exact gradients from a policy within the limits: none is missed at any step; the gap is of the barrier's size."""
    model = uneven(0.15)
    best = fc.optimum(model)
    for barrier in (0.2, 0.02):
        result = fc.solve(
            model, fc.LBSGD(outer=4000, trajectories=0, barrier=barrier), optimum=best, trace=400
        )
        assert (excess(result) < 0).all()
        gap = float(result.last.gap[0]) / model.reward_scale
        assert 0 < gap < 1.5 * model.n_constraints * barrier


def test_lb_sgd_is_feasible_from_samples() -> None:
    """Every policy of every replicate meets every limit, and the last is better than the first."""
    made = fc.LBSGD(outer=150, trajectories=100, pairs=40)
    kept = fc.solve(MET, made, optimum=fc.optimum(MET), seed=3, replicates=8, trace=150)
    assert (excess(kept) < 0).all()
    assert (kept.last.reward > fc.evaluate(MET, uniform(MET)).reward).all()


def test_settings_are_checked() -> None:
    for made, wrong in (
        (fc.CPG, {"ridge": 0.0}), (fc.CPG, {"cvar": 1.0}), (fc.CPG, {"cvar": -0.1}), (fc.CPG, {"trajectories": 1}),
        (fc.CPG, {"pairs": 0}), (fc.LBSGD, {"delta": 1.0}), (fc.LBSGD, {"barrier": -1.0}),
        (fc.LBSGD, {"smoothness": 0.0}), (fc.LBSGD, {"reach": math.nan}),
    ):  # fmt: skip
        with pytest.raises(fc.SettingError, match=next(iter(wrong))):
            made(**wrong)  # type: ignore[arg-type]
    with pytest.raises(fc.SettingError, match="cvar"):
        fc.CPG(trajectories=0, cvar=0.5)
    for made in (fc.CPG(cvar=[0.1, 0.2, 0.3]), fc.LBSGD(smoothness=[1.0, 2.0])):
        with pytest.raises(fc.SettingError, match="values"):
            fc.solve(MISSED, made)
    with pytest.warns(RuntimeWarning, match="ceased to be finite"):
        lost = fc.solve(MISSED, fc.CPG(outer=9, zeta=1e308, lambda_max=1e300))
    assert lost.failed[0] >= 0


def test_they_need_a_table() -> None:
    for made in (fc.CPG(outer=2), fc.LBSGD(outer=2)):
        with pytest.raises(fc.SettingError, match="table"):
            fc.solve(fc.simulators.tandem_queue(), made)
