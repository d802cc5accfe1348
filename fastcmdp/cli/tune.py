"""`fastcmdp tune`: a search for good constants of every method, written as a file that compare and solve take."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fastcmdp.cli.common import (
    Json,
    Methods,
    PolicyName,
    Quiet,
    Threads,
    check_output,
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
from fastcmdp.cli.progress import APART
from fastcmdp.compare import exact_problem
from fastcmdp.tune import Tuned, Tuning
from fastcmdp.tune import tune as search


@on_model()
def tune(
    source: Source,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the constants, as TOML. Default: nowhere.", metavar="FILE"),
    ] = None,
    algorithms: Methods = None,
    samples: Annotated[str, typer.Option(help="Expected transitions of each run.", metavar="N")] = "1e6",
    trials: Annotated[int, counted("Trials of each method, the defaults first.", "T")] = 32,
    replicates: Annotated[int, counted("Runs of each trial.", "R")] = 4,
    seed: Annotated[int, counted("Seed of the search; reports with this seed use other streams.", "N")] = 0,
    policy: PolicyName = None,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search for the constants with which each method errs least: the same trials and the same budget for all.

    Ctrl-C stops the search and keeps the best so far.
    """
    chosen, budget = methods(algorithms), numbers("--samples", (samples,))
    _, build = source.policy(policy)
    check_output(out)
    cmdp = source.cmdp()
    best = exact_problem(cmdp, None)
    tuned = search(
        cmdp,
        chosen,
        budget[0] if len(budget) == 1 else budget,  # type: ignore[arg-type]  # it says what is wrong with several
        trials=trials,
        replicates=replicates,
        seed=seed,
        policy=build(cmdp),
        threads=threads,
        optimum=best,
        progress=None if silent(quiet, json) else _telling(),
    )
    tuned.meta["model"] = source.spec
    say_what_is_missing(tuned.skipped, tuned.finished)
    if json:
        facts = source.describe(cmdp) | {"optimum": describe_optimum(best)}
        print_json(facts | {"algorithms": _entries(tuned), "meta": tuned.meta, "skipped": tuned.skipped})
    else:
        print(tuned.table(), flush=True)
    if out is not None:
        tuned.save(out)
        if not quiet:
            note(f"constants in {out}")
    end(tuned.finished, failed=any(not math.isfinite(trial.error) for trial in tuned.best.values()))


def _entries(tuned: Tuned) -> list[dict[str, Any]]:
    return [
        {
            "name": label,
            "constants": trial.constants,
            "error": trial.error,
            "error_of_defaults": tuned.trials[label][0].error,
            "trials": [vars(each) for each in tuned.trials[label]],
        }
        for label, trial in tuned.best.items()
    ]


def _telling() -> Callable[[Tuning], None]:
    """Lines on standard error: rewritten in place on a terminal, else at most one every ten seconds."""
    began = time.monotonic()
    said = [began]
    terminal = sys.stderr.isatty()

    def tell(state: Tuning) -> None:
        now = time.monotonic()
        left = (now - began) / state.done * (state.total - state.done)
        line = (
            f"trial {state.done} of {state.total}, {left:.0f} s left: {state.label} {state.error:.1%}, "
            f"best {state.best:.1%}"
        )
        if terminal:
            end = "\n" if state.done == state.total else ""
            print(f"\r\x1b[K{line}", end=end, file=sys.stderr, flush=True)
        elif now - said[0] > 5 * APART:
            said[0] = now
            note(line)

    return tell
