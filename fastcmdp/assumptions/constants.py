"""The constants that the paper's assumptions and bounds speak of, for a model and a policy class.

Kernel units, m constraints. With m > 1 every multiplier has the cap lambda_max, and 1 + lambda of the paper becomes

    Lambda = 1 + m lambda_max       >= 1 + sum_i lambda_i                                              (1)

lambda_max = 2/((1-gamma) c_slater) stays valid: where one policy has all J_ci >= c_slater, sum_i lambda*_i <=
1/((1-gamma) c_slater). c_slater is the largest value over all policies. Assumption 1 asks for a policy of the class,
but the proofs use it only for the bound on lambda*, which
is about the unparameterised problem (both derived here).

G and B are exact suprema over all theta. mu_F has none: on every softmax class F tends to 0 along theta that make
the policy deterministic, so Assumption 4 over all of R^d fails, and what is reported is measured at the given
thetas. The same goes for epsilon_bias, except where it is 0 for a reason (`Constants.epsilon_bias`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.assumptions.points import Parametrisation, Point, point
from fastcmdp.check import positive, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.exact import FEASIBLE, Optimum
from fastcmdp.exact import optimum as exact_optimum
from fastcmdp.kernels.learning.asgd import Momentum
from fastcmdp.policies import Policy

Floats = NDArray[np.float64]

SMALLEST = 1e-50  # squares and reciprocals of positive settings stay finite
MOST_CONSTRAINTS = 12  # 2^m corners of the box of multipliers are looked at


@dataclass(frozen=True)
class Constants:
    """The paper's constants; G to kl are found, the properties follow from them.

    Attributes
    ----------
    gamma : float
    n_parameters, n_constraints : int
        d and m.
    G, B : float
        Assumption 2: bounds on the score and on its Lipschitz constant, attained in the limit; B = G^2/4.
    c_slater : float
        Assumption 1: max over policies of min_i J_ci. Infinite when m = 0; 0 but for rounding: the assumption fails.
    lambda_max : float
        2/((1-gamma) c_slater), or as given; 0 when m = 0, infinite where Assumption 1 fails.
    user_lambda_max : tuple of float
        The same in the user's units, one a constraint: the cap of `theorem_settings`' runs.
    mu_F : float
        Assumption 4: smallest eigenvalue of F on the span of the visited scores, over the thetas.
    kl : float
        E_{s ~ d*} KL(pi* || pi_theta0) at the first of the thetas.
    epsilon_bias : float
        Assumption 3: largest E_{nu*}[(A_L/(1-gamma) - omega* . g)^2] over the thetas and over all multipliers in
        [0, lambda_max]^m, exactly (it is convex, so a corner attains it).
    mu_full : float
        Smallest eigenvalue of F itself; 0 where F is singular, and Assumption 4 fails as it stands.
    rank : int
        Smallest rank of F over the thetas.
    G_measured, B_measured : float
        Largest score, and largest eigenvalue of the covariance of the scores in a state, at the thetas.
    sigma2_measured : float
        Smallest sigma^2 for which Lemma 5's matrix inequality holds at the thetas and all multipliers of the box.
    R2_measured, kappa_tilde_measured : float
        Smallest numbers with E[|g|^2 g g'] <= R^2 F and E[|g|^2_{F^+} g g'] <= kappa~ F (S3 in the proof of Lemma 6;
        the paper takes G^2 and G^2/mu_F).
    advantage_measured : float
        Largest |A_L| at the thetas, over all choices and multipliers of the box.
    n_thetas : int
    """

    gamma: float
    n_parameters: int
    n_constraints: int
    G: float
    B: float
    c_slater: float
    lambda_max: float
    user_lambda_max: tuple[float, ...]
    mu_F: float
    kl: float
    epsilon_bias: float
    mu_full: float
    rank: int
    G_measured: float
    B_measured: float
    sigma2_measured: float
    R2_measured: float
    kappa_tilde_measured: float
    advantage_measured: float
    n_thetas: int

    @property
    def Lambda(self) -> float:
        """1 + m lambda_max: what stands for 1 + lambda_max of the paper."""
        return 1.0 + self.n_constraints * self.lambda_max

    @property
    def kappa(self) -> float:
        """G^2 / mu_F, which the paper also takes for kappa~."""
        return self.G**2 / self.mu_F

    @property
    def sigma2(self) -> float:
        """sigma^2 of Lemma 5 (eq_def_sigma_2)."""
        bracket = 2.0 * self.G**4 / self.mu_F**2 + 32.0
        return bracket * self.Lambda**2 / (1.0 - self.gamma) ** 4

    @property
    def advantage_bound(self) -> float:
        """Largest possible |A_L|: (1 + 2 m lambda_max)/(1-gamma).

        The paper says (1 + lambda)/(1-gamma), but c ranges over [-1, 1], so |A_c| may reach 2/(1-gamma).
        """
        return (1.0 + 2.0 * self.n_constraints * self.lambda_max) / (1.0 - self.gamma)

    @property
    def momentum(self) -> Momentum:
        """Step sizes of ASGD (Lemma 6)."""
        return asgd_steps(self.G**2, self.mu_F)

    def f0(self, C: float = 1.0) -> float:
        """f_0 = G sqrt(C) / sqrt(mu_F) in the proof of Theorem 1."""
        return self.G * math.sqrt(C / self.mu_F)

    def f1(self, C: float = 1.0) -> float:
        """f_1 = B[(44 d/mu_F)(G^4/mu_F^2 + 16) + C/mu_F + G^2/mu_F^2] + E KL(pi* || pi_0) there."""
        mu, d = self.mu_F, self.n_parameters
        variance = 44.0 * d / mu * (self.G**4 / mu**2 + 16.0)
        return self.B * (variance + C / mu + self.G**2 / mu**2) + self.kl

    def to_dict(self) -> dict[str, Any]:
        """All fields and properties as plain numbers."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        derived = ("Lambda", "kappa", "sigma2", "advantage_bound")
        return fields | {name: getattr(self, name) for name in derived}


