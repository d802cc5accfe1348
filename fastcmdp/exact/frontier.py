"""Reward against limit: the whole trade-off, a concave piecewise linear function, with its breakpoints.

With one constraint, the points (J_c, J_r) of mixtures of policies fill a convex set; its upper right edge is the
frontier, and its corners are deterministic policies, best responses to J_r + lambda J_c. Between two corners, the best
response to the slope of their chord is a corner above it, or proves that the chord is the edge (Cohon, Multiobjective
Programming and Planning, 1978, section 6.3). The chord with the largest possible error is taken next: the tangents at
its ends bound what may lie above it.
"""

from __future__ import annotations

import heapq
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.check import whole
from fastcmdp.cmdp import CMDP, table_of
from fastcmdp.errors import NearlyInfeasibleWarning, SettingError
from fastcmdp.exact.constrained import optimum, solved
from fastcmdp.exact.infeasible import common_slack_of
from fastcmdp.exact.linear import Floats, frozen, means
from fastcmdp.exact.mixtures import method_for, policy_of
from fastcmdp.exact.pool import Pool, Stage
from fastcmdp.exact.sensitivity import range_in
from fastcmdp.kernels.exact.lanes import LANES
from fastcmdp.text import unknown

NEARLY = 0.25  # of the greatest possible error, from which on a chord is taken together with the worst
MOST_POINTS = 10**7
EXACT = 1e-9  # accuracy of a point, relative on the scale of (1-gamma) J


