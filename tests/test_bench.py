"""The bench: models that stay what they are, one protocol, the same bits again, and methods of one's own."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp import exact
from fastcmdp.cli import main

pytest.importorskip("pyarrow")
from fastcmdp import bench
from fastcmdp.bench.frozen import Frozen
from fastcmdp.errors import BudgetError, SettingError
from fastcmdp.sweep import Store

SUITE = bench.suite()
SMALL = [each for each in SUITE if each.states <= 1000]
TWO = ["river-swim-2", "garnet-20-two"]


def test_thirty_models_of_many_kinds():
    assert len(SUITE) == len({each.name for each in SUITE}) == len({each.fingerprint for each in SUITE}) == 30
    sizes = [each.states for each in SUITE]
    assert min(sizes) == 2
    assert max(sizes) == 100_000
    assert {each.constraints for each in SUITE} == {0, 1, 2, 3}
    assert min(each.gamma for each in SUITE) == 0.5
    assert max(each.gamma for each in SUITE) == 0.999
    assert all(each.licence.startswith("MIT") for each in SUITE)
    assert sum(each.model.startswith("gym:") for each in SUITE) == 3


def agrees(each: Frozen) -> None:
    """What was frozen is what is computed now."""
    cmdp = each.build()
    best = fc.optimum(cmdp)
    assert (each.states, each.choices, each.constraints) == (
        cmdp.n_states,
        cmdp.n_choices,
        cmdp.n_constraints,
    )
    assert best.reward == pytest.approx(each.reward, abs=1e-7 * each.reward_range)
    assert np.ptp(best.reward_range) == pytest.approx(each.reward_range, rel=1e-6)
    if each.constraints:
        assert best.slater == pytest.approx(each.slater, rel=1e-6)
        assert np.allclose(best.constraints, each.values, atol=1e-6 * np.max(each.ranges))
        # the dual function is an upper bound that the multipliers attain: they are right, unique or not
        raw = cmdp.from_user_duals(np.array(each.duals))
        attained = exact.dual_value(cmdp, raw)
        own = fc.evaluate(cmdp, best.policy).raw[0]
        assert attained == pytest.approx(own, abs=1e-6 / (1 - each.gamma))


@pytest.mark.parametrize("each", SMALL, ids=lambda each: each.name)
def test_frozen_models_are_what_they_were(each):
    if each.model.startswith("gym:"):
        pytest.importorskip("gymnasium")
    agrees(each)


@pytest.mark.slow
@pytest.mark.parametrize("each", [x for x in SUITE if x.states > 1000], ids=lambda each: each.name)
def test_large_frozen_models_are_what_they_were(each):
    agrees(each)


def test_a_model_that_changed_is_refused():
    river = bench.frozen("river-swim-8")
    with pytest.raises(SettingError, match="not the model that was frozen"):
        replace(river, model="env:river_swim?n_states=9").build()
    with pytest.raises(SettingError, match="did you mean 'river-swim-8'"):
        bench.frozen("river-swim8")


def test_errors_are_relative_to_what_policies_attain():
    two = bench.frozen("garnet-20-two")
    limits, ranges = np.array(two.limits), np.array(two.ranges)
    reward = two.reward - two.reward_range * np.array([0.1, -0.2, 0.0, -0.5])
    values = limits + ranges * np.array([[0.0, 0.0], [0.3, 0.1], [-1.0, -1.0], [-0.1, 0.05]])
    assert two.errors(reward, values) == pytest.approx([0.1, 0.3, 0.0, 0.05])
    below = replace(two, sense=(">=", "<="))  # the first limit from below
    assert below.errors(reward, values) == pytest.approx([0.1, 0.1, 1.0, 0.1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "runs"
    status = bench.run(path, ["pmd-pd", "npg-pd-softmax"], TWO, budgets=[300, 2e4], replicates=3)
    assert status.finished
    return path


def test_runs_are_those_of_solve(folder):
    """A row of the bench is a run of `solve` with its seed, and its error the error of that run's mixture."""
    rows = Store(folder).read().to_pylist()
    row = [r for r in rows if r["algorithm"] == "pmd-pd" and r["budget"] == 2e4 and r["replicate"] == 1][-1]
    model = next(each for each in SUITE if each.model == row["model"])
    cmdp = model.build()
    result = fc.solve(cmdp, fc.PMDPD.for_samples(cmdp, 2e4), seed=row["seed"], replicates=1)
    assert result.samples[0] == row["samples"]
    found = next(
        x for x in bench.board(folder).runs if (x.method, x.model, x.budget) == ("pmd-pd", model, 2e4)
    )
    exactly = fc.solve(cmdp, fc.PMDPD.for_samples(cmdp, 2e4), seed=row["seed"], trace=10**6).mixture
    error = model.errors(exactly.reward, exactly.constraints)[0]
    assert found.errors[1] == pytest.approx(error, abs=1e-12)  # every policy of so short a run is evaluated


def test_the_same_bits_again_and_more_methods_add_theirs(folder, tmp_path):
    again = tmp_path / "again"
    bench.run(again, ["npg-pd-softmax"], TWO, budgets=[300, 2e4], replicates=3, workers=1)
    bench.run(again, ["pmd-pd", "npg-pd-softmax"], TWO, budgets=[300, 2e4], replicates=3)
    assert bench.board(again).digest == bench.board(folder).digest
    assert bench.run(again, ["pmd-pd", "npg-pd-softmax"], TWO, budgets=[300, 2e4], replicates=3).new == 0


