"""What a sweep runs: models times algorithms times targets times replicates, in TOML or as dataclasses.

    title = "Garnets"
    seed = 0                     # of everything
    replicates = 8               # runs of each combination
    points = 20                  # trace points of a run
    epsilon = [0.8, 0.4, 0.2]    # targets, kernel units; or samples = [1e6, 1e7], or both
    cap = 1e8                    # most expected transitions of one run

    [[models]]
    generator = "garnet"         # or gym = "FrozenLake-v1", file = "model.umb", model = "env:..."
    n_states = [20, 50]          # lists make grids
    gamma = [0.9, 0.95]
    seed = [0, 1, 2]

    [[algorithms]]               # or algorithms = ["pd-anpg", "crpo"], or "all"
    name = "pd-anpg"
    c_K = 100                    # settings of the algorithm, constants of its schedule
    constants = "tuned.toml"     # a file of `fastcmdp tune`; also at the top, for all algorithms
    policy = "neural:32"         # a policy class by name (`fastcmdp.policy_names`); also at the top

One combination of a model, an algorithm and a target is a *configuration*; one replicate of it is a *task*, one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.algorithms.base import Algorithm
from fastcmdp.algorithms.variants import Variant, name_of, variant
from fastcmdp.check import is_whole
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.policy_names import policy_named
from fastcmdp.sweep.models import Models, NamedModel, check_models
from fastcmdp.sweep.settings import (
    Places,
    Where,
    floats,
    is_positive,
    path_text,
    query_text,
    require_at,
)
from fastcmdp.text import plain, toml_key, toml_value, unknown

OWN = (
    "name",
    "label",
    "policy",
    "constants",
    "epsilon",
    "samples",
)  # keys of an algorithm that are no settings of it


@dataclass(frozen=True)
class Algorithms:
    """An algorithm of a sweep.

    Parameters
    ----------
    name : str
        As on the command line, also with settings: `pd-anpg?method=sgd`.
    settings : mapping
        Further settings of its class, or constants of its schedule.
    label : str, optional
        Its name in the store; default: the name with all settings.
    constants : str or mapping, optional
        A file that `fastcmdp tune` wrote, or constants of the schedule; settings win over them. A Sweep reads the file.
    epsilon, samples : sequences of float, optional
        Instead of those of the sweep.
    policy : str, optional
        A policy class by name, as `policy_named` reads it, instead of that of the sweep; part of the default label.

    Examples
    --------
    >>> Algorithms("pd-anpg", settings={"c_K": 10}).variant().label
    'pd-anpg?c_K=10'
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None
    constants: str | Mapping[str, float] | None = None
    epsilon: Sequence[float] | None = None
    samples: Sequence[float] | None = None
    policy: str | None = None
    places: Places = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", plain(dict(self.settings)))

    @property
    def title(self) -> str:
        """What it is called in the store."""
        return self.label or self.variant().label + (f" {self.policy}" if self.policy else "")

    def variant(self) -> Variant:
        """The algorithm with its settings."""
        named = variant(self.name)
        for key in self.settings:
            if key in named.settings:
                raise SettingError(f"{key} is given twice: in the name {self.name!r}, and beside it")
        settings = {key: tuple(v) if isinstance(v, list) else v for key, v in self.settings.items()}
        query = "&".join(f"{key}={query_text(value)}" for key, value in settings.items())
        names = named.algorithm.setting_names()
        own: dict[str, Any] = {key: value for key, value in settings.items() if key in names}
        kind: Any = named.algorithm
        kind(**(own | {"outer": 1}))  # checks them
        joint = "&" if "?" in self.name else "?"
        label = self.name + (joint + query if query else "")
        return Variant(label, named.algorithm, dict(named.settings) | settings)

    def to_dict(self) -> dict[str, Any]:
        """As a table of the TOML file."""
        own = {"label": self.label, "policy": self.policy, "constants": self.constants}
        lists = {"epsilon": floats(self.epsilon), "samples": floats(self.samples)}
        return {"name": self.name} | {k: v for k, v in (own | lists).items() if v} | dict(self.settings)


