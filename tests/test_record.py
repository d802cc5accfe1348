"""The record of a run: which policies are the output, exactly where all are recorded, within a bound where not."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.algorithms.base import Output
from fastcmdp.algorithms.variants import variant
from fastcmdp.budget import LEAST_WINDOWS, default_windows
from fastcmdp.exact.sweeps import Chain
from fastcmdp.npz import read_arrays, write_arrays
from fastcmdp.runs.loop import Crew, Stopped, advance_all
from fastcmdp.runs.record import even_points, gap_weights, new_record
from fastcmdp.solve import start
from fastcmdp.worlds import TableWorld

MODEL = fc.envs.garnet(n_states=5, n_actions=3, gamma=0.8, seed=3)
BEST = fc.optimum(MODEL)
LAST = {
    "pdr-anpg",
    "rpg-pd",
    "opg-pd",
    "reload",
    "pi-pd",
    "al-pqa",
    "c-pg",
    "lb-sgd",
}  # whose output is the last iterate alone
AFTER = {"pmd-pd", "arnpg-epd"} | LAST
SOME = {"crpo", "crpo-softmax"}
each = pytest.mark.parametrize("name", list(ALGORITHMS))


def short(name, outer):
    settings = ALGORITHMS[name].for_samples(MODEL, 2e5)
    return dataclasses.replace(settings, outer=outer)


def truth(settings, seed=0, replicates=2, policy=None):
    """J of pi_0..pi_K, float64[R, K+1, 1+m], and which steps count, bool[R, K]: step by step, by another way."""
    policy = policy or fc.TabularSoftmax()
    problem = TableWorld.of(MODEL, policy, BEST)
    run = settings.run(problem, seed, replicates)
    values = np.empty((replicates, settings.outer + 1, 1 + MODEL.n_constraints))
    counts = np.empty((replicates, settings.outer), bool)
    work = run.work()
    for r in range(replicates):
        run.advance(r, int(-run.state.outer[r]), work)  # a pilot
        for k in range(settings.outer + 1):
            value = fc.evaluate(MODEL, run.policies()[r])
            values[r, k] = value.reward, *value.constraints
            if k < settings.outer:
                kept = run.kept()[r]
                run.advance(r, 1, work)
                counts[r, k] = run.kept()[r] > kept
    return values, counts


def output(name, values, counts, begin=0):
    """The mean over the output: written out from the tables of the methods."""
    made = []
    for of, steps in zip(values, counts, strict=True):
        chosen = [k + (name in AFTER) for k in range(begin, len(steps)) if steps[k]]
        assert chosen, "the test needs steps in the output"
        if name in LAST and begin == 0:
            chosen = chosen[-1:]
        made.append(np.mean([of[k] for k in chosen], axis=0))
    return np.array(made)


def joined(averages):
    return np.concatenate([averages.reward[:, None], averages.constraints], axis=1)


@each
def test_the_output_is_exact_where_every_step_is_recorded(name):
    settings = short(name, 40)
    values, counts = truth(settings)
    result = fc.solve(MODEL, settings, replicates=2, optimum=BEST)
    assert result.trace.outer.tolist() == list(range(41))
    np.testing.assert_allclose(joined(result.mixture), output(name, values, counts), rtol=1e-9)
    assert (result.mixture.within == 0).all()
    if counts[:, 30:].any(axis=1).all():
        np.testing.assert_allclose(joined(result.last_quarter), output(name, values, counts, 30), rtol=1e-9)
    # The rule of old, trapezoids over all recorded steps, is another number.
    middles = (values[:, 1:] + values[:, :-1]) / 2
    old = np.stack([m[c].mean(axis=0) for m, c in zip(middles, counts, strict=True)])
    assert np.abs(old - output(name, values, counts)).max() > 1e-6


@each
@pytest.mark.parametrize("windows", [3, 10])
def test_of_a_coarse_record_only_members_enter(name, windows):
    """Joined by numpy's interp over their places in the output."""
    settings = short(name, 120)
    values, counts = truth(settings)
    result = fc.solve(MODEL, settings, replicates=2, optimum=BEST, trace=windows)
    assert (result.mixture.within > 0).all() == (name not in LAST)
    if name in LAST:
        np.testing.assert_allclose(joined(result.mixture), values[:, -1], rtol=1e-9)
    for r in range(2 * (name not in LAST)):
        chosen = [k + (name in AFTER) for k in range(120) if counts[r, k]]
        known = [place for place, k in enumerate(chosen) if k in result.trace.outer]
        at = np.arange(len(chosen))
        curves = [np.interp(at, known, values[r, np.array(chosen)[known], i]) for i in range(2)]
        np.testing.assert_allclose(joined(result.mixture)[r], np.mean(curves, axis=1), rtol=1e-9)
    recorded = result.trace.outer
    member = np.zeros((2, len(recorded)), bool)
    for i, k in enumerate(recorded):
        step = k - (name in AFTER)
        if 0 <= step < 120:
            member[:, i] = counts[:, step]
    np.testing.assert_array_equal(result.trace.member == 1, member)
    if name in SOME:
        assert not member[:, :-1].all()
        assert member.any(axis=1).all()


