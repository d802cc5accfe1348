"""Compressed rows and the probabilities in them, checked: offsets, numbers of states and actions, sums.

Rounding in the type of the input lets the sum of n probabilities stray from 1 by about eps sqrt(n), and a
probability of zero end up as a few eps below: both are mended, what is further off is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcmdp.errors import ModelError
from fastcmdp.units import EPS, FORBIDDEN, FloatArray, check_finite, numbers_in

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

MAX_STATES = 2**31 - 1  # states are int32 in branch_target
MOST_OFF = 0.01  # by which rounding may take a sum from 1, whatever the type and the length of a row
_NEGLIGIBLE = 8  # times eps: what 1 - 0.9 - 0.1 and its like may be off
_WORTH_A_WORD = 1e-9  # by which sums may miss 1 before it is said that rows are divided by them
_PENALTY = 1e4  # a reward so many times below the size of all above it drowns these


def precision(dtype: np.dtype[Any]) -> float:
    """Relative rounding of numbers of a type, at least that of doubles."""
    return max(EPS, float(np.finfo(dtype).eps)) if dtype.kind == "f" else EPS


def sum_tolerance(lengths: npt.NDArray[Any], eps: float) -> FloatArray:
    """By how much the sums of rows of so many probabilities may miss 1."""
    tolerance: FloatArray = np.minimum(64 * eps * np.sqrt(lengths), MOST_OFF)
    return tolerance


def rounded_up(prob: FloatArray, eps: float) -> FloatArray:
    """Probabilities that are negative by rounding alone as zeros, in place."""
    prob[(prob < 0.0) & (prob >= -_NEGLIGIBLE * eps)] = 0.0
    return prob


def integers(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    array = numbers_in(values, what)
    if array.dtype.kind not in "iu":
        raise ModelError(
            f"{what} has dtype {array.dtype}; it must hold integers: cast it with .astype(np.int64)"
        )
    return array


def one_each(array: npt.NDArray[Any], what: str, size: int, items: str) -> npt.NDArray[Any]:
    if array.shape != (size,):
        raise ModelError(
            f"{what} has shape {array.shape}; it must be ({size},), one entry for each of {size} {items}"
        )
    return array


def check_range(values: npt.NDArray[Any], end: int, place: Callable[[int], str]) -> None:
    good = (values >= 0) & (values < end)
    if not good.all():
        i = int(np.argmin(good))
        raise ModelError(f"{place(i)} is {values[i]}; it must be in 0..{end - 1}")


def check_states(n_states: int) -> None:
    if not 1 <= n_states <= MAX_STATES:
        raise ModelError(f"the model has {n_states} states; it must have between 1 and {MAX_STATES}")


def cumulated(counts: npt.NDArray[Any]) -> IntArray:
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def row_offsets(values: npt.ArrayLike, what: str, rows: int) -> IntArray:
    """Check that values are the offsets of so many compressed rows; as a new int64 array."""
    array = integers(values, what)
    if array.shape != (rows + 1,):
        raise ModelError(f"{what} has shape {array.shape}; it must be ({rows + 1},), one more than rows")
    offsets = np.array(array, dtype=np.int64)
    if offsets[0] != 0:
        raise ModelError(f"{what}[0] is {offsets[0]}; it must be 0")
    falls = np.flatnonzero(np.diff(offsets) < 0)
    if falls.size:
        i = int(falls[0])
        raise ModelError(
            f"{what} falls from {offsets[i]} to {offsets[i + 1]} at entry {i + 1}; it must not decrease"
        )
    return offsets


def state_offsets(values: npt.ArrayLike) -> IntArray:
    array = integers(values, "state_to_choice")
    check_states(array.size - 1)
    offsets = row_offsets(array, "state_to_choice", array.size - 1)
    empty = np.flatnonzero(np.diff(offsets) == 0)
    if empty.size:
        raise ModelError(
            f"state {empty[0]} has no action ({empty.size} such in all); every state needs one: give an "
            "absorbing state an action that leads back to it"
        )
    return offsets


def probabilities(values: npt.NDArray[Any], place: Callable[[int], str]) -> FloatArray:
    prob = rounded_up(np.array(values, dtype=np.float64), precision(values.dtype))
    check_finite(prob, place)
    if prob.size and prob.min() < 0.0:
        i = int(np.argmin(prob))
        raise ModelError(f"{place(i)} is {prob[i]}; it must not be negative")
    return prob


def normalised(
    prob: FloatArray,
    offsets: IntArray,
    dtype: np.dtype[Any],
    renormalize: bool | None,
    place: Callable[[int], str],
) -> FloatArray:
    """Check that the (non-empty) rows of prob sum to 1 and divide them, in place, by their sums.

    renormalize takes any positive sum; None means that this is not on offer.
    """
    lengths = np.diff(offsets)
    sums = np.add.reduceat(prob, offsets[:-1])
    wrong = np.abs(sums - 1.0) / sum_tolerance(lengths, precision(dtype))
    if renormalize:
        wrong[sums > 0.0] = 0.0
    worst = int(np.argmax(wrong))
    if wrong[worst] > 1.0:
        remedy = "" if renormalize is not False else "; renormalize=True divides every row by its sum"
        raise ModelError(f"{place(worst)} sum to {sums[worst]}; they must sum to 1{remedy}")
    off = np.abs(sums - 1.0)
    far = np.flatnonzero((off > sum_tolerance(lengths, precision(dtype))) & (off > _WORTH_A_WORD))
    if far.size:
        worst = int(far[off[far].argmax()])
        warnings.warn(
            f"{far.size} of {len(sums)} rows of probabilities miss 1 by up to {off[worst]:.1e}, which rounding does "
            f"not explain ({place(worst)} sum to {sums[worst]:.6g}); they were divided by their sums",
            stacklevel=5,
        )
    # Rows that sum to 1 to rounding stay as they are: a model built from its own rows keeps their bits.
    sums[np.abs(sums - 1.0) <= lengths * EPS] = 1.0
    prob /= np.repeat(sums, lengths)
    return prob


def expectation(values: FloatArray, prob: FloatArray, offsets: IntArray) -> FloatArray:
    """Σ_b prob[b] values[b] over each row; rounding cannot take it out of the range of the row's values."""
    begin = offsets[:-1]
    mean = np.add.reduceat(prob * values, begin)
    return np.clip(mean, np.minimum.reduceat(values, begin), np.maximum.reduceat(values, begin))


