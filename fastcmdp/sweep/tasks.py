"""The tasks of a sweep: what is to be run, under names that are hashes of everything a result depends on.

A configuration is a model, an algorithm with all its settings, and a target. A task is one replicate of it: one
run from one seed. The seed is drawn from the hash of the configuration, the root seed and the replicate's number; the
name of the task is the hash of the configuration, the seed and the number of trace points. So a task with a name that
is in the store need not be run again, and one that differs in anything has another name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms import check_simulation
from fastcmdp.algorithms.base import Algorithm
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import BudgetError, MissingFileError, ModelError, SettingError
from fastcmdp.io import prism
from fastcmdp.policies import Policy
from fastcmdp.policy_names import PolicyName, policy_named
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.sweep.models import NamedModel
from fastcmdp.sweep.settings import place_of
from fastcmdp.sweep.specification import Algorithms, Sweep
from fastcmdp.text import plain
from fastcmdp.worlds import has_table

MOST_TASKS = 10_000_000  # of a sweep: a hundred gigabytes of memory, and years
MOST_MODELS = 1_000_000
ROWS = 2  # version of what a run leaves in the store
DRAWS = "fast"


@dataclass(frozen=True)
class Configuration:
    """What the replicates of one combination share.

    Attributes
    ----------
    key : str
        Hash of all below but the number of replicates and the expected samples, 32 hexadecimal digits.
    model : NamedModel
    fingerprint : str
        `CMDP.fingerprint` of the model as it was when the sweep was planned.
    gamma : float
    size : (int, int)
        Numbers of states and of choices; 0 and that of actions for a simulator.
    algorithm : str
        Name in the registry.
    version : int
        The algorithm's.
    label : str
        Name in the store.
    settings : dict
        All fields of the settings object.
    epsilon, budget : float or None
        The target: one of the two.
    capped : bool
        The schedule for the target would take more than the sweep's cap: this one takes as much as the cap.
    points : int
    samples : float
        Expected transitions of a run.
    replicates : int
    policy : str
        The policy class by name, files with their folders.
    policy_fingerprint : str
        Of the policy object as it was when the sweep was planned.
    """

    key: str
    model: NamedModel
    fingerprint: str
    gamma: float
    size: tuple[int, int]
    algorithm: str
    version: int
    label: str
    settings: dict[str, Any]
    epsilon: float | None
    budget: float | None
    capped: bool
    points: int
    samples: float
    replicates: int
    policy: str = "tabular"
    policy_fingerprint: str = "tabular-softmax"


@dataclass(frozen=True)
class Omitted:
    """A target that is left out: its schedule takes more than the cap, or a budget is less than one outer step."""

    model: str
    label: str
    epsilon: float | None
    budget: float | None


@dataclass
class Plan:
    """All tasks of a sweep.

    Attributes
    ----------
    configurations : list of Configuration
    omitted : list of Omitted
    owner, replicate : int32[n]
        The configuration, by its number, and the replicate of each task.
    seed : int64[n]
    name : S32[n]
        Hexadecimal digits.
    """

    configurations: list[Configuration]
    omitted: list[Omitted]
    owner: NDArray[np.int32] = field(init=False)
    replicate: NDArray[np.int32] = field(init=False)
    seed: NDArray[np.int64] = field(init=False)
    name: NDArray[np.bytes_] = field(init=False)
    root: int = 0

    def __post_init__(self) -> None:
        counts = np.array([configuration.replicates for configuration in self.configurations], np.int64)
        self.owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self.replicate = np.concatenate(
            [np.arange(n, dtype=np.int32) for n in counts] or [np.zeros(0, np.int32)]
        )
        self.seed = np.empty(len(self.owner), np.int64)
        self.name = np.empty(len(self.owner), "S32")
        position = 0
        for configuration in self.configurations:
            for replicate in range(configuration.replicates):
                seed = seed_of(configuration, self.root, replicate)
                text = f"{configuration.key} {configuration.points} {seed} {replicate}"
                self.seed[position] = seed
                self.name[position] = hashlib.sha256(text.encode()).hexdigest()[:32].encode()
                position += 1

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def transitions(self) -> float:
        """Expected transitions of all tasks."""
        return float(
            sum(configuration.samples * configuration.replicates for configuration in self.configurations)
        )


def seed_of(configuration: Configuration, root: int, replicate: int) -> int:
    """The seed of a replicate, below 2^56: ``fastcmdp.solve(..., seed=seed, replicates=1)`` makes the same run."""
    text = f"{configuration.key} {root} {replicate}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def plan(sweep: Sweep, progress: Callable[[int, int], object] | None = None) -> Plan:
    """All tasks of a sweep; builds each of its models once.

    Raises
    ------
    ModelError, SettingError, OSError
        A model cannot be built or read, or an algorithm has no schedule for a target; the message names them.

    Examples
    --------
    >>> from fastcmdp.sweep import Models, Sweep
    >>> made = plan(Sweep([Models(generator="garnet")], ["pd-anpg"], epsilon=[1.0, 0.5], replicates=3))
    >>> len(made.configurations), len(made)
    (2, 6)
    """
    _check_size(sweep)
    models = {
        model.label: (model, grid) for grid in sweep.grids for model in grid.expand(sweep.folder, sweep.gamma)
    }
    configurations: dict[str, Configuration] = {}
    omitted: list[Omitted] = []
    for i, (model, grid) in enumerate(models.values()):
        try:
            world = BuiltModel(model, build(model))
        except (ModelError, SettingError, OSError) as error:
            raise _retold(error, f"{place_of(grid.places, str(error))}{error}") from error
        for entry in sweep.entries:
            policy, fingerprint = _policy(sweep, entry, world)
            for target in _schedules(sweep, entry, model.label, world.cmdp):
                if target.settings is None:
                    omitted.append(Omitted(model.label, entry.title, target.epsilon, target.budget))
                    continue
                configuration = _configuration(world, entry.title, target, sweep, str(policy), fingerprint)
                configurations.setdefault(configuration.key, configuration)
        if progress is not None:
            progress(i + 1, len(models))
    if not configurations:
        raise SettingError(
            f"cap = {sweep.cap!r}, samples = {list(sweep.samples)!r}: none of the targets leaves one outer step of its "
            "algorithm, so nothing would be run; give larger ones"
        )
    return Plan(list(configurations.values()), omitted, root=sweep.seed)


def _check_size(sweep: Sweep) -> None:
    """Refuse what could not be planned, before any of it is built."""
    models = sum(grid.count(sweep.gamma) for grid in sweep.grids)
    targets = sum(
        len(sweep.epsilon) + len(sweep.samples)
        if each.epsilon is None and each.samples is None
        else len(each.epsilon or ()) + len(each.samples or ())
        for each in sweep.entries
    )
    tasks = models * targets * sweep.replicates
    if models > MOST_MODELS or tasks > MOST_TASKS:
        raise SettingError(
            f"{models:,} models, {targets:,} algorithms and targets, replicates = {sweep.replicates:,}: that is "
            f"{tasks:,} tasks; a sweep has at most {MOST_TASKS:,}, of at most {MOST_MODELS:,} models: shorten the lists"
        )


def build(model: NamedModel) -> CMDP | Simulator:
    """The model, or an error that names it."""
    try:
        return model.build()
    except OSError as error:
        raise _retold(
            error,
            f"{model.label}: {error.filename or model.spec} cannot be read ({error.strerror or error}); files are "
            "sought from the folder of the specification",
        ) from error
    except (ModelError, SettingError) as error:
        text = str(error)
        raise _retold(error, text if model.spec in text else f"{model.label}: {text}") from error
    except TypeError as error:
        raise SettingError(f"{model.label}: {error}") from error


def _retold(error: Exception, message: str) -> Exception:
    """An error of that kind with such a message; one of a missing file is made of two parts, its base of a message."""
    kind = FileNotFoundError if isinstance(error, MissingFileError) else type(error)
    return kind(message)


class BuiltModel:
    """A model of a sweep, built."""

    def __init__(self, model: NamedModel, cmdp: CMDP | Simulator) -> None:
        self.model, self.cmdp, self.fingerprint = model, cmdp, cmdp.fingerprint()
        if has_table(cmdp):
            self.policy, self.size = PolicyName("tabular"), (cmdp.n_states, cmdp.n_choices)
        else:
            self.policy, self.size = PolicyName("log-linear"), (0, cmdp.n_actions)
        self.bound: dict[str, tuple[Policy, Any]] = {}

    def policies(self, name: PolicyName) -> tuple[Policy, Any]:
        """The policy of a name, and what the kernels read of it; each made once."""
        if str(name) not in self.bound:
            policy = name.build(self.cmdp)
            self.bound[str(name)] = policy, policy.bind(self.cmdp)
        return self.bound[str(name)]


def _policy(sweep: Sweep, entry: Algorithms, world: BuiltModel) -> tuple[PolicyName, str]:
    """The policy class of an algorithm on a model, its file with its folder, and the fingerprint of the policy."""
    text = entry.policy or sweep.policy
    name = policy_named(text) if text else world.policy
    if name.features is not None:
        name = replace(name, features=str(sweep.folder / name.features))
    kind = entry.variant().algorithm
    try:
        if not has_table(world.cmdp):
            check_simulation(kind)
        policy, bound = world.policies(name)
        kind.check_policy(bound)
    except (ModelError, SettingError, OSError) as error:
        said = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        place = entry.places.get("policy", place_of(entry.places, "name"))
        raise SettingError(
            f"{place}{entry.title} on {world.model.label}, policy = {str(name)!r}: {said}"
        ) from error
    return name, policy.fingerprint()


class Target(NamedTuple):
    """What an algorithm is to attain on a model, and its schedule for it; None: the target is left out."""

    epsilon: float | None
    budget: float | None
    settings: Algorithm | None
    capped: bool


def _schedules(sweep: Sweep, entry: Algorithms, label: str, cmdp: CMDP | Simulator) -> list[Target]:
    """Target, settings and whether they are capped, for all targets of an algorithm; None for those left out."""
    method = entry.variant()
    constants = dict(entry.constants) if isinstance(entry.constants, dict) else {}
    settings = constants | dict(method.settings)
    cap = sweep.cap
    epsilons = sweep.epsilon if entry.epsilon is None else entry.epsilon
    budgets = sweep.samples if entry.samples is None else entry.samples
    if entry.samples is not None and entry.epsilon is None:
        epsilons = ()  # its own targets take the place of the sweep's
    if entry.epsilon is not None and entry.samples is None:
        budgets = ()
    targets: list[Target] = []
    over = False
    name = f"{entry.title} on {label}"

    def refused(said: str, error: Exception) -> SettingError:
        return SettingError(f"{place_of(entry.places, str(error))}{said}: {error}")

    if epsilons:  # the coarsest schedule: a bad constant must not pass for a target beyond the cap
        try:
            method.algorithm.for_epsilon(cmdp, 0.999 / (1.0 - cmdp.gamma), **settings)
        except (SettingError, TypeError) as error:
            raise refused(name, error) from error
    for epsilon in sorted(set(map(float, epsilons)), reverse=True):
        if over:
            targets.append(Target(epsilon, None, None, True))
            continue
        try:
            schedule: Algorithm | None = method.algorithm.for_epsilon(cmdp, epsilon, **settings)
        except SettingError as error:
            if cap is None or epsilon >= 1.0 / (1.0 - cmdp.gamma):
                remedy = "" if epsilon >= 1.0 / (1.0 - cmdp.gamma) else "; give a larger epsilon, or a cap"
                raise refused(f"{name}, epsilon = {epsilon:g}", SettingError(f"{error}{remedy}")) from error
            schedule = None  # more steps than can be counted
        over = cap is not None and (schedule is None or schedule.expected_samples(cmdp) > cap)
        if over:
            assert cap is not None
            try:
                schedule = method.for_samples(cmdp, cap, constants)
            except BudgetError:
                schedule = None
        targets.append(Target(epsilon, None, schedule, over))
    for budget in sorted(set(map(float, budgets))):
        if cap is not None and budget > cap:
            targets.append(Target(None, budget, None, True))
            continue
        try:
            targets.append(Target(None, budget, method.for_samples(cmdp, budget, constants), False))
        except BudgetError:
            targets.append(Target(None, budget, None, False))
        except (SettingError, TypeError) as error:
            raise refused(f"{name}, samples = {budget:g}", error) from error
    return targets


def _configuration(
    world: BuiltModel, label: str, target: Target, sweep: Sweep, policy: str, policy_fingerprint: str
) -> Configuration:
    """A configuration with its hash."""
    settings = target.settings
    assert settings is not None
    content = {
        "rows": ROWS,
        "draws": DRAWS,
        "policy": policy_fingerprint,
        "model": world.model.label,
        "fingerprint": world.fingerprint,
        "algorithm": settings.name,
        "version": settings.version,
        "label": label,
        "settings": plain(asdict(settings)),
        "epsilon": target.epsilon,
        "budget": target.budget,
        "capped": target.capped,
    }
    same = ("fingerprint", "algorithm", "version", "label", "settings", "epsilon", "budget", "capped")
    return Configuration(
        key=digest(content),
        model=world.model,
        gamma=world.cmdp.gamma,
        size=world.size,
        points=sweep.points,
        samples=float(settings.expected_samples(world.cmdp)),
        replicates=sweep.replicates,
        policy=policy,
        policy_fingerprint=policy_fingerprint,
        **{name: content[name] for name in same},
    )


def digest(content: Any) -> str:
    """Hash of plain values, 32 hexadecimal digits; floats count to the last bit."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def file_digests(configurations: Sequence[Configuration]) -> dict[str, str]:
    """SHA-256 of the files of models, by their labels' paths, and of features; files beside a .tra count."""
    models = {
        configuration.model.label: configuration.model
        for configuration in configurations
        if configuration.model.is_file
    }
    paths = {path for model in models.values() for path in _files(model)}
    features = (
        policy_named(text).path() for text in {configuration.policy for configuration in configurations}
    )
    paths |= {str(path) for path in features if path is not None}
    return {path: file_digest(path) for path in sorted(paths)}


def file_digest(path: str) -> str:
    """SHA-256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(model: NamedModel) -> list[str]:
    path = Path(model.spec)
    beside = [str(name) for name in model.naming.get("files", ())]
    if path.name.lower().endswith((".tra", ".tra.gz", ".tra.xz")) and not beside:
        beside = [str(name) for name in prism.beside(path)]
    return [str(path), *beside]
