"""An inventory with a lead time and a promised fill rate."""

from __future__ import annotations

import numpy as np
from numba import njit

from fastcmdp.cmdp import CMDP
from fastcmdp.kernels import draws
from fastcmdp.simulators.checks import check_count, check_number
from fastcmdp.simulators.simulator import Simulator


def inventory(
    lead_time: int = 2,
    orders: int = 4,
    lot: int = 2,
    capacity: int = 12,
    demand: float = 2.0,
    fill_rate: float = 0.8,
    price: float = 1.0,
    holding: float = 0.1,
    unit_cost: float = 0.4,
    gamma: float = 0.95,
) -> Simulator:
    """One product, ordered in lots that arrive later; demand that is not met is lost.

    State (on hand, due in 1, .., due in ``lead_time`` periods), all 0 at the start. Action a orders a lots. In a period
    demand D is geometric on {0, 1, ..} with mean ``demand``, min(D, on hand) is sold, what is due arrives, and what is
    above ``capacity`` is thrown away. Reward price * sold - holding * left - unit_cost * ordered; the constraint is
    that of the demand a share of ``fill_rate`` is met: J of (sold - fill_rate * D) >= 0. Features of a state: 1 and its
    numbers, over capacity.

    Parameters
    ----------
    lead_time : int
        Periods between an order and its arrival, 1 to 16.
    orders : int
        Number of actions: up to orders - 1 lots, 2 to 64.
    lot, capacity : int
    demand, fill_rate, price, holding, unit_cost, gamma : float

    Raises
    ------
    ModelError
        A parameter out of range.

    Examples
    --------
    >>> inventory().n_state
    3
    """
    n, orders, lot, capacity = _checked(lead_time, orders, lot, capacity)
    ratio = _ratio(demand)
    fill_rate = check_number(fill_rate, "fill_rate", 0, 1)
    price, holding = check_number(price, "price", 0, 1e9), check_number(holding, "holding", 0, 1e9)
    unit_cost = check_number(unit_cost, "unit_cost", 0, 1e9)

    @njit
    def step(state, action, rng, costs):  # type: ignore[no-untyped-def]
        wanted = draws.geometric(rng, ratio)
        sold = min(float(wanted), state[0])
        left = state[0] - sold
        state[0] = min(left + state[1], float(capacity))
        for i in range(1, n):
            state[i] = state[i + 1]
        state[n] = float(lot * action)
        costs[0] = sold - fill_rate * wanted
        return price * sold - holding * left - unit_cost * lot * action

    @njit
    def reset(state, rng):  # type: ignore[no-untyped-def]
        state[:] = 0.0

    @njit
    def features(state, out):  # type: ignore[no-untyped-def]
        out[0] = 1.0
        for i in range(n + 1):
            out[1 + i] = state[i] / capacity

    return Simulator(
        step,
        reset,
        n_state=n + 1,
        n_actions=orders,
        gamma=gamma,
        limits=[0.0],
        sense=">=",
        names=["profit", "filled"],
        state_features=features,
        n_features=n + 2,
        reward_range=(-holding * capacity - unit_cost * lot * (orders - 1), price * capacity),
        cost_ranges=(-5.0 * fill_rate * max(demand, 1.0), float(capacity)),
        name="inventory",
    )


def _checked(lead_time: int, orders: int, lot: int, capacity: int) -> tuple[int, int, int, int]:
    return (
        check_count(lead_time, "lead_time", 1, 16),
        check_count(orders, "orders", 2, 64),
        check_count(lot, "lot", 1, 10**6),
        check_count(capacity, "capacity", 1, 10**9),
    )


def _ratio(demand: float) -> float:
    """The parameter of a geometric number on {0, 1, ..} with this mean."""
    mean = check_number(demand, "demand", 1e-6, 1e6)
    return mean / (1.0 + mean)


def inventory_table(
    lead_time: int = 2,
    orders: int = 4,
    lot: int = 2,
    capacity: int = 12,
    demand: float = 2.0,
    fill_rate: float = 0.8,
    price: float = 1.0,
    holding: float = 0.1,
    unit_cost: float = 0.4,
    gamma: float = 0.95,
) -> CMDP:
    """The model of ``inventory`` as a table, exact: state numbers are digits, on hand first, then lots due.

    Examples
    --------
    >>> inventory_table(lead_time=1).n_states
    52
    """
    n, orders, lot, capacity = _checked(lead_time, orders, lot, capacity)
    ratio = _ratio(demand)
    shape = (capacity + 1, *([orders] * n))
    index = np.indices((*shape, orders)).reshape(n + 2, -1)
    on_hand, due, action = index[0], index[1 : n + 1], index[n + 1]
    n_choices = len(action)
    sold = np.arange(capacity + 1)
    # Pr(sold = k) for k below the stock, and all the rest at k = stock; E[sold - fill_rate D].
    p = np.where(
        sold < on_hand[:, None],
        (1 - ratio) * ratio**sold,
        np.where(sold == on_hand[:, None], ratio**sold, 0.0),
    )
    left = on_hand[:, None] - sold
    after = np.clip(left + lot * due[0][:, None], 0, capacity)
    pipeline = np.vstack([due[1:], action[None]])
    digits = [after, *(np.broadcast_to(row[:, None], after.shape) for row in pipeline)]
    target = np.ravel_multi_index(digits, shape)
    mean_sold = (p * sold).sum(axis=1)
    reward = price * mean_sold - holding * (on_hand - mean_sold) - unit_cost * lot * action
    return CMDP(
        np.arange(int(np.prod(shape)) + 1) * orders,
        np.arange(n_choices + 1) * (capacity + 1),
        target.ravel(),
        p.ravel(),
        reward,
        [mean_sold - fill_rate * demand],
        gamma=gamma,
        start=0,
        limits=[0.0],
        sense=">=",
        names=["profit", "filled"],
    )