def start_distribution(start: npt.ArrayLike | None, n_states: int, renormalize: bool) -> FloatArray:
    if start is None:
        return np.full(n_states, 1.0 / n_states)
    array = numbers_in(start, "start")
    if array.ndim == 0:
        check_range(integers(array, "start")[None], n_states, lambda _: "start")
        return np.bincount([int(array)], minlength=n_states).astype(np.float64)
    prob = probabilities(
        one_each(array, "start", n_states, "states"), lambda s: f"start probability of state {s}"
    )
    return normalised(
        prob, np.array([0, n_states]), array.dtype, renormalize, lambda _: "start probabilities"
    )


def signal_values(
    values: npt.ArrayLike, what: str, places: Sequence[tuple[int, Callable[[int], str]]]
) -> FloatArray:
    """A signal on choices, states or branches; ``places`` has for these how many there are, and their names."""
    array = numbers_in(values, what)
    name_of = dict(reversed(places))
    if array.ndim != 1 or array.size not in name_of:
        choices, states, branches = (size for size, _ in places)
        raise ModelError(
            f"{what} has shape {array.shape}; it must be one-dimensional with one value per choice "
            f"({choices}), state ({states}) or branch ({branches})"
        )
    signal = np.array(array, dtype=np.float64)
    check_finite(signal, lambda i: f"{what} of {name_of[array.size](i)}", FORBIDDEN)
    return signal


def action_numbers(
    numbers: npt.ArrayLike | None, state_to_choice: IntArray, choice_state: Int32Array
) -> Int32Array:
    """The number of each choice's action, all different within a state; by default its place there."""
    if numbers is None:
        return (np.arange(len(choice_state)) - state_to_choice[choice_state]).astype(np.int32)
    what = "action_of_choice"
    actions = one_each(integers(numbers, what), what, len(choice_state), "choices")
    check_range(actions, MAX_STATES, lambda q: f"{what}[{q}]")
    pairs = choice_state.astype(np.int64) << 32 | actions.astype(np.int64)
    if not (np.diff(pairs) > 0).all():  # sorted already in most models
        pairs.sort()
    twice = np.flatnonzero(pairs[1:] == pairs[:-1])
    if twice.size:
        state, action = divmod(int(pairs[twice[0]]), 2**32)
        raise ModelError(f"{what} gives state {state} action {action} twice; actions of a state must differ")
    return actions.astype(np.int32)


def branch_rows(
    begin: IntArray,
    target: npt.ArrayLike,
    prob: npt.ArrayLike,
    n_states: int,
    choice_name: Callable[[int], str],
    renormalize: bool,
) -> tuple[tuple[IntArray, Int32Array, FloatArray], npt.NDArray[np.bool_], Callable[[int], str]]:
    """Branches of positive probability: their rows, targets and probabilities; which of those given; names of those."""
    size = int(begin[-1])
    targets = one_each(integers(target, "branch_target"), "branch_target", size, "branches")
    array = one_each(numbers_in(prob, "branch_prob"), "branch_prob", size, "branches")

    def branch_name(b: int) -> str:
        q = int(np.searchsorted(begin, b, side="right")) - 1
        return f"{choice_name(q)}, branch {b - begin[q]} (to state {targets[b]})"

    check_range(targets, n_states, lambda b: f"branch_target of {branch_name(b)}")
    checked = probabilities(array, lambda b: f"probability of {branch_name(b)}")
    kept = checked > 0.0
    begin_kept = cumulated(kept)[begin]
    empty = np.flatnonzero(np.diff(begin_kept) == 0)
    if empty.size:
        raise ModelError(
            f"probabilities of {choice_name(int(empty[0]))} sum to 0; they must sum to 1: leave out an "
            "action that a state does not have (from_arrays: available=)"
        )

    def row_name(q: int) -> str:
        return f"probabilities of {choice_name(q)}"

    normal = normalised(checked[kept], begin_kept, array.dtype, renormalize, row_name)
    return (begin_kept, targets[kept].astype(np.int32), normal), kept, branch_name


def remark_on_penalty(reward: FloatArray, place: Callable[[int], str]) -> None:
    """Warn where a few rewards lie so far below all others that, scaled by their span, the others look alike."""
    if reward.min() > -_PENALTY * max(float(reward.max()), 0.0):
        return
    values = np.unique(reward)
    rest, size = values[1:-1], np.maximum(np.abs(values[1:-1]), abs(values[-1]))
    drowned = np.flatnonzero((values[:-2] < -_PENALTY * size) & (values[-1] - rest > size / _PENALTY))
    if drowned.size:
        i = int(drowned[-1])
        warnings.warn(
            f"{place(int(reward.argmin()))} is {values[0]:g}, while other rewards lie between {rest[i]:g} and "
            f"{values[-1]:g}: rewards are scaled by their span, so that those differ by at most "
            f"{(values[-1] - rest[i]) / (values[-1] - values[0]):.1e}. Leave out actions that must not be taken "
            "(from_arrays: available=), or make the penalty a cost with a limit",
            stacklevel=4,
        )
