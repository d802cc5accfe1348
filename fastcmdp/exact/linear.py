"""Chains of policies and the linear systems that they give: I - gamma P_pi and its transpose."""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
import scipy  # its parts load at their first use
from numpy.typing import ArrayLike, NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Method = Literal["auto", "direct", "iterative"]

EPS = float(np.finfo(np.float64).eps)
DENSE_STATES = 128  # up to here a dense factorisation beats iteration, see dense_solve
LAPACK_ROWS = 64  # largest block that LAPACK is given where that can be helped
LARGEST_DENSE = 2_000  # up to here "direct" stays dense: sparse factors of a random graph fill in anyway
DENSE_ENTRIES = 20_000_000  # largest dense copy of P: C * S entries
BLOCK_ENTRIES = 300_000  # chains are solved in blocks of so many entries, which stay in the cache
KRYLOV_STEPS = 100  # BiCGSTAB steps between two looks at the true residual
KRYLOV_RESTARTS = 12
SWEEPS = 10  # fixed-point steps before each restart


def frozen(array: ArrayLike) -> Floats:
    """A read-only copy."""
    copy = np.array(array, dtype=np.float64)
    copy.setflags(write=False)
    return copy


def averaging(cmdp: CMDP, pi: Floats) -> Any:
    """W_pi, without the choices that are never taken."""
    taken = np.flatnonzero(pi)
    bounds = np.searchsorted(taken, cmdp.state_to_choice)
    return scipy.sparse.csr_array((pi[taken], taken, bounds), shape=(cmdp.n_states, cmdp.n_choices))


def chain(cmdp: CMDP, pi: Floats) -> Any:
    """P_pi."""
    return averaging(cmdp, pi) @ cmdp.transition_matrix()


def is_dense(n_states: int, method: Method) -> bool:
    """Whether a system of so many states is solved with dense factors."""
    if method not in ("auto", "direct", "iterative"):
        raise SettingError(f"method is {method!r}; 'auto', 'direct' or 'iterative' is expected")
    return n_states <= {"auto": DENSE_STATES, "direct": LARGEST_DENSE, "iterative": 0}[method]


def accuracy(gamma: float) -> float:
    """Largest relative error of a solution: the second term is what rounding alone may cost."""
    return max(1e-12, 16 * EPS / (1 - gamma))


def check_residual(residual: float, target: float, method: Method) -> None:
    """Refuse a solution whose residual exceeds its target."""
    if not residual <= target:  # written so that NaN fails
        remedy = "direct" if method == "iterative" else "iterative"
        raise ModelError(
            f"policy evaluation (method={method!r}) has not converged: residual {residual:.3g}, allowed "
            f"{target:.3g}. Try method={remedy!r}, or a smaller gamma"
        )


def solve(matrix: Any, rhs: Floats, gamma: float, method: Method, order: float) -> Floats:
    """x with (I - gamma M) x = rhs, for M or its transpose stochastic.

    ``order`` is the norm in which gamma M is a contraction (inf for a chain, 1 for its transpose): the error
    is at most residual / (1-gamma) in it, so a residual of accuracy * |rhs| proves that relative accuracy.
    """
    n_states = matrix.shape[0]
    targets = accuracy(gamma) * np.linalg.norm(rhs, order, axis=0)
    if is_dense(n_states, method):
        system = np.eye(n_states) - gamma * matrix.toarray()
        solution = dense_solve(system, rhs)
    else:
        from scipy.sparse.linalg import splu  # here, since small models do without and it is slow to import

        system = scipy.sparse.csr_array(scipy.sparse.identity(n_states, format="csr")) - gamma * matrix
        solution = (
            splu(system.tocsc()).solve(rhs) if method == "direct" else _iterate(system, rhs, targets, order)
        )
    image = system @ solution if scipy.sparse.issparse(system) else product(system, solution)
    residuals = np.linalg.norm(rhs - image, order, axis=0)
    if method == "auto" and not (residuals <= targets).all():
        return solve(matrix, rhs, gamma, "direct", order)
    worst = int(np.argmax(np.where(np.isnan(residuals), np.inf, residuals - targets)))
    check_residual(float(residuals[worst]), float(targets[worst]), method)
    return solution


