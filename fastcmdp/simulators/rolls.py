"""One rollout through a simulator as one compiled function: of the user's functions, for a kind of policy.

The user's functions are put in place and sizes are constants, so that the loop is what one would write by hand. It is
compiled in each process, in a second or two, and once for the same functions; kernels call it by address, once a
rollout. Its parts are callees, as those of kernels (kernels/callees.py): only the whole becomes machine code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.core.errors import NumbaError

from fastcmdp.errors import ModelError
from fastcmdp.kernels.callees import CALLEE
from fastcmdp.kernels.draws import uniform, word
from fastcmdp.kernels.jit import IMPLEMENTATION, INLINE, callback
from fastcmdp.kernels.learning.least_squares import HEAD, layout_of, write_products
from fastcmdp.kernels.policy.live import live_logits
from fastcmdp.kernels.sampling.rollouts import geometric_horizon
from fastcmdp.kernels.simulator.simulate import (
    FEATURES_FAULT,
    RAISED,
    RESET_FAULT,
    STATE_FAULT,
    STEP_FAULT,
    draw_weighted,
    is_finite,
    softmax_weights,
)
from fastcmdp.kernels.stop import leaves

_PART: Any = {"error_model": "numpy"} | CALLEE | IMPLEMENTATION
_INLINED: Any = _PART | INLINE
_LONG = 2**40  # a length that stands for one which is not known here
_DOUBLES: Any = types.CPointer(types.float64)  # type: ignore[no-untyped-call]
_WORDS: Any = types.CPointer(types.uint64)  # type: ignore[no-untyped-call]
_INTS: Any = types.CPointer(types.int64)  # type: ignore[no-untyped-call]
_SIGNATURE = types.int64(
    _DOUBLES,
    _WORDS,
    _DOUBLES,
    types.int64,
    types.int64,
    types.int64,
    types.int64,
    types.int64,
    _DOUBLES,
    _DOUBLES,
    _DOUBLES,
    _DOUBLES,
    _INTS,
    _INTS,
)


@lru_cache(maxsize=32, typed=True)  # typed: policies are tuples, which are equal where their numbers are
def make_roll(
    step: Callable[..., Any],
    reset: Callable[..., Any],
    features: Callable[..., Any],
    fork: Callable[..., Any] | None,
    policy: Any,
    d: int,
    n_hidden: int,
    sizes: tuple[int, int, int, int],
    by_choice: bool,
    gamma: float,
    corrected: bool,
) -> Any:
    """Compile a rollout; returned is numba's callback, to be kept as long as its address is in use.

    ``features`` (state, out) writes all rows; ``policy`` is a Linear or LiveNetwork of d parameters; ``sizes`` are
    numbers in a state, actions, features and costs. The rollout begins at the start (slot -1; its last state is then
    kept in slot ``job`` of visited), or in a visited state, with an action that is given or drawn (-1).

    ``corrected``: by a critic that is linear in the features. Then total holds, after the sums of the F signals, those
    of gamma Wbar(s_{j+1}) - W(s_j, a_j), and Wbar(s_0); each state that is reached is put on the tape.
    """
    n_state, _, _, m = sizes
    body = _loop(step, reset, features, fork, policy, n_hidden, sizes, by_choice, gamma, corrected)
    n_sums = 3 * (1 + m)

    def roll(  # type: ignore[no-untyped-def]
        theta, rng, visited, slot, action, job, careful, wanders, critic, tape, total, before, fault, stop
    ):
        try:
            return body(
                carray(theta, (d,)), carray(rng, (4,)), carray(visited, ((max(job, slot) + 1) * n_state,)), slot,
                action, job, careful != 0, wanders != 0, carray(critic, (_LONG,)), carray(tape, (_LONG,)),
                carray(total, (n_sums,)), carray(before, (n_state,)), carray(fault, (4,)), carray(stop, (1,)),
            )  # fmt: skip
        except Exception:
            fault[0] = RAISED
            return 0

    try:
        return callback(roll, _SIGNATURE, keep=False)
    except NumbaError as error:
        raise ModelError(
            "step, reset and features do not compile together with a loop over them, of C-contiguous arrays float64 "
            f"and uint64 and an int64 action; numba says: {' '.join(str(error).split())[:600]}"
        ) from error


@njit(**_INLINED)
def _put(out, first, state):  # type: ignore[no-untyped-def]
    for i in range(state.shape[0]):
        out[first + i] = state[i]


@njit(**_INLINED)
def _fault_of(total, n, state):  # type: ignore[no-untyped-def]
    """What a step has left that is not finite; 0: nothing."""
    if not is_finite(total, n):
        return STEP_FAULT
    return 0 if is_finite(state, state.shape[0]) else STATE_FAULT


@njit(**_INLINED)
def _read_critic(layout, gamma, first, x, z, critic, value, total):  # type: ignore[no-untyped-def]
    """W of all actions to value, and Wbar's part of the sums of a corrected rollout to total."""
    n_signals, n_actions = layout.n_signals, layout.n_actions
    for f in range(n_signals):
        mean = 0.0
        for a in range(n_actions):
            block, row = (0, a) if layout.n_rows > 1 else (a, 0)
            w = 0.0
            for i in range(layout.n):
                w += critic[f * layout.d + block * layout.n + i] * x[row * layout.n + i]
            value[f * n_actions + a] = w
            mean += z[a] * w
        total[n_signals + f] += 0.0 if first else gamma * mean
        if first:
            total[2 * n_signals + f] = mean


