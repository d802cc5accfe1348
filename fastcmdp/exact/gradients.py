"""Fisher matrix and gradients, equations (5) to (7) of `fastcmdp.exact`."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import ArrayLike

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.exact.control import check_duals
from fastcmdp.exact.evaluation import advantages, occupancy
from fastcmdp.exact.linear import EPS, Floats


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
    weights = np.concatenate(([1.0], check_duals(cmdp, dual)))
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
