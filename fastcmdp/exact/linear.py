"""Linear systems that policies give: x = right + gamma M x, for M = P_pi or its transpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.errors import ModelError, SettingError
from fastcmdp.exact.sweeps import Chain

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Method = Literal["auto", "direct", "iterative"]
Operator = Callable[[Floats], Floats]

EPS = float(np.finfo(np.float64).eps)
DENSE_STATES = 128  # up to here a dense factorisation beats iteration, see dense_solve
LAPACK_ROWS = 64  # largest block that LAPACK is given where that can be helped
LARGEST_DENSE = 2_000  # up to here "direct" stays dense: sparse factors of a random graph fill in anyway
LARGEST_SPARSE = 200_000  # up to here sparse factors are tried where iteration stalls
MOST_BAND = 5_000_000  # states times bandwidth up to which sparse factors beat iterations that are slow
KRYLOV_STEPS = 100  # BiCGSTAB steps between two looks at the true residual
KRYLOV_RESTARTS = 12
LOOK = 8  # sweeps between two looks at how fast they converge
PATIENCE = 150  # sweeps: where more are still needed, Krylov's method takes over


def frozen(array: ArrayLike) -> Floats:
    """A read-only copy."""
    copy = np.array(array, dtype=np.float64)
    copy.setflags(write=False)
    return copy


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


def solve(
    chain: Chain,
    right: Floats,
    order: float,
    method: Method = "auto",
    start: Floats | None = None,
    relative: float = 0.0,
    slowly: Callable[[], None] = lambda: None,
) -> Floats:
    """x (S, k) with x = right + gamma M x, M the rows of ``chain``.

    ``order`` is the norm in which gamma M is a contraction (inf for a chain, 1 for its transpose): the error is at
    most residual / (1-gamma) in it, so a residual of ``relative`` |right| proves that relative accuracy. It is
    `accuracy` unless more is allowed. Iterations begin at ``start``; ``slowly`` is called where plain sweeps do not
    suffice.
    """
    targets = max(relative, accuracy(chain.gamma)) * _norms(right, order)
    loose = relative > accuracy(chain.gamma)
    if is_dense(chain.n_states, method):
        system = np.eye(chain.n_states) - chain.gamma * chain.matrix().toarray()
        solution = dense_solve(system, right)
        residuals = _norms(right - product(system, solution), order)
    else:
        if method == "direct":
            solution = _sparse_solve(chain, right)
        else:
            solution, swept = _iterate(chain, right, targets, order, method, start, slowly)
            if loose and swept:  # the last sweep has proven it but for rounding, of which much is allowed
                return solution
        residuals = _norms(_residual(chain, right, solution), order)
        if method == "auto" and not (residuals <= targets).all():
            if chain.n_states <= LARGEST_SPARSE:
                return solve(chain, right, order, "direct")
            solution, _ = _sweep_all(chain, right, targets, order, solution, np.inf)
            residuals = _norms(_residual(chain, right, solution), order)
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


def weighted(columns: Floats, weights: Floats) -> Floats:
    """columns (n, k) @ weights (k,) without BLAS, whose second thread spins while kernels run."""
    total: Floats = columns[:, 0] * weights[0]
    for column, weight in zip(columns.T[1:], weights[1:].tolist(), strict=True):
        if weight != 0.0:
            total += column * weight
    return total


def means(law: Floats, columns: Floats) -> Floats:
    """law (n,) @ columns (n, k) without BLAS; its last bits depend on the number of threads besides."""
    return np.array([np.einsum("i,i", law, column) for column in columns.T])


def _sparse_solve(chain: Chain, right: Floats) -> Floats:
    import scipy.sparse
    from scipy.sparse.linalg import splu  # here, since small models do without and it is slow to import

    identity = scipy.sparse.csr_array(scipy.sparse.identity(chain.n_states, format="csr"))
    system = (identity - chain.gamma * chain.matrix()).tocsc()
    # Dominant diagonals need no pivots, and the order that suits a symmetric pattern fills in less.
    factors = splu(system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    return cast(Floats, factors.solve(right))


def _is_narrow(chain: Chain) -> bool:
    """Whether states can be put in an order in which the chain moves only a little: then factors stay sparse."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    matrix = chain.matrix()
    order = reverse_cuthill_mckee((matrix + matrix.T).tocsr(), symmetric_mode=True)
    place = np.empty(chain.n_states, dtype=np.int64)
    place[order] = np.arange(chain.n_states)
    source = np.repeat(place, np.diff(chain.offset))
    width = np.abs(source - place[chain.target]).max(initial=0)
    return bool(width * chain.n_states <= MOST_BAND)


def _norms(x: Floats, order: float) -> Floats:
    """Norm of each column, one after the other: a reduction along the first of two axes is slow in NumPy."""
    return np.array([np.linalg.norm(column, order) for column in x.T])


def _residual(chain: Chain, right: Floats, x: Floats) -> Floats:
    after = np.empty_like(x)
    for pair in _pairs(x):
        after[:, pair] = _stepped(chain, right[:, pair], x[:, pair])
    return after - x


def _stepped(chain: Chain, right: Floats, x: Floats) -> Floats:
    out = np.empty(x.shape)
    chain.step(np.ascontiguousarray(right), np.ascontiguousarray(x), out)
    return out


def _pairs(x: Floats) -> list[slice]:
    return [slice(k, min(k + 2, x.shape[1])) for k in range(0, x.shape[1], 2)]


