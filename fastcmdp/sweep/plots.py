"""The plots of a report. Matplotlib is imported when the first one is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.check import optional
from fastcmdp.plots import STYLE
from fastcmdp.sweep.analysis import Analysis, Exponent
from fastcmdp.sweep.cells import Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's, without yellow, which is faint on white, and with a grey in its place.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":")
_BEYOND = math.log(2.0)  # how far a slope may be drawn above and below the points
PANELS = 9  # models that are drawn; tables have all of them


def look(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and line style of each algorithm, the same in all plots."""
    return {
        label: {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % len(DASHES)]}
        for i, label in enumerate(labels)
    }


def _figure(n_panels: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    columns = min(columns, max(n_panels, 1))
    rows = -(-max(n_panels, 1) // columns)
    figure = Figure(figsize=(max(width * columns, 5.2), height * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    panels: list[Axes] = list(grid.ravel())
    for spare in panels[n_panels:]:
        spare.set_visible(False)
    return figure, panels[:n_panels]


def _styled(draw: Callable[[Analysis], Figure]) -> Callable[[Analysis], Figure]:
    """Draw, and later write, in the style of the other plots."""

    @wraps(draw)
    def styled(analysis: Analysis) -> Figure:
        with optional("matplotlib", "a report", "plot").rc_context(STYLE):
            return draw(analysis)

    return styled


def _name_axes(panels: Sequence[Axes], columns: int, x: str, y: str) -> None:
    """Names below the lowest panel of each column and beside the first of each row."""
    for k, axes in enumerate(panels):
        if k + columns >= len(panels):
            axes.tick_params(labelbottom=True)
            axes.set_xlabel(x)
        if k % columns == 0:
            axes.set_ylabel(y)


@_styled
def plot_exponents(analysis: Analysis) -> Figure:
    """Samples needed against 1/epsilon, a panel an algorithm: models, their fit, and the slope that is claimed."""
    labels = [e.algorithm for e in analysis.exponents]
    styles = look(labels)
    figure, panels = _figure(len(labels), 4, 2.55, 2.5)
    methods = {e.method for e in analysis.exponents}
    x_name = "1 / ε or 1 / error" if len(methods) > 1 else "1 / error" if "budget" in methods else "1 / ε"
    for axes, exponent in zip(panels, analysis.exponents, strict=True):
        axes.set_xscale("log")
        axes.set_yscale("log")
        colour = styles[exponent.algorithm]["color"]
        points = _points(analysis, exponent)
        for x, y in points:
            axes.plot(x, y, "o-", color=colour, markersize=3.2, linewidth=0.7, alpha=0.45)
        _lines(axes, exponent, points, colour)
        axes.set_title(_short(exponent.algorithm, 27), loc="left")
        axes.grid(True, which="major", color="#dddddd", linewidth=0.5)
        axes.text(
            0.03, 0.97, _said(exponent), transform=axes.transAxes, va="top", fontsize=7.5,
            bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1.5},
        )  # fmt: skip
    for axes in panels:
        axes.margins(x=0.08, y=0.22)
    _ticks(panels)
    _name_axes(panels, 4, x_name, "samples of one run")
    _key(figure)
    return figure


def _points(analysis: Analysis, exponent: Exponent) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """1/epsilon and samples, a pair of arrays a model."""
    by_model: dict[str, list[tuple[float, float]]] = {}
    if exponent.method == "budget":
        for cell in analysis.cells:
            if (
                cell.algorithm == exponent.algorithm
                and len(cell.gap)
                and (error := float(cell.error()[-1])) > 0
            ):
                by_model.setdefault(cell.model, []).append((1 / error, float(cell.samples[-1])))
    else:
        for row in analysis.reached:
            if row.algorithm == exponent.algorithm and row.samples > 0 and math.isfinite(row.scheduled):
                by_model.setdefault(row.model, []).append((1 / row.epsilon, row.samples))
    pairs = [np.array(sorted(rows, key=lambda row: row[1] if exponent.method == "budget" else row[0]))
             for rows in list(by_model.values())[:200]]  # fmt: skip
    return [(rows[:, 0], rows[:, 1]) for rows in pairs]


def _lines(axes: Axes, exponent: Exponent, points: list[tuple[Any, Any]], colour: str) -> None:
    """The fitted slope, solid, and the claimed one, dashed, through the middle of the points and not beyond them."""
    if not points:
        axes.text(0.5, 0.5, "not reached", transform=axes.transAxes, ha="center", color="#777777")
        return
    x = np.log(np.concatenate([p[0] for p in points]))
    y = np.log(np.concatenate([p[1] for p in points]))
    if x.max() <= x.min():
        return
    for slope, style, shade in ((exponent.exponent, "-", colour), (exponent.claimed, "--", "#000000")):
        if slope is not None and math.isfinite(slope):
            heights = np.array([y.min(), y.max()]) - y.mean() + [-_BEYOND, _BEYOND]
            across = np.sort(heights / slope) if slope else np.array([-np.inf, np.inf])
            ends = np.clip([x.min(), x.max()], *(x.mean() + across))
            axes.plot(
                np.exp(ends), np.exp(y.mean() + slope * (ends - x.mean())), style, color=shade,
                linewidth=2.0 if style == "-" else 1.1, zorder=3,
            )  # fmt: skip


def _said(exponent: Exponent) -> str:
    claimed = "" if exponent.claimed is None else f"\nclaimed {exponent.claimed:g}"
    if not math.isfinite(exponent.exponent):
        return f"no fit{claimed}"
    spread = "" if not math.isfinite(exponent.low) else f" [{exponent.low:.2f}, {exponent.high:.2f}]"
    return f"{exponent.exponent:.2f}{spread}{claimed}"


def _key(figure: Figure) -> None:
    from matplotlib.lines import Line2D

    grey = "#666666"
    handles = [
        Line2D([], [], color=grey, marker="o", markersize=3.2, linewidth=0.7, alpha=0.6),
        Line2D([], [], color=grey, linewidth=2.0),
        Line2D([], [], color="#000000", linewidth=1.1, linestyle="--"),
    ]
    names = ["models", "fitted slope [95 %]", "slope of the claim"]
    figure.legend(handles, names, loc="outside lower center", ncols=3)


@_styled
def plot_curves(analysis: Analysis) -> Figure:
    """Error against samples, a panel a model: for each algorithm its longest runs with their band.

    Dots: the ends of its other runs, whose schedules are for other targets.
    """
    models = list(dict.fromkeys(cell.model for cell in analysis.cells if len(cell.gap)))
    labels = [e.algorithm for e in analysis.exponents]
    styles = look(labels)
    shown = models[:PANELS]
    figure, panels = _figure(len(shown), 3, 3.3, 2.6)
    for axes, model in zip(panels, shown, strict=True):
        axes.set_xscale("log")
        axes.set_yscale("log")
        for label in labels:
            own = [
                cell
                for cell in analysis.cells
                if (cell.algorithm, cell.model) == (label, model) and len(cell.gap)
            ]
            _curves(axes, own, styles[label])
        axes.set_title(_short(model, 52), loc="left", fontsize=8)
        axes.grid(True, which="major", color="#dddddd", linewidth=0.5)
    _ticks(panels)
    _name_axes(panels, 3, "samples of one run", "error")
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **styles[label], linewidth=1.6) for label in labels]
    figure.legend(
        handles,
        [_short(label, 40) for label in labels],
        loc="outside lower center",
        ncols=min(4, len(labels)),
    )
    return figure


def _curves(axes: Axes, own: Sequence[Cell], style: dict[str, Any]) -> None:
    if not own:
        return
    longest = max(own, key=lambda cell: cell.samples[-1])
    for cell in own:
        error = cell.error()
        seen = (cell.samples > 0) & (error > 0)
        if cell is longest:
            axes.plot(cell.samples[seen], error[seen], **style, linewidth=1.6)
            if cell.band is not None and len(cell.gap) > 1:
                low, high = cell.band
                axes.fill_between(
                    cell.samples[seen], np.maximum(low[seen], error[seen] * 1e-2), high[seen], color=style["color"],
                    alpha=0.18, linewidth=0,
                )  # fmt: skip
        elif seen[-1]:
            axes.plot(cell.samples[-1], error[-1], "o", color=style["color"], markersize=3.5)


def _ticks(panels: Sequence[Axes]) -> None:
    """Ticks that can be read where an axis spans less than two decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axes in panels:
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            decades = math.log10(high / low) if low > 0 else 3.0
            if decades < 2.2:
                axis.set_major_locator(
                    LogLocator(subs=(1.0, 2.0, 5.0) if decades > 0.9 else (1, 1.5, 2, 3, 4, 6))
                )
                axis.set_major_formatter(
                    FuncFormatter(lambda value, _: f"{value:.3g}" if value < 1e4 else _power(value))
                )
            axis.set_minor_formatter(NullFormatter())


def _power(value: float) -> str:
    exponent = math.floor(math.log10(value) + 1e-9)
    factor = value / 10**exponent
    return f"$10^{{{exponent}}}$" if abs(factor - 1) < 1e-6 else f"${factor:.2g}{{\\cdot}}10^{{{exponent}}}$"


def _short(text: str, width: int) -> str:
    text = text.removeprefix("env:")
    return (text if len(text) <= width else text[: width - 1] + "…").replace("$", r"\$")
