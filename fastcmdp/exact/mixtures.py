"""Candidates for an optimum, and the checks that any has to pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.exact.control import best_response
from fastcmdp.exact.evaluation import occupancy
from fastcmdp.exact.linear import EPS, Floats, means, weighted
from fastcmdp.exact.pool import Pool
from fastcmdp.exact.programme import Aim, Candidate, occupancy_lp
from fastcmdp.exact.search import TRUST, decomposition

LP_ENTRIES = 4_000  # branches per constraint up to which the full LP is quicker than the decomposition
FEASIBLE = 1e-9  # a constraint missed by less, on the scale of (1-gamma) J, counts as met


class Answer(NamedTuple):
    """A checked answer, in kernel units."""

    policy: Floats
    occupancy: Floats | None  # None where nobody has asked for it
    raw: Floats
    weights: Floats
    gap: float  # proven: nothing attains more than this policy and the gap
    finished: bool = True


def method_for(cmdp: CMDP) -> str:
    """ "auto" where the linear programme is small, else "decomposition"."""
    large = cmdp.n_constraints < 2 or cmdp.n_branches > LP_ENTRIES * cmdp.n_constraints
    return "decomposition" if large else "auto"


def common_slack(cmdp: CMDP, pool: Pool, rates: Floats, method: str) -> Answer:
    """A policy with the largest t such that J_ci >= rate_i t for each i, programme (2)."""
    notes: list[str] = []
    aim = Aim(rates=rates)
    return first_checked(cmdp, candidates(cmdp, pool, method, aim, notes), aim, notes)


def candidates(cmdp: CMDP, pool: Pool, method: str, aim: Aim, notes: list[str]) -> Iterator[Candidate]:
    """Solutions by "lp", by "decomposition" or, for "auto", by the one and then the other."""
    if method != "decomposition":
        yield from occupancy_lp(cmdp, aim, notes)
    if method != "lp":
        yield from decomposition(cmdp, pool, aim, notes)


def first_checked(cmdp: CMDP, proposed: Iterator[Candidate], aim: Aim, notes: list[str]) -> Answer:
    """The first candidate whose policy delivers what it promised and whose multipliers prove it optimal.

    The promise is where the evaluation of the policy begins, and its residual what ends it.
    """
    unit = 1 - cmdp.gamma
    for name, nu, weights, known, finished in proposed:
        policy = policy_of(cmdp, nu)
        own = occupancy(cmdp, policy, start=nu)
        raw = means(own, cmdp.signals) / unit
        bound = best_response(cmdp, weighted(cmdp.signals, weights)).bound if known is None else known
        gap = max(0.0, bound - aim.attained(raw))
        promised = means(nu, cmdp.signals)
        off = np.abs(unit * raw - promised).max()
        short = unit * aim.missed(raw)
        if not finished:
            return Answer(policy, own, raw, weights, gap, finished)
        if off > TRUST:
            notes.append(f"{name}: its policy evaluates to {unit * raw}, the programme says {promised}")
        elif short > TRUST:
            notes.append(f"{name}: its policy misses a constraint by {short:.3g}")
        elif unit * gap > TRUST * weights.sum():
            notes.append(f"{name}: its multipliers leave a gap of {unit * gap:.3g}")
        else:
            return Answer(policy, own, raw, weights, gap)
    raise ModelError(
        "no optimum passed the checks (numbers times 1-gamma, kernel units): "
        + "; ".join(notes)
        + ". Try the other method of optimum(), or check the model for entries of very different size"
    )


def policy_of(cmdp: CMDP, nu: Floats) -> Floats:
    """Action probabilities of an occupancy; uniform in states that it does not visit."""
    first = cmdp.state_to_choice[:-1]
    mass = np.add.reduceat(nu, first)[cmdp.choice_state]
    uniform = 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]
    # A mass that underflows in the division is as good as none.
    visited = mass > np.finfo(np.float64).tiny / EPS
    policy = np.where(visited, nu / np.where(visited, mass, 1.0), uniform)
    return policy / np.add.reduceat(policy, first)[cmdp.choice_state]
