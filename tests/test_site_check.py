"""What looks at the built site sees what is wrong with one, and passes one with which all is well."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / ".ci" / "check_site.py"
HEAD = '<!doctype html><meta name="viewport" content="width=device-width"><title>page</title>'
PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


@pytest.fixture
def check():
    if not SCRIPT.exists():
        pytest.skip("the checks of a clone are not here")
    spec = importlib.util.spec_from_file_location("check_site", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def site(tmp_path, check):
    """A site of five pages, each with what it has to have."""
    for name, (picture, mathematics) in check.PAGES.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        body = "<article id='top'>text"
        body += f'<img src="{PIXEL}" style="width: 50px; height: 50px">' * picture
        body += "<p><math><mi>x</mi><mo>=</mo><mn>1</mn></math></p>" * (6 * mathematics)
        path.write_text(f"{HEAD}{body}</article>")
    return tmp_path / "site"


def change(site, name, text):
    path = site / name
    path.write_text(path.read_text() + text)


def test_links_are_followed(check, site):
    change(
        site,
        "start.html",
        '<a href="index.html#top">a</a> <a href="learn/3-lagrangian.html">b</a> <a href="#top">c</a>',
    )
    change(
        site,
        "learn/3-lagrangian.html",
        '<a href="../start.html?x=1#top">d</a> <a href="https://elsewhere/">e</a>',
    )
    assert check.broken_links(site) == ([], 4)
    change(
        site, "start.html", '<a href="indx.html">f</a> <a href="index.html#bottom">g</a> <img src="none.png">'
    )
    broken, n = check.broken_links(site)
    assert n == 7
    assert [line.split(": ")[2] for line in broken] == [
        "no such file",
        "no such place on the page",
        "no such file",
    ]


@pytest.fixture
def browser():
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no chromium here")
    return found


def test_the_browser_sees_what_is_wrong(check, site, browser):
    assert check.complaints(*check.browse(site, browser)) == []
    change(site, "index.html", "<script>nothing.at.all()</script>")
    change(site, "start.html", '<div style="width: 500px">wide</div>')
    change(site, "auto_gallery/plot_08_comparison.html", "<article><img src='none.png'></article>")
    (site / "learn/3-lagrangian.html").write_text(HEAD + "no mathematics")
    found = check.complaints(*check.browse(site, browser))
    assert any("ReferenceError" in line for line in found)
    assert any(line.startswith("start.html: 5") for line in found)
    assert any(line.startswith("auto_gallery/plot_08_comparison.html: pictures") for line in found)
    assert any(line.startswith("learn/3-lagrangian.html: mathematics []") for line in found)
