"""
A measured exponent
===================

Theory says how many samples a method needs for an error of epsilon: so many as epsilon to some power. A sweep measures
that power. This one is small, so that it takes seconds; one to rely on spans several decades and many models.
"""

import tempfile

import matplotlib.pyplot as plt

import fastcmdp.sweep as sweeps

specification = sweeps.Sweep(
    sweeps.Models(generator="garnet", settings={"n_states": [5, 8], "gamma": 0.8, "n_actions": 2}),
    ["pd-anpg", "npg-pd-softmax", "crpo-softmax"],
    samples=[1e4, 3e4, 1e5, 3e5, 1e6],
    replicates=6,
)
folder = tempfile.mkdtemp()
status = sweeps.run(specification, folder)
found = sweeps.analyse(folder)
for e in found.exponents:
    print(
        f"{e.algorithm}: samples ~ error^-{e.ends:.2f}, 95 % interval {e.ends_low:.2f} to {e.ends_high:.2f}"
    )

# %%
# Errors at the ends of the runs, in the method's own units (rewards in [0, 1]); a model a line.

rows = sweeps.Store(folder).read().to_pandas()
ends = rows[rows["point"] == rows.groupby("task")["point"].transform("max")]
means = ends.groupby(["algorithm", "model", "budget"])["error"].mean()
figure, axes = plt.subplots()
for k, (algorithm, own) in enumerate(means.groupby("algorithm")):
    for _, line in own.groupby("model"):
        axes.plot(line.index.get_level_values("budget"), line.to_numpy(), f"C{k}o-", ms=4, label=algorithm)
axes.set(xscale="log", yscale="log", xlabel="transitions", ylabel="error")
axes.set_yticks([0.02, 0.05, 0.1, 0.2, 0.5], ["0.02", "0.05", "0.1", "0.2", "0.5"])
axes.yaxis.set_minor_formatter("")
axes.legend(*(part[::2] for part in axes.get_legend_handles_labels()))  # two models a method
plt.show()
