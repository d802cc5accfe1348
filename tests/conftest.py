"""Marks as slow what ``slow.txt`` lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

LINES = Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").splitlines()
LISTED = {line for line in LINES if "::" in line}


def matches(listed: str) -> re.Pattern[str]:
    """Of ids: a ``*`` of the list stands for anything."""
    return re.compile(".*".join(map(re.escape, listed.split("*"))))


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what -m does
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark them; a line that matches nothing of its file is an error."""
    by_id = {item.nodeid.removeprefix("tests/"): item for item in items}
    files = {name.partition("::")[0] for name in by_id}
    for listed in sorted(LISTED):
        if listed.partition("::")[0] not in files:
            continue
        found = list(filter(matches(listed).fullmatch, by_id))
        if not found and not any("::" in argument for argument in config.args):
            raise pytest.UsageError(f"tests/slow.txt: there is no {listed}")
        for name in found:
            by_id[name].add_marker(pytest.mark.slow)
