"""
A queue with a power budget
===========================

A server works at one of four speeds; power grows with the cube of speed. Short queues are wanted, within a budget of
power. The multiplier of the budget says how much queue one more unit of power would save.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastcmdp as fc

ROOM, GAMMA, ARRIVAL = 20, 0.97, 0.45
speeds = np.array([0.0, 0.3, 0.6, 0.9])
n = ROOM + 1
transition = np.zeros((n, 4, n))
for length in range(n):
    for a, speed in enumerate(speeds):
        served = speed if length else 0.0
        for gone, p in ((1, served), (0, 1 - served)):
            for come, q in ((1, ARRIVAL), (0, 1 - ARRIVAL)):
                transition[length, a, min(length - gone + come, ROOM)] += p * q
waiting = -np.repeat(np.arange(n, dtype=float)[:, None], 4, axis=1)
power = np.tile(speeds**3, (n, 1))

queue = fc.CMDP.from_arrays(
    transition, waiting, power, gamma=GAMMA, limits=4.0, start=0, names=["minus waiting", "power"]
)

# %%
# Three budgets. Each curve is the mean speed at a length of the queue.

figure, (axes, prices) = plt.subplots(1, 2, figsize=(7.6, 3.4), width_ratios=(1.4, 1))
for budget in (3.5, 5.0, 8.0):
    model = queue.with_limits([budget])
    result = fc.solve(model, samples=5e6, replicates=2, seed=0)
    mean_speed = np.bincount(
        model.choice_state, result.policy("last_quarter") * speeds[model.action_of_choice], n
    )
    seen = np.bincount(model.choice_state, fc.occupancy(model, result.policy("last_quarter")), n) > 1e-3
    axes.plot(np.arange(n)[seen], mean_speed[seen], marker="o", ms=3, label=f"budget {budget:g}")
    print(f"budget {budget:g}: waiting {-result.last_quarter.reward.mean():.1f} (least {-result.optimum.reward:.1f}), "
          f"power {result.last_quarter.constraints.mean():.2f}")  # fmt: skip
axes.set(xlabel="customers", ylabel="mean speed", title="learned policies")
axes.legend()

trade = fc.frontier(queue)
inner = (trade.limits > 3.0) & (trade.limits < 9.0)
prices.plot(trade.limits[inner], np.asarray(trade.duals)[inner].mean(axis=1), color="#D55E00")
prices.set(xlabel="budget of power", ylabel="waiting saved a unit", title="multiplier, exact", ylim=(0, None))
plt.show()
