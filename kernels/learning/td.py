"""TD(0) critics of all signals on the same transitions, drawn by the chains of chains.py.

At a transition from q = (s, a) to (s', a'), a' ~ pi(.|s'), for each signal f

    error = f(q) + gamma Q(s', a') - Q(q),        w += l_k error grad Q(q),

chain by chain in the order of the lanes. Two rules for l_k and for what is returned:

``Decaying``: l_k = rate (1 + k / delay)^-sigma, k the transitions made before the round, or 1 / n for the nth visit of
    a choice where that is more: the first visits are averaged, and nothing stays of where the critic began; the last
    iterate.
``Averaged``: a constant l; after each round of LANES transitions w is projected onto the ball |w - w_0| <= radius;
    the mean of the iterates after the rounds.

Sixteen chains that update one critic differ from the single chain of the analyses in the order of the samples: those
of a round come from separate chains, so neighbours depend on each other less.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.learning.critics import critic_form, feature_row, n_hidden, nudge, predict
from fastcmdp.kernels.sampling.chains import (
    N_WORDS,
    NEXT,
    draw_next,
    load_chains,
    move_on,
    restart_chains,
    store_chains,
)
from fastcmdp.kernels.sampling.lanes import CHOICE
from fastcmdp.kernels.stop import leaves
from fastcmdp.kernels.streams import LANES
from fastcmdp.kernels.words import U64


class Decaying(NamedTuple):
    """Rates l_k = rate (1 + k / delay)^-sigma, at a choice's nth visit at least 1 / n; the last iterate counts."""

    rate: float
    delay: float
    sigma: float


class Averaged(NamedTuple):
    """A constant rate, a projection onto a ball around w_0, and the mean of the iterates."""

    rate: float
    radius: float


@generic("rule", inline=True)
def rate_of(rule, k):
    """Rate of the round before which k transitions have been made."""


@rate_of.on(Decaying)
def decaying_rate(rule, k):
    return rule.rate * (1.0 + k / rule.delay) ** -rule.sigma


@rate_of.on(Averaged)
def constant_rate(rule, k):
    return rule.rate


@generic("rule", inline=True)
def rate_at(rule, rate, visits, q):
    """Rate of an update at choice q in a round of this rate; the visit is counted where visits matter."""


@rate_at.on(Decaying)
def rate_of_visit(rule, rate, visits, q):
    visits[q] += 1
    return max(rate, 1.0 / visits[q])


@rate_at.on(Averaged)
def rate_of_round(rule, rate, visits, q):
    return rate


@generic("rule")
def begin(rule, d, origin, w, mean, square):
    """Before the first round: square[k] = |w_k - origin|^2, and the mean so far."""


@begin.on(Decaying)
def begin_last(rule, d, origin, w, mean, square):
    pass


@begin.on(Averaged)
def begin_averaged(rule, d, origin, w, mean, square):
    for k in range(square.shape[0]):
        total = 0.0
        for j in range(d):
            total += (w[k * d + j] - origin[j]) ** 2
            mean[k * d + j] = w[k * d + j]
        square[k] = total