@dataclass(frozen=True)
class Sweep:
    """The specification of a sweep.

    Parameters
    ----------
    models : sequence of Models, or of names as on the command line
    algorithms : sequence of Algorithms, of names or of classes of settings; or "all"
    epsilon, samples : sequences of float, or one
        Targets: a gap and violation, in kernel units (rewards in [0, 1], constraints in [-1, 1]), whose schedule
        is run; or budgets of expected transitions. At least one of them somewhere.
    replicates : int
        Runs of each configuration.
    seed : int
        Root of all seeds.
    points : int
        Trace points of a run, besides its start.
    cap : float, optional
        Most expected transitions of a run. Of the targets of an algorithm on a model that would take more, the
        first is run with a schedule for so many and marked as capped, the others are left out.
    gamma : sequence of float, or one
        Discount factors for models that give none; "average" and 1 (episodes) among them.
    title : str
    folder : Path
        Where files are sought.
    constants : str or mapping, optional
        For all algorithms that have none of their own: a file that `fastcmdp tune` wrote, what `fastcmdp.tune` returned
        or its ``constants``.
    policy : str
        The policy class by name, such as `neural:32` (`fastcmdp.policy_names`), for all algorithms that name none;
        default: tabular, and log-linear for simulators.

    Raises
    ------
    SettingError
        Unknown keys and values out of range; the message names the place and the nearest valid name.

    Examples
    --------
    >>> import fastcmdp.sweep as sweeps
    >>> small = sweeps.Sweep([sweeps.Models(generator="garnet")], ["pd-anpg"], epsilon=[1.0, 0.5], replicates=2)
    >>> sweeps.loads(small.to_toml()) == small
    True
    """

    models: Sequence[Models | str]
    algorithms: Sequence[Algorithms | str | type[Algorithm]] | str
    epsilon: Sequence[float] = ()
    samples: Sequence[float] = ()
    replicates: int = 8
    seed: int = 0
    points: int = 20
    cap: float | None = None
    gamma: Sequence[float | str] = ()
    title: str = ""
    folder: Path = field(default=Path(), compare=False)
    constants: InitVar[Any] = None
    policy: str = ""

    def __post_init__(self, constants: Any) -> None:
        object.__setattr__(self, "folder", Path(self.folder).absolute())
        object.__setattr__(self, "models", tuple(map(_models_of, _several(self.models, Models))))
        algorithms = map(_algorithms_of, named(_several(self.algorithms, Algorithms)))
        object.__setattr__(self, "algorithms", tuple(algorithms))
        for name in ("epsilon", "samples", "gamma"):
            object.__setattr__(self, name, tuple(floats(getattr(self, name))))
        for name in ("seed", "replicates", "points", "cap"):
            object.__setattr__(self, name, plain(getattr(self, name)))
        check(self.to_dict(), lambda *keys: f"{path_text(keys[:-1])}: " if len(keys) > 1 else "")
        read = []
        for i, each in enumerate(self.entries):
            place = "constants" if each.constants is None else f"algorithms[{i}].constants"
            chosen = constants if each.constants is None else each.constants
            values = constants_of(chosen, each.variant(), self.folder, f"{place}: ")
            read.append(Algorithms(**{**each.__dict__, "constants": values or None}))
        object.__setattr__(self, "algorithms", tuple(read))

    @property
    def entries(self) -> tuple[Algorithms, ...]:
        """The algorithms, none of them as a mere name."""
        return tuple(item for item in self.algorithms if isinstance(item, Algorithms))

    @property
    def grids(self) -> tuple[Models, ...]:
        """The models, none of them as a mere name."""
        return tuple(item for item in self.models if isinstance(item, Models))

    def expand(self) -> list[NamedModel]:
        """All models, in the order of the specification, each once."""
        models = [model for grid in self.grids for model in grid.expand(self.folder, self.gamma)]
        return list({model.label: model for model in models}.values())

    def to_dict(self) -> dict[str, Any]:
        """As the TOML file, without what is left at its default."""
        plain = {
            name: value
            for name, value in (
                ("title", self.title),
                ("epsilon", list(self.epsilon)),
                ("samples", list(self.samples)),
                ("cap", self.cap),
                ("gamma", list(self.gamma)),
                ("policy", self.policy),
            )
            if value
        }
        numbers = {"seed": self.seed, "replicates": self.replicates, "points": self.points}
        return plain | numbers | {
            "models": [grid.to_dict() for grid in self.grids],
            "algorithms": [entry.to_dict() for entry in self.entries],
        }  # fmt: skip

    def to_toml(self) -> str:
        """The specification as TOML; `loads` reads it back."""
        tables, lines = ("models", "algorithms"), []
        whole = self.to_dict()
        lines = [f"{key} = {toml_value(value)}" for key, value in whole.items() if key not in tables]
        for name in tables:
            for table in whole[name]:
                lines += ["", f"[[{name}]]"]
                lines += [f"{toml_key(key)} = {toml_value(value)}" for key, value in table.items()]
        return "\n".join(lines) + "\n"


