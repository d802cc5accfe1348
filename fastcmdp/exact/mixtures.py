"""Two roads to a programme under constraints, and the checks that any answer has to pass.

In kernel units, over occupancies nu (equation (1) of `fastcmdp.exact`) or over mixtures of policies, an aim is

    the optimum        max nu . r   s.t.  nu . c_i >= floor for each i                               (1)
    the common slack   max t        s.t.  nu . c_i >= rate_i t for each i                            (2)

with rates >= 0, not all zero. With all rates one, (2) is the Slater problem. The multipliers of either weigh
the signals, with (1, lambda) or with (0, mu) where rate . mu = 1: a best response to the weighted signal
bounds how much better any other policy could be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load at their first use

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.exact.control import best_response, one_hot
from fastcmdp.exact.evaluation import occupancy, performances
from fastcmdp.exact.linear import EPS, Floats, Integers

LP_ENTRIES = 4_000  # branches per constraint up to which the full LP is quicker than the decomposition
MOST_POLICIES = 2_000  # in a decomposition
FEASIBLE = 1e-9  # a constraint missed by less, on the scale of (1-gamma) J, counts as met
TRUST = 1e-8  # largest disagreement, on the scale of (1-gamma) J, between an optimum and its checks


class Aim(NamedTuple):
    """What is maximised: the reward above a floor (1), or with rates the common slack (2)."""

    floor: float = 0.0  # of (1-gamma) J_ci
    rates: Floats | None = None

    def attained(self, raw: Floats) -> float:
        """What a policy of these values attains."""
        if self.rates is None:
            return float(raw[0])
        moved = self.rates > 0
        return float((raw[1:][moved] / self.rates[moved]).min())

    def missed(self, raw: Floats) -> float:
        """By how much it breaks a constraint that does not move with t."""
        fixed = raw[1:] if self.rates is None else raw[1:][self.rates == 0]
        return max(0.0, -float(fixed.min(initial=0.0)))


class Candidate(NamedTuple):
    """An answer that is still to be checked."""

    name: str  # of the method
    nu: Floats  # occupancy of choices, or the shares of a mixture
    weights: Floats  # of the signals in its Lagrangian


class Answer(NamedTuple):
    """A checked answer, in kernel units."""

    policy: Floats
    raw: Floats
    weights: Floats
    gap: float  # proven: nothing attains more than this policy and the gap


class Pool:
    """Deterministic policies met so far, with their values in kernel units."""

    def __init__(self, cmdp: CMDP) -> None:
        self.cmdp = cmdp
        self.choices: list[Integers] = []
        self.values: list[Floats] = []

    def respond(self, weights: Floats) -> float:
        """Add a best policy for the weighted sum of the signals; return what it attains."""
        response = best_response(self.cmdp, self.cmdp.signals @ weights)
        self.choices.append(response.choices)
        self.values.append(performances(self.cmdp, self.policy(-1)[None], "auto")[0])
        return response.attained

    def policy(self, k: int) -> Floats:
        """Action probabilities of policy k."""
        return one_hot(self.cmdp, self.choices[k])

    def occupancy(self, k: int) -> Floats:
        """Occupancy of policy k."""
        return occupancy(self.cmdp, self.policy(k))


def common_slack(cmdp: CMDP, pool: Pool, rates: Floats, method: str) -> Answer:
    """A policy with the largest t such that J_ci >= rate_i t for each i, programme (2)."""
    notes: list[str] = []
    aim = Aim(rates=rates)
    return first_checked(cmdp, candidates(cmdp, pool, method, aim, notes), aim, notes)


def candidates(cmdp: CMDP, pool: Pool, method: str, aim: Aim, notes: list[str]) -> Iterator[Candidate]:
    """Solutions by "lp", by "decomposition" or, for "auto", by the one and then the other."""
    if method != "decomposition":
        yield from _occupancy_lp(cmdp, aim, notes)
    if method != "lp":
        yield from _decomposition(cmdp, pool, aim, notes)


def first_checked(cmdp: CMDP, proposed: Iterator[Candidate], aim: Aim, notes: list[str]) -> Answer:
    """The first candidate whose policy delivers what it promised and whose multipliers prove it optimal."""
    unit = 1 - cmdp.gamma
    for name, nu, weights in proposed:
        policy = policy_of(cmdp, nu)
        raw = performances(cmdp, policy[None], "auto")[0]
        gap = max(0.0, best_response(cmdp, cmdp.signals @ weights).attained - aim.attained(raw))
        off = np.abs(unit * raw - nu @ cmdp.signals).max()
        short = unit * aim.missed(raw)
        if off > TRUST:
            notes.append(
                f"{name}: its policy evaluates to {unit * raw}, the programme says {nu @ cmdp.signals}"
            )
        elif short > TRUST:
            notes.append(f"{name}: its policy misses a constraint by {short:.3g}")
        elif unit * gap > TRUST * weights.sum():
            notes.append(f"{name}: its multipliers leave a gap of {unit * gap:.3g}")
        else:
            return Answer(policy, raw, weights, gap)
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


def _occupancy_lp(cmdp: CMDP, aim: Aim, notes: list[str]) -> Iterator[Candidate]:
    """The programme over occupancies that sum to 1, so that its numbers are of order one."""
    n_choices, n_states = cmdp.n_choices, cmdp.n_states
    owner = scipy.sparse.csr_array(
        (np.ones(n_choices), (cmdp.choice_state, np.arange(n_choices))), shape=(n_states, n_choices)
    )
    flow = owner - cmdp.gamma * cmdp.transition_matrix().T
    inflow = (1 - cmdp.gamma) * cmdp.start
    for name, x, weights in _programme(cmdp.signals, flow, inflow, aim, notes):
        nu = np.maximum(x, 0.0)
        yield Candidate(f"HiGHS ({name})", nu / nu.sum(), weights)


def _decomposition(cmdp: CMDP, pool: Pool, aim: Aim, notes: list[str]) -> Iterator[Candidate]:
    """The same programme over mixtures of deterministic policies, which are added as they are needed."""
    for _ in range(MOST_POLICIES):
        columns = (1 - cmdp.gamma) * np.array(pool.values)
        one = scipy.sparse.csr_array(np.ones((1, len(columns))))
        solution = next(_programme(columns, one, np.ones(1), aim, notes), None)
        if solution is None:
            return
        _, mix, weights = solution
        pool.respond(weights)
        improvement = (1 - cmdp.gamma) * pool.values[-1] @ weights - (columns @ weights).max()
        if improvement <= 1e-12 * weights.sum():
            parts = [share * pool.occupancy(k) for k, share in enumerate(mix) if share > 0]
            nu = np.sum(parts, axis=0)
            yield Candidate("decomposition", nu / nu.sum(), weights)
            return
    notes.append(f"decomposition: not finished after {MOST_POLICIES} policies")


def _programme(
    signals: Floats, balance: Any, supply: Floats, aim: Aim, notes: list[str]
) -> Iterator[Candidate]:
    """(1) or (2) over x >= 0 with balance x = supply, where x . signals are the values.

    One solution from each of HiGHS's methods, tried in turn: where one ends in numerical difficulties
    (status 4) or calls the problem infeasible or unbounded, which it is not, another often succeeds.
    """
    n, m = signals.shape[0], signals.shape[1] - 1
    slack = aim.rates is not None
    cost = np.append(np.zeros(n), -1.0) if slack else -signals[:, 0]
    at_most = scipy.sparse.csr_array(-signals[:, 1:].T)
    bounds = np.tile([0.0, np.inf], (len(cost), 1))
    if aim.rates is not None:  # one more unknown, t itself, of any sign
        at_most = scipy.sparse.hstack([at_most, aim.rates[:, None]], format="csr")
        balance = scipy.sparse.hstack([balance, scipy.sparse.csr_array((len(supply), 1))], format="csr")
        bounds[-1, 0] = -np.inf
    from scipy.optimize import linprog  # here, since it takes as long to import as all the rest

    tolerances = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    for name in ("highs-ipm", "highs-ds", "highs"):
        result = linprog(
            cost,
            A_ub=at_most,
            b_ub=np.full(m, -aim.floor),
            A_eq=balance,
            b_eq=supply,
            bounds=bounds,
            method=name,
            options=tolerances,
        )
        if result.status != 0:
            notes.append(f"HiGHS ({name}): status {result.status}, {result.message}")
            continue
        # HiGHS minimises, so loosening b_ub changes its objective by marginals <= 0.
        multipliers = np.maximum(-result.ineqlin.marginals, 0.0)
        if aim.rates is not None:
            multipliers = multipliers / (multipliers @ aim.rates)
        yield Candidate(name, result.x[:n], np.append(0.0 if slack else 1.0, multipliers))
