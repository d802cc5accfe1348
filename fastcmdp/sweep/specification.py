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

One combination of a model, an algorithm and a target is a *configuration*; one replicate of it is a *task*, one run.
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import quote

import numpy as np

from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.algorithms.base import Algorithm, require
from fastcmdp.algorithms.variants import Variant, name_of, variant
from fastcmdp.cmdp import CMDP
from fastcmdp.envs import GENERATORS, from_spec
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.files import opened
from fastcmdp.io import ENDINGS, load
from fastcmdp.text import unknown

MOST = 1 << 22  # bytes of a specification
_KINDS = ("generator", "gym", "file", "model")
_OWN = ("name", "label", "constants", "epsilon", "samples")  # keys of an algorithm that are no settings of it
_FILE_KEYS = ("gamma", "reward", "constraints", "start", "files", "limits")


@dataclass(frozen=True)
class Model:
    """One model of a sweep, as workers get it.

    Attributes
    ----------
    label : str
        Its name in the store; no two models of a sweep share one.
    spec : str
        `env:...`, `gym:...`, or the path of a file.
    naming : mapping
        For a file: what `fastcmdp.load` is told, and ``limits``.
    """

    label: str
    spec: str
    naming: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """Whether it is read from a file."""
        return not self.spec.startswith(("env:", "gym:"))

    def build(self) -> CMDP:
        """The model itself; errors as of `fastcmdp.load` and `fastcmdp.envs.from_spec`."""
        if not self.is_file:
            return from_spec(self.spec)
        naming = dict(self.naming)
        limits = naming.pop("limits", None)
        cmdp = load(self.spec, **naming)
        return cmdp.with_limits(limits) if limits else cmdp


