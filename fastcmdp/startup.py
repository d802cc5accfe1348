"""Ctrl-C while the command starts: imported first, since imports take most of that time."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any


def is_command() -> bool:
    """Whether this process is the command line, by how it was called."""
    words = sys.orig_argv
    if sys.argv[:1] == ["-m"]:  # as Python has it while it imports the package of a module that it is to run
        return words[words.index("-m") + 1 :][:1] == ["fastcmdp"]
    return any(Path(word).stem == "fastcmdp" for word in words[:2])


def _leave(*_: Any) -> None:
    """End at once: within an import no handler further up could be relied upon."""
    os.write(2, b"interrupted before there was a result\n")
    os._exit(130)


def watch() -> None:
    """Let Ctrl-C end the command with one line, until it is ready to answer with what there is."""
    if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def ready() -> None:
    """Leave Ctrl-C to Python again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


watch()
