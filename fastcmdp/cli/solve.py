"""`fastcmdp solve`: run an algorithm on a model and set its result beside the exact optimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from fastcmdp.algorithms import ALGORITHMS, PDANPGCV
from fastcmdp.algorithms import algorithm as algorithm_by_name
from fastcmdp.algorithms.base import Algorithm
from fastcmdp.budget import Budget
from fastcmdp.cli.common import (
    ConstantsFile,
    Json,
    PolicyName,
    Quiet,
    Threads,
    check_output,
    check_plot,
    counted,
    describe_optimum,
    end,
    note,
    print_json,
    silent,
)
from fastcmdp.cli.models import Source, on_model
from fastcmdp.cli.progress import reporting
from fastcmdp.envs.spec import parse_settings
from fastcmdp.errors import SettingError
from fastcmdp.runs import Result, read_run
from fastcmdp.solve import load_run
from fastcmdp.solve import resume as go_on
from fastcmdp.solve import solve as run
from fastcmdp.text import unknown
from fastcmdp.tuned import read_constants

DEFAULT = PDANPGCV()
REPLICATES = 4


@on_model()
def solve(
    source: Source,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(ALGORITHMS)}. Default: {DEFAULT.name}.",
            metavar="NAME",
        ),
    ] = None,
    outer: Annotated[
        int | None, counted(f"Outer steps. Default: the algorithm's, here {DEFAULT.outer}.", "K")
    ] = None,
    inner: Annotated[
        int | None, counted(f"Inner steps. Default: the algorithm's, here {DEFAULT.inner}.", "H")
    ] = None,
    samples: Annotated[
        float | None,
        typer.Option(
            help="Instead of --outer: a schedule whose run draws about so many transitions. --inner stays as given.",
            metavar="N",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            help="Go on until the relative error is below this with 95 % confidence: 0.01 is 1 %. At most --samples, "
            "or 1e9 transitions a replicate.",
            metavar="E",
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Go on for about so long, or until --target.", metavar="T")
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
    replicates: Annotated[int | None, counted(f"Independent runs. Default: {REPLICATES}.", "R")] = None,
    seed: Annotated[int | None, counted("Seed of the random streams. Default: 0.", "N")] = None,
    threads: Threads = None,
    policy: PolicyName = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting of the algorithm; repeatable.", metavar="NAME=VALUE"),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the run here every 30 s and at the end.", metavar="FILE")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the run in --checkpoint FILE; with a larger --samples or --outer, --target or --seconds, "
            "beyond its end.",
        ),
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
    name, build = source.policy(policy)
    wanted = {"algorithm": algorithm, "replicates": replicates, "seed": seed}
    _check_files(checkpoint, resume, plot)
    default = DEFAULT.name
    if resume:
        assert checkpoint is not None
        default = str(read_run(checkpoint)[0].get("algorithm", default))
    kind = algorithm_by_name(algorithm or default)
    planned = {"samples": samples, "epsilon": epsilon}
    scheduled = {key: value for key, value in planned.items() if value is not None}
    if len(scheduled) + (outer is not None) > 1:
        raise SettingError("--outer, --samples and --epsilon exclude one another: each of them sets K")
    budget, further = Budget(samples, seconds, target), scheduled.pop("samples", None) if resume else None
    changed = _settings(kind, {"outer": outer, "inner": inner}, settings or (), bool(scheduled))
    if constants is not None:
        changed = _tuned(kind, constants, bool(scheduled), quiet) | changed
    model: Any = source.model()  # schedules ask for a discount alone
    for key, value in scheduled.items():
        schedule = kind.for_samples if key == "samples" else kind.for_epsilon
        changed = asdict(schedule(model, value, **changed))
    with reporting(silent(quiet, json)) as callback:
        if resume and checkpoint is not None:
            result = load_run(checkpoint, model, build(model))
            longer = changed.pop("outer") if changed.get("outer", 0) > result.algorithm.outer else None
            _check_same(result, checkpoint, wanted | changed, scheduled)
            result = go_on(
                result, outer=longer, samples=further, target=target, seconds=seconds, threads=threads,
                progress=callback, checkpoint=checkpoint,
            )  # fmt: skip
        else:
            if budget.staged and not scheduled and outer is None:
                changed["outer"] = budget.most(kind(**changed), model)
            result = run(
                model, kind(**changed), target=target, seconds=seconds, policy=build(model), seed=seed or 0,
                threads=threads, progress=callback,
                replicates=REPLICATES if replicates is None else replicates, checkpoint=checkpoint,
            )  # fmt: skip
    if result.interrupted:
        hint = "" if checkpoint is None else f"; --resume goes on from {checkpoint}"
        note(f"interrupted: this is what there is{hint}")
    if json:
        entry = result.to_dict() | {"policy": name, "seed": result.seed, "settings": asdict(result.algorithm)}
        facts = source.describe(model) | {"optimum": describe_optimum(result.optimum)}
        print_json(facts | {"algorithms": [entry]})
    else:
        print(result.summary(), flush=True)
    if plot is not None:
        from fastcmdp.plots import plot_run

        plot_run(result, plot, title=f"{result.algorithm.name} on {source.spec}")
        if not quiet:
            note(f"plot in {plot}")
    end(not result.interrupted, failed=bool((result.failed >= 0).all()))


def _tuned(kind: type[Algorithm], file: Path, scheduled: bool, quiet: bool) -> dict[str, Any]:
    """The constants of a file that apply: all to a schedule, else those that are settings of the algorithm."""
    tables = read_constants(file)
    if kind.name not in tables and not quiet:
        note(f"no constants in {file} for {kind.name}: defaults")
    constants: dict[str, Any] = tables.get(kind.name, {})
    if scheduled:
        return constants
    names = kind.setting_names()
    left = [key for key in constants if key not in names]
    if left and not quiet:
        note(f"{', '.join(left)} of {file} belong to a schedule and apply with --samples or --epsilon only")
    return {key: value for key, value in constants.items() if key in names}


def _settings(
    kind: type[Algorithm], options: dict[str, int | None], pairs: Sequence[str], scheduled: bool
) -> dict[str, Any]:
    """The settings that differ from the algorithm's defaults, checked by making it.

    Where a schedule makes the rest, its constants are settings too, and outer is not.
    """
    own = {field.name: field.type for field in fields(kind)}
    valid = [key for key in own if key != "outer" or not scheduled]
    valid += [key for key in kind.constants if key not in own and scheduled]
    changed: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    for key, value in parse_settings(pairs, "--set").items():
        if key not in valid:
            raise SettingError(unknown(f"setting of {kind.name}", key, valid))
        if key in changed:
            raise SettingError(f"{key} is given twice")
        whole = isinstance(value, float) and value.is_integer() and str(own.get(key)).startswith("int")
        changed[key] = int(value) if whole else value  # type: ignore[arg-type]  # 1e5 steps
    try:
        kind(**{key: value for key, value in changed.items() if key in own})
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
        fault = "there is no such file; leave out --resume to start a run"
        kept = "the file exists; --resume goes on with it, or remove it to start afresh"
        raise SettingError(f"{checkpoint}: {fault if resume else kept}")
    check_output(checkpoint)
    check_plot(plot)


def _check_same(
    result: Result, checkpoint: Path, wanted: dict[str, Any], scheduled: dict[str, float]
) -> None:
    """What the command line says of a saved run must agree with the file; ``scheduled`` is what made its steps."""
    own = asdict(result.algorithm) | {
        "algorithm": result.algorithm.name,
        "replicates": int(result.samples.size),
        "seed": result.seed,
    }
    for name, value in wanted.items():
        if value is not None and own[name] != value:
            for key, target in scheduled.items():
                raise SettingError(
                    f"--{key} {target:g} makes {name} = {value!r}, but the run in {checkpoint} was made with "
                    f"{own[name]!r}; leave --{key} out to go on to its end"
                )
            raise SettingError(
                f"{name} = {value!r}, but the run in {checkpoint} has {own[name]!r}; leave it out to go on"
            )
