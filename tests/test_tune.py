"""The search for constants: which trials it makes, with which seeds, what wins, what is left after Ctrl-C."""

from __future__ import annotations

import dataclasses
import math
import sys
import tomllib

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp.algorithms.variants import variant
from fastcmdp.cli import main
from fastcmdp.compare import Scales
from fastcmdp.streams import streams
from fastcmdp.tune import points, trial_constants, trial_seed
from fastcmdp.tuned import read_constants, read_meta

MODULE = sys.modules["fastcmdp.tune"]  # fc.tune is the function
MODEL = fc.envs.river_swim(n_states=4)
BEST = fc.optimum(MODEL)
TWO = ("pd-anpg", "pd-anpg?inner=10")
SEARCH = {"samples": 3e4, "replicates": 2, "optimum": BEST}


@pytest.fixture(scope="module")
def found():
    return fc.tune(MODEL, TWO, trials=4, seed=3, threads=1, **SEARCH)


def test_every_method_has_the_same_trials_and_the_defaults_come_first(found):
    assert list(found.trials) == list(TWO)
    for label, trials in found.trials.items():
        assert [trial.constants for trial in trials] == trial_constants(variant(label), 4, 3)
        assert trials[0].constants == {}
        assert set(trials[1].constants) == set(variant(label).searched)
        assert found.best[label].error == min(trial.error for trial in trials) < math.inf
        assert found.constants[label] == found.best[label].constants
    assert found.meta["trials"] == 4


def test_a_score_is_the_error_of_the_run_that_anyone_can_repeat(found):
    trial = found.trials["pd-anpg?inner=10"][2]
    settings = fc.PDANPG.for_samples(MODEL, 3e4, inner=10, **trial.constants)
    result = fc.solve(MODEL, settings, seed=trial_seed(3), replicates=2, optimum=BEST, trace=50)
    scales = Scales.of(MODEL, BEST)
    worst = np.maximum(
        result.gap / np.ptp(BEST.reward_range), result.violation[:, 0] / np.ptp(BEST.constraint_range[0])
    )
    assert trial.error == pytest.approx(worst.mean(), rel=1e-12)
    assert scales.reward == np.ptp(BEST.reward_range)


def test_the_same_seed_gives_the_same_search_on_any_number_of_threads(found):
    again = fc.tune(MODEL, TWO, trials=4, seed=3, threads=2, **SEARCH)
    assert again.trials == found.trials
    other = fc.tune(MODEL, TWO[:1], trials=2, seed=4, **SEARCH)
    assert other.trials["pd-anpg"][0].error != found.trials["pd-anpg"][0].error
    assert other.trials["pd-anpg"][1].constants != found.trials["pd-anpg"][1].constants


def test_more_trials_begin_with_the_same():
    long, short = trial_constants(variant("pd-anpg"), 9, 0), trial_constants(variant("pd-anpg"), 4, 0)
    assert long[:4] == short


def test_constants_lie_in_their_ranges_evenly_in_the_logarithm():
    rows = trial_constants(variant("pd-anpg"), 200, 1)[1:]
    for name, (low, high) in fc.PDANPG.constants.items():
        u = np.log([row[name] / low for row in rows]) / np.log(high / low)
        assert -1e-5 < u.min() < 0.02
        assert 0.98 < u.max() < 1 + 1e-5
        counts, _ = np.histogram(u, np.linspace(0, 1, 11))
        assert counts.min() >= 15  # the least of random ones is 12 on average


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_points_spread_in_every_pair_of_coordinates(d):
    found = points(257, d, seed=0)
    assert found.shape == (256, d)
    for i in range(d):
        for j in range(i):
            cells, *_ = np.histogram2d(found[:, i], found[:, j], np.linspace(0, 1, 5))
            assert cells.min() >= 10  # 16 cells of 16; the least of random ones is 9 on average, or fewer


def test_seeds_of_trials_are_no_seeds_of_reports():
    """No random stream of a search is one of a report, for the first seeds that people use."""
    reported = {streams(seed, 4)[r, :, 0].tobytes() for seed in range(50) for r in range(4)}
    tried = {streams(trial_seed(seed), 4)[r, :, 0].tobytes() for seed in range(50) for r in range(4)}
    assert len(reported) == len(tried) == 200
    assert not reported & tried
    assert len({trial_seed(seed) for seed in range(1000)}) == 1000


def test_ctrl_c_keeps_the_whole_rounds():
    said = []

    def stop(state):
        said.append(state)
        if state.done == 5:
            raise KeyboardInterrupt

    found = fc.tune(MODEL, TWO, trials=4, progress=stop, **SEARCH)
    assert not found.finished
    assert [len(trials) for trials in found.trials.values()] == [2, 2]
    assert found.meta["trials"] == 2
    assert [(state.done, state.total, state.label) for state in said[:2]] == [(1, 8, TWO[0]), (2, 8, TWO[1])]
    assert said[3].best == min(said[1].error, said[3].error)

    def at_once(state):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fc.tune(MODEL, TWO, trials=4, progress=at_once, **SEARCH)


