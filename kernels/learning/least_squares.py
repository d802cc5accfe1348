"""A critic that is linear in features of pairs, from least squares on the transitions of all batches (LSTD).

phi(s, a) are a simulator's features and, where that makes at most 64 numbers, their products in pairs: in the block of
the action, or for features of pairs in one. With phibar(s) = sum_a pi(a|s) phi(s, a), the weights solve

    (M + R) w_f = b_f + R w_f^old,    M = E[phi (phi - gamma phibar')'],    b_f = E[phi f],    R = 10^-3 t/d I,

with phibar' at the next state, under the policy of its batch. Means are over transitions of all batches, later ones
with more weight (``forget``). There is no learning rate, and where the features can express Q of a policy that stays,
W = Q is the fixed point, whatever explores; along a run M mixes the phibar' of the policies of many batches.

R keeps what no transition tells. t is the sum of the positive M_ii, and at least (1 - sqrt(gamma)) E|phi|^2, which is
the least that tr M can be under the policy's own discounted law: that of the next state is at most 1/gamma times it, so
that E[phi . phibar'] <= E|phi|^2 / sqrt(gamma). Under the law of others M need not be positive, and a solution may be
far beyond all values. Weights are scaled down where W of a choice, or Wbar of a state, of the last batch is beyond
``BEYOND`` times what sums of its largest signal (at least 1) can be.

What is read of a batch is its *tape*: how many records it holds, how many it has room for, then one record a visited
state: the action, or -1 where a rollout ends; the signals that followed, in the user's units; the features of the
state, or of all its pairs; the probabilities of its actions.

A transition costs n d sums, a solution d^3 / 3. Each is spent like money, as in ``counts``: a transition earns
``EARNED`` sums of either kind, those that cannot be paid for are left out, and weights are solved for once there is
enough. (The transitions that are left out do not depend on what they show.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.vectors import add_at, dot_at

EARNED = 1000.0  # sums a transition, on average, at most
MOST = 64  # features with products
RIDGE = 1e-3
BEYOND = 2.0  # an honest solution may overshoot
HEAD = 2  # numbers before the first record


class Layout(NamedTuple):
    """Sizes of a tape's records and of the features of pairs."""

    n_given: int  # the simulator's features of a state, or of a pair
    n: int  # with products
    n_actions: int
    n_rows: int  # 1, or a row of features an action
    n_signals: int
    d: int  # parameters of a signal's critic
    words: int  # of a record


@kernel
def layout_of(n, n_actions, by_choice, n_signals):
    """Sizes for features of pairs (``by_choice``) or of states."""
    n_rows, n_given = n_actions if by_choice else 1, n
    if n * (n + 3) // 2 <= MOST:
        n = n * (n + 3) // 2
    return Layout(
        n_given, n, n_actions, n_rows, n_signals, n if by_choice else n * n_actions,
        1 + n_signals + n_rows * n + n_actions,
    )  # fmt: skip


@kernel
def write_products(layout, x, out, at):
    """Write the features of a state's pairs to out[at] .., from the given ones in x."""
    n, n_given = layout.n, layout.n_given
    for row in range(layout.n_rows):
        first, k = row * n_given, at + row * n
        for i in range(n_given):
            out[k + i] = x[first + i]
        k += n_given
        for i in range(n_given if n > n_given else 0):
            for j in range(i + 1):
                out[k] = x[first + i] * x[first + j]
                k += 1


@kernel
def value_of(layout, x, at, w, a):
    """phi(s, a) . w, with the features of the state at x[at] .."""
    if layout.n_rows > 1:
        return dot_at(w, 0, x, at + a * layout.n, layout.n)
    return dot_at(w, a * layout.n, x, at, layout.n)


@kernel
def write_expected(layout, x, at, prob, prob_at, out):
    """out = phibar, of the state whose features stand at x[at] .."""
    out[:] = 0.0
    for a in range(layout.n_actions):
        row, block = (a, 0) if layout.n_rows > 1 else (0, a)
        add_at(out, block * layout.n, prob[prob_at + a], x, at + row * layout.n, layout.n)


