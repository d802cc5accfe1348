"""`fastcmdp convert`: a model from one file, or from a generator, into another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastcmdp.cli.common import (
    Beside,
    Constraints,
    Gamma,
    Json,
    Model,
    Naming,
    Quiet,
    Reward,
    Start,
    faults,
    is_file,
    note,
    print_json,
    read_file,
    read_model,
    tell_notes,
)
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.io import Description, Format, describe, format_of, summary, with_problem, write


def convert(
    model: Model,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="Its ending says the format: .npz .umb .drn .tra .mat", show_default=False
        ),
    ],
    reward: Reward = None,
    constraint: Constraints = None,
    gamma: Gamma = None,
    start: Start = None,
    beside: Beside = None,
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
    naming = Naming(reward, constraint, start, beside)
    with faults():
        kind = format_of(out, format)
        if not out.absolute().parent.is_dir():
            raise SettingError(f"{out}: there is no folder {out.absolute().parent}")
        description = _described(model, gamma, naming)
        write(description, out, format=kind)
        _tell_losses(description, kind, out, quiet)
        told = summary(description)
        sizes = ", ".join(f"{told[key]} {key}" for key in ("states", "choices", "branches"))
        if json:
            print_json({"spec": model, "out": str(out), "format": kind, "file": told})
        else:
            print(f"{out}: {sizes}")


def _described(spec: str, gamma: float | None, naming: Naming) -> Description:
    if not is_file(spec):
        return describe(read_model(spec, gamma, None, naming))
    description = read_file(spec, naming)
    tell_notes(spec, description)
    try:
        return with_problem(
            description,
            reward=naming.reward,
            constraints=naming.constraints or None,
            gamma=gamma,
            start=naming.start,
        )
    except ModelError as error:
        raise ModelError(f"{spec}: {error}") from error


def _tell_losses(description: Description, kind: Format, out: Path, quiet: bool) -> None:
    """Say what of the problem the file does not hold."""
    problem = description.problem
    lost = []
    if kind not in ("npz", "mat", "toolbox") and problem.gamma is not None:
        lost.append(f"--gamma {problem.gamma!r}")
    if kind != "npz" and problem.reward is not None and len(description.rewards) > 1:
        lost.append(f"--reward {problem.reward!r}")
    if kind != "npz":
        lost += [f"--constraint '{c.name} {c.sense} {c.limit!r}'" for c in problem.constraints or ()]
    if lost and not quiet:
        note(f"not in {out.name}, to be given when it is used: {' '.join(lost)}")
