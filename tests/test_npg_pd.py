"""NPG-PD, its tabular form and C-NPG-PDA: kernels against plain twins, and what their sources promise."""

from __future__ import annotations

import math
from typing import Any

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from from_python import from_python

import fastcmdp as fc
from fastcmdp import exact
from fastcmdp.kernels.algorithm import npg_pd
from fastcmdp.kernels.learning import asgd
from fastcmdp.kernels.policy.scores import DenseScores, SparseScores
from fastcmdp.kernels.streams import LANES
from fastcmdp.tables import build_tables
from fastcmdp.worlds import TableWorld

MODELS = {name: fc.CMDP(**rows) for name, rows in naive.MODELS.items()}


# The inner loop.

projected = from_python(npg_pd.projected)


def solvers(n: int) -> dict[str, npg_pd.Projected]:
    rising = np.arange(1.0, n + 1)
    return {
        "free": npg_pd.Projected(math.inf, np.full(n, 0.5), np.full(n, 1 / n)),
        "tight": npg_pd.Projected(0.3, np.full(n, 0.5), np.full(n, 1 / n)),
        "weighted": npg_pd.Projected(1.5, 8.0 / rising, rising / rising.sum()),
        "overshooting": npg_pd.Projected(2.0, np.full(n, 300.0), rising / rising.sum()),
    }


@pytest.mark.parametrize("n_steps", [1, 2, 7, 200])
@pytest.mark.parametrize("kind", solvers(1))
def test_projected(kind: str, n_steps: int) -> None:
    solver, rng, d = solvers(n_steps)[kind], np.random.default_rng(n_steps), 9
    target = rng.standard_normal(n_steps)
    dense = np.zeros((n_steps, d))
    for row in dense:
        row[rng.permutation(d)[: rng.integers(2, 5)]] = rng.uniform(-0.5, 0.5)
    filled = sp.csr_array(dense)
    lists = SparseScores(
        first=filled.indptr.astype(np.int64), slot=filled.indices.astype(np.int32), value=filled.data,
        coordinate=np.arange(d, dtype=np.int32), position=np.zeros(d, np.int64), mark=np.full(d, -1, np.int32),
    )  # fmt: skip
    rows = DenseScores(dense, np.arange(d, dtype=np.int32))
    expected = naive.projected_sgd(solver, dense.tolist(), target.tolist())
    for scores in (lists, rows):
        garbage = np.full((3, d), np.nan)
        inner, omega = asgd.InnerState(garbage[0], garbage[1], np.full(d, 10**9)), garbage[2]
        projected(scores, solver, target, n_steps, d, inner, omega)
        # Impulses of size 100 that a ball of radius 2 cuts off leave an absolute error; the others none.
        np.testing.assert_allclose(omega, expected, rtol=0, atol=1e-9 if kind == "overshooting" else 1e-12)
    assert np.abs(expected).max() > 1e-3
    size = float(np.linalg.norm(expected))
    assert size <= solver.radius * (1 + 1e-12)
    if kind == "overshooting":
        # Most projections shrink several times, so the scale has to begin anew every few steps.
        impulses = solver.step * np.abs(target) * np.linalg.norm(dense, axis=1)
        assert np.median(impulses) > 5 * solver.radius


def test_projection_of_what_is_no_number() -> None:
    cmdp = MODELS["random"]
    for policy in (fc.TabularSoftmax(), fc.LogLinear(np.eye(cmdp.n_choices))):
        problem = TableWorld.of(cmdp, policy)
        run = fc.NPGPD(outer=5, inner=9, pilot=2, step=1e200, radius=3.0).run(problem, 0, 1)
        run.advance(0, 7, run.work())
        assert run.state.failed.tolist() == [0]
        assert not run.state.theta.any()


