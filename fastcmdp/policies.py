"""Policy classes: softmax over logits that are one parameter a choice, or linear in features.

A policy object holds only what the user chose. ``bind`` checks it against a model and returns what the kernels
read, with the constants of the class (Assumption 2 of the paper).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.kernels import policies as kinds
from fastcmdp.kernels.relu import ReluNetwork

Float = NDArray[np.float64]


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
    critic_bound : float or None
        No gradient of a critic with the features of this class has a larger squared norm; None where the class has no
        critic (``kernels/critics.py``).
    """

    data: Any
    n_parameters: int
    score_bound: float
    support: int
    initial: Float | None = None
    critic_bound: float | None = None


def _widest_row(cmdp: CMDP) -> int:
    return int(np.diff(cmdp.state_to_choice).max())


@dataclass(frozen=True)
class TabularSoftmax:
    """Softmax with one parameter a choice: pi(a|s) proportional to exp(theta[q]), q the choice (s, a).

    theta has shape (n_choices,). G^2 = 2 and B = 1/2 for the score and its Lipschitz constant.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> cmdp = fc.envs.river_swim()
    >>> fc.TabularSoftmax().bind(cmdp).n_parameters == cmdp.n_choices
    True
    """

    def fingerprint(self) -> str:
        """A text that differs between policy classes."""
        return "tabular-softmax"

    def bind(self, cmdp: CMDP) -> BoundPolicy:
        """Check the policy against a model; return what the kernels read."""
        return BoundPolicy(
            kinds.Tabular(cmdp.n_choices), cmdp.n_choices, 2.0, _widest_row(cmdp), critic_bound=1.0
        )


