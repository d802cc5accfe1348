"""Problems as users of six fields write them: own units, several limits, multipliers of very different size.

A machine, a dam, a radio link, a treatment, two stocks and a taxi. None is normalised: rewards are euros by the ten
thousand or weeks of life by the fiftieth, limits stand at 1 to 80 % of what policies attain, some are slack. States are
those that can be reached from the start.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from fastcmdp.check import real
from fastcmdp.cmdp import CMDP
from fastcmdp.envs.limits import Limit
from fastcmdp.envs.steps import Options, from_steps

_Chances = list[tuple[float, int]]


def maintenance(gamma: float = 0.95, limit: Limit = (2.0, 8.0)) -> CMDP:
    """A machine of wear 0..24: run it (0), repair (1, from wear 1 on) or replace (2, from 5 on).

    Output falls with wear. Repairs take 1 of downtime and 3 of the budget and undo five levels with probability 0.8,
    a replacement 2 and 15. The machine starts new.

    Parameters
    ----------
    gamma : float
        Discount factor in (0, 1).
    limit : two floats or None
        Limits on the discounted downtime and budget. None: halfway (`fastcmdp.envs.limits`).

    Raises
    ------
    SettingError
        A setting is out of range.

    Examples
    --------
    >>> from fastcmdp.envs import maintenance
    >>> maintenance()
    CMDP(25 states, 68 choices, 161 branches, gamma=0.95, maximise output, downtime <= 2, budget <= 8)
    """
    top = 24

    def step(wear: int) -> Options:
        options: dict[int, tuple[_Chances, float, list[float]]] = {}
        if wear < top:
            more = ((0, 0.4), (1, 0.4), (2, 0.15), (3, 0.05))
            options[0] = ([(p, min(wear + k, top)) for k, p in more], 10.0 - 0.3 * wear, [0.0, 0.0])
        if wear > 0:
            options[1] = ([(0.8, max(wear - 5, 0)), (0.2, wear)], 0.0, [1.0, 3.0])
        if wear >= 5:
            options[2] = ([(1.0, 0)], 0.0, [2.0, 15.0])
        return options

    return from_steps(0, step, gamma=_discount(gamma), names=["output", "downtime", "budget"], limit=limit)


def dam(gamma: float = 0.97, limit: Limit = (0.6, 24.0)) -> CMDP:
    """A dam of 20 units under a dry, normal or wet regime: a weekly release of 0..5, no more than is stored.

    Turbines earn up to 12,000 a unit, up to four units, in proportion to the head. What spills is limited; the weeks in
    which 2 or more are released, so that the towns are supplied, are at least so many. It starts half full.

    Parameters
    ----------
    gamma : float
        Discount factor in (0, 1).
    limit : two floats or None
        The most discounted units spilled, the least discounted weeks supplied. None: halfway.

    Raises
    ------
    SettingError
        A setting is out of range.

    Examples
    --------
    >>> from fastcmdp.envs import dam
    >>> dam()
    CMDP(63 states, 333 choices, 3468 branches, gamma=0.97, maximise EUR, spilled <= 0.6, supplied >= 24)
    """
    top = 20
    regimes = ((0.80, 0.18, 0.02), (0.15, 0.70, 0.15), (0.05, 0.25, 0.70))
    inflow = (
        ((0, 0.6), (1, 0.3), (2, 0.1)),
        ((1, 0.3), (2, 0.4), (3, 0.3)),
        ((2, 0.2), (3, 0.3), (4, 0.2), (5, 0.2), (7, 0.1)),
    )

    def step(state: tuple[int, int]) -> Options:
        level, regime = state
        options = {}
        for release in range(min(level, 5) + 1):
            left = level - release
            after = [
                (p * q, (min(left + rain, top), v))
                for rain, p in inflow[regime]
                for v, q in enumerate(regimes[regime])
            ]
            spilled = sum(p * max(left + rain - top, 0) for rain, p in inflow[regime])
            euros = 12_000.0 * min(release, 4) * (0.4 + 0.6 * level / top)
            options[release] = (after, euros, [spilled, float(release >= 2)])
        return options

    return from_steps(
        {(10, 0): 0.4, (10, 1): 0.4, (10, 2): 0.2}, step, gamma=_discount(gamma), limit=limit, sense=["<=", ">="],
        names=["EUR", "spilled", "supplied"], variables=["level", "regime"],
    )  # fmt: skip


def wireless(gamma: float = 0.99, limit: Limit = (110.0, 3.0)) -> CMDP:
    """A radio link: a buffer of 15 packets over a fading channel; sending u takes (2^u - 1) / gain of power.

    The reward is minus the packets that wait; power, and slots with u >= 3 (which disturb others), are limited.

    Parameters
    ----------
    gamma : float
        Discount factor in (0, 1).
    limit : two floats or None
        Limits on the discounted power and loud slots. None: halfway (`fastcmdp.envs.limits`).

    Raises
    ------
    SettingError
        A setting is out of range.

    Examples
    --------
    >>> from fastcmdp.envs import wireless
    >>> wireless().n_states, wireless().n_choices
    (64, 280)
    """
    room, gains, arrivals = 15, (0.2, 0.5, 1.0, 2.0), (0.4, 0.3, 0.2, 0.1)
    fading = ((0.7, 0.3, 0.0, 0.0), (0.2, 0.5, 0.3, 0.0), (0.0, 0.3, 0.5, 0.2), (0.0, 0.0, 0.4, 0.6))

    def step(state: tuple[int, int]) -> Options:
        waiting, channel = state
        options = {}
        for sent in range(min(waiting, 4) + 1):
            after = [
                (p * q, (min(waiting - sent + k, room), g))
                for k, p in enumerate(arrivals)
                for g, q in enumerate(fading[channel])
            ]
            costs = [(2.0**sent - 1.0) / gains[channel], float(sent >= 3)]
            options[sent] = (after, -float(waiting), costs)
        return options

    return from_steps(
        (0, 1), step, gamma=_discount(gamma), limit=limit, names=["minus delay", "power", "loud slots"],
        variables=["waiting", "channel"],
    )  # fmt: skip


def treatment(gamma: float = 0.98, limit: Limit = 2.5) -> CMDP:
    """A treatment: tumour 0..7, toxicity 0..4; wait (0), low dose (1), high dose (2), both drugs (3), week by week.

    The reward is quality-adjusted years of life, at most 1/52 a week; weeks of severe toxicity (3 or more) are limited.
    Both drugs are not given under severe toxicity, none at the worst. Death (-1, -1) is for good.

    Parameters
    ----------
    gamma : float
        Discount factor in (0, 1).
    limit : float or None
        Limit on the discounted weeks of severe toxicity. None: halfway (`fastcmdp.envs.limits`).

    Raises
    ------
    SettingError
        A setting is out of range.

    Examples
    --------
    >>> from fastcmdp.envs import treatment
    >>> treatment().n_states, treatment().n_choices
    (41, 129)
    """
    last, worst, dead = 7, 4, (-1, -1)
    up, down = (0.28, 0.12, 0.06, 0.04), (0.02, 0.20, 0.40, 0.55)
    worse, better = (0.0, 0.25, 0.55, 0.80), (0.5, 0.2, 0.05, 0.0)

    def step(state: tuple[int, int]) -> Options:
        if state == dead:
            return {0: ([(1.0, dead)], 0.0, [0.0])}
        size, toxic = state
        dies = 0.002 + 0.35 * (size == last) + 0.03 * (toxic == worst)
        value = (1.0 - 0.09 * size) * (1.0 - 0.12 * toxic) / 52.0
        options = {}
        for dose in range(1 if toxic == worst else 3 if toxic >= 3 else 4):
            grow = up[dose] + 0.02 * size if size else 0.05 * (dose == 0)
            shrink = down[dose] if size else 0.0
            sizes = ((min(size + 1, last), grow), (max(size - 1, 0), shrink), (size, 1.0 - grow - shrink))
            harms = (
                (min(toxic + 1, worst), worse[dose]),
                (max(toxic - 1, 0), better[dose]),
                (toxic, 1.0 - worse[dose] - better[dose]),
            )
            after = [((1.0 - dies) * p * q, (t, x)) for (t, p), (x, q) in itertools.product(sizes, harms)]
            options[dose] = ([*after, (dies, dead)], value, [float(toxic >= 3)])
        return options

    return from_steps(
        {(3, 0): 0.3, (4, 0): 0.4, (5, 0): 0.3}, step, gamma=_discount(gamma), limit=limit,
        names=["QALY", "weeks of severe toxicity"], variables=["tumour", "toxicity"],
    )  # fmt: skip


def two_echelon(gamma: float = 0.95, limit: Limit = (24.0, 3.4)) -> CMDP:
    """Two stocks: a warehouse and a shop of 12 units each, and what is on order; action 4 q + x orders q, ships x.

    The reward is minus the cost: holding 0.5 and 1.5 a unit, orders 4 + 2 q, shipments 3 + x / 2. Demand is Poisson
    with mean 1.5, cut at 5, and lost where the shop is empty. Units sold are at least so many, days with lost sales at
    most; without limits the shop would run dry.

    Parameters
    ----------
    gamma : float
        Discount factor in (0, 1).
    limit : two floats or None
        The least discounted units sold, the most discounted days with lost sales. None: halfway.

    Raises
    ------
    SettingError
        A setting is out of range.

    Examples
    --------
    >>> from fastcmdp.envs import two_echelon
    >>> two_echelon().n_states
    676
    """
    room, most = 12, 3
    demand = poisson(1.5, 5)

    def step(state: tuple[int, int, int]) -> Options:
        stock, shop, coming = state
        options = {}
        for order, ship in itertools.product(range(most + 1), range(min(most, stock, room - shop) + 1)):
            cost = 0.5 * stock + 1.5 * shop + (4 + 2 * order) * (order > 0) + (3 + 0.5 * ship) * (ship > 0)
            there, arrived = shop + ship, min(stock - ship + coming, room)
            after = [(p, (arrived, there - min(d, there), order)) for d, p in enumerate(demand)]
            sold = sum(p * min(d, there) for d, p in enumerate(demand))
            options[(most + 1) * order + ship] = (after, -cost, [sold, sum(demand[there + 1 :])])
        return options

    return from_steps(
        (6, 6, 0), step, gamma=_discount(gamma), limit=limit, sense=[">=", "<="],
        names=["minus cost", "units sold", "days with lost sales"], variables=["warehouse", "shop", "coming"],
    )  # fmt: skip


_ROADS = (
    (1, 2), (0, 3), (0, 4, 5), (1, 5, 6), (2, 7), (2, 3, 7, 8), (3, 8, 9), (4, 5, 10), (5, 6, 10, 11), (6, 11),
    (7, 8, 12), (8, 9, 12, 13), (10, 11, 13), (11, 12),
)  # fmt: skip
_CALLS = (0.05, 0.05, 0.2, 0.2, 0.1, 0.5, 0.2, 0.5, 0.6, 0.1, 0.3, 0.3, 0.2, 0.1)
_PULL = (2, 2, 1, 1, 1, 3, 1, 3, 4, 1, 2, 2, 1, 1)
_STATIONS, _CENTRE, _OUTSKIRTS = (0, 9, 12), (5, 7, 8), (0, 1)


def taxi(gamma: float = 0.98, limit: Limit = (14.0, 0.2, 1.5)) -> CMDP:
    """A driverless taxi in 14 zones with charge 0..11 and a passenger's goal, or none (-1).

    Actions 0..3 drive along the roads of the zone, 4 waits, 5 charges where there is a station. A passenger who comes
    nearer pays 3 a road, and 5 on arrival. Steps in the centre are limited; so are tows, which cost 60 and come where
    the battery is empty; rides to the outskirts are at least so many. It starts charged at the station of zone 12.

    Parameters
    ----------
    gamma : float
        Discount factor in (0, 1).
    limit : three floats or None
        The most discounted steps in the centre and tows, the least discounted rides to the outskirts. None: halfway.

    Raises
    ------
    SettingError
        A setting is out of range.

    Examples
    --------
    >>> from fastcmdp.envs import taxi
    >>> taxi().limits.tolist()
    [14.0, 0.2, 1.5]
    """
    full, home = 11, 12
    hops = _hops()

    def seeking(zone: int, charge: int, chance: float) -> Iterator[tuple[float, tuple[int, int, int]]]:
        pull = sum(_PULL) - _PULL[zone]
        yield 1.0 - chance, (zone, charge, -1)
        for goal in range(len(_ROADS)):
            if goal != zone:
                yield chance * _PULL[goal] / pull, (zone, charge, goal)

    def step(state: tuple[int, int, int]) -> Options:
        zone, charge, goal = state
        ways = [*enumerate(_ROADS[zone]), (4, zone)]
        if zone in _STATIONS and charge < full:
            ways.append((5, zone))
        options: dict[int, tuple[list[tuple[float, tuple[int, int, int]]], float, list[float]]] = {}
        for action, to in ways:
            drives, charges = action < 4, action == 5
            busy = float(zone in _CENTRE)
            if drives and charge == 0:
                options[action] = ([(1.0, (home, full, -1))], -60.0, [busy, 1.0, 0.0])
                continue
            left = min(charge + 3, full) if charges else charge - drives
            fare = -0.6 * drives - 1.0 * charges
            if goal < 0:
                options[action] = (
                    list(seeking(to, left, 0.0 if charges else _CALLS[to])),
                    fare,
                    [busy, 0.0, 0.0],
                )
                continue
            there = to == goal
            fare += 3.0 * (drives and hops[to][goal] < hops[zone][goal]) + 5.0 * there
            after = [(1.0, (to, left, -1 if there else goal))]
            options[action] = (after, fare, [busy, 0.0, float(there and goal in _OUTSKIRTS)])
        return options

    return from_steps(
        (home, full, -1), step, gamma=_discount(gamma), limit=limit, sense=["<=", "<=", ">="],
        names=["fares", "steps in the centre", "tows", "rides to the outskirts"], variables=["zone", "charge", "goal"],
    )  # fmt: skip


def _hops() -> list[list[int]]:
    """The least number of roads between any two zones."""
    n = len(_ROADS)
    far = np.full((n, n), n)
    for zone, roads in enumerate(_ROADS):
        far[zone, zone] = 0
        far[zone, list(roads)] = 1
    for k in range(n):
        far = np.minimum(far, far[:, [k]] + far[[k]])
    table: list[list[int]] = far.tolist()
    return table


def poisson(mean: float, most: int) -> list[float]:
    """P(min(D, most) = d) for d in 0..most, D Poisson.

    Examples
    --------
    >>> [round(p, 3) for p in poisson(1.0, 2)]
    [0.368, 0.368, 0.264]
    """
    chance = [math.exp(-mean) * mean**d / math.factorial(d) for d in range(most)]
    return [*chance, 1.0 - sum(chance)]


def _discount(gamma: float) -> float:
    return real("gamma", gamma, 0.0, 1.0, inside=True)
