"""Exact answers for an explicit model: evaluation, occupancy, optimum, Fisher matrix, natural gradient.

Notation. J_f(pi) is the discounted sum of the signal f from the start distribution, not normalised by
1-gamma. A policy is a vector ``pi`` of action probabilities, one for each choice q of the model, s_q the
state that owns q. P is the (C, S) matrix of transition probabilities, W_pi the (S, C) matrix that averages
over the choices of a state, P_pi = W_pi P the chain of a policy, d its occupancy of states and nu its
occupancy of choices::

    d = (1-gamma) start + gamma P_pi^T d,  sum d = 1          nu(q) = d(s_q) pi(q)                    (1)
    V = W_pi f + gamma P_pi V              Q = f + gamma P V          A(q) = Q(q) - V(s_q)             (2)
    J_f = sum_q nu(q) f(q) / (1-gamma) = start . V                                                   (3)
    A_L = A_r + sum_i lambda_i A_ci                                                                  (4)
    F   = sum_q nu(q) g_q g_q^T                                            (paper, eq_def_F_rho)     (5)
    grad J_L = 1/(1-gamma) sum_q nu(q) A_L(q) g_q                  (paper, eq:policy_grad_theorem)   (6)
    omega* = F^+ grad J_L                                             (paper, eq_quad_optimization)  (7)

with g_q the score, the gradient of log pi(q). "Kernel units" are those of ``CMDP.signals``: a reward in
[0, 1] and constraints in [-1, 1] that are met when J_ci >= 0. Everything else is in the user's units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import ArrayLike, NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import InfeasibleError, ModelError, SettingError

__all__ = [
    "Optimum",
    "Value",
    "advantages",
    "dual_value",
    "evaluate",
    "evaluate_many",
    "fisher",
    "natural_gradient",
    "occupancy",
    "optimum",
    "policy_gradient",
    "q_values",
    "state_occupancy",
    "values",
]

Floats = NDArray[np.float64]
Method = Literal["auto", "direct", "iterative"]

EPS = float(np.finfo(np.float64).eps)
DENSE_STATES = 128  # up to here a dense factorisation beats iteration, see _dense_solve
LAPACK_ROWS = 64  # largest block that LAPACK is given where that can be helped
LARGEST_DENSE = 2_000  # up to here "direct" stays dense: sparse factors of a random graph fill in anyway
DENSE_ENTRIES = 20_000_000  # largest dense copy of P: C * S entries
BLOCK_ENTRIES = 300_000  # chains are solved in blocks of so many entries, which stay in the cache
LP_ENTRIES = 4_000  # branches per constraint up to which the full LP is quicker than the decomposition
MOST_LP_ENTRIES = 1_000_000  # branches; 83,456 take 16 s, and the time grows faster than they do
KRYLOV_STEPS = 100  # BiCGSTAB steps between two looks at the true residual
KRYLOV_RESTARTS = 12
SWEEPS = 10  # fixed-point steps before each restart, value iterations before each policy evaluation
MOST_ROUNDS = 1_000  # of policy iteration
MOST_POLICIES = 2_000  # in a decomposition
MISSED = 1e-6  # a limit missed by more than this part of 1 + |limit|, in the user's units, is no rounding
FEASIBLE = 1e-9  # a constraint missed by less, on the scale of (1-gamma) J, counts as met
TRUST = 1e-8  # largest disagreement, on the scale of (1-gamma) J, between an optimum and its checks


@dataclass(frozen=True, eq=False)
class Value:
    """The value of a policy.

    Attributes
    ----------
    reward : float
        J_r in the user's units.
    constraints : float64[m]
        The value of each constraint signal in the user's units, to be compared with its limit.
    raw : float64[1+m]
        J_r and J_c in kernel units; a constraint is met when its entry is >= 0.
    """

    reward: float
    constraints: Floats
    raw: Floats


@dataclass(frozen=True, eq=False, repr=False)
class Optimum:
    """The best policy that meets the constraints, and what surrounds it.

    Attributes
    ----------
    reward : float
        J_r of ``policy`` in the user's units, from its own evaluation.
    constraints : float64[m]
        Constraint values of ``policy`` in the user's units.
    duals : float64[m]
        Multipliers >= 0: reward gained per unit by which a limit is loosened, both in the user's units. Where
        several multipliers are optimal, one of them.
    policy : float64[C]
        Action probabilities; randomised in general, uniform in states that it never visits.
    occupancy : float64[C]
        Its occupancy, which sums to 1.
    slater : float
        max over policies of min over i of J_ci, in kernel units: the paper's c_slater. Infinite when m = 0.
    constraint_range : float64[m, 2]
        Least and greatest value that each constraint can take over all policies, in the user's units.
    reward_range : float64[2]
        Least and greatest value that J_r can take over all policies, whether or not they meet the constraints.
    gap : float
        No policy that meets the constraints has a reward above ``reward + gap`` (user's units): a bound from
        minimising the dual function that does not rest on the linear programme.
    raw : float64[1+m]
        Values of ``policy`` in kernel units.
    raw_duals : float64[m]
        Multipliers in kernel units, as algorithms use them.
    """

    reward: float
    constraints: Floats
    duals: Floats
    policy: Floats
    occupancy: Floats
    slater: float
    constraint_range: Floats
    reward_range: Floats
    gap: float
    raw: Floats
    raw_duals: Floats

    def __repr__(self) -> str:
        return (
            f"Optimum(reward={self.reward:.6g}, constraints={self.constraints}, duals={self.duals}, "
            f"slater={self.slater:.6g}, policy of {self.policy.size} choices)"
        )


def evaluate(cmdp: CMDP, action_probabilities: ArrayLike, *, method: Method = "auto") -> Value:
    """Value of a policy from its start distribution, by equations (1) and (3).

    Parameters
    ----------
    cmdp : CMDP
    action_probabilities : (C,) or (S, A) array
        Probability of each choice; every state's sum to 1.
    method : {"auto", "direct", "iterative"}
        "direct" factorises I - gamma P_pi, "iterative" runs a Krylov method (BiCGSTAB, and once more with an
        incomplete factorisation where that stalls). "auto" is direct for few states, else iterative and,
        should that stall, direct. Whatever the method, the residual is computed and must prove a relative
        error of at most max(1e-12, 16 eps/(1-gamma)).

    Raises
    ------
    ModelError
        When the probabilities are no policy, or no method reaches that accuracy.
    SettingError
        When ``method`` is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> stay = np.ones((1, 2, 1))  # one state, two actions
    >>> cmdp = CMDP.from_arrays(stay, [[0.0, 1.0]], [[0.0, 1.0]], gamma=0.5, limits=[1.0])
    >>> value = evaluate(cmdp, [0.25, 0.75])
    >>> print(value.reward, value.constraints)
    1.5 [1.5]
    """
    raw = _performances(cmdp, cmdp.action_probabilities(action_probabilities)[None], method)[0]
    return _value(cmdp, raw)


def evaluate_many(cmdp: CMDP, policies: ArrayLike, *, method: Method = "auto") -> Floats:
    """Values of n policies in kernel units: a float64[n, 1+m], reward first.

    A row does not depend on the rows beside it, to the last bit: a trace may be evaluated in any chunks.

    Parameters
    ----------
    cmdp : CMDP
    policies : (n, C) array
        One policy per row; see `evaluate`.
    method : {"auto", "direct", "iterative"}
        See `evaluate`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> cmdp = CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], gamma=0.5)
    >>> print(evaluate_many(cmdp, [[1.0, 0.0], [0.5, 0.5]]))
    [[0.]
     [1.]]
    """
    rows = np.asarray(policies)
    if rows.ndim != 2 or rows.shape[1] != cmdp.n_choices:
        raise ModelError(
            f"policies have shape {rows.shape}; (n, {cmdp.n_choices}) is expected, a row per policy and a "
            "probability per choice"
        )
    checked = np.empty(rows.shape)
    for row, out in zip(rows, checked, strict=True):
        out[:] = cmdp.action_probabilities(row)
    return _performances(cmdp, checked, method)


def values(cmdp: CMDP, action_probabilities: ArrayLike, *, method: Method = "auto") -> Floats:
    """State values V of equation (2): float64[S, 1+m] in kernel units, reward first.

    Arguments and errors as for `evaluate`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> cmdp = CMDP.from_arrays(np.eye(2)[:, None], [[0.0], [1.0]], gamma=0.5)  # two absorbing states
    >>> print(values(cmdp, [1.0, 1.0]).ravel())
    [0. 2.]
    """
    pi = cmdp.action_probabilities(action_probabilities)
    return _solve(_chain(cmdp, pi), _weights(cmdp, pi) @ cmdp.signals, cmdp.gamma, method, np.inf)


def q_values(cmdp: CMDP, action_probabilities: ArrayLike, *, method: Method = "auto") -> Floats:
    """Choice values Q of equation (2): float64[C, 1+m] in kernel units, reward first.

    Arguments and errors as for `evaluate`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> cmdp = CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], gamma=0.5)
    >>> print(q_values(cmdp, [0.5, 0.5]).ravel())
    [0.5 1.5]
    """
    state_values = values(cmdp, action_probabilities, method=method)
    return cast(Floats, cmdp.signals + cmdp.gamma * (cmdp.transition_matrix() @ state_values))


def advantages(cmdp: CMDP, action_probabilities: ArrayLike, *, method: Method = "auto") -> Floats:
    """Advantages A of equation (2): float64[C, 1+m] in kernel units, reward first.

    Arguments and errors as for `evaluate`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> cmdp = CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], gamma=0.5)
    >>> print(advantages(cmdp, [0.5, 0.5]).ravel())
    [-0.5  0.5]
    """
    state_values = values(cmdp, action_probabilities, method=method)
    ahead = cmdp.gamma * (cmdp.transition_matrix() @ state_values)
    return cast(Floats, cmdp.signals + ahead - state_values[cmdp.choice_state])


def state_occupancy(cmdp: CMDP, action_probabilities: ArrayLike, *, method: Method = "auto") -> Floats:
    """State occupancy d of equation (1): float64[S], nonnegative, sums to 1.

    Arguments and errors as for `evaluate`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> cycle = np.array([[[0.0, 1.0]], [[1.0, 0.0]]])
    >>> cmdp = CMDP.from_arrays(cycle, [0.0, 1.0], gamma=0.5, start=0)
    >>> print((3 * state_occupancy(cmdp, [1.0, 1.0])).round(12))
    [2. 1.]
    """
    pi = cmdp.action_probabilities(action_probabilities)
    return cast(Floats, _occupancies(cmdp, pi[None], method)[0])


def occupancy(cmdp: CMDP, action_probabilities: ArrayLike, *, method: Method = "auto") -> Floats:
    """Occupancy nu of equation (1): float64[C], nonnegative, sums to 1.

    The paper's eq:def_state_action_occupancy. Arguments and errors as for `evaluate`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> cmdp = CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], gamma=0.5)
    >>> print(occupancy(cmdp, [0.25, 0.75]))
    [0.25 0.75]
    """
    pi = cmdp.action_probabilities(action_probabilities)
    return cast(Floats, _occupancies(cmdp, pi[None], method)[0][cmdp.choice_state] * pi)


def fisher(cmdp: CMDP, scores: Any, action_probabilities: ArrayLike) -> Floats:
    """Fisher matrix F of equation (5), float64[d, d].

    Parameters
    ----------
    cmdp : CMDP
    scores : (C, d) array or scipy sparse
        Row q is the gradient of log pi(q) at ``action_probabilities``.
    action_probabilities : (C,) or (S, A) array

    Raises
    ------
    ModelError
        When the scores have the wrong shape or are not finite, and as `evaluate`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> cmdp = CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], gamma=0.5)
    >>> print(fisher(cmdp, [[0.5, -0.5], [-0.5, 0.5]], [0.5, 0.5]))  # tabular softmax: singular
    [[ 0.25 -0.25]
     [-0.25  0.25]]
    """
    rows = _scores(cmdp, scores)
    nu = occupancy(cmdp, action_probabilities)
    product = (
        rows.T @ (scipy.sparse.diags_array(nu) @ rows)
        if scipy.sparse.issparse(rows)
        else rows.T @ (nu[:, None] * rows)
    )
    dense = product.toarray() if scipy.sparse.issparse(product) else product
    return cast(Floats, (dense + dense.T) / 2)


def policy_gradient(cmdp: CMDP, scores: Any, action_probabilities: ArrayLike, dual: ArrayLike = ()) -> Floats:
    """Gradient of J_r + sum_i dual_i J_ci in the policy's parameters, by equation (6): float64[d].

    Parameters
    ----------
    cmdp : CMDP
    scores : (C, d) array or scipy sparse
        Row q is the gradient of log pi(q) at ``action_probabilities``.
    action_probabilities : (C,) or (S, A) array
    dual : (m,) array, or a number when m = 1
        Multipliers in kernel units, >= 0.

    Raises
    ------
    ModelError, SettingError
        Scores as in `fisher`, multipliers as in `dual_value`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> cmdp = CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], gamma=0.5)
    >>> print(policy_gradient(cmdp, [[0.5, -0.5], [-0.5, 0.5]], [0.5, 0.5]))
    [-0.5  0.5]
    """
    rows = _scores(cmdp, scores)
    weights = np.concatenate(([1.0], _duals(cmdp, dual)))
    lagrangian = advantages(cmdp, action_probabilities) @ weights
    gradient = rows.T @ (occupancy(cmdp, action_probabilities) * lagrangian)
    return np.asarray(gradient) / (1 - cmdp.gamma)


def natural_gradient(
    cmdp: CMDP,
    scores: Any,
    action_probabilities: ArrayLike,
    dual: ArrayLike = (),
    *,
    cutoff: float | None = None,
) -> Floats:
    """Natural gradient omega* = F^+ grad J_L of equation (7), the one of least norm: float64[d].

    F^+ comes from the eigenvalues of F. Forms a dense d x d matrix: for a tabular softmax with many states
    use its closed form instead, A_L/(1-gamma) minus its unweighted mean over the state's choices, on visited
    states.

    Parameters
    ----------
    cmdp, scores, action_probabilities, dual
        As in `policy_gradient`.
    cutoff : float, optional
        Eigenvalues of F up to ``cutoff`` times the largest count as zero. Default 16 d eps: above the
        rounding of a null direction. Directions that matter less than that (states that are hardly ever
        visited, choices that are hardly ever taken) get no gradient.

    Raises
    ------
    ModelError, SettingError
        As `policy_gradient`; SettingError for a cutoff outside [0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> cmdp = CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], gamma=0.5)
    >>> print(natural_gradient(cmdp, [[0.5, -0.5], [-0.5, 0.5]], [0.5, 0.5]).round(12))
    [-1.  1.]
    """
    matrix = fisher(cmdp, scores, action_probabilities)
    cutoff = 16 * len(matrix) * EPS if cutoff is None else cutoff
    if not 0 <= cutoff < 1:
        raise SettingError(f"cutoff is {cutoff}; a number in [0, 1) is expected")
    gradient = policy_gradient(cmdp, scores, action_probabilities, dual)
    eigenvalues, vectors = np.linalg.eigh(matrix)
    kept = eigenvalues > cutoff * eigenvalues.max(initial=0.0)
    basis = vectors[:, kept]
    return cast(Floats, basis @ ((basis.T @ gradient) / eigenvalues[kept]))


def dual_value(cmdp: CMDP, duals: ArrayLike = ()) -> float:
    """Dual function g(lambda) = max over policies of J_r + sum_i lambda_i J_ci, in kernel units.

    Convex in lambda; its least value over lambda >= 0 is the optimal J_r, and any of its values bounds that
    from above. Found by policy iteration, without the linear programme of `optimum`: a second road to the
    same number.

    Parameters
    ----------
    cmdp : CMDP
    duals : (m,) array, or a number when m = 1
        Multipliers in kernel units (``cmdp.from_user_duals`` converts), >= 0 and finite.

    Raises
    ------
    SettingError
        When the multipliers are negative, not finite, or not m of them.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> stay = np.ones((1, 2, 1))
    >>> cmdp = CMDP.from_arrays(stay, [[0.0, 1.0]], [[0.0, 1.0]], gamma=0.5, limits=[1.0])
    >>> dual_value(cmdp, 0.0), dual_value(cmdp, 1.0)
    (2.0, 1.0)
    """
    weights = np.concatenate(([1.0], _duals(cmdp, duals)))
    return _best_response(cmdp, cmdp.signals @ weights)[0]


def optimum(cmdp: CMDP, *, method: Literal["auto", "lp", "decomposition"] = "auto") -> Optimum:
    """Best policy under the constraints, with multipliers, Slater value and attainable ranges.

    Solves max nu . r over occupancies nu >= 0 with sum_{q in s} nu(q) = (1-gamma) start(s) + gamma (P^T
    nu)(s) and nu . c_i >= 0 (Altman, Constrained Markov Decision Processes, 1999, chapter 3), either as it
    stands with HiGHS ("lp") or by Dantzig-Wolfe decomposition ("decomposition"): HiGHS mixes deterministic
    policies, policy iteration finds the next one worth mixing in. That is the dual method: each round maximises
    the Lagrangian at the multipliers so far. Both give the same answer; the second needs little memory beyond
    the model and is faster for all but small models. "auto" chooses by size, and takes the second where the
    first fails its checks.

    The answer is checked twice before it is returned: its policy is evaluated afresh, and its multipliers are
    put into the dual function, which bounds how much better any other policy could be (``Optimum.gap``).

    Raises
    ------
    InfeasibleError
        When no policy meets the constraints; says the best attainable value of each. A limit missed by less
        than 1e-9 of the constraint's largest possible value counts as met.
    ModelError
        When none of HiGHS's methods gives an answer that passes the checks.
    SettingError
        When ``method`` is unknown, or "lp" for more than a million branches: said beforehand, not found out.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> stay = np.ones((1, 2, 1))
    >>> cmdp = CMDP.from_arrays(stay, [[0.0, 1.0]], [[0.0, 1.0]], gamma=0.5, limits=[1.5])
    >>> best = optimum(cmdp)
    >>> print(best.reward, best.constraints, best.duals, best.policy)
    1.5 [1.5] [1.] [0.25 0.75]
    """
    if method not in ("auto", "lp", "decomposition"):
        raise SettingError(f"method is {method!r}; 'auto', 'lp' or 'decomposition' is expected")
    if method == "lp" and cmdp.n_branches > MOST_LP_ENTRIES:
        raise SettingError(
            f"the linear programme of {cmdp.n_states} states and {cmdp.n_branches} branches is too large (at most "
            f"{MOST_LP_ENTRIES} branches): method='decomposition' maximises the Lagrangian by policy iteration "
            "instead, and gives the same optimum with a proven gap"
        )
    m = cmdp.n_constraints
    if method == "auto" and cmdp.n_branches > LP_ENTRIES * m:
        method = "decomposition"
    pool = _Pool(cmdp)
    highest = [pool.respond(np.eye(1 + m)[1 + i]) for i in range(m)]
    lowest = [-_best_response(cmdp, -cmdp.signals[:, 1 + i])[0] for i in range(m)]
    slater = math.inf if m == 0 else highest[0] if m == 1 else _slater(cmdp, pool, method)
    _check_feasible(cmdp, slater, highest)

    reward_only = np.eye(1 + m)[0]
    most = pool.respond(reward_only)
    least = -_best_response(cmdp, -cmdp.signals[:, 0])[0]
    notes: list[str] = []
    if np.all(pool.values[-1][1:] >= 0):  # the unconstrained optimum will do: m = 0, or no limit is active
        candidates: Iterator[_Candidate] = iter([("policy iteration", pool.occupancy(-1), reward_only)])
    else:
        floor = min(0.0, slater)  # below 0 by rounding at most; the programme has a solution all the same
        candidates = _candidates(cmdp, pool, method, floor, notes)
    policy, raw, weights, gap = _first_checked(cmdp, candidates, notes, common=False)
    duals = weights[1:]
    value = _value(cmdp, raw)
    missed = -cmdp.slack(np.append(value.reward, value.constraints)) - MISSED * (1 + np.abs(cmdp.limits))
    if (missed > 0).any():
        i = int(missed.argmax())
        largest = np.abs(cmdp.costs[:, i]).max()
        raise ModelError(
            f"{cmdp.names[1 + i]} reaches {largest:.6g} in one choice, so that its limit {cmdp.limits[i]:.6g} is lost "
            "in rounding: replace such an entry by a smaller one that is still prohibitive, or take the action away"
        )
    ranges = np.empty((2, 1 + m))
    ranges[:, 0], ranges[:, 1:] = (least, most), (lowest, highest)
    ranges = cmdp.to_user_values(ranges)
    return Optimum(
        reward=value.reward,
        constraints=value.constraints,
        duals=_frozen(cmdp.to_user_duals(duals)),
        policy=_frozen(policy),
        occupancy=_frozen(occupancy(cmdp, policy)),
        slater=float(slater),
        constraint_range=_frozen(np.sort(ranges[:, 1:].T, axis=1)),
        reward_range=_frozen(np.sort(ranges[:, 0])),
        gap=float(cmdp.reward_scale * gap),
        raw=value.raw,
        raw_duals=_frozen(duals),
    )


# The optimum: candidates from two methods, and their checks.


class _Pool:
    """Deterministic policies met so far, with their values in kernel units."""

    def __init__(self, cmdp: CMDP) -> None:
        self.cmdp = cmdp
        self.choices: list[NDArray[np.int64]] = []
        self.values: list[Floats] = []

    def respond(self, weights: Floats) -> float:
        """Add a best policy for the weighted sum of the signals; return what it attains."""
        attained, choices = _best_response(self.cmdp, self.cmdp.signals @ weights)
        self.choices.append(choices)
        self.values.append(_performances(self.cmdp, self.policy(-1)[None], "auto")[0])
        return attained

    def policy(self, k: int) -> Floats:
        pi = np.zeros(self.cmdp.n_choices)
        pi[self.choices[k]] = 1.0
        return pi

    def occupancy(self, k: int) -> Floats:
        return occupancy(self.cmdp, self.policy(k))


# A candidate: its method, its occupancy, and the weights of the signals in its Lagrangian, (1, lambda) for
# the optimum and (0, mu) for the Slater value.
_Candidate = tuple[str, Floats, Floats]


def _slater(cmdp: CMDP, pool: _Pool, method: str) -> float:
    """max over policies of min_i J_ci, kernel units, for m > 1."""
    notes: list[str] = []
    candidates = _candidates(cmdp, pool, method, None, notes)
    _, raw, _, _ = _first_checked(cmdp, candidates, notes, common=True)
    return float(raw[1:].min())


def _candidates(
    cmdp: CMDP, pool: _Pool, method: str, floor: float | None, notes: list[str]
) -> Iterator[_Candidate]:
    """Solutions of max J_r s.t. J_ci >= floor, or with floor None of max t s.t. J_ci >= t."""
    if method != "decomposition":
        yield from _occupancy_lp(cmdp, floor, notes)
    if method != "lp":
        yield from _decomposition(cmdp, pool, floor, notes)


def _occupancy_lp(cmdp: CMDP, floor: float | None, notes: list[str]) -> Iterator[_Candidate]:
    """The programme over occupancies that sum to 1, so that its numbers are of order one."""
    n_choices, n_states = cmdp.n_choices, cmdp.n_states
    owner = scipy.sparse.csr_array(
        (np.ones(n_choices), (cmdp.choice_state, np.arange(n_choices))), shape=(n_states, n_choices)
    )
    flow = owner - cmdp.gamma * cmdp.transition_matrix().T
    inflow = (1 - cmdp.gamma) * cmdp.start
    for name, x, weights in _programme(cmdp.signals, flow, inflow, _unit(cmdp, floor), notes):
        nu = np.maximum(x, 0.0)
        yield f"HiGHS ({name})", nu / nu.sum(), weights


def _decomposition(cmdp: CMDP, pool: _Pool, floor: float | None, notes: list[str]) -> Iterator[_Candidate]:
    """The same programme over mixtures of deterministic policies, which are added as they are needed."""
    for _ in range(MOST_POLICIES):
        columns = (1 - cmdp.gamma) * np.array(pool.values)
        one = scipy.sparse.csr_array(np.ones((1, len(columns))))
        solution = next(_programme(columns, one, np.ones(1), _unit(cmdp, floor), notes), None)
        if solution is None:
            return
        _, mix, weights = solution
        pool.respond(weights)
        improvement = (1 - cmdp.gamma) * pool.values[-1] @ weights - (columns @ weights).max()
        if improvement <= 1e-12 * weights.sum():
            parts = [share * pool.occupancy(k) for k, share in enumerate(mix) if share > 0]
            nu = np.sum(parts, axis=0)
            yield "decomposition", nu / nu.sum(), weights
            return
    notes.append(f"decomposition: not finished after {MOST_POLICIES} policies")


def _unit(cmdp: CMDP, floor: float | None) -> float | None:
    return None if floor is None else (1 - cmdp.gamma) * floor


def _programme(
    signals: Floats, balance: Any, supply: Floats, floor: float | None, notes: list[str]
) -> Iterator[_Candidate]:
    """Maximise x . signals[:, 0] s.t. x . signals[:, i] >= floor and balance x = supply, x >= 0.

    With floor None: maximise the least x . signals[:, i]. One solution from each of HiGHS's methods, tried in
    turn: where one ends in numerical difficulties (status 4) or calls the problem infeasible or unbounded,
    which it is not, another often succeeds.
    """
    n, m = signals.shape[0], signals.shape[1] - 1
    cost = -signals[:, 0] if floor is not None else np.append(np.zeros(n), -1.0)
    at_most = scipy.sparse.csr_array(-signals[:, 1:].T)
    bounds = np.tile([0.0, np.inf], (len(cost), 1))
    if floor is None:  # one more unknown, the minimum itself, of any sign
        at_most = scipy.sparse.hstack([at_most, np.ones((m, 1))], format="csr")
        balance = scipy.sparse.hstack([balance, scipy.sparse.csr_array((len(supply), 1))], format="csr")
        bounds[-1, 0] = -np.inf
    from scipy.optimize import linprog  # here, since it takes as long to import as all the rest

    tolerances = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    for name in ("highs-ipm", "highs-ds", "highs"):
        result = linprog(
            cost,
            A_ub=at_most,
            b_ub=np.full(m, -(floor or 0.0)),
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
        if floor is None:
            yield name, result.x[:n], np.append(0.0, multipliers / multipliers.sum())
        else:
            yield name, result.x, np.append(1.0, multipliers)


def _first_checked(
    cmdp: CMDP, candidates: Iterator[_Candidate], notes: list[str], *, common: bool
) -> tuple[Floats, Floats, Floats, float]:
    """The first candidate whose policy delivers what it promised and whose multipliers prove it optimal.

    Returns policy, values, weights and the proven gap, in kernel units. ``common``: the aim is the least of
    the constraints, else the reward under the constraints.
    """
    unit = 1 - cmdp.gamma
    for name, nu, weights in candidates:
        policy = _policy_of(cmdp, nu)
        raw = _performances(cmdp, policy[None], "auto")[0]
        attained = raw[1:].min() if common else raw[0]
        gap = max(0.0, _best_response(cmdp, cmdp.signals @ weights)[0] - float(attained))
        off = np.abs(unit * raw - nu @ cmdp.signals).max()
        short = 0.0 if common else -unit * raw[1:].min(initial=0.0)
        if off > TRUST:
            notes.append(
                f"{name}: its policy evaluates to {unit * raw}, the programme says {nu @ cmdp.signals}"
            )
        elif short > TRUST:
            notes.append(f"{name}: its policy misses a constraint by {short:.3g}")
        elif unit * gap > TRUST * weights.sum():
            notes.append(f"{name}: its multipliers leave a gap of {unit * gap:.3g}")
        else:
            return policy, raw, weights, gap
    raise ModelError(
        "no optimum passed the checks (numbers times 1-gamma, kernel units): "
        + "; ".join(notes)
        + ". Try the other method of optimum(), or check the model for entries of very different size"
    )


def _check_feasible(cmdp: CMDP, slater: float, highest: Sequence[float]) -> None:
    """Raise InfeasibleError when no policy meets all constraints."""
    if (1 - cmdp.gamma) * slater >= -FEASIBLE:
        return
    best = cmdp.to_user_values(np.append(0.0, highest))[1:]
    terms = [
        f"{name} {sense} {limit:.9g} (best attainable {value:.9g})"
        for name, sense, limit, value in zip(cmdp.names[1:], cmdp.sense, cmdp.limits, best, strict=True)
    ]
    alone = " although each can be met alone" if min(highest) >= 0 else ""
    raise InfeasibleError(
        f"no policy meets the constraints{alone}: {'; '.join(terms)}. Loosen a limit",
        best=tuple(best.tolist()),
    )


def _policy_of(cmdp: CMDP, nu: Floats) -> Floats:
    """Action probabilities of an occupancy; uniform in states that it does not visit."""
    first = cmdp.state_to_choice[:-1]
    mass = np.add.reduceat(nu, first)[cmdp.choice_state]
    uniform = 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]
    # A mass that underflows in the division is as good as none.
    visited = mass > np.finfo(np.float64).tiny / EPS
    policy = np.where(visited, nu / np.where(visited, mass, 1.0), uniform)
    return policy / np.add.reduceat(policy, first)[cmdp.choice_state]


def _best_response(cmdp: CMDP, signal: Floats) -> tuple[float, NDArray[np.int64]]:
    """max over policies of J_signal, and a deterministic policy (one choice per state) that attains it.

    Policy iteration with a few sweeps of value iteration before each evaluation: they spread values over long
    paths at little cost. It ends when no state gains more than the evaluation's own error.
    """
    transition, first = cmdp.transition_matrix(), cmdp.state_to_choice[:-1]
    state_values = np.zeros(cmdp.n_states)
    error = _accuracy(cmdp.gamma) * float(np.abs(signal).max()) / (1 - cmdp.gamma)
    for _ in range(MOST_ROUNDS):
        for _ in range(SWEEPS):
            state_values = np.maximum.reduceat(signal + cmdp.gamma * (transition @ state_values), first)
        choices = _greedy(cmdp, signal + cmdp.gamma * (transition @ state_values))
        state_values = _solve(transition[choices], signal[choices, None], cmdp.gamma, "auto", np.inf)[:, 0]
        best = np.maximum.reduceat(signal + cmdp.gamma * (transition @ state_values), first)
        if (best - state_values).max() <= 2 * error:
            return float(cmdp.start @ state_values), choices
    raise ModelError(f"policy iteration has not settled after {MOST_ROUNDS} rounds; gamma = {cmdp.gamma}")


def _greedy(cmdp: CMDP, q: Floats) -> NDArray[np.int64]:
    """The first best choice of each state."""
    best = np.flatnonzero(q >= np.maximum.reduceat(q, cmdp.state_to_choice[:-1])[cmdp.choice_state])
    return best[np.unique(cmdp.choice_state[best], return_index=True)[1]]


# Policy evaluation: chains and linear systems.


def _value(cmdp: CMDP, raw: Floats) -> Value:
    user = cmdp.to_user_values(raw)
    return Value(reward=float(user[0]), constraints=_frozen(user[1:]), raw=_frozen(raw))


def _frozen(array: ArrayLike) -> Floats:
    copy = np.array(array, dtype=np.float64)
    copy.setflags(write=False)
    return copy


def _scores(cmdp: CMDP, scores: Any) -> Any:
    rows = (
        scipy.sparse.csr_array(scores, dtype=np.float64)
        if scipy.sparse.issparse(scores)
        else np.asarray(scores, dtype=np.float64)
    )
    if rows.ndim != 2 or rows.shape[0] != cmdp.n_choices:
        raise ModelError(
            f"scores have shape {rows.shape}; one row for each of {cmdp.n_choices} choices is expected"
        )
    if not np.isfinite(rows.data if scipy.sparse.issparse(rows) else rows).all():
        raise ModelError("scores hold a value that is not finite")
    return rows


def _duals(cmdp: CMDP, duals: ArrayLike) -> Floats:
    array = np.atleast_1d(np.asarray(duals, dtype=np.float64))
    if array.shape != (cmdp.n_constraints,):
        raise SettingError(f"multipliers have shape {array.shape}; ({cmdp.n_constraints},) is expected")
    if not np.isfinite(array).all() or (array < 0).any():
        raise SettingError(f"multipliers are {array}; finite numbers >= 0 are expected")
    return array


def _weights(cmdp: CMDP, pi: Floats) -> Any:
    """W_pi, without the choices that are never taken."""
    taken = np.flatnonzero(pi)
    bounds = np.searchsorted(taken, cmdp.state_to_choice)
    return scipy.sparse.csr_array((pi[taken], taken, bounds), shape=(cmdp.n_states, cmdp.n_choices))


def _chain(cmdp: CMDP, pi: Floats) -> Any:
    return _weights(cmdp, pi) @ cmdp.transition_matrix()


def _performances(cmdp: CMDP, policies: Floats, method: Method) -> Floats:
    """Equation (3) for checked policies; each row is summed by itself: its bits depend on nothing else."""
    nu = _occupancies(cmdp, policies, method)[:, cmdp.choice_state] * policies
    columns = [(nu * signal).sum(axis=1) for signal in cmdp.signals.T]
    return np.stack(columns, axis=1) / (1 - cmdp.gamma)


def _occupancies(cmdp: CMDP, policies: Floats, method: Method) -> Floats:
    """State occupancies (n, S) of checked policies: one right-hand side each, dense ones in blocks."""
    n_states, n_choices = cmdp.n_states, cmdp.n_choices
    inflow = (1 - cmdp.gamma) * cmdp.start
    found = np.empty((len(policies), n_states))
    if _is_dense(n_states, method) and n_choices * n_states <= DENSE_ENTRIES:
        transition = cmdp.transition_matrix().toarray()
        size = max(1, BLOCK_ENTRIES // n_states**2)
        for begin in range(0, len(policies), size):
            block = policies[begin : begin + size]
            n = len(block)
            bounds = np.append(0, (np.arange(n)[:, None] * n_choices + cmdp.state_to_choice[1:]).ravel())
            average = scipy.sparse.csr_array(
                (-cmdp.gamma * block.ravel(), np.tile(np.arange(n_choices), n), bounds),
                shape=(n * n_states, n_choices),
            )
            systems = (average @ transition).reshape(n, n_states, n_states)
            systems[:, range(n_states), range(n_states)] += 1.0
            systems = systems.swapaxes(1, 2)
            rhs = np.broadcast_to(inflow[:, None], (n, n_states, 1))
            solution = _dense_solve(systems, rhs)
            residual = np.abs(rhs - _product(systems, solution)).sum(axis=(1, 2)).max(initial=0.0)
            _check_residual(residual, _accuracy(cmdp.gamma) * inflow.sum(), method)
            found[begin : begin + size] = solution[:, :, 0]
    else:
        for row, policy in zip(found, policies, strict=True):
            backwards = scipy.sparse.csr_array(_chain(cmdp, policy).T)
            row[:] = _solve(backwards, inflow[:, None], cmdp.gamma, method, 1)[:, 0]
    np.maximum(found, 0.0, out=found)  # rounding may leave -1e-20
    return cast(Floats, found / found.sum(axis=1, keepdims=True))


def _is_dense(n_states: int, method: Method) -> bool:
    if method not in ("auto", "direct", "iterative"):
        raise SettingError(f"method is {method!r}; 'auto', 'direct' or 'iterative' is expected")
    return n_states <= {"auto": DENSE_STATES, "direct": LARGEST_DENSE, "iterative": 0}[method]


def _accuracy(gamma: float) -> float:
    """Largest relative error of a solution: the second term is what rounding alone may cost."""
    return max(1e-12, 16 * EPS / (1 - gamma))


def _check_residual(residual: float, target: float, method: Method) -> None:
    if not residual <= target:  # written so that NaN fails
        remedy = "direct" if method == "iterative" else "iterative"
        raise ModelError(
            f"policy evaluation (method={method!r}) has not converged: residual {residual:.3g}, allowed "
            f"{target:.3g}. Try method={remedy!r}, or a smaller gamma"
        )


def _solve(matrix: Any, rhs: Floats, gamma: float, method: Method, order: float) -> Floats:
    """x with (I - gamma M) x = rhs, for M or its transpose stochastic.

    ``order`` is the norm in which gamma M is a contraction (inf for a chain, 1 for its transpose): the error
    is at most residual / (1-gamma) in it, so a residual of accuracy * |rhs| proves that relative accuracy.
    """
    n_states = matrix.shape[0]
    targets = _accuracy(gamma) * np.linalg.norm(rhs, order, axis=0)
    if _is_dense(n_states, method):
        system = np.eye(n_states) - gamma * matrix.toarray()
        solution = _dense_solve(system, rhs)
    else:
        from scipy.sparse.linalg import splu  # here, since small models do without and it is slow to import

        system = scipy.sparse.csr_array(scipy.sparse.identity(n_states, format="csr")) - gamma * matrix
        solution = (
            splu(system.tocsc()).solve(rhs) if method == "direct" else _iterate(system, rhs, targets, order)
        )
    product = system @ solution if scipy.sparse.issparse(system) else _product(system, solution)
    residuals = np.linalg.norm(rhs - product, order, axis=0)
    if method == "auto" and not (residuals <= targets).all():
        return _solve(matrix, rhs, gamma, "direct", order)
    worst = int(np.argmax(np.where(np.isnan(residuals), np.inf, residuals - targets)))
    _check_residual(float(residuals[worst]), float(targets[worst]), method)
    return solution


def _dense_solve(systems: Floats, rhs: Floats) -> Floats:
    """Solutions (..., S, k) of dense systems (..., S, S), diagonally dominant by rows or by columns.

    BLAS starts threads from about 96 rows. With the cores busy, as they are during a run, waiting for these
    made a solve of 100 rows take 43 ms instead of 0.2. Two halves stay below that. Dominance passes to the
    second half (its Schur complement), so no pivot is missed.
    """
    n_states = systems.shape[-1]
    if not LAPACK_ROWS < n_states <= 2 * LAPACK_ROWS:
        return cast(Floats, np.linalg.solve(systems, rhs))
    half = n_states // 2
    rest = n_states - half
    below, corner = systems[..., half:, :half], systems[..., half:, half:]
    stacked = np.concatenate((systems[..., :half, half:], rhs[..., :half, :]), axis=-1)
    first = np.linalg.solve(systems[..., :half, :half], stacked)
    schur = corner - below @ first[..., :rest]
    second = np.linalg.solve(schur, rhs[..., half:, :] - below @ first[..., rest:])
    return np.concatenate((first[..., rest:] - first[..., :rest] @ second, second), axis=-2)


def _product(matrices: Floats, columns: Floats) -> Floats:
    """matrices @ columns without BLAS, for the reason given in `_dense_solve`."""
    return cast(Floats, np.einsum("...ij,...jk->...ik", matrices, columns))


def _iterate(system: Any, rhs: Floats, targets: Floats, order: float) -> Floats:
    """Krylov solutions for each column; the caller judges them."""
    solution = np.empty_like(rhs)
    incomplete = None
    for k in range(rhs.shape[1]):
        if incomplete is None:
            solution[:, k], done = _krylov(system, rhs[:, k], targets[k], order, np.positive)
            if done:
                continue
            # Long one-way paths (queues, grids) stall the plain method, and just these factorise well.
            from scipy.sparse.linalg import spilu  # here for the reason given in _solve

            incomplete = spilu(system.tocsc(), drop_tol=1e-3, fill_factor=5).solve
        solution[:, k], _ = _krylov(system, rhs[:, k], targets[k], order, incomplete)
    return solution


def _krylov(
    system: Any, rhs: Floats, target: float, order: float, preconditioner: Any
) -> tuple[Floats, bool]:
    """Restarted BiCGSTAB on the true residual, fixed-point steps in between; (solution, converged)."""
    x = rhs.copy()
    stalled = 0
    for _ in range(KRYLOV_RESTARTS):
        for _ in range(SWEEPS):  # contractions: they never harm, and spoil any unlucky symmetry of the start
            x += rhs - system @ x
        residual = rhs - system @ x
        size = np.linalg.norm(residual, order)
        if size <= target:
            return x, True
        with np.errstate(all="ignore"):  # it may break down or diverge; then its step is not taken
            trial = x + _bicgstab(system, residual, target / 2, order, preconditioner)
            shrunk = np.linalg.norm(rhs - system @ trial, order) <= size / 2
        if shrunk:
            x = trial
        else:
            stalled += 1
            if stalled == 2:
                break
    return x, False


def _bicgstab(system: Any, rhs: Floats, target: float, order: float, preconditioner: Any) -> Floats:
    """A few steps of van der Vorst's method (SIAM J. Sci. Stat. Comput. 13, 1992) from zero.

    Not SciPy's: that one's breakdown test is absolute, and its inner products are sums by BLAS threads, whose
    last bits depend on their number.
    """
    x, residual, shadow = np.zeros_like(rhs), rhs, rhs
    direction, image = np.zeros_like(rhs), np.zeros_like(rhs)
    rho, alpha, omega = np.float64(1), np.float64(1), np.float64(1)
    for _ in range(KRYLOV_STEPS):
        rho, last = _dot(shadow, residual), rho
        direction = residual + (rho / last) * (alpha / omega) * (direction - omega * image)
        step = preconditioner(direction)
        image = system @ step
        alpha = rho / _dot(shadow, image)
        half = residual - alpha * image
        x += alpha * step
        if np.linalg.norm(half, order) <= target:
            break
        step = preconditioner(half)
        turned = system @ step
        omega = _dot(turned, half) / _dot(turned, turned)
        x += omega * step
        residual = half - omega * turned
        if not np.linalg.norm(residual, order) > target:  # reached, or not a number
            break
    return x


def _dot(a: Floats, b: Floats) -> np.float64:
    return np.float64(np.einsum("i,i", a, b))
