"""CRPO with tabular softmax policies and a tabular TD critic (Xu, Liang, Lan 2021).

With theta_0 = 0 and N_0 empty, for t = 0..T-1, from K_in transitions under pi_t with TD steps k = 0..K_in-1,

    Q_f(s, a) += l_k [f + gamma Q_f(s', a') - Q_f(s, a)],  a' ~ pi_t(.|s'),  for f = r, c_1 .. c_m on the same ones
    J_i        = sum_{s, a} rho(s) pi_t(a|s) Q_ci(s, a)                                (no transitions of its own)
    if all J_i >= -tol_i:   t joins N_0,   theta_{t+1} = theta_t + alpha / (1-gamma) Q_r
    else:                   theta_{t+1} = theta_t + alpha / (1-gamma) Q_ci,   i uniform among the violated

The output is pi_t, t uniform in N_0: the policy *before* the step. Where N_0 stays empty, a result says so
(``Result.empty``) and takes the evaluated policy that met the limits best.

The theorem, as a secondary source quotes it: alpha = (1-gamma)^1.5 / sqrt(S A T), tol of the order
sqrt(S A) / ((1-gamma)^1.5 sqrt(T)), l_k of the order k^-sigma with 0 < sigma < 1 and K_in of the order T^(1/sigma)
up to logarithms and powers of 1-gamma (sigma = 1, the default here, is its limit, where eps^-4 stands, and not covered;
the factor C in ``for_epsilon`` is this project's: a choice is visited once in about C transitions);
gap and violation then are of the order of tol with high probability. Recalled: that the pairs (s, a) come from the
stationary law. Derived here: chains with restarts, whose stationary law is nu (``kernels/sampling/chains.py``), sixteen
of them side by side for one critic; the critic starts from the last one; and, where alpha and tol are left out, their
measured values (``fastcmdp/algorithms/crpo.py``). With ``alpha=`` and ``tol=`` given, the recursion is the one above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fastcmdp.algorithms.base import check_words
from fastcmdp.algorithms.crpo import CRPORun, Rectified, scheduled
from fastcmdp.check import require
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.learning.td import Decaying
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

_DELAY = 4.0  # visits of a choice, on average, before its rate has fallen to a half (sigma = 1)


@dataclass(frozen=True)
class CRPOSoftmax(Rectified):
    """Settings of CRPO with tabular softmax policies.

    Parameters
    ----------
    outer, inner : int
        T outer steps of K_in transitions each; both at least 1.
    alpha : float or None
        The actor adds alpha / (1-gamma) Q, in kernel units. None: measured along the run.
    tol : float, sequence or None
        By how much an estimate of J may miss its limit for a step on the reward: one number, or one a constraint, in
        the user's units, at least 0. None: measured along the run.
    c_alpha, c_tol : float
        Factors on the measured alpha and tol.
    sigma : float
        Exponent of the rates of TD, l_k = rate (1 + k / delay)^-sigma, above 0 and up to 1.
    rate : float
        The first rate of each outer step, above 0 and up to 1.
    delay : float or None
        None: 4 c_step C, C the number of choices.
    c_step : float
        Factor on the default of ``delay``.
    carry_over : bool
        Whether critics start from those of the last outer step; else from 0, each time.

    Raises
    ------
    SettingError
        A value out of range; when run, a policy that is not tabular.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> result = fc.solve(fc.envs.river_swim(), fc.CRPOSoftmax(outer=50, inner=500))
    >>> result.finished, bool(result.empty[0])
    (True, False)
    """

    sigma: float = 1.0
    rate: float = 0.5
    delay: float | None = None
    c_step: float = 1.0
    carry_over: bool = True

    name: ClassVar[str] = "crpo-softmax"
    version: ClassVar[int] = 3
    tabular_only: ClassVar[bool] = True
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_in": (0.001, 0.1),
        "c_alpha": (0.2, 5.0),
        "c_tol": (0.03, 3.0),
        "c_step": (0.1, 10.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(positive=("c_step", "sigma", "rate"), optional=("delay",))
        for name in ("sigma", "rate"):
            value = getattr(self, name)
            require(value <= 1.0, name, value, "a number above 0 and up to 1")
        check_words(self, {"carry_over": (True, False)})

    @classmethod
    def for_epsilon(
        cls, cmdp: CMDP | Simulator, epsilon: float, *, c_T: float = 1.0, c_in: float = 0.01, **settings: Any
    ) -> Self:
        """Settings for a target gap and violation ``epsilon``: T = c_T / e^2 and K_in = c_in C / e^(2/sigma).

        e = (1-gamma) epsilon, C the number of choices: eps^-4 samples at sigma = 1, logarithms left out.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> cmdp = fc.envs.garnet(gamma=0.9)
        >>> coarse, fine = (fc.CRPOSoftmax.for_epsilon(cmdp, e) for e in (0.4, 0.2))
        >>> fine.outer / coarse.outer, fine.inner / coarse.inner
        (4.0, 4.0)
        """
        sigma = cls(**settings).sigma
        steps = scheduled(cmdp, epsilon, c_T, c_in, 2.0 / sigma)
        return cls(**(steps | settings))

    def run(self, world: World, seed: int, replicates: int) -> CRPORun:
        """Set up replicates that have not moved yet."""
        delay = self.delay or _DELAY * self.c_step * world.model.n_choices
        return CRPORun(self, world, seed, replicates, Decaying(self.rate, delay, self.sigma))
