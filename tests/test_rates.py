"""Learning rates that a run measures: they come from earlier batches, so what is rare counts in full.

And what settings become in a kernel's Steps: literal formulas, and numbers worked out by hand.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp.kernels.learning import levels
from fastcmdp.worlds import TableWorld


def problem_of(cmdp: fc.CMDP, best: Any = False) -> TableWorld:
    return TableWorld.of(cmdp, fc.TabularSoftmax(), best)


# Rare rewards.


def rare(p: float, gamma: float = 0.5) -> fc.CMDP:
    """Action 1 of state 0 leads to a reward of 1 with probability p; action 0 earns half of what that is worth."""
    return fc.CMDP(
        [0, 2, 3], [0, 1, 3, 4], [0, 1, 0, 0], [1.0, p, 1 - p, 1.0], [p * gamma / 2, 0.0, 1.0],
        gamma=gamma, start=[1.0, 0.0],
    )  # fmt: skip


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("p", "settings"),
    [
        (0.002, fc.PDANPG(outer=200_000, inner=5)),
        (0.002, fc.NPGPDSoftmax(outer=500_000)),
        (0.002, fc.CRPOSoftmax()),
        pytest.param(0.002, fc.CRPO(), marks=SLOW),
        pytest.param(0.002, fc.PDANPG(outer=200_000, inner=5, pilot=0), marks=SLOW),
        pytest.param(0.002, fc.NPGPD(outer=200_000, inner=5), marks=SLOW),
        pytest.param(0.002, fc.CNPGPDA(outer=200_000, inner=5), marks=SLOW),
        pytest.param(1e-4, fc.PDANPG(outer=100_000, inner=100), marks=SLOW),
        pytest.param(1e-4, fc.NPGPD(outer=100_000, inner=100), marks=SLOW),
        pytest.param(1e-4, fc.CNPGPDA(outer=100_000, inner=100), marks=SLOW),
        pytest.param(1e-4, fc.NPGPDSoftmax(outer=10_000_000), marks=SLOW),
        # Methods with critics, or with tables of Q, at what they make of a budget: 5e6 and 5e7 transitions.
        (0.002, fc.PMDPD.for_samples(rare(0.002), 5e6)),
        (0.002, fc.PDNAC.for_samples(rare(0.002), 5e6)),
        (1e-4, fc.PMDPD.for_samples(rare(1e-4), 5e7)),
        pytest.param(1e-4, fc.PDNAC.for_samples(rare(1e-4), 5e7), marks=SLOW),
        pytest.param(1e-4, fc.CRPO.for_samples(rare(1e-4), 5e7), marks=SLOW),
        pytest.param(1e-4, fc.CRPOSoftmax.for_samples(rare(1e-4), 5e7), marks=SLOW),
    ],
    ids=lambda x: x.name if isinstance(x, fc.algorithms.base.Algorithm) else f"{x:g}",
)
def test_a_rare_reward_is_found(p: float, settings: Any) -> None:
    """Rates that knew their own batch made the steps that say most short, and led to action 0."""
    result = fc.solve(rare(p), settings, replicates=2, trace=2, optimum=False)
    theta = result.theta
    assert (1.0 / (1.0 + np.exp(theta[:, 0] - theta[:, 1])) > 0.9).all()


# The drift of a multiplier.


def always_violating() -> fc.CMDP:
    """Nothing to choose: with probability 0.04 the next state costs 1, so J_cost is 0.02, twice its limit."""
    return fc.CMDP(
        [0, 1, 2, 3], [0, 2, 3, 4], [1, 2, 2, 2], [0.04, 0.96, 1.0, 1.0], [0.3, 0.7, 0.0], [0.0, 1.0, 0.0],
        gamma=0.5, start=0, limits=0.01,
    )  # fmt: skip


def measured_zeta(run: Any) -> float:
    """sigma_r / (sigma_c^2 sqrt(K)) from the levels before the step at hand, as the documentation has it."""
    _, reward, constraint = np.maximum(run.state.recent[0], run.state.average[0])
    return float(math.sqrt(reward) / (constraint * math.sqrt(run.settings.outer)))


N_SETTLE, N_DRIFT = 500, 20_000


@pytest.mark.parametrize(
    "settings",
    [
        fc.PDANPG(outer=20_000, inner=5),
        fc.PDANPG(outer=20_000, inner=1),
        fc.PDANPG(outer=20_000, inner=5, dual_estimate="inner"),
        fc.PDANPG(outer=20_000, inner=1, dual_estimate="inner"),
        fc.NPGPD(outer=20_000, inner=5, dual_estimate="inner"),
        fc.CNPGPDA(outer=20_000, inner=5, kappa=0.0),
        fc.NPGPDSoftmax(outer=20_000),
        fc.NPGPDSoftmax(outer=20_000, rollouts=4),
    ],
    ids=lambda s: f"{s.name}-{getattr(s, 'inner', '')}-{getattr(s, 'dual_estimate', '')}",
)
def test_multipliers_drift_by_the_violation(settings: Any) -> None:
    """Away from its clips, a multiplier rises by the sum of zeta_k times -J_c; five standard errors."""
    cmdp = always_violating()
    j = fc.evaluate(cmdp, np.ones(3)).raw[1]
    assert j == pytest.approx(-0.01 / cmdp.constraint_scale[0])
    run = settings.run(problem_of(cmdp), 4, 1)
    work = run.work()
    run.advance(0, N_SETTLE + getattr(settings, "pilot", 0), work)
    run.state.dual[0] = start = 1e6
    run.state.memory[0, :, 1] = start  # what its form of multiplier goes on from
    rates = np.empty(N_DRIFT - N_SETTLE)
    longest = run.state.longest[0, 1]
    for k in range(len(rates)):
        rates[k] = measured_zeta(run)
        run.advance(0, 1, work)
    moved = run.state.dual[0, 0] - start
    expected = -j * rates.sum()
    # One rollout's J has a standard deviation of 0.14, in units of the cost; a cut takes at most what the bound grew.
    n = settings.rollouts if isinstance(settings, fc.NPGPDSoftmax) else 1
    n = settings.inner if getattr(settings, "dual_estimate", "") == "inner" else n
    off = 5 * 0.145 / cmdp.constraint_scale[0] * math.sqrt((rates**2).sum() / n)
    off += rates.max() * (run.state.longest[0, 1] - longest)
    assert off < 0.8 * expected  # so that the sign is beyond doubt
    assert abs(moved - expected) < off


@pytest.mark.parametrize("how", ["sample", "sum"])
def test_pd_nac_drifts_by_the_violation(how: Any) -> None:
    cmdp = always_violating()
    j = fc.evaluate(cmdp, np.ones(3)).raw[1]
    run = fc.PDNAC(outer=2_000_000, eta=1e-3, beta=1e-3, dual_estimate=how).run(problem_of(cmdp), 4, 1)
    work = run.work()
    run.advance(0, 200_000, work)  # critics start from 0
    start = run.state.dual[0, 0]
    run.advance(0, 1_800_000, work)
    assert run.state.dual[0, 0] - start == pytest.approx(-j * 1e-3 * 1_800_000, rel=0.1)


@pytest.mark.parametrize("dual_step", [0.5, None])
def test_pmd_pd_drifts_by_the_violation(dual_step: Any) -> None:
    """1e4 estimates of 20 rollouts, each of standard deviation 0.1 in units of the cost: a cost counts gamma."""
    cmdp = always_violating()
    j = fc.evaluate(cmdp, np.ones(3)).raw[1]
    run = fc.PMDPD(outer=10_000, rollouts=1, starts=20, dual_step=dual_step, pairs=30).run(
        problem_of(cmdp), 4, 1
    )
    work = run.work()
    run.advance(0, 100, work)
    run.state.dual[0] = 1e3
    longest, rates = run.state.longest[0, 1], np.empty(9_900)
    for k in range(len(rates)):
        run.advance(0, 1, work)
        rates[k] = run.state.rate[0, 0]
    expected = -j * rates.sum()
    off = 5 * 0.1 / cmdp.constraint_scale[0] * math.sqrt((rates**2).sum() / 20)
    off += 0.0 if dual_step else rates.max() * (run.state.longest[0, 1] - longest)  # what cuts take
    assert off < 0.3 * expected
    assert abs(run.state.dual[0, 0] - 1e3 - expected) < off
    if dual_step:
        assert (rates == dual_step).all()


# Rates, given the past.


def test_a_rate_does_not_know_its_batch() -> None:
    """From one place of a run on other random words: steps differ, the rate does not; only records are cut."""
    cmdp = fc.envs.garnet(n_states=4, n_actions=3, gamma=0.7, seed=3)
    n_before, n = 60, 200
    run = fc.NPGPDSoftmax(outer=400).run(problem_of(cmdp), 1, n)
    work = run.work()
    run.advance(0, n_before, work)
    for name, value in run.state._asdict().items():
        if name != "rng":
            value[:] = value[0]
    run.refresh()
    prob = run.policies()[0]
    level, reward, constraint = np.maximum(run.state.recent[0], run.state.average[0])
    eta, zeta = math.sqrt(2 * math.log(3) / (400 * level)), math.sqrt(reward / 400) / constraint
    theta, dual, mean = run.state.theta[0].copy(), run.state.dual[0, 0], run.state.average[0, 0]
    longest, sums = run.state.longest[0].copy(), run.state.sums[0].copy()
    lengths = []
    for r in range(n):
        run.advance(r, 1, work)
        norm = mean + (n_before + 1) * (run.state.average[r, 0] - mean)  # what the average has taken in
        lengths.append(math.sqrt(norm))
        step = math.sqrt(float(prob @ (run.state.theta[r] - theta) ** 2) / cmdp.n_states)
        assert step == pytest.approx(eta * min(lengths[-1], longest[0]), rel=1e-9)
        j = run.state.sums[r, 1] - sums[1]
        wanted = max(dual - zeta * float(np.clip(j, -longest[1], longest[1])), 0.0)
        assert run.state.dual[r, 0] == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    assert np.ptp(lengths) > 0.1 * np.mean(lengths)
    assert np.mean(np.array(lengths) > longest[0]) < 0.1
    np.testing.assert_allclose(run.state.longest[:, 0], np.maximum(lengths, longest[0]), rtol=1e-9)


def pmd_pd_from_one_place() -> tuple[Any, int]:
    """Replicates of PMD-PD that all stand where the first one does, on random words of their own."""
    cmdp = fc.envs.garnet(n_states=4, n_actions=3, gamma=0.7, seed=3)
    run = fc.PMDPD(outer=100, rollouts=2, starts=5).run(problem_of(cmdp), 1, 50)
    run.advance(0, 30, run.work())
    for name, value in run.state._asdict().items():
        if name != "rng":
            value[:] = value[0]
    run.refresh()
    return run, 50


def test_the_rates_of_pmd_pd_do_not_know_their_batch() -> None:
    """1/alpha is the same for all batches from one place, but for cuts of records; eta' likewise, given Q's batch."""
    run, n = pmd_pd_from_one_place()
    work, state = run.work(), run.state
    level = max(state.recent[0, 0], state.average[0, 0])
    longest, anchor, counted = state.longest[0].copy(), state.theta[0].copy(), 0
    for r in range(n):
        run.advance(r, 1, work)
        _, reward, cost = np.maximum(state.recent[r], state.average[r])
        step = state.theta[r] - anchor
        q = work.total[:, 0]
        first = run.world.table.state_to_choice[:-1]
        alpha = (q[first[0]] - q[first[0] + 1]) / (step[first[0]] - step[first[0] + 1])
        spread = math.sqrt(np.mean([np.var(q[i : i + 3]) for i in first]))
        assert alpha == pytest.approx(0.25 * math.sqrt(level) * max(1.0, spread / longest[0]), rel=1e-7)
        j = abs(state.estimate[r, 1])
        wanted = 0.35 * math.sqrt(reward / cost) / max(longest[1], j)
        assert state.rate[r, 0] == pytest.approx(wanted, rel=1e-12)
        counted += spread > longest[0]
    assert counted < n / 4


def test_the_rate_of_pd_nac_does_not_know_its_critics() -> None:
    """N grows by c over the root of the mean that looks before have left, whatever the critics are made to be."""
    cmdp = fc.envs.garnet(n_states=4, n_actions=3, gamma=0.7, seed=3)
    run = fc.PDNAC(outer=10_000).run(problem_of(cmdp), 1, 1)
    work, state = run.work(), run.state
    run.advance(0, 500, work)
    n_looks = 0
    for _ in range(300):
        (variance, looks), gone = state.spread[0].copy(), state.gone[0, 0]
        state.critic[0] *= 1.01
        run.advance(0, 1, work)
        assert state.gone[0, 0] - gone == pytest.approx(run.steps.alpha / math.sqrt(variance), rel=1e-9)
        n_looks += state.spread[0, 1] > looks
    assert 50 < n_looks < 150  # they come with probability 1 - gamma


def test_cuts_add_up_to_less_than_the_longest_step() -> None:
    lengths = np.random.default_rng(0).pareto(1.5, 5000)  # no variance
    bounds = np.maximum.accumulate(np.append(0.0, lengths[:-1]))
    taken = np.maximum(lengths - bounds, 0.0)
    assert taken.sum() == pytest.approx(lengths.max())
    assert np.count_nonzero(taken) < 30
    state = fc.PDANPG().run(problem_of(rare(0.1)), 0, 1).state
    cuts = [levels.cut(state, 0, 0, x) for x in lengths]
    np.testing.assert_allclose((1.0 - np.array(cuts)) * lengths, taken, atol=1e-9)


# Settings in a kernel's Steps.

STATES = (
    fc.CMDP(  # three actions, gamma 0.9; reward over 4, constraint over 8 (the limit's share is 2 a step)
        [0, 3],
        [0, 1, 2, 3],
        [0, 0, 0],
        [1.0, 1.0, 1.0],
        [0.0, 2.0, 4.0],
        [2.0, 6.0, 10.0],
        gamma=0.9,
        limits=20.0,
    )
)
ROOT = 1.4823038073675112  # sqrt(2 log 3)


def steps_of(settings: Any, best: Any = False) -> Any:
    return settings.run(problem_of(STATES, best), 0, 1).steps


def test_units_of_the_model_below() -> None:
    assert STATES.reward_scale == 4.0
    assert STATES.constraint_scale.tolist() == [8.0]
    np.testing.assert_allclose(STATES.signals, [[0.0, 0.0], [0.5, -0.5], [1.0, -1.0]], atol=1e-15)


def test_steps_of_the_primal_dual_methods() -> None:
    for made in (fc.PDANPG, fc.NPGPD, fc.CNPGPDA, fc.NPGPDSoftmax):
        found = steps_of(made(c_eta=3.0, c_zeta=0.5, lambda_max=2.0))
        assert found.eta_scale == pytest.approx(3 * ROOT, rel=1e-14)
        assert found.zeta_scale.tolist() == [0.5]
        assert (found.adaptive_eta, found.adaptive_zeta) == (True, True)
        assert found.dual_max == pytest.approx([2 * 8 / 4], rel=1e-14)
        found = steps_of(made(eta=0.01, zeta=[0.02], lambda_max=[3.0]))
        assert (found.eta_scale, found.zeta_scale.tolist()) == (0.01, [0.02])
        assert (found.adaptive_eta, found.adaptive_zeta) == (False, False)
        assert found.dual_max == pytest.approx([6.0], rel=1e-14)
        with pytest.raises(fc.SettingError, match="lambda_max has 2 values"):
            steps_of(made(lambda_max=[1.0, 2.0]))
        for wrong in (0.0, -1.0, math.inf, [1.0, -1.0], "x"):
            with pytest.raises(fc.SettingError, match="lambda_max"):
                made(lambda_max=wrong)
    found = steps_of(fc.PDANPG(inner=7, margin=4.0, dual_estimate="inner", pilot=3))
    assert found.margin.tolist() == [0.5]
    assert (found.n_inner, found.n_skipped, found.n_pilot, found.fresh) == (7, 3, 3, False)
    assert steps_of(fc.PDANPG(inner=7, average="uniform")).n_skipped == 0


def test_asgd_steps_by_hand() -> None:
    """G^2 = 2, q = sqrt(kappa kappa_tilde): alpha = 3 sqrt(5) q/(1 + 3 sqrt(5) q), beta = 1/(9 q),
    xi = kappa/(3 sqrt(5) G^2 q), delta = 1/(5 G^2)."""
    cmdp = fc.envs.garnet()
    for settings, numbers in (
        ({}, (0.99260143, 0.00555556, 0.07453560, 0.1)),
        ({"kappa": 50.0, "kappa_tilde": 5.0}, (0.99065997, 0.00702728, 0.23570226, 0.1)),
        ({"kappa": 50.0, "kappa_tilde": 30.0}, (0.99616576, 0.0028688766, 0.09622504, 0.1)),
        ({"mu_f": 0.04, "kappa_tilde": 5.0}, (0.99065997, 0.00702728, 0.23570226, 0.1)),
        ({"kappa_tilde": 5.0}, (0.98531184, 0.01111111, 0.14907120, 0.1)),
    ):
        made = fc.PDANPG.for_epsilon(cmdp, 0.5, **settings)
        assert made.momentum(2.0) == pytest.approx(numbers, rel=1e-6)
        assert fc.PDANPG(**settings).momentum(2.0) == made.momentum(2.0)
    for wrong in (
        {"kappa": 0.5},
        {"kappa": 50.0, "mu_f": 0.1},
        {"kappa": -1},
        {"kappa": 5.0, "kappa_tilde": 6.0},
    ):
        with pytest.raises(fc.SettingError, match="kappa"):
            fc.PDANPG.for_epsilon(cmdp, 0.5, **wrong).momentum(2.0)


def test_the_schedule_follows_the_condition_number() -> None:
    """e = 0.05: H = 4 20 log(20) = 239.66 by default; kappa = 50 and mu_F = 2/50 are the same."""
    cmdp = fc.envs.garnet(gamma=0.9)
    assert fc.PDANPG.for_epsilon(cmdp, 0.5).inner == 240
    assert fc.PDANPG.for_epsilon(cmdp, 0.5, kappa=50.0).inner == 600
    assert fc.PDANPG.for_epsilon(cmdp, 0.5, mu_f=0.04).inner == 600
    assert fc.PDANPG.for_epsilon(cmdp, 0.5, mu_f=0.04, g_squared=4.0).inner == 1199
    assert fc.PDANPG.for_epsilon(cmdp, 0.5, mu_f=0.04, inner=7).inner == 7


def test_a_budget_is_not_spent_on_steps_of_much_bias() -> None:
    """A step that sees few of the states leaves omega near zero; the orders of the schedule are the theorem's."""
    many = fc.envs.garnet(n_states=1800, gamma=0.9)
    inner = [fc.PDANPG.for_samples(many, samples).inner for samples in (1e5, 1e6, 1e7, 1e8)]
    assert all(found >= least for found, least in zip(inner, (15, 60, 100, 200), strict=True))
    for e in (0.3, 0.1, 0.03):
        coarse, fine = (fc.PDANPG.for_epsilon(many, x / (1 - many.gamma)) for x in (e, e / 2))
        assert fine.outer == pytest.approx(4 * coarse.outer, rel=1e-3)
        assert fine.inner - coarse.inner == pytest.approx(80 * math.log(2), abs=1)


