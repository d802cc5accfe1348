"""Values and occupancies of policies, equations (1) to (3) of `fastcmdp.exact`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import ArrayLike

from fastcmdp.cmdp import CMDP, table_of
from fastcmdp.errors import ModelError
from fastcmdp.exact.linear import (
    Floats,
    Method,
    accuracy,
    check_residual,
    dense_solve,
    frozen,
    is_dense,
    means,
    product,
    solve,
)
from fastcmdp.exact.sweeps import Rows

DENSE_ENTRIES = 20_000_000  # largest dense copy of P: C * S entries
BLOCK_ENTRIES = 300_000  # chains are solved in blocks of so many entries, which stay in the cache


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
    pi = table_of(cmdp).action_probabilities(action_probabilities)
    return value_of(cmdp, performances(cmdp, pi[None], method)[0])


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
    return performances(cmdp, checked, method)


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
    chain, right = Rows(cmdp).chain(pi, cmdp.signals)
    return solve(chain, right, np.inf, method)


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
    return cast(Floats, occupancies(cmdp, pi[None], method)[0])


def occupancy(
    cmdp: CMDP,
    action_probabilities: ArrayLike,
    *,
    method: Method = "auto",
    start: ArrayLike | None = None,
) -> Floats:
    """Occupancy nu of equation (1): float64[C], nonnegative, sums to 1.

    The paper's eq:def_state_action_occupancy. Arguments and errors as for `evaluate`. ``start``, the occupancy (C,)
    of a policy that differs little, is where iterations begin: sooner done, as exact.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcmdp.cmdp import CMDP
    >>> cmdp = CMDP.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], gamma=0.5)
    >>> print(occupancy(cmdp, [0.25, 0.75]))
    [0.25 0.75]
    """
    starts = None if start is None else np.asarray(start, dtype=np.float64)[None]
    return cast(Floats, occupancy_each(cmdp, [action_probabilities], method, starts)[0])


def occupancy_each(
    cmdp: CMDP, policies: Sequence[ArrayLike], method: Method = "auto", starts: Floats | None = None
) -> Floats:
    """`occupancy` of each of some policies, float64[n, C], at once; the bits of a row depend on no other."""
    pi = np.stack([table_of(cmdp).action_probabilities(policy) for policy in policies])
    if starts is not None:
        starts = np.add.reduceat(starts, cmdp.state_to_choice[:-1], axis=1)
    return occupancies(cmdp, pi, method, starts)[:, cmdp.choice_state] * pi


def value_of(cmdp: CMDP, raw: Floats) -> Value:
    """A value in the user's units, from one in kernel units."""
    user = cmdp.to_user_values(raw)
    return Value(reward=float(user[0]), constraints=frozen(user[1:]), raw=frozen(raw))


def performances(cmdp: CMDP, policies: Floats, method: Method) -> Floats:
    """Equation (3) for checked policies (n, C), each by itself: the bits of a row depend on no other."""
    if _is_dense(cmdp, method):
        nu = occupancies(cmdp, policies, method)[:, cmdp.choice_state] * policies
        columns = [(nu * signal).sum(axis=1) for signal in cmdp.signals.T]
        return np.stack(columns, axis=1) / (1 - cmdp.gamma)
    averages = np.empty((len(policies), 1 + cmdp.n_constraints))
    for row, policy in zip(averages, policies, strict=True):
        chain, right = Rows(cmdp).chain(policy, cmdp.signals)
        row[:] = expected(cmdp, solve(chain, right, np.inf, method))
    return averages


def expected(cmdp: CMDP, state_values: Floats) -> Floats:
    """start . V of each column."""
    return means(cmdp.start, state_values)


def occupancies(cmdp: CMDP, policies: Floats, method: Method, starts: Floats | None = None) -> Floats:
    """State occupancies (n, S) of checked policies, each by itself: one right-hand side each."""
    inflow = (1 - cmdp.gamma) * cmdp.start
    if _is_dense(cmdp, method):
        rows = _dense_occupancies(cmdp, policies, inflow, method)
    else:
        rows = np.empty((len(policies), cmdp.n_states))
        for k, (row, policy) in enumerate(zip(rows, policies, strict=True)):
            chain, _ = Rows(cmdp).chain(policy, np.empty((cmdp.n_choices, 0)))
            begin = None if starts is None else starts[k, :, None]
            row[:] = solve(chain.transposed(), inflow[:, None], 1, method, begin)[:, 0]
    np.maximum(rows, 0.0, out=rows)  # rounding may leave -1e-20
    return cast(Floats, rows / rows.sum(axis=1, keepdims=True))


def _is_dense(cmdp: CMDP, method: Method) -> bool:
    return is_dense(cmdp.n_states, method) and cmdp.n_choices * cmdp.n_states <= DENSE_ENTRIES


def _dense_occupancies(cmdp: CMDP, policies: Floats, inflow: Floats, method: Method) -> Floats:
    """In blocks that stay in the cache."""
    n_states, n_choices = cmdp.n_states, cmdp.n_choices
    rows = np.empty((len(policies), n_states))
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
        solution = dense_solve(systems, rhs)
        residual = np.abs(rhs - product(systems, solution)).sum(axis=(1, 2)).max(initial=0.0)
        check_residual(residual, accuracy(cmdp.gamma) * inflow.sum(), method)
        rows[begin : begin + size] = solution[:, :, 0]
    return rows
