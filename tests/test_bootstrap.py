"""Bootstrap intervals: what they are of small samples by hand, how often they cover, what is left out."""

from __future__ import annotations

import numpy as np
import pytest

from fastcmdp.bootstrap import bootstrap


def positive_part(mean):
    return np.maximum(mean[..., 0], 0.0)


def coverage(draw, truth, n, repeats=400, figure=lambda mean: mean):
    rng = np.random.default_rng(7)
    found = [bootstrap(draw(rng, n), figure, draws=1000, seed=i) for i in range(repeats)]
    return float(np.mean([interval.low <= truth <= interval.high for interval in found]))


# With 95 % coverage, fewer than 361 of 400 intervals cover with probability 3e-5, and more than 395 with 1e-5. Plain
# percentile intervals of 4 replicates cover 80 % (the module's table), so fewer than 361 for certain.


@pytest.mark.parametrize("n", [4, 8, 20])
def test_intervals_of_a_mean_cover(n):
    assert 361 / 400 <= coverage(lambda rng, n: rng.normal(3.0, 2.0, n), 3.0, n) <= 395 / 400


def test_intervals_of_a_positive_part_cover():
    covered = coverage(lambda rng, n: rng.normal(0.5, 1.0, (n, 1)), 0.5, 10, figure=positive_part)
    assert 361 / 400 <= covered <= 395 / 400
    assert coverage(lambda rng, n: rng.normal(-0.1, 1.0, (n, 1)), 0.0, 10, figure=positive_part) >= 361 / 400


def test_intervals_of_something_else_do_not_cover():
    """The negative control: an interval for the mean that is asked for the mean plus one standard error."""
    assert coverage(lambda rng, n: rng.normal(3.0, 2.0, n), 3.0 + 2.0 / np.sqrt(20), 20) < 361 / 400


def test_two_replicates_by_hand():
    """A quarter of the resamples is the least twice, a quarter the greatest: 2 from the mean, times sqrt(2) t / z."""
    found = bootstrap(np.array([1.0, 5.0]))
    half = 2.0 * np.sqrt(2.0) * 12.706205 / 1.959964
    np.testing.assert_allclose(found, [3.0, 3.0 - half, 3.0 + half], rtol=1e-6)


def test_an_interval_of_many_is_students():
    """Of 200 normal ones, to the accuracy of percentiles of 40,000 resamples: 1 % of the half-width at 4 sigma."""
    values = np.random.default_rng(3).normal(size=200)
    half = 1.971957 * values.std(ddof=1) / np.sqrt(200)
    found = bootstrap(values, draws=40_000)
    np.testing.assert_allclose([found.high - found.mean, found.mean - found.low], half, rtol=0.05)


def test_the_figure_is_of_the_mean_not_the_mean_of_figures():
    values = np.array([[-3.0], [1.0], [-2.0], [2.0]])
    found = bootstrap(values, positive_part)
    assert found.mean == 0.0
    assert found.low == 0.0
    assert found.high > 2.0
    assert np.maximum(values, 0.0).mean() == 0.75


def test_axes_are_kept_and_every_point_has_the_same_resamples():
    values = np.random.default_rng(1).normal(size=(6, 5, 2))
    found = bootstrap(values)
    assert found.mean.shape == found.low.shape == (5, 2)
    one = bootstrap(values[:, 3, 1])
    np.testing.assert_allclose([found.low[3, 1], found.high[3, 1]], [one.low, one.high], rtol=1e-12)
    assert bootstrap(values, lambda mean: mean[..., 0] - mean[..., 1]).low.shape == (5,)


def test_failed_replicates_are_left_out_and_none_is_nan():
    values = np.array([1.0, np.nan, 2.0, 3.0])
    assert bootstrap(values) == bootstrap(values[[0, 2, 3]])
    assert bootstrap(np.full(3, np.nan)).to_dict() == {"mean": None, "low": None, "high": None}
    assert bootstrap(np.array([2.5])).to_dict() == {"mean": 2.5, "low": 2.5, "high": 2.5}
    assert bootstrap(np.full((2, 3), np.nan), positive_part).to_dict()["mean"] is None


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(2).exponential(size=9)
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap(values).low != bootstrap(values, seed=1).low
