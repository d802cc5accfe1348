"""Imports run one way: cli -> solve, algorithms -> exact, policies, cmdp -> kernels; examples in docstrings run."""

from __future__ import annotations

import ast
import doctest
import importlib
import itertools
import pkgutil
import re
import tomllib
from pathlib import Path
from typing import Any

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
    "types",
    "typing",
    "collections",
    "hashlib",
    "pathlib",
    "os",
    "gc",
    "pickle",
    "re",
    "uuid",
}

# A file in a room of kernels/ imports only from rooms below its own (or from its own); "" are the files in none.
KERNEL_RANK = {
    room: rank
    for rank, rooms in enumerate(
        [[""], ["exact", "sampling"], ["policy"], ["learning"], ["simulator"], ["algorithm"], ["embed"]]
    )
    for room in rooms
}

MOST_LINES, MOST_PARAMETERS = 60, 10  # of a body; of a private function
# Kernels that exceed one of them, and why: times are medians of the new over the old, interleaved.
EXCEPTIONS = {
    "sampling/rollouts.py rollouts": "with the handing out of jobs as a function of its own 1.04 times as long",
    "sampling/corrected.py corrected_rollouts": "as rollouts",
    "sampling/corrected.py _step_lanes": "arrays under their own names, or references are counted at every step",
    "algorithm/pd_nac.py advance": "a transition a step: an array handed to a function that branches costs more",
    "algorithm/pd_nac.py _settle": "as _step_lanes",
    "algorithm/pd_nac.py _draw": "as _step_lanes",
    "algorithm/pd_nac.py _add_start_values": "as _step_lanes",
    "learning/td.py _update_round": "as _step_lanes",
}

