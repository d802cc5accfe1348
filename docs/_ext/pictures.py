"""How the pictures of the gallery look: one style, in a size that a page has."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def reset(_: dict[str, Any], __: str | Path) -> None:
    """Set Matplotlib's style before each script."""
    import matplotlib

    from fastcmdp.plots import COLOURS, STYLE

    matplotlib.rcdefaults()
    matplotlib.rcParams.update(STYLE)
    matplotlib.rcParams.update(
        {
            "figure.figsize": (7.0, 3.6),
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "figure.constrained_layout.use": True,
            "axes.prop_cycle": matplotlib.cycler(color=COLOURS),
            "image.cmap": "viridis",
        }
    )
