"""Imports run one way: cli -> solve, algorithms -> exact, policies, cmdp -> kernels; examples in docstrings run."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import fastcmdp

ROOT = Path(fastcmdp.__file__).parent
KERNELS_MAY_IMPORT = {
    "__future__",
    "contextlib",
    "functools",
    "inspect",
    "math",
    "numpy",
    "numba",
    "llvmlite",
    "typing",
    "collections",
    "hashlib",
    "pathlib",
}

# The same of the rooms of kernels/; "" are the files that stand in it.
KERNEL_RANK = {
    room: rank
    for rank, rooms in enumerate(
        [[""], ["exact", "sampling"], ["policy"], ["learning"], ["simulator"], ["algorithm"], ["embed"]]
    )
    for room in rooms
}

# A module imports, at its top, only from ranks below its own (or from its own package).
RANK = {
    name: rank
    for rank, names in enumerate(
        [
            ["errors", "kernels", "startup", "version"],
            ["check", "files", "text"],
            ["npz", "units", "variables", "bootstrap"],
            ["rows"],
            ["from_tables"],
            ["cmdp"],
            ["policies"],
            ["simulators"],
            ["exact", "tables", "io"],
            ["envs"],
            ["streams", "worlds", "embed", "policy_names", "simulator_names"],
            ["algorithms"],
            ["runs", "tuned"],
            ["results", "theory"],
            ["solve"],
            ["plots"],
            ["compare"],
            ["tune"],
            ["sweep"],
            ["cli"],
            ["__main__"],
        ]
    )
    for name in names
}


def top_imports(path: Path) -> set[str]:
    """Modules named in import statements outside of functions."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def all_imports(path: Path) -> set[str]:
    """Modules named in import statements, those within functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def package_files() -> list[Path]:
    return [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


def test_kernels_import_numpy_numba_and_each_other() -> None:
    for path in (ROOT / "kernels").rglob("*.py"):
        for name in top_imports(path):
            assert name.split(".")[0] in KERNELS_MAY_IMPORT or name.startswith("fastcmdp.kernels."), (
                path,
                name,
            )


@pytest.mark.parametrize("path", package_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for name in top_imports(path):
        parts = name.split(".")
        if parts[0] != "fastcmdp" or len(parts) < 2:
            continue
        other = parts[1]
        if other == own or other == "__version__":
            continue
        assert RANK[other] < RANK[own], f"{own} imports {name}"


def kernel_room(parts: tuple[str, ...]) -> str:
    """The room of a module of kernels/, by its path below that."""
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize(
    "path", sorted((ROOT / "kernels").rglob("*.py")), ids=lambda p: "/".join(p.parts[-2:])
)
def test_rooms_of_kernels_import_one_way(path: Path) -> None:
    own = kernel_room(path.relative_to(ROOT / "kernels").parts)
    for name in all_imports(path):
        if not name.startswith("fastcmdp.kernels."):
            continue
        parts = name.split(".")[2:]
        other = parts[0] if parts[0] in KERNEL_RANK else ""
        assert other == own or KERNEL_RANK[other] < KERNEL_RANK[own], f"{own or 'kernels'} imports {name}"


def test_every_room_of_kernels_has_a_rank_and_is_packaged() -> None:
    rooms = {path.parent.name for path in (ROOT / "kernels").glob("*/__init__.py")}
    assert rooms == set(KERNEL_RANK) - {""}
    built = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert {f"fastcmdp.kernels.{room}" for room in rooms} <= set(built["packages"])
    assert {f"fastcmdp.kernels.{room}": f"kernels/{room}" for room in rooms}.items() <= built[
        "package-dir"
    ].items()


def modules() -> list[str]:
    found = [m.name for m in pkgutil.walk_packages(fastcmdp.__path__, "fastcmdp.")]
    return ["fastcmdp", *found]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


def test_readme_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    readme = ROOT.parent / "README.md"
    if not readme.exists():
        pytest.skip("README.md is not installed")
    (code,) = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    space: dict[str, object] = {}
    exec(compile(code.replace("outer=20_000", "outer=200"), "README.md", "exec"), space)
    assert "optimum" in capsys.readouterr().out
    assert len(space["policy"]) == 80
