"""Sweeps over the rows of a model: Bellman steps, policy evaluation, and the chain of a policy.

    (T u)(s) = max over choices q of s of f(q) + gamma sum_b p_b u(t_b),  b the branches of q           (1)
    (T_pi u)(s) = f(s) + gamma sum_e p_e u(t_e),  e the entries of row s of the chain P_pi              (2)

States are taken in blocks of a fixed size. ``first`` to ``last`` are the blocks that a call does; what it writes
about a block depends on nothing that another block writes, so any number of threads gives the same bits. Which choice
is best is as good as random: it is selected without a branch, which would be predicted wrongly half of the time. The
sum over branches is written out wherever it is made: a helper that took arrays once counted references at each call.
Indices of arrays are unsigned: a signed one is looked at, at each access, for whether it counts from the end, which
takes as long as all the rest. Rows follow one another, so where one ends the next begins.
``change`` takes, for each block, the least and the greatest entry of T u - u, and the sum of their sizes: bounds on
the distance to the fixed point follow from them.
"""

from __future__ import annotations

import numpy as np

from fastcmdp.kernels.jit import inlined, kernel

ONE = np.uint64(1)


@kernel
def improve(
    state_to_choice,
    choice_to_branch,
    target,
    prob,
    signal,
    gamma,
    value,
    out,
    choice,
    change,
    block,
    first,
    last,
):
    """(1): ``out`` = T ``value``, and the first best choice of each state."""
    n_states = value.shape[0]
    for b in range(first, last):
        low, high = np.inf, -np.inf
        q = np.uint64(state_to_choice[b * block])
        e = np.uint64(choice_to_branch[q])
        for s in range(np.uint64(b * block), np.uint64(min((b + 1) * block, n_states))):
            best, at = -np.inf, q
            end = np.uint64(state_to_choice[s + ONE])
            while q < end:
                total = 0.0
                last_e = np.uint64(choice_to_branch[q + ONE])
                while e < last_e:
                    total += prob[e] * value[np.uint32(target[e])]
                    e += ONE
                here = signal[q] + gamma * total
                at = q if here > best else at
                best = here if here > best else best
                q += ONE
            out[s] = best
            choice[s] = at
            moved = best - value[s]
            low = moved if moved < low else low
            high = moved if moved > high else high
        change[b, 0], change[b, 1] = low, high


@inlined
def _mean_elsewhere(target, prob, old, value, low, high, s, begin, end):
    """Sum of P V over entries that leave s, with new values of states low .. high-1; P of those that stay."""
    total, diagonal = 0.0, 0.0
    for e in range(begin, end):
        t = np.uint64(np.uint32(target[e]))
        inside, outside = value[t], old[t]
        weight = prob[e] if t != s else 0.0
        total += weight * (inside if low <= t < high else outside)
        diagonal += prob[e] - weight
    return total, diagonal


@kernel
def improve_in_place(
    state_to_choice, choice_to_branch, target, prob, signal, gamma, old, value, backward, block, first, last
):
    """(1) by Gauss-Seidel within each block: values spread along a path in one sweep. A choice counts as repeated
    until it leaves the state."""
    n_states = value.shape[0]
    for b in range(first, last):
        low, high = np.uint64(b * block), np.uint64(min((b + 1) * block, n_states))
        value[low:high] = old[low:high]
        for i in range(high - low):
            s = high - ONE - i if backward else low + i
            best = -np.inf
            for q in range(np.uint64(state_to_choice[s]), np.uint64(state_to_choice[s + ONE])):
                begin, end = np.uint64(choice_to_branch[q]), np.uint64(choice_to_branch[q + ONE])
                total, diagonal = _mean_elsewhere(target, prob, old, value, low, high, s, begin, end)
                here = (signal[q] + gamma * total) / (1.0 - gamma * diagonal)
                best = here if here > best else best
            value[s] = best


@kernel
def relax(offset, target, prob, right, gamma, old, value, backward, block, first, last):
    """(2) by Gauss-Seidel within each block."""
    n_states = value.shape[0]
    for b in range(first, last):
        low, high = np.uint64(b * block), np.uint64(min((b + 1) * block, n_states))
        value[low:high] = old[low:high]
        for i in range(high - low):
            s = high - ONE - i if backward else low + i
            begin, end = np.uint64(offset[s]), np.uint64(offset[s + ONE])
            total, diagonal = _mean_elsewhere(target, prob, old, value, low, high, s, begin, end)
            value[s] = (right[s] + gamma * total) / (1.0 - gamma * diagonal)


