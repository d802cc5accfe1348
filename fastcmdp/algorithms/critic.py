"""The critic of a run of PD-ANPG or PD-ANPG-CV: sizes of its arrays, and the work space of a batch that it corrects."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcmdp.kernels.algorithm import cv_batch, cv_critic
from fastcmdp.kernels.learning import counts, least_squares
from fastcmdp.kernels.streams import LANES
from fastcmdp.worlds.world import World

_MOST_SEEN = (
    2**22
)  # transitions that are kept of a batch for the critic, at most; those beyond teach it nothing
_RARE = 40.0  # a batch is longer than what is kept of it with probability e^-40


@dataclass(frozen=True)
class Critic:
    """What a run keeps of its critic.

    Attributes
    ----------
    shape : (int, int)
        Of W, or of its weights, a replicate.
    n_evidence : int
        Numbers that it is learned from, a replicate.
    control : callable
        Work space of a batch, for one thread; its class says what the critic does.
    """

    shape: tuple[int, int]
    n_evidence: int
    control: Callable[[], Any]


def critic_of(world: World, n_pairs: int, n_rollouts: int) -> Critic:
    """A critic from counts on a table, and one that is linear in the features of a simulator.

    n_pairs : H; n_rollouts : of an outer step, with at most 2 H of them side by side
    """
    h, widest, n_signals = n_pairs, world.model.widest, 1 + world.model.n_constraints
    room = _room(n_rollouts, world.model.gamma)
    shape, n_evidence, space = (
        _counted(world, room) if world.n_state == 0 else _fitted(world, h, room + n_rollouts)
    )

    def control() -> cv_batch.CriticBatch:
        return cv_batch.CriticBatch(
            space=space(),
            job_wanders=np.zeros(2 * h, np.uint64),
            correction=np.zeros((2 * h, n_signals)),
            plug=np.zeros(n_signals),
            look=cv_batch.Look(
                n_actions=np.zeros(h, np.int64),
                prob=np.zeros((h, widest)),
                advantage=np.zeros((h, widest, n_signals)),
                row=np.zeros((2 * h, n_signals)),
                chance=np.zeros(2 * h),
                move=np.zeros((2 * h, n_signals)),
            ),
        )

    return Critic(shape, n_evidence, control)


def _room(n_rollouts: int, gamma: float) -> int:
    """Transitions of a batch that there is room for: the mean, and so many more that it practically suffices."""
    more = 1.0
    while n_rollouts * (more - math.log1p(more)) < _RARE:  # Chernoff's bound for n geometric numbers
        more *= 1.25
    length: int = math.ceil(n_rollouts * (1.0 + more) / (1.0 - gamma))
    return min(length, _MOST_SEEN) + 2 * LANES


def _counted(world: World, room: int) -> tuple[tuple[int, int], int, Callable[[], cv_critic.Counted]]:
    """A critic from counts, on a table: the shape of W, how many counts there are, and what makes its work space."""
    cmdp, tables = world.table, world.tables
    n_signals = 1 + cmdp.n_constraints
    support = np.flatnonzero(cmdp.start)
    graph = counts.Graph(
        choice_to_branch=cmdp.choice_to_branch.copy(),
        target=cmdp.branch_target.copy(),
        rejected=np.empty(cmdp.n_branches, np.int32),
        start_state=support.astype(np.int64),
        start_prob=np.array(cmdp.start[support], np.float64),
    )
    counts.fill_rejected(tables, graph)

    def space() -> cv_critic.Counted:
        words = tables.choice_word.copy()
        words.reshape(-1, tables.words)[:, 1:] = 0
        seen, mean = np.zeros(room, np.uint64), np.zeros((cmdp.n_states, n_signals))
        looked = np.zeros(cmdp.n_states + 1, np.int64)
        return cv_critic.Counted(graph, (words, words.view(np.float64)), seen, mean, looked)

    return (cmdp.n_choices, n_signals), cmdp.n_branches + cmdp.n_choices, space


def _fitted(world: World, h: int, room: int) -> tuple[tuple[int, int], int, Callable[[], cv_critic.Fitted]]:
    """A critic that is linear in a simulator's features: likewise, of its weights and of the means they come from."""
    tables = world.tables
    n_signals = tables.n_signals
    layout = least_squares.layout_of(tables.n_features, tables.n_actions, tables.by_choice, n_signals)
    d = layout.d

    def space() -> cv_critic.Fitted:
        return cv_critic.Fitted(
            layout=layout,
            tape=least_squares.empty_tape(layout, room),
            job_row=np.zeros(2 * h, np.uint32),
            value=np.zeros((2 * h, n_signals)),
            matrix=np.zeros((d, d)),
            right=np.zeros((d, n_signals)),
            expected=np.zeros(d),
            phi=np.zeros(layout.n_rows * layout.n),
        )

    return (n_signals, d), d * d + n_signals * d + 2, space
