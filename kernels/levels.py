"""Levels of noise measured along a run, from which learning rates are taken."""

from __future__ import annotations

import math

from fastcmdp.kernels.jit import kernel

MEMORY = 0.95  # of the recent levels: about the last twenty outer steps
LONGEST = 9.0  # no step has a squared norm above this many times the level


@kernel
def update_level(state, r, i, value, n_pilot):
    """Fold a measurement into level i of replicate r and return the level: the larger of recent and average.

    The recent one notices at once when noise grows (a policy that has just found a reward), the average keeps
    a quiet stretch from making the steps long again.
    """
    n = n_pilot + state.outer[r] + 1
    state.average[r, i] += (value - state.average[r, i]) / n
    weight = max(1.0 - MEMORY, 1.0 / n)
    state.recent[r, i] += (value - state.recent[r, i]) * weight
    return max(state.recent[r, i], state.average[r, i])


@kernel
def dual_rate(deviation, variance, root):
    """sigma_r / (sigma_i^2 sqrt(K)): deviation of the reward, variance of the constraint, root of the outer steps.

    Without spread of the reward (a constant one, or none seen yet) multipliers have scale 1.
    """
    if not variance > 0.0:
        return 0.0
    scale = deviation if deviation > 0.0 else math.sqrt(variance)
    return scale / (variance * root)
