"""The hard instance of the lower bound for strict feasibility, and its optimum in closed form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.check import check_memory, real, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError

_ROW_BYTES = 500  # of memory for a state's action, while the model is built


class HardOptimum(NamedTuple):
    """Closed-form answers for a hard instance.

    Attributes
    ----------
    reward : float
        J_r*.
    dual : float
        The multiplier of utility >= 0.
    slater : float
        The largest attainable J_c.
    risk : float
        Probability with which the optimal policy goes to a gadget rather than to the safe state.
    """

    reward: float
    dual: float
    slater: float
    risk: float


def hard_instance(
    n_gadgets: int = 4,
    n_actions: int = 3,
    gamma: float = 0.9,
    slater: float = 1.0,
    debt: float | None = None,
    depth: int = 1,
    better: tuple[int, int] | None = None,
    gain: float | None = None,
) -> CMDP:
    """A family of models that differ in one probability, which decides what strict feasibility may earn.

    From a fixed start o one of n_gadgets + 1 paths of ``depth`` steps leads to the safe state s_0 or to a gadget s_i.
    s_0 stays for good with reward 0 and utility (1-gamma) slater gamma^-depth. In s_i action a earns reward 1 and
    utility a_c, stays with probability p_ia, else falls to the absorbing z with reward 1 and utility -1. All p_ia are
    (4 gamma - 1)/(3 gamma), at which a gadget is worth J_c = -debt; with ``better = (i, a)`` that probability is
    raised so that the action is worth gain - debt. Utility >= 0 is asked for. Telling the members apart takes of the
    order of 1/((1-gamma)^3 gain^2) draws of each of the n_gadgets n_actions pairs.

    Parameters
    ----------
    n_gadgets, n_actions : int
        Both at least 1.
    gamma : float
        Discount factor in (1/4, 1).
    slater : float
        The Slater value, in (0, gamma^depth/(1-gamma)].
    debt : float or None
        x in (0, gamma^depth/(4 (1-gamma))]. None: the smaller of slater and that bound.
    depth : int
        Steps from o to a gadget, at least 1.
    better : (int, int) or None
        Gadget 1..n_gadgets and action 0..n_actions-1 of the raised probability; None: the member M_0.
    gain : float or None
        q in (0, debt): a gadget still owes something. None: debt/2.

    Raises
    ------
    SettingError
        A setting out of range.

    References
    ----------
    A reconstruction with the mechanism of S. Vaswani, L. Yang, C. Szepesvari, Near-optimal sample complexity bounds for
    constrained MDPs (2022), whose own table of rewards was not available; optimum, multiplier and Slater value are
    derived here (`hard_optimum`) and checked against the linear programme in the tests.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> cmdp = fc.envs.hard_instance()
    >>> best, exact = fc.optimum(cmdp), fc.envs.hard_optimum()
    >>> bool(abs(best.reward - exact.reward) < 1e-9)
    True
    """
    settings = _checked(n_gadgets, n_actions, gamma, slater, debt, depth, better, gain)
    size = float(_ROW_BYTES) * settings.n_gadgets * (settings.n_actions + settings.depth)
    check_memory(size, n_gadgets=settings.n_gadgets, n_actions=settings.n_actions, depth=settings.depth)
    unit, scale = 1.0 - settings.gamma, settings.gamma**settings.depth
    utility = (1.0 - 4.0 * settings.debt * unit / scale) / 3.0
    n, length = settings.n_gadgets, settings.depth
    # States: o; then for each path i = 0..n its length - 1 steps and its end s_i; last z.
    z = 1 + (n + 1) * length
    first: list[int] = [0]
    branches: list[list[tuple[int, float]]] = []
    reward: list[float] = []
    gain_of: list[float] = []

    def state(choices: list[tuple[list[tuple[int, float]], float, float]]) -> None:
        for row, r, c in choices:
            branches.append(row)
            reward.append(r)
            gain_of.append(c)
        first.append(len(branches))

    state([([(1 + i * length, 1.0)], 0.0, 0.0) for i in range(n + 1)])
    for i in range(n + 1):
        for j in range(length - 1):
            state([([(2 + i * length + j, 1.0)], 0.0, 0.0)])
        end = (i + 1) * length
        if i == 0:
            state([([(end, 1.0)], 0.0, unit * settings.slater / scale)])
            continue
        rows = []
        for a in range(settings.n_actions):
            p = settings.raised if settings.better == (i, a) else settings.stay
            rows.append(([(end, p), (z, 1.0 - p)], 1.0, utility))
        state(rows)
    state([([(z, 1.0)], 1.0, -1.0)])
    return CMDP(
        first,
        np.concatenate([[0], np.cumsum([len(row) for row in branches])]),
        [target for row in branches for target, _ in row],
        [p for row in branches for _, p in row],
        reward,
        [np.array(gain_of)],
        gamma=settings.gamma,
        start=np.eye(z + 1)[0],
        limits=[0.0],
        sense=">=",
        names=["reward", "utility"],
    )


def hard_optimum(
    n_gadgets: int = 4,
    n_actions: int = 3,
    gamma: float = 0.9,
    slater: float = 1.0,
    debt: float | None = None,
    depth: int = 1,
    better: tuple[int, int] | None = None,
    gain: float | None = None,
) -> HardOptimum:
    """Optimum, multiplier and Slater value of ``hard_instance`` with the same parameters, in closed form.

    With x the debt, less the gain where there is a better action, and a weight w on the best gadget, J_c = (1-w)
    slater - w x = 0 gives w = slater/(slater + x), J_r* = w gamma^depth/(1-gamma) and the multiplier
    gamma^depth/((1-gamma) (slater + x)).

    Raises
    ------
    SettingError
        As ``hard_instance``.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> fc.envs.hard_optimum(gamma=0.5, slater=0.5, debt=0.25).reward
    0.6666666666666666
    """
    settings = _checked(n_gadgets, n_actions, gamma, slater, debt, depth, better, gain)
    x = settings.debt - settings.gain
    most = settings.gamma**settings.depth / (1.0 - settings.gamma)
    risk = settings.slater / (settings.slater + x)
    return HardOptimum(most * risk, most / (settings.slater + x), settings.slater, risk)


class _Checked(NamedTuple):
    n_gadgets: int
    n_actions: int
    gamma: float
    slater: float
    debt: float
    depth: int
    better: tuple[int, int] | None
    gain: float
    stay: float
    raised: float


def _checked(
    n_gadgets: int,
    n_actions: int,
    gamma: float,
    slater: float,
    debt: float | None,
    depth: int,
    better: tuple[int, int] | None,
    gain: float | None,
) -> _Checked:
    n, a, depth = (
        whole("n_gadgets", n_gadgets, 1),
        whole("n_actions", n_actions, 1),
        whole("depth", depth, 1),
    )
    gamma = real("gamma", gamma, 0.25, 1.0, inside=True)
    unit, scale = 1.0 - gamma, gamma**depth
    slater = real("slater", slater, 0.0, scale / unit)
    if slater == 0.0:
        raise SettingError("slater must be above 0, got 0: without room nothing can be strictly feasible")
    most = scale / (4.0 * unit)
    x = min(slater, most) if debt is None else real("debt", debt, 0.0, most)
    if x == 0.0:
        raise SettingError("debt must be above 0, got 0: else gadgets are free")
    stay = (4.0 * gamma - 1.0) / (3.0 * gamma)
    if better is None:
        if gain is not None:
            raise SettingError(f"gain = {gain!r} needs better = (gadget, action): the member it belongs to")
        return _Checked(n, a, gamma, slater, x, depth, None, 0.0, stay, stay)
    try:
        i, j = better
    except (TypeError, ValueError):
        raise SettingError(f"better must be a pair (gadget, action), got {better!r}") from None
    pair = (whole("better[0]", i, 1, n), whole("better[1]", j, 0, a - 1))
    q = 0.5 * x if gain is None else real("gain", gain, 0.0, x, inside=True)
    # (a_c + 1)/(1 - gamma p) - 1/(1-gamma) = (q - x) gamma^-depth, solved for p.
    utility = (1.0 - 4.0 * x * unit / scale) / 3.0
    raised = (1.0 - (utility + 1.0) / ((q - x) / scale + 1.0 / unit)) / gamma
    return _Checked(n, a, gamma, slater, x, depth, pair, q, stay, raised)
