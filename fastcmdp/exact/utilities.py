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

Concave constraints g_j(nu) >= 0 come in by cuts. For any occupancy nu_k,

    g_j(nu_k) + grad g_j(nu_k) . (nu - nu_k) >= 0                                                     (4)

holds wherever g_j(nu) >= 0 does (Kelley, The cutting-plane method, 1960), and is a limit like any other. So (3) bounds
the answer at every stage. nu_k is where g_j crosses 0 on the way from the answer that misses it to the policy of its
own greatest value (Veinott, The supporting hyperplane method, 1967; recalled), and rounds end when no g_j is missed by
more than MISSED of its slope there: at the answer a logarithm has a slope without bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import ArrayLike

from fastcmdp.cmdp import CMDP, table_of
from fastcmdp.errors import InfeasibleError, ModelError
from fastcmdp.exact.constrained import optimum
from fastcmdp.exact.control import best_response
from fastcmdp.exact.evaluation import Value, occupancy, performances, value_of
from fastcmdp.exact.interior import Newton, states_of
from fastcmdp.exact.linear import Floats, frozen
from fastcmdp.exact.mixtures import policy_of

SHORT = 1e-7  # of (1-gamma) J by which a limit may be missed
MOST_CUTS = 60  # rounds of cuts for concave constraints
MISSED = 2e-6  # of the spread of its slope by which a concave constraint may be missed


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
    return Utility("entropy", np.zeros(cmdp.n_choices), states_of(cmdp), scalar)


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
    features = states_of(cmdp) if of_states else scipy.sparse.eye_array(cmdp.n_choices, format="csr")
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


def maximise(cmdp: CMDP, utility: Utility, *, subject_to: Sequence[Utility] = ()) -> Best:
    """The policy of the greatest utility that meets the limits of the model, with a proven gap.

    Parameters
    ----------
    cmdp : CMDP
        Its limits hold; its reward plays a part only where the utility takes it.
    utility : Utility
        `entropy`, `log_values`, `imitation`, `even_values`, or of your own rows and functions.
    subject_to : sequence of Utility
        Concave constraints g_j(nu) >= 0 beside the limits; `at_least` puts a number below a utility.

    Raises
    ------
    InfeasibleError
        No policy meets the limits, as `optimum` says it; or one of the constraints beside the limits. Where it takes
        several to conflict, cuts stand for them, equation (4): numbers of constraints from m on, in units of g_j,
        whose best attainable value is no less than that of g_j.
    ModelError
        A utility of another model, or a policy found that misses a limit or, after so many cuts, a constraint. Where
        Newton's steps have not settled, the gap says what may be missing: look at it.

    Examples
    --------
    >>> stay = np.ones((1, 2, 1))
    >>> cmdp = CMDP.from_arrays(stay, [[0.0, 1.0]], [[1.0, 0.0]], gamma=0.5, limits=[9.0])
    >>> best = maximise(cmdp, log_values(cmdp))
    >>> best.policy.round(6).tolist(), best.gap < 1e-6
    ([0.5, 0.5], True)
    """
    model, m = table_of(cmdp), cmdp.n_constraints
    for each in (utility, *subject_to):
        if each.linear.shape != (model.n_choices,):
            raise ModelError(f"the utility is of {each.linear.size} choices, the model has {model.n_choices}")
    table, inner = model, dict[int, Floats]()
    for _ in range(MOST_CUTS):
        best, missed = _within_limits(model, utility), list[Utility]()
        for j, g in enumerate(subject_to):
            if g.value(best.occupancy) >= 0.0:
                continue
            if j not in inner:
                inner[j] = _most_of(table, g)
            crossing = _crossing(g, best.occupancy, inner[j])
            if g.value(best.occupancy) < -MISSED * _size(g, crossing):
                missed.append(g)
                model = with_cut(model, g, crossing)
        if not missed:
            constraints = frozen(best.values.constraints[:m])
            values = Value(best.values.reward, constraints, frozen(best.values.raw[: 1 + m]))
            return replace(best, duals=frozen(best.duals[:m]), values=values)
    raise ModelError(
        f"{missed[0].name!r} is missed by {-missed[0].value(best.occupancy):.3g} after {MOST_CUTS} cuts"
    )


def at_least(utility: Utility, least: float) -> Utility:
    """f - least, as a constraint: f(nu) >= least.

    Parameters
    ----------
    utility : Utility
    least : float
        In the units of the utility.

    Examples
    --------
    >>> stay, move = np.eye(2), np.eye(2)[::-1]
    >>> cmdp = CMDP.from_arrays(np.stack([stay, move], axis=1), [[0, 0], [1, 1]], gamma=0.9)
    >>> reward = log_values(cmdp)
    >>> best = maximise(cmdp, reward, subject_to=[at_least(entropy(cmdp), 0.6)])
    >>> round(entropy(cmdp).value(best.occupancy), 4)
    0.6
    """
    phi = utility.scalar
    lower = phi._replace(value=lambda y: phi.value(y) - least)
    return replace(utility, name=f"{utility.name} >= {least:g}", scalar=lower)


def _most_of(cmdp: CMDP, g: Utility) -> Floats:
    """The occupancy of the greatest g under the limits; InfeasibleError where that is below 0."""
    best = _within_limits(cmdp, g)
    if best.value + best.gap < 0.0:
        beside = " beside the limits" if cmdp.n_constraints else ""
        raise InfeasibleError(
            f"no policy meets {g.name!r}{beside}: the best one misses it by {-best.value:.6g} (proved to "
            f"{best.gap:.1g}). Ask for less",
            policy=best.policy,
        )
    return best.occupancy


def _crossing(g: Utility, nu: Floats, inner: Floats) -> Floats:
    """Where g is 0 between nu, which misses it, and its best; halfway where that meets it by rounding alone."""

    def value(t: float) -> float:
        return g.value((1.0 - t) * nu + t * inner)

    t = float(scipy.optimize.brentq(value, 0.0, 1.0)) if value(1.0) > 0.0 else 0.5
    return (1.0 - t) * nu + t * inner


def _size(g: Utility, nu: Floats) -> float:
    """The spread of its slope over choices that are taken: by so much g changes with the policy."""
    slope = g.gradient(nu)[nu > 0]
    return max(float(np.ptp(slope)), 1e-300)


def with_cut(cmdp: CMDP, g: Utility, nu: Floats) -> CMDP:
    """The model with one limit more, equation (4), in units of g: what holds wherever g >= 0."""
    slope = g.gradient(nu)
    room = g.value(nu) + slope - float(slope @ nu)  # nu sums to 1
    name = f"constraint {1 + cmdp.n_constraints}, a cut of {g.name!r},"
    return cmdp.with_costs(cmdp.unit * room, 0.0, ">=", name=name)


def _within_limits(model: CMDP, utility: Utility) -> Best:
    """The greatest utility under the limits alone."""
    if model.n_constraints:
        optimum(model)  # refuses limits that no policy meets, and says why
    nu, multipliers = Newton(model, utility).run()
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
