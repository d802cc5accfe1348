"""Gymnasium environments without a table, stepped in Python: the slow path."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcmdp.errors import ModelError
from fastcmdp.simulators.functions import PROTOTYPES
from fastcmdp.simulators.simulator import Simulator

_HANDLE, _OVER = 0, 1  # in the state vector; the observation follows


class GymSimulator(Simulator):
    """A Gymnasium environment as a simulator, for ``solve`` and ``evaluate``; every step is a step in Python.

    Some 10,000 to 100,000 transitions a second, a thousandth of what compiled simulators make, on one processor
    whatever the number of threads. Use ``fc.envs.from_gymnasium`` where the environment has a table.

    Q and V rollouts start again at a visited state, so the environment is copied with ``copy.deepcopy`` (three times
    a pair) and given a random generator of its own: whatever it draws from must be its ``np_random``. An episode that
    terminates stays in its last state and earns and costs nothing more. Time limits make an environment's state
    incomplete: they are taken off where an ID is given; a truncation that comes all the same counts as an end.

    Parameters
    ----------
    env : str, or a function without arguments that makes an environment
    cost : function (observation, action, next_observation, info) -> m numbers, optional
        Default: ``info["cost"]``.
    gamma : float
    limits, sense, names, reward_range, cost_ranges, trial
        As for ``Simulator``.
    options : dict, optional
        Keyword arguments of ``gymnasium.make``.

    Observations of Box, Discrete, MultiDiscrete and MultiBinary spaces, and Tuples and Dicts of them, are flattened
    to features (Discrete as one-hot), with a 1 before them. Actions must be Discrete.

    Raises
    ------
    ModelError
        Another space (named), an environment that cannot be copied, a step that raises, no "cost" in info, values that
        are not finite.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> def off_centre(observation, action, after, info):
    ...     return abs(after[0]) > 0.5
    >>> cart = fc.GymSimulator("CartPole-v1", cost=off_centre, gamma=0.9, limits=[1.0], trial=50)
    >>> cart.n_actions, cart.n_features
    (2, 5)
    >>> result = fc.solve(cart, fc.PDANPG(outer=2, inner=5, pilot=1))
    >>> result.finished
    True
    """

    def __init__(
        self,
        env: str | Callable[[], Any],
        *,
        gamma: float,
        cost: Callable[..., Any] | None = None,
        limits: npt.ArrayLike | None = None,
        sense: str | Sequence[str] = "<=",
        names: Sequence[str] | None = None,
        reward_range: Sequence[float] | None = None,
        cost_ranges: Any = None,
        trial: int = 300,
        options: dict[str, Any] | None = None,
    ) -> None:
        try:
            import gymnasium
        except ImportError as error:
            raise ModelError(
                "gymnasium is not installed; get it with: pip install 'fastcmdp[gym]'"
            ) from error
        if isinstance(env, str):
            made = gymnasium.make(env, **({"max_episode_steps": -1} | (options or {})))
        elif callable(env):
            made = env()
        else:
            raise ModelError(f"env = {env!r}: give an ID, or a function that makes an environment")
        self._envs = _Environments(made, cost, gymnasium.spaces)
        calls = self._envs
        super().__init__(
            PROTOTYPES["step"](calls.step),
            PROTOTYPES["reset"](calls.reset),
            n_state=2 + calls.n_observed,
            n_actions=calls.n_actions,
            gamma=gamma,
            limits=limits,
            sense=sense,
            names=names,
            state_features=PROTOTYPES["state_features"](calls.features),
            n_features=1 + calls.n_observed,
            reward_range=reward_range,
            cost_ranges=cost_ranges,
            trial=trial,
            name=env if isinstance(env, str) else type(made.unwrapped).__name__,
            fork=PROTOTYPES["fork"](calls.fork),
        )

    def _run_trial(self, n: int) -> None:
        self._envs.n_costs = self.n_constraints
        try:
            super()._run_trial(n)
        except ModelError as error:
            if self._envs.raised is not None:
                raise ModelError(f"{self.name}: {self._envs.told()}") from self._envs.raised
            raise error

    def fault(self, actions: Any) -> str:
        """What went wrong in a run with these actions, in a sentence; "" if nothing did."""
        said = super().fault(actions)
        return f"{said}: {self._envs.told()}" if said and self._envs.raised is not None else said


class _Environments:
    """The functions that kernels call back, and the copies of the environment that state vectors refer to.

    A vector's first number says which copy it is: the thread's current one (0), or one of those that it has been told
    to keep (1, 2, ..). Kernels run one rollout at a time: all from the start first, then, from the kept copies, the
    others; the first reset after those begins a new batch, and what was kept is let go.
    """

    def __init__(self, env: Any, cost: Callable[..., Any] | None, spaces: Any) -> None:
        self.template, self.cost, self.n_costs = env, cost, 0
        self.flatten = spaces.utils.flatten
        self.space = env.observation_space
        _check_space(self.space, spaces, "observation")
        if not isinstance(env.action_space, spaces.Discrete):
            raise ModelError(
                f"the action space is {env.action_space}; only Discrete ones are supported: wrap the environment "
                "to choose among some of its actions"
            )
        self.first_action = int(env.action_space.start)
        self.n_actions = int(env.action_space.n)
        self.n_observed = int(spaces.utils.flatdim(self.space))
        self.local = threading.local()
        self.raised: Exception | None = None
        try:
            copy.deepcopy(env)
        except Exception as error:
            raise ModelError(
                f"{env} cannot be copied ({type(error).__name__}: {error}); rollouts start again at visited states, "
                "which needs copy.deepcopy of the environment (leave out rendering)"
            ) from error

    def told(self) -> str:
        """The exception that a callback caught."""
        return f"{type(self.raised).__name__}: {self.raised}"

    def _write(self, state: Any, handle: int, over: bool, observation: Any) -> None:
        state[_HANDLE], state[_OVER] = handle, over
        state[2:] = self.flatten(self.space, observation)

    def _view(self, pointer: int, n: int) -> Any:
        import ctypes

        return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_double)), (n,))

    def _word(self, rng: int) -> int:
        """A seed of 32 bits from the stream."""
        import ctypes

        from fastcmdp.kernels.draws import word

        stream = np.ctypeslib.as_array(ctypes.cast(rng, ctypes.POINTER(ctypes.c_uint64)), (4,))
        return int(word(stream)) >> 32

    def reset(self, state: int, rng: int) -> None:
        view, local = self._view(state, 2 + self.n_observed), self.local
        try:
            if getattr(local, "forked", True):
                local.kept, local.forked = [], False
            local.current = copy.deepcopy(self.template)
            observation, _ = local.current.reset(seed=self._word(rng))
            local.seen = observation
            self._write(view, 0, False, observation)
        except Exception as error:
            self.raised, view[0] = error, np.nan

    def fork(self, state: int, keep: int, rng: int) -> None:
        view, local = self._view(state, 2 + self.n_observed), self.local
        try:
            handle = int(view[_HANDLE])
            source, seen = (local.current, local.seen) if handle == 0 else local.kept[handle - 1]
            if keep:
                local.kept.append((copy.deepcopy(source), copy.deepcopy(seen)))
                view[_HANDLE] = len(local.kept)
                return
            local.forked = True
            local.current, local.seen = copy.deepcopy(source), copy.deepcopy(seen)
            # The copy would draw what its original draws.
            local.current.unwrapped.np_random = np.random.Generator(np.random.PCG64(self._word(rng)))
            view[_HANDLE] = 0
        except Exception as error:
            self.raised, view[0] = error, np.nan

    def step(self, state: int, action: int, rng: int, costs: int) -> float:
        view, local = self._view(state, 2 + self.n_observed), self.local
        try:
            if view[_OVER]:
                return 0.0
            after, reward, terminated, truncated, info = local.current.step(action + self.first_action)
            if self.n_costs:
                if self.cost is None and "cost" not in info:
                    raise ModelError('info has no "cost"; give cost=, a function of (o, a, next o, info)')
                values = info["cost"] if self.cost is None else self.cost(local.seen, action, after, info)
                array = np.atleast_1d(np.asarray(values, np.float64))
                if array.shape != (self.n_costs,):
                    raise ModelError(
                        f"costs have shape {array.shape} for {self.n_costs} limits; give one number a limit"
                    )
                self._view(costs, self.n_costs)[:] = array
            local.seen = after
            self._write(view, 0, terminated or truncated, after)
            return float(reward)
        except Exception as error:
            self.raised = error
            return float("nan")

    def features(self, state: int, out: int) -> None:
        view, seen = self._view(state, 2 + self.n_observed), self._view(out, 1 + self.n_observed)
        seen[0] = 1.0
        seen[1:] = view[2:]


def _check_space(space: Any, spaces: Any, what: str) -> None:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            _check_space(part, spaces, what)
    elif not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise ModelError(
            f"the {what} space has a part {space}; Box, Discrete, MultiDiscrete, MultiBinary, and Tuple and Dict "
            "of these are supported"
        )
