"""`fastcmdp compare`: one table over algorithms, whatever the model comes from."""

from __future__ import annotations

import json

import pytest

import fastcmdp as fc
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    for ending in ("npz", "umb", "drn", "tra"):
        fc.save(fc.envs.river_swim(), path / f"model.{ending}")
    return path


def compare(capsys, *arguments):
    code = main(["compare", *arguments, "--samples", "600000", "--replicates", "2", "--json"])
    return code, capsys.readouterr()


@pytest.mark.parametrize("model", ["env:river_swim", "gym:FrozenLake-v1", "model.npz"])
def test_every_algorithm_within_the_budget(capsys, folder, model):
    code, out = compare(capsys, str(folder / model) if "." in model else model)
    assert code == 0, out.err
    found = json.loads(out.out)
    assert [entry["name"] for entry in found["algorithms"]] == list(ALGORITHMS)
    for entry in found["algorithms"]:
        assert entry["samples"] == pytest.approx(2 * 600_000, rel=0.1)
        assert entry["gap"]["low"] <= entry["gap"]["mean"] <= entry["gap"]["high"]
    assert found["optimum"]["reward"] > 0


@pytest.mark.parametrize("ending", ["umb", "drn", "tra"])
def test_every_file_format(capsys, folder, ending):
    described = json.loads(compare(capsys, str(folder / "model.npz"))[1].out)
    names = fc.load(folder / "model.npz").names
    limit = described["limits"][0]
    text = f"{names[1]} {limit['sense']} {limit['limit']!r}" if isinstance(limit, dict) else None
    assert text, described["limits"]
    arguments = ["--reward", names[0], "--constraint", text, "--gamma", "0.95"]
    code, out = compare(capsys, str(folder / f"model.{ending}"), *arguments)
    assert code == 0, out.err
    assert json.loads(out.out)["optimum"]["reward"] == pytest.approx(described["optimum"]["reward"], rel=1e-6)


def test_what_cannot_be_compared(capsys):
    assert main(["compare", "env:river_swim", "--algorithms", "pd-anpgg"]) == 2
    assert "did you mean 'pd-anpg'" in capsys.readouterr().err
    assert main(["compare", "env:river_swim", "--samples", "10"]) == 2
    assert "samples = 10" in capsys.readouterr().err
