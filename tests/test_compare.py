"""`compare`: one table over algorithms, whatever the model comes from, and figures that can be recomputed."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.bootstrap import bootstrap
from fastcmdp.cli import main
from fastcmdp.compare import ComparedRun, Scales
from fastcmdp.plots import plot_comparison

MODULE = sys.modules["fastcmdp.compare"]  # fc.compare is the function
MODEL = fc.envs.garnet(n_states=6, n_actions=3, n_constraints=2, gamma=0.8, seed=1)
BEST = fc.optimum(MODEL)
RANGE = float(np.ptp(BEST.reward_range))
TWO = ("pd-anpg", "pd-anpg?inner=10&c_eta=2")


@dataclasses.dataclass(frozen=True)
class StandIn(fc.PDANPG):
    """A second method of the registry, for tabular policies only."""

    name = "stand-in"
    constants = {"c_eta": (0.5, 2.0)}  # noqa: RUF012
    tabular_only = True


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "stand-in", StandIn)


@pytest.fixture(scope="module")
def found():
    return fc.compare(MODEL, TWO, [2e4, 1e5], replicates=5, seed=3, optimum=BEST)


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
    one = ["--algorithms", "pd-anpg"]
    described = json.loads(compare(capsys, str(folder / "model.npz"), *one)[1].out)
    names = fc.load(folder / "model.npz").names
    limit = described["limits"][0]
    text = f"{names[1]} {limit['sense']} {limit['limit']!r}" if isinstance(limit, dict) else None
    assert text, described["limits"]
    arguments = [*one, "--reward", names[0], "--constraint", text, "--gamma", "0.95"]
    code, out = compare(capsys, str(folder / f"model.{ending}"), *arguments)
    assert code == 0, out.err
    assert json.loads(out.out)["optimum"]["reward"] == pytest.approx(described["optimum"]["reward"], rel=1e-6)


def test_what_cannot_be_compared(capsys):
    assert main(["compare", "env:river_swim", "--algorithms", "pd-anpgg"]) == 2
    assert "did you mean 'pd-anpg'" in capsys.readouterr().err
    assert main(["compare", "env:river_swim", "--algorithms", "pd-anpg", "--samples", "10"]) == 2
    assert "samples = 10" in capsys.readouterr().err


def test_an_entry_is_the_run_of_solve(found):
    settings = fc.PDANPG.for_samples(MODEL, 20000, inner=10, c_eta=2)
    result = fc.solve(MODEL, settings, seed=3, replicates=5, optimum=BEST)
    labels = [(entry["name"], entry["budget"]) for entry in found.to_dict()]
    assert labels == [(TWO[0], 2e4), (TWO[1], 2e4), (TWO[0], 1e5), (TWO[1], 1e5)]
    np.testing.assert_array_equal(found.entries[1].result.theta, result.theta)
    entry = found.to_dict()[1]
    assert entry["settings"]["inner"] == 10
    assert entry["gap"] == bootstrap(result.gap).to_dict()
    assert entry["last"]["gap"]["mean"] == pytest.approx(result.last.gap.mean(), rel=1e-12)
    assert entry["duals"] == pytest.approx(result.duals.mean(axis=0), rel=1e-12)
    assert entry["samples"] == result.samples.sum()


def test_figures_from_the_values_of_replicates(found):
    """Violation, slack, shares and errors from J of each replicate, by loops."""
    for entry, made in zip(found.entries, found.to_dict(), strict=True):
        mixture = entry.result.mixture
        slack = np.empty((5, 2))
        for i in range(2):
            sign = 1 if MODEL.sense[i] == "<=" else -1
            slack[:, i] = sign * (MODEL.limits[i] - mixture.constraints[:, i])
        assert made["violation"]["mean"] == pytest.approx(max(0.0, *-slack.mean(axis=0)), abs=1e-12)
        per_replicate = [max(0.0, *-row) for row in slack]
        assert made["violation_per_replicate"]["mean"] == pytest.approx(np.mean(per_replicate), abs=1e-12)
        assert made["violation"]["mean"] <= made["violation_per_replicate"]["mean"] + 1e-12
        strict, relaxed = made["feasibility"]["strict"], made["feasibility"]["relaxed"]
        assert strict["share"] == np.mean([min(row) >= 0 for row in slack])
        assert strict["slack"]["mean"] == pytest.approx(slack.mean(axis=0).min(), rel=1e-9)
        span = np.ptp(BEST.constraint_range, axis=1)
        assert relaxed["share"] == np.mean([min(row / span) >= -relaxed["tolerance"] for row in slack])
        errors = [max((BEST.reward - mixture.reward[r]) / RANGE, 0.0, *-slack[r] / span) for r in range(5)]
        assert made["error"]["mean"] == pytest.approx(np.mean(errors), rel=1e-9)
        for name in ("gap", "violation", "error", "violation_per_replicate"):
            assert made[name]["low"] <= made[name]["mean"] <= made[name]["high"]


def test_budgets_rise_once_each_and_the_error_falls(found):
    again = fc.compare(MODEL, "pd-anpg", [1e5, 2e4, 1e5], replicates=5, seed=3, optimum=BEST)
    assert [entry.budget for entry in again.entries] == [20000, 100000]
    np.testing.assert_array_equal(again.entries[1].result.theta, found.entries[2].result.theta)
    # Measured: 0.43 and 0.25, with intervals of 0.03
    small, large = (entry["error"]["mean"] for entry in again.to_dict())
    assert large < 0.8 * small


def test_rows_are_flat_and_the_table_has_a_line_each(found):
    rows = found.rows()
    assert len(rows) == 4
    assert {"gap", "gap_low", "violation_high", "last_gap", "feasibility_strict_share"} <= set(rows[0])
    assert not any(isinstance(value, dict) for row in rows for value in row.values())
    lines = found.table().splitlines()
    assert sum(line.lstrip().startswith(("2e+04", "1e+05")) for line in lines) == 4
    assert f"multiplier {BEST.duals[0]:.4g}" in found.table()


def test_constants_from_a_mapping_or_a_file(tmp_path):
    constants = {"pd-anpg": {"c_H": 2.0, "c_eta": 0.5}}
    fc.tuned.write_constants(tmp_path / "c.toml", constants)
    runs = [
        fc.compare(MODEL, TWO, 2e4, constants=given, replicates=1, optimum=BEST)
        for given in (constants, tmp_path / "c.toml", str(tmp_path / "c.toml"))
    ]
    settings = [[entry.result.algorithm for entry in made.entries] for made in runs]
    assert settings[0] == settings[1] == settings[2]
    assert settings[0][0] == fc.PDANPG.for_samples(MODEL, 20000, c_H=2.0, c_eta=0.5)
    assert settings[0][1] == fc.PDANPG.for_samples(MODEL, 20000, inner=10, c_H=2.0, c_eta=2)
    assert runs[0].to_dict()[1]["constants"] == {"c_H": 2.0}
    with pytest.raises(fc.SettingError, match="did you mean 'c_eta'"):
        fc.compare(MODEL, constants={"pd-anpg": {"c_etta": 1}})


def test_tabular_methods_are_left_out_for_other_policies(stand_in):
    policy = fc.LogLinear(np.eye(MODEL.n_choices))
    made = fc.compare(MODEL, None, 2e4, policy=policy, replicates=1, optimum=BEST)
    assert [entry.variant.label for entry in made.entries] == [
        n for n in ALGORITHMS if not ALGORITHMS[n].tabular_only
    ]
    assert any("stand-in" in text and "tabular" in text for text in made.skipped)
    with pytest.raises(fc.SettingError, match="stand-in works on the tabular"):
        fc.compare(MODEL, "stand-in", 2e4, policy=policy, replicates=1, optimum=BEST)


def test_a_budget_that_is_too_small_is_left_out():
    made = fc.compare(MODEL, "pd-anpg", [10, 2e4], replicates=1, optimum=BEST)
    assert len(made.entries) == 1
    assert "pd-anpg at 10 samples" in made.skipped[0]


@pytest.mark.parametrize("after", [0, 1, 3])
def test_ctrl_c_keeps_what_there_is(after):
    def stop(stage: ComparedRun, state):
        if stage.number > after:
            raise KeyboardInterrupt

    made = fc.compare(MODEL, TWO, [2e4, 1e5], replicates=2, optimum=BEST, progress=stop)
    assert not made.finished
    assert [entry.result.finished for entry in made.entries] == [True] * after + [False]
    assert len(made.to_dict()) == after + 1
    assert "*" in made.table()
    made.plot()


def test_compilation_is_not_in_the_seconds(monkeypatch):
    """A run that is over at once comes before the first run of each method."""
    runs = []
    real = MODULE.run

    def run(cmdp, settings, **options):
        runs.append((settings.outer, settings.c_eta, options.get("replicates", 1)))
        return real(cmdp, settings, **options)

    monkeypatch.setattr(MODULE, "run", run)
    fc.compare(MODEL, TWO, [2e4, 1e5], replicates=2, optimum=BEST)
    warm = [(outer == 1, eta, replicates) for outer, eta, replicates in runs]
    assert warm == [
        (True, 1.0, 1), (False, 1.0, 2), (True, 2.0, 1), (False, 2.0, 2), (False, 1.0, 2), (False, 2.0, 2)
    ]  # fmt: skip


def test_failed_replicates_are_counted_and_left_out():
    with pytest.warns(RuntimeWarning, match="finite"):
        made = fc.compare(MODEL, ["pd-anpg?xi=1e300", "pd-anpg"], 2e4, replicates=2, optimum=BEST)
    lost, kept = made.to_dict()
    assert (lost["failed"], kept["failed"]) == (2, 0)
    assert lost["gap"]["mean"] is lost["error"]["mean"] is lost["feasibility"]["strict"]["share"] is None
    assert kept["gap"]["mean"] is not None
    assert made.table()
    made.plot()


def test_scales_have_a_floor():
    """Of an optimum of 0 and of a constraint that no policy changes, there is no relative error."""
    model = fc.CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, -4.0]], [[[3.0, 3.0]]], gamma=0.5, limits=6.5)
    scales = Scales.of(model, fc.optimum(model))
    assert scales.reward == pytest.approx(8.0)
    assert scales.constraints[0] > 0.1
    made = fc.compare(model, "pd-anpg", 3e3, replicates=2)
    assert np.isfinite(made.to_dict()[0]["error"]["mean"])


def test_errors_are_relative_to_what_policies_can_attain():
    """An offset of the reward changes no error, and a constraint of wide range does not hide its limit."""
    base = fc.compare(MODEL, "pd-anpg", 2e4, replicates=2, optimum=BEST)
    rows = (MODEL.state_to_choice, MODEL.choice_to_branch, MODEL.branch_target, MODEL.branch_prob)
    moved = fc.CMDP(
        *rows, MODEL.reward + 100.0, MODEL.costs.T, gamma=MODEL.gamma, start=MODEL.start, limits=MODEL.limits
    )
    scales = Scales.of(moved, fc.optimum(moved))
    assert scales.reward == pytest.approx(RANGE, rel=1e-9)
    np.testing.assert_allclose(scales.constraints, np.ptp(BEST.constraint_range, axis=1), rtol=1e-9)
    assert base.scales.reward == RANGE


def test_a_limit_missed_many_times_over_is_told_however_wide_its_range():
    """Two states: a step of cost 1,000 that nobody takes makes the range wide; the limit is 1."""
    wide = fc.CMDP.from_arrays(
        np.ones((1, 3, 1)), [[0.0, 1.0, 0.0]], [[[0.0, 3.0, 1000.0]]], gamma=0.5, limits=1.0
    )
    made = fc.compare(wide, "pd-anpg?zeta=1e-9&eta=5&pilot=0", 3e3, replicates=2)
    entry = made.to_dict()[0]
    assert entry["violation"]["mean"] > 3.0
    assert entry["violation"]["mean"] / np.ptp(made.optimum.constraint_range) < 0.05
    (note,) = made.notes()
    times = entry["violation"]["mean"]  # of a limit of 1
    assert f"{times:.3g} times the limit" in note
    assert note in made.table()
    assert fc.compare(wide.with_limits([2000.0]), "pd-anpg", 3e3, replicates=2).notes() == []


def test_a_large_model_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr(MODULE, "EXACT_CHOICES", 10)
    for run in (fc.compare, fc.tune):
        with pytest.raises(fc.SettingError, match=r"give optimum=True, or optimum=fastcmdp\.optimum\(cmdp\)"):
            run(MODEL, "pd-anpg", 2e4, replicates=1)
    made = fc.compare(MODEL, "pd-anpg", 2e4, replicates=1, optimum=True)
    assert made.optimum.reward == pytest.approx(BEST.reward)
    assert len(fc.tune(MODEL, "pd-anpg", 2e4, replicates=1, trials=1, optimum=True).trials) == 1


def test_no_constraint():
    made = fc.compare(fc.envs.garnet(n_states=5, n_constraints=0), "pd-anpg", 2e4, replicates=2)
    entry = made.to_dict()[0]
    assert entry["violation"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert entry["feasibility"]["strict"] == {
        "share": 1.0,
        "slack": {"mean": None, "low": None, "high": None},
    }
    assert "violation" not in made.table().splitlines()[3]
    assert len(made.plot().axes) == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"samples": 0}, "samples = 0"), ({"samples": []}, "samples"), ({"samples": "many"}, "samples = 'many'"),
        ({"samples": float("nan")}, "samples"), ({"algorithms": "pd-anpgg"}, "did you mean"),
        ({"algorithms": ["pd-anpg", "pd-anpg"]}, "each once"), ({"replicates": 0}, "replicates = 0"),
        ({"algorithms": [3]}, "names are expected"), ({"algorithms": 3}, "names are expected"),
        ({"algorithms": [fc.PDANPG(method="sgd")]}, "settings that stay fixed as text"),
        ({"policy": "tabular"}, "give TabularSoftmax"), ({"policy": fc.TabularSoftmax}, "give TabularSoftmax"),
        ({"optimum": 3}, "what fastcmdp.optimum returned"), ({"constants": 3}, "constants = 3"),
        ({"samples": 1e30, "algorithms": "pd-nac"}, r"2\^40 outer steps of"),
        ({"samples": [[1], [2, 3]]}, "samples"),
    ],
)  # fmt: skip
def test_what_is_refused(changed, words):
    with pytest.raises(fc.SettingError, match=words):
        fc.compare(MODEL, **({"optimum": BEST, "samples": 2e4} | changed))


@pytest.mark.parametrize("model", ["model.npz", None, 3])
def test_what_is_no_model(model):
    for run in (fc.compare, fc.tune):
        with pytest.raises(fc.SettingError, match="a CMDP is expected"):
            run(model, "pd-anpg")


def test_names_are_read_alike_everywhere():
    read = MODULE.variants
    assert [each.label for each in read("pd-anpg?zeta=1,2,crpo")] == ["pd-anpg?zeta=1,2", "crpo"]
    assert [each.label for each in read("all")] == [each.label for each in read(["all"])] == list(ALGORITHMS)
    assert [each.label for each in read(fc.PDANPG)] == ["pd-anpg"]


def test_what_tune_returned_are_constants():
    tuned = fc.tune(MODEL, "pd-nac", samples=1e4, trials=2, replicates=1, optimum=BEST)
    tuned.trials["pd-nac"][1] = dataclasses.replace(tuned.trials["pd-nac"][1], error=0.0)
    entry = fc.compare(MODEL, "pd-nac", 1e4, constants=tuned, replicates=1, optimum=BEST).entries[0]
    assert entry.constants == tuned.constants["pd-nac"] != {}


# Plots


def test_lines_at_several_budgets_are_the_ends_of_runs(found):
    lines = found.lines()
    assert [line.label for line in lines] == list(TWO)
    for k, line in enumerate(lines):
        entries = [found.to_dict()[k], found.to_dict()[2 + k]]
        expected = [entry["gap"]["mean"] / RANGE for entry in entries]
        np.testing.assert_allclose(line.gap.mean, expected, rtol=1e-9)
        assert line.samples.tolist() == [entry["samples"] / 5 for entry in entries]


def test_lines_at_one_budget_follow_the_mixture_so_far():
    made = fc.compare(MODEL, "pd-anpg", 1e5, replicates=3, seed=3, optimum=BEST)
    (line,) = made.lines()
    entry = made.to_dict()[0]
    assert len(line.samples) > 100
    assert line.gap.mean[-1] == pytest.approx(entry["gap"]["mean"] / RANGE, rel=1e-9)
    assert line.gap.low[-1] == pytest.approx(entry["gap"]["low"] / RANGE, rel=1e-9)
    assert line.violation.mean[0] >= 0


def test_a_plot_shows_zero_and_every_method(found, tmp_path):
    figure = plot_comparison(found, tmp_path / "c.svg", title="model $x$")
    text = (tmp_path / "c.svg").read_text()
    assert all(label.replace("&", "&amp;") in text for label in TWO)
    gap, violation = figure.axes
    assert gap.get_xscale() == violation.get_xscale() == "log"
    for axes, scale in ((gap, "log"), (violation, "symlog")):
        assert axes.get_yscale() == scale
        low, high = axes.get_ylim()
        for line in axes.lines[:2]:
            assert (line.get_ydata() >= low).all()
            assert (line.get_ydata() <= high).all()
    assert violation.get_ylim()[0] < 0
    with pytest.raises(fc.SettingError, match="jpgg"):
        plot_comparison(found, tmp_path / "c.jpgg")


def test_methods_that_cannot_take_the_policy_are_left_out():
    policy = fc.NeuralSoftmax(np.eye(MODEL.n_states), hidden=(2,))
    found = fc.compare(MODEL, ["crpo", "pmd-pd", "pd-anpg"], 2e4, replicates=2, policy=policy, optimum=BEST)
    assert [entry["name"] for entry in found.to_dict()] == ["crpo", "pd-anpg"]
    assert "pmd-pd works on the tabular softmax policy only" in found.skipped[0]


def test_ctrl_c_while_kernels_compile_is_no_result(monkeypatch):
    import importlib

    module = importlib.import_module("fastcmdp.compare")  # the name in the package is the function
    calls = []

    def run(cmdp, settings, **options):
        calls.append(settings)
        result = fc.solve(cmdp, settings, **options)
        if len(calls) == 1:
            result.trace.done -= 1  # as after Ctrl-C, which solve turns into an unfinished result
        return result

    monkeypatch.setattr(module, "run", run)
    with pytest.raises(KeyboardInterrupt):
        fc.compare(MODEL, "pd-anpg", 2e4, replicates=2, optimum=BEST)
    assert len(calls) == 1


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_variant_is_as_short_as_its_method(name):
    from fastcmdp.algorithms.variants import variant

    assert variant(name).shortest() == ALGORITHMS[name].shortest()
