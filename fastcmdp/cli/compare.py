"""`fastcmdp compare`: several algorithms on one model, at one or several budgets, beside the exact optimum."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastcmdp.cli.common import (
    ConstantsFile,
    Json,
    Methods,
    PolicyName,
    Quiet,
    Threads,
    check_plot,
    counted,
    describe_optimum,
    end,
    methods,
    note,
    numbers,
    print_json,
    say_what_is_missing,
    silent,
)
from fastcmdp.cli.models import Source, on_model
from fastcmdp.cli.progress import reporting
from fastcmdp.compare import ComparedRun
from fastcmdp.compare import compare as run
from fastcmdp.solve import Progress
from fastcmdp.tuned import Constants, constants_for, read_constants, read_meta


@on_model()
def compare(
    source: Source,
    algorithms: Methods = None,
    samples: Annotated[
        list[str] | None,
        typer.Option(
            help="Expected transitions of each run; several, separated by commas, each with its own schedule. "
            "Default: 1e7.",
            metavar="N",
        ),
    ] = None,
    replicates: Annotated[int, counted("Independent runs of each; 8 or more for sound intervals.", "R")] = 8,
    seed: Annotated[int, counted("Seed of the random streams.", "N")] = 0,
    constants: ConstantsFile = None,
    policy: PolicyName = None,
    threads: Threads = None,
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
    chosen, budgets = methods(algorithms), numbers("--samples", samples or ("1e7",))
    name, build = source.policy(policy)
    check_plot(plot)
    tuned: Constants = {} if constants is None else read_constants(constants)
    cmdp = source.cmdp()
    if constants is not None and not quiet:
        missing = [each.label for each in chosen if constants_for(each, tuned) is None]
        if missing:
            note(f"no constants in {constants} for {', '.join(missing)}: defaults")
        if read_meta(constants).get("fingerprint", cmdp.fingerprint()) != cmdp.fingerprint():
            note(f"{constants} was made on another model")
    with reporting(silent(quiet, json)) as callback:

        def tell(stage: ComparedRun, state: Progress) -> None:
            callback(state, f"{stage.number} of {stage.total}: {stage.label} at {stage.budget:.3g}")

        comparison = run(
            cmdp, chosen, budgets, constants=tuned, policy=build(cmdp), replicates=replicates, seed=seed,
            threads=threads, progress=tell,
        )  # fmt: skip
    say_what_is_missing(comparison.skipped, comparison.finished)
    if json:
        entries = [entry | {"policy": name} for entry in comparison.to_dict()]
        facts = source.describe(cmdp) | {"optimum": describe_optimum(comparison.optimum)}
        print_json(facts | {"algorithms": entries, "skipped": comparison.skipped})
    else:
        print(comparison.table(), flush=True)
    if plot is not None:
        comparison.plot(plot, title=source.spec)
        if not quiet:
            note(f"plot in {plot}")
    end(comparison.finished, failed=any((entry.result.failed >= 0).all() for entry in comparison.entries))
