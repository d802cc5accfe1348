"""Multipliers: every form against its definition on a whole history, plain Python and njit to the last bit."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest
from numba import njit

import fastcmdp as fc
from fastcmdp import duals

FORMS = {
    "plain": duals.Plain(),
    "ridge": duals.Ridge(0.7),
    "pi": duals.PI(lead=4.0, share=0.3),
    "damped": duals.Damped(damping=0.8, follow=2.0),
    "nu-pi": duals.NuPI(lead=3.0, nu=-0.4),
    "optimistic": duals.Optimistic(),
    "pid": duals.omnisafe(0.5, 0.2, 0.9, smooth=0.6, smooth_cost=0.5, delay=3, limit=2.0),
    "pid, no delay": duals.omnisafe(0.5, 0.2, 0.9, smooth=0.6, smooth_cost=0.5, delay=1, limit=2.0),
    "modified": duals.Modified(),
}
VIOLATIONS = np.random.default_rng(5).normal(0.3, 1.0, 40).tolist()


@njit
def follow(form, memory, violations, rate, pace, cap):
    """Somebody's loop."""
    out = np.empty(len(violations))
    for i in range(len(violations)):
        out[i] = duals.move(form, memory, violations[i], rate, pace, cap)
    return out


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_form_is_its_definition(form: object) -> None:
    for rate, pace, cap in ((0.2, 0.4, math.inf), (0.9, 0.1, 1.0)):
        multiplier = duals.Multiplier(form, rate, cap=cap, pace=pace)
        found = [multiplier.update(e) for e in VIOLATIONS]
        history = [(e, rate, pace) for e in VIOLATIONS]
        want = [naive.multiplier(form, history[: k + 1], cap) for k in range(len(history))]
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-13)
        assert len(set(found)) > 10  # it moved
        assert min(found) >= 0
        if not isinstance(form, duals.Modified):
            assert max(found) <= cap
        memory = np.zeros(duals.width(form))
        compiled = follow(form, memory, np.array(VIOLATIONS), rate, pace, cap)
        np.testing.assert_allclose(compiled, found, rtol=1e-14)  # fused multiply-adds, if any
        np.testing.assert_allclose(memory, multiplier.memory, rtol=1e-14)


def test_forms_are_told_apart() -> None:
    """No two forms make the same multipliers of the same violations."""
    found = []
    for form in FORMS.values():
        multiplier = duals.Multiplier(form, 0.2, pace=0.4)
        found.append([multiplier.update(e) for e in VIOLATIONS])
    for i in range(len(found)):
        for j in range(i):
            assert np.abs(np.array(found[i]) - found[j]).max() > 1e-3


def test_special_cases() -> None:
    """What the docstrings say of one another, away from the clips."""
    rising = [0.5, 0.8, 1.5, 0.2, 0.9]

    def path(form: object) -> list[float]:
        multiplier = duals.Multiplier(form, 0.1)
        return [multiplier.update(e) for e in rising]

    assert path(duals.PI(lead=0.0, share=1.0)) == path(duals.Plain()) == path(duals.Ridge(0.0))
    np.testing.assert_allclose(path(duals.NuPI(lead=1.0, nu=0.0)), path(duals.Optimistic()), rtol=1e-13)
    one, other = path(duals.PI(lead=3.0, share=1.0)), path(duals.NuPI(lead=3.0, nu=0.0))
    # In increments the first e adds no proportional part: a constant apart.
    np.testing.assert_allclose(np.subtract(one, other), 0.1 * 3.0 * rising[0], rtol=1e-12)
    pid = path(duals.omnisafe(kp=0.0, ki=1.0, kd=0.0))
    np.testing.assert_allclose(pid, path(duals.Plain()), rtol=1e-13)


def test_memory_is_all_that_it_remembers() -> None:
    for form in FORMS.values():
        whole, first, second = (duals.Multiplier(form, 0.2, pace=0.4) for _ in range(3))
        want = [whole.update(e) for e in VIOLATIONS]
        for e in VIOLATIONS[:17]:
            first.update(e)
        second.memory[:] = first.memory
        assert [second.update(e) for e in VIOLATIONS[17:]] == want[17:]


def test_a_controller_settles_where_plain_ascent_swings() -> None:
    """A plant whose cost falls by what the multiplier is, after a lag: undamped swings, and none with a proportional
    part."""

    def tail(form: object) -> float:
        multiplier, x, found = duals.Multiplier(form, 0.05), 0.0, []
        for _ in range(600):
            x += 0.05 * (multiplier.value - 2.0)  # the policy gives way in proportion to the multiplier
            multiplier.update(1.0 - x)
            found.append(x)
        return float(np.ptp(found[-200:]))

    assert tail(duals.PI(lead=40.0, share=1.0)) < 1e-3
    assert tail(duals.Plain()) > 0.5


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("form", lambda: duals.Multiplier("plain", 0.1)),
        ("rate", lambda: duals.Multiplier(duals.Plain(), 0.0)),
        ("rate", lambda: duals.Multiplier(duals.Plain(), math.nan)),
        ("pace", lambda: duals.Multiplier(duals.Plain(), 0.1, pace=-1.0)),
        ("cap", lambda: duals.Multiplier(duals.Plain(), 0.1, cap=0.0)),
        ("initial", lambda: duals.Multiplier(duals.Plain(), 0.1, cap=1.0, initial=2.0)),
        ("violation", lambda: duals.Multiplier(duals.Plain(), 0.1).update(math.nan)),
        ("delay", lambda: duals.omnisafe(delay=0)),
        ("smooth", lambda: duals.omnisafe(smooth=1.0)),
        ("kp", lambda: duals.omnisafe(kp=-1.0)),
    ],
)
def test_wrong_values_are_named(name: str, make: object) -> None:
    with pytest.raises(fc.SettingError, match=name):
        make()  # type: ignore[operator]
