"""The model: what it accepts, what it refuses and how, and the way to kernel units and back."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import tracemalloc
import warnings
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError

S, A = 3, 2
ARRAYS = [
    field.name for field in dataclasses.fields(CMDP) if field.name.endswith(("_to_choice", "_to_branch"))
]
ARRAYS += [
    "branch_target",
    "branch_prob",
    "action_of_choice",
    "start",
    "reward",
    "costs",
    "limits",
    "signals",
]
ARRAYS += ["constraint_scale", "choice_state"]
TABLE = np.array([[[0.5, 0.5, 0], [0, 0, 1]], [[1, 0, 0], [0, 1, 0]], [[0.25, 0.25, 0.5], [0, 0, 1]]])
# The same model in compressed rows:
RAW = {
    "state_to_choice": [0, 2, 4, 6],
    "choice_to_branch": [0, 2, 3, 4, 5, 8, 9],
    "branch_target": [0, 1, 2, 0, 1, 0, 1, 2, 2],
    "branch_prob": [0.5, 0.5, 1, 1, 1, 0.25, 0.25, 0.5, 1],
}
REWARD = np.array([[0.0, 1], [0.5, 0.25], [1, 0]])
COST = np.array([[0.0, 0.5], [1, 0], [0, 0.75]])


def tables(**changes: Any) -> CMDP:
    arguments = {"transition": TABLE, "reward": REWARD, "costs": COST, "gamma": 0.9, "limits": 2.0} | changes
    return CMDP.from_arrays(**arguments)


def rows(**changes: Any) -> CMDP:
    arguments = RAW | {"reward": REWARD.ravel(), "costs": COST.ravel(), "gamma": 0.9, "limits": 2.0} | changes
    return CMDP(**arguments)


def put(array: np.ndarray, index: Any, value: float) -> np.ndarray:
    changed = np.array(array, dtype=np.float64)
    changed[index] = value
    return changed


def assert_same(one: CMDP, other: CMDP) -> None:
    for name in ARRAYS:
        x, y = getattr(one, name), getattr(other, name)
        assert x.dtype == y.dtype, name
        np.testing.assert_array_equal(x, y, err_msg=name)
    for name in ("gamma", "reward_shift", "reward_scale", "sense", "names"):
        assert getattr(one, name) == getattr(other, name), name


def by_action(table: np.ndarray) -> list[sparse.csr_array]:
    return [sparse.csr_array(table[:, a]) for a in range(table.shape[1])]


def stacked(table: np.ndarray) -> sparse.csr_array:
    return sparse.csr_array(table.reshape(-1, table.shape[2]))


def value_of(cmdp: CMDP, pi: np.ndarray, signals: np.ndarray) -> np.ndarray:
    """J of each column by a dense solve; independent of everything but P, start and gamma."""
    average = np.zeros((cmdp.n_states, cmdp.n_choices))
    average[cmdp.choice_state, np.arange(cmdp.n_choices)] = pi
    matrix = np.eye(cmdp.n_states) - cmdp.gamma * average @ cmdp.transition_matrix().toarray()
    return cmdp.start @ np.linalg.solve(matrix, average @ signals)


@st.composite
def models(draw: st.DrawFn, n_costs: int | None = None) -> dict[str, Any]:
    """Arguments of from_arrays: a dense table with zeros, signals of any size, a mask, limits and senses."""
    n_states, n_actions = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    m = draw(st.integers(0, 3)) if n_costs is None else n_costs
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    table = rng.random((n_states, n_actions, n_states)) * rng.integers(0, 2, (n_states, n_actions, n_states))
    table[..., -1] += 0.1
    table /= table.sum(axis=2, keepdims=True)
    available = rng.random((n_states, n_actions)) < 0.7
    available[:, 0] = True
    size = 10.0 ** draw(st.integers(-6, 6))
    return {
        "transition": table,
        "reward": size * rng.normal(size=(n_states, n_actions)),
        "costs": [size * rng.normal(size=(n_states, n_actions)) for _ in range(m)],
        "gamma": draw(st.sampled_from([0.01, 0.5, 0.99])),
        "limits": size * rng.normal(size=m),
        "sense": [("<=", ">=")[i] for i in rng.integers(0, 2, m)],
        "start": rng.dirichlet(np.ones(n_states)),
        "available": available,
    }


# What is stored


def test_tables_and_rows_are_the_same_model() -> None:
    assert_same(tables(), rows())
    cmdp = tables(start=1)
    for name in RAW:
        assert getattr(cmdp, name).tolist() == RAW[name]
    assert (cmdp.n_states, cmdp.n_choices, cmdp.n_branches, cmdp.n_actions, cmdp.n_constraints) == (
        3,
        6,
        9,
        2,
        1,
    )
    assert cmdp.choice_state.tolist() == [0, 0, 1, 1, 2, 2]
    assert cmdp.action_of_choice.tolist() == [0, 1, 0, 1, 0, 1]
    assert cmdp.start.tolist() == [0, 1, 0]
    np.testing.assert_array_equal(cmdp.transition_matrix().toarray(), TABLE.reshape(6, 3))
    assert cmdp.transition_matrix() is cmdp.transition_matrix()


def test_dtypes_and_layout_are_those_kernels_expect() -> None:
    cmdp = tables(costs=[COST, COST], limits=[1, 2])
    kinds = {name: getattr(cmdp, name).dtype.name for name in ARRAYS}
    integers = {"state_to_choice": "int64", "choice_to_branch": "int64"}
    integers |= dict.fromkeys(["branch_target", "action_of_choice", "choice_state"], "int32")
    assert kinds == dict.fromkeys(ARRAYS, "float64") | integers
    for name in ARRAYS:
        array = getattr(cmdp, name)
        assert array.flags.c_contiguous, name
        assert not array.flags.writeable, name
    matrix = cmdp.transition_matrix()
    assert not any(array.flags.writeable for array in (matrix.data, matrix.indices, matrix.indptr))


def test_frozen_compared_by_identity_and_printed_in_a_line() -> None:
    cmdp = tables(sense=">=", names=["gold", "safety"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        cmdp.gamma = 0.5  # type: ignore[misc]
    assert cmdp != tables(sense=">=", names=["gold", "safety"])
    assert len({cmdp, cmdp}) == 1
    assert repr(cmdp) == "CMDP(3 states, 6 choices, 9 branches, gamma=0.9, maximise gold, safety >= 2)"


def test_copies_and_pickles_are_read_only_and_the_same() -> None:
    cmdp = tables(costs=[COST, REWARD], limits=[1, 2], sense=["<=", ">="])
    cmdp.transition_matrix()
    for twin in (pickle.loads(pickle.dumps(cmdp)), copy.deepcopy(cmdp)):
        assert_same(twin, cmdp)
        assert not twin.branch_prob.flags.writeable
        assert not twin.signals.flags.writeable
    assert len(pickle.dumps(cmdp)) < len(pickle.dumps(cmdp.__dict__))  # caches stay behind


def test_default_names_and_start() -> None:
    assert tables(costs=None, limits=None).names == ("reward",)
    assert tables().names == ("reward", "cost")
    assert tables(costs=[COST, COST], limits=[1, 2]).names == ("reward", "cost 0", "cost 1")
    np.testing.assert_allclose(tables().start, 1 / 3, rtol=1e-15)
    np.testing.assert_array_equal(tables(start=np.int32(2)).start, [0, 0, 1])


# Forms of input


@settings(deadline=None, max_examples=60)
@given(models())
def test_dense_list_and_stacked_tables_agree_bit_for_bit(arguments: dict[str, Any]) -> None:
    dense = CMDP.from_arrays(**arguments)
    table = arguments["transition"]
    duplicated = sparse.coo_array(stacked(table))
    duplicated = sparse.coo_array(
        (np.tile(duplicated.data / 2, 2), (np.tile(duplicated.row, 2), np.tile(duplicated.col, 2))),
        duplicated.shape,
    )
    explicit_zeros = stacked(np.where(table == 0, 7, table))
    explicit_zeros.data[table.ravel() == 0] = 0
    forms = [by_action(table), tuple(by_action(table)), stacked(table), sparse.csc_matrix(stacked(table))]
    for form in [*forms, duplicated, explicit_zeros, table.tolist()]:
        assert_same(CMDP.from_arrays(**arguments | {"transition": form}), dense)


@settings(deadline=None, max_examples=60)
@given(models(n_costs=1))
def test_rewards_per_transition_become_expectations_in_every_form(arguments: dict[str, Any]) -> None:
    table = arguments["transition"]
    rng = np.random.default_rng(table.size)
    signal = rng.normal(size=table.shape) * rng.integers(0, 2, table.shape)
    expected = np.array(
        [[np.dot(table[s, a], signal[s, a]) for a in range(table.shape[1])] for s in range(len(table))]
    )
    expected = expected[arguments["available"]]
    dense = CMDP.from_arrays(**arguments | {"reward": signal, "costs": [signal]})
    np.testing.assert_allclose(dense.reward, expected, rtol=1e-13, atol=1e-15)
    np.testing.assert_array_equal(dense.costs[:, 0], dense.reward)
    for form in (by_action(signal), stacked(signal), sparse.coo_matrix(stacked(signal))):
        assert_same(CMDP.from_arrays(**arguments | {"reward": form, "costs": [form]}), dense)
        assert_same(
            CMDP.from_arrays(**arguments | {"transition": stacked(table), "reward": form, "costs": [form]}),
            dense,
        )


def test_rewards_on_states_and_branches() -> None:
    on_states = np.array([0.25, 0.5, 1])
    assert tables(reward=on_states, costs=on_states).costs[:, 0].tolist() == [0.25, 0.25, 0.5, 0.5, 1, 1]
    assert_same(tables(reward=on_states), rows(reward=on_states))
    on_branches = np.arange(9) / 8
    assert rows(reward=on_branches).reward.tolist() == [
        1 / 16,
        2 / 8,
        3 / 8,
        4 / 8,
        0.25 * 11 / 8 + 0.5 * 7 / 8,
        1,
    ]


def test_empty_sparse_reward_is_zero() -> None:
    assert not tables(reward=sparse.csr_array((S * A, S))).reward.any()


def test_forms_of_costs() -> None:
    two = tables(costs=[COST, REWARD], limits=[1, 2])
    np.testing.assert_array_equal(two.costs, np.stack([COST.ravel(), REWARD.ravel()], axis=1))
    for costs in [
        (COST, REWARD),
        np.stack([COST, REWARD]),
        [COST.tolist(), REWARD.tolist()],
        [COST.tolist(), REWARD],
    ]:
        assert_same(tables(costs=costs, limits=[1, 2]), two)
    for costs in [(COST.ravel(), REWARD.ravel()), [COST.ravel().tolist(), REWARD.ravel().tolist()]]:
        assert_same(rows(costs=costs, limits=[1, 2]), two)
    for costs in [COST.tolist(), [COST]]:
        assert_same(tables(costs=costs), tables())
    for costs in [stacked(TABLE), [by_action(TABLE)], [stacked(TABLE)], TABLE]:
        assert_same(tables(costs=costs), tables(costs=(TABLE**2).sum(axis=2)))
    assert_same(tables(costs=[0, 1, 0]), tables(costs=np.array([0.0, 1, 0])))
    assert_same(
        tables(costs=[[0, 1, 0], [1, 1, 1]], limits=[1, 2]),
        tables(costs=[np.eye(3)[1], np.ones(3)], limits=[1, 2]),
    )


def spellings(array: np.ndarray) -> list[np.ndarray]:
    strided = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), dtype=array.dtype)
    strided[..., ::2] = array
    locked = array.copy()
    locked.setflags(write=False)
    reversed_twice = np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    return [np.asfortranarray(array), strided[..., ::2], locked, reversed_twice]


def test_strides_and_read_only_do_not_matter() -> None:
    for table, reward, cost in zip(spellings(TABLE), spellings(REWARD), spellings(COST), strict=True):
        assert_same(tables(transition=table, reward=reward, costs=cost), tables())
    every = [spellings(np.array(column)) for column in RAW.values()]
    for arguments in zip(*every, spellings(REWARD.ravel()), spellings(COST.ravel()), strict=True):
        assert_same(CMDP(*arguments, gamma=0.9, limits=2.0), tables())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble])
def test_other_floats(dtype: type) -> None:
    exact = [array.astype(dtype) for array in (TABLE, REWARD, COST)]  # all these numbers are dyadic
    assert_same(tables(transition=exact[0], reward=exact[1], costs=exact[2], limits=dtype(2)), tables())
    masked = tables(transition=exact[0], available=np.arange(6).reshape(3, 2) > 0)
    assert masked.n_choices == 5


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.bool_, np.int64])
def test_integers(dtype: type) -> None:
    table = np.round(TABLE / TABLE.max(axis=2, keepdims=True) - 0.6 * (TABLE == 0.5))
    table[2, 0] = [0, 1, 0]
    table[0, 0] = [0, 1, 0]
    given = [array.astype(dtype) for array in (table, REWARD, COST)]
    expected = [array.astype(np.float64) for array in given]
    assert_same(CMDP.from_arrays(*given, 0.9, limits=1), CMDP.from_arrays(*expected, 0.9, limits=1))
    if dtype is not np.bool_:
        assert_same(rows(state_to_choice=np.array(RAW["state_to_choice"], dtype)), rows())
        assert_same(rows(branch_target=np.array(RAW["branch_target"], dtype)), rows())


def test_input_is_neither_changed_nor_shared() -> None:
    given = {name: np.array(value) for name, value in RAW.items()}
    given |= {
        "branch_prob": np.array(RAW["branch_prob"]),
        "reward": REWARD.ravel().copy(),
        "start": np.ones(3),
    }
    given |= {"action_of_choice": np.array([0, 1] * 3, dtype=np.int32), "limits": np.array([2.0])}
    with pytest.warns(UserWarning, match="start probabilities sum to 3"):
        cmdp = rows(**given, renormalize=True)
    reference = rows()
    for array in given.values():
        assert array.flags.writeable
        array += 1
    assert_same(cmdp, reference)
    table = sparse.csr_array(stacked(TABLE).tocoo().tocsc())
    table.sort_indices()
    table.indices[:2], table.data[:2] = table.indices[1::-1].copy(), table.data[1::-1].copy()
    before = table.indices.copy(), table.data.copy()
    assert_same(tables(transition=table), reference)
    np.testing.assert_array_equal(before, (table.indices, table.data))
    table.data[:] = 0
    assert_same(tables(), reference)


def test_zero_branches_are_dropped_and_duplicates_kept() -> None:
    cmdp = CMDP(
        [0, 1, 2], [0, 4, 6], [0, 1, 1, 0, 1, 0], [0.0, 0.25, 0.25, 0.5, 1, 0], [9, 4, 8, 2, 5, 9], gamma=0.5
    )
    assert cmdp.choice_to_branch.tolist() == [0, 3, 4]
    assert cmdp.branch_target.tolist() == [1, 1, 0, 1]
    assert cmdp.branch_prob.tolist() == [0.25, 0.25, 0.5, 1]
    assert cmdp.reward.tolist() == [4, 5]
    assert cmdp.transition_matrix().toarray().tolist() == [[0.5, 0.5], [0, 1]]
    assert cmdp.transition_matrix().nnz == 3


def test_states_with_different_actions() -> None:
    available = np.array([[False, True], [True, True], [True, False]])
    table, reward = TABLE.copy(), REWARD.copy()
    table[~available], reward[~available] = np.nan, -np.inf  # what is said of other actions is not looked at
    for form in (table, stacked(table), by_action(table)):
        cmdp = tables(transition=form, reward=reward, available=available)
        assert cmdp.state_to_choice.tolist() == [0, 1, 3, 4]
        assert cmdp.action_of_choice.tolist() == [1, 0, 1, 0]
        assert cmdp.reward.tolist() == [1, 0.5, 0.25, 1]
        np.testing.assert_array_equal(cmdp.transition_matrix().toarray(), TABLE[available])
    with pytest.raises(ModelError, match=r"state 2, action 0 sum to 1\.75"):
        tables(transition=put(table, (2, 0, 0), 1), reward=reward, available=available)
    with pytest.raises(ModelError, match=r"reward of state 2, action 0, next state 1 is nan"):
        tables(reward=stacked(put(TABLE, (2, 0, 1), np.nan)), available=available)


def test_action_numbers_may_be_any_distinct_ones() -> None:
    cmdp = rows(action_of_choice=[7, 3, 0, 1, 1, 0])
    assert cmdp.n_actions == 8
    with pytest.raises(ModelError, match=r"reward of state 0, action 3 is nan"):
        rows(action_of_choice=[7, 3, 0, 1, 1, 0], reward=put(REWARD.ravel(), 1, np.nan))
    with pytest.raises(ModelError, match=r"state 0 action 4 twice"):
        CMDP([0, 3], [0, 1, 2, 3], [0] * 3, [1] * 3, [0], gamma=0.9, action_of_choice=[4, 1, 4])
    table = np.zeros((3, 8))
    table[0, 3] = table[1, 0] = table[2, 1] = 1
    assert cmdp.action_probabilities(table).tolist() == [0, 1, 1, 0, 1, 0]


def test_sparse_is_never_dense() -> None:
    n, actions, branches = 200_000, 2, 5
    rng = np.random.default_rng(0)
    targets = rng.integers(0, n, n * actions * branches, dtype=np.int32)
    offsets = np.arange(0, len(targets) + 1, branches, dtype=np.int32)
    table = sparse.csr_array((np.full(len(targets), 1 / branches), targets, offsets), shape=(n * actions, n))
    arrays = table.data.nbytes + table.indices.nbytes + table.indptr.nbytes
    parts = [table[a::actions] for a in range(actions)]
    for form in (table, parts):
        tracemalloc.start()
        cmdp = CMDP.from_arrays(form, form, [form], 0.9, limits=1)
        cmdp.transition_matrix()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * arrays, peak / arrays  # one dense row block of 1 % would be 30 times more
        assert cmdp.n_states == n


# Rows and their sums


def test_rows_within_rounding_are_divided_by_their_sums() -> None:
    cmdp = CMDP.from_arrays(np.array([[[0.1, 0.9]], [[0.7, 0.3]]], dtype=np.float32), [0, 1], gamma=0.9)
    np.testing.assert_allclose(np.add.reduceat(cmdp.branch_prob, [0, 2]), 1, rtol=1e-15)


def test_tolerance_depends_on_dtype_and_row_length() -> None:
    off = np.array([[[0.5, 0.5 + 1e-6]], [[1, 0]]])
    CMDP.from_arrays(off.astype(np.float32), [0, 1], gamma=0.9)
    CMDP.from_arrays(sparse.csr_array(off[:, 0].astype(np.float32)), [0, 1], gamma=0.9)
    with pytest.raises(ModelError, match=r"state 0, action 0 sum to 1\.000001"):
        CMDP.from_arrays(off, [0, 1], gamma=0.9)
    short, long = (np.full(n, (1 + 3e-14) / n) for n in (2, 1000))
    with pytest.raises(ModelError, match="sum to"):
        CMDP([0, 1], [0, 2], [0, 0], short * (1 + 1e-13), [0], gamma=0.9)
    CMDP([0, 1], [0, 1000], np.zeros(1000, int), long * (1 + 1e-13), [0], gamma=0.9)


def test_long_float32_rows() -> None:
    prob = np.random.default_rng(0).random(100_000, dtype=np.float32)
    prob /= prob.sum()
    CMDP([0, 1], [0, len(prob)], np.zeros(len(prob), int), prob, [0], gamma=0.9)


def test_renormalize_takes_any_positive_sum() -> None:
    factors = np.array([[1e-3, 2], [3, 1e9], [0.1, 1]])[:, :, None]
    with pytest.warns(UserWarning, match="divided by their sums"):
        cmdp = tables(transition=TABLE * factors, renormalize=True, start=[1, 1, 2])
    np.testing.assert_allclose(cmdp.branch_prob, RAW["branch_prob"], rtol=1e-15)
    assert cmdp.start.tolist() == [0.25, 0.25, 0.5]
    for bad, message in ((0, "sum to 0"), (-1, "must not be negative"), (np.inf, "is inf")):
        with pytest.raises(ModelError, match=message):
            tables(transition=put(TABLE, (1, 0, 0), bad), renormalize=True)


def test_what_was_off_by_more_than_rounding_is_told() -> None:
    table = TABLE.astype(float)
    table[1, 0] *= 0.95
    with pytest.warns(
        UserWarning,
        match=r"1 of 6 rows .* miss 1 by up to 5\.0e-02.* \(.*state 1, action 0 sum to 0\.95\); they",
    ) as told:
        tables(transition=table, renormalize=True)
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tables(transition=TABLE * (1 + 1e-13), renormalize=True)


def test_tables_of_matlab_are_named_and_not_divided_by_sums() -> None:
    """As many states as actions: P(s, s', a) has the shape, and renormalize=True would make another model of it."""
    rng = np.random.default_rng(1)
    table = rng.dirichlet(np.ones(3), (3, 3))  # (S, A, S)
    right = CMDP.from_arrays(table, np.eye(3), gamma=0.9)
    matlab = np.swapaxes(table, 1, 2)
    for renormalize in (False, True):
        with pytest.raises(ModelError, match=r"P\(state, next state, action\).*np\.swapaxes\(x, 1, 2\)"):
            CMDP.from_arrays(matlab, np.eye(3), gamma=0.9, renormalize=renormalize)
    assert_same(CMDP.from_arrays(np.swapaxes(matlab, 1, 2), np.eye(3), gamma=0.9), right)
    with pytest.raises(ModelError, match=r"renormalize=True divides"):  # where no reading fits
        CMDP.from_arrays(table * 0.9, np.eye(3), gamma=0.9)
    with pytest.raises(ModelError, match=r"np\.swapaxes\(x, 1, 2\) that of \(S, S, A\)"):
        CMDP.from_arrays(matlab[:, :, :2], np.eye(3)[:, :2], gamma=0.9)


@pytest.mark.filterwarnings("ignore:.*divided by their sums")
@settings(deadline=None, max_examples=200)
@given(hnp.arrays(np.float64, st.integers(1, 300), elements=st.floats(1e-9, 1)))
def test_a_model_built_from_its_own_rows_has_the_same_bits(weights: np.ndarray) -> None:
    shape = [0, 1], [0, len(weights)], np.zeros(len(weights), int)
    first = CMDP(*shape, weights, [0], gamma=0.5, renormalize=True)
    assert_same(CMDP(*shape, first.branch_prob, [0], gamma=0.5), first)
    np.testing.assert_allclose(first.branch_prob, weights / weights.sum(), rtol=1e-14)


# Kernel units and back


@settings(deadline=None, max_examples=100)
@given(models())
def test_values_duals_and_slack_go_there_and_back(arguments: dict[str, Any]) -> None:
    cmdp = CMDP.from_arrays(**arguments)
    m = cmdp.n_constraints
    assert cmdp.signals[:, 0].min() >= 0
    assert cmdp.signals[:, 0].max() <= 1
    assert np.abs(cmdp.signals[:, 1:]).max(initial=0) <= 1
    pi = cmdp.action_probabilities(arguments["available"] / arguments["available"].sum(axis=1, keepdims=True))
    kernel = value_of(cmdp, pi, cmdp.signals)
    direct = value_of(cmdp, pi, np.column_stack([cmdp.reward, cmdp.costs]))
    size = np.abs(
        np.concatenate([arguments["reward"].ravel(), *map(np.ravel, arguments["costs"]), cmdp.limits])
    ).max()
    # The sums are at most size / (1 - gamma); the solve and the shifts lose a few digits of that.
    tolerance = 1e-12 * size / (1 - cmdp.gamma)
    user = cmdp.to_user_values(kernel)
    np.testing.assert_allclose(user, direct, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(cmdp.to_user_values(np.stack([kernel] * 2)), np.stack([user] * 2))

    # The scaled constraint is met exactly where the user's is.
    slack = cmdp.slack(user)
    for i, sense in enumerate(cmdp.sense):
        gap = cmdp.limits[i] - direct[1 + i]
        np.testing.assert_allclose(slack[i], gap if sense == "<=" else -gap, rtol=0, atol=tolerance)
    np.testing.assert_allclose(slack, cmdp.constraint_scale * kernel[1:], rtol=0, atol=tolerance)

    # The Lagrangian is the same function in both units, up to the scale and shift of the reward.
    duals = np.arange(1.0, 1 + m)
    lagrangian = cmdp.reward_scale * (kernel[0] + cmdp.from_user_duals(duals) @ kernel[1:])
    expected = user[0] + duals @ slack
    shift = cmdp.reward_shift / (1 - cmdp.gamma)
    np.testing.assert_allclose(lagrangian + shift, expected, rtol=0, atol=20 * tolerance)
    np.testing.assert_allclose(cmdp.to_user_duals(cmdp.from_user_duals(duals)), duals, rtol=1e-14)


def test_values_in_range_are_left_alone() -> None:
    cmdp = tables(limits=2)
    np.testing.assert_array_equal(cmdp.signals[:, 0], REWARD.ravel())
    np.testing.assert_allclose(cmdp.signals[:, 1], 0.2 - COST.ravel(), rtol=1e-15)
    assert (cmdp.reward_shift, cmdp.reward_scale, cmdp.constraint_scale.tolist()) == (0, 1, [1])
    np.testing.assert_allclose(tables(limits=2, sense=">=").signals[:, 1], COST.ravel() - 0.2, rtol=1e-15)


def test_values_out_of_range_are_scaled() -> None:
    cmdp = tables(reward=10 * REWARD - 4, costs=8 * COST, limits=20)
    assert (cmdp.reward_shift, cmdp.reward_scale) == (-4, 10)
    np.testing.assert_allclose(cmdp.signals[:, 0], REWARD.ravel(), rtol=1e-15)
    np.testing.assert_allclose(cmdp.signals[:, 1], (2 - 8 * COST.ravel()) / 6, rtol=1e-14)
    np.testing.assert_allclose(cmdp.constraint_scale, 6, rtol=1e-14)
    np.testing.assert_allclose(cmdp.to_user_duals([3.0]), 3 * 10 / 6, rtol=1e-14)


@pytest.mark.parametrize("constant", [0.0, 0.3, 1.0, 5.0, -2.0])
def test_constant_reward(constant: float) -> None:
    thirds = np.full((3, 2, 3), 1 / 3)
    for table, reward in ((TABLE, np.full((S, A), constant)), (thirds, np.full(thirds.shape, constant))):
        cmdp = tables(transition=table, reward=reward)
        shift = 0.0 if 0 <= constant <= 1 else constant
        assert (cmdp.reward_shift, cmdp.reward_scale) == (shift, 1)
        assert set(cmdp.signals[:, 0]) == {constant - shift}
        np.testing.assert_allclose(
            cmdp.to_user_values([10 * (constant - shift), 0])[0], 10 * constant, rtol=1e-14
        )


def test_expectation_of_a_constant_is_that_constant() -> None:
    table = np.random.default_rng(0).dirichlet(np.ones(7), size=(7, 5))
    assert np.ptp(table.sum(axis=2)) > 0  # so the plain sums would not do
    for constant in (1.0, -0.1):
        cmdp = CMDP.from_arrays(table, np.full(table.shape, constant), gamma=0.9)
        assert set(cmdp.reward) == {constant}


def test_reward_constant_to_rounding_is_not_blown_up() -> None:
    cmdp = tables(reward=5 + 4e-16 * np.arange(6).reshape(3, 2))
    assert cmdp.reward.min() < cmdp.reward.max()
    assert cmdp.reward_scale == 1


def test_with_limits() -> None:
    cmdp = tables(costs=[COST, 9 * REWARD], limits=[2, 3], sense=["<=", ">="])
    cmdp.transition_matrix()
    other = cmdp.with_limits([1, 500])
    assert_same(other, tables(costs=[COST, 9 * REWARD], limits=[1, 500], sense=["<=", ">="]))
    assert cmdp.limits.tolist() == [2, 3]
    for name in ("branch_prob", "costs", "start"):
        assert getattr(other, name) is getattr(cmdp, name)
    assert other.transition_matrix() is cmdp.transition_matrix()
    with pytest.raises(ModelError, match=r"limits are of shape \(1,\) for 2 cost"):
        cmdp.with_limits(1)
    with pytest.raises(ModelError, match=r"limits\[1\] is nan"):
        cmdp.with_limits([1, np.nan])


# Small and special models


def test_one_state_one_action() -> None:
    for cmdp in (
        CMDP([0, 1], [0, 1], [0], [1], [0.5], [0.25], gamma=0.5, limits=1),
        CMDP.from_arrays([[[1]]], [[0.5]], [[0.25]], 0.5, limits=1),
        CMDP.from_arrays(sparse.csr_array([[1]]), [0.5], [0.25], 0.5, limits=1, start=0),
    ):
        assert (cmdp.n_states, cmdp.n_choices, cmdp.n_branches, cmdp.n_constraints) == (1, 1, 1, 1)
        assert cmdp.signals.tolist() == [[0.5, 0.25]]
        assert cmdp.action_probabilities([1]).tolist() == cmdp.action_probabilities([[1]]).tolist() == [1]


def test_one_action_everywhere_and_absorbing_states() -> None:
    for table in (np.eye(3)[:, None], sparse.eye(3), [sparse.eye(3)]):
        cmdp = CMDP.from_arrays(table, [0, 1, 2], gamma=0.5)
        assert cmdp.n_choices == cmdp.n_branches == 3
        assert cmdp.branch_target.tolist() == [0, 1, 2]
        np.testing.assert_array_equal(value_of(cmdp, np.ones(3), cmdp.reward[:, None]), [2])


def test_no_constraint() -> None:
    for costs, limits in ((None, None), ([], []), ((), None)):
        cmdp = tables(costs=costs, limits=limits)
        assert cmdp.n_constraints == 0
        assert cmdp.costs.shape == (6, 0)
        assert cmdp.signals.shape == (6, 1)
        assert cmdp.sense == ()
        assert cmdp.to_user_values([1.0]).tolist() == [1]
        assert cmdp.slack([[1.0]] * 2).shape == (2, 0)
        assert cmdp.to_user_duals(np.empty((5, 0))).shape == (5, 0)
        assert repr(cmdp).endswith("maximise reward)")
        assert_same(cmdp.with_limits(None), cmdp)


def test_three_constraints() -> None:
    cmdp = tables(costs=[COST, 4 * COST, REWARD], limits=[1, 2, 3], sense=("<=", "<=", ">="))
    assert cmdp.costs.shape == (6, 3)
    assert cmdp.signals.shape == (6, 4)
    np.testing.assert_allclose(cmdp.slack([0, 1, 1, 1]), [0, 1, -2])


# Policies


def test_action_probabilities() -> None:
    cmdp = tables(available=np.array([[True, True], [True, True], [False, True]]))
    table = np.array([[0.25, 0.75], [1, 0], [0, 1]])
    expected = [0.25, 0.75, 1, 0, 1]
    for policy in (table, table.astype(np.float32), np.asfortranarray(table), table.tolist(), expected):
        assert cmdp.action_probabilities(policy).tolist() == expected
    thirds = np.array([[1 / 3, 2 / 3], [0.1, 0.9], [0, 1]], dtype=np.float32)
    np.testing.assert_allclose(np.add.reduceat(cmdp.action_probabilities(thirds), [0, 2, 4]), 1, rtol=1e-15)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.eye(3, 2) + 0.6, r"policy's probabilities of state 0 sum to 2\.2; they must sum to 1$"),
        ([0.5, 0.5, 1.5, -0.5, 1], r"policy's probability of state 1, action 1 is -0\.5"),
        (put(np.full((3, 2), 0.5), (1, 1), np.nan), r"policy's probability of state 1, action 1 is nan"),
        (np.full((3, 2), 0.5), r"policy's probabilities of state 2 sum to 0\.5"),  # it has only action 1
        (np.full((2, 3), 1 / 3), r"policy has shape \(2, 3\); it must be \(5,\).* or \(3, 2\)"),
        ([1, 0, 1], r"policy has shape \(3,\)"),
        ("greedy", r"policy has dtype <U6"),
    ],
)
def test_bad_policies(policy: Any, message: str) -> None:
    cmdp = tables(available=np.array([[True, True], [True, True], [False, True]]))
    with pytest.raises(ModelError, match=message):
        cmdp.action_probabilities(policy)