def test_ctrl_c_within_a_run(monkeypatch):
    """solve catches it and returns what there is; an unfinished run has no score."""
    calls = []

    def run(cmdp, settings, **options):
        calls.append(settings)
        if len(calls) < 3:
            return fc.solve(cmdp, settings, **options)

        def stop(_):
            raise KeyboardInterrupt

        return fc.solve(cmdp, settings, **(options | {"progress": stop}))

    monkeypatch.setattr(MODULE, "run", run)
    found = fc.tune(MODEL, TWO, trials=4, **SEARCH)
    assert not found.finished
    assert [len(trials) for trials in found.trials.values()] == [1, 1]


def test_failures_are_infinite_and_never_win(monkeypatch):
    def run(cmdp, settings, **options):
        if settings.c_eta == 1.0:  # the defaults
            settings = dataclasses.replace(settings, xi=1e300)
        return fc.solve(cmdp, settings, **options)

    monkeypatch.setattr(MODULE, "run", run)
    found = fc.tune(MODEL, "pd-anpg", trials=3, **SEARCH)
    errors = [trial.error for trial in found.trials["pd-anpg"]]
    assert errors[0] == math.inf
    assert found.best["pd-anpg"].error == min(errors[1:]) < math.inf


def test_the_file_is_what_was_found(found, tmp_path):
    path = tmp_path / "tuned.toml"
    found.save(path)
    assert read_constants(path) == found.constants
    meta = read_meta(path)
    assert (meta["samples"], meta["trials"], meta["replicates"], meta["seed"]) == (30000, 4, 2, 3)
    assert meta["fingerprint"] == MODEL.fingerprint()
    assert meta["error"] == {label: trial.error for label, trial in found.best.items()}
    assert tomllib.loads(path.read_text())["meta"] == meta
    assert len(found.table().splitlines()) == 3


def test_when_the_defaults_win_the_table_is_empty(tmp_path, monkeypatch):
    scores = iter([0.1, 0.2, 0.3])
    monkeypatch.setattr(MODULE, "_score", lambda *_: next(scores))
    found = fc.tune(MODEL, "pd-anpg", trials=3, **SEARCH)
    found.save(tmp_path / "t.toml")
    assert read_constants(tmp_path / "t.toml") == {"pd-anpg": {}}
    assert "the defaults" in found.table()


def test_methods_that_do_not_fit_are_left_out():
    found = fc.tune(MODEL, ["pd-anpg", "pd-anpg?inner=100000"], trials=2, **SEARCH)
    assert list(found.trials) == list(found.constants) == ["pd-anpg"]
    assert "inner=100000 at 3e+04 samples" in found.skipped[0]
    with pytest.raises(fc.SettingError, match="one outer step"):
        fc.tune(MODEL, "pd-anpg?inner=100000", trials=2, **SEARCH)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"trials": 0}, "trials = 0"), ({"trials": True}, "trials = True"), ({"replicates": 0}, "replicates = 0"),
        ({"samples": -1}, "samples = -1"), ({"samples": [1e5, 1e6]}, "one budget"),
        ({"samples": 5, "algorithms": "pd-anpg"}, "samples"), ({"seed": -1}, "seed = -1"),
        ({"seed": True}, "seed = True"),
        ({"algorithms": "pd-anp"}, "did you mean 'pd-anpg'"), ({"algorithms": []}, "one or more"),
        ({"algorithms": ["pd-anpg", "pd-anpg"]}, "each once"),
    ],
)  # fmt: skip
def test_what_is_refused(changed, words):
    with pytest.raises(fc.SettingError, match=words):
        fc.tune(MODEL, **({"trials": 2} | SEARCH | changed))


def test_methods_that_cannot_take_the_policy_are_left_out():
    policy = fc.NeuralSoftmax(np.eye(MODEL.n_states), hidden=(2,))
    found = fc.tune(MODEL, ["pmd-pd", "pd-anpg"], trials=1, policy=policy, **SEARCH)
    assert list(found.trials) == ["pd-anpg"]
    assert "pmd-pd works on the tabular softmax policy only" in found.skipped[0]


def test_the_command_line_refuses_models_without_an_exact_optimum(monkeypatch, capsys):
    import importlib

    monkeypatch.setattr(importlib.import_module("fastcmdp.compare"), "EXACT_CHOICES", 10)
    assert main(["tune", "env:river_swim", "--samples", "2e4", "--trials", "1"]) == 2
    assert "choices" in capsys.readouterr().err
