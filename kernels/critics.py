"""Critics with the features of a policy: Q(s, a) = w . phi(s, a), or a network of the policy's own shape.

``critic_form`` turns a policy into a form, a NamedTuple of numbers alone, and plain arrays: in the loop over
transitions a tuple of arrays would cost atomic operations on their reference counts. A signal's parameters stand at
``at`` .. ``at + d - 1`` of a flat vector. A policy class has a critic if it has a form here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from fastcmdp.kernels.jit import INLINE, reassociated
from fastcmdp.kernels.policies import DenseFeatures, SparseFeatures, Tabular, _is
from fastcmdp.kernels.relu import ReluNetwork, relu_nudge, relu_value

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


def critic_form(policy):
    """(form, first, column, value) of a policy."""
    raise NotImplementedError


@overload(critic_form)
def _critic_form(policy):
    if _is(policy, Tabular):
        return lambda policy: (
            OneHot(policy.n_parameters),
            np.empty(0, np.int64),
            np.empty(0, np.int32),
            np.empty(0, np.float64),
        )
    if _is(policy, SparseFeatures):
        # The number of parameters is not known here, nor needed.
        return lambda policy: (Sparse(0), policy.first, policy.column, policy.value)
    if _is(policy, DenseFeatures):
        return lambda policy: (
            Dense(policy.phi.shape[1]),
            np.empty(0, np.int64),
            np.empty(0, np.int32),
            policy.phi.reshape(-1),
        )
    if _is(policy, ReluNetwork):
        return lambda policy: (Relu(policy.width), policy.first, policy.column, policy.value)
    return None


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
    """Q(q) with the parameters at ``at``; hidden: work space of ``n_hidden``."""
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
    if _is(form, Relu):

        def relu(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
            return relu_nudge(
                first[q], first[q + 1], column, value, form.width, origin, w, at, e, mean, weight, hidden
            )

        return relu
    return None
