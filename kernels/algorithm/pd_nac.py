"""The single loop of PD-NAC on an explicit model: one transition a step, at a cost that does not grow with S or A.

The recursion moves every entry of theta at every step, by alpha (Q_r + lambda . Q_c). A row of critics changes
only when its state is left, so until then a row of theta moves along a line: with N the sum of alpha over the steps
made and L that of alpha lambda, theta(s, .) is behind by (N - N_s) Q_r + (L - L_s) . Q_c, N_s and L_s their
values when the row was last brought up to date. When a critic moves by D, its logit is corrected by
-((N - N_s) D_r + (L - L_s) . D_c), for the next time will multiply the new critic by the whole stretch.

alpha is given, or c over the root of the mean, over all looks before, of the variance of Q_r + lambda . Q_c over the
actions of the state at hand, evenly weighted. A rate that is given is in proportion to the range of Q and not to what
choices differ by. The mean is since the start: critics remember, so a level that forgot sooner than they do would be
high just while they hold what is rare, and make its steps short. Where beta is not given, the nth visit of a choice
takes a rate of at least 1/n: a critic near the 0 where it began makes the policy leave what it does not know yet.

Actions are drawn from alias entries of an earlier policy and accepted with probability exp(x - max x), x the change
of a logit since then; once rejected, from entries made anew. The law is exactly pi_k: with p the earlier policy and w =
exp(x - max x), p w + (1 - sum p w) pi_k = pi_k, as pi_k = p w / sum p w. A bound on max x - x that takes no loop over
the row accepts nearly all, so rows are seldom brought up to date, and the chain does not wait for exponentials.

Words come from lane 0. A pair is drawn from one word, high half the state and low half the action, and a second one,
high half whether to explore and low half whether to accept. A rejection takes one more, high half the action. (Exact
draws spend a word each: state, explore, action, accept.) A look at the start distribution takes one word for the time
to the next, one for the state, and where the chain restarts there, the action as above. Looks follow the transition;
the first pair is a restart.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.policy.softmax import refresh_states
from fastcmdp.kernels.sampling.lanes import branch_bits
from fastcmdp.kernels.sampling.rollouts import geometric_horizon
from fastcmdp.kernels.sampling.tables import (
    RowSpace,
    branch_row,
    draw_action,
    draw_label,
    draw_start,
    state_of_row,
)
from fastcmdp.kernels.streams import next_word, to_unit
from fastcmdp.kernels.words import LOW, ONE, TWO, U64

UNKNOWN, LEAST = (
    0.04,
    1e-9,
)  # spread of Q over its range: before any is seen, and the least that is told apart


class Steps(NamedTuple):
    """Settings of the loop."""

    n_outer: int  # K
    alpha: float  # or c
    adaptive: bool
    eta: np.ndarray  # float64[m]
    beta: float
    first: float  # 1: the nth visit of a choice takes a rate of at least 1/n; 0: it does not
    explore: float  # epsilon
    restart: bool  # the chain restarts with probability 1 - gamma a step
    every: bool  # the dual step sums over the start distribution at every step, else at one start state now and then
    dual_max: np.ndarray  # float64[m]


class RunState(NamedTuple):
    """A run of R replicates: all that is needed to go on, and nothing else. W = max(2, 1+m)."""

    theta: np.ndarray  # float64[R, C]: each row as it was when last brought up to date; all after step K
    dual: np.ndarray  # float64[R, m]
    rng: np.ndarray  # uint64[R, 4, LANES]; lane 0 serves
    outer: np.ndarray  # int64[R]
    samples: np.ndarray  # int64[R]
    failed: np.ndarray  # int64[R]: -1
    drawn: np.ndarray  # float64[R, C]: the logits that alias entries were made from
    critic: np.ndarray  # float64[R, C, W]: Q_r, Q_c1, ...; without a constraint a column of zeros
    visits: np.ndarray  # int64[R, C]
    highest: np.ndarray  # float64[R, W]: no critic of the signal has been above
    since: np.ndarray  # float64[R, S, W]: (N_s, L_s)
    top: np.ndarray  # float64[R, S]: largest of theta - drawn in the row, when it was last brought up to date
    choice: np.ndarray  # int64[R]: the pair at hand, -1 before the first
    left: np.ndarray  # int64[R]: steps until the next look at the start distribution
    gone: np.ndarray  # float64[R, W]: (N, L)
    spread: np.ndarray  # float64[R, 2]: mean variance of Q_L over actions, and of so many looks
    sums: np.ndarray  # float64[R, 1+2m]: of the plug-in estimates of J, and of the multipliers


class Work(NamedTuple):
    """Work space of one thread, and what all threads read."""

    start_state: np.ndarray  # int64[n]: support of the start distribution
    start_prob: np.ndarray  # float64[n]
    prob: np.ndarray  # float64[A]
    one: np.ndarray  # int64[1]
    space: RowSpace


@generic("entry", inline=True)
def low_bits(entry, rng, word):
    """The low half of a word, or all of a new one for exact draws."""


@low_bits.on(types.uint32)
def low_half(entry, rng, word):
    return word & LOW


@low_bits.on(types.float64)
def new_word(entry, rng, word):
    return next_word(rng, 0)


@generic("entry", inline=True)
def unit(entry, bits):
    """Bits of a draw (32, or a word for exact draws) as a number in [0, 1)."""


@unit.on(types.uint32)
def packed_unit(entry, bits):
    return np.float64(bits) * 2.0**-32


@unit.on(types.float64)
def exact_unit(entry, bits):
    return to_unit(bits)


@inlined
def _catch_up(theta, drawn, critic, since, gone, top, s, first, last, wide):
    """Bring row s of theta up to date, and the largest change of its logits since its entries were made."""
    for k in range(wide):
        ahead = gone[k] - since[wide * s + k]
        since[wide * s + k] = gone[k]
        for q in range(first, last):
            theta[q] += ahead * critic[wide * q + k]
    top[s] = -np.inf
    for q in range(first, last):
        top[s] = max(top[s], theta[q] - drawn[q])


@kernel
def _renew(policy, tables, actions, theta, drawn, s, one, space):
    """Make the alias entries of state s from its logits."""
    one[0] = s
    refresh_states(policy, theta, tables, actions, space, one, 1)
    for q in range(tables.state_to_choice[s], tables.state_to_choice[s + 1]):
        drawn[q] = theta[q]


@kernel
def _settle(policy, tables, actions, theta, drawn, critic, since, gone, top, s, q, accept, rng, work):
    """Accept or reject choice q of state s by the exact change of its logit; once rejected, draw from new entries."""
    first, last = U64(tables.state_to_choice[s]), U64(tables.state_to_choice[s + ONE])
    _catch_up(theta, drawn, critic, since, gone, top, s, first, last, U64(gone.shape[0]))
    if accept < math.exp(theta[q] - drawn[q] - top[s]):
        return q
    _renew(policy, tables, actions, theta, drawn, np.int64(s), work.one, work.space)
    top[s] = 0.0
    bits = branch_bits(actions.entry, next_word(rng, 0))
    return draw_action(actions.entry, U64(tables.state_row[s]), bits)


@inlined
def _draw(
    alias, state_to_choice, theta, drawn, critic, since, gone, top, highest, explore, s, code, rng, word
):  # fmt: skip
    """Choice drawn from explore / A + (1 - explore) pi_k(. | s), s the state with this row code, and a doubt.

    The doubt is negative, or the number in [0, 1) with which to ``_settle`` whether the choice is accepted.
    """
    second = next_word(rng, 0)
    bits = low_bits(alias, rng, word)
    first = U64(state_to_choice[s])
    n = U64(state_to_choice[s + ONE]) - first
    explores = unit(alias, branch_bits(alias, second)) < explore
    q = draw_action(alias, code, bits)
    accept = unit(alias, low_bits(alias, rng, second))
    # max x - x(q) is at most this, for no critic has been above ``highest``.
    wide = U64(gone.shape[0])
    i, j = wide * s, wide * q
    ahead = (gone[0] - since[i]) * (highest[0] - critic[j])
    ahead += (gone[1] - since[i + ONE]) * (highest[1] - critic[j + ONE])
    for k in range(TWO, wide):
        ahead += (gone[k] - since[i + k]) * (highest[k] - critic[j + k])
    behind = top[s] - (theta[q] - drawn[q]) + ahead
    doubt = -1.0 if explores or accept < 1.0 - behind else accept
    return (first + min(U64(unit(alias, bits) * np.float64(n)), n - ONE) if explores else q), doubt


@inlined
def _add_start_values(
    state_to_choice, start_state, start_prob, prob, theta, drawn, critic, since, gone, top, value, horizon, every,
    start, wide,
):  # fmt: skip
    """Add to value the plug-in estimates of J, over all start states or from this one."""
    for j in range(start_state.shape[0] if every else 1):
        at = U64(start_state[j]) if every else start
        first, last = U64(state_to_choice[at]), U64(state_to_choice[at + ONE])
        _catch_up(theta, drawn, critic, since, gone, top, at, first, last, wide)
        most = -np.inf
        for q in range(first, last):
            most = max(most, theta[q])
        total = 0.0
        for q in range(first, last):
            prob[q - first] = math.exp(theta[q] - most)
            total += prob[q - first]
        # A look comes once in 1/(1-gamma) steps and stands for all of them.
        share = (start_prob[j] if every else horizon) / total
        for q in range(first, last):
            for k in range(wide):
                value[k] += share * prob[q - first] * critic[wide * q + k]


@inlined
def _spread(critic, dual, first, last, wide):
    """Variance of Q_r + lambda . Q_c over the choices first..last-1, evenly weighted."""
    mean, square = 0.0, 0.0
    for q in range(first, last):
        off = critic[wide * q] - critic[wide * first]
        for i in range(dual.shape[0]):
            off += dual[i] * (critic[wide * q + ONE + U64(i)] - critic[wide * first + ONE + U64(i)])
        mean += off
        square += off * off
    n = np.float64(last - first)
    return max(square / n - (mean / n) ** 2, 0.0)


@inlined
def _rate(scale, adaptive, variance, horizon):
    """Alpha, from the mean variance; a spread that is not known yet counts as a share of the range of Q."""
    if not adaptive:
        return scale
    spread = variance**0.5
    return scale / (max(spread, LEAST * horizon) if spread > 0.0 else UNKNOWN * horizon)


@kernel
def advance(policy, tables, actions, steps, state, work, r, n_steps):
    """Make n_steps steps of replicate r: transition, actor, dual, critics; all rows are up to date after step K."""
    m = tables.n_signals - 1
    # Arrays of their own names and unsigned indices, as in rollouts.
    start_entry, entry, alias = tables.start_entry, tables.branch_entry, actions.entry
    choice_word, signal, words = tables.choice_word, tables.choice_number, U64(tables.words)
    state_to_choice, row_state = tables.state_to_choice, tables.row_state
    start_state, start_prob, prob = work.start_state, work.start_prob, work.prob
    wide = U64(state.critic.shape[2])
    theta, drawn, critic = state.theta[r], state.drawn[r], state.critic[r].reshape(-1)
    since, top, highest = state.since[r].reshape(-1), state.top[r], state.highest[r]
    dual, sums, rng = state.dual[r], state.sums[r], state.rng[r]
    dual_max, eta = steps.dual_max, steps.eta
    scale, adaptive, least, average = steps.alpha, steps.adaptive, steps.beta, steps.first
    explore, restart, every, visits = steps.explore, steps.restart, steps.every, state.visits[r]
    log_gamma_inverse, horizon = tables.log_gamma_inverse, tables.horizon
    gamma = 1.0 - 1.0 / horizon
    gone, error, value = state.gone[r], np.zeros(wide), np.zeros(wide)
    variance, looks = state.spread[r, 0], state.spread[r, 1]
    alpha = _rate(scale, adaptive, variance, horizon)
    left = state.left[r]
    if state.choice[r] >= 0:
        here = U64(state.choice[r])
        s = U64(tables.choice_state[here])
    else:
        left = geometric_horizon(next_word(rng, 0), log_gamma_inverse)
        word = next_word(rng, 0)
        code = draw_start(start_entry, branch_bits(entry, word))
        s = state_of_row(row_state, code)
        here, doubt = _draw(
            alias, state_to_choice, theta, drawn, critic, since, gone, top, highest, explore,
            s, code, rng, word,
        )  # fmt: skip
        if doubt >= 0.0:
            here = _settle(
                policy, tables, actions, theta, drawn, critic, since, gone, top, s, here, doubt, rng,
                work,
            )  # fmt: skip
    for _ in range(n_steps):
        # s' ~ P(. | s, a), a' ~ behaviour of pi_k in s'
        word = next_word(rng, 0)
        first, n = branch_row(choice_word[words * here])
        code = draw_label(entry, first, n, branch_bits(entry, word))
        there = state_of_row(row_state, code)
        then, doubt = _draw(
            alias, state_to_choice, theta, drawn, critic, since, gone, top, highest, explore,
            there, code, rng, word,
        )  # fmt: skip
        if doubt >= 0.0:
            then = _settle(
                policy, tables, actions, theta, drawn, critic, since, gone, top, there, then, doubt, rng,
                work,
            )  # fmt: skip
        old, new, pay = wide * here, wide * then, words * here + ONE
        visits[here] += 1
        beta = max(least, average / visits[here])
        error_0 = beta * (signal[pay] + gamma * critic[new] - critic[old])
        error_1 = beta * (signal[pay + ONE] + gamma * critic[new + ONE] - critic[old + ONE])
        for more in range(TWO, wide):
            error[more] = beta * (signal[pay + more] + gamma * critic[new + more] - critic[old + more])
        look = left == 0
        left -= 1
        if look or every:
            # The plug-in estimates of J under pi_k, before anything of step k moves.
            for k in range(wide):
                value[k] = 0.0
            word, code, start = U64(0), U64(0), U64(0)
            if look:
                left = geometric_horizon(next_word(rng, 0), log_gamma_inverse)
                word = next_word(rng, 0)
                code = draw_start(start_entry, branch_bits(entry, word))
                start = state_of_row(row_state, code)
            _add_start_values(
                state_to_choice, start_state, start_prob, prob, theta, drawn, critic, since, gone, top, value,
                horizon, every, start, wide,
            )  # fmt: skip
            for k in range(1 + m):
                sums[k] += value[k]
            if look and restart:
                there = start
                then, doubt = _draw(
                    alias, state_to_choice, theta, drawn, critic, since, gone, top, highest, explore,
                    there, code, rng, word,
                )  # fmt: skip
                if doubt >= 0.0:
                    then = _settle(
                        policy, tables, actions, theta, drawn, critic, since, gone, top, there, then, doubt, rng,
                        work,
                    )  # fmt: skip
        # theta moves by alpha (Q_r + lambda_k . Q_c), later; now only the sums of alpha and alpha lambda_k
        gone[0] += alpha
        for i in range(m):
            gone[1 + i] += alpha * dual[i]
            sums[1 + m + i] += dual[i]
        if look:
            spread = _spread(critic, dual, U64(state_to_choice[s]), U64(state_to_choice[s + ONE]), wide)
            looks += 1.0
            variance += (spread - variance) / looks
            alpha = _rate(scale, adaptive, variance, horizon)
        if look or every:
            for i in range(m):
                dual[i] = min(max(dual[i] - eta[i] * value[1 + i], 0.0), dual_max[i])
        row = wide * s
        change = (gone[0] - since[row]) * error_0 + (gone[1] - since[row + ONE]) * error_1
        critic[old] += error_0
        critic[old + ONE] += error_1
        if critic[old] > highest[0]:
            highest[0] = critic[old]
        if critic[old + ONE] > highest[1]:
            highest[1] = critic[old + ONE]
        for more in range(TWO, wide):
            change += (gone[more] - since[row + more]) * error[more]
            critic[old + more] += error[more]
            highest[more] = max(highest[more], critic[old + more])
        theta[here] -= change
        here, s = then, there
    state.samples[r] += n_steps
    state.outer[r] += n_steps
    state.choice[r], state.left[r] = here, left
    state.spread[r, 0], state.spread[r, 1] = variance, looks
    if state.outer[r] == steps.n_outer:
        for at in range(U64(top.shape[0])):
            first, last = U64(state_to_choice[at]), U64(state_to_choice[at + ONE])
            _catch_up(theta, drawn, critic, since, gone, top, at, first, last, wide)


@kernel
def logits(tables, state, r, out):
    """Write theta_k of replicate r, float64[C], without bringing anything up to date."""
    for q in range(tables.choice_state.shape[0]):
        out[q] = state.theta[r, q]
        for k in range(state.gone.shape[1]):
            ahead = state.gone[r, k] - state.since[r, tables.choice_state[q], k]
            out[q] += ahead * state.critic[r, q, k]
