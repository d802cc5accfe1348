"""The critics of PD-ANPG(-CV), each with the rollouts that it corrects: from counts on tables, linear on simulators.

All that the outer loop asks of a critic is here. W_f(s, a) may be any function that is fixed before the batch; which
one it is decides about the variance of the samples, and about where the inner loop begins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.learning.counts import Graph, back_up, count
from fastcmdp.kernels.learning.least_squares import (
    HEAD,
    Layout,
    bound_weights,
    gather,
    solve_weights,
    value_of,
    write_products,
)
from fastcmdp.kernels.policy.live import live_logits
from fastcmdp.kernels.sampling.corrected import corrected_rollouts
from fastcmdp.kernels.sampling.tables import Tables
from fastcmdp.kernels.simulator.simulate import Addresses, simulate_with, softmax_weights, write_features
from fastcmdp.kernels.words import HALF

LATELY = 2.0  # means over batches weigh the last ones by so much over their number
FORGET = 0.003  # and at least so much


class Counted(NamedTuple):
    """Work space of a critic from counts."""

    graph: Graph
    record: Any  # (uint64[C W], float64[C W]): see corrected.py
    seen: np.ndarray  # uint64[n]
    mean: np.ndarray  # float64[S, F]: Wbar
    looked: (
        np.ndarray
    )  # int64[S+1]: the last batch in which a state was looked at, and how many batches there were


class Fitted(NamedTuple):
    """Work space of a critic that is linear in a simulator's features."""

    layout: Layout
    tape: np.ndarray  # float64[n]: see least_squares.py
    job_row: np.ndarray  # uint32[2H]
    value: np.ndarray  # float64[2H, F]: Wbar of first states
    matrix: np.ndarray  # float64[d, d]
    right: np.ndarray  # float64[d, F]
    expected: np.ndarray  # float64[d]
    phi: np.ndarray  # float64[rows n]: features of a state's pairs


@kernel
def read_critic(tables, graph, gamma, prob, critic, choice_count, record, mean, plug):
    """Fill Wbar under pi, the records of the rollouts and the critic's J.

    An action that was never tried counts as the average of those that were: W is written there.
    """
    state_to_choice, signal, n_signals = tables.state_to_choice, tables.choice_signal, tables.n_signals
    out, words = record[1], tables.words
    for s in range(mean.shape[0]):
        first, end = state_to_choice[s], state_to_choice[s + 1]
        tried = 0.0
        for k in range(n_signals):
            mean[s, k] = 0.0
        for q in range(first, end):
            if choice_count[q] > 0.0:
                tried += prob[q]
                for k in range(n_signals):
                    mean[s, k] += prob[q] * critic[q, k]
        if tried > 0.0:
            for k in range(n_signals):
                mean[s, k] /= tried
        for q in range(first, end):
            for k in range(n_signals):
                if choice_count[q] == 0.0:
                    critic[q, k] = mean[s, k]
                out[words * q + 1 + k] = signal[q, 1 + k] + gamma * mean[s, k] - critic[q, k]
    plug[:] = 0.0
    for i in range(graph.start_state.shape[0]):
        for k in range(n_signals):
            plug[k] += graph.start_prob[i] * mean[graph.start_state[i], k]


@generic("tables")
def begin_batch(tables, gamma, actions, critic, evidence, space, plug):
    """Make ready what the rollouts read of W, and plug, the critic's J where it is known beforehand."""