@each
@pytest.mark.parametrize("windows", [4, 200])
def test_the_policy_has_the_value_of_the_output(name, windows):
    result = fc.solve(MODEL, short(name, 60), replicates=2, optimum=BEST, trace=windows, seed=2)
    for kind, averages in (("mixture", result.mixture), ("last_quarter", result.last_quarter)):
        for r in range(2):
            value = fc.evaluate(MODEL, result.policy(kind, r))
            assert value.reward == pytest.approx(averages.reward[r], rel=1e-9)
            assert value.constraints == pytest.approx(averages.constraints[r], rel=1e-9)


@each
def test_the_policy_of_an_interrupted_run_has_the_value_that_is_shown(name, tmp_path):
    """Wherever it stops, and after it was saved and read; the summary tells up to where its averages go."""
    path = tmp_path / "run.npz"
    for stop_at in (7, 23, 41):
        result = fc.solve(
            MODEL,
            short(name, 60),
            replicates=2,
            optimum=BEST,
            trace=15,
            seed=2,
            piece=1,
            progress=at(stop_at),
        )
        assert not result.finished
        result.save(path)
        for given in (result, fc.load_run(path, MODEL, optimum=BEST)):
            for kind, averages in (("mixture", given.mixture), ("last_quarter", given.last_quarter)):
                for r in range(2):
                    value = fc.evaluate(MODEL, given.policy(kind, r))
                    assert value.reward == pytest.approx(averages.reward[r], rel=1e-9)
                    assert value.constraints == pytest.approx(averages.constraints[r], rel=1e-9)
        recorded = int(result.trace.outer[result.trace.done - 1])
        assert recorded < stop_at
        head = result.summary().splitlines()[1]
        assert f"at outer step {stop_at} of 60 (averages up to step {recorded}" in head
        told = result.to_dict()
        assert (told["outer"], told["recorded"]) == (stop_at, recorded)


def at(stop_at):
    """Ctrl-C once every replicate has made so many outer steps."""

    def stop(progress):
        if progress.outer >= stop_at:
            raise KeyboardInterrupt

    return stop


