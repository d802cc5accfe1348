"""The classes behind `to_gymnasium` and `to_gymnasium_vector`; importing this module imports Gymnasium."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
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
from fastcmdp.kernels.sampling import episodes, tables
from fastcmdp.streams import words_of
from fastcmdp.text import unknown

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class _Episodes:
    """n environments of a model: streams, states, and the kernel that moves them."""

    def __init__(self, cmdp: CMDP, n: int, time_limit: int | None, unavailable: str) -> None:
        if not isinstance(cmdp, CMDP):
            raise SettingError(f"a fastcmdp.CMDP is expected, got {type(cmdp).__name__}")
        if unavailable not in ("error", "first"):
            raise SettingError(unknown("unavailable", unavailable, ["error", "first"]))
        limit = 0 if time_limit is None else whole("time_limit", time_limit, 1, 2**62)
        self.cmdp, self.n = cmdp, n
        choice_of = np.full((cmdp.n_states, cmdp.n_actions), -1, np.int32)
        choice_of[cmdp.choice_state, cmdp.action_of_choice] = np.arange(cmdp.n_choices)
        self.mask = (choice_of >= 0).astype(np.int8)
        if unavailable == "first":
            choice_of = np.where(choice_of < 0, cmdp.state_to_choice[:-1, None], choice_of).astype(np.int32)
        states = np.arange(cmdp.n_states, dtype=np.uint32)
        branch_entry = np.empty(3 * cmdp.n_branches)
        tables.build_branches(
            cmdp.choice_to_branch, cmdp.branch_target, cmdp.branch_prob, states, branch_entry
        )
        start_entry = np.empty(3 * int(np.count_nonzero(cmdp.start)))
        tables.build_start(cmdp.start, states, start_entry)
        self._rules = episodes.Rules(
            branch_entry,
            start_entry,
            cmdp.choice_to_branch,
            choice_of,
            self.mask,
            np.column_stack([cmdp.reward, cmdp.costs]),
            1.0 / math.log(cmdp.gamma),
            limit,
        )
        self._envs = episodes.Envs(
            np.zeros((4, n), np.uint64), np.zeros(n, np.int64), np.zeros(n, np.int64), np.ones(n, np.bool_),
            np.zeros(n, np.int64),
        )  # fmt: skip
        self._fixed = (*self._rules, *self._envs)
        self._costs, self._flags, self._actions = (n, max(cmdp.n_constraints, 1)), (4, n), (n, cmdp.n_actions)
        self._is_column = cmdp.n_constraints <= 1
        self.is_limited = limit > 0
        self._seeded = np.zeros(n, np.bool_)

    @property
    def state(self) -> Ints:
        return self._envs.state

    @property
    def over(self) -> Flags:
        return self._envs.over

    @property
    def final(self) -> Ints:
        """The states in which episodes ended in the last step, where they did."""
        return self._envs.final

    def begin(self, seeds: Sequence[int | None], which: Flags) -> None:
        """Begin episodes where ``which`` is True; a seed of None goes on with the stream, or makes one by chance."""
        for i in np.flatnonzero(which).tolist():
            seed: Any = seeds[i]
            if seed is None and not self._seeded[i]:
                seed = np.random.SeedSequence().entropy
            if seed is not None:
                self._envs.rng[:, i] = words_of(np.random.SeedSequence(seed, spawn_key=(0, 0)))
                self._seeded[i] = True
        episodes.begin_episodes(self._rules, self._envs, which)

    def step(self, actions: NDArray[np.integer[Any]], at_once: bool) -> tuple[Any, ...]:
        """Move all environments on, or name the first that cannot be.

        Returned are, in new arrays: states, rewards, costs (n,) or (n, m) for m > 1, flags and masks as of
        ``episodes.step_episodes``; and the number of episodes that ended.
        """
        n = self.n
        state, reward, cost = np.empty(n, np.int64), np.empty(n), np.empty(self._costs)
        flags, mask = np.empty(self._flags, np.bool_), np.empty(self._actions, np.int8)
        action = actions.astype(
            np.int64, copy=False
        )  # beyond its range, uint64 turns negative: not available
        n_ended = episodes.step_episodes(*self._fixed, state, reward, cost, flags, mask, action, at_once)
        if n_ended < 0:
            self.refuse(-1 - n_ended, actions[-1 - n_ended])
        return state, reward, cost[:, 0] if self._is_column else cost, flags, mask, n_ended

    def refuse(self, i: int, action: Any) -> NoReturn:
        """Say which actions environment i has."""
        where = f"environment {i} is in state" if self.n > 1 else "the environment is in state"
        available = np.flatnonzero(self.mask[self.state[i]]).tolist()
        raise SettingError(
            f"action {action}: {where} {self.state[i]}, which has actions {available} "
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
        self._episodes = _Episodes(cmdp, 1, time_limit, unavailable)
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
        s = int(self._episodes.state[0])
        return s, {"action_mask": self._episodes.mask[s].copy()}

    def step(self, action: Any) -> Any:
        """Make a transition; see `to_gymnasium`."""
        if self._episodes.over[0]:
            raise ResetNeeded("no episode is under way: call reset() first")
        number = _index(action)
        if not -(2**63) <= number < 2**63:
            self._episodes.refuse(0, number)
        states, rewards, costs, _, mask, n_ended = self._episodes.step(np.array([number]), False)
        s, reward = int(states[0]), float(rewards[0])
        cost = float(costs[0]) if costs.ndim == 1 else costs[0]
        info = {"cost": cost, "action_mask": mask[0]}
        limited, ended = self._episodes.is_limited, n_ended > 0
        flags = (ended and not limited, ended and limited)
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
        self._episodes = _Episodes(cmdp, self.num_envs, time_limit, unavailable)
        self._at_once = self.autoreset_mode == AutoresetMode.SAME_STEP
        self._by_hand = self.autoreset_mode == AutoresetMode.DISABLED
        self._is_limited, self._is_reset = self._episodes.is_limited, False
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
        state = self._episodes.state.copy()
        return state, {"action_mask": self._mask(state, which), "_action_mask": which.copy()}

    def step(self, actions: Any) -> Any:
        """Make a transition in every environment; see `to_gymnasium_vector`."""
        if not self._is_reset:
            raise ResetNeeded("no episode is under way: call reset() first")
        if self._by_hand and self._episodes.over.any():
            which = int(np.argmax(self._episodes.over))
            raise ResetNeeded(
                f'the episode of environment {which} has ended: reset with options["reset_mask"]'
            )
        numbers = actions if isinstance(actions, np.ndarray) else _array(actions)
        if numbers.dtype.kind not in "iu" or numbers.shape != (self.num_envs,):
            raise SettingError(
                f"actions must be integers of shape ({self.num_envs},), got {numbers.dtype} {numbers.shape}"
            )
        state, reward, cost, (ended, moved, no, yes), mask, n_ended = self._episodes.step(
            numbers, self._at_once
        )
        info: dict[str, Any] = {"cost": cost, "_cost": moved, "action_mask": mask, "_action_mask": yes}
        if self._at_once and n_ended:
            info |= self._final(ended, cost)
        terminated, truncated = (no, ended) if self._is_limited else (ended, no)
        if self.six_values:
            return state, reward, cost, terminated, truncated, info
        return state, reward, terminated, truncated, info

    def _mask(self, state: Ints, which: Flags) -> NDArray[np.int8]:
        """The actions of each state, 0 for environments that are not asked for."""
        mask = self._episodes.mask.take(np.where(which, state, 0), axis=0)
        mask[~which] = 0
        return mask

    def _final(self, ended: Flags, cost: NDArray[np.float64]) -> dict[str, Any]:
        """The last state, cost and mask of episodes that ended in a step which began the next."""
        final = self._episodes.final
        last = np.full(self.num_envs, None, object)
        last[ended] = final[ended]
        shape = (-1,) + (1,) * (cost.ndim - 1)
        info = {
            "cost": np.where(ended.reshape(shape), cost, 0.0),
            "_cost": ended.copy(),
            "action_mask": self._mask(final, ended),
            "_action_mask": ended.copy(),
        }
        return {
            "final_obs": last,
            "_final_obs": ended.copy(),
            "final_info": info,
            "_final_info": ended.copy(),
        }
