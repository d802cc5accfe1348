"""A delivery fleet that must not be late too often: the first example of the paper's introduction."""

from __future__ import annotations

from numba import njit

from fastcmdp.kernels import draws
from fastcmdp.simulators.checks import check_count, check_number
from fastcmdp.simulators.simulator import Simulator


def delivery_fleet(
    couriers: int = 3,
    arrival: float = 0.5,
    trip: float = 5.0,
    window: float = 8.0,
    outside_fee: float = 0.8,
    late: float | None = None,
    gamma: float = 0.95,
) -> Simulator:
    """Couriers, orders with exponential trip times, and a window within which an order should arrive.

    State: the minutes until each courier is free, and the trip time of the order that waits for an answer (0: none).
    An order arrives each minute with probability ``arrival``. Actions: 0 decline it, 1 give it to the courier who is
    free first, 2 have it delivered in time from outside. Reward: 1 for an order that is taken, less ``outside_fee`` for
    action 2. Cost: 1 for an order of a courier that arrives later than ``window`` minutes from now. The courier is busy
    until the delivery, and back at once. Features: 1; whether an order waits; then, if one does, 1, its trip, the time
    until a courier is free and their sum, all over the window and capped at 3; the busy couriers' share.

    Parameters
    ----------
    couriers : int
        1 to 1,000.
    arrival, trip, window, outside_fee, gamma : float
    late : float, optional
        Limit on the discounted number of late orders; default: one in ten of those that come.

    Raises
    ------
    ModelError
        A parameter out of range.

    Examples
    --------
    >>> delivery_fleet(couriers=2)
    Simulator(delivery fleet, 3 numbers a state, 3 actions, gamma=0.95, maximise earned, late <= 1)
    """
    n = check_count(couriers, "couriers", 1, 1000)
    arrival = check_number(arrival, "arrival", 0, 1)
    trip, window = check_number(trip, "trip", 1e-6, 1e6), check_number(window, "window", 1e-6, 1e6)
    outside_fee = check_number(outside_fee, "outside_fee", 0, 1)

    @njit
    def step(state, action, rng, costs):  # type: ignore[no-untyped-def]
        reward = 0.0
        if state[n] > 0.0 and action == 1:
            soonest = 0
            for i in range(1, n):
                if state[i] < state[soonest]:
                    soonest = i
            state[soonest] += state[n]
            reward = 1.0
            if state[soonest] > window:
                costs[0] = 1.0
        elif state[n] > 0.0 and action == 2:
            reward = 1.0 - outside_fee
        for i in range(n):
            state[i] = max(state[i] - 1.0, 0.0)
        comes = draws.uniform(rng) < arrival
        minutes = trip * draws.exponential(rng)
        state[n] = max(minutes, 1e-9) if comes else 0.0
        return reward

    @njit
    def reset(state, rng):  # type: ignore[no-untyped-def]
        state[:] = 0.0

    @njit
    def features(state, out):  # type: ignore[no-untyped-def]
        soonest = state[0]
        busy = 0.0
        for i in range(n):
            soonest = min(soonest, state[i])
            busy += state[i] > 0.0
        waits = 1.0 if state[n] > 0.0 else 0.0
        out[0] = 1.0
        out[1] = waits
        out[2] = waits * min(state[n] / window, 3.0)
        out[3] = waits * min(soonest / window, 3.0)
        out[4] = waits * (state[n] + soonest > window)
        out[5] = busy / n

    return Simulator(
        step,
        reset,
        n_state=n + 1,
        n_actions=3,
        gamma=gamma,
        limits=[0.1 * arrival / (1.0 - gamma) if late is None else late],
        names=["earned", "late"],
        state_features=features,
        n_features=6,
        reward_range=(0.0, 1.0),
        cost_ranges=(0.0, 1.0),
        name="delivery fleet",
    )