# Bad input: what, where, the value, and what would do

BAD_TABLES = {
    "row sum": (
        {"transition": put(TABLE, (1, 0, 0), 0.9)},
        r"probabilities of state 1, action 0 sum to 0\.9.*; .*renorm",
    ),
    "worst row": (
        {"transition": put(TABLE * [[[1]], [[1.1]], [[1]]], (2, 1, 2), 3)},
        r"state 2, action 1 sum to 3",
    ),
    "zero row": ({"transition": put(TABLE, (1, 0, 0), 0)}, r"state 1, action 0 sum to 0; .*available"),
    "negative": (
        {"transition": put(TABLE, (0, 0, 1), -0.5)},
        r"state 0, action 0, branch 1 \(to state 1\) is -0\.5",
    ),
    "nan": (
        {"transition": put(TABLE, (2, 1, 0), np.nan)},
        r"state 2, action 1, branch 0 \(to state 0\) is nan",
    ),
    "inf": (
        {"transition": put(TABLE, (2, 1, 0), np.inf)},
        r"probability of state 2, action 1, branch 0 .* is inf",
    ),
    "finite first": (
        {"transition": put(TABLE * 2, (2, 1, 0), np.nan)},
        r"state 2, action 1, branch 0 .* is nan",
    ),
    "sparse nan": (
        {"transition": stacked(put(TABLE, (1, 1, 0), np.nan))},
        r"state 1, action 1, branch 0 .* is nan",
    ),
    "listed sum": ({"transition": by_action(put(TABLE, (1, 0, 0), 0.9))}, r"state 1, action 0 sum to 0\.9"),
    "reward nan": ({"reward": put(REWARD, (1, 1), np.nan)}, r"reward of state 1, action 1 is nan"),
    "reward inf": ({"reward": put(REWARD, (2, 0), -np.inf)}, r"reward of state 2, action 0 is -inf"),
    "reward huge": ({"reward": put(REWARD, (2, 0), 1e200)}, r"reward of state 2, action 0 is 1e\+200"),
    "reward of a state": ({"reward": [0, 1, np.nan]}, r"reward of state 2 is nan"),
    "reward of a transition": (
        {"reward": put(TABLE, (1, 0, 2), np.nan)},
        r"reward of state 1, action 0, next state 2",
    ),
    "sparse reward": (
        {"reward": stacked(put(TABLE, (1, 0, 2), np.inf))},
        r"state 1, action 0, next state 2 is inf",
    ),
    "cost nan": ({"costs": put(COST, (0, 1), np.nan)}, r"cost 0 of state 0, action 1 is nan"),
    "second cost": (
        {"costs": [COST, put(COST, (0, 1), np.inf)], "limits": [1, 1]},
        r"cost 1 of state 0, action 1 is inf",
    ),
    "no actions": ({"available": np.array([[1, 1], [0, 0], [1, 0]], bool)}, r"state 1 has no action"),
    "A first": ({"transition": np.swapaxes(TABLE, 0, 1)}, r"transition has shape \(2, 3, 3\).*swapaxes"),
    "flat": ({"transition": TABLE.reshape(6, 3)}, r"transition has shape \(6, 3\).*\(S, A, S\)"),
    "one action": ({"transition": np.eye(3)}, r"transition has shape \(3, 3\)"),
    "empty": ({"transition": np.empty((0, 2, 0))}, r"transition has shape \(0, 2, 0\)"),
    "ragged": ({"transition": [[[1, 0], [1]]]}, r"transition cannot be read"),
    "complex": ({"transition": TABLE * 1j}, r"transition has dtype complex128"),
    "sparse complex": ({"transition": stacked(TABLE * 1j)}, r"transition has dtype complex128"),
    "text": ({"reward": [["a", "b"]]}, r"reward has dtype <U1"),
    "sparse shape": ({"transition": sparse.csr_array((7, 3))}, r"sparse transition has shape \(7, 3\).*S\*A"),
    "list shapes": (
        {"transition": [sparse.eye(3), sparse.eye(4)]},
        r"all parts must be sparse \(S, S\)",
    ),
    "list mixed": ({"transition": [sparse.eye(3), np.eye(3)]}, r"all parts must be sparse \(S, S\)"),
    "many states": ({"transition": sparse.coo_array((2**31, 2**31))}, r"2147483648 states; .* 2147483647"),
    "reward shape": (
        {"reward": REWARD.T},
        r"reward has shape \(2, 3\); for 3 states and 2 actions it must be \(3, 2\)",
    ),
    "reward rows": ({"reward": sparse.csr_array((3, 3))}, r"reward has sparse rows \(3, 3\).*\(6, 3\)"),
    "cost shape": ({"costs": [COST, COST[1:]], "limits": [1, 1]}, r"cost 1 has shape \(2, 2\)"),
    "available shape": ({"available": np.ones((2, 3), bool)}, r"available has shape \(2, 3\)"),
    "available dtype": ({"available": np.ones((3, 2))}, r"available has .*float64"),
    "no limits": ({"limits": None}, r"limits are missing for 1 cost"),
    "two limits": ({"limits": [1, 2]}, r"limits are of shape \(2,\) for 1 cost"),
    "no costs": ({"costs": None}, r"limits are of shape \(1,\) for 0 cost"),
    "limit nan": ({"limits": np.nan}, r"limits\[0\] is nan"),
    "limit text": ({"limits": "low"}, r"limits has dtype"),
    "sense": ({"sense": "<"}, r"sense is '<'"),
    "sense, no costs": ({"costs": None, "limits": None, "sense": "=="}, r"sense is '=='"),
    "senses": ({"sense": ["<=", ">="]}, r"sense is .*, or 1 of them"),
    "names": ({"names": ["reward"]}, r"names is \['reward'\]; it must be 2 different"),
    "names twice": ({"names": ["x", "x"]}, r"must be 2 different"),
    "start sum": ({"start": [0.5, 0.25, 0.5]}, r"start probabilities sum to 1\.25; .*renormalize"),
    "start zero": ({"start": [0, 0, 0], "renormalize": True}, r"start probabilities sum to 0"),
    "start negative": ({"start": [1.5, -0.5, 0]}, r"start probability of state 1 is -0\.5"),
    "start nan": ({"start": [1, np.nan, 0]}, r"start probability of state 1 is nan"),
    "start length": ({"start": [0.5, 0.5]}, r"start has shape \(2,\); it must be \(3,\)"),
    "start state": ({"start": 3}, r"start is 3; it must be in 0\.\.2"),
    "start below": ({"start": -1}, r"start is -1"),
    "start float": ({"start": 1.0}, r"start has dtype float64; it must hold integers"),
}
BAD_TABLES |= {
    f"gamma {gamma!r}": ({"gamma": gamma}, r"gamma is .*strictly between 0 and 1")
    for gamma in (0, -0.1, 1.5, np.nan, np.inf, None, True)
}
BAD_TABLES |= {
    "gamma 1 without an end": ({"gamma": 1}, "gamma = 1 needs an end: a state that all of its actions keep"),
    "gamma '0.9'": ({"gamma": "0.9"}, r"gamma is '0\.9': .*valid: average, episodes; or a number"),
}
BAD_ROWS = {
    "no actions": ({"state_to_choice": [0, 2, 2, 6]}, r"state 1 has no action"),
    "no states": ({"state_to_choice": [0]}, r"has 0 states"),
    "many states": ({"state_to_choice": np.broadcast_to(np.int64(0), 2**31 + 1)}, r"2147483648 states"),
    "start of choices": ({"state_to_choice": [1, 2, 4, 6]}, r"state_to_choice\[0\] is 1"),
    "falling choices": ({"state_to_choice": [0, 4, 2, 6]}, r"state_to_choice falls from 4 to 2 at entry 2"),
    "two-dimensional": ({"state_to_choice": [[0, 2], [4, 6]]}, r"state_to_choice has shape \(2, 2\)"),
    "float offsets": ({"state_to_choice": [0.0, 2, 4, 6]}, r"state_to_choice has dtype float64.*astype"),
    "branch offsets": (
        {"choice_to_branch": [0, 2, 3, 4, 5, 9]},
        r"choice_to_branch has shape \(6,\); it must be \(7,\)",
    ),
    "falling branches": (
        {"choice_to_branch": [0, 2, 1, 4, 5, 8, 9]},
        r"choice_to_branch falls from 2 to 1 at entry 2",
    ),
    "too few branches": (
        {"choice_to_branch": [0, 2, 3, 4, 5, 8, 8]},
        r"branch_target has shape \(9,\); it must be \(8,\)",
    ),
    "no branch": ({"choice_to_branch": [0, 2, 2, 4, 5, 8, 9]}, r"state 0, action 1 sum to 0"),
    "no branch at the end": (
        {"choice_to_branch": [0, 2, 3, 4, 5, 9, 9]},
        r"state 2, action 1 sum to 0",
    ),
    "target too great": (
        {"branch_target": put(RAW["branch_target"], 6, 3).astype(int)},
        r"state 2, action 0, branch 1 .* is 3",
    ),
    "target negative": (
        {"branch_target": put(RAW["branch_target"], 0, -1).astype(int)},
        r"state 0, action 0, branch 0 .* is -1",
    ),
    "target float": ({"branch_target": put(RAW["branch_target"], 0, 0)}, r"branch_target has dtype float64"),
    "probabilities": ({"branch_prob": [1.0] * 8}, r"branch_prob has shape \(8,\); it must be \(9,\)"),
    "row sum": ({"branch_prob": put(RAW["branch_prob"], 4, 0.75)}, r"state 1, action 1 sum to 0\.75"),
    "action named": (
        {"branch_prob": put(RAW["branch_prob"], 4, 0.75), "action_of_choice": [0, 1, 5, 4, 0, 1]},
        r"state 1, action 4 sum to 0\.75",
    ),
    "reward length": (
        {"reward": [0, 1]},
        r"reward has shape \(2,\); .*choice \(6\), state \(3\) or branch \(9\)",
    ),
    "reward of a branch": (
        {"reward": put(np.zeros(9), 6, np.nan)},
        r"reward of state 2, action 0, branch 1 \(to state 1\)",
    ),
    "cost table": ({"costs": COST}, r"cost 0 has shape \(3, 2\)"),
    "action twice": ({"action_of_choice": [0, 1, 2, 2, 0, 1]}, r"state 1 action 2 twice"),
    "action negative": ({"action_of_choice": [0, 1, 0, -1, 0, 1]}, r"action_of_choice\[3\] is -1"),
    "actions": ({"action_of_choice": [0, 1]}, r"action_of_choice has shape \(2,\); it must be \(6,\)"),
}


