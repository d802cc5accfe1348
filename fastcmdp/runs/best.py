"""One stationary policy to deploy: of all that a run has recorded, the best that meets the limits.

Occupancies of stationary policies form a convex set, on which J_r and J_c are linear. So from those that the record
holds - of each replicate's output, last quarter, last policy, and the one that met the limits best - the best mixture
that meets the limits is a linear programme in as many weights, and its stationary policy (probabilities in proportion
to the occupancy) has exactly that value. Where no occupancies are kept, the last iterates are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.exact import evaluate
from fastcmdp.runs.outputs import GUARANTEES
from fastcmdp.runs.record import CLOSEST, NOW, excess
from fastcmdp.worlds import is_simulator

if TYPE_CHECKING:
    from fastcmdp.runs.result import Result

Float = NDArray[np.float64]

ROLLOUTS = 10_000  # of the batch that chooses, and of that which measures what was chosen
_CHOOSING, _MEASURING = 0x5EED, 0x5EEE  # their seeds: streams of no run
_SOLVED = 1e-7  # a linear programme's constraints are held to this
_ROOM = 1e-9  # of the scale of a constraint: limits are met by so much more, so that rounding breaks none


@dataclass(frozen=True)
class BestPolicy:
    """One stationary policy and what it is worth, in the user's units.

    Attributes
    ----------
    policy : float64[C] or None
        Probabilities of the choices; None on simulators.
    theta : float64[d] or None
        Parameters, where the policy is an iterate of the run; None where it is a mixture made stationary.
    replicate : int or None
        Whose iterate it is.
    reward : float
    constraints : float64[m]
    gap : float
        J_r* - reward; NaN without an optimum.
    violation : float64[m]
    feasible : bool
        Whether all limits are met: exactly, or on simulators by the whole intervals.
    reward_interval, constraint_intervals : float64[2], float64[m, 2]
        Intervals from a batch that chose nothing, 95 % for all limits at once; both ends are the value where that
        is exact.
    guarantee : str
    """

    policy: Float | None
    theta: Float | None
    replicate: int | None
    reward: float
    constraints: Float
    gap: float
    violation: Float
    feasible: bool
    reward_interval: Float
    constraint_intervals: Float
    guarantee: str = GUARANTEES["best"]


def best(result: Result) -> BestPolicy:
    """See `Result.best`."""
    if is_simulator(result.run.world.model):
        return _simulated(result)
    if result.trace.exact and result.trace.occupancies.shape[2] and result.trace.done > 1:
        return _exact(result, _mixed(result), None)
    policies, cmdp = result.run.policies(), result.cmdp
    averages = [evaluate(cmdp, policy) for policy in policies]
    r = _first([(f.reward, cmdp.slack(np.append(f.reward, f.constraints))) for f in averages])
    return _exact(result, policies[r], r)


def _first(values: list[tuple[float, Float]]) -> int:
    """The best that meets the limits, from J_r and slacks; else that which misses them least."""
    short = [max(float(-slack.min(initial=0.0)), 0.0) for _, slack in values]
    return min(range(len(values)), key=lambda r: (short[r], -values[r][0]))


def _exact(result: Result, policy: Float, replicate: int | None) -> BestPolicy:
    """A policy with its exact value."""
    value = evaluate(result.cmdp, policy)
    both = np.append(value.reward, value.constraints)
    known = np.nan if result.optimum is None else result.optimum.reward
    return BestPolicy(
        policy=policy,
        theta=None if replicate is None else result.theta[replicate],
        replicate=replicate,
        reward=float(value.reward),
        constraints=np.array(value.constraints),
        gap=float(known - value.reward),
        violation=excess(result.cmdp, both),
        feasible=bool((result.cmdp.slack(both) >= 0.0).all()),
        reward_interval=np.repeat(value.reward, 2),
        constraint_intervals=np.repeat(np.array(value.constraints)[:, None], 2, axis=1),
    )


def _mixed(result: Result) -> Float:
    """The stationary policy of the best feasible mixture of the occupancies at hand."""
    trace, cmdp = result.trace, result.cmdp
    lanes = [trace.occupancies[NOW], trace.occupancies[CLOSEST]]
    lanes += [trace.policy_occupancy(late=late) for late in (False, True)]
    nu = np.concatenate(lanes)
    mass = nu.sum(axis=1)
    nu = nu[mass > 0.0] / mass[mass > 0.0, None]
    weights = _weights(nu @ cmdp.signals)
    mixed = weights @ nu
    total = np.add.reduceat(mixed, cmdp.state_to_choice[:-1])[cmdp.choice_state]
    last = np.array(result.run.policies()[0])
    return np.asarray(np.where(total > 0.0, mixed / np.where(total > 0.0, total, 1.0), last))


def _weights(values: Float) -> Float:
    """Weights of the mixture of points (J_r, J_c >= 0) with the largest J_r; of the least violation if none meets 0."""
    from scipy.optimize import linprog  # here, since it is slow to import

    n, m = len(values), values.shape[1] - 1
    one = np.append(np.ones(n), 0.0)[None]
    free = np.append(np.zeros(n), 1.0)
    short = np.column_stack([-values[:, 1:].T, -np.ones(m)])  # J_c + t >= room, t >= 0
    first = linprog(free, short, np.full(m, -_ROOM), one, [1.0]) if m else None
    least = 0.0 if first is None else first.fun
    # Where no mixture meets the limits, what the solver holds for equal to the least violation.
    bounds: list[Any] = [(0.0, None)] * n + [(0.0, least + _SOLVED if least > 0.0 else 0.0)]
    program = linprog(
        np.append(-values[:, 0], 0.0),
        short if m else None,
        np.full(m, -_ROOM) if m else None,
        one,
        [1.0],
        bounds,
    )
    chosen = first if program.x is None and first is not None else program
    weights = np.maximum(chosen.x[:n], 0.0)
    return np.asarray(weights / weights.sum())


def _simulated(result: Result) -> BestPolicy:
    """The last iterate that one batch of rollouts prefers, measured by another."""
    model, units = result.run.world.model, result.cmdp
    averages = [
        model.evaluate(result.policy_class, theta, rollouts=ROLLOUTS, seed=_CHOOSING)
        for theta in result.theta
    ]
    # By the ends of intervals: a policy whose slack may be none is no choice beside one that has some.
    r = _first([(f.reward, units.slack(_ends(f)).min(axis=0)) for f in averages])
    joint = 1.0 - 0.05 / max(units.n_constraints, 1)  # so that all limits are met with 95 %
    value = model.evaluate(
        result.policy_class, result.theta[r], rollouts=ROLLOUTS, seed=_MEASURING, confidence=joint
    )
    both = np.append(value.reward, value.constraints)
    return BestPolicy(
        policy=None,
        theta=result.theta[r],
        replicate=r,
        reward=value.reward,
        constraints=value.constraints,
        gap=np.nan,
        violation=excess(units, both),
        feasible=bool((units.slack(_ends(value)) >= 0.0).all()),
        reward_interval=value.reward_interval,
        constraint_intervals=value.constraint_intervals,
    )


def _ends(value: Any) -> Float:
    """Both ends of the intervals of a simulated value, float64[2, 1+m]."""
    return np.vstack([value.reward_interval, value.constraint_intervals]).T
