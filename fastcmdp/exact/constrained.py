"""The best policy that meets the constraints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fastcmdp.cmdp import CMDP, table_of
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.exact.evaluation import Value, occupancy, value_of
from fastcmdp.exact.infeasible import check_feasible
from fastcmdp.exact.linear import Floats, frozen
from fastcmdp.exact.mixtures import Answer, candidates, common_slack, first_checked, method_for
from fastcmdp.exact.pool import Pool, Stage
from fastcmdp.exact.programme import Aim, Candidate

MOST_LP_ENTRIES = 1_000_000  # branches; 83,456 take 16 s, and the time grows faster than they do
MISSED = 1e-6  # a limit missed by more than this part of 1 + |limit|, in the user's units, is no rounding


@dataclass(frozen=True, eq=False, repr=False)
class Optimum:
    """The best policy that meets the constraints, and what surrounds it.

    Attributes
    ----------
    reward : float
        J_r of ``policy`` in the user's units, from its own evaluation.
    constraints : float64[m]
        Constraint values of ``policy`` in the user's units.
    duals : float64[m]
        Multipliers >= 0: reward gained per unit by which a limit is loosened, both in the user's units. Where
        several multipliers are optimal, one of them; `fastcmdp.exact.multiplier_range` has the least and greatest.
    policy : float64[C]
        Action probabilities; randomised in general, uniform in states that it never visits.
    occupancy : float64[C]
        Its occupancy, which sums to 1.
    slater : float
        max over policies of min over i of J_ci, in kernel units: the paper's c_slater. Infinite when m = 0.
    reward_range : float64[2]
        Least and greatest reward over all policies, whether they meet the constraints or not, in the user's
        units.
    constraint_range : float64[m, 2]
        Least and greatest value that each constraint can take over all policies, in the user's units.
    gap : float
        No policy that meets the constraints has a reward above ``reward + gap`` (user's units): a bound from
        minimising the dual function that does not rest on the linear programme.
    raw : float64[1+m]
        Values of ``policy`` in kernel units.
    raw_duals : float64[m]
        Multipliers in kernel units, as algorithms use them.
    finished : bool
        False after Ctrl-C: the best policy so far, and ``gap`` says how far it may be from the best.
    """

    reward: float
    constraints: Floats
    duals: Floats
    policy: Floats
    occupancy: Floats
    slater: float
    reward_range: Floats
    constraint_range: Floats
    gap: float
    raw: Floats
    raw_duals: Floats
    finished: bool = True

    def __repr__(self) -> str:
        return (
            f"Optimum(reward={self.reward:.6g}, constraints={self.constraints}, duals={self.duals}, "
            f"slater={self.slater:.6g}, policy of {self.policy.size} choices)"
        )


def optimum(
    cmdp: CMDP,
    *,
    method: Literal["auto", "lp", "decomposition"] = "auto",
    progress: Callable[[Stage], None] | None = None,
) -> Optimum:
    """Best policy under the constraints, with multipliers, Slater value and attainable ranges.

    Solves max nu . r over occupancies nu >= 0 with sum_{q in s} nu(q) = (1-gamma) start(s) + gamma (P^T
    nu)(s) and nu . c_i >= 0 (Altman, Constrained Markov Decision Processes, 1999, chapter 3), either as it
    stands with HiGHS ("lp") or by minimising its dual function over multipliers ("decomposition"): policy
    iteration finds the best response to multipliers, beginning with what is known from those before, and the
    optimum mixes a few of them (docs/exact.md). Both give the same answer; the second needs little memory beyond
    the model and is faster for all but small models with several constraints. "auto" chooses by size, and takes
    the second where the first fails its checks.

    The answer is checked twice before it is returned: its policy is evaluated afresh, and its multipliers are
    put into the dual function, which bounds how much better any other policy could be (``Optimum.gap``).

    Parameters
    ----------
    cmdp : CMDP
    method : {"auto", "lp", "decomposition"}
    progress : callable, optional
        Called with a `Stage` after each best response: for models that take a while. Ctrl-C once the multipliers
        are being sought returns the best policy so far, marked by ``finished=False`` and with its proven gap.

    Raises
    ------
    InfeasibleError
        When no policy meets the constraints; says why, see there. A limit missed by less than 1e-9 of the
        constraint's largest possible value counts as met; limits that leave less than 1e-6 of room come with a
        `NearlyInfeasibleWarning`.
    ModelError
        When no answer passes the checks.
    SettingError
        When ``method`` is unknown, or "lp" for more than a million branches: said beforehand, not found out.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> stay = np.ones((1, 2, 1))
    >>> cmdp = CMDP.from_arrays(stay, [[0.0, 1.0]], [[0.0, 1.0]], gamma=0.5, limits=[1.5])
    >>> best = optimum(cmdp)
    >>> print(best.reward, best.constraints, best.duals, best.policy)
    1.5 [1.5] [1.] [0.25 0.75]
    """
    cmdp = table_of(cmdp)
    if method not in ("auto", "lp", "decomposition"):
        raise SettingError(f"method is {method!r}; 'auto', 'lp' or 'decomposition' is expected")
    if method == "lp" and cmdp.n_branches > MOST_LP_ENTRIES:
        raise SettingError(
            f"the linear programme of {cmdp.n_states} states and {cmdp.n_branches} branches is too large (at most "
            f"{MOST_LP_ENTRIES} branches): method='decomposition' maximises the Lagrangian by policy iteration "
            "instead, and gives the same optimum with a proven gap"
        )
    return solved(Pool(cmdp, progress), method)


def solved(pool: Pool, method: str = "auto") -> Optimum:
    """The optimum of the pool's model; what the pool knows beforehand is where the search begins."""
    cmdp = pool.cmdp
    if method == "auto":
        method = method_for(cmdp)
    pool.what, pool.gap = "ranges", math.inf
    ranges = _attainable(cmdp, pool)
    pool.what = "Slater value"
    least_violating = _least_violating(cmdp, pool, method)
    check_feasible(cmdp, ranges, least_violating, method)
    slater = math.inf if least_violating is None else float(least_violating.raw[1:].min())
    pool.what, pool.gap = "multipliers", math.inf
    answer = _constrained(cmdp, pool, min(0.0, slater), method)
    value = value_of(cmdp, answer.raw)
    _check_limits(cmdp, value)
    user_ranges = np.sort(cmdp.to_user_values(ranges.T).T, axis=1)
    return Optimum(
        reward=value.reward,
        constraints=value.constraints,
        duals=frozen(cmdp.to_user_duals(answer.weights[1:])),
        policy=frozen(answer.policy),
        occupancy=frozen(occupancy(cmdp, answer.policy) if answer.occupancy is None else answer.occupancy),
        slater=slater,
        reward_range=frozen(user_ranges[0]),
        constraint_range=frozen(user_ranges[1:]),
        gap=float(cmdp.reward_scale * answer.gap),
        raw=value.raw,
        raw_duals=frozen(answer.weights[1:]),
        finished=answer.finished,
    )


def _attainable(cmdp: CMDP, pool: Pool) -> Floats:
    """Least and greatest value of each signal, (1+m, 2), kernel units; the greatest's policies are the pool's first."""
    one = np.ones(1)
    for i, weights in enumerate(np.eye(1 + cmdp.n_constraints)[len(pool.least) :], len(pool.least)):
        pool.least.append(-pool.control.respond(-cmdp.signals[:, i : i + 1], one).attained)
        pool.respond(weights)
        pool.report()
    return np.array([[least, pool.values[i][i]] for i, least in enumerate(pool.least)])


def _least_violating(cmdp: CMDP, pool: Pool, method: str) -> Answer | None:
    """The policy with max over policies of min_i J_ci, kernel units; None without constraints."""
    m = cmdp.n_constraints
    if m == 0:
        return None
    if m > 1:
        return common_slack(cmdp, pool, np.ones(m), method)
    raw = pool.values[1]
    return Answer(pool.policy(1), None, raw, np.array([0.0, 1.0]), pool.bounds[1] - float(raw[1]))


def _constrained(cmdp: CMDP, pool: Pool, floor: float, method: str) -> Answer:
    """The optimum. A floor below 0 is below it by rounding: the programme has a solution all the same."""
    notes: list[str] = []
    aim = Aim(floor=(1 - cmdp.gamma) * floor)
    if np.all(pool.values[0][1:] >= 0):  # the unconstrained optimum will do: m = 0, or no limit is active
        reward_only = np.eye(1 + cmdp.n_constraints)[0]
        proposed: Iterator[Candidate] = iter(
            [Candidate("policy iteration", pool.mixed({0: 1.0}), reward_only, pool.bounds[0])]
        )
    else:
        proposed = candidates(cmdp, pool, method, aim, notes)
    return first_checked(cmdp, proposed, aim, notes)


def _check_limits(cmdp: CMDP, value: Value) -> None:
    """Refuse an optimum that misses a limit in the user's units: an entry so large that it drowns the limit."""
    missed = -cmdp.slack(np.append(value.reward, value.constraints)) - MISSED * (1 + np.abs(cmdp.limits))
    if (missed > 0).any():
        i = int(missed.argmax())
        largest = np.abs(cmdp.costs[:, i]).max()
        raise ModelError(
            f"{cmdp.names[1 + i]} reaches {largest:.6g} in one choice, so that its limit {cmdp.limits[i]:.6g} is lost "
            "in rounding: replace such an entry by a smaller one that is still prohibitive, or take the action away"
        )