@kernel
def gather(tape, layout, factor, offset, gamma, forget, psi, evidence):
    """Fold the transitions on the tape into the means M, b and E|phi|^2, which stand in ``evidence`` in turn.

    evidence : float64[d d + F d + 2], the last entry what solutions may cost
    """
    n, d, n_signals, words = layout.n, layout.d, layout.n_signals, layout.words
    n_records = int(tape[0])
    transitions = 0
    for j in range(n_records - 1):
        transitions += tape[HEAD + j * words] >= 0.0
    if transitions == 0:
        return
    for i in range(d * d + n_signals * d + 1):
        evidence[i] *= 1.0 - forget
    share, price, money = forget / transitions, float(n * d), float(n * d)
    evidence[-1] += EARNED * transitions
    for j in range(n_records - 1):
        at = HEAD + j * words
        action = int(tape[at])
        if action < 0:
            continue
        money += EARNED
        if price > money:
            continue
        money -= price
        x = at + 1 + n_signals
        then = x + words
        write_expected(layout, tape, then, tape, then + layout.n_rows * n, psi)
        row, block = (action, 0) if layout.n_rows > 1 else (0, action)
        mine, first = x + row * n, block * n
        for i in range(n):
            weight = share * tape[mine + i]
            if weight == 0.0:
                continue
            evidence[-2] += weight * tape[mine + i]
            at_row = (first + i) * d
            add_at(evidence, at_row + first, weight, tape, mine, n)
            add_at(evidence, at_row, -gamma * weight, psi, 0, d)
            for f in range(n_signals):
                signal = factor[f] * tape[at + 1 + f] + offset[f]
                evidence[d * d + f * d + first + i] += weight * signal


@kernel
def bound_weights(layout, tape, factor, offset, gamma, critic):
    """Scale the weights of a signal down to values that it can have, where the tape shows others."""
    n, n_signals = layout.n, layout.n_signals
    for f in range(n_signals):
        largest, signal = 0.0, 1.0
        for j in range(int(tape[0])):
            at = HEAD + j * layout.words
            action, x = int(tape[at]), at + 1 + n_signals
            mean = 0.0
            for a in range(layout.n_actions):
                w = value_of(layout, tape, x, critic[f], a)
                mean += tape[x + layout.n_rows * n + a] * w
                if a == action:
                    largest = max(largest, abs(w))
                    signal = max(signal, abs(factor[f] * tape[at + 1 + f] + offset[f]))
            largest = max(largest, abs(mean))
        most = BEYOND * signal / (1.0 - gamma)
        if largest > most:
            for i in range(layout.d):
                critic[f, i] *= most / largest


@kernel
def solve_weights(layout, evidence, gamma, matrix, right, critic):
    """Solve for the weights by elimination with pivots, once that can be paid for; critic : float64[F, d].

    Return whether they have changed.
    """
    d, n_signals = layout.d, layout.n_signals
    price = d * d * d / 3.0
    if evidence[-1] < price:
        return False
    evidence[-1] = min(evidence[-1] - price, price)
    trace = 0.0
    for i in range(d):
        trace += max(evidence[i * d + i], 0.0)
    ridge = RIDGE * max(trace, (1.0 - math.sqrt(gamma)) * evidence[-2]) / d
    for i in range(d):
        for j in range(d):
            matrix[i, j] = evidence[i * d + j]
        matrix[i, i] += ridge
        for f in range(n_signals):
            right[i, f] = evidence[d * d + f * d + i] + ridge * critic[f, i]
    for k in range(d):
        p = k
        for i in range(k + 1, d):
            if abs(matrix[i, k]) > abs(matrix[p, k]):
                p = i
        if not abs(matrix[p, k]) > 0.0:
            return False
        if p != k:
            for j in range(k, d):
                matrix[k, j], matrix[p, j] = matrix[p, j], matrix[k, j]
            for f in range(n_signals):
                right[k, f], right[p, f] = right[p, f], right[k, f]
        for i in range(k + 1, d):
            x = matrix[i, k] / matrix[k, k]
            if x == 0.0:
                continue
            for j in range(k + 1, d):
                matrix[i, j] -= x * matrix[k, j]
            for f in range(n_signals):
                right[i, f] -= x * right[k, f]
    finite = True
    for back in range(d):
        k = d - 1 - back
        for f in range(n_signals):
            x = right[k, f]
            for j in range(k + 1, d):
                x -= matrix[k, j] * right[j, f]
            right[k, f] = x / matrix[k, k]
            finite &= math.isfinite(right[k, f])
    if finite:
        for f in range(n_signals):
            for i in range(d):
                critic[f, i] = right[i, f]
    return finite


def empty_tape(layout: Layout, room: int) -> np.ndarray:
    """A tape with room for so many records."""
    tape = np.zeros(HEAD + room * layout.words)
    tape[1] = room
    return tape
