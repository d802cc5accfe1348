"""Problems behind a simulator, whose policies are evaluated where they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fastcmdp.errors import SettingError
from fastcmdp.kernels.simulator.simulate import LiveActions
from fastcmdp.kernels.simulator.walks import weigh_actions
from fastcmdp.policies import BoundPolicy, Policy
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import Float, Int, World


@dataclass(frozen=True)
class SimulatedWorld(World):
    """A `Simulator` with the compiled functions that rollouts or chains call."""

    model: Simulator
    simulation: str = "rollouts"

    @classmethod
    def of(cls, simulator: Simulator, policy: Policy, simulation: str = "rollouts") -> Self:
        """Bind a policy class to a simulator and compile it for "rollouts", "corrected" ones, or "chains".

        Raises
        ------
        ModelError
            A policy class that does not fit.
        """
        bound = policy.on_simulator(simulator)
        return cls(simulator, _compiled(simulator, bound, simulation), bound, simulation=simulation)

    def __reduce__(self) -> Any:
        """Pickled without the addresses of functions, which are compiled again."""
        return _again, (self.model, self.policy, self.simulation)

    @property
    def start(self) -> Float:
        """Empty: states have no numbers."""
        return np.zeros(0)

    @property
    def n_state(self) -> int:
        """Numbers in a state."""
        return self.model.n_state

    @property
    def n_gradients(self) -> int:
        """0: choices have no numbers."""
        return 0

    def actions(self, theta: Float, n_visited: int, n_draws: float) -> LiveActions:
        """The policy at theta, with room for so many visited states."""
        return self.model.live_actions(self.policy, theta, n_visited)

    def refresh(self, actions: LiveActions, theta: Float) -> None:
        """Nothing is kept of theta."""

    def probabilities(self, actions: LiveActions, theta: Float) -> Float:
        """Refused: there is no table of them.

        Raises
        ------
        SettingError
        """
        raise SettingError("a simulator has no table of action probabilities; its policy is theta")

    def chances(self, theta: Float | None, policy: Float | None, observation: Any) -> tuple[Int, Float]:
        """The actions and their probabilities at an observation."""
        assert theta is not None
        model = self.model
        x, weight = np.zeros(model.n_rows * model.n_features), np.zeros(model.n_actions)
        hidden, state = np.zeros(self.policy.n_hidden), model.observed(observation)
        total = weigh_actions(self.tables, self.policy.data, theta, x, hidden, state, weight)
        if not np.isfinite(total):
            raise SettingError(
                f"observation = {observation!r}: its features, or logits there, are not finite"
            )
        return np.arange(model.n_actions) + model.first_action, weight / total

    def fault(self, actions: LiveActions) -> str:
        """What went wrong in the user's functions, in a sentence; "" if nothing did."""
        return self.model.fault(actions)


def _compiled(simulator: Simulator, bound: BoundPolicy, simulation: str) -> Any:
    return simulator.world(bound, simulation == "chains", simulation == "corrected")


def _again(simulator: Simulator, bound: BoundPolicy, simulation: str) -> SimulatedWorld:
    """A pickled world in another process."""
    return SimulatedWorld(simulator, _compiled(simulator, bound, simulation), bound, simulation=simulation)
