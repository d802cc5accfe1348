"""The native file, and arrays in the conventions of MDP toolboxes, in .npz and .mat."""

from __future__ import annotations

import io as stdio
import json
import struct
import zipfile
import zlib

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from io_cases import file_of, small, told

import fastcmdp as fc
from fastcmdp import io
from fastcmdp.errors import ModelError
from fastcmdp.io import matfile
from fastcmdp.npz import read_arrays, write_arrays

P = np.array([[[0.25, 0.75], [0.0, 1.0]], [[1.0, 0.0], [0.5, 0.5]]])  # (A, S, S)
R = np.array([[1.0, 2.0], [3.0, 4.0]])  # (S, A)


@pytest.fixture
def native(tmp_path):
    """The arrays of a native file, and a function that reads it with some of them changed."""
    path = tmp_path / "m.npz"
    io.write(small(), path)
    arrays = read_arrays(path)

    def changed(**changes):
        write_arrays(path, {name: array for name, array in (arrays | changes).items() if array is not None})
        return io.read(path)

    return arrays, changed


# The native format.


def test_nothing_is_lost(tmp_path):
    described = small(start=np.array([0.1, 0.2, 0.7]))
    io.write(described, tmp_path / "m.npz")
    found = io.read(tmp_path / "m.npz")
    assert told(found) == told(described)
    assert found.problem == described.problem
    assert found.rewards["toll"].states.tolist() == described.rewards["toll"].states.tolist()
    cmdp = fc.load(tmp_path / "m.npz")
    assert cmdp.names == ("-time", "toll", "label:goal")
    assert (cmdp.gamma, cmdp.limits.tolist(), cmdp.sense) == (0.9, [1.5, 0.3], ("<=", ">="))


def test_a_model_comes_back_to_the_last_bit(tmp_path):
    rng = np.random.default_rng(3)
    rows = rng.random((7, 3, 7))
    start = rng.random(7)
    cmdp = fc.CMDP.from_arrays(
        rows / rows.sum(axis=2, keepdims=True), rng.normal(size=(7, 3)), [rng.random((7, 3)), rng.random(7)],
        gamma=0.97, start=start / start.sum(), limits=[1 / 3, 2 / 7], sense=["<=", ">="],
    )  # fmt: skip
    fc.save(cmdp, tmp_path / "m.npz")
    found = fc.load(tmp_path / "m.npz")
    assert found.fingerprint() == cmdp.fingerprint()
    assert (found.names, found.sense, found.gamma) == (cmdp.names, cmdp.sense, cmdp.gamma)
    assert found.action_of_choice.tolist() == cmdp.action_of_choice.tolist()


def test_what_is_asked_for_comes_before_what_is_saved(tmp_path):
    io.write(small(), tmp_path / "m.npz")
    cmdp = fc.load(tmp_path / "m.npz", reward="toll", constraints=[], gamma=0.5, start="goal")
    assert (cmdp.names, cmdp.gamma, cmdp.start.tolist()) == (("toll",), 0.5, [0, 0, 1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fastcmdp_model": np.array(2)}, "a model file of version 2; this fastcmdp reads version 1: upgrade"),
        ({"fastcmdp_model": np.array([1])}, "'fastcmdp_model' has 1 axes"),
        ({"branch_prob": None}, "the array 'branch_prob' is missing"),
        ({"branch_prob": np.ones(7, np.float32)}, "'branch_prob' has 1 axes and dtype float32; 1 and f8"),
        ({"branch_prob": np.ones(7)}, "state 1, choice 0 sum to 3"),
        ({"branch_prob": np.ones(6)}, "choice rows run from 0 to 7; they must run from 0 to 6"),
        ({"branch_target": np.zeros(8, np.int32)}, "they must run from 0 to 8"),
        ({"branch_target": np.full(7, 3, np.int32)}, "branch 0 leads to state 3"),
        ({"branch_target": np.full(7, -1, np.int32)}, "branch 0 leads to state -1"),
        ({"state_to_choice": np.array([0, 2, 3])}, "state rows run from 0 to 3"),
        ({"state_to_choice": np.zeros(0, np.int64)}, "rows of choice entries; at least one"),
        ({"meta": np.frombuffer(b"{", np.uint8)}, "'meta' is no JSON"),
        ({"meta": np.frombuffer(b"[1]", np.uint8)}, "no JSON object"),
        ({"meta": np.frombuffer(b"[" * 100_000, np.uint8)}, "'meta' is no JSON"),
        ({"meta": np.frombuffer(b'{"rewards": "time"}', np.uint8)}, "'rewards' in 'meta' must be a list of strings"),
        ({"meta": np.frombuffer(b'{"rewards": ["a", "a"]}', np.uint8)}, "'rewards' in 'meta' has a name twice"),
        ({"meta": np.frombuffer(b'{"gamma": "x"}', np.uint8)}, "'gamma' in 'meta' must be a number"),
        ({"meta": np.frombuffer(b'{"constraints": [["a", "<="]]}', np.uint8)}, "'constraints' in 'meta'"),
        ({"reward_0_states": np.ones(2)}, "reward 'time' has a value that is not finite, or not 3"),
        ({"reward_0_states": np.full(3, np.nan)}, "reward 'time' has a value that is not finite"),
        ({"label_0": np.array([3])}, "label 'goal' is on a state beyond the last"),
        ({"label_0": None}, "the array 'label_0' is missing"),
        ({"start": np.array([0.5, 0.4, 0.0])}, "start probabilities sum to 0.9"),
        ({"start": np.array([2, -1, 0.0])}, "a start probability is negative"),
        ({"actions": np.array([0, 1, 0, 3], np.int32)}, "an action 3 without a name"),
        ({"actions": np.array([0, -1, 0, 2], np.int32)}, "choice 1 has action -1"),
    ],
)  # fmt: skip
def test_damaged_native_files(native, changes, message):
    with pytest.raises(ModelError, match=message):
        native[1](**changes)


