"""Sweeps for eight weightings of the signals side by side, see `fastcmdp.kernels.exact.bellman`.

Reading the value of a next state takes longer than using it, and eight values lie in one line of the cache: eight
Bellman sweeps take little longer than one. Column j has the signal ``weights[0, j] f_0 + weights[1, j] f_1``.
"""

from __future__ import annotations

import numpy as np

from fastcmdp.kernels.exact.lanes import LANES, add_scaled, all_of, load, store, where_equal, where_greater
from fastcmdp.kernels.jit import kernel

ONE, ZERO = np.uint64(1), np.uint64(0)


@kernel
def improve(
    state_to_choice,
    choice_to_branch,
    target,
    prob,
    signals,
    weights,
    gamma,
    value,
    out,
    choice,
    change,
    block,
    first,
    last,
):
    """Bellman steps: ``out`` = T ``value``, and the first best choice of each state, as a float."""
    n_states = value.shape[0]
    reward, cost = load(weights, ZERO), load(weights, ONE)
    for b in range(np.uint64(first), np.uint64(last)):
        low, high = all_of(np.inf), all_of(-np.inf)
        q = np.uint64(state_to_choice[b * block])
        e = np.uint64(choice_to_branch[q])
        for s in range(np.uint64(b * block), np.uint64(min((b + 1) * block, n_states))):
            best, at = all_of(-np.inf), all_of(float(q))
            end = np.uint64(state_to_choice[s + ONE])
            while q < end:
                total = all_of(0.0)
                last_e = np.uint64(choice_to_branch[q + ONE])
                while e < last_e:
                    total = add_scaled(total, prob[e], load(value, np.uint64(np.uint32(target[e]))))
                    e += ONE
                here = add_scaled(add_scaled(all_of(0.0), signals[q, 0], reward), signals[q, 1], cost)
                here = add_scaled(here, gamma, total)
                at = where_greater(here, best, all_of(float(q)), at)
                best = where_greater(here, best, here, best)
                q += ONE
            store(out, s, best)
            store(choice, s, at)
            moved = add_scaled(best, -1.0, load(value, s))
            low = where_greater(low, moved, moved, low)
            high = where_greater(moved, high, moved, high)
        store(change, np.uint64(2 * b), low)
        store(change, np.uint64(2 * b + 1), high)


@kernel
def follow(
    offset, row, entry, target, prob, signals, weights, choice, value, out, change, block, first, last
):
    """Evaluation sweeps of eight policies: rows offset[s] .. offset[s+1] are the choices that any takes in s.

    ``prob`` is gamma times the probability.
    """
    n_states = value.shape[0]
    reward, cost = load(weights, ZERO), load(weights, ONE)
    for b in range(np.uint64(first), np.uint64(last)):
        low, high = all_of(np.inf), all_of(-np.inf)
        r = np.uint64(offset[b * block])
        e = np.uint64(entry[r])
        for s in range(np.uint64(b * block), np.uint64(min((b + 1) * block, n_states))):
            after, begin, end = all_of(0.0), r, np.uint64(offset[s + ONE])
            while r < end:
                total = add_scaled(add_scaled(all_of(0.0), signals[r, 0], reward), signals[r, 1], cost)
                last_e = np.uint64(entry[r + ONE])
                while e < last_e:
                    total = add_scaled(total, prob[e], load(value, np.uint64(np.uint32(target[e]))))
                    e += ONE
                if r > begin:  # in few states
                    total = where_equal(load(choice, s), all_of(float(row[r])), total, after)
                after = total
                r += ONE
            store(out, s, after)
            moved = add_scaled(after, -1.0, load(value, s))
            low = where_greater(low, moved, moved, low)
            high = where_greater(moved, high, moved, high)
        store(change, np.uint64(2 * b), low)
        store(change, np.uint64(2 * b + 1), high)


@kernel
def merge(choice_to_branch, choice, offset, row, entry):
    """The choices that any of eight policies takes, state by state, each once; how many there are in all.

    ``offset`` is where those of a state begin, ``entry`` where the branches of each do.
    """
    n = 0
    offset[0], entry[0] = 0, 0
    for s in range(np.uint64(choice.shape[0])):
        begin = n
        for j in range(LANES):
            q = np.int64(choice[s, j])
            known = n > begin and row[n - 1] == q
            if not known:
                for r in range(begin, n):
                    known = known or row[r] == q
            if not known:
                row[n] = q
                entry[n + 1] = entry[n] + choice_to_branch[q + 1] - choice_to_branch[q]
                n += 1
        offset[s + ONE] = n
    return n


@kernel
def gather(choice_to_branch, target, prob, signals, gamma, row, entry, to, weight, gain, block, first, last):
    """The branches and signals of these choices, side by side."""
    for r in range(np.uint64(first * block), np.uint64(min(last * block, row.shape[0]))):
        q = np.uint64(row[r])
        gain[r, 0], gain[r, 1] = signals[q, 0], signals[q, 1]
        b = np.uint64(choice_to_branch[q])
        for e in range(np.uint64(entry[r]), np.uint64(entry[r + ONE])):
            to[e] = target[b]
            weight[e] = gamma * prob[b]
            b += ONE