def asgd_steps(g_squared: float, mu: float) -> Momentum:
    """alpha, beta, xi, delta of Lemma 6 from G^2 and mu_F.

    Examples
    --------
    >>> steps = asgd_steps(2.0, 0.1)
    >>> round(steps.delta, 3), round(steps.beta, 6)
    (0.1, 0.005556)
    """
    root = 3.0 * math.sqrt(5.0)
    return Momentum(
        alpha=root * g_squared / (mu + root * g_squared),
        beta=mu / (9.0 * g_squared),
        xi=1.0 / (root * g_squared),
        delta=1.0 / (5.0 * g_squared),
    )


def corners(n_constraints: int, lambda_max: float) -> Iterator[Floats]:
    """The corners of [0, lambda_max]^m: convex functions of lambda are largest at one of them."""
    if n_constraints > MOST_CONSTRAINTS:
        raise SettingError(
            f"{n_constraints} constraints have too many corners; at most {MOST_CONSTRAINTS} are taken"
        )
    for corner in itertools.product((0.0, lambda_max), repeat=n_constraints):
        yield np.array(corner)


def slater_holds(cmdp: CMDP, best: Optimum) -> bool:
    """Whether some policy meets all constraints with room beyond the accuracy of the optimum (Assumption 1)."""
    return (1.0 - cmdp.gamma) * best.slater > FEASIBLE


def default_cap(cmdp: CMDP, best: Optimum) -> float:
    """lambda_max = 2/((1-gamma) c_slater) of Theorem 1, kernel units; 0 for m = 0, infinite without a Slater policy."""
    if cmdp.n_constraints == 0:
        return 0.0
    return 2.0 / ((1.0 - cmdp.gamma) * best.slater) if slater_holds(cmdp, best) else math.inf


def kl_divergence(best: Optimum, log_pi: Floats) -> float:
    """E_{s ~ d*} KL(pi*(.|s) || pi(.|s)) for log pi of every choice."""
    taken = best.occupancy > 0
    ratio = np.log(best.policy[taken]) - log_pi[taken]
    return float(best.occupancy[taken] @ ratio)


def constants(
    cmdp: CMDP,
    policy: Policy | Parametrisation | None = None,
    thetas: ArrayLike | None = None,
    *,
    optimum: Optimum | None = None,
    lambda_max: float | None = None,
) -> Constants:
    """The constants of a problem and policy class: exact where they have formulas, else measured at the thetas.

    Parameters
    ----------
    cmdp : CMDP
    policy : TabularSoftmax, LogLinear or Parametrisation
        None: TabularSoftmax().
    thetas : float64[n, d] or float64[d]
        Where to measure: ``Result.theta``, ``Path.thetas``, ... None: zeros, where PD-ANPG starts.
    optimum : Optimum
        ``fastcmdp.optimum(cmdp)``; None: computed.
    lambda_max : float
        Cap of the multipliers, kernel units; None: Theorem 1's. The schedules, rates and settings that are made of
        these constants follow it.

    Raises
    ------
    InfeasibleError
        No policy meets the constraints.
    ModelError, SettingError
        The policy or the thetas do not fit the model; more than 12 constraints; no state leaves a choice.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> found = constants(fc.envs.garnet(n_states=5, seed=1))
    >>> round(found.G**2, 12), round(found.B, 12), found.mu_full, found.mu_F > 0
    (2.0, 0.5, 0.0, True)
    """
    parametrisation = policy if isinstance(policy, Parametrisation) else Parametrisation(cmdp, policy)
    best = exact_optimum(cmdp) if optimum is None else optimum
    if lambda_max is not None:
        positive("lambda_max", lambda_max, SMALLEST)
    cap = default_cap(cmdp, best) if lambda_max is None or not cmdp.n_constraints else float(lambda_max)
    rows = (
        np.zeros((1, parametrisation.n_parameters))
        if thetas is None
        else np.atleast_2d(np.asarray(thetas, float))
    )
    if len(rows) == 0:
        raise SettingError("thetas are empty; at least one is expected")
    points = [point(cmdp, parametrisation, row) for row in rows]
    parts = [_measure(at, best, cap) for at in points]
    if not min(part.rank for part in parts):
        raise SettingError(
            "the Fisher matrix is zero: no visited state has two choices with different features and positive "
            "probability, so there is nothing to learn and mu_F does not exist"
        )
    return _join(parts)


