"""Kernels against their plain twins on the same random words: the same draws, the same numbers.

Draws, horizons, transitions and sums of signals are compared with ==. What goes through a dot product, exp or
pow may differ in the last bits (order of addition, another libm), so parameters carry a stated tolerance.
"""

from __future__ import annotations

from typing import Any

import naive
import numpy as np
import pytest
import scipy.sparse as sp

from fastcmdp.algorithms import CNPGPDA, NPGPD, PDANPG, PDRANPG
from fastcmdp.algorithms.primal_dual import PrimalDual, PrimalDualRun
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm import pd_anpg
from fastcmdp.kernels.policy.softmax import LazyActions
from fastcmdp.kernels.sampling.rollouts import rollouts
from fastcmdp.kernels.streams import LANES
from fastcmdp.policies import LogLinear, TabularSoftmax
from fastcmdp.streams import streams
from fastcmdp.tables import build_actions, build_tables
from fastcmdp.worlds import TableWorld

SEED = 20
MODELS = {name: CMDP(**rows) for name, rows in naive.MODELS.items()}
every_model = pytest.mark.parametrize("cmdp", MODELS.values(), ids=MODELS.keys())


def make_run(
    cmdp: CMDP, policy: Any, settings: PrimalDual, replicates: int = 1, draws: str = "fast"
) -> PrimalDualRun:
    return settings.run(TableWorld.of(cmdp, policy, False, draws), SEED, replicates)


def random_policy(cmdp: CMDP, spread: float) -> list[float]:
    theta = spread * np.random.default_rng(SEED).standard_normal(cmdp.n_choices)
    return naive.refresh_all(naive.plain(cmdp), naive.identity(cmdp.n_choices), theta.tolist())


@every_model
@pytest.mark.parametrize("n_jobs", [0, 1, LANES - 1, LANES, 3 * LANES + 1])
@pytest.mark.parametrize("spread", [1.0, 1000.0])  # the second: probabilities 0 and 1
@pytest.mark.parametrize("draws", ["fast", "exact"])
def test_rollouts(cmdp: CMDP, n_jobs: int, spread: float, draws: str) -> None:
    prob, tables = random_policy(cmdp, spread), build_tables(cmdp, draws)
    jobs: list[tuple[int | None, int | None]] = [
        [(None, None), (j % cmdp.n_choices, None), (None, j % cmdp.n_states)][j % 3] for j in range(n_jobs)
    ]
    job_choice = np.array([-1 if q is None else q for q, _ in jobs], np.int64)
    job_row = np.array([0 if s is None else tables.state_row[s] for _, s in jobs], np.uint32)
    total, choice = np.full((n_jobs, tables.n_signals), np.nan), np.full(n_jobs, -1)
    rng = streams(SEED, 2)[1]
    actions = build_actions(tables, np.array(prob))
    transitions = rollouts(tables, actions, rng, job_choice, job_row, total, choice)

    words = naive.streams(SEED, 1, LANES)
    expected = naive.rollouts(naive.plain(cmdp, draws == "exact"), prob, words, jobs)
    assert total.tolist() == expected.total
    assert choice.tolist() == expected.choice
    assert transitions == sum(expected.horizon)
    assert rng.tolist() == naive.state_words(words)


@every_model
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("n_pairs", [1, 21])
def test_sample_batch(cmdp: CMDP, fresh: bool, n_pairs: int) -> None:
    prob = random_policy(cmdp, 1.0)
    run = make_run(cmdp, TabularSoftmax(), PDANPG(inner=n_pairs))
    work, rng = run.work(), run.state.rng[0]
    actions = build_actions(run.world.tables, np.array(prob))
    transitions = pd_anpg.sample_batch(run.world.tables, actions, rng, n_pairs, fresh, work)

    words = naive.streams(SEED, 0, LANES)
    expected = naive.sample_batch(naive.plain(cmdp), prob, words, n_pairs, fresh)
    assert work.pair[:n_pairs].tolist() == expected.pair
    assert work.occupancy_total[: n_pairs + fresh].tolist() == expected.occupancy_total
    assert work.advantage.tolist() == expected.advantage
    assert transitions == expected.transitions
    assert rng.tolist() == naive.state_words(words)


SETTINGS = {
    "defaults": PDANPG(outer=9, inner=16, pilot=3),
    "one inner step": PDANPG(outer=9, inner=1, pilot=2),
    "constant steps": PDANPG(outer=9, inner=7, pilot=0, eta=0.2, zeta=0.3, lambda_max=0.5, margin=0.01),
    "inner estimate": PDANPG(
        outer=9, inner=5, pilot=1, dual_estimate="inner", mu_f=0.01, c_eta=0.5, c_zeta=2.0
    ),
    "projected": NPGPD(outer=9, inner=12, pilot=1, average="weighted", step=3.0, radius=0.4),
    "regularised": PDRANPG(outer=9, inner=9, pilot=1, tau=0.3, zeta=0.4),
    "conservative": CNPGPDA(outer=9, inner=9, pilot=1, kappa=0.05, dual="optimistic"),
    "controlled": PDANPG(outer=9, inner=9, pilot=1, dual="pi", c_zeta=3.0),
}


