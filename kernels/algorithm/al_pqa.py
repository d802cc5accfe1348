"""The policy's step of projected Q-ascent: pi(.|s) <- P[pi(.|s) + step Q_L(s, .)], P the Euclidean projection.

With the multiplier [lambda - beta J_c]_+ in L, renewed every step, it ascends the augmented Lagrangian. On
probabilities P projects on the simplex of each state. For policies of a class, P is the projection on the class, with
states weighted by how often pi visits them:

    theta <- argmin over theta' of  sum_s d(s) |pi_theta'(.|s) - goal(.|s)|^2,    goal = pi + step (Q_L - V_L).

One step of Gauss and Newton, from theta, is least squares of goal - pi on pi g, g the score:

    minimise  sum_q d pi^2 (g . x)^2 - 2 d pi (g . x) (goal - pi)  +  damping sum_q d pi (g . x)^2  +  floor |x|^2,

the damping four times as large after each try that does not come nearer, or moves a log pi too far (from a small pi
the line leads far beyond the goal). Its right side, sum_q d pi g step (Q_L - V_L), is the policy gradient times a
number. So what stays where it is is a stationary point of the augmented Lagrangian within the class; a projection by
divergence, or on the simplex before, does not have that. For the same reason goal - pi is cut at -1,000 pi and no
earlier: probabilities that shrink stay some that can come back.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fastcmdp.kernels.algorithm.tabular import improve, log_probabilities, project, subtract_means
from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.policy.scores import add_score, forget_scores, score_times, table_scores
from fastcmdp.kernels.policy.softmax import write_logits

DAMPING = 1e-3  # at first
TRIES = 12
DEEPEST = 1e3  # goal - pi is at least -DEEPEST pi
FARTHEST = 0.5  # what a log pi may move in a step, to first order
FLOOR = 1e-9  # of the mean of the metric's diagonal


class ProjectedAscent(NamedTuple):
    """Projected Q-ascent on probabilities."""


class FittedAscent(NamedTuple):
    """Projected Q-ascent within a class of policies."""

    policy: Any


class TablePolicy(NamedTuple):
    """The probabilities that scores are taken at."""

    prob: np.ndarray  # float64[C]


class FitSpace(NamedTuple):
    """Work space of the projection on a class."""

    goal: np.ndarray  # float64[C]
    trial: np.ndarray  # float64[C], probabilities
    weight: np.ndarray  # float64[S], d
    nearness: np.ndarray  # float64[d, d]: sum d pi^2 g g'
    metric: np.ndarray  # float64[d, d]: sum d pi g g'
    factor: np.ndarray  # float64[d, d]
    right: np.ndarray  # float64[d]
    row: np.ndarray  # float64[d], a score
    pair: np.ndarray  # int64[C]: 0, 1, ..
    scores: Any


@improve.on(ProjectedAscent)
def improve_by_projection(rule, tables, prob, step, first, theta, base, work):
    x = work.lagrangian
    for q in range(x.shape[0]):
        x[q] = prob[q] + step * x[q]
    project(tables.state_to_choice, x)
    log_probabilities(x, x)


@kernel
def write_probabilities(policy, theta, state_to_choice, out):
    """Probabilities of all choices; no alias entries."""
    for s in range(state_to_choice.shape[0] - 1):
        first, last = state_to_choice[s], state_to_choice[s + 1]
        top = write_logits(policy, theta, s, first, last, out)
        total = 0.0
        for q in range(first, last):
            out[q] = math.exp(out[q] - top)
            total += out[q]
        for q in range(first, last):
            out[q] /= total


@kernel
def weigh_states(state_to_choice, visit, weight):
    """How often each state is visited, by any of its choices."""
    weight[:] = 0.0
    for s in range(weight.shape[0]):
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            weight[s] += visit[q]


@kernel
def distance(state_to_choice, weight, prob, goal):
    """Weighted sum over states of the squared distance of prob from the goal."""
    total = 0.0
    for s in range(weight.shape[0]):
        square = 0.0
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            square += (prob[q] - goal[q]) ** 2
        total += weight[s] * square
    return total


@kernel
def collect(policy, theta, tables, prob, own):
    """Both matrices (lower halves) and the right side of the least squares; return the slots of the scores."""
    state_to_choice, row = tables.state_to_choice, own.row
    n_slots = table_scores(policy, theta, tables, TablePolicy(prob), own.pair, prob.shape[0], own.scores)
    own.nearness[:] = 0.0
    own.metric[:] = 0.0
    own.right[:] = 0.0
    for s in range(state_to_choice.shape[0] - 1):
        for q in range(state_to_choice[s], state_to_choice[s + 1]):
            row[:] = 0.0
            add_score(own.scores, q, 1.0, row)
            once = own.weight[s] * prob[q]
            twice = once * prob[q]
            for i in range(row.shape[0]):
                if row[i] == 0.0:
                    continue
                own.right[i] += once * (own.goal[q] - prob[q]) * row[i]
                for j in range(i + 1):
                    product = row[i] * row[j]
                    own.metric[i, j] += once * product
                    own.nearness[i, j] += twice * product
    return n_slots


@kernel
def solve_positive(matrix, right, out):
    """Solve with the lower half of a positive definite matrix, by Cholesky in place; False where it is none."""
    d = right.shape[0]
    for i in range(d):
        for j in range(i + 1):
            x = matrix[i, j]
            for k in range(j):
                x -= matrix[i, k] * matrix[j, k]
            if i == j and not x > 0.0:
                return False
            matrix[i, j] = math.sqrt(x) if i == j else x / matrix[j, j]
    for i in range(d):
        x = right[i]
        for k in range(i):
            x -= matrix[i, k] * out[k]
        out[i] = x / matrix[i, i]
    for back in range(d):
        i = d - 1 - back
        x = out[i]
        for k in range(i + 1, d):
            x -= matrix[k, i] * out[k]
        out[i] = x / matrix[i, i]
    return True


@improve.on(FittedAscent)
def improve_by_fit(rule, tables, prob, step, first, theta, base, work):
    policy, own, moved = rule.policy, work.own, work.moved
    d = theta.shape[0]
    subtract_means(tables.state_to_choice, prob, work.lagrangian)
    for q in range(prob.shape[0]):
        own.goal[q] = prob[q] + max(step * work.lagrangian[q], -DEEPEST * prob[q])
    weigh_states(tables.state_to_choice, work.tally.visit, own.weight)
    n_slots = collect(policy, theta, tables, prob, own)
    floor, damping = 0.0, DAMPING
    for i in range(d):
        floor += FLOOR * own.metric[i, i] / d
    now = distance(tables.state_to_choice, own.weight, prob, own.goal)
    for _ in range(TRIES):
        for i in range(d):
            for j in range(i + 1):
                own.factor[i, j] = own.nearness[i, j] + damping * own.metric[i, j]
            own.factor[i, i] += floor
        if not solve_positive(own.factor, own.right, moved):
            break
        farthest = 0.0
        for q in range(prob.shape[0]):
            farthest = max(farthest, abs(score_times(own.scores, q, moved)))
        for i in range(d):
            moved[i] += theta[i]
        write_probabilities(policy, moved, tables.state_to_choice, own.trial)
        nearer = distance(tables.state_to_choice, own.weight, own.trial, own.goal) <= now
        if nearer and farthest <= FARTHEST:
            forget_scores(own.scores, n_slots)
            return
        damping *= 4.0
    moved[:] = theta
    forget_scores(own.scores, n_slots)
