"""
Limits that no policy meets
===========================

A model with limits that contradict each other is not solved; it is explained. The error says which limits conflict, how
far each would have to move, and carries a proof.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastcmdp as fc

rng = np.random.default_rng(5)
transition = rng.dirichlet(np.full(6, 0.5), size=(6, 3))
reward, noise, heat = rng.random((3, 6, 3))
heat = 0.2 + 0.8 * (1 - noise) * heat.max() + 0.1 * heat  # quiet choices run hot
plant = fc.CMDP.from_arrays(
    transition, reward, [noise, heat], gamma=0.9, limits=[3.5, 5.5], names=["output", "noise", "heat"]
)
try:
    fc.optimum(plant)
except fc.InfeasibleError as error:
    why = error
print(why)
print("limits that conflict:", [plant.names[1 + i] for i in why.conflict])
print("loosen one alone, by:", np.round(why.alone, 3), " or all together, by:", np.round(why.together, 3))
terms = " + ".join(f"{w:.3f} slack({name})" for w, name in zip(why.weights, plant.names[1:], strict=True))
print(f"proof: no policy has {terms} above {why.value:.3f} (kernel units)")

# %%
# What policies attain is convex: here from supporting policies in 90 directions. The box of the limits does not touch
# it.

points = []
for angle in np.linspace(0, 2 * np.pi, 90, endpoint=False):
    direction = np.cos(angle) * noise + np.sin(angle) * heat
    best = fc.optimum(fc.CMDP.from_arrays(transition, -direction, gamma=0.9))
    points.append(
        [
            fc.evaluate(fc.CMDP.from_arrays(transition, signal, gamma=0.9), best.policy).reward
            for signal in (noise, heat)
        ]
    )
points = np.array(points)
figure, axes = plt.subplots(figsize=(5.6, 4.0))
axes.fill(*points.T, color="#0072B2", alpha=0.2, label="what policies attain")
axes.plot(*np.vstack([points, points[:1]]).T, color="#0072B2", lw=1)
axes.fill_between([0, 3.5], 0, 5.5, color="#009E73", alpha=0.2, lw=0, label="both limits met")
values = [
    fc.evaluate(fc.CMDP.from_arrays(transition, signal, gamma=0.9), why.policy).reward
    for signal in (noise, heat)
]
axes.plot(*values, "o", color="#D55E00", label="misses them least")
low, high = points.min(axis=0), points.max(axis=0)
axes.set(
    xlabel="noise",
    ylabel="heat",
    xlim=(min(low[0], 3.5) - 1, high[0] + 0.5),
    ylim=(min(low[1], 5.5) - 1, high[1] + 0.5),
)
axes.legend(loc="upper right")
plt.show()
