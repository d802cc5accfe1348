"""Policies that act: from an observation to an action, in anyone's loop."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.npz import read_arrays, write_arrays
from fastcmdp.policies import Policy
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds import TableWorld, World, world_of

if TYPE_CHECKING:
    from fastcmdp.runs.result import Result

Float = NDArray[np.float64]

FORMAT = 1


@dataclass(frozen=True)
class Agent:
    """A policy at fixed parameters: called with an observation, it draws an action.

    Observations are states 0..S-1 of models with a table, states (float64[n_state]) of simulators, and what the
    environment returns for ``GymSimulator``. Actions are numbered as the model's user numbers them
    (``CMDP.action_of_choice``, the environment's own).

    Attributes
    ----------
    world : World
    theta : float64[d] or None
    policy : float64[C] or None
        Probabilities of the choices, on tables; they win over theta.
    rng : numpy.random.Generator
        What calls draw from.
    """

    world: World
    theta: Float | None
    policy: Float | None = None
    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    def probabilities(self, observation: Any) -> tuple[NDArray[np.int64], Float]:
        """The actions that there are, int64[n], and their probabilities.

        Raises
        ------
        SettingError
            No observation of this model.
        """
        return self.world.chances(self.theta, self.policy, observation)

    def act(self, observation: Any, rng: np.random.Generator | None = None) -> int:
        """Draw an action, from ``rng`` or the agent's own stream."""
        actions, chance = self.probabilities(observation)
        u = (self.rng if rng is None else rng).random()
        at = min(int(np.searchsorted(np.cumsum(chance), u * chance.sum(), side="right")), len(actions) - 1)
        return int(actions[at])

    __call__ = act


def agent_of(result: Result, kind: str, replicate: int, seed: int | None) -> Agent:
    """See `Result.agent`."""
    rng, world = np.random.default_rng(seed), result.run.world
    if kind == "best":
        best = result.best
        return Agent(world, best.theta, best.policy, rng)
    if kind == "last" and not isinstance(world, TableWorld):
        return Agent(world, result.theta[replicate], None, rng)
    return Agent(world, result.theta[replicate], result.policy(kind, replicate), rng)  # type: ignore[arg-type]


def save_policy(path: str | Path, agent: Agent) -> None:
    """Write an agent's policy to a .npz file: parameters, or probabilities on tables; the model is not in it.

    Examples
    --------
    >>> import tempfile, fastcmdp as fc
    >>> cmdp = fc.envs.river_swim()
    >>> agent = fc.solve(cmdp, samples=1e4).agent()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fc.save_policy(f"{folder}/policy.npz", agent)
    ...     again = fc.load_policy(f"{folder}/policy.npz", cmdp)
    >>> bool((again.probabilities(3)[1] == agent.probabilities(3)[1]).all())
    True
    """
    if not isinstance(agent, Agent):
        raise ModelError(
            f"a {type(agent).__name__} is no agent: save_policy(path, result.agent()), or result.agent('last_quarter') "
            "and the like"
        )
    head = {"format": FORMAT, "model": agent.world.model.fingerprint()}
    arrays: dict[str, Any] = {"header": np.frombuffer(json.dumps(head).encode(), np.uint8)}
    arrays |= {name: a for name, a in (("theta", agent.theta), ("policy", agent.policy)) if a is not None}
    write_arrays(path, arrays)


def load_policy(path: str | Path, model: CMDP | Simulator, policy: Policy | None = None) -> Agent:
    """An agent of what ``save_policy`` wrote, on the model and policy class that it was learned with.

    Raises
    ------
    ModelError
        Not a saved policy, damaged, or of another model.
    """
    arrays = read_arrays(path)
    try:
        head = json.loads(arrays.pop("header").tobytes())
        if head["format"] != FORMAT:
            raise ValueError(f"format {head['format']}, and {FORMAT} is expected")
        if not arrays or arrays.keys() - {"theta", "policy"}:
            raise ValueError(f"arrays {sorted(arrays)}")
        known = head["model"]
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: not a saved policy, or damaged ({error})") from error
    if known != model.fingerprint():
        raise ModelError(f"{path}: the policy belongs to another model; give the model it was learned on")
    world = world_of(model, policy, known=False)
    for name, size in (("theta", world.policy.n_parameters), ("policy", model.n_choices)):
        array = arrays.get(name)
        if array is not None and (array.shape != (size,) or not np.isfinite(array).all()):
            raise ModelError(f"{path}: {name} has shape {array.shape}; {size} finite numbers are expected")
    return Agent(world, arrays.get("theta"), arrays.get("policy"))
