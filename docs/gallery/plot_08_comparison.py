"""
A comparison with bands
=======================

Four methods at three budgets of samples on one model, all on the same tables and with the same seeds.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastcmdp as fc

model = fc.envs.garnet(n_states=10, n_actions=3, gamma=0.9, seed=2)
found = fc.compare(
    model, ["pd-anpg", "pd-anpg-cv", "npg-pd-softmax", "pmd-pd"], samples=[1e4, 1e5, 1e6], replicates=8
)
print(found.table())

# %%
# Relative gap and violation, with 95 % bands over replicates.

picture = found.plot(title="garnet, 10 states")

# %%
# One mean hides a run that failed. The performance profile shows all runs: the share with an error of at most each
# threshold. The farther to the left, the better.

thresholds = np.geomspace(1e-4, 1, 60)
figure, axes = plt.subplots()
for label, share in found.profiles(thresholds, budget=1e6).items():
    (line,) = axes.plot(thresholds, share.mean, label=label, drawstyle="steps-post")
    axes.fill_between(
        thresholds, share.low, share.high, color=line.get_color(), alpha=0.15, lw=0, step="post"
    )
axes.set(xscale="log", xlabel="error, of the attainable range", ylabel="share of runs", ylim=(-0.02, 1.02))
axes.set_title("a million transitions")
axes.legend()
plt.show()

# %%
# For a paper:

print(found.to_latex(caption="Error in per cent of the attainable range.", label="tab:errors"))