def test_steps_of_crpo() -> None:
    for made in (fc.CRPO, fc.CRPOSoftmax):
        found = steps_of(made(c_alpha=2.0, c_tol=0.25))
        assert found.step == pytest.approx(2 * ROOT, rel=1e-14)
        assert found.tol == pytest.approx([0.25 * ROOT * 10], rel=1e-12)
        assert (found.adaptive_step, found.adaptive_tol) == (True, True)
        found = steps_of(made(alpha=0.03, tol=4.0))
        assert found.step == pytest.approx(0.3, rel=1e-12)
        assert found.tol.tolist() == [0.5]
        assert (found.adaptive_step, found.adaptive_tol) == (False, False)


@pytest.mark.filterwarnings("ignore::fastcmdp.errors.NearlyInfeasibleWarning")
def test_solvers_of_the_other_methods_by_hand() -> None:
    """Three choices, gamma 0.9: G^2 = 2 and one-hot features, so that B = 1."""
    problem = problem_of(STATES)
    assert fc.CNPGPDA().solver(problem)[2:] == (0.125, 0.125)  # xi = delta = 1/(4 G^2)
    assert fc.CNPGPDA(step=0.3).solver(problem)[2:] == (0.3, 0.3)
    rule = steps_of(fc.CRPO(c_step=0.5)).rule
    assert rule.rate == pytest.approx(0.25, rel=1e-12)  # c_step/(2 B)
    assert rule.radius == pytest.approx(34.6410161514, rel=1e-10)  # 2 sqrt(3) 10
    assert tuple(steps_of(fc.CRPO(rate=0.1, radius=2.0)).rule) == (0.1, 2.0)
    assert tuple(steps_of(fc.CRPOSoftmax(c_step=0.5)).rule) == (0.5, 6.0, 1.0)  # 4 c_step C = 6
    assert tuple(steps_of(fc.CRPOSoftmax(rate=0.2, delay=7.0, sigma=0.8)).rule) == (0.2, 7.0, 0.8)
    # e = 0.05: K = 40/e^2, gamma^N <= 0.1 e = 0.005: 0.9^51 = 0.00464, 0.9^50 = 0.00515.
    made = fc.ReLOAD.for_epsilon(STATES, 0.5)
    assert (made.outer, made.pairs) == (16_000, 51)
    assert fc.ALPQA.for_epsilon(STATES, 0.5).outer == 800  # 20 sweeps an outer step
    assert fc.ReLOAD(rollouts=2).outer_samples(STATES) == 3 * 2 * 43  # N = 44, as for PMD-PD
    # A limit's share of 6 a step: c = (4, 0, -4)/4, so that c_slater = 1/(1-gamma) = 10, and the cap 2/(0.1 * 10).
    cmdp = STATES.with_limits(60.0)
    best = fc.optimum(cmdp)
    for settings, cap in (
        (fc.PDANPG(), 2.0),
        (fc.CNPGPDA(), 4.0),
        (fc.NPGPDSoftmax(), 2.0),
        (fc.PDNAC(), 2.0),
    ):
        steps = settings.run(problem_of(cmdp, best), 0, 1).steps
        assert steps.dual_max == pytest.approx([cap], rel=1e-9)


