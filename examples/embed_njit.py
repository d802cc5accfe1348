"""PD-ANPG written anew in a user's own njit loop, from the pieces of fastcmdp.embed.

    python examples/embed_njit.py

The loop is Algorithm 2 of the paper with one change that no setting of `fc.PDANPG` offers: the actor moves only in
every other outer step, the multipliers in all.
"""

from __future__ import annotations

import numpy as np
from numba import njit

import fastcmdp as fc
from fastcmdp import embed


@njit(nogil=True)
def train(model, seed, outer, inner, eta, zeta, dual_max):
    """What the policies of the last half earn and cost on average (an estimate), their multipliers, transitions."""
    n_choices, m = model.choice_state.size, model.n_signals - 1
    theta, omega, dual = np.zeros(n_choices), np.zeros(n_choices), np.zeros(m)
    value, mean_dual = np.zeros(1 + m), np.zeros(m)
    policy = embed.policy(model, uniform(model))
    lanes, batch = embed.streams(seed, 0), embed.batch(model, inner)
    steps = embed.momentum(2.0, 0.1)  # G^2 = 2 for tabular softmax
    target = np.empty(inner)
    transitions = 0
    for k in range(outer):
        transitions += embed.sample_batch(model, policy, lanes, True, batch)
        if 2 * k >= outer:
            value += batch.occupancy_total[inner] / (outer // 2)
            mean_dual += dual / (outer // 2)
        for h in range(inner):
            target[h] = batch.advantage[h, 0]
            for i in range(m):
                target[h] += dual[i] * batch.advantage[h, 1 + i]
            target[h] *= model.horizon
        embed.dual_step(dual, zeta, batch.occupancy_total[inner, 1:], dual_max)
        if k % 2 == 0:
            embed.asgd_tabular(model, policy, steps, batch.pair, target, omega)
            theta += eta * omega
            embed.softmax(model, theta, policy)
    return value, mean_dual, transitions


@njit
def uniform(model):
    """Action probabilities of the policy that prefers nothing."""
    first = model.state_to_choice
    prob = np.empty(model.choice_state.size)
    for s in range(first.size - 1):
        prob[first[s] : first[s + 1]] = 1.0 / (first[s + 1] - first[s])
    return prob


def main(outer: int = 40_000) -> None:
    cmdp = fc.envs.garnet(n_states=20, n_actions=4, n_branches=3, gamma=0.9, seed=1)
    value, dual, transitions = train(embed.from_cmdp(cmdp), 0, outer, 200, 0.003, 0.0005, 50.0)
    best, found = fc.optimum(cmdp), cmdp.to_user_values(value)
    print(f"{transitions:,} transitions")
    print(f"reward      {found[0]:.3f}, optimum {best.reward:.3f}")
    print(f"constraint  {found[1]:.3f}, limit {cmdp.limits[0]:.3f}")
    print(f"multiplier  {cmdp.to_user_duals(dual)[0]:.3f}, optimum {best.duals[0]:.3f}")


if __name__ == "__main__":
    main()
