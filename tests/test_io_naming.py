"""Which reward, which constraints, which start: names, and what is said where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from io_cases import small

import fastcmdp as fc
from fastcmdp import io
from fastcmdp.errors import ModelError
from fastcmdp.io.description import Problem
from fastcmdp.io.naming import parse_constraints


def bare(**changes):
    """The small description without a problem of its own."""
    return small(problem=Problem(), **changes)


def test_rewards_constraints_and_visits():
    cmdp = io.build(
        bare(), reward="-time", constraints=["toll <= 1.5", "label:goal >= 0.3", "energy used<=2"], gamma=0.9
    )
    assert cmdp.names == ("-time", "toll", "label:goal", "energy used")
    assert cmdp.reward.tolist() == [-1, -1, -1, 0]
    assert cmdp.costs.T.tolist() == [[1, 0, 0.25, 0], [0, 0, 0, 1], [0.1, 2, 0.5, 0]]
    assert cmdp.limits.tolist() == [1.5, 0.3, 2]
    assert cmdp.sense == ("<=", ">=", "<=")
    assert cmdp.start.tolist() == [1, 0, 0]


def test_visits_are_counted_by_hand():
    # From state 1 the goal is entered at once with 1/3, then stayed in: sum of 0.9^t from t = 1 on.
    described = small(
        state_to_choice=np.array([0, 1, 2]), choice_to_branch=np.array([0, 2, 3]), branch_target=np.array([0, 1, 1]),
        branch_prob=np.array([0.5, 0.5, 1.0]), rewards={}, labels={"goal": np.array([1])}, actions=None,
        action_names=(), start=np.array([1.0, 0.0]), problem=Problem(),
    )  # fmt: skip
    cmdp = io.build(described, reward="label:goal", gamma=0.9)
    value = fc.evaluate(cmdp, [1.0, 1.0]).reward
    assert value == pytest.approx(10 - 1 / (1 - 0.9 * 0.5))


def test_a_signal_may_come_more_than_once():
    cmdp = io.build(bare(), reward="toll", constraints=["toll <= 2", "toll >= 1"], gamma=0.9)
    assert cmdp.names == ("toll", "toll #2", "toll #3")


def test_descriptions_are_read_only():
    described = bare()
    reward = described.rewards["toll"]
    for array in (
        described.branch_prob,
        described.start,
        described.labels["goal"],
        reward.states,
        reward.choices,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(TypeError):
        described.rewards["more"] = reward


def test_a_reward_whose_name_begins_with_a_minus():
    rewards = {
        "-time": io.Reward(states=np.array([1.0, 2, 3])),
        "time": io.Reward(states=np.array([5.0, 5, 5])),
    }
    assert io.build(bare(rewards=rewards), reward="-time", gamma=0.9).reward.tolist() == [1, 1, 2, 3]
    assert io.build(bare(rewards=rewards), reward="--time", gamma=0.9).reward.tolist() == [-1, -1, -2, -3]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("toll <= 0.25", ("toll", "<=", 0.25)),
        ("  energy used>=-1e-3 ", ("energy used", ">=", -0.001)),
        ("label:on the way ≤ 7", ("label:on the way", "<=", 7.0)),
        ("toll≥1", ("toll", ">=", 1.0)),
    ],
)
def test_constraints_are_read(line, expected):
    assert parse_constraints(line) == [expected]
    assert parse_constraints([line, line]) == [expected, expected]


@pytest.mark.parametrize(
    "line", ["toll", "<= 3", "toll <=", "toll < 3", "toll = 3", "toll == 3", "toll <= x", "toll <= nan", "toll <= inf",
             "toll <= 3 4", "toll =< 3", "", 3]
)  # fmt: skip
def test_constraints_that_cannot_be_read(line):
    with pytest.raises(ModelError, match=r"constraint .*: 'NAME <= NUMBER' or 'NAME >= NUMBER' is expected"):
        parse_constraints([line])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no discount factor: give gamma"),
        ({"gamma": 0.9}, "3 rewards: say which is maximised, reward= one of 'time', 'energy used', 'toll'"),
        ({"gamma": 0.9, "reward": "tim"}, "unknown reward: 'tim'; did you mean 'time'"),
        ({"gamma": 0.9, "reward": "-tol"}, "unknown reward: 'tol'; did you mean 'toll'"),
        ({"gamma": 0.9, "reward": "goal"}, "'goal' is a label, not a reward; 'label:goal' counts visits"),
        ({"gamma": 0.9, "reward": "label:gaol"}, "unknown label: 'gaol'; did you mean 'goal'"),
        (
            {"gamma": 0.9, "reward": "time", "constraints": "tolls <= 1"},
            "unknown reward: 'tolls'; did you mean",
        ),
        ({"gamma": 1.5, "reward": "time"}, "gamma"),
        ({"gamma": 0.9, "reward": "time", "start": "gaol"}, "unknown start: 'gaol'; did you mean 'goal'"),
        ({"gamma": 0.9, "reward": "time", "start": 3}, "start is state 3; there are 3, numbered from 0"),
        ({"gamma": 0.9, "reward": "time", "start": "-1"}, "unknown start: '-1'"),
        ({"gamma": 0.9, "reward": "time", "start": [0.5, 0.2, 0.2]}, "start probabilities sum to 0.9"),
    ],
)
def test_what_is_missing_or_unknown_is_told(options, message):
    with pytest.raises(ModelError, match=message):
        io.build(bare(), **options)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, [1, 0, 0]),
        (1, [0, 1, 0]),
        (np.int64(1), [0, 1, 0]),
        ("2", [0, 0, 1]),
        ("goal", [0, 0, 1]),
        ("label:goal", [0, 0, 1]),
        ("on the way", [0.5, 0.5, 0]),
        ("uniform", [1 / 3, 1 / 3, 1 / 3]),
        ([0.25, 0.25, 0.5], [0.25, 0.25, 0.5]),
    ],
)
def test_starts(start, expected):
    assert io.build(bare(), reward="time", gamma=0.9, start=start).start.tolist() == expected


def test_no_initial_state():
    with pytest.raises(ModelError, match="no initial state: give start, a state's number, a label"):
        io.build(bare(start=None), reward="time", gamma=0.9)
    with pytest.raises(ModelError, match="no state has the label 'empty'"):
        io.build(
            bare(labels={"empty": np.array([], dtype=np.int64)}), reward="time", gamma=0.9, start="empty"
        )


def test_a_file_says_which_it_is(tmp_path):
    io.write(bare(), tmp_path / "m.umb")
    with pytest.raises(ModelError, match=r"m\.umb: unknown reward: 'tim'"):
        fc.load(tmp_path / "m.umb", reward="tim", gamma=0.9)


def test_the_start_kept_as_a_reward_is_no_reward(tmp_path):
    io.write(bare(start=np.array([0.25, 0.0, 0.75])), tmp_path / "m.drn")
    found = io.read(tmp_path / "m.drn")
    assert "fastcmdp_start" not in found.rewards
    assert found.start.tolist() == [0.25, 0, 0.75]
    assert "fastcmdp_start" in (tmp_path / "m.drn").read_text()


def test_a_problem_is_put_into_a_description():
    described = io.with_problem(bare(), reward="-time", constraints="toll <= 2", gamma=0.5, start="goal")
    assert described.problem == Problem(0.5, "-time", (io.Constraint("toll", "<=", 2.0),))
    assert io.build(described).names == ("-time", "toll")
    for options, message in (
        ({"reward": "tim"}, "did you mean 'time'"),
        ({"constraints": "tol <= 1"}, "did you mean 'toll'"),
        ({"gamma": 2.0}, "gamma is 2.0"),
        ({"start": "gaol"}, "did you mean 'goal'"),
    ):
        with pytest.raises(ModelError, match=message):
            io.with_problem(bare(), **options)


def test_a_summary_tells_what_to_type():
    told = io.summary(small())
    assert told["rewards"]["energy used"] == {"least": 0.0, "greatest": 2.0, "on": ["choices"]}
    assert told["rewards"]["toll"]["on"] == ["states", "choices"]
    assert told["labels"] == {"goal": 1, "on the way": 2}
    assert told["constraints"] == ["toll <= 1.5", "label:goal >= 0.3"]
    text = io.text_summary(small(start=None, notes=("something",)))
    for words in ("3 states, 4 choices (1 to 2 a state), 7 branches", "energy used: 0 to 2, on choices", "goal: 1",
                  "start: none; give one", "note: something", "maximise -time, toll <= 1.5"):  # fmt: skip
        assert words in text