def _several(items: Any, one: type) -> list[Any]:
    """What was given as a sequence; a single one, or a name, is a sequence of one."""
    if items is None or isinstance(items, str | one) or not hasattr(items, "__iter__"):
        return [] if items is None else [items]
    return list(items)


def named(items: Sequence[Any]) -> list[Any]:
    """The algorithms, with "all" spelt out."""
    return [name for item in items for name in (ALGORITHMS if item == "all" else [item])]


def _models_of(item: Any) -> Models:
    if isinstance(item, Models):
        return item
    if isinstance(item, str):
        return Models(model=item)
    raise SettingError(
        f"models: {item!r}: Models(...) is expected, or a name as on the command line; save a model of your own with "
        "fastcmdp.save and give Models(file=...), for workers build it themselves"
    )


def _algorithms_of(item: Any) -> Algorithms:
    if isinstance(item, Algorithms):
        return item
    name = name_of(item)
    if name is not None:
        return Algorithms(name)
    raise SettingError(
        f"algorithms: {item!r}: a name is expected, or Algorithms(name, settings={{...}}): outer steps follow from the "
        "targets"
    )


def check(contents: Mapping[str, Any], where: Where) -> None:
    """Refuse what cannot be a specification; ``where`` tells the place of a key."""
    valid = [name for name in get_type_hints(Sweep) if name != "folder"] + ["constants"]
    for key in contents:
        if key not in valid:
            raise SettingError(where(key) + unknown("key", key, valid))
    for name, least, most in (("replicates", 1, 2**31 - 1), ("points", 1, 10_000), ("seed", 0, 2**40 - 1)):
        value = contents.get(name, least)
        accepted = f"an integer from {least} to {most}"
        require_at(is_whole(value, least, most), where(name), name, value, accepted)
    cap = contents.get("cap")
    require_at(cap is None or is_positive(cap), where("cap"), "cap", cap, "a positive number")
    title = contents.get("title", "")
    require_at(isinstance(title, str), where("title"), "title", title, "text")
    if contents.get("policy", "") != "":
        _check_policy(contents["policy"], where)
    _check_lists(contents, where)
    gammas = contents.get("gamma", [])
    inside = isinstance(gammas, list) and all(
        gamma in ("average", "episodes", 1) or (is_positive(gamma) and gamma < 1) for gamma in gammas
    )
    require_at(inside, where("gamma"), "gamma", gammas, 'numbers between 0 and 1, "average", or 1 (episodes)')
    for name in ("models", "algorithms"):
        tables = contents.get(name)
        require_at(
            isinstance(tables, list) and tables and all(isinstance(t, dict) for t in tables),
            where(name), name, tables, f"at least one table [[{name}]]",
        )  # fmt: skip
    for i, table in enumerate(contents["models"]):
        check_models(table, lambda *keys, i=i: where("models", i, *keys))
    for i, table in enumerate(contents["algorithms"]):
        _check_algorithm(table, lambda *keys, i=i: where("algorithms", i, *keys))
    targets = [
        key
        for table in (contents, *contents["algorithms"])
        for key in ("epsilon", "samples")
        if table.get(key)
    ]
    if not targets:
        raise SettingError(where() + "no targets: give epsilon = [...] or samples = [...]")
    _check_distinct(contents, where)


