"""Undiscounted sums of episodes with absorbing ends, gamma = 1, as a discounted model.

An end is a state that all of its choices keep and whose signals are zero. Where every policy comes to an end, let w(s)
be the largest mean number of steps to one, w(s) = 1 + max_a sum_s' P(s'|s,a) w(s'), and w = 0 at ends. With

    gamma = 1 - 1/max w,   P~(s'|s,a) = P(s'|s,a) w(s') / (gamma w(s)),   the rest of a row to an end,
    f~ = W f / w,   rho~ = rho w / W,   W = sum_s rho(s) w(s)

the rows of P~ are distributions, since sum_s' P w(s') <= w(s) - 1 <= gamma w(s), and w(s) V~(s) solves V = f + P V (up
to W): the discounted value J~ of a policy is its undiscounted value J. The weights are those of the contraction of
Bertsekas and Tsitsiklis (Math. Oper. Res. 16, 1991); the reduction is that of Feinberg and Huang (Oper. Res. Lett.,
2018; recalled).
"""

from __future__ import annotations

import numpy as np

from fastcmdp.criteria.ends import LONGEST, listed, longest_times, matrix, never, reachable
from fastcmdp.criteria.plain import Flags, PlainRows, Restated, with_weights
from fastcmdp.errors import ModelError


def end_states(rows: PlainRows) -> Flags:
    """States that every choice keeps, without signals."""
    stays = matrix(rows)[np.arange(len(rows.choice_state)), rows.choice_state] >= 1.0 - 1e-12
    quiet = (rows.signals == 0).all(axis=1)
    ends: Flags = np.logical_and.reduceat(stays & quiet, rows.state_to_choice[:-1])
    return ends


def episodes(rows: PlainRows) -> Restated:
    """The discounted model; states and choices keep their numbers.

    Raises
    ------
    ModelError
        No absorbing end, or a policy that never comes to one: it is named.
    """
    ends = end_states(rows)
    if not ends.any():
        raise ModelError(
            "gamma = 1 needs an end: a state that all of its actions keep with probability 1, with reward and costs 0"
        )
    met = reachable(rows)
    over = met & ~ends
    inside, kept = never(rows, ends | ~met)
    if inside.any():
        s = int(np.flatnonzero(inside)[0])
        chosen = [
            int(np.flatnonzero(kept & (rows.choice_state == state))[0])
            for state in np.flatnonzero(inside)[:6]
        ]
        pairs = ", ".join(
            f"action {rows.action_of_choice[q]} in state {rows.choice_state[q]}" for q in chosen
        )
        raise ModelError(
            f"gamma = 1, but a policy that takes {pairs} stays among states {listed(np.flatnonzero(inside))} and never "
            f"ends (state {s} is reached from the start): take such an action away, let it end with some probability, "
            "or give gamma below 1"
        )
    weight = longest_times(rows, over, ~over)
    if np.isinf(weight).any():
        raise ModelError(
            f"a policy takes more than {LONGEST:.0e} steps in the mean from state {int(weight.argmax())}, which cannot "
            "be told from for ever: raise the least probabilities of an end"
        )
    gamma = 1.0 - 1.0 / max(2.0, float(weight.max(initial=0.0)))
    total = float(rows.start @ weight)
    sink = int(np.flatnonzero(ends)[0])
    if total == 0.0:  # it begins where it ends
        return Restated(with_weights(rows, weight, gamma, sink, 1.0, None), gamma)
    restarted = with_weights(rows, weight, gamma, sink, total, None)
    return Restated(restarted._replace(start=rows.start * weight / total), gamma)