every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())


@every_setting
@pytest.mark.parametrize(
    "kind", ["tabular", "sparse", "dense", pytest.param("exact", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", [name for name in MODELS if name != "many states"])
def test_advance(name: str, kind: str, settings: PrimalDual) -> None:
    compare_runs(MODELS[name], kind, settings, on_demand=False)


@every_setting
@pytest.mark.parametrize("kind", ["sparse", pytest.param("dense", marks=pytest.mark.slow)])
def test_advance_with_rows_made_on_demand(kind: str, settings: PrimalDual) -> None:
    compare_runs(MODELS["many states"], kind, settings, on_demand=True)


def compare_runs(cmdp: CMDP, kind: str, settings: PrimalDual, on_demand: bool) -> None:
    """A run and its twin; kind "exact" is tabular with exact draws."""
    rng = np.random.default_rng(SEED)
    phi = rng.standard_normal((cmdp.n_choices, 4))
    policy: Any = LogLinear(phi)
    if kind == "sparse":
        phi *= rng.random(phi.shape) < 0.5
        policy = LogLinear(sp.csr_array(phi))
    elif kind != "dense":
        phi = np.eye(cmdp.n_choices)
        policy = TabularSoftmax()
    exact = kind == "exact"
    run = make_run(cmdp, policy, settings, replicates=2, draws="exact" if exact else "fast")
    assert isinstance(run.actions[1], LazyActions) is on_demand
    n_steps = settings.outer + settings.pilot
    run.advance(1, n_steps, run.work())

    state = naive.State(phi.shape[1], cmdp.n_constraints, settings.pilot, naive.streams(SEED, 1, LANES))
    state.control = run.state.control[0].tolist()  # of a replicate that has not moved
    naive.advance(naive.plain(cmdp, exact), phi.tolist(), run.solver, run.form, run.steps, state, n_steps)
    got = run.state
    assert got.outer.tolist() == [-settings.pilot, state.outer]
    assert got.samples.tolist() == [0, state.samples]
    assert got.failed.tolist() == [-1, -1]
    assert got.rng[1].tolist() == naive.state_words(state.rng)
    for name in ("theta", "dual", "recent", "average", "longest", "sums", "control"):
        # Rounding of 1e-16 a step, in sums of up to 100 terms, fed back through up to 12 outer steps.
        np.testing.assert_allclose(getattr(got, name)[1], getattr(state, name), rtol=1e-10, atol=1e-11)
        if name != "control":
            assert not getattr(got, name)[0].any()  # the replicate beside it has not moved


@pytest.mark.parametrize("policy", [TabularSoftmax(), LogLinear(np.eye(MODELS["random"].n_choices))])
def test_overflow_stops_a_replicate(policy: Any) -> None:
    cmdp = MODELS["random"]
    run = make_run(cmdp, policy, PDANPG(outer=5, inner=9, pilot=2, delta=1e200, xi=1e200))
    run.advance(0, 7, run.work())
    state = naive.State(cmdp.n_choices, 1, 2, naive.streams(SEED, 0, LANES))
    state.control = run.state.control[0].tolist()
    naive.advance(
        naive.plain(cmdp), naive.identity(cmdp.n_choices), run.solver, run.form, run.steps, state, 7
    )
    assert run.state.failed.tolist() == [state.failed] == [0]
    assert run.state.samples.tolist() == [state.samples]
    assert run.state.outer.tolist() == [state.outer] == [-2]
    assert not run.state.theta.any()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_one_hot_features_equal_tabular(kind: str) -> None:
    cmdp = CMDP(**naive.random_rows(10, n_states=20, n_actions=5, m=2))
    settings = PDANPG(outer=50, inner=31, pilot=5, g_squared=2.0)
    eye = np.eye(cmdp.n_choices)
    runs = [
        make_run(cmdp, policy, settings)
        for policy in (TabularSoftmax(), LogLinear(eye if kind == "dense" else sp.csr_array(eye)))
    ]
    for run in runs:
        run.advance(0, 55, run.work())
    tabular, other = (run.state for run in runs)
    assert tabular.rng.tolist() == other.rng.tolist()
    assert tabular.samples.tolist() == other.samples.tolist()
    assert np.abs(tabular.theta).max() > 0.1
    np.testing.assert_allclose(other.theta, tabular.theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(other.dual, tabular.dual, rtol=0, atol=1e-12)
