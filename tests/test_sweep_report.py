"""What a report says of its figures, and how it looks."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastcmdp import sweep as sweeps
from fastcmdp.sweep import Models, Sweep, analyse, plots
from fastcmdp.sweep.analysis import DECADE
from fastcmdp.sweep.report import report


@pytest.fixture(scope="module")
def budgets(tmp_path_factory):
    """A sweep at budgets of one decade, finished; not to be changed."""
    path = tmp_path_factory.mktemp("reports") / "out"
    models = [Models(generator="garnet", settings={"n_states": 5, "gamma": 0.8, "seed": [0, 1]})]
    sweeps.run(Sweep(models, ["pd-anpg"], samples=[1e4, 1e5], replicates=3, points=6), path)
    return path


def test_runs_at_budgets_are_counted_by_their_ends_and_remarked_on(budgets, tmp_path):
    made = report(budgets, tmp_path, epsilon=1e-6)  # nothing reaches this
    text, page = made.text(), Path(made.files["html"]).read_text()
    assert "reached" not in text
    for shown in (text, page):
        assert "4 of 4 ends" in shown
        assert "= of ends" in shown
        assert "pd-anpg: runs at budgets have no epsilon to reach" in shown
        assert "spans a factor of 10 in samples, hardly a decade" in shown
    assert page.count("not reached") >= 2
    assert [e.span for e in made.analysis.exponents] == [pytest.approx(10, rel=0.1)]


def test_two_decades_are_not_remarked_on(budgets):
    found = analyse(budgets)
    found.exponents[0] = replace(found.exponents[0], exponent=2.0, span=100.0)
    assert not any("decade" in text for text in found.remarks())
    found.exponents[0] = replace(found.exponents[0], span=DECADE - 1)
    assert any("decade" in text for text in found.remarks())
    found.exponents[0] = replace(found.exponents[0], exponent=math.nan)
    assert not any("decade" in text for text in found.remarks())


def test_an_estimate_that_is_missing_has_no_interval():
    """The errors of two budgets rise in the mean and fall in most draws: no exponent, whatever the draws say."""
    from fastcmdp.sweep.analysis import _Drawn, _fit, _fit_ends
    from fastcmdp.sweep.cells import Cell

    def cell(samples):
        one = np.array([1.0, samples])
        return Cell("a", "pd-anpg", "m", 0.8, None, samples, False, one, np.ones((2, 2)), np.zeros((2, 2, 0)))

    draws = np.full(101, 0.5)
    ends = [_Drawn(np.concatenate([[1.0], draws]), []), _Drawn(np.concatenate([[1.1], draws / 2]), [])]
    fit = _fit_ends([cell(1e3), cell(1e4)], ends, ["m"], np.ones((101, 1)))
    assert all(map(math.isnan, fit[:3]))
    assert fit.points == 2
    reached = np.concatenate([[np.nan], 1e4 * np.ones(101)])
    points = [("m", 0.5, reached / 10, True), ("m", 0.25, reached, True)]
    assert all(map(math.isnan, _fit(points, ["m"], np.ones((101, 1)))[:3]))


def test_slopes_are_not_drawn_beyond_the_points(budgets):
    """A fit of 70 and a claim of 13 over half a decade of errors are 35 decades of samples; the points are one."""
    found = analyse(budgets)
    found.exponents[0] = replace(found.exponents[0], exponent=70.0, claimed=13.0)
    figure = plots.plot_exponents(found)
    (axes,) = [axes for axes in figure.axes if axes.get_visible()]
    points = np.concatenate([y for _, y in plots._points(found, found.exponents[0])])
    for line in axes.lines:
        assert points.min() / 2.001 <= line.get_ydata().min()
        assert line.get_ydata().max() <= points.max() * 2.001
    assert len(axes.lines) == 2 + 2  # two models, two slopes
    low, high = axes.get_ylim()
    assert high / low < 1e3


def test_on_a_narrow_screen_each_cell_is_a_line_with_its_head(budgets, tmp_path):
    """What the page says; the browser below has a look at what becomes of it."""
    page = Path(report(budgets, tmp_path).files["html"]).read_text()
    assert page.count("<td ") == page.count("<td data-head=") > 8
    assert "<td>" not in page
    narrow = page.partition("@media (max-width: 45rem)")[2].partition("</style>")[0]
    for rule in ("table, tbody, tr, td { display: block; }", "td::before { content: attr(data-head);"):
        assert rule in narrow


PHONE = """
<iframe id="phone" style="width: 360px; height: 700px; border: 0"></iframe>
<script>
const frame = document.getElementById("phone");
frame.onload = () => {
  const page = frame.contentDocument;
  document.title = "PROBED " + JSON.stringify({
    width: frame.contentWindow.innerWidth, page: page.documentElement.scrollWidth,
    tables: [...page.querySelectorAll(".wide")].map(wide => [wide.clientWidth, wide.scrollWidth]),
    cells: [...page.querySelectorAll("td")].map(cell => cell.getBoundingClientRect().right),
    head: frame.contentWindow.getComputedStyle(page.querySelector("td"), "::before").content,
  });
};
frame.srcdoc = PAGE;
</script>
"""


def test_no_table_is_cut_off_at_the_width_of_a_phone(budgets, tmp_path):
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = next((path for name in names if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no chromium here: the page was not looked at in a browser")
    page = json.dumps(Path(report(budgets, tmp_path).files["html"]).read_text()).replace("</", "<\\/")
    (tmp_path / "probe.html").write_text("<!doctype html><title>-</title>" + PHONE.replace("PAGE", page))
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom",
        f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "probe.html").as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | {"HOME": str(tmp_path)}
    )
    import html

    found = json.loads(html.unescape(dom.stdout.split("PROBED ", 1)[1].split("</title>")[0]))
    assert found["width"] == 360
    assert found["page"] <= 360
    assert len(found["tables"]) == 2
    assert all(inner <= outer for outer, inner in found["tables"])
    assert max(found["cells"]) <= 360
    assert found["head"] == '"algorithm"'
