"""Kernels in other people's code: draws and streams against numpy, from njit code, C and C++."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
from numba import njit
from scipy import stats

import fastcmdp as fc
from fastcmdp import embed
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels import draws
from fastcmdp.kernels.learning.asgd import Momentum
from fastcmdp.kernels.streams import LANES
from fastcmdp.streams import streams
from fastcmdp.tables import build_actions, build_tables

HOLDS, FAILS = 5e-5, 1e-12  # p-values on fixed seeds: as in test_estimators.py


def stream(seed: int) -> tuple[np.ndarray, np.random.SFC64]:
    """The same stream for kernels and for twins."""
    twin = np.random.SFC64(seed)
    words: np.ndarray = twin.state["state"]["state"].copy()  # type: ignore[index, call-overload]
    return words, twin


WEIGHTS = [0.5, 0.0, 2.0, 1e-9, 1.0, 0.0]
DRAWS = {
    "word": (draws.word, naive.next_word),
    "uniform": (draws.uniform, naive.uniform),
    "normal": (draws.normal, naive.normal),
    "exponential": (draws.exponential, naive.exponential),
    "geometric": (lambda rng: draws.geometric(rng, 0.95), lambda twin: naive.geometric(twin, 0.95)),
    "categorical": (
        lambda rng: draws.categorical(rng, np.array(WEIGHTS)),
        lambda twin: naive.categorical(twin, WEIGHTS),
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_equal_their_twins(name: str) -> None:
    draw, twin = DRAWS[name]
    rng, words = stream(7)
    got = [draw(rng) for _ in range(500)]
    assert got == [twin(words) for _ in range(500)]
    assert rng.tolist() == words.state["state"]["state"].tolist()  # type: ignore[index, call-overload]


def test_uniform_is_numpys() -> None:
    rng, twin = stream(8)
    assert [draws.uniform(rng) for _ in range(100)] == np.random.Generator(twin).random(100).tolist()


def test_normal_quantile_is_right_far_out() -> None:
    p = np.concatenate(
        [2.0 ** -np.arange(2.0, 54.0), 1 - 2.0 ** -np.arange(2.0, 53.0), np.linspace(0.01, 0.99, 99)]
    )
    got = [draws.normal_quantile(x) for x in p]
    np.testing.assert_allclose(got, [naive.normal_quantile(x) for x in p], rtol=1e-15)
    np.testing.assert_allclose(got, stats.norm.ppf(p), rtol=1e-14, atol=1e-16)


def test_categorical_never_draws_what_is_impossible() -> None:
    last = np.array([0, 0, 0, 1], np.uint64)
    weights = np.array([0.0, *[0.1] * 10, 0.0])
    for _ in range(12):
        draws.word(last)
    assert {draws.categorical(last, weights) for _ in range(300)} == set(range(1, 11))
    assert draws.categorical(last, np.zeros(3)) == -1


def test_laws_of_draws() -> None:
    """Kolmogorov-Smirnov on 100,000 draws each; the negative control moves the law by 2 %."""
    rng, _ = stream(9)
    for draw, law in ((draws.normal, stats.norm), (draws.exponential, stats.expon)):
        sample = np.array([draw(rng) for _ in range(100_000)])
        assert stats.kstest(sample, law.cdf).pvalue > HOLDS
        assert stats.kstest(1.02 * sample + 0.02, law.cdf).pvalue < FAILS


# Streams and tables.


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**40 + 7, 2**64 - 1])
@pytest.mark.parametrize("replicate", [0, 3, 2**32, 2**63 + 9])
@pytest.mark.parametrize("lane", [0, 15, 2**33])
def test_streams_are_numpys(seed: int, replicate: int, lane: int) -> None:
    twin: Any = np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(replicate, lane)))
    words = np.uint64(seed), np.uint64(replicate), np.uint64(lane)
    assert embed.stream(*words).tolist() == twin.state["state"]["state"].tolist()


def test_lanes_are_those_of_solve() -> None:
    assert embed.streams(3, 1).tolist() == streams(3, 2)[1].tolist()


MODELS = {name: CMDP(**rows) for name, rows in naive.MODELS.items()}
every_model = pytest.mark.parametrize("cmdp", MODELS.values(), ids=MODELS.keys())


def rows_of(cmdp: CMDP) -> tuple[Any, ...]:
    """Writable arrays for `build`."""
    names = ["state_to_choice", "choice_to_branch", "branch_target", "branch_prob", "signals", "start"]
    return (*(np.array(getattr(cmdp, name)) for name in names), cmdp.gamma)


def random_policy(cmdp: CMDP) -> np.ndarray:
    theta = np.random.default_rng(20).standard_normal(cmdp.n_choices)
    return np.array(naive.refresh_all(naive.plain(cmdp), naive.identity(cmdp.n_choices), theta.tolist()))


def same_arrays(one: Any, other: Any) -> None:
    for name, x, y in zip(one._fields, one, other, strict=True):
        assert np.array_equal(x, y), name
        assert np.asarray(x).dtype == np.asarray(y).dtype, name


@every_model
def test_models_built_either_way_are_those_of_solve(cmdp: CMDP) -> None:
    built = embed.build(*rows_of(cmdp))
    same_arrays(built, embed.from_cmdp(cmdp))
    tables = build_tables(cmdp)
    same_arrays(built, tables)
    assert built.choice_word.ctypes.data % 64 == 0
    actions = build_actions(tables, random_policy(cmdp))
    same_arrays(actions, embed.policy(built, random_policy(cmdp)))


@pytest.mark.parametrize(
    ("place", "value", "status", "message"),
    [
        (0, [0, 3, 2, 4, 4, 5], -3, "rise"),
        (0, [1, 2, 3, 4, 5, 6], -3, "rise"),
        (2, -1, -4, "leads out"),
        (2, 5, -4, "leads out"),
        (3, -0.1, -5, "does not sum to 1"),
        (3, np.nan, -5, "does not sum to 1"),
        (4, np.inf, -6, "not finite"),
        (5, 0.9, -5, "does not sum to 1"),
        (6, 1.0, -7, "gamma"),
        (6, np.nan, -7, "gamma"),
    ],
)
def test_bad_rows_are_named(place: int, value: Any, status: int, message: str) -> None:
    rows = list(rows_of(MODELS["random"]))
    if place == 6:
        rows[6] = value
    elif place == 0:
        rows[0][:] = value
    else:
        rows[place].reshape(-1)[0] = value
    with pytest.raises(ValueError, match=message):
        embed.build(*rows)
    c_rows = c_rows_of(*rows)
    assert embed.c_api().function("memory")(ctypes.addressof(c_rows)) == status


def test_bad_policies_are_named() -> None:
    model = embed.from_cmdp(MODELS["random"])
    for prob in (np.ones(model.choice_state.size), np.full(model.choice_state.size, np.nan)):
        with pytest.raises(ValueError, match="does not sum to 1"):
            embed.policy(model, prob)
    with pytest.raises(ValueError, match="one number a choice"):
        embed.policy(model, np.ones(3))
    with pytest.raises(fc.SettingError, match="'fast' or 'exact'"):
        embed.from_cmdp(MODELS["random"], draws="slow")
    with pytest.raises(fc.SettingError, match="exact draws"):
        embed.c_model(embed.from_cmdp(MODELS["random"], draws="exact"))


# Steps, rollouts, updates.


def both(cmdp: CMDP, draws: str) -> tuple[Any, Any, naive.Model, list[float]]:
    """Model and policy for kernels, and for twins."""
    model, prob = embed.from_cmdp(cmdp, draws), random_policy(cmdp)
    return model, embed.policy(model, prob), naive.plain(cmdp, draws == "exact"), prob.tolist()


@every_model
@pytest.mark.parametrize("draws", ["fast", pytest.param("exact", marks=pytest.mark.slow)])
def test_steps_and_rollouts(cmdp: CMDP, draws: str) -> None:
    model, policy, plain, prob = both(cmdp, draws)
    rng, twin = stream(11)
    s = embed.first_state(model, rng)
    assert s == naive.first_state(plain, twin)
    q = embed.first_pair(model, policy, rng)
    assert q == naive.first_pair(plain, prob, twin)
    for _ in range(50):
        q = embed.act(model, policy, rng, s)
        assert q == naive.act(plain, prob, twin, s)
        s = embed.next_state(model, rng, q)
        assert s == naive.next_state(plain, twin, q)
        assert embed.step(model, policy, rng, q) == naive.step(plain, prob, twin, q)
    total = np.full(model.n_signals, np.nan)
    for q in [-1, -1, *range(cmdp.n_choices)]:
        last, transitions = embed.rollout(model, policy, rng, q, total)
        expected = naive.rollouts(plain, prob, [twin], [(q if q >= 0 else None, None)])
        assert ([last], [transitions], [total.tolist()]) == (
            expected.choice,
            expected.horizon,
            expected.total,
        )
    assert rng.tolist() == twin.state["state"]["state"].tolist()  # type: ignore[index, call-overload]


def test_a_batch_is_that_of_solve() -> None:
    cmdp = MODELS["three constraints"]
    model, policy, plain, prob = both(cmdp, "fast")
    lanes, room, words = embed.streams(20, 1), embed.batch(model, 9), naive.streams(20, 1, LANES)
    for fresh in (False, True):
        transitions = embed.sample_batch(model, policy, lanes, fresh, room)
        expected = naive.sample_batch(plain, prob, words, 9, fresh)
        assert transitions == expected.transitions
        assert room.pair[:9].tolist() == expected.pair
        assert room.occupancy_total[: 9 + fresh].tolist() == expected.occupancy_total
        assert room.advantage.tolist() == expected.advantage


def test_updates() -> None:
    cmdp = MODELS["many actions"]
    model, policy, plain, prob = both(cmdp, "fast")
    rng = np.random.default_rng(0)
    pair, target = rng.integers(0, cmdp.n_choices, 31), rng.standard_normal(31)
    steps = embed.momentum(2.0, 0.1)
    np.testing.assert_allclose(steps, fc.PDANPG(mu_f=0.1).momentum(2.0), rtol=1e-15)  # another order
    scores = naive.collect_scores(plain, naive.identity(cmdp.n_choices), prob, pair.tolist())
    expected = naive.asgd_dense(steps, scores, target.tolist())
    assert np.abs(expected).max() > 1e-3
    tabular, dense = np.full(cmdp.n_choices, np.nan), np.full(cmdp.n_choices, np.nan)
    embed.asgd_tabular(model, policy, steps, pair, target, tabular)
    embed.asgd(steps, np.array(scores), target, dense)
    np.testing.assert_allclose(tabular, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(dense, expected, rtol=0, atol=1e-12)

    theta = rng.standard_normal(cmdp.n_choices)
    embed.softmax(model, theta, policy)
    wanted = naive.refresh_all(plain, naive.identity(cmdp.n_choices), theta.tolist())
    np.testing.assert_allclose(policy.prob, wanted, rtol=1e-14)
    same_arrays(policy, embed.policy(model, policy.prob))
    policy.prob[:] = prob
    embed.refresh(model, policy)
    same_arrays(policy, embed.policy(model, np.array(prob)))

    dual = np.array([0.5, 0.1, 2.0])
    embed.dual_step(dual, 0.5, np.array([0.4, 0.4, -4.0]), 3.0)
    assert dual.tolist() == naive.dual_step([0.5, 0.1, 2.0], 0.5, [0.4, 0.4, -4.0], 3.0) == [0.3, 0.0, 3.0]


def test_sizes_are_checked_where_a_call_does_much() -> None:
    cmdp = MODELS["random"]
    model, policy, *_ = both(cmdp, "fast")
    n, rng, steps = cmdp.n_choices, embed.stream(0, 0, 0), embed.momentum(2.0, 0.1)
    before = policy.prob.copy()
    calls: list[tuple[Any, str]] = [
        (lambda: embed.softmax(model, np.zeros(n - 1), policy), "theta has not one number a choice"),
        (lambda: embed.softmax(model, np.full(n, np.inf), policy), "theta is not finite"),
        (lambda: embed.rollout(model, policy, rng, -1, np.zeros(model.n_signals - 1)), "total has fewer"),
        (lambda: embed.batch(model, 0), "n_pairs is below 1"),
        (
            lambda: embed.sample_batch(
                model, policy, np.zeros((4, 3), np.uint64), True, embed.batch(model, 2)
            ),
            "lanes are not",
        ),
        (lambda: embed.asgd(steps, np.zeros((4, 3)), np.zeros(3), np.zeros(3)), "do not agree"),
        (lambda: embed.asgd(steps, np.zeros((4, 3)), np.zeros(4), np.zeros(2)), "do not agree"),
        (lambda: embed.asgd(steps, np.zeros((0, 3)), np.zeros(0), np.zeros(3)), "H is 0"),
        (
            lambda: embed.asgd_tabular(model, policy, steps, np.zeros(3, int), np.zeros(4), np.zeros(n)),
            "do not agree",
        ),
        (
            lambda: embed.asgd_tabular(model, policy, steps, np.zeros(4, int), np.zeros(4), np.zeros(n - 1)),
            "do not agree",
        ),
        (lambda: embed.dual_step(np.zeros(2), 0.1, np.zeros(1), 1.0), "different sizes"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
    assert np.array_equal(policy.prob, before)
    for given in (fc.simulators.tandem_queue(), 3):
        with pytest.raises(fc.SettingError, match=r"a fastcmdp\.CMDP is expected"):
            embed.from_cmdp(given)  # type: ignore[arg-type]
        with pytest.raises(fc.SettingError, match="a Model of from_cmdp or build is expected"):
            embed.c_model(given)  # type: ignore[arg-type]


def small_and_large() -> tuple[Any, ...]:
    """A small model with its policy, and what belongs to a large one; of neither is there an array in the other."""
    small, large = MODELS["short horizon"], MODELS["many actions"]
    assert small.n_choices < large.n_choices
    models = [embed.from_cmdp(cmdp) for cmdp in (small, large)]
    policies = [
        embed.policy(m, np.array(random_policy(c))) for m, c in zip(models, (small, large), strict=True)
    ]
    return (*models, *policies)


@pytest.mark.parametrize("swapped", [False, True])
def test_policies_and_batches_of_another_model_are_refused(swapped: bool) -> None:
    """They once read and wrote foreign memory."""
    model, other, policy, theirs = small_and_large()
    if swapped:
        model, other, policy, theirs = other, model, theirs, policy
    n, rng, lanes = model.choice_state.size, embed.stream(0, 0, 0), embed.streams(0, 0)
    steps, total, exact = embed.momentum(2.0, 0.1), np.zeros(model.n_signals), np.zeros(n)
    before = [x.copy() for x in theirs]
    words = rng.copy()
    calls = [
        lambda: embed.rollout(model, theirs, rng, -1, total),
        lambda: embed.softmax(model, np.zeros(n), theirs),
        lambda: embed.refresh(model, theirs),
        lambda: embed.sample_batch(model, theirs, lanes, False, embed.batch(model, 3)),
        lambda: embed.asgd_tabular(model, theirs, steps, np.zeros(3, int), np.zeros(3), exact),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="the policy belongs to another model"):
            call()
    same_arrays(theirs, type(theirs)(*before))
    assert rng.tolist() == words.tolist()
    room = embed.batch(model, 4)
    for name in ("pair", "occupancy_total", "value_total", "last_pair", "job_choice", "job_row"):
        short = room._replace(**{name: getattr(room, name)[:3]})
        with pytest.raises(ValueError, match="the batch belongs to another model or has"):
            embed.sample_batch(model, policy, lanes, True, short)
    narrow = room._replace(advantage=np.zeros((4, model.n_signals + 1)))
    with pytest.raises(ValueError, match="the batch belongs to another model or has"):
        embed.sample_batch(model, policy, lanes, True, narrow)


def test_a_policy_of_other_draws_is_refused() -> None:
    cmdp = MODELS["random"]
    fast, exact = (embed.from_cmdp(cmdp, draws) for draws in ("fast", "exact"))
    policy = embed.policy(fast, np.array(random_policy(cmdp)))
    with pytest.raises(ValueError, match="the policy belongs to another model"):
        embed.rollout(exact, policy, embed.stream(0, 0, 0), -1, np.zeros(exact.n_signals))


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint32, np.uint8])
def test_streams_of_other_numbers_are_refused(kind: Any) -> None:
    """As signed words they once gave negative uniforms."""
    model, policy, *_ = both(MODELS["random"], "fast")
    rng, lanes = np.ones(4, kind), np.ones((4, LANES), kind)
    calls: list[Any] = [
        lambda: embed.word(rng),
        lambda: embed.uniform(rng),
        lambda: embed.normal(rng),
        lambda: embed.exponential(rng),
        lambda: embed.geometric(rng, 0.5),
        lambda: embed.categorical(rng, np.ones(2)),
        lambda: embed.first_state(model, rng),
        lambda: embed.next_state(model, rng, 0),
        lambda: embed.act(model, policy, rng, 0),
        lambda: embed.first_pair(model, policy, rng),
        lambda: embed.step(model, policy, rng, 0),
        lambda: embed.rollout(model, policy, rng, -1, np.zeros(model.n_signals)),
        lambda: embed.sample_batch(model, policy, lanes, True, embed.batch(model, 2)),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"rng is no stream: uint64\[4\]|lanes are not uint64"):
            call()


def test_arrays_that_would_truncate_and_numbers_out_of_range_are_refused() -> None:
    cmdp = MODELS["random"]
    model, policy, *_ = both(cmdp, "fast")
    n, rng, steps = cmdp.n_choices, embed.stream(0, 0, 0), embed.momentum(2.0, 0.1)
    calls: list[tuple[Any, str]] = [
        (lambda: embed.rollout(model, policy, rng, -1, np.zeros(model.n_signals, np.int64)), "no float64"),
        (lambda: embed.rollout(model, policy, rng, -1, np.zeros(model.n_signals, np.float32)), "no float64"),
        (lambda: embed.rollout(model, policy, rng, n, np.zeros(model.n_signals)), "no choice"),
        (lambda: embed.rollout(model, policy, rng[:3], -1, np.zeros(model.n_signals)), "no uint64"),
        (lambda: embed.asgd(steps, np.zeros((4, 3)), np.zeros(4), np.zeros(3, int)), "omega no float64"),
        (
            lambda: embed.asgd_tabular(model, policy, steps, np.zeros(4, int), np.zeros(4), np.zeros(n, int)),
            "omega is no float64",
        ),
        (
            lambda: embed.asgd_tabular(model, policy, steps, np.array([0, n]), np.zeros(2), np.zeros(n)),
            "no choice of the model",
        ),
        (lambda: embed.dual_step(np.zeros(1, int), 0.1, np.zeros(1), 1.0), "dual is no float64"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
    for weight in (-1.0, np.nan, np.inf):
        policy.prob[0] = weight
        with pytest.raises(ValueError, match="negative, NaN or infinite"):
            embed.refresh(model, policy)


def test_seeds_of_all_sizes_in_any_order() -> None:
    """A call with a small seed once closed the way to those from 2^63 on."""
    embed.stream(1, 0, 0)
    embed.streams(1, 0)
    for seed in (2**63, 2**64 - 1, np.uint64(2**63), -1, 5, np.int8(5)):
        twin: Any = np.random.SFC64(np.random.SeedSequence(int(seed) % 2**64, spawn_key=(2, 3)))
        assert embed.stream(seed, 2, 3).tolist() == twin.state["state"]["state"].tolist()
        assert embed.streams(seed, 2)[:, 3].tolist() == twin.state["state"]["state"].tolist()
    with pytest.raises(TypeError):
        embed.stream(0.5, 0, 0)  # type: ignore[arg-type]

    @njit
    def inside(seed: int) -> Any:
        return embed.stream(seed, 2, 3), embed.streams(seed, 2)

    assert inside(-1)[0].tolist() == embed.stream(-1, 2, 3).tolist()
    assert inside(5)[1].tolist() == embed.streams(5, 2).tolist()


def test_weights_whose_sum_overflows_are_drawn_by_their_shares() -> None:
    """They once gave the last, always."""
    rng, twin = stream(3)
    for weights in ([1e308, 1e308, 0.0, 1e308], [1.7e308, 1.7e308, 1.0]):
        drawn = [embed.categorical(rng, np.array(weights)) for _ in range(600)]
        assert drawn == [naive.categorical(twin, weights) for _ in range(600)]
        counts = np.bincount(drawn, minlength=len(weights))
        possible = np.array(weights) > 2.0
        assert (counts[possible] > 150).all()
        assert not counts[~possible].any()


def test_uncompiled_kernels_are_refused_with_a_sentence() -> None:
    command = [sys.executable, "-c", "import fastcmdp"]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(Path(fc.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode != 0
    assert "ImportError: fastcmdp's kernels run compiled only, and NUMBA_DISABLE_JIT" in done.stderr


def test_arrays_of_other_types_and_layouts_make_the_same_model() -> None:
    """A model of 32-bit offsets would be read as one of 64 bits in C; a policy of integers would round what follows."""
    cmdp = MODELS["random"]
    offsets = cmdp.state_to_choice, cmdp.choice_to_branch
    rest = cmdp.branch_prob, cmdp.signals, cmdp.start
    model = embed.build(*offsets, cmdp.branch_target, *rest, cmdp.gamma)
    locked = [x.copy() for x in (*offsets, cmdp.branch_target, *rest)]
    for array in locked:
        array.flags.writeable = False
    others = [
        (*(x.astype(np.int32) for x in offsets), cmdp.branch_target.astype(np.int64), *rest),
        (*offsets, cmdp.branch_target, cmdp.branch_prob, np.asfortranarray(cmdp.signals), cmdp.start),
        [np.repeat(x, 2, axis=0)[::2] for x in (*offsets, cmdp.branch_target, *rest)],
        locked,
    ]
    for rows in others:
        other = embed.build(*rows, cmdp.gamma)
        same_arrays(other, model)
    first = np.zeros(cmdp.n_choices, np.int64)
    first[cmdp.state_to_choice[:-1]] = 1
    policy = embed.policy(model, first)
    embed.softmax(model, np.zeros(cmdp.n_choices), policy)
    same_arrays(policy, embed.policy(model, 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]))


def test_a_users_own_loop_is_fully_compiled() -> None:
    model, policy, plain, prob = both(MODELS["random"], "fast")

    @njit
    def loop(model: Any, policy: Any, seed: int, n: int) -> tuple[float, float]:
        rng = embed.stream(seed, 0, 0)
        total, q = 0.0, embed.first_pair(model, policy, rng)
        for _ in range(n):
            total += model.choice_signal[q, 1]
            q = embed.step(model, policy, rng, q)
        return total, embed.normal(rng) + embed.uniform(rng)

    (twin,) = naive.streams(4, 0, 1)
    total, q = 0.0, naive.first_pair(plain, prob, twin)
    for _ in range(99):
        total += plain.signals[q][0]
        q = naive.step(plain, prob, twin, q)
    assert loop(model, policy, 4, 99) == (total, naive.normal(twin) + naive.uniform(twin))


# C and C++.


def c_rows_of(*rows: Any) -> Any:
    """A fcmdp_rows over arrays, in the order of `build`, which it keeps alive."""
    *arrays, gamma = rows
    fields = [("sizes", ctypes.c_int64 * 4), ("arrays", ctypes.c_void_p * 6), ("gamma", ctypes.c_double)]
    kind: Any = type("fcmdp_rows", (ctypes.Structure,), {"_fields_": fields})
    sizes = len(arrays[0]) - 1, len(arrays[1]) - 1, len(arrays[2]), arrays[4].shape[1]
    made = kind((ctypes.c_int64 * 4)(*sizes), (ctypes.c_void_p * 6)(*(x.ctypes.data for x in arrays)), gamma)
    made.kept = arrays
    return made


def test_c_functions_are_the_kernels() -> None:
    """Each function that neither host calls, and each status."""
    cmdp = MODELS["three constraints"]
    model, policy, *_ = both(cmdp, "fast")
    call = embed.c_api().function
    handed = embed.c_model(model)
    c, entry = ctypes.addressof(handed), policy.entry.ctypes.data
    ours, theirs = embed.stream(5, 6, 7), np.zeros(4, np.uint64)
    call("stream")(5, 6, 7, theirs.ctypes.data)
    rng = theirs.ctypes.data
    weights = np.array(WEIGHTS)
    for _ in range(20):
        assert call("word")(rng) == embed.word(ours)
        assert call("uniform")(rng) == embed.uniform(ours)
        assert call("normal")(rng) == embed.normal(ours)
        assert call("exponential")(rng) == embed.exponential(ours)
        assert call("geometric")(rng, 0.9) == embed.geometric(ours, 0.9)
        assert call("categorical")(rng, weights.ctypes.data, 6) == embed.categorical(ours, weights)
        assert call("first_state")(c, rng) == embed.first_state(model, ours)
        assert call("first_pair")(c, entry, rng) == embed.first_pair(model, policy, ours)
        assert call("act")(c, entry, rng, 2) == embed.act(model, policy, ours, 2)
        assert call("next_state")(c, rng, 3) == embed.next_state(model, ours, 3)
        assert call("step")(c, entry, rng, 3) == embed.step(model, policy, ours, 3)
    assert ours.tolist() == theirs.tolist()

    score, target = np.random.default_rng(0).standard_normal((7, 3)), np.arange(7.0)
    one, other, steps = np.empty(3), np.empty(3), np.array([0.9, 0.1, 0.05, 0.1])
    embed.asgd(Momentum(*steps), score, target, one)
    ok = call("asgd")(steps.ctypes.data, score.ctypes.data, target.ctypes.data, 7, 3, other.ctypes.data)
    assert (ok, other.tolist()) == (0, one.tolist())

    for q in (-1, cmdp.n_choices):
        assert call("next_state")(c, rng, q) == -8
        assert call("step")(c, entry, rng, q) == -8
    assert call("act")(c, entry, rng, -1) == call("act")(c, entry, rng, cmdp.n_states) == -8
    assert call("rollout")(c, entry, rng, -2, one.ctypes.data, one.ctypes.data) == -8
    assert call("rollout")(c, entry, rng, -1, None, one.ctypes.data) == -1
    assert call("memory")(None) == call("build")(None, entry, c) == call("policy")(c, None, entry) == -1
    assert call("softmax")(c, np.full(cmdp.n_choices, np.nan).ctypes.data, entry, entry) == -6
    assert call("policy")(c, np.ones(cmdp.n_choices).ctypes.data, entry) == -5
    assert call("asgd")(entry, entry, entry, 0, 1, entry) == -2
    assert call("sample_batch")(c, entry, rng, 0, 0, rng, rng, rng) == -2
    pairs = np.array([0, cmdp.n_choices])
    assert call("asgd_tabular")(c, entry, rng, pairs.ctypes.data, rng, 2, rng) == -8
    assert ours.tolist() == theirs.tolist()
    with pytest.raises(fc.SettingError, match="no function 'steps'"):
        call("steps")


@pytest.fixture(scope="module")
def example() -> Any:
    path = Path(__file__).parents[1] / "examples" / "embed_c" / "run.py"
    spec = importlib.util.spec_from_file_location("embed_c_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_host(example: Any, source: str, folder: Path) -> Any:
    compiler = example.COMMANDS[source][0]
    if shutil.which(compiler) is None:
        pytest.skip(f"no compiler {compiler!r} for {source}")
    return example.library(source, folder)


def machine_rows() -> tuple[Any, ...]:
    """The model of examples/embed_c/machine.c."""
    wear, gamma = 12, 0.95
    target, prob, signals = [], [], []
    for s in range(wear):
        target += [s, min(s + 1, wear - 1), 0]
        prob += [0.75, 0.25, 1.0]
        signals += [[1.0 - s / wear, (1.0 - gamma) * 1.0], [0.0, (1.0 - gamma) * 1.0 - 1.0]]
    offsets = np.stack([3 * np.arange(wear), 3 * np.arange(wear) + 2], axis=1).ravel()
    start = np.eye(wear)[0]
    return (
        2 * np.arange(wear + 1), np.append(offsets, 3 * wear), np.array(target, np.int32), np.array(prob),
        np.array(signals), start, gamma,
    )  # fmt: skip


def test_a_host_in_c(example: Any, tmp_path: Path) -> None:
    """The same loop in Python, on the njit functions: bit for bit."""
    theta, dual, total = example.machine(build_host(example, "machine.c", tmp_path), 3, 200, 100)

    model, inner = embed.build(*machine_rows()), 100
    policy = embed.policy(model, np.full(24, 0.5))
    expected, multiplier, omega = np.zeros(24), np.zeros(1), np.zeros(24)
    lanes, room, steps = embed.streams(3, 0), embed.batch(model, inner), embed.momentum(2.0, 0.1)
    embed.softmax(model, expected, policy)
    for _ in range(200):
        embed.sample_batch(model, policy, lanes, True, room)
        target = (room.advantage[:, 0] + multiplier[0] * room.advantage[:, 1]) * model.horizon
        embed.asgd_tabular(model, policy, steps, room.pair, target, omega)
        embed.dual_step(multiplier, 0.0003, room.occupancy_total[inner, 1:], np.inf)
        expected += 0.001 * omega
        embed.softmax(model, expected, policy)
    rng, sums = embed.stream(3, 1, 0), np.zeros(2)
    for _ in range(100):
        left = embed.geometric(rng, 0.95)
        q = embed.first_pair(model, policy, rng)
        sums += model.choice_signal[q, 1:3]
        for _ in range(left):
            q = embed.step(model, policy, rng, q)
            sums += model.choice_signal[q, 1:3]
    assert np.abs(theta).max() > 0.1
    assert theta.tolist() == expected.tolist()
    assert dual == multiplier[0]
    assert total.tolist() == sums.tolist()


def test_a_host_in_cpp(example: Any, tmp_path: Path) -> None:
    cmdp = MODELS["three constraints"]
    model, policy, _, prob = both(cmdp, "fast")
    host = build_host(example, "estimate.cpp", tmp_path)
    value = example.estimate(host, model, np.array(prob), 8, 3, 40)
    sums, one = np.zeros((3, 4)), np.zeros(4)
    for thread in range(3):
        rng = embed.stream(8, thread, 0)
        for _ in range(40):
            embed.rollout(model, policy, rng, -1, one)
            sums[thread] += one
    assert value.tolist() == ((sums[0] + sums[1] + sums[2]) / 120.0).tolist()
    with pytest.raises(RuntimeError, match="status -5"):
        example.estimate(host, model, np.ones(cmdp.n_choices), 8, 1, 1)


def test_the_header_suits_both_languages(tmp_path: Path) -> None:
    path = embed.c_api().write_header(tmp_path)
    assert path.read_text() == embed.c_api().header
    assert embed.c_api().write_header(tmp_path / "other.h").exists()
    sizes = f'#include "fastcmdp.h"\nint a[sizeof(fcmdp_model) == {16 * 8} ? 1 : -1];\n'
    sizes += f"int b[sizeof(fcmdp_rows) == {11 * 8} ? 1 : -1];\n"
    sizes += f"int c[sizeof(fcmdp_api) == {8 * (2 + len(embed.c_api().functions))} ? 1 : -1];\n"
    for compiler, language in (("cc", "c99"), ("c++", "c++11")):
        if shutil.which(compiler) is None:
            pytest.skip(f"no compiler {compiler!r}")
        source = tmp_path / f"check.{'c' if compiler == 'cc' else 'cpp'}"
        source.write_text(sizes)
        command = [compiler, f"-std={language}", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
        subprocess.run([*command, str(source)], check=True)


# Examples.


@pytest.mark.parametrize("name", ["embed_njit.py", "embed_c/run.py"])
def test_examples_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "embed_c/run.py" and (shutil.which("cc") is None or shutil.which("c++") is None):
        pytest.skip("no compilers cc and c++")
    runpy.run_path(str(Path(__file__).parents[1] / "examples" / name))["main"](500)
    printed = capsys.readouterr().out
    assert ("optimum 7.330" if name == "embed_njit.py" else "(exactly 0.1898)") in printed


def test_the_page_on_embedding_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block by itself, in an empty folder but for the sources of C and C++."""
    page = (Path(__file__).parents[1] / "docs" / "embedding.md").read_text()
    blocks = {kind: re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "c", "cpp")}
    njit_code, c_call, gymnasium_code, multiplier_code = blocks["python"]
    (c_code,), (cpp_code,) = blocks["c"], blocks["cpp"]
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    exec(compile(njit_code, "embedding.md", "exec"), {})
    exec(compile(gymnasium_code, "embedding.md", "exec"), space)
    assert space["states"].shape == (1000,)
    exec(compile(multiplier_code, "embedding.md", "exec"), space)
    assert 0.0 < space["weight"] < 100.0
    if shutil.which("cc") is None or shutil.which("c++") is None:
        pytest.skip("there is no compiler of C and C++")
    Path("host.c").write_text(c_code)
    space = {}
    exec(compile(c_call, "embedding.md", "exec"), space)
    rng = embed.stream(0, 0, 0)
    address = ctypes.c_void_p(space["api"].address)
    assert space["host"].run(address, ctypes.c_uint64(0)) == embed.normal(rng) + embed.exponential(rng)
    Path("mean.cpp").write_text(cpp_code)
    command = [
        "c++",
        "-std=c++17",
        "-O2",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        "libmean.so",
        "mean.cpp",
    ]
    subprocess.run(command, check=True, capture_output=True)
    cmdp = fc.envs.river_swim()
    model = embed.from_cmdp(cmdp)
    prob = np.full(cmdp.n_choices, 0.5)
    handed, policy = embed.c_model(model), embed.policy(model, prob)
    mean = ctypes.CDLL("./libmean.so").mean
    mean.restype = ctypes.c_double
    found = mean(
        address, ctypes.byref(handed), ctypes.c_void_p(policy.entry.ctypes.data), ctypes.c_int64(500)
    )
    rng, total, expected = embed.stream(0, 0, 0), np.zeros(model.n_signals), 0.0
    for _ in range(500):
        embed.rollout(model, policy, rng, -1, total)
        expected += total[0]
    assert found == expected / 500
