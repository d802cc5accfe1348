"""`fastcmdp compare`: several algorithms on one model, at one budget of samples, beside the exact optimum."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from fastcmdp.algorithms import ALGORITHMS
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
from fastcmdp.cli.progress import reporting
from fastcmdp.errors import SettingError
from fastcmdp.exact import optimum
from fastcmdp.results import Result
from fastcmdp.solve import EXACT_CHOICES
from fastcmdp.solve import solve as run


def compare(
    model: Model,
    algorithms: Annotated[
        str,
        typer.Option(help=f"all, or names separated by commas: {', '.join(ALGORITHMS)}.", metavar="NAMES"),
    ] = "all",
    samples: Annotated[int, typer.Option(help="Expected transitions of each run.", metavar="N")] = 10_000_000,
    replicates: Annotated[int, typer.Option(help="Independent runs of each.", metavar="R")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the random streams.", metavar="N")] = 0,
    threads: Annotated[int | None, typer.Option(help="Default: the processors at hand.", metavar="T")] = None,
    limit: Limits = None,
    gamma: Gamma = None,
    reward: Reward = None,
    constraint: Constraints = None,
    start: Start = None,
    beside: Beside = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run algorithms on a model at the same budget; print gap and violation of the mixture and of the end."""
    with faults():
        names = list(ALGORITHMS) if algorithms == "all" else algorithms.split(",")
        chosen = [algorithm_by_name(name.strip()) for name in names]
        cmdp = read_model(model, gamma, limit, Naming(reward, constraint, start, beside))
        if cmdp.n_choices > EXACT_CHOICES:
            raise SettingError(
                f"{model} has {cmdp.n_choices} choices; compare needs the exact optimum, up to {EXACT_CHOICES}"
            )
        best = optimum(cmdp)
        settings = [made.for_samples(cmdp, samples) for made in chosen]
        results: list[Result] = []
        for setting in settings:
            with reporting(silent=quiet or (json and not sys.stdout.isatty())) as callback:
                options: dict[str, Any] = {
                    "seed": seed,
                    "replicates": replicates,
                    "threads": threads,
                    "optimum": best,
                }
                results.append(run(cmdp, setting, progress=callback, **options))
            if not results[-1].finished:
                note("interrupted: this is what there is")
                break
        if json:
            entries = [r.to_dict() | {"seed": seed, "settings": asdict(r.algorithm)} for r in results]
            print_json(describe(model, cmdp) | {"optimum": describe_optimum(best), "algorithms": entries})
        else:
            for result in results:
                print(result.summary(), end="\n\n", flush=True)
        if not results[-1].finished:
            raise typer.Exit(130)
