"""A bench: thirty frozen models, one protocol, all methods, and yours.

    fastcmdp bench run --out results
    fastcmdp bench board results

`suite` lists the models, `run` makes what is missing, `board` turns it into a table, a page and a leaderboard file;
`enter` takes a method of your own. How it is done stands in docs/how-to/bench.md.
"""

from __future__ import annotations

from fastcmdp.bench.board import Board, Standing, board
from fastcmdp.bench.frozen import EDITION, Frozen, frozen, suite
from fastcmdp.bench.own import Method, enter, enter_named, leave, mixture
from fastcmdp.bench.protocol import BUDGETS, REPLICATES, Measured, run, specification

__all__ = [
    "BUDGETS",
    "EDITION",
    "REPLICATES",
    "Board",
    "Frozen",
    "Measured",
    "Method",
    "Standing",
    "board",
    "enter",
    "enter_named",
    "frozen",
    "leave",
    "mixture",
    "run",
    "specification",
    "suite",
]
