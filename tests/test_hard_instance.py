"""The hard instance: closed forms against the linear programme, over the whole range of its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp import exact
from fastcmdp.envs import hard_instance, hard_optimum

CASES: list[dict[str, Any]] = [
    {},
    {"n_gadgets": 1, "n_actions": 1},
    {"gamma": 0.3, "slater": 0.1},
    {"gamma": 0.99, "slater": 20.0, "debt": 5.0},
    {"depth": 3, "slater": 2.0, "debt": 1.5},
    {"depth": 2, "better": (2, 1)},
    {"better": (4, 0), "gain": 0.95, "debt": 1.0},
    {"gamma": 0.5, "slater": 0.9, "debt": 0.2, "better": (1, 2), "gain": 0.1},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_closed_forms(case: dict[str, Any]) -> None:
    cmdp, known, best = hard_instance(**case), hard_optimum(**case), fc.optimum(hard_instance(**case))
    assert best.reward == pytest.approx(known.reward, rel=1e-8)
    assert best.duals[0] == pytest.approx(known.dual, rel=1e-7)
    assert best.slater == pytest.approx(known.slater, rel=1e-8)
    assert best.constraints[0] == pytest.approx(0.0, abs=1e-8)
    assert 1.0 - best.policy[0] == pytest.approx(known.risk, rel=1e-8)  # choice 0 leads to the safe state
    assert cmdp.signals.min() >= -1.0
    assert cmdp.signals.max() <= 1.0


def test_members_differ_in_one_probability_and_in_the_value_of_one_action() -> None:
    plain, member = hard_instance(depth=2), hard_instance(depth=2, better=(3, 1), gain=0.25)
    different = np.flatnonzero(plain.branch_prob != member.branch_prob)
    assert len(different) == 2  # stay and fall of one choice
    assert len({int(np.searchsorted(plain.choice_to_branch, b, "right")) for b in different}) == 1
    for name in ("reward", "costs", "branch_target", "start"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(member, name))
    debt = min(1.0, 0.9**2 / 0.4)
    for cmdp, gain in ((plain, 0.0), (member, 0.25)):
        policy = np.repeat(1.0 / np.diff(cmdp.state_to_choice), np.diff(cmdp.state_to_choice))
        policy[:5] = [0, 0, 0, 1, 0]
        s = int(cmdp.n_states - 2 - 2)  # s_3
        q = int(cmdp.state_to_choice[s])
        policy[q : q + 3] = [0, 1, 0]
        assert exact.evaluate(cmdp, policy).constraints[0] == pytest.approx(gain - debt, abs=1e-9)


def test_learning_and_specs() -> None:
    cmdp = fc.envs.from_spec("env:hard_instance?n_gadgets=2&gamma=0.8&depth=2")
    assert cmdp.fingerprint() == hard_instance(n_gadgets=2, gamma=0.8, depth=2).fingerprint()
    result = fc.solve(cmdp, samples=1e7, replicates=2)
    assert np.abs(result.last_quarter.gap).max() < 0.03 * result.optimum.reward  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"gamma": 0.2}, "gamma = "),
        ({"slater": 0.0}, "slater must be above 0"),
        ({"slater": 10.0}, "slater = "),
        ({"debt": 3.0}, "debt = "),
        ({"debt": 0.0}, "debt must be above 0"),
        ({"n_gadgets": 0}, "n_gadgets = "),
        ({"depth": 1.5}, "depth = "),
        ({"gain": 0.1}, "needs better"),
        ({"better": 3}, "better must be a pair"),
        ({"better": (5, 0)}, r"better\[0\] = "),
        ({"better": (1, 0), "gain": 5.0}, "gain = "),
    ],
)
def test_bad_settings(wrong: dict[str, Any], says: str) -> None:
    for make in (hard_instance, hard_optimum):
        with pytest.raises(fc.SettingError, match=says):
            make(**wrong)
