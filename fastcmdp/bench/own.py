"""A method of one's own among those of the library: what it has to have, and how it enters.

It learns a policy from a model and a budget of samples, however it likes; the bench measures that policy exactly. It
enters the registry of methods, so that `compare` and sweeps take it too.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.algorithms.base import Algorithm, Output, Run
from fastcmdp.check import is_positive, require
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import BudgetError, ModelError, SettingError
from fastcmdp.exact import occupancy
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.worlds.world import World

Float = NDArray[np.float64]


@runtime_checkable
class Method(Protocol):
    """A method of one's own.

    Attributes
    ----------
    name : str
        Small letters, digits and hyphens.
    version : int
        Raised whenever it computes something else: results are stored under it.
    """

    name: str
    version: int

    def learn(self, cmdp: CMDP, samples: int, rng: np.random.Generator) -> Float:
        """A policy, float64[C], the probability of each choice, after at most so many draws of a next state.

        All of its randomness is from ``rng``, so that a run can be made again. Raise `fastcmdp.errors.BudgetError` if
        that is too little for it: the model is then left out at this budget.
        """


class _State(NamedTuple):
    """The arrays of replicates; ``policy`` float64[R, C]."""

    theta: Float
    dual: Float
    rng: NDArray[np.uint64]
    outer: NDArray[np.int64]
    samples: NDArray[np.int64]
    failed: NDArray[np.int64]
    sums: Float
    policy: Float


@dataclass(frozen=True)
class Own(Algorithm):
    """Settings of a method of one's own: its budget. One outer step is the whole run."""

    budget: int = 1000

    constants: ClassVar[Mapping[str, tuple[float, float]]] = {}
    tabular_only: ClassVar[bool] = True
    output: ClassVar[Output] = Output(after=True)
    method: ClassVar[Method]

    def __post_init__(self) -> None:
        self.check({"outer": 1, "budget": 1})

    def outer_samples(self, cmdp: CMDP | Simulator) -> float:
        """Expected transitions of the run."""
        return float(self.budget)

    @classmethod
    def for_epsilon(cls, cmdp: CMDP | Simulator, epsilon: float, **settings: Any) -> Self:
        """Refused: a method of one's own has no schedule for a target."""
        raise SettingError(f"{cls.name} runs at budgets of samples only: give samples")

    @classmethod
    def for_samples(cls, cmdp: CMDP | Simulator, samples: float, **settings: Any) -> Self:
        """Settings for a budget."""
        require(is_positive(samples) and np.ndim(samples) == 0, "samples", samples, "a positive number")
        return cls(outer=1, budget=max(int(samples), 1))

    def run(self, world: World, seed: int, replicates: int) -> Run:
        """Set up replicates that have not learned yet."""
        return OwnRun(self, world, seed, replicates)


class OwnRun(Run):
    """Replicates of a method of one's own."""

    state: _State

    def __init__(self, settings: Own, world: World, seed: int, replicates: int) -> None:
        super().__init__(settings, world)
        common = self.common_state(seed, replicates)
        choices = world.table.n_choices
        uniform = 1.0 / np.diff(world.table.state_to_choice)[world.table.choice_state]
        self.state = _State(**common, policy=np.broadcast_to(uniform, (replicates, choices)).copy())
        self.set_up_actions()

    def work(self) -> None:
        """Nothing is shared."""
        return

    def advance(self, r: int, n_steps: int, work: None) -> None:
        """Let the method learn, from a generator that the seed of the run makes."""
        if n_steps < 1 or self.state.outer[r] > 0:
            return
        rng = np.random.default_rng(self.state.rng[r].ravel().tolist())
        method, cmdp, budget = self.settings.method, self.world.table, self.settings.budget
        policies = np.asarray(method.learn(cmdp, budget, rng), np.float64)
        try:
            self.state.policy[r] = cmdp.action_probabilities(policies)
        except ModelError as error:
            raise SettingError(f"{method.name}: what learn() returned is no policy: {error}") from error
        self.state.outer[r] = 1
        self.state.samples[r] = budget
        self.state.sums[r] = np.nan  # no estimates: it is measured exactly

    def policies(self) -> Float:
        """The policies that were learned, float64[R, C]."""
        return self.state.policy.copy()


def enter(method: Method) -> str:
    """Enter a method under its name; once more replaces it.

    Raises
    ------
    SettingError
        It lacks something, its name is not allowed, or is that of a method of the library.

    Examples
    --------
    >>> import numpy as np
    >>> class Uniform:
    ...     name, version = "uniform-policy", 1
    ...     def learn(self, cmdp, samples, rng):
    ...         return 1.0 / np.diff(cmdp.state_to_choice)[cmdp.choice_state]
    >>> enter(Uniform())
    'uniform-policy'
    >>> leave("uniform-policy")
    """
    if isinstance(method, type):
        method = method()
    if not isinstance(method, Method):
        raise SettingError(f"{method!r}: a method has name, version and learn(cmdp, samples, rng)")
    name = method.name
    if not isinstance(name, str) or not name.replace("-", "").isalnum() or name != name.lower():
        raise SettingError(f"name = {name!r}: small letters, digits and hyphens are expected")
    known = ALGORITHMS.get(name)
    if known is not None and not issubclass(known, Own):
        raise SettingError(f"name = {name!r}: that is a method of the library")
    require(isinstance(method.version, int), "version", method.version, "a whole number")
    about = {"name": name, "version": method.version, "method": method, "__module__": __name__}
    ALGORITHMS[name] = dataclass(frozen=True)(type(f"Own_{name.replace('-', '_')}", (Own,), about))
    return name


def leave(name: str) -> None:
    """Take a method of one's own out again; what is not there is no error."""
    if issubclass(ALGORITHMS.get(name, Own), Own):
        ALGORITHMS.pop(name, None)


def enter_named(text: str) -> str:
    """Enter the method `MODULE:NAME`, a class or an object in a module that can be imported.

    Raises
    ------
    SettingError
        There is no such module or name; or as `enter`.
    """
    place, _, name = text.partition(":")
    try:
        method = getattr(importlib.import_module(place), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(f"{text!r}: MODULE:NAME of a method is expected ({error})") from error
    return enter(method)


def mixture(cmdp: CMDP, policies: Float) -> Float:
    """The stationary policy with the value of the even mixture of policies: for methods whose output is one.

    Parameters
    ----------
    cmdp : CMDP
    policies : float64[n, C]

    Returns
    -------
    float64[C]
        Where no policy ever is, the mean of theirs.

    Examples
    --------
    >>> import numpy as np, fastcmdp as fc
    >>> river = fc.envs.river_swim()
    >>> drift, swim = np.tile([1.0, 0.0], 8), np.tile([0.0, 1.0], 8)
    >>> both = fc.evaluate(river, mixture(river, np.stack([drift, swim]))).reward
    >>> bool(np.isclose(both, (fc.evaluate(river, drift).reward + fc.evaluate(river, swim).reward) / 2))
    True
    """
    rows = np.atleast_2d(np.asarray(policies, np.float64))
    nu = np.mean([occupancy(cmdp, policy) for policy in rows], axis=0)
    total = np.add.reduceat(nu, cmdp.state_to_choice[:-1])[cmdp.choice_state]
    return np.asarray(np.where(total > 0, nu / np.where(total > 0, total, 1.0), rows.mean(axis=0)))


__all__ = ["BudgetError", "Method", "enter", "enter_named", "leave", "mixture"]
