"""PRISM's explicit files: both heads, both variants, rewards found beside them or named."""

from __future__ import annotations

import numpy as np
import pytest
from io_cases import small, told

from fastcmdp import io
from fastcmdp.errors import ModelError

PLAIN = """3 4 7
0 0 0 0.25 go
0 0 1 0.75 go
0 1 2 1 left
1 0 0 0.3333333333333333 go
1 0 1 0.3333333333333333 go
1 0 2 0.3333333333333334 go
2 0 2 1 stay
"""
ROWS = """3 4 7
0 0.25:0 0.75:1 go
0 1:2 left
1 0.3333333333333333:0 0.3333333333333333:1 0.3333333333333334:2 go
2 1:2 stay
"""
LABELS = '0="init" 1="deadlock" 2="goal"\n0: 0\n1: 2\n2: 1 2\n'
STATES = "3 2\n0 1.5\n1 2\n"
BRANCHES = "3 4 3\n0 0 1 4\n0 1 2 5\n1 0 0 3\n"


@pytest.fixture
def read(tmp_path):
    def from_texts(tra=PLAIN, lab=LABELS, files=None, **texts):
        (tmp_path / "m.tra").write_text(tra)
        if lab is not None:
            (tmp_path / "m.lab").write_text(lab)
        for name, text in texts.items():
            (tmp_path / name.replace("_", ".")).write_text(text)
        return io.read(tmp_path / "m.tra", files=files)

    return from_texts


def values(description):
    """Rewards on choices by their names."""
    return {name: description.on_choices(name).tolist() for name in description.rewards}


def test_all_files_are_read(read):
    found = read(m_srew=STATES, m_trew=BRANCHES)
    assert found.state_to_choice.tolist() == [0, 2, 3, 4]
    assert found.choice_to_branch.tolist() == [0, 2, 3, 6, 7]
    assert found.branch_target.tolist() == [0, 1, 2, 0, 1, 2, 2]
    assert found.branch_prob.tolist()[:3] == [0.25, 0.75, 1.0]
    assert found.start.tolist() == [1, 0, 0]
    assert {name: states.tolist() for name, states in found.labels.items()} == {
        "deadlock": [2],
        "goal": [1, 2],
    }
    assert [found.action_names[a] for a in found.actions] == ["go", "left", "go", "stay"]
    # A state's reward, and the expectation of those on branches.
    assert values(found) == {"reward": [1.5 + 3, 1.5 + 5, 2 + 1, 0.0]}


@pytest.mark.parametrize("size", [1, 30, 1 << 20])
@pytest.mark.parametrize(
    "tra",
    [
        ROWS,
        "mdp\n" + PLAIN.split("\n", 1)[1],
        "MDP\n" + ROWS.split("\n", 1)[1],
        "# from somewhere\n\n" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace(" ", "\t  "),
        PLAIN.replace("2 0 2 1 stay\n", "").replace("3 4 7\n", "3 4 7\n2 0 2 1 stay\n"),  # unordered states
        PLAIN.replace("0.25", "2.5e-1").replace("0.75", "3/4"),
    ],
)
def test_variants_mean_the_same(read, monkeypatch, tra, size):
    plain = told(read())
    monkeypatch.setattr("fastcmdp.io.text.PIECE", size)
    found = told(read(tra))
    assert found == plain


def test_rewards_in_rows(read):
    rows = "3 4 3\n0 4:1\n0 5:2\n1 3:0\n2\n"
    assert values(read(m_trew=rows)) == values(read(m_trew=BRANCHES))
    assert values(read(ROWS, m_trew=rows)) == values(read(m_trew=BRANCHES))
    assert values(read(m_trew="3 4 0\n0\n0\n1\n2\n")) == {"reward": [0, 0, 0, 0]}


def test_rewards_without_a_head(read):
    assert values(read(m_srew="0 1.5\n1 2\n", m_trew="0 0 1 4\n0 1 2 5\n1 0 0 3\n")) == values(
        read(m_srew=STATES, m_trew=BRANCHES)
    )


def test_chains(read):
    lab = '0="init"\n1: 0\n'
    chain = read("2 3\n0 0 0.5\n0 1 0.5\n1 1 1\n", lab, m_trew="2 1\n0 1 6\n")
    assert (chain.n_choices, chain.actions, values(chain)) == (2, None, {"reward": [3.0, 0.0]})
    for tra in ("dtmc\n0 0 0.5\n0 1 0.5\n1 1 1\n", "2 3\n0 0.5:0 0.5:1\n1 1:1\n"):
        assert told(read(tra, lab)) == told(chain)


