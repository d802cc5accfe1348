"""Critics with the features of a policy: Q(s, a) = w . phi(s, a), or a network of the policy's own shape.

A policy whose logits a network gives has a critic with its *tangent features*, the gradient of the logit at the
actor's parameters: Q(s, a) = w . grad_theta z(s, a; theta). They hold still while critics learn, and adding h w to
theta moves every logit by h Q to first order: what the same step does exactly with log-linear policies, whose tangent
features are their features.

``critic_form`` turns a policy into a form, a NamedTuple of numbers alone, and plain arrays: in the loop over
transitions a tuple of arrays cost atomic operations while their references were counted. A signal's parameters stand at
``at`` .. ``at + d - 1`` of a flat vector. On simulators, where choices have no numbers, ``walks.py`` uses the same
functions on gradients of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import inlined, kernel, reassociated
from fastcmdp.kernels.policy.features import DenseFeatures, SparseFeatures
from fastcmdp.kernels.policy.network import Network, backward, forward
from fastcmdp.kernels.policy.relu import ReluNetwork, relu_nudge, relu_value
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.kernels.vectors import dot
from fastcmdp.kernels.words import U64


class OneHot(NamedTuple):
    """One parameter a choice."""

    d: int


class Sparse(NamedTuple):
    """phi(q) has entries first[q] .. first[q+1]-1 of (column, value)."""

    d: int


class Dense(NamedTuple):
    """phi(q) stands at value[q * d] .. value[q * d + d - 1]."""

    d: int


class Relu(NamedTuple):
    """A network like the policy's; its features psi are given like those of ``Sparse``."""

    width: int


class Tangent(NamedTuple):
    """phi(q) stands at value[row * (d + 1)] .., then a factor on the updates from it; row from ``feature_row``.

    The lengths of gradients have no bound known beforehand, so updates from one with |phi|^2 > bound are shortened by
    bound / |phi|^2: with rates made for |phi|^2 <= bound, no update overshoots.
    """

    d: int


class Gradients(NamedTuple):
    """Gradients of logits that have been worked out: of choice q in row q mod n, if tag[row] = q; one row is spare."""

    tag: np.ndarray  # int64[n+1]
    value: np.ndarray  # float64[(n+1) (d+1)]
    bound: float  # B, also for simulators, which keep no rows


@generic("policy")
def critic_form(policy, gradients):
    """(form, first, column, value) of a policy; gradients: room for those of a network, which ``value`` then is."""


@critic_form.on(Tabular)
def one_hot_form(policy, gradients):
    return OneHot(policy.n_parameters), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0)


@critic_form.on(SparseFeatures)
def sparse_form(policy, gradients):
    return Sparse(0), policy.first, policy.column, policy.value  # the number of parameters is not needed


@critic_form.on(DenseFeatures)
def dense_form(policy, gradients):
    phi = policy.phi
    return Dense(phi.shape[1]), np.empty(0, np.int64), np.empty(0, np.int32), phi.reshape(-1)


@critic_form.on(ReluNetwork)
def relu_form(policy, gradients):
    return Relu(policy.width), policy.first, policy.column, policy.value


@critic_form.on(Network)
def tangent_form(policy, gradients):
    d = gradients.value.shape[0] // gradients.tag.shape[0] - 1
    return Tangent(d), gradients.tag, np.empty(0, np.int32), gradients.value


@generic("form", inline=True)
def feature_row(form, first, value, policy, theta, tables, gradients, q, busy):
    """Where ``predict`` and ``nudge`` find choice q: q, or for tangent features a row, made now if need be.

    busy : a row that must not be overwritten, or -1
    """


@feature_row.otherwise
def own_row(form, first, value, policy, theta, tables, gradients, q, busy):
    return q


@feature_row.on(Tangent)
def gradient_row(form, first, value, policy, theta, tables, gradients, q, busy):
    spare = first.shape[0] - 1
    row = q % spare
    if row == busy and first[row] != q:
        row = spare
    if first[row] != q:
        first[row] = q
        write_gradient(policy, theta, tables, q, gradients.bound, value, row * (form.d + 1))
    return row