def test_steps_of_pmd_pd() -> None:
    """gamma^N <= 0.01: 0.9^44 = 0.00970, 0.9^43 = 0.01078. c = 0.25 c_alpha, c' = 0.35 c_dual."""
    found = steps_of(fc.PMDPD(c_alpha=3.0, c_dual=0.5))
    assert found.n_pairs == 44
    assert found.alpha == pytest.approx(0.75, rel=1e-12)
    assert found.dual_step == pytest.approx([0.175], rel=1e-12)
    assert (found.adaptive_alpha, found.adaptive_dual, found.eta) == (True, True, math.inf)
    found = steps_of(fc.PMDPD(alpha=0.5, eta=0.05, dual_step=0.3))
    assert (found.alpha, found.eta, found.dual_step.tolist()) == (0.5, 0.05, [0.3])
    assert (found.adaptive_alpha, found.adaptive_dual) == (False, False)
    # e = 0.05: K = 4/e, t = 0.02 * 10 * log(20), M_Q = 0.1/e^2, M_V = 1/e^2, gamma^N <= 0.005: 0.9^51 = 0.00464
    made = fc.PMDPD.for_epsilon(STATES, 0.5)
    assert (made.outer, made.sweeps, made.rollouts, made.starts, made.pairs) == (80, 1, 40, 400, 51)


