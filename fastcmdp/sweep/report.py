"""The report of a sweep: a page that needs no network, plots, and tables for other programs."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastcmdp
from fastcmdp.sweep.analysis import Analysis, analyse, as_records
from fastcmdp.sweep.coordinator import Status, status_of
from fastcmdp.sweep.plots import plot_curves, plot_exponents
from fastcmdp.sweep.store import Store, StoreError, write_durably

MOST_ROWS = 2000  # of a table on the page; the CSV files have all


@dataclass
class Report:
    """What was made.

    Attributes
    ----------
    status : Status
    analysis : Analysis
    files : dict
        Paths by what they are: html, exponents_csv, samples_csv, curves_csv, and png and svg of both plots.
    """

    status: Status
    analysis: Analysis
    files: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        state = {key: getattr(self.status, key) for key in ("folder", "tasks", "done", "failed", "omitted")}
        return state | {
            "exponents": as_records(self.analysis.exponents),
            "samples": as_records(self.analysis.reached),
            "bootstrap_draws": self.analysis.draws,
            "files": self.files,
        }

    def text(self) -> str:
        """The table of exponents, for reading."""
        head = ["algorithm", "exponent", "95 % interval", "claimed", "points", "capped"]
        table = [head] + [
            [
                e.algorithm, _number(e.exponent, 2), _interval(e.low, e.high),
                "-" if e.claimed is None else f"{e.claimed:g}", f"{e.points} of {e.asked}", str(e.capped),
            ]
            for e in self.analysis.exponents
        ]  # fmt: skip
        widths = [max(len(row[k]) for row in table) for k in range(len(head))]
        lines = ["  ".join(f"{cell:>{w}}" if k else f"{cell:{w}}" for k, (cell, w) in enumerate(zip(row, widths, strict=True)))
                 for row in table]  # fmt: skip
        note = []
        if self.status.done < self.status.tasks:
            note = [f"{self.status.done:,} of {self.status.tasks:,} tasks are done: these figures will change"]
        return "\n".join([*lines, *note])


def report(folder: str | Path, out: str | Path | None = None, *, epsilon: Sequence[float] | None = None) -> Report:
    """Analyse a sweep and write its report.

    Parameters
    ----------
    folder : path
        Of the sweep, finished or not.
    out : path, optional
        Default: ``folder/report``.
    epsilon : sequence of float, optional
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
    found = analyse(store, epsilon)
    status = status_of(store, store.plan())
    target = Path(out) if out is not None else store.path / "report"
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{target}: no folder can be made there ({error.strerror or error})") from error
    plots = {"exponents": plot_exponents(found), "curves": plot_curves(found)}
    images, files = {}, {}
    for name, figure in plots.items():
        for ending in ("png", "svg"):
            data = _drawn(figure, ending, name)
            write_durably(target / f"{name}.{ending}", data)
            files[f"{name}_{ending}"] = str(target / f"{name}.{ending}")
            images[name, ending] = data
    tables = {"exponents": as_records(found.exponents), "samples": as_records(found.reached), "curves": _curves(found)}
    for name, rows in tables.items():
        write_durably(target / f"{name}.csv", _csv(rows))
        files[f"{name}_csv"] = str(target / f"{name}.csv")
    page = _page(store, status, found, {name: images[name, "svg"] for name in plots})
    write_durably(target / "report.html", page.encode())
    files["html"] = str(target / "report.html")
    return Report(status, found, files)


def _drawn(figure: Any, ending: str, salt: str) -> bytes:
    import matplotlib

    sink = io.BytesIO()
    meta = {"Date": None} if ending == "svg" else None
    with matplotlib.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure.savefig(sink, format=ending, dpi=150, metadata=meta)
    return sink.getvalue()


def _curves(found: Analysis) -> list[dict[str, Any]]:
    rows = []
    for cell in found.cells:
        if not len(cell.gap):
            continue
        error = cell.error()
        low, high = cell.band if cell.band is not None else (error, error)
        for i in range(len(error)):
            rows.append(
                {
                    "algorithm": cell.algorithm, "model": cell.model, "epsilon": cell.epsilon, "budget": cell.budget,
                    "capped": cell.capped, "replicates": len(cell.gap), "samples": float(cell.samples[i]),
                    "error": float(error[i]), "low": float(low[i]), "high": float(high[i]),
                }  # fmt: skip
            )
    return rows


