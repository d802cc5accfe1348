"""Specifications and tasks of sweeps: what is read, what is refused and where, what a task's name depends on."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.sweep import Algorithms, Models, Sweep, loads, plan, read
from fastcmdp.sweep.reading import differences

SPEC = """
title = "Both kinds"
replicates = 3
seed = 5
epsilon = [1.0, 0.5]

[[models]]
generator = "garnet"
n_states = [5, 6]
gamma = 0.8
seed = [0, 1]

[[models]]
model = "env:river_swim?n_states=4"

[[algorithms]]
name = "pd-anpg"

[[algorithms]]
name = "pd-anpg"
label = "plain"
method = "sgd"
c_K = 4
samples = [1e5]
"""


def test_grids_targets_and_labels():
    made = plan(loads(SPEC))
    assert len(made) == 3 * 5 * (2 + 1)
    models = dict.fromkeys(c.model.label for c in made.configurations)
    assert list(models)[:2] == [
        "env:garnet?n_states=5&gamma=0.8&seed=0",
        "env:garnet?n_states=5&gamma=0.8&seed=1",
    ]
    assert list(models)[-1] == "env:river_swim?n_states=4"
    assert {(c.label, c.epsilon, c.budget) for c in made.configurations} == {
        ("pd-anpg", 1.0, None), ("pd-anpg", 0.5, None), ("plain", None, 1e5),
    }  # fmt: skip
    own = [c for c in made.configurations if c.label == "plain"]
    assert all(c.settings["method"] == "sgd" for c in own)
    assert all(c.samples == pytest.approx(1e5, rel=0.05) for c in own)


def test_toml_and_dataclasses_are_the_same():
    garnets = Models(generator="garnet", settings={"n_states": [5, 6], "gamma": 0.8, "seed": [0, 1]})
    plain = Algorithms("pd-anpg", {"method": "sgd", "c_K": 4}, label="plain", samples=[1e5])
    made = Sweep(
        [garnets, Models(model="env:river_swim?n_states=4")], ["pd-anpg", plain], epsilon=[1.0, 0.5], replicates=3,
        seed=5, title="Both kinds",
    )  # fmt: skip
    assert made == loads(SPEC) == loads(made.to_toml())
    assert differences(made, loads(SPEC)) == []
    changed = differences(made, loads(SPEC.replace("seed = 5", "seed = 6").replace("0.8", "0.9")))
    assert changed == ["seed: was 5, is 6", "models[0].gamma: was 0.8, is 0.9"]


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("replicates = 3", "replicate = 3", 3, "did you mean 'replicates'"),
        ("replicates = 3", "replicates = 0", 3, "replicates = 0"),
        ("replicates = 3", "replicates = true", 3, "replicates = True"),
        ("seed = 5", "seed = -1", 4, "seed = -1"),
        ("epsilon = [1.0, 0.5]", "epsilon = [1.0, -0.5]", 5, "positive"),
        ("epsilon = [1.0, 0.5]", "epsilon = [1.0, nan]", 5, "positive"),
        ("epsilon = [1.0, 0.5]", 'epsilon = "1"', 5, "list"),
        ('"garnet"', '"granet"', 8, "did you mean 'garnet'"),
        ("n_states = [5", "n_state = [5", 9, "did you mean 'n_states'"),
        ("n_states = [5, 6]", "n_states = []", 9, "n_states = []"),
        ('model = "env', 'modle = "env', 13, "did you mean 'model'"),
        ('\nname = "pd-anpg"\nlabel', '\nname = "pd-anpgg"\nlabel', 20, "did you mean 'pd-anpg'"),
        ('method = "sgd"', 'methd = "sgd"', 22, "did you mean 'method'"),
        ('method = "sgd"', 'method = "sdg"', 22, "'asgd' or 'sgd'"),
        ('label = "plain"\nmethod = "sgd"\nc_K = 4', 'label = "pd-anpg"', 19, "label"),
        ('label = "plain"', 'constants = "nowhere.toml"', 21, "nowhere.toml"),
        ('label = "plain"', "constants = { c_etaa = 1.0 }", 21, "did you mean 'c_eta'"),
    ],
)  # fmt: skip
def test_what_is_refused_and_on_which_line(old, new, line, said):
    assert old in SPEC
    with pytest.raises(SettingError) as error:
        loads(SPEC.replace(old, new, 1))
    assert f"line {line}" in str(error.value), error.value
    assert said in str(error.value)


def test_what_is_refused_as_a_whole(tmp_path):
    with pytest.raises(SettingError, match="line 2"):
        loads("seed = 1\nseed: 2")
    with pytest.raises(SettingError, match="no targets"):
        loads('models = ["env:garnet"]\nalgorithms = "all"')
    with pytest.raises(SettingError, match="at least one table"):
        loads("epsilon = [1.0]\nalgorithms = ['pd-anpg']")
    with pytest.raises(SettingError, match="one of generator, gym, file, model"):
        Models(generator="garnet", gym="FrozenLake-v1")
    (tmp_path / "spec.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match="UTF-8"):
        read(tmp_path / "spec.toml")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.toml")


def test_models_that_cannot_be_built_are_named():
    spec = Sweep([Models(generator="garnet", settings={"n_states": [5, -5]})], ["pd-anpg"], samples=[1e5])
    with pytest.raises(SettingError, match=r"n_states=-5.*n_states = -5"):
        plan(spec)
    with pytest.raises(FileNotFoundError, match=r"nowhere.npz"):
        plan(Sweep([Models(file="nowhere.npz")], ["pd-anpg"], samples=[1e5]))
    with pytest.raises(SettingError, match=r"pd-anpg on env:garnet, epsilon = 100"):
        plan(Sweep([Models(generator="garnet")], ["pd-anpg"], epsilon=[100]))


def test_files_gammas_and_constants(tmp_path):
    fc.save(fc.envs.river_swim(n_states=4), tmp_path / "swim.umb")
    from fastcmdp.tuned import write_constants

    write_constants(tmp_path / "tuned.toml", {"pd-anpg": {"c_eta": 0.5}})
    (tmp_path / "spec.toml").write_text("""