def test_places_between_members_are_interpolated():
    """The sum over places by numpy's interp, cut at any place."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        places = np.sort(rng.choice(40, rng.integers(1, 12), replace=False))
        values, low, n = rng.random(len(places)), int(rng.integers(0, 40)), 45
        curve = np.interp(np.arange(n), places, values)
        total, q, here = 0.0, -1, 0.0
        for place, value in zip(places, values, strict=True):
            left, right = gap_weights(np.array([q]), np.array([place]), np.array([low]))
            total, q, here = total + left[0] * here + right[0] * value, place, value
        total += max(n - max(q + 1, low), 0) * here
        assert total == pytest.approx(curve[low:].sum(), abs=1e-12)


@pytest.mark.parametrize("name", ["pd-anpg", "pmd-pd", "crpo-softmax"])
def test_the_bound_holds_where_values_move_one_way_between_points(name):
    """Random curves that turn at recorded members only; replicate 1 has steps that do not count, recorded or not."""
    rng = np.random.default_rng(1)
    for _ in range(40):
        n, m = 40, MODEL.n_constraints
        points = np.unique(np.append(rng.choice(n, 6), [0, n]))
        counts = np.ones((2, n), bool)
        after = name in AFTER
        if name in SOME:
            counts[1] = rng.random(n) < 0.6
            counts[1, points[2]] = True
        steps = rng.exponential(size=(2, n, 1 + m)) ** 3
        for r in range(2):
            turns = [k for k in points if k in (0, n) or counts[r, k - after]]
            for begin, end in itertools.pairwise(turns):
                steps[r, begin:end] *= rng.choice([-1.0, 1.0], 1 + m)
        values = np.concatenate([np.zeros((2, 1, 1 + m)), np.cumsum(steps, axis=1)], axis=1)
        record = new_record(ALGORITHMS[name](), MODEL, points, 2, exact=True, occupancies=False)
        record.values[:] = values[:, points]
        total = np.concatenate([np.zeros((2, 1), int), np.cumsum(counts, axis=1)], axis=1)
        record.kept[:], record.sums[:] = total[:, points], 0.0
        at = points - after
        record.member[:] = np.where((at >= 0) & (at < n), counts[:, np.clip(at, 0, n - 1)], 0)
        record.done = len(points)
        for last in (1.0, 0.5, 0.25):
            begin = points[record.begin(len(points) - 1, last)]
            if not counts[:, begin:].any(axis=1).all():
                continue
            found, within = record.mean(last)
            expected = output(name, values, counts, begin)
            assert (np.abs(found - expected) <= within + 1e-9).all()


@pytest.mark.parametrize("name", ["pd-anpg", "pmd-pd"])
def test_running_means_end_where_the_averages_are(name):
    settings = short(name, 50)
    values, counts = truth(settings)
    result = fc.solve(MODEL, settings, replicates=2, optimum=BEST)
    found, _ = result.trace.means()
    for i in (1, 7, 50):
        np.testing.assert_allclose(found[:, i], output(name, values[:, : i + 1], counts[:, :i]), rtol=1e-9)
    np.testing.assert_array_equal(found[:, 0], values[:, 0])


@dataclasses.dataclass(frozen=True)
class Suffix(fc.PDANPG):
    """A method whose output is the last half."""

    output = Output(last=0.5)


@dataclasses.dataclass(frozen=True)
class Last(fc.PDANPG):
    """A method whose output is its last policy."""

    output = Output(last=0.0)


def test_suffixes_and_last_iterates_are_outputs_too():
    settings = Suffix(outer=40, inner=8, pilot=5)
    values, counts = truth(settings)
    result = fc.solve(MODEL, settings, replicates=2, optimum=BEST)
    np.testing.assert_allclose(joined(result.mixture), output("", values, counts, 20), rtol=1e-9)
    value = fc.evaluate(MODEL, result.policy("mixture", 1))
    assert value.reward == pytest.approx(result.mixture.reward[1], rel=1e-9)
    result = fc.solve(MODEL, Last(outer=40, inner=8, pilot=5), replicates=2, optimum=BEST, trace=7)
    np.testing.assert_allclose(joined(result.mixture), values[:, 40], rtol=1e-9)
    assert fc.evaluate(MODEL, result.policy("mixture", 1)).reward == pytest.approx(values[1, 40, 0], rel=1e-9)
    np.testing.assert_allclose(result.trace.means(0.0)[0][:, -1], values[:, 40], rtol=1e-9)


def test_a_last_quarter_without_a_step_in_n0_says_so():
    """Once the limit is missed for good, no later step counts."""
    result = fc.solve(MODEL, short("crpo-softmax", 40), replicates=2, optimum=BEST)
    kept = result.trace.kept.copy()
    result.trace.kept[1] = np.minimum(kept[1], kept[1, 30])
    result.trace.member[1, 30:] = 0
    note = [text for text in result.notes() if "last quarter" in text and "tolerance" in text]
    assert len(note) == 1
    assert "[1]" in note[0]
    slack = MODEL.slack(result.trace.values[1]).min(axis=1)
    best = result.trace.values[1, int(slack.argmax())]
    np.testing.assert_allclose(joined(result.last_quarter)[1], best)


# The loop.


def test_short_windows_do_not_run_the_piece_over():
    result = fc.solve(MODEL, fc.PDANPG(outer=3000, inner=1, pilot=0), trace=1500, optimum=BEST)
    assert result.finished


def test_a_trace_above_the_outer_steps_has_a_point_a_step():
    assert even_points(5, 10**9).tolist() == [0, 1, 2, 3, 4, 5]
    result = fc.solve(MODEL, fc.PDANPG(outer=5, inner=2), trace=2**40, optimum=BEST)
    assert result.trace.outer.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("n_outer", "windows"), [(1, 1), (7, 3), (1000, 200), (10**6, 1), (10**6, 13)])
def test_points_are_even_and_early(n_outer, windows):
    points = even_points(n_outer, windows)
    assert points[0] == 0
    assert points[-1] == n_outer
    assert (np.diff(points) > 0).all()
    ends = np.round(np.linspace(0, n_outer, windows + 1))
    assert set(ends) <= set(points.tolist())
    assert {2**j for j in range(30) if 2**j <= ends[1]} <= set(points.tolist())


def test_a_run_can_be_told_to_stop():
    import threading

    problem = TableWorld.of(MODEL, fc.TabularSoftmax(), BEST)
    run = fc.PDANPG(outer=100, inner=5, pilot=0).run(problem, 0, 2)
    stop, told = threading.Event(), []
    with Crew(run, 1, piece=10) as crew:
        with pytest.raises(Stopped):
            advance_all(crew, 100, stop, lambda: (told.append(run.state.outer.tolist()), stop.set()))
        assert told == [[10, 10]]
        advance_all(crew, 100)
    assert run.state.outer.tolist() == [100, 100]


@pytest.mark.parametrize("after", range(1, 9))
def test_an_interrupted_record_goes_on_as_if_it_had_not_been(after, tmp_path):
    """Also between a recorded point and the step that decides whether it belongs to N_0."""
    settings = short("crpo-softmax", 40)
    whole = fc.solve(MODEL, settings, replicates=2, optimum=BEST, trace=4)
    calls = []

    def stop(_):
        calls.append(0)
        if len(calls) == after:
            raise KeyboardInterrupt

    path = tmp_path / "run.npz"
    half = fc.solve(
        MODEL, settings, replicates=2, optimum=BEST, trace=4, piece=3, progress=stop, checkpoint=path
    )
    assert not half.finished
    rest = fc.resume(fc.load_run(path, MODEL, optimum=BEST))
    for name in ("values", "kept", "member", "sums", "occupancies", "quarters", "outer"):
        np.testing.assert_array_equal(getattr(rest.trace, name), getattr(whole.trace, name), err_msg=name)


def test_memory_for_the_record_is_told_by_its_name(monkeypatch):
    def none(*args, **kwargs):
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr(__import__("sys").modules["fastcmdp.solve"], "new_record", none)
    with pytest.raises(fc.SettingError, match=r"record of trace = 1000000 windows.*smaller trace") as caught:
        fc.solve(MODEL, fc.PDANPG(outer=10**6), trace=10**6, optimum=BEST)
    assert "policy" not in str(caught.value)


def test_memory_for_a_run_names_its_settings(monkeypatch):
    def run(self, problem, seed, replicates):
        raise MemoryError("Unable to allocate 59.6 GiB")

    monkeypatch.setattr(fc.PDANPG, "run", run)
    with pytest.raises(fc.SettingError, match=r"pilot=123456"):
        fc.solve(MODEL, fc.PDANPG(outer=2, pilot=123456), optimum=BEST)


def test_evaluations_take_a_fifth_at_most_by_default():
    """By counts, not by the clock: 400 states for a second or so."""
    cmdp = fc.envs.garnet(n_states=400, n_actions=4, gamma=0.95, seed=1)
    settings = fc.PDANPG(outer=100, inner=40)
    few, many = (default_windows(cmdp, dataclasses.replace(settings, outer=k)) for k in (100, 10**7))
    assert (few, many) == (99, 200)
    result = fc.solve(cmdp, settings, replicates=1, threads=1)
    assert len(result.trace.outer) == len(even_points(100, few))
    assert result.trace.evaluating > 0
    told = result.to_dict()
    assert told["evaluating"] == result.trace.evaluating
    assert "s of evaluations" in result.summary()


def test_exact_answers_of_large_models_come_where_they_are_a_fifth_of_the_run():
    """24,000 choices; runs are set up, not moved."""
    cmdp = fc.envs.garnet(n_states=6_000, gamma=0.95, seed=1)
    short, long = (
        start(cmdp, fc.PDANPG(outer=outer, inner=1_000), fc.TabularSoftmax(), 0, 1, None)
        for outer in (10, 10_000)
    )
    assert short.optimum is None
    assert not short.trace.exact
    assert long.optimum.gap < 1e-6
    assert long.trace.exact
    assert len(long.trace.outer) < 200  # evaluations take a fifth at most, too
    few = default_windows(cmdp, fc.PDANPG(outer=10, inner=1_000))
    assert few == LEAST_WINDOWS


def test_an_occupancy_begins_at_the_last_one():
    """As exact, in fewer sweeps."""
    cmdp = fc.envs.garnet(n_states=600, gamma=0.95, seed=1)
    rng = np.random.default_rng(0)
    logits = rng.normal(size=cmdp.n_choices)
    before, now = (
        naive_softmax(cmdp, logits + shift) for shift in (0.0, 1e-4 * rng.normal(size=logits.size))
    )
    counts = []
    for begin in (None, fc.exact.occupancy(cmdp, before)):
        sweeps, step = [], Chain.step
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Chain, "step", lambda *given: sweeps.append(1) or step(*given))  # noqa: B023
            found = fc.exact.occupancy(cmdp, now, start=begin)
        counts.append(len(sweeps))
        assert np.abs(found - fc.exact.occupancy(cmdp, now, method="direct")).sum() < 1e-12
    assert counts[1] < 0.8 * counts[0]


def naive_softmax(cmdp, logits):
    weights = np.exp(logits)
    return weights / np.add.reduceat(weights, cmdp.state_to_choice[:-1])[cmdp.choice_state]


def test_the_summary_tells_how_far_off_a_coarse_record_can_be():
    coarse = fc.solve(MODEL, short("pd-anpg", 400), replicates=2, optimum=BEST, trace=5)
    (line,) = [text for text in coarse.summary().splitlines() if "evaluated exactly" in text]
    assert f"gap within {coarse.mixture.within[:, 0].mean():.2g}" in line
    assert f"reward {coarse.averages(source='estimate').reward.mean():.6g}" in line
    assert coarse.to_dict()["within"]["gap"] == pytest.approx(coarse.mixture.within[:, 0].mean())
    whole = fc.solve(MODEL, short("pd-anpg", 40), replicates=2, optimum=BEST)
    assert "evaluated exactly" not in whole.summary()


# Files.


def test_runs_of_an_earlier_format_say_what_is_wrong(tmp_path):
    path = tmp_path / "run.npz"
    fc.solve(MODEL, fc.PDANPG(outer=5, inner=2), optimum=BEST).save(path)
    arrays = read_arrays(path)
    head = json.loads(arrays["header"].tobytes())

    def change(**changes):
        new = np.frombuffer(json.dumps(head | changes).encode(), np.uint8)
        write_arrays(path, arrays | {"header": new})

    change(format=2)
    with pytest.raises(fc.ModelError, match=r"format 2.*lacks.*format 4.*'inner': 2.*seed 0"):
        fc.load_run(path, MODEL)
    change(version=99)
    with pytest.raises(fc.ModelError, match=r"version 99 of pd-anpg"):
        fc.load_run(path, MODEL, optimum=BEST)
    change()
    assert fc.load_run(path, MODEL, optimum=BEST).finished


# What is told.


def test_a_limit_that_is_met_to_the_bit_has_no_negative_zero():
    model = fc.CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], [[[1.0, 1.0]]], gamma=0.5, limits=2.0)
    result = fc.solve(model, fc.PDANPG(outer=3, inner=2))
    assert str(float(result.violation[0, 0])) == "0.0"
    assert "-0.0" not in json.dumps(result.to_dict()["violation"])
    assert "-0" not in result.summary().replace("-0.", "").split("violation")[1].split("\n")[0]


def test_when_all_replicates_fail_nothing_is_a_mean_of_nothing():
    with pytest.warns(RuntimeWarning, match="ceased to be finite") as caught:
        result = fc.solve(MODEL, fc.PDANPG(outer=50, inner=5, xi=1e300), replicates=2, optimum=BEST)
    assert len(caught) == 1
    assert "All replicates failed" in result.summary()  # other warnings are errors here
    json.dumps(result.to_dict(), allow_nan=False)


def test_a_missed_limit_and_a_multiplier_on_its_way_are_told():
    result = fc.solve(MODEL, fc.PDANPG(outer=400, inner=20, zeta=1e-4), replicates=2, optimum=BEST)
    assert (result.violation / np.ptp(BEST.constraint_range) > 0.01).all()
    notes = "\n".join(result.notes())
    assert "misses its limit <= " in notes
    assert "% of its range" in notes
    assert "still climbs" in notes
    assert (
        "What helped where pd-anpg or others of its kind missed a limit: npg-pd-softmax or crpo-softmax"
        in notes
    )
    assert notes in result.summary()
    assert result.to_dict()["notes"] == result.notes()


def test_a_limit_out_of_reach_is_told_where_no_optimum_is_known():
    """As on a simulator: the multiplier climbs for ever."""
    tight = MODEL.with_limits([BEST.constraint_range[0, 0] - 0.5])
    result = fc.solve(tight, fc.PDANPG(outer=2000, inner=20), replicates=2, optimum=False)
    notes = "\n".join(result.notes())
    assert "still climbs" in notes
    assert "out of reach of every policy" in notes
    assert "of the range it could have" in notes


def test_a_multiplier_far_from_the_exact_one_is_told():
    result = fc.solve(MODEL, fc.PDANPGCV(outer=400), replicates=2, optimum=BEST)  # no limit is missed
    other = dataclasses.replace(BEST, duals=BEST.duals + 10.0)
    result.run.world = dataclasses.replace(result.run.world, optimum=other)
    assert f"{other.duals[0]:.3g} at the optimum" in "\n".join(result.notes())


def test_a_multiplier_that_is_not_unique_is_compared_with_nothing():
    """A limit that can just be met: any multiplier from some on is exact."""
    tight = MODEL.with_limits([BEST.constraint_range[0, 0]])
    with pytest.warns(fc.errors.NearlyInfeasibleWarning):
        best = fc.optimum(tight)
    best = dataclasses.replace(best, duals=10.0 * best.duals)  # as exact as it was
    result = fc.solve(tight, fc.PDANPGCV(outer=400), replicates=2, optimum=best)
    assert abs(result.duals[0, 0] - best.duals[0]) > 0.5 * best.duals[0]
    assert "at the optimum" not in "\n".join(result.notes())


def test_all_is_well_in_silence():
    loose = MODEL.with_limits([BEST.constraint_range[0, 1] + 1.0])
    result = fc.solve(loose, fc.PDANPG(outer=4000, inner=40), replicates=2)
    assert result.notes() == []


def test_a_run_that_learned_nothing_says_so():
    result = fc.solve(MODEL, fc.PDANPG(outer=20, inner=2, eta=1e-9, pilot=0), replicates=2, optimum=BEST)
    notes = "\n".join(result.notes())
    assert "no better than the uniform policy" in notes
    assert "inner = 2 is few for 5 states" in notes
    more = fc.solve(MODEL, fc.PDANPG(outer=20, inner=9, eta=1e-9, pilot=0), replicates=2, optimum=BEST)
    assert "is few for" not in "\n".join(more.notes())
    without = fc.solve(MODEL, short("pd-nac", 3), replicates=2, optimum=BEST)
    assert "inner" not in "\n".join(without.notes())
    chains = fc.solve(MODEL, fc.CRPO(outer=20, inner=2, alpha=1e-9, tol=1e6), replicates=2, optimum=BEST)
    assert "no better than the uniform policy" in "\n".join(chains.notes())
    assert "is few for" not in "\n".join(chains.notes())  # inner steps of a chain that goes on


def test_a_reward_that_is_never_seen_is_named():
    """Twelve right moves in a row, at one start."""
    n = 13
    transition = np.zeros((n, 2, n))
    for s in range(n - 1):
        transition[s, 0, 0] = transition[s, 1, s + 1] = 1.0
    transition[n - 1, :, n - 1] = 1.0
    reward = np.zeros((n, 2))
    reward[n - 1] = 1.0
    chain = fc.CMDP.from_arrays(transition, reward, gamma=0.95, start=0)
    result = fc.solve(chain, fc.PDANPG(outer=30, inner=20), replicates=2)
    notes = "\n".join(result.notes())
    assert "hardly ever seen under the uniform policy" in notes
    assert "is few for" not in notes


def test_a_large_model_says_what_was_dropped(monkeypatch):
    import sys

    for module in ("worlds.table", "runs.notes"):
        monkeypatch.setattr(sys.modules[f"fastcmdp.{module}"], "EXACT_CHOICES", 10)
    result = fc.solve(MODEL, fc.PDANPG(outer=5, inner=2))
    assert result.optimum is None
    assert any("optimum=True" in text and "Above 10 choices (here 15)" in text for text in result.notes())
    assert fc.solve(MODEL, fc.PDANPG(outer=5, inner=2), optimum=True).optimum is not None


def test_every_variant_inherits_its_output():
    assert variant("pmd-pd?sweeps=2").algorithm.output == Output(after=True)
    assert {name for name, made in ALGORITHMS.items() if made.output.after} == AFTER
    assert {name for name, made in ALGORITHMS.items() if made.output.some} == SOME


def test_a_limit_missed_by_a_tenth_is_told_however_wide_its_range():
    """One choice costs 1e6, so that the range is 1e7 and a hundredth of it many times the limit."""
    transition = np.full((1, 2, 1), 1.0)
    wide = fc.CMDP.from_arrays(
        transition, np.array([[0.0, 1.0]]), np.array([[0.0, 1e6]]), gamma=0.9, limits=100.0
    )
    result = fc.solve(wide, fc.PDANPG(outer=1, inner=1, eta=1e-12, zeta=1e-12, pilot=0), optimum=True)
    trace = result.trace
    trace.values[:, :, 1] = 150.0  # half as much again as the limit, 5e-6 of the range
    assert "misses its limit <= 100" in "\n".join(result.notes())


@pytest.mark.parametrize(("missed", "told"), [(0.2, True), (0.05, False)])
def test_a_limit_missed_by_a_hundredth_of_its_range_is_told(missed, told):
    """J of the cost is between 90 and 100, whatever is done: a range of 10 beside a limit of 95."""
    narrow = fc.CMDP.from_arrays(
        np.ones((1, 2, 1)), np.array([[0.0, 1.0]]), np.array([[9.0, 10.0]]), gamma=0.9, limits=95.0
    )
    result = fc.solve(narrow, fc.PDANPG(outer=1, inner=1, eta=1e-12, zeta=1e-12, pilot=0), optimum=True)
    result.trace.values[:, :, 1] = 95.0 + missed
    assert ("misses its limit <= 95" in "\n".join(result.notes())) == told
