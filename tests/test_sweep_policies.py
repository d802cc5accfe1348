"""Sweeps over policy classes and simulators, and folders that an earlier version wrote."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import fastcmdp as fc
from fastcmdp import sweep as sweeps
from fastcmdp.algorithms import algorithm
from fastcmdp.errors import SettingError
from fastcmdp.policy_names import policy_named
from fastcmdp.simulator_names import simulator_named
from fastcmdp.sweep import Algorithms, Models, Refused, Store, Sweep, loads, plan, worker

GARNET = Models(generator="garnet", settings={"n_states": 5, "gamma": 0.8})


def settings_of(made):
    own = {k: tuple(v) if isinstance(v, list) else v for k, v in made.settings.items()}
    return algorithm(made.algorithm)(**own)


@pytest.fixture
def features(tmp_path):
    cmdp = GARNET.expand()[0].build()
    np.save(tmp_path / "phi.npy", np.random.default_rng(0).normal(size=(cmdp.n_choices, 4)))
    return tmp_path


def test_rows_are_those_of_solve_with_that_policy(features, tmp_path):
    own = [
        Algorithms("pd-anpg", policy="neural:8"),
        Algorithms("pd-anpg", policy="log-linear:phi.npy"),
        "pd-anpg",
    ]
    spec = Sweep([GARNET], own, samples=[1e5], replicates=2, points=4, folder=features, policy="neural:4")
    found = sweeps.run(spec, tmp_path / "out")
    assert found.finished
    made = plan(spec).configurations
    assert [c.label for c in made] == ["pd-anpg neural:8", "pd-anpg log-linear:phi.npy", "pd-anpg"]
    assert [c.policy for c in made] == ["neural:8", f"log-linear:{features / 'phi.npy'}", "neural:4"]
    table = Store(tmp_path / "out").read().to_pandas()
    for each in made:
        rows = table[(table.configuration == each.key) & (table.replicate == 1)].sort_values("point")
        cmdp = each.model.build()
        policy = policy_named(each.policy).build(cmdp)
        result = fc.solve(
            cmdp, settings_of(each), policy=policy, seed=int(rows.seed.iloc[0]), threads=1, trace=4
        )
        assert rows.samples.iloc[-1] == result.samples[0]
        np.testing.assert_allclose(rows.last_reward.iloc[-1], result.trace.reward[0, -1], rtol=1e-9)


def test_policies_stand_in_the_text_and_change_the_tasks(features):
    text = """
samples = [1e5]
policy = "log-linear:phi.npy"

[[models]]
generator = "garnet"
n_states = 5
gamma = 0.8

[[algorithms]]
name = "pd-anpg"

[[algorithms]]
name = "pd-anpg"
policy = "tabular"
"""
    np.save(features / "phi.npy", np.random.default_rng(1).normal(size=(20, 4)))  # what no worker has seen
    spec = loads(text, features)
    assert loads(spec.to_toml(), features) == spec
    mine, tabular = plan(spec).configurations
    (plainly,) = plan(Sweep([GARNET], ["pd-anpg"], samples=[1e5])).configurations
    assert mine.key != plainly.key
    assert tabular.label == "pd-anpg tabular"
    assert (plainly.policy, plainly.policy_fingerprint) == ("tabular", fc.TabularSoftmax().fingerprint())
    np.save(features / "phi.npy", np.ones((20, 2)) * np.arange(20)[:, None])
    changed = plan(spec).configurations[0]
    assert changed.key != mine.key
    with pytest.raises(Refused, match=r"phi\.npy: the policy has changed since the sweep began"):
        worker.execute(worker.TaskBatch(worker.identity(), (worker.group_of(mine, (0,)),)))


def test_policies_that_will_not_do_are_named_with_their_line(features):
    text = 'samples = [1e5]\npolicy = "{}"\nmodels = ["env:river_swim"]\n\n[[algorithms]]\nname = "{}"\npolicy = "{}"\n'
    for given, said in {
        ("tabluar", "pd-anpg", "tabular"): "line 2: unknown policy: 'tabluar'; did you mean 'tabular'",
        ("tabular", "pd-anpg", "neural"): "line 7: policy = 'neural': neural:WIDTH",
    }.items():
        with pytest.raises(SettingError, match=said):
            loads(text.format(*given), features)
    for given, said in {
        (
            "tabular",
            "pd-anpg",
            "log-linear:phi.npy",
        ): r"line 7: .*features have 20 rows, the model has 16 choices",
        ("tabular", "pd-anpg", "log-linear:psi.npy"): r"line 7: .*psi\.npy: there is no such file",
        ("tabular", "pmd-pd", "neural:8"): "line 7: .*works on the tabular softmax policy only",
    }.items():
        with pytest.raises(SettingError, match=said):
            plan(loads(text.format(*given), features))


def test_features_that_change_are_refused(features, tmp_path):
    spec = Sweep(
        [GARNET], ["pd-anpg"], samples=[1e4], replicates=1, folder=features, policy="log-linear:phi.npy"
    )
    sweeps.run(spec, tmp_path / "out")
    np.save(features / "phi.npy", np.eye(20))
    with pytest.raises(SettingError, match=r"phi\.npy has changed since the sweep began"):
        sweeps.run(spec, tmp_path / "out")


@pytest.mark.parametrize("method", ["pd-anpg", "pd-anpg?critic=control+start&dual=pi"])
def test_a_simulator_by_import_path(method, tmp_path):
    name = "simulator:fastcmdp.simulators:tandem_queue?budget=20"
    spec = Sweep([Models(model=name)], [method], samples=[1e5], replicates=2, points=4)
    assert sweeps.run(spec, tmp_path / "out").finished
    (made,) = plan(spec).configurations
    assert (made.policy, made.size[0]) == ("log-linear", 0)
    table = Store(tmp_path / "out").read().to_pandas()
    assert set(table.source) == {"estimate"}
    assert table.gap.isna().all()
    rows = table[table.replicate == 1].sort_values("point")
    result = fc.solve(simulator_named(name), settings_of(made), seed=int(rows.seed.iloc[0]), threads=1)
    assert rows.samples.iloc[-1] == result.samples[0]
    np.testing.assert_allclose(rows.duals.iloc[-1], result.mixture.duals[0], rtol=1e-9)
    with pytest.raises(SettingError, match="pmd-pd needs a model with a table"):
        plan(Sweep([Models(model=name)], ["pmd-pd"], samples=[1e6]))


def test_a_folder_of_the_first_version_goes_on(tmp_path):
    """No policies in its plan, other facts in its sessions, no tasks claimed by the living."""
    spec = Sweep([GARNET], ["pd-anpg"], samples=[1e4, 1e5], replicates=2, points=4)
    path = tmp_path / "out"
    sweeps.run(spec, path)
    right = Store(path).digest()
    table = pq.read_table(path / "plan.parquet")
    pq.write_table(table.drop_columns(["policy", "policy_fingerprint"]), path / "plan.parquet")
    for old in (path / "sessions").iterdir():
        body = {"host": "elsewhere", "boot": "x", "process": 1, "start": "12", "over": True}
        old.write_text(json.dumps(body))
        (path / "claims" / f"{old.stem}.1.json").write_text(json.dumps([n.decode() for n in plan(spec).name]))
    assert sweeps.status(path).finished
    assert sweeps.run(path).new == 0
    min((path / "parts").iterdir()).unlink()
    assert sweeps.run(spec, path).new > 0
    assert Store(path).digest() == right
    assert not list((path / "claims").iterdir())
