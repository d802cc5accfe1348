"""
Sensor scheduling, from a model in Storm's format
=================================================

A sensor reports over a channel that is good or bad. What matters is the age of the last report; sending takes energy,
more over a bad channel. The model is written and read as Storm's DRN, as it would come from
``storm --prism sensor.prism --buildfull --exportbuild sensor.drn``.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fastcmdp as fc

OLDEST, GAMMA = 15, 0.95
ages, channels = np.meshgrid(np.arange(1, OLDEST + 1), [0, 1], indexing="ij")
n = ages.size
to_channel = np.array([[0.8, 0.2], [0.3, 0.7]])  # good, bad
transition, age, energy = np.zeros((n, 2, n)), np.zeros((n, 2)), np.zeros((n, 2))
for s, (a, c) in enumerate(zip(ages.ravel(), channels.ravel(), strict=True)):
    age[s] = a
    energy[s, 1] = (1.0, 2.5)[c]
    arrives = (0.95, 0.6)[c]
    for send, p in ((0, 0.0), (1, arrives)):
        for new, q in ((1, p), (min(a + 1, OLDEST), 1 - p)):
            transition[s, send, 2 * (new - 1) : 2 * new] += q * to_channel[c]
sensor = fc.CMDP.from_arrays(
    transition, age, energy, gamma=GAMMA, limits=0.0, start=0, names=["age", "energy"],
    variables={"age": ages.ravel(), "channel": channels.ravel()},
)  # fmt: skip

folder = Path(tempfile.mkdtemp())
fc.save(sensor, folder / "sensor.drn")
print("\n".join((folder / "sensor.drn").read_text().splitlines()[:14]))

# %%
# A file says which rewards there are. What is maximised and what is limited is said when it is read: here the age is
# minimised, and the energy limited.

model = fc.load(folder / "sensor.drn", reward="-age", constraints=["energy <= 6"], gamma=GAMMA)
result = fc.solve(model, samples=5e6, replicates=4, seed=0)
print(result.summary())

# %%
# When to send: with a good channel earlier than with a bad one.

send = np.bincount(model.choice_state, result.policy("last_quarter") * model.action_of_choice, n)
best = np.bincount(model.choice_state, result.optimum.policy * model.action_of_choice, n)
seen = np.bincount(model.choice_state, fc.occupancy(model, result.policy("last_quarter")), n) > 2e-3
figure, axes = plt.subplots()
for c, name in enumerate(("good channel", "bad channel")):
    rows = (model.variables["channel"] == c) & seen
    axes.plot(model.variables["age"][rows], send[rows], "o", color=f"C{c}", label=f"{name}, learned")
    axes.plot(model.variables["age"][rows], best[rows], color=f"C{c}", lw=1, label=f"{name}, optimum")
axes.set(xlabel="age of the last report", ylabel="probability of sending")
axes.legend()
plt.show()