def test_published_steps_and_weights() -> None:
    cmdp = fc.envs.river_swim()
    best = fc.optimum(cmdp)
    problem = TableWorld.of(cmdp, fc.TabularSoftmax(), best)
    unit = 1 - cmdp.gamma
    solver = fc.NPGPD(inner=4, average="weighted", sigma_f=0.2, step=5.0, radius=7.0).solver(problem)
    # Of |2 (w.g - A) g|, the 2 is in the step; a_k = 1/(sigma (k + 1)); the ball is one of w = (1-gamma) omega.
    np.testing.assert_allclose(solver.step, 2 / (0.2 * np.arange(1, 5)))
    np.testing.assert_allclose(solver.weight, 2 * np.arange(1, 5) / (4 * 5))
    assert solver.radius == pytest.approx(7 / unit)
    solver = fc.NPGPD(inner=4, average="uniform").solver(problem)
    np.testing.assert_allclose(solver.step, 2 * (1 / (2 * 2.0)) / math.sqrt(4))
    np.testing.assert_allclose(solver.weight, 0.25)
    cap = 2 / (unit * best.slater)
    assert solver.radius == pytest.approx(2 * math.sqrt(2) * (1 + 2 * cap) / (2.0 / 20 * unit) / unit)
    assert fc.NPGPD(radius=math.inf).solver(problem).radius == math.inf
    free = TableWorld(cmdp, problem.tables, problem.policy)
    assert fc.NPGPD().solver(free).radius == math.inf
    for wrong in ({"radius": 0.0}, {"radius": -math.inf}, {"step": 0}, {"average": "tail"}, {"c_step": -1.0}):
        with pytest.raises(fc.SettingError, match=next(iter(wrong))):
            fc.NPGPD(**wrong)


def test_a_projection_is_felt_in_a_run() -> None:
    """Replayed in test_replay.py; here, that the radius there is one that matters."""
    thetas = []
    for radius in (0.4, math.inf):
        made = fc.NPGPD(outer=9, inner=12, pilot=1, average="weighted", step=3.0, radius=radius)
        thetas.append(fc.solve(MODELS["random"], made, optimum=False).theta)
    assert np.abs(thetas[0] - thetas[1]).max() > 1e-2


# The tabular form.

SOFTMAX = {
    "defaults": fc.NPGPDSoftmax(outer=7),
    "three rollouts": fc.NPGPDSoftmax(outer=6, rollouts=3, c_eta=2.0, c_zeta=0.5),
    "constant steps": fc.NPGPDSoftmax(outer=6, eta=0.05, zeta=0.02, lambda_max=0.5),
    "optimistic": fc.NPGPDSoftmax(outer=6, dual="optimistic", c_zeta=3.0),
    "controlled": fc.NPGPDSoftmax(outer=6, rollouts=2, dual="pi"),
}


@pytest.mark.parametrize("settings", SOFTMAX.values(), ids=SOFTMAX)
@pytest.mark.parametrize("cmdp", MODELS.values(), ids=MODELS)
def test_softmax_replay(cmdp: fc.CMDP, settings: fc.NPGPDSoftmax) -> None:
    problem = TableWorld.of(cmdp, fc.TabularSoftmax())
    run = settings.run(problem, 20, 2)
    run.advance(1, settings.outer, run.work())
    state = naive.State(cmdp.n_choices, cmdp.n_constraints, 0, naive.streams(20, 1, LANES))
    naive.advance_softmax(naive.plain(cmdp), run.form, run.steps, state, settings.outer)
    got = run.state
    assert got.outer.tolist() == [0, state.outer] == [0, settings.outer]
    assert got.samples.tolist() == [0, state.samples]
    assert got.rng[1].tolist() == naive.state_words(state.rng)
    for name in ("theta", "dual", "recent", "average", "longest", "centre", "sums"):
        # Rounding of 1e-16 a step, in sums of up to 100 terms, fed back through up to 7 outer steps.
        np.testing.assert_allclose(getattr(got, name)[1], getattr(state, name), rtol=1e-10, atol=1e-11)
        assert not getattr(got, name)[0].any()


