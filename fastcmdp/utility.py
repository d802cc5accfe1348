"""Concave utilities from samples: a constrained method on a reward that follows the estimated occupancy.

The step of Frank and Wolfe, with everything in it sampled. For k = 0..K-1, nu_0 the occupancy of the uniform policy,

    r_k  = grad f(nu_k)                                            the pseudo-reward, a table that changes with k
    pi_k = what a primal-dual method has learned for r_k under the limits, from samples / K transitions
    nu   = the last pairs of episodes of geometric length under pi_k: unbiased samples of its occupancy
    nu_{k+1} = (1 - t) nu_k + t nu,   t the best of a line search on f of these estimates; t = 1 for k = 0.

Concave constraints g_j >= 0 are limits of round k by their cuts at nu_k, equation (4) of `fastcmdp.exact.utilities`.
The line search takes off p_j max(0, -g_j), and the same for limits, p_j ten times the ratio of the spreads of grad f
and grad g_j: along a cut the set is left by the square of the step, and the next cut leads back. Spreads are medians
over the ends of the segment and its middle: at an end a logarithm's has no bound, in the middle an entropy's may be 0.

The policy is that of nu_K. For exact responses and occupancies the gap falls like 1/K (Jaggi, ICML 2013; recalled);
with sampled ones no rate is claimed. Variational policy gradients (Zhang et al., NeurIPS 2020) have the same
pseudo-rewards; a method that starts afresh at each of them is this project's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import ArrayLike, NDArray

from fastcmdp.algorithms.base import Algorithm
from fastcmdp.check import real, whole
from fastcmdp.cmdp import CMDP, table_of
from fastcmdp.exact.mixtures import policy_of
from fastcmdp.exact.utilities import Utility, with_cut
from fastcmdp.solve import solve

PRICE = 10.0  # of what is missed in a line search, in units of the spreads of both slopes
SHARE = 0.1  # of transitions that estimate occupancies; the rest learns

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Learned:
    """A policy learned for a utility.

    Attributes
    ----------
    policy : float64 (C,)
    occupancy : float64 (C,)
        Estimated from samples, not evaluated: `fastcmdp.occupancy` has the policy's own.
    value : float
        The utility of that estimate.
    trace : float64 (K,)
        The same after each round.
    samples : int
        Transitions in all.
    """

    policy: Float
    occupancy: Float
    value: float
    trace: Float
    samples: int

    def __repr__(self) -> str:
        return f"Learned(value={self.value:.6g}, samples={self.samples}, {len(self.trace)} rounds)"


def learn_utility(
    cmdp: CMDP,
    utility: Utility,
    *,
    samples: float,
    rounds: int = 20,
    seed: int = 0,
    algorithm: Algorithm | None = None,
    subject_to: Sequence[Utility] = (),
) -> Learned:
    """Learn a policy of great concave utility under the limits of the model, from samples alone.

    Parameters
    ----------
    cmdp : CMDP
        Its reward plays a part only where the utility takes it.
    utility : Utility
        See `fastcmdp.exact.maximise`, which has the exact answer.
    samples : float
        Transitions in all, about.
    rounds : int
        K: how often the reward changes.
    seed : int
    algorithm : Algorithm, optional
        Of each round, as `solve` takes it; with one given, its own schedule says how long a round is.
    subject_to : sequence of Utility
        Concave constraints g_j(nu) >= 0 beside the limits, as `fastcmdp.exact.maximise` takes them.

    Returns
    -------
    Learned

    Raises
    ------
    SettingError
        Settings out of range; as of `solve`.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> cmdp = fc.envs.garnet(n_states=5)
    >>> learned = fc.learn_utility(cmdp, fc.exact.entropy(cmdp), samples=1e5, rounds=3)
    >>> len(learned.trace)
    3
    """
    model, k = table_of(cmdp), whole("rounds", rounds, 1)
    each = real("samples", samples, 1.0, 1e15) / k
    rng = np.random.default_rng([seed, 0])
    episodes = max(1, int(SHARE * each * model.unit))
    uniform = 1.0 / np.diff(model.state_to_choice)[model.choice_state]
    nu, used = sampled_occupancy(model, uniform, episodes, rng)
    trace = np.empty(k)
    for i in range(k):
        seen = _seen(nu, episodes)
        stated = model.with_reward(utility.gradient(seen))
        for g in subject_to:
            stated = with_cut(stated, g, seen)
        budget = (1.0 - SHARE) * each if algorithm is None else None
        result = solve(stated, algorithm, samples=budget, seed=seed + i, optimum=False)
        response, drawn = sampled_occupancy(model, result.policy("last"), episodes, rng)
        used += drawn + int(result.samples.sum())
        # Limits bound a mixture of responses, and nothing else: of nu_0 nothing is kept.
        nu = response if i == 0 else _between(model, utility, subject_to, nu, response)
        trace[i] = utility.value(nu)
    return Learned(policy_of(model, nu), nu, float(trace[-1]), trace, used)


def _seen(nu: Float, episodes: int) -> Float:
    """The estimate with one more episode, spread evenly: a logarithm of what was not met yet stays finite."""
    return (episodes * nu + 1.0 / len(nu)) / (episodes + 1.0)


def _between(cmdp: CMDP, utility: Utility, above: Sequence[Utility], nu: Float, response: Float) -> Float:
    """The best point of the segment, what it misses of limits and constraints priced."""
    taken = (nu > 0) | (response > 0)

    def spread(f: Callable[[Float], Float]) -> float:
        points = nu, 0.5 * (nu + response), response
        return float(np.median([np.ptp(f(point)[taken]) for point in points]))

    goal = spread(utility.gradient) or 1.0  # nothing to gain leaves the limits

    def price(size: float) -> float:
        return PRICE * goal / size if size > 0.0 else 0.0

    limits = cmdp.signals[:, 1:].T
    prices = np.array(
        [price(float(np.ptp(row[taken]))) for row in limits] + [price(spread(g.gradient)) for g in above]
    )

    def worth(t: float) -> float:
        point = (1.0 - t) * nu + t * response
        room = np.append(limits @ point, [g.value(point) for g in above])
        return utility.value(point) + float(prices @ np.minimum(room, 0.0))

    best = scipy.optimize.minimize_scalar(lambda t: -worth(t), bounds=(0.0, 1.0), method="bounded")
    t = float(best.x)
    return (1.0 - t) * nu + t * response


def sampled_occupancy(
    cmdp: CMDP, policy: ArrayLike, episodes: int, rng: np.random.Generator
) -> tuple[Float, int]:
    """Frequencies (C,) of the last pairs of episodes of geometric length, and the transitions they took.

    The law of such a pair is the occupancy: the sum over t of (1-gamma) gamma^t Pr(s_t, a_t).
    """
    pi = cmdp.action_probabilities(policy)
    # One search for all rows: the sums of row i run from i to i + 1.
    taken, met = np.cumsum(pi), np.cumsum(cmdp.branch_prob)
    state = rng.choice(cmdp.n_states, size=episodes, p=cmdp.start)
    length = rng.geometric(cmdp.unit, size=episodes) - 1
    counts, used = np.zeros(cmdp.n_choices), int(length.sum())
    first, begin = cmdp.state_to_choice, cmdp.choice_to_branch
    while state.size:
        q = np.searchsorted(taken, state + rng.random(state.size), side="right")
        q = np.clip(q, first[state], first[state + 1] - 1)
        over = length == 0
        np.add.at(counts, q[over], 1.0)
        q, length = q[~over], length[~over] - 1
        b = np.searchsorted(met, q + rng.random(q.size), side="right")
        state = cmdp.branch_target[np.clip(b, begin[q], begin[q + 1] - 1)].astype(np.int64)
    return counts / episodes, used
