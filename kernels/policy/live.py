"""Policies on simulators: logits and their gradients from the features of one state, where they are needed."""

from __future__ import annotations

from typing import NamedTuple

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.policy.network import Shape, backward, forward
from fastcmdp.kernels.vectors import add_at, dot_at

# Fewer features than these are summed one by one: a vector load of numbers that were just written singly waits for all
# of them (1.25 instead of 1.5 times the loop by hand with ten features of a choice).
FEW = 16


class Linear(NamedTuple):
    """Logits linear in the features: a block of theta an output (features of states), or one block for all."""

    n_outputs: int


class LiveNetwork(NamedTuple):
    """Logits from a network run on the features of a state, or of each of its actions."""

    shape: Shape


@generic("policy", inline=True)
def live_logits(policy, theta, x, n_inputs, n_rows, hidden, out):
    """Logits of all actions from the n_rows rows of inputs in x."""


@live_logits.on(Linear)
def linear_logits(policy, theta, x, n_inputs, n_rows, hidden, out):
    for row in range(n_rows):
        for o in range(policy.n_outputs):
            first, at = o * n_inputs, row * n_inputs
            if n_inputs < FEW:
                z = 0.0
                for j in range(n_inputs):
                    z += theta[first + j] * x[at + j]
            else:
                z = dot_at(theta, first, x, at, n_inputs)
            out[row * policy.n_outputs + o] = z


@live_logits.on(LiveNetwork)
def live_network_logits(policy, theta, x, n_inputs, n_rows, hidden, out):
    for row in range(n_rows):
        forward(x, row * n_inputs, theta, policy.shape, hidden, out, row * policy.shape.n_outputs)


@generic("policy")
def live_score(policy, theta, x, n_inputs, n_rows, hidden, back, logit, weight, score):
    """score = gradient of the sum of weight times logit, over all actions."""


@live_score.on(Linear)
def linear_score(policy, theta, x, n_inputs, n_rows, hidden, back, logit, weight, score):
    score[:] = 0.0
    for row in range(n_rows):
        for o in range(policy.n_outputs):
            w = weight[row * policy.n_outputs + o]
            add_at(score, o * n_inputs, w, x, row * n_inputs, n_inputs)


@live_score.on(LiveNetwork)
def live_network_score(policy, theta, x, n_inputs, n_rows, hidden, back, logit, weight, score):
    shape = policy.shape
    score[:] = 0.0
    for row in range(n_rows):
        first, at = row * n_inputs, row * shape.n_outputs
        forward(x, first, theta, shape, hidden, logit, at)
        backward(x, first, theta, shape, hidden, back, weight, at, score)
