"""Advertising within a budget: the second example of the paper's introduction."""

from __future__ import annotations

import math

from numba import njit

from fastcmdp.kernels import draws
from fastcmdp.simulators.checks import check_count, check_number
from fastcmdp.simulators.simulator import Simulator


def marketing(
    levels: int = 4,
    effect: float = 0.25,
    decay: float = 0.9,
    noise: float = 0.02,
    season: int = 12,
    budget: float | None = None,
    gamma: float = 0.95,
) -> Simulator:
    """A firm buys goodwill with advertising, of which more brings less, and sells more in season.

    State (goodwill in [0, 1], month of the season), from goodwill 0.2 in a random month. Action a spends a / (levels -
    1). Then goodwill' = decay goodwill + effect sqrt(spent) (1 - goodwill) + noise Z, kept in [0, 1], Z standard normal
    (the response of Vidale and Wolfe, 1957, with the square root's diminishing returns). Reward: sales, goodwill times
    1 + 0.5 sin of the season's angle, over 1.5. Cost: what is spent, with a budget on its discounted sum.
    Features: 1, goodwill, its square, sine and cosine of the season's angle.

    Parameters
    ----------
    levels, season : int
        2 to 100; 1 to 1,000 months.
    effect, decay, noise, gamma : float
    budget : float, optional
        Default: three tenths of spending everything.

    Raises
    ------
    ModelError
        A parameter out of range.

    Examples
    --------
    >>> marketing().n_features
    5
    """
    levels, season = check_count(levels, "levels", 2, 100), check_count(season, "season", 1, 1000)
    effect, decay = check_number(effect, "effect", 0, 1), check_number(decay, "decay", 0, 1)
    noise = check_number(noise, "noise", 0, 1)
    turn = 2.0 * math.pi / season

    @njit
    def step(state, action, rng, costs):  # type: ignore[no-untyped-def]
        goodwill = state[0]
        spent = action / (levels - 1)
        reward = goodwill * (1.0 + 0.5 * math.sin(turn * state[1])) / 1.5
        grown = decay * goodwill + effect * math.sqrt(spent) * (1.0 - goodwill) + noise * draws.normal(rng)
        state[0] = min(max(grown, 0.0), 1.0)
        state[1] = (state[1] + 1.0) % season
        costs[0] = spent
        return reward

    @njit
    def reset(state, rng):  # type: ignore[no-untyped-def]
        state[0] = 0.2
        state[1] = math.floor(season * draws.uniform(rng))

    @njit
    def features(state, out):  # type: ignore[no-untyped-def]
        out[0] = 1.0
        out[1] = state[0]
        out[2] = state[0] * state[0]
        out[3] = math.sin(turn * state[1])
        out[4] = math.cos(turn * state[1])

    return Simulator(
        step,
        reset,
        n_state=2,
        n_actions=levels,
        gamma=gamma,
        limits=[0.3 / (1.0 - gamma) if budget is None else budget],
        names=["sales", "spent"],
        state_features=features,
        n_features=5,
        reward_range=(0.0, 1.0),
        cost_ranges=(0.0, 1.0),
        name="marketing",
    )
