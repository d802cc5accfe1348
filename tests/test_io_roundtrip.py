"""Every format keeps a model: to the last bit, its names, labels, actions and start; and each converts to each."""

from __future__ import annotations

import itertools
import os
import re
import stat

import numpy as np
import pytest
from io_cases import FORMATS, SHARED, file_of, needs_models, small, told

import fastcmdp as fc
from fastcmdp import io
from fastcmdp.errors import ModelError


def random_model() -> fc.CMDP:
    rng = np.random.default_rng(11)
    rows = rng.random((6, 3, 6)) ** 8
    start = rng.random(6)
    return fc.CMDP.from_arrays(
        rows / rows.sum(axis=2, keepdims=True), rng.normal(size=(6, 3)), [rng.random((6, 3)), rng.normal(size=6)],
        gamma=0.9, start=start / start.sum(), limits=[3.0, -1.0], sense=["<=", ">="],
    )  # fmt: skip


MODELS = {
    "resource_gathering": fc.envs.resource_gathering,
    "garnet": lambda: fc.envs.garnet(n_states=40, n_actions=3, n_branches=4, gamma=0.9, seed=1, limit=1.0),
    "queue": lambda: fc.envs.queue(limit=2.0),
    "river_swim": lambda: fc.envs.river_swim(limit=5.0),
    "one_state": lambda: fc.CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [0, 1], [0, 1], gamma=0.5, limits=1.5),
    "random": random_model,
    # The same target twice in a choice, actions with gaps.
    "repeated": lambda: fc.CMDP(
        [0, 2, 3], [0, 3, 4, 6], [0, 0, 1, 1, 0, 0], [0.25, 0.25, 0.5, 1, 0.3, 0.7], [1, 2.5, 3], [[1, 2, 3.0]],
        gamma=0.5, limits=[1.0], action_of_choice=[3, 7, 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", MODELS)
def test_models_survive(tmp_path, kind, name):
    cmdp = MODELS[name]()
    path = file_of(tmp_path, kind)
    fc.save(cmdp, path, format=kind)
    lines = [
        f"{cost} {sense} {limit!r}"
        for cost, sense, limit in zip(cmdp.names[1:], cmdp.sense, cmdp.limits.tolist(), strict=True)
    ]
    found = fc.load(path, reward=cmdp.names[0], constraints=lines, gamma=cmdp.gamma)
    assert (found.names, found.gamma) == (cmdp.names, cmdp.gamma)
    assert found.action_of_choice.tolist() == cmdp.action_of_choice.tolist()
    if kind in ("mat", "toolbox"):
        # A table has its targets in order, and each of them once.
        difference = found.transition_matrix() - cmdp.transition_matrix()
        assert abs(difference).max() <= (0 if name != "repeated" else 1e-16)
        for part in ("reward", "costs", "start", "limits", "state_to_choice", "signals"):
            assert getattr(found, part).tolist() == getattr(cmdp, part).tolist()
    else:
        assert found.fingerprint() == cmdp.fingerprint()


@pytest.mark.parametrize("kind", FORMATS)
def test_descriptions_survive(tmp_path, kind):
    starts = [1.0, 0, 0], [0.5, 0, 0.5], [0.1, 0.2, 0.7], None
    for i, start in enumerate(starts):
        described = small(start=None if start is None else np.array(start))
        path = file_of(tmp_path, kind, f"start{i}")
        io.write(described, path, format=kind)
        found = io.read(path)
        assert told(found) == told(described)
        assert found.notes == ()


@pytest.mark.parametrize("kind", FORMATS)
def test_actions_without_names_or_none_at_all(tmp_path, kind):
    path = file_of(tmp_path, kind)
    io.write(small(action_names=(), actions=np.array([0, 7, 3, 5], np.int32)), path, format=kind)
    assert io.read(path).actions.tolist() == [0, 7, 3, 5]
    io.write(small(action_names=(), actions=None), path, format=kind)
    found = io.read(path).actions
    # A table has a place for each action, which then counts.
    assert found is None or found.tolist() == [0, 1, 0, 0]
    # Labels that come twice in a state are kept by formats that can; a model numbers the choices instead.
    io.write(small(actions=np.array([1, 1, 0, 2], np.int32)), path, format=kind)
    found = io.read(path)
    if kind not in ("mat", "toolbox"):
        assert [found.action_names[a] for a in found.actions] == ["turn left", "turn left", "go", "stay"]
    assert io.build(found, reward="time", gamma=0.9).action_of_choice.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("first", FORMATS)
def test_each_converts_to_each(tmp_path, first):
    described = small()
    start = file_of(tmp_path, first, "start")
    io.write(described, start, format=first)
    for second in FORMATS:
        path = file_of(tmp_path, second, f"to-{second}")
        io.write(io.read(start), path, format=second)
        assert told(io.read(path)) == told(described)


def by_action(description):
    """What a description says of each (state, action): the order of the choices of a state does not count."""
    names = [description.action_names[a] for a in description.actions]
    bounds = description.choice_to_branch
    return {
        (s, names[q]): (
            sorted(
                zip(
                    description.branch_target[bounds[q] : bounds[q + 1]].tolist(),
                    description.branch_prob[bounds[q] : bounds[q + 1]].tolist(),
                    strict=True,
                )
            ),
            {name: float(description.on_choices(name)[q]) for name in description.rewards},
        )
        for q, s in enumerate(description.choice_state.tolist())
    }


@needs_models
def test_a_real_model_goes_round_all_formats(tmp_path):
    described = io.read(SHARED / "resource-gathering-small.umb")
    expected = by_action(described)
    for i, kind in enumerate(itertools.chain(FORMATS, reversed(FORMATS))):
        path = file_of(tmp_path, kind, f"step{i}")
        io.write(described, path, format=kind)
        described = io.read(path)
        assert by_action(described) == expected
        assert described.start.tolist() == [1.0] + [0.0] * 93
        # DRN tells labels at the states that have them, so it has none that no state has.
        assert {name: len(states) for name, states in described.labels.items() if len(states)} == {
            "success": 94
        }


@pytest.mark.parametrize("kind", ["drn", "tra"])
def test_text_has_digits_enough_and_no_more(tmp_path, kind):
    described = small(rewards={"r": io.Reward(choices=np.array([1 / 3, 0.1, 1e-300, 12345678.0]))})
    path = file_of(tmp_path, kind)
    io.write(described, path)
    text = "".join(file.read_text() for file in tmp_path.iterdir())
    for word in ("0.3333333333333333", "0.1", "1e-300", "12345678", "0.33333333333333337"):
        assert word in re.split(r"[\s,\[\]]+", text)


@pytest.mark.parametrize("kind", ["umb", "drn", "tra", "mat", "npz"])
def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch, kind):
    path = file_of(tmp_path, kind)
    io.write(small(), path, format=kind)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        io.write(small(labels={}), path, format=kind)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_who_reads_the_old_file_keeps_it(tmp_path):
    io.write(small(), tmp_path / "m.umb")
    old = (tmp_path / "m.umb").read_bytes()
    with (tmp_path / "m.umb").open("rb") as file:
        io.write(small(labels={}), tmp_path / "m.umb")
        assert file.read() == old
    assert (tmp_path / "m.umb").read_bytes() != old


def test_too_little_memory_is_told(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    io.write(small(), tmp_path / "m.drn")
    monkeypatch.setattr("fastcmdp.io.drn.read", fail)
    with pytest.raises(ModelError, match=r"m\.drn: there is not enough memory"):
        io.read(tmp_path / "m.drn")


def test_files_have_the_usual_permissions(tmp_path):
    (tmp_path / "usual").write_text("")
    io.write(small(), tmp_path / "m.umb")
    assert stat.S_IMODE((tmp_path / "m.umb").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "usual").stat().st_mode
    )


def test_formats_and_endings(tmp_path):
    with pytest.raises(ModelError, match=r"the ending tells no format; \.npz, "):
        io.read(tmp_path / "m.xyz")
    with pytest.raises(ModelError, match="format 'xyz' is unknown; npz, "):
        io.write(small(), tmp_path / "m.npz", format="xyz")
    io.write(small(), tmp_path / "M.UMB.GZ")
    assert (tmp_path / "M.UMB.GZ").read_bytes()[:2] == b"\x1f\x8b"
    assert told(io.read(tmp_path / "M.UMB.GZ")) == told(small())
    io.write(small(), tmp_path / "odd", format="drn")
    assert told(io.read(tmp_path / "odd", format="drn")) == told(small())
    with pytest.raises(ModelError, match=r"other files go with a \.tra only"):
        io.read(tmp_path / "M.UMB.GZ", files=[])
