"""Applications of the battery: a dozen problems in their own units, each in two sizes. See battery.py.

Each function takes the numbers that differ between its two problems and returns the arguments of
``fastcmdp.envs.from_steps`` but for the limits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fastcmdp.envs.applications import poisson

Problem = dict[str, Any]


def admission(room: int, arrival: float, gamma: float) -> Problem:
    """A queue with three speeds of service and admission; EUR against customers who wait and kWh."""
    service, kwh, fee, wage = (0.3, 0.55, 0.8), (0.2, 0.9, 3.0), 12.5, 4.0

    def step(n: int) -> dict[int, Any]:
        options = {}
        for admit, speed in itertools.product((0, 1), range(3)):
            if admit and n == room:
                continue
            after = []
            for comes, served in itertools.product((0, 1), (0, 1)):
                p = (arrival if comes else 1 - arrival) * (service[speed] if served else 1 - service[speed])
                after.append((p, min(max(n - (served and n > 0), 0) + comes * admit, room)))
            options[3 * admit + speed] = (after, fee * arrival * admit - wage * speed, [n, kwh[speed]])
        return options

    return {"start": 0, "step": step, "gamma": gamma, "names": ["EUR", "waiting", "kWh"]}


def storage(levels: int, gamma: float) -> Problem:
    """A battery on a market whose price is a chain; EUR against MWh moved and draws at the peak."""
    price = (18.0, 32.0, 55.0, 140.0)
    chain = ((0.85, 0.12, 0.03, 0), (0.15, 0.7, 0.13, 0.02), (0.03, 0.17, 0.7, 0.1), (0, 0.05, 0.35, 0.6))

    def step(state: tuple[int, int]) -> dict[int, Any]:
        level, k = state
        options = {}
        for action, move in enumerate((-3, -1, 0, 1, 3)):
            if 0 <= level + move <= levels:
                money = -price[k] * move * (1.06 if move > 0 else 0.94)
                peak = float(move > 0) * {2: 1.0, 3: 2.0}.get(k, 0.0)
                after = [(chain[k][j], (level + move, j)) for j in range(4)]
                options[action] = (after, money, [abs(move), peak])
        return options

    return {"start": (0, 1), "step": step, "gamma": gamma, "names": ["EUR", "MWh moved", "peak draws"]}


def fishery(top: int, gamma: float) -> Problem:
    """A stock of fish; EUR against years of a low stock, and years with landings at least."""

    def step(stock: int) -> dict[int, Any]:
        options = {}
        for harvest in range(min(stock, 6) + 1):
            left = stock - harvest
            growth = 0.35 * left * (1 - left / top)
            after = []
            for weather, p in ((0.4, 0.2), (1.0, 0.6), (1.6, 0.2)):
                new = min(max(left + growth * weather, 0), top)
                whole, part = int(new), new - int(new)
                after += [(p * (1 - part), whole), (p * part, min(whole + 1, top))]
            money = 1.8e6 * harvest - 2.5e5 * harvest * harvest / max(stock, 1)
            options[harvest] = (after, money, [float(stock < top / 4), float(harvest > 0)])
        return options

    names = ["EUR", "low years", "years with landings"]
    return {"start": top // 2, "step": step, "gamma": gamma, "names": names, "sense": ["<=", ">="]}


def epidemic(groups: int, gamma: float) -> Problem:
    """An epidemic in N groups under three measures; life years against weeks of lockdown and beds short."""
    contact, burden, recovers = (1.8, 0.9, 0.35), (0.0, 0.4, 1.5), 0.35

    def several(n: int, p: float) -> list[float]:
        return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]

    def step(state: tuple[int, int]) -> dict[int, Any]:
        well, ill = state
        if ill == 0:
            return {0: ([(1.0, state)], 0.0, [0.0, 0.0])}
        options = {}
        for measure in range(3):
            falls = several(min(well, 3), 1 - math.exp(-contact[measure] * ill / groups))
            heals = several(min(ill, 3), recovers)
            after = [
                (p * q, (well - new, ill + new - gone))
                for (new, p), (gone, q) in itertools.product(enumerate(falls), enumerate(heals))
            ]
            lockdown = float(measure == 2) + 0.3 * (measure == 1)
            reward = -0.01 * ill - burden[measure] * 0.001
            options[measure] = (after, reward, [lockdown, max(ill - groups // 3, 0)])
        return options

    start = {(groups - 1, 1): 0.5, (groups - 2, 2): 0.5}
    names = ["life years", "lockdown weeks", "beds short"]
    return {"start": start, "step": step, "gamma": gamma, "names": names}


def cloud(room: int, servers: int, gamma: float) -> Problem:
    """Servers on and off under a daily load; USD against jobs lost and switches."""
    load = (0.5, 1.5, 3.0, 2.0)

    def step(state: tuple[int, int, int]) -> dict[int, Any]:
        queue, on, hour = state
        options = {}
        for change in (-1, 0, 1):
            now = on + change
            if not 0 <= now <= servers:
                continue
            after, lost = [], 0.0
            for k, p in enumerate(poisson(load[hour], 6)):
                waits = max(queue - now, 0) + k
                lost += p * max(waits - room, 0)
                after += [
                    (p * q, (min(waits, room), now, h)) for h, q in ((hour, 0.8), ((hour + 1) % 4, 0.2))
                ]
            options[change + 1] = (after, -0.12 * now - 0.004 * queue, [lost, float(change != 0)])
        return options

    names = ["minus USD", "jobs lost", "switches"]
    return {"start": (0, 1, 0), "step": step, "gamma": gamma, "names": names}


def irrigation(gamma: float) -> Problem:
    """A field: moisture, growth, weather; EUR of harvest against litres of water and salt."""
    rains = (((0, 0.85), (2, 0.15)), ((0, 0.5), (2, 0.35), (4, 0.15)))

    def step(state: tuple[int, int, int]) -> dict[int, Any]:
        wet, growth, sky = state
        options = {}
        for water in (0, 1, 2, 4):
            after: list[Any] = []
            for rain, p in rains[sky]:
                soil = min(max(wet + water + rain - 2, 0), 15)
                grows = 0.6 if 5 <= wet <= 11 else 0.25
                for new_sky, q in ((sky, 0.8), (1 - sky, 0.2)):
                    if growth == 7:
                        after.append((p * q, (soil, 0, new_sky)))
                    else:
                        after.append((p * q * grows, (soil, growth + 1, new_sky)))
                        after.append((p * q * (1 - grows), (soil, growth, new_sky)))
            money = (900.0 if growth == 7 else 0.0) - 3.0 * water
            options[water] = (after, money, [water * 1000.0, max(wet + water - 13, 0) * 0.01])
        return options

    return {"start": (8, 0, 0), "step": step, "gamma": gamma, "names": ["EUR", "litres", "salt"]}


def revenue(seats: int, days: int, gamma: float) -> Problem:
    """Seats over a season that repeats; EUR against refused travellers and late cheap sales."""
    fares = (60.0, 130.0, 310.0)

    def step(state: tuple[int, int]) -> dict[int, Any]:
        free, day = state
        early = day / days
        asks = (0.55 * early, 0.35, 0.35 * (1 - early))
        options = {}
        for lowest in range(4):  # the cheapest class on sale; 3: none
            if free == 0 and lowest < 3:
                continue
            sold = sum(asks[lowest:])
            money, refused = (
                sum(p * f for p, f in zip(asks[lowest:], fares[lowest:], strict=True)),
                sum(asks[:lowest]),
            )
            after = [
                (p, (free - k, day - 1) if day > 0 else (seats, days))
                for k, p in ((1, sold), (0, 1 - sold))
                if p
            ]
            options[lowest] = (after, money, [refused, float(lowest == 0 and day < days // 3)])
        return options

    names = ["EUR", "refused", "late cheap sales"]
    return {"start": (seats, days), "step": step, "gamma": gamma, "names": names}


def ward(beds: int, gamma: float) -> Problem:
    """A hospital ward; points of elective care against emergencies turned away and overtime."""

    def step(state: tuple[int, int]) -> dict[int, Any]:
        used, listed = state
        options = {}
        for admitted in range(min(3, listed, beds - used) + 1):
            busy = used + admitted
            n = min(busy, 5)
            after, away = [], 0.0
            for urgent, p in enumerate(poisson(1.0, 3)):
                for gone in range(n + 1):
                    q = math.comb(n, gone) * 0.25**gone * 0.75 ** (n - gone)
                    new = busy - gone + urgent
                    away += p * q * max(new - beds, 0)
                    after += [
                        (p * q * r, (min(new, beds), min(listed - admitted + k, 12)))
                        for k, r in ((0, 0.3), (1, 0.4), (2, 0.3))
                    ]
            options[admitted] = (after, 2.3 * admitted - 0.2 * listed, [away, max(busy - 10, 0) * 8.0])
        return options

    return {"start": (8, 5), "step": step, "gamma": gamma, "names": ["points", "turned away", "overtime h"]}


def machines(n: int, wear: int, gamma: float) -> Problem:
    """n machines and one crew; units made against machines down and USD of repairs."""

    def step(state: tuple[int, ...]) -> dict[int, Any]:
        options = {}
        made = 40.0 * sum(1 - w / (wear + 1) for w in state if w < wear)
        for action in range(n + 1):
            moves = []
            for i, w in enumerate(state):
                if action == i + 1:
                    moves.append([(0.9, 0), (0.1, w)])
                elif w == wear:
                    moves.append([(1.0, w)])
                else:
                    moves.append([(0.7 - 0.05 * w, w), (0.3 + 0.05 * w, w + 1)])
            after = [
                (math.prod(p for p, _ in all_), tuple(w for _, w in all_))
                for all_ in itertools.product(*moves)
            ]
            broken = action > 0 and state[action - 1] == wear
            costs = [float(state.count(wear)), 0.0 if action == 0 else 120.0 if broken else 35.0]
            options[action] = (after, made - 15.0 * (action > 0 and not broken), costs)
        return options

    return {"start": (0,) * n, "step": step, "gamma": gamma, "names": ["units", "down", "USD"]}


def patrol(side: int, gamma: float, fuel: int) -> Problem:
    """A drone on a grid; reports from posts against recoveries with an empty tank and flights over houses."""
    posts = {(0, side - 1): 5.0, (side - 1, side - 1): 9.0, (side - 1, 0): 4.0}
    order = list(posts)

    def step(state: tuple[int, int, int, int]) -> dict[int, Any]:
        i, j, left, last = state
        if left == 0:
            return {0: ([(1.0, (0, 0, fuel, last))], 0.0, [1.0, 0.0])}
        options = {}
        for action, (di, dj) in enumerate(((0, 1), (1, 0), (0, -1), (-1, 0), (0, 0))):
            to = min(max(i + di, 0), side - 1), min(max(j + dj, 0), side - 1)
            refuels = (i, j) == (0, 0) and (di, dj) == (0, 0)
            tank = min(left + 3, fuel) if refuels else left - 1
            fresh = to in posts and order.index(to) != last
            post, pay = (order.index(to), posts[to]) if fresh else (last, 0.0)
            house = float((to[0] + 2 * to[1]) % 5 == 3)
            options[action] = (
                [(0.92, (*to, tank, post)), (0.08, (i, j, tank, last))],
                0.92 * pay,
                [0.0, house],
            )
        return options

    start, names = (0, 0, fuel, -1), ["reports", "recoveries", "flights"]
    return {"start": start, "step": step, "gamma": gamma, "names": names}


def cash(top: int, gamma: float) -> Problem:
    """Cash of a firm; EUR of dividends, with an offset of 1e6, against ruins and credits."""

    def step(money: int) -> dict[int, Any]:
        options = {}
        for action, (dividend, credit) in enumerate(itertools.product((0, 1, 2, 4), (0, 2))):
            left = money - dividend + credit
            if left < 0:
                continue
            gains = ((-3, 0.12), (-1, 0.2), (0, 0.2), (1, 0.25), (2, 0.23))
            after = [(p, min(max(left + gain, 0), top)) for gain, p in gains]
            ruin = sum(p for gain, p in gains if left + gain < 0)
            options[action] = (after, 1e6 + 1e3 * dividend - 420.0 * credit, [ruin, float(credit > 0)])
        return options

    return {"start": top // 2, "step": step, "gamma": gamma, "names": ["EUR", "ruins", "credits"]}


def maze(side: int, gamma: float, seed: int) -> Problem:
    """A maze with a prize far away and mud on the short ways."""
    rng, far = np.random.default_rng(seed), side - 1
    cells = list(itertools.product(range(side), range(side)))
    free = {(0, 0), (far, far), (0, 1), (1, 0), (far - 1, far), (far, far - 1)}
    wall = {cell for cell in cells if rng.random() < 0.22} - free
    mud = {cell for cell in cells if rng.random() < 0.3}

    def step(cell: tuple[int, int]) -> dict[int, Any]:
        if cell == (far, far):
            return {0: ([(1.0, (0, 0))], 100.0, [0.0])}
        options = {}
        for action, (di, dj) in enumerate(((0, 1), (1, 0), (0, -1), (-1, 0))):
            to = cell[0] + di, cell[1] + dj
            if not (0 <= to[0] < side and 0 <= to[1] < side) or to in wall:
                to = cell
            options[action] = ([(0.9, to), (0.1, cell)], 0.0, [float(cell in mud)])
        return options

    return {"start": (0, 0), "step": step, "gamma": gamma, "names": ["prize", "mud"]}


def perishable(life: int, most: int, gamma: float) -> Problem:
    """Fresh goods of several ages; EUR against waste and days with an empty shelf."""
    demand = poisson(2.0, 6)

    def step(stock: tuple[int, ...]) -> dict[int, Any]:
        options = {}
        for order in range(most + 1):
            after, waste, short, sold = [], 0.0, 0.0, 0.0
            for wanted, p in enumerate(demand):
                left, rest = [*stock, order], wanted
                for age, n in enumerate(left):
                    left[age], rest = n - min(n, rest), rest - min(n, rest)
                waste += p * left[0]
                short += p * (rest > 0)
                sold += p * (wanted - rest)
                after.append((p, tuple(left[1:])))
            options[order] = (after, 3.2 * sold - 1.5 * order - 0.8 * (order > 0), [waste, short])
        return options

    return {"start": (0,) * (life - 1), "step": step, "gamma": gamma, "names": ["EUR", "waste", "empty days"]}


def uplink(room: int, gamma: float) -> Problem:
    """Two buffers and one transmitter over a fading channel; backlog against mW and drops of each buffer."""
    fading = ((0.7, 0.3, 0.0), (0.2, 0.6, 0.2), (0.0, 0.3, 0.7))
    rate, power = ((0, 1, 1), (0, 1, 2), (0, 2, 3)), (0.0, 35.0, 150.0)

    def step(state: tuple[int, int, int]) -> dict[int, Any]:
        a, b, channel = state
        options = {}
        for action, (who, level) in enumerate(((0, 0), (0, 1), (0, 2), (1, 1), (1, 2))):
            sent = rate[channel][level]
            left_a, left_b = (max(a - sent, 0), b) if who == 0 else (a, max(b - sent, 0))
            after, drops = [], np.zeros(2)
            for (to_a, p), (to_b, q) in itertools.product(
                ((0, 0.5), (1, 0.3), (2, 0.2)), ((0, 0.7), (2, 0.3))
            ):
                drops += p * q * np.maximum([left_a + to_a - room, left_b + to_b - room], 0)
                full = min(left_a + to_a, room), min(left_b + to_b, room)
                after += [(p * q * fading[channel][g], (*full, g)) for g in range(3)]
            options[action] = (after, -float(a + b), [power[level], *drops])
        return options

    names = ["minus backlog", "mW", "drops a", "drops b"]
    return {"start": (0, 0, 1), "step": step, "gamma": gamma, "names": names}


APPLICATIONS: dict[str, Callable[..., Problem]] = {
    made.__name__: made
    for made in (
        admission, storage, fishery, epidemic, cloud, irrigation, revenue, ward, machines, patrol, cash, maze,
        perishable, uplink,
    )
}  # fmt: skip
