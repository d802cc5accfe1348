"""Pictures of a run, and of several compared. Matplotlib is imported when the first one is drawn."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.check import optional
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.runs import Result, curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fastcmdp.comparison import Comparison
    from fastcmdp.exact import Frontier
    from fastcmdp.simulators.simulator import Simulator

Float = NDArray[np.float64]

# Okabe and Ito's colours, which stay apart for all kinds of colour vision.
LEARNED = "#0072B2"
OPTIMUM = "#D55E00"
LIMIT = "#000000"
FEASIBLE = "#009E73"
COLOURS = (LEARNED, OPTIMUM, FEASIBLE, "#CC79A7", "#56B4E9", "#E69F00", LIMIT, "#7A7A7A")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
ENDINGS = (".png", ".svg", ".pdf")  # of files that plots are written to
DASHES = ("-", "--", ":")
ALLOWED: dict[str, Any] = {"color": FEASIBLE, "alpha": 0.12, "linewidth": 0, "zorder": 0}
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
}


def plot_run(result: Result, path: str | Path | None = None, *, title: str | None = None) -> Figure:
    """Draw J_r, and below it each constraint's J, against the transitions drawn by one replicate.

    The thick line is the mixture of the policies of the output so far (the mean of their J up to there, which
    guarantees are about), the light one the policies themselves at the trace points, or their means between these where
    the model is too large to evaluate them; both are means over replicates, each in a band from the least replicate
    to the greatest. Lines mark the optimum and the limit; the side of the limit that is allowed is shaded.

    Parameters
    ----------
    result : Result
        Finished or not.
    path : path, optional
        Where to write it; the format follows from the ending (.png, .svg, .pdf).
    title : str, optional
        Default: the algorithm and the size of the model.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    SettingError
        Matplotlib is not installed, or ``path`` ends otherwise.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> from fastcmdp.plots import plot_run
    >>> result = fc.solve(fc.envs.river_swim(), fc.PDANPG(outer=20, inner=10), replicates=2)
    >>> len(plot_run(result).axes)
    2
    """
    check_ending(path)
    matplotlib = optional("matplotlib", "a plot", "plot")
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    cmdp, n_panels = result.cmdp, 1 + result.cmdp.n_constraints
    samples, iterates, mixture = curves(result)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 1.0 + 2.3 * n_panels), layout="constrained")
        panels = figure.subplots(n_panels, 1, sharex=True, squeeze=False)[:, 0]
        for i, axes in enumerate(panels):
            _band(axes, samples, iterates[:, :, i], light=True)
            _band(axes, samples, mixture[:, :, i], light=False)
            _mark(axes, _marks(result, i))
            if i > 0:
                _shade(axes, float(cmdp.limits[i - 1]), cmdp.sense[i - 1])
            axes.set_ylabel(_axis_name(cmdp.names[i], i, cmdp.n_constraints))
        panels[0].set_title(_plain(title or _title(result), 76), loc="left")
        panels[-1].set_xlabel("transitions drawn by one replicate")
        panels[-1].xaxis.set_major_formatter(EngFormatter(sep=""))
        panels[-1].set_xlim(0, max(float(samples.max(initial=0)), 1.0))
        figure.align_ylabels(panels)
        _legend(figure, len(iterates), result.trace.exact, bool(cmdp.n_constraints))
        _save(figure, path)
    return figure


def check_ending(path: str | Path | None) -> None:
    """Raise a SettingError unless a plot can be written to a file of that name: before drawing, or a long run."""
    if path is not None and Path(path).suffix.lower() not in ENDINGS:
        raise SettingError(f"{path}: a plot is a file {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")


def _save(figure: Figure, path: str | Path | None) -> None:
    if path is not None:
        figure.savefig(path, dpi=150)


def plot_comparison(
    comparison: Comparison, path: str | Path | None = None, *, title: str | None = None
) -> Figure:
    """Draw relative gap and violation of the mixture against the transitions of one replicate, a line a method.

    With several budgets a point is a run to its end, with a schedule of its own. With one budget a line is the
    mixture so far along that run, which guarantees say nothing about but at the end. Bands are 95 % bootstrap
    intervals over replicates. The axes are logarithmic; below the lowest decade that matters the vertical ones are
    linear down to 0, where what is met, or better than the optimum, is drawn.

    Parameters
    ----------
    comparison : Comparison
    path : path, optional
        Where to write it; the format follows from the ending (.png, .svg, .pdf).
    title : str, optional
        Default: the size of the model.

    Raises
    ------
    SettingError
        Matplotlib is not installed, or ``path`` ends otherwise.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> from fastcmdp.plots import plot_comparison
    >>> found = fc.compare(fc.envs.river_swim(), "pd-anpg", samples=[1e5, 2e5], replicates=2)
    >>> [axes.get_ylabel() for axes in plot_comparison(found).axes]
    ['gap / range', 'violation / range']
    """
    check_ending(path)
    matplotlib = optional("matplotlib", "a plot", "plot")
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    cmdp = comparison.cmdp
    lines = comparison.lines()
    single = len({entry.budget for entry in comparison.entries}) <= 1
    with matplotlib.rc_context(STYLE):
        n_panels = 1 + bool(cmdp.n_constraints)
        figure = Figure(figsize=(7.0, 1.2 + 2.6 * n_panels), layout="constrained")
        panels = figure.subplots(n_panels, 1, sharex=True, squeeze=False)[:, 0]
        handles = []
        for k, line in enumerate(lines):
            look: dict[str, Any] = {
                "color": COLOURS[k % len(COLOURS)],
                "linestyle": DASHES[k // len(COLOURS) % 3],
            }
            if not single:
                look |= {"marker": MARKERS[k % len(MARKERS)], "markersize": 4.5}
            for axes, band in zip(panels, (line.gap, line.violation), strict=False):
                low, mean, high = (np.maximum(part, 0.0) for part in (band.low, band.mean, band.high))
                drawn = axes.plot(line.samples, mean, linewidth=1.6, label=line.label, **look)
                axes.fill_between(line.samples, low, high, color=look["color"], alpha=0.15, linewidth=0)
            handles += drawn
        for i, (axes, name) in enumerate(zip(panels, ("gap / range", "violation / range"), strict=False)):
            bands = [(line.gap, line.violation)[i] for line in lines]
            _logarithm_and_zero(
                axes, np.concatenate([[], *(np.ravel((b.low, b.mean, b.high)) for b in bands)])
            )
            axes.set_ylabel(name)
            axes.set_xscale("log")
            axes.grid(color="0.9", linewidth=0.6)
            axes.set_axisbelow(True)
        panels[0].set_title(_plain(title or _size(cmdp), 76) + "\n" + _what(comparison, single), loc="left")
        panels[-1].set_xlabel("transitions drawn by one replicate")
        panels[-1].xaxis.set_major_formatter(EngFormatter(sep=""))
        figure.align_ylabels(panels)
        longest = max((len(line.label) for line in lines), default=1)
        ncols = max(1, min(4, len(lines), 92 // (longest + 8)))
        figure.legend(handles=handles, loc="outside lower center", ncols=ncols, columnspacing=1.6)
        _save(figure, path)
    return figure


def plot_frontier(frontier: Frontier, path: str | Path | None = None, *, title: str | None = None) -> Figure:
    """Draw the best reward against the limit of a constraint, with the multiplier, its slope, below.

    Parameters
    ----------
    frontier : Frontier
    path : path, optional
        Where to write it; the format follows from the ending (.png, .svg, .pdf).
    title : str, optional
        Default: what the points are.

    Raises
    ------
    SettingError
        Matplotlib is not installed, or ``path`` ends otherwise.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> from fastcmdp.plots import plot_frontier
    >>> [axes.get_ylabel() for axes in plot_frontier(fc.frontier(fc.envs.river_swim())).axes]
    ['best reward', 'multiplier']
    """
    check_ending(path)
    matplotlib = optional("matplotlib", "a plot", "plot")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 4.8), layout="constrained")
        reward, multiplier = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        few = len(frontier.limits) <= 60  # more marks would be a band
        reward.plot(
            frontier.limits,
            frontier.rewards,
            color=OPTIMUM,
            linewidth=1.6,
            marker="o" if few else "",
            markersize=3,
        )
        finite = np.where(np.isfinite(frontier.duals), frontier.duals, np.nan)
        # At each point the multiplier jumps from the slope on one side to that on the other.
        multiplier.plot(
            np.repeat(frontier.limits, 2), _by_limit(frontier, finite), color=LEARNED, linewidth=1.4
        )
        reward.set_ylabel("best reward")
        multiplier.set_ylabel("multiplier")
        multiplier.set_xlabel(f"limit of {_plain(frontier.name, 40)} {frontier.sense}")
        multiplier.set_ylim(bottom=0.0)
        for axes in (reward, multiplier):
            axes.grid(color="0.9", linewidth=0.6)
            axes.set_axisbelow(True)
        kind = "all breakpoints" if frontier.complete else "some points"
        reward.set_title(_plain(title or f"{len(frontier.limits)} points, {kind}", 76), loc="left")
        _save(figure, path)
    return figure


def _by_limit(frontier: Frontier, duals: Float) -> Float:
    """Multipliers on the left and on the right of each limit, in turn."""
    return (duals[:, ::-1] if frontier.sense == "<=" else duals).ravel()


def _what(comparison: Comparison, single: bool) -> str:
    """What the lines and bands are, as the second line of a title."""
    replicates = comparison.entries[0].result.samples.size if comparison.entries else 0
    what = "mixture of the policies so far" if single else "mixture of a whole run at each budget"
    return f"{what}; {replicates} replicates, bands: 95 % intervals"


LEAST_SHOWN = 1e-4  # relative errors: below, they are drawn on a linear part of the axis that ends at 0
MOST_DECADES = 4


def _logarithm_and_zero(axes: Axes, values: Float) -> None:
    """A logarithmic axis; with a linear part that ends at 0 where there are values of (nearly) 0."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, SymmetricalLogLocator

    known = values[np.isfinite(values)]
    top = max(float(known.max(initial=0.0)), 10 * LEAST_SHOWN)
    lowest = float(known[known > 0].min(initial=top))
    floor = max(10.0 ** np.floor(np.log10(lowest)), LEAST_SHOWN, top * 10.0**-MOST_DECADES)
    subs = (1.0, 2.0, 5.0) if top / floor < 30 else (1.0,)
    if known.min(initial=top) >= floor:
        axes.set_yscale("log")
        axes.set_ylim(0.8 * lowest, top * 1.25)
        axes.yaxis.set_major_locator(LogLocator(10.0, subs))
    else:
        axes.set_yscale("symlog", linthresh=floor, linscale=0.5)
        axes.set_ylim(-0.12 * floor, top * 1.25)
        axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10.0, linthresh=floor, subs=list(subs)))
        axes.axhline(0.0, color="0.4", linewidth=0.8, zorder=0.5)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.3g} %" if y else "0"))
    axes.yaxis.set_minor_locator(NullLocator())


