"""Progress on standard error: a bar on a terminal, else a few plain lines."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol

from numba.core import event

from fastcmdp.cli.common import note
from fastcmdp.exact import Stage
from fastcmdp.solve import Progress


class Callback(Protocol):
    """What is called with how far a run is, and which one of several it is."""

    def __call__(self, state: Progress, label: str = "") -> None:
        """Tell it."""


LINES = 5  # at most, where there is no terminal
APART = 2.0  # seconds between two of them
FIRST = 1.0  # seconds in which an exact answer may come without a word


@contextmanager
def reporting(silent: bool) -> Iterator[Callback]:
    """A callback for ``solve``, in the form that fits standard error."""
    if silent:
        yield lambda state, label="": None
        return
    with (
        _telling_of_compilation(),
        _bar() if sys.stderr.isatty() else nullcontext(PrintedProgress()) as callback,
    ):
        yield callback


class _Compilation(event.Listener):
    """Says once that kernels are being compiled, since for seconds nothing else happens."""

    said = False

    def on_start(self, event: event.Event) -> None:
        """Numba begins with a function; those for Python are the ones that take seconds."""
        if not self.said and hasattr(event.data["dispatcher"], "callee"):
            self.said = True
            note("compiling kernels, some 10 s, once for this kind of run (`fastcmdp warmup`: once for all)")

    def on_end(self, event: event.Event) -> None:
        """Nothing to say."""


@contextmanager
def _telling_of_compilation() -> Iterator[None]:
    listener = _Compilation()
    event.register("numba:compile", listener)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        event.unregister("numba:compile", listener)  # type: ignore[no-untyped-call]


@contextmanager
def _bar() -> Iterator[Callback]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[steps]}"),
        TextColumn("{task.fields[speed]}"),
        TextColumn("{task.fields[error]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[left]}"),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        # Until the first call there may be kernels to compile, for which no time can be told.
        task = bar.add_task("preparing", total=None, steps="", speed="", left="", error="")

        def update(state: Progress, label: str = "") -> None:
            bar.update(
                task,
                description=label or "outer steps",
                total=state.total,
                completed=state.outer,
                steps=f"{state.outer:,} of {state.total:,}",
                speed=speed(state),
                error=estimate(state),
                left="left",
            )

        yield update


def estimate(state: Progress) -> str:
    """The error so far with its interval, where a point of the record allows it."""
    accuracy = state.result.accuracy
    return f"error {accuracy}" if math.isfinite(accuracy.high) else ""


def speed(state: Progress) -> str:
    """Transitions per second so far, for reading."""
    return f"{state.samples / max(state.seconds, 1e-9) / 1e6:.1f} M transitions/s"


class PrintedProgress:
    """At most LINES lines over a run, none of them in its first APART seconds."""

    def __init__(self) -> None:
        self._begin("")

    def _begin(self, label: str) -> None:
        self.label = label
        self.first: tuple[float, int] | None = None
        self.said = (time.monotonic(), 0)

    def __call__(self, state: Progress, label: str = "") -> None:
        if label != self.label:
            self._begin(label)
        now = time.monotonic()
        self.first = self.first or (now, state.outer)
        part = state.outer * LINES // state.total
        if part <= self.said[1] or now - self.said[0] < APART:
            return
        self.said = (now, part)
        steps = max(state.outer - self.first[1], 1)
        left = (now - self.first[0]) / steps * (state.total - state.outer)
        run = f"{self.label}, " if self.label else ""
        parts = [
            f"outer step {state.outer:,} of {state.total:,}",
            speed(state),
            f"{left:.0f} s left",
            estimate(state),
        ]
        note(run + ", ".join(part for part in parts if part))


@contextmanager
def exact_progress() -> Iterator[Callable[[Stage], None]]:
    """A callback for exact answers: lines on standard error that a terminal overwrites, none in the first second."""
    begun = said = time.monotonic()
    terminal = sys.stderr.isatty()

    def tell(stage: Stage) -> None:
        nonlocal said
        now = time.monotonic()
        if now - begun < FIRST or now - said < (0.1 if terminal else APART):
            return
        said = now
        gap = f", gap {stage.gap:.2g}" if math.isfinite(stage.gap) else ""
        line = f"exact optimum, {stage.what}: {stage.responses} best responses{gap}, {now - begun:.0f} s"
        if terminal:
            print(f"\r{line:<100}", end="", file=sys.stderr, flush=True)
        else:
            note(line)

    try:
        yield tell
    finally:
        if terminal and said > begun:
            print(f"\r{'':<100}\r", end="", file=sys.stderr, flush=True)
