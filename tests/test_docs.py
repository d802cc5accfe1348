"""Every block of code in README.md and docs/ runs, page by page in the order in which blocks stand, or says why not.

A comment before a block says what is to be done with it, and shows in no rendering:

    <!-- not run: why -->     it is read only
    <!-- slow: why -->        it runs with the slow tests, and so do the blocks after it on the page
    <!-- file: NAME -->       it is written to that file, for blocks after it

What installs (`pip install`) is not run either. Blocks of Python share their names; lines of `fastcmdp` run in this
process, other shell in one of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if "auto_gallery" not in path.parts and path.exists()
)
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[\w ]+): (?P<note>[^\n]*?) -->\n+)?"
    r"^(?P<fence>`{3,})(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
RUN, READ = ("python", "bash", "sh"), ("", "toml", "c", "cpp", "bibtex", "text", "latex", "yaml")


class Block(NamedTuple):
    """A block of code, the line on which it begins, and what its comment says."""

    line: int
    language: str
    text: str
    mark: str
    note: str

    @property
    def runs(self) -> bool:
        if self.mark == "not run" or "pip install" in self.text:
            return False
        return self.language in RUN or self.mark == "file"


def blocks(text: str) -> list[Block]:
    """The blocks of a page; directives of Sphinx in braces are none."""
    return [
        Block(
            text.count("\n", 0, found.start("fence")) + 1,
            found["language"].strip(),
            found["text"],
            found["mark"] or "",
            found["note"] or "",
        )
        for found in BLOCK.finditer(text)
        if not found["language"].startswith("{")
    ]


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run(block: Block, names: dict[str, object], page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run one block in the current folder."""
    where = f"{page}:{block.line}"
    if block.mark == "file":
        Path(block.note).write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        exec(compile("\n" * block.line + block.text, page, "exec"), names)
    elif all(line.startswith("fastcmdp ") for line in block.text.splitlines() if line.strip()):
        for line in filter(None, block.text.splitlines()):
            arguments = shlex.split(line, comments=True)
            assert main(arguments[1:]) == 0, (where, line, capsys.readouterr().err)
    else:
        shim = Path("bin")
        shim.mkdir(exist_ok=True)
        for name, call in (("python", ""), ("fastcmdp", "-m fastcmdp ")):
            (shim / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {call}"$@"\n')
            (shim / name).chmod(0o755)
        path = f"{shim.resolve()}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", block.text],
            env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (where, done.stdout, done.stderr)


def run_page(path: Path, capsys: pytest.CaptureFixture[str], slow: bool) -> int:
    """Run the blocks of a page, up to the first slow one unless these are wanted; how many ran."""
    names: dict[str, object] = {"__name__": "page"}
    n = 0
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.mark == "slow" and not slow:
            break
        if not block.runs:
            continue
        run(block, names, place(path), capsys)
        n += 1
    return n


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of its own, and the libraries that pages use."""
    for name in ("gymnasium", "pandas", "xarray", "matplotlib", "pyarrow", "cffi"):
        pytest.importorskip(name)
    if shutil.which("cc") is None or shutil.which("bash") is None:
        pytest.skip("no C compiler or no bash")
    monkeypatch.chdir(tmp_path)
    known = dict(ALGORITHMS)
    yield tmp_path
    ALGORITHMS.clear()  # methods that a page entered are of that page
    ALGORITHMS.update(known)


@pytest.mark.filterwarnings("default::fastcmdp.errors.NearlyInfeasibleWarning")
@pytest.mark.parametrize("path", PAGES, ids=place)
def test_the_code_of_a_page_runs(path, folder, capsys):
    run_page(path, capsys, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [p for p in PAGES if any(b.mark == "slow" for b in blocks(p.read_text()))], ids=place
)
def test_slow_code_of_a_page_runs(path, folder, capsys):
    assert run_page(path, capsys, slow=True) > 0


@pytest.mark.parametrize("path", PAGES, ids=place)
def test_what_does_not_run_says_why(path):
    for block in blocks(path.read_text(encoding="utf-8")):
        where = f"{place(path)}:{block.line}"
        assert block.language in RUN + READ, where
        assert block.mark in ("", "not run", "slow", "file"), where
        assert not block.mark or len(block.note) > 2, where


def test_most_blocks_run():
    """What runs is the rule: of Python and shell in docs/, hardly any block is only read."""
    found = [b for path in PAGES for b in blocks(path.read_text()) if b.language in RUN]
    read = [b for b in found if not b.runs]
    assert len(found) > 60
    assert len(read) <= 0.2 * len(found)


def test_marks_are_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    text = """<!-- file: a.txt -->
```text
hello
```

<!-- not run: it would fail -->
```python
1 / 0
```

```python
from pathlib import Path

x = Path("a.txt").read_text()
```

```bash
test -f a.txt
python -c 'open("b.txt", "w").write("b")'
```

<!-- slow: it takes long -->
```python
Path("c.txt").write_text(x)
```
"""
    page.write_text(text)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert run_page(page, capsys, slow=False) == 3
    assert (tmp_path / "b.txt").exists()
    assert not (tmp_path / "c.txt").exists()
    assert run_page(page, capsys, slow=True) == 4
    assert (tmp_path / "c.txt").read_text() == "hello\n"
    page.write_text(text.replace("<!-- not run: it would fail -->\n", ""))
    with pytest.raises(ZeroDivisionError):
        run_page(page, capsys, slow=False)
    page.write_text(text.replace("test -f a.txt", "test -f z.txt"))
    with pytest.raises(AssertionError, match=r"page\.md:17"):
        run_page(page, capsys, slow=False)
