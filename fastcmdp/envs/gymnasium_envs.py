"""The classes behind `to_gymnasium` and `to_gymnasium_vector`; importing this module imports Gymnasium."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from ctypes import addressof, c_char
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from fastcmdp.check import whole
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.kernels.sampling import tables
from fastcmdp.kernels.sampling.episodes import Memory, Results, begin_episodes, final_values, step_episodes
from fastcmdp.streams import words_of
from fastcmdp.text import unknown

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
INT64, BOOL = np.dtype(np.int64), np.dtype(np.bool_)

# NumPy hands out a row in half the time that it takes to make an array: steps take the rows of arrays of so many bytes.
_BLOCK = 65_536


class _Episodes:
    """n environments of a model: streams, states, and the kernels that move them."""

    def __init__(
        self, cmdp: CMDP, n: int, time_limit: int | None, unavailable: str, mode: AutoresetMode
    ) -> None:
        if not isinstance(cmdp, CMDP):
            raise SettingError(f"a fastcmdp.CMDP is expected, got {type(cmdp).__name__}")
        if unavailable not in ("error", "first"):
            raise SettingError(unknown("unavailable", unavailable, ["error", "first"]))
        limit = 0 if time_limit is None else whole("time_limit", time_limit, 1, 2**62)
        self.n, self.is_limited = n, limit > 0
        m, n_actions = cmdp.n_constraints, cmdp.n_actions
        choice_of = np.full((cmdp.n_states, n_actions), -1, np.int32)
        choice_of[cmdp.choice_state, cmdp.action_of_choice] = np.arange(cmdp.n_choices)
        available = (choice_of >= 0).astype(np.int8)
        if unavailable == "first":
            choice_of = np.where(choice_of < 0, cmdp.state_to_choice[:-1, None], choice_of).astype(np.int32)
        states = np.arange(cmdp.n_states, dtype=np.uint32)
        branch_entry = np.empty(3 * cmdp.n_branches)
        tables.build_branches(
            cmdp.choice_to_branch, cmdp.branch_target, cmdp.branch_prob, states, branch_entry
        )
        start_entry = np.empty(3 * int(np.count_nonzero(cmdp.start)))
        tables.build_start(cmdp.start, states, start_entry)
        at_once, by_hand = mode == AutoresetMode.SAME_STEP, mode == AutoresetMode.DISABLED
        self.memory = Memory(
            branch_entry,
            start_entry,
            np.ascontiguousarray(cmdp.choice_to_branch, np.int64),
            choice_of,
            available,
            np.ascontiguousarray(np.column_stack([cmdp.reward, cmdp.costs])),
            np.array([1.0 / math.log(cmdp.gamma)]),
            np.array([n_actions, m, limit, at_once, by_hand], np.int64),
            np.zeros((4, n), np.uint64),
            np.zeros(n, np.int64),
            np.zeros(n, np.int64),
            np.ones(n, np.bool_),
            np.zeros(n, np.int64),
        )
        self._seeded = np.zeros(n, np.bool_)
        self._cost_shape, self._mask_shape = (n, m) if m > 1 else (n,), (n, n_actions)
        self._new_costs = np.empty if m else np.zeros
        self._depth = min(max(_BLOCK // (n * max(8 * m, n_actions, 8)), 1), 64)
        self._bind()

    def _bind(self) -> None:
        self.results = self._made()
        arrays = *self.memory, *self.results
        assert all(x.flags.c_contiguous for x in arrays)
        self.rows = np.array([(x.ctypes.data, x.size) for x in arrays], np.int64)
        self.turns = self._turns()
        self.action = np.zeros(self.n, np.int64)  # for who has no array of them

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("results", "rows", "turns")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy has arrays of its own, at other addresses, also where pickle hands out read-only ones."""
        vars(self).update(state)
        self.memory, self._seeded = Memory(*(x.copy() for x in self.memory)), self._seeded.copy()
        self._bind()

    def _made(self) -> Results:
        k, n = self._depth, self.n
        return Results(
            np.empty((k, n), INT64),
            np.empty((k, n)),
            self._new_costs((k, *self._cost_shape)),
            np.empty((k, n), BOOL),
            np.empty((k, n), BOOL),
            np.empty((k, *self._mask_shape), np.int8),
        )

    def _turns(self) -> Iterator[tuple[Any, ...]]:
        """For each step to come, the number of its row of results, that row, and False and True for all."""
        shape = self._depth, self.n
        return zip(
            range(self._depth), *self.results, np.zeros(shape, BOOL), np.ones(shape, BOOL), strict=True
        )

    def renew(self) -> None:
        """Make results for the next steps; those of former ones are the caller's."""
        self.results = self._made()
        arrays: tuple[Any, ...] = self.results
        self.rows[-len(arrays) :, 0] = [
            addressof(c_char.from_buffer(x)) for x in arrays
        ]  # quicker than x.ctypes
        self.turns = self._turns()  # last: who was interrupted before finds none left, and comes here again

    def begin(self, seeds: Sequence[int | None], which: Flags) -> None:
        """Begin episodes where ``which`` is True; a seed of None goes on with the stream, or makes one by chance."""
        for i in np.flatnonzero(which).tolist():
            seed: Any = seeds[i]
            if seed is None and not self._seeded[i]:
                seed = np.random.SeedSequence().entropy
            if seed is not None:
                self.memory.rng[:, i] = words_of(np.random.SeedSequence(seed, spawn_key=(0, 0)))
                self._seeded[i] = True
        begin_episodes(self.rows, which)

    def refuse(self, i: int, action: Any) -> NoReturn:
        """Say which actions environment i has."""
        state = self.memory.state[i]
        where = f"environment {i} is in state" if self.n > 1 else "the environment is in state"
        available = np.flatnonzero(self.memory.available[state]).tolist()
        raise SettingError(
            f"action {action}: {where} {state}, which has actions {available} "
            '(info["action_mask"]; unavailable="first" accepts the others)'
        )


