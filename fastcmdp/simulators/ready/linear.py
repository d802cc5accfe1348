"""A linear system with quadratic costs, bounded actions and a region it should not leave."""

from __future__ import annotations

from numba import njit

from fastcmdp.kernels import draws
from fastcmdp.simulators.checks import check_count, check_number
from fastcmdp.simulators.simulator import Simulator


def linear_quadratic(
    levels: int = 5,
    time_step: float = 0.2,
    force: float = 2.0,
    noise: float = 0.05,
    effort: float = 0.1,
    safe: float = 1.0,
    unsafe: float | None = None,
    gamma: float = 0.95,
) -> Simulator:
    """A cart on a line that is pushed to the middle, and should not be further than ``safe`` from it.

    State (x, v), from x uniform in [-1.5, 1.5] with v = 0. Action a is a force u from -1 to 1 in ``levels`` equal
    steps. With tau the time step, x' = x + tau v + noise Z_1, v' = 0.95 v + tau force u + noise Z_2, Z standard
    normal. Reward -(x^2 + v^2 / 4 + effort u^2). Cost: 1 where |x| > safe; their discounted number is limited.
    Features: u, u x, u v, u x |x|, u^2, u^2 |x|, and, for critics, 1, x^2, v^2, x v; x and v capped at 3.

    Parameters
    ----------
    levels : int
        Odd or even, 2 to 101.
    time_step, force, noise, effort, safe, gamma : float
    unsafe : float, optional
        Limit on the discounted time outside; default: 0.1 of all time.

    Raises
    ------
    ModelError
        A parameter out of range.

    Examples
    --------
    >>> linear_quadratic().by_choice
    True
    """
    levels = check_count(levels, "levels", 2, 101)
    tau, force = check_number(time_step, "time_step", 1e-6, 1e3), check_number(force, "force", 0, 1e6)
    noise, effort = check_number(noise, "noise", 0, 1e3), check_number(effort, "effort", 0, 1e6)
    safe = check_number(safe, "safe", 0, 1e6)

    @njit
    def step(state, action, rng, costs):  # type: ignore[no-untyped-def]
        x, v = state[0], state[1]
        u = 2.0 * action / (levels - 1) - 1.0
        costs[0] = 1.0 if abs(x) > safe else 0.0
        state[0] = x + tau * v + noise * draws.normal(rng)
        state[1] = 0.95 * v + tau * force * u + noise * draws.normal(rng)
        return -(x * x + 0.25 * v * v + effort * u * u)

    @njit
    def reset(state, rng):  # type: ignore[no-untyped-def]
        state[0] = 3.0 * draws.uniform(rng) - 1.5
        state[1] = 0.0

    @njit
    def features(state, action, out):  # type: ignore[no-untyped-def]
        u = 2.0 * action / (levels - 1) - 1.0
        x = min(max(state[0], -3.0), 3.0)
        v = min(max(state[1], -3.0), 3.0)
        out[0] = u
        out[1] = u * x
        out[2] = u * v
        out[3] = u * x * abs(x)
        out[4] = u * u
        out[5] = u * u * abs(x)
        # Of the state alone: no policy notices them, but critics of CRPO need them.
        out[6] = 1.0
        out[7] = x * x
        out[8] = v * v
        out[9] = x * v

    return Simulator(
        step,
        reset,
        n_state=2,
        n_actions=levels,
        gamma=gamma,
        limits=[0.1 / (1.0 - gamma) if unsafe is None else unsafe],
        names=["-cost", "outside"],
        choice_features=features,
        n_features=10,
        reward_range=(-5.0, 0.0),
        cost_ranges=(0.0, 1.0),
        name="linear-quadratic",
    )
