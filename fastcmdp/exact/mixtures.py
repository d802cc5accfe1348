"""Two roads to a programme under constraints, and the checks that any answer has to pass.

In kernel units, over occupancies nu (equation (1) of `fastcmdp.exact`) or over mixtures of policies, an aim is

    the optimum        max nu . r   s.t.  nu . c_i >= floor for each i                               (1)
    the common slack   max t        s.t.  nu . c_i >= rate_i t for each i                            (2)

with rates >= 0, not all zero. With all rates one, (2) is the Slater problem. The multipliers of either weigh
the signals, with (1, lambda) or with (0, mu) where rate . mu = 1: a best response to the weighted signal
bounds how much better any other policy could be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.exact.control import LOOSE, Control, best_response, one_hot
from fastcmdp.exact.evaluation import expected, occupancies, performances
from fastcmdp.exact.linear import EPS, Floats, accuracy

LP_ENTRIES = 4_000  # branches per constraint up to which the full LP is quicker than the decomposition
MOST_POLICIES = 2_000  # in a decomposition
FAR = 0.5  # between weights that sum to 1: their policies have little in common
KEPT = 12  # policies whose state values are kept
NARROW = 1e-7  # width of a bracket of multipliers that is narrow
FEASIBLE = 1e-9  # a constraint missed by less, on the scale of (1-gamma) J, counts as met
TRUST = 1e-8  # largest disagreement, on the scale of (1-gamma) J, between an optimum and its checks


class Aim(NamedTuple):
    """What is maximised: the reward above a floor (1), or with rates the common slack (2)."""

    floor: float = 0.0  # of (1-gamma) J_ci
    rates: Floats | None = None

    def attained(self, raw: Floats) -> float:
        """What a policy of these values attains."""
        if self.rates is None:
            return float(raw[0])
        moved = self.rates > 0
        return float((raw[1:][moved] / self.rates[moved]).min())

    def missed(self, raw: Floats) -> float:
        """By how much it breaks a constraint that does not move with t."""
        fixed = raw[1:] if self.rates is None else raw[1:][self.rates == 0]
        return max(0.0, -float(fixed.min(initial=0.0)))


class Candidate(NamedTuple):
    """An answer that is still to be checked."""

    name: str  # of the method
    nu: Floats  # occupancy of choices, or the shares of a mixture
    weights: Floats  # of the signals in its Lagrangian
    bound: float | None = None  # of that Lagrangian over all policies, if known


class Answer(NamedTuple):
    """A checked answer, in kernel units."""

    policy: Floats
    raw: Floats
    weights: Floats
    gap: float  # proven: nothing attains more than this policy and the gap


class Pool:
    """Deterministic policies met so far, with their values in kernel units."""

    def __init__(self, cmdp: CMDP) -> None:
        self.cmdp = cmdp
        self.control = Control(cmdp)
        self.weights: list[Floats] = []  # that each is a best response to
        self.choices: list[NDArray[np.int32]] = []
        self.values: list[Floats] = []
        self.relative: list[float] = []  # how exact each is
        self.bounds: list[float] = []  # no policy attains more under those weights
        self._state_values: dict[int, Floats] = {}  # of the last few, where the next responses begin

    def respond(self, weights: Floats, relative: float = 0.0) -> int:
        """Add a best policy for the weighted sum of the signals, as exact as ``relative`` says; its number."""
        relative = relative if relative > accuracy(self.cmdp.gamma) else 0.0
        share = weights / np.abs(weights).sum()
        start, near = self._guess(share)
        response = self.control.respond(self.cmdp.signals, weights, start, near=near, relative=relative)
        k = len(self.values)
        self.weights.append(share)
        self.choices.append(response.choices.astype(np.int32))
        self.values.append(expected(self.cmdp, response.values))
        self.relative.append(relative)
        self.bounds.append(response.bound)
        self._state_values[k] = response.values
        if len(self._state_values) > KEPT:
            del self._state_values[min(self._state_values)]
        return k

    def replace(self, k: int) -> None:
        """Put an exact response in the place of one that is loose."""
        self.respond(self.weights[k])
        self.choices[k], self.values[k] = self.choices[-1], self.values[-1]
        self.relative[k], self.bounds[k] = self.relative[-1], self.bounds[-1]

    def _guess(self, share: Floats) -> tuple[Floats | None, bool]:
        """State values of each signal, linear between the policies with the nearest weights; are these near?

        As many policies as there are signals; where their weights lie in a plane of less dimension, the point of
        it that is nearest.
        """
        kept = self._state_values
        apart = {k: float(np.abs(self.weights[k] - share).sum()) for k in kept}
        near = sorted(kept, key=lambda k: apart[k])[: max(2, len(share))]
        if len(near) < 2 or apart[near[0]] > FAR:
            return (kept[near[0]] if near else None), False
        base = self.weights[near[0]]
        spans = np.array([self.weights[k] - base for k in near[1:]]).T
        parts = np.linalg.lstsq(spans, share - base, rcond=1e-2)[0]
        parts *= min(1.0, 2.0 / max(float(np.abs(parts).sum()), 1e-300))  # no further than that
        guess = (1 - parts.sum()) * kept[near[0]]
        for part, k in zip(parts.tolist(), near[1:], strict=True):
            guess += part * kept[k]
        return guess, True

    def policy(self, k: int) -> Floats:
        """Action probabilities of policy k."""
        return one_hot(self.cmdp, self.choices[k])

    def mixed(self, shares: Floats) -> Floats:
        """Occupancy of choices of a mixture."""
        nu: Floats = np.zeros(self.cmdp.n_choices)
        for k in np.flatnonzero(shares > 0).tolist():
            states = occupancies(self.cmdp, self.policy(k)[None], "auto")[0]
            nu[self.choices[k]] += shares[k] * states
        nu /= nu.sum()
        return nu


def common_slack(cmdp: CMDP, pool: Pool, rates: Floats, method: str) -> Answer:
    """A policy with the largest t such that J_ci >= rate_i t for each i, programme (2)."""
    notes: list[str] = []
    aim = Aim(rates=rates)
    return first_checked(cmdp, candidates(cmdp, pool, method, aim, notes), aim, notes)


def candidates(cmdp: CMDP, pool: Pool, method: str, aim: Aim, notes: list[str]) -> Iterator[Candidate]:
    """Solutions by "lp", by "decomposition" or, for "auto", by the one and then the other."""
    if method != "decomposition":
        yield from _occupancy_lp(cmdp, aim, notes)
    if method != "lp":
        yield from _decomposition(cmdp, pool, aim, notes)


def first_checked(cmdp: CMDP, proposed: Iterator[Candidate], aim: Aim, notes: list[str]) -> Answer:
    """The first candidate whose policy delivers what it promised and whose multipliers prove it optimal."""
    unit = 1 - cmdp.gamma
    for name, nu, weights, known in proposed:
        policy = policy_of(cmdp, nu)
        raw = performances(cmdp, policy[None], "auto")[0]
        bound = best_response(cmdp, cmdp.signals @ weights).bound if known is None else known
        gap = max(0.0, bound - aim.attained(raw))
        off = np.abs(unit * raw - nu @ cmdp.signals).max()
        short = unit * aim.missed(raw)
        if off > TRUST:
            notes.append(
                f"{name}: its policy evaluates to {unit * raw}, the programme says {nu @ cmdp.signals}"
            )
        elif short > TRUST:
            notes.append(f"{name}: its policy misses a constraint by {short:.3g}")
        elif unit * gap > TRUST * weights.sum():
            notes.append(f"{name}: its multipliers leave a gap of {unit * gap:.3g}")
        else:
            return Answer(policy, raw, weights, gap)
    raise ModelError(
        "no optimum passed the checks (numbers times 1-gamma, kernel units): "
        + "; ".join(notes)
        + ". Try the other method of optimum(), or check the model for entries of very different size"
    )


def policy_of(cmdp: CMDP, nu: Floats) -> Floats:
    """Action probabilities of an occupancy; uniform in states that it does not visit."""
    first = cmdp.state_to_choice[:-1]
    mass = np.add.reduceat(nu, first)[cmdp.choice_state]
    uniform = 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]
    # A mass that underflows in the division is as good as none.
    visited = mass > np.finfo(np.float64).tiny / EPS
    policy = np.where(visited, nu / np.where(visited, mass, 1.0), uniform)
    return policy / np.add.reduceat(policy, first)[cmdp.choice_state]


def _occupancy_lp(cmdp: CMDP, aim: Aim, notes: list[str]) -> Iterator[Candidate]:
    """The programme over occupancies that sum to 1, so that its numbers are of order one."""
    n_choices, n_states = cmdp.n_choices, cmdp.n_states
    owner = scipy.sparse.csr_array(
        (np.ones(n_choices), (cmdp.choice_state, np.arange(n_choices))), shape=(n_states, n_choices)
    )
    flow = owner - cmdp.gamma * cmdp.transition_matrix().T
    inflow = (1 - cmdp.gamma) * cmdp.start
    for name, x, weights, _ in _programme(cmdp.signals, flow, inflow, aim, notes):
        nu = np.maximum(x, 0.0)
        yield Candidate(f"HiGHS ({name})", nu / nu.sum(), weights)


def _decomposition(cmdp: CMDP, pool: Pool, aim: Aim, notes: list[str]) -> Iterator[Candidate]:
    """The same programme over mixtures of deterministic policies, which are added as they are needed."""
    line = _line_of(cmdp, pool, aim)
    if line is not None:
        yield _search(cmdp, pool, line)
        return
    unit, gap = 1 - cmdp.gamma, LOOSE
    for _ in range(MOST_POLICIES):
        columns = unit * np.array(pool.values)
        one = scipy.sparse.csr_array(np.ones((1, len(columns))))
        solution = next(_programme(columns, one, np.ones(1), aim, notes), None)
        if solution is None:
            return
        _, mix, weights, _ = solution
        # A cut need be no more exact than what there is still to gain; the last ones are exact.
        k = pool.respond(weights, LOOSE * gap if gap > TRUST else 0.0)
        gap = unit * float(pool.values[k] @ weights) - float((columns @ weights).max())
        gap = max(gap / float(weights.sum()), 0.0)
        loose = [n for n in np.flatnonzero(mix > 0).tolist() if pool.relative[n] > 0.0]
        if gap <= TRUST and loose:
            for n in loose:
                pool.replace(n)
        elif gap <= 1e-12:
            yield Candidate("decomposition", pool.mixed(np.append(mix, 0.0)), weights, pool.bounds[k])
            return
    notes.append(f"decomposition: not finished after {MOST_POLICIES} policies")


class Line(NamedTuple):
    """Weights base + x direction, x in [0, top], among which the multipliers are."""

    base: Floats
    direction: Floats
    top: float
    floor: float  # of what the mixture gets of the direction's signal
    left: int  # a policy of the pool, a best response to x = 0, below the floor
    right: int  # one above it, a best response to x = top


def _line_of(cmdp: CMDP, pool: Pool, aim: Aim) -> Line | None:
    """The line of one multiplier, or of two that share a common slack; both ends in the pool; else None.

    The pool begins with a best response to each signal in turn.
    """
    unit = np.eye(1 + cmdp.n_constraints)
    if aim.rates is None and len(unit) == 2:
        return Line(unit[0], unit[1], np.inf, aim.floor / (1 - cmdp.gamma), 0, 1)
    if aim.rates is None or len(unit) != 3 or aim.rates.min() <= 0:
        return None
    first, second = unit[1] / aim.rates[0], unit[2] / aim.rates[1]
    return Line(second, first - second, 1.0, 0.0, 2, 1)


def _search(cmdp: CMDP, pool: Pool, line: Line) -> Candidate:
    """Minimise the dual function on a line.

    The slope of the dual function at x is what a best response at x gets of the direction's signal. Two policies
    with slopes on either side of the floor bracket the minimum. Their two planes meet at the chord; if no policy
    is above them there, that is the minimum. Between chords, the root of the slope is sought by a secant step and a
    secant step of double length, which makes the bracket small from both sides (Alefeld, Potra and Shi, ACM Trans.
    Math. Software 21, 1995): for large models the dual function is all but smooth. Far from the minimum responses
    need only be as exact as tells their side; the last two and the chord between them are exact.
    """
    unit = 1 - cmdp.gamma
    ends, at, exact = [line.left, line.right], [0.0, line.top], False
    for count in range(MOST_POLICIES):
        value = np.array([pool.values[k] @ line.base for k in ends])
        slope = np.array([pool.values[k] @ line.direction - line.floor for k in ends])
        if slope[0] >= 0 or (slope[1] <= 0 and np.isfinite(at[1])):  # one end alone attains the minimum
            side = int(slope[0] < 0)
            return _mixed(pool, line, {ends[side]: 1.0}, at[side])
        chord = min(max((value[0] - value[1]) / (slope[1] - slope[0]), at[0]), at[1])
        x = _next(count, chord, at, slope)
        weights = line.base + x * line.direction
        least = unit * float(np.abs(slope).min())
        k = pool.respond(weights, 0.0 if exact else LOOSE * least)
        while 0.0 < unit * abs(pool.values[k] @ line.direction - line.floor) <= 4 * pool.relative[k]:
            k = pool.respond(weights, pool.relative[k] / 16)  # on which side is it?
        gain = unit * float(pool.values[k] @ weights - (value + x * (slope + line.floor)).max())
        narrow = at[1] - at[0] <= NARROW * (1 + x)
        if x == chord and gain <= min(TRUST / 100, np.inf if narrow else NARROW * (1 + x) * least):
            if exact:
                shares = (slope[::-1] * (1, -1) / (slope[1] - slope[0])).tolist()
                return _mixed(pool, line, dict(zip(ends, shares, strict=True)), x)
            points, ends, at = at, [line.left, line.right], [0.0, line.top]
            for point in points:  # once more, exactly: it may turn out to be on the other side
                if 0.0 < point < line.top:
                    k = pool.respond(line.base + point * line.direction)
                    side = int(pool.values[k] @ line.direction >= line.floor)
                    if side == 0 or point < at[1]:
                        ends[side], at[side] = k, point
            exact = True
        else:
            side = int(pool.values[k] @ line.direction >= line.floor)
            ends[side], at[side] = k, x
    raise ModelError(f"the search for a multiplier has not ended after {MOST_POLICIES} policies")


def _mixed(pool: Pool, line: Line, shares: dict[int, float], x: float) -> Candidate:
    """The mixture, with weights at x; the last response bounds what they allow."""
    weights = line.base + x * line.direction
    k = len(pool.values) - 1
    if not np.array_equal(pool.weights[k], weights / np.abs(weights).sum()) or pool.relative[k] > 0.0:
        k = pool.respond(weights)
    mix = np.zeros(len(pool.values))
    mix[list(shares)] = list(shares.values())
    return Candidate("line search", pool.mixed(mix), weights, pool.bounds[k])


def _next(count: int, chord: float, at: list[float], slope: Floats) -> float:
    """The next point: chord, secant step, secant step of double length, in turn."""
    if count % 3 == 0 or not np.isfinite(at[1]) or at[1] - at[0] <= NARROW * (1 + chord):
        return chord
    rate = (slope[1] - slope[0]) / (at[1] - at[0])
    nearer = int(abs(slope[1]) < abs(slope[0]))
    x = at[nearer] - (count % 3) * slope[nearer] / rate
    return float(x) if at[0] < x < at[1] else chord


def _programme(
    signals: Floats, balance: Any, supply: Floats, aim: Aim, notes: list[str]
) -> Iterator[Candidate]:
    """(1) or (2) over x >= 0 with balance x = supply, where x . signals are the values.

    One solution from each of HiGHS's methods, tried in turn: where one ends in numerical difficulties
    (status 4) or calls the problem infeasible or unbounded, which it is not, another often succeeds.
    """
    n, m = signals.shape[0], signals.shape[1] - 1
    slack = aim.rates is not None
    cost = np.append(np.zeros(n), -1.0) if slack else -signals[:, 0]
    at_most = scipy.sparse.csr_array(-signals[:, 1:].T)
    bounds = np.tile([0.0, np.inf], (len(cost), 1))
    if aim.rates is not None:  # one more unknown, t itself, of any sign
        at_most = scipy.sparse.hstack([at_most, aim.rates[:, None]], format="csr")
        balance = scipy.sparse.hstack([balance, scipy.sparse.csr_array((len(supply), 1))], format="csr")
        bounds[-1, 0] = -np.inf
    from scipy.optimize import linprog  # here, since it takes as long to import as all the rest

    tolerances = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    for name in ("highs-ipm", "highs-ds", "highs"):
        result = linprog(
            cost,
            A_ub=at_most,
            b_ub=np.full(m, -aim.floor),
            A_eq=balance,
            b_eq=supply,
            bounds=bounds,
            method=name,
            options=tolerances,
        )
        if result.status != 0:
            notes.append(f"HiGHS ({name}): status {result.status}, {result.message}")
            continue
        # HiGHS minimises, so loosening b_ub changes its objective by marginals <= 0.
        multipliers = np.maximum(-result.ineqlin.marginals, 0.0)
        if aim.rates is not None:
            multipliers = multipliers / (multipliers @ aim.rates)
        yield Candidate(name, result.x[:n], np.append(0.0 if slack else 1.0, multipliers))
