"""Levels of noise measured along a run, from which learning rates are taken.

A rate multiplies what the batch at hand says, so it comes from earlier batches alone: a rate that knew its own batch
would be small where the batch says much, and steps that are rare and long would count less than they should. What
bounds a step is known before it as well, but for one thing: a step longer than all before it is cut to the longest of
them, so that a policy that has just found a reward does not jump. The cuts of a run add up to less than the longest
step: each raises the bound to the length that it cut.
"""

from __future__ import annotations

from fastcmdp.kernels.jit import kernel

MEMORY = 0.95  # of the recent levels: about the last twenty outer steps


@kernel
def level_of(state, r, i):
    """Level i of replicate r over the batches folded in so far: the larger of recent and average.

    The recent one notices at once when noise grows, the average keeps a quiet stretch from making the steps long
    again. 0: no batch yet, or none with any noise.
    """
    return max(state.recent[r, i], state.average[r, i])


@kernel
def update_level(state, r, i, value, n_pilot):
    """Fold a measurement into level i of replicate r, after its last use in this outer step."""
    n = n_pilot + state.outer[r] + 1
    state.average[r, i] += (value - state.average[r, i]) / n
    weight = max(1.0 - MEMORY, 1.0 / n)
    state.recent[r, i] += (value - state.recent[r, i]) * weight


@kernel
def spread_over_actions(state_to_choice, prob, x, evenly):
    """Mean over states of the variance of x over the actions of a state, evenly weighted or by ``prob``.

    The evenly weighted one does not vanish as policies become certain.
    """
    total = 0.0
    n_states = state_to_choice.shape[0] - 1
    for s in range(n_states):
        first, last = state_to_choice[s], state_to_choice[s + 1]
        mean = 0.0
        square = 0.0
        for q in range(first, last):
            w = 1.0 / (last - first) if evenly else prob[q]
            mean += w * x[q]
        for q in range(first, last):
            w = 1.0 / (last - first) if evenly else prob[q]
            square += w * (x[q] - mean) ** 2
        total += square
    return total / n_states


@kernel
def cut(state, r, i, length):
    """Factor that cuts a step of this length to the longest of kind i before it; the length counts from now on."""
    before = state.longest[r, i]
    if length > before:
        state.longest[r, i] = length
        return before / length
    return 1.0


@kernel
def dual_rate(reward, constraint, root):
    """sigma_r / (sigma_i^2 sqrt(K)), from the levels of the two variances and the root of the outer steps.

    Without spread of the reward (a constant one, or none seen yet) multipliers have scale 1.
    """
    if not constraint > 0.0:
        return 0.0
    return (reward if reward > 0.0 else constraint) ** 0.5 / (constraint * root)
