"""
FrozenLake, with few falls
==========================

Gymnasium's FrozenLake rewards reaching the goal. Here the discounted number of falls into holes is limited as well, to
halfway between what the best policy does and what cannot be avoided. States are cells; the ice is slippery.
"""

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import fastcmdp as fc

lake = fc.envs.from_gymnasium("FrozenLake-v1")
result = fc.solve(lake, samples=2e6, replicates=4, seed=0)
print(result.summary())

# %%
# The policy that was learned, and how often it is in each cell. Arrows are as long as their probabilities; actions
# with the same effect in a hole or at the goal are one choice, so these cells have no arrows.

policy = result.policy("last_quarter")
visits = np.bincount(lake.choice_state, fc.occupancy(lake, policy), lake.n_states)[:16].reshape(4, 4)
cells = gymnasium.make("FrozenLake-v1").unwrapped.desc.astype(str)
moves = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])  # left, down, right, up as (x, y)

figure, (axes, curve) = plt.subplots(1, 2, figsize=(7.6, 3.6), width_ratios=(1, 1.3))
shown = axes.imshow(visits, cmap="Blues", vmin=0, vmax=1.6 * visits.max())
for q, (s, a) in enumerate(zip(lake.choice_state, lake.action_of_choice, strict=True)):
    y, x = divmod(int(s), 4)
    if s < 16 and cells[y, x] in "SF" and policy[q] > 0.02:
        dx, dy = 0.42 * policy[q] * moves[a]
        axes.arrow(x, y, dx, dy, width=0.02, head_width=0.12, color="#D55E00", length_includes_head=True)
for (y, x), cell in np.ndenumerate(cells):
    if cell in "HG":
        axes.text(x, y, {"H": "hole", "G": "goal"}[cell], ha="center", va="center")
axes.set(xticks=[], yticks=[], title="where the policy is, what it does")

frame = result.to_pandas()
for replicate, run in frame.groupby("replicate"):
    run = run[run["samples"] > 0]
    curve.plot(
        run["samples"],
        run["mixture hole"],
        color="#0072B2",
        alpha=0.6,
        label="learned" if replicate == 0 else None,
    )
curve.axhline(lake.limits[0], color="black", label="limit")
curve.set(
    xscale="log", xlabel="transitions", ylabel="falls, discounted", title="the mixture of the policies so far"
)
curve.legend()
plt.show()
