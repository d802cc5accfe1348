"""The verbs, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from fastcmdp.cli.bench import bench
from fastcmdp.cli.compare import compare
from fastcmdp.cli.convert import convert
from fastcmdp.cli.frontier import frontier
from fastcmdp.cli.inspect import inspect
from fastcmdp.cli.solve import solve
from fastcmdp.cli.sweep import sweep
from fastcmdp.cli.theory import theory
from fastcmdp.cli.tune import tune
from fastcmdp.cli.warmup import warmup

app = typer.Typer(
    help="Constrained Markov decision processes: policy-gradient methods at the speed of C.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: quick to start and easy to search
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (solve, compare, tune, inspect, frontier, convert, theory, warmup):
    app.command()(verb)
app.add_typer(sweep, name="sweep")
app.add_typer(bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        from fastcmdp import __version__

        print(f"fastcmdp {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    try:
        app(arguments, prog_name="fastcmdp")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0