def test_an_mdp_with_one_choice_a_state_is_no_chain(read):
    found = read("2 2 3\n0 0 0 0.5\n0 0 1 0.5\n1 0 1 1\n", '0="init"\n1: 0\n', m_trew="2 2 1\n0 0 1 6\n")
    assert values(found) == {"reward": [3.0, 0.0]}


def test_numbered_rewards_and_their_names(read):
    title = '# Reward structure "{}"\n# State rewards\n'
    found = read(
        m1_srew=title.format("time") + STATES,
        m1_trew=title.format("time") + "3 4 0\n",
        m2_trew='# Reward structure: "energy used"\n' + BRANCHES,
        m10_srew=STATES,
    )
    assert list(found.rewards) == ["time", "energy used", "reward10"]
    assert values(found)["energy used"] == [3, 5, 1, 0]


def test_numbered_rewards_of_another_model_are_left_alone(read, tmp_path):
    (tmp_path / "m1.tra").write_text(PLAIN)
    assert list(read(m1_srew=STATES, m2_srew=STATES).rewards) == ["reward2"]


def test_files_by_name(read, tmp_path):
    (tmp_path / "other.srew").write_text(STATES)
    (tmp_path / "other.lab").write_text(LABELS)
    (tmp_path / "m.srew").write_text("not looked at")
    found = read(lab=None, files=[tmp_path / "other.srew", tmp_path / "other.lab"])
    assert values(found) == {"other": [1.5, 1.5, 2.0, 0.0]}
    assert read(lab=None, files=[]).start is None
    with pytest.raises(FileNotFoundError):
        read(files=[tmp_path / "none.lab"])
    with pytest.raises(ModelError, match=r"\.txt: files that go with a \.tra end in"):
        read(files=[tmp_path / "m.txt"])


def test_a_target_that_stands_twice_in_a_choice(read, tmp_path):
    tra = "1 1 3\n0 0 0 0.25\n0 0 0 0.25\n0 0 0 0.5\n"
    lab = '0="init"\n0: 0\n'
    for entries, mean in (("0 0 0 1\n0 0 0 2\n0 0 0 3\n", 2.25), ("0 0 0 7\n", 7.0)):
        assert values(read(tra, lab, m_trew=entries)) == {"reward": [mean]}
    # What is zero must be told too, or the other would count for all.
    read(tra, lab, m_trew="0 0 0 4\n0 0 0 0\n0 0 0 0\n")
    io.write(io.read(tmp_path / "m.tra"), tmp_path / "copy.tra")
    assert values(io.read(tmp_path / "copy.tra")) == {"reward": [1.0]}
    with pytest.raises(ModelError, match="line 1: the reward of this transition is told before"):
        read(tra, lab, m_trew="0 0 0 1\n0 0 0 2\n")


def test_a_label_twice_on_a_state_counts_once(read):
    assert read(lab=LABELS.replace("2: 1 2", "2: 1 2 1 2")).labels["goal"].tolist() == [1, 2]


def test_labels_of_older_files(read):
    found = read(lab="#DECLARATION\ninit goal\nway\n#END\n0 init way\n2 goal way\n")
    assert found.start.tolist() == [1, 0, 0]
    assert {name: states.tolist() for name, states in found.labels.items()} == {"goal": [2], "way": [0, 2]}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("3 4 7", "3 4 7 2", "partial observability"),
        ("3 4 7", "ctmc", "line 1: .*continuous time"),
        ("3 4 7", "smg", "line 1: .*a game"),
        ("3 4 7", "three", "line 1: 'three' where"),
        ("3 4 7", "3 4 8", "the file has 7 transitions; its head says 8"),
        ("3 4 7", "3 5 7", "the file has 4 choices; its head says 5"),
        ("3 4 7", "4 4 7", r"state 3 has no choice \(a deadlock\)"),
        ("3 4 7", "99999999999999 4 7", "state 3 has no choice"),
        ("3 4 7", "2 4 7", "line 8: state 2; there are 2"),
        ("0 0 1 0.75", "0 0 3 0.75", "line 3: state 3; there are 3"),
        ("0 0 1 0.75", "0 0 1 0.5", r"the choice in line 2 sum to 0\.75"),
        ("0 0 1 0.75", "0 0 1 -0.75", "the choice in line 2 has probability -0.75"),
        ("0 0 1 0.75", "0 0 1 [0.7,0.8]", "line 3: .*interval models"),
        ("0 0 1 0.75", "0 0 1 p", "line 3: .*parametric models"),
        ("0 0 1 0.75", "0 0 1 nan", "line 3: the value must be a finite number"),
        ("0 0 1 0.75 go", "0 0 1 0.75 went", "line 3: another action"),
        ("0 0 1 0.75 go", "0 0 1 0.75 go went", "line 3: .* where 's k t value"),
        ("0 1 2 1 left", "0 2 2 1 left", "line 4: choice 2 of state 0, which has no choice 1"),
        ("0 1 2 1 left", "0 x 2 1 left", "line 4: the number of a choice must be an integer"),
        (PLAIN, "", "the file is empty"),
        (PLAIN, "3 4 7\n", "no transitions"),
        (PLAIN, "# nothing\n", "the file is empty"),
    ],
)
def test_faults_of_a_tra(read, old, new, message):
    assert old in PLAIN
    with pytest.raises(ModelError, match=message):
        read(PLAIN.replace(old, new, 1))


