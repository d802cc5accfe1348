"""What to run for a target epsilon: Theorem 1's schedule to the letter, and the scaled one that is usable.

Kernel units. Theorem 1, with Lambda = 1 + m lambda_max for m constraints (see `constants`),

    eta = (1-gamma)^2 / (Lambda sqrt(K)),      zeta = lambda_max (1-gamma) / sqrt(K)                  (1)
    H = 40 G^2/mu_F log max{2n f_0/(c_slater (1-gamma)^3 eps), 2n f_0/((1-gamma)^2 eps)},             (2)
        and H > C_bar G^2/mu_F log(sqrt(d) G^2/mu_F)
    K = max{(2n (f_1+1))^2/(c_slater^2 (1-gamma)^6 eps^2), (2n (f_1+2))^2/((1-gamma)^4 eps^2)}        (3)

with n = 2m + 1, which is the paper's 3 (and 6, and 36) for m = 1: Lambda <= n/((1-gamma) c_slater) since
lambda_max >= 2. A larger cap, x times Theorem 1's 2/((1-gamma) c_slater), makes it n = 2 m x + 1, and n/x in the terms
without c_slater, which are those of the violation (derived here). The extension to m constraints is derived here; so
is m = 0, where the terms of the multipliers drop out. C and C_bar are universal constants that the paper does not
give. C = 1 sufficed in every case that was measured (`bounds.smallest_C`); C_bar is about small H, and (2) exceeds it
for small eps.

The scaled schedule keeps K ~ eps^-2, H ~ log(1/eps) and eta, zeta ~ K^-1/2, and takes the constants from
measurement. Its natural unit is the relative error e = (1-gamma) eps, since J ranges over 1/(1-gamma):

    K = c_K / e^2,       H = c_H kappa log(1/e),       eta, zeta: PDANPG's measured rates times c_eta, c_zeta   (4)

(4) is the project's own rule: no theorem stands behind it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fastcmdp.algorithms.pd_anpg import C_H, C_K, PDANPG
from fastcmdp.assumptions.constants import SMALLEST, Constants, cap_ratio, theorem_rates
from fastcmdp.check import positive
from fastcmdp.cmdp import CMDP


@dataclass(frozen=True)
class Schedule:
    """Parameters of PD-ANPG for a target epsilon, by Theorem 1; kernel units.

    Attributes
    ----------
    epsilon : float
        Target: gap <= sqrt(epsilon_bias) + epsilon, violation <= (1-gamma) c_slater sqrt(epsilon_bias) + epsilon.
    outer, inner : int
        K and H; K may be far beyond what can be run.
    eta, zeta : float
        Learning rates of theta and of the multipliers.
    lambda_max : float
    alpha, beta, xi, delta : float
        ASGD steps (Lemma 6).
    f0, f1 : float
        The proof's constants.
    C, C_bar : float
        The universal constants that were assumed.
    samples : float
        Expected transitions: K (3H + 1) rollouts of mean length gamma/(1-gamma).
    """

    epsilon: float
    outer: int
    inner: int
    eta: float
    zeta: float
    lambda_max: float
    alpha: float
    beta: float
    xi: float
    delta: float
    f0: float
    f1: float
    C: float
    C_bar: float
    samples: float

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain numbers."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def expected_samples(gamma: float, outer: int, inner: int, fresh: bool = True) -> float:
    """Expected transitions of a PD-ANPG run: K (3H + 1) rollouts of mean length gamma/(1-gamma).

    Without a fresh rollout for the dual step (PDANPG's "inner") it is 3H.

    Examples
    --------
    >>> round(expected_samples(0.5, 10, 3))
    100
    """
    return outer * (3.0 * inner + fresh) * gamma / (1.0 - gamma)


def theorem_schedule(constants: Constants, epsilon: float, *, C: float = 1.0, C_bar: float = 1.0) -> Schedule:
    """Theorem 1's schedule for a target epsilon, equations (1) to (3).

    Parameters
    ----------
    constants : Constants
        Its mu_F must bound F from below all along the run, which no start can promise: see
        `bounds.theorem_path`.
    epsilon : float
        Kernel units, > 0.
    C, C_bar : float
        The universal constants of Lemma 6.

    Raises
    ------
    SettingError
        A number out of range; Assumption 1 fails (c_slater <= 0).

    Examples
    --------
    >>> import fastcmdp as fc
    >>> from fastcmdp.theory import constants
    >>> found = theorem_schedule(constants(fc.envs.garnet(n_states=5, seed=1)), 0.1)
    >>> found.outer > 1e15, found.inner > 1e3
    (True, True)
    """
    for name, value in (("epsilon", epsilon), ("C", C), ("C_bar", C_bar)):
        positive(name, value, SMALLEST)
    times = cap_ratio(constants)
    m, unit = constants.n_constraints, 1.0 - constants.gamma
    f0, f1 = constants.f0(C), constants.f1(C)
    # The two rates are f0 scale exp(..) + (f1 + extra) scale / sqrt(K), for the gap and for the violation.
    if m == 0:
        rates = [(1.0 / unit**2, f1)]
    else:
        n = 2.0 * m * times + 1.0
        rates = [(n / (constants.c_slater * unit**3), f1 + 1.0), (n / times / unit**2, f1 + 2.0)]
    half = 2.0 / epsilon  # each of the two terms may take half of epsilon
    bias = 40.0 * constants.kappa * math.log(max(half * f0 * scale for scale, _ in rates))
    least = C_bar * constants.kappa * math.log(math.sqrt(constants.n_parameters) * constants.kappa)
    inner = max(math.ceil(bias), math.floor(least) + 1, 1)
    outer = math.ceil(max((half * scale * f) ** 2 for scale, f in rates))
    steps = constants.momentum
    eta, zeta = theorem_rates(constants, outer)
    return Schedule(
        epsilon=float(epsilon),
        outer=outer,
        inner=inner,
        eta=eta,
        zeta=zeta,
        lambda_max=constants.lambda_max,
        alpha=steps.alpha,
        beta=steps.beta,
        xi=steps.xi,
        delta=steps.delta,
        f0=f0,
        f1=f1,
        C=float(C),
        C_bar=float(C_bar),
        samples=expected_samples(constants.gamma, outer, inner),
    )


def practical_schedule(
    cmdp: CMDP,
    epsilon: float,
    *,
    c_K: float = C_K,
    c_H: float = C_H,
    c_eta: float = 1.0,
    c_zeta: float = 1.0,
    **settings: Any,
) -> PDANPG:
    """Settings of PD-ANPG for a target epsilon by the scaled schedule, equation (4).

    Parameters
    ----------
    cmdp : CMDP
        Only gamma is used.
    epsilon : float
        Target for gap and violation of the mixture, kernel units, in (0, 1/(1-gamma)).
    c_K, c_H, c_eta, c_zeta : float
        The tunable constants, > 0.
    **settings
        Other settings of `PDANPG`, which win (kappa, or mu_f, is that of H and of the ASGD steps); ``eta`` and
        ``zeta`` given here replace the measured ones.

    Raises
    ------
    SettingError
        A number out of range.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> cmdp = fc.envs.garnet(gamma=0.9)
    >>> coarse, fine = practical_schedule(cmdp, 0.2), practical_schedule(cmdp, 0.1)
    >>> fine.outer / coarse.outer, fine.inner - coarse.inner  # 4 times K, 80 log 2 more H
    (4.0, 56)
    """
    steps: dict[str, Any] = {"c_eta": c_eta, "c_zeta": c_zeta}
    return PDANPG.for_epsilon(cmdp, epsilon, c_K=c_K, c_H=c_H, **(steps | settings))