@dataclass(frozen=True)
class Models:
    """Models of one kind: exactly one of the first four, and settings, of which lists make grids.

    Parameters
    ----------
    generator : str, optional
        A name in `fastcmdp.envs.GENERATORS`; settings are its parameters.
    gym : str, optional
        A Gymnasium id; settings are those of `fastcmdp.envs.from_gymnasium`.
    file : str, optional
        A file; settings are ``gamma``, ``reward``, ``constraints``, ``start``, ``files``, ``limits``. Only a list of
        gammas makes a grid.
    model : str, optional
        As on the command line: a file, `env:NAME?key=value&...` or `gym:ID?...`; the only setting is ``gamma``.
    settings : mapping
        A parameter that is itself a tuple of numbers (``limit`` of two constraints) is a list within the list.

    Examples
    --------
    >>> grid = Models(generator="garnet", settings={"n_states": [5, 10], "seed": [0, 1]})
    >>> [made.label for made in grid.expand()][:2]
    ['env:garnet?n_states=5&seed=0', 'env:garnet?n_states=5&seed=1']
    """

    generator: str | None = None
    gym: str | None = None
    file: str | None = None
    model: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    places: Places = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", plain(dict(self.settings)))
        for kind in ("file", "model"):
            if isinstance(value := getattr(self, kind), Path):
                object.__setattr__(self, kind, str(value))
        _check_models(self.to_dict(), lambda *_: "models: ")

    def to_dict(self) -> dict[str, Any]:
        """As a table of the TOML file."""
        kind = {name: getattr(self, name) for name in _KINDS if getattr(self, name) is not None}
        return kind | dict(self.settings)

    def count(self, gammas: Sequence[float] = ()) -> int:
        """How many models the grid has, at most: `expand` makes each once."""
        lengths = {
            key: len(_as_list(value))
            for key, value in self.settings.items()
            if not self._path or key == "gamma"
        }
        return math.prod(lengths.values()) * (len(gammas) if gammas and not self._has_gamma else 1)

    @property
    def _path(self) -> str | None:
        return self.file or (self.model if self.model is not None and _is_file(self.model) else None)

    @property
    def _has_gamma(self) -> bool:
        spec = self.model
        return "gamma" in self.settings or (spec is not None and re.search(r"[?&]gamma=", spec) is not None)

    def expand(self, folder: Path = Path(), gammas: Sequence[float] = ()) -> list[Model]:
        """All models of the grid; files are sought from ``folder``; ``gammas`` are for those that give none."""
        settings = dict(self.settings)
        spec = self.model
        path = self._path
        if gammas and not self._has_gamma:
            settings["gamma"] = list(gammas)
        if path is not None:
            found = []
            for gamma in _as_list(settings.pop("gamma", None)):
                naming = settings if gamma is None else settings | {"gamma": float(gamma)}
                query = "&".join(f"{key}={_text(value)}" for key, value in naming.items())
                full = dict(naming)
                if "files" in full:
                    full["files"] = [str(folder / name) for name in _as_list(full["files"])]
                found.append(Model(path + "?" * bool(query) + query, str(folder / path), full))
            return found
        if spec is None:
            spec = f"env:{self.generator}" if self.gym is None else f"gym:{self.gym}"
        grids = {key: _as_list(value) for key, value in settings.items()}
        found = []
        for values in itertools.product(*grids.values()):
            query = "&".join(f"{key}={_text(value)}" for key, value in zip(grids, values, strict=True))
            joined = spec + ("&" if "?" in spec else "?") + query if query else spec
            found.append(Model(joined, joined))
        return found


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
    places: Places = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", plain(dict(self.settings)))

    @property
    def title(self) -> str:
        """What it is called in the store."""
        return self.label or self.variant().label

    def variant(self) -> Variant:
        """The algorithm with its settings."""
        named = variant(self.name)
        for key in self.settings:
            if key in named.settings:
                raise SettingError(f"{key} is given twice: in the name {self.name!r}, and beside it")
        settings = {key: tuple(v) if isinstance(v, list) else v for key, v in self.settings.items()}
        query = "&".join(f"{key}={_text(value)}" for key, value in settings.items())
        names = named.algorithm.setting_names()
        own: dict[str, Any] = {key: value for key, value in settings.items() if key in names}
        made: Any = named.algorithm
        made(**(own | {"outer": 1}))  # checks them
        joint = "&" if "?" in self.name else "?"
        label = self.name + (joint + query if query else "")
        return Variant(label, named.algorithm, dict(named.settings) | settings)

    def to_dict(self) -> dict[str, Any]:
        """As a table of the TOML file."""
        own = {"label": self.label, "constants": self.constants}
        lists = {"epsilon": _floats(self.epsilon), "samples": _floats(self.samples)}
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
        Discount factors for models that give none.
    title : str
    folder : Path
        Where files are sought.
    constants : str or mapping, optional
        For all algorithms that have none of their own: a file that `fastcmdp tune` wrote, what `fastcmdp.tune` returned
        or its ``constants``.

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
    gamma: Sequence[float] = ()
    title: str = ""
    folder: Path = field(default=Path(), compare=False)
    constants: InitVar[Any] = None

    def __post_init__(self, constants: Any) -> None:
        object.__setattr__(self, "folder", Path(self.folder).absolute())
        object.__setattr__(self, "models", tuple(map(_models_of, _several(self.models, Models))))
        given = map(_algorithms_of, _named(_several(self.algorithms, Algorithms)))
        object.__setattr__(self, "algorithms", tuple(given))
        for name in ("epsilon", "samples", "gamma"):
            object.__setattr__(self, name, tuple(_floats(getattr(self, name))))
        for name in ("seed", "replicates", "points", "cap"):
            object.__setattr__(self, name, plain(getattr(self, name)))
        _check(self.to_dict(), lambda *keys: f"{_path(keys[:-1])}: " if len(keys) > 1 else "")
        read = []
        for i, each in enumerate(self.entries):
            place = "constants" if each.constants is None else f"algorithms[{i}].constants"
            chosen = constants if each.constants is None else each.constants
            values = _constants(chosen, each.variant(), self.folder, f"{place}: ")
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

    def expand(self) -> list[Model]:
        """All models, in the order of the specification, each once."""
        found = [made for grid in self.grids for made in grid.expand(self.folder, self.gamma)]
        return list({made.label: made for made in found}.values())

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
            )
            if value
        }
        numbers = {"seed": self.seed, "replicates": self.replicates, "points": self.points}
        return plain | numbers | {
            "models": [grid.to_dict() for grid in self.grids],
            "algorithms": [made.to_dict() for made in self.entries],
        }  # fmt: skip

    def to_toml(self) -> str:
        """The specification as TOML; `loads` reads it back."""
        tables, lines = ("models", "algorithms"), []
        whole = self.to_dict()
        lines = [f"{key} = {_toml(value)}" for key, value in whole.items() if key not in tables]
        for name in tables:
            for table in whole[name]:
                lines += ["", f"[[{name}]]"]
                lines += [f"{_key(key)} = {_toml(value)}" for key, value in table.items()]
        return "\n".join(lines) + "\n"


