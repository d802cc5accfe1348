"""What CRPO's critics and estimates on a simulator are off by, as the documentation says.

    python bench/critics.py

All on the tandem queue, whose uniform policy spends power 1 a step. Two minutes on two cores.
"""

from __future__ import annotations

import numpy as np

import fastcmdp as fc
from fastcmdp.worlds import SimulatedWorld

NETWORK = fc.NeuralSoftmax(hidden=(16,))


def lag() -> None:
    """Constraint of the last quarter by inner steps; the limit is 10."""
    queue = fc.simulators.tandem_queue()
    for inner in (600, 6000):
        late = fc.solve(queue, fc.CRPO(outer=1000, inner=inner), replicates=2).last_quarter
        print(f"inner {inner}: power {late.constraints.ravel().round(2).tolist()}, limit {queue.limits[0]:g}")


def admitted() -> None:
    """Estimates over N_0 of a policy that does not move and spends exactly its limit."""
    queue = fc.simulators.tandem_queue(gamma=0.9, budget=10.0)
    for inner in (20, 100, 1000):
        result = fc.solve(queue, fc.CRPO(outer=400, inner=inner, alpha=1e-12), replicates=16)
        spent = result.mixture.constraints
        error = spent.std(ddof=1) / len(spent) ** 0.5
        print(f"inner {inner}: said to spend {np.nanmean(spent):.2f} +- {error:.2f} of {queue.limits[0]:g}")


def plugged_in() -> None:
    """Estimates of J from critics, beside Monte Carlo, for policies that do not move."""
    queue = fc.simulators.tandem_queue(gamma=0.8)
    rng = np.random.default_rng(0)
    for policy in (fc.LogLinear(), fc.NeuralSoftmax(hidden=(6,))):
        bound = policy.bind(queue)
        theta = 0.5 * rng.standard_normal(bound.n_parameters)
        value = queue.evaluate(policy, theta, rollouts=400_000)
        right = np.append(value.reward, value.constraints)
        for c_step in (1.0, 0.1):
            settings = fc.CRPO(outer=10**9, inner=4000, alpha=1e-300, tol=1e9, c_step=c_step)
            problem = SimulatedWorld(queue, queue.world(bound, True), bound)
            run = settings.run(problem, 0, 1)
            run.state.theta[:] = theta
            work, found = run.work(), []
            for step in range(600):
                run.advance(0, 1, work)
                if step >= 100:  # critics have settled
                    found.append(queue.to_user_values(work.value[None])[0])
            off = np.abs(np.mean(found, axis=0) / right - 1.0).max()
            print(f"{type(policy).__name__}, c_step {c_step:g}: J off by {off:.1%} at most")


def balls() -> None:
    """Measured mean squares of advantages, of networks' critics in larger balls."""
    queue = fc.simulators.tandem_queue()
    default = 2.0 * (queue.n_actions / NETWORK.bind(queue).critic_bound) ** 0.5 / (1.0 - queue.gamma)
    for times in (1, 2, 4):
        settings = fc.CRPO(outer=1000, inner=2000, radius=times * default)
        result = fc.solve(queue, settings, policy=NETWORK, replicates=2)
        level = result.run.state.average[:, 0].max()
        print(f"radius {times} times the default: mean square of Q - V {level:.3g}")


if __name__ == "__main__":
    for part in (lag, admitted, plugged_in, balls):
        print(f"\n{(part.__doc__ or '').strip()}")
        part()
