"""Features of a state told from those of its choices: their mean, phi(s) = sum_a phi(s, a) / A(s)."""

from __future__ import annotations

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.policy.features import DenseFeatures, SparseFeatures
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.kernels.vectors import dot


@generic("policy", inline=True)
def mean_times(policy, tables, s, w):
    """phi(s) . w."""


@mean_times.on(Tabular)
def tabular_mean_times(policy, tables, s, w):
    first, end = tables.state_to_choice[s], tables.state_to_choice[s + 1]
    total = 0.0
    for q in range(first, end):
        total += w[q]
    return total / (end - first)


@mean_times.on(SparseFeatures)
def sparse_mean_times(policy, tables, s, w):
    first, end = tables.state_to_choice[s], tables.state_to_choice[s + 1]
    total = 0.0
    for i in range(policy.first[first], policy.first[end]):
        total += policy.value[i] * w[policy.column[i]]
    return total / (end - first)


@mean_times.on(DenseFeatures)
def dense_mean_times(policy, tables, s, w):
    first, end = tables.state_to_choice[s], tables.state_to_choice[s + 1]
    total = 0.0
    for q in range(first, end):
        total += dot(policy.phi[q], w)
    return total / (end - first)


@generic("policy", inline=True)
def add_mean(policy, tables, s, step, w):
    """w += step phi(s)."""


@add_mean.on(Tabular)
def add_tabular_mean(policy, tables, s, step, w):
    first, end = tables.state_to_choice[s], tables.state_to_choice[s + 1]
    share = step / (end - first)
    for q in range(first, end):
        w[q] += share


@add_mean.on(SparseFeatures)
def add_sparse_mean(policy, tables, s, step, w):
    first, end = tables.state_to_choice[s], tables.state_to_choice[s + 1]
    share = step / (end - first)
    for i in range(policy.first[first], policy.first[end]):
        w[policy.column[i]] += share * policy.value[i]


@add_mean.on(DenseFeatures)
def add_dense_mean(policy, tables, s, step, w):
    first, end = tables.state_to_choice[s], tables.state_to_choice[s + 1]
    share = step / (end - first)
    for q in range(first, end):
        phi = policy.phi[q]
        for i in range(w.shape[0]):
            w[i] += share * phi[i]