constants = "tuned.toml"
samples = [1e5]
gamma = [0.8, 0.9]
algorithms = ["pd-anpg", "pd-anpg?c_eta=2.0"]
models = ["env:garnet?gamma=0.7"]
[more]
""")
    with pytest.raises(SettingError, match="line 7: unknown key: 'more'"):
        read(tmp_path / "spec.toml")
    text = (tmp_path / "spec.toml").read_text()
    text = text.replace('models = ["env:garnet?gamma=0.7"]\n[more]', """
[[models]]
file = "swim.umb"
reward = "reward"
constraints = ["strokes <= 5"]
[[models]]
model = "env:garnet?gamma=0.7"
""")  # fmt: skip
    (tmp_path / "spec.toml").write_text(text)
    made = plan(read(tmp_path / "spec.toml"))
    assert sorted({c.gamma for c in made.configurations}) == [0.7, 0.8, 0.9]
    assert {c.label: c.settings["c_eta"] for c in made.configurations} == {
        "pd-anpg": 0.5,
        "pd-anpg?c_eta=2.0": 2.0,
    }
    again = loads(read(tmp_path / "spec.toml").to_toml(), tmp_path)
    assert plan(again).name.tolist() == made.name.tolist()


def small(**changes):
    settings = {"n_states": 5, "gamma": 0.8, "seed": 0}
    base = {"epsilon": [1.0], "replicates": 2}
    model = changes.pop("model", settings)
    algorithm = changes.pop("algorithm", "pd-anpg")
    return Sweep([Models(generator="garnet", settings=model)], [algorithm], **(base | changes))


def names(sweep):
    return set(plan(sweep).name.tolist())


def test_a_task_has_one_name():
    first = names(small())
    assert first == names(small()) == names(loads(small().to_toml()))
    assert len(first) == 2
    assert first < names(small(replicates=3))  # more of them: the old ones keep theirs
    assert first < names(small(epsilon=[1.0, 0.5]))
    assert first == names(Sweep(small().models * 2, ["pd-anpg"], epsilon=[1.0], replicates=2))  # never twice


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"points": 21},
        {"epsilon": [1.0000000001]},
        {"model": {"n_states": 5, "gamma": 0.8, "seed": 1}},
        {"model": {"n_states": 5, "gamma": 0.8000001, "seed": 0}},
        {"algorithm": Algorithms("pd-anpg", {"c_eta": 1.0000001})},
        {"algorithm": Algorithms("pd-anpg", label="other")},
    ],
)
def test_a_changed_task_has_another_name(change):
    assert not names(small()) & names(small(**change))


def test_the_version_of_the_algorithm_counts_and_no_other(monkeypatch):
    first = names(small())
    monkeypatch.setattr(fc, "__version__", "9.9")
    assert names(small()) == first
    monkeypatch.setattr(fc.PDANPG, "version", fc.PDANPG.version + 1)
    assert not names(small()) & first


def test_what_a_generator_draws_counts(monkeypatch):
    first = names(small())
    monkeypatch.setattr(fc.CMDP, "fingerprint", lambda self: "changed")
    assert not names(small()) & first


def test_seeds_differ_and_fit():
    made = plan(small(replicates=500))
    assert len(set(made.seed.tolist())) == 500
    assert made.seed.min() >= 0
    assert made.seed.max() < 2**56


def test_cap():
    whole = plan(small(epsilon=[2.0, 1.0, 0.5, 0.25]))
    samples = [c.samples for c in whole.configurations]
    assert samples == sorted(samples)
    cap = (samples[1] + samples[2]) / 2
    cut = plan(small(epsilon=[2.0, 1.0, 0.5, 0.25], cap=cap))
    assert [c.epsilon for c in cut.configurations] == [2.0, 1.0, 0.5]
    assert [c.capped for c in cut.configurations] == [False, False, True]
    assert cut.configurations[2].samples == pytest.approx(cap, rel=0.05)
    assert [o.epsilon for o in cut.omitted] == [0.25]
    assert [c.key for c in cut.configurations[:2]] == [c.key for c in whole.configurations[:2]]
    assert [o.budget for o in plan(small(epsilon=[], samples=[1e5, 1e9], cap=1e6)).omitted] == [1e9]
    over = plan(small(epsilon=[1e-4], cap=1e6))  # more steps than can be counted
    assert [c.capped for c in over.configurations] == [True]


def test_every_algorithm_has_a_plan_for_epsilon_and_for_samples():
    spec = Sweep(small().models, list(ALGORITHMS), epsilon=[2.0], samples=[3e6], cap=1e8, replicates=1)
    made = plan(spec)
    assert {c.label for c in made.configurations} | {o.label for o in made.omitted} == set(ALGORITHMS)
    assert all(np.isfinite(c.samples) for c in made.configurations)
    assert plan(replace(spec, points=3)).configurations[0].key == made.configurations[0].key


def test_errors_are_those_of_the_library():
    assert issubclass(SettingError, ValueError)
    assert issubclass(ModelError, ValueError)


def test_the_specifications_in_the_docs_and_in_bench(monkeypatch, tmp_path):
    root = Path(__file__).parents[1]
    text = (root / "docs" / "sweeps.md").read_text().split("<<'END'\n")[1].split("END\n")[0]
    assert len(plan(loads(text))) == 4 * 4 * 2 * 3
    blocks = (root / "docs" / "sweeps.md").read_text().split("```python\n")[1:]
    mine, reading = (
        next(b for b in blocks if word in b).split("```")[0] for word in ("Models(", "import pandas")
    )
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(mine, found)
    assert found["status"].finished
    if importlib.util.find_spec("pandas"):
        exec(reading, found)
        assert len(found["ends"]) == found["status"].tasks
    tables = [
        loads(text.replace(f'constants = "table{k}-constants.toml"', ""), root)
        for k in (1, 2)
        for text in [(root / "bench" / f"table{k}.toml").read_text()]
    ]
    for made, targets in zip(tables, (tables[0].epsilon, tables[1].samples), strict=True):
        assert len(made.expand()) >= 4
        assert made.replicates >= 8
        assert max(targets) / min(targets) >= 10
    # Table 1 has the paper's methods, Table 2 those with a last iterate and two more; that for averages is in none.
    assert {entry.name for table in tables for entry in table.entries} == set(ALGORITHMS) - {"pd-nac-average"}


def test_a_bad_constant_is_no_target_beyond_the_cap():
    with pytest.raises(SettingError, match="c_K = -1"):
        plan(small(algorithm=Algorithms("pd-anpg", {"c_K": -1.0}), epsilon=[0.5], cap=1e6))


def test_numbers_of_numpy():
    spec = small(epsilon=np.geomspace(2.0, 1.0, 2), samples=np.array([1e5]))
    assert spec.epsilon == (2.0, pytest.approx(1.0))
    made = Models(generator="garnet", settings={"gamma": [np.float64(0.9)], "n_states": np.int64(5)})
    assert [model.label for model in made.expand()] == ["env:garnet?gamma=0.9&n_states=5"]
    assert Algorithms("pd-anpg", {"inner": np.int64(5)}).title == "pd-anpg?inner=5"


def test_constants_of_schedules_stand_in_names():
    assert Algorithms("pd-anpg", {"c_K": 10.0}).title == "pd-anpg?c_K=10.0"
    assert Algorithms("pd-anpg?c_K=10.0").variant().settings == {"c_K": 10.0}


def test_one_of_a_kind_needs_no_list(tmp_path):
    made = Sweep("env:garnet", "crpo", samples=1e5, gamma=0.8, replicates=np.int64(2), seed=np.int64(3))
    assert made == Sweep(
        [Models(model="env:garnet")], ["crpo"], samples=[1e5], gamma=[0.8], replicates=2, seed=3
    )
    assert made == loads(
        'models = ["env:garnet"]\nalgorithms = "crpo"\nsamples = 1e5\ngamma = 0.8\nreplicates = 2\nseed = 3'
    )
    assert [each.name for each in Sweep("env:garnet", "all", samples=1e5).entries] == list(ALGORITHMS)
    assert [each.name for each in Sweep("env:garnet", [fc.CRPO, "pmd-pd"], samples=1e5).entries] == [
        "crpo",
        "pmd-pd",
    ]
    assert Models(file=tmp_path / "model.npz").file == str(tmp_path / "model.npz")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"models": [fc.envs.river_swim()]}, "save a model of your own"), ({"models": None}, r"models = \[\]"),
        ({"algorithms": [fc.CRPO()]}, "outer steps follow"), ({"samples": [10**400]}, "positive numbers"),
        ({"points": 10**9}, "from 1 to 10000"), ({"constants": 3}, "constants = 3"),
        ({"algorithms": [Algorithms("crpo", constants={"c_foo": 1.0})]}, "unknown constant of crpo"),
        ({"algorithms": [Algorithms("crpo?c_tol=1", {"c_tol": 2})]}, "c_tol is given twice"),
    ],
)  # fmt: skip
def test_what_is_refused_in_python(changed, words):
    with pytest.raises(SettingError, match=words):
        Sweep(**({"models": "env:garnet", "algorithms": "crpo", "samples": 1e5} | changed))
    with pytest.raises(SettingError, match="a value, or a list"):
        Models(generator="garnet", settings={"n_states": {5, 6}})


def test_constants_of_a_specification_in_python_are_used(tmp_path):
    found = fc.tune(fc.envs.river_swim(n_states=3), "npg-pd-softmax", samples=1e4, trials=2, replicates=1)
    found.trials["npg-pd-softmax"][1] = replace(found.trials["npg-pd-softmax"][1], error=0.0)
    found.save(tmp_path / "tuned.toml")
    right = found.constants["npg-pd-softmax"]["c_eta"]
    assert right != 1.0
    one = Algorithms("npg-pd-softmax", constants="tuned.toml")
    for given in (
        {"algorithms": [one]}, {"constants": "tuned.toml"}, {"constants": found}, {"constants": found.constants},
    ):  # fmt: skip
        made = Sweep(
            **({"models": "env:garnet", "algorithms": "npg-pd-softmax", "samples": 1e5} | given),
            folder=tmp_path,
        )
        assert plan(made).configurations[0].settings["c_eta"] == right


def test_what_is_found_out_when_it_is_planned_has_its_line():
    text = SPEC.replace("n_states = [5, 6]", "n_states = [5, -6]")
    with pytest.raises(SettingError, match=r"^specification, line 9: env:garnet\?n_states=-6.*n_states = -6"):
        plan(loads(text))
    with pytest.raises(SettingError, match=r"^specification, line 23: plain on .*c_K = -4"):
        plan(loads(SPEC.replace("c_K = 4", "c_K = -4")))
    with pytest.raises(SettingError, match=r"^specification, line 15: env:river_swim.*gamma = 2.0"):
        plan(loads(SPEC.replace('n_states=4"', 'n_states=4"\ngamma = 2.0').replace("[5, 6]", "5")))
    with pytest.raises(FileNotFoundError, match=r"^specification, line 13: nowhere.npz: .* cannot be read"):
        plan(loads(SPEC.replace("env:river_swim?n_states=4", "nowhere.npz")))


def test_what_is_too_large_is_refused_before_it_is_built():
    many = Models(generator="garnet", settings={"seed": list(range(2000)), "n_states": list(range(5, 2005))})
    with pytest.raises(SettingError, match=r"4,000,000 models"):
        plan(Sweep(many, "crpo", samples=1e5, replicates=1))
    with pytest.raises(SettingError, match=r"10,000,001 tasks"):
        plan(Sweep("env:garnet", "crpo", samples=1e5, replicates=10_000_001))


def test_budgets_below_one_outer_step_are_left_out():
    made = plan(Sweep("env:garnet", ["pd-anpg", "pd-nac"], samples=[10, 1e5], replicates=1))
    assert [(each.label, each.budget) for each in made.omitted] == [("pd-anpg", 10)]
    assert [(c.label, c.budget) for c in made.configurations] == [
        ("pd-anpg", 1e5), ("pd-nac", 10), ("pd-nac", 1e5),
    ]  # fmt: skip
    with pytest.raises(SettingError, match="nothing would be run"):
        plan(Sweep("env:garnet", "pd-anpg", samples=10))
    with pytest.raises(SettingError, match=r"2\^40 outer steps of"):
        plan(Sweep("env:garnet", "pd-nac", samples=1e30))
    with pytest.raises(
        SettingError,
        match=r"rollouts = 1\d+: an integer from 1 to 2\^40 is expected; give a larger epsilon, or a cap",
    ):
        plan(Sweep("env:garnet", "pmd-pd", epsilon=1e-9))