def test_other_arrays_are_no_model(tmp_path):
    write_arrays(tmp_path / "run.npz", {"theta": np.zeros(3), "format": np.array(1)})
    with pytest.raises(
        ModelError, match=r"no model: neither one that fastcmdp saved nor an array 'P' .*\(theta, format\)"
    ):
        io.read(tmp_path / "run.npz")


def test_headers_of_arrays_that_cannot_be_read(tmp_path):
    for header in (
        b"{'descr': '<f8', 'shape': (",
        b"(" * 5000,
        b"{'descr': 3, 'fortran_order': 0, 'shape': ()}",
    ):
        file = stdio.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("P.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        (tmp_path / "m.npz").write_bytes(file.getvalue())
        with pytest.raises(ModelError, match="damaged"):
            io.read(tmp_path / "m.npz")


def test_a_bomb_in_an_npz(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "m.npz", P=np.zeros((1, 1000, 1000)))
    monkeypatch.setattr("fastcmdp.files.ALWAYS", 1 << 20)
    with pytest.raises(ModelError, match="bytes once unpacked"):
        io.read(tmp_path / "m.npz")


# Toolbox arrays.


@pytest.fixture(params=["npz", "mat"])
def read(request, tmp_path):
    def from_arrays(**arrays):
        path = tmp_path / f"m.{request.param}"
        if request.param == "npz":
            np.savez(path, **arrays)
        else:
            scipy.io.savemat(path, arrays)
        return io.read(path)

    return from_arrays


def test_arrays_of_a_toolbox(read):
    found = read(P=P, R=R, toll=np.array([0.5, 0.25]), start=np.array([0.0, 1.0]), discount=0.9)
    assert found.state_to_choice.tolist() == [0, 2, 4]
    assert found.branch_target.tolist() == [0, 1, 0, 1, 0, 1]
    assert found.branch_prob.tolist() == [0.25, 0.75, 1.0, 1.0, 0.5, 0.5]
    assert found.rewards["R"].choices.tolist() == [1, 2, 3, 4]
    assert found.rewards["toll"].states.tolist() == [0.5, 0.25]
    assert found.actions.tolist() == [0, 1, 0, 1]
    cmdp = io.build(found, reward="R", constraints="toll <= 2")
    assert (cmdp.gamma, cmdp.start.tolist()) == (0.9, [0, 1])
    expected = fc.CMDP.from_arrays(P.swapaxes(0, 1), R, np.array([0.5, 0.25]), gamma=0.9, start=1, limits=2.0)
    assert cmdp.fingerprint() == expected.fingerprint()


def test_the_only_reward_needs_no_name(read):
    assert io.build(read(P=P, R=R), gamma=0.9, start=0).names == ("R",)


def test_rewards_of_transitions_become_their_expectation(read):
    rewards = np.arange(8.0).reshape(2, 2, 2)
    found = read(P=P, R=rewards).on_choices("R")
    assert found.tolist() == [(P * rewards).sum(axis=2)[a, s] for s in range(2) for a in range(2)]


def test_a_row_of_zeros_is_an_action_that_is_not_there(read):
    table = P.copy()
    table[1, 0] = 0.0
    found = read(P=table, R=R)
    assert found.state_to_choice.tolist() == [0, 1, 3]
    assert found.actions.tolist() == [0, 0, 1]
    assert found.rewards["R"].choices.tolist() == [1, 3, 4]
    table[0, 0] = 0.0
    with pytest.raises(ModelError, match="state 0 has no choice"):
        read(P=table, R=R)


def test_single_precision_rows(read):
    table = np.full((1, 3, 3), 1 / 3, np.float32)
    found = read(P=table, R=np.ones((3, 1)))
    assert found.branch_prob.sum() == pytest.approx(3, abs=1e-15)
    wrong = table * np.float32(1.0001)
    with pytest.raises(ModelError, match=r"state 0, action 0 sum to 1\.0001"):
        read(P=wrong, R=np.ones((3, 1)))


def test_integers_and_other_orders(read):
    found = read(
        P=np.asfortranarray(np.eye(2)[None].astype(np.int8)), R=np.asfortranarray(R[:, :1].astype(int))
    )
    assert (found.n_choices, found.rewards["R"].choices.tolist()) == (2, [1, 3])


def test_arrays_that_mean_nothing_are_named(read):
    notes = read(P=P, R=R, extra=np.zeros((5, 7)), axes="ast").notes
    assert notes == ("the array 'extra' of shape (5, 7) is not used",)


def test_labels(read):
    found = read(P=P, R=R, label_goal=np.array([False, True]), safe=np.array([True, True]))
    assert {name: states.tolist() for name, states in found.labels.items()} == {"goal": [1], "safe": [0, 1]}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"R": R}, "nor an array 'P'"),
        ({"P": np.ones((2, 3, 4))}, r"P has shape \(2, 3, 4\); it must be \(A, S, S\)"),
        ({"P": np.ones((3, 2)), "R": R}, "it must be"),
        ({"P": np.zeros((0, 2, 2))}, "P has shape|damaged"),
        ({"P": P * [[[0.5], [1]]]}, r"state 0, action [01] sum to 0\.5"),
        ({"P": P * np.nan}, "state 0, action 0 has probability nan"),
        ({"P": P * [[[-1], [1]]]}, r"state 0, action 0 has probability -0\.25"),
        ({"P": P * 1j}, "P is of type"),
        ({"P": P, "R": R * np.inf}, "reward 'R' has a value that is not finite"),
        ({"P": P, "start": np.ones(3)}, r"'start' has shape .*; 2 numbers are expected"),
        ({"P": P, "start": np.ones(2)}, "start probabilities sum to 2"),
        ({"P": P, "discount": np.ones(2)}, "'discount' has shape .*; one number"),
        ({"P": P, "names": "[]"}, "'names' must be a JSON object"),
        ({"P": P, "names": "{"}, "'names' must be a JSON object"),
        ({"P": P, "R": R, "Q": R, "names": '{"R": "a", "Q": "a"}'}, "two arrays have the name 'a'"),
        ({"P": P, "actions": np.array(["a"])}, "'actions' has 1 names; there are 2 actions"),
    ],
)
def test_faults_of_toolbox_arrays(read, arrays, message):
    with pytest.raises(ModelError, match=message):
        read(**arrays)


