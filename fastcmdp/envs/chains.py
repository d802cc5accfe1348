"""Problems on a line: a swim against the current, a queue with admission control, a store of goods."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fastcmdp.check import check_memory, real, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.envs.limits import Limit, with_limit
from fastcmdp.errors import SettingError

_PAIR_BYTES = 20  # of memory for a pair of states in a dense table of two actions
_BRANCH_BYTES = 60  # of memory for a branch, while the model is built


def river_swim(
    n_states: int = 8,
    gamma: float = 0.95,
    limit: Limit = None,
    start: int | None = None,
) -> CMDP:
    """A river whose far bank pays 1 and near bank 0.005, where each stroke against the current costs 1.

    Action 0 drifts one state to the left for certain. Action 1 swims: it moves right with probability 0.35,
    stays with 0.6 and is carried left with 0.05; at the near bank (state 0) right with 0.6 or stay with 0.4;
    at the far bank (the last state) stay with 0.6 or left with 0.4. Drifting at the near bank pays 0.005,
    swimming at the far bank 1.

    Parameters
    ----------
    n_states : int
        Length of the river, at least 2.
    gamma : float
        Discount factor in (0, 1).
    limit : float or None
        Limit on the discounted number of strokes. None: halfway (`fastcmdp.envs.limits`).
    start : int or None
        Start state. None: uniform, so that the far bank is met without swimming all the way by luck.

    Raises
    ------
    SettingError
        A setting is out of range.

    References
    ----------
    A. Strehl, M. Littman, An analysis of model-based interval estimation for Markov decision processes,
    Journal of Computer and System Sciences 74 (2008). The cost of strokes is an addition.

    Examples
    --------
    >>> from fastcmdp.envs import river_swim
    >>> river_swim(limit=5.0)
    CMDP(8 states, 16 choices, 30 branches, gamma=0.95, maximise reward, strokes <= 5)
    """
    n = whole("n_states", n_states, 2)
    check_memory(_PAIR_BYTES * n**2, n_states=n)
    gamma = real("gamma", gamma, 0.0, 1.0, inside=True)
    first = None if start is None else whole("start", start, 0, n - 1)
    transition = np.zeros((n, 2, n))
    state = np.arange(n)
    transition[state, 0, np.maximum(state - 1, 0)] = 1.0
    inner = state[1:-1]
    for step, probability in ((-1, 0.05), (0, 0.6), (1, 0.35)):
        transition[inner, 1, inner + step] = probability
    transition[0, 1, :2] = 0.4, 0.6
    transition[-1, 1, -2:] = 0.4, 0.6
    reward = np.zeros((n, 2))
    reward[0, 0], reward[-1, 1] = 0.005, 1.0
    strokes = np.zeros((n, 2))
    strokes[:, 1] = 1.0
    cmdp = CMDP.from_arrays(
        transition, reward, strokes, gamma=gamma, start=first, limits=0.0, names=("reward", "strokes")
    )
    return with_limit(cmdp, limit)


def queue(
    capacity: int = 10,
    arrival: float = 0.5,
    service: float = 0.4,
    gamma: float = 0.95,
    limit: Limit = None,
) -> CMDP:
    """A queue with admission control: reward 1 for each customer admitted, cost 1 for each held a slot.

    In each slot a customer arrives with probability `arrival`, and one who was there at the slot's begin is
    served with probability `service`. State s is the number of customers. Action 1 admits an arrival, action
    0 turns it away; the full queue has action 0 only. The queue starts empty.

    Parameters
    ----------
    capacity : int
        The most customers, at least 1; there are `capacity` + 1 states.
    arrival, service : float
        Probabilities in [0, 1].
    gamma : float
        Discount factor in (0, 1).
    limit : float or None
        Limit on the discounted number of customers held. None: halfway (`fastcmdp.envs.limits`).

    Raises
    ------
    SettingError
        A setting is out of range.

    References
    ----------
    E. Altman, Constrained Markov decision processes (1999), chapter 5, gives flow control as an example.

    Examples
    --------
    >>> from fastcmdp.envs import queue
    >>> queue(capacity=3, limit=2.0)
    CMDP(4 states, 7 choices, 15 branches, gamma=0.95, maximise admitted, held <= 2)
    """
    n = whole("capacity", capacity, 1) + 1
    check_memory(_PAIR_BYTES * n**2, capacity=n - 1)
    arrival, service = real("arrival", arrival, 0.0, 1.0), real("service", service, 0.0, 1.0)
    gamma = real("gamma", gamma, 0.0, 1.0, inside=True)
    transition = np.zeros((n, 2, n))
    for s in range(n):
        for action in range(2 if s < n - 1 else 1):
            joins = arrival * action
            leaves = service if s else 0.0
            for change, probability in (
                (-1, leaves * (1.0 - joins)),
                (0, leaves * joins + (1.0 - leaves) * (1.0 - joins)),
                (1, joins * (1.0 - leaves)),
            ):
                if probability:
                    transition[s, action, s + change] = probability
    available = np.ones((n, 2), dtype=bool)
    available[-1, 1] = False
    cmdp = CMDP.from_arrays(
        transition,
        np.tile([0.0, arrival], (n, 1)),
        np.arange(n, dtype=float),
        gamma=gamma,
        start=0,
        limits=0.0,
        available=available,
        names=("admitted", "held"),
    )
    return with_limit(cmdp, limit)


def inventory(
    capacity: int = 10,
    demand: float = 3.0,
    price: float = 5.0,
    order_cost: float = 3.0,
    holding_cost: float = 0.2,
    constraint: str = "stock-out",
    gamma: float = 0.95,
    limit: Limit = None,
) -> CMDP:
    """A store that orders goods each day: profit against unmet demand, or against goods left on the shelf.

    State s in 0..capacity is the stock in the morning. Action a in 0..capacity - s orders a units, there at
    once. The day's demand is Poisson; what exceeds the stock is lost. The profit of a day is `price` times
    the units sold, less `order_cost` times those ordered, less `holding_cost` times those left in the
    evening. The store starts empty.

    Parameters
    ----------
    capacity : int
        The most units in stock, at least 1.
    demand : float
        Mean demand of a day, in (0, 1000].
    price, order_cost, holding_cost : float
        Money for a unit, each in [0, 1e6].
    constraint : str
        "stock-out" limits the discounted number of units of demand not met, "holding" that of units left in
        the evening.
    gamma : float
        Discount factor in (0, 1).
    limit : float or None
        The limit on it. None: halfway (`fastcmdp.envs.limits`).

    Raises
    ------
    SettingError
        A setting is out of range.

    References
    ----------
    M. Puterman, Markov decision processes (1994), section 3.2, without its fixed cost of an order.

    Examples
    --------
    >>> from fastcmdp.envs import inventory
    >>> inventory(capacity=3, limit=4.0)
    CMDP(4 states, 10 choices, 30 branches, gamma=0.95, maximise profit, stock-out <= 4)
    """
    top = whole("capacity", capacity, 1)
    check_memory(_BRANCH_BYTES * top**3 / 6, capacity=top)
    mean = real("demand", demand, 0.0, 1000.0)
    if mean == 0.0:
        raise SettingError("demand must be greater than 0, got 0")
    price, order_cost = real("price", price, 0.0, 1e6), real("order_cost", order_cost, 0.0, 1e6)
    holding_cost = real("holding_cost", holding_cost, 0.0, 1e6)
    gamma = real("gamma", gamma, 0.0, 1.0, inside=True)
    if constraint not in ("stock-out", "holding"):
        raise SettingError(f"constraint must be 'stock-out' or 'holding', got {constraint!r}")

    # All that follows a choice depends on the stock after the order only: rows[y] is P(evening stock | y),
    # y..0.
    chance = _poisson(mean, top)
    rows = [np.append(chance[:y], max(0.0, 1.0 - float(chance[:y].sum()))) for y in range(top + 1)]
    sold_of = np.array([float(np.arange(y + 1) @ rows[y]) for y in range(top + 1)])

    state_to_choice = np.concatenate([[0], np.cumsum(top + 1 - np.arange(top + 1))])
    ordered = np.concatenate([np.arange(top + 1 - s) for s in range(top + 1)])
    stock = np.concatenate([np.arange(s, top + 1) for s in range(top + 1)])
    sold = sold_of[stock]
    left = stock - sold
    cmdp = CMDP(
        state_to_choice,
        np.concatenate([[0], np.cumsum(stock + 1)]),
        np.concatenate([np.arange(y, -1, -1) for y in stock]),
        np.concatenate([rows[y] for y in stock]),
        price * sold - order_cost * ordered - holding_cost * left,
        mean - sold if constraint == "stock-out" else left,
        gamma=gamma,
        start=0,
        limits=0.0,
        action_of_choice=ordered,
        names=("profit", constraint),
    )
    return with_limit(cmdp, limit)


def _poisson(mean: float, n: int) -> NDArray[np.float64]:
    """P(D = d) for d in 0..n-1."""
    return np.array([math.exp(d * math.log(mean) - mean - math.lgamma(d + 1)) for d in range(n)])