def test_a_board_ranks_and_counts_what_is_missing(folder, tmp_path):
    found = bench.board(folder)
    late = [place for place in found.places if place.budget == 2e4]
    assert [place.method for place in late] == sorted(
        (place.method for place in late), key=lambda m: float(next(p for p in late if p.method == m).iqm.mean)
    )
    by = {place.method: place for place in late}
    assert by["pmd-pd"].better.mean == pytest.approx(1 - by["npg-pd-softmax"].better.mean)
    early = {place.method: place for place in found.places if place.budget == 300}
    assert early["npg-pd-softmax"].missing == 1  # an outer step on 80 choices takes 720 transitions
    assert all(x.errors.size == 3 for x in found.runs if x.source != "none")
    files = found.write(tmp_path)
    told = json.loads(files["leaderboard"].read_text())
    assert told["edition"] == bench.EDITION
    assert {entry["method"] for entry in told["places"]} == {"pmd-pd", "npg-pd-softmax"}
    assert len(told["errors"]) == len(found.runs)
    assert "garnet-20-two" in files["page"].read_text()
    assert "garnet-20-two" in files["table"].read_text()


class Half:
    """Half of the optimum, half of the uniform policy: a method whose value is known."""

    name, version = "half-way", 1

    def learn(self, cmdp, samples, rng):
        if samples < 100:
            raise BudgetError("at least 100")
        best = fc.optimum(cmdp)
        return bench.mixture(
            cmdp, np.stack([best.policy, 1 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]])
        )


class Random:
    """A policy at random: all of its randomness is from rng."""

    name, version = "a-random-policy", 1

    def learn(self, cmdp, samples, rng):
        weights = rng.random(cmdp.n_choices)
        return weights / np.add.reduceat(weights, cmdp.state_to_choice[:-1])[cmdp.choice_state]


@pytest.fixture
def entered():
    names = [bench.enter(Half()), bench.enter(Random)]
    yield names
    for name in names:
        bench.leave(name)


def test_a_method_of_ones_own_is_measured(entered, tmp_path):
    assert bench.run(
        tmp_path / "own", ["half-way", "a-random-policy"], TWO, budgets=[500], replicates=4
    ).finished
    found = {(x.method, x.model.name): x for x in bench.board(tmp_path / "own").runs}
    for name in TWO:
        model = bench.frozen(name)
        cmdp = model.build()
        uniform = fc.evaluate(cmdp, 1 / np.diff(cmdp.state_to_choice)[cmdp.choice_state])
        reward = (model.reward + uniform.reward) / 2
        values = (np.array(model.values) + uniform.constraints) / 2
        want = model.errors(np.array([reward]), values[None])[0]
        assert found["half-way", name].errors == pytest.approx(np.full(4, want), abs=1e-9)
        assert np.unique(found["a-random-policy", name].errors).size > 1
    bench.run(tmp_path / "again", ["half-way", "a-random-policy"], TWO, budgets=[500], replicates=4)
    assert bench.board(tmp_path / "again").digest == bench.board(tmp_path / "own").digest


def test_a_method_of_ones_own_is_compared(entered):
    cmdp = fc.envs.river_swim()
    found = fc.compare(cmdp, ["half-way", "pmd-pd"], samples=2e4, replicates=2)
    assert [entry["name"] for entry in found.to_dict()] == ["half-way", "pmd-pd"]
    again = fc.compare(cmdp, ["a-random-policy"], samples=2e4, replicates=3, seed=4).entries[0].result
    assert np.unique(again.mixture.reward).size == 3


def test_what_is_no_method_or_no_policy(monkeypatch):
    with pytest.raises(SettingError, match="name, version and learn"):
        bench.enter(object())
    with pytest.raises(SettingError, match="a method of the library"):
        bench.enter(types.SimpleNamespace(name="crpo", version=1, learn=lambda *_: None))
    with pytest.raises(SettingError, match="small letters"):
        bench.enter(types.SimpleNamespace(name="My method", version=1, learn=lambda *_: None))
    with pytest.raises(SettingError, match="MODULE:NAME"):
        bench.enter_named("no_such_module:X")
    name = bench.enter(
        types.SimpleNamespace(name="no-policy", version=1, learn=lambda cmdp, *_: np.ones(cmdp.n_choices))
    )
    try:
        with pytest.raises(SettingError, match="no policy"):
            fc.compare(fc.envs.river_swim(), [name], samples=1e4)
    finally:
        bench.leave(name)


def test_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n\n\nclass Mine:\n    name, version = 'mine', 1\n\n"
        "    def learn(self, cmdp, samples, rng):\n"
        "        return 1 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]\n"
    )
    run = ["bench", "run", "--out", "runs", "--method", "mine:Mine", "--algorithms", "pmd-pd", "--quiet"]
    run += ["--models", "river-swim-2,river-swim-8", "--samples", "1e4", "--replicates", "2"]
    try:
        assert main(run) == 0
    finally:
        bench.leave("mine")
        sys.modules.pop("mine", None)
    assert main(["bench", "board", "runs", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.split("\n", 1)[1])
    assert [place["method"] for place in told["places"]] == ["pmd-pd", "mine"]
    assert (tmp_path / "runs" / "board" / "bench.html").exists()
    assert main(["bench", "models"]) == 0
    assert "garnet-100000" in capsys.readouterr().out
    assert main(["bench", "run", "--out", "x", "--models", "rivr"]) == 2
