"""The law of one call of Algorithm 1: means and second moments of its estimates, in closed form.

Write M = P W_pi for the chain on choices, f for the signals (columns: reward, constraints; kernel units) and
S_T(q) for the undiscounted sum of f over the T + 1 pairs of a rollout that starts with choice q. Its conditional
moments U_T = E[S_T] and U2_T = E[S_T S_T'] obey, with U_{-1} = U2_{-1} = 0,

    U_T  = f + M U_{T-1}                                                                              (1)
    U2_T = f f' + f (M U_{T-1})' + (M U_{T-1}) f' + M U2_{T-1}                                        (2)

The horizon has Pr(T = t) = (1-gamma) gamma^t, t = 0, 1, 2, ... Summed against this law, (1) and (2) become
linear systems for the moments of the estimate itself, Q_hat(q) = S_T(q):

    E[Q_hat]  = f + gamma M E[Q_hat]                                                                  (3)
    E[Q_hat Q_hat'] = f f' + gamma (f (M E[Q_hat])' + (M E[Q_hat]) f' + M E[Q_hat Q_hat'])            (4)
    Pr(last pair = q) = (1-gamma) p_0 + gamma M' Pr(last pair),    p_0(q) = start(s_q) pi(q)          (5)

V_hat starts with a fresh action and J_hat with a fresh state, so their moments are averages of those of Q_hat.
Nothing here uses the values, advantages or occupancies of `fastcmdp.exact`: Lemma 1 says that both agree. (4) is
not in the paper, which only needs an upper bound; derived here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import ArrayLike, NDArray

from fastcmdp.cmdp import CMDP

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SampleLaw:
    """Moments of the estimates of Algorithm 1 at a fixed policy, kernel units.

    Attributes
    ----------
    pair : float64[C]
        Law of the pair (s_hat, a_hat).
    q_mean, q_second : float64[C, 1+m], float64[C, 1+m, 1+m]
        Mean and second moment of Q_hat from each choice.
    v_mean, v_second : float64[S, 1+m], float64[S, 1+m, 1+m]
        The same of V_hat from each state.
    j_mean, j_second : float64[1+m], float64[1+m, 1+m]
        The same of J_hat.
    """

    pair: Floats
    q_mean: Floats
    q_second: Floats
    v_mean: Floats
    v_second: Floats
    j_mean: Floats
    j_second: Floats


def averaging(cmdp: CMDP, pi: Floats) -> Any:
    """W_pi: the sparse (S, C) matrix that averages over the choices of each state."""
    rows = (pi, np.arange(cmdp.n_choices), cmdp.state_to_choice)
    return scipy.sparse.csr_array(rows, shape=(cmdp.n_states, cmdp.n_choices))


def sample_law(cmdp: CMDP, action_probabilities: ArrayLike) -> SampleLaw:
    """Means and second moments of Algorithm 1's estimates by equations (3) to (5): one sparse factorisation.

    Parameters
    ----------
    cmdp : CMDP
    action_probabilities : (C,) or (S, A) array

    Raises
    ------
    ModelError
        When the probabilities are no policy.

    Examples
    --------
    One state that earns 1 a step: J_hat = T + 1, with mean 1/(1-gamma) and second moment
    (1+gamma)/(1-gamma)^2, the bound that the paper uses.

    >>> import fastcmdp as fc
    >>> cmdp = fc.CMDP([0, 1], [0, 1], [0], [1], [1], gamma=0.5)
    >>> law = sample_law(cmdp, [1.0])
    >>> float(law.j_mean[0]), float(law.j_second[0, 0])
    (2.0, 6.0)
    """
    pi = cmdp.action_probabilities(action_probabilities)
    average = averaging(cmdp, pi)
    chain = cmdp.transition_matrix() @ average
    identity = scipy.sparse.csr_array(scipy.sparse.identity(cmdp.n_choices, format="csr"))
    from scipy.sparse.linalg import splu  # here, since it is slow to import

    factors = splu((identity - cmdp.gamma * chain).tocsc())
    first = cmdp.start[cmdp.choice_state] * pi
    pair = factors.solve((1.0 - cmdp.gamma) * first, trans="T")

    f = np.asarray(cmdp.signals)
    n = f.shape[1]
    q_mean = factors.solve(np.ascontiguousarray(f))
    ahead = q_mean - f  # gamma M E[Q_hat], by (3)
    known = (
        f[:, :, None] * f[:, None, :] + f[:, :, None] * ahead[:, None, :] + ahead[:, :, None] * f[:, None, :]
    )
    q_second = factors.solve(known.reshape(-1, n * n)).reshape(-1, n, n)
    v_mean = average @ q_mean
    v_second = (average @ q_second.reshape(-1, n * n)).reshape(-1, n, n)
    return SampleLaw(
        pair=cast(Floats, pair),
        q_mean=cast(Floats, q_mean),
        q_second=cast(Floats, q_second),
        v_mean=cast(Floats, v_mean),
        v_second=cast(Floats, v_second),
        j_mean=cast(Floats, cmdp.start @ v_mean),
        j_second=cast(Floats, np.tensordot(cmdp.start, v_second, 1)),
    )
