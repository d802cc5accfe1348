r"""Tables for papers: LaTeX with the rules of booktabs, intervals, and the best of each column in bold.

`\usepackage{booktabs}` is all that the paper needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fastcmdp.errors import SettingError
from fastcmdp.text import unknown

# What a column can show: its head, and how many of its units make one of the figure.
FIGURES = {
    "error": (r"error (\%)", 100.0),
    "gap": ("gap", 1.0),
    "violation": ("violation", 1.0),
    "reward": ("reward", 1.0),
    "error_iqm": (r"error, IQM (\%)", 100.0),
}
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def escape(text: str) -> str:
    r"""Text as LaTeX prints it.

    Examples
    --------
    >>> print(escape("c_K = 10%"))
    c\_K = 10\%
    """
    return "".join(_SPECIAL.get(c, c) for c in text)


def power(value: float) -> str:
    """A budget in mathematics: a power of ten, with its factor where that is not 1.

    Examples
    --------
    >>> power(1e6), power(2.5e5), power(300)
    ('$10^{6}$', '$2.5\\\\times 10^{5}$', '$300$')
    """
    if value < 1e4:
        return f"${value:.4g}$"
    exponent = math.floor(math.log10(value) + 1e-12)
    factor = f"{value / 10.0**exponent:.3g}"
    return f"$10^{{{exponent}}}$" if factor == "1" else rf"${factor}\times 10^{{{exponent}}}$"


def _cell(ends: Mapping[str, float | None], factor: float, best: bool) -> str:
    if ends["mean"] is None:
        return "--"
    mean, low, high = (
        0.0 if x is None else factor * x + 0.0 for x in (ends["mean"], ends["low"], ends["high"])
    )
    shown = rf"\mathbf{{{mean:.3g}}}" if best else f"{mean:.3g}"
    return f"${shown}$" if low == high else rf"${shown}\;[{low:.2g},\,{high:.2g}]$"


def _best(column: Sequence[Mapping[str, Any] | None], figure: str) -> set[int]:
    """Rows with the best mean as it is printed; of gaps and rewards, among methods that keep the limits."""
    shown: dict[int, float] = {}
    for i, entry in enumerate(column):
        if entry is None or entry[figure]["mean"] is None:
            continue
        if figure in ("gap", "reward") and entry["missed"]:
            continue
        value = float(f"{entry[figure]['mean']:.3g}")
        shown[i] = -value if figure == "reward" else value
    return {i for i, value in shown.items() if value == min(shown.values())}


def table(
    entries: Iterable[Mapping[str, Any]],
    figures: Sequence[str],
    caption: str | None = None,
    label: str | None = None,
    column: Callable[[float], str] = power,
) -> str:
    r"""A tabular of methods by budgets and figures, in a table where it has a caption or a label.

    Parameters
    ----------
    entries : iterable of mappings
        With ``name``, ``budget``, ``missed`` (whether a limit is missed) and the figures, each with ``mean``, ``low``
        and ``high``.
    figures : sequence of names
        Of `FIGURES`.
    caption, label : str, optional
        The caption is LaTeX already.
    column : callable
        From a budget to its head.

    Raises
    ------
    SettingError
        An unknown figure, or none.

    Examples
    --------
    >>> one = {"name": "a_b", "budget": 1e6, "missed": False, "gap": {"mean": 0.25, "low": 0.2, "high": 0.3}}
    >>> print(table([one], ["gap"]))
    \begin{tabular}{lr}
    \toprule
     & \multicolumn{1}{c}{$10^{6}$} \\
    \cmidrule(lr){2-2}
    method & gap \\
    \midrule
    a\_b & $\mathbf{0.25}\;[0.2,\,0.3]$ \\
    \bottomrule
    \end{tabular}
    """
    for name in figures:
        if name not in FIGURES:
            raise SettingError(unknown("figure", name, FIGURES))
    if not figures or isinstance(figures, str):
        raise SettingError(
            f"figures = {figures!r}: a list of one or more of {', '.join(FIGURES)} is expected"
        )
    cells = {(entry["name"], entry["budget"]): entry for entry in entries}
    names, budgets = list(dict.fromkeys(name for name, _ in cells)), sorted({budget for _, budget in cells})
    n = len(figures)
    heads = [rf"\multicolumn{{{n}}}{{c}}{{{column(budget)}}}" for budget in budgets]
    rules = "".join(rf"\cmidrule(lr){{{2 + n * i}-{1 + n * (i + 1)}}}" for i in range(len(budgets)))
    lines = [r"\begin{tabular}{l" + "r" * n * len(budgets) + "}", r"\toprule"]
    lines += [" & " + " & ".join(heads) + r" \\", rules]
    lines += [
        " & ".join(["method"] + [FIGURES[name][0] for name in figures] * len(budgets)) + r" \\",
        r"\midrule",
    ]
    rows = [[escape(name)] for name in names]
    for budget in budgets:
        column_of = [cells.get((name, budget)) for name in names]
        for figure in figures:
            best = _best(column_of, figure)
            for i, entry in enumerate(column_of):
                rows[i].append("--" if entry is None else _cell(entry[figure], FIGURES[figure][1], i in best))
    lines += [" & ".join(row) + r" \\" for row in rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if caption is None and label is None:
        return "\n".join(lines)
    around = [r"\begin{table}", r"\centering"]
    around += [] if caption is None else [rf"\caption{{{caption}}}"]
    around += [] if label is None else [rf"\label{{{label}}}"]
    return "\n".join([*around, *lines, r"\end{table}"])
