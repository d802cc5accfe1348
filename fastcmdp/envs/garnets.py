"""Random sparse CMDPs: the GARNET family (generic average reward non-stationary environment testbed)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.check import check_memory, real, seed_number, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.envs.limits import Limit, with_limit

# The halfway rule needs some dozens of linear solves; beyond this size the rule of `_swept_limits` takes
# over.
_EXACT_STATES = 1000
# Rows are drawn in blocks of about this many numbers, so that temporaries stay small. Part of the definition
# of the model: another block size would order the draws differently.
_BLOCK = 1 << 20
_FEW = 5
_BRANCH_BYTES = 36  # of memory for a branch, while the model is built


def garnet(
    n_states: int = 20,
    n_actions: int = 4,
    n_branches: int | str | None = "few",
    gamma: float = 0.9,
    seed: int = 0,
    limit: Limit = None,
    n_constraints: int = 1,
) -> CMDP:
    """A random CMDP in which each pair (s, a) leads to `n_branches` states drawn without replacement.

    Probabilities are the spacings of uniform points on [0, 1], that is, uniform on the simplex. Rewards and
    costs of the pairs are independent and uniform on [0, 1). Choice s * n_actions + a is action a of state s.
    The start is uniform. Fast and lean up to millions of states.

    Parameters
    ----------
    n_states, n_actions : int
        Sizes, at least 1.
    n_branches : int, None or "few"
        Next states of each pair, from 1 to `n_states`. None: every state (a dense model). "few": 5, or every
        state where there are fewer.
    gamma : float
        Discount factor in (0, 1).
    seed : int
        Seed of `numpy.random.default_rng`. The model is the same for any number of constraints, and the first
        costs are the same too.
    limit : float, sequence of float, or None
        Limits on the costs (J_i <= limit_i). None: the halfway rule of `fastcmdp.envs.limits` up to 1,000
        states; above, halfway between the cost of the uniform policy and of the one that takes the choice
        with the least (sum of) costs in each state, both by sweeps. The first is close to the cost of the
        best policy, for rewards and costs are independent. Rounded to six digits.
    n_constraints : int
        Number of costs, at least 0.

    Raises
    ------
    SettingError
        A setting is out of range.

    References
    ----------
    S. Bhatnagar, R. Sutton, M. Ghavamzadeh, M. Lee, Natural actor-critic algorithms, Automatica 45 (2009).

    Examples
    --------
    >>> from fastcmdp.envs import garnet
    >>> cmdp = garnet(n_states=100, n_actions=4, n_branches=5, gamma=0.95, seed=0)
    >>> cmdp.n_states, cmdp.n_choices, cmdp.n_branches, cmdp.n_constraints
    (100, 400, 2000, 1)
    """
    n_states, n_actions = whole("n_states", n_states, 1, 2**31 - 1), whole("n_actions", n_actions, 1)
    if n_branches == "few":
        branches = min(_FEW, n_states)
    else:
        branches = n_states if n_branches is None else whole("n_branches", n_branches, 1, n_states)
    gamma = real("gamma", gamma, 0.0, 1.0, inside=True)
    seed, n_constraints = seed_number(seed), whole("n_constraints", n_constraints, 0)
    n_choices = n_states * n_actions
    size = n_choices * (branches * _BRANCH_BYTES + 8.0 * (4 + 3 * n_constraints))
    check_memory(size, n_states=n_states, n_actions=n_actions, n_branches=branches)

    # Separate streams, so that one part of the model does not depend on the size of another.
    targets, spacings, signals = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    target = _targets(targets, n_choices, n_states, branches)
    probability = _spacings(spacings, n_choices, branches)
    drawn = signals.random((1 + n_constraints, n_choices))

    cmdp = CMDP(
        np.arange(n_states + 1, dtype=np.int64) * n_actions,
        np.arange(n_choices + 1, dtype=np.int64) * branches,
        target.ravel(),
        probability.ravel(),
        drawn[0],
        list(drawn[1:]) or None,
        gamma=gamma,
        limits=[0.0] * n_constraints or None,
    )
    if limit is None and n_constraints and n_states > _EXACT_STATES:
        limit = _swept_limits(target, probability, drawn[1:], n_states, gamma)
    return with_limit(cmdp, limit)


def _targets(rng: np.random.Generator, rows: int, n_states: int, branches: int) -> NDArray[np.int32]:
    """For each row a uniform subset of the states, ascending."""
    if branches == n_states:
        return np.tile(np.arange(n_states, dtype=np.int32), (rows, 1))
    # Floyd's method costs branches^2 / 2 comparisons a row, a shuffle n_states draws: take the cheaper.
    floyd = branches**2 <= 16 * n_states
    width = branches if floyd else n_states
    out = np.empty((rows, branches), dtype=np.int32)
    for block in _blocks(rows, width):
        part = out[block]
        if floyd:
            for column, top in enumerate(range(n_states - branches, n_states)):
                draw = rng.integers(0, top + 1, size=len(part), dtype=np.int32)
                taken = np.zeros(len(part), dtype=bool)
                for before in range(column):
                    taken |= part[:, before] == draw
                part[:, column] = np.where(taken, top, draw)
        else:
            shuffled = np.tile(np.arange(n_states, dtype=np.int32), (len(part), 1))
            part[:] = rng.permuted(shuffled, axis=1, out=shuffled)[:, :branches]
        part.sort(axis=1)
    return out


def _spacings(rng: np.random.Generator, rows: int, branches: int) -> NDArray[np.float64]:
    """Rows uniform on the simplex: the gaps that branches - 1 uniform points cut [0, 1] into."""
    out = np.empty((rows, branches))
    for block in _blocks(rows, branches):
        part = out[block]
        cuts = np.zeros((len(part), branches + 1))
        cuts[:, -1] = 1.0
        cuts[:, 1:-1] = rng.random((len(part), branches - 1))
        cuts[:, 1:-1].sort(axis=1)
        np.subtract(cuts[:, 1:], cuts[:, :-1], out=part)
    return out


def _blocks(rows: int, width: int) -> list[slice]:
    step = max(1, _BLOCK // width)
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]


def _swept_limits(
    target: NDArray[np.int32],
    probability: NDArray[np.float64],
    costs: NDArray[np.float64],
    n_states: int,
    gamma: float,
) -> list[float]:
    """Halfway between the costs of the uniform and of the greedy policy, from a few dozen sweeps each."""
    from scipy import sparse

    rows, branches = target.shape
    n_actions = rows // n_states
    greedy = costs.sum(axis=0).reshape(n_states, n_actions).argmin(axis=1) + np.arange(n_states) * n_actions

    def matrix(target: NDArray[np.int32], probability: NDArray[np.float64]) -> sparse.csr_array:
        # A view of the same arrays. 32-bit row starts where they suffice: otherwise scipy would widen the
        # targets.
        fits = target.size < 2**31
        starts = np.arange(len(target) + 1, dtype=np.int32 if fits else np.int64) * branches
        return sparse.csr_array((probability.ravel(), target.ravel(), starts), shape=(len(target), n_states))

    everything, greediest = matrix(target, probability), matrix(target[greedy], probability[greedy])
    limits = []
    for cost in costs:
        uniform = _swept_value(everything, cost, n_actions, gamma)
        careful = _swept_value(greediest, cost[greedy], 1, gamma)
        room = 0.5 * (uniform - careful) if uniform > careful else 0.1 * max(careful, 1.0)
        limits.append(float(f"{careful + room:.6g}"))
    return limits


def _swept_value(rows: Any, cost: NDArray[np.float64], n_actions: int, gamma: float) -> float:
    """J from a uniform start for the policy that draws one of each state's `n_actions` rows.

    J = sum_t gamma^t mean(u_t), u_t the expected cost t steps ahead of each state. In a random graph u_t
    flattens geometrically; once flat, the rest of the sum is a geometric series.
    """
    value, weight = 0.0, 1.0
    ahead = cost.reshape(-1, n_actions).mean(axis=1)
    for _ in range(60):
        if np.ptp(ahead) <= 1e-7:
            break
        value += weight * float(ahead.mean())
        weight *= gamma
        ahead = (rows @ ahead).reshape(-1, n_actions).mean(axis=1)
    return value + weight / (1.0 - gamma) * float(ahead.mean())
