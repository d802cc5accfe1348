"""
Maintenance, with actions that depend on the state
==================================================

A machine wears. It can run fast or slowly; once it is worn enough it can be overhauled, which takes it out of service,
and a broken one must be. Downtime and the budget for overhauls are limited: two constraints.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastcmdp as fc

WEAR, GAMMA = 10, 0.96
FAST, SLOW, OVERHAUL = 0, 1, 2
n = WEAR + 1  # the last state: broken
transition = np.zeros((n, 3, n))
output, downtime, spent = np.zeros((3, n, 3))
for wear in range(WEAR):
    for action, step in ((FAST, 0.45), (SLOW, 0.18)):
        breaks = 0.002 * wear**2 * (1.0 if action == FAST else 0.4)
        transition[wear, action, WEAR] += breaks
        transition[wear, action, min(wear + 1, WEAR - 1)] += (1 - breaks) * step
        transition[wear, action, wear] += (1 - breaks) * (1 - step)
        output[wear, action] = (10 if action == FAST else 6) * (1 - 0.05 * wear)
transition[3:, OVERHAUL, 0] = 1.0
downtime[:, OVERHAUL], spent[:, OVERHAUL] = 1.0, 4.0
downtime[WEAR], spent[WEAR] = 3.0, 15.0  # an overhaul after a breakdown takes longer and costs more

available = np.ones((n, 3), bool)
available[:3, OVERHAUL] = False  # nobody overhauls a machine that is as new
available[WEAR] = (False, False, True)  # a broken one can only be overhauled
machine = fc.CMDP.from_arrays(
    transition, output, [downtime, spent], gamma=GAMMA, limits=[1.3, 6.0], available=available, start=0,
    names=["output", "downtime", "budget"],
)  # fmt: skip
print(machine)

# %%
# The summary has the exact multipliers beside the learned ones: what one more unit of each limit would be worth.

result = fc.solve(machine, samples=1e7, replicates=4, seed=0)
print(result.summary())

# %%
# Action probabilities by wear, learned and exact. Randomising in a state or two is what a constrained optimum does.

figure, panels = plt.subplots(1, 2, figsize=(7.6, 3.4), sharey=True)
names, colours = ("fast", "slow", "overhaul"), ("#0072B2", "#56B4E9", "#E69F00")
for axes, title, policy in zip(
    panels, ("learned", "optimum"), (result.policy("last_quarter"), result.optimum.policy), strict=True
):
    table = np.zeros((n, 3))
    table[machine.choice_state, machine.action_of_choice] = policy
    visited = np.bincount(machine.choice_state, fc.occupancy(machine, policy), n)
    bottom = np.zeros(n)
    for a in range(3):
        bars = axes.bar(range(n), table[:, a], bottom=bottom, color=colours[a], label=names[a], width=0.9)
        for bar, share in zip(bars, visited, strict=True):
            bar.set_alpha(1.0 if share > 1e-3 else 0.25)
        bottom += table[:, a]
    axes.set(xlabel="wear (10: broken)", title=title)
panels[0].set_ylabel("probability")
figure.legend(
    *panels[0].get_legend_handles_labels(),
    loc="outside lower center",
    ncols=3,
    title="pale: wear that is hardly ever reached",
)
plt.show()