@njit(**_INLINED)
def _write_record(layout, x, z, tape):  # type: ignore[no-untyped-def]
    """Put a state on the tape, with no action yet; return where, or -1 where the tape is full."""
    if tape[0] >= tape[1]:
        return -1
    at = HEAD + np.int64(tape[0]) * layout.words
    tape[0] += 1.0
    tape[at] = -1.0
    at_x = at + 1 + layout.n_signals
    for i in range(layout.n_rows * layout.n):
        tape[at_x + i] = x[i]
    for a in range(layout.n_actions):
        tape[at_x + layout.n_rows * layout.n + a] = z[a]
    return at


@njit(**_INLINED)
def _draw_action(z, n_actions, total, wanders, begins, u):  # type: ignore[no-untyped-def]
    """The action that u in [0, 1) falls on: with the weights z, or uniform in part or, at the beginning, in full."""
    if wanders and begins:
        return min(np.int64(u * n_actions), n_actions - 1)
    if wanders:
        u *= 2.0
        if u < 1.0:
            return min(np.int64(u * n_actions), n_actions - 1)
        u -= 1.0
    return draw_weighted(z, n_actions, u * total)


def _beginning(reset: Any, fork: Any, forks: bool, n_state: int) -> Any:
    """Bring a state to a start, or to a visited one; what is wrong with it is returned."""

    @njit(**_INLINED)
    def begin(state, rng, visited, slot):  # type: ignore[no-untyped-def]
        for i in range(n_state):
            state[i] = 0.0 if slot < 0 else visited[slot * n_state + i]
        if slot < 0:
            reset(state, rng)
            if not is_finite(state, n_state):
                return RESET_FAULT
        elif forks:
            fork(state, 0, rng)
        return 0

    return begin


@njit(**_INLINED)
def _record(layout, action, reward, costs, total, value, tape, at):  # type: ignore[no-untyped-def]
    """What a corrected rollout keeps of a transition: its W, and a line of the tape."""
    for f in range(layout.n_signals):
        total[layout.n_signals + f] -= value[f * layout.n_actions + action]
    if at >= 0:
        tape[at], tape[at + 1] = action, reward
        for i in range(layout.n_signals - 1):
            tape[at + 2 + i] = costs[i]


def _loop(
    step: Any, reset: Any, features: Any, fork: Any, policy: Any, n_hidden: int, sizes: tuple[int, int, int, int],
    by_choice: bool, gamma: float, corrected: bool,
) -> Any:  # fmt: skip
    """The loop over the user's functions, of arrays.

    What calls those stands here in full: a function between would count references to its arrays in each step.
    """
    n_state, n_actions, n_features, m = sizes
    n_rows, log_gamma_inverse = n_actions if by_choice else 1, 1.0 / math.log(gamma)
    layout = layout_of(n_features, n_actions, by_choice, 1 + m)
    forks, n_sums = fork is not None, 3 * (1 + m) if corrected else 1 + m
    do_fork: Any = fork if forks else njit(_no_fork)
    begin = _beginning(reset, do_fork, forks, n_state)

    @njit(**_PART)
    def body(  # type: ignore[no-untyped-def]
        theta, rng, visited, slot, action, job, careful, wanders, critic, tape, total, before, fault, stop
    ):
        state, costs, hidden = np.empty(n_state), np.zeros(max(m, 1)), np.empty(n_hidden)
        x, z = np.empty(n_rows * n_features), np.empty(n_actions)
        value = np.empty(n_actions * (1 + m)) if corrected else x  # not used then
        phi = np.empty(layout.n_rows * layout.n) if corrected else x
        horizon = geometric_horizon(word(rng), log_gamma_inverse)
        if careful:  # fault says what is under way: at first reset
            fault[1], fault[2] = -1, -1
        total[:n_sums] = 0.0
        fault[0] = begin(state, rng, visited, slot)
        if fault[0] != 0:
            return horizon + 1
        fixed, at = action >= 0 and not wanders, 0
        for t in range(horizon + 2 if corrected else horizon + 1):
            if leaves(stop):
                break
            if careful:  # then features
                _put(before, 0, state)
                fault[1], fault[2] = t, -1
            weights = 1.0
            if corrected or t > 0 or not fixed:
                for i in range(n_rows * n_features):
                    x[i] = 0.0
                features(state, x)
                live_logits(policy, theta, x, n_features, n_rows, hidden, z)
                weights = softmax_weights(z, n_actions)
                if not weights >= 1.0:
                    fault[0] = FEATURES_FAULT
                    break
            if corrected:
                for a in range(n_actions):
                    z[a] /= weights
                weights = 1.0
                write_products(layout, x, phi, 0)
                _read_critic(layout, gamma, t == 0, phi, z, critic, value, total)
                at = _write_record(layout, phi, z, tape)
                if t > horizon:
                    break
            if t > 0 or not fixed:
                action = _draw_action(z, n_actions, weights, wanders, t == 0, uniform(rng))
            if slot < 0 and t == horizon:
                fault[3] = action
                _put(visited, job * n_state, state)
                if forks:
                    do_fork(visited[job * n_state : (job + 1) * n_state], 1, rng)
            fault[2] = action  # then step
            for i in range(m):
                costs[i] = 0.0
            reward = step(state, action, rng, costs)
            total[0] += reward
            for i in range(m):
                total[1 + i] += costs[i]
            if corrected:
                _record(layout, action, reward, costs, total, value, tape, at)
            if careful and _fault_of(total, 1 + m, state) != 0:
                break
        if fault[0] == 0:
            fault[0] = _fault_of(total, 1 + m, state)
        return horizon + 1

    return body


def _no_fork(state, keep, rng):  # type: ignore[no-untyped-def]
    pass
