"""Softmax with logits linear in features."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # its parts load at their first use

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.kernels.policy.features import DenseFeatures, SparseFeatures
from fastcmdp.kernels.policy.live import Linear
from fastcmdp.kernels.vectors import on_line
from fastcmdp.policies.base import (
    BoundPolicy,
    Float,
    Policy,
    feature_rows,
    refuse_rows,
    row_squares,
    trial_features,
)

if TYPE_CHECKING:
    from fastcmdp.simulators.simulator import Simulator


class LogLinear(Policy):
    """Softmax with logits linear in features: pi(a|s) proportional to exp(phi(s, a) . theta).

    Parameters
    ----------
    features : array_like or scipy.sparse array, shape (n_choices, d), or None
        Row q holds phi of choice q: features of state and action together. Sparse features stay sparse, and an update
        then costs the nonzeros. None: the features of the simulator that the policy is for; with ``state_features``
        theta is a block of n_features an action, logit(s, a) = x(s) . theta_a, with ``choice_features`` one block.

    Raises
    ------
    ModelError
        Not two-dimensional, no column, or an entry that is not finite; when bound, a number of rows other
        than the model's number of choices.

    Examples
    --------
    >>> import numpy as np, fastcmdp as fc
    >>> cmdp = fc.envs.river_swim()
    >>> policy = fc.LogLinear(np.eye(cmdp.n_choices))    # the same as TabularSoftmax
    >>> policy.n_parameters == cmdp.n_choices
    True
    """

    def __init__(self, features: Any = None) -> None:
        self._features = None if features is None else feature_rows(features, "features", "choice")

    @property
    def n_parameters(self) -> int:
        """Length d of theta."""
        return int(self._rows().shape[1])

    def _rows(self) -> Any:
        if self._features is None:
            raise ModelError("LogLinear() has no features, so only a simulator's: give LogLinear(features)")
        return self._features

    def __repr__(self) -> str:
        if self._features is None:
            return "LogLinear()"
        kind = "sparse" if scipy.sparse.issparse(self._features) else "dense"
        return f"LogLinear({kind} features of shape {self._features.shape})"

    def on_table(self, cmdp: CMDP) -> BoundPolicy:
        """Check the features against a model with a table; return what the kernels read.

        G^2 is exact: the largest squared distance between the features of two choices of one state, which a
        score reaches where the other choice has all the probability (1 where no state has two choices).
        """
        phi = self._rows()
        if phi.shape[0] != cmdp.n_choices:
            raise ModelError(
                f"features have {phi.shape[0]} rows, the model has {cmdp.n_choices} choices: give one row a choice, "
                "in the order of state_to_choice"
            )
        bound = 0.0
        for apart in range(1, cmdp.widest):
            q = np.flatnonzero(cmdp.choice_state[:-apart] == cmdp.choice_state[apart:])
            difference = phi[q + apart] - phi[q]
            bound = max(bound, float(row_squares(difference).max(initial=0.0)))
        if scipy.sparse.issparse(phi):
            support = max(int(np.add.reduceat(np.diff(phi.indptr), cmdp.state_to_choice[:-1]).max()), 1)
            data: Any = SparseFeatures(
                phi.indptr.astype(np.int64), phi.indices.astype(np.int32), np.ascontiguousarray(phi.data)
            )
        else:
            support, data = 0, DenseFeatures(on_line(phi))
        longest = float(row_squares(phi).max()) or 1.0
        width = np.diff(cmdp.state_to_choice)
        entries = np.repeat(1.0 / width, width), np.arange(cmdp.n_choices), cmdp.state_to_choice
        means = scipy.sparse.csr_array(entries, shape=(cmdp.n_states, cmdp.n_choices)) @ phi
        return BoundPolicy(
            data,
            self.n_parameters,
            bound or 1.0,
            support,
            critic_bound=longest,
            reach=cmdp.n_choices / longest,
            mean_bound=float(row_squares(means).max()) or 1.0,
        )

    def on_simulator(self, simulator: Simulator) -> BoundPolicy:
        """Take a simulator's own features; G^2 is a bound over the states of its trial run."""
        refuse_rows(self._features)
        x = trial_features(simulator)
        longest = float((x**2).sum(axis=-1).max())
        if simulator.by_choice:
            pairs = ((x[:, k:] - x[:, :-k]) ** 2 for k in range(1, simulator.n_actions))
            bound, n_outputs = max((float(squares.sum(axis=-1).max()) for squares in pairs), default=0.0), 1
        else:
            bound, n_outputs = 2.0 * longest, simulator.n_actions
        means = float((x.mean(axis=1) ** 2).sum(axis=-1).max()) / n_outputs
        return BoundPolicy(
            Linear(n_outputs), n_outputs * simulator.n_features, bound or 1.0, 0, critic_bound=longest or 1.0,
            reach=_reach(x, n_outputs), tangents=True, mean_bound=means or 1.0, constant_gap=_constant_gap(x),
        )  # fmt: skip

    def fingerprint(self) -> str:
        """A text that differs between features."""
        if self._features is None:
            return "log-linear"
        phi = scipy.sparse.csr_array(self._features)
        digest = hashlib.sha256(repr(phi.shape).encode())
        for array in (phi.indptr.astype(np.int64), phi.indices.astype(np.int64), phi.data):
            digest.update(array.tobytes())
        return f"log-linear {digest.hexdigest()}"


def _reach(x: Float, n_outputs: int) -> float:
    """Squared length of weights whose every part has the size 1: a small feature needs a large one."""
    largest = np.abs(x).max(axis=(0, 1))
    return float(n_outputs * (largest[largest > 1e-100] ** -2.0).sum()) or 1.0


def _constant_gap(x: Float) -> float:
    """How far the best combination of features stays from 1, in the rows of a trial run."""
    x = x.reshape(-1, x.shape[-1])
    if len(x) > 500:
        x = x[np.random.default_rng(0).choice(len(x), 500, replace=False)]
    x = x / (np.abs(x).max() or 1.0)
    return float(np.sqrt(np.mean((x @ np.linalg.lstsq(x, np.ones(len(x)))[0] - 1.0) ** 2)))