# A module imports, at its top, only from ranks below its own (or from its own package).
RANK = {
    name: rank
    for rank, names in enumerate(
        [
            ["errors", "kernels", "startup", "version"],
            ["check", "files", "streams", "text"],
            ["npz", "units", "variables", "bootstrap", "duals"],
            ["rows", "aggregates", "latex"],
            ["from_tables", "criteria"],
            ["cmdp"],
            ["policies"],
            ["simulators"],
            ["exact", "tables", "io"],
            ["assumptions", "envs"],
            ["worlds", "embed"],
            ["algorithms", "policy_names", "simulator_names"],
            ["runs", "tuned"],
            ["results", "theory"],
            ["budget"],
            ["solve"],
            ["plots", "utility"],
            ["comparison"],
            ["compare"],
            ["tune"],
            ["sweep"],
            ["bench"],
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


def too_large() -> set[str]:
    """Kernels with long bodies, without docstrings, and private ones with many parameters."""
    names = set()
    for path in (ROOT / "kernels").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            first = node.body[1 if ast.get_docstring(node) else 0 :]
            lines = node.body[-1].end_lineno - first[0].lineno + 1 if first else 0  # type: ignore[operator]
            parameters = len(node.args.args) + len(node.args.kwonlyargs)
            if lines > MOST_LINES or (node.name.startswith("_") and parameters > MOST_PARAMETERS):
                names.add(f"{path.relative_to(ROOT / 'kernels')} {node.name}")
    return names


def test_kernels_are_short_but_for_those_that_say_why() -> None:
    assert too_large() == set(EXCEPTIONS)


def test_kernels_pick_implementations_by_dispatch() -> None:
    for path in (ROOT / "kernels").rglob("*.py"):
        text = path.read_text()
        assert "NotImplementedError" not in text or path.name == "dispatch.py", path
        assert "@overload" not in text or path.name == "typed.py", path


def test_every_room_of_kernels_has_a_rank_and_is_packaged() -> None:
    rooms = {path.parent.name for path in (ROOT / "kernels").glob("*/__init__.py")}
    assert rooms == set(KERNEL_RANK) - {""}
    built = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert {f"fastcmdp.kernels.{room}" for room in rooms} <= set(built["packages"])
    assert {f"fastcmdp.kernels.{room}": f"kernels/{room}" for room in rooms}.items() <= built[
        "package-dir"
    ].items()


def late_imports(source: str) -> list[tuple[int, str]]:
    """Parts of the package imported within functions, with their lines; those for type checkers do not run."""
    tree = ast.parse(source)
    inner = [node for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for node in ast.walk(f)]
    return sorted(
        {
            (node.lineno, f"{node.module}.{alias.name}".split(".")[1])
            for node in inner
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fastcmdp"
            for alias in node.names
        }
    )


@pytest.mark.parametrize("path", package_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_import_runs_up_within_functions(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for line, other in late_imports(path.read_text()):
        assert other in (own, "__version__") or RANK[other] < RANK[own], f"line {line} imports {other}"


def test_imports_within_functions_are_seen() -> None:
    source = "def f():\n    from fastcmdp.theory import constants\n    from fastcmdp import sweep"
    assert late_imports(source) == [(2, "theory"), (3, "sweep")]


# One place for each thing, and no room too large.

HOUSE = [path for path in package_files() if "kernels" not in path.relative_to(ROOT).parts]
KERNELS = sorted((ROOT / "kernels").resolve().rglob("*.py"))
FILE_LINES, BODY_LINES = 450, MOST_LINES

HOUSE_EXCEPTIONS = {  # outside kernels: what is larger than the rules allow, and why
    "cmdp.py": "the model is the first thing that is read, and a third of it is the text that says what it means",
    "simulators/rolls.py:_loop": "a part of the loop that calls the user's functions counts references to its arrays "
    "in each step: 1.4 to 1.7 times the loop by hand instead of 1.3",
}
KERNEL_PATTERN = {"Steps", "RunState", "Work"}  # one each an algorithm's kernel: settings, state, work space
# Names that stand for another class elsewhere, and why. Hosts of fastcmdp.embed know nothing of the house.
ALIASES = {
    ("embed/__init__.py", "Policy"): "what a host draws actions from; the house's Policy makes no draws"
}

# A variable or parameter says what it is; these say only that it is there.
EMPTY_NAMES = {"found", "made", "given", "told", "of"}


def place(path: Path) -> str:
    """A path from its root on, as `HOUSE_EXCEPTIONS` has it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path.relative_to(KERNELS_ROOT))


KERNELS_ROOT = (ROOT / "kernels").resolve().parent


def offences(source: str, name: str) -> list[str]:
    """What a file outside kernels does that one place is there for; ``name`` as of `place`."""
    room = name.split("/")[0]
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = node.func.id
            told = [part.id for arg in node.args for part in ast.walk(arg) if isinstance(part, ast.Name)]
            if called == "isinstance" and "Simulator" in told and room not in ("simulators", "worlds"):
                found.append(f"line {node.lineno}: worlds.has_table tells models apart")
            if called == "cast" and "CMDP" in told:
                found.append(f"line {node.lineno}: a Simulator is no CMDP")
            if called in ("hasattr", "getattr") and told and "policy" in told[0]:
                found.append(f"line {node.lineno}: policies have all of their interface")
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "advance"
        ):
            of_run = not isinstance(node.func.value, ast.Name) or node.func.value.id in ("run", "self")
            if of_run and name != "runs/loop.py":
                found.append(f"line {node.lineno}: runs/loop.py alone advances runs")
            elif not of_run and room != "algorithms" and name != "runs/loop.py":
                found.append(f"line {node.lineno}: an algorithm's file alone calls its kernel")
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("after", "last", "some")
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "output"
            and name != "runs/record.py"
        ):
            found.append(f"line {node.lineno}: runs/record.py alone weighs the policies of an output")
    return found


def oversized(source: str, name: str, exceptions: dict[str, str]) -> list[str]:
    """Files, bodies and private functions that are too large; ``name`` as of `place`."""
    found = []
    n_lines = len(source.splitlines())
    if n_lines > FILE_LINES and name not in exceptions:
        found.append(f"{n_lines} lines")
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef) or f"{name}:{node.name}" in exceptions:
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if body and (size := (body[-1].end_lineno or 0) - body[0].lineno + 1) > BODY_LINES:
            found.append(f"{node.name}: {size} lines of body")
        arguments = node.args
        n = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
        if n > MOST_PARAMETERS and node.name.startswith("_") and not node.name.startswith("__"):
            found.append(f"{node.name}: {n} parameters")
    return found


def classes(path: Path) -> list[str]:
    """Classes at the top of a module."""
    return [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]


def aliases(path: Path) -> list[str]:
    """Names of classes under which a module imports others."""
    nodes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
    names = [alias.asname for node in nodes for alias in node.names if alias.asname not in (None, alias.name)]
    return [name for name in names if name is not None and name[0].isupper()]


def empty_names(source: str) -> list[str]:
    """Variables, parameters and fields whose names say nothing."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg):
            names.append((node.lineno, node.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.attr))
    return [f"line {line}: {name}" for line, name in names if name in EMPTY_NAMES]


def stubs(source: str) -> int:
    """How often NotImplementedError is raised."""
    raised = [node.exc for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise)]
    return sum("NotImplementedError" in ast.dump(error) for error in raised if error is not None)


@pytest.mark.parametrize("path", HOUSE, ids=place)
def test_each_thing_has_one_place(path: Path) -> None:
    assert offences(path.read_text(), place(path)) == []
    assert oversized(path.read_text(), place(path), HOUSE_EXCEPTIONS) == []


def test_kernels_have_no_stubs_but_those_of_dispatch() -> None:
    assert {path.name for path in KERNELS if stubs(path.read_text())} == {"dispatch.py"}


def shared_names(owners: dict[str, list[str]]) -> dict[str, list[str]]:
    """Names of classes with more than one owner, but for those that each algorithm's kernel has."""
    return {name: places for name, places in owners.items() if len(places) > 1 and name not in KERNEL_PATTERN}


def test_no_two_classes_share_a_name() -> None:
    owners: dict[str, list[str]] = {}
    used = set()
    for path in [*HOUSE, *KERNELS]:
        for name in classes(path):
            owners.setdefault(name, []).append(place(path))
        for name in aliases(path):
            if (place(path), name) in ALIASES:
                used.add((place(path), name))
            else:
                owners.setdefault(name, []).append(place(path))
    assert used == set(ALIASES)
    pattern = [(name, path) for name in KERNEL_PATTERN for path in owners[name]]
    assert [(name, path) for name, path in pattern if not path.startswith("kernels/algorithm/")] == []
    assert shared_names(owners) == {}


def test_names_that_are_shared_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("from b import Tables as Model, One as One, sums as add\n\nclass World:\n    pass")
    assert (classes(file), aliases(file)) == (["World"], ["Model"])
    assert shared_names({"World": ["a.py", "b.py"], "Steps": ["c.py", "d.py"], "One": ["a.py"]}) == {
        "World": ["a.py", "b.py"]
    }


@pytest.mark.parametrize("path", [*HOUSE, *KERNELS], ids=place)
def test_names_say_what_a_thing_is(path: Path) -> None:
    assert empty_names(path.read_text()) == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("found = 1", "found"),
        ("def f(given):\n    return given", "given"),
        ("f = lambda *made: made", "made"),
        ("class A:\n    of: int", "of"),
        ("a.told = 1", "told"),
        ("[x for x, found in y]", "found"),
        ("if found := f():\n    pass", "found"),
    ],
)
def test_empty_names_are_seen(source: str, name: str) -> None:
    assert empty_names(source) == [f"line {source[: source.index(name)].count(chr(10)) + 1}: {name}"]
    assert empty_names("def of(x):\n    return x.found, y.given(x, told=1)") == []


def test_exceptions_are_needed() -> None:
    """An exception whose place has become small again goes."""
    for name in HOUSE_EXCEPTIONS:
        path = ROOT / name.split(":")[0]
        if ":" not in name:
            assert oversized(path.read_text(), name, {}) != []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def f(x):\n    return isinstance(x, CMDP | Simulator)", "runs/loop.py"),
        ("y = cast(CMDP, x)", "sweep/tasks.py"),
        ("y = hasattr(policy, 'bind')", "simulators/rolls.py"),
        ("y = getattr(policy, 'width', 0)", "solve.py"),
        ("run.advance(0, 1, work)", "theory/paths.py"),
        ("self.run.advance(0, 1, work)", "theory/paths.py"),
        ("crpo.advance(run, 1)", "solve.py"),
        ("k = result.algorithm.output.after", "runs/result.py"),
        ("k = result.algorithm.output.last", "plots.py"),
        ("k = result.trace.output.some", "runs/notes.py"),
    ],
)
def test_offences_are_seen(source: str, name: str) -> None:
    assert len(offences(source, name)) == 1