class LogLinear:
    """Softmax with logits linear in features: pi(a|s) proportional to exp(phi(s, a) . theta).

    Parameters
    ----------
    features : array_like or scipy.sparse array, shape (n_choices, d)
        Row q holds phi of choice q. Sparse features stay sparse, and an update then costs the nonzeros.

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

    def __init__(self, features: Any) -> None:
        try:
            phi: Any = features.tocsr() if scipy.sparse.issparse(features) else np.asarray(features)
            if phi.dtype.kind not in "biuf":
                raise ValueError(f"numbers of type {phi.dtype}")
            phi = phi if scipy.sparse.issparse(phi) else np.array(phi, np.float64, order="C")
        except ValueError as error:
            raise ModelError(
                f"features are no table of real numbers ({error}); give (n_choices, d)"
            ) from error
        if phi.ndim != 2 or phi.shape[1] == 0:
            raise ModelError(
                f"features have shape {phi.shape}; give one row a choice: (n_choices, d), d >= 1"
            )
        if scipy.sparse.issparse(phi):
            phi = phi.astype(np.float64, copy=True)
            phi.sum_duplicates()
            phi.eliminate_zeros()
        if not np.isfinite(_row_squares(phi)).all():
            rows = np.flatnonzero(~np.isfinite(_row_squares(phi)))
            raise ModelError(f"features of choice {rows[0]} are not finite, or too large to square")
        self._features = phi

    @property
    def n_parameters(self) -> int:
        """Length d of theta."""
        return int(self._features.shape[1])

    def __repr__(self) -> str:
        kind = "sparse" if scipy.sparse.issparse(self._features) else "dense"
        return f"LogLinear({kind} features of shape {self._features.shape})"

    def bind(self, cmdp: CMDP) -> BoundPolicy:
        """Check the features against a model; return what the kernels read.

        G^2 is exact: the largest squared distance between the features of two choices of one state, which a
        score reaches where the other choice has all the probability (1 where no state has two choices).
        """
        phi = self._features
        if phi.shape[0] != cmdp.n_choices:
            raise ModelError(
                f"features have {phi.shape[0]} rows, the model has {cmdp.n_choices} choices: give one row a choice, "
                "in the order of state_to_choice"
            )
        bound = 0.0
        for apart in range(1, _widest_row(cmdp)):
            q = np.flatnonzero(cmdp.choice_state[:-apart] == cmdp.choice_state[apart:])
            difference = phi[q + apart] - phi[q]
            bound = max(bound, float(_row_squares(difference).max(initial=0.0)))
        if scipy.sparse.issparse(phi):
            support = int(np.add.reduceat(np.diff(phi.indptr), cmdp.state_to_choice[:-1]).max())
            data: Any = kinds.SparseFeatures(
                phi.indptr.astype(np.int64), phi.indices.astype(np.int32), np.ascontiguousarray(phi.data)
            )
        else:
            support = 0
            data = kinds.DenseFeatures(phi)
        return BoundPolicy(
            data, self.n_parameters, bound or 1.0, max(support, 1) if scipy.sparse.issparse(phi) else 0,
            critic_bound=float(_row_squares(phi).max()) or 1.0,
        )  # fmt: skip

    def fingerprint(self) -> str:
        """A text that differs between features."""
        phi = scipy.sparse.csr_array(self._features)
        digest = hashlib.sha256(repr(phi.shape).encode())
        for array in (phi.indptr.astype(np.int64), phi.indices.astype(np.int64), phi.data):
            digest.update(array.tobytes())
        return f"log-linear {digest.hexdigest()}"


def _row_squares(rows: Any) -> Float:
    if scipy.sparse.issparse(rows):
        return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


class ReluSoftmax:
    """Softmax with a logit a choice from a two-layer ReLU network with fixed output signs.

    pi(a|s) proportional to exp(f(s, a)) with, for H hidden units and features psi,

        f(s, a) = H^(-1/2) sum_r b_r max(W_r . psi(s, a), 0),

    b_r = +1 for the first half of the units and -1 for the second; theta holds W, W_r[j] at j * H + r. This is the
    network of the neural CRPO (Xu, Liang, Lan 2021): its temperature tau needs no parameter, for tau f(.; W) =
    f(.; tau W). The second half of the units starts as a copy of the first, so that the first policy is uniform; each
    W_r starts normal, with the variance that makes that of W_r . psi one on average over choices.

    Parameters
    ----------
    features : array_like or scipy.sparse array, shape (n_choices, p)
        Row q holds psi of choice q, state and action together.
    width : int
        H, even, 2 to 65,536.
    seed : int
        Nonnegative; of the initial weights. No part of ``solve``'s seed: replicates start from one W.

    Raises
    ------
    ModelError
        Features that are no table of finite numbers, an odd width, a negative seed; when bound, a number of rows other
        than the model's number of choices.

    Examples
    --------
    >>> import numpy as np, fastcmdp as fc
    >>> cmdp = fc.envs.river_swim()
    >>> policy = fc.ReluSoftmax(np.eye(cmdp.n_choices), width=16)
    >>> policy.bind(cmdp).n_parameters == 16 * cmdp.n_choices
    True
    """

    def __init__(self, features: Any, width: int = 64, *, seed: int = 0) -> None:
        self._linear = LogLinear(features)
        self._features = scipy.sparse.csr_array(self._linear._features)
        for name, value, least in (("width", width, 2), ("seed", seed, 0)):
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise ModelError(f"{name} = {value!r}: an integer of at least {least} is expected")
        if width % 2 or width > 65_536:
            raise ModelError(f"width = {width!r}: an even number up to 65,536 is expected")
        self._width, self._seed = int(width), int(seed)

    def __repr__(self) -> str:
        return (
            f"ReluSoftmax(features of shape {self._features.shape}, width={self._width}, seed={self._seed})"
        )

    def bind(self, cmdp: CMDP) -> BoundPolicy:
        """Check the features against a model; return what the kernels read.

        G^2 is the largest squared distance that the gradients of two logits of one state can have, whatever theta:
        each unit is active for both choices, for one of them, or for none.
        """
        psi, width = self._features, self._width
        linear = self._linear.bind(cmdp)
        square = _row_squares(psi)
        several = np.diff(cmdp.state_to_choice)[cmdp.choice_state] > 1
        data = ReluNetwork(
            psi.indptr.astype(np.int64), psi.indices.astype(np.int32), psi.data.astype(np.float64), width
        )
        d = psi.shape[1] * width
        touched = int(np.add.reduceat(np.diff(psi.indptr), cmdp.state_to_choice[:-1]).max())
        return BoundPolicy(
            data,
            d,
            max(linear.score_bound, float(square[several].max(initial=0.0))),
            max(min(touched * width, d), 1),
            self._initial(float(square.mean())),
            critic_bound=float(square.max()) or 1.0,
        )

    def _initial(self, square: float) -> Float:
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(self._seed)))
        half = rng.standard_normal((self._features.shape[1], self._width // 2)) / np.sqrt(square or 1.0)
        return np.concatenate([half, half], axis=1).ravel()

    def fingerprint(self) -> str:
        """A text that differs between features, widths and initial weights."""
        return f"relu-softmax {self._width} {self._seed} {self._linear.fingerprint()}"


Policy = TabularSoftmax | LogLinear | ReluSoftmax
