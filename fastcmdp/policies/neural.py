"""Softmax with logits from a network with one or two hidden layers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import NDArray

from fastcmdp.check import seed_number, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.kernels.policy.live import LiveNetwork
from fastcmdp.kernels.policy.network import Network, Shape
from fastcmdp.policies.base import (
    BoundPolicy,
    Float,
    Policy,
    check_size,
    feature_rows,
    refuse_rows,
    row_squares,
    trial_features,
)

if TYPE_CHECKING:
    from fastcmdp.simulators.simulator import Simulator


class NeuralSoftmax(Policy):
    """Softmax with logits from a network with one or two hidden layers.

    Parameters
    ----------
    state_features : array_like, shape (n_states, n)
        Row s is the input in state s (leave it out for a simulator, which has its own); the network has an output for
        each position in a state's list of choices (of the longest: shorter lists leave the last outputs unused).
    hidden : sequence of int
        Widths of the hidden layers: one or two of 1 to 65,536 units.
    activation : "tanh" or "relu"
    choice_features : array_like, shape (n_choices, n)
        Instead of ``state_features``: row q is the input for choice q, and the one output its logit.
    seed : int
        Nonnegative; of the initial weights. It is no part of ``solve``'s seed: replicates start from one theta_0.

    theta holds, flat, U1 (n x H1), b1 (H1), with two layers U2 (H1 x H2) and b2 (H2), then W (outputs x H) and
    c (outputs). Hidden weights start normal, scaled so that a unit's input has variance 1 (2 for ReLU) over the
    rows of features; W and c start at 0, so that the first policy is uniform as for the other classes.

    G^2 is no bound here, for the weights are not bounded: ``score_bound`` is the largest squared norm of a score at
    theta_0, over all states and actions. Later scores may be longer. ASGD with the steps of Lemma 6 stays stable up to
    about ten times G^2; a run that leaves this range stops and says so ("numbers ceased to be finite"), and
    ``PDANPG(g_squared=...)`` sets another value. What needs Assumption 2 (Theorem 1) does not hold.

    Raises
    ------
    ModelError
        Features that are no table of finite numbers, both kinds of them, a width, activation or seed out of
        range; when bound, a number of rows other than the model's number of states or choices.

    Examples
    --------
    >>> import numpy as np, fastcmdp as fc
    >>> cmdp = fc.envs.river_swim()
    >>> policy = fc.NeuralSoftmax(np.eye(cmdp.n_states), hidden=(8,))
    >>> policy.bind(cmdp).n_parameters == cmdp.n_states * 8 + 8 + 2 * 8 + 2
    True
    """

    def __init__(
        self,
        state_features: Any = None,
        hidden: Sequence[int] = (32,),
        activation: Literal["tanh", "relu"] = "tanh",
        *,
        choice_features: Any = None,
        seed: int = 0,
    ) -> None:
        if state_features is not None and choice_features is not None:
            raise ModelError(
                "give either state_features, (n_states, n), or choice_features, (n_choices, n), and not both"
            )
        self._by_choice = choice_features is not None
        name, item = ("choice_features", "choice") if self._by_choice else ("state_features", "state")
        features = choice_features if self._by_choice else state_features
        self._features: Float | None = None
        if features is not None:
            rows = feature_rows(features, name, item)
            self._features = rows.toarray() if scipy.sparse.issparse(rows) else rows
        if not isinstance(hidden, Sequence | np.ndarray) or not 1 <= len(hidden) <= 2:
            raise ModelError(f"hidden = {hidden!r}: give the widths of one or two layers, such as (32,)")
        widths = [whole(f"hidden[{i}]", width, 1, 65_536, error=ModelError) for i, width in enumerate(hidden)]
        self._hidden = tuple(widths)
        if activation not in ("tanh", "relu"):
            raise ModelError(f"activation = {activation!r}: 'tanh' or 'relu' is expected")
        self._activation, self._seed = activation, seed_number(seed, error=ModelError)

    def __repr__(self) -> str:
        kind = "choice" if self._by_choice else "state"
        features = "" if self._features is None else f"{kind} features of shape {self._features.shape}, "
        return (
            f"NeuralSoftmax({features}hidden={self._hidden}, "
            f"activation={self._activation!r}, seed={self._seed})"
        )

    def on_table(self, cmdp: CMDP) -> BoundPolicy:
        """Check the features against a model with a table; return what the kernels read."""
        if self._features is None:
            raise ModelError(
                "NeuralSoftmax has no features, so only a simulator's: give state_features, (n_states, n), or "
                "choice_features, (n_choices, n)"
            )
        x = self._features
        rows, items = (cmdp.n_choices, "choice") if self._by_choice else (cmdp.n_states, "state")
        if len(x) != rows:
            raise ModelError(
                f"{items}_features have {len(x)} rows, the model has {rows} {items}s: give one row a {items}"
            )
        n_outputs = 1 if self._by_choice else cmdp.widest
        state_to_row = cmdp.state_to_choice if self._by_choice else np.arange(rows + 1)
        data = Network(x.ravel(), state_to_row.astype(np.int64), self._shape(x.shape[1], n_outputs))
        initial, last = self._initial(x, n_outputs)
        each = cmdp.state_to_choice if self._by_choice else None
        bound, longest = _first_score(last, np.diff(cmdp.state_to_choice), each), _longest(last)
        return BoundPolicy(
            data,
            initial.size,
            bound,
            0,
            initial,
            critic_bound=longest,
            reach=cmdp.widest / longest,
            tangents=True,
        )

    def on_simulator(self, simulator: Simulator) -> BoundPolicy:
        """Take a simulator's own features; scales of theta_0 and G^2 come from the states of its trial run."""
        refuse_rows(self._features)
        by_choice = simulator.by_choice
        n_outputs = 1 if by_choice else simulator.n_actions
        x = trial_features(simulator).reshape(-1, simulator.n_features)
        initial, last = self._initial(x, n_outputs)
        each = np.arange(0, len(x) + 1, simulator.n_rows) if by_choice else None
        bound = _first_score(last, np.full(len(x) // simulator.n_rows, simulator.n_actions), each)
        longest = _longest(last)
        return BoundPolicy(
            LiveNetwork(self._shape(simulator.n_features, n_outputs)), initial.size, bound, 0, initial,
            critic_bound=longest, reach=simulator.n_actions / longest, n_hidden=sum(self._hidden), tangents=True,
        )  # fmt: skip

    def _shape(self, n_inputs: int, n_outputs: int) -> Shape:
        """Sizes, as the kernels read them."""
        width1, width2 = (*self._hidden, 0)[:2]
        return Shape(n_inputs, width1, width2, n_outputs, self._activation == "relu")

    def _initial(self, x: Float, n_outputs: int) -> tuple[Float, Float]:
        """theta_0, and the last hidden layer at the rows x."""
        widths = (x.shape[1], *self._hidden, n_outputs)
        check_size(sum((n + 1) * k for n, k in pairwise(widths)), f"hidden = {self._hidden}")
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(self._seed)))
        relu, parts = self._activation == "relu", []
        for width in self._hidden:
            # The bias counts as one more input, which is always 1.
            scale = np.sqrt((2.0 if relu else 1.0) / (1.0 + row_squares(x).mean()))
            weights = scale * rng.standard_normal((x.shape[1], width))
            bias = scale * rng.standard_normal(width)
            z = x @ weights + bias
            x = np.maximum(z, 0.0) if relu else np.tanh(z)
            parts += [weights.ravel(), bias]
        return np.concatenate([*parts, np.zeros(n_outputs * (x.shape[1] + 1))]), x

    def fingerprint(self) -> str:
        """A text that differs between networks, features and initial weights."""
        digest = hashlib.sha256(repr((self, self._by_choice)).encode())
        if self._features is not None:
            digest.update(self._features.tobytes())
        return f"neural-softmax {digest.hexdigest()}"


def _longest(last: Float) -> float:
    """Largest squared length of the gradient of a logit at theta_0, where W is 0: of its last layer, bias included."""
    return 1.0 + float(row_squares(last).max())


def _first_score(last: Float, n: NDArray[Any], each: NDArray[Any] | None) -> float:
    """Largest squared norm of a score at theta_0, from the last hidden layer at the states' rows (1 if it is 0).

    W and c are 0 and the policy uniform, so W's part of a score is a - mean a over a state's rows ``each``, or with
    one row a state (each None) a times (one-hot - 1/n); the bias adds 1 to a . a there; all else is 0.
    """
    if each is None:
        squares = (1.0 - 1.0 / n) * (1.0 + row_squares(last))
    else:
        mean = np.add.reduceat(last, each[:-1]) / n[:, None]
        squares = row_squares(last - np.repeat(mean, n, axis=0))
    return float(squares.max()) or 1.0