def _band(axes: Axes, x: Float, values: Float, *, light: bool) -> None:
    """Mean over replicates as a line, least to greatest as a band around it."""
    known = np.ma.masked_invalid(values)
    mean, low, high = (part.filled(np.nan) for part in (known.mean(0), known.min(0), known.max(0)))
    axes.plot(
        x, mean, color=LEARNED, linewidth=0.9 if light else 2.2, alpha=0.55 if light else 1.0, zorder=2.5
    )
    if len(values) > 1:
        axes.fill_between(x, low, high, color=LEARNED, alpha=0.12 if light else 0.3, linewidth=0, zorder=2)


_Mark = tuple[float, str, str, str]  # value, label, colour, line style


def _marks(result: Result, i: int) -> list[_Mark]:
    """The lines across panel i."""
    cmdp, best = result.cmdp, result.optimum
    optimum = None if best is None else float(best.reward if i == 0 else best.constraints[i - 1])
    marks: list[_Mark] = []
    if i > 0:
        limit = float(cmdp.limits[i - 1])
        sign = "≤" if cmdp.sense[i - 1] == "<=" else "≥"
        same = optimum is not None and abs(optimum - limit) <= 1e-6 * max(abs(limit), 1e-3)
        marks.append((limit, f"limit {sign} {limit:.4g}" + "\n(and optimum)" * same, LIMIT, "-"))
        if same:
            return marks
    if optimum is not None:
        marks.append((optimum, f"optimum {optimum:.4g}", OPTIMUM, "--"))
    return marks


