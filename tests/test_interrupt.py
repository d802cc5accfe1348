"""Ctrl-C within one long outer step: the step is undone at once, and a run that goes on has the same bits."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import fastcmdp as fc
from fastcmdp.algorithms.base import Algorithm
from fastcmdp.kernels.stop import LEAVE
from fastcmdp.policies import Policy
from fastcmdp.runs.loop import Crew, Stopped, advance_all
from fastcmdp.solve import default_policy, start

LIMIT = 60.0  # seconds; each of these outer steps takes hours
SWIM = fc.envs.river_swim()
FEATURES = np.random.default_rng(3).normal(size=(SWIM.n_choices, 3))


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """Ctrl-C raises, also where the shell has it ignored, as in the background."""
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, ours)


def press(*after: float) -> None:
    """Ctrl-C so many seconds from now."""
    for seconds in after:
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()


def press_at_work(patch: pytest.MonkeyPatch, call: int, *after: float) -> None:
    """Ctrl-C so many seconds after a thread of the crew takes up its ``call``-th piece, however long that took."""
    advance, calls = Crew._advance, count(1)

    def heard(self: Crew, r: int, n_steps: int) -> None:
        if next(calls) == call:
            press(*after)
        advance(self, r, n_steps)

    patch.setattr(Crew, "_advance", heard)


def patient(gamma: float) -> fc.CMDP:
    return fc.envs.river_swim(gamma=gamma, limit=0.5 / (1 - gamma))


CASES: dict[str, Callable[[], tuple[Any, Algorithm, Policy | None]]] = {
    "one rollout": lambda: (patient(1 - 1e-12), fc.PDANPG(outer=2, inner=1, pilot=0), None),
    "a rollout with a critic": lambda: (patient(1 - 1e-12), fc.PDANPGCV(outer=2, inner=1), None),
    "many rollouts": lambda: (patient(0.9999), fc.PDANPG(outer=2, inner=10**6, pilot=0), None),
    "rows made where a draw needs them": lambda: (
        patient(1 - 1e-12), fc.PDANPG(outer=2, inner=1, pilot=0), fc.LogLinear(sp.csr_array(FEATURES)),
    ),
    "rollouts from every choice": lambda: (patient(1 - 1e-12), fc.NPGPDSoftmax(outer=2), None),
    "truncated rollouts": lambda: (patient(1 - 1e-10), fc.PMDPD(outer=2), None),
    "temporal differences": lambda: (SWIM, fc.CRPO(outer=2, inner=2**39), None),
    "a simulator's rollout": lambda: (
        fc.simulators.marketing(gamma=1 - 1e-11), fc.PDANPG(outer=2, inner=1, pilot=0), None,
    ),
    "a simulator's chain": lambda: (fc.simulators.marketing(), fc.CRPO(outer=2, inner=2**39), None),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:one outer step", "ignore:interrupted")
@pytest.mark.parametrize("name", CASES)
def test_a_long_outer_step_is_undone_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, settings, policy = CASES[name]()
    ordinary = SWIM if isinstance(model, fc.CMDP) else fc.simulators.marketing()
    fc.solve(ordinary, settings.shortest(), policy=policy)  # compiled before the clock runs
    fresh = start(model, settings, policy or default_policy(model), 5, 2, 1, False)
    press_at_work(monkeypatch, 2, 0.5)  # late enough for a busy machine to have begun the step
    began = time.monotonic()
    result = fc.solve(model, settings, policy=policy, seed=5, replicates=2, trace=1, optimum=False, threads=2)
    assert time.monotonic() - began < LIMIT
    assert not result.finished
    assert result.run.world.tables.stop[0] == LEAVE
    for name, was, now in zip(fresh.run.state._fields, fresh.run.state, result.run.state, strict=True):
        np.testing.assert_array_equal(now, was, err_msg=name)


@pytest.mark.filterwarnings("ignore:one outer step", "ignore:interrupted")
def test_a_run_goes_on_from_an_undone_step_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["fastcmdp.runs.loop"], "_GRACE", 0.0)
    settings = fc.PDANPG(outer=4, inner=200_000, pilot=1)
    options: dict[str, Any] = {
        "policy": fc.LogLinear(FEATURES),
        "seed": 3,
        "replicates": 2,
        "threads": 2,
        "trace": 2,
    }
    whole = fc.solve(SWIM, settings, **options)
    # Pieces 1 and 2 are the first step of both replicates.
    press_at_work(monkeypatch, 3, 0.1 * whole.trace.seconds)
    result = fc.solve(SWIM, settings, **options)
    monkeypatch.undo()
    assert not result.finished
    assert (result.run.state.outer < settings.outer).all()
    while not result.finished:
        result = fc.resume(result)
    for name, was, now in zip(whole.run.state._fields, whole.run.state, result.run.state, strict=True):
        np.testing.assert_array_equal(now, was, err_msg=name)
    np.testing.assert_array_equal(result.trace.reward, whole.trace.reward)


def test_a_second_ctrl_c_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the thread is deaf to the word; then the interrupt reaches the caller."""
    done = threading.Event()

    def deaf(self: Any, r: int, n_steps: int, work: Any) -> None:
        press(0.3, 0.9)
        done.wait(LIMIT)

    monkeypatch.setattr("fastcmdp.algorithms.primal_dual.PrimalDualRun.advance", deaf)
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            fc.solve(SWIM, fc.PDANPG(outer=2, inner=1))
        assert time.monotonic() - began < LIMIT / 2
    finally:
        done.set()


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        (
            patient(1 - 1e-9),
            {"inner": 10**3, "pilot": 0},
            r"^one outer step of pd-anpg draws 3e\+12 transitions",
        ),
        (
            patient(0.99),
            {"inner": 1, "pilot": 10**12},
            r"^the pilot of pd-anpg draws 3\.96e\+14 .* about 91\.7 days",
        ),
    ],
)
def test_what_takes_long_is_told_beforehand_and_stopped(
    model: fc.CMDP, settings: dict[str, int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    press_at_work(monkeypatch, 1, 0.3)
    began = time.monotonic()
    with pytest.warns(RuntimeWarning, match=said):
        result = fc.solve(model, fc.PDANPG(outer=2, **settings), optimum=False, progress=lambda _: None)
    assert time.monotonic() - began < LIMIT
    assert not result.finished


@pytest.mark.filterwarnings("ignore:one outer step")
def test_a_word_to_stop_reaches_into_a_long_outer_step() -> None:
    """What a sweep's session does with its runs at Ctrl-C: the step is undone, and the caller is told."""
    fc.solve(SWIM, fc.CRPO.shortest())  # compiled before the clock runs
    fresh, result = (
        start(SWIM, fc.CRPO(outer=2, inner=2**39), fc.TabularSoftmax(), 5, 2, 1, False) for _ in range(2)
    )
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    began = time.monotonic()
    with Crew(result.run, 2) as crew, pytest.raises(Stopped):
        advance_all(crew, 2, stop)
    assert time.monotonic() - began < LIMIT
    for name, was, now in zip(fresh.run.state._fields, fresh.run.state, result.run.state, strict=True):
        np.testing.assert_array_equal(now, was, err_msg=name)
