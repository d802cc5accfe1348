"""Everything exact about one pair (theta, lambda): policy, scores, Fisher matrix, natural gradient, noise.

Kernel units throughout. With nu the occupancy, g_q the scores, A the advantages and w = (1, lambda),

    F = sum_q nu(q) g_q g_q',      grad J_L = sum_q nu(q) A_L(q) g_q / (1-gamma),      A_L = A w          (1)
    sqrt(nu) g = U diag(sigma) V'  (thin, without null directions),      F = V diag(sigma^2) V'           (2)
    omega* = F^+ grad J_L = V diag(1/sigma) U' (sqrt(nu) A_L) / (1-gamma)                                 (3)
    L_mu(omega) = 1/2 sum_q mu(q) (A_L(q)/(1-gamma) - omega . g_q)^2      (paper, eq_quad_optimization)   (4)

F is singular for a tabular softmax: the scores of a state sum to zero. From x = v = 0 every iterate of ASGD
stays in the span of the scores, so there the theory is read with F^+ and the smallest eigenvalue on that span.
(2) is taken from the scores, not from F: the eigenvalues of rarely visited states then keep all their digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import ArrayLike, NDArray

from fastcmdp.assumptions.moments import SampleLaw, averaging, sample_law
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.exact import advantages, occupancy
from fastcmdp.kernels.policy.features import DenseFeatures, SparseFeatures
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.policies import Policy, TabularSoftmax

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EPS = float(np.finfo(np.float64).eps)
MOST_ENTRIES = 30_000_000  # of the dense matrix of scores


class Parametrisation:
    """A softmax policy class on a model: features, G^2 and d.

    Parameters
    ----------
    cmdp : CMDP
    policy : TabularSoftmax or LogLinear
        None: TabularSoftmax().

    Attributes
    ----------
    features : (C, d) array or sparse array
        Logits are ``features @ theta``; the identity for a tabular softmax.
    n_parameters : int
    is_tabular : bool
    blocks : list of (choices, parameters)
        Index arrays: a score has nonzeros only among the parameters of its own block. One a state for a
        tabular softmax, one in all for dense features.
    score_bound : float
        G^2 of Assumption 2: the largest squared distance between the features of two choices of one state.
    smoothness : float
        B of Assumption 2, exactly G^2 / 4: the Hessian of log pi(q) is minus the covariance of the features
        in the state, whose largest eigenvalue is a quarter of a squared distance, where two choices at that
        distance have probability 1/2 each.

    Raises
    ------
    ModelError
        When the features do not fit the model.
    SettingError
        For another policy class, and when the scores have more than 30 million entries.
    """

    def __init__(self, cmdp: CMDP, policy: Policy | None = None) -> None:
        bound = (policy or TabularSoftmax()).bind(cmdp)
        self.cmdp = cmdp
        self.n_parameters = bound.n_parameters
        self.is_tabular = isinstance(bound.data, Tabular)
        self.score_bound = bound.score_bound
        self.smoothness = bound.score_bound / 4.0
        shape = (cmdp.n_choices, bound.n_parameters)
        if self.is_tabular:
            self.features: Any = scipy.sparse.csr_array(scipy.sparse.identity(cmdp.n_choices, format="csr"))
        elif isinstance(bound.data, SparseFeatures):
            data = bound.data
            self.features = scipy.sparse.csr_array((data.value, data.column, data.first), shape=shape)
        elif isinstance(bound.data, DenseFeatures):
            self.features = np.asarray(bound.data.phi)
        else:
            raise SettingError(f"policy = {policy!r}: the theory is for TabularSoftmax and LogLinear")
        if shape[0] * shape[1] > MOST_ENTRIES:
            raise SettingError(
                f"{shape[0]} choices times {shape[1]} parameters are too many for exact constants "
                f"(at most {MOST_ENTRIES} scores): use features of fewer columns or a smaller model"
            )
        self.blocks = self._blocks()

    def _blocks(self) -> list[tuple[Ints, Ints]]:
        n_states, features = self.cmdp.n_states, self.features
        if not scipy.sparse.issparse(features):
            return [(np.arange(features.shape[0]), np.arange(features.shape[1]))]
        from scipy.sparse.csgraph import connected_components  # here, since it is slow to import

        entries = features.tocoo()
        edges = (self.cmdp.choice_state[entries.row], n_states + entries.col)
        n_nodes = n_states + self.n_parameters
        graph = scipy.sparse.csr_array((np.ones(len(entries.row)), edges), shape=(n_nodes, n_nodes))
        _, label = connected_components(graph, directed=False)
        of_choice, of_parameter = label[:n_states][self.cmdp.choice_state], label[n_states:]
        return [
            (np.flatnonzero(of_choice == k), np.flatnonzero(of_parameter == k)) for k in np.unique(of_choice)
        ]

    def log_policy(self, theta: ArrayLike) -> Floats:
        """log pi of every choice, float64[C]; theta has shape (d,)."""
        parameters = np.asarray(theta, np.float64)
        if parameters.shape != (self.n_parameters,) or not np.isfinite(parameters).all():
            raise SettingError(
                f"theta has shape {parameters.shape}; {self.n_parameters} finite numbers are expected"
            )
        owner, first = self.cmdp.choice_state, self.cmdp.state_to_choice[:-1]
        logits = self.features @ parameters
        shifted = logits - np.maximum.reduceat(logits, first)[owner]
        return cast(Floats, shifted - np.log(np.add.reduceat(np.exp(shifted), first))[owner])

    def scores(self, pi: Floats) -> Floats:
        """Rows g_q = phi_q - sum_b pi(b) phi_b, dense float64[C, d]."""
        means = averaging(self.cmdp, pi) @ self.features
        if scipy.sparse.issparse(self.features):
            return cast(Floats, self.features.toarray() - means.toarray()[self.cmdp.choice_state])
        return cast(Floats, self.features - means[self.cmdp.choice_state])


@dataclass(frozen=True, eq=False)
class Point:
    """A pair (theta, lambda) on a model and all that is exact about it; kernel units.

    Attributes
    ----------
    cmdp : CMDP
    theta, dual : float64[d], float64[m]
    log_pi, pi : float64[C]
        The policy.
    scores : float64[C, d]
        Gradients of log pi.
    nu : float64[C]
        Occupancy of the policy, sums to 1.
    advantage : float64[C, 1+m]
        A_r, A_c1, ...
    raw : float64[1+m]
        J_r, J_c1, ...
    parametrisation : Parametrisation
    """

    cmdp: CMDP
    theta: Floats
    dual: Floats
    log_pi: Floats
    pi: Floats
    scores: Floats
    nu: Floats
    advantage: Floats
    raw: Floats
    parametrisation: Parametrisation

    @property
    def weights(self) -> Floats:
        """w = (1, lambda)."""
        return np.append(1.0, self.dual)

    @property
    def lagrangian(self) -> Floats:
        """A_L of every choice."""
        return self.advantage @ self.weights

    @property
    def gradient(self) -> Floats:
        """grad J_L, equation (1)."""
        return self.scores.T @ (self.nu * self.lagrangian) / (1.0 - self.cmdp.gamma)

    @property
    def fisher(self) -> Floats:
        """F, equation (1)."""
        return self.scores.T @ (self.nu[:, None] * self.scores)

    @cached_property
    def _factors(self) -> tuple[Floats, Floats, Floats]:
        """U, sigma, V of equation (2), null directions dropped."""
        rows = np.sqrt(self.nu)[:, None] * self.scores
        groups: dict[tuple[int, int], list[tuple[Ints, Ints]]] = {}
        for choices, columns in self.parametrisation.blocks:
            groups.setdefault((len(choices), len(columns)), []).append((choices, columns))
        factors: list[tuple[float, Ints, Floats, Ints, Floats]] = []
        for (n, k), blocks in groups.items():
            if k == 0:
                continue
            stack = np.array([rows[np.ix_(choices, columns)] for choices, columns in blocks])
            u, sigma, vt = np.linalg.svd(stack, full_matrices=False)
            # Rounding is relative to a block: a rarely visited state has small eigenvalues, not zero ones.
            kept = sigma > 4 * max(n, k) * EPS * sigma.max(axis=1, keepdims=True, initial=0.0)
            for b, i in zip(*np.nonzero(kept), strict=True):
                choices, columns = blocks[b]
                factors.append((float(sigma[b, i]), choices, u[b, :, i], columns, vt[b, i]))
        factors.sort(key=lambda triple: -triple[0])
        left, right = np.zeros((len(rows), len(factors))), np.zeros((rows.shape[1], len(factors)))
        for i, (_, choices, column, columns, row) in enumerate(factors):
            left[choices, i], right[columns, i] = column, row
        return left, np.array([triple[0] for triple in factors]), right

    @property
    def eigenvalues(self) -> Floats:
        """Nonzero eigenvalues of F, falling."""
        return self._factors[1] ** 2

    @property
    def basis(self) -> Floats:
        """Orthonormal eigenvectors that belong to ``eigenvalues``, float64[d, rank]."""
        return self._factors[2]

    @property
    def mu(self) -> float:
        """Smallest eigenvalue of F on the span of the visited scores; NaN where that is empty."""
        return float(self.eigenvalues.min(initial=np.inf)) if self.rank else float("nan")

    @property
    def rank(self) -> int:
        """Rank of F."""
        return len(self._factors[1])

    @property
    def mu_full(self) -> float:
        """Smallest eigenvalue of F as Assumption 4 asks for it: 0 when F is singular."""
        return self.mu if self.rank == self.scores.shape[1] else 0.0

    @cached_property
    def naturals(self) -> Floats:
        """F^+ grad J_f of every signal f, float64[d, 1+m]: omega* is linear in w."""
        u, sigma, v = self._factors
        target = np.sqrt(self.nu)[:, None] * self.advantage / (1.0 - self.cmdp.gamma)
        return v @ ((u.T @ target) / sigma[:, None])

    @property
    def natural(self) -> Floats:
        """omega*, equation (3): the least-norm minimiser of L."""
        return self.naturals @ self.weights

    @cached_property
    def residuals(self) -> Floats:
        """omega*_f . g_q - A_f(q)/(1-gamma) of every signal f, float64[C, 1+m]."""
        return self.scores @ self.naturals - self.advantage / (1.0 - self.cmdp.gamma)

    @cached_property
    def law(self) -> SampleLaw:
        """Moments of Algorithm 1's estimates."""
        return sample_law(self.cmdp, self.pi)

    @cached_property
    def noise_covariance(self) -> Floats:
        """Covariance of (A_hat_r, A_hat_c1, ...) given the pair, float64[C, 1+m, 1+m].

        Q_hat and V_hat are independent given the pair.
        """
        law = self.law
        q = law.q_second - law.q_mean[:, :, None] * law.q_mean[:, None, :]
        v = law.v_second - law.v_mean[:, :, None] * law.v_mean[:, None, :]
        return q + v[self.cmdp.choice_state]

    def residual_second_moment(self, dual: ArrayLike | None = None) -> Floats:
        """E[(omega* . g_q - A_hat_L/(1-gamma))^2 | q], float64[C]: zeta^2 in the proof of Lemma 5."""
        w = self.weights if dual is None else np.append(1.0, dual)
        variance = np.einsum("i,qij,j->q", w, self.noise_covariance, w) / (1.0 - self.cmdp.gamma) ** 2
        # Where nothing is random, rounding leaves a variance of -1e-14.
        return cast(Floats, np.maximum(variance, 0.0) + (self.residuals @ w) ** 2)

    def whitened_norm(self, weight: Floats) -> float:
        """Least x with sum_q nu(q) weight(q) g_q g_q' <= x F (weight >= 0); 0 where F = 0."""
        u = self._factors[0]  # its rows are sqrt(nu) g V / sigma: whitened scores
        if not self.rank:
            return 0.0
        return float(np.linalg.norm(np.sqrt(weight)[:, None] * u, 2) ** 2)

    @property
    def whitened_squares(self) -> Floats:
        """|g_q|^2 in the norm of F^+, float64[C]; 0 where the choice is never taken."""
        u = self._factors[0]
        squares = np.einsum("qi,qi->q", u, u)
        out = np.zeros_like(self.nu)
        np.divide(squares, self.nu, out=out, where=self.nu > 0)
        return out

    def transfer_error(self, nu: Floats, dual: ArrayLike | None = None) -> float:
        """2 L_mu(omega*) of equation (4) under another occupancy mu: at most epsilon_bias (Assumption 3)."""
        w = self.weights if dual is None else np.append(1.0, dual)
        return float(nu @ (self.residuals @ w) ** 2)


