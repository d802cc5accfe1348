"""Linear programmes, over occupancies or over mixtures, for HiGHS.

In kernel units, over occupancies nu (equation (1) of `fastcmdp.exact`) or over mixtures of policies, an aim is

    the optimum        max nu . r   s.t.  nu . c_i >= floor for each i                               (1)
    the common slack   max t        s.t.  nu . c_i >= rate_i t for each i                            (2)

with rates >= 0, not all zero. With all rates one, (2) is the Slater problem. The multipliers of either weigh
the signals, with (1, lambda) or with (0, mu) where rate . mu = 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load at their first use

from fastcmdp.cmdp import CMDP
from fastcmdp.exact.linear import Floats


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
    bound: float | None = None  # of that Lagrangian over all policies, if known
    finished: bool = True


def occupancy_lp(cmdp: CMDP, aim: Aim, notes: list[str]) -> Iterator[Candidate]:
    """The programme over occupancies that sum to 1, so that its numbers are of order one."""
    n_choices, n_states = cmdp.n_choices, cmdp.n_states
    owner = scipy.sparse.csr_array(
        (np.ones(n_choices), (cmdp.choice_state, np.arange(n_choices))), shape=(n_states, n_choices)
    )
    flow = owner - cmdp.gamma * cmdp.transition_matrix().T
    inflow = (1 - cmdp.gamma) * cmdp.start
    for name, x, weights, _, _ in programme(cmdp.signals, flow, inflow, aim, notes):
        nu = np.maximum(x, 0.0)
        yield Candidate(f"HiGHS ({name})", nu / nu.sum(), weights)


def programme(
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
