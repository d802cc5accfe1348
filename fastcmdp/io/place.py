"""Where a model is read from or written to: what every reader and every writer takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastcmdp.files import Packing

AXES = ("ast", "sta", "sat")


@dataclass(frozen=True)
class Place:
    """A file, and what was said about it.

    Attributes
    ----------
    path : Path
    packing : "", "gz" or "xz"
        How to pack what is written; readers see for themselves.
    files : list of Path or None
        What goes with a .tra; None: what is found beside it.
    renormalize : bool
        Divide rows of probabilities by their sums, whatever these are.
    axes : "ast", "sta", "sat" or None
        The order of action, state and target in tables; None: what the file says, or the one that makes sense.
    """

    path: Path
    packing: Packing = ""
    files: Sequence[Path] | None = None
    renormalize: bool = False
    axes: str | None = None