def test_faults_in_rows(read):
    with pytest.raises(ModelError, match=r"line 2: '0\.75x' where 'value:target' is expected"):
        read(ROWS.replace("0.75:1", "0.75x 1:1"))
    with pytest.raises(ModelError, match=r"line 2: a target must be an integer .* found ''"):
        read(ROWS.replace("0.75:1", "0.75:"))
    with pytest.raises(ModelError, match="line 3: a second line for a state of a chain"):
        read("2 3\n0 0.5:0 0.5:1\n0 1:1\n")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"lab": ""}, r"m\.lab: the file has no declaration"),
        ({"lab": "goal\n"}, r"m\.lab: 'goal' where declarations"),
        ({"lab": '1="init"\n0: 1\n'}, r"m\.lab: labels must be numbered from 0"),
        ({"lab": '0="init" 1="init"\n0: 1\n'}, r"m\.lab: labels must be numbered from 0 and differ"),
        ({"lab": '0="init"\n0: 1\n'}, r"m\.lab: line 2: a label that is not declared"),
        ({"lab": '0="init"\n3: 0\n'}, r"m\.lab: line 2: state 3; there are 3"),
        ({"lab": "#DECLARATION\ninit\n#END\n0 inti\n"}, r"m\.lab: line 4: a label that is not declared"),
        ({"lab": "#DECLARATION\ninit\n0 init\n"}, r"m\.lab: '#DECLARATION' without"),
        ({"m_srew": "3 3\n0 1\n1 2\n"}, r"m\.srew: the file has 2 rewards; its head says 3"),
        ({"m_srew": "3 1\n5 1\n"}, r"m\.srew: line 2: state 5; there are 3"),
        ({"m_srew": "3 1\n0 1 2\n"}, r"m\.srew: line 2: this line must be 's reward'"),
        ({"m_srew": "3 1\n0 one\n"}, r"m\.srew: line 2: a reward is 'one'"),
        ({"m_trew": "3 4 2\n0 0 0 1\n"}, r"m\.trew: the file has 1 rewards; its head says 2"),
        ({"m_trew": "3 4 1\n0 0 2 1\n"}, r"m\.trew: line 2: the model has no such transition"),
        ({"m_trew": "3 4 1\n0 2 0 1\n"}, r"m\.trew: line 2: its state has no such choice"),
        ({"m_trew": "3 4 1\n0 0 3 1\n"}, r"m\.trew: line 2: there are 3 states"),
        ({"m_trew": "3 4 2\n0 0 0 1\n0 0 0 2\n"}, r"m\.trew: line 2: .* is told before"),
        ({"m1_srew": '# Reward structure "a"\n' + STATES, "m2_srew": '# Reward structure "a"\n' + STATES},
         r"m2\.srew: a second reward of states with the name 'a'"),
    ],
)  # fmt: skip
def test_faults_of_the_files_beside(read, texts, message):
    with pytest.raises(ModelError, match=message):
        read(**texts)


def test_stale_files_beside_are_not_left_to_be_read(tmp_path):
    (tmp_path / "m7.srew").write_text(STATES)
    with pytest.raises(ModelError, match=r"m7\.srew lies beside and would be read as a part of this model"):
        io.write(small(), tmp_path / "m.tra")
    assert [file.name for file in tmp_path.iterdir()] == ["m7.srew"]


def test_a_negative_zero_and_zero_rewards_survive(tmp_path):
    described = small(
        rewards={"none": io.Reward(), "some": io.Reward(choices=np.array([0.0, 0.0, 1.0, 0.0]))}
    )
    io.write(described, tmp_path / "m.tra")
    assert values(io.read(tmp_path / "m.tra")) == {"none": [0, 0, 0, 0], "some": [0, 0, 1, 0]}
