"""`fastcmdp sweep run|status|report`: thousands of runs, interrupted at will, ending in numbers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastcmdp.cli.common import Json, Quiet, counted, end_of_sweep, faults, note, numbers, print_json, silent
from fastcmdp.errors import SettingError
from fastcmdp.text import duration

if TYPE_CHECKING:
    from fastcmdp.sweep import Estimate, Progress, Status

LEFT_OUT = "beyond the cap, or a budget less than one outer step"
APART = 20.0  # seconds between two plain lines

sweep = typer.Typer(
    help="Sweeps over models, algorithms, targets and seeds: run, status, report.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a sweep.", show_default=False)]


@sweep.command("run")
def run(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC",
            help="A TOML file (docs/sweeps.md), or the folder of a sweep to go on with.",
            show_default=False,
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the results.", metavar="DIR")] = None,
    engine: Annotated[str, typer.Option(help="threads, processes or dask.", metavar="NAME")] = "threads",
    workers: Annotated[int | None, counted("Batches at once. Default: the processors at hand.", "N")] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="With dask: tcp://HOST:PORT. Without: a cluster on this machine.", metavar="ADDRESS"
        ),
    ] = None,
    threads: Annotated[int, counted("Threads of each worker.", "T")] = 1,
    batch: Annotated[float, typer.Option(help="Seconds of work in a batch.", metavar="S")] = 60.0,
    extend: Annotated[
        bool,
        typer.Option(
            "--extend", help="DIR has another specification: add the tasks that are new in this one."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what it would take; run nothing but a probe.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run what a sweep still lacks: the same command again goes on where the last one ended, however it ended.

    Exit code 0: every task has a result. 1: some raised an error. 130: stopped by Ctrl-C.
    """
    with faults():
        from fastcmdp import sweep as sweeps

        if dry_run:
            forecast = sweeps.estimate(
                sweeps.Store(spec).spec() if spec.is_dir() else sweeps.read(spec), workers
            )
            print_json(asdict(forecast)) if json else print(_estimate(forecast), flush=True)
            return
        if out is None and not spec.is_dir():
            raise SettingError("--out DIR is missing: the folder for the results")
        with reporting_sweep(silent(quiet, json)) as callback:
            status = sweeps.run(
                spec, out, engine, workers=workers, scheduler=scheduler, threads=threads, extend=extend,
                batch_seconds=batch, progress=callback,
            )  # fmt: skip
        _show(status, json)
        end_of_sweep(status.stopped, status.failed)


@sweep.command("status")
def status(folder: Folder, json: Json = False) -> None:
    """How a sweep stands: tasks done, failed and left, and why tasks failed."""
    with faults():
        from fastcmdp import sweep as sweeps

        _show(sweeps.status(folder), json)


