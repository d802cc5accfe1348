"""What verbs share: options, exit codes, faults as one line, checks of files before a run, strict JSON."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.algorithms.variants import Variant
from fastcmdp.compare import variants
from fastcmdp.envs.spec import parse_value
from fastcmdp.errors import ModelError, SettingError, UnsavedWarning
from fastcmdp.exact import Optimum
from fastcmdp.plots import check_ending
from fastcmdp.startup import ready
from fastcmdp.text import finite, visible

FAILED, BAD_INPUT, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141
"""Exit codes: done, but nothing usable or not saved; bad input; Ctrl-C; whoever reads the output has gone."""


def count(text: str | int) -> int:
    """A whole number, as 100000 or 1e5; or a default."""
    value = parse_value(str(text))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise typer.BadParameter(f"{text!r} is not a whole number")
    return value


def counted(help: str, metavar: str) -> Any:
    """An option whose value is a whole number."""
    return typer.Option(help=help, metavar=metavar, parser=count)


Threads = Annotated[int | None, counted("Default: the processors at hand.", "T")]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        help=f"all, or names separated by commas: {', '.join(ALGORITHMS)}; settings that stay fixed after a question "
        "mark: 'pd-anpg?method=sgd&average=uniform'. Default: all.",
        metavar="NAMES",
    ),
]
ConstantsFile = Annotated[
    Path | None, typer.Option("--constants", help="Tuned constants, a file of fastcmdp tune.", metavar="FILE")
]
PolicyName = Annotated[
    str | None,
    typer.Option(
        help="tabular, log-linear:FEATURES.npy, neural:32, neural:32,16, relu:64; features also after a network's "
        "widths. Default: tabular; for a simulator log-linear.",
        metavar="NAME",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")]


def methods(names: Sequence[str] | None) -> list[Variant]:
    """The methods named on the command line, over all uses of the option."""
    return variants(",".join(names) if names else None)


def numbers(option: str, words: Sequence[str]) -> list[float]:
    """Positive numbers separated by commas, over all uses of an option."""
    values = []
    for text in ",".join(words).split(","):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise SettingError(
                f"{option} {text!r}: a positive number, or several separated by commas, is expected"
            )
        values.append(value)
    return values


def check_output(file: Path | None) -> None:
    """Find out before a run, not after it, that a file cannot be written."""
    if file is not None and not file.absolute().parent.is_dir():
        raise SettingError(f"{file}: there is no folder {file.absolute().parent}")
    if file is not None and file.is_dir():
        raise SettingError(f"{file}: a folder; give the name of a file in it")
    if file is not None and not os.access(file.absolute().parent, os.W_OK):
        raise SettingError(f"{file}: no permission to write in {file.absolute().parent}")


def check_plot(file: Path | None) -> None:
    """The same for a plot, and that there is something to draw it with."""
    if file is None:
        return
    check_ending(file)
    check_output(file)
    if importlib.util.find_spec("matplotlib") is None:
        raise SettingError("--plot needs matplotlib: pip install 'fastcmdp[plot]'")


def silent(quiet: bool, json: bool) -> bool:
    """Whether progress is not wanted: where JSON goes to a program, nobody looks on."""
    return quiet or (json and not sys.stdout.isatty())


def end_of_sweep(stopped: bool, failed: int) -> None:
    """Leave with the status of runs on a folder."""
    if stopped:
        note("stopped: the same command goes on from here")
        raise typer.Exit(130)
    if failed:
        raise typer.Exit(1)


def say_what_is_missing(skipped: Sequence[str], finished: bool) -> None:
    """Notes on methods that were left out, and on an end by Ctrl-C."""
    for line in skipped:
        note(f"left out: {line}")
    if not finished:
        note("interrupted: this is what there is")


def note(text: str) -> None:
    """A line of prose, on standard error."""
    print(visible(text, keep="\n"), file=sys.stderr, flush=True)


@contextmanager
def faults() -> Iterator[None]:
    """Bad input as one line on standard error and exit code 2, Ctrl-C as 130; warnings as one line each.

    A run that could not be saved where it was to be ends with exit code 1.
    """
    ready()
    lost = False

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        nonlocal lost
        lost = lost or issubclass(category, UnsavedWarning)
        note(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show
        try:
            yield
        except BrokenPipeError as error:  # `| head` has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(CLOSED_PIPE) from error
        except (ModelError, SettingError, OSError) as error:
            note(f"error: {error}")
            raise typer.Exit(BAD_INPUT) from error
        except MemoryError as error:
            note(f"error: not enough memory ({error})")
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as error:
            note("interrupted before there was a result")
            if any(thread.name.startswith("fastcmdp") for thread in threading.enumerate()):
                os._exit(INTERRUPTED)  # a second Ctrl-C, and Python would wait for its threads
            raise typer.Exit(INTERRUPTED) from error
    if lost:
        raise typer.Exit(FAILED)


def end(finished: bool, failed: bool = False) -> None:
    """End a verb that has said all that it has to say by the exit code of how its runs ended."""
    if not finished:
        raise typer.Exit(INTERRUPTED)
    if failed:
        raise typer.Exit(FAILED)


def describe_optimum(best: Optimum | None) -> dict[str, Any] | None:
    """The entry ``optimum``; None where it was not computed."""
    if best is None:
        return None
    return {
        "reward": best.reward,
        "constraints": best.constraints,
        "duals": best.duals,
        "constraint_range": best.constraint_range,
    }


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on standard output, strict: what is not finite becomes null."""
    print(json.dumps(finite(value), allow_nan=False), flush=True)
