"""
A grid with risk zones
======================

The short way to the goal leads through hazards, the safe way around them. How a walker goes depends on how many steps
in hazards it may take: three limits, three sets of ways.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastcmdp as fc

layout = [
    "..........",
    "..####....",
    "..#..#....",
    ".....HHH..",
    ".S...HHHG.",
    ".....HHH..",
    "..........",
    "..........",
]
grid = fc.envs.grid_world(layout=layout, slip=0.1, gamma=0.97, start="cell", limit=1.0)
trade = fc.frontier(grid)
print(f"steps in hazards from {trade.limits.min():.3f} to {trade.limits.max():.3f} (discounted)")

# %%
# For each limit the exact optimum and a policy learned from three million transitions. The occupancy of a cell is the
# discounted share of time spent there.

figure, panels = plt.subplots(1, 3, figsize=(9.0, 3.4))
free = [(i, j) for i, row in enumerate(layout) for j, cell in enumerate(row) if cell != "#"]
for axes, limit in zip(panels, (0.02, 0.5, 5.0), strict=True):
    model = grid.with_limits([limit])
    best = fc.optimum(model)
    result = fc.solve(model, samples=3e6, seed=1, optimum=best)
    nu = fc.occupancy(model, result.policy("last_quarter"))
    picture = np.full((8, 10), np.nan)
    picture[tuple(np.transpose(free))] = np.bincount(model.choice_state, nu, model.n_states)
    axes.imshow(np.sqrt(picture), cmap="Blues")
    for (i, j), cell in np.ndenumerate(np.array([list(row) for row in layout])):
        if cell == "H":
            axes.add_patch(
                plt.Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="#D55E00", hatch="//", lw=0)
            )
        if cell in "SG":
            axes.text(j, i, {"S": "start", "G": "goal"}[cell], ha="center", va="center", fontsize=7,
                      color="white" if cell == "S" else "black")  # fmt: skip
    axes.set(xticks=[], yticks=[])
    learned = result.last_quarter
    axes.set_title(
        f"hazards ≤ {limit:g}\ngoal: learned {learned.reward[0]:.2f}, optimum {best.reward:.2f}", fontsize=9
    )
plt.show()
