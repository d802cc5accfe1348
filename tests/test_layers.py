"""Imports run one way: cli -> solve, algorithms -> exact, policies, cmdp -> kernels; examples in docstrings run."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
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
