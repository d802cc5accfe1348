"""A horizon of T steps on the stationary rows: backward induction, without the model of times and states.

Row (t, s, a) of that model is row (s, a) with its targets moved to t + 1, so a sweep over the stationary rows a step
is the whole of it, and memory is that of the rows and two columns of values.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from fastcmdp.check import whole
from fastcmdp.cmdp import CMDP, table_of
from fastcmdp.errors import ModelError
from fastcmdp.exact.linear import Floats


def horizon(
    cmdp: CMDP, steps: int, policy: ArrayLike | None = None, *, weights: ArrayLike | None = None
) -> Floats:
    """Undiscounted sums of the first T steps: of a policy, or of the best one for weights of reward and costs.

    Parameters
    ----------
    cmdp : CMDP
        Its gamma plays no part.
    steps : int
        T.
    policy : (C,) or (S, A), or (T, C) for one that knows the time; optional
        Action probabilities. None: at each time the first best choice for ``weights``.
    weights : (1+m,), optional
        Of reward and costs in the user's units, for the best policy; by default the reward alone.

    Returns
    -------
    float64 (1+m,)
        The sums of reward and costs in the user's units.

    Raises
    ------
    ModelError
        No policy, or weights of another shape.
    SettingError
        steps below 1.

    Examples
    --------
    >>> cmdp = CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [0, 1], [0, 1], gamma=0.5, limits=0.5)
    >>> horizon(cmdp, 4, [0.5, 0.5]).tolist(), horizon(cmdp, 4).tolist()
    ([2.0, 2.0], [4.0, 4.0])
    """
    model, n_steps = table_of(cmdp), whole("steps", steps, 1)
    signals = np.column_stack([model.reward, model.costs])
    share = np.eye(signals.shape[1])[0] if weights is None else np.asarray(weights, dtype=np.float64)
    if share.shape != signals.shape[1:]:
        raise ModelError(f"weights have shape {share.shape}; {signals.shape[1:]} is expected")
    table = None if policy is None else np.asarray(policy)
    timed = table is not None and table.shape == (n_steps, model.n_choices)
    fixed = None if table is None or timed else model.action_probabilities(table)
    step, first = model.transition_matrix(), model.state_to_choice[:-1]
    value = np.zeros((model.n_states, signals.shape[1]))
    for t in reversed(range(n_steps)):
        ahead = signals + step @ value
        if table is None:
            value = ahead[_best(model, ahead @ share)]
        else:
            pi = fixed if fixed is not None else model.action_probabilities(table[t])
            value = np.add.reduceat(pi[:, None] * ahead, first, axis=0)
    return cast(Floats, np.einsum("s,sk->k", model.start, value))


def _best(cmdp: CMDP, worth: Floats) -> Floats:
    """The first best choice of each state."""
    top = np.maximum.reduceat(worth, cmdp.state_to_choice[:-1])
    ranked = np.where(worth >= top[cmdp.choice_state], np.arange(cmdp.n_choices), cmdp.n_choices)
    return cast(Floats, np.minimum.reduceat(ranked, cmdp.state_to_choice[:-1]))
