"""How the pictures of the gallery look: one style, in a size that a page has; and those that fastcmdp drew itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DRAWN: set[int] = set()  # figures that are on the page already


def reset(_: dict[str, Any], __: str | Path) -> None:
    """Set Matplotlib's style before each script."""
    DRAWN.clear()
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


def figures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Figures that a block holds under a name and that pyplot does not know, as `plot_run` and others return them."""
    from matplotlib.figure import Figure
    from matplotlib.pyplot import fignum_exists
    from sphinx_gallery.scrapers import figure_rst

    paths = []
    for value in list(block_vars["example_globals"].values()):
        managed = getattr(value, "number", None)
        if not isinstance(value, Figure) or id(value) in DRAWN or (managed and fignum_exists(managed)):
            continue
        DRAWN.add(id(value))
        if managed is None:
            path = next(block_vars["image_path_iterator"])
            value.savefig(path)
            paths.append(path)
    return figure_rst(paths, gallery_conf["src_dir"])
