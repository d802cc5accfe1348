"""
A network policy
================

A tabular policy has a parameter a choice. A network has as many as it likes, and what it learns in one state it knows
in its neighbours. Here the states of river-swim are the numbers 0 to 29, and the network sees that number.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastcmdp as fc

river = fc.envs.river_swim(n_states=30, gamma=0.97)
place = np.linspace(-1, 1, 30)[:, None]
policies = {
    "one parameter a choice": fc.TabularSoftmax(),
    "a network, 16 units": fc.NeuralSoftmax(np.hstack([place, place**2, np.ones_like(place)]), hidden=(16,)),
}
best = fc.optimum(river)
figure, axes = plt.subplots()
seen = np.bincount(river.choice_state, fc.occupancy(river, best.policy), 30)
axes.fill_between(range(30), seen / seen.max(), color="0.9", label="where the optimum is (scaled)")
axes.plot(best.policy[1::2], color="#D55E00", lw=1, label="optimum")
for (name, policy), colour in zip(policies.items(), ("#56B4E9", "#0072B2"), strict=True):
    result = fc.solve(river, fc.CRPO(outer=600, inner=4000), policy=policy, seed=3, optimum=best)
    late = result.last_quarter
    print(f"{name}: {result.theta.shape[1]} parameters, reward {late.reward[0]:.2f} of {best.reward:.2f}, "
          f"strokes {late.constraints[0, 0]:.2f} (limit {river.limits[0]:.2f})")  # fmt: skip
    axes.plot(result.policy("last_quarter")[1::2], color=colour, label=name)
axes.set(xlabel="state", ylabel="probability of swimming", ylim=(-0.03, 1.03))
axes.legend(loc="center right")
plt.show()
