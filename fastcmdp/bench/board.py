"""What the bench found: a table of all errors, and who leads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fastcmdp.aggregates import improvement, iqm, profile
from fastcmdp.bench.frozen import EDITION
from fastcmdp.bench.protocol import Measured, measured
from fastcmdp.bootstrap import Interval, bootstrap
from fastcmdp.files import write_text
from fastcmdp.sweep import Store
from fastcmdp.text import finite, number, table
from fastcmdp.version import __version__

LEVELS = (0.01, 0.05)  # of the attainable range: errors that a user would call small


@dataclass(frozen=True)
class Standing:
    """One method at one budget on all models.

    Attributes
    ----------
    method : str
    budget : float
    iqm : Interval
        Interquartile mean of the errors of all runs on all models.
    within : tuple of Interval
        Shares of runs with an error of at most each of `LEVELS`.
    better : Interval
        Probability that a run has a smaller error than one of another method on the same model, mean over the others.
    missing : int
        Models on which there is no run.
    """

    method: str
    budget: float
    iqm: Interval
    within: tuple[Interval, ...]
    better: Interval
    missing: int

    def to_dict(self) -> dict[str, Any]:
        """As in the leaderboard file."""
        return {
            "method": self.method,
            "budget": self.budget,
            "error_iqm": self.iqm.to_dict(),
            "within": {
                f"{level:g}": share.to_dict() for level, share in zip(LEVELS, self.within, strict=True)
            },
            "better": self.better.to_dict(),
            "missing": self.missing,
        }


@dataclass(frozen=True)
class Board:
    """All that the bench found.

    Attributes
    ----------
    runs : list of Measured
    places : list of Standing
        By budget, the best first: by the interquartile mean of errors.
    digest : str
        Of all rows, to the last bit.
    """

    runs: list[Measured]
    places: list[Standing]
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """The leaderboard file."""
        return {
            "edition": EDITION,
            "fastcmdp": __version__,
            "digest": self.digest,
            "places": [place.to_dict() for place in self.places],
            "errors": [
                {
                    "method": each.method,
                    "model": each.model.name,
                    "budget": each.budget,
                    "error": bootstrap(each.errors).to_dict(),
                    "gap": bootstrap(each.gaps).to_dict(),
                    "violation": bootstrap(each.violations).to_dict(),
                    "source": each.source,
                    "replicates": int(np.isfinite(each.errors).sum()),
                }
                for each in self.runs
            ],
        }

    def tables(self) -> list[tuple[str, list[list[str]]]]:
        """Leaderboard and errors as rows of text, each with what it is."""
        head = [
            "method",
            "transitions",
            "error, middle half of runs",
            *(f"runs within {x:.0%}" for x in LEVELS),
        ]
        lead = [[*head, "better than another", "models without a run"]]
        for place in self.places:
            cells = [_share(x) for x in (*place.within, place.better)]
            lead.append(
                [place.method, f"{place.budget:.0e}", _percent(place.iqm), *cells, str(place.missing)]
            )
        tables = [("Leaderboard", lead)]
        for budget in sorted({each.budget for each in self.runs}):
            own = [each for each in self.runs if each.budget == budget]
            methods = list(dict.fromkeys(each.method for each in own))
            by = {(each.method, each.model.name): each for each in own}
            rows = [["model", "states", "m", "gamma", *methods]]
            for model in dict.fromkeys(each.model for each in own):
                facts = [model.name, str(model.states), str(model.constraints), f"{model.gamma:g}"]
                rows.append(facts + [_mean(by[method, model.name]) for method in methods])
            tables.append((f"Mean error at {budget:.0e} transitions, % of the attainable range", rows))
        return tables

    def text(self) -> str:
        """For reading in a terminal."""
        return "\n\n".join(f"{title}\n\n{table(rows)}" for title, rows in self.tables())

    def page(self) -> str:
        """For reading in a browser: one file."""
        body = []
        for title, rows in self.tables():
            head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
            lines = "".join(
                "<tr>" + "".join(f"<td>{escape(x)}</td>" for x in row) + "</tr>" for row in rows[1:]
            )
            body.append(
                f"<h2>{escape(title)}</h2><div class=wide><table><tr>{head}</tr>{lines}</table></div>"
            )
        about = (
            f"Edition {EDITION} of the models, fastcmdp {__version__}, rows {self.digest}. The error is the larger of "
            "gap and violation of a run's mixture, each relative to what policies attain; brackets are 95 % intervals "
            "of a bootstrap that draws replicates within models. Runs that are missing count as worse than any error. "
            "~ marks a run's own estimates, where a model is too large for exact values."
        )
        return PAGE.replace("ABOUT", escape(about)).replace("BODY", "\n".join(body))

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write ``leaderboard.json``, ``bench.txt`` and ``bench.html``."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        files = {
            "leaderboard": (place / "leaderboard.json", json.dumps(finite(self.to_dict()), indent=1) + "\n"),
            "table": (place / "bench.txt", self.text() + "\n"),
            "page": (place / "bench.html", self.page()),
        }
        for path, text in files.values():
            write_text(path, text)
        return {name: path for name, (path, _) in files.items()}


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>fastcmdp bench</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 84rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.6rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
p { max-width: 50rem; }
</style>
<h1>fastcmdp bench</h1>
<p>ABOUT</p>
BODY
</html>
"""


def _mean(each: Measured) -> str:
    known = each.errors[np.isfinite(each.errors)]
    mark = "~" if each.source == "estimate" else ""
    return number(100.0 * float(known.mean()) if known.size else None, ".3g") + mark


def _percent(interval: Interval) -> str:
    mean, low, high = (number(100.0 * float(x), ".3g") for x in interval)
    return f"{mean} % [{low}, {high}]"


def _share(interval: Interval) -> str:
    mean, low, high = (f"{float(x):.0%}" for x in interval)
    return f"{mean} [{low}, {high}]"


def board(folder: str | Path) -> Board:
    """What the runs in a folder say.

    Raises
    ------
    SettingError
        As `fastcmdp.bench.protocol.measured`.

    Examples
    --------
    >>> import tempfile
    >>> from fastcmdp.bench import board, run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = run(folder, ["pmd-pd"], ["river-swim-8"], budgets=[2e4], replicates=2)
    ...     [place.method for place in board(folder).places]
    ['pmd-pd']
    """
    runs = measured(folder)
    places: list[Standing] = []
    for budget in sorted({each.budget for each in runs}):
        own: dict[str, list[Any]] = {}
        for each in runs:
            if each.budget == budget:
                own.setdefault(each.method, []).append(each.errors)
        standings = [_place(method, budget, own) for method in own]
        places += sorted(standings, key=lambda place: float(place.iqm.mean))
    return Board(runs, places, Store(folder).digest())


def _place(method: str, budget: float, all_errors: Mapping[str, Sequence[Any]]) -> Standing:
    errors = all_errors[method]
    within = profile(errors, np.array(LEVELS))
    shares = tuple(Interval(*(part[i] for part in within)) for i in range(len(LEVELS)))
    others = [other for name, other in all_errors.items() if name != method]
    pooled = Interval(*(np.array(0.5),) * 3)
    if others:  # against all others at once: each model once for each of them
        pooled = improvement(list(errors) * len(others), [task for other in others for task in other])
    missing = sum(bool(np.isnan(task).all()) for task in errors)
    return Standing(method, budget, iqm(errors), shares, pooled, missing)
