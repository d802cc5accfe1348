"""What a critic as control variate changes in the theory, and how the multiplier swings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp.exact import q_values
from fastcmdp.kernels.learning.asgd import Momentum
from fastcmdp.theory import (
    corrected_law,
    dual_dynamics,
    first_order_error,
    inner_moments,
    point,
    sample_law,
    target_second_moment,
)


def model(seed=0, gamma=0.4):
    return fc.envs.garnet(n_states=3, n_actions=2, n_branches=2, gamma=gamma, seed=seed)


def policy(cmdp, seed=1):
    x = np.random.default_rng(seed).random(cmdp.n_choices) + 0.1
    return x / np.add.reduceat(x, cmdp.state_to_choice[:-1])[cmdp.choice_state]


def enumerated(cmdp, pi, w, q, most):
    """Mean and second moment of C over all paths of up to ``most`` + 1 transitions, with their probabilities."""
    f, gamma = cmdp.signals, cmdp.gamma
    bar = np.add.reduceat(pi[:, None] * w, cmdp.state_to_choice[:-1])
    mean, second = np.zeros(2), np.zeros((2, 2))
    paths = [(1.0, q, np.zeros(2))]
    for t in range(most + 1):
        ended = (1.0 - gamma) * gamma**t
        further = []
        for p, choice, total in paths:
            for b in range(cmdp.choice_to_branch[choice], cmdp.choice_to_branch[choice + 1]):
                to = int(cmdp.branch_target[b])
                chance = p * cmdp.branch_prob[b]
                new = total + f[choice] + gamma * bar[to] - w[choice]
                mean += ended * chance * new
                second += ended * chance * np.outer(new, new)
                further += [
                    (chance * pi[c], c, new)
                    for c in range(cmdp.state_to_choice[to], cmdp.state_to_choice[to + 1])
                ]
        paths = further
    return mean, second


def test_the_law_is_that_of_all_paths_for_a_random_critic():
    cmdp = model(gamma=0.1)
    pi, w = policy(cmdp), np.random.default_rng(2).standard_normal((cmdp.n_choices, 2))
    mean, second = corrected_law(cmdp, pi, w)
    for q in range(cmdp.n_choices):
        by_paths = enumerated(cmdp, pi, w, q, 6)
        np.testing.assert_allclose(mean[q], by_paths[0], atol=1e-5)
        np.testing.assert_allclose(second[q], by_paths[1], atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_targets_are_unbiased_whatever_the_critic(seed):
    cmdp = model(seed, gamma=0.9)
    pi, w = policy(cmdp), 5.0 * np.random.default_rng(seed).standard_normal((cmdp.n_choices, 2))
    q = q_values(cmdp, pi)
    np.testing.assert_allclose(w + corrected_law(cmdp, pi, w)[0], q, atol=1e-9)
    mean, second = corrected_law(cmdp, pi, np.zeros_like(w))
    law = sample_law(cmdp, pi)
    np.testing.assert_allclose(mean, law.q_mean, atol=1e-9)
    np.testing.assert_allclose(second, law.q_second, atol=1e-8)


def test_a_right_critic_leaves_the_noise_of_transitions_alone():
    cmdp = model(gamma=0.95)
    at = point(cmdp, theta=np.zeros(cmdp.n_choices), dual=[0.5])
    plain = target_second_moment(at, np.zeros((cmdp.n_choices, 2)))
    right = target_second_moment(at, q_values(cmdp, at.pi))
    assert right < 0.02 * plain


def test_the_start_takes_the_place_of_zero():
    cmdp = model(gamma=0.8)
    at = point(cmdp, theta=np.zeros(cmdp.n_choices), dual=[0.3])
    momentum = Momentum(0.8, 0.3, 0.2, 0.1)
    zero = np.zeros(cmdp.n_choices)
    assert first_order_error(at, momentum, 20, zero) == pytest.approx(inner_moments(at, momentum, 20).bias)
    assert first_order_error(at, momentum, 20, at.natural) == pytest.approx(0.0, abs=1e-12)
    half = first_order_error(at, momentum, 20, 0.5 * at.natural)
    assert half == pytest.approx(0.5 * first_order_error(at, momentum, 20, zero))


def swing(cmdp, eta, zeta, kp, steps):
    """Multipliers of exact natural gradients from near the saddle point, and N_c there: tabular softmax."""
    best = fc.optimum(cmdp)
    pi, dual, before = np.maximum(best.policy, 1e-6), 1.02 * best.raw_duals[0], None
    theta, path = np.log(pi), []
    for _ in range(steps):
        weight = np.exp(theta - np.maximum.reduceat(theta, cmdp.state_to_choice[:-1])[cmdp.choice_state])
        pi = weight / np.add.reduceat(weight, cmdp.state_to_choice[:-1])[cmdp.choice_state]
        q = q_values(cmdp, pi)
        v = np.add.reduceat(pi[:, None] * q, cmdp.state_to_choice[:-1])
        j = float(cmdp.start @ v[:, 1])
        theta = theta + eta * (q - v[cmdp.choice_state]) @ [1.0, dual] / (1.0 - cmdp.gamma)
        dual -= zeta * j + (0.0 if before is None else kp * (j - before))
        before = j
        path.append(dual)
    q = q_values(cmdp, best.policy)
    v = np.add.reduceat(best.policy[:, None] * q, cmdp.state_to_choice[:-1])
    nu = fc.occupancy(cmdp, best.policy)
    natural = float(nu @ (q - v[cmdp.choice_state])[:, 1] ** 2) / (1.0 - cmdp.gamma) ** 2
    return np.array(path) - best.raw_duals[0], natural


def crossings(path):
    return np.flatnonzero([a < 0 <= b for a, b in itertools.pairwise(path)])


@pytest.mark.parametrize("make", [fc.envs.river_swim, lambda: fc.envs.garnet(n_states=20)])
def test_the_plain_multiplier_swings_with_the_predicted_period(make):
    cmdp = make()
    eta = 0.02
    _, natural = swing(cmdp, eta, 0.0, 0.0, 1)
    zeta = (2.0 * np.pi / 120.0) ** 2 / (eta * natural)
    period, damping = dual_dynamics(eta, zeta, natural)
    assert period == pytest.approx(120.0)
    path, _ = swing(cmdp, eta, zeta, 0.0, int(6 * period))
    measured = np.diff(crossings(path)[1:]).mean()
    assert measured == pytest.approx(period, rel=0.2)
    assert damping == 0.0
    kp = np.sqrt(zeta / (eta * natural))
    assert dual_dynamics(eta, zeta, natural, kp)[1] == pytest.approx(0.5)
    damped, _ = swing(cmdp, eta, zeta, kp, int(6 * period))
    assert np.abs(damped[-int(2 * period) :]).max() < 0.1 * np.abs(path[-int(2 * period) :]).max()
