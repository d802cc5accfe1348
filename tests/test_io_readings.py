"""What a file means: the order of axes, halves of a reward, rates, what states are, and packed text."""

from __future__ import annotations

import gzip
import json
import lzma
import shutil
import warnings

import numpy as np
import pytest
from io_cases import FORMATS, SHARED, file_of, needs_models, small, told
from scipy.io import savemat

import fastcmdp as fc
from fastcmdp import io
from fastcmdp.errors import ModelError
from fastcmdp.io.valuations import VALUATIONS

# Action a goes to state a; only the second action of the second state pays. As P(s, s', a) of MATLAB:
MOVE = np.zeros((2, 2, 2))
MOVE[:, 0, 0] = MOVE[:, 1, 1] = 1.0
PAY = np.array([[0.0, 0.0], [0.0, 1.0]])


@pytest.fixture(params=["mat", "npz"])
def written(request, tmp_path):
    def write(**arrays):
        path = tmp_path / f"tables.{request.param}"
        savemat(path, arrays) if request.param == "mat" else np.savez(path, **arrays)
        return path

    return write


def optimum(path, **options):
    return fc.optimum(fc.load(path, reward="R", gamma=0.9, start=0, **options)).reward


def as_(axes, table):
    """A table (A, S, S) in another order of its axes."""
    return np.transpose(table, ["ast".index(axis) for axis in axes])


def test_axes_that_the_shape_does_not_tell_are_asked_for_where_both_make_sense(written):
    path = written(P=MOVE, R=PAY)
    with pytest.raises(ModelError, match=r"as many states as actions.*different models. Give axes="):
        optimum(path)
    with pytest.raises(ModelError, match="Give axes="):
        optimum(path, renormalize=True)
    assert optimum(path, axes="sta") == pytest.approx(9.0, abs=1e-9)
    assert optimum(path, axes="ast") == pytest.approx(0.0, abs=1e-9)  # state s stays where it is
    for axes in ("tsa", "", 3):
        with pytest.raises(ModelError, match=r"axes = .*: 'ast', 'sta', 'sat' or None is expected"):
            optimum(path, axes=axes)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_reading_whose_rows_sum_to_one_is_taken_and_rewards_follow(written, n):
    rng = np.random.default_rng(n)
    table = rng.dirichlet(np.ones(n), (n, n))  # action, state, next state
    paid = rng.random((n, n, n))
    expected = (table * paid).sum(axis=2).T.reshape(-1)
    found = {}
    for axes in ("ast", "sta"):
        path = written(P=as_(axes, table), R=as_(axes, paid))
        with warnings.catch_warnings():
            warnings.simplefilter("error" if axes == "sta" else "ignore")
            found[axes] = fc.load(path, reward="R", gamma=0.9, start=0)
        assert np.allclose(found[axes].reward, expected, rtol=1e-12)
        assert (
            fc.load(path, reward="R", gamma=0.9, start=0, axes=axes).fingerprint()
            == found[axes].fingerprint()
        )
    assert found["ast"].fingerprint() == found["sta"].fingerprint()
    path = written(P=as_("sat", table), R=as_("sat", paid))
    with pytest.warns(UserWarning, match=r"P\[state, action, next state\] \(axes='sat'\); read as the first"):
        assert not np.allclose(fc.load(path, reward="R", gamma=0.9, start=0).reward, expected)
    assert (
        fc.load(path, reward="R", gamma=0.9, start=0, axes="sat").fingerprint() == found["ast"].fingerprint()
    )