def _measure(at: Point, best: Optimum, cap: float) -> Constants:
    cmdp, parametrisation = at.cmdp, at.parametrisation
    # With no finite cap (Assumption 1 fails) the box is replaced by its corner lambda = 0.
    box = list(corners(cmdp.n_constraints, cap if math.isfinite(cap) else 0.0))
    squares = np.einsum("qi,qi->q", at.scores, at.scores)
    return Constants(
        gamma=cmdp.gamma,
        n_parameters=parametrisation.n_parameters,
        n_constraints=cmdp.n_constraints,
        G=math.sqrt(parametrisation.score_bound),
        B=parametrisation.smoothness,
        c_slater=best.slater,
        lambda_max=cap,
        user_lambda_max=tuple(cmdp.to_user_duals(np.full(cmdp.n_constraints, cap)).tolist()),
        mu_F=at.mu,
        kl=kl_divergence(best, at.log_pi),
        epsilon_bias=max(at.transfer_error(best.occupancy, corner) for corner in box),
        mu_full=at.mu_full,
        rank=at.rank,
        G_measured=math.sqrt(float(squares.max())),
        B_measured=_largest_covariance(at),
        sigma2_measured=max(at.whitened_norm(at.residual_second_moment(corner)) for corner in box),
        R2_measured=at.whitened_norm(squares),
        kappa_tilde_measured=at.whitened_norm(at.whitened_squares),
        advantage_measured=max(float(np.abs(at.advantage @ np.append(1.0, c)).max()) for c in box),
        n_thetas=1,
    )


def _join(parts: Sequence[Constants]) -> Constants:
    """The worst of every constant; the divergence is that of the first theta."""

    def worst(name: str, best: Any = max) -> Any:
        return best(getattr(part, name) for part in parts)

    smallest = {name: worst(name, min) for name in ("mu_F", "mu_full", "rank")}
    largest = {
        name: worst(name)
        for name in (
            "epsilon_bias",
            "G_measured",
            "B_measured",
            "sigma2_measured",
            "R2_measured",
            "kappa_tilde_measured",
            "advantage_measured",
        )
    }
    return replace(parts[0], **smallest, **largest, n_thetas=len(parts))


def _largest_covariance(at: Point) -> float:
    """Largest eigenvalue over states of sum_q pi(q) g_q g_q', the negative Hessian of log pi."""
    largest = 0.0
    bounds = at.cmdp.state_to_choice
    for first, last in itertools.pairwise(bounds):
        rows = np.sqrt(at.pi[first:last, None]) * at.scores[first:last]
        if last - first > 1:
            largest = max(largest, float(np.linalg.eigvalsh(rows @ rows.T)[-1]))
    return largest


def check_slater(constants: Constants) -> None:
    """Raise a SettingError where no policy meets the limits strictly."""
    if not math.isfinite(constants.lambda_max):
        raise SettingError(
            f"Assumption 1 fails: the Slater value is {constants.c_slater:.3g}, so no policy meets the constraints "
            "strictly and Theorem 1 has no schedule; loosen a limit"
        )


def cap_ratio(constants: Constants) -> float:
    """lambda_max over Theorem 1's 2/((1-gamma) c_slater); 1 for m = 0.

    Raises
    ------
    SettingError
        Less than 1, so that the cap need not be 2 lambda*, which the bound on the violation asks for; Assumption 1
        fails.
    """
    check_slater(constants)
    if constants.n_constraints == 0:
        return 1.0
    times = constants.lambda_max * (1.0 - constants.gamma) * constants.c_slater / 2.0
    if times < 1.0 - 1e-9:
        raise SettingError(
            f"lambda_max = {constants.lambda_max:.6g}: at least Theorem 1's 2/((1-gamma) c_slater) = "
            f"{constants.lambda_max / times:.6g} is expected"
        )
    return times


def theorem_rates(constants: Constants, outer: int) -> tuple[float, float]:
    """eta and zeta of Theorem 1 for K outer steps, equation (1) of `fastcmdp.theory.schedules`."""
    outer = whole("outer", outer, 1, None)  # a number to print: far more than any run makes
    unit, root = 1.0 - constants.gamma, math.sqrt(outer)
    return unit**2 / (constants.Lambda * root), constants.lambda_max * unit / root
