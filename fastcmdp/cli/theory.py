"""`fastcmdp theory`: which of the paper's assumptions hold on a model, its schedules, both sides of its bounds."""

from __future__ import annotations

from typing import Annotated

import typer

from fastcmdp.cli.common import Json, counted, describe_optimum, print_json
from fastcmdp.cli.models import Source, on_model
from fastcmdp.exact import optimum


@on_model()
def theory(
    source: Source,
    epsilon: Annotated[
        float,
        typer.Option(
            help="Target gap and violation, with rewards in [0, 1] and constraints in [-1, 1].",
            metavar="E",
            show_default=False,
        ),
    ],
    outer: Annotated[int, counted("Outer steps of the measured runs.", "K")] = 20,
    inner: Annotated[int, counted("Inner steps of the measured runs.", "H")] = 40,
    replicates: Annotated[int, counted("Measured runs, over which means are taken.", "R")] = 8,
    seed: Annotated[int, counted("Seed of the measured runs.", "N")] = 0,
    json: Json = False,
) -> None:
    """A certificate of the paper's theory on a model, for a softmax with one parameter a choice.

    Which assumptions hold and with which constants, which fail and where; Theorem 1's schedule for the target
    beside the practical one; both sides of each bound, exact or measured.
    """
    from fastcmdp.theory import certificate  # here, so that other verbs start sooner

    cmdp = source.cmdp()
    best = optimum(cmdp)
    checked = certificate(
        cmdp, epsilon=epsilon, optimum=best, outer=outer, inner=inner, replicates=replicates, seed=seed
    )
    if json:
        rest = {key: value for key, value in checked.to_dict().items() if key != "model"}
        print_json(source.describe(cmdp) | {"optimum": describe_optimum(best)} | rest)
    else:
        print(checked.text(), flush=True)
