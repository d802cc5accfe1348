"""The dual function minimised: on a line where there is one multiplier, else by cutting planes.

The dual function g(w) = max over policies of w . J is the maximum of the planes of single policies. A mixture of
policies whose planes meet at its minimum is the optimum (Dantzig and Wolfe, Operations Research 8, 1960; Kelley, J.
SIAM 8, 1960). Far from the minimum responses need only be as exact as tells where to go on; the last ones are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy  # its parts load at their first use

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.exact.linear import Floats, Integers
from fastcmdp.exact.pool import Pool
from fastcmdp.exact.programme import Aim, Candidate, programme

MOST_POLICIES = 2_000  # in a search
LOOSE = 0.1  # part of what is still to be gained to which a response is exact
NEAR = 1e-3  # part of multipliers by which HiGHS's may be off
NARROW = 1e-7  # width of a bracket of multipliers that is narrow
SMALL = 1e-5  # width from which on responses are exact
STUCK = 5  # steps in a row that leave more than half of the bracket, after which they are exact too
TRUST = 1e-8  # largest disagreement, on the scale of (1-gamma) J, between an optimum and its checks


class Line(NamedTuple):
    """Weights base + x direction, x in [0, top], among which the multipliers are."""

    base: Floats
    direction: Floats
    top: float
    floor: float  # of what the mixture gets of the direction's signal
    left: int  # a policy of the pool, a best response to x = 0, below the floor
    right: int  # one above it, a best response to x = top

    def at(self, x: float) -> Floats:
        """The weights at x."""
        return self.base + x * self.direction

    def place(self, share: Floats) -> float:
        """The x whose weights are these but for a factor; NaN where there is none."""
        (factor, x) = np.linalg.lstsq(np.column_stack((share, -self.direction)), self.base)[0]
        there = factor * share - x * self.direction
        return float(x) if factor > 0 and np.abs(there - self.base).max() <= TRUST else math.nan


def decomposition(cmdp: CMDP, pool: Pool, aim: Aim, notes: list[str]) -> Iterator[Candidate]:
    """The aim over mixtures of deterministic policies, which are added as they are needed.

    Of the optimum, what is known when Ctrl-C comes is a candidate too, marked as not finished.
    """
    line = _line_of(cmdp, aim)
    search: _OnLine | _ByCuts = _ByCuts(pool, aim, notes) if line is None else _OnLine(pool, line)
    try:
        outcome = search.run()
    except KeyboardInterrupt:
        outcome = search.unfinished() if aim.rates is None else None
        if outcome is None:
            raise
    if outcome is not None:
        yield outcome


def _line_of(cmdp: CMDP, aim: Aim) -> Line | None:
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


class _OnLine:
    """Minimise the dual function on a line.

    Its slope at x is what a best response at x gets of the direction's signal. Two policies with slopes on either
    side of the floor bracket the minimum. Their two planes meet at the chord; if no policy is above them there, that
    is the minimum. Between chords, the root of the slope is sought by a secant step and a secant step of double
    length, which makes the bracket small from both sides (Alefeld, Potra and Shi, ACM Trans. Math. Software 21, 1995):
    for large models the dual function is all but smooth.
    """

    def __init__(self, pool: Pool, line: Line) -> None:
        self.pool, self.line = pool, line
        self.ends, self.at = [line.left, line.right], [0.0, line.top]
        self.bound, self.bound_at = np.inf, 0.0  # the least value of the dual function so far, and where
        self.unit = 1 - pool.cmdp.gamma
        for k, share in enumerate(pool.weights):  # those of a neighbouring problem
            if pool.relative[k] == 0.0 and k not in self.ends and 0.0 < (x := line.place(share)) < line.top:
                self._take(k, x)

    def run(self) -> Candidate | None:
        """Search until the chord is the minimum."""
        pool, line, unit = self.pool, self.line, self.unit
        exact, slow, width = False, 0, math.inf
        for count in range(MOST_POLICIES):
            value, slope = self._planes()
            if slope[0] >= 0 or (
                slope[1] <= 0 and np.isfinite(self.at[1])
            ):  # one end alone attains the minimum
                side = int(slope[0] < 0)
                return self._mixed({self.ends[side]: 1.0}, self.at[side])
            chord = min(max((value[0] - value[1]) / (slope[1] - slope[0]), self.at[0]), self.at[1])
            slow, width = slow + 1 if self._width() > 0.5 * width else 0, self._width()
            x = self._next(count, chord, slope, exact, 4.0 ** max(slow - 1, 0))
            if not exact and (width <= SMALL * (1 + chord) or (slow == STUCK and pool.control.mixes_fast)):
                self._begin_again()  # either the bracket is small, or both ends are next to the corner that is sought
                exact = True
                continue
            least = unit * float(np.abs(slope).min())
            k = self._respond(x, 0.0 if exact else LOOSE * least)
            while 0.0 < unit * abs(self._slope(k)) <= 4 * pool.relative[k]:  # which side is it on?
                k = self._respond(x, pool.relative[k] / 16)
            gain = unit * float(pool.values[k] @ line.at(x) - (value + x * (slope + line.floor)).max())
            narrow = width <= NARROW * (1 + x)
            if x == chord and gain <= min(TRUST / 100, np.inf if narrow else NARROW * (1 + x) * least):
                if all(pool.relative[n] == 0.0 for n in (*self.ends, k)):
                    return self._mixed(self._shares(slope), x)
                if not exact:
                    self._begin_again()
                exact = True
            else:
                self._take(k, x)
        raise ModelError(f"the search for a multiplier has not ended after {MOST_POLICIES} policies")

    def unfinished(self) -> Candidate | None:
        """The mixture of the two ends that meets the floor, with what bounds it so far."""
        _, slope = self._planes()
        # An end that is not exact may be this much worse.
        slope -= 2 * np.array([self.pool.relative[k] for k in self.ends]) / self.unit
        shares = self._shares(slope) if slope[1] > 0 > slope[0] else {self.line.right: 1.0}
        weights = self.line.at(self.bound_at)
        return Candidate("line search", self.pool.mixed(shares), weights, self.bound, finished=False)

    def _planes(self) -> tuple[Floats, Floats]:
        """Value at x = 0 and slope, less the floor, of the planes of both ends."""
        values = np.array([self.pool.values[k] for k in self.ends])
        return values @ self.line.base, values @ self.line.direction - self.line.floor

    def _slope(self, k: int) -> float:
        return float(self.pool.values[k] @ self.line.direction - self.line.floor)

    def _respond(self, x: float, relative: float = 0.0) -> int:
        k = self.pool.respond(self.line.at(x), relative)
        bound = self.pool.bounds[k] - x * self.line.floor
        if bound < self.bound:
            self.bound, self.bound_at = bound, x
        value, slope = self._planes()
        if slope[1] > 0 > slope[0]:
            mixed = (slope[1] * value[0] - slope[0] * value[1]) / (slope[1] - slope[0])
            self.pool.gap = max(0.0, float(self.bound - mixed))
        self.pool.report()
        return k

    def _take(self, k: int, x: float) -> None:
        side = int(self._slope(k) >= 0)
        if x >= self.at[0] if side == 0 else x < self.at[1]:
            self.ends[side], self.at[side] = k, x

    def _begin_again(self) -> None:
        """The ends once more, exactly: they may turn out to be on the other side."""
        points = self.at
        self.ends, self.at = [self.line.left, self.line.right], [0.0, self.line.top]
        for x in points:
            if 0.0 < x < self.line.top:
                self._take(self._respond(x), x)

    def _shares(self, slope: Floats) -> dict[int, float]:
        right = float(-slope[0] / (slope[1] - slope[0]))
        return {self.ends[0]: 1.0 - right, self.ends[1]: right}

    def _mixed(self, shares: dict[int, float], x: float) -> Candidate:
        """The mixture, with weights at x; the last response bounds what they allow."""
        pool, weights = self.pool, self.line.at(x)
        k = len(pool.values) - 1
        if not np.array_equal(pool.weights[k], weights / np.abs(weights).sum()) or pool.relative[k] > 0.0:
            k = self._respond(x)
        return Candidate("line search", pool.mixed(shares), weights, pool.bounds[k])

    def _next(self, count: int, chord: float, slope: Floats, exact: bool, longer: float) -> float:
        """The next point: chord, secant step, secant step of double length, in turn.

        The chord is left out where the errors of its ends may move it by as much as a quarter of the bracket, and steps
        are made ``longer`` where the last two left most of the bracket.
        """
        low, high = self.at
        width = high - low
        if not np.isfinite(high) or (exact and width <= NARROW * (1 + chord)):
            return chord
        noise = max(self.pool.relative[k] for k in self.ends) * (1 + abs(chord))
        vague = not exact and self.pool.control.mixes_fast and 4 * noise > self.unit * np.ptp(slope) * width
        if count % 3 == 0 and not vague:
            return chord
        nearer = int(abs(slope[1]) < abs(slope[0]))
        step = slope[nearer] * width / (slope[1] - slope[0]) * (longer if vague else 1.0)
        x = float(self.at[nearer] - max(count % 3, 1) * step)
        return x if low < x < high else 0.5 * (low + high) if vague else chord

    def _width(self) -> float:
        """Of the bracket."""
        return self.at[1] - self.at[0]


class _ByCuts:
    """Minimise the dual function by cutting planes, for any aim."""

    def __init__(self, pool: Pool, aim: Aim, notes: list[str]) -> None:
        self.pool, self.aim, self.notes = pool, aim, notes
        self.best: Candidate | None = None  # mixture so far; nu are its shares
        self.bound: tuple[float, Floats] | None = None

    def run(self) -> Candidate | None:
        """Add cuts until the best mixture so far cannot be improved; None where HiGHS fails."""
        pool, unit = self.pool, 1 - self.pool.cmdp.gamma
        gap = LOOSE
        for _ in range(MOST_POLICIES):
            columns = unit * np.array(pool.values)
            one = scipy.sparse.csr_array(np.ones((1, len(columns))))
            self.best = next(programme(columns, one, np.ones(1), self.aim, self.notes), None)
            if self.best is None:
                return None
            mix = self.best.nu
            weights = _met(columns, np.flatnonzero(mix > 0), self.best.weights, self.aim.rates)
            # A cut need be no more exact than tells later gains, of which there are few; the last ones are exact.
            k = pool.respond(weights, LOOSE**2 * gap if gap > TRUST else 0.0)
            if self.bound is None or pool.bounds[k] < self.bound[0]:
                self.bound = pool.bounds[k], weights
            attained = float((columns @ weights).max())
            pool.gap = max(0.0, self.bound[0] - attained / unit)
            pool.report()
            gap = max((unit * float(pool.values[k] @ weights) - attained) / float(weights.sum()), 0.0)
            used = np.flatnonzero(mix > 0).tolist()
            touching = (
                columns @ weights >= attained - TRUST * weights.sum()
            )  # planes on which the minimum rests
            loose = [n for n in np.flatnonzero(touching).tolist() if pool.relative[n] > 0.0]
            if gap <= TRUST and loose:
                for n in loose:
                    pool.replace(n)
            elif gap <= 1e-12 and pool.relative[k] == 0.0:  # else its bound may lie above: once more, exactly
                return Candidate(
                    "decomposition", pool.mixed({n: mix[n] for n in used}), weights, pool.bounds[k]
                )
        self.notes.append(f"decomposition: not finished after {MOST_POLICIES} policies")
        return None

    def unfinished(self) -> Candidate | None:
        """The best mixture so far, with the least bound."""
        if self.best is None or self.bound is None:
            return None
        shares = {n: self.best.nu[n] for n in np.flatnonzero(self.best.nu > 0).tolist()}
        return Candidate(
            "decomposition", self.pool.mixed(shares), self.bound[1], self.bound[0], finished=False
        )


def _met(columns: Floats, used: Integers, weights: Floats, rates: Floats | None) -> Floats:
    """The weights at which the planes of the policies used meet, near those that HiGHS found.

    Its tolerance of 1e-10 is a good part of the weights where policies differ in few states.
    """
    active = np.flatnonzero(weights[1:] > 0)
    apart = columns[used[1:]] - columns[used[0]]
    system, right = apart[:, 1 + active], -apart[:, 0]
    if rates is not None:
        system, right = np.vstack((system, rates[active])), np.append(0.0 * right, 1.0)
    if len(system) != len(active) or not len(active) or np.linalg.matrix_rank(system) < len(active):
        return weights
    met = np.zeros_like(weights)
    met[0] = weights[0]
    met[1 + active] = np.linalg.solve(system, right)
    return met if (met >= 0).all() and np.abs(met - weights).max() <= NEAR * weights.sum() else weights
