"""A batch of rollouts that a critic corrects: what PD-ANPG draws in an outer step once it has a critic.

With W fixed before the batch, C_f of ``corrected.py`` and H pairs (s_h, a_h) ~ nu at the ends of occupancy rollouts,

    J_f   = (critic's J) + mean of C_f over the occupancy rollouts,
    A_f,h = W_f(s_h, a_h) - Wbar_f(s_h) + C_f of a rollout from (s_h, a_h)

estimate J_f and, up to a baseline of the state, A_f without bias. PD-ANPG-CV has its own steps and multipliers on it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastcmdp.kernels.algorithm.cv_critic import begin_batch, explore, run_corrected
from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.stop import leaves
from fastcmdp.kernels.words import U64


class Look(NamedTuple):
    """What is read of the states of a batch's pairs."""

    n_actions: np.ndarray  # int64[H]
    prob: np.ndarray  # float64[H, A]
    advantage: np.ndarray  # float64[H, A, F]: W - Wbar
    row: np.ndarray  # float64[2H, F]: W - Wbar of the pairs, and of choices of the same states in turn
    chance: np.ndarray  # float64[2H]: their probabilities
    move: np.ndarray  # float64[2H, F]: see compatible.py


class CriticBatch(NamedTuple):
    """Work space of such a batch: the critic's, and what comes of the rollouts."""

    space: Any  # Counted or Fitted
    job_wanders: np.ndarray  # uint64[2H]
    correction: np.ndarray  # float64[2H, F]
    plug: np.ndarray  # float64[F]: the critic's J
    look: Look


@kernel
def sample_corrected(tables, actions, gamma, rng, n, n_first, n_wanders, critic, evidence, control, work):
    """Draw the batch: ``n_first`` occupancy rollouts, of which the first n give pairs, then those from these pairs and
    ``n_wanders`` exploring ones side by side.

    Return how many transitions were written down, how many the occupancy rollouts made, and how many all.
    work.pair[h] ~ nu; work.occupancy_total[h] and control.correction[h] estimate J minus control.plug, and Q - W at
    the pair.
    """
    job_choice, job_wanders, space = work.job_choice, control.job_wanders, control.space
    begin_batch(tables, gamma, actions, critic, evidence, space, control.plug)
    for j in range(n_first):
        job_choice[j] = -1
    job_wanders[:] = U64(0)
    n_seen, first = run_corrected(
        tables, actions, gamma, rng, job_choice[:n_first], job_wanders[:n_first], critic, space, work.occupancy_total,
        work.pair, 0, control.plug,
    )  # fmt: skip
    if leaves(tables.stop):  # then pairs are none
        return n_seen, first, first
    for h in range(n):
        job_choice[h] = work.pair[h]
    jobs = n + n_wanders
    explore(tables, evidence, space, n_seen, work.pair, job_choice[n:jobs])
    for h in range(n, jobs):
        job_wanders[h] = U64(1)
    n_seen, second = run_corrected(
        tables, actions, gamma, rng, job_choice[:jobs], job_wanders[:jobs], critic, space, control.correction,
        work.last_pair, n_seen, control.plug,
    )  # fmt: skip
    return n_seen, first, first + second
