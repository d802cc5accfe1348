"""The command line: what goes to standard output and what to standard error, exit codes, faults, Ctrl-C, files."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.cli import common, main, progress
from fastcmdp.runs.accuracy import Accuracy
from fastcmdp.solve import Progress

SMALL = ("env:river_swim", "--algorithm", "pd-anpg", "--outer", "40", "--inner", "10", "--replicates", "2")


class Answer(SimpleNamespace):
    """Exit code and what was printed."""

    code: int
    out: str
    err: str

    def object(self):
        """The one JSON object on standard output, read strictly."""

        def refuse(name):
            raise AssertionError(f"{name} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def cli(capsys, monkeypatch):
    monkeypatch.setattr(progress, "APART", math.inf)  # no word about what takes long while kernels compile

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Answer(code=code, out=captured.out, err=captured.err)

    return call


def process(script, *arguments, **options):
    """A real process that runs ``script`` with these arguments."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # What a shell starts in the background inherits that Ctrl-C is ignored.
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, **pipes, **options)
    finally:
        signal.signal(signal.SIGINT, ours)


MAIN = "import sys; from fastcmdp.cli import main; sys.exit(main())"


# solve


def test_solve_json_is_the_run_of_the_library(cli):
    answer = cli("solve", *SMALL, "--seed", 5, "--json")
    result = fc.solve(fc.envs.river_swim(), fc.PDANPG(outer=40, inner=10), seed=5, replicates=2)
    found = answer.object()
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.count("\n") == 1
    assert set(found) == {"model", "limits", "optimum", "algorithms"}
    best = result.optimum
    assert found["optimum"] == {
        "reward": best.reward,
        "constraints": best.constraints.tolist(),
        "duals": best.duals.tolist(),
        "constraint_range": best.constraint_range.tolist(),
    }
    assert found["limits"] == [{"name": "strokes", "sense": "<=", "limit": result.cmdp.limits[0]}]
    (entry,) = found["algorithms"]
    expected = result.to_dict()
    clock = {"seconds", "evaluating", "transitions_per_second"}
    assert {k: v for k, v in entry.items() if k in expected.keys() - clock} == {
        k: v for k, v in expected.items() if k not in clock
    }
    assert clock < set(entry)
    assert (entry["policy"], entry["seed"], entry["settings"]["outer"]) == ("tabular", 5, 40)
    model = found["model"]
    assert (model["spec"], model["states"], model["choices"], model["branches"]) == (SMALL[0], 8, 16, 30)
    assert (model["gamma"], model["names"]) == (0.95, ["reward", "strokes"])


def test_solve_prints_the_summary_and_nothing_else(cli):
    answer = cli("solve", *SMALL)
    assert answer.code == 0
    assert answer.err == ""
    assert answer.out.startswith("pd-anpg on CMDP(8 states")
    lines, (entry,) = answer.out.splitlines()[3:], cli("solve", *SMALL, "--json").object()["algorithms"]
    assert [line.split()[0] for line in lines[:6]] == [
        "reward", "strokes", "multiplier", "gap", "violation", "(means",
    ]  # fmt: skip
    assert lines[6:] == entry["notes"] != []


def test_options_reach_the_model_and_the_run(cli):
    arguments = ["--gamma", 0.9, "--limit", 3.5]
    for own in ("dual_estimate=inner", "zeta=0.125", "dual=pi"):
        arguments += ["--set", own]
    command = ["solve", *SMALL, "--json", "--algorithm", "pd-anpg", "--threads", 1]
    found = cli(*command, *arguments).object()
    assert found["model"]["gamma"] == 0.9
    assert found["limits"][0]["limit"] == 3.5
    settings = found["algorithms"][0]["settings"]
    assert (settings["dual_estimate"], settings["zeta"], settings["inner"]) == ("inner", 0.125, 10)
    assert (settings["dual"], settings["critic"]) == ("pi", "none")
    assert found["algorithms"][0]["replicates"] == 2
    found = cli(*command, "--set", "critic=control").object()
    assert found["algorithms"][0]["settings"]["critic"] == "control"


def test_defaults_are_the_settings_class_and_four_replicates(cli, monkeypatch):
    asked = {}

    def run(cmdp, algorithm, **options):
        asked.update(options, algorithm=algorithm)
        raise KeyboardInterrupt

    monkeypatch.setattr("fastcmdp.cli.solve.run", run)
    cli("solve", "env:river_swim")
    assert asked["algorithm"] == fc.PDANPGCV()
    assert (asked["seed"], asked["replicates"], asked["threads"], asked["checkpoint"]) == (0, 4, None, None)
    assert isinstance(asked["policy"], fc.TabularSoftmax)


def test_one_limit_for_each_constraint(cli):
    found = cli("inspect", "env:garnet?n_constraints=2", "--limit", 4.5, "--limit", 5e-7, "--json")
    assert [entry["limit"] for entry in found.object()["limits"]] == [4.5, 5e-7]
    assert cli("inspect", "env:garnet?n_constraints=2&seed=3", "--limit", 4.5).code == 2


def test_no_constraint(cli):
    found = cli("solve", "env:garnet?n_constraints=0", "--outer", 5, "--inner", 5, "--json").object()
    assert (found["limits"], found["optimum"]["duals"], found["optimum"]["constraint_range"]) == ([], [], [])