def _seed(name: str, seed: Any) -> int | None:
    return None if seed is None else whole(name, seed, 0, None)


def _no_options(options: dict[str, Any] | None, known: tuple[str, ...] = ()) -> None:
    for key in options or {}:
        if key not in known:
            raise SettingError(unknown("option of reset", key, known or ("none",)))


class CMDPEnv(gymnasium.Env[Any, Any]):
    """A model as an environment: see `fastcmdp.envs.to_gymnasium`.

    Attributes
    ----------
    cmdp : CMDP
        Limits, senses, gamma and names.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  # as Gymnasium declares it
    render_mode = None

    def __init__(
        self, cmdp: CMDP, time_limit: int | None = None, six_values: bool = False, unavailable: str = "error"
    ) -> None:
        self._episodes = _Episodes(cmdp, 1, time_limit, unavailable, AutoresetMode.DISABLED)
        self.cmdp = cmdp
        self.six_values = bool(six_values)
        self.observation_space = Discrete(cmdp.n_states)
        self.action_space = Discrete(cmdp.n_actions)
        settings = {"time_limit": time_limit, "six_values": six_values, "unavailable": unavailable}
        creator: Any = CMDPEnv
        self.spec = EnvSpec(  # so that gymnasium.make(env.spec) makes another
            "CMDP-v0",
            creator,
            order_enforce=False,
            disable_env_checker=True,
            kwargs={"cmdp": cmdp} | settings,
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Begin an episode; see `to_gymnasium`."""
        seed = _seed("seed", seed)
        _no_options(options)
        super().reset(seed=seed)
        self._episodes.begin([seed], np.ones(1, np.bool_))
        s = int(self._episodes.memory.state[0])
        return s, {"action_mask": self._episodes.memory.available[s].copy()}

    def step(self, action: Any) -> Any:
        """Make a transition; see `to_gymnasium`."""
        number, episodes = _index(action), self._episodes
        episodes.action[0] = number if -(2**63) <= number < 2**63 else -1
        n_ended = step_episodes(episodes.rows, episodes.action, 0)
        if n_ended < 0:
            if episodes.memory.over[0]:
                raise ResetNeeded("no episode is under way: call reset() first")
            episodes.refuse(0, number)
        results = episodes.results
        s, reward, costs = results.state.item(0), results.reward.item(0), results.cost
        cost = costs.item(0) if costs.ndim == 2 else costs[0, 0].copy()
        info = {"cost": cost, "action_mask": episodes.memory.available[s].copy()}
        flags = (False, n_ended > 0) if episodes.is_limited else (n_ended > 0, False)
        return (s, reward, cost, *flags, info) if self.six_values else (s, reward, *flags, info)


def _index(action: Any) -> int:
    """An action as an int: an integer of Python or NumPy, or an array of one without dimensions."""
    whole = isinstance(action, int | np.integer) and not isinstance(action, bool)
    whole |= isinstance(action, np.ndarray) and action.shape == () and action.dtype.kind in "iu"
    if not whole:
        shape = f" of shape {action.shape}" if isinstance(action, np.ndarray) else ""
        raise SettingError(f"action must be one integer, got {type(action).__name__}{shape} {action!r}")
    return operator.index(action)


def _array(actions: Any) -> NDArray[Any]:
    """Actions as an array; of what is none, an array of objects, which is refused."""
    try:
        return np.asarray(actions)
    except ValueError:  # rows of different lengths
        return np.asarray(None)


