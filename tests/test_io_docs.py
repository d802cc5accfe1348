"""The examples of docs/models.md and of the docstrings run, in the order in which they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fastcmdp.cli import main

PAGE = Path(__file__).resolve().parents[1] / "docs" / "models.md"
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_docs_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("gymnasium")
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) > 8
    names: dict[str, object] = {}
    for language, text in blocks:
        if language == "python":
            exec(text, names)
            continue
        for line in text.splitlines():
            command, *arguments = shlex.split(line)
            assert command == "fastcmdp"
            assert main(arguments) == 0, (line, capsys.readouterr().err)
