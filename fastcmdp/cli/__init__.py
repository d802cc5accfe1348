"""The command line: one file a verb.

Nothing but the standard library is imported before `main` runs, so that a missing extra is one line of advice.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from typing import Any, cast


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fastcmdp` with these arguments (default: those of the process) and return its exit code.

    0: done. 1: done, but all replicates failed, the last checkpoint could not be written, or tasks of a sweep failed.
    2: bad arguments, input or files, or a missing extra, with one line on standard error. 130: stopped by Ctrl-C, with
    what there is printed. 141: whoever read the output has gone.

    Examples
    --------
    >>> from fastcmdp.cli import main
    >>> main(["--version"])
    fastcmdp 0.2.0
    0
    """
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        print(
            f"the command line needs typer and rich ({error}): pip install 'fastcmdp[cli]'", file=sys.stderr
        )
        return 2
    with suppress(ValueError):  # not in the main thread
        # A scheduler's stop and a terminal that is closed save what Ctrl-C saves; under nohup the latter does nothing.
        for stop in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(stop) == signal.SIG_DFL:
                signal.signal(stop, signal.default_int_handler)
    from fastcmdp.cli.app import run
    from fastcmdp.text import VisibleStream

    with redirect_stdout(cast(Any, VisibleStream(sys.stdout))):
        return run(sys.argv[1:] if argv is None else list(argv))


__all__ = ["main"]