@pytest.mark.parametrize("axes", ["ast", "sta", "sat"])
def test_axes_that_the_shape_tells_need_no_word(written, axes):
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(4), (2, 4))
    path = written(P=as_(axes, table), R=rng.random((4, 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cmdp = fc.load(path, reward="R", gamma=0.9, start=0)
    rows = cmdp.transition_matrix().toarray()
    assert np.allclose(rows, table.swapaxes(0, 1).reshape(8, 4), rtol=1e-15)
    wrong = "sta" if axes == "ast" else "ast"
    with pytest.raises(ModelError, match=f"cannot be .*of axes='{wrong}'"):
        fc.load(path, reward="R", gamma=0.9, start=0, axes=wrong)


def test_renormalize_is_no_way_to_guess(written):
    rng = np.random.default_rng(1)
    table = rng.random((3, 3, 3))
    path = written(P=table, R=np.eye(3))
    with pytest.raises(ModelError, match="renormalize=True needs axes="):
        fc.load(path, reward="R", gamma=0.9, start=0, renormalize=True)
    with pytest.warns(UserWarning, match=r"9 of 9 rows .* miss 1 by up to .*which rounding does not explain"):
        fc.load(path, reward="R", gamma=0.9, start=0, renormalize=True, axes="sta")
    matlab = rng.dirichlet(np.ones(3), (3, 3)).transpose(1, 2, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fc.load(written(P=matlab, R=np.eye(3)), reward="R", gamma=0.9, start=0).n_choices == 9


@pytest.mark.parametrize("kind", ["mat", "toolbox"])
@pytest.mark.parametrize("second", [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
def test_our_own_files_say_their_axes(kind, second, tmp_path):
    """Of the second model, in which action a leads to state a, all readings are models, and different ones."""
    cmdp = fc.CMDP.from_arrays(np.stack([np.eye(2), second]), PAY, gamma=0.9, start=0)
    path = file_of(tmp_path, kind)
    fc.save(cmdp, path, format=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = fc.load(path)
    assert again.fingerprint() == cmdp.fingerprint()


# Rewards of PRISM.

TRA = "2 2 3\n0 0 0 0.5\n0 0 1 0.5\n1 0 1 1\n"
ROWS = "2 2 3\n0 0.5:0 0.5:1\n1 1:1\n"
SREW, TREW = "2 1\n0 1.5\n", "2 2 1\n0 0 1 4\n"
TREW_ROWS = "2 2 1\n0 4:1\n1\n"
NAME = '# Reward structure "energy"\n'


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("heads", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("number", ["", "1", "2"])
def test_halves_of_a_reward_are_one_whichever_is_named(tmp_path, rows, heads, number):
    (tmp_path / "m.tra").write_text(ROWS if rows else TRA)
    (tmp_path / f"m{number}.srew").write_text(NAME * heads[0] + SREW)
    (tmp_path / f"m{number}.trew").write_text(NAME * heads[1] + (TREW_ROWS if rows else TREW))
    found = io.read(tmp_path / "m.tra")
    name = "energy" if any(heads) else f"reward{number}"
    assert {key: found.on_choices(key).tolist() for key in found.rewards} == {name: [1.5 + 2, 0.0]}


@pytest.mark.parametrize("comment", ["# Transitions (CTMC)\n", "", "# something else\n"])
def test_chains_in_continuous_time_are_refused(tmp_path, comment):
    path = tmp_path / "m.tra"
    path.write_text(comment + "2 3\n0 0 0.5\n0 1 3\n1 0 1\n")
    for renormalize in (False, True):
        with pytest.raises(ModelError, match="continuous time; only discrete time is supported"):
            io.read(path, renormalize=renormalize)
    path.write_text(comment + "2 3\n0 0 0.25\n0 1 0.25\n1 0 1\n")
    with pytest.raises(ModelError, match="continuous time; only discrete time is supported"):
        io.read(path, renormalize=True)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("CTMC", "continuous time"), ("CTMDP", "continuous time"), ("MA", "continuous time"), ("POMDP", "partial"),
        ("IMDP", "interval"), ("LTS", "without probabilities"), ("SMG", "a game"),
    ],
)  # fmt: skip
def test_a_head_that_tells_the_type_is_believed_even_where_rates_sum_to_one(tmp_path, kind, message):
    path = tmp_path / "m.tra"
    path.write_text(f"# Transitions ({kind})\n2 3\n0 0 0.5\n0 1 0.5\n1 1 1\n")
    with pytest.raises(ModelError, match=f"line 1: a model of type {kind}: .*{message}"):
        io.read(path)
    path.write_text("# Transitions (DTMC)\n2 3\n0 0 0.5\n0 1 0.5\n1 1 1\n")
    assert io.read(path).n_branches == 3


# What states mean.

VARIABLES = {
    "x": np.array([-3, 0, 7]),
    "done": np.array([False, True, False]),
    "always": np.array([False, False, False]),
    "level of it": np.array([0.5, 1e-300, 3.0]),
}


@pytest.mark.parametrize("kind", [*FORMATS, "drn.xz", "tra.gz"])
def test_variables_of_states_survive(kind, tmp_path):
    path = tmp_path / f"model.{'npz' if kind == 'toolbox' else kind}"
    io.write(small(variables=VARIABLES), path, format=kind)
    found = io.read(path)
    assert found.notes == ()
    assert {name: (values.dtype, values.tolist()) for name, values in found.variables.items()} == {
        name: (values.dtype, values.tolist()) for name, values in VARIABLES.items()
    }
    cmdp = io.build(found, reward="time", gamma=0.9)
    assert cmdp.state_name(1) == "x=0, done, !always, level of it=1e-300"
    (tmp_path / "again").mkdir()
    path = tmp_path / "again" / path.name
    fc.save(cmdp, path, format=kind)
    assert fc.load(path, reward="time", gamma=0.9).state_name(2) == cmdp.state_name(2)


@needs_models
@pytest.mark.parametrize("kind", ["umb", "drn"])
def test_variables_of_real_files(kind):
    """Storm wrote both; x and y are where the agent is, and it starts at home, (3, 1)."""
    found = io.read(SHARED / f"resource-gathering-small.{kind}")
    assert found.notes == ()
    assert list(found.variables) == ["gold", "gem", "attacked", "x", "y", "required_gold", "required_gem"]
    cmdp = io.build(found, reward="rew_gold", gamma=0.9)
    assert cmdp.state_name(0) == "!gold, !gem, !attacked, x=3, y=1, required_gold=0, required_gem=0"
    moves = np.abs(np.diff(np.stack([found.variables["x"], found.variables["y"]])[:, cmdp.branch_target]))
    assert moves.max() <= 4
    other = io.read(SHARED / f"resource-gathering-small.{'drn' if kind == 'umb' else 'umb'}")
    assert all(np.array_equal(found.variables[name], other.variables[name]) for name in found.variables)
    # attacked states are those that the reward "attacks" is paid in.
    assert np.array_equal(found.variables["attacked"], found.rewards["attacks"].states > 0)


def packed(values):
    """Bits of each state, given as (value, number of bits) with the first in the lowest places, as bytes."""
    rows = []
    for state in values:
        number, at = 0, 0
        for value, size in state:
            number |= (value & ((1 << size) - 1)) << at
            at += size
        rows.append(number.to_bytes(at // 8, "little"))
    return b"".join(rows)


def umb_with(tmp_path, variables, data, **description):
    """A file of three states whose index describes these variables."""
    from fastcmdp.files import Unpacked
    from fastcmdp.io.tar import members, write_members

    path = tmp_path / "given.umb"
    io.write(small(), path)
    with Unpacked(path) as source:
        parts = {name: content() for name, _, content in members(source)}
    index = json.loads(parts["index.json"])
    index["valuations"] = {"states": {"unique": False, "classes": [{"variables": variables}]} | description}
    with path.open("wb") as file:
        write_members(file, parts | {"index.json": json.dumps(index).encode(), VALUATIONS: data})
    return path


def test_bits_of_valuations(tmp_path):
    kinds = [
        ("b", "bool", 2, 0), ("u", "uint", 5, -3), ("i", "int", 64, 0), ("d", "double", 64, 0),
        ("r", "rational", 128, 0), ("j", "int", 3, 10), ("w", "uint", 62, 0),
    ]  # fmt: skip
    variables = [{"name": n, "type": {"type": t, "size": s}, "offset": o} for n, t, s, o in kinds]
    double = [int(np.float64(x).view(np.uint64)) for x in (0.1, -2.5, 1e300)]
    states = [
        [(1, 2), (31, 5), (-5, 64), (double[0], 64), (-1, 64), (4, 64), (-4, 3), (2**61, 62)],
        [(0, 2), (0, 5), (2**62, 64), (double[1], 64), (3, 64), (2, 64), (3, 3), (0, 62)],
        [(2, 2), (7, 5), (-(2**63), 64), (double[2], 64), (0, 64), (1, 64), (0, 3), (5, 62)],
    ]
    found = io.read(umb_with(tmp_path, variables, packed(states)))
    assert {name: values.tolist() for name, values in found.variables.items()} == {
        "b": [True, False, True], "u": [28, -3, 4], "i": [-5, 2**62, -(2**63)], "d": [0.1, -2.5, 1e300],
        "r": [-0.25, 1.5, 0.0], "j": [6, 13, 10], "w": [2**61, 0, 5],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "bits", "note"),
    [
        ([{"name": "t", "type": {"type": "string"}}], 64, "'t' of states is left out"),
        (
            [{"name": "o", "type": {"type": "uint", "size": 7}, "is-optional": True}],
            8,
            "'o' of states is left out",
        ),
        ([{"name": "u", "type": {"type": "uint", "size": 72}}], 72, "'u' of states is left out"),
        ([{"name": "x", "type": {"type": "uint", "size": 4}}], 8, "no whole bytes"),
        ([{"name": "x", "type": {"type": "uint", "size": -8}}], 8, "cannot be read"),
        (
            [{"name": "x", "type": {"type": "uint", "size": 8}, "offset": 10**30}],
            8,
            "'x' of states is left out",
        ),
        ([3], 8, "cannot be read"),
    ],
)
def test_valuations_that_are_left_out_are_named(tmp_path, variables, bits, note):
    found = io.read(umb_with(tmp_path, variables, bytes(3 * bits // 8)))
    assert dict(found.variables) == {}
    assert len(found.notes) == 1
    assert note in found.notes[0]


def test_valuations_of_another_size_or_beyond_64_bits_are_refused(tmp_path):
    byte = [{"name": "x", "type": {"type": "uint", "size": 8}}]
    with pytest.raises(ModelError, match=r"valuations\.bin has 4 bytes; by index\.json it must have 3"):
        io.read(umb_with(tmp_path, byte, bytes(4)))
    word = [{"name": "x", "type": {"type": "uint", "size": 64}}]
    with pytest.raises(ModelError, match="'x' of state 2 is beyond 64 bits"):
        io.read(umb_with(tmp_path, word, bytes(16) + b"\xff" * 8))
    ratio = [{"name": "x", "type": {"type": "rational", "size": 128}}]
    with pytest.raises(ModelError, match="'x' of state 0 is divided by zero"):
        io.read(umb_with(tmp_path, ratio, bytes(48)))


DRN = "@type: MDP\n@nr_states\n2\n@model\nstate 0 init\n{}\taction a\n\t\t1 : 1\nstate 1\n{}\taction a\n\t\t1 : 1\n"


@pytest.mark.parametrize(
    ("comments", "expected", "note"),
    [
        (("//[!b\t& x=-3]\n", "//[b\t& x=4]\n"), {"b": [False, True], "x": [-3, 4]}, None),
        (("//[!b\t& x=1.5]\n", "//[\t& x=2]\n"), {"b": [False, True], "x": [1.5, 2.0]}, None),
        (("//[b & \t& x=1]\n", "//[!b & \t& x=2]\n"), {"b": [True, False], "x": [1, 2]}, "has no name"),
        (("//[x=1]\n", ""), {}, "there are 1 for 2 states"),
        (("//[x=1]\n", "//[x=1 & y=2]\n"), {}, "number 2 has another number of variables"),
        (("//[x=1]\n", "//[y=1]\n"), {}, "does not recur"),
        (("//[x=1]\n", "//[x]\n"), {}, "does not recur"),
        (("//[x=a]\n", "//[x=b]\n"), {}, "a value"),
        (("// [x=1]\n", "// of x\n"), {}, None),
    ],
)
def test_comments_of_drn_files(tmp_path, comments, expected, note):
    (tmp_path / "m.drn").write_text(DRN.format(*comments))
    found = io.read(tmp_path / "m.drn")
    assert {name: values.tolist() for name, values in found.variables.items()} == expected
    assert [note in told for told in found.notes] == [True] * (note is not None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(x)\n0:(1)\n", "the file has 1 states; the model has 2"),
        ("x\n0:(1)\n1:(2)\n", "the first line must name the variables"),
        ("(x,x)\n0:(1,1)\n1:(2,2)\n", "the first line must name the variables"),
        ("(x)\n0:(1)\n1:(2,3)\n", "line 3: a state and 1 values"),
        ("(x)\n1:(1)\n0:(2)\n", "line 2: states must be numbered 0, 1"),
        ("(x)\n0:(a)\n1:(b)\n", "line 2: a value"),
    ],
)
def test_faults_of_sta_files(tmp_path, text, message):
    (tmp_path / "m.tra").write_text(TRA)
    (tmp_path / "m.sta").write_text(text)
    with pytest.raises(ModelError, match=rf"m\.tra: m\.sta: {message}"):
        io.read(tmp_path / "m.tra")


def test_initial_states_are_a_label():
    for labels in ({}, {"goal": np.array([2])}):
        described = small(labels=labels, start=np.array([0.5, 0.0, 0.5]), problem=io.Problem())
        visits = io.build(described, reward="time", constraints="label:init <= 3", gamma=0.9)
        assert visits.costs[:, 0].tolist() == [1, 1, 0, 1]
        assert io.build(described, reward="time", gamma=0.9, start="init").start.tolist() == [0.5, 0, 0.5]
        with pytest.raises(ModelError, match="did you mean 'init'"):
            io.build(described, reward="label:int", gamma=0.9)
    own = small(labels={"init": np.array([1])}, problem=io.Problem())
    assert io.build(own, reward="label:init", gamma=0.9).reward.tolist() == [0, 0, 1, 0]


# Probabilities, packed text, names.


@pytest.mark.parametrize("kind", FORMATS)
def test_a_probability_negative_by_rounding_is_zero_in_every_format(kind, tmp_path):
    """Models are written by other programs as well: 1 - 0.9 - 0.1 is no reason to refuse one."""
    path, rest = file_of(tmp_path, kind), 1 - 0.9 - 0.1
    assert rest < 0
    prob = np.array([0.25, 0.75, 1.0, rest, 0.1, 0.9, 1.0])
    io.write(small(branch_prob=prob), path, format=kind)
    rows = io.load(path, reward="time", gamma=0.9).transition_matrix().toarray()
    np.testing.assert_allclose(rows[2], [0.0, 0.1, 0.9], rtol=1e-14)
    io.write(small(branch_prob=np.where(prob == rest, -1e-9, prob)), path, format=kind)
    with pytest.raises(ModelError, match=r"-1e-09; it must"):
        io.load(path, reward="time", gamma=0.9)


@pytest.mark.parametrize("pack", [gzip.open, lzma.open])
@pytest.mark.parametrize("kind", ["drn", "tra"])
def test_text_formats_may_be_packed(pack, kind, tmp_path):
    io.write(small(variables=VARIABLES), tmp_path / f"m.{kind}")
    folder = tmp_path / "packed"
    folder.mkdir()
    end = ".gz" if pack is gzip.open else ".xz"
    for path in tmp_path.glob("m*.*"):
        with pack(folder / (path.name + end), "wb") as file, path.open("rb") as plain:
            shutil.copyfileobj(plain, file)
    found = io.read(folder / f"m.{kind}{end}")
    assert told(found) == told(small())
    assert list(found.variables) == list(VARIABLES)
    again = tmp_path / "again"
    again.mkdir()
    io.write(found, again / f"m.{kind}{end}")
    assert {path.suffix for path in again.iterdir()} == {end}
    assert told(io.read(again / f"m.{kind}{end}")) == told(small())
    damaged = folder / f"m.{kind}{end}"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(ModelError, match="cannot be unpacked"):
        io.read(damaged)


def test_packed_text_is_unpacked_up_to_a_budget(tmp_path, monkeypatch):
    monkeypatch.setattr("fastcmdp.files.ALWAYS", 1 << 16)
    (tmp_path / "m.drn.gz").write_bytes(gzip.compress(DRN.format("", "").encode() + b"\n" * (32 << 20)))
    with pytest.raises(ModelError, match="not unpacked so far"):
        io.read(tmp_path / "m.drn.gz")


def test_a_packed_file_says_nothing_of_the_moment(tmp_path):
    for name in ("a.umb.gz", "b.umb.gz"):
        io.write(small(), tmp_path / name)
    assert (tmp_path / "a.umb.gz").read_bytes() == (tmp_path / "b.umb.gz").read_bytes()


def test_names_from_files_cannot_reach_a_terminal(tmp_path):
    bad = "\x1b[2J\x9b31m\u202e\n!"
    described = small(
        rewards={f"time{bad}": io.Reward(states=np.ones(3))},
        labels={f"goal{bad}": np.array([1])},
        action_names=(f"go{bad}", "", "stay"),
        problem=io.Problem(0.9, f"time{bad}", (io.Constraint(f"label:goal{bad}", "<=", 1.0),)),
        variables={f"x{bad}": np.arange(3)},
        notes=(f"note{bad}",),
    )
    path = tmp_path / "m.npz"
    io.write(described, path)
    found = io.read(path)
    assert list(found.rewards) == [f"time{bad}"]
    text = io.text_summary(described)
    assert all(line.isprintable() for line in text.split("\n"))
    assert r"time\x1b[2J\x9b31m\u202e\n!" in text
    assert "actions: go\\x1b" in text
    assert ", (no name), stay" in text
    cmdp = io.build(found)
    assert repr(cmdp).isprintable()
    assert cmdp.state_name(0).isprintable()
    for options in ({"reward": f"tim{bad}"}, {"start": bad}, {"constraints": f"x{bad} <= 1"}):
        with pytest.raises(ModelError) as error:
            io.build(found, **options)
        assert str(error.value).isprintable()


def test_what_saves_what_is_told_where_a_model_or_an_agent_is_expected(tmp_path):
    cmdp = fc.envs.river_swim()
    result = fc.solve(cmdp, fc.PDANPG(outer=4, inner=4))
    for what in (result.policy(), result.agent()):
        with pytest.raises(ModelError, match=r"save_policy"):
            fc.save(what, tmp_path / "m.npz")
    with pytest.raises(ModelError, match=r"result\.save"):
        fc.save(result, tmp_path / "m.npz")
    for path, agent in ((tmp_path / "p.npz", result.policy()), (result.agent(), tmp_path / "p.npz")):
        with pytest.raises(ModelError, match=r"result\.agent\(\)"):
            fc.save_policy(path, agent)
    assert not list(tmp_path.iterdir())


def test_a_simulator_has_no_table_for_exact_answers_and_files(tmp_path):
    simulator = fc.simulators.tandem_queue()
    for call in (
        lambda: fc.save(simulator, tmp_path / "m.npz"),
        lambda: fc.optimum(simulator),
        lambda: fc.evaluate(simulator, [1.0]),
        lambda: fc.occupancy(simulator, [1.0]),
    ):
        with pytest.raises(ModelError, match=r"a Simulator is no model with a table .* evaluate"):
            call()
