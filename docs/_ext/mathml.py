"""Mathematics as MathML, made while the site is built: no script and no network is needed to read it.

Browsers place scripts and stretch signs by a table that only fonts for mathematics have, and many machines have none.
So STIX Two Math (SIL Open Font License), as the package ziamath brings it, goes along, cut down to the signs in use.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

LOG = logging.getLogger(__name__)


def made(node: Any, display: str) -> str:
    """The MathML of a node; what was not understood is told, since it would be shown as it stands."""
    found = convert(node.astext(), display=display)
    if re.search(r"<m\w+>(&<|\\)", found):
        LOG.warning("mathematics that cannot be shown: %s", node.astext(), location=node)
    return str(found)


def inline(self: Any, node: nodes.math) -> None:
    """Mathematics within a line."""
    self.body.append(made(node, "inline"))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    """Mathematics on lines of its own; it scrolls by itself where it is wider than the page."""
    self.body.append(f'<div class="math-block">{made(node, "block")}</div>')
    raise nodes.SkipNode


# fmt: off
SIGNS = [(0x20, 0x7E), (0xA0, 0xFF), (0x300, 0x36F), (0x370, 0x3FF), (0x2010, 0x2044), (0x2061, 0x2064),
         (0x2100, 0x214F), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2308, 0x230B), (0x27E8, 0x27E9), (0x1D400, 0x1D7FF)]
# fmt: on


def font(app: Any, error: Exception | None) -> None:
    """Write the font beside the style sheet that names it."""
    if error is not None or app.builder.format != "html":
        return
    import ziamath
    from fontTools import subset

    options = subset.Options(flavor="woff", layout_features=["*"], notdef_outline=True, drop_tables=["DSIG"])
    source = Path(ziamath.__file__).parent / "fonts" / "STIXTwoMath-Regular.ttf"
    loaded = subset.load_font(str(source), options)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=[code for low, high in SIGNS for code in range(low, high + 1)])
    cutter.subset(loaded)
    subset.save_font(loaded, str(Path(app.outdir) / "_static" / "mathematics.woff"), options)


def setup(app: Any) -> dict[str, bool]:
    """For Sphinx."""
    app.connect("build-finished", font)
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