def read(path: str | Path) -> Sweep:
    """The specification in a TOML file; files of constants are read, and hold from then on.

    Raises
    ------
    FileNotFoundError, PermissionError
        As usual.
    SettingError
        Not TOML, an unknown key or a bad value; the message names the line and the nearest valid name.
    """
    path = Path(path)
    with opened(path) as file:
        data = file.read(MOST + 1)
    if len(data) > MOST:
        raise SettingError(f"{path}: more than {MOST} bytes are no specification")
    try:
        return loads(data.decode(), path.parent, str(path))
    except UnicodeDecodeError as error:
        raise SettingError(f"{path}: not UTF-8 ({error})") from error


def loads(text: str, folder: Path = Path(), name: str = "specification") -> Sweep:
    """The specification in a text; see `read`.

    Examples
    --------
    >>> loads('replicate = 4')
    Traceback (most recent call last):
    fastcmdp.errors.SettingError: specification, line 1: unknown key: 'replicate'; did you mean 'replicates'? ...
    """
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise SettingError(f"{name}: not TOML ({error})") from error
    lines = _lines(text)

    def where(*keys: Any) -> str:
        at = next((lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in lines), None)
        return f"{name}: " if at is None else f"{name}, line {at}: "

    for table in (found, *(t for t in _as_list(found.get("algorithms")) if isinstance(t, dict))):
        for key in ("epsilon", "samples", "gamma"):
            if table is found or key != "gamma":
                table |= {key: [table[key]]} if _is_number(table.get(key)) else {}
    if isinstance(found.get("algorithms"), str | list):
        found["algorithms"] = _named(_as_list(found["algorithms"]))
    if isinstance(found.get("models"), list):
        found["models"] = [{"model": m} if isinstance(m, str) else m for m in found["models"]]
    if isinstance(found.get("algorithms"), list):
        found["algorithms"] = [{"name": a} if isinstance(a, str) else a for a in found["algorithms"]]
    _check(found, where)
    shared = found.pop("constants", None)
    models = [
        Models(**{k: v for k, v in table.items() if k in _KINDS},
               settings={k: v for k, v in table.items() if k not in _KINDS}, places=_places(where, "models", i, table))
        for i, table in enumerate(found.pop("models"))
    ]  # fmt: skip
    algorithms = []
    for i, table in enumerate(found.pop("algorithms")):
        constants = table.get("constants", shared)
        at = ("algorithms", i, "constants") if "constants" in table else ("constants",)
        chosen = Algorithms(
            **{k: v for k, v in table.items() if k in _OWN and k != "constants"},
            settings={k: v for k, v in table.items() if k not in _OWN},
            places=_places(where, "algorithms", i, table),
        )
        values = _constants(constants, chosen.variant(), folder, where(*at))
        algorithms.append(Algorithms(**{**chosen.__dict__, "constants": values or None}))
    return Sweep(models=models, algorithms=algorithms, folder=folder, **found)


def _several(given: Any, one: type) -> list[Any]:
    """What was given as a sequence; a single one, or a name, is a sequence of one."""
    if given is None or isinstance(given, str | one) or not hasattr(given, "__iter__"):
        return [] if given is None else [given]
    return list(given)


def _named(given: Sequence[Any]) -> list[Any]:
    """The algorithms, with "all" spelt out."""
    return [name for item in given for name in (ALGORITHMS if item == "all" else [item])]


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


Places = Mapping[str, str]
"""Where the keys of a table stand, for messages, and under "" the table itself; empty for what is made in Python."""


def _places(where: Where, name: str, i: int, table: Mapping[str, Any]) -> Places:
    return {"": where(name, i)} | {key: where(name, i, key) for key in table}


def place_of(places: Places, message: str) -> str:
    """The place of the first key that a message names, or of the table."""
    named = (key for key in places if key and re.search(rf"(?<![\w&?]){re.escape(key)}\b(?!=)", message))
    return places.get(next(named, ""), "")


def differences(old: Sweep, new: Sweep) -> list[str]:
    """What differs between two specifications, a line each; empty if nothing does."""
    before, after = dict(_leaves(old.to_dict())), dict(_leaves(new.to_dict()))
    found = []
    for key in [*before, *(key for key in after if key not in before)]:
        if before.get(key) != after.get(key):
            was, now = (json.dumps(d[key]) if key in d else "nothing" for d in (before, after))
            found.append(f"{_path(key)}: was {was}, is {now}")
    return found


Where = Callable[..., str]


