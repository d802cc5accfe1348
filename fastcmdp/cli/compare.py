"""`fastcmdp compare`: several algorithms on one model, at one or several budgets, beside the exact optimum."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fastcmdp.cli.common import (
    Beside,
    ConstantsFile,
    Constraints,
    Gamma,
    Json,
    Limits,
    Methods,
    Model,
    Naming,
    PolicyName,
    Quiet,
    Reward,
    Start,
    Threads,
    check_plot,
    describe,
    describe_optimum,
    faults,
    methods,
    note,
    numbers,
    policy_class,
    print_json,
    read_model,
)
from fastcmdp.cli.progress import reporting
from fastcmdp.compare import Stage
from fastcmdp.compare import compare as run
from fastcmdp.solve import Progress
from fastcmdp.tuned import Constants, constants_for, read_constants, read_meta


def compare(
    model: Model,
    algorithms: Methods = None,
    samples: Annotated[
        list[str] | None,
        typer.Option(
            help="Expected transitions of each run; several, separated by commas, each with its own schedule. "
            "Default: 1e7.",
            metavar="N",
        ),
    ] = None,
    replicates: Annotated[
        int, typer.Option(help="Independent runs of each; 8 or more for sound intervals.", metavar="R")
    ] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the random streams.", metavar="N")] = 0,
    constants: ConstantsFile = None,
    policy: PolicyName = "tabular",
    threads: Threads = None,
    limit: Limits = None,
    gamma: Gamma = None,
    reward: Reward = None,
    constraint: Constraints = None,
    start: Start = None,
    beside: Beside = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw gap and violation against samples: .png, .svg or .pdf.", metavar="FILE"),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run algorithms on a model at the same budgets; print gap and violation with bootstrap intervals.

    Ctrl-C stops the runs and prints what there is.
    """
    with faults():
        chosen = methods(algorithms)
        budgets = numbers("--samples", samples or ("1e7",))
        made = policy_class(policy)
        check_plot(plot)
        tuned: Constants = {} if constants is None else read_constants(constants)
        cmdp = read_model(model, gamma, limit, Naming(reward, constraint, start, beside))
        if constants is not None and not quiet:
            missing = [each.label for each in chosen if constants_for(each, tuned) is None]
            if missing:
                note(f"no constants in {constants} for {', '.join(missing)}: defaults")
            if read_meta(constants).get("fingerprint", cmdp.fingerprint()) != cmdp.fingerprint():
                note(f"{constants} was made on another model")
        with reporting(silent=quiet or (json and not sys.stdout.isatty())) as callback:

            def tell(stage: Stage, state: Progress) -> None:
                callback(state, f"{stage.number} of {stage.total}: {stage.label} at {stage.budget:.3g}")

            found = run(
                cmdp,
                chosen,
                budgets,
                constants=tuned,
                policy=made,
                replicates=replicates,
                seed=seed,
                threads=threads,
                progress=tell,
            )
        for skipped in found.skipped:
            note(f"left out: {skipped}")
        if not found.finished:
            note("interrupted: this is what there is")
        if json:
            entries = [entry | {"policy": policy} for entry in found.to_dict()]
            print_json(
                describe(model, cmdp)
                | {
                    "optimum": describe_optimum(found.optimum),
                    "algorithms": entries,
                    "skipped": found.skipped,
                }
            )
        else:
            print(found.table(), flush=True)
        if plot is not None:
            found.plot(plot, title=model)
            if not quiet:
                note(f"plot in {plot}")
        if not found.finished:
            raise typer.Exit(130)
