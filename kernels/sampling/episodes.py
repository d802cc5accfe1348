"""Episodes of a model whose actions come from outside, many environments a call, each with a stream of its own.

An episode draws, from the stream of its environment, one word for the horizon T (none with a time limit) and one for
the start state; then each transition spends one word. So an environment's numbers depend on its stream and its
actions only, not on the environments beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.addresses import listed
from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.sampling.rollouts import geometric_horizon
from fastcmdp.kernels.sampling.tables import draw_label, draw_start
from fastcmdp.kernels.streams import next_word
from fastcmdp.kernels.words import U64


class Memory(NamedTuple):
    """All that N environments of one model are. Kernels find it by a directory (``addresses.listed``): one array is
    unpacked in a tenth of a microsecond, these would take most of a step of few environments.
    """

    # The model; entries have the states themselves for labels, and are exact.
    branch_entry: np.ndarray  # float64[3 B]
    start_entry: np.ndarray  # float64[3 n]
    choice_to_branch: np.ndarray  # int64[C+1]
    choice_of: np.ndarray  # int32[S, A]: the choice that an action stands for, or -1
    available: np.ndarray  # int8[S, A]: whether the state has the action
    signal: np.ndarray  # float64[C, 1+m], in the user's units
    log_gamma_inverse: np.ndarray  # float64[1]: 1 / log(gamma)
    settings: np.ndarray  # int64[5]: A, m, steps of every episode or 0 for geometric, at_once, by_hand
    # Where environments stand.
    rng: np.ndarray  # uint64[4, N]
    state: np.ndarray  # int64[N]
    left: np.ndarray  # int64[N]: steps of the episode that are left
    over: np.ndarray  # bool[N]: the episode has ended, or none has begun
    final: np.ndarray  # int64[N]: the state in which the last step ended an episode, where it did


class Results(NamedTuple):
    """What K steps give, a row each; in the directory after Memory."""

    state: np.ndarray  # int64[K, N], of the new episode where one began
    reward: np.ndarray  # float64[K, N], 0 where no transition was made
    cost: np.ndarray  # float64[K, N, max(m, 1)], 0 where no transition was made; for m = 0 zeros already
    ended: np.ndarray  # bool[K, N]: the step ended an episode
    moved: np.ndarray  # bool[K, N]: it made a transition
    mask: np.ndarray  # int8[K, N, A]: the actions of ``state``


_BRANCH, _START, _FIRST, _CHOICE, _AVAILABLE, _SIGNAL, _LOG, _SETTINGS = range(8)
_RNG, _STATE, _LEFT, _OVER, _FINAL = range(8, 13)
_OUT_STATE, _OUT_REWARD, _OUT_COST, _OUT_ENDED, _OUT_MOVED, _OUT_MASK = range(13, 19)


@inlined
def _streams(rows, n):
    return listed(rows, _RNG, np.uint64).reshape((4, n))


@inlined
def _begin(rows, rng, state, left, over, i):
    """Begin an episode of environment i. With T transitions to come after the first pair it has T + 1 steps."""
    time_limit = listed(rows, _SETTINGS, np.int64)[2]
    left[i] = time_limit
    if time_limit == 0:
        log_gamma_inverse = listed(rows, _LOG, np.float64)[0]
        left[i] = 1 + geometric_horizon(next_word(rng, i), log_gamma_inverse)
    state[i] = np.int64(draw_start(listed(rows, _START, np.float64), next_word(rng, i)))
    over[i] = False


@kernel
def begin_episodes(rows, which):
    """Begin an episode in the environments for which ``which``, bool[N], is True."""
    rng = _streams(rows, which.shape[0])
    state, left = listed(rows, _STATE, np.int64), listed(rows, _LEFT, np.int64)
    over = listed(rows, _OVER, np.bool_)
    for i in range(which.shape[0]):
        if which[i]:
            _begin(rows, rng, state, left, over, i)


@inlined
def _first_refused(choice_of, n_actions, state, over, by_hand, action):
    """The first environment at work whose state has no such action, or that must be reset by hand; or -1."""
    for i in range(action.shape[0]):
        a = action[i]
        if over[i]:
            if by_hand:
                return i
        elif a < 0 or a >= n_actions or choice_of[state[i] * n_actions + a] < 0:
            return i
    return -1


@kernel
def step_episodes(rows, action, step):
    """One step of every environment, by ``action``, int64[N]; return how many episodes ended.

    Results go to row ``step``. An environment whose episode has ended begins another instead. With ``at_once`` that
    happens within the step that ends an episode. With ``by_hand`` it must have been begun. Where it has not, or where
    an action is not available, nothing moves, and -1 - i is returned, i the first such environment.
    """
    settings = listed(rows, _SETTINGS, np.int64)
    n_actions, m, at_once, by_hand = settings[0], settings[1], settings[3] > 0, settings[4] > 0
    choice_of, first_of = listed(rows, _CHOICE, np.int32), listed(rows, _FIRST, np.int64)
    signal, available = listed(rows, _SIGNAL, np.float64), listed(rows, _AVAILABLE, np.int8)
    branch_entry = listed(rows, _BRANCH, np.float64)
    rng = _streams(rows, action.shape[0])
    state, left = listed(rows, _STATE, np.int64), listed(rows, _LEFT, np.int64)
    over, final = listed(rows, _OVER, np.bool_), listed(rows, _FINAL, np.int64)
    out_state, out_reward = listed(rows, _OUT_STATE, np.int64), listed(rows, _OUT_REWARD, np.float64)
    out_ended, out_moved = listed(rows, _OUT_ENDED, np.bool_), listed(rows, _OUT_MOVED, np.bool_)
    out_cost, out_mask = listed(rows, _OUT_COST, np.float64), listed(rows, _OUT_MASK, np.int8)

    i = _first_refused(choice_of, n_actions, state, over, by_hand, action)
    if i >= 0:
        return -1 - i
    n_ended, at = 0, step * action.shape[0]
    # From the row on: indices that count on from ``at`` made a step of many environments 1.15 times as long.
    out_state, out_reward, out_cost = out_state[at:], out_reward[at:], out_cost[at * m :]
    out_ended, out_moved, out_mask = out_ended[at:], out_moved[at:], out_mask[at * n_actions :]
    for i in range(action.shape[0]):
        moves, ends = not over[i], False
        if moves:
            q = choice_of[state[i] * n_actions + action[i]]
            out_reward[i] = signal[q * (1 + m)]
            for k in range(m):
                out_cost[i * m + k] = signal[q * (1 + m) + 1 + k]
            first = first_of[q]
            n = first_of[q + 1] - first
            state[i] = np.int64(draw_label(branch_entry, U64(first), U64(n), next_word(rng, i)))
            left[i] -= 1
            ends = left[i] == 0
            if ends:
                n_ended += 1
                final[i] = state[i]
                over[i] = True
        else:
            out_reward[i] = 0.0
            for k in range(m):
                out_cost[i * m + k] = 0.0
        if not moves or (ends and at_once):
            _begin(rows, rng, state, left, over, i)
        out_ended[i] = ends
        out_moved[i] = moves
    for i in range(action.shape[0]):  # a loop of its own: 0.88 times as long
        s = state[i]
        out_state[i] = s
        for a in range(n_actions):
            out_mask[i * n_actions + a] = available[s * n_actions + a]
    return n_ended


@kernel
def final_values(rows, ended, cost, out_cost, out_mask):
    """Cost and mask at the end of each episode that the last step ended, 0 for environments where it ended none.

    ended, cost : what that step gave, cost as float64[N max(m, 1)]
    out_cost, out_mask : float64[N max(m, 1)], int8[N A]
    """
    final, available = listed(rows, _FINAL, np.int64), listed(rows, _AVAILABLE, np.int8)
    n = ended.shape[0]
    width, n_actions = cost.shape[0] // n, out_mask.shape[0] // n
    for i in range(n):
        for k in range(i * width, (i + 1) * width):
            out_cost[k] = cost[k] if ended[i] else 0.0
        for a in range(n_actions):
            out_mask[i * n_actions + a] = available[final[i] * n_actions + a] if ended[i] else 0