def _check(found: Mapping[str, Any], where: Where) -> None:
    """Refuse what cannot be a specification; ``where`` tells the place of a key."""
    valid = [name for name in get_type_hints(Sweep) if name != "folder"] + ["constants"]
    for key in found:
        if key not in valid:
            raise SettingError(where(key) + unknown("key", key, valid))
    for name, least, most in (("replicates", 1, 2**31 - 1), ("points", 1, 10_000), ("seed", 0, 2**40 - 1)):
        value = found.get(name, least)
        accepted = f"an integer from {least} to {most}"
        _require(_is_int(value) and least <= value <= most, where(name), name, value, accepted)
    cap = found.get("cap")
    _require(cap is None or _is_positive(cap), where("cap"), "cap", cap, "a positive number")
    title = found.get("title", "")
    _require(isinstance(title, str), where("title"), "title", title, "text")
    _check_lists(found, where)
    gammas = found.get("gamma", [])
    inside = isinstance(gammas, list) and all(_is_positive(gamma) and gamma < 1 for gamma in gammas)
    _require(inside, where("gamma"), "gamma", gammas, "a list of numbers between 0 and 1")
    for name in ("models", "algorithms"):
        tables = found.get(name)
        _require(
            isinstance(tables, list) and tables and all(isinstance(t, dict) for t in tables),
            where(name), name, tables, f"at least one table [[{name}]]",
        )  # fmt: skip
    for i, table in enumerate(found["models"]):
        _check_models(table, lambda *keys, i=i: where("models", i, *keys))
    for i, table in enumerate(found["algorithms"]):
        _check_algorithm(table, lambda *keys, i=i: where("algorithms", i, *keys))
    targets = [
        key for table in (found, *found["algorithms"]) for key in ("epsilon", "samples") if table.get(key)
    ]
    if not targets:
        raise SettingError(where() + "no targets: give epsilon = [...] or samples = [...]")
    _check_distinct(found, where)


def _check_lists(table: Mapping[str, Any], where: Where) -> None:
    for name in ("epsilon", "samples"):
        values = table.get(name, [])
        good = isinstance(values, list) and all(map(_is_positive, values))
        _require(good, where(name), name, values, "a list of positive numbers")


def _check_models(table: Mapping[str, Any], where: Where) -> None:
    kinds = [name for name in _KINDS if name in table]
    if len(kinds) != 1:
        near = next((unknown("key", key, _KINDS) + "; " for key in table if key not in _FILE_KEYS), "")
        raise SettingError(f"{where()}{'' if kinds else near}a model has one of {', '.join(_KINDS)}")
    (kind,) = kinds
    name = table[kind]
    _require(isinstance(name, str) and name, where(kind), kind, name, "text")
    settings = [key for key in table if key != kind]
    if kind == "generator":
        if name not in GENERATORS:
            raise SettingError(where(kind) + unknown("generator", name, GENERATORS))
        valid: Sequence[str] | None = list(inspect.signature(GENERATORS[name]).parameters)
    elif kind == "gym":
        valid = None  # whatever the environment takes
    else:
        valid = _FILE_KEYS if kind == "file" or _is_file(name) else ("gamma",)
    for key in settings:
        if valid is not None and key not in valid:
            raise SettingError(where(key) + unknown(f"setting of {name}", key, valid))
        value = table[key]
        plainly = value is None or isinstance(value, str | int | float | list)
        _require(plainly and value != [], where(key), key, value, "a value, or a list of them")


def _check_algorithm(table: Mapping[str, Any], where: Where) -> None:
    name = table.get("name")
    _require(isinstance(name, str) and name, where("name"), "name", name, "the name of an algorithm")
    try:
        of = variant(str(name)).algorithm
    except SettingError as error:
        raise SettingError(f"{where('name')}{error}") from error
    valid = (set(of.setting_names()) | set(of.constants) | set(of.schedule_names())) - {"outer"}
    for key in table:
        if key not in _OWN and key not in valid:
            raise SettingError(where(key) + unknown(f"setting of {of.name}", key, valid | set(_OWN)))
    label = table.get("label", "a")
    _require(isinstance(label, str) and label, where("label"), "label", label, "text")
    _check_lists(table, where)
    constants = table.get("constants", {})
    accepted = "a file of `fastcmdp tune`, or a table of constants"
    _require(_is_constants(constants), where("constants"), "constants", constants, accepted)
    settings = {key: value for key, value in table.items() if key not in _OWN}
    for key, value in settings.items():
        _require(not isinstance(value, dict), where(key), key, value, "a value")
    made = Algorithms(str(name), settings)
    try:
        made.variant()
    except (SettingError, TypeError, ValueError) as error:
        key = next((key for key in settings if key in str(error)), next(iter(settings), "name"))
        raise SettingError(f"{where(key)}{error}") from error


