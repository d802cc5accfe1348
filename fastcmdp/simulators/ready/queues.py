"""Two queues in tandem with infinite buffers, served within a power budget."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from fastcmdp.cmdp import CMDP
from fastcmdp.kernels import draws
from fastcmdp.simulators.checks import check_count, check_number
from fastcmdp.simulators.simulator import Simulator


def tandem_queue(
    arrival: float = 0.4,
    slow: float = 0.3,
    fast: float = 0.8,
    power: float = 1.0,
    gamma: float = 0.95,
    budget: float | None = None,
) -> Simulator:
    """Two queues in tandem, each with a server that works slowly for nothing or fast at a price.

    State (n_1, n_2), customers in each, without bound, (0, 0) at the start. Action a = a_1 + 2 a_2: server i is fast
    where a_i = 1. In a slot every server with customers finishes one with its probability, and then a customer
    arrives at the first queue; what the first finishes waits at the second from the next slot on. Reward -(n_1 + n_2)
    before the slot; cost ``power`` for each fast server. Features: 1, and n_i / (1 + n_i) and n_i / (8 + n_i) of both.

    Parameters
    ----------
    arrival, slow, fast : float
        Probabilities a slot; slow <= fast.
    power : float
        Positive.
    gamma : float
    budget : float, optional
        On the discounted power; default: that of one fast server in half of the slots.

    Raises
    ------
    ModelError
        A parameter out of range.

    Examples
    --------
    >>> tandem_queue()
    Simulator(tandem queue, 2 numbers a state, 4 actions, gamma=0.95, maximise -customers, power <= 10)
    """
    arrival, slow = check_number(arrival, "arrival", 0, 1), check_number(slow, "slow", 0, 1)
    fast, power = check_number(fast, "fast", slow, 1), check_number(power, "power", 1e-9, 1e9)

    return Simulator(
        _step(arrival, slow, fast, power),
        _reset,
        n_state=2,
        n_actions=4,
        gamma=gamma,
        limits=[0.5 * power / (1.0 - gamma) if budget is None else budget],
        names=["-customers", "power"],
        state_features=_features,
        n_features=5,
        reward_range=(-20.0, 0.0),
        cost_ranges=(0.0, 2.0 * power),
        name="tandem queue",
    )


@cache  # compiled once for queues that differ in limit or gamma alone
def _step(arrival: float, slow: float, fast: float, power: float) -> Any:
    @njit
    def step(state, action, rng, costs):  # type: ignore[no-untyped-def]
        reward = -(state[0] + state[1])
        first, second = action % 2, action // 2
        costs[0] = power * (first + second)
        done_first = 1.0 if draws.uniform(rng) < (fast if first == 1 else slow) and state[0] > 0.0 else 0.0
        done_second = 1.0 if draws.uniform(rng) < (fast if second == 1 else slow) and state[1] > 0.0 else 0.0
        arrived = 1.0 if draws.uniform(rng) < arrival else 0.0
        state[0] += arrived - done_first
        state[1] += done_first - done_second
        return reward

    return step


@njit
def _reset(state, rng):  # type: ignore[no-untyped-def]
    state[0] = 0.0
    state[1] = 0.0


@njit
def _features(state, out):  # type: ignore[no-untyped-def]
    out[0] = 1.0
    for i in range(2):
        out[1 + 2 * i] = state[i] / (1.0 + state[i])
        out[2 + 2 * i] = state[i] / (8.0 + state[i])


def tandem_queue_table(
    buffer: int = 20,
    arrival: float = 0.4,
    slow: float = 0.3,
    fast: float = 0.8,
    power: float = 1.0,
    gamma: float = 0.95,
    budget: float | None = None,
) -> CMDP:
    """The model of ``tandem_queue`` with buffers of this size: what arrives at a full one is lost.

    State n_1 (buffer + 1) + n_2. Its answers differ from the simulator's by what the occupancy of states with a full
    buffer weighs.

    Examples
    --------
    >>> tandem_queue_table(buffer=4).n_states
    25
    """
    size = check_count(buffer, "buffer", 1, 1000) + 1
    n1, n2, action = (x.ravel() for x in np.indices((size, size, 4)))
    speed = np.array([slow, fast])
    rows, targets, probabilities = [], [], []
    for done1 in (0, 1):
        for done2 in (0, 1):
            for arrived in (0, 1):
                p1 = np.where(n1 > 0, speed[action % 2], 0.0)
                p2 = np.where(n2 > 0, speed[action // 2], 0.0)
                p = (p1 if done1 else 1 - p1) * (p2 if done2 else 1 - p2)
                p = p * (arrival if arrived else 1 - arrival)
                after1 = np.clip(n1 + arrived - done1, 0, size - 1)
                after2 = np.clip(n2 + done1 - done2, 0, size - 1)
                rows.append(np.arange(len(n1)))
                targets.append(after1 * size + after2)
                probabilities.append(p)
    order = np.argsort(np.concatenate(rows), kind="stable")
    return CMDP(
        np.arange(size * size + 1) * 4,
        np.arange(len(n1) + 1) * 8,
        np.concatenate(targets)[order],
        np.concatenate(probabilities)[order],
        -(n1 + n2).astype(np.float64),
        [power * (action % 2 + action // 2)],
        gamma=gamma,
        start=0,
        limits=[0.5 * power / (1.0 - gamma) if budget is None else budget],
        names=["-customers", "power"],
    )