def point(
    cmdp: CMDP,
    policy: Policy | Parametrisation | None = None,
    theta: ArrayLike | None = None,
    dual: ArrayLike = (),
) -> Point:
    """The exact quantities at (theta, lambda).

    Parameters
    ----------
    cmdp : CMDP
    policy : TabularSoftmax, LogLinear or Parametrisation
        None: TabularSoftmax().
    theta : float64[d]
        None: zeros, the uniform policy.
    dual : float64[m], or a number when m = 1
        Multipliers in kernel units; empty: zeros.

    Raises
    ------
    ModelError, SettingError
        The policy does not fit the model; theta or dual of the wrong length, not finite, dual negative.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> here = point(fc.CMDP([0, 2], [0, 1, 2], [0, 0], [1, 1], [0, 1], gamma=0.5))
    >>> here.fisher.tolist()  # tabular softmax: singular
    [[0.25, -0.25], [-0.25, 0.25]]
    >>> here.mu_full, round(here.mu, 12), here.natural.round(12).tolist()
    (0.0, 0.5, [-1.0, 1.0])
    """
    parametrisation = policy if isinstance(policy, Parametrisation) else Parametrisation(cmdp, policy)
    parameters = np.zeros(parametrisation.n_parameters) if theta is None else np.array(theta, np.float64)
    duals = np.atleast_1d(np.asarray(dual, np.float64))
    multipliers = np.zeros(cmdp.n_constraints) if duals.size == 0 else duals
    if multipliers.shape != (cmdp.n_constraints,):
        raise SettingError(f"dual has shape {multipliers.shape}; ({cmdp.n_constraints},) is expected")
    if not np.isfinite(multipliers).all() or (multipliers < 0).any():
        raise SettingError(f"dual is {multipliers}; finite numbers >= 0 are expected")
    log_pi = parametrisation.log_policy(parameters)
    pi = cmdp.action_probabilities(np.exp(log_pi))
    nu = occupancy(cmdp, pi)
    return Point(
        cmdp=cmdp,
        theta=parameters,
        dual=multipliers,
        log_pi=log_pi,
        pi=pi,
        scores=parametrisation.scores(pi),
        nu=nu,
        advantage=advantages(cmdp, pi),
        raw=nu @ cmdp.signals / (1.0 - cmdp.gamma),
        parametrisation=parametrisation,
    )