def _mark(axes: Axes, marks: list[_Mark]) -> None:
    """Draw the lines, fit the panel to them and the curves, and name them in the margin on the right."""
    for value, _, colour, style in marks:
        axes.axhline(value, color=colour, linestyle=style, linewidth=1.2, zorder=3)
    axes.margins(y=0.06)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)  # fixed, so that the shade may reach the edge
    ordered = sorted(marks)
    for k, (value, label, colour, _) in enumerate(ordered):
        near = len(ordered) > 1 and abs(ordered[1][0] - ordered[0][0]) < 0.12 * (high - low)
        align = "center" if not near else ("top", "bottom")[k]
        axes.annotate(
            label, (1.0, value), (4, 0), ("axes fraction", "data"), "offset points", color=colour, va=align,
            annotation_clip=False,
        )  # fmt: skip


def _shade(axes: Axes, limit: float, sense: str) -> None:
    low, high = axes.get_ylim()
    axes.axhspan(low if sense == "<=" else limit, limit if sense == "<=" else high, **ALLOWED)


def _legend(figure: Figure, replicates: int, exact: bool, constrained: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Line2D([], [], color=LEARNED, linewidth=2.2),
        Line2D([], [], color=LEARNED, linewidth=0.9, alpha=0.55),
    ]
    labels = ["mixture of all policies so far", "the policies" if exact else "the policies, estimated"]
    if replicates > 1:
        handles.append(Patch(color=LEARNED, alpha=0.3, linewidth=0))
        labels.append(f"{replicates} replicates, least to greatest; line: mean")
    if constrained:
        handles.append(Patch(**ALLOWED))
        labels.append("limit met")
    figure.legend(handles, labels, loc="outside lower center", ncols=2, columnspacing=2.0)


def _title(result: Result) -> str:
    return f"{result.algorithm.name}: {_size(result.cmdp)}"


def _size(model: CMDP | Simulator) -> str:
    size = f"{model.n_actions} actions"
    if isinstance(model, CMDP):
        size = f"{model.n_states:,} states, {model.n_choices:,} choices"
    return f"{size}, gamma {model.gamma:g}"


def _axis_name(name: str, i: int, m: int) -> str:
    symbol = "$J_r$" if i == 0 else "$J_c$" if m == 1 else f"$J_{{c{i}}}$"
    return f"{symbol}  {_plain(name, 28)}"


def _plain(text: str, width: int) -> str:
    """Text in lines of at most so many characters, with nothing taken for mathematics."""
    return textwrap.fill(text, width, break_on_hyphens=False).replace("$", r"\$")