@sweep.command("report")
def report(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report. Default: DIR/report.", metavar="FOLDER")
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            help="Targets, separated by commas. Default: those of the specification.", metavar="LIST"
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Samples needed to reach each epsilon, fitted exponents beside the claimed ones, curves: HTML, CSV, PNG, SVG."""
    with faults():
        from fastcmdp.sweep.report import report as make

        targets = None if epsilon is None else numbers("--epsilon", (epsilon,))
        pages = make(folder, out, epsilon=targets)
        if json:
            print_json(pages.to_dict())
        else:
            print(pages.text(), flush=True)
            if not quiet:
                note(f"report in {pages.files['html']}")


def _show(status: Status, json: bool) -> None:
    if json:
        print_json(asdict(status) | {"finished": status.finished, "left": status.left})
        return
    print(
        f"{status.folder}: {status.done:,} of {status.tasks:,} tasks done, {status.failed:,} failed, "
        f"{status.left:,} left"
    )
    for name in status.set_aside:
        print(
            f"a part was damaged, and its tasks are computed again by `sweep run`: {name} in {status.folder}/aside"
        )
    if status.omitted:
        print(f"{status.omitted:,} targets are left out: {LEFT_OUT}")
    if len(status.by_algorithm) > 1:
        width = max(map(len, status.by_algorithm))
        for label, row in status.by_algorithm.items():
            print(f"  {label:{width}}  {row['done']:,} of {row['tasks']:,} done, {row['failed']:,} failed")
    if status.new:
        rate = status.transitions / max(status.seconds, 1e-9)
        print(
            f"{status.new:,} of them now, in {duration(status.seconds)}: {status.transitions:.3g} transitions, "
            f"{rate / 1e6:.1f} M a second"
        )
    for name in status.running:
        print(f"under way: session {name}")
    counts: dict[str, int] = {}
    for failure in status.failures:
        last = failure.traceback.strip().splitlines()[-1]
        target = (
            f"epsilon {failure.inputs['epsilon']:g}"
            if failure.inputs["epsilon"]
            else f"samples {failure.inputs['budget']:g}"
        )
        line = f"{failure.inputs['algorithm']} on {failure.inputs['model']}, {target}: {last}"
        counts[line] = counts.get(line, 0) + 1
    for line, runs in list(counts.items())[:5]:
        print(f"failed: {line}" + f" ({runs:,} runs)" * (runs > 1))
    if len(counts) > 5:
        print(f"and {sum(list(counts.values())[5:]):,} more")
    if status.failures:
        print(f"inputs and tracebacks are in {status.folder}/failures; `fastcmdp sweep run` tries them again")
    sys.stdout.flush()


def _estimate(forecast: Estimate) -> str:
    lines = [
        f"{forecast.tasks:,} tasks, a run each, of {forecast.configurations:,} configurations; "
        f"{forecast.transitions:.3g} transitions, {forecast.largest:.3g} in the longest run",
        f"about {duration(forecast.seconds)} on {forecast.workers} workers like this machine's",
    ]
    if forecast.capped or forecast.omitted:
        lines.append(
            f"cap: {forecast.capped:,} tasks have a schedule cut to it; "
            f"{forecast.omitted:,} targets are left out: {LEFT_OUT}"
        )
    width = max(map(len, forecast.by_algorithm))
    for label, row in forecast.by_algorithm.items():
        rate = 1e9 * row["seconds"] / max(row["transitions"], 1.0)
        lines.append(
            f"  {label:{width}}  {int(row['tasks']):7,} tasks {row['transitions']:9.3g} transitions "
            f"{duration(row['seconds']):>9} of one worker  {rate:6.1f} ns a transition"
        )
    return "\n".join(lines)


@contextmanager
def reporting_sweep(silent: bool) -> Iterator[Callable[[Progress], object]]:
    """A callback that shows progress on standard error: a bar on a terminal, else plain lines."""
    if silent:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bar() as callback:
            yield callback
    else:
        yield _Lines()


@contextmanager
def _bar() -> Iterator[Callable[[Progress], object]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[told]}"),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("planning", total=None, told="")

        def update(state: Progress) -> None:
            if state.note:
                console.print(state.note, markup=False, highlight=False)
            if state.tasks:
                bar.update(
                    task, description="tasks", total=state.tasks, completed=state.done, told=_line(state)
                )

        yield update


def _line(state: Progress) -> str:
    if not state.transitions and not state.done:
        return f"0 of {state.tasks:,}; the first run of an algorithm compiles its kernels, once a machine"
    left = "" if state.left is None else f", {duration(state.left)} left"
    failed = f", {state.failed:,} failed" if state.failed else ""
    return f"{state.done:,} of {state.tasks:,}, {state.rate / 1e6:.1f} M transitions/s{left}{failed}"


class _Lines:
    """A line after the first batches, then one every APART seconds, and each note at once."""

    def __init__(self) -> None:
        self.said = time.monotonic() - APART + 2.0

    def __call__(self, state: Progress) -> Any:
        if state.note:
            note(state.note)
        now = time.monotonic()
        if state.tasks and now - self.said >= APART:
            self.said = now
            note(_line(state))
