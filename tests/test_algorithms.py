"""What every algorithm of the registry promises: one body of tests for all."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.algorithms.base import Algorithm
from fastcmdp.worlds import TableWorld


def two_constraints() -> fc.CMDP:
    """Six states with one to three choices each, two constraints, all of whose limits bind somewhere."""
    rng = np.random.default_rng(3)
    available = np.arange(3) <= np.arange(6)[:, None] % 3
    costs = [rng.uniform(0, 1, (6, 3)), rng.uniform(-1, 1, (6, 3))]
    model = fc.CMDP.from_arrays(
        rng.dirichlet(np.full(6, 0.5), (6, 3)),
        rng.uniform(0, 2, (6, 3)),
        costs,
        gamma=0.8,
        limits=[10.0, -10.0],
        sense=["<=", ">="],
        available=available,
    )
    best = fc.optimum(model)
    span = best.constraint_range
    return model.with_limits([0.4 * span[0, 0] + 0.6 * span[0, 1], 0.4 * span[1, 1] + 0.6 * span[1, 0]])


MODEL = two_constraints()
BEST = fc.optimum(MODEL)
each = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
SAMPLES = 2e4


@each
def test_a_class_of_settings(algorithm: type[Algorithm]) -> None:
    made = algorithm()
    assert dataclasses.is_dataclass(made)
    assert ALGORITHMS[made.name] is algorithm
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.outer = 3  # type: ignore[misc]
    for wrong in (0, -1, 2.5, True, "many", None, 2**50):
        with pytest.raises(fc.SettingError, match="outer"):
            algorithm(outer=wrong)  # type: ignore[arg-type]
    text = algorithm.__doc__ or ""
    assert all(field.name in text for field in dataclasses.fields(made))
    assert dataclasses.replace(made, outer=np.int8(7)).outer == 7


@each
def test_schedule_meets_a_budget_and_epsilon(algorithm: type[Algorithm]) -> None:
    budgets = [3e4, 1e6, 1e8]
    for samples in budgets:
        made = algorithm.for_samples(MODEL, samples)
        assert made.expected_samples(MODEL) == pytest.approx(samples, rel=0.2)
    coarse, fine = (algorithm.for_epsilon(MODEL, e).expected_samples(MODEL) for e in (0.5, 0.05))
    assert fine > 5 * coarse
    for wrong in (0.0, -1.0, math.nan, 1e9, "small"):
        with pytest.raises(fc.SettingError, match="epsilon"):
            algorithm.for_epsilon(MODEL, wrong)  # type: ignore[arg-type]
    for wrong in (0.0, math.inf, 1e-3, "few"):
        with pytest.raises(fc.SettingError, match="samples"):
            algorithm.for_samples(MODEL, wrong)  # type: ignore[arg-type]


@each
def test_the_least_budget_that_is_told_is_accepted(algorithm: type[Algorithm]) -> None:
    """To the last digit: a rounded one would be refused in its turn. So is the greatest."""
    patient = fc.envs.garnet(n_states=30, gamma=0.999, seed=1)
    if algorithm.name not in ("crpo", "pd-nac"):  # of whose outer steps one takes a transition or two
        with pytest.raises(fc.errors.BudgetError, match="for one outer step") as told:
            algorithm.for_samples(patient, 1)
        least = _told("at least", told)
        assert algorithm.for_samples(patient, least).outer == 1
        with pytest.raises(fc.errors.BudgetError, match=f"at least {least:,.0f} for"):
            algorithm.for_samples(patient, least - 1)
    if algorithm.name not in ("pmd-pd", "arnpg-epd"):  # whose outer steps grow with the budget
        with pytest.raises(fc.SettingError, match=r"at most .* transitions") as told:
            algorithm.for_samples(patient, 1e30)
        assert algorithm.for_samples(patient, _told("at most", told)).outer > 0.98 * 2**40


def _told(words: str, error: pytest.ExceptionInfo[Exception]) -> float:
    """The number after these words of a message."""
    return float(str(error.value).partition(f"{words} ")[2].split(" ")[0].replace(",", ""))


@each
def test_constants_are_parameters_of_the_schedule(algorithm: type[Algorithm]) -> None:
    assert algorithm.constants
    for name, (low, high) in algorithm.constants.items():
        assert 0 < low < high
        made = [algorithm.for_epsilon(MODEL, 0.2, **{name: value}) for value in (low, high)]
        assert made[0] != made[1], name


@each
def test_it_counts_the_samples_it_draws(algorithm: type[Algorithm]) -> None:
    made = algorithm.for_samples(MODEL, SAMPLES)
    result = fc.solve(MODEL, made, replicates=4, optimum=BEST, trace=3)
    assert result.finished
    assert not (result.failed >= 0).any()
    # Rollout lengths have the standard deviation of their mean: over 1,000 rollouts, 4 in 100 is many of them.
    assert result.samples.mean() == pytest.approx(made.expected_samples(MODEL), rel=0.04)


@each
def test_bits_do_not_depend_on_threads_pieces_or_company(algorithm: type[Algorithm], tmp_path) -> None:
    made = dataclasses.replace(algorithm.for_samples(MODEL, SAMPLES), outer=12)
    whole = fc.solve(MODEL, made, seed=5, replicates=3, optimum=BEST, trace=4)
    cut = fc.solve(MODEL, made, seed=5, replicates=2, threads=2, piece=1, optimum=BEST, trace=4)
    for name, value in cut.run.state._asdict().items():
        np.testing.assert_array_equal(value, getattr(whole.run.state, name)[:2], err_msg=name)
    np.testing.assert_array_equal(cut.trace.reward, whole.trace.reward[:2])
    other = fc.solve(MODEL, made, seed=6, replicates=2, optimum=BEST, trace=4)
    assert (other.theta != cut.theta).any()

    def stop(progress: Any) -> None:
        if progress.outer >= 5:
            raise KeyboardInterrupt

    path = tmp_path / "run.npz"
    half = fc.solve(
        MODEL, made, seed=5, replicates=3, piece=1, optimum=BEST, trace=4, progress=stop, checkpoint=path
    )
    assert not half.finished
    rest = fc.resume(fc.load_run(path, MODEL, optimum=BEST))
    assert rest.finished
    for name, value in rest.run.state._asdict().items():
        np.testing.assert_array_equal(value, getattr(whole.run.state, name), err_msg=name)
    np.testing.assert_array_equal(rest.trace.kept, whole.trace.kept)


FORMED = [
    (name, dual)
    for name in ("pd-anpg", "npg-pd", "npg-pd-softmax", "c-npg-pda")
    for dual in ("pi", "optimistic")
]


@pytest.mark.parametrize(("name", "dual"), FORMED)
def test_forms_of_the_multiplier(name: str, dual: str, tmp_path) -> None:
    """Another multiplier than the plain one from the same samples; saved and resumed, the same bits."""
    kind: Any = ALGORITHMS[name]
    plain, made = (
        dataclasses.replace(kind.for_samples(MODEL, SAMPLES), outer=12, dual=d) for d in ("plain", dual)
    )
    whole = fc.solve(MODEL, made, seed=5, replicates=2, optimum=BEST, trace=4)
    other = fc.solve(MODEL, plain, seed=5, replicates=2, optimum=BEST, trace=4)
    assert (other.trace.duals[:, 1:] != whole.trace.duals[:, 1:]).any()

    def stop(progress: Any) -> None:
        if progress.outer >= 5:
            raise KeyboardInterrupt

    path = tmp_path / "run.npz"
    fc.solve(
        MODEL, made, seed=5, replicates=2, piece=1, optimum=BEST, trace=4, progress=stop, checkpoint=path
    )
    rest = fc.resume(fc.load_run(path, MODEL, optimum=BEST))
    for part, value in rest.run.state._asdict().items():
        np.testing.assert_array_equal(value, getattr(whole.run.state, part), err_msg=part)
    with pytest.raises(fc.SettingError, match="dual"):
        kind(dual="damped")


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(a, marks=pytest.mark.slow) if a is fc.LBSGD else a for a in ALGORITHMS.values()],
    ids=list(ALGORITHMS),
)
def test_it_learns(algorithm: type[Algorithm]) -> None:
    """From the uniform policy's error to a third of it at most, on two constraints and uneven action sets."""
    safe = algorithm is fc.LBSGD  # keeps away from limits until it has seen enough: ~eps^-6 samples
    made = algorithm.for_samples(MODEL, 1e8 if safe else 3e6)
    result = fc.solve(MODEL, made, replicates=4, optimum=BEST)
    start = fc.evaluate(
        MODEL, np.repeat(1.0 / np.diff(MODEL.state_to_choice), np.diff(MODEL.state_to_choice))
    )
    span = BEST.reward - start.reward
    assert span > 0.1 * BEST.reward
    worst = max(abs(result.last_quarter.gap.mean()), result.last_quarter.violation.mean())
    assert worst < span / 3


