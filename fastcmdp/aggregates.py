"""Figures of many runs that one mean does not tell: performance profiles, interquartile means, who improves on whom.

Errors of T tasks (models, or budgets) with R_t replicates each, smaller is better, infinite for a run that failed:

    profile(tau)   mean over tasks of the share of replicates with an error of at most tau,
    iqm            mean of the middle half of all errors; those at its ends count in part,
    improvement    mean over tasks of P(x < y) + P(x = y)/2 for replicates x, y of two methods.

Intervals are from a bootstrap that is stratified: replicates are drawn again within each task. As in
`fastcmdp.bootstrap` what is drawn is moved away from the figure by sqrt(n/(n-1)) t/z, here with t of sum_t (R_t - 1)
degrees of freedom and n the mean of R_t, since percentiles of few replicates are too short: for six tasks of four
normal replicates they cover 88 % where these cover 95 %. Shares stay in [0, 1].

Source: Agarwal, Schwarzer, Castro, Courville, Bellemare, Deep Reinforcement Learning at the Edge of the Statistical
Precipice (NeurIPS 2021) proposes the three figures and the stratified bootstrap; the widening is this project's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastcmdp.bootstrap import DRAWS, LEVEL, Interval
from fastcmdp.errors import SettingError

Float = NDArray[np.float64]
Errors = Sequence[Float]  # float64[R_t], one array a task


def _checked(errors: Errors) -> list[Float]:
    """Tasks of at least one replicate each; what is no number is a run that failed."""
    tasks = [np.asarray(task, np.float64).ravel() for task in errors]
    if not tasks or any(task.size == 0 for task in tasks):
        raise SettingError("errors: at least one task, and at least one replicate of each, is expected")
    return [np.where(np.isnan(task), np.inf, task) for task in tasks]


def _interval(
    groups: Sequence[list[Float]], figure: Callable[..., Float], draws: int, seed: int, share: bool
) -> Interval:
    """A figure of tasks of one or two methods, from [n, R_t] each to [n, ...], and its interval."""
    rng = np.random.default_rng(seed)
    value = figure(*([task[None] for task in tasks] for tasks in groups))[0]
    n = [task.size for tasks in groups for task in tasks]
    freedom = sum(n) - len(n)
    if freedom == 0:
        return Interval(value, value, value)
    from scipy.special import stdtrit  # here, since it is slow to import

    drawn = figure(
        *([task[rng.integers(task.size, size=(draws, task.size))] for task in tasks] for tasks in groups)
    )
    mean = max(float(np.mean(n)), 1.5)  # single replicates do not vary
    spread = (
        np.sqrt(mean / (mean - 1.0)) * stdtrit(freedom, (1 + LEVEL) / 2) / stdtrit(np.inf, (1 + LEVEL) / 2)
    )
    with np.errstate(invalid="ignore"):  # where both are infinite
        moved = np.where(np.isfinite(drawn) & np.isfinite(value), value + spread * (drawn - value), drawn)
    low, high = np.quantile(moved, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0, method="closest_observation")
    if share:
        low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    return Interval(value, np.minimum(low, value), np.maximum(high, value))


def profile(errors: Errors, thresholds: Float, *, draws: int = DRAWS, seed: int = 0) -> Interval:
    """The share of runs with an error of at most each threshold.

    Parameters
    ----------
    errors : sequence of float64[R_t]
        One array a task; NaN for a run that failed.
    thresholds : float64[n]
    draws, seed : int
        Resamples, and the seed of their random stream.

    Returns
    -------
    Interval
        Of float64[n] each.

    Raises
    ------
    SettingError
        There is no task, or one without replicates.

    Examples
    --------
    >>> import numpy as np
    >>> profile([np.array([0.1, 0.3]), np.array([0.2, 0.5])], np.array([0.0, 0.2, 0.5])).mean.tolist()
    [0.0, 0.5, 1.0]
    """
    levels = np.atleast_1d(np.asarray(thresholds, np.float64))

    def figure(tasks: list[Float]) -> Float:
        shares = [np.searchsorted(levels[order], task, "left") for task in tasks]
        columns = []
        for share in shares:  # the first threshold that each run meets
            counts = np.zeros((len(share), levels.size + 1))
            np.add.at(counts, (np.arange(len(share))[:, None], share), 1.0)
            columns.append(np.cumsum(counts, axis=1)[:, :-1] / share.shape[1])
        return np.asarray(np.mean(columns, axis=0)[:, back])

    order = np.argsort(levels, kind="stable")
    back = np.argsort(order, kind="stable")
    return _interval([_checked(errors)], figure, draws, seed, True)


def iqm(errors: Errors, *, draws: int = DRAWS, seed: int = 0) -> Interval:
    """The interquartile mean of the errors of all runs: less noisy than a mean, less blind than a median.

    Parameters and errors as for `profile`.

    Examples
    --------
    >>> import numpy as np
    >>> float(iqm([np.array([1.0, 2.0, 3.0, 100.0])]).mean)
    2.5
    """
    tasks = _checked(errors)
    n = sum(task.size for task in tasks)
    edges = np.clip(np.arange(n + 1) / n, 0.25, 0.75)
    weights = 2.0 * np.diff(edges)
    used = weights > 0

    def figure(drawn: list[Float]) -> Float:
        ordered = np.sort(np.concatenate(drawn, axis=1), axis=1)
        return np.asarray(ordered[:, used] @ weights[used])

    return _interval([tasks], figure, draws, seed, False)


def improvement(first: Errors, second: Errors, *, draws: int = DRAWS, seed: int = 0) -> Interval:
    """The probability that a run of the first method has a smaller error than one of the second, on a task at random.

    Parameters and errors as for `profile`, with the same tasks in the same order for both; equal errors count half.

    Raises
    ------
    SettingError
        There is no task, one without replicates, or the numbers of tasks differ.

    Examples
    --------
    >>> import numpy as np
    >>> float(improvement([np.array([0.1, 0.2])], [np.array([0.2, 0.3])]).mean)
    0.875
    """
    ours, theirs = _checked(first), _checked(second)
    if len(ours) != len(theirs):
        raise SettingError(f"{len(ours)} and {len(theirs)} tasks: the same tasks for both are expected")

    def figure(x: list[Float], y: list[Float]) -> Float:
        columns = []
        for a, b in zip(x, y, strict=True):
            left, right = a[:, :, None], b[:, None, :]
            columns.append(((left < right) + 0.5 * (left == right)).mean(axis=(1, 2)))
        return np.asarray(np.mean(columns, axis=0))

    return _interval([ours, theirs], figure, draws, seed, True)
