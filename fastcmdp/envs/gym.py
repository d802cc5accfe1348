"""Gymnasium environments that publish their transition table, as models.

`env.unwrapped.P[s][a]` lists (probability, next state, reward, terminated). The model keeps the environment's
numbers for states and actions and appends one absorbing state, number n, where episodes end: every branch
marked as terminated leads there, with its reward and cost, and nothing follows. States in which an episode
has already ended (holes, the goal, those with no action in the table) keep their numbers but are never entered;
they and the absorbing state have a single action, 0, which leads to the absorbing state and earns and costs
nothing. Which these are follows from the start that is used: a state that an episode enters before it ends is
none, whatever its own branches say. Time limits of the environment are not part of the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastcmdp.check import real, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.envs.limits import Limit, with_limit
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.rows import MAX_STATES
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
        environment = _make(env, kwargs)
        try:
            return _from_table(environment.unwrapped, env, cost, limit, gamma, start)
        finally:
            environment.close()
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
        options = ", ".join(f"{key}={value!r}" for key, value in kwargs.items())
        raise ModelError(
            f"Gymnasium cannot make {name!r} with {options}: {type(error).__name__}: {error}"
        ) from error


def _from_table(
    env: Any,
    name: str,
    cost: str | CostFunction | Sequence[str | CostFunction] | None,
    limit: Limit,
    gamma: float,
    start: Any,
) -> CMDP:
    table = _table_of(env, name)
    n = len(table)
    names, functions = _costs(env, name, cost)
    live, distribution = _live_and_start(env, name, table, start)
    ended, _ = _ends(table)
    rows = [
        [(a, branches) for a, branches in actions if branches] if live[s] or s not in ended else []
        for s, actions in enumerate(table)
    ]
    nothing = [_Branch(1.0, n, 0.0, True)]

    state_to_choice, choice_to_branch, actions = [0], [0], []
    targets: list[int] = []
    probabilities: list[Any] = []
    # One list for the reward and one for each cost, a value for each branch.
    signals: list[list[float]] = [[] for _ in range(1 + len(functions))]
    for s in range(n + 1):
        choices = (rows[s] if s < n else []) or [(0, nothing)]
        for a, branches in choices:
            for branch in branches:
                targets.append(n if branch.terminated else branch.target)
                probabilities.append(branch.probability)
                transition = (s, a, branch.target, branch.reward, branch.terminated)
                costs = [
                    0.0 if branches is nothing else _charge(function, transition) for function in functions
                ]
                for signal, value in zip(signals, (branch.reward, *costs), strict=True):
                    signal.append(value)
            choice_to_branch.append(len(targets))
            actions.append(a)
        state_to_choice.append(len(actions))
    cmdp = CMDP(
        state_to_choice,
        choice_to_branch,
        targets,
        _array_of(probabilities),
        signals[0],
        signals[1:] or None,
        gamma=gamma,
        start=distribution,
        limits=[0.0] * len(functions) or None,
        action_of_choice=actions,
        names=("reward", *names),
    )
    return with_limit(cmdp, limit)


class _Branch(NamedTuple):
    """A branch of a table; the probability in the type that it has there."""

    probability: Any
    target: int
    reward: float
    terminated: bool


_Rows = list[list[tuple[int, list[_Branch]]]]


def _table_of(env: Any, name: str) -> _Rows:
    """Each state's actions with their branches; a state without any is one in which an episode has ended."""
    table = getattr(env, "P", None)
    if table is None:
        raise ModelError(
            f"{name} publishes no transition table P, so it has no explicit model; "
            "FrozenLake-v1, Taxi-v4 and CliffWalking-v1 do"
        )
    if getattr(env, "fickle_passenger", False):
        raise ModelError(f"{name} with fickle_passenger changes destinations outside of its table P")
    if not isinstance(table, Mapping | Sequence) or not len(table):
        raise ModelError(f"P of {name} is of type {type(table).__name__}; P[state][action] is expected")
    rows = []
    for s in range(len(table)):
        try:
            actions = table[s]
        except (LookupError, TypeError):
            raise ModelError(
                f"P of {name} has {len(table)} states, but no P[{s}]; they are numbered from 0"
            ) from None
        if not isinstance(actions, Mapping | Sequence):
            raise ModelError(
                f"P[{s}] of {name} is {actions!r}; its actions, with branches each, are expected"
            )
        numbered = sorted(actions.items()) if isinstance(actions, Mapping) else list(enumerate(actions))
        actions_of = []
        for a, branches in numbered:
            action = whole(f"an action in P[{s}]", a, 0, MAX_STATES, error=ModelError)
            actions_of.append((action, _branches(f"P[{s}][{a}]", branches, len(table))))
        rows.append(actions_of)
    return rows


