"""Worlds: problems as runs see them. The one place that tells tables and simulators apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.exact import Optimum
from fastcmdp.policies import LogLinear, Policy, TabularSoftmax
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.simulated import SimulatedWorld
from fastcmdp.worlds.table import EXACT_CHOICES, TableWorld
from fastcmdp.worlds.world import World

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = [
    "EXACT_CHOICES",
    "SimulatedWorld",
    "TableWorld",
    "World",
    "default_policy",
    "has_table",
    "is_simulator",
    "world_of",
]


def is_simulator(value: object) -> TypeIs[Simulator]:
    """Whether a value of any kind is a simulator."""
    return isinstance(value, Simulator)


def default_policy(model: CMDP | Simulator) -> Policy:
    """The policy class where none is given."""
    return LogLinear() if is_simulator(model) else TabularSoftmax()


def has_table(model: CMDP | Simulator) -> TypeIs[CMDP]:
    """Whether policies can be evaluated exactly.

    Raises
    ------
    ModelError
        Neither a model nor a simulator.
    """
    if not isinstance(model, CMDP | Simulator):
        raise ModelError(f"the model is of type {type(model).__name__}; give a CMDP or a Simulator")
    return isinstance(model, CMDP)


def world_of(
    model: CMDP | Simulator,
    policy: Policy | None = None,
    known: Optimum | bool | None = None,
    draws: str = "fast",
    *,
    simulation: str = "rollouts",
) -> World:
    """A problem as runs see it; ``known`` as in `TableWorld.of`, ``simulation``: how a simulator is run.

    Raises
    ------
    ModelError, SettingError, InfeasibleError
        What is given does not fit together, or no policy meets the limits.
    """
    policy = policy or default_policy(model)
    if has_table(model):
        return TableWorld.of(model, policy, known, draws)
    if known:
        raise SettingError("optimum is given or asked for, and a simulator has none: leave it out")
    return SimulatedWorld.of(model, policy, simulation or "rollouts")
