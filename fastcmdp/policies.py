"""Policy classes: softmax over logits that are one parameter a choice, linear in features, or a network's outputs.

A policy object holds only what the user chose. ``bind`` checks it against a model and returns what the kernels
read, with the constants of the class (Assumption 2 of the paper).
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.kernels import policies as kinds
from fastcmdp.kernels.policies import Linear, LiveNetwork
from fastcmdp.kernels.relu import ReluNetwork
from fastcmdp.simulators.simulator import Simulator

Float = NDArray[np.float64]

_MOST_PARAMETERS = 2**27  # 1 GiB; runs hold several vectors of that length a replicate


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
        (``kernels/critics.py``).
    """

    data: Any
    n_parameters: int
    score_bound: float
    support: int
    initial: Float | None = None
    critic_bound: float = 1.0


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

    def bind(self, cmdp: CMDP | Simulator) -> BoundPolicy:
        """Check the policy against a model; return what the kernels read."""
        if isinstance(cmdp, Simulator):
            raise ModelError("a simulator has no table of states: give policy=LogLinear() or NeuralSoftmax()")
        return BoundPolicy(kinds.Tabular(cmdp.n_choices), cmdp.n_choices, 2.0, _widest_row(cmdp))


class LogLinear:
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
        self._features = None if features is None else _feature_rows(features, "features", "choice")

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

    def bind(self, cmdp: CMDP | Simulator) -> BoundPolicy:
        """Check the features against a model; return what the kernels read.

        G^2 is exact: the largest squared distance between the features of two choices of one state, which a
        score reaches where the other choice has all the probability (1 where no state has two choices). For a
        simulator it is the bound of that kind over the states of its trial run.
        """
        if isinstance(cmdp, Simulator):
            _refuse_rows(self._features)
            x = _trial_features(cmdp)
            if cmdp.by_choice:
                pairs = ((x[:, k:] - x[:, :-k]) ** 2 for k in range(1, cmdp.n_actions))
                bound = max((float(squares.sum(axis=-1).max()) for squares in pairs), default=0.0)
                n_outputs = 1
            else:
                bound, n_outputs = 2.0 * float((x**2).sum(axis=-1).max()), cmdp.n_actions
            return BoundPolicy(
                Linear(n_outputs), n_outputs * cmdp.n_features, bound or 1.0, 0,
                critic_bound=float((x**2).sum(axis=-1).max()) or 1.0,
            )  # fmt: skip
        phi = self._rows()
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
        if self._features is None:
            return "log-linear"
        phi = scipy.sparse.csr_array(self._features)
        digest = hashlib.sha256(repr(phi.shape).encode())
        for array in (phi.indptr.astype(np.int64), phi.indices.astype(np.int64), phi.data):
            digest.update(array.tobytes())
        return f"log-linear {digest.hexdigest()}"


