"""A simulator of one's own, from njit functions to a policy that meets its limit (about half a minute).

    python examples/own_simulator.py

A clinic: patients arrive and wait; each quarter of an hour it may call in a second doctor, at a price. It wants short
waits within a budget of second-doctor time. The state holds the patients who wait and the hour of the day; no table
of transitions exists, for nobody says how many may wait.
"""

from __future__ import annotations

import math

import numba
import numpy as np

import fastcmdp as fc
from fastcmdp.kernels import draws

SLOTS = 40  # of a day of ten hours


@numba.njit
def step(state, action, rng, costs):
    waiting, slot = state[0], state[1]
    costs[0] = action  # the second doctor's time
    for _ in range(1 + action):
        if waiting > 0.0 and draws.uniform(rng) < 0.7:
            waiting -= 1.0
    rush = 0.5 + 0.4 * math.sin(2.0 * math.pi * slot / SLOTS)
    arrivals = draws.geometric(rng, rush / (1.0 + rush))  # of mean rush
    state[0] = waiting + arrivals
    state[1] = (slot + 1.0) % SLOTS
    return -waiting


@numba.njit
def reset(state, rng):
    state[0] = 0.0
    state[1] = math.floor(SLOTS * draws.uniform(rng))


@numba.njit
def features(state, out):
    angle = 2.0 * math.pi * state[1] / SLOTS
    out[0] = 1.0
    out[1] = state[0] / (2.0 + state[0])
    out[2] = state[0] / (10.0 + state[0])
    out[3] = math.sin(angle)
    out[4] = math.cos(angle)


def main() -> None:
    clinic = fc.Simulator(
        step, reset, n_state=2, n_actions=2, gamma=0.95, limits=[6.0], names=["-waiting", "second doctor"],
        state_features=features, n_features=5, reward_range=(-20.0, 0.0), name="clinic",
    )  # fmt: skip
    for policy in (fc.LogLinear(), fc.NeuralSoftmax(hidden=(16,))):
        result = fc.solve(clinic, fc.PDANPG(outer=500, inner=80), policy=policy, replicates=2)
        print(f"\n{policy}\n{result.summary()}")
        value = clinic.evaluate(policy, result.theta[0], rollouts=20_000)
        low, high = value.reward_interval
        print(f"last iterate: -waiting {value.reward:.2f} ({low:.2f} to {high:.2f}), "
              f"second doctor {value.constraints[0]:.2f}")  # fmt: skip
        late = result.last_quarter
        assert np.all(late.violation < 0.2), late.violation
    idle = clinic.evaluate(fc.LogLinear(), [9.0, 0, 0, 0, 0, 0, 0, 0, 0, 0], rollouts=20_000)
    print(f"\nnever a second doctor: -waiting {idle.reward:.2f}")
    assert (late.reward > idle.reward).all()


if __name__ == "__main__":
    main()
