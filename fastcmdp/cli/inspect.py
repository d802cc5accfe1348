"""`fastcmdp inspect`: what a model is, and its exact optimum."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastcmdp.cli.common import Json, describe_optimum, end, print_json
from fastcmdp.cli.models import Source, on_model
from fastcmdp.cli.progress import exact_progress
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import InfeasibleError
from fastcmdp.exact import Optimum, optimum
from fastcmdp.io import Description, summary, text_summary
from fastcmdp.text import table


@on_model()
def inspect(source: Source, json: Json = False) -> None:
    """Sizes, ranges, feasibility, Slater value, exact optimum and multipliers of a model.

    Of a file, without options: what it offers, so that the next command can be written.
    """
    offered: dict[str, Any] = {}
    whole = False  # whether the file says all that `solve` needs
    if (
        source.is_file
        and not source.names.keys() - {"--with"}
        and not source.limit
        and source.discount is None
    ):
        description = source.description()
        offered = {"spec": source.spec, "file": summary(description)}
        if not json:
            offers = "\n".join(f"  {line}" for line in text_summary(description).splitlines())
            print(f"{source.spec}\n{offers}\n")
        if None in (description.problem.gamma, description.problem.reward):
            if json:
                print_json(offered)
            else:
                print(_next(source.spec, description))
            return
        whole = True
        cmdp = source.build(replace(description, notes=()))
    else:
        cmdp = source.cmdp()
    best, why = None, None
    try:
        with exact_progress() as tell:
            best = optimum(cmdp, progress=tell)
    except InfeasibleError as error:
        why = error
    facts = source.describe(cmdp)
    if json:
        answer = {
            "feasible": best is not None,
            "best_attainable": None if why is None else why.best,
            "infeasible": None if why is None else _reasons(cmdp, why),
            "finished": best is None or best.finished,
            "slater": None if best is None else best.slater,
            "optimum": describe_optimum(best),
        }
        print_json(offered | facts | answer)
    else:
        print(text(facts["model"], cmdp, best, why))
        if whole and best is not None:
            print(f"\n  next: fastcmdp solve {shlex.quote(source.spec)}")
    end(best is None or best.finished)


def _next(path: str, description: Description) -> str:
    """A command to go on with, where something is to be said yet."""
    names = [*description.rewards, *(f"label:{label}" for label in description.labels)]
    words = ["fastcmdp", "inspect", path]
    words += ["--reward", names[0]] if len(names) else []
    words += ["--constraint", f"{names[1]} <= NUMBER"] if len(names) > 1 else []
    words += ["--gamma", "0.95"] if description.problem.gamma is None else []
    words += ["--start", "0"] if description.start is None else []
    return f"  next, for instance: {shlex.join(words)}"


def _reasons(cmdp: CMDP, why: InfeasibleError) -> dict[str, Any]:
    """Why no policy meets the limits, for machines."""
    return {
        "conflict": [cmdp.names[1 + i] for i in why.conflict],
        "weights": why.weights,
        "value": why.value,
        "alone": why.alone,
        "together": why.together,
    }


def _told(cmdp: CMDP, why: InfeasibleError) -> list[str]:
    """The same for reading: the conflict, and by how much limits would have to move."""
    lines = [f"  not feasible: {why}", ""]
    names = [cmdp.names[1 + i] for i in why.conflict]
    if len(names) > 1:
        lines.append(f"  a smallest set of limits that conflict: {', '.join(names)}")
    rows: list[Sequence[str]] = [("", "limit", "alone it would have to be", "all together")]
    for i, (alone, together) in enumerate(zip(why.alone, why.together, strict=True)):
        sign = 1.0 if cmdp.sense[i] == "<=" else -1.0
        limit = float(cmdp.limits[i])
        alone_at = f"{limit + sign * alone:.6g}" if math.isfinite(alone) else "no move of it alone suffices"
        row = (cmdp.names[1 + i], f"{cmdp.sense[i]} {limit:.6g}", alone_at, f"{limit + sign * together:.6g}")
        rows.append(row)
    return lines + [f"  {line}" for line in table(rows, left=range(4)).splitlines()]


def text(facts: dict[str, Any], cmdp: CMDP, best: Optimum | None, why: InfeasibleError | None) -> str:
    """The answer for reading; ``why`` says why there is no optimum."""
    counts = np.diff(cmdp.state_to_choice)
    per_state = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
    start = facts["start"]
    where = f"state {start['first']}" if start["states"] == 1 else f"{start['states']} states"
    law = "" if start["states"] == 1 else ", uniform" if start["uniform"] else ", not uniform"
    lines = [
        facts["spec"],
        f"  {'states':14}{cmdp.n_states:,}",
        f"  {'choices':14}{cmdp.n_choices:,} ({per_state} a state)",
        f"  {'branches':14}{cmdp.n_branches:,}",
        f"  {'gamma':14}{cmdp.gamma:.10g}",
        f"  {'start':14}{where}{law}",
        "",
    ]
    head = ("", "per step", "attainable", "limit", "optimum", "multiplier")
    rows: list[Sequence[str]] = [head]
    for i, name in enumerate(cmdp.names):
        low, high = facts["ranges"][i]
        row = [name, f"{low:.6g} to {high:.6g}", "", "", "", ""]
        if i == 0:
            if best is not None:
                least, most = best.reward_range
                row[2] = f"{_clean(least, most):.6g} to {_clean(most, least):.6g}"
                row[4] = f"{best.reward:.8g}"
        else:
            row[3] = f"{cmdp.sense[i - 1]} {cmdp.limits[i - 1]:.6g}"
            if best is not None:
                least, most = best.constraint_range[i - 1]
                row[2] = f"{_clean(least, most):.6g} to {_clean(most, least):.6g}"
                row[4], row[5] = f"{best.constraints[i - 1]:.8g}", f"{best.duals[i - 1]:.6g}"
        rows.append(row)
    lines += [f"  {line}" for line in table(rows, left=range(len(head))).splitlines()]
    lines.append("")
    if why is not None:
        lines += _told(cmdp, why)
    if best is None:
        return "\n".join(lines)
    if not best.finished:
        lines.append(f"  interrupted: the best policy so far, at most {best.gap:.3g} below the optimum")
    if math.isfinite(best.slater):
        lines.append(
            f"  feasible, Slater value {best.slater:.6g} in kernel units (rewards in [0, 1], costs in [-1, 1])"
        )
    else:
        lines.append("  no constraints")
    return "\n".join(lines)


def _clean(value: float, other: float) -> float:
    """Zero for what is only rounding beside the other end of a range."""
    return 0.0 if abs(value) < 1e-12 * abs(other) else value
