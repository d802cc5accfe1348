"""Models as Gymnasium environments, one or many at a time; Gymnasium is imported when one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError

if TYPE_CHECKING:
    from fastcmdp.envs.gymnasium_envs import CMDPEnv, CMDPVectorEnv


def to_gymnasium(
    cmdp: CMDP, *, time_limit: int | None = None, six_values: bool = False, unavailable: str = "error"
) -> CMDPEnv:
    """A `gymnasium.Env` of a model: states are observations, rewards and costs are in the user's units.

    Observations are `Discrete(n_states)`, actions `Discrete(n_actions)` as the model numbers them. A step's
    `info["cost"]` is g_1(s, a), an array of m numbers for m > 1 and 0 for m = 0; limits and senses stand in
    `env.unwrapped.cmdp`. `info["action_mask"]`, int8[n_actions], of reset and step marks the actions of the state that
    is returned (`env.action_space.sample(info["action_mask"])`). Rewards and costs that the model was given for each
    branch are their expectations over s', which leaves J as it is.

    Parameters
    ----------
    cmdp : CMDP
    time_limit : int or None
        None: the discount is a chance of 1 - gamma to terminate after each step, so the undiscounted sum of an
        episode's rewards has expectation J_r, that of its costs J_g, exactly; train without a further discount.
        A number: every episode is truncated after so many steps and never terminates; discount by gamma
        yourself, and the sum misses at most gamma^n max|r| / (1 - gamma).
    six_values : bool
        `step` returns (observation, reward, cost, terminated, truncated, info), as Safety-Gymnasium's does.
    unavailable : "error" or "first"
        What an action does that the state does not have: a SettingError, or the same as the state's first action (for
        libraries that know no masks, and for `gymnasium.utils.env_checker.check_env`).

    Raises
    ------
    ModelError
        Gymnasium is not installed.
    SettingError
        A setting out of range; in `step`, an action that is no integer, out of range or unavailable.
    gymnasium.error.ResetNeeded
        In `step`, before the first `reset` or after the end of an episode.

    `reset(seed=n)` starts the stream `fastcmdp.embed.stream(n, 0, 0)`, so that NumPy can replay every episode
    (kernels/sampling/episodes.py says which word is spent on what).

    Examples
    --------
    >>> import fastcmdp as fc
    >>> env = fc.envs.to_gymnasium(fc.envs.river_swim())
    >>> state, info = env.reset(seed=0)
    >>> state, reward, terminated, truncated, info = env.step(1)
    >>> info["cost"], info["action_mask"].tolist()
    (1.0, [1, 1])
    """
    env: CMDPEnv = _classes().CMDPEnv(cmdp, time_limit, six_values, unavailable)
    return env


def to_gymnasium_vector(
    cmdp: CMDP,
    num_envs: int,
    *,
    autoreset: Any = "NextStep",
    time_limit: int | None = None,
    six_values: bool = False,
    unavailable: str = "error",
) -> CMDPVectorEnv:
    """A `gymnasium.vector.VectorEnv` of `num_envs` environments as of `to_gymnasium`, all stepped in one kernel call.

    It returns what `gymnasium.vector.SyncVectorEnv` of these environments returns, bit for bit, with two exceptions:
    with "SameStep", the cost of an episode's last step is in `info["cost"]` too, and not in `info["final_info"]`
    alone, where sums over `info["cost"]` would miss it; and `info["cost"]` is there, zeros, also in a step in which all
    environments begin anew. `reset(seed=n)` seeds environment i by n + i, and a list seeds
    each, so the environments of one vector are those of several smaller ones.

    Parameters
    ----------
    num_envs : int
    autoreset : "NextStep", "SameStep", "Disabled" or gymnasium.vector.AutoresetMode
        When the environment of an ended episode begins the next: in the next step, which ignores its action and
        gives reward 0; in the same step, the last state then being `info["final_obs"]`; or when
        `reset(options={"reset_mask": mask})` says so.
    cmdp, time_limit, six_values, unavailable
        As for `to_gymnasium`. With `six_values`, costs have shape (num_envs,), or (num_envs, m) for m > 1.

    Raises
    ------
    ModelError, SettingError, gymnasium.error.ResetNeeded
        As for `to_gymnasium`; actions must be integers of shape (num_envs,).

    Examples
    --------
    >>> import numpy as np, fastcmdp as fc
    >>> envs = fc.envs.to_gymnasium_vector(fc.envs.river_swim(), 1000)
    >>> states, info = envs.reset(seed=0)
    >>> states, rewards, terminated, truncated, info = envs.step(np.ones(1000, int))
    >>> float(info["cost"].mean())
    1.0
    """
    envs: CMDPVectorEnv = _classes().CMDPVectorEnv(
        cmdp, num_envs, autoreset, time_limit, six_values, unavailable
    )
    return envs


def _classes() -> Any:
    try:
        from fastcmdp.envs import gymnasium_envs
    except ImportError as error:
        if (error.name or "").split(".")[0] != "gymnasium":
            raise
        raise ModelError("to_gymnasium needs Gymnasium 1.1 or later: pip install 'fastcmdp[gym]'") from error
    return gymnasium_envs