@pytest.mark.parametrize(("changes", "message"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_bad_tables(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        tables(**changes)


@pytest.mark.parametrize(("changes", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        rows(**changes)


def test_ambiguous_costs() -> None:
    table = np.full((2, 2, 2), 0.5)
    with pytest.raises(ModelError, match=r"costs has shape \(2, 2, 2\).*\[costs\].*list\(costs\)"):
        CMDP.from_arrays(table, [0, 1], table, 0.9, limits=[1, 1])
    assert CMDP.from_arrays(table, [0, 1], [table], 0.9, limits=1).n_constraints == 1
    assert CMDP.from_arrays(table, [0, 1], list(table), 0.9, limits=[1, 1]).n_constraints == 2
    square = [[0.0, 1], [0.5, 0.25]]  # (S, A) before (m, S)
    assert CMDP.from_arrays(table, [0, 1], square, 0.9, limits=1).costs.ravel().tolist() == [0, 1, 0.5, 0.25]


def test_values_of_the_wrong_length() -> None:
    for call in (tables().to_user_values, tables().slack):
        with pytest.raises(ModelError, match=r"values has shape \(3,\); its last axis must have 2"):
            call([1.0, 2, 3])
    with pytest.raises(ModelError, match=r"duals has shape \(\)"):
        tables().to_user_duals(1.0)


def test_probabilities_negative_by_rounding_are_zeros() -> None:
    rest = 1 - 0.9 - 0.1
    assert rest < 0
    rows = np.array([[[0.9, 0.1 + rest, 0.0]], [[rest, 0.1, 0.9]], [[0.0, rest, 1.0]]])
    cmdp = CMDP.from_arrays(rows, np.zeros((3, 1)), gamma=0.9)
    assert cmdp.branch_prob.tolist() == [0.9, 0.1 + rest, 0.1, 0.9, 1.0]
    assert cmdp.branch_target.tolist() == [0, 1, 1, 2, 2]
    policy = cmdp.action_probabilities([1.0, 1.0, 1.0])
    assert policy.tolist() == [1.0, 1.0, 1.0]
    two = CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [0, 1], gamma=0.5)
    assert two.action_probabilities([1.0, rest]).tolist() == [1.0, 0.0]
    assert CMDP(
        [0, 1, 2], [0, 1, 2], [0, 1], [1, 1], [0, 1], gamma=0.5, start=[1.0, rest]
    ).start.tolist() == [1, 0]
    with pytest.raises(ModelError, match="must not be negative"):
        CMDP.from_arrays(rows - 1e-14, np.zeros((3, 1)), gamma=0.9)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("form", ["table", "rows", "policy", "start"])
def test_rows_are_judged_by_the_rounding_of_their_type(dtype, form) -> None:
    rng = np.random.default_rng(0)
    n = 40
    rows = rng.random((n, n))
    rows = (rows / rows.sum(axis=1, keepdims=True)).astype(dtype)
    if dtype != np.float64:
        assert abs(rows.astype(float).sum(axis=1) - 1).max() > 1e-9

    def build(rows):
        if form == "table":
            return CMDP.from_arrays(rows[:, None, :], np.zeros((n, 1)), gamma=0.9)
        if form == "rows":
            offsets = np.arange(0, n * n + 1, n)
            return CMDP(
                np.arange(n + 1), offsets, np.tile(np.arange(n), n), rows.reshape(-1), np.zeros(n), gamma=0.9
            )
        one = CMDP([0, n], np.arange(n + 1), np.zeros(n, int), np.ones(n), np.zeros(n), gamma=0.9)
        if form == "policy":
            return one.action_probabilities(rows[0])
        chain = CMDP(
            np.arange(n + 1),
            np.arange(n + 1),
            np.arange(n),
            np.ones(n),
            np.zeros(n),
            gamma=0.9,
            start=rows[0],
        )
        return chain

    build(rows)
    with pytest.raises(ModelError, match="sum to"):
        build(rows * dtype(0.97 if dtype == np.float16 else 0.9999))


@pytest.mark.parametrize("form", ["pairs", "states", "transitions"])
def test_minus_infinity_is_answered_with_the_mask(form) -> None:
    reward = {
        "pairs": np.array([[0.0, 1.0], [-np.inf, 1.0]]),
        "states": np.array([0.0, -np.inf]),
        "transitions": np.full((2, 2, 2), -np.inf),
    }[form]
    stay = np.tile(np.eye(2)[:, None], (1, 2, 1))
    with pytest.raises(ModelError, match=r"is -inf; .*available=np\.isfinite\(R\)"):
        CMDP.from_arrays(stay, reward, gamma=0.9)
    with pytest.raises(ModelError) as told:
        CMDP.from_arrays(stay, np.full((2, 2), np.nan), gamma=0.9)
    assert "available" not in str(told.value)
    masked = CMDP.from_arrays(
        stay, [[0.0, 1.0], [-np.inf, 1.0]], gamma=0.9, available=[[True, True], [False, True]]
    )
    assert masked.n_choices == 3


def test_a_penalty_that_drowns_all_else_is_remarked_on() -> None:
    stay = np.tile(np.eye(2)[:, None], (1, 2, 1))
    with pytest.warns(
        UserWarning, match=r"reward of state 1, action 0 is -1e\+09, .* between 0 and 1: .*available="
    ):
        CMDP.from_arrays(stay, [[0.0, 1.0], [-1e9, 0.5]], gamma=0.9)
    with pytest.warns(UserWarning, match=r"is -1e\+09"):
        CMDP.from_arrays(stay, [[-1e8, 1.0], [-1e9, 0.5]], gamma=0.9)
    for reward in (
        [[0, 1], [-1e9, 1e9]],
        [[-1e9, -5e8], [-2e8, -1e8]],
        [[-100, -1], [-10, 20]],
        [[-1e9, 1], [1, 1]],
    ):
        CMDP.from_arrays(stay, np.array(reward, float), gamma=0.9)


def test_names_with_control_characters_are_shown_escaped() -> None:
    cmdp = CMDP([0, 1], [0, 1], [0], [1], [1], [1], gamma=0.5, limits=1, names=["r\x1b[2J", "c\n\u202e\x9b"])
    assert cmdp.names == (r"r\x1b[2J", r"c\n\u202e\x9b")
    assert repr(cmdp).isprintable()
    again = CMDP([0, 1], [0, 1], [0], [1], [1], [1], gamma=0.5, limits=1, names=cmdp.names)
    assert again.names == cmdp.names


def test_states_may_have_variables() -> None:
    rows = [0, 1, 2], [0, 1, 2], [0, 1], [1, 1], [0, 0]
    cmdp = CMDP(*rows, gamma=0.5, variables={"x": [3, -4], "done": [False, True], "t\x1b": [0.5, 1e-3]})
    assert [cmdp.state_name(s) for s in range(2)] == [r"x=3, !done, t\x1b=0.5", r"x=-4, done, t\x1b=0.001"]
    for twin in (pickle.loads(pickle.dumps(cmdp)), copy.deepcopy(cmdp), cmdp.with_limits(None)):
        assert {name: values.tolist() for name, values in twin.variables.items()} == {
            "x": [3, -4],
            "done": [False, True],
            "t\x1b": [0.5, 0.001],
        }
        assert not any(values.flags.writeable for values in twin.variables.values())
    assert cmdp.fingerprint() == CMDP(*rows, gamma=0.5).fingerprint()
    for bad in ([1, 2, 3], ["a", "b"], [[1, 2]], [1 + 2j, 0]):
        with pytest.raises(ModelError, match="variable 'x' has shape"):
            CMDP(*rows, gamma=0.5, variables={"x": bad})


def test_shorthands_of_the_discount_and_the_widest_state() -> None:
    cmdp = CMDP([0, 1, 3], [0, 1, 2, 3], [0, 0, 1], [1, 1, 1], [0, 0, 1], gamma=0.9)
    assert (cmdp.unit, cmdp.horizon, cmdp.widest) == (1 - 0.9, 1 / (1 - 0.9), 2)


def test_a_cost_more_has_a_name_of_its_own() -> None:
    cmdp = CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], [[1.0, 0.0]], gamma=0.5, limits=[9.0])
    assert cmdp.with_costs([1.0, 2.0], 3.0).names == ("reward", "cost", "cost 1")
    assert cmdp.with_costs([1.0, 2.0], 3.0, name="energy").names == ("reward", "cost", "energy")
    with pytest.raises(ModelError, match=r"different strings.*\(2 given\)"):
        cmdp.with_costs([1.0, 2.0], 3.0, name="cost")