def test_texts_with_code_points_that_do_not_exist(tmp_path):
    names = np.array(["{}"])
    names.view("<u4")[0] = 0x7FFFFFFF
    np.savez(tmp_path / "m.npz", P=P, R=R, names=names)
    with pytest.raises(ModelError, match="a text that cannot be read"):
        io.read(tmp_path / "m.npz")


def test_dense_tables_are_refused_when_they_are_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr("fastcmdp.io.toolbox.LARGEST_TABLE", 100)
    with pytest.raises(ModelError, match=r"GiB: save it as \.mat"):
        io.write(small(), tmp_path / "m.npz", format="toolbox")
    assert list(tmp_path.iterdir()) == []


# What only .mat has.


def test_sparse_cells_and_matlabs_axes(tmp_path):
    cells = np.empty((1, 2), dtype=object)
    cells[0] = [scipy.sparse.csc_matrix(P[0]), scipy.sparse.csc_matrix(P[1])]
    rewards = np.empty((1, 2), dtype=object)
    rewards[0] = [scipy.sparse.csc_matrix(P[0] > 0) * 2.0, scipy.sparse.csc_matrix((2, 2))]
    cells[0, 0] = scipy.sparse.csc_matrix(
        (np.array([0.25, 0.0, 0.75, 1.0]), ([0, 1, 0, 1], [0, 0, 1, 1]))
    )  # a zero
    scipy.io.savemat(tmp_path / "cells.mat", {"P": cells, "R": scipy.sparse.csc_matrix(R), "toll": rewards})
    found = io.read(tmp_path / "cells.mat")
    assert found.branch_prob.tolist() == [0.25, 0.75, 1.0, 1.0, 0.5, 0.5]
    assert found.on_choices("R").tolist() == [1, 2, 3, 4]
    assert found.on_choices("toll").tolist() == [2, 0, 2, 0]
    rng = np.random.default_rng(0)
    table = rng.random((3, 3, 2))  # (S, S, A)
    table /= table.sum(axis=1, keepdims=True)
    scipy.io.savemat(tmp_path / "axes.mat", {"P": table, "R": np.arange(18.0).reshape(3, 3, 2)})
    found = io.read(tmp_path / "axes.mat")
    assert found.branch_prob[:6] == pytest.approx(np.concatenate([table[0, :, 0], table[0, :, 1]]), abs=1e-16)
    assert found.on_choices("R")[1] == pytest.approx(table[0, :, 1] @ [1.0, 3, 5])


