"""The report of a sweep: a page that needs no network, plots, and tables for other programs."""

from __future__ import annotations

import base64
import html
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fastcmdp.sweep.analysis import Analysis, Exponent, Reached, analyse
from fastcmdp.sweep.durable import StoreError, write_durably
from fastcmdp.sweep.plots import plot_curves, plot_exponents
from fastcmdp.sweep.progress import Status, status_of
from fastcmdp.sweep.store import Store
from fastcmdp.text import number, table
from fastcmdp.version import __version__

_PAGE = Path(__file__).with_name("page.html")
HEAD = ["algorithm", "exponent", "95 %", "of ends", "95 %", "claimed", "in the fit", "capped"]
MOST_ROWS = 2000  # of a table on the page; the CSV files have all


@dataclass
class Report:
    """What was made.

    Attributes
    ----------
    status : Status
    analysis : Analysis
    files : dict
        Paths by what they are: html, exponents_csv, samples_csv, curves_csv, ends_csv, and png and svg of both plots.
    """

    status: Status
    analysis: Analysis
    files: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        state = {key: getattr(self.status, key) for key in ("folder", "tasks", "done", "failed", "omitted")}
        return state | {
            "exponents": [asdict(item) for item in self.analysis.exponents],
            "samples": [asdict(item) for item in self.analysis.reached],
            "bootstrap_draws": self.analysis.draws,
            "files": self.files,
        }

    def text(self) -> str:
        """The table of exponents, for reading."""
        lines = [
            table([HEAD, *(_exponent_row(e) for e in self.analysis.exponents)]),
            *self.analysis.remarks(),
        ]
        if self.status.done < self.status.tasks:
            lines.append(
                f"{self.status.done:,} of {self.status.tasks:,} tasks are done: these figures will change"
            )
        return "\n".join(lines)


def report(
    folder: str | Path, out: str | Path | None = None, *, epsilon: float | Sequence[float] | None = None
) -> Report:
    """Analyse a sweep and write its report.

    Parameters
    ----------
    folder : path
        Of the sweep, finished or not.
    out : path, optional
        Default: ``folder/report``.
    epsilon : float or sequence of float, optional
        See `fastcmdp.sweep.analysis.analyse`.

    Raises
    ------
    SettingError
        No sweep or no results there, or matplotlib is missing.
    StoreError
        The report cannot be written.
    """
    store = Store(folder)
    store.check()
    analysis = analyse(store, epsilon)
    status = status_of(store, store.plan())
    target = Path(out) if out is not None else store.path / "report"
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{target}: no folder can be made there ({error.strerror or error})") from error
    plots = {"exponents": plot_exponents(analysis), "curves": plot_curves(analysis)}
    images, files = {}, {}
    for name, figure in plots.items():
        for ending in ("png", "svg"):
            data = _drawn(figure, ending, name)
            figure.set_layout_engine("none")  # as it was laid out the first time
            write_durably(target / f"{name}.{ending}", data)
            files[f"{name}_{ending}"] = str(target / f"{name}.{ending}")
            images[name, ending] = data
    tables = {
        "exponents": _records(Exponent, analysis.exponents),
        "samples": _records(Reached, analysis.reached),
        "curves": _curves(analysis),
        "ends": _ends(analysis),
    }
    for name, rows in tables.items():
        write_durably(target / f"{name}.csv", _csv(rows))
        files[f"{name}_csv"] = str(target / f"{name}.csv")
    page = _page(store, status, analysis, {name: images[name, "svg"] for name in plots})
    write_durably(target / "report.html", page.encode())
    files["html"] = str(target / "report.html")
    return Report(status, analysis, files)


def _drawn(figure: Any, ending: str, salt: str) -> bytes:
    import matplotlib

    sink = io.BytesIO()
    meta = {"Date": None} if ending == "svg" else None
    with matplotlib.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure.savefig(sink, format=ending, dpi=150, metadata=meta)
    return sink.getvalue()


def _curves(analysis: Analysis) -> pa.Table:
    """A row for each point of each cell."""
    shown = [cell for cell in analysis.cells if len(cell.gap)]
    lengths = [len(cell.samples) for cell in shown]
    bands = [cell.band or (cell.error(), cell.error()) for cell in shown]
    columns: dict[str, Any] = {
        name: pa.array([getattr(cell, name) for cell in shown]).take(
            np.repeat(np.arange(len(shown)), lengths)
        )
        for name in ("algorithm", "model", "epsilon", "budget", "capped")
    }
    columns["replicates"] = np.repeat([len(cell.gap) for cell in shown], lengths)
    columns["samples"] = np.concatenate([cell.samples for cell in shown])
    columns["error"] = np.concatenate([cell.error() for cell in shown])
    columns["low"] = np.concatenate([low for low, _ in bands])
    columns["high"] = np.concatenate([high for _, high in bands])
    return pa.table(columns)