def _branches(place: str, row: Any, n: int) -> list[_Branch]:
    """The branches of positive probability in a table's list for a state and an action."""
    if not isinstance(row, Sequence) or isinstance(row, str):
        raise ModelError(
            f"{place} is {row!r}; a list of (probability, next state, reward, terminated) is expected"
        )
    branches = []
    for i, entry in enumerate(row):
        try:
            p, target, reward, terminated = entry
        except (TypeError, ValueError):
            raise ModelError(
                f"{place}[{i}] is {entry!r}; (probability, next state, reward, terminated) is expected"
            ) from None
        real(f"{place}[{i}], the probability", p, error=ModelError)
        if p == 0:
            continue
        target = whole(f"{place}[{i}], the next state", target, 0, n - 1, error=ModelError)
        pay = real(f"{place}[{i}], the reward", reward, error=ModelError)
        branches.append(_Branch(p, target, pay, bool(terminated)))
    return branches


def _array_of(probabilities: list[Any]) -> NDArray[Any]:
    """Probabilities as an array of the least precise type that one of them has, by whose rounding rows are judged."""
    kinds = {p.dtype for p in probabilities if isinstance(p, np.floating)}
    least = min(kinds, key=lambda dtype: dtype.itemsize) if kinds else np.dtype(np.float64)
    return np.array(probabilities, dtype=np.float64).astype(least if least.itemsize < 8 else np.float64)


def _costs(env: Any, name: str, cost: Any) -> tuple[list[str], list[CostFunction]]:
    """The name and the function of each cost."""
    kinds = {cls.__name__ for cls in type(env).__mro__}
    ready = {known: make for known, (kind, make) in _COSTS.items() if kind in kinds}
    if cost is None:
        if not ready:
            raise SettingError(f"{name} has no ready cost: give cost=, a function of each transition")
        cost = next(iter(ready))
    costs = [cost] if isinstance(cost, str) or callable(cost) else list(cost)
    names: list[str] = []
    functions: list[CostFunction] = []
    for i, one in enumerate(costs):
        if callable(one):
            names.append("cost" if len(costs) == 1 else f"cost {i}")
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


def _ends(table: _Rows) -> tuple[set[int], set[int]]:
    """The states to which other states' branches lead with an end, and those to which they lead without."""
    ended: set[int] = set()
    entered: set[int] = set()
    for s, actions in enumerate(table):
        for _, branches in actions:
            for branch in branches:
                if branch.target != s:
                    (ended if branch.terminated else entered).add(branch.target)
    return ended, entered


def _live_and_start(env: Any, name: str, table: _Rows, start: Any) -> tuple[NDArray[np.bool_], Any]:
    """The states in which an episode can be while it lasts, and the start over the n + 1 states, or a start state.

    Live is what branches without an end reach from the start that is used; for "uniform", from the environment's,
    and where it tells none, all states but those that are entered with an end only.
    """
    n = len(table)
    own = getattr(env, "initial_state_distrib", None)
    if start is None:
        frozen = any(cls.__name__ == "FrozenLakeEnv" for cls in type(env).__mro__)
        start = "uniform" if frozen else "environment"
    if isinstance(start, str) and start == "uniform":
        if own is not None:
            live = _reached(table, np.asarray(own))
        else:
            ended, entered = _ends(table)
            live = np.array([bool(table[s]) and s not in ended - entered for s in range(n)])
        return live, np.append(live / max(int(np.count_nonzero(live)), 1), 0.0)
    if isinstance(start, str):
        if start != "environment":
            raise SettingError(
                f"start must be 'uniform', 'environment', a state or a distribution, got {start!r}"
            )
        if own is None:
            raise ModelError(f"{name} does not tell its start distribution: give start=")
        start = own
    if np.ndim(start) == 0:
        state = whole("start", start, 0, n)
        return _reached(table, np.arange(n) == state), state
    distribution = np.asarray(start)
    if distribution.shape == (n,):
        distribution = np.append(distribution, distribution.dtype.type(0))  # float32 stays float32
    return _reached(table, distribution[:n]), distribution


def _reached(table: _Rows, start: NDArray[Any]) -> NDArray[np.bool_]:
    """The states that branches without an end reach from those of positive weight."""
    live = np.zeros(len(table), dtype=bool)
    queue = np.flatnonzero(start > 0).tolist() if start.ndim == 1 else []
    live[queue] = True
    while queue:
        for _, branches in table[queue.pop()]:
            for branch in branches:
                if not branch.terminated and not live[branch.target]:
                    live[branch.target] = True
                    queue.append(branch.target)
    return live
