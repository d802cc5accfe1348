"""DRN: what Storm and PRISM write is read, and what is wrong is told with its line."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from io_cases import SHARED, file_of, needs_models, small, told

import fastcmdp as fc
from fastcmdp import io
from fastcmdp.errors import ModelError

HEAD = """// Exported by storm
@type: MDP
@value_type: double
@parameters

@reward_models
time toll
@nr_states
3
@nr_choices
4
@model
"""
BODY = """state 0 [1, 0] init "on the way"
// of x=0 and y=1
\taction go [0, 1]
\t\t0 : 0.25
\t\t1 : 0.75
\taction {a,b} [0, 0]
\t\t2 : 1
state 1 [1, 0.25] way
\taction go [0, 0.5]
\t\t0 : 1/3
\t\t1 : 1/3
\t\t2 : 1/3
state 2 [0, 0] goal way
\taction stay [0, 0]
\t\t2 : 1
"""


@pytest.fixture
def read(tmp_path):
    def from_text(text, **options):
        path = tmp_path / "model.drn"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return io.read(path, **options)

    return from_text


def test_all_parts_are_read(read):
    found = read(HEAD + BODY)
    assert found.state_to_choice.tolist() == [0, 2, 3, 4]
    assert found.choice_to_branch.tolist() == [0, 2, 3, 6, 7]
    assert found.branch_target.tolist() == [0, 1, 2, 0, 1, 2, 2]
    assert found.branch_prob.tolist() == [0.25, 0.75, 1.0, 1 / 3, 1 / 3, 1 / 3, 1.0]
    assert found.rewards["time"].states.tolist() == [1, 1, 0]
    assert found.rewards["time"].choices is None
    assert found.rewards["toll"].states.tolist() == [0, 0.25, 0]
    assert found.rewards["toll"].choices.tolist() == [1, 0, 0.5, 0]
    assert {name: states.tolist() for name, states in found.labels.items()} == {
        "on the way": [0], "way": [1, 2], "goal": [2],
    }  # fmt: skip
    assert found.start.tolist() == [1, 0, 0]
    assert [found.action_names[a] for a in found.actions] == ["go", "{a,b}", "go", "stay"]
    assert found.notes == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@nr_choices\n4\n", ""),  # older files lack it
        ("@value_type: double\n", "@value_type: rational\n"),
        ("@value_type: double\n", ""),
        ("\n", "\r\n"),
        (" : ", ":"),
        (" : ", ": "),
        (" : ", " :"),
        ("\t", "  "),
        ("[0, 1]", "[0,1]"),
        ("[0, 1]", "[ 0 ,1 ] "),
        ("state 2 [0, 0]", "state 2"),  # a bracket may be missing
        ("action stay [0, 0]", "action stay"),
        ("1 : 0.75\n", "1 : 0.75 // three of four\n\n\n"),
        ("2 : 1\n", "2 : 1.0e0\n"),
    ],
)
def test_variants_mean_the_same(read, old, new):
    assert old in HEAD + BODY
    assert told(read((HEAD + BODY).replace(old, new))) == told(read(HEAD + BODY))


@pytest.mark.parametrize("size", [1, 40, 300])
def test_pieces_of_a_file_may_end_anywhere(read, monkeypatch, size):
    whole = told(read(HEAD + BODY))
    monkeypatch.setattr("fastcmdp.io.text.PIECE", size)
    assert told(read(HEAD + BODY)) == whole


def test_a_label_twice_on_a_state_counts_once(read):
    assert read((HEAD + BODY).replace("goal way", "goal way goal")).labels["goal"].tolist() == [2]


def test_rewards_of_branches_are_written_as_their_expectation(tmp_path):
    described = small(rewards={"r": io.Reward(branches=np.array([4.0, 8, 1, 3, 0, 0, 0]))})
    io.write(described, tmp_path / "m.drn")
    assert io.read(tmp_path / "m.drn").rewards["r"].choices.tolist() == [7.0, 1.0, 1.0, 0.0]


def test_a_chain_without_rewards(read):
    found = read(
        "@type: DTMC\n@nr_states\n2\n@model\nstate 0 init\n\taction 0\n\t\t1 : 1\nstate 1\n\taction 0\n\t\t1 : 1"
    )
    assert (found.n_choices, dict(found.rewards), found.actions.tolist()) == (2, {}, [0, 0])


def test_rewards_without_names(read):
    found = read(
        "@type: MDP\n@reward_models\n\n@nr_states\n1\n@model\nstate 0 [3, 4]\n\taction __NOLABEL__\n\t\t0 : 1\n"
    )
    assert {name: reward.states.tolist() for name, reward in found.rewards.items()} == {
        "rew0": [3],
        "rew1": [4],
    }
    assert found.actions is None


def test_long_lists_of_rewards_take_no_memory_for_states_without_one(read):
    n = 20_000
    states = "".join(f"state {s}\n\taction a\n\t\t0 : 1\n" for s in range(1, n))
    head = f"@type: MDP\n@nr_states\n{n}\n@model\n"
    first = "state 0 [{}]\n\taction a\n\t\t0 : 1\n"
    tracemalloc.start()
    found = read(head + first.format("0," * 255 + "7") + states)
    assert tracemalloc.get_traced_memory()[1] < 40 << 20
    tracemalloc.stop()
    assert found.rewards["rew255"].states.tolist() == [7.0] + [0.0] * (n - 1)
    with pytest.raises(ModelError, match="257 reward models; at most 256"):
        read(head + first.format("0," * 256 + "7") + states)
    with pytest.raises(ModelError, match="300 reward models; at most 256"):
        read(HEAD.replace("time toll", " ".join(f"r{i}" for i in range(300))) + BODY)


def test_rounded_rows_are_divided_by_their_sums_and_it_is_said(read, tmp_path):
    rounded = (HEAD + BODY).replace("1/3", "0.3333333333")
    found = read(rounded)
    assert np.abs(found.branch_prob[3:6] - 1 / 3).max() < 1e-16
    assert len(found.notes) == 1
    assert "1 of 4 rows" in found.notes[0]
    assert "1.0e-10" in found.notes[0]
    assert "line 21" in found.notes[0]
    with pytest.warns(UserWarning, match="1 of 4 rows"):
        fc.load(tmp_path / "model.drn", reward="time", gamma=0.9)
    # Six digits explain six digits, not five.
    assert read(rounded.replace("0.3333333333", "0.333333")).notes
    with pytest.raises(ModelError, match=r"the action in line 21 sum to 0\.9999"):
        read(rounded.replace("0.3333333333", "0.33333"))


def test_rows_that_are_wrong_are_refused_unless_told_otherwise(read):
    wrong = (HEAD + BODY).replace("0.75", "0.5")
    with pytest.raises(ModelError, match=r"the action in line 15 sum to 0\.75; they must sum to 1"):
        read(wrong)
    assert read(wrong, renormalize=True).branch_prob[:2].tolist() == [1 / 3, 2 / 3]


def test_many_digits_leave_no_room(read):
    exact = (HEAD + BODY).replace("1/3", "0.33333333333333331")
    assert read(exact).notes == ()
    with pytest.raises(ModelError, match="line 21"):
        read(exact.replace("0.33333333333333331", "0.33333333333", 1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@type: MDP", "@type: CTMC", "line 2: a model of type CTMC: a model in continuous time"),
        ("@type: MDP", "@type: Markov Automaton", "line 2: .*continuous time"),
        ("@type: MDP", "@type: POMDP", "line 2: .*partial observability"),
        ("@type: MDP", "@type: SMG", "line 2: .*a game"),
        ("@type: MDP", "@type: WMDP", "line 2: .*MDP and DTMC are supported"),
        ("@type: MDP\n", "", "no @type"),
        ("@value_type: double", "@value_type: double-interval", "line 3: .*interval models"),
        ("@value_type: double", "@value_type: parametric", "line 3: parametric models"),
        ("@parameters\n\n", "@parameters\np q\n", "line 4: .*parametric models"),
        ("@nr_states\n3", "@nr_states\n0", "line 9: @nr_states is '0'"),
        ("@nr_states\n3", "@nr_states\n9999999999999999999", "line 9: @nr_states is '9999999999999999999'"),
        ("@nr_states\n3\n", "", "no @nr_states"),
        ("@nr_states\n3", "@nr_states\n4", "the file has 3 states; its header says 4"),
        ("@nr_states\n3", "@nr_states\n2", "line 17: a branch to state 2; there are 2 states|line 19"),
        ("@nr_choices\n4", "@nr_choices\n5", "the file has 4 choices; its header says 5"),
        ("time toll", "time time", "two rewards have the name 'time'"),
        ("time toll", "time", "line 13: a list of 2 rewards; there are 1"),
        ("@model", "@modle", "no line '@model'"),
        ("@nr_choices", "@nr_transitions", "line 10: '@nr_transitions' is not known"),
        ("state 1 ", "state 2 ", "line 20: state 2, where state 1 must come"),
        ("state 1 ", "stat 1 ", "line 20: 'stat 1 .*' is no state, action or branch"),
        ("0 : 0.25", "0 : 0.25 : 1", "line 16: this is no branch"),
        ("0 : 0.25", "0 0.25", "line 16: this is no branch"),
        ("0 : 0.25", "3 : 0.25", "line 16: a branch to state 3; there are 3 states"),
        ("0 : 0.25", "-1 : 0.25", "line 16: '-1 : 0.25' is no state"),
        ("0 : 0.25", "0 : -0.25", "line 16: a probability of -0.25"),
        ("0 : 0.25", "0 : 1.25", "line 16: a probability of 1.25"),
        ("0 : 0.25", "0 : nan", "line 16: a probability must be a finite number"),
        ("0 : 0.25", "0 : [0.2, 0.3]", "line 16: interval models"),
        ("0 : 0.25", "0 : [0.2,0.3]", "line 16: .*interval models"),
        ("0 : 0.25", "0 : p", "line 16: .*parametric models"),
        ("[0, 1]", "[0, inf]", "line 15: a reward must be a finite number"),
        ("[0, 1]", "[0, 1", "line 15: a list of rewards without its ]"),
        ("[0, 1]", "[0,, 1]", "line 15: a list of 3 rewards"),
        ("[0, 1]", "[0, ] 1", "line 15: an empty place"),
        ("[0, 1]", "[0, 1] twice", "line 15: text after an action"),
        ("\taction go [0, 1]\n", "", "line 15: a branch before the first action"),
        ("\taction stay [0, 0]\n\t\t2 : 1\n", "", "line 25: the state has no action: a deadlock"),
        ("\taction stay [0, 0]\n\t\t2 : 1\n", "\taction stay [0, 0]\n", "line 26: the action has no branch"),
        ("\t\t0 : 1/3\n", "\t\t0 : 1/0\n", "line 22: a probability must be a finite number"),
    ],
)  # fmt: skip
def test_faults_are_told_with_their_line(read, old, new, message):
    text = HEAD + BODY
    assert old in text
    with pytest.raises(ModelError, match=message):
        read(text.replace(old, new, 1))


@pytest.mark.parametrize("text", ["", "\n", "state 0\n", HEAD, "PK\x03\x04", b"\xff\xfe\x00", HEAD + "\x00"])
def test_what_is_no_model_is_refused(read, text):
    with pytest.raises(ModelError):
        read(text)


def test_names_come_back_that_the_format_cannot_hold(tmp_path):
    names = ("go to", "", "// no", '"x"', "a\nb", "go_to")
    described = small(
        action_names=names,
        actions=np.array([0, 4, 5, 2], dtype=np.int32),
        labels={"init": np.array([1]), "[a": np.array([0, 2]), "b c": np.array([2])},
        rewards={
            "b c": small().rewards["time"],
            "b_c": small().rewards["toll"],
            "%20": small().rewards["toll"],
        },
    )
    path = file_of(tmp_path, "drn")
    io.write(described, path)
    assert told(io.read(path)) == told(described)


def test_a_damaged_comment_of_names_is_a_comment(read):
    plain = told(read(HEAD + BODY))
    for comment in (
        "// fastcmdp names: {",
        "// fastcmdp names: [1]",
        '// fastcmdp names: {"rewards": {"time": 3}}',
    ):
        assert told(read(comment + "\n" + HEAD + BODY)) == plain


@needs_models
def test_storms_file_is_written_as_storm_writes_it(tmp_path):
    path = SHARED / "resource-gathering-small.drn"
    io.write(io.read(path), tmp_path / "copy.drn")

    def lines(file):
        return [line.rstrip() for line in file.read_text().splitlines() if not line.startswith("//")]

    assert lines(tmp_path / "copy.drn") == lines(path)
