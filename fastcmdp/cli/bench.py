"""`fastcmdp bench run|board|models`: thirty frozen models, one protocol, any methods."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fastcmdp.cli.common import Json, Quiet, counted, end_of_sweep, faults, note, numbers, print_json, silent
from fastcmdp.cli.sweep import reporting_sweep

bench = typer.Typer(
    help="A bench of thirty frozen models: run, board, models.", no_args_is_help=True, rich_markup_mode=None
)


@bench.command("run")
def run(
    out: Annotated[Path, typer.Option(help="Folder for the runs.", metavar="DIR", show_default=False)],
    algorithms: Annotated[
        str | None, typer.Option(help="Methods, separated by commas. Default: all.", metavar="NAMES")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method of your own, importable; repeatable.", metavar="MODULE:NAME"),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(help="Models of the bench, separated by commas. Default: all.", metavar="NAMES"),
    ] = None,
    samples: Annotated[str, typer.Option(help="Transitions of a run.", metavar="LIST")] = "1e5,1e6",
    replicates: Annotated[int, counted("Runs of each.", "R")] = 5,
    workers: Annotated[int | None, counted("Runs at once. Default: the processors at hand.", "N")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make the runs that DIR lacks; the same command goes on, however it ended, and more methods add theirs.

    Exit code 0: every run has a result. 1: some raised an error. 130: stopped by Ctrl-C.
    """
    with faults():
        from fastcmdp import bench as benches

        sys.path.insert(0, str(Path.cwd()))
        own = [benches.enter_named(text) for text in method or ()]
        named = None if algorithms is None and not own else [*(_split(algorithms) or ()), *own]
        with reporting_sweep(silent(quiet, json)) as callback:
            status = benches.run(
                out, named, _split(models), budgets=numbers("--samples", (samples,)), replicates=replicates,
                workers=workers, progress=callback,
            )  # fmt: skip
        if json:
            print_json(asdict(status) | {"finished": status.finished, "left": status.left})
        else:
            print(f"{status.folder}: {status.done:,} of {status.tasks:,} runs done, {status.failed:,} failed")
        end_of_sweep(status.stopped, status.failed)


@bench.command("board")
def board(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of runs.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the files. Default: DIR/board.", metavar="FOLDER")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Who leads: a table, a page and leaderboard.json."""
    with faults():
        from fastcmdp import bench as benches

        standings = benches.board(folder)
        files = standings.write(folder / "board" if out is None else out)
        if json:
            print_json(standings.to_dict())
        else:
            print(standings.text(), flush=True)
            if not quiet:
                note(f"board in {files['page']}")


@bench.command("models")
def models(json: Json = False) -> None:
    """The frozen models, with sizes, exact optima, multipliers and licences."""
    with faults():
        from fastcmdp.bench import suite
        from fastcmdp.text import number, table

        entries = suite()
        if json:
            print_json({"models": [asdict(each) for each in entries]})
            return
        rows = [["name", "states", "choices", "m", "gamma", "optimum", "multipliers", "Slater", "model"]]
        for each in entries:
            duals = ", ".join(number(x) for x in each.duals) or "-"
            rows.append(
                [each.name, f"{each.states:,}", f"{each.choices:,}", str(each.constraints), f"{each.gamma:g}",
                 number(each.reward, ".6g"), duals, number(each.slater), each.model]
            )  # fmt: skip
        print(table(rows, left=(0, 8)))


def _split(names: str | None) -> list[str] | None:
    return None if names is None else [part.strip() for part in names.split(",") if part.strip()]
