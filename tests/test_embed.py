"""Kernels in other people's code: draws and streams against numpy, from njit code, C and C++."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from scipy import stats

from fastcmdp.kernels import draws

HOLDS, FAILS = 5e-5, 1e-12  # p-values on fixed seeds: as in test_estimators.py


def stream(seed: int) -> tuple[np.ndarray, np.random.SFC64]:
    """The same stream for kernels and for twins."""
    twin = np.random.SFC64(seed)
    words: np.ndarray = twin.state["state"]["state"].copy()  # type: ignore[index, call-overload]
    return words, twin


WEIGHTS = [0.5, 0.0, 2.0, 1e-9, 1.0, 0.0]
DRAWS = {
    "word": (draws.word, naive.next_word),
    "uniform": (draws.uniform, naive.uniform),
    "normal": (draws.normal, naive.normal),
    "exponential": (draws.exponential, naive.exponential),
    "geometric": (lambda rng: draws.geometric(rng, 0.95), lambda twin: naive.geometric(twin, 0.95)),
    "categorical": (
        lambda rng: draws.categorical(rng, np.array(WEIGHTS)),
        lambda twin: naive.categorical(twin, WEIGHTS),
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_equal_their_twins(name: str) -> None:
    draw, twin = DRAWS[name]
    rng, words = stream(7)
    got = [draw(rng) for _ in range(500)]
    assert got == [twin(words) for _ in range(500)]
    assert rng.tolist() == words.state["state"]["state"].tolist()  # type: ignore[index, call-overload]


def test_uniform_is_numpys() -> None:
    rng, twin = stream(8)
    assert [draws.uniform(rng) for _ in range(100)] == np.random.Generator(twin).random(100).tolist()


def test_normal_quantile_is_right_far_out() -> None:
    p = np.concatenate(
        [2.0 ** -np.arange(2.0, 54.0), 1 - 2.0 ** -np.arange(2.0, 53.0), np.linspace(0.01, 0.99, 99)]
    )
    got = [draws.normal_quantile(x) for x in p]
    np.testing.assert_allclose(got, [naive.normal_quantile(x) for x in p], rtol=1e-15)
    np.testing.assert_allclose(got, stats.norm.ppf(p), rtol=1e-14, atol=1e-16)


def test_categorical_never_draws_what_is_impossible() -> None:
    last = np.array([0, 0, 0, 1], np.uint64)
    weights = np.array([0.0, *[0.1] * 10, 0.0])
    for _ in range(12):
        draws.word(last)
    assert {draws.categorical(last, weights) for _ in range(300)} == set(range(1, 11))
    assert draws.categorical(last, np.zeros(3)) == -1


def test_laws_of_draws() -> None:
    """Kolmogorov-Smirnov on 100,000 draws each; the negative control moves the law by 2 %."""
    rng, _ = stream(9)
    for draw, law in ((draws.normal, stats.norm), (draws.exponential, stats.expon)):
        sample = np.array([draw(rng) for _ in range(100_000)])
        assert stats.kstest(sample, law.cdf).pvalue > HOLDS
        assert stats.kstest(1.02 * sample + 0.02, law.cdf).pvalue < FAILS