def _ends(analysis: Analysis) -> pa.Table:
    """A row for each cell: what its runs end with, means over replicates, kernel units."""
    shown = [cell for cell in analysis.cells if len(cell.gap)]
    names = ("algorithm", "model", "gamma", "epsilon", "budget", "capped", "diverged")
    columns: dict[str, Any] = {name: pa.array([getattr(cell, name) for cell in shown]) for name in names}
    bands = [cell.band or (cell.error(), cell.error()) for cell in shown]
    columns["replicates"] = [len(cell.gap) for cell in shown]
    columns["samples"] = [float(cell.samples[-1]) for cell in shown]
    columns["gap"] = [float(cell.gap[:, -1].mean()) for cell in shown]
    excess = [-cell.slack[:, -1].mean(axis=0) for cell in shown]
    columns["violation"] = [float(max(each.max(initial=0.0), 0.0)) for each in excess]
    columns["error"] = [float(cell.error()[-1]) for cell in shown]
    columns["low"] = [float(low[-1]) for low, _ in bands]
    columns["high"] = [float(high[-1]) for _, high in bands]
    return pa.table(columns)


def _csv(table: pa.Table) -> bytes:
    import pyarrow.csv

    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(table, sink)
    return bytes(sink.getvalue())


def _records(kind: type, items: Sequence[Any]) -> pa.Table:
    """Dataclasses as columns, also where there are none of them."""
    return pa.table({field.name: [getattr(item, field.name) for item in items] for field in fields(kind)})


def _page(store: Store, status: Status, analysis: Analysis, images: dict[str, bytes]) -> str:
    manifest, spec = store.manifest(), store.spec()
    title = spec.title or store.path.resolve().name
    runs = sum(len(cell.gap) for cell in analysis.cells)
    models = len({cell.model for cell in analysis.cells})
    left = status.tasks - status.done
    state = (
        "finished"
        if not left
        else f"{left:,} tasks are still to come, {status.failed:,} of them failed when last tried"
    )
    facts = {key: manifest.get(key) for key in ("created", "versions", "identity", "machine")}
    fields = {
        "TITLE": _e(title),
        "STATE": f"{runs:,} runs of {len(analysis.exponents)} algorithms on {models:,} models; {status.done:,} of "
        f"{status.tasks:,} tasks, {state}.",
        "EXPONENTS": _exponents(analysis),
        "EXPONENT_PLOT": _image(
            images["exponents"], "Samples needed against 1/epsilon, one panel an algorithm"
        ),
        "CURVES": _image(images["curves"], "Error against samples, one panel a model"),
        "REACHED": _reached(analysis),
        "SPECIFICATION": _e(spec.to_toml()),
        "FACTS": _e(json.dumps(facts, indent=1)),
        "VERSION": _e(__version__),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match.group(1)], _PAGE.read_text("utf-8"))


def _exponent_row(e: Exponent) -> list[str]:
    """Figures as the text shows them, and the page."""
    return [
        e.algorithm,
        "= of ends" if e.method == "budget" else number(e.exponent, ".2f"),
        "" if e.method == "budget" else _interval(e.low, e.high),
        number(e.ends, ".2f"),
        _interval(e.ends_low, e.ends_high),
        "-" if e.claimed is None else f"{e.claimed:g}",
        f"{e.points} of {e.asked} {'ends' if e.method == 'budget' else 'targets'}",
        str(e.capped),
    ]


def _exponents(analysis: Analysis) -> str:
    head = [*HEAD, "diverged runs", "bound of Table 1", "policies"]
    rows = [[*_exponent_row(e), str(e.diverged), e.bound, e.policies] for e in analysis.exponents]
    return _table("exponents", head, rows) + "".join(f"<p>{_e(text)}.</p>" for text in analysis.remarks())


def _reached(analysis: Analysis) -> str:
    head = ["algorithm", "model", "ε", "samples needed", "95 %", "share of draws", "its schedule", "capped"]
    rows = [
        [
            r.algorithm, r.model, f"{r.epsilon:g}", _needed(r.samples), _interval(r.low, r.high, ".4g"),
            f"{r.share:.0%}", number(r.scheduled, ".4g"), "yes" if r.capped else "",
        ]
        for r in analysis.reached[:MOST_ROWS]
    ]  # fmt: skip
    n = len(analysis.reached)
    more = f"<p>The first {MOST_ROWS:,} of {n:,}; samples.csv has all.</p>" if n > MOST_ROWS else ""
    return _table("samples", head, rows) + more


def _needed(samples: float) -> str:
    if math.isnan(samples):
        return "not reached"
    return f"{samples:.4g}" if samples > 0 else "0 (first policy)"


def _table(name: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f'<th scope="col"><button>{_e(text)}</button></th>' for text in head)
    # The head stands with each cell too, for screens too narrow for columns.
    lines = (
        "".join(f'<td data-head="{_e(h)}">{_e(text)}</td>' for h, text in zip(head, row, strict=True))
        for row in rows
    )
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    inner = f"<thead><tr>{cells}</tr></thead><tbody>\n{body}\n</tbody>"
    return f'<div class="wide"><table id="{name}">{inner}</table></div>'


def _image(svg: bytes, text: str) -> str:
    return f'<img alt="{_e(text)}" src="data:image/svg+xml;base64,{base64.b64encode(svg).decode()}">'


def _interval(low: float, high: float, form: str = ".2f") -> str:
    return "-" if not math.isfinite(low) else f"{number(low, form)} to {number(high, form)}"


def _e(text: str) -> str:
    return html.escape(str(text))
