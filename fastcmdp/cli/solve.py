"""`fastcmdp solve`: run an algorithm on a model and set its result beside the exact optimum."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fastcmdp.algorithms import ALGORITHMS, PDANPG
from fastcmdp.algorithms import algorithm as algorithm_by_name
from fastcmdp.cli.common import (
    Beside,
    ConstantsFile,
    Constraints,
    Gamma,
    Json,
    Limits,
    Model,
    Naming,
    PolicyName,
    Quiet,
    Reward,
    Start,
    Threads,
    check_output,
    check_plot,
    describe,
    describe_optimum,
    faults,
    note,
    policy_class,
    print_json,
    read_model,
)
from fastcmdp.cli.progress import Callback, reporting
from fastcmdp.cmdp import CMDP
from fastcmdp.envs.spec import parse_settings
from fastcmdp.errors import SettingError
from fastcmdp.policies import Policy
from fastcmdp.results import Result
from fastcmdp.solve import load_run
from fastcmdp.solve import resume as go_on
from fastcmdp.solve import solve as run
from fastcmdp.text import unknown
from fastcmdp.tuned import read_constants

DEFAULT = PDANPG()
REPLICATES = 4


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
    samples: Annotated[
        float | None,
        typer.Option(
            help="Instead of --outer: a schedule whose run draws about so many transitions. --inner stays as given.",
            metavar="N",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Instead of --outer: a schedule for this gap and violation, with rewards in [0, 1] and constraints in "
            "[-1, 1].",
            metavar="E",
        ),
    ] = None,
    constants: ConstantsFile = None,
    replicates: Annotated[
        int | None, typer.Option(help=f"Independent runs. Default: {REPLICATES}.", metavar="R")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the random streams. Default: 0.", metavar="N")
    ] = None,
    threads: Threads = None,
    limit: Limits = None,
    gamma: Gamma = None,
    reward: Reward = None,
    constraint: Constraints = None,
    start: Start = None,
    beside: Beside = None,
    policy: PolicyName = "tabular",
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
        chosen = policy_class(policy)
        name = algorithm or DEFAULT.name
        scheduled = samples is not None or epsilon is not None
        if scheduled and (outer is not None or (samples is not None and epsilon is not None)):
            raise SettingError("--outer, --samples and --epsilon exclude one another: each of them sets K")
        changed = _settings(name, outer, inner, settings or (), scheduled)
        if constants is not None:
            changed = _tuned(name, constants, scheduled, quiet) | changed
        _check_files(checkpoint, resume, plot)
        cmdp = read_model(model, gamma, limit, Naming(reward, constraint, start, beside))
        if samples is not None:
            changed = asdict(algorithm_by_name(name).for_samples(cmdp, samples, **changed))
        elif epsilon is not None:
            changed = asdict(algorithm_by_name(name).for_epsilon(cmdp, epsilon, **changed))
        with reporting(silent=quiet or (json and not sys.stdout.isatty())) as callback:
            if resume:
                assert checkpoint is not None
                given = {"algorithm": algorithm, "replicates": replicates, "seed": seed}
                result = _resumed(cmdp, chosen, checkpoint, changed, given, threads, callback)
            else:
                result = run(
                    cmdp,
                    algorithm_by_name(name)(**changed),
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


def _tuned(name: str, file: Path, scheduled: bool, quiet: bool) -> dict[str, Any]:
    """The constants of a file that apply: all to a schedule, else those that are settings of the algorithm."""
    tables = read_constants(file)
    if name not in tables and not quiet:
        note(f"no constants in {file} for {name}: defaults")
    found: dict[str, Any] = tables.get(name, {})
    if scheduled:
        return found
    names = algorithm_by_name(name).setting_names()
    left = [key for key in found if key not in names]
    if left and not quiet:
        note(f"{', '.join(left)} of {file} belong to a schedule and apply with --samples or --epsilon only")
    return {key: value for key, value in found.items() if key in names}


def _settings(
    name: str, outer: int | None, inner: int | None, pairs: Sequence[str], scheduled: bool
) -> dict[str, Any]:
    """The settings that differ from the algorithm's defaults, checked by making it.

    Where a schedule makes the rest, its constants are settings too, and outer is not.
    """
    made = algorithm_by_name(name)
    own = made.setting_names()
    valid = [key for key in own if key != "outer" or not scheduled]
    valid += [key for key in made.constants if key not in own and scheduled]
    changed: dict[str, Any] = {
        key: value for key, value in (("outer", outer), ("inner", inner)) if value is not None
    }
    for key, value in parse_settings(pairs, "--set").items():
        if key not in valid:
            raise SettingError(unknown(f"setting of {name}", key, valid))
        if key in changed:
            raise SettingError(f"{key} is given twice")
        changed[key] = value
    try:
        made(**{key: value for key, value in changed.items() if key in own})
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
    check_output(checkpoint)
    check_plot(plot)


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
