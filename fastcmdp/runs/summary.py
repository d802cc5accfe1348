"""A run in a few lines, for reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastcmdp.runs.outputs import Averages, interval

if TYPE_CHECKING:
    from fastcmdp.runs.result import Result

Float = NDArray[np.float64]


def summary(result: Result) -> str:
    """The run in a few lines, beside the exact optimum."""
    cmdp, best, late = result.cmdp, result.optimum, result.last_quarter
    total, seconds = int(result.samples.sum()), result.trace.seconds
    lines = [
        f"{result.algorithm.name} on {cmdp!r}",
        f"{result.samples.size} replicates {_stands(result)}, {total:.3g} transitions in {seconds:.1f} s"
        + (f", {result.trace.evaluating:.1f} s of evaluations for the trace" if result.trace.exact else ""),
        f"{'':24}{'learned (last quarter)':>24}{'mixture of all':>18}{'optimum':>14}{'limit':>14}",
    ]
    mixture = result.mixture

    def row(name: str, learned: Float, mixed: Float, exact: float | None, limit: str) -> str:
        shown = [f"{interval(x)['mean']:.6g}" if np.isfinite(x).any() else "-" for x in (learned, mixed)]
        known = "-" if exact is None else f"{exact:.6g}"
        return f"{name:24}{shown[0]:>24}{shown[1]:>18}{known:>14}{limit:>14}"

    lines.append(row(cmdp.names[0], late.reward, mixture.reward, None if best is None else best.reward, ""))
    for i, name in enumerate(cmdp.names[1:]):
        known = None if best is None else float(best.constraints[i])
        limit = f"{cmdp.sense[i]} {cmdp.limits[i]:.6g}"
        lines.append(row(name, late.constraints[:, i], mixture.constraints[:, i], known, limit))
    for i, name in enumerate(cmdp.names[1:]):
        known = None if best is None else float(best.duals[i])
        lines.append(row(f"multiplier of {name}", late.duals[:, i], mixture.duals[:, i], known, ""))
    if best is not None:
        lines.append(row("gap", late.gap, mixture.gap, None, ""))
    if cmdp.n_constraints:
        worst = [a.violation.max(axis=1) for a in (late, mixture)]
        lines.append(row("violation", worst[0], worst[1], None, ""))
        lines.append(
            "(means over replicates; violation is the excess of each, so it can exceed that of the mean)"
        )
    lines += _within(result, mixture)
    return "\n".join(lines + result.notes())


def _stands(result: Result) -> str:
    """How far the run is, and up to where its averages go if that is less."""
    if not result.interrupted:
        return "finished" if result.finished else "failed"
    outer, recorded = (
        result.run.state.outer.clip(min=0),
        int(result.trace.outer[max(result.trace.done - 1, 0)]),
    )
    least, most = int(outer.min()), int(outer.max())
    steps = f"{least}" if least == most else f"{least} to {most}"
    till = "" if least == most == recorded else f" (averages up to step {recorded}, the last one recorded)"
    return f"at outer step {steps} of {result.algorithm.outer}{till}"


def _within(result: Result, mixture: Averages) -> list[str]:
    """How far off the figures of the mixture are at most, where not every policy of it is recorded."""
    gap, violation = mixture.within[:, 0], mixture.within[:, 1:].max(axis=1, initial=0.0)
    if not np.nanmax(np.append(gap, 0.0)) > 0.0:
        return []
    known = f"gap within {interval(gap)['mean']:.2g}"
    if result.cmdp.n_constraints:
        known += f", violation within {interval(violation)['mean']:.2g}"
    n = int((result.trace.member[:, : result.trace.done] == 1).sum(axis=1).max())
    estimate = result.own_estimates
    columns = [estimate.reward, *estimate.constraints.T]
    own = ", ".join(
        f"{name} {interval(column)['mean']:.6g}"
        for name, column in zip(result.cmdp.names, columns, strict=True)
        if np.isfinite(column).any()
    )
    return [
        f"(the mixture from {n} of its policies, evaluated exactly: {known}, if J moves one way between them; "
        f"the run's own estimates of all of them: {own}; trace=N evaluates more)"
    ]
