"""The reference: for each module that users call a page with its text and a table of its public names, a page each.

What is public is what a module's ``__all__`` says, so a new name is in the reference when it is in there.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

# Module, and what its page is called.
MODULES = {
    "fastcmdp": "fastcmdp",
    "fastcmdp.exact": "exact answers",
    "fastcmdp.envs": "models to try",
    "fastcmdp.simulators": "simulators",
    "fastcmdp.policies": "policy classes",
    "fastcmdp.duals": "dual steps",
    "fastcmdp.runs": "runs and results",
    "fastcmdp.comparison": "comparisons",
    "fastcmdp.aggregates": "figures of many runs",
    "fastcmdp.plots": "pictures",
    "fastcmdp.sweep": "sweeps",
    "fastcmdp.theory": "the theory",
    "fastcmdp.bench": "the bench",
    "fastcmdp.embed": "pieces for other programs",
    "fastcmdp.io": "models in files",
}


def public(module: str) -> list[str]:
    """Public names of a module: its ``__all__``, or what is defined there and has no underscore."""
    found = importlib.import_module(module)
    if hasattr(found, "__all__"):
        return list(found.__all__)
    return [
        name
        for name, value in vars(found).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isroutine(value))
        and value.__module__ == module
    ]


def described(module: str) -> list[str]:
    """Public names with a page of their own: classes and functions, once each, on the first page that has them."""
    seen = set()
    for other in MODULES:
        found = importlib.import_module(other)
        names = []
        for name in public(other):
            value = getattr(found, name)
            if (
                inspect.ismodule(value)
                or not (inspect.isclass(value) or callable(value))
                or id(value) in seen
            ):
                continue
            seen.add(id(value))
            names.append(name)
        if other == module:
            return names
    raise KeyError(module)


def page(module: str, title: str) -> str:
    """The page of a module."""
    names = described(module)
    head = module if title == module else f"{module}: {title}"
    lines = [head, "=" * len(head), "", f".. automodule:: {module}", "   :no-members:", ""]
    lines += [f".. currentmodule:: {module}", "", ".. autosummary::", "   :toctree: generated", ""]
    return "\n".join(lines + [f"   {name}" for name in names]) + "\n"


def write(app: Any, _: Any) -> None:
    """Write the pages of all modules, and take away those of modules that are gone."""
    folder = Path(app.srcdir) / "reference"
    for old in folder.glob("fastcmdp*.rst"):
        if old.stem not in MODULES:
            old.unlink()
    for module, title in MODULES.items():
        path, text = folder / f"{module}.rst", page(module, title)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def setup(app: Any) -> dict[str, bool]:
    """For Sphinx."""
    app.connect("config-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