@each
def test_general_policies(algorithm: type[Algorithm]) -> None:
    policy = fc.LogLinear(np.eye(MODEL.n_choices))
    learns = algorithm is fc.PDANPGCV  # a critic by least squares, for which transitions must be enough first
    made = dataclasses.replace(algorithm.for_samples(MODEL, SAMPLES), outer=20 if learns else 3)
    if algorithm.tabular_only:
        with pytest.raises(fc.SettingError, match="tabular"):
            fc.solve(MODEL, made, policy=policy, optimum=BEST)
        return
    one = fc.solve(MODEL, made, optimum=BEST, seed=1)
    other = fc.solve(MODEL, made, policy=policy, optimum=BEST, seed=1)
    # PD-ANPG-CV knows where its inner loop starts for tabular policies, else learns it; AL-PQA's theta is log pi there.
    if learns or algorithm is fc.ALPQA:
        assert (other.theta != 0.0).any()
        return
    np.testing.assert_allclose(other.theta, one.theta, rtol=1e-9, atol=1e-12)


@each
def test_a_model_without_constraints(algorithm: type[Algorithm]) -> None:
    free = fc.envs.garnet(n_states=4, n_actions=2, gamma=0.7, seed=1)
    free = fc.CMDP(
        free.state_to_choice,
        free.choice_to_branch,
        free.branch_target,
        free.branch_prob,
        free.reward,
        gamma=0.7,
    )
    result = fc.solve(free, dataclasses.replace(algorithm.for_samples(free, SAMPLES), outer=5), replicates=2)
    assert result.finished
    assert result.violation.shape == (2, 0)


def test_runs_have_the_arrays_that_the_outer_loop_reads() -> None:
    problem = TableWorld.of(MODEL, fc.TabularSoftmax(), BEST)
    for algorithm in ALGORITHMS.values():
        state = algorithm.shortest().run(problem, 0, 2).state
        shapes = {
            "theta": (2, MODEL.n_choices),
            "dual": (2, 2),
            "outer": (2,),
            "samples": (2,),
            "sums": (2, 5),
        }
        for name, shape in shapes.items():
            assert getattr(state, name).shape == shape
        assert state.failed.tolist() == [-1, -1]