def test_what_is_too_large_is_seen() -> None:
    assert oversized("x = 1\n" * 451, "a.py", {}) == ["451 lines"]
    assert oversized("x = 1\n" * 451, "a.py", {"a.py": "why"}) == []
    body = "def f():\n    'Text.'\n" + "    x = 1\n" * 61
    assert oversized(body, "a.py", {}) == ["f: 61 lines of body"]
    assert oversized(body, "a.py", {"a.py:f": "why"}) == []
    many = ", ".join(f"x{i}" for i in range(11))
    assert oversized(f"def _f({many}):\n    pass", "a.py", {}) == ["_f: 11 parameters"]
    assert oversized(f"def f({many}):\n    pass", "a.py", {}) == []
    assert stubs("def f():\n    raise NotImplementedError(x)") == 1


def test_the_map_of_the_house_is_true() -> None:
    """Rooms of the table stand in the order of the ranks, none is missing, and files that are named exist."""
    page = ROOT.parent / "docs" / "house.md"
    if not page.exists():
        pytest.skip("docs are not installed")
    text = page.read_text()
    rooms, kernels = (part.split("\n\n")[0] for part in text.split("|---|---|\n")[1:3])
    named = [re.findall(r"`([\w/]+?)/?`", row.split("|")[1]) for row in rooms.splitlines()]
    ranks = [[RANK[name] for name in row] for row in named]
    assert all(max(low) <= min(high) for low, high in itertools.pairwise(ranks))
    assert {name for row in named for name in row} >= set(RANK) - {"results", "version", "__main__"}
    inside = {
        name for row in kernels.splitlines() for name in re.findall(r"`([\w/]+?)/?`", row.split("|")[1])
    }
    there = {path.stem for path in (ROOT / "kernels").iterdir() if path.stem[0] != "_"}
    assert inside == there
    for name in re.findall(r"`((?:kernels|fastcmdp|tests|docs)/[\w/]+\.\w+)`", text):
        assert (ROOT.parent / name).exists() or "NAME" in name, name


def modules() -> list[str]:
    found = [m.name for m in pkgutil.walk_packages(fastcmdp.__path__, "fastcmdp.")]
    return ["fastcmdp", *found]


class Examples(doctest.DocTestRunner):
    """Knows which examples failed for want of an optional library alone."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.absent: list[str] = []

    def report_unexpected_exception(self, out: Any, test: Any, example: Any, exc_info: Any) -> None:
        error = exc_info[1]
        if isinstance(error, fastcmdp.SettingError) and isinstance(error.__cause__, ModuleNotFoundError):
            self.absent.append(f"{test.name}: {error}")
        else:
            super().report_unexpected_exception(out, test, example, exc_info)


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_run(name: str) -> None:
    runner = Examples(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for found in doctest.DocTestFinder().find(importlib.import_module(name)):
        runner.run(found)
    assert runner.summarize(verbose=False).failed == len(runner.absent)
    if runner.absent:
        pytest.skip("; ".join(runner.absent))
