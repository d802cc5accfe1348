"""The interior-point method of concave utilities: Newton's steps on occupancies, slacks of limits and y = M nu.

The programme is (2) of `fastcmdp.exact.utilities`. phi is separable, so a step is one sparse system in the multipliers
of the balance, of the limits and of y (Wright, Primal-Dual Interior-Point Methods, 1997).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import scipy  # its parts load at their first use

from fastcmdp.cmdp import CMDP
from fastcmdp.exact.evaluation import occupancy
from fastcmdp.exact.linear import Floats

if TYPE_CHECKING:
    from fastcmdp.exact.utilities import Utility

MOST_STEPS = 200
SETTLED = 1e-9  # residuals and complementarity at which Newton's steps end
FRACTION = 0.99  # of the way to the boundary


def states_of(cmdp: CMDP) -> Any:
    """The sums over the choices of each state, sparse (S, C)."""
    entries = np.ones(cmdp.n_choices), cmdp.choice_state, np.arange(cmdp.n_choices + 1)
    return scipy.sparse.csc_array(entries, shape=(cmdp.n_states, cmdp.n_choices)).tocsr()


class _Point(NamedTuple):
    """Where the method is: x = (nu, slack of limits), z their multipliers, v of the rows of A, u of y = M x."""

    x: Floats
    z: Floats
    v: Floats
    y: Floats
    u: Floats


class Newton:
    """The interior-point method on the states that are reached from the start, and the slacks of the limits."""

    def __init__(self, cmdp: CMDP, utility: Utility) -> None:
        self.cmdp, self.utility = cmdp, utility
        uniform = 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]
        self.met = np.flatnonzero(occupancy(cmdp, uniform) > 0)
        m, n = cmdp.n_constraints, len(self.met)
        states = np.flatnonzero(np.bincount(cmdp.choice_state[self.met], minlength=cmdp.n_states))
        flow = states_of(cmdp) - cmdp.gamma * cmdp.transition_matrix().T
        flow = scipy.sparse.csr_array(flow)[states][:, self.met]
        limits = scipy.sparse.csr_array(cmdp.signals[self.met, 1:].T)
        minus = -scipy.sparse.eye_array(m)
        zeros = scipy.sparse.csr_array((len(states), m))
        self.rows = scipy.sparse.block_array(
            [[flow, zeros], [limits, minus]] if m else [[flow]], format="csr"
        )
        self.right = np.append(cmdp.unit * cmdp.start[states], np.zeros(m))
        features = utility.features[:, self.met]
        wide = scipy.sparse.csr_array((features.shape[0], m))
        features = (
            scipy.sparse.hstack([features, wide], format="csr") if m else scipy.sparse.csr_array(features)
        )
        if utility.scalar.positive:  # rows of states that no policy reaches stay at y = 0
            features = features[np.diff(features.indptr) > 0]
        self.features, self.linear = features, np.append(utility.linear[self.met], np.zeros(m))
        self.n, self.m = n, m

    def run(self) -> tuple[Floats, Floats]:
        """The occupancy (C,), and the multipliers of the limits in kernel units of (1-gamma) J."""
        at, size = self._begin(), 1.0
        for _ in range(MOST_STEPS):
            dual = self._dual_residual(at)
            primal = self.rows @ at.x - self.right
            mu = float(at.x @ at.z) / len(at.x)
            size = 1.0 + float(np.abs(self.linear).max(initial=0.0)) + float(np.abs(at.u).max(initial=0.0))
            central = mu * len(at.x) <= SETTLED * size and np.abs(dual).max() <= 1e3 * SETTLED * size
            if central and np.abs(primal).sum() <= SETTLED:
                break
            at = self._step(at, dual, primal, 0.1 * mu)
        nu = np.zeros(self.cmdp.n_choices)
        nu[self.met] = at.x[: self.n]
        return nu, np.maximum(0.0, at.z[self.n :])

    def _begin(self) -> _Point:
        """Even over choices, which is no occupancy: one of a policy can be 1e-40 far from the start, and Newton's
        steps come to the balance sooner than away from such a boundary.
        """
        even = np.full(self.n, 1.0 / self.n)
        slack = np.maximum(self.cmdp.signals[self.met, 1:].T @ even, 1e-2)
        x = np.append(even, slack)
        y = self.features @ x
        if self.utility.scalar.positive:
            y = np.maximum(y, 1e-3 * max(float(np.abs(y).max()), 1e-12))
        u = self.utility.scalar.slope(y)
        return _Point(x, 1.0 / (len(x) * x), np.zeros(len(self.right)), y, u)

    def _dual_residual(self, at: _Point) -> Floats:
        """-b - A'v - M'u - z, which is 0 at the optimum."""
        return cast(Floats, -self.linear - self.rows.T @ at.v - self.features.T @ at.u - at.z)

    def _step(self, at: _Point, dual: Floats, primal: Floats, aim: float) -> _Point:
        """Newton's step, cut short of the boundary.

        After elimination of x and y what is left is G (x/z) G' (dv, du) + (0, du / curvature) = right, G = (A; M).
        """
        x, z, y = at.x, at.z, at.y
        ratio = x / z
        both = scipy.sparse.vstack([self.rows, self.features], format="csr")
        bent = -self.utility.scalar.curvature(y)
        stuck = at.u - self.utility.scalar.slope(y)
        off = self.features @ x - y
        push = -dual + aim / x - z
        system = (both * ratio[None, :]) @ both.T
        diagonal = np.concatenate((np.full(len(at.v), 0.0), 1.0 / bent))
        system = scipy.sparse.csc_array(system + scipy.sparse.diags_array(diagonal))
        right = np.concatenate((-primal, -off - stuck / bent)) - both @ (ratio * push)
        moved = _solved(system, right)
        dv, du = moved[: len(at.v)], moved[len(at.v) :]
        dx = ratio * (push + both.T @ moved)
        dz = aim / x - z - dx / ratio
        dy = -(stuck + du) / bent
        length = min(_room(x, dx), _room(z, dz), _room(y, dy) if self.utility.scalar.positive else 1.0)
        return _Point(
            x + length * dx, z + length * dz, at.v + length * dv, y + length * dy, at.u + length * du
        )


def _solved(system: Any, right: Floats) -> Floats:
    """The solution of a positive definite system, scaled to a diagonal of ones, with one refinement."""
    from scipy.sparse.linalg import splu

    scale = 1.0 / np.sqrt(np.maximum(system.diagonal(), 1e-300))
    scaled = scipy.sparse.csc_array(
        scipy.sparse.diags_array(scale) @ system @ scipy.sparse.diags_array(scale)
    )
    options = {"SymmetricMode": True}
    factors = splu(scaled, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    solution = factors.solve(scale * right)
    solution = solution + factors.solve(scale * right - scaled @ solution)
    return cast(Floats, scale * solution)


def _room(value: Floats, change: Floats) -> float:
    """The step up to 1 that leaves all values positive."""
    falls = change < 0
    return min(1.0, FRACTION * float((-value[falls] / change[falls]).min(initial=np.inf)))
