"""Critics with the features of a policy: Q(s, a) = w . phi(s, a), or a network of the policy's own shape.

A policy whose logits a network gives has a critic with its *tangent features*, the gradient of the logit at the
actor's parameters: Q(s, a) = w . grad_theta z(s, a; theta). They hold still while critics learn, and adding h w to
theta moves every logit by h Q to first order: what the same step does exactly with log-linear policies, whose tangent
features are their features.

``critic_form`` turns a policy into a form, a NamedTuple of numbers alone, and plain arrays: in the loop over
transitions a tuple of arrays would cost atomic operations on their reference counts. A signal's parameters stand at
``at`` .. ``at + d - 1`` of a flat vector. On simulators, where choices have no numbers, ``walks.py`` uses the same
functions on gradients of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from fastcmdp.kernels.jit import INLINE, inlined, kernel, reassociated
from fastcmdp.kernels.neural import backward, forward
from fastcmdp.kernels.policies import DenseFeatures, Network, SparseFeatures, Tabular, _is
from fastcmdp.kernels.relu import ReluNetwork, relu_nudge, relu_value
from fastcmdp.kernels.vectors import dot

_U64 = np.uint64


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


def critic_form(policy, gradients):
    """(form, first, column, value) of a policy; gradients: room for those of a network, which ``value`` then is."""
    raise NotImplementedError


@overload(critic_form)
def _critic_form(policy, gradients):
    if _is(policy, Tabular):
        return lambda policy, gradients: (
            OneHot(policy.n_parameters),
            np.empty(0, np.int64),
            np.empty(0, np.int32),
            np.empty(0, np.float64),
        )
    if _is(policy, SparseFeatures):
        # The number of parameters is not known here, nor needed.
        return lambda policy, gradients: (Sparse(0), policy.first, policy.column, policy.value)
    if _is(policy, DenseFeatures):
        return lambda policy, gradients: (
            Dense(policy.phi.shape[1]),
            np.empty(0, np.int64),
            np.empty(0, np.int32),
            policy.phi.reshape(-1),
        )
    if _is(policy, ReluNetwork):
        return lambda policy, gradients: (Relu(policy.width), policy.first, policy.column, policy.value)
    if _is(policy, Network):
        return lambda policy, gradients: (
            Tangent(gradients.value.shape[0] // gradients.tag.shape[0] - 1),
            gradients.tag,
            np.empty(0, np.int32),
            gradients.value,
        )
    return None


def feature_row(form, first, value, policy, theta, tables, gradients, q, busy):
    """Where ``predict`` and ``nudge`` find choice q: q, or for tangent features a row, made now if need be.

    busy : a row that must not be overwritten, or -1
    """
    raise NotImplementedError


@overload(feature_row, jit_options=INLINE)
def _feature_row(form, first, value, policy, theta, tables, gradients, q, busy):
    if _is(form, Tangent):

        def tangent(form, first, value, policy, theta, tables, gradients, q, busy):
            spare = first.shape[0] - 1
            row = q % spare
            if row == busy and first[row] != q:
                row = spare
            if first[row] != q:
                first[row] = q
                write_gradient(policy, theta, tables, q, gradients.bound, value, row * (form.d + 1))
            return row

        return tangent
    return lambda form, first, value, policy, theta, tables, gradients, q, busy: q


@kernel
def write_gradient(policy, theta, tables, q, bound, value, at):
    """Write the gradient of the logit of choice q at ``at`` .., and the factor after it."""
    width1, width2, n_outputs, relu = policy.width1, policy.width2, policy.n_outputs, policy.relu
    n_inputs, width = policy.features.shape[1], policy.width1 + policy.width2
    hidden, back, z = np.empty(width), np.empty(width), np.zeros(n_outputs)
    s = tables.choice_state[q]
    position = q - tables.state_to_choice[s]
    n_rows = policy.state_to_row[s + 1] - policy.state_to_row[s]
    row, output = (position, 0) if n_rows > 1 else (0, position)
    x = policy.features[policy.state_to_row[s] + row]
    forward(x, 0, n_inputs, theta, width1, width2, n_outputs, relu, hidden, z, 0)
    z[:] = 0.0
    z[output] = 1.0
    gradient = value[at : at + theta.shape[0]]
    gradient[:] = 0.0
    backward(x, 0, n_inputs, theta, width1, width2, n_outputs, relu, hidden, back, z, 0, gradient)
    value[at + theta.shape[0]] = shortening(gradient, bound)


@inlined
def shortening(gradient, bound):
    """Factor on updates from a gradient, at most 1."""
    square = dot(gradient, gradient)
    return min(1.0, bound / square) if square > 0.0 else 1.0


def n_hidden(form):
    """Length of the work space that a form's critic needs."""
    raise NotImplementedError