def dense_solve(systems: Floats, rhs: Floats) -> Floats:
    """Solutions (..., S, k) of dense systems (..., S, S), diagonally dominant by rows or by columns.

    BLAS starts threads from about 96 rows. With the cores busy, as they are during a run, waiting for these
    made a solve of 100 rows take 43 ms instead of 0.2. Two halves stay below that. Dominance passes to the
    second half (its Schur complement), so no pivot is missed.
    """
    n_states = systems.shape[-1]
    if not LAPACK_ROWS < n_states <= 2 * LAPACK_ROWS:
        return cast(Floats, np.linalg.solve(systems, rhs))
    half = n_states // 2
    rest = n_states - half
    below, corner = systems[..., half:, :half], systems[..., half:, half:]
    stacked = np.concatenate((systems[..., :half, half:], rhs[..., :half, :]), axis=-1)
    first = np.linalg.solve(systems[..., :half, :half], stacked)
    schur = corner - below @ first[..., :rest]
    second = np.linalg.solve(schur, rhs[..., half:, :] - below @ first[..., rest:])
    return np.concatenate((first[..., rest:] - first[..., :rest] @ second, second), axis=-2)


def product(matrices: Floats, columns: Floats) -> Floats:
    """matrices @ columns without BLAS, for the reason given in `dense_solve`."""
    return cast(Floats, np.einsum("...ij,...jk->...ik", matrices, columns))


def _iterate(system: Any, rhs: Floats, targets: Floats, order: float) -> Floats:
    """Krylov solutions for each column; the caller judges them."""
    solution = np.empty_like(rhs)
    incomplete = None
    for k in range(rhs.shape[1]):
        if incomplete is None:
            solution[:, k], done = _krylov(system, rhs[:, k], targets[k], order, np.positive)
            if done:
                continue
            # Long one-way paths (queues, grids) stall the plain method, and just these factorise well.
            from scipy.sparse.linalg import spilu  # here for the reason given in solve

            incomplete = spilu(system.tocsc(), drop_tol=1e-3, fill_factor=5).solve
        solution[:, k], _ = _krylov(system, rhs[:, k], targets[k], order, incomplete)
    return solution


def _krylov(
    system: Any, rhs: Floats, target: float, order: float, preconditioner: Any
) -> tuple[Floats, bool]:
    """Restarted BiCGSTAB on the true residual, fixed-point steps in between; (solution, converged)."""
    x = rhs.copy()
    stalled = 0
    for _ in range(KRYLOV_RESTARTS):
        for _ in range(SWEEPS):  # contractions: they never harm, and spoil any unlucky symmetry of the start
            x += rhs - system @ x
        residual = rhs - system @ x
        size = np.linalg.norm(residual, order)
        if size <= target:
            return x, True
        with np.errstate(all="ignore"):  # it may break down or diverge; then its step is not taken
            trial = x + _bicgstab(system, residual, target / 2, order, preconditioner)
            shrunk = np.linalg.norm(rhs - system @ trial, order) <= size / 2
        if shrunk:
            x = trial
        else:
            stalled += 1
            if stalled == 2:
                break
    return x, False


def _bicgstab(system: Any, rhs: Floats, target: float, order: float, preconditioner: Any) -> Floats:
    """A few steps of van der Vorst's method (SIAM J. Sci. Stat. Comput. 13, 1992) from zero.

    Not SciPy's: that one's breakdown test is absolute, and its inner products are sums by BLAS threads, whose
    last bits depend on their number.
    """
    x, residual, shadow = np.zeros_like(rhs), rhs, rhs
    direction, image = np.zeros_like(rhs), np.zeros_like(rhs)
    rho, alpha, omega = np.float64(1), np.float64(1), np.float64(1)
    for _ in range(KRYLOV_STEPS):
        rho, last = _dot(shadow, residual), rho
        direction = residual + (rho / last) * (alpha / omega) * (direction - omega * image)
        step = preconditioner(direction)
        image = system @ step
        alpha = rho / _dot(shadow, image)
        half = residual - alpha * image
        x += alpha * step
        if np.linalg.norm(half, order) <= target:
            break
        step = preconditioner(half)
        turned = system @ step
        omega = _dot(turned, half) / _dot(turned, turned)
        x += omega * step
        residual = half - omega * turned
        if not np.linalg.norm(residual, order) > target:  # reached, or not a number
            break
    return x


def _dot(a: Floats, b: Floats) -> np.float64:
    return np.float64(np.einsum("i,i", a, b))
