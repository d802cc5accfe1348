"""What the sampler estimates, against the exact answers.

Every check is a chi-square test at p > 5e-5 on a fixed seed. Were the seed drawn anew, a correct sampler would
fail each with a probability below 1e-4, that the covariance is estimated from 400 samples or more included. Every
check has a negative control, the same samples against what a well-known bug would give, which must fail at
p < 1e-12.
"""

from __future__ import annotations

from typing import Any

import naive
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fastcmdp import exact
from fastcmdp.algorithms import PDANPG
from fastcmdp.algorithms.primal_dual import PrimalDualRun
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.algorithm import pd_anpg
from fastcmdp.kernels.sampling import rollouts
from fastcmdp.policies import LogLinear
from fastcmdp.streams import streams
from fastcmdp.tables import build_actions, build_tables
from fastcmdp.worlds import TableWorld

Floats = NDArray[np.float64]

HOLDS, FAILS = 5e-5, 1e-12
N = 200_000
CMDP2 = CMDP(**naive.random_rows(12, n_states=4, n_actions=3, m=2, gamma=0.8))
PHI = np.random.default_rng(1).standard_normal((CMDP2.n_choices, 3))
THETA = np.array([0.5, -0.3, 0.8])
PI = np.array(naive.refresh_all(naive.plain(CMDP2), PHI.tolist(), THETA.tolist()))
SCORES = np.array(
    naive.collect_scores(naive.plain(CMDP2), PHI.tolist(), PI.tolist(), list(range(CMDP2.n_choices)))
)
DUAL = np.array([0.3, 2.0])


def mean_test(samples: Floats, expected: Floats) -> tuple[float, int]:
    """Chi-square statistic of a mean of n vectors against its expectation, and its degrees of freedom."""
    off = samples.mean(axis=0) - expected
    values, vectors = np.linalg.eigh(np.cov(samples.T, ddof=1))
    kept = values > 1e-9 * values.max()  # signals and scores may depend on each other linearly
    certain = np.abs(vectors[:, ~kept].T @ off).max(initial=0.0)  # off where nothing is random
    chi_square = len(samples) * ((vectors[:, kept].T @ off) ** 2 / values[kept]).sum()
    return float(chi_square if certain < 1e-6 else np.inf), int(kept.sum())


def p_value(*tests: tuple[float, int]) -> float:
    """Of independent chi-square tests together."""
    return float(stats.chi2.sf(sum(x for x, _ in tests), sum(df for _, df in tests)))


def law_test(counts: NDArray[Any], law: Floats) -> tuple[float, int]:
    """Chi-square statistic of counts against a law, cells of which fewer than 10 are expected in one."""
    expected = counts.sum() * law
    small = expected < 10
    cells = np.append(counts[~small], counts[small].sum()), np.append(expected[~small], expected[small].sum())
    seen, wanted = (cell[cells[1] > 0] for cell in cells)
    return float(((seen - wanted) ** 2 / wanted).sum()), len(wanted) - 1


def roll(
    cmdp: CMDP, pi: Floats, choice: NDArray[np.int64], row: Any, draws: str = "fast"
) -> tuple[Floats, NDArray[np.int64]]:
    """Sums of the signals and last pair of rollouts from the given pairs or states."""
    tables, n = build_tables(cmdp, draws), len(choice)
    total, last = np.empty((n, tables.n_signals)), np.empty(n, np.int64)
    rows = np.broadcast_to(np.asarray(row, np.uint32), n).copy()
    rollouts.rollouts(tables, build_actions(tables, pi), streams(5, 1)[0], choice, rows, total, last)
    return total, last


FROM_START = np.full(N, -1)


@pytest.mark.parametrize("draws", ["fast", "exact"])
def test_j_is_unbiased(draws: str) -> None:
    total, last = roll(CMDP2, PI, FROM_START, 0, draws)
    expected = exact.evaluate(CMDP2, PI).raw
    assert p_value(mean_test(total, expected)) > HOLDS
    assert p_value(mean_test(total - CMDP2.signals[last], expected)) < FAILS  # the last pair left out


@pytest.mark.parametrize("which", ["Q", "V"])
def test_q_and_v_are_unbiased(which: str) -> None:
    if which == "Q":
        expected = exact.q_values(CMDP2, PI)
        group = np.arange(N) % CMDP2.n_choices
        total, last = roll(CMDP2, PI, group, 0)
    else:
        expected = exact.values(CMDP2, PI)
        group = np.arange(N) % CMDP2.n_states
        total, last = roll(CMDP2, PI, FROM_START, build_tables(CMDP2).state_row[group])
    short = total - CMDP2.signals[last]  # the last pair left out
    groups = [group == g for g in range(len(expected))]
    assert p_value(*(mean_test(total[g], mean) for g, mean in zip(groups, expected, strict=True))) > HOLDS
    assert p_value(*(mean_test(short[g], mean) for g, mean in zip(groups, expected, strict=True))) < FAILS


@pytest.mark.parametrize("draws", ["fast", "exact"])
def test_the_last_pair_follows_the_occupancy(draws: str) -> None:
    counts = np.bincount(roll(CMDP2, PI, FROM_START, 0, draws)[1], minlength=CMDP2.n_choices)
    law = exact.occupancy(CMDP2, PI)
    late = (law @ CMDP2.transition_matrix())[CMDP2.choice_state] * PI  # one transition too many
    assert p_value(law_test(counts, law)) > HOLDS
    assert p_value(law_test(counts, late)) < FAILS


