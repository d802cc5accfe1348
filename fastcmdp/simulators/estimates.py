"""J of a policy on a simulator by Monte Carlo."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcmdp.check import seed_number, whole
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.kernels.simulator import simulate as kernel
from fastcmdp.kernels.streams import LANES
from fastcmdp.policies import check_policy
from fastcmdp.simulators.checks import numbers_or_none
from fastcmdp.streams import words_of

if TYPE_CHECKING:
    from fastcmdp.simulators.simulator import Simulator

Float = npt.NDArray[np.float64]

_CHUNK = 1000  # rollouts that share a stream


@dataclass(frozen=True)
class SimulatedValue:
    """Estimates of J_r and of the constraint values in the user's units, and where they lie with some confidence.

    Attributes
    ----------
    reward : float
    constraints : float64[m]
    reward_interval : float64[2]
    constraint_intervals : float64[m, 2]
        Each covers the exact value with probability ``confidence``: Student's t, exact were the rollouts' values
        normal, and right for many rollouts whatever they are (central limit theorem).
    rollouts, transitions : int
    confidence : float
    unseen : float
        What no rollout has shown can still happen in this share of all rollouts, at ``confidence``; the intervals know
        nothing of it. With [0, 0] for a rare event's cost, its value is below ``unseen`` times what one such rollout
        costs.
    """

    reward: float
    constraints: Float
    reward_interval: Float
    constraint_intervals: Float
    rollouts: int
    transitions: int
    confidence: float
    unseen: float


def estimate(
    simulator: Simulator,
    policy: Any,
    theta: npt.ArrayLike | None,
    rollouts: int,
    seed: int,
    confidence: float,
    threads: int | None,
) -> SimulatedValue:
    """See ``Simulator.evaluate``."""
    rollouts, seed = whole("rollouts", rollouts, 2), seed_number(seed)
    threads = None if threads is None else whole("threads", threads, 1)
    if not isinstance(confidence, int | float | np.floating) or not 0.0 < confidence < 1.0:
        raise SettingError(f"confidence = {confidence!r}: a number between 0 and 1 is expected")
    bound = check_policy(policy).on_simulator(simulator)
    parameters = _parameters(bound, theta)
    total, transitions = _sums(simulator, bound, parameters, rollouts, seed, threads)
    from scipy.special import stdtrit  # here, since it is slow to import

    values = controlled(total[:, :-1], total[:, -1], simulator.gamma)
    mean = values.mean(axis=0)
    quantile = stdtrit(rollouts - 1, 0.5 + confidence / 2)
    half = quantile * values.std(axis=0, ddof=1) / math.sqrt(rollouts)
    interval = np.stack([mean - half, mean + half], axis=1)
    return SimulatedValue(
        reward=float(mean[0]),
        constraints=mean[1:],
        reward_interval=interval[0],
        constraint_intervals=interval[1:],
        rollouts=rollouts,
        transitions=transitions,
        confidence=float(confidence),
        unseen=-math.expm1(math.log1p(-confidence) / rollouts),
    )


def _parameters(bound: Any, theta: npt.ArrayLike | None) -> Float:
    """The parameters to measure, float64[d]."""
    start = bound.initial if bound.initial is not None else np.zeros(bound.n_parameters)
    parameters = np.array(start) if theta is None else numbers_or_none(theta)
    if parameters.shape != (bound.n_parameters,):
        raise SettingError(
            f"theta has shape {parameters.shape}, and ({bound.n_parameters},) is expected; of a result give a "
            "row: result.theta[0]"
        )
    if not np.isfinite(parameters).all():
        raise SettingError(f"theta[{int(np.argmin(np.isfinite(parameters)))}] is not finite")
    return parameters


def _sums(
    simulator: Simulator, bound: Any, parameters: Float, rollouts: int, seed: int, threads: int | None
) -> tuple[Float, int]:
    """Sums of reward and costs over rollouts, in the user's units, and their lengths, (N, 2+m); and all transitions."""
    units = np.ones(1 + simulator.n_constraints)
    world = simulator.world(bound)._replace(factor=units, offset=0.0 * units)
    total, parts = np.empty((rollouts, world.n_signals + 1)), []

    def chunk(first: int) -> None:
        n = min(_CHUNK, rollouts - first)
        actions = simulator.live_actions(bound, parameters, n)
        rng = np.zeros((4, LANES), np.uint64)
        # Three numbers, where the streams of ``solve`` have two: none of these is one of those.
        rng[:, 0] = words_of(np.random.SeedSequence(seed, spawn_key=(first // _CHUNK, 0, 0)))
        parts.append(
            kernel.simulate(
                world, actions, rng, np.full(n, -1), np.zeros(n, np.uint32), total[first : first + n],
                np.zeros(n, np.int64),
            )
        )  # fmt: skip
        if fault := simulator.fault(actions):
            raise ModelError(f"{simulator.name}: {fault}")

    n_threads = min(threads or len(os.sched_getaffinity(0)), -(-rollouts // _CHUNK))
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(chunk, range(0, rollouts, _CHUNK)))
    return total, int(sum(parts))


def controlled(total: Float, length: Float, gamma: float) -> Float:
    """Sums of N rollouts, (N, n), each less b times the excess of its length over 1/(1-gamma); means stay as they are.

    b is fitted on the *other* rollouts, so that no estimate is biased, with the weight of one rollout more for b = 0.
    """
    n, x = len(total), (length - 1.0 / (1.0 - gamma))[:, None]
    others = (total.sum(axis=0) - total) / (n - 1)  # the mean of the others
    covariance = (x * total).sum(axis=0) - x * total - others * (x.sum() - x)
    variance = (x * x).sum() - x * x + gamma / (1.0 - gamma) ** 2
    return np.asarray(total - covariance / variance * x)
