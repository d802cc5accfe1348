"""`fastcmdp convert`: a model from one file, or from a generator, into another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastcmdp.cli.common import Json, Quiet, note, print_json
from fastcmdp.cli.models import Source, on_model
from fastcmdp.errors import SettingError
from fastcmdp.io import Description, Format, describe, format_of, summary, with_problem, write


@on_model("limit")
def convert(
    source: Source,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="Its ending says the format: .npz .umb .drn .tra .mat", show_default=False
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(help="Of OUT: npz, umb, umb.gz, umb.xz, drn, tra, mat, toolbox (P and R in a .npz)."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a model to a file of another format, with its names, labels and values.

    A .npz keeps the problem too: the reward, the constraints and the discount, if they are given here.
    """
    kind = format_of(out, format)
    if not out.absolute().parent.is_dir():
        raise SettingError(f"{out}: there is no folder {out.absolute().parent}")
    description: Description = (
        source.apply(with_problem, source.description()) if source.is_file else describe(source.cmdp())
    )
    write(description, out, format=kind)
    lost = _losses(description, kind)
    if lost and not quiet:
        note(f"not in {out.name}, to be given when it is used: {' '.join(lost)}")
    contents = summary(description)
    if json:
        print_json({"spec": source.spec, "out": str(out), "format": kind, "file": contents})
    else:
        print(f"{out}: " + ", ".join(f"{contents[key]} {key}" for key in ("states", "choices", "branches")))


def _losses(description: Description, kind: Format) -> list[str]:
    """What of the problem the file does not hold, as the options that give it."""
    problem, lost = description.problem, []
    if kind not in ("npz", "mat", "toolbox") and problem.gamma is not None:
        lost.append("--average" if problem.gamma == "average" else f"--gamma {problem.gamma!r}")
    if kind != "npz" and problem.reward is not None and len(description.rewards) > 1:
        lost.append(f"--reward {problem.reward!r}")
    if kind != "npz":
        lost += [f"--constraint '{c.name} {c.sense} {c.limit!r}'" for c in problem.constraints or ()]
    return lost
