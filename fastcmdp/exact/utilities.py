"""Concave utilities of the occupancy: the best policy, with a gap that a best response proves.

A utility of the occupancy nu of choices (equation (1) of `fastcmdp.exact`) is

    f(nu) = sum_q b(q) nu(q) + sum_j phi_j(y_j),   y = M nu,   phi_j concave,                         (1)

which holds entropies, logarithms of values, squared distances and spreads. The programme

    maximise f(nu)  subject to  nu >= 0,  the balance of nu,  nu . c_i >= 0                           (2)

is solved by a primal-dual interior-point method (Wright, Primal-Dual Interior-Point Methods, 1997): phi is separable,
so a Newton step is one sparse system in the multipliers of the balance, of the limits and of y = M nu. The step of
Frank and Wolfe then proves the answer: with lambda the multipliers of the limits, for concave f,

    f* <= f(nu) + max over nu' of (grad f(nu) + sum_i lambda_i c_i) . nu' - grad f(nu) . nu,          (3)

whose maximum is a best response to the pseudo-reward grad f + sum lambda_i c_i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import ArrayLike

from fastcmdp.cmdp import CMDP, table_of
from fastcmdp.errors import ModelError
from fastcmdp.exact.constrained import optimum
from fastcmdp.exact.control import best_response
from fastcmdp.exact.evaluation import Value, occupancy, performances, value_of
from fastcmdp.exact.linear import Floats, frozen
from fastcmdp.exact.mixtures import policy_of

MOST_STEPS = 200
SETTLED = 1e-9  # residuals and complementarity at which Newton's steps end
FRACTION = 0.99  # of the way to the boundary
SHORT = 1e-7  # of (1-gamma) J by which a limit may be missed


class Scalar(NamedTuple):
    """phi_j for each row of M: value, first and second derivative of y (k,); ``positive`` where y > 0 is needed."""

    value: Callable[[Floats], float]
    slope: Callable[[Floats], Floats]
    curvature: Callable[[Floats], Floats]
    positive: bool


@dataclass(frozen=True, eq=False)
class Utility:
    """A concave function of the occupancy, equation (1), in the user's units.

    Attributes
    ----------
    name : str
    linear : float64 (C,)
        b.
    features : sparse (k, C)
        M.
    scalar : Scalar
        phi, on M nu.
    """

    name: str
    linear: Floats
    features: Any
    scalar: Scalar

    def value(self, nu: Floats) -> float:
        """f(nu)."""
        return float(self.linear @ nu) + self.scalar.value(self.features @ nu)

    def gradient(self, nu: Floats) -> Floats:
        """df/dnu (C,): the pseudo-reward of a step of Frank and Wolfe, or of an outer step of a method."""
        return cast(Floats, self.linear + self.features.T @ self.scalar.slope(self.features @ nu))


def _states(cmdp: CMDP) -> Any:
    entries = np.ones(cmdp.n_choices), cmdp.choice_state, np.arange(cmdp.n_choices + 1)
    return scipy.sparse.csc_array(entries, shape=(cmdp.n_states, cmdp.n_choices)).tocsr()


def entropy(cmdp: CMDP) -> Utility:
    """Entropy of the occupancy of states, -sum_s d(s) log d(s), in nats: exploration.

    Parameters
    ----------
    cmdp : CMDP

    Examples
    --------
    >>> stay, move = np.eye(2), np.eye(2)[::-1]
    >>> cmdp = CMDP.from_arrays(np.stack([stay, move], axis=1), [0, 0], gamma=0.9)
    >>> round(maximise(cmdp, entropy(cmdp)).value, 6)
    0.693147
    """

    def value(y: Floats) -> float:
        return -float(y @ np.log(np.maximum(y, 1e-300)))

    scalar = Scalar(
        value, lambda y: -1.0 - np.log(np.maximum(y, 1e-300)), lambda y: -1.0 / np.maximum(y, 1e-300), True
    )
    return Utility("entropy", np.zeros(cmdp.n_choices), _states(cmdp), scalar)


def log_values(cmdp: CMDP, weights: ArrayLike | None = None) -> Utility:
    """sum_k w_k log J_k over reward and costs with w_k > 0: proportional fairness between several rewards.

    Parameters
    ----------
    cmdp : CMDP
        Its reward and costs are the J_k (user's units); the J of weight above 0 must be positive somewhere.
    weights : (1+m,), optional
        w >= 0; by default 1 each.
    """
    signals = np.column_stack([cmdp.reward, cmdp.costs])
    share = np.ones(signals.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    if share.shape != (signals.shape[1],) or not (share >= 0).all() or not share.any():
        raise ModelError(f"weights are {share}; {signals.shape[1]} numbers >= 0 are expected, one above 0")
    used = share > 0
    met = occupancy(cmdp, 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]) > 0
    for k in np.flatnonzero(used & ~(signals[met] > 0).any(axis=0)):
        raise ModelError(
            f"{cmdp.names[k]!r} is above 0 nowhere that a policy comes to, so its logarithm is -inf: weights[{k}] = 0"
        )
    w = share[used]
    features = scipy.sparse.csr_array(cmdp.horizon * signals[:, used].T)
    scalar = Scalar(
        lambda y: float(w @ np.log(np.maximum(y, 1e-300))),
        lambda y: w / np.maximum(y, 1e-300),
        lambda y: -w / np.maximum(y, 1e-300) ** 2,
        True,
    )
    return Utility("log values", np.zeros(cmdp.n_choices), features, scalar)


def _squares(name: str, linear: Floats, features: Any, target: Floats, scale: float) -> Utility:
    scalar = Scalar(
        lambda y: -0.5 * scale * float(((y - target) ** 2).sum()),
        lambda y: -scale * (y - target),
        lambda y: np.full(len(y), -scale),
        False,
    )
    return Utility(name, linear, features, scalar)


def imitation(cmdp: CMDP, target: ArrayLike) -> Utility:
    """-1/2 |nu - target|^2, of states (S,) or of choices (C,): apprenticeship.

    Parameters
    ----------
    cmdp : CMDP
    target : (S,) or (C,)
        An occupancy; where S = C the two are the same.
    """
    goal = np.asarray(target, dtype=np.float64)
    if goal.shape not in ((cmdp.n_states,), (cmdp.n_choices,)):
        raise ModelError(
            f"target has shape {goal.shape}; ({cmdp.n_states},) or ({cmdp.n_choices},) is expected"
        )
    of_states = goal.shape == (cmdp.n_states,)
    features = _states(cmdp) if of_states else scipy.sparse.eye_array(cmdp.n_choices, format="csr")
    return _squares("imitation", np.zeros(cmdp.n_choices), features, goal, 1.0)


def even_values(cmdp: CMDP, penalty: float) -> Utility:
    """sum_k J_k - penalty/2 sum_k (J_k - mean J)^2 over reward and costs: a penalty on the variance between values.

    The variance of the reward *within* an occupancy is no concave penalty: -(E r^2 - (E r)^2) is convex.

    Parameters
    ----------
    cmdp : CMDP
        Its reward and costs are the J_k, in the user's units.
    penalty : float
        Above 0.
    """
    if not (np.isfinite(penalty) and penalty > 0):
        raise ModelError(f"penalty is {penalty!r}; a finite number above 0 is expected")
    signals = cmdp.horizon * np.column_stack([cmdp.reward, cmdp.costs])
    spread = signals - signals.mean(axis=1, keepdims=True)
    goal = np.zeros(signals.shape[1])
    return _squares(
        "even values", signals.sum(axis=1), scipy.sparse.csr_array(spread.T), goal, float(penalty)
    )


@dataclass(frozen=True, eq=False, repr=False)
class Best:
    """The policy of the greatest utility.

    Attributes
    ----------
    value : float
        f of ``occupancy``, which is that of ``policy``, evaluated afresh.
    gap : float
        No policy that meets the limits has a utility above ``value + gap``, equation (3).
    policy, occupancy : float64 (C,)
    duals : float64 (m,)
        Multipliers of the limits, utility per unit of a limit in the user's units.
    values : Value
        Values of the policy.
    """

    value: float
    gap: float
    policy: Floats
    occupancy: Floats
    duals: Floats
    values: Value

    def __repr__(self) -> str:
        return f"Best(value={self.value:.8g}, gap={self.gap:.3g}, constraints={self.values.constraints})"


def maximise(cmdp: CMDP, utility: Utility) -> Best:
    """The policy of the greatest utility that meets the limits of the model, with a proven gap.

    Parameters
    ----------
    cmdp : CMDP
        Its limits hold; its reward plays a part only where the utility takes it.
    utility : Utility
        `entropy`, `log_values`, `imitation`, `even_values`, or of your own rows and functions.

    Raises
    ------
    InfeasibleError
        No policy meets the limits: as `optimum` says it.
    ModelError
        A utility of another model, or a policy found that misses a limit. Where Newton's steps have not settled, the
        gap says what may be missing: look at it.

    Examples
    --------
    >>> stay = np.ones((1, 2, 1))
    >>> cmdp = CMDP.from_arrays(stay, [[0.0, 1.0]], [[1.0, 0.0]], gamma=0.5, limits=[9.0])
    >>> best = maximise(cmdp, log_values(cmdp))
    >>> best.policy.round(6).tolist(), best.gap < 1e-6
    ([0.5, 0.5], True)
    """
    model = table_of(cmdp)
    if utility.linear.shape != (model.n_choices,):
        raise ModelError(f"the utility is of {utility.linear.size} choices, the model has {model.n_choices}")
    if model.n_constraints:
        optimum(model)  # refuses limits that no policy meets, and says why
    nu, multipliers = _Newton(model, utility).run()
    policy = policy_of(model, nu)
    nu = occupancy(model, policy)
    raw = performances(model, policy[None], "auto")[0]
    if (model.unit * raw[1:] < -SHORT).any():
        raise ModelError(
            f"the policy found misses a limit by {-model.unit * raw[1:].min():.3g} (kernel units)"
        )
    slope = utility.gradient(nu)
    pseudo = slope + model.signals[:, 1:] @ multipliers
    bound = model.unit * best_response(model, pseudo).bound
    return Best(
        value=utility.value(nu),
        gap=max(0.0, bound - float(slope @ nu)),
        policy=frozen(policy),
        occupancy=frozen(nu),
        duals=frozen(model.unit * multipliers / model.constraint_scale),
        values=value_of(model, raw),
    )


class _Point(NamedTuple):
    """Where the method is: x = (nu, slack of limits), z their multipliers, v of the rows of A, u of y = M x."""

    x: Floats
    z: Floats
    v: Floats
    y: Floats
    u: Floats


class _Newton:
    """The interior-point method on the states that are reached from the start, and the slacks of the limits."""

    def __init__(self, cmdp: CMDP, utility: Utility) -> None:
        self.cmdp, self.utility = cmdp, utility
        uniform = 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]
        self.met = np.flatnonzero(occupancy(cmdp, uniform) > 0)
        m, n = cmdp.n_constraints, len(self.met)
        states = np.flatnonzero(np.bincount(cmdp.choice_state[self.met], minlength=cmdp.n_states))
        flow = _states(cmdp) - cmdp.gamma * cmdp.transition_matrix().T
        flow = scipy.sparse.csr_array(flow)[states][:, self.met]
        limits = scipy.sparse.csr_array(cmdp.signals[self.met, 1:].T)
        minus = -scipy.sparse.eye_array(m)
        zeros = scipy.sparse.csr_array((len(states), m))
        self.rows = scipy.sparse.block_array(
            [[flow, zeros], [limits, minus]] if m else [[flow]], format="csr"
        )
        self.right = np.append(cmdp.unit * cmdp.start[states], np.zeros(m))
        features = utility.features[:, self.met]
        wide = scipy.sparse.csr_array((features.shape[0], m))
        features = (
            scipy.sparse.hstack([features, wide], format="csr") if m else scipy.sparse.csr_array(features)
        )
        if utility.scalar.positive:  # rows of states that no policy reaches stay at y = 0
            features = features[np.diff(features.indptr) > 0]
        self.features, self.linear = features, np.append(utility.linear[self.met], np.zeros(m))
        self.n, self.m = n, m

    def run(self) -> tuple[Floats, Floats]:
        """The occupancy (C,), and the multipliers of the limits in kernel units of (1-gamma) J."""
        at, size = self._begin(), 1.0
        for _ in range(MOST_STEPS):
            dual = self._dual_residual(at)
            primal = self.rows @ at.x - self.right
            mu = float(at.x @ at.z) / len(at.x)
            size = 1.0 + float(np.abs(self.linear).max(initial=0.0)) + float(np.abs(at.u).max(initial=0.0))
            central = mu * len(at.x) <= SETTLED * size and np.abs(dual).max() <= 1e3 * SETTLED * size
            if central and np.abs(primal).sum() <= SETTLED:
                break
            at = self._step(at, dual, primal, 0.1 * mu)
        nu = np.zeros(self.cmdp.n_choices)
        nu[self.met] = at.x[: self.n]
        return nu, np.maximum(0.0, at.z[self.n :])

    def _begin(self) -> _Point:
        """Even over choices, which is no occupancy: one of a policy can be 1e-40 far from the start, and Newton's
        steps come to the balance sooner than away from such a boundary.
        """
        even = np.full(self.n, 1.0 / self.n)
        slack = np.maximum(self.cmdp.signals[self.met, 1:].T @ even, 1e-2)
        x = np.append(even, slack)
        y = self.features @ x
        if self.utility.scalar.positive:
            y = np.maximum(y, 1e-3 * max(float(np.abs(y).max()), 1e-12))
        u = self.utility.scalar.slope(y)
        return _Point(x, 1.0 / (len(x) * x), np.zeros(len(self.right)), y, u)

    def _dual_residual(self, at: _Point) -> Floats:
        """-b - A'v - M'u - z, which is 0 at the optimum."""
        return cast(Floats, -self.linear - self.rows.T @ at.v - self.features.T @ at.u - at.z)

    def _step(self, at: _Point, dual: Floats, primal: Floats, aim: float) -> _Point:
        """Newton's step, cut short of the boundary.

        After elimination of x and y what is left is G (x/z) G' (dv, du) + (0, du / curvature) = right, G = (A; M).
        """
        x, z, y = at.x, at.z, at.y
        ratio = x / z
        both = scipy.sparse.vstack([self.rows, self.features], format="csr")
        bent = -self.utility.scalar.curvature(y)
        stuck = at.u - self.utility.scalar.slope(y)
        off = self.features @ x - y
        push = -dual + aim / x - z
        system = (both * ratio[None, :]) @ both.T
        diagonal = np.concatenate((np.full(len(at.v), 0.0), 1.0 / bent))
        system = scipy.sparse.csc_array(system + scipy.sparse.diags_array(diagonal))
        right = np.concatenate((-primal, -off - stuck / bent)) - both @ (ratio * push)
        moved = _solved(system, right)
        dv, du = moved[: len(at.v)], moved[len(at.v) :]
        dx = ratio * (push + both.T @ moved)
        dz = aim / x - z - dx / ratio
        dy = -(stuck + du) / bent
        length = min(_room(x, dx), _room(z, dz), _room(y, dy) if self.utility.scalar.positive else 1.0)
        return _Point(
            x + length * dx, z + length * dz, at.v + length * dv, y + length * dy, at.u + length * du
        )


def _solved(system: Any, right: Floats) -> Floats:
    """The solution of a positive definite system, scaled to a diagonal of ones, with one refinement."""
    from scipy.sparse.linalg import splu

    scale = 1.0 / np.sqrt(np.maximum(system.diagonal(), 1e-300))
    scaled = scipy.sparse.csc_array(
        scipy.sparse.diags_array(scale) @ system @ scipy.sparse.diags_array(scale)
    )
    options = {"SymmetricMode": True}
    factors = splu(scaled, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    solution = factors.solve(scale * right)
    solution = solution + factors.solve(scale * right - scaled @ solution)
    return cast(Floats, scale * solution)


def _room(value: Floats, change: Floats) -> float:
    """The step up to 1 that leaves all values positive."""
    falls = change < 0
    return min(1.0, FRACTION * float((-value[falls] / change[falls]).min(initial=np.inf)))
