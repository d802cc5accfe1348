"""Gymnasium environments that publish their transition table, as models.

`env.unwrapped.P[s][a]` lists (probability, next state, reward, terminated). The model keeps the environment's
numbers for states and actions and appends one absorbing state, number n, where episodes end: every branch
marked as terminated leads there, with its reward and cost, and nothing follows. States in which an episode
has already ended (holes, the goal) keep their numbers but are never entered; they and the absorbing state
have a single action, 0, which leads to the absorbing state and earns and costs nothing. Time limits of the
environment are not part of the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.check import real, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.envs.limits import Limit, with_limit
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.text import unknown

CostFunction = Callable[[int, int, int, float, bool], float]
"""Cost of a transition (s, a, s_next, reward, terminated), with the table's own s_next."""


def _hole(env: Any) -> CostFunction:
    cells = np.asarray(env.desc).ravel()
    return lambda s, a, s_next, reward, terminated: float(terminated and cells[s_next] == b"H")


def _cliff(env: Any) -> CostFunction:
    return lambda s, a, s_next, reward, terminated: float(reward <= -100)


def _edge(env: Any) -> CostFunction:
    height, width = env.shape
    edge = {(height - 2) * width + column for column in range(1, width - 1)}
    return lambda s, a, s_next, reward, terminated: float(s_next in edge)


def _illegal(env: Any) -> CostFunction:
    return lambda s, a, s_next, reward, terminated: float(reward <= -10)


