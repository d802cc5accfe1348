"""What a reader of a run must not overlook, and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.exact.infeasible import NEARLY
from fastcmdp.policies import TabularSoftmax
from fastcmdp.runs.record import LAST_QUARTER
from fastcmdp.runs.scales import Scales
from fastcmdp.worlds import EXACT_CHOICES

if TYPE_CHECKING:
    from fastcmdp.runs.result import Result

Float = NDArray[np.float64]

MISSED = 0.01  # of the range of J_c: a violation to speak of
MISSED_OF_LIMIT = 0.1
WIDE = 0.1  # of the range of J_r: a gap to speak of
BETTER = 0.95  # of the first policy's error: what is above has learned nothing
UNSEEN = 0.01  # of the range of J_r: a first policy with less hardly ever sees the reward
FAR = 0.5  # of the exact multiplier
CLIMBING = 1.1  # a multiplier's last quarter against the quarter before
SMALL = 0.05  # of what a multiplier must be to outweigh the reward: below, its size does not matter


def notes(result: Result) -> list[str]:
    """Sentences for `Result.notes`."""
    lines = [*_failed(result), *_empty(result)]
    if result.trace.done > 1 and (result.failed < 0).any():
        lines += [*_missed(result), *_multipliers(result), *_learned(result)]
    asked = [result.reached] if result.reached else []
    return [*asked, *result.replanned, *lines, *_unknown(result)]


def _mean(values: Float) -> Float:
    """Over the replicates that are known; NaN for none."""
    known = values[np.isfinite(values).reshape(len(values), -1).all(axis=1)]
    return known.mean(axis=0) if len(known) else np.full(values.shape[1:], np.nan)


def _failed(result: Result) -> Iterator[str]:
    lost = np.flatnonzero(result.failed >= 0)
    if lost.size:
        every = "All replicates" if lost.size == result.samples.size else f"Replicates {lost.tolist()}"
        said = result.run.fault(lost[0]) or "Smaller learning rates help."
        yield f"{every} failed at outer steps {result.failed[lost].tolist()}: numbers ceased to be finite. {said}"


def _empty(result: Result) -> Iterator[str]:
    trace = result.trace
    if trace.done < 2:
        return
    going = result.failed < 0
    kept = trace.kept[:, trace.done - 1]
    none, begin = going & (kept == 0), trace.begin(trace.done - 1, LAST_QUARTER)
    instead = (
        "the policy that met the limits best stands in for {}"
        if trace.exact
        else "they have no output; raise tol or inner, or check that a policy can meet the limits"
    )
    if none.any():
        rows = np.flatnonzero(none).tolist()
        yield f"No outer step met its tolerance in replicates {rows}: {instead.format('their output')}."
    unseen = result.empty & ~none
    if unseen.any():
        yield (
            f"Of the {int(kept[unseen].min())} or more policies in the output of replicates "
            f"{np.flatnonzero(unseen).tolist()} none was recorded: {instead.format('it')}; a larger trace=N records "
            "more."
        )
    late = going & ~none & (kept == trace.kept[:, begin])
    if late.any():
        rows = np.flatnonzero(late).tolist()
        yield (
            f"No outer step of the last quarter met its tolerance in replicates {rows}: "
            f"{instead.format('their last quarter')}."
        )


def _missed(result: Result) -> Iterator[str]:
    cmdp, scales = result.cmdp, Scales.of(result.cmdp, result.optimum)
    mixture, late = _mean(result.mixture.violation), _mean(result.last_quarter.violation)
    missed = False
    for i, name in enumerate(cmdp.names[1:]):
        worst = float(np.nanmax([mixture[i], late[i], 0.0]))
        limit = float(cmdp.limits[i])
        # A range may be wide beside the limit: what misses that by a tenth is told, too.
        if worst <= MISSED * scales.constraints[i] and not worst > MISSED_OF_LIMIT * abs(limit) > 0.0:
            continue
        missed = True
        of_limit = f", {worst / abs(limit):.0%} of the limit" if limit else ""
        yield (
            f"{name} misses its limit {cmdp.sense[i]} {limit:.6g}: by {_said(mixture[i])} in the mixture, by "
            f"{_said(late[i])} in the last quarter; at worst {worst / scales.constraints[i]:.1%} of "
            f"{'its range' if result.optimum else 'the range it could have'}{of_limit}."
        )
    if missed:
        yield from _remedies(result)


def _said(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "?"


def _remedies(result: Result) -> Iterator[str]:
    """What helped where limits were missed: `python bench/misses.py`."""
    name = result.algorithm.name
    if not result.trace.filtered:
        others = [other for other in ("npg-pd-softmax", "crpo-softmax") if other != name]
        if not isinstance(result.policy_class, TabularSoftmax):
            others = ["crpo"]
        yield (
            f"What helped where {name} or others of its kind missed a limit: {' or '.join(others)} at as many samples; "
            "more outer steps (docs/algorithms.md)."
        )
    else:
        yield f"A smaller tol or c_tol holds {name} closer to its limits."


def _multipliers(result: Result) -> Iterator[str]:
    cmdp, trace, best = result.cmdp, result.trace, result.optimum
    if not cmdp.n_constraints or trace.done < 4:
        return
    scales = Scales.of(cmdp, best)
    late = _mean(result.last_quarter.duals)
    before = _quarter_before(result)[1]
    missed = _mean(result.last_quarter.violation) > MISSED * scales.constraints
    small = SMALL * scales.reward / scales.constraints
    # Without room the exact multiplier may be any number from some on, and which one is found says nothing.
    exact = best if best is not None and best.slater * cmdp.unit > NEARLY else None
    for i, name in enumerate(cmdp.names[1:]):
        if not np.isfinite(late[i]):
            continue
        if missed[i] and late[i] > CLIMBING * before[i] + 1e-3 * small[i]:
            reach = "" if best else ", or the limit is out of reach of every policy"
            yield (
                f"The multiplier of {name} still climbs, from {before[i]:.3g} in the third quarter to {late[i]:.3g} in "
                f"the last: more outer steps, or a larger step of the multipliers, let it arrive{reach}."
            )
        elif exact is not None and abs(late[i] - exact.duals[i]) > FAR * exact.duals[i] + small[i]:
            yield (
                f"The multiplier of {name} is {late[i]:.3g} in the last quarter, and {exact.duals[i]:.3g} at the "
                "optimum."
            )


def _quarter_before(result: Result) -> tuple[Float, Float]:
    """Means over replicates of the run's estimates in the third quarter: J, float64[1+m], and multipliers."""
    trace, cmdp, m = result.trace, result.cmdp, result.cmdp.n_constraints
    end = trace.begin(trace.done - 1, LAST_QUARTER)
    first = trace.begin(trace.done - 1, 2 * LAST_QUARTER)
    steps = (trace.kept[:, end] - trace.kept[:, first]).astype(np.float64)[:, None]
    steps[steps == 0] = np.nan
    means = (trace.sums[:, end] - trace.sums[:, first]) / steps
    return _mean(cmdp.to_user_values(means[:, : 1 + m])), _mean(cmdp.to_user_duals(means[:, 1 + m :]))


