"""Logits from a small network, with its forward and backward sweep by hand: one or two hidden layers, tanh or ReLU.

From an input x in R^n, hidden widths H1 and H2 (H2 = 0: one layer) and O outputs,

    a1 = act(b1 + sum_j x_j U1[j]),   a2 = act(b2 + sum_i a1_i U2[i]),   z_o = c_o + W[o] . a,    a the last layer.

theta holds U1 (n x H1, a row an input), b1, then U2 (H1 x H2), b2 if there is a second layer, then W (O x H, a row
an output) and c. Rows are laid so that both sweeps run along them, and an input that is 0 costs nothing: with
one-hot inputs a state costs one row of U1. For weights w_o, with f' the slope of the activation,

    grad sum_o w_o z_o:   dc = w,  dW[o] = w_o a,   e = f'(a) sum_o w_o W[o],   and so on downwards.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.policy.scores import table_scores
from fastcmdp.kernels.policy.softmax import write_logits
from fastcmdp.kernels.vectors import add_at, dot_at


class Shape(NamedTuple):
    """Sizes of a network: numbers alone, so that handing it on costs nothing."""

    n_inputs: int
    width1: int
    width2: int  # 0: one hidden layer
    n_outputs: int
    relu: bool


class Network(NamedTuple):
    """Logits from a network, run once on each input row of a state.

    Either a state has one row and the network an output for each position in its list of choices, or a state has a
    row for each choice and the network one output: outputs, row after row, are the logits of the state's choices.
    """

    feature: np.ndarray  # float64[rows * n_inputs]
    state_to_row: np.ndarray  # int64[S+1]
    shape: Shape


@inlined
def _activate(hidden, first, n, relu):
    if relu:
        for i in range(first, first + n):
            hidden[i] = max(hidden[i], 0.0)
    else:
        for i in range(first, first + n):
            hidden[i] = math.tanh(hidden[i])


@inlined
def _slope(hidden, back, first, n, relu):
    """Multiply back[first:first+n] by the slopes of the activation, told from its values."""
    if relu:
        for i in range(first, first + n):
            back[i] = back[i] if hidden[i] > 0.0 else 0.0
    else:
        for i in range(first, first + n):
            back[i] *= 1.0 - hidden[i] * hidden[i]


@kernel
def forward(x, row, theta, shape, hidden, out, out_first):
    """Write hidden[0:width1+width2] and the outputs, out[out_first:out_first+n_outputs].

    x : float64[...], flat; the input stands at x[row:row+n_inputs]
    """
    n_inputs, width1, width2, n_outputs, relu = shape
    bias = n_inputs * width1
    for i in range(width1):
        hidden[i] = theta[bias + i]
    for j in range(n_inputs):
        if x[row + j] != 0.0:
            add_at(hidden, 0, x[row + j], theta, j * width1, width1)
    _activate(hidden, 0, width1, relu)
    at = bias + width1
    first, width = 0, width1
    if width2 > 0:
        bias = at + width1 * width2
        for i in range(width2):
            hidden[width1 + i] = theta[bias + i]
        for j in range(width1):
            add_at(hidden, width1, hidden[j], theta, at + j * width2, width2)
        _activate(hidden, width1, width2, relu)
        at = bias + width2
        first, width = width1, width2
    bias = at + n_outputs * width
    for o in range(n_outputs):
        out[out_first + o] = theta[bias + o] + dot_at(hidden, first, theta, at + o * width, width)


@kernel
def backward(x, row, theta, shape, hidden, back, weight, weight_first, score):
    """score += gradient of sum_o weight[weight_first + o] z_o, after ``forward`` has left hidden; back is scratch."""
    n_inputs, width1, width2, n_outputs, relu = shape
    first, width = (width1, width2) if width2 > 0 else (0, width1)
    top = n_inputs * width1 + width1
    at = top + (width1 * width2 + width2 if width2 > 0 else 0)
    bias = at + n_outputs * width
    for i in range(first, first + width):
        back[i] = 0.0
    for o in range(n_outputs):
        w = weight[weight_first + o]
        score[bias + o] += w
        add_at(score, at + o * width, w, hidden, first, width)
        add_at(back, first, w, theta, at + o * width, width)
    _slope(hidden, back, first, width, relu)
    if width2 > 0:
        add_at(score, top + width1 * width2, 1.0, back, width1, width2)
        for j in range(width1):
            add_at(score, top + j * width2, hidden[j], back, width1, width2)
            back[j] = dot_at(back, width1, theta, top + j * width2, width2)
        _slope(hidden, back, 0, width1, relu)
    add_at(score, n_inputs * width1, 1.0, back, 0, width1)
    for j in range(n_inputs):
        if x[row + j] != 0.0:
            add_at(score, j * width1, x[row + j], back, 0, width1)


@write_logits.on(Network)
def network_logits(policy, theta, s, first, last, out):
    feature, shape = policy.feature, policy.shape
    n_outputs, z = shape.n_outputs, shape.width1 + shape.width2
    scratch = np.empty(z + n_outputs)
    top = -np.inf
    q = first
    for row in range(policy.state_to_row[s], policy.state_to_row[s + 1]):
        forward(feature, row * shape.n_inputs, theta, shape, scratch, scratch, z)
        for o in range(min(n_outputs, last - q)):
            out[q] = scratch[z + o]
            top = max(top, out[q])
            q += 1
    return top


@table_scores.on(Network)
def network_scores(policy, theta, tables, actions, pair, n_pairs, scores):
    feature, shape, prob = policy.feature, policy.shape, actions.prob
    state_to_row, state_to_choice = policy.state_to_row, tables.state_to_choice
    n_outputs, width = shape.n_outputs, shape.width1 + shape.width2
    hidden, back = np.empty(width + n_outputs), np.empty(width + n_outputs)
    for h in range(n_pairs):
        chosen = pair[h]
        s = tables.choice_state[chosen]
        score = scores.dense[h]
        score[:] = 0.0
        q = state_to_choice[s]
        last = state_to_choice[s + 1]
        for row in range(state_to_row[s], state_to_row[s + 1]):
            x = row * shape.n_inputs
            forward(feature, x, theta, shape, hidden, hidden, width)
            for o in range(n_outputs):  # outputs beyond a state's list of choices have no weight
                back[width + o] = 0.0
                if q < last:
                    back[width + o] = (1.0 if q == chosen else 0.0) - prob[q]
                    q += 1
            backward(feature, x, theta, shape, hidden, back, back, width, score)
    return scores.dense.shape[1]