def _check_policy(text: object, where: Where) -> None:
    require_at(isinstance(text, str), where("policy"), "policy", text, "text")
    try:
        policy_named(str(text))
    except SettingError as error:
        raise SettingError(f"{where('policy')}{error}") from error


def _check_lists(table: Mapping[str, Any], where: Where) -> None:
    for name in ("epsilon", "samples"):
        values = table.get(name, [])
        good = isinstance(values, list) and all(map(is_positive, values))
        require_at(good, where(name), name, values, "a list of positive numbers")


def _check_algorithm(table: Mapping[str, Any], where: Where) -> None:
    name = table.get("name")
    require_at(isinstance(name, str) and name, where("name"), "name", name, "the name of an algorithm")
    try:
        kind = variant(str(name)).algorithm
    except SettingError as error:
        raise SettingError(f"{where('name')}{error}") from error
    valid = (set(kind.setting_names()) | set(kind.constants) | set(kind.schedule_names())) - {"outer"}
    for key in table:
        if key not in OWN and key not in valid:
            raise SettingError(where(key) + unknown(f"setting of {kind.name}", key, valid | set(OWN)))
    if "policy" in table:
        _check_policy(table["policy"], where)
    label = table.get("label", "a")
    require_at(isinstance(label, str) and label, where("label"), "label", label, "text")
    _check_lists(table, where)
    constants = table.get("constants", {})
    accepted = "a file of `fastcmdp tune`, or a table of constants"
    require_at(_is_constants(constants), where("constants"), "constants", constants, accepted)
    settings = {key: value for key, value in table.items() if key not in OWN}
    for key, value in settings.items():
        require_at(not isinstance(value, dict), where(key), key, value, "a value")
    algorithm = Algorithms(str(name), settings)
    try:
        algorithm.variant()
    except (SettingError, TypeError, ValueError) as error:
        key = next((key for key in settings if key in str(error)), next(iter(settings), "name"))
        raise SettingError(f"{where(key)}{error}") from error


def _check_distinct(contents: Mapping[str, Any], where: Where) -> None:
    labels: dict[str, int] = {}
    for i, table in enumerate(contents["algorithms"]):
        label = label_of(table)
        if label in labels:
            raise SettingError(
                f"{where('algorithms', i)}algorithm {i + 1} is called {label!r} as algorithm {labels[label] + 1} is; "
                "give it a label"
            )
        labels[label] = i


def label_of(table: Mapping[str, Any]) -> str:
    """What an algorithm is called in the store."""
    settings = {key: value for key, value in table.items() if key not in OWN}
    return Algorithms(table["name"], settings, table.get("label"), policy=table.get("policy")).title


def constants_of(source: Any, method: Variant, folder: Path, where: str) -> dict[str, float]:
    """Constants of a schedule, from a file or a table."""
    if source is None:
        return {}
    from fastcmdp.tuned import check_constants, constants_for, read_constants

    require_at(
        _is_constants(source),
        where,
        "constants",
        source,
        "a file of `fastcmdp tune`, or a table of constants",
    )
    source = getattr(source, "constants", source)  # what `fastcmdp.tune` returned
    if isinstance(source, str | Path):
        try:
            constants = constants_for(method, read_constants(folder / source))
        except (OSError, ModelError, SettingError) as error:
            raise SettingError(f"{where}{error}") from error
    elif any(isinstance(value, Mapping) for value in source.values()):
        constants = constants_for(method, check_constants(source, where.rstrip(": ")))
    else:
        constants = check_constants({method.algorithm.name: source}, where.rstrip(": "))[
            method.algorithm.name
        ]
    return {key: value for key, value in (constants or {}).items() if key not in method.settings}


def _is_constants(value: object) -> bool:
    return isinstance(value, str | Path | Mapping) or isinstance(getattr(value, "constants", None), Mapping)
