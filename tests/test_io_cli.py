"""Files on the command line: inspect, convert and solve take them; faults are one line."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
from io_cases import FORMATS, SHARED, file_of, needs_models, small, told

import fastcmdp as fc
from fastcmdp import io
from fastcmdp.cli import main, progress
from fastcmdp.io.description import Problem


@pytest.fixture
def cli(capsys, monkeypatch):
    monkeypatch.setattr(progress, "APART", math.inf)  # no word about what takes long while kernels compile

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def path(tmp_path):
    io.write(small(problem=Problem()), tmp_path / "m.umb")
    return tmp_path / "m.umb"


NAMED = (
    "--reward",
    "-time",
    "--constraint",
    "toll <= 1.5",
    "--constraint",
    "label:goal >= 0.3",
    "--gamma",
    "0.9",
)


def test_inspect_lists_what_a_file_offers_and_what_to_type(cli, path):
    code, out, err = cli("inspect", path)
    assert (code, err) == (0, "")
    for words in ("3 states, 4 choices (1 to 2 a state), 7 branches", "time: 0 to 1, on states", "goal: 1",
                  "energy used: 0 to 2, on choices", "start: 1 states (0)", "go, turn left, stay"):  # fmt: skip
        assert words in out
    command = shlex.split(re.search(r"next, for instance: fastcmdp (.*)", out)[1])
    command[command.index("energy used <= NUMBER")] = "energy used <= 3"
    code, out, err = cli(*command)
    assert (code, err) == (0, "")
    assert "maximise" not in out
    assert "energy used" in out


def test_inspect_lists_in_json(cli, path):
    code, out, _ = cli("inspect", path, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["spec"] == str(path)
    assert found["file"]["rewards"]["toll"] == {"least": 0.0, "greatest": 1.0, "on": ["states", "choices"]}
    assert found["file"]["labels"] == {"goal": 1, "on the way": 2}
    assert "optimum" not in found


def test_inspect_with_names_is_inspect_of_the_model(cli, path):
    code, out, _ = cli("inspect", path, *NAMED, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["model"]["names"] == ["-time", "toll", "label:goal"]
    assert [(limit["sense"], limit["limit"]) for limit in found["limits"]] == [("<=", 1.5), (">=", 0.3)]
    cmdp = fc.load(path, "-time", ["toll <= 1.5", "label:goal >= 0.3"], 0.9)
    assert found["optimum"]["reward"] == pytest.approx(fc.optimum(cmdp).reward)
    code, out, _ = cli("inspect", path, *NAMED, "--start", "goal", "--limit", 7, "--limit", 0.1, "--json")
    found = json.loads(out)
    assert (found["model"]["start"]["first"], found["limits"][0]["limit"]) == (2, 7.0)


def test_a_native_file_with_its_problem_needs_no_options(cli, path, tmp_path):
    code, _, err = cli("convert", path, tmp_path / "m.npz", *NAMED)
    assert (code, err) == (0, "")
    code, out, _ = cli("inspect", tmp_path / "m.npz", "--json")
    found = json.loads(out)
    assert found["file"]["constraints"] == ["toll <= 1.5", "label:goal >= 0.3"]
    assert found["model"]["names"] == ["-time", "toll", "label:goal"]
    code, out, _ = cli("inspect", tmp_path / "m.npz")
    assert f"next: fastcmdp solve {tmp_path / 'm.npz'}" in out
    assert "multiplier" in out
    never = [word.replace("<= 1.5", "<= -1") for word in NAMED]
    code, _, err = cli("convert", path, tmp_path / "never.npz", *never)
    assert (code, err) == (0, "")
    code, out, _ = cli("inspect", tmp_path / "never.npz")
    assert "not feasible" in out
    assert "next:" not in out
    code, out, _ = cli("solve", tmp_path / "m.npz", "--outer", 3, "--inner", 3, "--replicates", 1, "--json")
    assert code == 0
    assert json.loads(out)["model"]["names"] == ["-time", "toll", "label:goal"]


@pytest.mark.parametrize("kind", FORMATS)
def test_solve_and_convert_take_every_format(cli, path, tmp_path, kind):
    out_path = file_of(tmp_path, kind)
    code, out, err = cli("convert", path, out_path, "--format", kind)
    assert (code, err) == (0, "")
    assert out == f"{out_path}: 3 states, 4 choices, 7 branches\n"
    assert told(io.read(out_path)) == told(small())
    first = {
        "npz": b"PK",
        "toolbox": b"PK",
        "umb.gz": b"\x1f\x8b",
        "umb.xz": b"\xfd7",
        "mat": b"MA",
        "tra": b"3 ",
    }
    assert out_path.read_bytes()[:2] == first.get(kind, out_path.read_bytes()[:2])
    assert (b"P.npy" in out_path.read_bytes()) == (kind == "toolbox")
    code, out, err = cli("solve", out_path, *NAMED, "--outer", 2, "--inner", 2, "--replicates", 1, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["limits"][1] == {"name": "label:goal", "sense": ">=", "limit": 0.3}


def test_convert_a_generator_and_say_what_is_not_kept(cli, tmp_path):
    code, out, err = cli("convert", "env:river_swim?limit=5", tmp_path / "m.drn")
    assert code == 0
    assert err == (
        "not in m.drn, to be given when it is used: --gamma 0.95 --reward 'reward' "
        "--constraint 'strokes <= 5.0'\n"
    )
    found = fc.load(tmp_path / "m.drn", reward="reward", constraints="strokes <= 5.0", gamma=0.95)
    assert found.fingerprint() == fc.envs.river_swim(limit=5).fingerprint()
    code, out, err = cli("convert", "env:river_swim?limit=5", tmp_path / "m.npz", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["format"] == "npz"
    assert fc.load(tmp_path / "m.npz").fingerprint() == found.fingerprint()


def test_files_beside_a_tra_by_name(cli, path, tmp_path):
    cli("convert", path, tmp_path / "m.tra")
    (tmp_path / "away").mkdir()
    for file in tmp_path.glob("m*.srew"):
        file.rename(tmp_path / "away" / "other.srew")
        break
    code, out, err = cli("inspect", tmp_path / "m.tra", "--with", tmp_path / "away" / "other.srew")
    assert (code, err) == (0, "")
    assert "rewards" in out
    assert "start: none" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("inspect", "none.umb"), "none.umb"),
        (
            ("inspect", "M", "--reward", "tim", "--gamma", "0.9"),
            "m.umb: unknown reward: 'tim'; did you mean 'time'",
        ),
        (("inspect", "M", "--reward", "time"), "m.umb: this file has no discount factor: give gamma"),
        (("inspect", "M", "--reward", "time", "--gamma", "2"), "gamma"),
        (("solve", "M", *NAMED, "--constraint", "toll < 1"), "'<' is none of these"),
        (("solve", "M"), "no discount factor"),
        (("solve", "env:river_swim", "--reward", "time"), "--reward: for files only"),
        (("convert", "M", "out.xyz"), "out.xyz: the ending tells no format"),
        (("convert", "M", "out.npz", "--format", "xyz"), "format 'xyz' is unknown"),
        (("convert", "M", "none/out.npz"), "there is no folder"),
        (("convert", "M", "out.npz", "--reward", "tim"), "m.umb: unknown reward: 'tim'"),
        (("convert", "env:river_swim", "out.npz", "--start", "goal"), "--start: for files only"),
        (("convert", "M", "out.npz", "--with", "m.lab"), "other files go with a .tra only"),
    ],
)
def test_faults_are_one_line_and_code_2(cli, path, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli(*(path if word == "M" else word for word in arguments))
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.umb"]


def test_what_a_reader_changed_is_a_warning(cli, path, tmp_path):
    cli("convert", path, tmp_path / "m.drn")
    text = (tmp_path / "m.drn").read_text()
    (tmp_path / "m.drn").write_text(re.sub(r"0\.33333\d+", "0.3333333333", text))
    code, out, err = cli("inspect", tmp_path / "m.drn")
    assert (code, err) == (0, "")
    assert "note: 1 of 4 rows of probabilities miss 1" in out
    code, out, err = cli("convert", tmp_path / "m.drn", tmp_path / "n.npz")
    assert code == 0
    assert err.startswith(f"warning: {tmp_path / 'm.drn'}: 1 of 4 rows")


@needs_models
def test_real_files_on_the_command_line(cli):
    code, out, _ = cli(
        "inspect", SHARED / "resource-gathering-small.umb", "--reward", "rew_gold", "--constraint",
        "attacks <= 0.252851", "--gamma", "0.95", "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["optimum"]["reward"] == pytest.approx(1.540100, abs=1e-5)
    code, out, err = cli("inspect", SHARED / "robot.umb")
    assert (code, out) == (2, "")
    assert "interval models are not supported" in err


BAD = "\x1b]0;owned\x07\x9b2J\u202e\n!"


def test_names_of_files_reach_the_terminal_escaped(cli, tmp_path):
    """Control characters and what turns lines around, in every place where a name is shown."""
    path = tmp_path / "bad.npz"
    rewards = {f"{name}{BAD}": io.Reward(choices=np.arange(4.0) * 0.25) for name in ("time", "toll")}
    described = small(
        rewards=rewards, labels={f"goal{BAD}": np.array([2])}, action_names=(f"go{BAD}", "", "stay")
    )
    io.write(dataclasses.replace(described, problem=Problem()), path)
    limit = f"toll{BAD} <= 1"
    named = ("--reward", f"time{BAD}", "--constraint", limit, "--gamma", "0.9")
    calls = [
        ("inspect", path), ("inspect", path, *named), ("inspect", path, "--reward", f"tim{BAD}", "--gamma", "0.9"),
        ("inspect", path, "--json"), ("convert", path, tmp_path / "out.npz", *named),
        ("convert", path, tmp_path / "out.drn", *named), ("convert", path, tmp_path / f"no{BAD}" / "out.drn"),
        ("solve", path, *named, "--outer", "2", "--inner", "2"),
    ]  # fmt: skip
    shown = ""
    for call in calls:
        _, out, err = cli(*call)
        assert out or err
        for line in (out + err).split("\n"):
            assert line.isprintable(), (call, line)
        shown += out
    assert r"time\x1b]0;owned\x07\x9b2J\u202e\n!" in shown


def test_a_terminal_of_ascii_gets_other_letters_escaped(tmp_path):
    path = tmp_path / "größe.npz"
    io.write(small(rewards={"größe →": io.Reward(states=np.ones(3))}, problem=Problem()), path)
    for arguments in (("inspect", path), ("inspect", path, "--reward", "größe →", "--gamma", "0.9")):
        ended = subprocess.run(
            [sys.executable, "-m", "fastcmdp", *map(str, arguments)],
            env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=False,
        )  # fmt: skip
        said = [line for line in ended.stderr.splitlines() if not line.startswith(b"exact optimum, ")]
        assert (ended.returncode, said) == (0, [])  # but for how far it is, on a slow machine
        assert rb"gr\xf6\xdfe \u2192" in ended.stdout