@dataclass(frozen=True, eq=False, repr=False)
class Frontier:
    """The best reward for each limit of one constraint, in the user's units; limits ascend.

    Attributes
    ----------
    name, sense : str
        The constraint whose limit varies.
    limits, rewards : float64[n]
        Points of the frontier. With one constraint in all, they are its breakpoints: values of deterministic
        policies.
    duals : float64[n, 2]
        Multipliers, reward gained per unit by which the limit is loosened: least and greatest at each point, where
        it is not unique. With one constraint the slopes of the chords on either side: the exact ones where ``gaps`` is
        0, else bounds on them. 0 at the loose end; infinite at the tight one, beyond which no policy goes.
    gaps : float64[n-1]
        By how much the frontier may exceed the chord between two points: 0 where that was proven to be the edge.
    complete : bool
        All breakpoints are there: between them the frontier is straight.
    """

    name: str
    sense: str
    limits: Floats
    rewards: Floats
    duals: Floats
    gaps: Floats
    complete: bool
    _cmdp: CMDP = field(repr=False)
    _i: int = 0
    _choices: tuple[NDArray[np.int32], ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        kind = "all" if self.complete else "some"
        return (
            f"Frontier({len(self.limits)} points, {kind} breakpoints, {self.name} {self.sense} "
            f"{self.limits[0]:.6g} to {self.limits[-1]:.6g}, reward {self.rewards.min():.6g} to "
            f"{self.rewards.max():.6g})"
        )

    def reward(self, limit: ArrayLike) -> Floats:
        """The best reward under a limit, on the chords; NaN where no policy meets it.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> cmdp = fc.CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [0, 1], [0, 1], gamma=0.5, limits=1)
        >>> fc.frontier(cmdp).reward([-1, 0.5, 9]).tolist()
        [nan, 0.5, 2.0]
        """
        tight = -math.inf if self.sense == "<=" else math.inf
        asked = np.asarray(limit, dtype=np.float64)
        value = np.interp(asked, self.limits, self.rewards)
        beyond = asked < self.limits[0] if tight < 0 else asked > self.limits[-1]
        return np.where(beyond, np.nan, value)

    def policy(self, limit: float) -> Floats:
        """Action probabilities of a policy on the frontier under a limit, float64[C].

        With one constraint the mixture of the policies of both neighbours, which is the best where their chord
        is exact; else computed anew.

        Raises
        ------
        InfeasibleError
            When no policy meets the limit.
        """
        wanted = self._cmdp.limits.copy()
        wanted[self._i] = limit
        if not self._choices or np.isnan(self.reward(limit)):
            return optimum(self._cmdp.with_limits(wanted)).policy
        right = int(np.clip(np.searchsorted(self.limits, limit), 1, max(len(self.limits) - 1, 1)))
        pool = Pool(self._cmdp)
        pool.choices = list(self._choices)
        if len(self.limits) == 1:
            return policy_of(self._cmdp, pool.mixed({0: 1.0}))
        low, high = self.limits[right - 1], self.limits[right]
        share = float(np.clip((limit - low) / (high - low), 0.0, 1.0))
        return policy_of(self._cmdp, pool.mixed({right - 1: 1.0 - share, right: share}))


def frontier(
    cmdp: CMDP,
    constraint: int | str | None = None,
    points: int = 200,
    *,
    progress: Callable[[Stage], None] | None = None,
) -> Frontier:
    """The best reward for every limit of a constraint.

    With one constraint: all breakpoints, or where there are more than ``points``, those that leave the least to
    be known; each is exact, and so is each chord whose ``gaps`` entry is 0. With several, the others keep their
    limits, and ``points`` limits between the tightest that is feasible and the loosest that matters are solved.

    Parameters
    ----------
    cmdp : CMDP
        Its own limit of that constraint does not matter.
    constraint : int or str, optional
        Number from 0, or name, of the constraint; may be left out where there is one.
    points : int
        At most so many points, at least 2.
    progress : callable, optional
        Called with a `Stage` after each few points.

    Raises
    ------
    SettingError
        When there is no such constraint, or ``points`` is less than 2.
    InfeasibleError
        When no policy meets the limits of the other constraints.

    Examples
    --------
    One state; an action earns 1 and costs 1, another earns 0.7 and costs 0.5:

    >>> import fastcmdp as fc
    >>> cmdp = fc.CMDP([0, 3], [0, 1, 2, 3], [0, 0, 0], [1, 1, 1], [0, 0.7, 1], [0, 0.5, 1], gamma=0.5, limits=1)
    >>> found = fc.frontier(cmdp)
    >>> found.limits.round(9).tolist(), found.rewards.round(9).tolist()
    ([0.0, 1.0, 2.0], [0.0, 1.4, 2.0])
    >>> found.duals.round(9).tolist()
    [[1.4, inf], [0.6, 1.4], [0.0, 0.6]]
    """
    cmdp = table_of(cmdp)
    i = _number(cmdp, constraint)
    points = whole("points", points, 2, MOST_POINTS)
    if cmdp.n_constraints > 1:
        return _path(cmdp, i, points, progress)
    return _corners(cmdp, points, progress)


def _number(cmdp: CMDP, constraint: int | str | None) -> int:
    names = list(cmdp.names[1:])
    if constraint is None and len(names) == 1:
        return 0
    if isinstance(constraint, str) and constraint in names:
        return names.index(constraint)
    if isinstance(constraint, int) and not isinstance(constraint, bool) and 0 <= constraint < len(names):
        return constraint
    if not names:
        raise SettingError("the model has no constraint whose limit could vary; give it a cost and a limit")
    if constraint is None:
        raise SettingError(
            f"the model has {len(names)} constraints: say whose limit is to vary, constraint={names[0]!r} for instance "
            f"(on the command line --of {names[0]!r}); they are {', '.join(names)}"
        )
    raise SettingError(unknown("constraint", constraint, names))


def _corners(cmdp: CMDP, points: int, progress: Callable[[Stage], None] | None) -> Frontier:
    """Corners of the frontier of one constraint, the least known chord first."""
    pool = Pool(cmdp, progress)
    pool.what = "frontier"
    unit = 1 - cmdp.gamma
    ends = [pool.respond(weights, EXACT) for weights in np.eye(2)]
    slope = {ends[0]: 0.0, ends[1]: math.inf}  # of a tangent at each corner: the multiplier it was found with
    after = {ends[0]: ends[1]}  # the next corner on the tighter side
    known: dict[int, float] = {}  # gap of the chord that begins at a corner, once that is final
    if points >= 2 * LANES and pool.control.mixes_fast:
        _spread(pool, slope, after, *ends)
    queue = [(-_height(pool.values, slope, a, b), a) for a, b in after.items()]
    heapq.heapify(queue)
    while queue and len(slope) < points:
        few = points // LANES if pool.control.mixes_fast else 1
        for group in _highest(queue, min(max(few, 1), points - len(slope)), slope):
            chords = {a: _chord(pool.values[a], pool.values[after[a]], unit) for a in group}
            above = {a: np.array([1.0, chord]) for a, chord in chords.items() if chord > 0.0}
            corners = dict(zip(above, pool.respond_all(list(above.values()), EXACT), strict=True))
            for a in group:
                k = corners.get(a)
                rise = 0.0 if k is None else float((pool.values[k] - pool.values[a]) @ above[a])
                if k is None or unit * rise <= 10 * EXACT * above[a].sum():
                    known[a] = 0.0
                    continue
                slope[k], after[a], after[k] = float(above[a][1]), k, after[a]
                for corner in (a, k):
                    heapq.heappush(queue, (-_height(pool.values, slope, corner, after[corner]), corner))
            pool.gap = -queue[0][0] if queue else 0.0
            pool.report()
    for height, a in queue:
        known[a] = -height
    return _assembled(cmdp, pool, _kept(pool, after, known, ends[0]))


def _chord(loose: Floats, tight: Floats, unit: float) -> float:
    """Reward lost for what the constraint gains from one corner to the next.

    0 if no corner lies between: one of the two is another policy of the same value, or worse.
    """
    gained, lost = float(tight[1] - loose[1]), float(loose[0] - tight[0])
    return 0.0 if unit * min(gained, lost) <= EXACT else lost / gained


def _spread(pool: Pool, slope: dict[int, float], after: dict[int, int], loose: int, tight: int) -> None:
    """Corners between both ends, as many as a sweep takes at once, whatever chord they lie on."""
    chord = _chord(pool.values[loose], pool.values[tight], 1 - pool.cmdp.gamma)
    if chord == 0.0:
        return
    slopes = (chord * np.tan(np.linspace(0.0, math.pi / 2, LANES + 1)[1:-1])).tolist()
    a = loose
    for k, x in zip(pool.respond_all([np.array([1.0, x]) for x in slopes], EXACT), slopes, strict=True):
        slope[k], after[a], after[k] = x, k, tight
        a = k


def _highest(queue: list[tuple[float, int]], most: int, slope: dict[int, float]) -> list[list[int]]:
    """Chords to take next, out of the queue: the highest and those not far below it, in groups of neighbours."""
    taken = [heapq.heappop(queue)]
    while queue and len(taken) < most and queue[0][0] <= NEARLY * taken[0][0]:
        taken.append(heapq.heappop(queue))
    order = sorted((a for _, a in taken), key=slope.__getitem__)
    return [order[i : i + LANES] for i in range(0, len(order), LANES)]


def _height(values: list[Floats], slope: dict[int, float], a: int, b: int) -> float:
    """How far above the chord from a to b the tangents at both meet, as a reward."""
    (reward_a, value_a), (reward_b, value_b) = values[a], values[b]
    width = float(value_b - value_a)
    if width <= 0:
        return 0.0
    chord = float(reward_a - reward_b) / width
    below, above = chord - slope[a], slope[b] - chord
    if below <= 0 or above <= 0:
        return 0.0
    return width * (below if math.isinf(above) else below * above / (below + above))


def _kept(pool: Pool, after: dict[int, int], known: dict[int, float], first: int) -> list[tuple[int, float]]:
    """Corners from the loose end to the tight one, with the gaps that follow them; dominated ends are left out."""
    unit = 1 - pool.cmdp.gamma
    order = [first]
    while order[-1] in after:
        order.append(after[order[-1]])
    kept: list[tuple[int, float]] = []
    for k in order:
        while kept and unit * (pool.values[kept[-1][0]][0] - pool.values[k][0]) <= EXACT:
            kept.pop()  # no more reward, for no less
        if kept and unit * (pool.values[k][1] - pool.values[kept[-1][0]][1]) <= EXACT:
            continue
        kept.append((k, known.get(k, 0.0)))
    return kept


def _assembled(cmdp: CMDP, pool: Pool, kept: list[tuple[int, float]]) -> Frontier:
    """In the user's units, limits ascending."""
    numbers = [k for k, _ in kept]
    gaps = np.array([gap for _, gap in kept][:-1]) * cmdp.reward_scale
    user = cmdp.to_user_values(np.array([pool.values[k] for k in numbers]))
    rewards, limits = user[:, 0], user[:, 1]
    chords = np.abs(np.diff(rewards) / np.diff(limits))
    duals = np.column_stack((np.append(0.0, chords), np.append(chords, np.inf)))
    turn = slice(None, None, -1 if cmdp.sense[0] == "<=" else 1)
    return Frontier(
        name=cmdp.names[1],
        sense=cmdp.sense[0],
        limits=frozen(limits[turn]),
        rewards=frozen(rewards[turn]),
        duals=frozen(duals[turn]),
        gaps=frozen(gaps[turn]),
        complete=bool((gaps == 0).all()),
        _cmdp=cmdp,
        _choices=tuple(pool.choices[k] for k in numbers[turn]),
    )


def _path(cmdp: CMDP, i: int, points: int, progress: Callable[[Stage], None] | None) -> Frontier:
    """Optima for limits of one constraint of several, evenly spaced."""
    others = [j for j in range(cmdp.n_constraints) if j != i]
    free = optimum(cmdp.with_constraints(others))
    sign = 1.0 if cmdp.sense[i] == "<=" else -1.0
    loose = float(means(free.occupancy, cmdp.costs[:, i : i + 1])[0] / (1 - cmdp.gamma))
    room = common_slack_of(cmdp, i, method_for(cmdp)) * float(cmdp.constraint_scale[i])
    tight = float(cmdp.anchors[i]) - sign * room * (1 - 1e-9 * np.sign(room))
    low, high = sorted((tight, loose))
    limits = np.linspace(low, high, points)
    rewards, duals = np.empty(points), np.empty((points, 2))
    pool = Pool(cmdp)
    for k, limit in enumerate(limits.tolist()):
        wanted = cmdp.limits.copy()
        wanted[i] = limit
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NearlyInfeasibleWarning)  # the path begins at the edge
            pool = pool.moved(cmdp.with_limits(wanted))  # neighbours have most policies in common
            best = solved(pool)
            rewards[k], duals[k] = best.reward, range_in(pool, best)[i]
        if progress is not None:
            progress(Stage("frontier", k + 1, best.gap))
    return Frontier(
        name=cmdp.names[1 + i],
        sense=cmdp.sense[i],
        limits=frozen(limits),
        rewards=frozen(rewards),
        duals=frozen(duals),
        gaps=frozen(np.full(points - 1, np.nan)),
        complete=False,
        _cmdp=cmdp,
        _i=i,
    )