@kernel
def follow(offset, target, prob, right, gamma, value, out, change, block, first, last):
    """(2) for one or two columns at once, whose values lie side by side: ``out`` = T_pi ``value``."""
    n_states, k = value.shape
    for b in range(first, last):
        low0, high0, size0 = np.inf, -np.inf, 0.0
        low1, high1, size1 = np.inf, -np.inf, 0.0
        e = np.uint64(offset[b * block])
        for s in range(np.uint64(b * block), np.uint64(min((b + 1) * block, n_states))):
            total0, total1 = 0.0, 0.0
            end = np.uint64(offset[s + ONE])
            if k == 1:
                while e < end:
                    total0 += prob[e] * value[np.uint32(target[e]), 0]
                    e += ONE
            else:
                while e < end:
                    t = np.uint32(target[e])
                    total0 += prob[e] * value[t, 0]
                    total1 += prob[e] * value[t, 1]
                    e += ONE
                total1 = right[s, 1] + gamma * total1
                moved = total1 - value[s, 1]
                low1 = moved if moved < low1 else low1
                high1 = moved if moved > high1 else high1
                size1 += abs(moved)
                out[s, 1] = total1
            total0 = right[s, 0] + gamma * total0
            moved = total0 - value[s, 0]
            low0 = moved if moved < low0 else low0
            high0 = moved if moved > high0 else high0
            size0 += abs(moved)
            out[s, 0] = total0
        change[b, 0, 0], change[b, 0, 1], change[b, 0, 2] = low0, high0, size0
        if k == 2:
            change[b, 1, 0], change[b, 1, 1], change[b, 1, 2] = low1, high1, size1


@kernel
def count_entries(state_to_choice, choice_to_branch, pi, offset):
    """Where the rows of the chain of ``pi`` begin: choices that are never taken are left out."""
    n = np.int64(0)
    offset[0] = 0
    for s in range(np.uint64(offset.shape[0] - 1)):
        for q in range(np.uint64(state_to_choice[s]), np.uint64(state_to_choice[s + ONE])):
            if pi[q] > 0.0:
                n += choice_to_branch[q + ONE] - choice_to_branch[q]
        offset[s + ONE] = n


@kernel
def fill_chain(
    state_to_choice,
    choice_to_branch,
    target,
    prob,
    pi,
    signals,
    offset,
    to,
    weight,
    right,
    block,
    first,
    last,
):
    """The chain P_pi as rows (``to``, ``weight``), and ``right`` = W_pi signals."""
    n_states, k = right.shape
    for s in range(np.uint64(first * block), np.uint64(min(last * block, n_states))):
        e = np.uint64(offset[s])
        for j in range(np.uint64(k)):
            right[s, j] = 0.0
        for q in range(np.uint64(state_to_choice[s]), np.uint64(state_to_choice[s + ONE])):
            if pi[q] > 0.0:
                for j in range(np.uint64(k)):
                    right[s, j] += pi[q] * signals[q, j]
                for b in range(np.uint64(choice_to_branch[q]), np.uint64(choice_to_branch[q + ONE])):
                    to[e] = target[b]
                    weight[e] = pi[q] * prob[b]
                    e += ONE


@kernel
def count_chosen(choice_to_branch, choice, offset):
    """Where the rows of the chain of a policy begin that takes one choice in each state."""
    n = np.int64(0)
    offset[0] = 0
    for s in range(np.uint64(choice.shape[0])):
        q = np.uint64(choice[s])
        n += choice_to_branch[q + ONE] - choice_to_branch[q]
        offset[s + ONE] = n


@kernel
def fill_chosen(choice_to_branch, target, prob, choice, written, offset, to, weight, block, first, last):
    """Those rows, but for those that ``written`` says are there: policies met in a row differ in few states."""
    n_states = choice.shape[0]
    for s in range(np.uint64(first * block), np.uint64(min(last * block, n_states))):
        if choice[s] == written[s]:
            continue
        written[s] = choice[s]
        b = np.uint64(choice_to_branch[np.uint64(choice[s])])
        for e in range(np.uint64(offset[s]), np.uint64(offset[s + ONE])):
            to[e] = target[b]
            weight[e] = prob[b]
            b += ONE


@kernel
def transpose(offset, target, prob, back, source, weight):
    """The rows of P^T from those of P, by counting: entries of a row in the order of the states they come from."""
    n_states = offset.shape[0] - 1
    back[:] = 0
    for e in range(target.shape[0]):
        back[np.int64(target[e]) + 1] += 1
    for s in range(n_states):
        back[s + 1] += back[s]
    for s in range(n_states):
        for e in range(offset[s], offset[s + 1]):
            t = np.int64(target[e])
            source[back[t]] = s
            weight[back[t]] = prob[e]
            back[t] += 1
    for s in range(n_states, 0, -1):  # each was moved to the begin of the next
        back[s] = back[s - 1]
    back[0] = 0