@pytest.mark.parametrize("options", [{}, {"do_compression": True}, {"format": "5"}])
def test_what_scipy_writes_is_read_as_scipy_reads_it(tmp_path, options):
    given = {
        "d": np.array([[1.5, -2], [3, 4e300]]), "f": np.float32([[1.1, 2]]), "i": np.int8([[1, -2]]),
        "u": np.uint16([[60000]]), "l": np.array([[True, False]]), "t": "grüße", "c": np.ones((2, 2)) * 1j,
        "s": scipy.sparse.csc_matrix([[0, 2.0, 0], [3, 0, 0]]), "long": np.int64([[2**62]]),
        "e": np.zeros((0, 3)), "struct": {"a": 1}, "three": np.arange(24.0).reshape(2, 3, 4),
    }  # fmt: skip
    scipy.io.savemat(tmp_path / "m.mat", given, **options)
    found = matfile.read(tmp_path / "m.mat")
    expected = scipy.io.loadmat(tmp_path / "m.mat", mat_dtype=True, variable_names=list("dfiule"))
    for name in "dfiule":
        assert found[name].tolist() == expected[name].tolist()
    assert found["three"].tolist() == given["three"].tolist()
    assert (found["f"].dtype, found["l"].dtype) == (np.float32, np.bool_)
    assert (found["t"], found["c"], found["struct"]) == ("grüße", None, None)
    dense = np.zeros(found["s"].shape)
    dense[found["s"].rows, found["s"].columns] = found["s"].values
    assert dense.tolist() == given["s"].toarray().tolist()


def test_large_models_are_written_sparse(tmp_path, monkeypatch):
    monkeypatch.setattr("fastcmdp.io.toolbox.LARGEST_SMALL_TABLE", 0)
    io.write(small(), tmp_path / "m.mat")
    cells = scipy.io.loadmat(tmp_path / "m.mat")["P"]
    assert cells.shape == (1, 3)
    assert cells[0, 0].toarray()[0].tolist() == [0.25, 0.75, 0]
    assert told(io.read(tmp_path / "m.mat")) == told(small())


