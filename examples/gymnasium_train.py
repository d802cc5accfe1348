"""Stable-Baselines3 trains PPO on a fastcmdp environment, with a Lagrangian penalty for the constraint.

    pip install 'fastcmdp[gym]' stable-baselines3
    python examples/gymnasium_train.py

The environment terminates with the discount (see fc.envs.to_gymnasium), so PPO runs with gamma = 1 and a sum over an
episode estimates J. PPO maximises reward - multiplier * cost; after each iteration the multiplier moves against the
limit, by one of the forms of fc.duals. What was learnt is read off the network in every state, and evaluated exactly.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO

import fastcmdp as fc


class Lagrangian(gymnasium.Wrapper):
    """Reward minus multiplier times cost; keeps the sum of costs of every finished episode."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.multiplier, self.episode_cost, self.finished = (
            0.0,
            0.0,
            [],
        )  # multiplier: what a unit of cost takes off

    def step(self, action):
        state, reward, terminated, truncated, info = self.env.step(action)
        self.episode_cost += info["cost"]
        if terminated or truncated:
            self.finished.append(self.episode_cost)
            self.episode_cost = 0.0
        return state, reward - self.multiplier * info["cost"], terminated, truncated, info


def train(
    cmdp: fc.CMDP, iterations: int, transitions: int, rate: float, seed: int
) -> tuple[np.ndarray, float]:
    """Action probabilities of the last quarter of the iterations, averaged, and the multiplier."""
    env = Lagrangian(fc.envs.to_gymnasium(cmdp))
    ppo = PPO(
        "MlpPolicy", env, n_steps=transitions, batch_size=256, n_epochs=6, gamma=1.0, gae_lambda=0.95,
        learning_rate=2e-3, ent_coef=0.003, seed=seed, device="cpu",
    )  # fmt: skip
    multiplier = fc.duals.Multiplier(fc.duals.PI(lead=2.0, share=0.5), rate)
    mean, last = np.zeros(cmdp.n_choices), max(iterations // 4, 1)
    for k in range(iterations):
        env.finished.clear()
        ppo.learn(transitions, reset_num_timesteps=False)
        if env.finished:
            env.multiplier = multiplier.update(np.mean(env.finished) - cmdp.limits[0])
        if k >= iterations - last:
            mean += probabilities(ppo, cmdp) / last
    return mean, env.multiplier


def probabilities(ppo: PPO, cmdp: fc.CMDP) -> np.ndarray:
    """pi(a|s) of every choice, from the network."""
    states, _ = ppo.policy.obs_to_tensor(np.arange(cmdp.n_states))
    with torch.no_grad():
        prob = ppo.policy.get_distribution(states).distribution.probs.numpy().astype(float)
    prob /= prob.sum(axis=1, keepdims=True)
    return prob[cmdp.choice_state, cmdp.action_of_choice]


def main(iterations: int = 30, transitions: int = 1024) -> None:
    torch.set_num_threads(1)
    cmdp = fc.envs.garnet(n_states=20, n_actions=4, n_branches=3, gamma=0.9, seed=1)
    prob, multiplier = train(cmdp, iterations, transitions, rate=0.1, seed=0)
    best, uniform = fc.optimum(cmdp), fc.evaluate(cmdp, np.full(cmdp.n_choices, 0.25))
    found = fc.evaluate(cmdp, prob)
    print(f"reward      {found.reward:.3f}, optimum {best.reward:.3f}, uniform policy {uniform.reward:.3f}")
    print(f"constraint  {found.constraints[0]:.3f}, limit {cmdp.limits[0]:.3f}")
    print(f"multiplier  {multiplier:.3f}, optimum {best.duals[0]:.3f}")


if __name__ == "__main__":
    main()
