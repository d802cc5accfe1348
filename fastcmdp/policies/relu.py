"""Softmax with a logit a choice from a two-layer ReLU network."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # its parts load at their first use

from fastcmdp.check import seed_number, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.kernels.policy.relu import ReluNetwork
from fastcmdp.policies.base import BoundPolicy, Float, Policy, check_size, row_squares
from fastcmdp.policies.log_linear import LogLinear


class ReluSoftmax(Policy):
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
        self._features = scipy.sparse.csr_array(self._linear._rows())
        width, seed = whole("width", width, 2, error=ModelError), seed_number(seed, error=ModelError)
        if width % 2 or width > 65_536:
            raise ModelError(f"width = {width!r}: an even number up to 65,536 is expected")
        self._width, self._seed = width, seed

    def __repr__(self) -> str:
        return (
            f"ReluSoftmax(features of shape {self._features.shape}, width={self._width}, seed={self._seed})"
        )

    def on_table(self, cmdp: CMDP) -> BoundPolicy:
        """Check the features against a model with a table; return what the kernels read.

        G^2 is the largest squared distance that the gradients of two logits of one state can have, whatever theta:
        each unit is active for both choices, for one of them, or for none.
        """
        psi, width = self._features, self._width
        check_size(psi.shape[1] * width, f"width = {width}")
        linear = self._linear.on_table(cmdp)
        square = row_squares(psi)
        longest = float(square.max()) or 1.0
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
            critic_bound=longest,
            reach=cmdp.n_choices / longest,
        )

    def _initial(self, square: float) -> Float:
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(self._seed)))
        half = rng.standard_normal((self._features.shape[1], self._width // 2)) / np.sqrt(square or 1.0)
        return np.concatenate([half, half], axis=1).ravel()

    def fingerprint(self) -> str:
        """A text that differs between features, widths and initial weights."""
        return f"relu-softmax {self._width} {self._seed} {self._linear.fingerprint()}"
