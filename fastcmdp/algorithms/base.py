"""What algorithms share: how settings are checked, how a schedule meets a budget, what a run is made of."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastcmdp.check import MOST, is_finite, is_positive, require
from fastcmdp.check import whole as whole_number
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import BudgetError, SettingError
from fastcmdp.kernels.learning import duals
from fastcmdp.kernels.policy.scores import DenseScores, SparseScores
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.kernels.sampling.tables import RowSpace, new_row_space
from fastcmdp.kernels.vectors import on_line
from fastcmdp.policies import BoundPolicy
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.streams import streams
from fastcmdp.text import down
from fastcmdp.worlds.world import World


def check_words(settings: object, words: Mapping[str, tuple[object, ...]]) -> None:
    """Raise a SettingError unless each named setting is one of its words."""
    for name, known in words.items():
        value = getattr(settings, name)
        holds = any(type(value) is type(word) and value == word for word in known)
        require(holds, name, value, " or ".join(map(repr, known)))


def check_constants(**constants: Any) -> None:
    """Raise a SettingError unless all constants of a schedule are positive numbers."""
    for name, value in constants.items():
        require(is_positive(value) and np.ndim(value) == 0, name, value, "a positive number")


def whole(number: float) -> int:
    """The least integer at or above a number of steps, at least 1; 1e6, not 1,000,001, where rounding errs."""
    return max(math.ceil(round(number, 6)), 1)


def per_constraint(value: Any, m: int, name: str) -> NDArray[np.float64]:
    """One value for all m constraints, or one for each, as float64[m]."""
    array = np.atleast_1d(np.asarray(value, np.float64))
    if array.shape not in ((1,), (m,)):
        raise SettingError(
            f"{name} has {array.size} values; give one, or one for each of the {m} constraints"
        )
    return np.broadcast_to(array, m).copy()


def dual_cap(world: World, cap: Any, factor: float = 2.0) -> NDArray[np.float64]:
    """Caps of the multipliers in kernel units, float64[m].

    ``cap`` in the user's units, one or one a constraint, or factor / ((1-gamma) c_slater) where the Slater value is
    known, else infinite.
    """
    cmdp, m = world.model, world.model.n_constraints
    if cap is not None:
        return np.asarray(cmdp.from_user_duals(per_constraint(cap, m, "lambda_max")), np.float64)
    slater = None if world.optimum is None else world.optimum.slater
    if m == 0 or slater is None or not slater > 0:
        return np.full(m, np.inf)
    return np.full(m, factor / ((1.0 - cmdp.gamma) * slater))


DUALS: dict[str, Any] = {
    "plain": duals.Ascent(),
    "pi": duals.Damped(damping=1.0, follow=3.0),
    "optimistic": duals.Optimistic(),
}  # the forms of multiplier by the names that ``dual=`` of a method takes


def check_samples(samples: Any) -> None:
    """Raise a SettingError unless samples is one positive number."""
    holds = is_finite(samples) and np.ndim(samples) == 0 and samples > 0
    require(holds, "samples", samples, "a positive number")


class Output(NamedTuple):
    """Which policies of a run its output mixes, evenly: pi_k and pi_{k+1} are those before and after outer step k.

    Attributes
    ----------
    after : bool
        Whether they are those after outer steps, pi_1..pi_K, or those before, pi_0..pi_{K-1}.
    some : bool
        Whether only some outer steps count: ``Run.kept`` counts them.
    last : float
        Share of the outer steps, the last ones, whose policies are mixed: 1 all, 0 the last policy alone.
    """

    after: bool = False
    some: bool = False
    last: float = 1.0


@dataclass(frozen=True)
class Algorithm:
    """Settings of an algorithm: a frozen dataclass with its outer steps, its schedule and its run.

    Attributes
    ----------
    name : str
        As on the command line.
    outer : int
        Outer steps K.
    constants : mapping from names to (low, high)
        What a search for good settings varies, log-uniformly within these: parameters of ``for_epsilon``.
    tabular_only : bool
        Whether the method needs the tabular softmax policy.
    simulation : "rollouts", "corrected", "chains" or ""
        How it runs on simulators: by the samples of Algorithm 1, with a critic, by a chain; "": not at all.
    output : Output
        Which policies are mixed in what the method returns: `fastcmdp.runs.record` reads it.
    version : int
        Raised by whoever changes what a run computes: the results of sweeps are stored under it.
    """

    name: ClassVar[str]
    constants: ClassVar[Mapping[str, tuple[float, float]]]
    tabular_only: ClassVar[bool] = False
    simulation: ClassVar[Literal["rollouts", "corrected", "chains", ""]] = ""
    output: ClassVar[Output] = Output()
    version: ClassVar[int] = 1

    outer: int = 1000

    def check(
        self,
        counts: Mapping[str, int] | None = None,
        positive: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
        each: tuple[str, ...] = (),
    ) -> None:
        """Check settings and turn them into plain numbers: kernels know no np.int8.

        ``counts`` gives whole numbers with their least value, ``positive`` positive numbers, ``optional`` positive
        numbers or None, ``each`` the same or one a constraint.
        """
        for name, least in (counts or {}).items():
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least))
        for name in positive + optional:
            value = getattr(self, name)
            if value is None and name in optional:
                continue
            require(is_positive(value) and np.ndim(value) == 0, name, value, "a positive number")
            object.__setattr__(self, name, float(value))
        for name in each:
            value = getattr(self, name)
            require(
                value is None or is_positive(value), name, value, "a positive number, or one a constraint,"
            )

    def outer_samples(self, cmdp: CMDP | Simulator) -> float:
        """Expected transitions of one outer step of one replicate."""
        raise NotImplementedError

    def fixed_samples(self, cmdp: CMDP | Simulator) -> float:
        """Expected transitions before the first outer step."""
        return 0.0

    @property
    def rolls(self) -> str:
        """What a simulator is compiled for, with these settings: ``simulation``, or another kind of rollouts."""
        return self.simulation

    def paid_samples(self, cmdp: CMDP | Simulator) -> float:
        """``outer_samples`` for a budget to count outer steps by; a SettingError where there are none."""
        samples, nothing = self.outer_samples(cmdp), {"rollouts": 0, "trajectories": 0, "pairs": 1}
        if not samples > 0.0:
            why = ", ".join(f"{k}={v}" for k, v in nothing.items() if getattr(self, k, None) == v)
            raise SettingError(f"{why} draws no samples in an outer step of {self.name}: give outer=")
        return samples

    def expected_samples(self, cmdp: CMDP | Simulator) -> float:
        """Expected transitions of one replicate's run.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> fc.PDANPG(outer=100, inner=10, pilot=0).expected_samples(fc.envs.garnet(gamma=0.5))
        3100.0
        """
        return self.fixed_samples(cmdp) + self.outer * self.outer_samples(cmdp)

    @classmethod
    def for_epsilon(cls, cmdp: CMDP | Simulator, epsilon: float, **settings: Any) -> Self:
        """Settings for a target gap and violation ``epsilon``.

        Parameters
        ----------
        cmdp : CMDP or Simulator
            Of it gamma is used; by CRPO and the tabular methods, the number of choices or actions.
        epsilon : float
            In kernel units: rewards in [0, 1], constraints in [-1, 1]; in (0, 1/(1-gamma)).
        c_K, c_H, ... : float
            Tunable constants of the method, > 0.
        **settings
            Settings of the class, which win.

        Raises
        ------
        SettingError
            A number out of range.
        """
        raise NotImplementedError

    @classmethod
    def for_samples(cls, cmdp: CMDP | Simulator, samples: float, **settings: Any) -> Self:
        """Settings whose run is expected to draw ``samples`` transitions, by the schedule in epsilon.

        The target epsilon is the one for which the schedule asks for that many samples; then the outer steps make
        up the rest. All parameters of ``for_epsilon`` can be given.

        Raises
        ------
        BudgetError
            Fewer samples than one outer step takes.
        SettingError
            Another bad setting, such as one with which no samples are drawn.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> cmdp = fc.envs.garnet(gamma=0.9)
        >>> made = fc.PDANPG.for_samples(cmdp, 1e6)
        >>> round(made.expected_samples(cmdp) / 1e6, 2)
        1.0
        """
        check_samples(samples)

        def at(logarithm: float) -> Any:
            return cls.for_epsilon(cmdp, math.exp(logarithm), **settings)

        most = -math.log1p(-cmdp.gamma)  # epsilon below 1/(1-gamma)
        low, high = most - 25.0, most - 1e-3
        for _ in range(60 if at(high).expected_samples(cmdp) <= samples else 0):
            middle = 0.5 * (low + high)
            try:
                too_many = at(middle).expected_samples(cmdp) > samples
            except SettingError:  # a schedule beyond what a run can count
                too_many = True
            low, high = (middle, high) if too_many else (low, middle)
        filled: Self = at(high).filled(cmdp, samples)
        return filled

    def filled(self, cmdp: CMDP | Simulator, samples: float) -> Self:
        """The same with as many outer steps as ``samples`` transitions pay for; errors of ``for_samples``."""
        check_samples(samples)
        each = self.paid_samples(cmdp)
        one = replace(self, outer=1)
        if one.expected_samples(cmdp) > samples:
            least = math.ceil(one.expected_samples(cmdp))
            raise BudgetError(
                f"samples = {samples!r}: at least {least:,} for one outer step of {self.name} is expected"
            )
        outer = round((samples - self.fixed_samples(cmdp)) / each)
        most = f"at most {down(MOST * each)} transitions, 2^40 outer steps of {self.name},"
        require(outer <= MOST, "samples", samples, most)
        return replace(self, outer=max(outer, 1))

    @classmethod
    def shortest(cls) -> Self:
        """Settings of a run that is over at once: what compiles the kernels."""
        return cls(outer=1)

    @classmethod
    def check_policy(cls, policy: BoundPolicy) -> None:
        """Raise a SettingError if the method cannot work on this policy class."""
        if cls.tabular_only and not isinstance(policy.data, Tabular):
            raise SettingError(
                f"{cls.name} works on the tabular softmax policy only; leave out the policy, or choose a method for "
                "general policies"
            )

    def run(self, world: World, seed: int, replicates: int) -> Run:
        """Set up replicates that have not moved yet."""
        raise NotImplementedError

    @classmethod
    def schedule_names(cls) -> tuple[str, ...]:
        """Names of the constants of ``for_epsilon`` that are not fields."""
        parameters = inspect.signature(cls.for_epsilon).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

    @classmethod
    def setting_names(cls) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(field.name for field in fields(cls))


def relative_target(cmdp: CMDP | Simulator, epsilon: float) -> float:
    """(1-gamma) epsilon, a target relative to the range of J.

    Raises
    ------
    SettingError
        Not within (0, 1).
    """
    range_of_j = 1.0 / (1.0 - cmdp.gamma)
    require(
        is_finite(epsilon) and np.ndim(epsilon) == 0 and 0.0 < epsilon < range_of_j, "epsilon", epsilon,
        f"a number above 0 and below 1/(1-gamma) = {range_of_j:.6g}, the range of J,",
    )  # fmt: skip
    return (1.0 - cmdp.gamma) * float(epsilon)


class Run:
    """Replicates of an algorithm under way: arrays, and the one call that moves one of them on.

    A subclass sets ``state``, a NamedTuple of arrays with a leading replicate axis, among them

        theta float64[R, d], dual float64[R, m] (NaN where the method has none), rng uint64[R, 4, LANES],
        outer int64[R], samples int64[R], failed int64[R] (outer step, or -1),
        sums float64[R, 1+2m]: sums over the outer steps of the output of the estimates of J and of the multipliers,

    then calls ``set_up_actions``; and it provides ``work`` and ``advance``.
    """

    state: Any

    def __init__(self, settings: Any, world: World) -> None:
        settings.check_policy(world.policy)
        self.settings = settings
        self.world = world.with_stop()

    def __reduce__(self) -> Any:
        """Pickled as the world and the arrays: action tables and addresses of functions are of one process."""
        return _again, (self.settings, self.world, self.state._asdict())

    def common_state(self, seed: int, replicates: int) -> dict[str, NDArray[Any]]:
        """The arrays that every state has, as they are at the start."""
        m = self.world.model.n_constraints
        return {
            "theta": self.initial_theta(replicates),
            "dual": np.zeros((replicates, m)),
            "rng": streams(seed, replicates),
            "outer": np.zeros(replicates, np.int64),
            "samples": np.zeros(replicates, np.int64),
            "failed": np.full(replicates, -1, np.int64),
            "sums": np.zeros((replicates, 1 + 2 * m)),
        }

    def measured_levels(self, replicates: int, n_values: int, n_longest: int) -> dict[str, NDArray[Any]]:
        """The arrays of states whose rates are measured along the run: ``kernels/learning/levels.py``."""
        return {
            "recent": np.zeros((replicates, n_values)),
            "average": np.zeros((replicates, n_values)),
            "longest": np.zeros((replicates, n_longest)),
        }

    def initial_theta(self, replicates: int) -> NDArray[np.float64]:
        """Parameters of all replicates at the start, float64[R, d]."""
        theta: NDArray[np.float64] = on_line(np.zeros((replicates, self.world.policy.n_parameters)))
        theta += 0.0 if self.world.policy.initial is None else self.world.policy.initial
        return theta

    def set_up_actions(self) -> None:
        """Make the action tables of all replicates: kept up to date, or made where a draw needs them."""
        self.actions = [self.world.actions(theta, self.n_visited, self.n_draws) for theta in self.state.theta]
        self.refresh()

    @property
    def n_draws(self) -> float:
        """Actions drawn between two changes of theta: a rollout of mean length gamma/(1-gamma) draws one more."""
        draws: float = self.settings.outer_samples(self.world.model) / self.world.model.gamma
        return draws

    @property
    def n_visited(self) -> int:
        """Visited states without a number that are kept at most, at a time."""
        return 1

    def drawn(self, r: int) -> NDArray[np.float64]:
        """Parameters that replicate r draws its actions with."""
        theta: NDArray[np.float64] = self.state.theta[r]
        return theta

    def refresh(self) -> None:
        """Rebuild the action tables: at the start, and after loading a state."""
        for r, actions in enumerate(self.actions):
            self.world.refresh(actions, self.drawn(r))

    def rows(self, r: int) -> list[Any]:
        """A copy of the state of replicate r, for ``put_back``."""
        return [array[r].copy() for array in self.state]

    def put_back(self, r: int, rows: list[Any]) -> None:
        """Let replicate r stand where it stood: what a kernel left that was told to leave its outer step."""
        for array, row in zip(self.state, rows, strict=True):
            array[r] = row
        self.world.refresh(self.actions[r], self.drawn(r))

    def policies(self) -> NDArray[np.float64]:
        """Action probabilities of all replicates, float64[R, C]."""
        return np.stack([self.world.probabilities(a, self.drawn(r)) for r, a in enumerate(self.actions)])

    def fault(self, r: int) -> str:
        """Why replicate r failed, where a simulator is to blame; else ""."""
        return self.world.fault(self.actions[r])

    def kept(self) -> NDArray[np.int64]:
        """Outer steps so far that count for the output, int64[R]: all, unless ``output.some``."""
        kept: NDArray[np.int64] = np.maximum(self.state.outer, 0)
        return kept

    def row_space(self) -> RowSpace:
        """Work space for one row of action entries."""
        space: RowSpace = new_row_space(2 * self.world.model.widest)
        return space

    def scores(self, n_pairs: int) -> SparseScores | DenseScores:
        """Work space for the scores of a batch of pairs."""
        d, support = self.world.policy.n_parameters, self.world.policy.support
        if support == 0:
            return DenseScores(on_line(np.zeros((n_pairs, d))), np.arange(d, dtype=np.int32))
        slots = min(d, n_pairs * support)
        return SparseScores(
            first=np.zeros(n_pairs + 1, np.int64),
            slot=np.zeros(n_pairs * support, np.int32),
            value=np.zeros(n_pairs * support),
            coordinate=np.arange(slots, dtype=np.int32),
            position=np.zeros(slots, np.int64),
            mark=np.full(d, -1, np.int32),
        )

    def work(self) -> Any:
        """Work space for one thread."""
        raise NotImplementedError

    def advance(self, r: int, n_steps: int, work: Any) -> None:
        """Make up to n_steps outer steps of replicate r, those of a pilot included."""
        raise NotImplementedError


def _again(settings: Any, world: World, state: dict[str, NDArray[Any]]) -> Run:
    """A pickled run in another process."""
    run: Run = settings.run(world, 0, len(state["outer"]))
    for name, array in state.items():
        getattr(run.state, name)[...] = array
    run.refresh()
    return run
