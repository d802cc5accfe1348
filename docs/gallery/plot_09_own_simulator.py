"""
A simulator of one's own
========================

Where no table of transitions exists, two functions do: what a step does, and where a run starts. They are compiled with
numba and run at the speed of a loop in C. Here a tank is filled by rain and emptied through a gate; its level is a real
number.
"""

import matplotlib.pyplot as plt
import numba
import numpy as np

import fastcmdp as fc
from fastcmdp.kernels import draws


@numba.njit
def step(state, action, rng, costs):
    level = state[0] - 0.35 * action + 0.25 * draws.exponential(rng)
    costs[0] = 1.0 if level > 4.0 else 0.0  # a flood
    state[0] = min(max(level, 0.0), 4.0)
    return state[0] - 0.5 * action  # head for the turbine, less the water let go


@numba.njit
def reset(state, rng):
    state[0] = 4.0 * draws.uniform(rng)


@numba.njit
def features(state, out):  # bumps along the level
    for i in range(6):
        out[i] = np.exp(-1.5 * (state[0] - 0.8 * i) ** 2)
    out[6] = 1.0


tank = fc.Simulator(
    step, reset, n_state=1, n_actions=2, gamma=0.9, limits=[0.5], names=["head", "floods"],
    state_features=features, n_features=7, name="tank",
)  # fmt: skip
result = fc.solve(tank, fc.PDANPG(outer=1500, inner=100), replicates=2, seed=0)
print(result.summary())

# %%
# No exact optimum exists here; ``evaluate`` measures a policy by rollouts, with intervals.

value = tank.evaluate(fc.LogLinear(), result.theta[0], rollouts=20_000)
low, high = value.reward_interval
print(f"head {value.reward:.2f} [{low:.2f}, {high:.2f}], floods {value.constraints[0]:.3f} (limit 0.5)")

levels = np.linspace(0, 4, 200)
shown = np.zeros((levels.size, 7))
for row, level in zip(shown, levels, strict=True):
    features(np.array([level]), row)
figure, axes = plt.subplots()
for theta in result.theta:
    logits = shown @ theta.reshape(2, 7).T
    axes.plot(levels, 1 / (1 + np.exp(logits[:, 0] - logits[:, 1])))
axes.set(xlabel="level of the tank", ylabel="probability of opening the gate", ylim=(0, 1))
axes.set_title("last policy of two replicates")
plt.show()
