"""
The trade-off between reward and constraint
===========================================

How much reward does a limit cost? The frontier says so for every limit at once. It is concave and piecewise linear; its
corners are deterministic policies, its slope is the multiplier.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastcmdp as fc
from fastcmdp.plots import plot_frontier

store = fc.envs.inventory()
trade = fc.frontier(store)
picture = plot_frontier(trade, title="a store: profit against unmet demand")

# %%
# Policies that were learned at six limits lie on it, or below it, or within their error.

limits = np.linspace(0.05, 0.6, 6) * np.ptp(trade.limits) + trade.limits.min()
figure, axes = plt.subplots()
axes.plot(trade.limits, trade.rewards, color="#D55E00", label="frontier, exact")
for limit in limits:
    model = store.with_limits([limit])
    late = fc.solve(model, samples=5e6, replicates=2, seed=0).last_quarter
    axes.plot(late.constraints[:, 0], late.reward, "o", color="#0072B2", ms=5)
    axes.plot([limit, limit], [trade.rewards.min(), trade.reward(limit)], color="0.8", lw=0.8, zorder=0)
axes.plot([], [], "o", color="#0072B2", ms=5, label="learned, at the limits marked")
axes.set(xlabel="unmet demand, discounted", ylabel="profit")
axes.legend(loc="lower right")
plt.show()
