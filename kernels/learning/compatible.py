"""Where the inner loop begins: weights w_f with g(s, a) . w_f near A_f(s, a), the critic's advantages, g the score.

The policy step theta += eta w_L moves logits by eta A_L then, up to a constant a state. Tabular softmax needs no
weights: A_f itself is one, in every state. For all other policies they are learned from the states of each batch for
the next, by Kaczmarz steps

    w_f += g (A_f - g . w_f) / (|g|^2 + 0.1 G^2)

on two actions of each visited state: the one drawn, and one in turn, for else an action that is no longer drawn would
keep what was learned of it long ago.
"""

from __future__ import annotations

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.policy.live import LiveNetwork
from fastcmdp.kernels.policy.network import Network
from fastcmdp.kernels.policy.scores import add_score, score_square, score_times
from fastcmdp.kernels.policy.tabular import Tabular

CAREFUL = 0.1  # of G^2 is added to the squared length of a score


@generic("policy")
def n_rows(policy, n_pairs):
    """How many scores are collected: of the pairs, and of as many choices in turn where weights are learned."""


@n_rows.on(Tabular)
def rows_of_pairs(policy, n_pairs):
    return n_pairs


@n_rows.otherwise
def rows_in_turn(policy, n_pairs):
    return 2 * n_pairs


@generic("policy")
def add_misfit(policy, scores, direction, dual, advantage, target):
    """target[h] += A_L - g_h . w_L at the pairs: what the start of the inner loop leaves of the critic's advantages.

    direction : float64[1+m, d], w; advantage : float64[>= H, 1+m]
    """


@add_misfit.on(Tabular)
def no_misfit(policy, scores, direction, dual, advantage, target):
    pass


@add_misfit.otherwise
def misfit_of_weights(policy, scores, direction, dual, advantage, target):
    for h in range(target.shape[0]):
        for f in range(direction.shape[0]):
            weight = 1.0 if f == 0 else dual[f - 1]
            target[h] += weight * (advantage[h, f] - score_times(scores, h, direction[f]))


@generic("policy")
def forgetting(policy):
    """Share of the weights that is forgotten a batch: features that move leave weights behind that fit no more."""


@forgetting.otherwise
def no_forgetting(policy):
    return 0.0


@forgetting.on(Network, LiveNetwork)
def some_forgetting(policy):
    return 0.01


@generic("policy")
def holding(policy):
    """Share by which theta is drawn to its start at least, after a batch with a logit out of bounds.

    Networks with such logits lose their slopes, and with them the way back. What holds them pulls at constraints too,
    so it is little.
    """


@holding.otherwise
def no_holding(policy):
    return 0.0


@holding.on(Network, LiveNetwork)
def some_holding(policy):
    return 0.003


@generic("policy")
def learn_direction(policy, scores, n_scores, bound, advantage, direction, move):
    """Learn w from rows 0..n_scores-1 of the scores and the critic's advantages there; bound: G^2.

    move : float64[n_scores, 1+m], g . w_f of each row as it was met
    """


@learn_direction.on(Tabular)
def nothing_to_learn(policy, scores, n_scores, bound, advantage, direction, move):
    pass


@learn_direction.otherwise
def kaczmarz(policy, scores, n_scores, bound, advantage, direction, move):
    keep = 1.0 - forgetting(policy)
    for f in range(direction.shape[0]):
        w = direction[f]
        for i in range(w.shape[0] if keep < 1.0 else 0):
            w[i] *= keep
    for h in range(n_scores):
        step = 1.0 / (score_square(scores, h) + CAREFUL * bound)
        for f in range(direction.shape[0]):
            w = direction[f]
            move[h, f] = score_times(scores, h, w)
            add_score(scores, h, step * (advantage[h, f] - move[h, f]), w)


@generic("policy")
def response(policy, prob, advantage, n_actions, move, chance, n_pairs, f, g):
    """Sum over the pairs of E_pi[d_f d_g], d_f what the logits of a pair's state move by along w_f.

    prob : float64[H, A]; advantage : float64[H, A, 1+m]; n_actions : int64[H], of the pairs' states
    chance : float64[2H], the probabilities of the rows' choices
    """


@response.on(Tabular)
def response_of_advantages(policy, prob, advantage, n_actions, move, chance, n_pairs, f, g):
    total = 0.0
    for h in range(n_pairs):
        for a in range(n_actions[h]):
            total += prob[h, a] * advantage[h, a, f] * advantage[h, a, g]
    return total


@response.otherwise
def response_of_moves(policy, prob, advantage, n_actions, move, chance, n_pairs, f, g):
    """From the two rows of a state, one from pi and one as good as uniform, each weighted for both.

    Not from the advantages: what the class cannot express of them moves no policy, and where nothing moves any more
    the multipliers would rest at a violation.
    """
    total = 0.0
    for row in range(2 * n_pairs):
        p = chance[row]
        total += p / (p + 1.0 / n_actions[row % n_pairs]) * move[row, f] * move[row, g]
    return total


@inlined
def critic_advantage(critic, mean, dual, q, s):
    """W - Wbar of the Lagrangian, at choice q of state s."""
    advantage = critic[q, 0] - mean[s, 0]
    for i in range(dual.shape[0]):
        advantage += dual[i] * (critic[q, 1 + i] - mean[s, 1 + i])
    return advantage


@kernel
def weigh(rows, dual, n, target):
    """target[h] = the Lagrangian's, from those of the signals in rows[h]."""
    for h in range(n):
        total = rows[h, 0]
        for i in range(dual.shape[0]):
            total += dual[i] * rows[h, 1 + i]
        target[h] = total


@generic("policy")
def write_start(policy, tables, critic, space, direction, dual, out):
    """out = horizon w_L, where the inner loop begins, float64[d]: omega is horizon times what moves logits by A_L."""


@write_start.on(Tabular)
def write_advantages(policy, tables, critic, space, direction, dual, out):
    for q in range(out.shape[0]):
        out[q] = tables.horizon * critic_advantage(critic, space.mean, dual, q, tables.choice_state[q])


@write_start.otherwise
def write_weights(policy, tables, critic, space, direction, dual, out):
    out[:] = 0.0
    step_along(direction, dual, tables.horizon, 0.0, out, out)


@kernel
def step_along(direction, dual, eta, share, origin, theta):
    """theta += eta w_L, and then towards the origin by a share of the way."""
    for f in range(direction.shape[0]):
        weight = eta if f == 0 else eta * dual[f - 1]
        w = direction[f]
        for i in range(theta.shape[0]):
            theta[i] += weight * w[i]
    for i in range(theta.shape[0]):
        theta[i] -= share * (theta[i] - origin[i])