def test_what_is_not_finite_becomes_null(cli):
    answer = cli("solve", *SMALL, "--set", "xi=1e300", "--json")
    entry = answer.object()["algorithms"][0]
    assert answer.code == 1
    assert entry["failed"] == 2
    assert entry["gap"] == {"mean": None, "low": None, "high": None}
    warning = answer.err.splitlines()
    assert len(warning) == 1
    assert warning[0].startswith("warning: numbers ceased to be finite in replicates [0, 1]")


def test_plain_is_strict(capsys):
    value = {"a": np.array([[1.0, np.inf]]), "b": (np.float64("nan"), np.int32(3)), "c": [None, True, "x"]}
    common.print_json(value)
    assert json.loads(capsys.readouterr().out) == {"a": [[1.0, None]], "b": [None, 3], "c": [None, True, "x"]}


# Faults: code 2, one line on standard error, no traceback, nothing on standard output.

FAULTS = [
    (("solve", "env:rivr_swim"), "did you mean 'river_swim'"),
    (("solve", "env:river_swim?n_state=3"), "did you mean 'n_states'"),
    (("solve", "river_swim"), "env:NAME"),
    (("solve", "gym:NoSuchThing-v0"), "NoSuchThing"),
    (("solve", *SMALL, "--policy", "tabula"), "did you mean 'tabular'"),
    (("solve", *SMALL, "--algorithm", "pd-anp"), "did you mean 'pd-anpg'"),
    (("solve", *SMALL, "--set", "c_zet=2"), "did you mean 'c_zeta'"),
    (("solve", *SMALL, "--set", "c_zeta"), "--set: key=value is expected"),
    (("solve", *SMALL, "--set", "c_zeta=fast"), "c_zeta"),
    (("solve", *SMALL, "--set", "outer=50"), "given twice"),
    (("solve", *SMALL, "--set", "zeta=0.1,0.2"), "zeta has 2 values"),
    (("solve", "env:river_swim", "--outer", "0"), "outer = 0"),
    (("solve", "env:river_swim", "--replicates", "0"), "replicates = 0"),
    (("solve", "env:river_swim", "--threads", "0"), "threads = 0"),
    (("solve", "env:river_swim", "--seed=-1"), "seed = -1"),
    (("solve", "env:river_swim", "--gamma", "1"), "gamma"),
    (("solve", "env:river_swim?gamma=0.5", "--gamma", "0.6"), "twice"),
    (("solve", "env:river_swim", "--limit", "1", "--limit", "2"), "limits"),
    (("inspect", "env:river_swim", "--limit", "nan"), "limits"),
    (("solve", "env:river_swim", "--limit=-1"), "best attainable"),
    (("solve", *SMALL, "--samples", "1e4"), "exclude one another"),
    (("solve", "env:river_swim", "--samples", "1e4", "--epsilon", "1"), "exclude one another"),
    (("solve", "env:river_swim", "--samples", "1"), "samples = 1"),
    (("solve", "env:river_swim", "--epsilon", "100"), "epsilon = 100"),
    (("solve", "env:river_swim", "--samples", "1e4", "--set", "outer=3"), "outer"),
    (("solve", *SMALL, "--constants", "none.toml"), "none.toml"),
    (("compare", "env:river_swim", "--constants", "none.toml"), "none.toml"),
    (("compare", "env:river_swim", "--samples", "1e4,"), "--samples ''"),
    (("compare", "env:river_swim", "--samples", "lots"), "--samples 'lots'"),
    (("compare", "env:river_swim", "--samples=-3"), "--samples '-3'"),
    (("compare", "env:river_swim", "--algorithms", "pd-anpg,pd-anpg"), "each once"),
    (("compare", "env:river_swim", "--algorithms", "pd-anpg,"), "unknown algorithm: ''"),
    (("compare", "env:river_swim", "--algorithms", "pd-anpg?iner=3"), "did you mean 'inner'"),
    (("compare", "env:river_swim", "--policy", "tabula"), "did you mean 'tabular'"),
    (("compare", "env:river_swim", "--plot", "run.jpg"), ".svg"),
    (("compare", "env:river_swim", "--replicates", "0"), "replicates = 0"),
    (("compare", "env:garnet?n_states=9000"), "up to 20000"),
    (("tune", "env:river_swim", "--trials", "0"), "trials = 0"),
    (("tune", "env:river_swim", "--samples", "1e4,2e4"), "one budget"),
    (("tune", "env:river_swim", "--out", "no/folder/t.toml"), "no folder"),
    (("tune", "env:river_swim", "--out", "."), "folder"),
    (("solve", *SMALL, "--resume"), "--checkpoint"),
    (("solve", *SMALL, "--resume", "--checkpoint", "none.npz"), "no such file"),
    (("solve", *SMALL, "--checkpoint", "no/folder/x.npz"), "no folder"),
    (("solve", *SMALL, "--plot", "no/folder/x.png"), "no folder"),
    (("solve", *SMALL, "--plot", "run.jpg"), ".svg"),
    (("solve", *SMALL, "--replicates", "1000000000000"), "memory"),
    (
        ("solve", *SMALL, "--replicates", "1000000000000000"),
        "replicates = 1000000000000000: an integer from 1",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "words"), FAULTS, ids=lambda part: part if isinstance(part, str) else ""
)
def test_bad_input_is_one_line_and_code_2(cli, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    answer = cli(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert words in answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sovle", "env:river_swim"), "No such command 'sovle'"),
        (("solve",), "MODEL"),
        (("solve", *SMALL, "--outher", "3"), "--outher"),
        (("solve", "env:river_swim", "--outer", "many"), "--outer"),
    ],
)
def test_bad_arguments_are_code_2(cli, arguments, words):
    answer = cli(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err


def test_a_damaged_checkpoint_is_code_2(cli, tmp_path):
    path = tmp_path / "run.npz"
    path.write_bytes(b"PK\x03\x04 not a run")
    answer = cli("solve", *SMALL, "--resume", "--checkpoint", path)
    assert (answer.code, answer.out) == (2, "")
    assert "damaged" in answer.err


# Checkpoints and Ctrl-C.


def interrupted(path, **options):
    """A run of SMALL that was stopped after a while and left ``path``."""
    calls = []

    def callback(state):
        calls.append(state.outer)
        if len(calls) == 3:
            raise KeyboardInterrupt

    result = fc.solve(
        fc.envs.river_swim(),
        fc.PDANPG(outer=40, inner=10),
        replicates=2,
        progress=callback,
        checkpoint=path,
        piece=20,
        **options,
    )
    assert not result.finished


def timeless(found):
    for entry in found["algorithms"]:
        del entry["seconds"], entry["evaluating"], entry["transitions_per_second"]
    return found


def test_resume_gives_what_an_uninterrupted_run_gives(cli, tmp_path):
    path = tmp_path / "run.npz"
    interrupted(path, seed=3)
    whole = timeless(cli("solve", *SMALL, "--seed", 3, "--json").object())
    for arguments in (SMALL[:1], (*SMALL, "--seed", 3)):  # the second time it is finished already
        resumed = cli("solve", *arguments, "--resume", "--checkpoint", path, "--json")
        assert resumed.code == 0
        assert timeless(resumed.object()) == whole


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--outer", 39), "outer = 39, but the run in"),
        (("--replicates", 3), "replicates = 3"),
        (("--seed", 1), "seed = 1"),
        (("--set", "pilot=3"), "pilot = 3"),
        (("--gamma", 0.9), "another model"),
    ],
)
def test_resume_refuses_another_run(cli, tmp_path, arguments, words):
    path = tmp_path / "run.npz"
    interrupted(path)
    before = path.read_bytes()
    answer = cli("solve", "env:river_swim", "--resume", "--checkpoint", path, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err
    assert path.read_bytes() == before


def test_a_checkpoint_is_never_overwritten_by_a_new_run(cli, tmp_path):
    path = tmp_path / "run.npz"
    assert cli("solve", *SMALL, "--checkpoint", path).code == 0
    before = path.read_bytes()
    answer = cli("solve", *SMALL, "--checkpoint", path, "--seed", 1)
    assert answer.code == 2
    assert "the file exists" in answer.err
    assert path.read_bytes() == before


# Tells its parent when three windows of the trace are done, which is when there is something to print.
WATCHED = """
import sys
from contextlib import contextmanager
import fastcmdp.cli.solve as verb
from fastcmdp.cli import main

@contextmanager
def reporting(silent):
    def callback(state):
        if state.result.trace.done == 3:
            print("running", file=sys.stderr, flush=True)
    yield callback

verb.reporting = reporting
sys.exit(main())
"""


def test_ctrl_c_prints_what_there_is(tmp_path):
    path = tmp_path / "run.npz"
    arguments = ("solve", "env:river_swim", "--outer", 10**7, "--inner", 1, "--json", "--checkpoint", path)
    child = process(WATCHED, *arguments)
    try:
        assert child.stderr.readline() == "running\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 130
    found = Answer(out=out).object()
    (entry,) = found["algorithms"]
    assert entry["finished"] is False
    assert entry["samples"] > 0
    assert np.isfinite(entry["gap"]["mean"])
    assert err.splitlines()[-1] == f"interrupted: this is what there is; --resume goes on from {path}"
    assert "Traceback" not in err
    saved = fc.load_run(path, fc.envs.river_swim())
    assert int(saved.samples.sum()) == entry["samples"]


def test_ctrl_c_before_the_run(cli, monkeypatch):
    def from_spec(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fastcmdp.cli.models.from_spec", from_spec)
    answer = cli("solve", *SMALL, "--json")
    assert (answer.code, answer.out) == (130, "")
    assert answer.err == "interrupted before there was a result\n"


# Exit codes beside 0, 2 and 130.


def test_a_method_of_which_all_replicates_failed_is_code_1(cli):
    answer = cli("compare", *BUDGET, "--algorithms", "pd-anpg,pd-anpg?xi=1e300", "--json")
    assert answer.code == 1
    assert [entry["failed"] for entry in answer.object()["algorithms"]] == [0, 2]


def test_a_method_of_which_no_trial_has_a_result_is_code_1(cli):
    answer = cli("tune", *BUDGET, "--trials", 2, "--algorithms", "pd-anpg,pd-anpg?xi=1e300", "--json")
    assert answer.code == 1
    assert [entry["error"] is None for entry in answer.object()["algorithms"]] == [False, True]


def test_a_last_checkpoint_that_could_not_be_written_is_code_1(cli, tmp_path, monkeypatch):
    def save(self, path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(fc.Result, "save", save)
    answer = cli("solve", *SMALL, "--json", "--checkpoint", tmp_path / "run.npz")
    assert answer.code == 1
    assert answer.object()["algorithms"][0]["finished"]
    assert "run.npz could not be written (No space left on device)" in answer.err


# Ctrl-C while the process starts: at the import of numba, which is most of that time.
EARLY = """
import os, signal, sys
sys.argv, sys.orig_argv = ["fastcmdp", "--version"], ["python", sys.argv[1], "--version"]

class Interrupt:
    def find_spec(self, name, *_):
        if name == "numba":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from fastcmdp.cli import main
sys.exit(main())
"""


def test_ctrl_c_while_the_command_starts_is_one_line():
    child = process(EARLY, "/somewhere/bin/fastcmdp")
    out, err = child.communicate()
    assert (child.returncode, out, err) == (130, "", "interrupted before there was a result\n")


def test_ctrl_c_in_another_program_stays_what_it_is():
    child = process(EARLY, "/somewhere/bin/another")
    _, err = child.communicate()
    assert child.returncode != 130
    assert err.endswith("KeyboardInterrupt\n")


# Progress.


@pytest.fixture
def terminal(monkeypatch):
    def pretend(out, err):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: out)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: err)

    return pretend


def test_a_bar_on_a_terminal(cli, terminal):
    terminal(True, True)
    answer = cli("solve", *SMALL)
    assert "40 of 40" in answer.err
    assert "M transitions/s" in answer.err
    assert "left" in answer.err
    assert answer.out.startswith("pd-anpg on")


@pytest.mark.parametrize(
    ("arguments", "stdout"), [(("--quiet",), True), (("-q", "--json"), True), (("--json",), False)]
)
def test_no_bar_when_quiet_or_json_is_piped(cli, terminal, arguments, stdout):
    terminal(stdout, True)
    assert cli("solve", *SMALL, *arguments).err == ""


def test_a_few_lines_where_there_is_no_terminal(capsys, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    lines = progress.PrintedProgress()
    for outer in range(0, 1001, 10):
        known = Accuracy(0.05, 0.04, 0.06 if outer >= 600 else math.inf, True)
        run = SimpleNamespace(accuracy=known)
        lines(Progress(outer, 1000, outer * 50_000, (clock[0] - 100) or 1.0, run))
        clock[0] += 0.5
    said = capsys.readouterr().err.splitlines()
    assert said[1] == "outer step 400 of 1,000, 1.0 M transitions/s, 30 s left"
    assert said[2] == "outer step 600 of 1,000, 1.0 M transitions/s, 20 s left, error 5 % (4 to 6 %)"
    assert len(said) == progress.LINES


def test_no_line_in_the_first_seconds(capsys, monkeypatch):
    monkeypatch.setattr(progress.time, "monotonic", lambda: 100.0)
    lines = progress.PrintedProgress()
    for outer in range(0, 1001, 10):
        lines(Progress(outer, 1000, outer, 1.0, None))
    assert capsys.readouterr().err == ""


# Schedules and tuned constants.


BUDGET = ("env:river_swim", "--samples", "3e4", "--replicates", "2")


@pytest.fixture
def tuned(tmp_path):
    path = tmp_path / "tuned.toml"
    path.write_text("[pd-anpg]\nc_H = 2.0\nc_eta = 0.5\n")
    return path


NAMED = ("solve", "--algorithm", "pd-anpg")  # its constants and schedules are what these look at


def test_solve_by_samples_or_epsilon(cli):
    model = fc.envs.river_swim()
    entry = cli("solve", *BUDGET, "--json").object()["algorithms"][0]
    assert entry["settings"] == dataclasses.asdict(fc.PDANPGCV.for_samples(model, 3e4))
    named = ("--algorithm", "pd-anpg")
    entry = cli("solve", *BUDGET, *named, "--json").object()["algorithms"][0]
    assert entry["settings"] == dataclasses.asdict(fc.PDANPG.for_samples(model, 3e4))
    entry = cli("solve", *BUDGET, *named, "--inner", 7, "--set", "c_zeta=3", "--json").object()["algorithms"][
        0
    ]
    assert entry["settings"] == dataclasses.asdict(fc.PDANPG.for_samples(model, 3e4, inner=7, c_zeta=3))
    entry = cli("solve", BUDGET[0], *named, "--epsilon", 18, "--set", "c_K=50", "--json")
    assert (entry.code, "c_K" in entry.err) == (2, True)  # not one of the constants that are searched
    answer = cli("solve", BUDGET[0], *named, "--epsilon", 18, "--replicates", 1, "--json")
    entry = answer.object()["algorithms"][0]
    assert entry["settings"] == dataclasses.asdict(fc.PDANPG.for_epsilon(model, 18.0))


def test_solve_with_constants(cli, tuned):
    model = fc.envs.river_swim()
    answer = cli("solve", *BUDGET, "--algorithm", "pd-anpg", "--constants", tuned, "--json")
    entry = answer.object()["algorithms"][0]
    assert answer.err == ""
    assert entry["settings"] == dataclasses.asdict(fc.PDANPG.for_samples(model, 3e4, c_H=2, c_eta=0.5))
    answer = cli(*NAMED, *SMALL, "--constants", tuned, "--json")
    assert answer.object()["algorithms"][0]["settings"]["c_eta"] == 0.5
    assert answer.err == f"c_H of {tuned} belong to a schedule and apply with --samples or --epsilon only\n"
    answer = cli(*NAMED, *SMALL, "--constants", tuned, "--set", "c_eta=3", "--json", "-q")
    assert (answer.err, answer.object()["algorithms"][0]["settings"]["c_eta"]) == ("", 3.0)


def test_a_run_by_samples_is_resumed(cli, tmp_path):
    whole = cli("solve", *BUDGET, "--json", "--checkpoint", tmp_path / "run.npz").object()
    again = cli("solve", *BUDGET, "--json", "--checkpoint", tmp_path / "run.npz", "--resume").object()
    assert again == whole
    path = tmp_path / "run.npz"
    other = cli("solve", BUDGET[0], "--samples", "2e4", "--checkpoint", path, "--resume")
    assert other.code == 2
    assert "samples = 20000: the run is to have" in other.err
    more = cli("solve", BUDGET[0], "--samples", "9e4", "--checkpoint", path, "--resume", "--json").object()
    at_once = cli("solve", BUDGET[0], *BUDGET[3:], "--samples", "9e4", "--json").object()
    assert more["algorithms"][0]["samples"] == at_once["algorithms"][0]["samples"]


def test_a_target_and_what_was_reached(cli):
    near = cli("solve", "env:river_swim", "--target", "0.05", "--replicates", 2, "--json").object()[
        "algorithms"
    ][0]
    assert near["error"]["high"] <= 0.05
    assert "The target of 5 % is reached" in near["notes"][0]
    far = cli("solve", *BUDGET, "--target", "1e-6", "--json").object()["algorithms"][0]
    assert "The target of 0.0001 % was not reached within" in far["notes"][0]
    assert far["samples"] == pytest.approx(6e4, rel=0.05)
    assert "target = -1" in cli("solve", "env:river_swim", "--target", "-1").err


def test_tune_writes_what_compare_and_solve_read(cli, tmp_path):
    path = tmp_path / "tuned.toml"
    search = ("tune", *BUDGET, "--trials", 3, "--algorithms", "pd-anpg,pd-anpg?inner=8", "--out", path)
    answer = cli(*search, "--json")
    found = answer.object()
    assert (answer.code, answer.err) == (0, f"constants in {path}\n")
    assert [entry["name"] for entry in found["algorithms"]] == ["pd-anpg", "pd-anpg?inner=8"]
    for entry in found["algorithms"]:
        assert entry["constants"] == fc.tuned.read_constants(path)[entry["name"]]
        assert len(entry["trials"]) == 3
        assert entry["error"] == min(trial["error"] for trial in entry["trials"])
        assert entry["error_of_defaults"] == entry["trials"][0]["error"]
    assert (found["meta"]["model"], found["meta"]["samples"], found["meta"]["trials"]) == (
        BUDGET[0],
        30000,
        3,
    )
    assert found["optimum"]["reward"] > 0
    text = path.read_text()
    assert cli(*search).out.splitlines()[0].startswith("3 trials each")
    assert path.read_text() == text
    answer = cli("compare", *BUDGET, "--algorithms", "pd-anpg?inner=8", "--constants", path, "--json")
    (entry,) = answer.object()["algorithms"]
    assert entry["constants"] == found["algorithms"][1]["constants"]
    assert answer.err == ""
    answer = cli("compare", "env:queue", "--samples", "1e4", "--replicates", 1, "--constants", path)
    assert answer.code == 0
    assert f"{path} was made on another model" in answer.err


def test_compare_at_several_budgets(cli, tmp_path):
    names = ("--algorithms", "pd-anpg, pd-anpg?zeta=0.1", "--algorithms", "pd-anpg?margin=0.25")
    several = (*BUDGET, "--samples", "2e4", *names)
    answer = cli("compare", *several, "--json", "--plot", tmp_path / "c.png")
    found = answer.object()
    assert set(found) == {"model", "limits", "optimum", "algorithms", "skipped"}
    assert [entry["budget"] for entry in found["algorithms"]] == [2e4] * 3 + [3e4] * 3
    assert found["algorithms"][2]["settings"]["margin"] == 0.25
    assert found["algorithms"][0]["policy"] == "tabular"
    assert answer.err == f"plot in {tmp_path / 'c.png'}\n"
    assert (tmp_path / "c.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    answer = cli("compare", *BUDGET, "--samples", "2e4", "-q")
    assert (answer.code, answer.err) == (0, "")
    assert sum(line.lstrip()[:5] in ("2e+04", "3e+04") for line in answer.out.splitlines()) == 2 * len(
        ALGORITHMS
    )


@pytest.mark.parametrize(("verb", "least"), [("compare", "samples"), ("tune", "trial")])
def test_ctrl_c_prints_what_compare_and_tune_have(cli, tmp_path, monkeypatch, verb, least):
    module = sys.modules[f"fastcmdp.{verb}"]
    real, calls = module.run, []

    def run(cmdp, settings, **options):
        calls.append(settings)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return real(cmdp, settings, **options)

    monkeypatch.setattr(module, "run", run)
    more = ("--out", tmp_path / "t.toml", "--trials", 9) if verb == "tune" else ("--samples", "1e4,2e4,4e4")
    answer = cli(verb, *BUDGET, *more, "--algorithms", "pd-anpg")
    assert answer.code == 130
    assert least in answer.out
    assert "interrupted: this is what there is\n" in answer.err
    if verb == "tune":
        assert fc.tuned.read_meta(tmp_path / "t.toml")["trials"] == 3


def test_a_line_on_the_terminal_while_tuning(cli, terminal):
    terminal(True, True)
    answer = cli("tune", *BUDGET, "--trials", 2, "--algorithms", "pd-anpg")
    assert "trial 2 of 2, 0 s left: pd-anpg" in answer.err


# Plots.


def test_plot_is_a_picture(cli, tmp_path):
    path = tmp_path / "run.png"
    answer = cli("solve", *SMALL, "--plot", path)
    assert answer.code == 0
    assert answer.err == f"plot in {path}\n"
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    assert width >= 900
    assert height >= 600


@pytest.mark.parametrize(("ending", "magic"), [("svg", b"<?xml"), ("PDF", b"%PDF")])
def test_plot_formats(cli, tmp_path, ending, magic):
    path = tmp_path / f"run.{ending}"
    assert cli("solve", *SMALL, "--plot", path, "-q").err == ""
    assert path.read_bytes().startswith(magic)


# Whole numbers, policies and simulators by name.


def test_whole_numbers_may_have_an_exponent(cli):
    plain = timeless(cli("solve", *SMALL, "--set", "pilot=10", "--json").object())
    arguments = ("--outer", "4e1", "--inner", "1e1", "--replicates", "2.0", "--set", "pilot=1e1", "--json")
    assert timeless(cli("solve", *SMALL[:3], *arguments).object()) == plain
    for value in ("1.5", "many", "true", "inf"):
        answer = cli("solve", SMALL[0], "--outer", value)
        assert (answer.code, answer.out) == (2, "")
        assert f"{value!r} is not a whole number" in " ".join(answer.err.split())
    assert cli("compare", *BUDGET[:3], "--replicates", "2e0", "--algorithms", "pd-anpg", "--json").code == 0


def test_a_policy_by_name(cli, tmp_path):
    model = fc.envs.river_swim()
    phi = np.random.default_rng(0).normal(size=(model.n_choices, 4))
    np.save(tmp_path / "phi.npy", phi)
    name = f"log-linear:{tmp_path / 'phi.npy'}"
    (entry,) = cli("solve", *SMALL, "--policy", name, "--json").object()["algorithms"]
    result = fc.solve(model, fc.PDANPG(outer=40, inner=10), policy=fc.LogLinear(phi), replicates=2)
    assert (entry["policy"], entry["reward"]) == (name, result.to_dict()["reward"])
    found = cli(
        "compare", *BUDGET, "--policy", "neural:3", "--algorithms", "pd-anpg,pd-nac", "--json"
    ).object()
    assert [entry["policy"] for entry in found["algorithms"]] == ["neural:3"]
    assert "pd-nac" in found["skipped"][0]


def test_a_simulator_by_import_path(cli, tmp_path, monkeypatch):
    (tmp_path / "my_queues.py").write_text("from fastcmdp.simulators import marketing\n")
    monkeypatch.chdir(tmp_path)
    spec = "simulator:my_queues:marketing?levels=3&budget=2.5"
    answer = cli("solve", spec, *SMALL[1:], "--gamma", 0.9, "--seed", 4, "--json")
    found = answer.object()
    result = fc.solve(
        fc.simulators.marketing(levels=3, gamma=0.9, budget=2.5),
        fc.PDANPG(outer=40, inner=10), seed=4, replicates=2,
    )  # fmt: skip
    (entry,) = found["algorithms"]
    assert (answer.code, entry["policy"], found["optimum"]) == (0, "log-linear", None)
    assert entry["reward"] == result.to_dict()["reward"]
    assert (found["model"]["spec"], found["model"]["gamma"], found["model"]["actions"]) == (spec, 0.9, 3)
    assert found["limits"][0]["limit"] == 2.5
    for verb in ("compare", "inspect"):
        answer = cli(verb, spec)
        assert (answer.code, answer.out) == (2, "")
        assert "needs a model with a table" in answer.err


@pytest.mark.parametrize(
    ("verb", "more"),
    [(verb, ()) for verb in ("solve", "compare", "tune", "inspect")]
    + [("theory", ("--epsilon", 1)), ("convert", ("x.npz",))],
)
def test_verbs_on_models_take_the_same_options(cli, verb, more):
    help = cli(verb, "--help").out.split()
    assert {"--gamma", "--reward", "--constraint", "--start", "--with"} <= set(help)
    assert ("--limit" in help) == (verb != "convert")
    answer = cli(verb, "env:river_swim", *more, "--reward", "r", "--start", 3)
    message = "error: --reward, --start: for files only; env:river_swim takes settings after its ?\n"
    assert (answer.code, answer.err) == (2, message)


# The other verbs.


def test_inspect_json(cli):
    found = cli("inspect", "env:garnet?n_constraints=2", "--json").object()
    best = fc.optimum(fc.envs.garnet(n_constraints=2))
    assert set(found) == {
        *("model", "limits", "feasible", "best_attainable", "infeasible", "finished", "slater", "optimum")
    }
    assert found["feasible"] is True
    assert found["finished"] is True
    assert found["infeasible"] is None
    assert found["slater"] == best.slater
    assert found["optimum"]["reward"] == best.reward
    assert found["optimum"]["duals"] == best.duals.tolist()
    assert found["optimum"]["constraint_range"] == best.constraint_range.tolist()
    assert found["model"]["start"] == {"states": 20, "first": 0, "uniform": True}
    assert np.shape(found["model"]["ranges"]) == (3, 2)


def test_averages_by_a_flag(cli):
    """As `with_criterion` has them, the generator's limit of 10 as an average; no discount factor beside the flag."""
    optimum = cli("inspect", "env:river_swim", "--average", "--json").object()["optimum"]
    best = fc.optimum(fc.envs.river_swim().with_criterion("average", limits=0.05 * 10))
    assert optimum["reward"] == pytest.approx(best.reward, rel=1e-9)
    assert optimum["constraints"] == pytest.approx([0.5], rel=1e-6)
    answer = cli("inspect", "env:river_swim", "--average", "--gamma", 0.9)
    assert answer.code != 0
    assert "--average takes no --gamma" in answer.err


def test_inspect_says_it_in_words(cli):
    answer = cli("inspect", "gym:FrozenLake-v1")
    assert (answer.code, answer.err) == (0, "")
    lines = {line.split()[0]: line.split() for line in answer.out.splitlines() if line.strip()}
    assert lines["states"] == ["states", "17"]
    assert lines["choices"] == ["choices", "50", "(1", "to", "4", "a", "state)"]
    assert lines["start"] == ["start", "11", "states,", "uniform"]
    best = fc.optimum(fc.envs.from_gymnasium("FrozenLake-v1"))
    assert float(lines["reward"][-1]) == pytest.approx(best.reward, rel=1e-6)
    least, _, most = lines["hole"][4:7]
    assert [float(least), float(most)] == pytest.approx(best.constraint_range[0], rel=1e-5)
    assert float(lines["hole"][-1]) == pytest.approx(best.duals[0], rel=1e-5)
    assert lines["feasible,"][:3] == ["feasible,", "Slater", "value"]
    assert float(lines["feasible,"][3]) == pytest.approx(best.slater, rel=1e-5)


def test_inspect_answers_for_an_infeasible_model(cli):
    answer = cli("inspect", "env:river_swim?start=0", "--limit=-1")
    assert (answer.code, answer.err) == (0, "")
    assert "not feasible: no policy meets the constraints: strokes <= -1" in answer.out
    assert "start         state 0\n" in answer.out
    found = cli("inspect", "env:river_swim", "--limit=-1", "--json").object()
    assert (found["feasible"], found["slater"], found["optimum"]) == (False, None, None)
    assert found["best_attainable"] == pytest.approx([0.0], abs=1e-9)
    assert found["infeasible"]["conflict"] == ["strokes"]
    assert found["infeasible"]["alone"] == pytest.approx([1.0], abs=1e-9)


def test_inspect_says_how_far_limits_would_have_to_move(cli, tmp_path):
    rows = (np.ones((1, 2, 1)), [[0.0, 1.0]], [[[3.0, 0.0]], [[0.25, 0.25]], [[0.0, 3.0]]])
    cmdp = fc.CMDP.from_arrays(
        *rows,
        gamma=0.5,
        limits=[4.0, 1.0, 4.5],
        sense=[">=", "<=", ">="],
        names=["gain", "left", "toll", "right"],
    )
    fc.save(cmdp, tmp_path / "opposed.npz")
    answer = cli("inspect", tmp_path / "opposed.npz", "--gamma", 0.5)
    assert "a smallest set of limits that conflict: left, right" in answer.out
    told = {line.split()[0]: line.split("  ") for line in answer.out.splitlines()[-3:]}
    told = {name: [cell.strip() for cell in cells if cell.strip()] for name, cells in told.items()}
    assert told["left"] == ["left", ">= 4", "1.5", "2.82353"]
    assert told["toll"][2] == "no move of it alone suffices"
    assert told["right"] == ["right", ">= 4.5", "2", "3.17647"]


def test_frontier(cli, tmp_path):
    expected = fc.frontier(fc.envs.garnet(n_states=6))
    found = cli("frontier", "env:garnet?n_states=6", "--json").object()["frontier"]
    assert found["limits"] == expected.limits.tolist()
    assert found["rewards"] == expected.rewards.tolist()
    assert found["complete"] is True
    assert found["duals"][0][1] is None
    answer = cli("frontier", "env:garnet?n_states=6", "--plot", tmp_path / "frontier.svg")
    assert answer.code == 0
    assert f"{len(expected.limits)} points, all breakpoints" in answer.out
    assert f"{expected.rewards[-1]:.8g}" in answer.out
    assert "best reward" in (tmp_path / "frontier.svg").read_text()
    answer = cli("frontier", "env:garnet?n_states=6&n_constraints=2")
    assert (answer.code, answer.err[:5]) == (2, "error")
    assert "--of 'cost 0'" in answer.err
    assert "cost 0, cost 1" in answer.err
    answer = cli("frontier", "env:garnet?n_states=6&n_constraints=0")
    assert (answer.code, "no constraint whose limit" in answer.err) == (2, True)
    answer = cli("frontier", "env:garnet?n_states=6&n_constraints=2", "--of", "costs 1")
    assert "did you mean 'cost 1'" in answer.err


def test_inspect_without_constraints(cli):
    assert "no constraints" in cli("inspect", "env:garnet?n_constraints=0").out
    assert cli("inspect", "env:garnet?n_constraints=0", "--json").object()["slater"] is None


def test_warmup_covers_every_algorithm_and_kind_of_policy(cli, monkeypatch):
    seen = []

    def solve(cmdp, algorithm, *, policy, **_):
        seen.append((algorithm.name, type(policy.bind(cmdp).data).__name__))

    monkeypatch.setattr("fastcmdp.cli.warmup.solve", solve)
    # a memory of its own, since the real one knows the real solve, and must not learn this one
    fresh = functools.cache(sys.modules["fastcmdp.cli.warmup"].jobs.__wrapped__)
    monkeypatch.setattr(sys.modules["fastcmdp.cli.warmup"], "jobs", fresh)
    monkeypatch.setattr("fastcmdp.cli.warmup.ProcessPoolExecutor", lambda n, **_: ThreadPoolExecutor(n))
    answer = cli("warmup", "--json")
    general = ("DenseFeatures", "SparseFeatures", "ReluNetwork", "Network")
    live = {name for name, made in fc.ALGORITHMS.items() if made.simulation}
    assert live >= {"pd-anpg", "pd-anpg-cv", "npg-pd", "c-npg-pda", "crpo"}
    linear = {"pd-nac-average"}  # critics linear in fixed features
    fitted = {"al-pqa"}  # the same classes, on tables alone
    tables = {"pdr-anpg", "c-pg", "lb-sgd"}  # of any class, on tables alone
    expected = {(name, "Tabular") for name in fc.ALGORITHMS}
    expected |= {(name, kind) for name in (live | tables) - linear for kind in general}
    expected |= {(name, kind) for name in linear | fitted for kind in ("DenseFeatures", "SparseFeatures")}
    expected |= {(name, "Linear") for name in live}
    expected |= {(name, "LiveNetwork") for name in live - linear}
    assert set(seen) == expected
    assert len(seen) == len(expected)
    found = answer.object()
    assert found["seconds"] >= max(found["kernels"].values()) > 0
    assert len(answer.err.splitlines()) == len(seen) + 1 == len(found["kernels"])
    assert os.path.isabs(found["cache"])
    answer = cli("warmup", "-q")
    assert answer.err == ""
    assert answer.out.startswith("all kernels ready in ")


def test_a_first_run_says_that_it_compiles(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    arguments = ("solve", "env:river_swim", "--algorithm", "pmd-pd", "--outer", 1)
    for silent, compiles in (((), True), ((), False), (("-q",), False)):
        _, err = process(MAIN, *arguments, *silent, env=environment).communicate()
        assert err.count("compiling kernels") == compiles


@pytest.mark.slow
def test_nothing_is_left_to_compile_after_warmup(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    script = (
        MAIN.replace("sys.exit(main())", "code = main(['warmup', '--json'])")
        + """
import importlib, pathlib, pkgutil, fastcmdp.kernels as kernels
others = {'draws', 'seeding', 'embed', 'policy'}  # compiled with a user's own code, or one kind of policy each
for module in pkgutil.walk_packages(kernels.__path__, 'fastcmdp.kernels.'):
    if module.name.split('.')[2] in others:
        continue
    for name, value in vars(importlib.import_module(module.name)).items():
        if hasattr(value, 'callee') and not any(
            list(pathlib.Path(one._cache.cache_path).glob(one._cache._cache_file.name + '.*.nbc'))
            for one in (value, value.callee()) if one._cache.cache_path
        ):
            print('not compiled:', value.py_func.__module__, name, file=sys.stderr)
sys.exit(code)
"""
    )
    out, err = process(script, env=environment).communicate()
    assert Answer(out=out).object()["cache"].startswith(str(tmp_path))
    assert "not compiled" not in err
    files = sorted(path.name for path in tmp_path.rglob("*.nbc"))
    assert len(files) > 10
    for m in range(3):
        arguments = ("solve", f"env:garnet?n_constraints={m}", "--outer", 2, "--inner", 3, "--json")
        out, _ = process(MAIN, *arguments, env=environment).communicate()
        assert Answer(out=out).object()["algorithms"][0]["finished"]
    assert sorted(path.name for path in tmp_path.rglob("*.nbc")) == files


def test_version(cli):
    answer = cli("--version")
    assert (answer.code, answer.out, answer.err) == (0, f"fastcmdp {fc.__version__}\n", "")


def test_the_package_runs_as_a_module():
    ended = subprocess.run([sys.executable, "-m", "fastcmdp", "--version"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, f"fastcmdp {fc.__version__}\n")


def test_help_names_verbs_and_generators(cli):
    answer = cli("--help")
    assert answer.code == 0
    assert all(verb in answer.out for verb in ("solve", "inspect", "warmup"))
    assert "river_swim" in cli("solve", "-h").out


# Start-up and missing extras, in processes of their own.


def test_help_imports_nothing_heavy():
    script = """
import sys
from fastcmdp.cli import main
code = main(["--help"])
heavy = ("scipy.sparse", "scipy.optimize", "scipy.special", "matplotlib", "gymnasium", "rich.progress")
print([name for name in heavy if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""
    child = process(script)
    _, err = child.communicate()
    assert (child.returncode, err) == (0, "[]\n")


@pytest.mark.parametrize("name", ["typer", "rich"])
def test_without_the_extra_one_line_says_how_to_get_it(name):
    child = process(f"import sys; sys.modules[{name!r}] = None\n{MAIN}", "solve", "env:river_swim")
    out, err = child.communicate()
    assert (child.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert "pip install 'fastcmdp[cli]'" in err


def test_without_matplotlib_there_is_no_run(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    answer = cli("solve", *SMALL, "--plot", tmp_path / "run.png")
    assert (answer.code, answer.out) == (2, "")
    assert "pip install 'fastcmdp[plot]'" in answer.err


def test_a_closed_terminal_stops_like_ctrl_c_and_nohup_does_not(monkeypatch):
    ours = signal.getsignal(signal.SIGHUP)
    try:
        for before, after in (
            (signal.SIG_DFL, signal.default_int_handler),
            (signal.SIG_IGN, signal.SIG_IGN),
        ):
            signal.signal(signal.SIGHUP, before)
            assert main(["--version"]) == 0
            assert signal.getsignal(signal.SIGHUP) == after
    finally:
        signal.signal(signal.SIGHUP, ours)


def test_a_reader_that_has_enough_is_no_fault():
    """`fastcmdp inspect ... | head` ends as programs do whose pipe is closed, and says nothing."""
    code = (
        "import sys; from fastcmdp.cli import main; sys.exit(main(['inspect', 'env:river_swim', '--json']))"
    )
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