def test_softmax_overflow_stops_a_replicate() -> None:
    cmdp = MODELS["random"]
    problem = TableWorld.of(cmdp, fc.TabularSoftmax())
    run = fc.NPGPDSoftmax(outer=9, eta=1e308).run(problem, 20, 1)
    run.advance(0, 9, run.work())
    state = naive.State(cmdp.n_choices, 1, 0, naive.streams(20, 0, LANES))
    naive.advance_softmax(naive.plain(cmdp), run.form, run.steps, state, 9)
    assert run.state.failed.tolist() == [state.failed]
    assert state.failed >= 0
    assert np.isfinite(run.state.theta).all()


def exact_softmax(cmdp: fc.CMDP, best: exact.Optimum, n_outer: int, sign: float = 1.0) -> np.ndarray:
    """Mixture's J_r and J_c of NPG-PD with exact advantages and the theorem's steps, kernel units."""
    unit, s = 1 - cmdp.gamma, cmdp.choice_state
    n_actions = int(np.diff(cmdp.state_to_choice).max())
    eta, zeta, cap = 2 * math.log(n_actions), 2 * unit / math.sqrt(n_outer), 2 / (unit * best.slater)
    theta, dual, total = np.zeros(cmdp.n_choices), 0.0, np.zeros(2)
    for _ in range(n_outer):
        weights = np.exp(theta - np.maximum.reduceat(theta, cmdp.state_to_choice[:-1])[s])
        pi = weights / np.add.reduceat(weights, cmdp.state_to_choice[:-1])[s]
        values = exact.values(cmdp, pi)
        advantage = cmdp.signals + cmdp.gamma * (cmdp.transition_matrix() @ values) - values[s]
        raw = cmdp.start @ values
        total += raw
        theta = theta + sign * eta / unit * (advantage[:, 0] + dual * advantage[:, 1])
        dual = min(max(dual - zeta * raw[1], 0.0), cap)
    return total / n_outer


