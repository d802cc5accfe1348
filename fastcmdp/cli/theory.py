"""`fastcmdp theory`: which of the paper's assumptions hold on a model, its schedules, both sides of its bounds."""

from __future__ import annotations

from typing import Annotated

import typer

from fastcmdp.cli.common import (
    Beside,
    Constraints,
    Gamma,
    Json,
    Limits,
    Model,
    Naming,
    Reward,
    Start,
    describe,
    describe_optimum,
    faults,
    print_json,
    read_model,
)
from fastcmdp.exact import optimum

OUTER, INNER, REPLICATES = 20, 40, 8


def theory(
    model: Model,
    epsilon: Annotated[
        float,
        typer.Option(
            help="Target gap and violation, with rewards in [0, 1] and constraints in [-1, 1].",
            metavar="E",
            show_default=False,
        ),
    ],
    outer: Annotated[int, typer.Option(help="Outer steps of the measured runs.", metavar="K")] = OUTER,
    inner: Annotated[int, typer.Option(help="Inner steps of the measured runs.", metavar="H")] = INNER,
    replicates: Annotated[
        int, typer.Option(help="Measured runs, over which means are taken.", metavar="R")
    ] = REPLICATES,
    seed: Annotated[int, typer.Option(help="Seed of the measured runs.", metavar="N")] = 0,
    limit: Limits = None,
    gamma: Gamma = None,
    reward: Reward = None,
    constraint: Constraints = None,
    start: Start = None,
    beside: Beside = None,
    json: Json = False,
) -> None:
    """A certificate of the paper's theory on a model, for a softmax with one parameter a choice.

    Which assumptions hold and with which constants, which fail and where; Theorem 1's schedule for the target
    beside the practical one; both sides of each bound, exact or measured.
    """
    with faults():
        from fastcmdp.theory import certificate  # here, so that other verbs start sooner

        cmdp = read_model(model, gamma, limit, Naming(reward, constraint, start, beside))
        best = optimum(cmdp)
        found = certificate(
            cmdp,
            epsilon=epsilon,
            optimum=best,
            outer=outer,
            inner=inner,
            replicates=replicates,
            seed=seed,
        )
        if json:
            rest = {key: value for key, value in found.to_dict().items() if key != "model"}
            print_json(describe(model, cmdp) | {"optimum": describe_optimum(best)} | rest)
        else:
            print(found.text(), flush=True)