@pytest.mark.parametrize("gamma", [0.1, 0.9, 0.99])
def test_horizons_are_geometric(gamma: float) -> None:
    one = CMDP([0, 1], [0, 1], [0], [1.0], [1.0], gamma=gamma)  # earns 1 a pair: T + 1
    total, _ = roll(one, np.ones(1), FROM_START, 0)
    counts = np.bincount(total[:, 0].astype(int))
    times = np.arange(len(counts))
    law = np.where(times == 0, 0.0, (1 - gamma) * gamma ** (times - 1.0))
    law[-1] += 1 - law.sum()
    shifted = np.append(0.0, law[:-1])  # T from 1 upwards, as numpy's geometric draws it
    assert p_value(law_test(counts, law)) > HOLDS
    assert p_value(law_test(counts, shifted + 1e-9)) < FAILS


def make_run(
    cmdp: CMDP, policy: LogLinear, settings: PDANPG, replicates: int, theta: Floats
) -> PrimalDualRun:
    run = settings.run(TableWorld.of(cmdp, policy), 6, replicates)
    run.state.theta[:] = theta
    run.state.dual[:] = DUAL
    run.refresh()
    return run


def one_batch() -> pd_anpg.Work:
    """What the inner loop of a pilot step sees, of N samples."""
    run = make_run(CMDP2, LogLinear(PHI), PDANPG(inner=N, pilot=1), 1, THETA)
    work = run.work()
    run.advance(0, 1, work)
    assert run.state.outer[0] == 0
    return work


def test_advantages_fisher_matrix_and_gradient_are_unbiased() -> None:
    work = one_batch()
    scores, target = work.scores.dense, work.target
    groups = [work.advantage[work.pair[:N] == q] for q in range(CMDP2.n_choices)]
    advantages = exact.advantages(CMDP2, PI)
    baseline = exact.values(CMDP2, PI).mean(axis=0)  # not the state's own
    other = exact.q_values(CMDP2, PI) - baseline
    assert p_value(*(mean_test(a, mean) for a, mean in zip(groups, advantages, strict=True))) > HOLDS
    assert p_value(*(mean_test(a, mean) for a, mean in zip(groups, other, strict=True))) < FAILS

    upper = np.triu_indices(len(THETA))
    fisher = (scores[:, :, None] * scores[:, None, :])[:, *upper]
    assert p_value(mean_test(fisher, exact.fisher(CMDP2, SCORES, PI)[upper])) > HOLDS
    assert p_value(mean_test(fisher, exact.fisher(CMDP2, PHI, PI)[upper])) < FAILS  # features not centred

    gradient = scores * target[:, None]
    assert p_value(mean_test(gradient, exact.policy_gradient(CMDP2, SCORES, PI, DUAL))) > HOLDS
    swapped = exact.policy_gradient(CMDP2, SCORES, PI, DUAL[::-1])  # the wrong multiplier for each constraint
    assert p_value(mean_test(gradient, swapped)) < FAILS


LOGITS = 0.5 * np.random.default_rng(3).standard_normal(CMDP2.n_choices)


def inner_loops(n_inner: int, replicates: int) -> tuple[Floats, Floats]:
    """omega and the last iterate x_H of inner loops at logits that stand still: a step of length 1 adds omega."""
    settings = PDANPG(inner=n_inner, pilot=0, eta=1.0, g_squared=0.5, mu_f=0.05)
    run = make_run(CMDP2, LogLinear(np.eye(len(LOGITS))), settings, replicates, LOGITS)
    work, last = run.work(), np.empty_like(run.state.theta)
    for r in range(replicates):
        run.advance(r, 1, work)
        last[r] = naive.iterate(run.solver, work.inner.u, work.inner.w)
    return run.state.theta - LOGITS, last


def test_a_fixed_policy_yields_the_natural_gradient() -> None:
    """omega -> A_L / (1 - gamma) less its unweighted mean over the state, with an error like H^-1/2."""
    pi = np.array(naive.refresh_all(naive.plain(CMDP2), naive.identity(len(LOGITS)), LOGITS.tolist()))
    advantage = exact.advantages(CMDP2, pi) @ [1.0, *DUAL] / (1 - CMDP2.gamma)
    mean = (np.bincount(CMDP2.choice_state, advantage) / np.diff(CMDP2.state_to_choice))[CMDP2.choice_state]
    target = advantage - mean
    (short, short_last), (long, long_last) = inner_loops(2_000, 400), inner_loops(32_000, 100)
    assert p_value(mean_test(short, target)) > HOLDS
    assert (
        p_value(mean_test(short, target * (1 - CMDP2.gamma))) < FAILS
    )  # the factor 1 / (1 - gamma) forgotten
    assert p_value(mean_test(short, advantage)) < FAILS  # the mean with pi as weights, which is 0

    def ratio(few: Floats, many: Floats) -> float:
        return float(np.sqrt(((few - target) ** 2).mean() / ((many - target) ** 2).mean()))

    # 16 times the steps: a quarter of the error, near enough. The ratio of these 400 and 100 loops has a standard
    # deviation of 0.17 about 3.8, so the bounds are 4 of them away or more. Without the tail average the error stays.
    assert 3.1 < ratio(short, long) < 4.9
    assert ratio(short_last, long_last) < 1.2
