"""A simulator of the user's own as a problem to solve: checked by a trial run, evaluated by Monte Carlo."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcmdp.check import seed_number
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.kernels.simulator import simulate as kernel
from fastcmdp.simulators.checks import check_pairs, check_size, numbers_or_none, stream_of
from fastcmdp.simulators.estimates import SimulatedValue, estimate
from fastcmdp.simulators.faults import fault_text
from fastcmdp.simulators.functions import (
    Function,
    copy_state,
    features_callback,
    function_of,
    is_address,
    reset_callback,
    step_callback,
)
from fastcmdp.simulators.rolls import make_roll
from fastcmdp.simulators.trial import TrialRun, run_trial, warn_of_lost_digits
from fastcmdp.streams import words_of
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

    source, first_action = "rng", 0  # what a simulator is to draw from; how the user numbers actions

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
        self.anchors = self.limits
        self.sense, self.names = senses(sense, m), signal_names(names, m)
        self.n_state, self.n_actions = check_size(n_state, "n_state"), check_size(n_actions, "n_actions")
        if state_features is not None and choice_features is not None:
            raise ModelError(
                "state_features and choice_features are given; policies see one or the other: leave one out"
            )
        features = state_features if choice_features is None else choice_features
        if (features is None) != (n_features is None):
            raise ModelError(
                "n_features is the number of features that state_features or choice_features writes: "
                "give both, or neither (policies then see the state itself)"
            )
        self.by_choice = choice_features is not None
        self.n_features = self.n_state if features is None else check_size(n_features, "n_features")
        kind = "choice_features" if self.by_choice else "state_features"
        self._step, self._reset = function_of("step", step), function_of("reset", reset)
        self._features = (
            Function(kind)
            if features is None
            else function_of(kind, features, self.n_actions, self.n_features)
        )
        self._fork = Function("fork") if fork is None else function_of("fork", fork)
        self._arguments: dict[str, Any] = {
            "step": step, "reset": reset, "n_state": n_state, "n_actions": n_actions, "gamma": gamma, "limits": limits,
            "sense": sense, "names": names, "state_features": state_features, "choice_features": choice_features,
            "n_features": n_features, "reward_range": reward_range, "cost_ranges": cost_ranges, "trial": trial,
            "name": name, "fork": fork,
        }  # fmt: skip
        self._rolls: dict[Any, Any] = {}
        self._callbacks: dict[str, Any] = {}
        self.trial = self._run_trial(check_size(trial, "trial"))
        self._set_units(reward_range, cost_ranges)

    @property
    def n_rows(self) -> int:
        """Rows of features of a state: one, or one an action."""
        return self.n_actions if self.by_choice else 1

    @property
    def widest(self) -> int:
        """The most choices that a state has: all actions, everywhere."""
        return self.n_actions

    @property
    def n_choices(self) -> int:
        """Choices that can be told apart without features: the actions."""
        return self.n_actions

    def bind(self, policy: Any) -> Any:
        """A policy class checked against this simulator, for runs: ``policy.on_simulator(self)``."""
        return policy.on_simulator(self)

    @property
    def trial_features(self) -> Float:
        """What policies saw in the trial run, float64[n, rows, n_features]."""
        return self.trial.features

    @property
    def rollout_length(self) -> float:
        """Expected transitions of a rollout; the reward of its last pair comes with the next state."""
        return 1.0 / (1.0 - self.gamma)

    def __repr__(self) -> str:
        bounds = zip(self.names[1:], self.sense, self.limits, strict=True)
        goals = [f"maximise {self.names[0]}"] + [f"{name} {sign} {limit:g}" for name, sign, limit in bounds]
        return (
            f"{type(self).__name__}({self.name}, {self.n_state} numbers a state, {self.n_actions} actions, "
            f"gamma={self.gamma:g}, {', '.join(goals)})"
        )

    def fingerprint(self) -> str:
        """Hash of what a result depends on; of the functions, of what they did in the trial run.

        Simulators that differ in branches only which the trial run never took pass for one: a longer ``trial`` sees
        more.
        """
        facts = (self.gamma, self.sense, self.limits.tolist(), self.n_actions, self.reward_scale,
                 self.reward_shift, self.constraint_scale.tolist())  # fmt: skip
        return hashlib.sha256(repr(facts).encode() + self.trial.digest).hexdigest()

    # Single steps, in Python.

    def stream(self, seed: int = 0) -> Words:
        """A stream to draw from, uint64[4]: the state of ``numpy.random.SFC64(SeedSequence(seed))``."""
        return words_of(np.random.SeedSequence(seed_number(seed)))

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
        self._reset.call(state, stream_of(rng))
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
        reward = self._step.call(now, int(action), stream_of(rng), costs)
        return now, float(reward), costs[: self.n_constraints]

    def features(self, state: npt.ArrayLike) -> Float:
        """What policies see of a state: float64[n_features], or [n_actions, n_features]."""
        out = np.zeros((self.n_rows, self.n_features))
        self._write_features(self._state(state), out)
        return out if self.by_choice else out[0]

    def observed(self, observation: Any) -> Float:
        """The state that an observation is of, float64[n_state], as far as policies see it."""
        return self._state(observation)

    def _state(self, state: npt.ArrayLike) -> Float:
        """A copy of a state that a caller gives."""
        now = numbers_or_none(state)
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

    def world(self, bound: Any, chains: bool = False, corrected: bool = False) -> kernel.Addresses:
        """What kernels read, for runs with such a (bound) policy: to run rollouts, or with ``chains`` chains.

        ``corrected``: rollouts that a critic corrects (``rolls.py``).

        The first time for a kind of policy, or for chains, this compiles.
        """
        features = self._features.compiled or copy_state(self.n_state)
        callbacks, m = self._callbacks, self.n_constraints
        if "features" not in callbacks:
            callbacks["features"] = features_callback(features, self.n_state, self.n_rows * self.n_features)
        if chains and "step" not in callbacks:
            callbacks["step"] = step_callback(self._step.compiled, self.n_state, m)
            callbacks["reset"] = reset_callback(self._reset.compiled, self.n_state)
        key = (corrected, type(bound.data), *bound.data)
        if not chains and key not in self._rolls:
            self._rolls[key] = make_roll(
                self._step.compiled, self._reset.compiled, features, self._fork.compiled, bound.data,
                bound.n_parameters, bound.n_hidden, (self.n_state, self.n_actions, self.n_features, m),
                self.by_choice, float(self.gamma), corrected,
            )  # fmt: skip
        return kernel.Addresses(
            roll=0 if chains else self._rolls[key].address,
            step=callbacks["step"].address if chains else 0,
            reset=callbacks["reset"].address if chains else 0,
            features=callbacks["features"].address,
            forks=self._fork.compiled is not None,
            n_state=self.n_state,
            n_actions=self.n_actions,
            n_features=self.n_features,
            by_choice=self.by_choice,
            factor=self.signal_factor,
            offset=self.signal_offset,
            log_gamma_inverse=1.0 / math.log(self.gamma),
            horizon=1.0 / (1.0 - self.gamma),
            n_signals=1 + m,
            stop=np.zeros(1, np.int64),
        )

    def live_actions(self, bound: Any, theta: Float, slots: int) -> kernel.LiveActions:
        """A (bound) policy at theta, with room for so many visited states."""
        return kernel.LiveActions(
            policy=bound.data,
            theta=theta,
            visited=np.zeros((slots, self.n_state)),
            state=np.zeros(self.n_state),
            before=np.zeros(self.n_state),
            total=np.zeros(3 * (1 + self.n_constraints)),
            features=np.zeros(self.n_rows * self.n_features),
            logit=np.zeros(self.n_actions),
            hidden=np.zeros(bound.n_hidden),
            back=np.zeros(bound.n_hidden),
            fault=np.zeros(4, np.int64),
        )

    def fault(self, actions: kernel.LiveActions) -> str:
        """What went wrong in a run with these actions, in a sentence; "" if nothing did."""
        return fault_text(actions, self._features.kind, self._fork.compiled is not None)

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

        The sums are the user's rewards and costs, less the part that follows from a rollout's length, whose expectation
        is known: no limit and no range enters.

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
        return estimate(self, policy, theta, rollouts, seed, confidence, threads)

    def __reduce__(self) -> Any:
        """Pickled as the call that made it: the trial run is made again, and must show the same."""
        for name in ("step", "reset", "state_features", "choice_features", "fork", "env", "cost"):
            value: Any = self._arguments.get(name)
            if is_address(value):
                raise TypeError(
                    f"cannot pickle a simulator whose {name} is a C function: its address is of this process; "
                    "make the simulator anew in each process"
                )
            if "<" in getattr(value, "__qualname__", "") and not hasattr(value, "py_func"):
                raise TypeError(
                    f"cannot pickle a simulator whose {name} is {value.__qualname__}: other processes cannot import "
                    "it; define it at the top of a module"
                )
        return _made_again, (type(self), self._arguments, self.fingerprint())

    def _run_trial(self, n: int) -> TrialRun:
        return run_trial(self, n)

    def _set_units(self, reward_range: Any, cost_ranges: Any) -> None:
        low, high = self.trial.low.copy(), self.trial.high.copy()
        if reward_range is not None:
            low[0], high[0] = check_pairs(reward_range, 1, "reward_range")[0]
        if cost_ranges is not None:
            low[1:], high[1:] = check_pairs(cost_ranges, self.n_constraints, "cost_ranges").T
        # An offset is noise to estimates with a random horizon: unlike a table's, rewards around 0 stay so.
        least, most = float(low[0]), float(high[0])
        self.reward_shift = 0.0 if least <= 0.0 <= most else min(least, most, key=abs)
        self.reward_scale = max(most - self.reward_shift, self.reward_shift - least) or 1.0
        room = [room_below(self.limits, self.gamma, end) for end in (low[1:], high[1:])]
        self.constraint_scale = constraint_units(np.abs(room).max(axis=0))
        warn_of_lost_digits(self, low[1:], high[1:])


def _made_again(kind: type[Simulator], arguments: dict[str, Any], fingerprint: str) -> Simulator:
    """A pickled simulator in another process."""
    simulator = kind(**arguments)
    if simulator.fingerprint() != fingerprint:
        raise ModelError(
            f"{simulator.name}: functions do something else here than where the simulator was pickled"
        )
    return simulator
