"""`fastcmdp frontier`: the best reward for every limit of a constraint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from fastcmdp.cli.common import Json, check_plot, counted, print_json
from fastcmdp.cli.models import Source, on_model
from fastcmdp.cli.progress import exact_progress
from fastcmdp.exact import frontier as run
from fastcmdp.text import number, table

SHOWN = 20  # rows of the table for reading


@on_model()
def frontier(
    source: Source,
    varied: Annotated[
        str | None,
        typer.Option(
            "--of", help="Name of the constraint whose limit varies, where there are several.", metavar="NAME"
        ),
    ] = None,
    points: Annotated[int, counted("Points, at most.", "N")] = 200,
    plot: Annotated[
        Path | None, typer.Option(help="Draw reward against limit: .png, .svg or .pdf.", metavar="FILE")
    ] = None,
    json: Json = False,
) -> None:
    """The best reward for every limit of a constraint, with breakpoints and multipliers, exactly.

    With one constraint the points are the breakpoints of a concave piecewise linear function: best policies that are
    deterministic. With several, the others keep their limits.
    """
    check_plot(plot)
    cmdp = source.cmdp()
    with exact_progress() as tell:
        curve = run(cmdp, varied, points, progress=tell)
    if plot is not None:
        from fastcmdp.plots import plot_frontier  # slow to import

        plot_frontier(curve, plot)
    if json:
        facts = {
            "constraint": curve.name,
            "sense": curve.sense,
            "complete": curve.complete,
            "limits": curve.limits,
            "rewards": curve.rewards,
            "duals": curve.duals,
            "gaps": curve.gaps,
        }
        print_json(source.describe(cmdp) | {"frontier": facts})
        return
    shown = np.unique(np.linspace(0, len(curve.limits) - 1, SHOWN).round().astype(int))
    rows = [(f"{curve.name} {curve.sense}", cmdp.names[0], "multiplier, least", "greatest")]
    for k in shown.tolist():
        least, most = curve.duals[k].tolist()
        rows.append(
            (f"{curve.limits[k]:.8g}", f"{curve.rewards[k]:.8g}", number(least, ".6g"), number(most, ".6g"))
        )
    print(f"{source.spec}\n")
    print("\n".join(f"  {line}" for line in table(rows).splitlines()))
    kind = "all breakpoints" if curve.complete else "some points"
    print(f"\n  {len(curve.limits)} points, {kind}; {len(shown)} shown", end="")
    unsure = curve.gaps[np.isfinite(curve.gaps)]
    print(f", at most {unsure.max():.3g} is above the chords" if unsure.size and not curve.complete else "")