def element(kind, data, order="<"):
    return struct.pack(order + "II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def variable(name, kind, shape, body, order="<"):
    head = element(6, struct.pack(order + "II", kind, 0), order)
    head += element(5, struct.pack(f"{order}{len(shape)}i", *shape), order)
    return element(14, head + element(1, name, order) + body, order)


HEADER = b"MATLAB 5.0".ljust(124) + b"\x00\x01IM"


def test_the_other_byte_order(tmp_path):
    body = element(9, np.array([1.0, 2.0], ">f8").tobytes(), ">")
    data = b"MATLAB 5.0".ljust(124) + b"\x01\x00MI" + variable(b"x", 6, (2, 1), body, ">")
    data += variable(b"t", 4, (1, 2), element(17, "gß".encode("utf-16-be"), ">"), ">")
    (tmp_path / "m.mat").write_bytes(data)
    found = matfile.read(tmp_path / "m.mat")
    assert (found["x"].tolist(), found["t"]) == ([[1.0], [2.0]], "gß")


def test_cells_in_cells_do_not_recur(tmp_path):
    pieces, size = [variable(b"", 6, (1, 1), element(9, struct.pack("<d", 1)))], 0
    size = len(pieces[0])
    head = element(6, struct.pack("<II", 1, 0)) + element(5, struct.pack("<2i", 1, 1)) + element(1, b"")
    for _ in range(50_000):
        pieces.append(struct.pack("<II", 14, size + len(head)) + head)
        size += len(head) + 8
    (tmp_path / "m.mat").write_bytes(HEADER + b"".join(reversed(pieces)))
    with pytest.raises(ModelError, match="nor an array 'P'"):
        io.read(tmp_path / "m.mat")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a .mat file"),
        (b"MATLAB 7.3 MAT-file".ljust(512, b"\0"), "version 7.3: save it as version 7"),
        (HEADER[:-1], "not a .mat file"),
        (HEADER + b"\0\0\0", "ends within the head of an element"),
        (HEADER + struct.pack("<II", 14, 2**31), "an element of 2147483648 bytes, and 0 are there"),
        (HEADER + element(9, b"\0" * 8), "an element of type 9 where a variable"),
        (HEADER + element(15, b"xxxxxxxx"), "damaged .mat file: Error"),
        (HEADER + element(15, zlib.compress(b"x" * 99)[:-5]), "a compressed variable ends early"),
        (HEADER + element(14, b""), "damaged"),
        (HEADER + variable(b"P", 6, (2, 2**30), element(9, b"\0" * 8)), "1 numbers for a variable of shape"),
        (HEADER + variable(b"P", 6, (-1, 1), element(9, b"\0" * 8)), "the head of a variable"),
        (HEADER + variable(b"P", 6, (1, 1), element(9, b"\0" * 7)), "7 bytes of type 9"),
        (HEADER + 2 * variable(b"P", 6, (1, 1), element(9, b"\0" * 8)), "'P' stands twice"),
        (HEADER + variable(b"P", 5, (2**30, 2**30), element(5, b"") * 2 + element(9, b"")), "columns of a sparse"),
        (HEADER + variable(b"P", 5, (1, 1), element(5, struct.pack("<i", 5)) + element(5, struct.pack("<2i", 0, 1))
                           + element(9, struct.pack("<d", 1))), "rows of a sparse"),
    ],
)  # fmt: skip
def test_damaged_mat_files(tmp_path, data, message):
    (tmp_path / "m.mat").write_bytes(data)
    with pytest.raises(ModelError, match=message):
        io.read(tmp_path / "m.mat")


def test_a_bomb_in_a_mat(tmp_path, monkeypatch):
    monkeypatch.setattr("fastcmdp.files.ALWAYS", 1 << 20)
    bomb = element(15, zlib.compress(variable(b"P", 6, (1, 1 << 20), element(9, b"\0" * (8 << 20)))))
    (tmp_path / "m.mat").write_bytes(HEADER + bomb)
    with pytest.raises(ModelError, match="not unpacked from so small a file"):
        io.read(tmp_path / "m.mat")


def test_names_of_variables(tmp_path):
    names = ["rew gold", "rew_gold", "9 lives", "P", "file", "R", "x" * 99]
    described = small(
        rewards={name: io.Reward(states=np.full(3, i + 1.0)) for i, name in enumerate(names)},
        labels={"a b": np.array([0]), "a_b": np.array([1])},
    )
    for kind in ("mat", "toolbox"):
        path = file_of(tmp_path, kind)
        io.write(described, path, format=kind)
        assert told(io.read(path)) == told(described)
    with np.load(file_of(tmp_path, "toolbox")) as arrays:
        assert json.loads(str(arrays["names"]))["rew_gold_2"] == "rew_gold"
