"""Policies and simulators by name."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import fastcmdp as fc
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.policy_names import KINDS, PolicyName, policy_named, read_features
from fastcmdp.simulator_names import simulator_named


@pytest.fixture(scope="module")
def cmdp():
    return fc.envs.garnet(n_states=5, n_actions=3, gamma=0.8)


@pytest.mark.parametrize(
    "text", ["tabular", "log-linear", "log-linear:a:b.npy", "neural:32", "neural:32,16:f.npy", "relu:64"]
)
def test_a_name_is_its_own_text(text):
    assert str(policy_named(text)) == text
    assert policy_named(text).kind in KINDS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tabluar", "did you mean 'tabular'"),
        ("tabular:3", "tabular, with nothing after it"),
        ("log-linear:", "log-linear:FEATURES.npy is expected"),
        ("neural", "neural:WIDTH or neural:WIDTH,WIDTH is expected"),
        ("neural:", "neural:WIDTH"),
        ("neural:0", "widths up to 65536"),
        ("neural:-3", "widths up to 65536"),
        ("neural:1e3", "widths up to 65536"),
        ("neural:70000", "widths up to 65536"),
        ("neural:8,8,8", "neural:WIDTH or"),
        ("neural:8:", "neural:WIDTH or"),
        ("relu:7", "an even width"),
        ("", "a name such as"),
        (3, "policy = 3"),
    ],
)
def test_what_is_no_policy_is_refused_with_its_value(text, said):
    with pytest.raises(SettingError, match=said):
        policy_named(text)


def test_each_name_makes_the_policy_that_python_makes(cmdp, tmp_path):
    rng = np.random.default_rng(0)
    choice, state = rng.normal(size=(cmdp.n_choices, 4)), rng.normal(size=(cmdp.n_states, 3))
    np.save(tmp_path / "choice.npy", choice)
    np.save(tmp_path / "state.npy", state)
    scipy.sparse.save_npz(tmp_path / "choice.npz", scipy.sparse.csr_array(choice))
    for text, policy in {
        "tabular": fc.TabularSoftmax(),
        "log-linear:choice.npy": fc.LogLinear(choice),
        "log-linear:choice.npz": fc.LogLinear(scipy.sparse.csr_array(choice)),
        "neural:8": fc.NeuralSoftmax(np.eye(cmdp.n_states), hidden=(8,)),
        "neural:8,4:state.npy": fc.NeuralSoftmax(state, hidden=(8, 4)),
        "neural:8:choice.npy": fc.NeuralSoftmax(choice_features=choice, hidden=(8,)),
        "relu:6": fc.ReluSoftmax(np.eye(cmdp.n_choices), 6),
        "relu:6:choice.npy": fc.ReluSoftmax(choice, 6),
    }.items():
        made = policy_named(text).build(cmdp, tmp_path)
        assert made.fingerprint() == policy.fingerprint(), text
        assert made.bind(cmdp).n_parameters == policy.bind(cmdp).n_parameters


def test_files_that_hold_no_features_are_named(cmdp, tmp_path):
    (tmp_path / "text.npy").write_text("1,2")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    np.savez(tmp_path / "plain.npz", a=np.eye(2))
    (tmp_path / "empty.npy").write_bytes(b"")
    for name in ("text.npy", "objects.npy", "plain.npz", "empty.npy"):
        with pytest.raises(ModelError, match=rf"{name}: no table of features"):
            read_features(tmp_path / name)
    with pytest.raises(ModelError, match="a folder"):
        read_features(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"none\.npy"):
        PolicyName("log-linear", features="none.npy").build(cmdp, tmp_path)


def test_a_class_that_does_not_go_with_the_model_says_what_does(cmdp):
    with pytest.raises(ModelError, match=r"give log-linear:FEATURES\.npy"):
        policy_named("log-linear").build(cmdp)
    large = fc.envs.garnet(n_states=5000, n_actions=2, n_branches=2)
    with pytest.raises(ModelError, match=r"give neural:WIDTH:FEATURES\.npy"):
        policy_named("neural:8").build(large)
    simulator = simulator_named("simulator:fastcmdp.simulators:tandem_queue")
    with pytest.raises(ModelError, match="log-linear or neural:WIDTH"):
        policy_named("relu:8").build(simulator)
    assert isinstance(policy_named("log-linear").build(simulator), fc.LogLinear)
    assert isinstance(policy_named("neural:8").build(simulator), fc.NeuralSoftmax)


def test_simulators_by_import_path(tmp_path, monkeypatch):
    (tmp_path / "my_queue.py").write_text(
        "from fastcmdp.simulators import tandem_queue\n"
        "made = tandem_queue(budget=7.0)\n"
        "number = 3\n"
        "def wrong():\n    return 3\n"
        "def queue(budget=5.0):\n    return tandem_queue(budget=budget)\n"
    )
    monkeypatch.chdir(tmp_path)
    made = simulator_named("simulator:my_queue:made")
    assert made.limits.tolist() == [7.0]
    assert simulator_named("simulator:my_queue:queue?budget=7").fingerprint() == made.fingerprint()
    for spec, said in {
        "simulator:my_queue": "simulator:MODULE:NAME",
        "env:my_queue": "simulator:MODULE:NAME",
        "simulator:my_quue:made": "cannot be imported",
        "simulator:my_queue:queu": "did you mean 'queue'",
        "simulator:my_queue:number": "is of type int",
        "simulator:my_queue:wrong": "returned a int",
        "simulator:my_queue:queue?buget=7": r"queue\(budget=5.0\)",
        "simulator:my_queue:made?budget=7": "takes no settings",
    }.items():
        with pytest.raises(SettingError, match=said):
            simulator_named(spec)
