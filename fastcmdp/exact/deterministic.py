"""The best stationary deterministic policy under constraints: bounds, and a policy by branch and bound.

Under constraints the best policy is randomised, in as many states as there are active limits. The best one that is not
is NP-hard to find (Feinberg, Mathematics of Operations Research 25, 2000). Here each node of a tree bars some choices;
its optimum bounds what its deterministic policies attain, and rounding it proposes one of them. A node branches on a
state in which its optimum randomises.
"""

from __future__ import annotations

import heapq
import math
import warnings
from dataclasses import dataclass
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from fastcmdp.check import whole
from fastcmdp.cmdp import CMDP, table_of
from fastcmdp.errors import InfeasibleError, NearlyInfeasibleWarning
from fastcmdp.exact.constrained import Optimum, optimum
from fastcmdp.exact.control import one_hot
from fastcmdp.exact.evaluation import evaluate
from fastcmdp.exact.linear import Floats, frozen
from fastcmdp.exact.mixtures import FEASIBLE

MOST_ROUNDINGS = 16  # of the optimum of a node
Bits = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class Deterministic:
    """The best deterministic policy that was found, and what bounds the others.

    Attributes
    ----------
    reward : float
        J_r in the user's units; minus infinity where none that meets the limits was found.
    constraints : float64[m]
        Its constraint values in the user's units; NaN where there is none.
    policy : float64[C] or None
        Action probabilities, 0 or 1.
    bound : float
        No deterministic policy that meets the limits has a greater reward.
    proven : bool
        Nothing better exists, but for 1e-9 on the scale of (1-gamma) J.
    nodes : int
        Optima that were computed.
    """

    reward: float
    constraints: Floats
    policy: Floats | None
    bound: float
    proven: bool
    nodes: int

    def __repr__(self) -> str:
        kind = "proven best" if self.proven else f"at most {self.bound:.6g}"
        return f"Deterministic(reward={self.reward:.6g}, {kind}, constraints={self.constraints}, {self.nodes} nodes)"


def deterministic(cmdp: CMDP, nodes: int = 1000) -> Deterministic:
    """Best deterministic policy under the constraints, by branch and bound.

    Parameters
    ----------
    cmdp : CMDP
    nodes : int
        Optima that may be computed, at least 1; for large models 1 rounds the optimum and gives its bound.

    Raises
    ------
    InfeasibleError
        When no policy meets the constraints, randomised or not.
    SettingError
        When ``nodes`` is no whole number above 0.

    Examples
    --------
    One action earns 1 and costs 1, another neither; half of the first is allowed, and that needs a coin:

    >>> import fastcmdp as fc
    >>> cmdp = fc.CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [0, 1], [0, 1], gamma=0.5, limits=1)
    >>> round(fc.optimum(cmdp).reward, 9), fc.exact.deterministic(cmdp).reward
    (1.0, 0.0)
    """
    cmdp = table_of(cmdp)
    nodes = whole("nodes", nodes, 1)
    tolerance = FEASIBLE * cmdp.reward_scale / (1 - cmdp.gamma)
    everything = np.ones(cmdp.n_choices, dtype=bool)
    best = Deterministic(-np.inf, frozen(np.full(cmdp.n_constraints, np.nan)), None, np.inf, False, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NearlyInfeasibleWarning)  # of parts of the tree
        root = optimum(cmdp)
        queue = [(-root.reward - root.gap, 0, everything, root)]
        used = 1
        while queue and -queue[0][0] > best.reward + tolerance:
            _, _, allowed, node = heapq.heappop(queue)
            pi = np.zeros(cmdp.n_choices)
            pi[allowed] = node.policy
            occupancy = np.zeros(cmdp.n_choices)
            occupancy[allowed] = node.occupancy
            mixed = _mixed_states(cmdp, pi, occupancy)
            best = max([best, *_rounded(cmdp, pi, mixed)], key=lambda policy: policy.reward)
            if not mixed.size:
                continue  # its optimum is deterministic
            here = np.flatnonzero(allowed & (cmdp.choice_state == mixed[0]))
            if used + len(here) > nodes:
                queue.append((-node.reward - node.gap, used, allowed, node))
                heapq.heapify(queue)
                break
            for q in here:
                part = allowed.copy()
                part[here] = False
                part[q] = True
                child = _optimum_of(cmdp, part)
                used += 1
                if child is not None:
                    heapq.heappush(queue, (-child.reward - child.gap, used, part, child))
    bound = max(best.reward, -queue[0][0] if queue else -np.inf)
    return Deterministic(
        best.reward, best.constraints, best.policy, bound, bool(bound <= best.reward + tolerance), used
    )


def _optimum_of(cmdp: CMDP, allowed: Bits) -> Optimum | None:
    """The optimum among policies that take allowed choices; None if no such policy meets the limits."""
    counts = np.add.reduceat(allowed.astype(np.int64), cmdp.state_to_choice[:-1])
    lengths = np.diff(cmdp.choice_to_branch)
    branches = np.repeat(allowed, lengths)
    part = CMDP(
        np.append(0, np.cumsum(counts)),
        np.append(0, np.cumsum(lengths[allowed])),
        cmdp.branch_target[branches],
        cmdp.branch_prob[branches],
        cmdp.reward[allowed],
        list(cmdp.costs[allowed].T) or None,
        gamma=cmdp.gamma,
        start=cmdp.start,
        limits=cmdp.limits,
        sense=cmdp.sense,
        names=cmdp.names,
    )
    try:
        return optimum(part)
    except InfeasibleError:
        return None


def _mixed_states(cmdp: CMDP, pi: Floats, occupancy: Floats) -> NDArray[np.int64]:
    """States that are visited and in which the policy randomises, the most of it first."""
    first = cmdp.state_to_choice[:-1]
    largest = np.maximum.reduceat(pi, first)
    mixed = np.add.reduceat(occupancy, first) * np.where(largest < 1.0 - 1e-12, 1.0 - largest, 0.0)
    states = np.flatnonzero(mixed > 0.0)
    return states[np.argsort(-mixed[states], kind="stable")]


def _rounded(cmdp: CMDP, pi: Floats, mixed: NDArray[np.int64]) -> list[Deterministic]:
    """Policies near this one that meet the limits: likeliest choices, and all that it takes in a few mixed states."""
    likeliest = np.flatnonzero(pi >= np.maximum.reduceat(pi, cmdp.state_to_choice[:-1])[cmdp.choice_state])
    base = likeliest[np.unique(cmdp.choice_state[likeliest], return_index=True)[1]]
    few = mixed[: int(math.log2(MOST_ROUNDINGS))].tolist()
    begin = cmdp.state_to_choice
    options = [begin[s] + np.flatnonzero(pi[begin[s] : begin[s + 1]] > 0.0) for s in few]
    policies = []
    for chosen in islice(product(*options), MOST_ROUNDINGS):
        choices = base.copy()
        choices[few] = chosen
        policy = one_hot(cmdp, choices)
        value = evaluate(cmdp, policy)
        if (1 - cmdp.gamma) * value.raw[1:].min(initial=0.0) >= -FEASIBLE:
            policies.append(Deterministic(value.reward, value.constraints, frozen(policy), np.inf, False, 0))
    return policies