class CMDPVectorEnv(VectorEnv[Any, Any, Any]):
    """Many environments of one model: see `fastcmdp.envs.to_gymnasium_vector`.

    Attributes
    ----------
    cmdp : CMDP
        Limits, senses, gamma and names.
    """

    def __init__(
        self,
        cmdp: CMDP,
        num_envs: int,
        autoreset: Any = "NextStep",
        time_limit: int | None = None,
        six_values: bool = False,
        unavailable: str = "error",
    ) -> None:
        try:
            self.autoreset_mode = AutoresetMode(autoreset)
        except ValueError:
            raise SettingError(
                unknown("autoreset", autoreset, [mode.value for mode in AutoresetMode])
            ) from None
        self.num_envs = whole("num_envs", num_envs, 1)
        self._episodes = _Episodes(cmdp, self.num_envs, time_limit, unavailable, self.autoreset_mode)
        self._at_once = self.autoreset_mode == AutoresetMode.SAME_STEP
        self._shape, self._is_reset = (self.num_envs,), False
        self.cmdp = cmdp
        self.six_values = bool(six_values)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.render_mode = None
        self.single_observation_space = Discrete(cmdp.n_states)
        self.single_action_space = Discrete(cmdp.n_actions)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Ints, dict[str, Any]]:
        """Begin episodes in all environments, or in those of options["reset_mask"]; see `to_gymnasium_vector`."""
        n = self.num_envs
        _no_options(options, ("reset_mask",))
        which = np.ones(n, np.bool_)
        if options and "reset_mask" in options:
            which = options["reset_mask"]
            kind = f"{type(which).__name__} {getattr(which, 'dtype', '')} {getattr(which, 'shape', '')}"
            if not isinstance(which, np.ndarray) or which.shape != (n,) or which.dtype != np.bool_:
                raise SettingError(f"reset_mask must be a bool array of shape ({n},), got {kind}")
            if not which.any():
                raise SettingError("reset_mask is False everywhere: name an environment to reset")
        if seed is None or np.ndim(seed) == 0:
            one = _seed("seed", seed)
            seeds = [None if one is None else one + i for i in range(n)]
        else:
            seeds = [_seed(f"seed[{i}]", value) for i, value in enumerate(seed)]
            if len(seeds) != n:
                raise SettingError(f"seed has {len(seeds)} entries; {n} are expected, one an environment")
        if not self._is_reset and not which.all():
            raise ResetNeeded("no episode is under way: reset all environments first")
        self._episodes.begin(seeds, which)
        self._is_reset = True
        state = self._episodes.memory.state.copy()
        return state, {"action_mask": self._mask(state, which), "_action_mask": which.copy()}

    def step(self, actions: Any) -> Any:
        """Make a transition in every environment; see `to_gymnasium_vector`."""
        if not self._is_reset:
            raise ResetNeeded("no episode is under way: call reset() first")
        numbers = actions
        if type(actions) is not np.ndarray or actions.dtype is not INT64 or actions.shape != self._shape:
            numbers = self._numbers(actions)
        episodes = self._episodes
        turn = next(episodes.turns, None)
        if turn is None:
            episodes.renew()
            turn = next(episodes.turns)
        row, state, reward, cost, ended, moved, mask, no, yes = turn
        n_ended = step_episodes(episodes.rows, numbers, row)
        if n_ended < 0:
            self._refuse(-1 - n_ended, actions)
        info = {"cost": cost, "_cost": moved, "action_mask": mask, "_action_mask": yes}
        if self._at_once and n_ended:
            info |= self._final(ended, cost)
        terminated, truncated = (no, ended) if episodes.is_limited else (ended, no)
        if self.six_values:
            return state, reward, cost, terminated, truncated, info
        return state, reward, terminated, truncated, info

    def _numbers(self, actions: Any) -> Ints:
        """Actions as the kernel takes them."""
        numbers = _array(actions)
        if numbers.dtype.kind not in "iu" or numbers.shape != self._shape:
            raise SettingError(
                f"actions must be integers of shape ({self.num_envs},), got {numbers.dtype} {numbers.shape}"
            )
        return numbers.astype(np.int64)  # beyond its range, uint64 turns negative: not available

    def _refuse(self, i: int, actions: Any) -> NoReturn:
        over = self._episodes.memory.over
        if self.autoreset_mode == AutoresetMode.DISABLED and over.any():
            raise ResetNeeded(
                f'the episode of environment {np.argmax(over)} has ended: reset with options["reset_mask"]'
            )
        self._episodes.refuse(i, _array(actions)[i])

    def _mask(self, state: Ints, which: Flags) -> NDArray[np.int8]:
        """The actions of each state, 0 for environments that are not asked for."""
        mask = self._episodes.memory.available.take(np.where(which, state, 0), axis=0)
        mask[~which] = 0
        return mask

    def _final(self, ended: Flags, costs: NDArray[np.float64]) -> dict[str, Any]:
        """The last state, cost and mask of episodes that ended in a step which began the next."""
        memory, n = self._episodes.memory, self.num_envs
        cost, mask = np.empty_like(costs), np.empty((n, memory.available.shape[1]), np.int8)
        final_values(self._episodes.rows, ended, costs.reshape(-1), cost.reshape(-1), mask.reshape(-1))
        last = np.empty(n, object)
        np.copyto(last, memory.final, where=ended)
        info = {"cost": cost, "_cost": ended.copy(), "action_mask": mask, "_action_mask": ended.copy()}
        return {
            "final_obs": last,
            "_final_obs": ended.copy(),
            "final_info": info,
            "_final_info": ended.copy(),
        }