def _learned(result: Result) -> Iterator[str]:
    """Of a wide gap, or of a policy that is no better than the first."""
    best, cmdp, trace = result.optimum, result.cmdp, result.trace
    if best is None or not trace.exact:
        return
    scales, late = Scales.of(cmdp, best), result.last_quarter
    error, begun = (float(_mean(scales.errors(cmdp, each))) for each in (late, result.first))
    share = float(_mean(late.gap)) / scales.reward
    first = "uniform policy" if result.run.world.policy.initial is None else "policy it began with"
    if error > MISSED and error >= BETTER * begun:
        yield (
            f"The last quarter is no better than the {first}: its error is {error:.1%}, that one's {begun:.1%} (the "
            "larger of gap and violation, relative to what they can range over)."
        )
    elif share > WIDE:
        now = float(_mean(result.averages(LAST_QUARTER, "estimate").reward))
        before = float(_quarter_before(result)[0][0])
        trend = (
            " and still rising: more outer steps help" if now - before > WIDE * share * scales.reward else ""
        )
        yield (
            f"The gap is {share:.0%} of what J_r can range over; J_r is {now:.4g} in the last quarter after "
            f"{before:.4g} in the third{trend}."
        )
    else:
        return
    low, high = best.reward_range
    seen = (float(_mean(result.first.reward)) - low) / max(high - low, 1e-300)
    if seen < UNSEEN and high > low:
        yield (
            f"The reward is hardly ever seen under the {first}, which collects {seen:.2g} of what J_r can range over: "
            "a start distribution nearer to it lets it be learned."
        )
    elif _inner(result) < cmdp.n_states:
        yield (
            f"inner = {_inner(result)} is few for {cmdp.n_states} states: a step needs inner steps of the order of the "
            "number of states to see them all."
        )


def _inner(result: Result) -> Any:
    """Inner steps where there are any that are rollouts."""
    settings = result.algorithm
    return getattr(settings, "inner", np.inf) if settings.simulation == "rollouts" else np.inf


def _unknown(result: Result) -> Iterator[str]:
    n = getattr(result.cmdp, "n_choices", 0)
    if result.optimum is None and n > EXACT_CHOICES:
        yield (
            f"Above {EXACT_CHOICES:,} choices (here {n:,}) the exact optimum is computed unasked where it takes a "
            "fifth of the run at most, and never above a million: no gap, no Slater value for the multipliers' cap, "
            "and averages from the run's own estimates. optimum=True computes it, optimum=... takes one that you have."
        )
