"""One rollout through a simulator as one compiled function: of the user's functions, for a kind of policy.

The user's functions are put in place and sizes are constants, so that the loop is what one would write by hand. It is
compiled in each process, in a second or two; kernels call it by address, once a rollout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types  # type: ignore[attr-defined]
from numba.core.errors import NumbaError

from fastcmdp.errors import ModelError
from fastcmdp.kernels.draws import uniform, word
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
from fastcmdp.policies import BoundPolicy

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
    _DOUBLES,
    _DOUBLES,
    _INTS,
    _INTS,
)


def make_roll(
    step: Callable[..., Any],
    reset: Callable[..., Any],
    features: Callable[..., Any],
    fork: Callable[..., Any] | None,
    bound: BoundPolicy,
    sizes: tuple[int, int, int, int],
    by_choice: bool,
    log_gamma_inverse: float,
) -> Any:
    """Compile a rollout; returned is numba's callback, to be kept as long as its address is in use.

    ``features`` (state, out) writes all rows; ``bound`` holds a Linear or LiveNetwork; ``sizes`` are
    numbers in a state, actions, features and costs. The rollout begins at the start (slot -1; its last state is then
    kept in slot ``job`` of visited), or in a visited state, with an action that is given or drawn (-1).
    """
    n_state, _, _, m = sizes
    d = bound.n_parameters
    body = _loop(step, reset, features, fork, bound, sizes, by_choice, log_gamma_inverse)

    def roll(theta, rng, visited, slot, action, job, careful, total, before, fault, stop):  # type: ignore[no-untyped-def]
        try:
            return body(
                carray(theta, (d,)), carray(rng, (4,)), carray(visited, ((max(job, slot) + 1) * n_state,)), slot,
                action, job, careful != 0, carray(total, (1 + m,)), carray(before, (n_state,)), carray(fault, (4,)),
                carray(stop, (1,)),
            )  # fmt: skip
        except Exception:
            fault[0] = RAISED
            return 0

    try:
        return cfunc(_SIGNATURE)(roll)
    except NumbaError as error:
        raise ModelError(
            "step, reset and features do not compile together with a loop over them, of C-contiguous arrays float64 "
            f"and uint64 and an int64 action; numba says: {' '.join(str(error).split())[:600]}"
        ) from error


@njit(error_model="numpy", forceinline=True)
def _put(out, first, state):  # type: ignore[no-untyped-def]
    for i in range(state.shape[0]):
        out[first + i] = state[i]


@njit(error_model="numpy", forceinline=True)
def _fault_of(total, state):  # type: ignore[no-untyped-def]
    """What a step has left that is not finite; 0: nothing."""
    if not is_finite(total, total.shape[0]):
        return STEP_FAULT
    return 0 if is_finite(state, state.shape[0]) else STATE_FAULT


def _loop(
    step: Any, reset: Any, features: Any, fork: Any, bound: BoundPolicy, sizes: tuple[int, int, int, int],
    by_choice: bool, log_gamma_inverse: float,
) -> Any:  # fmt: skip
    """The loop over the user's functions, of arrays."""
    n_state, n_actions, n_features, m = sizes
    n_rows = n_actions if by_choice else 1
    net, width = bound.data, bound.n_hidden
    forks = fork is not None
    do_fork: Any = fork if forks else njit(_no_fork)

    @njit(error_model="numpy")
    def body(theta, rng, visited, slot, action, job, careful, total, before, fault, stop):  # type: ignore[no-untyped-def]
        state, costs = np.empty(n_state), np.zeros(max(m, 1))
        x, z, hidden = np.empty(n_rows * n_features), np.empty(n_actions), np.empty(width)
        horizon = geometric_horizon(word(rng), log_gamma_inverse)
        fault[0] = 0
        if careful:  # fault says what is under way: at first reset
            fault[1], fault[2] = -1, -1
        for k in range(m + 1):
            total[k] = 0.0
        for i in range(n_state):
            state[i] = 0.0 if slot < 0 else visited[slot * n_state + i]
        if slot < 0:
            reset(state, rng)
            if not is_finite(state, n_state):
                fault[0] = RESET_FAULT
                return horizon + 1
        elif forks:
            do_fork(state, 0, rng)
        for t in range(horizon + 1):
            if leaves(stop):
                break
            if careful:  # then features
                _put(before, 0, state)
                fault[1], fault[2] = t, -1
            if t > 0 or action < 0:
                for i in range(n_rows * n_features):
                    x[i] = 0.0
                features(state, x)
                live_logits(net, theta, x, n_features, n_rows, hidden, z)
                weights = softmax_weights(z, n_actions)
                if not weights >= 1.0:
                    fault[0] = FEATURES_FAULT
                    break
                action = draw_weighted(z, n_actions, uniform(rng) * weights)
            if slot < 0 and t == horizon:
                fault[3] = action
                _put(visited, job * n_state, state)
                if forks:
                    do_fork(visited[job * n_state : (job + 1) * n_state], 1, rng)
            for i in range(m):
                costs[i] = 0.0
            fault[2] = action  # then step
            total[0] += step(state, action, rng, costs)
            for i in range(m):
                total[1 + i] += costs[i]
            if careful and _fault_of(total, state) != 0:
                break
        if fault[0] == 0:
            fault[0] = _fault_of(total, state)
        return horizon + 1

    return body


def _no_fork(state, keep, rng):  # type: ignore[no-untyped-def]
    pass