def _toll(env: Any) -> CostFunction:
    # States count taxi row, column, passenger (5 places) and destination (4 places), the last one fastest.
    return lambda s, a, s_next, reward, terminated: float(s_next // 20 == 5 * 2 + 3)


# The ready costs and the class of environments that each is for; the first one of a class is its default.
# Falls off the cliff and illegal actions are dear already, so the best policy has none and a limit on them is
# not active: hence the other default.
_COSTS: dict[str, tuple[str, Callable[[Any], CostFunction]]] = {
    "hole": ("FrozenLakeEnv", _hole),
    "edge": ("CliffWalkingEnv", _edge),
    "cliff": ("CliffWalkingEnv", _cliff),
    "toll": ("TaxiEnv", _toll),
    "illegal": ("TaxiEnv", _illegal),
}


def from_gymnasium(
    env: Any,
    cost: str | CostFunction | Sequence[str | CostFunction] | None = None,
    limit: Limit = None,
    gamma: float = 0.95,
    start: str | int | ArrayLike | None = None,
    **kwargs: Any,
) -> CMDP:
    """The model of a Gymnasium environment with a transition table, such as FrozenLake, Taxi or CliffWalking.

    Parameters
    ----------
    env : str or gymnasium.Env
        An environment, or an id for `gymnasium.make`.
    cost : str, callable, a sequence of these, or None
        What is limited. A function (s, a, s_next, reward, terminated) -> float of each branch of the table,
        with the table's own s_next; or the name of a ready one, 1 for each such step: "hole" (FrozenLake:
        into a hole), "cliff" (CliffWalking: off the cliff), "edge" (CliffWalking: to a cell beside the
        cliff), "illegal" (Taxi: an illegal pick-up or drop-off), "toll" (Taxi: to row 2, column 3, where most
        ways cross, though each has a way around). None: "hole", "edge" or "toll".
    limit : float, sequence of float, or None
        Limit on the discounted sum of each cost (J <= limit). None or "halfway": halfway between the best
        policy's cost and the least attainable; where these are equal ("cliff" and "illegal", which the
        rewards deter already) halfway between the least and the uniform policy's. See `fastcmdp.envs.limits`.
    gamma : float
        Discount factor in (0, 1).
    start : str, int, array or None
        "environment": the environment's own distribution. "uniform": uniform over live states, those in which
        an episode of the environment can be while it lasts. A state. A distribution over the n or n + 1
        states. None: "uniform" for FrozenLake, "environment" for all others.
    **kwargs
        Passed on to `gymnasium.make` (map_name="8x8", is_slippery=False, ...).

    Returns
    -------
    CMDP
        n + 1 states: the environment's, then the absorbing state (see this module's text). Rewards as the
        environment gives them.

    Raises
    ------
    ModelError
        Gymnasium is not installed, the environment is unknown, has no table, or cannot be told by it.
    SettingError
        An unknown cost, start or keyword.

    Examples
    --------
    >>> from fastcmdp.envs import from_gymnasium
    >>> from_gymnasium("FrozenLake-v1", limit=0.5)
    CMDP(17 states, 50 choices, 138 branches, gamma=0.95, maximise reward, hole <= 0.5)
    """
    gamma = real("gamma", gamma, 0.0, 1.0, inside=True)
    if isinstance(env, str):
        made = _make(env, kwargs)
        try:
            return _from_table(made.unwrapped, env, cost, limit, gamma, start)
        finally:
            made.close()
    if kwargs:
        raise SettingError(f"{', '.join(kwargs)}: keywords are for gymnasium.make; give them with an id")
    inner = getattr(env, "unwrapped", env)
    return _from_table(inner, type(inner).__name__, cost, limit, gamma, start)


def _make(name: str, kwargs: dict[str, Any]) -> Any:
    try:
        import gymnasium  # not with the package: it is an extra
    except ImportError:
        raise ModelError(f"{name} needs Gymnasium: pip install 'fastcmdp[gym]'") from None

    try:
        env = gymnasium.make(name)
    except Exception as error:
        raise ModelError(f"Gymnasium cannot make {name!r}: {type(error).__name__}: {error}") from error
    if not kwargs:
        return env
    env.close()
    parameters = inspect.signature(type(env.unwrapped)).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for key in kwargs:
            if key not in parameters:
                valid = [*parameters, "cost", "limit", "gamma", "start"]
                raise SettingError(unknown(f"keyword of {name}", key, valid))
    try:
        return gymnasium.make(name, **kwargs)
    except Exception as error:
        given = ", ".join(f"{key}={value!r}" for key, value in kwargs.items())
        raise ModelError(
            f"Gymnasium cannot make {name!r} with {given}: {type(error).__name__}: {error}"
        ) from error


def _from_table(
    env: Any,
    name: str,
    cost: str | CostFunction | Sequence[str | CostFunction] | None,
    limit: Limit,
    gamma: float,
    start: Any,
) -> CMDP:
    table = getattr(env, "P", None)
    if table is None:
        raise ModelError(
            f"{name} publishes no transition table P, so it has no explicit model; "
            "FrozenLake-v1, Taxi-v4 and CliffWalking-v1 do"
        )
    if getattr(env, "fickle_passenger", False):
        raise ModelError(f"{name} with fickle_passenger changes destinations outside of its table P")
    n, n_actions = len(table), len(table[0])
    names, functions = _costs(env, name, cost)

    branches = [
        (s, a, float(p), int(to), float(reward), bool(terminated))
        for s in range(n)
        for a in range(n_actions)
        for p, to, reward, terminated in table[s][a]
        if p > 0.0
    ]
    live = _live(n, branches, getattr(env, "initial_state_distrib", None))
    over = {to for *_, to, _, terminated in branches if terminated} - set(np.flatnonzero(live).tolist())

    state_to_choice, choice_to_branch, actions = [0], [0], []
    targets: list[int] = []
    probabilities: list[float] = []
    # One list for the reward and one for each cost, a value for each branch.
    signals: list[list[float]] = [[] for _ in range(1 + len(functions))]
    for s in range(n + 1):
        ended = s == n or s in over
        for a in range(1 if ended else n_actions):
            rows = [(1.0, n, 0.0, True)] if ended else table[s][a]
            for p, to, reward, terminated in rows:
                targets.append(n if terminated else int(to))
                probabilities.append(float(p))
                transition = (s, a, int(to), float(reward), bool(terminated))
                costs = [0.0 if ended else _charge(function, transition) for function in functions]
                for signal, value in zip(signals, (float(reward), *costs), strict=True):
                    signal.append(value)
            choice_to_branch.append(len(targets))
            actions.append(a)
        state_to_choice.append(len(actions))
    cmdp = CMDP(
        state_to_choice,
        choice_to_branch,
        targets,
        probabilities,
        signals[0],
        signals[1:] or None,
        gamma=gamma,
        start=_start(env, name, live, start),
        limits=[0.0] * len(functions) or None,
        action_of_choice=actions,
        names=("reward", *names),
    )
    return with_limit(cmdp, limit)


def _costs(env: Any, name: str, cost: Any) -> tuple[list[str], list[CostFunction]]:
    """The name and the function of each cost."""
    kinds = {cls.__name__ for cls in type(env).__mro__}
    ready = {known: make for known, (kind, make) in _COSTS.items() if kind in kinds}
    if cost is None:
        if not ready:
            raise SettingError(f"{name} has no ready cost: give cost=, a function of each transition")
        cost = next(iter(ready))
    given = [cost] if isinstance(cost, str) or callable(cost) else list(cost)
    names: list[str] = []
    functions: list[CostFunction] = []
    for i, one in enumerate(given):
        if callable(one):
            names.append("cost" if len(given) == 1 else f"cost {i}")
            functions.append(one)
        elif one in ready:
            names.append(one)
            functions.append(ready[one](env))
        else:
            raise SettingError(unknown(f"cost of {name}", one, [*ready, "or a function of each transition"]))
    return names, functions


def _charge(function: CostFunction, transition: tuple[int, int, int, float, bool]) -> float:
    cost = function(*transition)
    try:
        return float(cost)
    except (TypeError, ValueError):
        raise ModelError(
            f"the cost of (s, a, s_next, reward, terminated) = {transition} is {cost!r}; it must be a number"
        ) from None


def _live(
    n: int, branches: list[tuple[int, int, float, int, float, bool]], initial: Any
) -> NDArray[np.bool_]:
    """The states in which an episode can be while it lasts.

    Those that branches without termination reach from the environment's start; where the environment does not
    tell its start, all that no terminated branch leads to.
    """
    live = np.ones(n, dtype=bool)
    if initial is None:
        live[[to for *_, to, _, terminated in branches if terminated]] = False
        return live
    after: list[set[int]] = [set() for _ in range(n)]
    for s, _, _, to, _, terminated in branches:
        if not terminated:
            after[s].add(to)
    reached = set(np.flatnonzero(np.asarray(initial) > 0.0).tolist())
    queue = list(reached)
    while queue:
        fresh = after[queue.pop()] - reached
        reached |= fresh
        queue.extend(fresh)
    live[:] = False
    live[list(reached)] = True
    return live


def _start(env: Any, name: str, live: NDArray[np.bool_], start: Any) -> Any:
    """The start distribution over the n + 1 states, or a start state."""
    n = live.size
    if start is None:
        frozen = any(cls.__name__ == "FrozenLakeEnv" for cls in type(env).__mro__)
        start = "uniform" if frozen else "environment"
    if isinstance(start, str):
        if start == "uniform":
            return np.append(live / np.count_nonzero(live), 0.0)
        if start != "environment":
            raise SettingError(
                f"start must be 'uniform', 'environment', a state or a distribution, got {start!r}"
            )
        start = getattr(env, "initial_state_distrib", None)
        if start is None:
            raise ModelError(f"{name} does not tell its start distribution: give start=")
    if np.ndim(start) == 0:
        return whole("start", start, 0, n)
    distribution = np.asarray(start)
    if distribution.shape == (n,):
        distribution = np.append(distribution, distribution.dtype.type(0))  # float32 stays float32
    return distribution
