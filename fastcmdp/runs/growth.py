"""Going on with a run beyond the outer steps that it was planned for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fastcmdp.errors import SettingError

if TYPE_CHECKING:
    from fastcmdp.runs.result import Result


def grow(result: Result, outer: int, windows: int) -> None:
    """Let a run have ``outer`` outer steps, more than it has; it stands where it stood.

    Rates that depend on K are those for the new K from here on, which ``result.replanned`` then says.

    Raises
    ------
    SettingError
        No more outer steps than before.
    """
    before = result.algorithm.outer
    if outer <= before:
        raise SettingError(f"outer = {outer}: the run has {before} outer steps; more are expected")
    settings = replace(result.algorithm, outer=outer)
    old = result.run
    new = settings.run(old.world, result.seed, len(old.state.outer))
    for mine, theirs in zip(new.state, old.state, strict=True):
        mine[...] = theirs
    new.refresh()
    changed = [
        name
        for name, was, now in zip(old.steps._fields, old.steps, new.steps, strict=True)
        if not np.array_equal(was, now)
    ]
    if changed:
        result.replanned.append(
            f"From outer step {before:,} on {', '.join(changed)} of {settings.name} are those for K = {outer:,}: no "
            "guarantee covers a change of rates on the way."
        )
    result.algorithm, result.run = settings, new
    result.trace.grow(outer, windows)
