"""What a control variate changes: the second moment of PD-ANPG-CV's targets, its place in Theorem 1, and the start.

With a critic W fixed before the batch, Wbar = W_pi W, and T ~ Geo(1-gamma), a rollout from choice q gives

    C = sum_{j<=T} d_j,    d_j = f(s_j, a_j) + gamma Wbar(s_{j+1}) - W(s_j, a_j),

which is drawn with s_{T+1}. As in `moments`, with M = P W_pi and c = E[C],

    c         = E[d] + gamma M c,            so that c = Q - W                                                (1)
    E[C C']   = E[d d'] + gamma (X + X' + M E[C C']),        X(q) = E[d (W_pi c)(s_1)' | q]                    (2)

The target of the inner loop is A~ = W - Wbar + C in place of A^ = Q^ - V^. Theorem 1 and Lemmas 2, 5 and 6 see the
target through its mean and second moment alone: the mean is Q - Wbar, which differs from A by a function of the state,
so that omega* is the same; and wherever sigma^2, a bound on E[g g' (A^/(1-gamma) - g . omega*)^2] relative to F,
stands in the bounds, that of A~ may stand. W = 0 gives a second moment of the order 1/(1-gamma)^4, W = Q that of the
noise of transitions alone: 0 where these are deterministic. Derived here.

The start: Lemma 5's bias is that of omega_0 = 0. ASGD is linear, so that begun at omega_0 = v_0 the polynomial p_H of
`inner` acts on omega* - omega_0, and every |omega*| of the bounds becomes |omega* - omega_0|.
"""

from __future__ import annotations

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import ArrayLike, NDArray

from fastcmdp.assumptions.moments import averaging
from fastcmdp.assumptions.points import Point
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.kernels.learning.asgd import Momentum
from fastcmdp.theory.inner import error_factors

Floats = NDArray[np.float64]


def corrected_law(cmdp: CMDP, action_probabilities: ArrayLike, critic: ArrayLike) -> tuple[Floats, Floats]:
    """Mean and second moment of C from each choice: float64[C, 1+m] and float64[C, 1+m, 1+m], kernel units.

    Parameters
    ----------
    cmdp : CMDP
    action_probabilities : (C,) or (S, A) array
    critic : float64[C, 1+m]
        W, in kernel units.

    Raises
    ------
    ModelError, SettingError
        The probabilities are no policy; a critic of another shape.

    Examples
    --------
    A critic that is right leaves nothing where transitions are certain:

    >>> import fastcmdp as fc
    >>> cmdp = fc.CMDP([0, 1], [0, 1], [0], [1], [1], gamma=0.5)
    >>> mean, second = corrected_law(cmdp, [1.0], [[2.0]])
    >>> float(mean[0, 0]), float(second[0, 0, 0])
    (0.0, 0.0)
    >>> float(corrected_law(cmdp, [1.0], [[0.0]])[1][0, 0, 0])  # without one, the 6 of `sample_law`
    6.0
    """
    pi, f = cmdp.action_probabilities(action_probabilities), np.asarray(cmdp.signals)
    w = np.asarray(critic, np.float64)
    if w.shape != f.shape:
        raise SettingError(f"critic has shape {w.shape}; a row a choice, {f.shape}, is expected")
    from scipy.sparse.linalg import splu  # here, since it is slow to import

    average, move, n = averaging(cmdp, pi), cmdp.transition_matrix(), f.shape[1]
    identity = scipy.sparse.csr_array(scipy.sparse.identity(cmdp.n_choices, format="csr"))
    factors = splu((identity - cmdp.gamma * (move @ average)).tocsc())
    bar, rest, gamma = average @ w, f - w, cmdp.gamma
    mean = factors.solve(rest + gamma * (move @ bar))
    ahead = average @ mean

    def moved(a: Floats, b: Floats) -> Floats:
        return np.asarray((move @ _outer(a, b).reshape(-1, n * n)).reshape(-1, n, n))

    cross = _outer(rest, move @ bar)
    squares = _outer(rest, rest) + gamma * (cross + _turned(cross)) + gamma**2 * moved(bar, bar)
    along = _outer(rest, move @ ahead) + gamma * moved(bar, ahead)
    known = squares + gamma * (along + _turned(along))
    return np.asarray(mean), np.asarray(factors.solve(known.reshape(-1, n * n)).reshape(-1, n, n))


def target_second_moment(at: Point, critic: ArrayLike) -> float:
    """E_nu[A~_L^2] of the Lagrangian's target at a point: what Theorem 1's sigma^2 is made of, kernel units.

    Parameters
    ----------
    at : Point
    critic : float64[C, 1+m]
        Zeros: a rollout without a control variate, and without the baseline V^ too.
    """
    w = np.asarray(critic, np.float64)
    mean, second = corrected_law(at.cmdp, at.pi, w)
    weights = np.append(1.0, at.dual)
    bar = (averaging(at.cmdp, at.pi) @ w)[at.cmdp.choice_state]
    known = (w - bar) @ weights
    squares = known**2 + 2.0 * known * (mean @ weights) + np.einsum("f,qfg,g->q", weights, second, weights)
    return float(at.law.pair @ squares)


def first_order_error(at: Point, momentum: Momentum, n_steps: int, start: ArrayLike) -> float:
    """|E[omega_k] - omega*| of ASGD begun at omega_0 = v_0 = ``start``: p_H acts on omega* - omega_0.

    Parameters
    ----------
    at : Point
    momentum : Momentum
    n_steps : int
        H.
    start : float64[d]
    """
    begin, basis = np.asarray(start, np.float64), at.basis
    within = error_factors(at.eigenvalues, momentum, n_steps) * (basis.T @ (at.natural - begin))
    beyond = begin - basis @ (basis.T @ begin)  # no score sees these directions
    return float(np.hypot(np.linalg.norm(within), np.linalg.norm(beyond)))


def dual_dynamics(eta: float, zeta: float, natural: float, proportional: float = 0.0) -> tuple[float, float]:
    """Period in outer steps and damping ratio of the multiplier near the saddle point, one active constraint.

    With exact gradients a step of theta changes J_c by eta N_c (lambda - lambda*), N_c = grad J_c . F^+ grad J_c, and
    a step of the multiplier changes lambda by -zeta J_c - proportional (change of J_c). To first order

        lambda'' + proportional eta N_c lambda' + eta zeta N_c (lambda - lambda*) = 0:

    frequency sqrt(eta zeta N_c), period 2 pi over it, damping ratio proportional sqrt(eta N_c / zeta) / 2, 0 for the
    plain multiplier (whose discrete steps are even driven apart a little). Derived here.

    Parameters
    ----------
    eta, zeta : float
        Rates of theta and of the multiplier.
    natural : float
        N_c; for tabular policies E_nu[A_c^2] / (1-gamma)^2.
    proportional : float
        k_p of a PI multiplier.

    Examples
    --------
    >>> period, damping = dual_dynamics(0.01, 0.04, 25.0, proportional=0.4)
    >>> round(period, 3), round(damping, 6)
    (62.832, 0.5)
    """
    for name, value in (("eta", eta), ("zeta", zeta), ("natural", natural)):
        if not value > 0.0:
            raise SettingError(f"{name} = {value!r}: a positive number is expected")
    return float(2.0 * np.pi / np.sqrt(eta * zeta * natural)), float(
        0.5 * proportional * np.sqrt(eta * natural / zeta)
    )


def _outer(a: Floats, b: Floats) -> Floats:
    return np.asarray(a[:, :, None] * b[:, None, :])


def _turned(a: Floats) -> Floats:
    return np.asarray(np.swapaxes(a, 1, 2))
