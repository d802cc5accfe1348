"""Arguments that are counts, wherever they are taken; and what is said of files that are not there."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp import errors
from fastcmdp.errors import MissingFileError
from fastcmdp.policy_names import read_features
from fastcmdp.sweep import Models, Sweep, estimate

SWIM = fc.envs.river_swim()
SHORT = fc.PDANPG(outer=2, inner=2, pilot=0)


@cache
def short_run() -> fc.Result:
    return fc.solve(SWIM, SHORT, optimum=False)


@cache
def queue() -> fc.Simulator:
    return fc.simulators.tandem_queue()


COUNTS: dict[str, Callable[[Any], Any]] = {
    "outer": lambda n: fc.PDANPG(outer=n),
    "inner": lambda n: fc.PDANPGCV(inner=n),
    "pilot": lambda n: fc.PDANPG(pilot=n),
    "rollouts": lambda n: fc.PMDPD(rollouts=n),
    "replicates": lambda n: fc.solve(SWIM, SHORT, replicates=n, optimum=False),
    "trace": lambda n: fc.solve(SWIM, SHORT, trace=n, optimum=False),
    "seed": lambda n: fc.solve(SWIM, SHORT, seed=n, optimum=False),
    "threads": lambda n: fc.resume(short_run(), threads=n),
    "piece": lambda n: fc.resume(short_run(), piece=n),
    "points": lambda n: fc.frontier(SWIM, 0, points=n),
    "trials": lambda n: fc.tune(SWIM, "pd-anpg", samples=2e4, trials=n, replicates=1),
    "width": lambda n: fc.ReluSoftmax(np.eye(SWIM.n_choices), width=n),
    "hidden": lambda n: fc.NeuralSoftmax(np.eye(SWIM.n_states), hidden=(n,)),
    "n_states": lambda n: fc.envs.river_swim(n_states=n),
    "rollouts of a simulator": lambda n: queue().evaluate(fc.LogLinear(), rollouts=n),
    "stream": lambda n: queue().stream(n),
    "buffer": lambda n: fc.simulators.tandem_queue_table(buffer=n),
    "workers": lambda n: estimate(Sweep([Models(generator="garnet")], ["pd-anpg"], samples=1e5), workers=n),
}
SMALL = ("outer", "inner", "rollouts", "points", "width", "hidden", "buffer", "workers", "threads")


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_is_a_whole_number(name: str) -> None:
    """Floats without a fraction are taken, as on the command line; nothing else is, and what is refused is named."""
    take = COUNTS[name]
    take(4.0)
    take(np.float64(4.0))
    take(np.int16(4))
    for wrong in (1.5, -1, -1.0, "4", True, np.nan, np.inf, [4]):
        with pytest.raises(ValueError, match=r" = .*: an integer") as caught:
            take(wrong)
        assert isinstance(caught.value, fc.SettingError | fc.ModelError)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("huge", [1e30, 10**400], ids=["1e30", "10^400"])
def test_a_count_beyond_all_memory_is_refused_by_its_name(name: str, huge: float) -> None:
    with pytest.raises(ValueError, match=r" = (1e\+30|1\.000e\+400): an (integer|even number)") as caught:
        COUNTS[name](huge)
    assert isinstance(caught.value, fc.SettingError | fc.ModelError)


def test_a_float_counts_as_the_same_integer() -> None:
    assert fc.PDANPGCV(outer=1e3, inner=np.float32(8)) == fc.PDANPGCV(outer=1000, inner=8)
    one, other = (fc.solve(SWIM, fc.PDANPG(outer=n, inner=4), replicates=k) for n, k in ((5, 2), (5.0, 2.0)))
    assert (one.theta == other.theta).all()


def test_a_number_in_place_of_an_algorithm_is_taken_for_a_budget() -> None:
    with pytest.raises(fc.SettingError, match=r"samples=1000000.0"):
        fc.solve(SWIM, 1e6)  # type: ignore[arg-type]


def test_a_budget_beyond_all_is_told_in_transitions() -> None:
    for made in (fc.PDANPGCV, fc.PDNAC, fc.PDANPG):
        with pytest.raises(fc.SettingError, match=r"samples = 1e\+30: at most .* transitions"):
            made.for_samples(SWIM, 1e30)


def test_what_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    lost, nowhere = tmp_path / "lost.npz", tmp_path / "no" / "run.npz"
    for read in (lambda path: fc.load_run(path, SWIM), read_features, fc.load):
        with pytest.raises(
            FileNotFoundError, match=r"^.*lost\.npz: there is no such file in .*; check"
        ) as caught:
            read(lost)
        assert "Errno" not in str(caught.value)
        with pytest.raises(FileNotFoundError, match=r"run\.npz: there is no folder .*no; check"):
            read(nowhere)
    for write in (short_run().save, lambda path: fc.save(SWIM, path)):
        with pytest.raises(
            FileNotFoundError, match=r"^.*run\.npz: there is no folder .*no; make it"
        ) as caught:
            write(nowhere)
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, MissingFileError)
    assert str(again) == str(caught.value)


@pytest.mark.filterwarnings("ignore:numbers ceased")
def test_a_run_of_which_all_replicates_fail_is_over_but_not_finished() -> None:
    result = fc.solve(SWIM, fc.PDANPG(outer=20, inner=5, eta=1e308, zeta=1e308, pilot=0), replicates=2)
    assert (result.failed >= 0).all()
    assert not result.finished
    assert not result.interrupted
    assert result.to_dict()["finished"] is False
    assert "2 replicates failed" in result.summary()


def test_memory_for_an_outer_step_names_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fc.solve(SWIM, SHORT, optimum=False)

    def none() -> None:
        raise MemoryError("Unable to allocate 74.5 GiB")

    monkeypatch.setattr(result.run, "work", none)
    with pytest.raises(fc.SettingError, match=r"inner=2, .*74\.5 GiB\); give fewer inner steps"):
        fc.resume(result)


NAMED = [made for made in vars(errors).values() if isinstance(made, type) and issubclass(made, Exception)]


@pytest.mark.parametrize("made", NAMED)
def test_errors_survive_pickling(made: type[Exception]) -> None:
    """Pools of processes send them so, with all that is attached."""
    error = made("file", "reason") if made is MissingFileError else made("reason")
    if isinstance(error, fc.InfeasibleError):
        error.policy, error.weights, error.value, error.alone = np.ones(2), (0.5, 0.5), -1.0, (np.inf,)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is made
    assert (str(again), again.args) == (str(error), error.args)
    assert repr(vars(again)) == repr(vars(error))
