"""Episodes of a model whose actions come from outside, many environments a call, each with a stream of its own.

An episode draws, from the stream of its environment, one word for the horizon T (none with a time limit) and one for
the start state; then each transition spends one word. So an environment's numbers depend on its stream and its
actions only, not on the environments beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.rollouts import geometric_horizon
from fastcmdp.kernels.streams import next_word
from fastcmdp.kernels.tables import draw_label

_U64 = np.uint64


class Rules(NamedTuple):
    """What environments of one model share; entries have the states themselves for labels, and are exact."""

    branch_entry: np.ndarray  # float64[3 B]
    start_entry: np.ndarray  # float64[3 n]
    choice_to_branch: np.ndarray  # int64[C+1]
    choice_of: np.ndarray  # int32[S, A]: the choice that an action stands for, or -1
    signal: np.ndarray  # float64[1+m, C], in the user's units
    log_gamma_inverse: float  # 1 / log(gamma)
    time_limit: int  # steps of every episode, or 0: geometric


class Envs(NamedTuple):
    """Where N environments stand."""

    rng: np.ndarray  # uint64[4, N]
    state: np.ndarray  # int64[N]
    left: np.ndarray  # int64[N]: steps of the episode that are left
    ended: np.ndarray  # bool[N]


class Outcome(NamedTuple):
    """What a step returns."""

    state: np.ndarray  # int64[N]: of the new episode where one began
    final: np.ndarray  # int64[N]: the last state of the episode that ended
    signal: np.ndarray  # float64[1+m, N]: 0 where no transition was made
    ended: np.ndarray  # bool[N]
    moved: np.ndarray  # bool[N]: a transition was made


@inlined
def _begin(rules, envs, i):
    """Begin an episode of environment i. With T transitions to come after the first pair it has T + 1 steps."""
    envs.left[i] = rules.time_limit
    if rules.time_limit == 0:
        envs.left[i] = 1 + geometric_horizon(next_word(envs.rng, i), rules.log_gamma_inverse)
    n = _U64(rules.start_entry.shape[0] // 3)
    envs.state[i] = np.int64(draw_label(rules.start_entry, _U64(0), n, next_word(envs.rng, i)))
    envs.ended[i] = False


@kernel
def begin_episodes(rules, envs, which):
    """Begin an episode in the environments for which ``which``, bool[N], is True."""
    for i in range(which.shape[0]):
        if which[i]:
            _begin(rules, envs, i)


@inlined
def _first_unavailable(rules, envs, action):
    """The first environment at work whose state has no such action, or -1."""
    for i in range(action.shape[0]):
        a = action[i]
        if not envs.ended[i] and (
            a < 0 or a >= rules.choice_of.shape[1] or rules.choice_of[envs.state[i], a] < 0
        ):
            return i
    return -1


@kernel
def step_episodes(rules, envs, action, at_once, out):
    """One step of every environment; return how many episodes ended.

    action : int64[N]. Where one is not available nothing moves, and -1 - i is returned, i the first such environment.
    An environment whose episode has ended begins another instead. With ``at_once`` that happens within the step that
    ends an episode. out.signal has been set to 0.
    """
    i = _first_unavailable(rules, envs, action)
    if i >= 0:
        return -1 - i
    n_ended = 0
    for i in range(action.shape[0]):
        out.ended[i] = False
        out.moved[i] = not envs.ended[i]
        if envs.ended[i]:
            _begin(rules, envs, i)
            out.state[i] = envs.state[i]
            continue
        q = rules.choice_of[envs.state[i], action[i]]
        for k in range(rules.signal.shape[0]):
            out.signal[k, i] = rules.signal[k, q]
        first = rules.choice_to_branch[q]
        n = rules.choice_to_branch[q + 1] - first
        s = np.int64(draw_label(rules.branch_entry, _U64(first), _U64(n), next_word(envs.rng, i)))
        envs.state[i] = s
        envs.left[i] -= 1
        if envs.left[i] == 0:
            n_ended += 1
            out.ended[i] = True
            out.final[i] = s
            envs.ended[i] = True
            if at_once:
                _begin(rules, envs, i)
        out.state[i] = envs.state[i]
    return n_ended
