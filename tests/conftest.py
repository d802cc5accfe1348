"""Marks as slow what ``slow.txt`` lists."""

from __future__ import annotations

from pathlib import Path

import pytest

LINES = Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").splitlines()
LISTED = {line for line in LINES if "::" in line}


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what -m does
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark them; one that its file does not have is an error."""
    by_id = {item.nodeid.removeprefix("tests/"): item for item in items}
    for listed in LISTED & by_id.keys():
        by_id[listed].add_marker(pytest.mark.slow)
    files = {name.partition("::")[0] for name in by_id}
    missing = sorted(name for name in LISTED - by_id.keys() if name.partition("::")[0] in files)
    if missing and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"tests/slow.txt: there is no {missing[0]}")