def _csv(rows: Sequence[dict[str, Any]]) -> bytes:
    sink = io.StringIO(newline="")
    if rows:
        writer = csv.DictWriter(sink, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return sink.getvalue().encode()


def _page(store: Store, status: Status, found: Analysis, images: dict[str, bytes]) -> str:
    manifest, spec = store.manifest(), store.spec()
    title = spec.title or store.path.resolve().name
    runs = sum(len(cell.gap) for cell in found.cells)
    models = len({cell.model for cell in found.cells})
    left = status.tasks - status.done
    state = "finished" if not left else f"{left:,} tasks are still to come, {status.failed:,} of them failed when last tried"
    parts = [
        f"<h1>{_e(title)}</h1>",
        f"<p>{runs:,} runs of {len(found.exponents)} algorithms on {models:,} models; {status.done:,} of {status.tasks:,} tasks, "
        f"{state}.</p>",
        "<h2>Exponents</h2>",
        "<p>Samples of one run needed for an error of at most &epsilon; are fitted by a<sub>model</sub> &middot; "
        "&epsilon;<sup>&minus;p</sup>. The error is the larger of gap and violation of the mixture so far, means over replicates, "
        "in kernel units (rewards in [0, 1]). Intervals: 95 %, bootstrap over models and replicates. &ldquo;capped&rdquo; counts "
        "configurations whose schedule was cut to the sweep's cap; targets beyond it, and targets that were not reached, are "
        "not in the fit.</p>",
        _exponents(found),
        _image(images["exponents"], "Samples needed against 1/epsilon, one panel an algorithm"),
        "<h2>Error against samples</h2>",
        _image(images["curves"], "Error against samples, one panel a model"),
        "<p>Lines: the longest runs of each algorithm, with the 95 % band of the mean over replicates. Dots: the ends of its runs for "
        "other targets. At most nine models are drawn.</p>",
        "<h2>Samples needed</h2>",
        _reached(found),
        "<h2>Specification</h2>",
        f"<pre>{_e(spec.to_toml())}</pre>",
        "<h2>Versions and machine</h2>",
        f"<pre>{_e(json.dumps({k: manifest.get(k) for k in ('created', 'versions', 'identity', 'machine')}, indent=1))}</pre>",
        f"<p>Made by fastcmdp {_e(fastcmdp.__version__)}.</p>",
    ]
    return _PAGE.replace("TITLE", _e(title)).replace("BODY", "\n".join(parts))


def _exponents(found: Analysis) -> str:
    head = ["algorithm", "exponent", "95 % interval", "claimed", "bound of Table 1", "policies", "points in the fit", "capped",
            "diverged runs", "from"]  # fmt: skip
    rows = [
        [
            e.algorithm, _number(e.exponent, 2), _interval(e.low, e.high), "" if e.claimed is None else f"{e.claimed:g}", e.bound,
            e.policies, f"{e.points} of {e.asked}", str(e.capped), str(e.diverged),
            "errors at budgets" if e.method == "budget" else "samples to reach ε",
        ]
        for e in found.exponents
    ]  # fmt: skip
    return _table("exponents", head, rows)


def _reached(found: Analysis) -> str:
    head = ["algorithm", "model", "ε", "samples needed", "95 % interval", "share of draws", "samples of the schedule", "capped"]
    rows = [
        [
            r.algorithm, r.model, f"{r.epsilon:g}", "not reached" if math.isnan(r.samples) else f"{r.samples:.4g}",
            _interval(r.low, r.high, 4), f"{r.share:.0%}", _number(r.scheduled, 4), "yes" if r.capped else "",
        ]
        for r in found.reached[:MOST_ROWS]
    ]  # fmt: skip
    more = "" if len(found.reached) <= MOST_ROWS else f"<p>The first {MOST_ROWS:,} of {len(found.reached):,}; samples.csv has all.</p>"
    return "<p>A click on a column's head sorts by it.</p>" + _table("samples", head, rows) + more


def _table(name: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f'<th scope="col"><button>{_e(text)}</button></th>' for text in head)
    body = "\n".join("<tr>" + "".join(f"<td>{_e(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table id="{name}"><thead><tr>{cells}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _image(svg: bytes, text: str) -> str:
    return f'<img alt="{_e(text)}" src="data:image/svg+xml;base64,{base64.b64encode(svg).decode()}">'


def _number(value: float, digits: int) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:.{digits}f}" if digits <= 2 else f"{value:.{digits}g}"


def _interval(low: float, high: float, digits: int = 2) -> str:
    return "-" if not math.isfinite(low) else f"{_number(low, digits)} to {_number(high, digits)}"


def _e(text: str) -> str:
    return html.escape(str(text))


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>TITLE</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 74rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: 0.3rem; }
h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd; padding-bottom: 0.2rem; }
p { max-width: 50rem; }
img { display: block; max-width: 100%; height: auto; margin: 1rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.7rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
#samples td:nth-child(2), #samples th:nth-child(2) { text-align: left; }
th { border-bottom: 2px solid #999; vertical-align: bottom; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid #0072b2; }
th[aria-sort="ascending"] button::after { content: " \\25B2"; }
th[aria-sort="descending"] button::after { content: " \\25BC"; }
tbody tr:hover { background: #f5f8fb; }
pre { background: #f6f6f6; padding: 0.8rem 1rem; overflow-x: auto; font-size: 12.5px; max-height: 26rem; }
</style>
</head>
<body>
BODY
<script>
// Sort a table by a column: numbers by value, what is no number after them, by its letters.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, k) => head.firstChild.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = row => { const text = row.cells[k].textContent, x = parseFloat(text); return [isNaN(x) ? Infinity : x, text]; };
    const rows = [...table.tBodies[0].rows].map(row => [key(row), row]);
    rows.sort(([[x, s]], [[y, t]]) => (up ? 1 : -1) * (x === y ? s.localeCompare(t) : x < y ? -1 : 1));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }));
}
</script>
</body>
</html>
"""
