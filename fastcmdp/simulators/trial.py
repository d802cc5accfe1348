"""The trial run of a simulator: its functions checked, the ranges of its signals and its features measured."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numba.core.errors import NumbaError

from fastcmdp.errors import ModelError
from fastcmdp.simulators.functions import ARGUMENTS, Function
from fastcmdp.units import EPS, TINY, Units

if TYPE_CHECKING:
    from fastcmdp.simulators.simulator import Simulator

Float = npt.NDArray[np.float64]

_GUARD, _MARK = 8, 6.02214076e23  # doubles beyond an array, and what they hold: to notice who writes there
_IN_PYTHON = 50  # transitions that user code makes in Python, with its checks of indices
DIGITS = 1e-6  # of a cost's range: what sums must resolve
_AGAIN = 100  # transitions that are made twice: the same stream gives the same numbers


@dataclass(frozen=True)
class TrialRun:
    """What a trial run of n transitions has shown.

    Attributes
    ----------
    digest : bytes
        Of all its numbers.
    features : float64[n, rows, n_features]
    low, high : float64[1+m]
        The least and the largest reward and costs.
    """

    digest: bytes
    features: Float
    low: Float
    high: Float


def run_trial(simulator: Simulator, n: int) -> TrialRun:
    """Run the functions under random actions, some of them twice.

    Raises
    ------
    ModelError
        A function raises, writes beyond its arrays, yields what is not finite, or something else the second time.
    """
    choose = np.random.default_rng(0)
    actions = choose.integers(0, simulator.n_actions, n)
    begins = choose.random(n) >= simulator.gamma
    begins[0] = True
    _check_indices(simulator, actions[:_IN_PYTHON])
    seen, signals, states = _walk(simulator, actions, begins)
    again = _walk(simulator, actions[:_AGAIN], begins[:_AGAIN])
    same = [(one[:_AGAIN] == two).reshape(len(two), -1).all(axis=1) for one, two in
            zip((seen, signals, states), again, strict=True)]  # fmt: skip
    if not np.all(same):
        raise ModelError(
            f"{simulator.name}: the same stream and actions gave other numbers the second time, at transition "
            f"{int(np.argmin(np.all(same, axis=0)))}; draw from {simulator.source} only, and keep nothing between calls"
        )
    digest = hashlib.sha256(states.tobytes() + signals.tobytes() + seen.tobytes()).digest()
    return TrialRun(digest, seen, signals.min(axis=0), signals.max(axis=0))


def _walk(
    simulator: Simulator, actions: npt.NDArray[np.int64], begins: npt.NDArray[np.bool_]
) -> tuple[Float, Float, Float]:
    """Features, signals and next states of transitions with these actions, from the start where one begins."""
    n, m, rng = len(actions), simulator.n_constraints, simulator.stream(0)
    state, costs = _Guarded(simulator.n_state), _Guarded(max(m, 1))
    row = _Guarded(simulator.n_rows * simulator.n_features)
    seen = np.zeros((n, simulator.n_rows, simulator.n_features))
    signals, states = np.zeros((n, 1 + m)), np.zeros((n, simulator.n_state))
    for t in range(n):
        action = int(actions[t])
        if begins[t]:
            _called(simulator._reset, "", state.array, rng)
            _expect(state, "reset", "state", "")
        now = state.array.copy()
        where = f" in state {now.tolist()}"
        if simulator._features.call is None:
            row.array[:] = now
        else:
            row.array[:] = 0.0
            _called(simulator._features, where, state.array, row.array)
            if (state.array != now).any():
                raise ModelError(f"{simulator._features.kind} changes the state{where}; it may only read it")
        _expect(row, simulator._features.kind, "feature", where)
        seen[t] = row.array.reshape(simulator.n_rows, simulator.n_features)
        costs.array[:] = 0.0
        where += f" with action {action}"
        reward = _called(simulator._step, where, state.array, action, rng, costs.array)
        if not isinstance(reward, int | float | np.number) or not np.isfinite(reward):
            raise ModelError(f"step gave reward {reward}{where}; it must return one finite number")
        signals[t, 0], signals[t, 1:] = reward, costs.array[:m]
        _expect(costs, "step", "cost", where)
        _expect(state, "step", "next state", where)
        states[t] = state.array
    return seen, signals, states


def _check_indices(simulator: Simulator, actions: npt.NDArray[np.int64]) -> None:
    """Run the functions as Python, which checks indices, for compiled code does not.

    What else is raised here is no fault yet: numba allows things that Python does not.
    """
    functions = [
        f for f in (simulator._step, simulator._reset, simulator._features) if f.compiled is not None
    ]
    if any(f.python is None for f in functions):
        return
    state, costs, rng = np.zeros(simulator.n_state), np.zeros(simulator.n_constraints), simulator.stream(0)
    out = np.zeros(simulator.n_features)
    where, name = "", "reset"
    assert simulator._reset.python is not None
    assert simulator._step.python is not None
    try:
        with np.errstate(all="ignore"):
            simulator._reset.python(state, rng)
            for action in actions.tolist():
                where = f" in state {state.tolist()} with action {action}"
                if simulator._features.python is not None:
                    name = simulator._features.kind
                    arguments = (state.copy(), action, out) if simulator.by_choice else (state.copy(), out)
                    simulator._features.python(*arguments)
                name, costs[:] = "step", 0.0
                simulator._step.python(state, action, rng, costs)
    except IndexError as error:
        raise ModelError(
            f"{name} goes beyond its arrays{where} ({error}); state has {simulator.n_state} numbers, costs "
            f"{simulator.n_constraints} (one a limit), out {simulator.n_features}"
        ) from error
    except Exception:
        return


class _Guarded:
    """An array with marks around it, which only a function with a fault overwrites."""

    def __init__(self, n: int) -> None:
        self._all = np.full(n + 2 * _GUARD, _MARK)
        self.array = self._all[_GUARD : _GUARD + n]
        self.array[:] = 0.0

    def whole(self) -> bool:
        return bool((self._all[:_GUARD] == _MARK).all() and (self._all[-_GUARD:] == _MARK).all())


def _called(function: Function, where: str, *arguments: Any) -> Any:
    """What a function returns; what it raises, or that it does not compile, as a ModelError."""
    assert function.call is not None
    try:
        return function.call(*arguments)
    except NumbaError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ModelError(
            f"{function.kind} does not compile with arguments {ARGUMENTS[function.kind]}; numba says: "
            f"{' '.join(lines)[:600]}"
        ) from error
    except ModelError as error:
        raise ModelError(f"{error}{where}") from error
    except Exception as error:
        raise ModelError(f"{function.kind} raised {type(error).__name__}: {error}{where}") from error


def _expect(guarded: _Guarded, function: str, what: str, where: str) -> None:
    """Check what a function wrote, and where."""
    if not guarded.whole():
        raise ModelError(
            f"{function} writes beyond the {guarded.array.size} numbers of its {what} array{where}; check n_state, "
            "n_features and the number of limits"
        )
    if not np.isfinite(guarded.array).all():
        raise ModelError(f"{function} gave {what} {guarded.array.tolist()}{where}; it must be finite")


def warn_of_lost_digits(simulator: Units, low: Float, high: Float) -> None:
    """Say which limits are so far beyond costs between ``low`` and ``high`` a step that sums lose digits."""
    lost = EPS * np.abs(simulator.limits) * simulator.unit > DIGITS * np.maximum(high - low, TINY)
    for i in np.flatnonzero(lost):
        warnings.warn(
            f"limits[{i}] = {simulator.limits[i]:.6g} is so far beyond {simulator.names[1 + i]}, from {low[i]:.6g} to "
            f"{high[i]:.6g} a step, that sums lose digits; give a limit that can be missed, or none",
            RuntimeWarning,
            stacklevel=5,
        )