def _check_distinct(found: Mapping[str, Any], where: Where) -> None:
    labels: dict[str, int] = {}
    for i, table in enumerate(found["algorithms"]):
        label = label_of(table)
        if label in labels:
            raise SettingError(
                f"{where('algorithms', i)}algorithm {i + 1} is called {label!r} as algorithm {labels[label] + 1} is; "
                "give it a label"
            )
        labels[label] = i


def plain(value: Any) -> Any:
    """A setting in the types of JSON."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple | range):
        return [plain(part) for part in value]
    return value


def label_of(table: Mapping[str, Any]) -> str:
    """What an algorithm is called in the store."""
    settings = {key: value for key, value in table.items() if key not in _OWN}
    return str(table.get("label") or Algorithms(table["name"], settings).variant().label)


def _constants(given: Any, of: Variant, folder: Path, where: str) -> dict[str, float]:
    """Constants of a schedule, from a file or a table."""
    if given is None:
        return {}
    from fastcmdp.tuned import check_constants, constants_for, read_constants

    _require(
        _is_constants(given), where, "constants", given, "a file of `fastcmdp tune`, or a table of constants"
    )
    given = getattr(given, "constants", given)  # what `fastcmdp.tune` returned
    if isinstance(given, str | Path):
        try:
            found = constants_for(of, read_constants(folder / given))
        except (OSError, ModelError, SettingError) as error:
            raise SettingError(f"{where}{error}") from error
    elif any(isinstance(value, Mapping) for value in given.values()):
        found = constants_for(of, check_constants(given, where.rstrip(": ")))
    else:
        found = check_constants({of.algorithm.name: given}, where.rstrip(": "))[of.algorithm.name]
    return {key: value for key, value in (found or {}).items() if key not in of.settings}


def _require(holds: object, where: str, name: str, value: object, accepted: str) -> None:
    require(holds, where + name, value, accepted)


def _is_constants(value: object) -> bool:
    return isinstance(value, str | Path | Mapping) or isinstance(getattr(value, "constants", None), Mapping)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and 0 < float(value) < math.inf


def _is_number(value: Any) -> bool:
    """Whether value is a number that a float can be."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return isinstance(value, float) or abs(value) <= sys.float_info.max


def _is_file(spec: str) -> bool:
    return spec.partition(":")[0] not in ("env", "gym") and spec.lower().endswith(tuple(ENDINGS))


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | range) else [value]


def _floats(values: Any) -> list[Any]:
    """Numbers as floats, anything else as it is, to be refused later."""
    given = () if values is None else _as_list(plain(values))
    return [float(v) if _is_positive(v) else v for v in given]


def _text(value: Any) -> str:
    """A setting as in `env:NAME?key=value`."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(_text(part) for part in value)
    return quote(value, safe="/:<>= ") if isinstance(value, str) else repr(value)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The values of a specification by their places; lists of plain values are one value."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for i, part in enumerate(value):
            yield from _leaves(part, (*path, i))
    else:
        yield path, value


def _path(keys: Sequence[Any]) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return text.removeprefix(".")


_HEADER = re.compile(r"\s*\[\[\s*(\w+)\s*\]\]")
_ENTRY = re.compile(r"\s*(?:\"([^\"]*)\"|'([^']*)'|([\w-]+))\s*(?:=|\.)")


def _lines(text: str) -> dict[tuple[Any, ...], int]:
    """The lines on which keys stand. A scan, not a parser: what it misses is told without a line."""
    found: dict[tuple[Any, ...], int] = {}
    counts: dict[str, int] = {}
    table: tuple[Any, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            name = header.group(1)
            table = (name, counts.get(name, 0))
            counts[name] = counts.get(name, 0) + 1
            found.setdefault(table[:1], number)
            found[table] = number
        elif single := re.match(r"\s*\[\s*([\w-]+)", line):
            table = (single.group(1),)
            found.setdefault(table, number)
        elif entry := _ENTRY.match(line):
            found.setdefault((*table, next(part for part in entry.groups() if part is not None)), number)
    return found


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else _toml(name)


def _toml(value: Any) -> str:
    """A value of a specification in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list | tuple | range):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