@generic("rule", inline=True)
def correct(rule, form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
    """One update w += e grad Q(q), which counts ``weight`` in the mean; return the growth of |w - origin|^2."""


@correct.on(Decaying)
def correct_last(rule, form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
    w[at + q] = now + e  # tabular: the one kind that takes this rule
    return 0.0


@correct.on(Averaged)
def correct_averaged(rule, form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden):
    return nudge(form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden)


@generic("rule", inline=True)
def project(rule, d, origin, w, at, mean, weight, square):
    """Pull w back onto the ball if it has left it; return |w - origin|^2."""


@project.on(Decaying)
def project_nothing(rule, d, origin, w, at, mean, weight, square):
    return square


@project.on(Averaged)
def project_onto_ball(rule, d, origin, w, at, mean, weight, square):
    if square > rule.radius * rule.radius:
        _pull(rule.radius, d, origin, w, at, mean, weight)
        return rule.radius * rule.radius
    return square


@kernel
def _pull(radius, d, origin, w, at, mean, weight):
    square = 0.0
    for j in range(d):
        square += (w[at + j] - origin[j]) ** 2
    shrink = min(radius / math.sqrt(square), 1.0) - 1.0
    for j in range(d):
        x = shrink * (w[at + j] - origin[j])
        w[at + j] += x
        mean[at + j] += weight * x


@generic("rule")
def finish(rule, w, mean):
    """Leave in w what the rule returns."""


@finish.on(Decaying)
def finish_last(rule, w, mean):
    pass


@finish.on(Averaged)
def finish_averaged(rule, w, mean):
    w[:] = mean


@inlined
def _update_round(
    rule, form, first, column, value, policy, theta, tables, gradients, origin, w, mean, square, d, n_signals,
    rate, weight, gamma, choice_number, words, lane, n, total, hidden, visits,
):  # fmt: skip
    """The TD updates of lanes 0..n-1."""
    for i in range(n):
        q = feature_row(form, first, value, policy, theta, tables, gradients, np.int64(lane[CHOICE + i]), -1)
        after = feature_row(form, first, value, policy, theta, tables, gradients, np.int64(lane[NEXT + i]), q)
        record = words * lane[CHOICE + i] + U64(1)
        step = rate_at(rule, rate, visits, q)
        for k in range(n_signals):
            f = choice_number[record + U64(k)]
            at = k * d
            now = predict(form, first, column, value, w, at, q, hidden)
            then = predict(form, first, column, value, w, at, after, hidden)
            e = step * (f + gamma * then - now)
            square[k] += correct(
                rule, form, first, column, value, origin, w, at, q, now, e, mean, weight, hidden
            )
            total[k] += f


@kernel
def run_td(
    tables, actions, rng, chain, visits, rule, policy, theta, gradients, gamma, n_steps, d, origin, w, mean, total,
    pair,
):  # fmt: skip
    """Make n_steps transitions with their updates; return how many pairs of law nu stand in ``pair``.

    theta, gradients : the actor's parameters and room for the gradients of its logits, for tangent features
    rng : uint64[4, LANES], chain : int64[2, LANES]: streams and chains, moved on
    visits : int64[C], how often each choice has been updated so far, for the rule that asks; counted on
    origin : float64[d], w_0
    w : float64[(1+m) d], the critics: in, where to start; out, what the rule returns
    mean : float64[(1+m) d], work space
    total : float64[1+m], sums of the signals over the pairs moved from
    pair : int64[n], last pairs of the segments that ended; where none did, one pair that a chain has reached
    """
    n_signals, stop = tables.n_signals, tables.stop
    log_gamma_inverse = tables.log_gamma_inverse
    start_entry, branch_entry, entry = tables.start_entry, tables.branch_entry, actions.entry
    choice_word, choice_number, words = tables.choice_word, tables.choice_number, U64(tables.words)
    form, first, column, value = critic_form(policy, gradients)
    hidden = np.empty(n_hidden(form))
    lane = np.empty(N_WORDS, np.uint64)
    square = np.zeros(n_signals)
    total[:] = 0.0
    begin(rule, d, origin, w, mean, square)
    load_chains(rng, chain, choice_word, words, lane)
    n_rounds = (n_steps + LANES - 1) // LANES
    n_pairs = 0
    ended = U64(1)
    for k in range(n_rounds):
        if leaves(stop):
            break
        n = min(LANES, n_steps - k * LANES)
        if ended != U64(0):
            restart_chains(
                tables, actions, start_entry, entry, choice_word, words, log_gamma_inverse, lane, n
            )
        rate = rate_of(rule, k * LANES)
        weight = (n_rounds - k) / n_rounds
        if n == LANES:  # the same line twice, for with a constant number of lanes the compiler unrolls it
            draw_next(tables, actions, branch_entry, entry, lane, LANES)
        else:
            draw_next(tables, actions, branch_entry, entry, lane, n)
        _update_round(
            rule, form, first, column, value, policy, theta, tables, gradients, origin, w, mean, square, d,
            n_signals, rate, weight, gamma, choice_number, words, lane, n, total, hidden, visits,
        )  # fmt: skip
        ended, n_pairs = move_on(choice_word, words, lane, n, pair, n_pairs)
        for i in range(n_signals):
            square[i] = project(rule, d, origin, w, i * d, mean, weight, square[i])
    store_chains(rng, chain, lane)
    finish(rule, w, mean)
    if n_pairs == 0:
        pair[0] = chain[0, 0]
        n_pairs = 1
    return n_pairs
