"""Which files of kernels/ the code of a kernel is made from: a hash of them names the folder that it is cached in.

A kernel's code depends on its own module, on all that this imports, and, where a generic function is among that, on
every module that registers an implementation. Files are read as text, and whatever cannot be told counts as a
dependency: rather too many than one too few.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

_PACKAGE = "fastcmdp.kernels"
_HOME = Path(__file__).parent
_NAME = re.compile(rf"\b{re.escape(_PACKAGE)}((?:\.\w+)*)(?:\s+import\s+(\([^)]*\)|[^\n]*))?")
_REGISTERS = re.compile(r"([\w.]+)\.(?:on\(|otherwise\b)")


@cache
def read() -> dict[str, bytes]:
    """Text of every module, by its name below ``fastcmdp.kernels``; a package is its ``__init__``."""
    texts = {}
    for path in sorted(_HOME.rglob("*.py")):
        parts = path.relative_to(_HOME).with_suffix("").parts
        texts[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_bytes()
    return texts


def _with_packages(module: str) -> set[str]:
    """A module, and the packages that are imported before it."""
    parts = module.split(".")
    return {".".join(parts[:n]) for n in range(len(parts) + 1)}


def _imports(text: str) -> dict[str, str]:
    """The module that each imported name stands for or comes from; modules that are named otherwise, under theirs."""
    modules = read()
    origin: dict[str, str] = {}
    for match in _NAME.finditer(text):
        path, names = match[1].lstrip("."), re.sub(r"#[^\n]*", "", match[2] or "")
        while path and path not in modules:  # an attribute of a module
            path = path.rpartition(".")[0]
        origin[f"{_PACKAGE}.{path}"] = path
        for entry in names.strip("()").split(","):
            name, _, alias = entry.strip().partition(" as ")
            below = f"{path}.{name}".lstrip(".")
            origin[alias.strip() or name] = below if below in modules else path
    return origin


@cache
def _edges() -> dict[str, set[str]]:
    """What each module depends on directly: what it imports, and who registers with its generic functions."""
    texts = {module: text.decode() for module, text in read().items()}
    edges = {module: _with_packages(module) for module in texts}
    for module, text in texts.items():
        origin = _imports(text)
        for other in origin.values():
            edges[module] |= _with_packages(other)
        for name in _REGISTERS.findall(text):
            first = name.split(".")[0]
            if first in origin:
                edges[origin[first]].add(module)
            elif not re.search(rf"^def {first}\b", text, re.MULTILINE):  # from who knows where: everybody's
                for there in edges.values():
                    there.add(module)
    return edges


def depends_on(module: str) -> set[str]:
    """The modules, by their names below ``fastcmdp.kernels``, from which code of this one is made; itself included."""
    seen, ahead = {module}, [module]
    while ahead:
        for other in _edges()[ahead.pop()] - seen:
            seen.add(other)
            ahead.append(other)
    return seen


@cache
def digest(module: str) -> str:
    """Hash of the sources that a module (``fastcmdp.kernels...``) depends on; of all, for a module from elsewhere."""
    name = module.removeprefix(_PACKAGE).lstrip(".")
    known = module.startswith(_PACKAGE) and name in read()
    digest = hashlib.sha256(name.encode())
    for other in sorted(depends_on(name) if known else read()):
        digest.update(other.encode() + b"\0" + read()[other] + b"\0")
    return digest.hexdigest()[:16]
