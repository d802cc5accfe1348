"""The record of a run at chosen outer steps, and the one definition of each method's output.

The output of a method is a mixture of its policies: draw one of N uniformly once, then follow it; its value is the
mean of theirs. Which policies those are is the method's (``Algorithm.output``, ``Run.kept``): pi_0..pi_{K-1} (the
policy *before* each outer step), pi_1..pi_K (*after*), or those before the steps that count (CRPO's N_0). They have
*places* 0..N-1 in the output. Let a policy be recorded at places x_1 < .. < x_n, with values v_1..v_n; policies that
are recorded and are no part of the output (pi_K, or pi_0, or one that is not in N_0) are left out. Then

    N J(mixture) ~ sum over places x of v(x),    v linear between x_j and x_{j+1}, constant before x_1 and after x_n,

which is exact where every policy of the output is recorded. Else

    |error| <= sum over j of c_j |v_{j+1} - v_j| / 2  +  c_0 |v_1 - v_first|  +  c_n |v_last - v_n|,

c_j the number of places strictly between x_j and x_{j+1}, v_first and v_last the values at the first and the last
recorded point, if J moves one way from each of these to the next; where it wavers in between this errs on the side of
caution, since all differences add up. A stretch that is cut (averages over the last part of a run) counts in full.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.base import Algorithm, Output
from fastcmdp.exact.evaluation import occupancy_each
from fastcmdp.exact.linear import means

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LAST_QUARTER = 0.25
UNKNOWN = -1  # whether a policy is in the output, before the step that decides it

# What is kept of occupancies: the sum over the output up to the last member that is recorded; at the last point; at
# that member; at the point that met the limits best.
OUTPUT, NOW, MEMBER, CLOSEST = range(4)

_BLANK = {
    "samples": 0,
    "values": np.nan,
    "duals": np.nan,
    "kept": 0,
    "member": UNKNOWN,
    "sums": np.nan,
}  # unwritten


def even_points(n_outer: int, windows: int) -> Int:
    """Outer steps to record: 0, the ends of so many windows of equal length, and 1, 2, 4, .. within the first.

    The early ones are there since methods may jump at their first steps.

    Examples
    --------
    >>> even_points(40, 4).tolist()
    [0, 1, 2, 4, 8, 10, 20, 30, 40]
    """
    windows = min(windows, n_outer)
    outer = np.round(np.linspace(0, n_outer, windows + 1)).astype(np.int64)
    early = 2 ** np.arange(max(int(outer[1]) - 1, 0).bit_length())
    return np.unique(np.concatenate([outer, early]))


def _after(begin: int, end: int, windows: int) -> Int:
    """Outer steps to record after ``begin``: the ends of so many windows."""
    points = np.round(np.linspace(begin, end, min(windows, end - begin) + 1)).astype(np.int64)
    return np.unique(points[1:])


def gap_weights(q: Int, p: Int, low: Int) -> tuple[Float, Float]:
    """Weights of two neighbours at places q < p in the sum over the places in (q, p] from ``low`` on; q = -1: none.

    Examples
    --------
    >>> gap_weights(np.array([3, -1, 3]), np.array([7, 1, 7]), np.array([0, 0, 6]))
    (array([1.5 , 0.  , 0.25]), array([2.5 , 2.  , 1.75]))
    """
    first = np.maximum(q + 1, low)
    count = np.maximum(p + 1 - first, 0)
    right = np.where(q < 0, count, ((first + p) * count / 2 - q * count) / np.maximum(p - q, 1))
    return np.asarray(count - right), np.asarray(right, np.float64)


def least_slack(cmdp: Any, values: Float) -> Float:
    """By how much the tightest limit is met, float64[R, n]; -inf where values are missing."""
    slack = cmdp.slack(values).min(axis=2, initial=np.inf)
    return np.asarray(np.where(np.isfinite(values[:, :, 0]), slack, -np.inf))


def excess(cmdp: Any, values: Float) -> Float:
    """By how much values miss the limits, or 0, from float64[..., 1+m] to float64[..., m]."""
    return np.asarray(np.maximum(-cmdp.slack(values), 0.0) + 0.0)  # no -0.0


@dataclass
class Record:
    """The record of a run at outer steps 0 = outer[0] < ... < outer[n] = K, of which ``done`` are written.

    Attributes
    ----------
    cmdp : CMDP or Simulator
    output : Output
        Which policies make up the output.
    outer : int64[n+1]
    samples : int64[R, n+1]
        Transitions drawn so far, the pilot's included.
    values : float64[R, n+1, 1+m]
        Exact values of the policy at that step, in the user's units; NaN where the model is too large to evaluate,
        or the replicate has failed.
    duals : float64[R, n+1, m]
        Multipliers at that step, in the user's units.
    kept : int64[R, n+1]
        Outer steps so far that count for the output: all, but for methods whose guarantee is about some of them.
    member : int8[R, n+1]
        Whether the policy at that step is in the output: 1 or 0, or -1 as long as that is open.
    sums : float64[R, n+1, 1+2m]
        Sums over the steps that count of the estimates of J_r and J_c and of the multipliers, kernel units.
    occupancies : float64[4, R, C]
        Occupancies as `OUTPUT` .. `CLOSEST` say; C is 0 where none are kept.
    quarters : float64[n, R, C]
        Sums like `OUTPUT`'s over the policies from one point on, for each from which a last quarter may begin: that of
        the last point, or of a later one.
    seconds, evaluating : float
        Time spent in kernels, and in evaluations for this record.
    done : int
    exact : bool
        Whether values are exact.
    """

    cmdp: Any
    output: Output
    outer: Int
    samples: Int
    values: Float
    duals: Float
    kept: Int
    member: NDArray[np.int8]
    sums: Float
    occupancies: Float
    quarters: Float
    seconds: float = 0.0
    evaluating: float = 0.0
    done: int = 0
    exact: bool = True

    @property
    def n_quarters(self) -> int:
        """Points from which a last quarter may begin: the length of ``quarters``."""
        return self.done - self.begin(self.done - 1, LAST_QUARTER) if self.done else 0

    @property
    def reward(self) -> Float:
        """J_r at the points, float64[R, n+1]."""
        return self.values[:, :, 0]

    @property
    def constraints(self) -> Float:
        """The constraint values at the points, float64[R, n+1, m]."""
        return self.values[:, :, 1:]

    @property
    def places(self) -> Int:
        """Place in the output of the policy at each point, if it is a member; int64[R, n+1]."""
        return self.kept - int(self.output.after)

    def begin(self, i: int, last: float) -> int:
        """The recorded point from which on the last part of the outer steps up to point i counts."""
        if last == 1.0:
            return 0
        first = int(np.searchsorted(self.outer[: i + 1], self.outer[i] * (1.0 - last)))
        return max(min(first, i - 1), 0)

    # Writing.

    @property
    def undecided(self) -> bool:
        """Whether one more step must be made to know if the policy at the last point is in the output."""
        return self.output.some and bool((self.member[:, self.done - 1] == UNKNOWN).any())

    def grow(self, outer: int, windows: int) -> None:
        """Go on to so many outer steps, by so many windows after the last point; points not yet reached are dropped."""
        n = self.done
        begin = int(self.outer[n - 1]) if n else 0
        further = even_points(outer, windows) if n == 0 else _after(begin, outer, windows)
        more = len(further)
        self.outer = np.concatenate([self.outer[:n], further])
        for name, blank in _BLANK.items():
            array = getattr(self, name)[:, :n]
            shape = (len(array), more, *array.shape[2:])
            setattr(self, name, np.concatenate([array, np.full(shape, blank, array.dtype)], axis=1))

    def decide(self, run: Any) -> None:
        """Write down whether the policy at the last point is in the output; the run has gone on from there."""
        i = self.done - 1
        if i < 0 or not (self.member[:, i] == UNKNOWN).any():
            return
        member = self.member.copy()
        member[:, i] = run.kept() > self.kept[:, i]
        self.member = member

    def write(self, run: Any) -> None:
        """Write the next point from a run that stands there; an interrupt leaves it unwritten."""
        i, state = self.done, run.state
        lost = state.failed >= 0
        values = np.full((len(state.outer), 1 + self.cmdp.n_constraints), np.nan)
        nu = np.zeros(self.occupancies.shape[1:])
        began = time.perf_counter()
        alive = np.flatnonzero(~lost)
        if self.occupancies.shape[2] and alive.size:
            starts = self.occupancies[NOW, alive] if i else None
            nu[alive] = occupancy_each(self.cmdp, run.policies()[alive], starts=starts)
            for r in alive:
                values[r] = self.cmdp.to_user_values(
                    means(nu[r], self.cmdp.signals) / (1.0 - self.cmdp.gamma)
                )
        self.evaluating += time.perf_counter() - began
        self.decide(run)
        closer = least_slack(self.cmdp, values[:, None])[:, 0] > least_slack(
            self.cmdp, self.values[:, :i]
        ).max(axis=1, initial=-np.inf)
        self.samples[:, i], self.kept[:, i] = state.samples, run.kept()
        self.sums[:, i] = np.where(lost[:, None], np.nan, state.sums)
        self.duals[:, i] = np.where(lost[:, None], np.nan, self.cmdp.to_user_duals(state.dual))
        self.values[:, i] = values
        member, sums, quarters = self.member.copy(), self.occupancies, self.quarters
        if (
            not self.output.after and i > 0
        ):  # what is in the output so far, as in `means`, does not depend on this
            sums, quarters = self._added(i - 1, member, sums, quarters)
        sums = sums.copy()
        sums[NOW], sums[CLOSEST] = nu, np.where(closer[:, None], nu, sums[CLOSEST])
        kept_on = quarters[len(quarters) - (i - self.begin(i, LAST_QUARTER)) :]
        quarters = np.concatenate([kept_on, np.zeros_like(nu)[None]])
        if self.output.after:
            member[:, i] = (self.kept[:, i] > 0) & ~lost
            sums, quarters = self._added(i, member, sums, quarters)
        self.member, self.occupancies, self.quarters, self.done = member, sums, quarters, i + 1

    def _added(
        self, i: int, member: NDArray[np.int8], occupancies: Float, quarters: Float
    ) -> tuple[Float, Float]:
        """The sums with the occupancy of point i, and with what lies between it and the last member."""
        hit = member[:, i] == 1
        place, before = self.places[:, i], self._last_place(i)
        beyond = np.full_like(place, np.iinfo(np.int64).max // 2)
        sums, late = occupancies.copy(), quarters.copy()
        firsts = [self.begin(len(self.outer) - 1, self.output.last), *range(i + 1 - len(late), i + 1)]
        low = np.array([self.kept[:, first] if i >= first else beyond for first in firsts])
        weights = (np.where(hit, part, 0.0)[..., None] for part in gap_weights(before, place, low))
        for lane, left, right in zip([sums[OUTPUT], *late], *weights, strict=True):
            lane += left * sums[MEMBER] + right * sums[NOW]
        sums[MEMBER] = np.where(hit[:, None], sums[NOW], sums[MEMBER])
        return sums, late

    @property
    def _known(self) -> int:
        """Points whose policies are in the output so far, if they are members: not that before the next step."""
        return max(self.done - int(not self.output.after), 0)

    def _last_place(self, i: int) -> Int:
        """Place of the last member before point i, int64[R]; -1 where there is none."""
        return np.asarray(np.where(self.member[:, :i] == 1, self.places[:, :i], -1).max(axis=1, initial=-1))

    # Reading.

    @property
    def empty(self) -> NDArray[np.bool_]:
        """Replicates of which no policy at the points is in the output, bool[R]."""
        written = self.member[:, : self._known]
        alive = np.isfinite(self.sums[:, max(self.done - 1, 0), 0])
        return np.asarray((self.done > 1) & alive & ~(written == 1).any(axis=1))

    @property
    def last_alone(self) -> bool:
        """Whether the output is the last policy alone."""
        return self.output.last == 0.0

    @property
    def filtered(self) -> bool:
        """Whether only some outer steps count for the output."""
        return self.output.some

    def means(self, last: float | None = None) -> tuple[Float, Float]:
        """J of the output so far at each point, from exact values, and how far off at most.

        float64[R, done, 1+m] twice. With ``last`` given, over that last part of the outer steps; of the last policy
        with 0. At the first point it is the first policy; while no recorded policy belongs to the output, the one that
        met the limits best.
        """
        last = self.output.last if last is None else last
        n = self.done
        values = self.values[:, :n]
        if last == 0.0:
            return values.copy(), np.zeros_like(values)
        if last == 1.0:
            return self._means(0)
        parts = [self._means(self.begin(i, last), i) for i in range(n)]
        mean, within = (np.stack([part[k][:, -1] for part in parts], axis=1) for k in (0, 1))
        return mean, within

    def mean(self, last: float | None = None) -> tuple[Float, Float]:
        """The same at the last point alone: float64[R, 1+m] twice."""
        last = self.output.last if last is None else last
        i = self.done - 1
        if last == 0.0:
            return self.values[:, i].copy(), np.zeros_like(self.values[:, i])
        mean, within = self._means(self.begin(i, last), i)
        return mean[:, -1], within[:, -1]

    def _means(self, begin: int, end: int | None = None) -> tuple[Float, Float]:
        """Means over the output's policies from point ``begin`` on, at all points up to ``end``."""
        n = self.done if end is None else end + 1
        values, places = self.values[:, :n], self.places
        low, none = self.kept[:, begin], np.full(len(values), -1)
        total, within, here = (np.zeros_like(values[:, 0]) for _ in range(3))
        mean, bounds = np.full_like(values, np.nan), np.full_like(values, np.nan)
        place = none
        for i in range(n):
            j = i if self.output.after else i - 1  # what is known to be in the output by then
            hit = (self.member[:, j] == 1) if j >= 0 else none > 0
            if hit.any():
                left, right = gap_weights(place, places[:, j], low)
                total += np.where(hit[:, None], left[:, None] * here + right[:, None] * values[:, j], 0.0)
                between = left + right - (places[:, j] >= low)
                whole = (place >= 0) & (place + 1 >= low)
                bracket = np.where((place < 0)[:, None], values[:, 0], here)
                off = (between * np.where(whole, 0.5, 1.0))[:, None] * np.abs(values[:, j] - bracket)
                within += np.where(hit[:, None], off, 0.0)
                here = np.where(hit[:, None], values[:, j], here)
                place = np.where(hit, places[:, j], place)
            size = self.kept[:, i] - low
            rest = np.maximum(self.kept[:, i] - np.maximum(place + 1, low), 0)[:, None]
            known = ((size > 0) & (place >= 0))[:, None]
            steps = np.maximum(size, 1)[:, None]
            mean[:, i] = np.where(known, (total + rest * here) / steps, np.nan)
            bounds[:, i] = np.where(known, (within + rest * np.abs(values[:, i] - here)) / steps, np.nan)
        slack: Float = least_slack(self.cmdp, values)
        for r, i in np.argwhere(np.isnan(mean[:, :, 0])):
            mean[r, i] = values[r, int(slack[r, : i + 1].argmax())]
            bounds[r, i] = 0.0
        lost = ~np.isfinite(values).all(axis=2)
        mean[lost], bounds[lost] = np.nan, np.nan
        return mean, bounds

    def estimates(self, last: float | None = None) -> Float:
        """Means over the steps that count of the run's own estimates and multipliers so far, at each point.

        float64[R, done, 1+2m] in kernel units; NaN where no step counts. With ``last`` 0, over the last window.
        """
        last = self.output.last if last is None else last
        begins = np.array([self.begin(i, last) for i in range(self.done)], np.int64)
        sums, kept = self.sums[:, : self.done], self.kept[:, : self.done]
        steps = (kept - kept[:, begins])[:, :, None].astype(np.float64)
        steps[steps == 0] = np.nan
        return np.asarray((sums - sums[:, begins]) / steps)

    def policy_occupancy(self, *, late: bool) -> Float:
        """Occupancies of the mixture over the output, or over that of the last quarter, up to a factor; float64[R, C].

        Replicates without a member have that of the policy which met the limits best.
        """
        i = self.done - 1
        start = self.begin(i, LAST_QUARTER) if late else self.begin(len(self.outer) - 1, self.output.last)
        place, low = self._last_place(self._known), self.kept[:, min(start, i)]
        rest = np.maximum(self.kept[:, i] - np.maximum(place + 1, low), 0)
        lane = self.quarters[0] if late else self.occupancies[OUTPUT]
        mixed = lane + rest[:, None] * self.occupancies[MEMBER]
        none = (place < 0) | (self.kept[:, i] == low)
        return np.asarray(np.where(none[:, None], self.occupancies[CLOSEST], mixed))


def new_record(
    algorithm: Algorithm, cmdp: Any, outer: Int, replicates: int, *, exact: bool, occupancies: bool = True
) -> Record:
    """An empty record of a method's runs at so many outer steps."""
    n, m = len(outer), cmdp.n_constraints
    size = replicates, cmdp.n_choices if exact and occupancies else 0
    return Record(
        cmdp=cmdp,
        output=algorithm.output,
        outer=outer,
        samples=np.zeros((replicates, n), np.int64),
        values=np.full((replicates, n, 1 + m), np.nan),
        duals=np.full((replicates, n, m), np.nan),
        kept=np.zeros((replicates, n), np.int64),
        member=np.full((replicates, n), UNKNOWN, np.int8),
        sums=np.full((replicates, n, 1 + 2 * m), np.nan),
        occupancies=np.zeros((4, *size)),
        quarters=np.zeros((0, *size)),
        exact=exact,
    )