def test_steps_of_pd_nac() -> None:
    """K = 1e6, C = 3: K^(-5/6) = 1e-5, 15 sqrt(3e-6) = 0.0259808, K^(-1/6) = 0.1."""
    found = steps_of(fc.PDNAC(outer=10**6, c_alpha=2.0, c_dual=0.5))
    assert found.alpha == pytest.approx(1.8e-4, rel=1e-9)
    assert (found.adaptive, found.first) == (True, 1.0)
    assert found.eta == pytest.approx([1e-4], rel=1e-9)
    assert found.beta == pytest.approx(0.025980762, rel=1e-8)
    assert found.explore == pytest.approx(0.03, rel=1e-9)
    found = steps_of(fc.PDNAC(alpha=0.5, beta=0.1))
    assert (found.alpha, found.adaptive, found.beta, found.first) == (0.5, False, 0.1, 0.0)


@pytest.mark.filterwarnings(
    "ignore::fastcmdp.errors.NearlyInfeasibleWarning"
)  # the last model's limit is the least
def test_the_paper_to_the_letter() -> None:
    cmdp = STATES.with_limits(
        60.0
    )  # the limit's share is 6 a step: c = (4, 0, -4)/4, so c_slater = 1/(1-gamma) = 10
    assert cmdp.constraint_scale == pytest.approx([4.0])
    made = fc.PDANPG.paper(cmdp, 400, 30)
    cap = 2 / (0.1 * 10)
    assert made.eta == pytest.approx(0.01 / ((1 + cap) * 20), rel=1e-9)
    assert made.zeta == pytest.approx(cap * 0.1 / 20, rel=1e-9)
    assert made.lambda_max == pytest.approx((cap * 4 / 4,), rel=1e-9)
    assert (made.outer, made.inner, made.pilot, made.dual_estimate) == (400, 30, 0, "fresh")
    assert (made.method, made.average, made.margin, made.kappa_tilde) == ("asgd", "tail", 0.0, None)
    # F of the uniform policy over three actions is (I - 11'/3)/3: mu_F = 1/3 on its span.
    assert made.momentum(99.0) == pytest.approx(fc.theory.asgd_steps(2.0, 1 / 3), rel=1e-9)
    steps = made.run(problem_of(cmdp), 0, 1).steps  # without an optimum: the cap is in the settings
    assert (steps.adaptive_eta, steps.adaptive_zeta, steps.fresh, steps.n_pilot) == (False, False, True, 0)
    assert steps.dual_max == pytest.approx([2.0], rel=1e-9)
    assert fc.PDANPG.paper(cmdp, 400, 30, eta=0.5).eta == 0.5
    result = fc.solve(cmdp, made, replicates=2)
    assert result.finished
    with pytest.raises(fc.SettingError, match="Assumption 1"):
        fc.PDANPG.paper(STATES, 400, 30)