def _iterate(
    chain: Chain,
    right: Floats,
    targets: Floats,
    order: float,
    method: Method,
    start: Floats | None,
    slowly: Callable[[], None],
) -> tuple[Floats, bool]:
    """Fixed-point sweeps where these are quick, and whether they did; else sparse factors or Krylov's method, which the
    caller judges."""
    if start is None:
        # For a transpose, of the right mass: what is left then decays as fast as the chain mixes.
        start = right / (1 - chain.gamma) if order == 1 else np.zeros_like(right)
    if not (targets > 0).all():
        start = np.where(targets > 0, start, 0.0)
    solution, done = _sweep_all(chain, right, targets, order, start, PATIENCE)
    if not done.all():
        slowly()
    if not done.all() and method == "auto" and chain.n_states <= LARGEST_SPARSE and _is_narrow(chain):
        return _sparse_solve(chain, right), False
    for k in np.flatnonzero(~done):
        solution[:, k], _ = _krylov(
            chain, right[:, k].copy(), solution[:, k].copy(), float(targets[k]), order
        )
    return solution, bool(done.all())


def _sweep_all(
    chain: Chain, right: Floats, targets: Floats, order: float, start: Floats, patience: float
) -> tuple[Floats, NDArray[np.bool_]]:
    if right.shape[1] <= 2:
        return _sweep(chain, np.ascontiguousarray(right), targets, order, start.copy(), patience)
    solution, done = np.empty_like(right), np.zeros(right.shape[1], dtype=bool)
    for pair in _pairs(right):
        solution[:, pair], done[pair] = _sweep(
            chain, np.ascontiguousarray(right[:, pair]), targets[pair], order, start[:, pair].copy(), patience
        )
    return solution, done


def _sweep(
    chain: Chain, right: Floats, targets: Floats, order: float, x: Floats, patience: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Fixed-point sweeps for one or two columns; which of them have reached their targets.

    With order inf a constant is added at the end, gamma/(1-gamma) times the middle of the last change: what is
    left is its spread, which decays as fast as the chain mixes (MacQueen, J. Math. Anal. Appl. 14, 1966).
    """
    gamma, out = chain.gamma, np.empty_like(x)
    goal = 0.5 * targets / gamma  # half for the rounding of the last steps
    before = np.full(len(targets), np.inf)
    count, most = 0, 100 + int(50 / (1 - gamma))
    while True:
        low, high, size = chain.step(right, x, out).T
        x, out = out, x
        count += 1
        left = size if order == 1 else 0.5 * (high - low)
        done = left <= goal
        if done.all() or count == most:
            break
        if count % LOOK == 0:
            with np.errstate(all="ignore"):
                rate = np.log(left / before) / LOOK
                needed = np.where(done, 0.0, np.log(goal / left) / np.where(rate < 0, rate, -1e-300))
            if not (needed <= patience).all() and np.isfinite(before).all():
                break
            before = left
    if order != 1:
        x += gamma / (1 - gamma) * 0.5 * (low + high)
    return x, done


def _krylov(chain: Chain, right: Floats, x: Floats, target: float, order: float) -> tuple[Floats, bool]:
    """Restarted BiCGSTAB on the true residual, preconditioned by a Gauss-Seidel sweep each way; one column."""
    zeros, between = np.zeros_like(right), np.empty_like(right)

    def system(value: Floats) -> Floats:
        out = np.empty((len(value), 1))
        chain.step(zeros[:, None], value[:, None], out)
        return value - out[:, 0]

    def sweeps(residual: Floats) -> Floats:
        out = np.empty_like(residual)
        chain.relax(residual, zeros, between, False)
        chain.relax(residual, between, out, True)
        return out

    stalled = 0
    for _ in range(KRYLOV_RESTARTS):
        x = x + sweeps(right - system(x))  # a contraction: it spoils any unlucky symmetry of the start
        residual = right - system(x)
        size = np.linalg.norm(residual, order)
        if size <= target:
            return x, True
        with np.errstate(all="ignore"):  # it may break down or diverge; then its step is not taken
            trial = x + _bicgstab(system, residual, target / 2, order, sweeps)
            shrunk = np.linalg.norm(right - system(trial), order) <= size / 2
        if shrunk:
            x = trial
        else:
            stalled += 1
            if stalled == 2:
                break
    return x, False


def _bicgstab(system: Operator, rhs: Floats, target: float, order: float, preconditioner: Operator) -> Floats:
    """A few steps of van der Vorst's method (SIAM J. Sci. Stat. Comput. 13, 1992) from zero.

    Not SciPy's: that one's breakdown test is absolute, and its inner products are sums by BLAS threads, whose
    last bits depend on their number.
    """
    x, residual, shadow = np.zeros_like(rhs), rhs, rhs
    direction, image = np.zeros_like(rhs), np.zeros_like(rhs)
    rho, alpha, omega = np.float64(1), np.float64(1), np.float64(1)
    for _ in range(KRYLOV_STEPS):  # in place: at a million states the vectors take as long as the sweeps
        rho, last = _dot(shadow, residual), rho
        image *= omega
        direction -= image
        direction *= (rho / last) * (alpha / omega)
        direction += residual
        step = preconditioner(direction)
        image = system(step)
        alpha = rho / _dot(shadow, image)
        half = residual - alpha * image
        x += alpha * step
        if np.linalg.norm(half, order) <= target:
            break
        step = preconditioner(half)
        turned = system(step)
        omega = _dot(turned, half) / _dot(turned, turned)
        x += omega * step
        residual = half - omega * turned
        if not np.linalg.norm(residual, order) > target:  # reached, or not a number
            break
    return x


def _dot(a: Floats, b: Floats) -> np.float64:
    return np.float64(np.einsum("i,i", a, b))