@overload(n_hidden)
def _n_hidden(form):
    if _is(form, Relu):
        return lambda form: form.width
    return lambda form: 0


@reassociated
def _dot(x, row, w, at, n):
    """x[row:row+n] . w[at:at+n]; unsigned offsets, see kernels/relu.py."""
    total = 0.0
    row, at = _U64(row), _U64(at)
    for j in range(n):
        total += x[row + _U64(j)] * w[at + _U64(j)]
    return total


def predict(form, first, column, value, w, at, q, hidden):
    """Q(q) with the parameters at ``at``; q from ``feature_row``, hidden: work space of ``n_hidden``."""
    raise NotImplementedError


@overload(predict, jit_options=INLINE)
def _predict(form, first, column, value, w, at, q, hidden):
    if _is(form, OneHot):
        return lambda form, first, column, value, w, at, q, hidden: w[at + q]
    if _is(form, Sparse):

        def sparse(form, first, column, value, w, at, q, hidden):
            total = 0.0
            for i in range(first[q], first[q + 1]):
                total += value[i] * w[at + column[i]]
            return total

        return sparse
    if _is(form, Dense):
        return lambda form, first, column, value, w, at, q, hidden: _dot(value, q * form.d, w, at, form.d)
    if _is(form, Tangent):
        return lambda form, first, column, value, w, at, q, hidden: _dot(
            value, q * (form.d + 1), w, at, form.d
        )
    if _is(form, Relu):
        return lambda form, first, column, value, w, at, q, hidden: relu_value(
            first[q], first[q + 1], column, value, form.width, w, at, hidden
        )
    return None


@reassociated
def _nudge_dense(phi, row, d, w, at, e, mean, weight):
    square = 0.0
    row, at = _U64(row), _U64(at)
    for j in range(d):
        x = e * phi[row + _U64(j)]
        square += x * x
        w[at + _U64(j)] += x
        mean[at + _U64(j)] += weight * x
    return square


def nudge(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
    """w += e grad Q(q), mean += weight e grad Q(q); return by how much |w - origin|^2 has grown. now: Q(q) before."""
    raise NotImplementedError


@overload(nudge, jit_options=INLINE)
def _nudge(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
    if _is(form, OneHot):

        def one_hot(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
            w[at + q] += e
            mean[at + q] += weight * e
            return e * (2.0 * now + e)

        return one_hot
    if _is(form, Sparse):

        def sparse(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
            square = 0.0
            for i in range(first[q], first[q + 1]):
                x = e * value[i]
                square += x * x
                w[at + column[i]] += x
                mean[at + column[i]] += weight * x
            return 2.0 * e * now + square

        return sparse
    if _is(form, Dense):

        def dense(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
            return 2.0 * e * now + _nudge_dense(value, q * form.d, form.d, w, at, e, mean, weight)

        return dense
    if _is(form, Tangent):

        def tangent(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
            row = q * (form.d + 1)
            e *= value[row + form.d]
            return 2.0 * e * now + _nudge_dense(value, row, form.d, w, at, e, mean, weight)

        return tangent
    if _is(form, Relu):

        def relu(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
            return relu_nudge(
                first[q], first[q + 1], column, value, form.width, origin, w, at, e, mean, weight, hidden
            )

        return relu
    return None
