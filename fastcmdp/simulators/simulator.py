"""A simulator of the user's own as a problem to solve: checked by a trial run, evaluated by Monte Carlo."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core.errors import NumbaError

from fastcmdp.errors import ModelError, SettingError
from fastcmdp.kernels import simulate as kernel
from fastcmdp.kernels.streams import LANES
from fastcmdp.simulators.functions import (
    ARGUMENTS,
    Function,
    copy_state,
    features_callback,
    function_of,
    reset_callback,
    step_callback,
)
from fastcmdp.simulators.rolls import make_roll
from fastcmdp.units import (
    Units,
    constraint_units,
    discount,
    limits_of,
    numbers_in,
    room_below,
    senses,
    signal_names,
)

Float = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

_GUARD, _MARK = 8, 6.02214076e23  # doubles beyond an array, and what they hold: to notice who writes there
_IN_PYTHON = 50  # transitions of the trial run that user code makes in Python, with its checks of indices
_AGAIN = 100  # transitions of the trial run that are made twice: the same stream gives the same numbers
_CHUNK = 1000  # rollouts of an evaluation that share a stream
LARGEST = 65_536  # numbers in a state, actions, features


@dataclass(frozen=True)
class SimulatedValue:
    """Estimates of J_r and of the constraint values in the user's units, and where they lie with some confidence.

    Attributes
    ----------
    reward : float
    constraints : float64[m]
    reward_interval : float64[2]
    constraint_intervals : float64[m, 2]
        Each covers the exact value with probability ``confidence``, for many rollouts (central limit theorem).
    rollouts, transitions : int
    confidence : float
    """

    reward: float
    constraints: Float
    reward_interval: Float
    constraint_intervals: Float
    rollouts: int
    transitions: int
    confidence: float


class Simulator(Units):
    """A problem given by functions that simulate it; no transition table exists.

    The functions are decorated with ``@numba.njit``, or are C functions (ctypes, cffi, or an address) with the types
    in ``fastcmdp.include``'s fastcmdp_simulator.h. They draw with ``fastcmdp.kernels.draws`` and must keep nothing
    between calls, so that a state can be copied and taken up again.

    Parameters
    ----------
    step : function (state, action, rng, costs) -> reward
        Overwrites ``state`` (float64[n_state]) with the next state, adds to ``costs`` (float64[m], zeros when called)
        and returns the reward; ``action`` is 0 .. n_actions-1, ``rng`` (uint64[4]) the stream to draw from.
    reset : function (state, rng)
        Overwrites ``state`` with a start state.
    n_state, n_actions : int
    gamma : float
        In (0, 1).
    limits : m floats, optional
        On the unnormalised discounted sums of the costs; their number is that of the costs.
    sense : str or m strings
        "<=" or ">=".
    names : 1+m strings, optional
    state_features : function (state, out), optional
        Writes ``n_features`` numbers (zeros when called): what policies see of a state. Without it they see the state
        itself.
    choice_features : function (state, action, out), optional
        Instead: what policies see of a state and an action.
    n_features : int
        Needed with either.
    reward_range : (low, high), optional
    cost_ranges : m pairs, or one, optional
        From where to where one step's values go; default: as the trial run saw them. They set the scale in which
        kernels see the signals, rewards and constraints in [-1, 1], and need not be kept strictly. Where rewards are
        all of one sign, the bound nearest to 0 becomes 0.
    trial : int
        Transitions of a trial run under random actions at the start. It checks the functions, measures ranges and
        features, and makes the fingerprint.

    Raises
    ------
    ModelError
        A plain Python function, one that does not compile, sizes out of range; a trial run in which a function
        raises, writes beyond its arrays, or yields something that is not finite, or other numbers from the same
        stream a second time.

    Examples
    --------
    A server that may work fast, at a price; the state is the number of customers.

    >>> import numba, fastcmdp as fc
    >>> from fastcmdp.kernels import draws
    >>> @numba.njit
    ... def step(state, action, rng, costs):
    ...     costs[0] = action
    ...     served = draws.uniform(rng) < (0.8 if action == 1 else 0.3)
    ...     if served and state[0] > 0:
    ...         state[0] -= 1
    ...     if draws.uniform(rng) < 0.5:
    ...         state[0] += 1
    ...     return -state[0]
    >>> @numba.njit
    ... def reset(state, rng):
    ...     state[0] = 0.0
    >>> @numba.njit
    ... def features(state, out):
    ...     out[0] = 1.0
    ...     out[1] = state[0] / (1.0 + state[0])
    >>> queue = fc.Simulator(step, reset, n_state=1, n_actions=2, gamma=0.9, limits=[4.0], names=["-length", "power"],
    ...                      state_features=features, n_features=2)
    >>> result = fc.solve(queue, fc.PDANPG(outer=50, inner=20), replicates=2)
    >>> result.finished, result.theta.shape
    (True, (2, 4))
    >>> value = queue.evaluate(fc.LogLinear(), result.theta[0], rollouts=2000)
    >>> bool(value.reward_interval[0] < value.reward < value.reward_interval[1])
    True
    """

    _source = "rng"  # what a simulator is to draw from

    def __init__(
        self,
        step: Any,
        reset: Any,
        *,
        n_state: int,
        n_actions: int,
        gamma: float,
        limits: npt.ArrayLike | None = None,
        sense: str | Sequence[str] = "<=",
        names: Sequence[str] | None = None,
        state_features: Any = None,
        choice_features: Any = None,
        n_features: int | None = None,
        reward_range: Sequence[float] | None = None,
        cost_ranges: Any = None,
        trial: int = 2000,
        name: str = "simulator",
        fork: Any = None,
    ) -> None:
        m = 0 if limits is None else np.atleast_1d(numbers_in(limits, "limits")).size
        self.name, self.gamma, self.limits = name, discount(gamma), limits_of(limits, m)
        self.sense, self.names = senses(sense, m), signal_names(names, m)
        self.n_state, self.n_actions = _size(n_state, "n_state"), _size(n_actions, "n_actions")
        if state_features is not None and choice_features is not None:
            raise ModelError(
                "state_features and choice_features are given; policies see one or the other: leave one out"
            )
        given = state_features if choice_features is None else choice_features
        if (given is None) != (n_features is None):
            raise ModelError(
                "n_features is the number of features that state_features or choice_features writes: "
                "give both, or neither (policies then see the state itself)"
            )
        self.by_choice = choice_features is not None
        self.n_features = self.n_state if given is None else _size(n_features, "n_features")
        kind = "choice_features" if self.by_choice else "state_features"
        self._step, self._reset = function_of("step", step), function_of("reset", reset)
        self._features = (
            Function(kind) if given is None else function_of(kind, given, self.n_actions, self.n_features)
        )
        self._fork = Function("fork") if fork is None else function_of("fork", fork)
        self._rolls: dict[Any, Any] = {}
        self._callbacks: dict[str, Any] = {}
        self._run_trial(_size(trial, "trial"))
        self._set_units(reward_range, cost_ranges)

    @property
    def n_rows(self) -> int:
        """Rows of features of a state: one, or one an action."""
        return self.n_actions if self.by_choice else 1

    @property
    def state_to_choice(self) -> npt.NDArray[np.int64]:
        """As of a model with one state: every state has these choices."""
        return np.array([0, self.n_actions])

    def __repr__(self) -> str:
        bounds = zip(self.names[1:], self.sense, self.limits, strict=True)
        goals = [f"maximise {self.names[0]}"] + [f"{name} {sign} {limit:g}" for name, sign, limit in bounds]
        return (
            f"{type(self).__name__}({self.name}, {self.n_state} numbers a state, {self.n_actions} actions, "
            f"gamma={self.gamma:g}, {', '.join(goals)})"
        )

    def fingerprint(self) -> str:
        """Hash of what a result depends on; of the functions, of what they did in the trial run."""
        facts = (self.gamma, self.sense, self.limits.tolist(), self.n_actions, self.reward_scale,
                 self.reward_shift, self.constraint_scale.tolist())  # fmt: skip
        return hashlib.sha256(repr(facts).encode() + self._digest).hexdigest()

    # Single steps, in Python.

    def stream(self, seed: int = 0) -> Words:
        """A stream to draw from, uint64[4]: the state of ``numpy.random.SFC64(SeedSequence(seed))``."""
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
            raise SettingError(f"seed = {seed!r}: an integer of at least 0 is expected")
        return _words(np.random.SeedSequence(seed))

    def start(self, rng: Words) -> Float:
        """A start state, float64[n_state]; advances the stream.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> queue = fc.simulators.tandem_queue()
        >>> queue.start(queue.stream(0)).tolist()
        [0.0, 0.0]
        """
        state = np.zeros(self.n_state)
        assert self._reset.call is not None
        self._reset.call(state, _stream(rng))
        return state

    def step(self, state: npt.ArrayLike, action: int, rng: Words) -> tuple[Float, float, Float]:
        """Next state, reward and costs of one transition, in the user's units; advances the stream.

        Raises
        ------
        SettingError
            A state of another shape or not finite, an action out of range, a stream that is none.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> queue = fc.simulators.tandem_queue()
        >>> state, reward, costs = queue.step([2, 0], 0, queue.stream(0))
        >>> state.shape, reward, costs.shape
        ((2,), -2.0, (1,))
        """
        now = self._state(state)
        if not isinstance(action, int | np.integer) or not 0 <= action < self.n_actions:
            raise SettingError(f"action = {action!r}: an integer from 0 to {self.n_actions - 1} is expected")
        costs = np.zeros(max(self.n_constraints, 1))
        assert self._step.call is not None
        reward = self._step.call(now, int(action), _stream(rng), costs)
        return now, float(reward), costs[: self.n_constraints]

    def features(self, state: npt.ArrayLike) -> Float:
        """What policies see of a state: float64[n_features], or [n_actions, n_features]."""
        out = np.zeros((self.n_rows, self.n_features))
        self._write_features(self._state(state), out)
        return out if self.by_choice else out[0]

    def _state(self, state: npt.ArrayLike) -> Float:
        """A copy of a state that a caller gives."""
        now = _numbers(state)
        if now.shape != (self.n_state,) or not np.isfinite(now).all():
            raise SettingError(f"state = {state!r}: {self.n_state} finite numbers are expected")
        return now

    def _write_features(self, state: Float, out: Float) -> None:
        call = self._features.call
        if call is None:
            out[0] = state
        else:
            call(state, out.reshape(-1))

    # Runs through the kernels.

    def world(self, bound: Any, chains: bool = False) -> kernel.World:
        """What kernels read, for runs with such a (bound) policy: to run rollouts, or with ``chains`` chains.

        The first time for a kind of policy, or for chains, this compiles.
        """
        features = self._features.compiled or copy_state(self.n_state)
        made, m = self._callbacks, self.n_constraints
        if "features" not in made:
            made["features"] = features_callback(features, self.n_state, self.n_rows * self.n_features)
        if chains and "step" not in made:
            made["step"] = step_callback(self._step.compiled, self.n_state, m)
            made["reset"] = reset_callback(self._reset.compiled, self.n_state)
        key = (type(bound.data), *bound.data)
        if not chains and key not in self._rolls:
            self._rolls[key] = make_roll(
                self._step.compiled, self._reset.compiled, features, self._fork.compiled, bound.data,
                bound.n_parameters, (self.n_state, self.n_actions, self.n_features, m), self.by_choice,
                1.0 / math.log(self.gamma),
            )  # fmt: skip
        scale = np.append(self.reward_scale, self.constraint_scale)
        sign = np.append(1.0, -self._sign)
        shift = np.append(-self.reward_shift, self._sign * (1.0 - self.gamma) * self.limits)
        return kernel.World(
            roll=0 if chains else self._rolls[key].address,
            step=made["step"].address if chains else 0,
            reset=made["reset"].address if chains else 0,
            features=made["features"].address,
            forks=self._fork.compiled is not None,
            n_state=self.n_state,
            n_actions=self.n_actions,
            n_features=self.n_features,
            by_choice=self.by_choice,
            factor=sign / scale,
            offset=shift / scale,
            log_gamma_inverse=1.0 / math.log(self.gamma),
            horizon=1.0 / (1.0 - self.gamma),
            n_signals=1 + m,
        )

    def live_actions(self, policy: Any, theta: Float, slots: int) -> kernel.LiveActions:
        """A policy (what kernels read of it) at theta, with room for so many visited states."""
        width = max(getattr(policy, "width1", 0) + getattr(policy, "width2", 0), 1)
        return kernel.LiveActions(
            policy=policy,
            theta=theta,
            visited=np.zeros((slots, self.n_state)),
            state=np.zeros(self.n_state),
            before=np.zeros(self.n_state),
            total=np.zeros(1 + self.n_constraints),
            features=np.zeros(self.n_rows * self.n_features),
            logit=np.zeros(self.n_actions),
            hidden=np.zeros(width),
            back=np.zeros(width),
            fault=np.zeros(4, np.int64),
        )

    def fault(self, actions: kernel.LiveActions) -> str:
        """What went wrong in a run with these actions, in a sentence; "" if nothing did."""
        code, after, action, _ = actions.fault.tolist()
        if code == 0:
            return ""
        what = {
            kernel.STEP_FAULT: "the reward or a cost of step was not finite",
            kernel.STATE_FAULT: "step left a state that is not finite",
            kernel.FEATURES_FAULT: f"{self._features.kind} raised or were not finite, or the logits overflowed",
            kernel.RESET_FAULT: "reset left a state that is not finite",
            kernel.RAISED: "step, reset or features raised an exception",
            kernel.WALK_FAULT: "step raised, or its reward or a cost was not finite",
            kernel.WALK_RESET_FAULT: "reset raised, or left a state that is not finite",
        }[code]
        if self._fork.compiled is not None:
            return what
        if code in (kernel.RESET_FAULT, kernel.WALK_RESET_FAULT) or after < 0:
            return "reset raised an exception" if code == kernel.RAISED else what
        if code == kernel.RAISED:
            what = f"{'step' if action >= 0 else self._features.kind} raised an exception"
        chosen = f", action {action}" if action >= 0 else ""
        return f"{what} (state {actions.before.tolist()}{chosen}, {after} steps into a rollout)"

    def evaluate(
        self,
        policy: Any,
        theta: npt.ArrayLike | None = None,
        *,
        rollouts: int = 10_000,
        seed: int = 0,
        confidence: float = 0.95,
        threads: int | None = None,
    ) -> SimulatedValue:
        """J of a policy by Monte Carlo: unbiased estimates from rollouts with a geometric horizon.

        Parameters
        ----------
        policy : LogLinear() or NeuralSoftmax(...)
        theta : float64[d], optional
            Such as a row of ``result.theta``; default: where runs start.
        rollouts : int
            At least 2; the error falls like one over their root. Each makes 1/(1-gamma) transitions in the mean.
        seed : int
            The same seed gives the same numbers on any number of threads; none of these streams is one of ``solve``.
        confidence : float
            In (0, 1).

        Raises
        ------
        ModelError, SettingError
            A policy that does not fit, a theta of another length, a setting out of range, a simulator that fails.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> value = fc.simulators.tandem_queue().evaluate(fc.LogLinear(), rollouts=1000)
        >>> value.constraint_intervals.shape
        (1, 2)
        """
        for name, count, least in (("rollouts", rollouts, 2), ("seed", seed, 0), ("threads", threads, 1)):
            whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
            if count is not None and (not whole or count < least):
                raise SettingError(f"{name} = {count!r}: an integer of at least {least} is expected")
        if not isinstance(confidence, int | float | np.floating) or not 0.0 < confidence < 1.0:
            raise SettingError(f"confidence = {confidence!r}: a number between 0 and 1 is expected")
        if isinstance(policy, type) or not hasattr(policy, "bind"):
            raise SettingError(f"policy = {policy!r}: give LogLinear() or NeuralSoftmax(hidden=...)")
        bound = policy.bind(self)
        start = bound.initial if bound.initial is not None else np.zeros(bound.n_parameters)
        parameters = np.array(start) if theta is None else _numbers(theta)
        if parameters.shape != (bound.n_parameters,):
            raise SettingError(
                f"theta has shape {parameters.shape}, and ({bound.n_parameters},) is expected; of a result give a "
                "row: result.theta[0]"
            )
        if not np.isfinite(parameters).all():
            raise SettingError(f"theta[{int(np.argmin(np.isfinite(parameters)))}] is not finite")
        world = self.world(bound)
        total, made = np.empty((rollouts, world.n_signals)), []

        def chunk(first: int) -> None:
            n = min(_CHUNK, rollouts - first)
            actions = self.live_actions(bound.data, parameters, n)
            rng = np.zeros((4, LANES), np.uint64)
            rng[:, 0] = _words(np.random.SeedSequence(seed, spawn_key=(first // _CHUNK, 0, 0)))
            made.append(
                kernel.simulate(
                    world, actions, rng, np.full(n, -1), np.zeros(n, np.uint32), total[first : first + n],
                    np.zeros(n, np.int64),
                )
            )  # fmt: skip
            if fault := self.fault(actions):
                raise ModelError(f"{self.name}: {fault}")

        n_threads = min(threads or len(os.sched_getaffinity(0)), -(-rollouts // _CHUNK))
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(chunk, range(0, rollouts, _CHUNK)))
        from scipy.special import ndtri  # here, since it is slow to import

        values = self.to_user_values(total)
        mean = values.mean(axis=0)
        half = ndtri(0.5 + confidence / 2) * values.std(axis=0, ddof=1) / math.sqrt(rollouts)
        interval = np.stack([mean - half, mean + half], axis=1)
        return SimulatedValue(
            float(mean[0]), mean[1:], interval[0], interval[1:], rollouts, int(sum(made)), float(confidence)
        )

    # The trial run.

    def _run_trial(self, n: int) -> None:
        """Run the functions under random actions; keep the features seen and the ranges of reward and costs."""
        choose = np.random.default_rng(0)
        actions = choose.integers(0, self.n_actions, n)
        begins = choose.random(n) >= self.gamma
        begins[0] = True
        self._check_indices(self.stream(0), actions[:_IN_PYTHON])
        seen, signals, states = self._walk(actions, begins)
        again = self._walk(actions[:_AGAIN], begins[:_AGAIN])
        same = [(one[:_AGAIN] == two).reshape(len(two), -1).all(axis=1) for one, two in
                zip((seen, signals, states), again, strict=True)]  # fmt: skip
        if not np.all(same):
            raise ModelError(
                f"{self.name}: the same stream and actions gave other numbers the second time, at transition "
                f"{int(np.argmin(np.all(same, axis=0)))}; draw from {self._source} only, and keep nothing between calls"
            )
        digest = hashlib.sha256(states.tobytes() + signals.tobytes() + seen.tobytes())
        self._digest, self.trial_features = digest.digest(), seen
        self._low, self._high = signals.min(axis=0), signals.max(axis=0)

    def _walk(
        self, actions: npt.NDArray[np.int64], begins: npt.NDArray[np.bool_]
    ) -> tuple[Float, Float, Float]:
        """Features, signals and next states of transitions with these actions, from the start where one begins."""
        n, m, rng = len(actions), self.n_constraints, self.stream(0)
        state, costs = _Guarded(self.n_state), _Guarded(max(m, 1))
        row = _Guarded(self.n_rows * self.n_features)
        seen = np.zeros((n, self.n_rows, self.n_features))
        signals, states = np.zeros((n, 1 + m)), np.zeros((n, self.n_state))
        for t in range(n):
            action = int(actions[t])
            if begins[t]:
                _called(self._reset, "", state.array, rng)
                _expect(state, "reset", "state", "")
            now = state.array.copy()
            where = f" in state {now.tolist()}"
            if self._features.call is None:
                row.array[:] = now
            else:
                row.array[:] = 0.0
                _called(self._features, where, state.array, row.array)
                if (state.array != now).any():
                    raise ModelError(f"{self._features.kind} changes the state{where}; it may only read it")
            _expect(row, self._features.kind, "feature", where)
            seen[t] = row.array.reshape(self.n_rows, self.n_features)
            costs.array[:] = 0.0
            where += f" with action {action}"
            reward = _called(self._step, where, state.array, action, rng, costs.array)
            if not isinstance(reward, int | float | np.number) or not np.isfinite(reward):
                raise ModelError(f"step gave reward {reward}{where}; it must return one finite number")
            signals[t, 0], signals[t, 1:] = reward, costs.array[:m]
            _expect(costs, "step", "cost", where)
            _expect(state, "step", "next state", where)
            states[t] = state.array
        return seen, signals, states

    def _check_indices(self, rng: Words, actions: npt.NDArray[np.int64]) -> None:
        """Run the functions as Python, which checks indices, for compiled code does not.

        What else is raised here is no fault yet: numba allows things that Python does not.
        """
        functions = [f for f in (self._step, self._reset, self._features) if f.compiled is not None]
        if any(f.python is None for f in functions):
            return
        state, costs = np.zeros(self.n_state), np.zeros(self.n_constraints)
        out = np.zeros(self.n_features)
        where, name = "", "reset"
        assert self._reset.python is not None
        assert self._step.python is not None
        try:
            with np.errstate(all="ignore"):
                self._reset.python(state, rng)
                for action in actions.tolist():
                    where = f" in state {state.tolist()} with action {action}"
                    if self._features.python is not None:
                        name = self._features.kind
                        arguments = (state.copy(), action, out) if self.by_choice else (state.copy(), out)
                        self._features.python(*arguments)
                    name, costs[:] = "step", 0.0
                    self._step.python(state, action, rng, costs)
        except IndexError as error:
            raise ModelError(
                f"{name} goes beyond its arrays{where} ({error}); state has {self.n_state} numbers, costs "
                f"{self.n_constraints} (one a limit), out {self.n_features}"
            ) from error
        except Exception:
            return

    def _set_units(self, reward_range: Any, cost_ranges: Any) -> None:
        m = self.n_constraints
        low, high = self._low.copy(), self._high.copy()
        if reward_range is not None:
            low[0], high[0] = _pairs(reward_range, 1, "reward_range")[0]
        if cost_ranges is not None:
            low[1:], high[1:] = _pairs(cost_ranges, m, "cost_ranges").T
        # An offset is noise to estimates with a random horizon: unlike a table's, rewards around 0 stay so.
        least, most = float(low[0]), float(high[0])
        self.reward_shift = 0.0 if least <= 0.0 <= most else min(least, most, key=abs)
        self.reward_scale = max(most - self.reward_shift, self.reward_shift - least) or 1.0
        room = [room_below(self.limits, self.gamma, end) for end in (low[1:], high[1:])]
        self.constraint_scale = constraint_units(np.abs(room).max(axis=0))


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


def _words(sequence: np.random.SeedSequence) -> Words:
    bits: Any = np.random.SFC64(sequence)
    words: Words = bits.state["state"]["state"].astype(np.uint64)
    return words


def _stream(rng: Any) -> Words:
    fits = isinstance(rng, np.ndarray) and rng.dtype == np.uint64 and rng.shape == (4,)
    if not fits or not (rng.flags.carray and rng.dtype.isnative):
        raise SettingError(
            "rng is no stream; simulator.stream(seed) makes one (uint64[4], contiguous, writeable)"
        )
    return rng  # type: ignore[no-any-return]


def _numbers(given: Any) -> Float:
    """A copy as float64; of what is none, an array without elements."""
    try:
        return np.array(given, np.float64)
    except (TypeError, ValueError):
        return np.empty(0)


def _size(value: Any, name: str) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not 1 <= value <= LARGEST:
        raise ModelError(f"{name} = {value!r}: an integer from 1 to {LARGEST} is expected")
    return int(value)


def _pairs(given: Any, n: int, name: str) -> Float:
    pairs = np.asarray(numbers_in(given, name), np.float64)
    if pairs.ndim == 1:
        pairs = np.broadcast_to(pairs, (n, *pairs.shape))
    if pairs.shape != (n, 2) or not np.isfinite(pairs).all() or (pairs[:, 0] > pairs[:, 1]).any():
        raise ModelError(f"{name} = {given!r}: pairs (low, high) of finite numbers are expected, {n} of them")
    return pairs
