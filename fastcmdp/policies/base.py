"""What policy classes share: what they become when bound to a model, and how features are checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError

if TYPE_CHECKING:
    from fastcmdp.simulators.simulator import Simulator

Float = NDArray[np.float64]

MOST_PARAMETERS = 2**27  # 1 GiB; runs hold several vectors of that length a replicate


@dataclass(frozen=True)
class BoundPolicy:
    """A policy class checked against a model.

    Attributes
    ----------
    data : NamedTuple
        What the kernels read.
    n_parameters : int
        Length d of theta.
    score_bound : float
        G^2 of Assumption 2: no score has a larger squared Euclidean norm.
    support : int
        No score has more nonzeros; 0 where scores are dense.
    initial : float64[d] or None
        Parameters at the start of a run; None: zeros.
    critic_bound : float
        B: no gradient of a critic with the features of this class has a larger squared norm. Measured at theta_0 for
        networks and in a trial run for simulators, so no bound there: updates from longer ones are then shortened
        (``kernels/learning/critics.py``).
    reach : float
        Squared length of a critic with these features whose every part has the size 1.
    n_hidden : int
        Work space for the hidden layers of a network that a simulator's rollouts evaluate.
    tangents : bool
        Whether critics have tangent features: for networks, and for all classes on simulators.
    mean_bound : float
        The largest squared norm of the mean over a state's actions of linear features; NaN where they are not linear.
    constant_gap : float
        How far the best combination of the features stays from 1, where that is in doubt. Where one is 1, the fixed
        point of TD has E_nu[f + gamma Q(s', a') - Q(s, a)] = 0. With nu = (1-gamma) rho pi + gamma nu P pi that says:
        the plug-in J, the mean of Q over rho pi, is exact, whatever else the features miss. Else it can be anything: 0
        where the features of starts are 0.
    """

    data: Any
    n_parameters: int
    score_bound: float
    support: int
    initial: Float | None = None
    critic_bound: float = 1.0
    reach: float = 1.0
    n_hidden: int = 1
    tangents: bool = False
    mean_bound: float = math.nan
    constant_gap: float = 0.0


class Policy:
    """A class of policies: holds only what the user chose, and is bound to a model for a run.

    A class provides ``fingerprint`` and what it can of ``on_table`` and ``on_simulator``.
    """

    def fingerprint(self) -> str:
        """A text that differs between policy classes, features and initial weights."""
        raise NotImplementedError

    def bind(self, model: CMDP | Simulator) -> BoundPolicy:
        """Check the policy against a model; return what the kernels read.

        Raises
        ------
        ModelError
            The class does not fit the model.
        """
        bound: BoundPolicy = model.bind(self)
        return bound

    def on_table(self, cmdp: CMDP) -> BoundPolicy:
        """Check the policy against a model with a table; return what the kernels read."""
        raise ModelError(f"{type(self).__name__} is for simulators, and this model has a table")

    def on_simulator(self, simulator: Simulator) -> BoundPolicy:
        """Check the policy against a simulator; return what the kernels read."""
        raise ModelError(
            f"a simulator has no table for {type(self).__name__}: give policy=LogLinear() or NeuralSoftmax()"
        )


def check_policy(policy: object) -> Policy:
    """Return a policy object.

    Raises
    ------
    SettingError
        It is none.
    """
    if not isinstance(policy, Policy):
        raise SettingError(
            f"policy = {policy!r}: give TabularSoftmax(), LogLinear(features) or NeuralSoftmax(features)"
        )
    return policy


def check_size(d: int, source: str) -> None:
    """Refuse networks that no run has room for, before memory is taken."""
    if d > MOST_PARAMETERS:
        raise ModelError(f"{source} makes {d:,} parameters; give fewer units, for up to {MOST_PARAMETERS:,}")


def refuse_rows(features: Any) -> None:
    if features is not None:
        raise ModelError(
            "a simulator has features of its own: give a policy without, LogLinear() or NeuralSoftmax()"
        )


def trial_features(simulator: Simulator) -> Float:
    """Features seen in the trial run of a simulator, (steps, rows, n_features)."""
    x: Float = simulator.trial_features
    largest = float(np.abs(x).max())
    if not largest < 1e100:
        raise ModelError(
            f"{simulator.name}: features of {largest:.3g} in the trial run are too large for any policy; scale them to "
            "the order of 1 with state_features= or choice_features="
        )
    return x


def feature_rows(features: Any, name: str, item: str) -> Any:
    """A table of finite numbers, float64: dense in rows, or sparse in canonical rows."""
    try:
        phi: Any = features.tocsr() if scipy.sparse.issparse(features) else np.asarray(features)
        if phi.dtype.kind not in "biuf":
            raise ValueError(f"numbers of type {phi.dtype}")
        phi = phi if scipy.sparse.issparse(phi) else np.array(phi, np.float64, order="C")
    except ValueError as error:
        raise ModelError(f"{name} are no table of real numbers ({error}); give (n_{item}s, d)") from error
    if phi.ndim != 2 or phi.shape[1] == 0:
        raise ModelError(f"{name} have shape {phi.shape}; give one row a {item}: (n_{item}s, d), d >= 1")
    if scipy.sparse.issparse(phi):
        phi = phi.astype(np.float64, copy=True)
        phi.sum_duplicates()
        phi.eliminate_zeros()
    if not np.isfinite(row_squares(phi)).all():
        rows = np.flatnonzero(~np.isfinite(row_squares(phi)))
        raise ModelError(f"{name} of {item} {rows[0]} are not finite, or too large to square")
    return phi


def row_squares(rows: Any) -> Float:
    if scipy.sparse.issparse(rows):
        return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
