"""`fastcmdp tune`: a search for good constants of every method, written as a file that compare and solve take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fastcmdp.cli.common import (
    Beside,
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
    check_output,
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
from fastcmdp.cli.progress import APART
from fastcmdp.compare import exact_problem
from fastcmdp.tune import Tuning
from fastcmdp.tune import tune as search


def tune(
    model: Model,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the constants, as TOML. Default: nowhere.", metavar="FILE"),
    ] = None,
    algorithms: Methods = None,
    samples: Annotated[str, typer.Option(help="Expected transitions of each run.", metavar="N")] = "1e6",
    trials: Annotated[int, typer.Option(help="Trials of each method, the defaults first.", metavar="T")] = 32,
    replicates: Annotated[int, typer.Option(help="Runs of each trial.", metavar="R")] = 4,
    seed: Annotated[
        int, typer.Option(help="Seed of the search; reports with this seed use other streams.", metavar="N")
    ] = 0,
    policy: PolicyName = "tabular",
    threads: Threads = None,
    limit: Limits = None,
    gamma: Gamma = None,
    reward: Reward = None,
    constraint: Constraints = None,
    start: Start = None,
    beside: Beside = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search for the constants with which each method errs least: the same trials and the same budget for all.

    Ctrl-C stops the search and keeps the best so far.
    """
    with faults():
        chosen, budget, made = methods(algorithms), numbers("--samples", (samples,)), policy_class(policy)
        check_output(out)
        cmdp = read_model(model, gamma, limit, Naming(reward, constraint, start, beside))
        best = exact_problem(cmdp, None)
        silent = quiet or (json and not sys.stdout.isatty())
        found = search(
            cmdp,
            chosen,
            budget[0] if len(budget) == 1 else budget,  # type: ignore[arg-type]  # it says what is wrong with several
            trials=trials,
            replicates=replicates,
            seed=seed,
            policy=made,
            threads=threads,
            optimum=best,
            progress=None if silent else _telling(),
        )
        found.meta["model"] = model
        for skipped in found.skipped:
            note(f"left out: {skipped}")
        if not found.finished:
            note("interrupted: this is what there is")
        if json:
            entries = [
                {
                    "name": label,
                    "constants": trial.constants,
                    "error": trial.error,
                    "error_of_defaults": found.trials[label][0].error,
                    "trials": [vars(each) for each in found.trials[label]],
                }
                for label, trial in found.best.items()
            ]
            print_json(
                describe(model, cmdp)
                | {"optimum": describe_optimum(best), "algorithms": entries, "meta": found.meta}
                | {"skipped": found.skipped}
            )
        else:
            print(found.table(), flush=True)
        if out is not None:
            found.save(out)
            if not quiet:
                note(f"constants in {out}")
        if not found.finished:
            raise typer.Exit(130)


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