@kernel
def write_gradient(policy, theta, tables, q, bound, value, at):
    """Write the gradient of the logit of choice q at ``at`` .., and the factor after it."""
    shape = policy.shape
    n_inputs, width = shape.n_inputs, shape.width1 + shape.width2
    hidden, back, z = np.empty(width), np.empty(width), np.zeros(shape.n_outputs)
    s = tables.choice_state[q]
    position = q - tables.state_to_choice[s]
    n_rows = policy.state_to_row[s + 1] - policy.state_to_row[s]
    row, output = (position, 0) if n_rows > 1 else (0, position)
    x = (policy.state_to_row[s] + row) * n_inputs
    forward(policy.feature, x, theta, shape, hidden, z, 0)
    z[:] = 0.0
    z[output] = 1.0
    gradient = value[at : at + theta.shape[0]]
    gradient[:] = 0.0
    backward(policy.feature, x, theta, shape, hidden, back, z, 0, gradient)
    value[at + theta.shape[0]] = shortening(gradient, bound)


@inlined
def shortening(gradient, bound):
    """Factor on updates from a gradient, at most 1."""
    square = dot(gradient, gradient)
    return min(1.0, bound / square) if square > 0.0 else 1.0


@generic("form")
def n_hidden(form):
    """Length of the work space that a form's critic needs."""


@n_hidden.otherwise
def no_hidden(form):
    return 0


@n_hidden.on(Relu)
def relu_hidden(form):
    return form.width


@reassociated
def _dot(x, row, w, at, n):
    """x[row:row+n] . w[at:at+n]; unsigned offsets, see kernels/policy/relu.py."""
    total = 0.0
    row, at = U64(row), U64(at)
    for j in range(n):
        total += x[row + U64(j)] * w[at + U64(j)]
    return total


@generic("form", inline=True)
def predict(form, first, column, value, w, at, q, hidden):
    """Q(q) with the parameters at ``at``; q from ``feature_row``, hidden: work space of ``n_hidden``."""


@predict.on(OneHot)
def predict_one_hot(form, first, column, value, w, at, q, hidden):
    return w[at + q]


@predict.on(Sparse)
def predict_sparse(form, first, column, value, w, at, q, hidden):
    total = 0.0
    for i in range(first[q], first[q + 1]):
        total += value[i] * w[at + column[i]]
    return total


@predict.on(Dense)
def predict_dense(form, first, column, value, w, at, q, hidden):
    return _dot(value, q * form.d, w, at, form.d)


@predict.on(Tangent)
def predict_tangent(form, first, column, value, w, at, q, hidden):
    return _dot(value, q * (form.d + 1), w, at, form.d)


@predict.on(Relu)
def predict_relu(form, first, column, value, w, at, q, hidden):
    return relu_value(first[q], first[q + 1], column, value, form.width, w, at, hidden)


@reassociated
def _nudge_row(phi, row, d, w, at, e, mean, weight):
    square = 0.0
    row, at = U64(row), U64(at)
    for j in range(d):
        x = e * phi[row + U64(j)]
        square += x * x
        w[at + U64(j)] += x
        mean[at + U64(j)] += weight * x
    return square


@generic("form", inline=True)
def nudge(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
    """w += e grad Q(q), mean += weight e grad Q(q); return by how much |w - origin|^2 has grown. now: Q(q) before."""


@nudge.on(OneHot)
def nudge_one_hot(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
    w[at + q] += e
    mean[at + q] += weight * e
    return e * (2.0 * now + e)


@nudge.on(Sparse)
def nudge_sparse(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
    square = 0.0
    for i in range(first[q], first[q + 1]):
        x = e * value[i]
        square += x * x
        w[at + column[i]] += x
        mean[at + column[i]] += weight * x
    return 2.0 * e * now + square


@nudge.on(Dense)
def nudge_dense(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
    return 2.0 * e * now + _nudge_row(value, q * form.d, form.d, w, at, e, mean, weight)


@nudge.on(Tangent)
def nudge_tangent(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
    row = q * (form.d + 1)
    e *= value[row + form.d]
    return 2.0 * e * now + _nudge_row(value, row, form.d, w, at, e, mean, weight)


@nudge.on(Relu)
def nudge_relu(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
    return relu_nudge(
        first[q], first[q + 1], column, value, form.width, origin, w, at, e, mean, weight, hidden
    )
