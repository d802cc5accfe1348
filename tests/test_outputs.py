"""Results in the forms of other libraries: pandas, xarray, LaTeX. What is in them is what the result says."""

from __future__ import annotations

import io
import json
import re
import sys

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp import latex
from fastcmdp.plots import curves

MODEL = fc.envs.garnet(n_states=6, n_actions=3, n_constraints=2, gamma=0.8, seed=1)


@pytest.fixture(scope="module", params=["pd-anpg", "crpo"])
def result(request):
    settings = fc.ALGORITHMS[request.param].for_samples(MODEL, 3e4)
    return fc.solve(MODEL, settings, replicates=3, seed=5, trace=6)


@pytest.fixture(scope="module")
def found():
    return fc.compare(MODEL, ["pd-anpg", "npg-pd-softmax", "crpo-softmax"], [2e4, 1e5], replicates=4, seed=3)


def test_a_frame_holds_the_record(result):
    frame = result.to_pandas()
    trace, (_, values, mixture) = result.trace, curves(result)
    assert frame.index.names == ["replicate", "outer"]
    assert len(frame) == 3 * trace.done
    for r in range(3):
        part = frame.loc[r]
        assert part.index.tolist() == trace.outer.tolist()
        assert part["samples"].tolist() == trace.samples[r].tolist()
        for i, name in enumerate(MODEL.names):
            assert np.array_equal(part[name], values[r, :, i])
            assert np.array_equal(part[f"mixture {name}"], mixture[r, :, i], equal_nan=True)
        for i, name in enumerate(MODEL.names[1:]):
            assert np.array_equal(part[f"multiplier {name}"], trace.duals[r, :, i], equal_nan=True)
    last = frame.groupby("replicate").last()
    assert last["gap"].to_numpy() == pytest.approx(result.gap, rel=1e-12)
    assert last["violation"].to_numpy() == pytest.approx(result.violation.max(axis=1), abs=1e-12)
    assert last["samples"].tolist() == result.samples.tolist()


def test_a_dataset_has_names_limits_and_units(result):
    xarray = pytest.importorskip("xarray")
    data = result.to_xarray()
    assert isinstance(data, xarray.Dataset)
    assert data.value.dims == data.mixture.dims == ("replicate", "outer", "signal")
    assert data.multiplier.dims == ("replicate", "outer", "constraint")
    assert data.signal.values.tolist() == list(MODEL.names)
    assert data.limit.values.tolist() == MODEL.limits.tolist()
    assert data.optimum.sel(signal="reward") == result.optimum.reward
    assert all(data[name].attrs["units"] for name in data.data_vars)
    assert np.array_equal(data.mixture.isel(outer=-1, signal=0), result.mixture.reward)
    assert np.array_equal(data.value.isel(outer=-1).sel(signal=MODEL.names[2]), result.last.constraints[:, 1])
    assert data.attrs["model"] == MODEL.fingerprint()
    again = type(result.algorithm)(**json.loads(data.attrs["settings"]))
    assert again == result.algorithm
    rebuilt = fc.solve(MODEL, again, replicates=3, seed=int(data.attrs["seed"]), trace=6).to_xarray()
    assert data.identical(rebuilt)