@pytest.mark.parametrize("seed", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_softmax_with_exact_advantages_respects_its_bounds(seed: int) -> None:
    """Ding et al. (2020), Theorem 1 as recalled, on the recursion itself with exact advantages (no kernel); gamma is
    small, so that the bounds are below what is possible."""
    cmdp = fc.envs.garnet(n_states=6, n_actions=3, gamma=0.2, seed=seed)
    best = fc.optimum(cmdp)
    assert np.ptp(cmdp.signals, axis=0).max() <= 1
    assert best.duals[0] > 0.05
    unit, errors = 1 - cmdp.gamma, []
    for n_outer in (100, 5000):
        scale = 1 / (unit**2 * math.sqrt(n_outer))
        reward, constraint = exact_softmax(cmdp, best, n_outer)
        gap, violation = best.raw[0] - reward, max(-constraint, 0.0)
        assert gap <= 7 * scale
        assert violation <= (2 / best.slater + 4 * best.slater) * scale
        errors.append(max(abs(gap), violation))
    assert errors[1] < errors[0] / 2
    # Steps against the advantage break it: the bound says something.
    reward, _ = exact_softmax(cmdp, best, 5000, sign=-1.0)
    assert best.raw[0] - reward > 7 * scale


def test_the_kernels_respect_the_bounds_with_many_rollouts() -> None:
    """The theorem's steps through `solve`: with 300 rollouts a choice, gap and violation of the mixture are within the
    bounds for exact advantages, and a longer run is better."""
    cmdp = fc.envs.garnet(n_states=6, n_actions=3, gamma=0.2, seed=0)
    best = fc.optimum(cmdp)
    errors = []
    for n_outer in (100, 2500):
        made = fc.NPGPDSoftmax(
            outer=n_outer, rollouts=300, eta=2 * math.log(3), zeta=2 * 0.8 / math.sqrt(n_outer)
        )
        result = fc.solve(cmdp, made, optimum=best, trace=50, replicates=2)
        scale = 1 / (0.8**2 * math.sqrt(n_outer))
        gap, violation = result.gap / cmdp.reward_scale, result.violation[:, 0] / cmdp.constraint_scale[0]
        assert (gap <= 7 * scale).all()
        assert (violation <= (2 / best.slater + 4 * best.slater) * scale).all()
        errors.append(np.maximum(np.abs(gap), violation).max())
        uniform = best.raw[0] - fc.evaluate(cmdp, np.full(cmdp.n_choices, 1 / 3)).raw[0]
        assert errors[-1] < uniform  # it has moved
    assert errors[1] < errors[0] / 2


# Strict feasibility.

STRICT = fc.envs.garnet(n_states=8, n_actions=3, gamma=0.8, seed=0)
BEST = fc.optimum(STRICT)


RATES: dict[str, Any] = {
    "outer": 400,
    "inner": 30,
    "eta": 0.05,
    "zeta": 0.02,
    "dual_estimate": "inner",
    "pilot": 0,
}


def slack(settings: Any) -> tuple[np.ndarray, fc.Result]:
    """By how much the mixture of each of 60 replicates meets the limit, in units of the cost."""
    result = fc.solve(STRICT, settings, replicates=60, seed=3, optimum=BEST, trace=25)
    return STRICT.limits[0] - result.mixture.constraints[:, 0], result


def bounds(x: np.ndarray) -> tuple[float, float]:
    """Mean of independent replicates, 4.5 standard errors below and above: false alarms 1e-5 on each side."""
    half = 4.5 * x.std(ddof=1) / math.sqrt(len(x))
    return float(x.mean() - half), float(x.mean() + half)


def test_a_margin_makes_the_violation_zero_in_expectation() -> None:
    """The same runs without one violate the limit; with kappa >= E lambda_K / (zeta K) none does on average."""
    assert STRICT.sense == ("<=",)
    kappa = 0.38
    assert kappa < BEST.slater / 2
    for relaxed, strict in (
        (fc.CNPGPDA(kappa=0.0, **RATES), fc.CNPGPDA(kappa=kappa, **RATES)),
        (fc.PDANPG(**RATES), fc.PDANPG(margin=kappa, **RATES)),
    ):
        assert bounds(slack(relaxed)[0])[1] < 0
        found, result = slack(strict)
        assert bounds(found)[0] > 0
        assert result.gap.mean() < 0.3 * BEST.reward
        # The derived rule: mean J_c >= kappa - lambda_K / (zeta K), here an equality but for clips at 0.
        spent = result.run.state.dual[:, 0] / (strict.zeta * strict.outer)
        beyond = found - (kappa - spent)
        assert bounds(beyond)[1] > 0
        assert bounds(beyond - kappa / 2)[1] < 0
        assert spent.mean() < kappa


def test_default_kappa() -> None:
    """c_kappa / ((1-gamma) sqrt(K)), at most half the Slater value; with `kappa` in the user's units."""
    tables, policy = build_tables(STRICT), fc.TabularSoftmax().bind(STRICT)
    known, free = TableWorld(STRICT, tables, policy, BEST), TableWorld(STRICT, tables, policy)
    made = fc.CNPGPDA(outer=100, c_kappa=0.3)
    assert made.tightening(known) == pytest.approx(0.3 / (0.2 * 10))
    assert fc.CNPGPDA(outer=1).tightening(known) == pytest.approx(BEST.slater / 2)
    assert fc.CNPGPDA(outer=1).tightening(free) == pytest.approx(0.1 / 0.2)
    assert fc.CNPGPDA(kappa=0.5).tightening(known) == pytest.approx(0.5 / STRICT.constraint_scale)
    run = made.run(known, 0, 1)
    assert run.steps.margin == pytest.approx(0.15)
    assert run.steps.dual_max == pytest.approx(4 / (0.2 * BEST.slater))
    assert run.solver.xi == run.solver.delta == 1 / 8
    for wrong in ({"kappa": -0.1}, {"kappa": math.nan}, {"c_kappa": 0.0}, {"step": -1.0}):
        with pytest.raises(fc.SettingError, match=next(iter(wrong))):
            fc.CNPGPDA(**wrong)
