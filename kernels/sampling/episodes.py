"""Episodes of a model whose actions come from outside, many environments a call, each with a stream of its own.

An episode draws, from the stream of its environment, one word for the horizon T (none with a time limit) and one for
the start state; then each transition spends one word. So an environment's numbers depend on its stream and its
actions only, not on the environments beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.sampling.rollouts import geometric_horizon
from fastcmdp.kernels.sampling.tables import draw_label, draw_start
from fastcmdp.kernels.streams import next_word
from fastcmdp.kernels.words import U64


class Rules(NamedTuple):
    """What environments of one model share; entries have the states themselves for labels, and are exact."""

    branch_entry: np.ndarray  # float64[3 B]
    start_entry: np.ndarray  # float64[3 n]
    choice_to_branch: np.ndarray  # int64[C+1]
    choice_of: np.ndarray  # int32[S, A]: the choice that an action stands for, or -1
    available: np.ndarray  # int8[S, A]: whether the state has the action
    signal: np.ndarray  # float64[C, 1+m], in the user's units
    log_gamma_inverse: float  # 1 / log(gamma)
    time_limit: int  # steps of every episode, or 0: geometric


class Envs(NamedTuple):
    """Where N environments stand."""

    rng: np.ndarray  # uint64[4, N]
    state: np.ndarray  # int64[N]
    left: np.ndarray  # int64[N]: steps of the episode that are left
    over: np.ndarray  # bool[N]: the episode has ended
    final: np.ndarray  # int64[N]: the state in which the last step ended an episode


@inlined
def _begin(start_entry, log_gamma_inverse, time_limit, rng, state, left, over, i):
    """Begin an episode of environment i. With T transitions to come after the first pair it has T + 1 steps."""
    left[i] = time_limit
    if time_limit == 0:
        left[i] = 1 + geometric_horizon(next_word(rng, i), log_gamma_inverse)
    state[i] = np.int64(draw_start(start_entry, next_word(rng, i)))
    over[i] = False


@kernel
def begin_episodes(rules, envs, which):
    """Begin an episode in the environments for which ``which``, bool[N], is True."""
    for i in range(which.shape[0]):
        if which[i]:
            _begin(
                rules.start_entry, rules.log_gamma_inverse, rules.time_limit, envs.rng, envs.state, envs.left,
                envs.over, i,
            )  # fmt: skip


@inlined
def _first_unavailable(choice_of, state, over, action):
    """The first environment at work whose state has no such action, or -1."""
    for i in range(action.shape[0]):
        a = action[i]
        if not over[i] and (a < 0 or a >= choice_of.shape[1] or choice_of[state[i], a] < 0):
            return i
    return -1


@kernel
def step_episodes(
    branch_entry, start_entry, choice_to_branch, choice_of, available, signal, log_gamma_inverse, time_limit,
    rng, state, left, over, final,
    out_state, out_reward, out_cost, out_flag, out_available,
    action, at_once,
):  # fmt: skip
    """One step of every environment; return how many episodes ended.

    The first arguments are the fields of Rules and Envs, one by one: for a caller in Python tuples of arrays take three
    times as long to unpack, which was most of a step of few environments.

    out_state : int64[N], of the new episode where one began
    out_reward, out_cost : float64[N], float64[N, max(m, 1)], 0 where no transition was made
    out_flag : bool[4, N]: the episode ended; a transition was made; False; True
    out_available : int8[N, A], of out_state
    action : int64[N]. Where one is not available nothing moves, and -1 - i is returned, i the first such environment.
    An environment whose episode has ended begins another instead. With ``at_once`` that happens within the step that
    ends an episode.
    """
    i = _first_unavailable(choice_of, state, over, action)
    if i >= 0:
        return -1 - i
    n_ended, n_actions, m = 0, choice_of.shape[1], signal.shape[1] - 1
    for i in range(action.shape[0]):
        moves, ends = not over[i], False
        out_reward[i] = 0.0
        for k in range(out_cost.shape[1]):
            out_cost[i, k] = 0.0
        if moves:
            q = choice_of[state[i], action[i]]
            out_reward[i] = signal[q, 0]
            for k in range(m):
                out_cost[i, k] = signal[q, 1 + k]
            first = choice_to_branch[q]
            n = choice_to_branch[q + 1] - first
            state[i] = np.int64(draw_label(branch_entry, U64(first), U64(n), next_word(rng, i)))
            left[i] -= 1
            ends = left[i] == 0
            if ends:
                n_ended += 1
                final[i] = state[i]
                over[i] = True
        if not moves or (ends and at_once):
            _begin(start_entry, log_gamma_inverse, time_limit, rng, state, left, over, i)
        s = state[i]
        out_state[i] = s
        out_flag[0, i] = ends
        out_flag[1, i] = moves
        out_flag[2, i] = False
        out_flag[3, i] = True
        for a in range(n_actions):
            out_available[i, a] = available[s, a]
    return n_ended