@begin_batch.on(Tables)
def begin_counted(tables, gamma, actions, critic, evidence, space, plug):
    counts = evidence[tables.branch_entry.shape[0] // 3 :]
    read_critic(tables, space.graph, gamma, actions.prob, critic, counts, space.record, space.mean, plug)


@begin_batch.on(Addresses)
def begin_fitted(tables, gamma, actions, critic, evidence, space, plug):
    space.tape[0] = 0.0


@generic("tables")
def run_corrected(
    tables, actions, gamma, rng, job_choice, job_wanders, critic, space, out_total, out_choice, n_seen, plug
):  # fmt: skip
    """Run one corrected rollout a job; return how many transitions are written down, and how many were made.

    out_total : float64[J, F], C; of jobs from the start those of J less plug, which is set here where it was not known
    """


@run_corrected.on(Tables)
def run_counted(
    tables, actions, gamma, rng, job_choice, job_wanders, critic, space, out_total, out_choice, n_seen, plug
):  # fmt: skip
    return corrected_rollouts(
        tables, actions, tables.row_state, gamma, rng, job_choice, job_wanders, space.mean, space.record, out_total,
        out_choice, space.seen, n_seen,
    )  # fmt: skip


@run_corrected.on(Addresses)
def run_fitted(
    tables, actions, gamma, rng, job_choice, job_wanders, critic, space, out_total, out_choice, n_seen, plug
):  # fmt: skip
    n = job_choice.shape[0]
    transitions = simulate_with(
        tables, actions, rng, job_choice, space.job_row[:n], job_wanders, critic.reshape(-1), space.tape, out_total,
        out_choice, space.value[:n],
    )  # fmt: skip
    if job_choice[0] < 0:
        plug[:] = 0.0
        for h in range(n):
            for f in range(plug.shape[0]):
                plug[f] += space.value[h, f] / n
    return n_seen, transitions


@generic("tables")
def explore(tables, evidence, space, n_seen, pair, job_choice):
    """Choose where exploring rollouts begin: job_choice[h] is a first pair; on simulators one whose action is drawn."""


@explore.on(Tables)
def explore_least_tried(tables, evidence, space, n_seen, pair, job_choice):
    """The choices tried least in all states that the batch has visited so far, each once; then those of the pairs."""
    counts, seen = evidence[tables.branch_entry.shape[0] // 3 :], space.seen
    n, looked = job_choice.shape[0], space.looked
    job_choice[:] = -1
    looked[-1] += 1
    for t in range(n_seen):
        s = tables.choice_state[seen[t] >> HALF]
        if looked[s] == looked[-1]:
            continue
        looked[s] = looked[-1]
        q = least_tried(tables, counts, s)
        i = n
        while i > 0 and (job_choice[i - 1] < 0 or counts[q] < counts[job_choice[i - 1]]):
            i -= 1
        if i < n:
            for j in range(n - 1, i, -1):
                job_choice[j] = job_choice[j - 1]
            job_choice[i] = q
    for h in range(n):
        if job_choice[h] < 0:
            job_choice[h] = least_tried(tables, counts, tables.choice_state[pair[h]])


@explore.on(Addresses)
def explore_pairs(tables, evidence, space, n_seen, pair, job_choice):
    job_choice[:] = pair[: job_choice.shape[0]]


@kernel
def least_tried(tables, counts, s):
    """The choice of state s that was tried least, the first of several."""
    least = tables.state_to_choice[s]
    for other in range(least + 1, tables.state_to_choice[s + 1]):
        if counts[other] < counts[least]:
            least = other
    return least


@generic("tables")
def look_at_pairs(tables, actions, critic, space, pair, turn, n_pairs, look):
    """Write down what is read of the pairs' states while the policy and W are those of the batch.

    Entries ``n_pairs`` .. of pair become choices of the same states in turn.
    """


@look_at_pairs.on(Tables)
def look_at_choices(tables, actions, critic, space, pair, turn, n_pairs, look):
    mean, prob = space.mean, actions.prob
    for h in range(n_pairs):
        q = pair[h]
        s = tables.choice_state[q]
        first = tables.state_to_choice[s]
        n = tables.state_to_choice[s + 1] - first
        look.n_actions[h] = n
        for a in range(n):
            look.prob[h, a] = prob[first + a]
            for f in range(tables.n_signals):
                look.advantage[h, a, f] = critic[first + a, f] - mean[s, f]
        in_turn = (turn + h) % n
        pair[n_pairs + h] = first + in_turn
        look.chance[h], look.chance[n_pairs + h] = prob[q], prob[first + in_turn]
        for f in range(tables.n_signals):
            look.row[h, f] = look.advantage[h, q - first, f]
            look.row[n_pairs + h, f] = look.advantage[h, in_turn, f]


@look_at_pairs.on(Addresses)
def look_at_visited(tables, actions, critic, space, pair, turn, n_pairs, look):
    layout, x, z, phi = space.layout, actions.features, actions.logit, space.phi
    n, n_signals = layout.n_actions, layout.n_signals
    for h in range(n_pairs):
        slot, chosen, in_turn = pair[h] // n, pair[h] % n, (turn + h) % n
        for i in range(tables.n_state):
            actions.state[i] = actions.visited[slot, i]
        write_features(tables.features, tables.n_state, actions.state, x)
        live_logits(actions.policy, actions.theta, x, layout.n_given, layout.n_rows, actions.hidden, z)
        write_products(layout, x, phi, 0)
        weights = softmax_weights(z, n)
        look.n_actions[h] = n
        pair[n_pairs + h] = slot * n + in_turn
        look.chance[h], look.chance[n_pairs + h] = z[chosen] / weights, z[in_turn] / weights
        for f in range(n_signals):
            mean = 0.0
            for a in range(n):
                look.prob[h, a] = z[a] / weights
                w = value_of(layout, phi, 0, critic[f], a)
                look.advantage[h, a, f] = w
                mean += look.prob[h, a] * w
            for a in range(n):
                look.advantage[h, a, f] -= mean
            look.row[h, f] = look.advantage[h, chosen, f]
            look.row[n_pairs + h, f] = look.advantage[h, in_turn, f]


@generic("tables")
def learn_critic(tables, gamma, actions, n_seen, outer, evidence, critic, space):
    """Learn W from the batch, for the next one."""


@learn_critic.on(Tables)
def learn_from_counts(tables, gamma, actions, n_seen, outer, evidence, critic, space):
    graph, n_branches = space.graph, tables.branch_entry.shape[0] // 3
    branch_count, choice_count = evidence[:n_branches], evidence[n_branches:]
    count(graph, space.seen, n_seen, branch_count, choice_count)
    back_up(
        tables, graph, gamma, actions.prob, space.seen, n_seen, branch_count, choice_count, critic, space.mean
    )


@learn_critic.on(Addresses)
def learn_from_squares(tables, gamma, actions, n_seen, outer, evidence, critic, space):
    forget = min(max(FORGET, LATELY / (outer + LATELY)), 1.0)
    gather(space.tape, space.layout, tables.factor, tables.offset, gamma, forget, space.expected, evidence)
    if solve_weights(space.layout, evidence, gamma, space.matrix, space.right, critic):
        bound_weights(space.layout, space.tape, tables.factor, tables.offset, gamma, critic)


@generic("space")
def plain_variance(space, tables, critic, pair, n, mean, k):
    """Variance of the sum of signal k over a rollout from the start, were there no critic: the scale of its values.

    mean : the batch's estimate of its expectation
    """


@plain_variance.on(Counted)
def variance_from_values(space, tables, critic, pair, n, mean, k):
    """The second moment is E_nu[f (2 Q - f)] / (1-gamma), from S = f^2 + 2 f (Q - f) + gamma P S; W is for Q."""
    second = 0.0
    for h in range(n):
        f = tables.choice_signal[pair[h], 1 + k]
        second += f * (2.0 * critic[pair[h], k] - f)
    return max(tables.horizon * second / n - mean * mean, 0.0)


@plain_variance.on(Fitted)
def variance_from_tape(space, tables, critic, pair, n, mean, k):
    """From the sums themselves: the first rollouts on the tape are those from the start."""
    tape, words = space.tape, space.layout.words
    rollouts, total, square = 0, 0.0, 0.0
    for j in range(int(tape[0])):
        at = HEAD + j * words
        if tape[at] >= 0.0:
            total += tables.factor[k] * tape[at + 1 + k] + tables.offset[k]
            continue
        square += (total - mean) ** 2
        rollouts += 1
        total = 0.0
        if rollouts == n:
            break
    return square / max(rollouts, 1)
