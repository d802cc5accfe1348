"""What a simulator's step costs in fastcmdp beside the same loop written by hand in njit.

    python bench/simulators.py [--rounds 21]

Both roll out 20,000 episodes with a geometric horizon from the start, under a log-linear policy drawn anew in each
state: same step and feature functions, same draws in the same order, hence the same sums. The hand-written loop calls
the functions directly, so that the compiler can put them in place. By turns in one process, ratios are medians.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from typing import Any

import numpy as np
from numba import njit

import fastcmdp as fc
from fastcmdp.kernels import draws
from fastcmdp.kernels.simulator.simulate import simulate
from fastcmdp.kernels.streams import LANES

JOBS = 20_000


def by_hand(simulator: fc.Simulator) -> Any:
    """The loop around a simulator's own functions, for features of states or of choices."""
    step, reset, features = (f.alive for f in (simulator._step, simulator._reset, simulator._features))
    A, n, m, by_choice = (
        simulator.n_actions,
        simulator.n_features,
        simulator.n_constraints,
        simulator.by_choice,
    )

    @njit(error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
    def dot(theta: Any, first: int, x: Any) -> float:
        total = 0.0
        for j in range(n):
            total += theta[first + j] * x[j]
        return total

    @njit(error_model="numpy", nogil=True)
    def loop(theta: Any, rng: Any, gamma: float, k: int, jobs: int, out: Any) -> int:
        state, costs, x, z = np.empty(k), np.zeros(max(m, 1)), np.empty(n), np.empty(A)
        inverse = 1.0 / math.log(gamma)
        transitions = 0
        for job in range(jobs):
            horizon = int(math.log(1.0 - draws.uniform(rng)) * inverse)
            reset(state, rng)
            for i in range(m + 1):
                out[job, i] = 0.0
            for _ in range(horizon + 1):
                top = -np.inf
                if not by_choice:
                    features(state, x)
                for a in range(A):
                    if by_choice:
                        features(state, a, x)
                        z[a] = dot(theta, 0, x)
                    else:
                        z[a] = dot(theta, a * n, x)
                    top = max(top, z[a])
                total = 0.0
                for a in range(A):
                    z[a] = math.exp(z[a] - top)
                    total += z[a]
                u = draws.uniform(rng) * total
                action = A - 1
                for a in range(A - 1):
                    u -= z[a]
                    if u < 0.0:
                        action = a
                        break
                for i in range(m):
                    costs[i] = 0.0
                out[job, 0] += step(state, action, rng, costs)
                for i in range(m):
                    out[job, 1 + i] += costs[i]
            transitions += horizon + 1
        return transitions

    return loop


def compare(simulator: fc.Simulator, rounds: int) -> None:
    bound = fc.LogLinear().bind(simulator)
    theta = 0.3 * np.random.default_rng(0).standard_normal(bound.n_parameters)
    actions = simulator.live_actions(bound, theta, JOBS)
    world, loop = simulator.world(bound), by_hand(simulator)
    choice, row, last = np.full(JOBS, -1), np.zeros(JOBS, np.uint32), np.zeros(JOBS, np.int64)
    total, hand = (np.zeros((JOBS, world.n_signals)) for _ in range(2))
    ratios, ns = [], []
    for i in range(rounds + 1):
        rng = np.zeros((4, LANES), np.uint64)
        stream = simulator.stream(i)
        rng[:, 0] = stream
        began = time.perf_counter()
        made = simulate(world, actions, rng, choice, row, total, last)
        middle = time.perf_counter()
        same = loop(theta, stream, simulator.gamma, simulator.n_state, JOBS, hand)
        end = time.perf_counter()
        assert made == same
        if i > 0:  # the first compiles
            ratios.append((middle - began) / (end - middle))
            ns.append((middle - began) / made * 1e9)
    np.testing.assert_allclose(simulator.to_user_values(total)[:, 0], hand[:, 0], rtol=1e-6, atol=1e-9)
    print(
        f"{simulator.name}: {statistics.median(ns):.0f} ns a step, {statistics.median(ratios):.2f} times the loop "
        f"by hand ({min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    make = fc.simulators
    for simulator in (
        make.tandem_queue(), make.inventory(), make.delivery_fleet(), make.marketing(), make.linear_quadratic(),
    ):  # fmt: skip
        compare(simulator, rounds)
