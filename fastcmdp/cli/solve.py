"""`fastcmdp solve`: run an algorithm on a model and set its result beside the exact optimum."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from fastcmdp.algorithms import ALGORITHMS, PDANPG
from fastcmdp.algorithms import algorithm as algorithm_by_name
from fastcmdp.cli.common import (
    Beside,
    Constraints,
    Gamma,
    Json,
    Limits,
    Model,
    Naming,
    Quiet,
    Reward,
    Start,
    describe,
    describe_optimum,
    faults,
    note,
    print_json,
    read_model,
)
from fastcmdp.cli.progress import Callback, reporting
from fastcmdp.cmdp import CMDP
from fastcmdp.envs.checks import unknown
from fastcmdp.envs.spec import parse_value
from fastcmdp.errors import SettingError
from fastcmdp.policies import Policy, TabularSoftmax
from fastcmdp.results import Result
from fastcmdp.solve import load_run
from fastcmdp.solve import resume as go_on
from fastcmdp.solve import solve as run

DEFAULT = PDANPG()
REPLICATES = 4
POLICIES: dict[str, type[TabularSoftmax]] = {"tabular": TabularSoftmax}
PLOTS = (".png", ".svg", ".pdf")


def solve(
    model: Model,
    algorithm: Annotated[
        str | None,
        typer.Option(help=f"One of {', '.join(ALGORITHMS)}. Default: {DEFAULT.name}.", metavar="NAME"),
    ] = None,
    outer: Annotated[
        int | None,
        typer.Option(help=f"Outer steps. Default: the algorithm's, here {DEFAULT.outer}.", metavar="K"),
    ] = None,
    inner: Annotated[
        int | None,
        typer.Option(help=f"Inner steps. Default: the algorithm's, here {DEFAULT.inner}.", metavar="H"),
    ] = None,
    replicates: Annotated[
        int | None, typer.Option(help=f"Independent runs. Default: {REPLICATES}.", metavar="R")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the random streams. Default: 0.", metavar="N")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Default: the processors at hand.", metavar="T")] = None,
    limit: Limits = None,
    gamma: Gamma = None,
    reward: Reward = None,
    constraint: Constraints = None,
    start: Start = None,
    beside: Beside = None,
    policy: Annotated[str, typer.Option(help=f"One of {', '.join(POLICIES)}.", metavar="NAME")] = "tabular",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting of the algorithm; repeatable.", metavar="NAME=VALUE"),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the run here every 30 s and at the end.", metavar="FILE")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --checkpoint FILE.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the run: .png, .svg or .pdf.", metavar="FILE")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an algorithm on a model; print what it learned beside the exact optimum and the limits.

    Ctrl-C stops the run and prints what there is.
    """
    with faults():
        chosen = _policy(policy)
        changed = _settings(algorithm or DEFAULT.name, outer, inner, settings or ())
        _check_files(checkpoint, resume, plot)
        cmdp = read_model(model, gamma, limit, Naming(reward, constraint, start, beside))
        with reporting(silent=quiet or (json and not sys.stdout.isatty())) as callback:
            if resume:
                assert checkpoint is not None
                given = {"algorithm": algorithm, "replicates": replicates, "seed": seed}
                result = _resumed(cmdp, chosen, checkpoint, changed, given, threads, callback)
            else:
                result = run(
                    cmdp,
                    algorithm_by_name(algorithm or DEFAULT.name)(**changed),
                    policy=chosen,
                    seed=0 if seed is None else seed,
                    replicates=REPLICATES if replicates is None else replicates,
                    threads=threads,
                    progress=callback,
                    checkpoint=checkpoint,
                )
        if not result.finished:
            hint = "" if checkpoint is None else f"; --resume goes on from {checkpoint}"
            note(f"interrupted: this is what there is{hint}")
        if json:
            print_json(_object(model, policy, result))
        else:
            print(result.summary(), flush=True)
        if plot is not None:
            from fastcmdp.plots import plot_run

            plot_run(result, plot, title=f"{result.algorithm.name} on {model}")
            if not quiet:
                note(f"plot in {plot}")
        if not result.finished:
            raise typer.Exit(130)


def _policy(name: str) -> Policy:
    if name not in POLICIES:
        raise SettingError(unknown("policy", name, POLICIES))
    return POLICIES[name]()


def _settings(name: str, outer: int | None, inner: int | None, pairs: Sequence[str]) -> dict[str, Any]:
    """The settings that differ from the algorithm's defaults, checked by making it."""
    made = algorithm_by_name(name)
    valid = [field.name for field in fields(made)]
    changed: dict[str, Any] = {
        key: value for key, value in (("outer", outer), ("inner", inner)) if value is not None
    }
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise SettingError(f"--set {pair!r}: NAME=VALUE is expected, with one of {', '.join(valid)}")
        if key not in valid:
            raise SettingError(unknown(f"setting of {name}", key, valid))
        if key in changed:
            raise SettingError(f"{key} is given twice")
        changed[key] = parse_value(value)
    try:
        made(**changed)
    except (TypeError, ValueError) as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(f"{', '.join(f'{k} = {v!r}' for k, v in changed.items())}: {error}") from error
    return changed


def _check_files(checkpoint: Path | None, resume: bool, plot: Path | None) -> None:
    """Find out before the run, not after it, that a file cannot be read or written."""
    if resume and checkpoint is None:
        raise SettingError("--resume needs --checkpoint FILE, the file of the run to go on with")
    if checkpoint is not None and resume != checkpoint.exists():
        found = "there is no such file; leave out --resume to start a run"
        kept = "the file exists; --resume goes on with it, or remove it to start afresh"
        raise SettingError(f"{checkpoint}: {found if resume else kept}")
    for file in (checkpoint, plot):
        if file is not None and not file.absolute().parent.is_dir():
            raise SettingError(f"{file}: there is no folder {file.absolute().parent}")
    if plot is not None:
        if plot.suffix.lower() not in PLOTS:
            raise SettingError(f"{plot}: a plot is a file {', '.join(PLOTS[:-1])} or {PLOTS[-1]}")
        if importlib.util.find_spec("matplotlib") is None:
            raise SettingError("--plot needs matplotlib: pip install 'fastcmdp[plot]'")


def _resumed(
    cmdp: CMDP,
    policy: Policy,
    checkpoint: Path,
    changed: dict[str, Any],
    given: dict[str, Any],
    threads: int | None,
    callback: Callback,
) -> Result:
    """Go on with a saved run; what the command line says of it must agree with the file."""
    result = load_run(checkpoint, cmdp, policy)
    found = asdict(result.algorithm) | {
        "algorithm": result.algorithm.name,
        "replicates": int(result.samples.size),
        "seed": result.seed,
    }
    for name, value in (given | changed).items():
        if value is not None and found[name] != value:
            raise SettingError(
                f"{name} = {value!r}, but the run in {checkpoint} has {found[name]!r}; leave it out to go on"
            )
    return go_on(result, threads=threads, progress=callback, checkpoint=checkpoint)


def _object(spec: str, policy: str, result: Result) -> dict[str, Any]:
    settings = {"policy": policy, "seed": result.seed, "settings": asdict(result.algorithm)}
    return describe(spec, result.cmdp) | {
        "optimum": describe_optimum(result.optimum),
        "algorithms": [result.to_dict() | settings],
    }
