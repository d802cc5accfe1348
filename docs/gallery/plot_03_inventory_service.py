"""
Inventory with a service level
==============================

A shop orders each morning. It wants the largest profit, but no less than a given share of the demand must be met from
the shelf. A share of sums is a limit on a sum: with demand :math:`D` and sales :math:`X`,

.. math::

   \\frac{E\\sum_t \\gamma^t X_t}{E\\sum_t \\gamma^t D_t} \\ge \\beta
   \\iff E\\sum_t \\gamma^t X_t \\ge \\frac{\\beta\\, E[D]}{1-\\gamma}.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

import fastcmdp as fc

CAPACITY, MEAN, GAMMA = 12, 3.0, 0.95
demand = np.array([math.exp(-MEAN) * MEAN**d / math.factorial(d) for d in range(30)])
demand[-1] += 1 - demand.sum()

n = CAPACITY + 1
transition, profit, sold = np.zeros((n, n, n)), np.zeros((n, n)), np.zeros((n, n))
for stock in range(n):
    for order in range(n - stock):
        for d, p in enumerate(demand):
            sales = min(d, stock + order)
            left = stock + order - sales
            transition[stock, order, left] += p
            sold[stock, order] += p * sales
            profit[stock, order] += p * (5 * sales - 0.9 * left) - p * (2 * (order > 0) + 3.2 * order)
available = np.add.outer(np.arange(n), np.arange(n)) <= CAPACITY  # what fits on the shelf
shop = fc.CMDP.from_arrays(
    transition, profit, sold, gamma=GAMMA, limits=0.0, sense=">=", available=available, start=0,
    names=["profit", "units sold"],
)  # fmt: skip

# %%
# How much is ordered at each stock, for three service levels. The multiplier is the price of a unit sold more.

levels = (0.5, 0.85, 0.95)
figure, axes = plt.subplots()
for level, marker in zip(levels, "os^", strict=True):
    model = shop.with_limits([level * MEAN / (1 - GAMMA)])
    best = fc.optimum(model)
    result = fc.solve(model, samples=4e6, replicates=2, seed=0, optimum=best)
    policy = result.policy("last_quarter")
    order = np.bincount(model.choice_state, policy * model.action_of_choice, n)
    exact = np.bincount(model.choice_state, best.policy * model.action_of_choice, n)
    seen = np.bincount(model.choice_state, fc.occupancy(model, best.policy), n) > 1e-3
    (line,) = axes.plot(
        np.arange(n)[seen], order[seen], marker=marker, lw=0, label=f"service {level:.0%}, learned"
    )
    axes.plot(np.arange(n)[seen], exact[seen], color=line.get_color(), lw=1, alpha=0.7)
    share = result.last_quarter.constraints[:, 0].mean() * (1 - GAMMA) / MEAN
    print(f"asked {level:.0%}: learned {share:.1%}, profit {result.last_quarter.reward.mean():.1f} "
          f"(optimum {best.reward:.1f}), price of a unit {best.duals[0]:.2f}")  # fmt: skip
axes.set(xlabel="stock in the morning", ylabel="units ordered, on average")
axes.set_title("lines: optimum; states that are visited")
axes.legend()
plt.show()
