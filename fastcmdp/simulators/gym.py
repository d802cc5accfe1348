"""Gymnasium environments without a table, stepped in Python: the slow path."""

from __future__ import annotations

import copy
import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcmdp.errors import ModelError, SettingError
from fastcmdp.kernels.draws import word
from fastcmdp.simulators.checks import LARGEST
from fastcmdp.simulators.functions import called_back
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.simulators.trial import TrialRun

_HANDLE, _OVER = 0, 1  # in the state vector; the observation follows
_COMPARED = 100  # steps of two episodes from one seed that are compared


class GymSimulator(Simulator):
    """A Gymnasium environment as a simulator, for ``solve`` and ``evaluate``; every step is a step in Python.

    Some 10,000 to 100,000 transitions a second, a thousandth of what compiled simulators make, on one processor
    whatever the number of threads. Use ``fc.envs.from_gymnasium`` where the environment has a table.

    Q and V rollouts start again at a visited state, so the environment is copied with ``copy.deepcopy`` (three times
    a pair) and given a random generator of its own: whatever it draws from must be its ``np_random``. An episode that
    terminates stays in its last state and earns and costs nothing more. Time limits make an environment's state
    incomplete: they are taken off where an ID is given; a truncation that comes all the same counts as an end.

    A state's first number says which environment it is of: ``step`` takes the state that ``start`` or ``step`` gave
    last, and no other, for the environment itself has moved on.

    Parameters
    ----------
    env : str, or a function without arguments that makes an environment
        Steps return five values, or six with the cost third, as Safety-Gymnasium's.
    cost : function (observation, action, next_observation, info) -> m numbers, optional
        Default: the third of six values, or ``info["cost"]``.
    gamma : float
    limits, sense, names, reward_range, cost_ranges, trial
        As for ``Simulator``.
    options : dict, optional
        Keyword arguments of ``gymnasium.make``, or of the function.

    Observations of Box, Discrete, MultiDiscrete and MultiBinary spaces, and Tuples and Dicts of them, are flattened
    to features (Discrete as one-hot), with a 1 before them. Actions must be Discrete.

    Raises
    ------
    ModelError
        Another space (named), an environment that cannot be made or copied, a step that raises, no "cost" in info,
        values that are not finite, or that differ from copy to copy, or from episode to episode, with the same seed;
        ``cost`` without ``limits``.
    SettingError
        In ``step``, another state than the last one.

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
        if cost is not None and not callable(cost):
            raise ModelError(
                f"cost = {cost!r}: a function (observation, action, next_observation, info) is expected"
            )
        if cost is not None and limits is None:
            raise ModelError("cost is given without limits; give limits= as many numbers as cost returns")
        environment = _make(env, options, gymnasium)
        calls = _Environments(environment, cost, gymnasium.spaces)
        self._envs, self.first_action = calls, calls.first_action
        if calls.n_observed + 2 > LARGEST:
            raise ModelError(
                f"observations of {environment.observation_space} are {calls.n_observed} numbers, more than "
                f"{LARGEST - 2}: wrap the environment to observe less"
            )
        super().__init__(
            called_back("step", calls.step_at, calls.step),
            called_back("reset", calls.reset_at, calls.reset),
            n_state=2 + calls.n_observed,
            n_actions=calls.n_actions,
            gamma=gamma,
            limits=limits,
            sense=sense,
            names=names,
            state_features=called_back("state_features", calls.features_at, calls.features),
            n_features=1 + calls.n_observed,
            reward_range=reward_range,
            cost_ranges=cost_ranges,
            trial=trial,
            name=env if isinstance(env, str) else type(environment.unwrapped).__name__,
            fork=called_back("fork", calls.fork_at, calls.fork),
        )
        self._arguments = {
            "env": env, "gamma": gamma, "cost": cost, "limits": limits, "sense": sense, "names": names,
            "reward_range": reward_range, "cost_ranges": cost_ranges, "trial": trial, "options": options,
        }  # fmt: skip

    source = "the environment's np_random"

    def _run_trial(self, n: int) -> TrialRun:
        self._envs.n_costs = self.n_constraints
        self._envs.compare_episodes(min(n, _COMPARED))
        return super()._run_trial(n)

    def start(self, rng: Any) -> Any:
        """As of ``Simulator``; an episode begins."""
        return self._envs.numbered(super().start(rng))

    def step(self, state: npt.ArrayLike, action: int, rng: Any) -> Any:
        """As of ``Simulator``, from the state that ``start`` or ``step`` of this thread gave last."""
        self._envs.require_last(self._state(state))
        after, reward, costs = super().step(state, action, rng)
        return self._envs.numbered(after), reward, costs

    def observed(self, observation: Any) -> Any:
        """An observation of the environment as the state that policies see."""
        state = np.zeros(self.n_state)
        try:
            state[2:] = self._envs.flatten(self._envs.space, observation)
        except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
            raise SettingError(
                f"observation = {observation!r}: one of {self._envs.space} is expected ({error})"
            ) from error
        return state

    def world(self, *arguments: Any, **named: Any) -> Any:
        """As of ``Simulator``; a run begins."""
        self._envs.raised = ""
        return super().world(*arguments, **named)

    def live_actions(self, *arguments: Any) -> Any:
        """As of ``Simulator``; a batch of rollouts begins."""
        self._envs.local.forked = True
        return super().live_actions(*arguments)

    def fault(self, actions: Any) -> str:
        """What went wrong in a run with these actions, in a sentence; "" if nothing did."""
        said = super().fault(actions)
        return (self._envs.raised or said) if said else ""


def _make(env: Any, options: Any, gymnasium: Any) -> Any:
    """The environment that is copied."""
    if options is not None and not isinstance(options, dict):
        raise ModelError(f"options = {options!r}: a dict of keyword arguments of gymnasium.make is expected")
    if not isinstance(env, str) and not callable(env):
        raise ModelError(f"env = {env!r}: give an ID, or a function that makes an environment")
    try:
        if isinstance(env, str):
            environment = gymnasium.make(env, **({"max_episode_steps": -1} | (options or {})))
        else:
            environment = env(**(options or {}))
    except Exception as error:
        name = repr(env) if isinstance(env, str) else getattr(env, "__name__", repr(env))
        raise ModelError(f"env = {name} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(environment, gymnasium.Env):
        raise ModelError(f"env = {env!r} makes {environment!r}, which is no gymnasium.Env")
    return environment


class _Environments:
    """The functions that kernels call back, and the copies of the environment that state vectors refer to.

    A vector's first number says which copy it is: the thread's current one (0, or below, which then counts the states
    that were handed to Python), or one of those that it has been told to keep (1, 2, ..). Kernels run one rollout at a
    time: all from the start first, then, from the kept copies, the others; the first reset after those begins a new
    batch, and what was kept is let go.
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
        self.raised = ""  # what a callback caught in this run
        try:
            copy.deepcopy(env)
        except Exception as error:
            raise ModelError(
                f"{env} cannot be copied ({type(error).__name__}: {error}); rollouts start again at visited states, "
                "which needs copy.deepcopy of the environment (leave out rendering)"
            ) from error

    def _write(self, state: Any, handle: int, over: bool, observation: Any) -> None:
        state[_HANDLE], state[_OVER] = handle, over
        state[2:] = self.flatten(self.space, observation)

    # Functions of arrays, for Python.

    def reset(self, state: Any, rng: Any) -> None:
        local = self.local
        if getattr(local, "forked", True):
            local.kept, local.forked = [], False
        local.current = copy.deepcopy(self.template)
        began = local.current.reset(seed=_seed(rng))
        if not isinstance(began, tuple) or len(began) != 2:
            raise ModelError(f"reset of the environment returned {began!r}; (observation, info) is expected")
        local.seen, local.last = self._kept(began[0]), None
        self._write(state, 0, False, local.seen)

    def _kept(self, observation: Any) -> Any:
        """An observation as cost functions see it later: environments may change theirs in place."""
        return observation if self.cost is None else copy.deepcopy(observation)

    def numbered(self, state: Any) -> Any:
        """Mark a state that is handed to Python as the thread's last."""
        local = self.local
        local.handed = getattr(local, "handed", 0) + 1
        state[_HANDLE] = -local.handed
        local.last = state.copy()
        return state

    def require_last(self, state: Any) -> None:
        """Refuse a state that the thread's environment is not in."""
        local = self.local
        last = getattr(local, "last", None)
        if last is None or not np.array_equal(state, last):
            raise SettingError(
                f"state = {state.tolist()}: a Gymnasium environment goes on from where it is only; give the state that "
                "start or step returned last in this thread, unchanged"
            )

    def compare_episodes(self, n: int) -> None:
        """Make episodes of one object twice from one seed; what it raises is left to the trial run."""
        env, choose = copy.deepcopy(self.template), np.random.default_rng(1)
        try:
            for seed in range(n):
                actions = choose.integers(0, self.n_actions, n) + self.first_action
                one, two = (self._episode(env, seed, actions) for _ in range(2))
                n -= len(one)
                if one != two or n <= 0:
                    break
        except Exception:
            return
        if one == two:
            return
        at = next(
            (t for t, (x, y) in enumerate(zip(one, two, strict=False)) if x != y), min(len(one), len(two))
        )
        raise ModelError(
            f"two episodes of one environment from one seed differ the second time, at step {at}: it draws from a "
            "generator that reset(seed=...) does not set, or keeps something from the last episode; draw from the "
            "environment's np_random only, and call super().reset(seed=seed)"
        )

    def _episode(self, env: Any, seed: int, actions: Any) -> list[str]:
        """What an episode shows, step by step, in words, where NaN equals itself."""
        shown = [str(self.flatten(self.space, env.reset(seed=seed)[0]).tolist())]
        for action in actions.tolist():
            observation, reward, *_, terminated, truncated, _ = env.step(action)
            shown.append(f"{self.flatten(self.space, observation).tolist()} {reward} {terminated}")
            if terminated or truncated:
                break
        return shown

    def fork(self, state: Any, keep: int, rng: Any) -> None:
        local = self.local
        handle = int(state[_HANDLE])
        source, seen = (local.current, local.seen) if handle <= 0 else local.kept[handle - 1]
        if keep:
            local.kept.append((copy.deepcopy(source), copy.deepcopy(seen)))
            state[_HANDLE] = len(local.kept)
            return
        local.forked = True
        local.current, local.seen = copy.deepcopy(source), copy.deepcopy(seen)
        # The copy would draw what its original draws.
        local.current.unwrapped.np_random = np.random.Generator(np.random.PCG64(_seed(rng)))
        state[_HANDLE] = 0
        local.last = state.copy()

    def step(self, state: Any, action: int, rng: Any, costs: Any) -> float:
        local = self.local
        if state[_OVER]:
            return 0.0
        action += self.first_action
        values = local.current.step(action)
        if len(values) == 6:
            after, reward, cost, terminated, truncated, info = values
        elif len(values) == 5:
            after, reward, terminated, truncated, info = values
            cost = info.get("cost")
        else:
            raise ModelError(
                f"step of the environment returned {len(values)} values; five are expected (observation, reward, "
                "terminated, truncated, info), or six with the cost third"
            )
        if self.n_costs:
            if self.cost is not None:
                cost = self.cost(local.seen, action, after, info)
            elif cost is None:
                raise ModelError('info has no "cost"; give cost=, a function of (o, a, next o, info)')
            array = np.atleast_1d(np.asarray(cost, np.float64))
            if array.shape != (self.n_costs,):
                raise ModelError(
                    f"costs have shape {array.shape} for {self.n_costs} limits; give one number a limit"
                )
            costs[: self.n_costs] = array
        local.seen = self._kept(after)
        self._write(state, 0, terminated or truncated, after)
        return float(reward)

    def features(self, state: Any, out: Any) -> None:
        out[0] = 1.0
        out[1:] = state[2:]

    # The same of addresses, for kernels. Nothing can be raised through those: NaN says that something was.

    def _caught(self, name: str, error: Exception) -> float:
        self.raised = f"{name} raised {type(error).__name__}: {error}"
        return float("nan")

    def reset_at(self, state: int, rng: int) -> None:
        view = self._state(state)
        try:
            self.reset(view, _words(rng))
        except Exception as error:
            view[0] = self._caught("reset", error)

    def fork_at(self, state: int, keep: int, rng: int) -> None:
        view = self._state(state)
        try:
            self.fork(view, keep, _words(rng))
        except Exception as error:
            view[0] = self._caught("copying the environment", error)

    def step_at(self, state: int, action: int, rng: int, costs: int) -> float:
        try:
            return self.step(self._state(state), action, _words(rng), _doubles(costs, max(self.n_costs, 1)))
        except Exception as error:
            return self._caught("step", error)

    def features_at(self, state: int, out: int) -> None:
        self.features(self._state(state), _doubles(out, 1 + self.n_observed))

    def _state(self, address: int) -> Any:
        return _doubles(address, 2 + self.n_observed)


def _doubles(address: int, n: int) -> Any:
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_double)), (n,))


def _words(address: int) -> Any:
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint64)), (4,))


def _seed(rng: Any) -> int:
    """A seed of 32 bits from the stream."""
    return int(word(rng)) >> 32


def _check_space(space: Any, spaces: Any, what: str) -> None:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            _check_space(part, spaces, what)
    elif not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise ModelError(
            f"the {what} space has a part {space}; Box, Discrete, MultiDiscrete, MultiBinary, and Tuple and Dict "
            "of these are supported"
        )
