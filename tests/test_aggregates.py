"""Profiles, interquartile means and improvement against counts in plain loops, SciPy, and their coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import trim_mean

from fastcmdp.aggregates import improvement, iqm, profile
from fastcmdp.errors import SettingError

RNG = np.random.default_rng(0)
TASKS = [RNG.exponential(1.0, 5), RNG.exponential(2.0, 8), RNG.exponential(0.5, 3)]
OTHER = [RNG.exponential(1.2, 4), RNG.exponential(1.0, 8), RNG.exponential(0.7, 3)]


def test_a_profile_is_a_count():
    thresholds = np.array([0.7, 0.1, 5.0, 0.7, TASKS[0][2]])  # in any order, one of them hit exactly
    got = profile(TASKS, thresholds)
    want = [np.mean([(task <= x).mean() for task in TASKS]) for x in thresholds]
    assert got.mean == pytest.approx(want)
    assert (got.low <= got.mean).all()
    assert (got.mean <= got.high).all()
    assert ((got.low >= 0) & (got.high <= 1)).all()


def test_an_interquartile_mean_is_the_trimmed_mean():
    assert iqm(TASKS).mean == pytest.approx(trim_mean(np.concatenate(TASKS), 0.25))  # 16 runs
    fifths = np.arange(5.0)  # a quarter of five runs is one and a quarter
    assert iqm([fifths]).mean == pytest.approx((0.75 * 1 + 2 + 0.75 * 3) / 2.5)
    assert iqm([np.array([3.0])]) == (3.0, 3.0, 3.0)


def test_improvement_counts_pairs():
    want = np.mean(
        [np.mean([(x < y) + 0.5 * (x == y) for x in a for y in b]) for a, b in zip(TASKS, OTHER, strict=True)]
    )
    assert improvement(TASKS, OTHER).mean == pytest.approx(want)
    assert improvement(OTHER, TASKS).mean == pytest.approx(1 - want)
    assert improvement(TASKS, TASKS).mean == pytest.approx(0.5)
    assert improvement([np.zeros(3)], [np.ones(3)]) == (1.0, 1.0, 1.0)


def test_a_run_that_failed_is_worse_than_any_error():
    failed = [np.array([0.1, np.nan, 0.2, 0.3])]
    assert profile(failed, [1e9]).mean.tolist() == [0.75]
    assert np.isfinite(iqm(failed).mean)  # it is in the worst quarter
    assert iqm([np.array([0.1, np.nan])]).mean == np.inf
    assert improvement([np.full(4, 1e9)], failed).mean == pytest.approx(0.25)
    assert np.isfinite(iqm(failed).low)


def test_what_cannot_be_compared():
    with pytest.raises(SettingError, match="at least one task"):
        iqm([])
    with pytest.raises(SettingError, match="at least one replicate"):
        profile([np.zeros(0)], [1.0])
    with pytest.raises(SettingError, match="the same tasks"):
        improvement(TASKS, OTHER[:2])


def test_the_same_draws_make_the_same_interval():
    assert iqm(TASKS, seed=3) == iqm(TASKS, seed=3)
    assert iqm(TASKS, seed=3) != iqm(TASKS, seed=4)


@pytest.mark.parametrize("n", [4, 8])
def test_intervals_cover_what_they_are_about(n):
    """Six tasks of n normal replicates each; percentiles that are not widened cover 88 % for n = 4."""
    rng = np.random.default_rng(n)
    means = np.linspace(0.0, 0.5, 6)
    truth_iqm = iqm([rng.normal(m, 1.0, 40_000) for m in means], draws=1).mean
    truth_profile = np.mean([(rng.normal(m, 1.0, 200_000) <= 0.5).mean() for m in means])
    hits = np.zeros(2)
    trials = 300
    for k in range(trials):
        tasks = [rng.normal(m, 1.0, n) for m in means]
        low, high = iqm(tasks, draws=400, seed=k)[1:]
        below, above = profile(tasks, [0.5], draws=400, seed=k)[1:]
        hits += (low <= truth_iqm <= high), (below[0] <= truth_profile <= above[0])
    # 95 %, within 4 standard errors of 300 trials
    assert (hits / trials > 0.90).all(), hits / trials
    assert (hits / trials <= 0.998).all(), hits / trials