class NeuralSoftmax:
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
        given = choice_features if self._by_choice else state_features
        self._features: Float | None = None
        if given is not None:
            rows = _feature_rows(given, name, item)
            self._features = rows.toarray() if scipy.sparse.issparse(rows) else rows
        try:
            self._hidden = tuple(0 if isinstance(width, bool) else operator.index(width) for width in hidden)
        except TypeError:
            self._hidden = ()
        if not 1 <= len(self._hidden) <= 2 or not all(1 <= width <= 65_536 for width in self._hidden):
            raise ModelError(f"hidden = {hidden!r}: give the widths of one or two layers, such as (32,)")
        if activation not in ("tanh", "relu"):
            raise ModelError(f"activation = {activation!r}: 'tanh' or 'relu' is expected")
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
            raise ModelError(f"seed = {seed!r}: a nonnegative integer is expected")
        self._activation, self._seed = activation, int(seed)

    def __repr__(self) -> str:
        kind = "choice" if self._by_choice else "state"
        features = "" if self._features is None else f"{kind} features of shape {self._features.shape}, "
        return (
            f"NeuralSoftmax({features}hidden={self._hidden}, "
            f"activation={self._activation!r}, seed={self._seed})"
        )

    def bind(self, cmdp: CMDP | Simulator) -> BoundPolicy:
        """Check the features against a model; return what the kernels read.

        For a simulator, the states of its trial run stand for all: scales of theta_0 and G^2 come from them.
        """
        relu = self._activation == "relu"
        width1, width2 = (*self._hidden, 0)[:2]
        if isinstance(cmdp, Simulator):
            _refuse_rows(self._features)
            n_outputs = 1 if cmdp.by_choice else cmdp.n_actions
            x = _trial_features(cmdp).reshape(-1, cmdp.n_features)
            initial, last = self._initial(x, n_outputs)
            each = np.arange(0, len(x) + 1, cmdp.n_rows) if cmdp.by_choice else None
            n = np.full(len(x) // cmdp.n_rows, cmdp.n_actions)
            bound = _first_score(last, n, each)
            return BoundPolicy(
                LiveNetwork(width1, width2, n_outputs, relu), initial.size, bound, 0, initial,
                critic_bound=1.0 + float(_row_squares(last).max()),
            )  # fmt: skip
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
        n_outputs = 1 if self._by_choice else _widest_row(cmdp)
        state_to_row = cmdp.state_to_choice if self._by_choice else np.arange(rows + 1)
        data = kinds.Network(x, state_to_row.astype(np.int64), width1, width2, n_outputs, relu)
        initial, last = self._initial(x, n_outputs)
        each = cmdp.state_to_choice if self._by_choice else None
        bound = _first_score(last, np.diff(cmdp.state_to_choice), each)
        return BoundPolicy(
            data, initial.size, bound, 0, initial, critic_bound=1.0 + float(_row_squares(last).max())
        )

    def _initial(self, x: Float, n_outputs: int) -> tuple[Float, Float]:
        """theta_0, and the last hidden layer at the rows x."""
        widths = (x.shape[1], *self._hidden, n_outputs)
        _check_size(sum((n + 1) * k for n, k in pairwise(widths)), f"hidden = {self._hidden}")
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(self._seed)))
        relu, parts = self._activation == "relu", []
        for width in self._hidden:
            # The bias counts as one more input, which is always 1.
            scale = np.sqrt((2.0 if relu else 1.0) / (1.0 + _row_squares(x).mean()))
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


def _first_score(last: Float, n: NDArray[Any], each: NDArray[Any] | None) -> float:
    """Largest squared norm of a score at theta_0, from the last hidden layer at the states' rows (1 if it is 0).

    W and c are 0 and the policy uniform, so W's part of a score is a - mean a over a state's rows ``each``, or with
    one row a state (each None) a times (one-hot - 1/n); the bias adds 1 to a . a there; all else is 0.
    """
    if each is None:
        squares = (1.0 - 1.0 / n) * (1.0 + _row_squares(last))
    else:
        mean = np.add.reduceat(last, each[:-1]) / n[:, None]
        squares = _row_squares(last - np.repeat(mean, n, axis=0))
    return float(squares.max()) or 1.0


def _check_size(d: int, given: str) -> None:
    """Refuse networks that no run has room for, before memory is taken."""
    if d > _MOST_PARAMETERS:
        raise ModelError(f"{given} makes {d:,} parameters; give fewer units, for up to {_MOST_PARAMETERS:,}")


def _refuse_rows(features: Any) -> None:
    if features is not None:
        raise ModelError(
            "a simulator has features of its own: give a policy without, LogLinear() or NeuralSoftmax()"
        )


def _trial_features(simulator: Simulator) -> Float:
    """Features seen in the trial run of a simulator, (steps, rows, n_features)."""
    x: Float = simulator.trial_features
    largest = float(np.abs(x).max())
    if not largest < 1e100:
        raise ModelError(
            f"{simulator.name}: features of {largest:.3g} in the trial run are too large for any policy; scale them to "
            "the order of 1 with state_features= or choice_features="
        )
    return x


def _feature_rows(features: Any, name: str, item: str) -> Any:
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
    if not np.isfinite(_row_squares(phi)).all():
        rows = np.flatnonzero(~np.isfinite(_row_squares(phi)))
        raise ModelError(f"{name} of {item} {rows[0]} are not finite, or too large to square")
    return phi


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
        self._features = scipy.sparse.csr_array(self._linear._rows())
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

    def bind(self, cmdp: CMDP | Simulator) -> BoundPolicy:
        """Check the features against a model; return what the kernels read.

        G^2 is the largest squared distance that the gradients of two logits of one state can have, whatever theta:
        each unit is active for both choices, for one of them, or for none.
        """
        if isinstance(cmdp, Simulator):
            raise ModelError(
                "a simulator has features of its own: give policy=LogLinear() or NeuralSoftmax()"
            )
        psi, width = self._features, self._width
        _check_size(psi.shape[1] * width, f"width = {width}")
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


Policy = TabularSoftmax | LogLinear | ReluSoftmax | NeuralSoftmax