def test_a_dataset_goes_through_a_file(result, tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("scipy")
    data = result.to_xarray()
    data.to_netcdf(tmp_path / "run.nc", engine="scipy")
    with xarray.open_dataset(tmp_path / "run.nc", engine="scipy") as read:
        assert np.array_equal(read.value.values, data.value.values)
        assert read.attrs["algorithm"] == result.algorithm.name


def test_an_unfinished_run_and_a_model_without_optimum():
    pytest.importorskip("xarray")
    result = fc.solve(fc.envs.river_swim(), fc.PDANPG(outer=8, inner=5), replicates=2, optimum=False)
    result.trace.done = 3
    assert len(result.to_pandas()) == 6
    assert np.isnan(result.to_pandas()["gap"]).all()
    data = result.to_xarray()
    assert data.sizes["outer"] == 3
    assert "optimum" not in data.coords


def test_a_simulator_has_frames_too():
    pytest.importorskip("xarray")
    queue = fc.simulators.tandem_queue()
    result = fc.solve(queue, fc.PDANPG(outer=4, inner=5), replicates=2)
    assert result.to_xarray().attrs["source"] == "estimate"
    frame = result.to_pandas()
    assert frame.groupby("replicate").last()[f"mixture {queue.names[0]}"].to_numpy() == pytest.approx(
        result.mixture.reward
    )


@pytest.mark.parametrize(("name", "call"), [("pandas", "to_pandas"), ("xarray", "to_xarray")])
def test_a_missing_library_is_named(monkeypatch, result, name, call):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(fc.SettingError, match=rf"{name}.*pip install 'fastcmdp\[frames\]'"):
        getattr(result, call)()


def test_a_comparison_as_a_frame(found):
    frame = found.to_pandas()
    assert len(frame) == 6
    assert frame.to_dict("records")[2]["error_low"] == found.rows()[2]["error_low"]
    pivot = frame.pivot(index="name", columns="budget", values="error")
    assert pivot.loc["pd-anpg", 100000] == found.to_dict()[3]["error"]["mean"]


# LaTeX, read back by a small reader of tabulars.


def cells(text: str) -> list[list[str]]:
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    return [[cell.strip() for cell in row.split("&")] for row in body.split(r"\\") if row.strip()]


def numbers(cell: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", cell)]


def test_latex_has_each_mean_with_its_interval(found):
    text = found.to_latex(["error", "violation"], caption="All.", label="tab:all")
    rows = cells(text)
    assert [row[0] for row in rows] == ["pd-anpg", "npg-pd-softmax", "crpo-softmax"]
    entries = {(e["name"], e["budget"]): e for e in found.to_dict()}
    for row in rows:
        for k, budget in enumerate((20000, 100000)):
            error = entries[row[0], budget]["error"]
            got = numbers(row[1 + 2 * k])
            assert got[0] == pytest.approx(100 * error["mean"], rel=6e-3)
            if len(got) == 3:
                assert got[1:] == pytest.approx([100 * error["low"], 100 * error["high"]], rel=6e-2)
    for part in (
        r"\begin{table}",
        r"\caption{All.}",
        r"\label{tab:all}",
        r"\toprule",
        r"\bottomrule",
        r"$10^{5}$",
    ):
        assert part in text
    columns = re.search(r"\\begin{tabular}{(\w+)}", text).group(1)
    assert len(columns) == 5
    assert {len(row) for row in rows} == {5}


def test_the_best_of_each_column_is_bold(found):
    rows = cells(found.to_latex())
    entries = {(e["name"], e["budget"]): e["error"]["mean"] for e in found.to_dict()}
    for k, budget in enumerate((20000, 100000)):
        bold = {row[0] for row in rows if r"\mathbf" in row[1 + k]}
        assert bold == {min((row[0] for row in rows), key=lambda name: entries[name, budget])}


def entry(name, gap, missed=False):
    ends = {"mean": gap, "low": gap, "high": gap}
    return {"name": name, "budget": 1e6, "missed": missed, "gap": ends, "reward": ends}


def test_a_method_that_misses_limits_is_not_best_and_ties_are_all_bold():
    entries = [entry("a", -0.5, missed=True), entry("b", 0.1), entry("c", 0.1), entry("d", 0.4)]
    rows = {row[0]: row[1] for row in cells(latex.table(entries, ["gap"]))}
    assert [name for name in "abcd" if r"\mathbf" in rows[name]] == ["b", "c"]
    rows = {row[0]: row[1] for row in cells(latex.table(entries, ["reward"]))}
    assert [name for name in "abcd" if r"\mathbf" in rows[name]] == ["d"]


def test_what_is_missing_and_special_characters():
    entries = [entry("a_b & 50%", 0.5), entry("nothing", None)]
    entries[1]["gap"] = {"mean": None, "low": None, "high": None}
    text = latex.table(entries, ["gap"])
    assert r"a\_b \& 50\%" in text
    assert cells(text.replace(r"\&", "and"))[1][1] == "--"
    with pytest.raises(fc.SettingError, match="did you mean 'error'"):
        latex.table(entries, ["eror"])


def test_errors_profiles_and_improvement_of_a_comparison(found):
    errors = found.errors()
    assert {label: len(own) for label, own in errors.items()} == dict.fromkeys(errors, 2)
    pooled = {label: np.concatenate(own) for label, own in errors.items()}
    profiles = found.profiles([0.05, 0.3])
    for label, own in pooled.items():
        assert profiles[label].mean.tolist() == [(own <= 0.05).mean(), (own <= 0.3).mean()]
    a, b = errors["pd-anpg"], errors["crpo-softmax"]
    share = np.mean([(x[:, None] < y).mean() for x, y in zip(a, b, strict=True)])
    assert found.improvement("pd-anpg", "crpo-softmax").mean == pytest.approx(share)
    assert found.improvement("pd-anpg", "crpo-softmax", 1e5).mean == pytest.approx(
        (a[1][:, None] < b[1]).mean()
    )
    with pytest.raises(fc.SettingError, match="budget = 7"):
        found.errors(7)
    with pytest.raises(fc.SettingError, match="'pmd-pd'"):
        found.improvement("pd-anpg", "pmd-pd")


def test_the_frame_reads_back_from_text(found):
    import pandas

    text = found.to_pandas().to_csv(index=False)
    assert pandas.read_csv(io.StringIO(text))["error"].tolist() == [
        e["error"]["mean"] for e in found.to_dict()
    ]
