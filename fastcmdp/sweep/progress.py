"""What a sweep tells while it runs."""

from __future__ import annotations

from typing import NamedTuple


class Progress(NamedTuple):
    """What a progress callback is told, about once a second.

    Attributes
    ----------
    tasks, done, failed : int
        Tasks of the sweep; with a result, whoever computed it; failed in this session.
    running : int
        Tasks under way here.
    transitions : float
        Drawn in this session's finished batches.
    seconds : float
        Since this session began.
    rate : float
        Transitions per second, of all workers together.
    left : float or None
        Expected seconds until all is done; None before anything is known.
    note : str
        Something worth a line of its own; else empty.
    """

    tasks: int
    done: int
    failed: int
    running: int
    transitions: float
    seconds: float
    rate: float
    left: float | None
    note: str = ""
