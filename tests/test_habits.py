"""What surrounds the code says the same as the code: versions, licences, files that are named."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from pathlib import Path

import pytest

import fastcmdp

ROOT = Path(__file__).resolve().parents[1]
if not (ROOT / "CITATION.cff").exists():
    pytest.skip("these files are in a clone alone", allow_module_level=True)


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version_everywhere():
    found = {
        "CITATION.cff": re.search(r"^version: (\S+)$", text("CITATION.cff"), re.M),
        "conda/meta.yaml": re.search(r'version = "(\S+)"', text("conda/meta.yaml")),
        "docs/behind/cite.md": re.search(r"version = \{(\S+)\}", text("docs/behind/cite.md")),
        "CHANGELOG.md": re.search(r"^## (\S+)", text("CHANGELOG.md"), re.M),
    }
    assert {name: match and match.group(1) for name, match in found.items()} == dict.fromkeys(
        found, fastcmdp.__version__
    )


def test_mutants_stand_in_their_files_once_and_name_their_tests():
    """So that `python bench/mutants.py` has something to do, whatever was changed since."""
    found = tomllib.loads(text("bench/mutants.toml"))["mutant"]
    assert len({one["name"] for one in found}) == len(found) >= 100
    for one in found:
        assert text(one["file"]).count(one["old"]) == 1, one["name"]
        assert one["old"] != one["new"], one["name"]
        file, name = one["test"].split("::")
        assert re.search(rf"^def {name.partition('[')[0]}\(", text(file), re.M), one["test"]


def test_the_recipe_needs_what_the_package_needs():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["cli"]
    recipe = {
        re.sub(r"[\s'\"]", "", line[6:])
        for line in text("conda/meta.yaml").splitlines()
        if line[:6] == "    - "
    }
    assert {re.sub(r"\s", "", each) for each in wanted} <= recipe
    assert f"python{project['requires-python']}" in recipe
    assert "noarch: python" in text("conda/meta.yaml")


def test_the_forge_runs_all_versions_that_are_promised():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    promised = re.findall(r":: Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    (matrix,) = re.findall(r"python: (\[.*\])", text(".github/workflows/checks.yml"))
    assert json.loads(matrix) == promised
    assert "run: .ci/run" in text(".github/workflows/checks.yml")


def test_the_paper_cites_what_is_in_its_bibliography():
    cited = set(re.findall(r"@(\w+)", text("paper/paper.md").split("# Summary")[1]))
    entries = set(re.findall(r"^@\w+\{(\w+),", text("paper/paper.bib"), re.M))
    assert cited == entries


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "README.md", "CODE_OF_CONDUCT.md"])
def test_files_that_are_named_exist(name):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text(name))
    assert all((ROOT / link).exists() for link in links), links


def test_every_public_name_is_in_the_reference():
    """The pages are written from ``__all__``; here is that every package of the front names is among their modules."""
    source = text("docs/_ext/reference.py")
    for name in (
        "exact",
        "envs",
        "simulators",
        "policies",
        "runs",
        "sweep",
        "theory",
        "embed",
        "io",
        "bench",
    ):
        assert f'"fastcmdp.{name}"' in source
        assert f"\nfastcmdp.{name}\n" in text("docs/reference/index.md")
    modules = [name for name in fastcmdp.__all__ if inspect.ismodule(getattr(fastcmdp, name))]
    for name in modules:
        assert f'"fastcmdp.{name}"' in source, f"fastcmdp.{name} is public: name it in docs/_ext/reference.py"


def test_every_page_has_its_place_on_the_site():
    """A page that no toctree names is found by nobody, and stops the build: name it in the index of its section."""
    docs = ROOT / "docs"
    named = set()
    for page in docs.rglob("*.md"):
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
            for line in tree.splitlines():
                if line and not line.startswith(":"):
                    named.add((docs if line.startswith("/") else page.parent) / f"{line.lstrip('/')}.md")
    pages = {page for page in docs.rglob("*.md") if "auto_gallery" not in page.parts}
    assert pages - named == {docs / "index.md"}


def test_every_program_of_the_gallery_is_a_notebook():
    jupytext = pytest.importorskip("jupytext")
    scripts = sorted((ROOT / "docs" / "gallery").glob("plot_*.py"))
    assert len(scripts) >= 12
    for script in scripts:
        notebook = jupytext.reads(script.read_text(encoding="utf-8"), fmt="py:sphinx")
        kinds = [cell.cell_type for cell in notebook.cells]
        assert kinds[0] == "markdown" or "markdown" in kinds
        code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        assert len(code) >= 2
        for part in code:
            if not part.startswith("%matplotlib"):
                compile(part, script.name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", sorted((ROOT / "docs" / "gallery").glob("plot_*.py")), ids=lambda p: p.stem
)
def test_notebooks_run(script, tmp_path):
    jupytext, nbclient = pytest.importorskip("jupytext"), pytest.importorskip("nbclient")
    notebook = jupytext.reads(script.read_text(encoding="utf-8"), fmt="py:sphinx")
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        out
        for cell in notebook.cells
        for out in cell.get("outputs", [])
        if "image/png" in out.get("data", {})
    ]
    assert shown
