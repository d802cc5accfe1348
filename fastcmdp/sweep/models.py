"""The models of a sweep: one as workers get it, and grids of them."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastcmdp.cmdp import CMDP
from fastcmdp.envs import GENERATORS, from_spec
from fastcmdp.errors import SettingError
from fastcmdp.io import ENDINGS, load
from fastcmdp.simulator_names import names_simulator, simulator_named
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.sweep.settings import Places, Where, as_list, query_text, require_at
from fastcmdp.text import plain, unknown

KINDS = ("generator", "gym", "file", "model")
FILE_KEYS = ("gamma", "reward", "constraints", "start", "files", "limits")
_TEXTS = ("env", "gym", "simulator")  # what a model that is no file begins with


@dataclass(frozen=True)
class NamedModel:
    """One model of a sweep, as workers get it.

    Attributes
    ----------
    label : str
        Its name in the store; no two models of a sweep share one.
    spec : str
        `env:...`, `gym:...`, `simulator:MODULE:NAME...`, or the path of a file.
    naming : mapping
        For a file: what `fastcmdp.load` is told, and ``limits``.
    """

    label: str
    spec: str
    naming: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """Whether it is read from a file."""
        return self.spec.partition(":")[0] not in _TEXTS

    def build(self) -> CMDP | Simulator:
        """The model itself; errors as of `fastcmdp.load`, `fastcmdp.envs.from_spec` and `simulator_named`."""
        if names_simulator(self.spec):
            return simulator_named(self.spec)
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
        As on the command line: a file, `env:NAME?key=value&...`, `gym:ID?...` or `simulator:MODULE:NAME?...`; the only
        setting is ``gamma``.
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
        check_models(self.to_dict(), lambda *_: "models: ")

    def to_dict(self) -> dict[str, Any]:
        """As a table of the TOML file."""
        kind = {name: getattr(self, name) for name in KINDS if getattr(self, name) is not None}
        return kind | dict(self.settings)

    def count(self, gammas: Sequence[float | str] = ()) -> int:
        """How many models the grid has, at most: `expand` makes each once."""
        lengths = {
            key: len(as_list(value))
            for key, value in self.settings.items()
            if not self._path or key == "gamma"
        }
        return math.prod(lengths.values()) * (len(gammas) if gammas and not self._has_gamma else 1)

    @property
    def _path(self) -> str | None:
        return self.file or (self.model if self.model is not None and is_file(self.model) else None)

    @property
    def _has_gamma(self) -> bool:
        spec = self.model
        return "gamma" in self.settings or (spec is not None and re.search(r"[?&]gamma=", spec) is not None)

    def expand(self, folder: Path = Path(), gammas: Sequence[float | str] = ()) -> list[NamedModel]:
        """All models of the grid; files are sought from ``folder``; ``gammas`` are for those that give none."""
        settings = dict(self.settings)
        spec = self.model
        path = self._path
        if gammas and not self._has_gamma:
            settings["gamma"] = list(gammas)
        if path is not None:
            labelled = []
            for gamma in as_list(settings.pop("gamma", None)):
                discount = gamma if isinstance(gamma, str) or gamma is None else float(gamma)
                naming = settings if discount is None else settings | {"gamma": discount}
                query = "&".join(f"{key}={query_text(value)}" for key, value in naming.items())
                full = dict(naming)
                if "files" in full:
                    full["files"] = [str(folder / name) for name in as_list(full["files"])]
                labelled.append(NamedModel(path + "?" * bool(query) + query, str(folder / path), full))
            return labelled
        if spec is None:
            spec = f"env:{self.generator}" if self.gym is None else f"gym:{self.gym}"
        grids = {key: as_list(value) for key, value in settings.items()}
        labelled = []
        for values in itertools.product(*grids.values()):
            query = "&".join(f"{key}={query_text(value)}" for key, value in zip(grids, values, strict=True))
            joined = spec + ("&" if "?" in spec else "?") + query if query else spec
            labelled.append(NamedModel(joined, joined))
        return labelled


def check_models(table: Mapping[str, Any], where: Where) -> None:
    kinds = [name for name in KINDS if name in table]
    if len(kinds) != 1:
        near = next((unknown("key", key, KINDS) + "; " for key in table if key not in FILE_KEYS), "")
        raise SettingError(f"{where()}{'' if kinds else near}a model has one of {', '.join(KINDS)}")
    (kind,) = kinds
    name = table[kind]
    require_at(isinstance(name, str) and name, where(kind), kind, name, "text")
    settings = [key for key in table if key != kind]
    if kind == "generator":
        if name not in GENERATORS:
            raise SettingError(where(kind) + unknown("generator", name, GENERATORS))
        valid: Sequence[str] | None = list(inspect.signature(GENERATORS[name]).parameters)
    elif kind == "gym":
        valid = None  # whatever the environment takes
    else:
        valid = FILE_KEYS if kind == "file" or is_file(name) else ("gamma",)
    for key in settings:
        if valid is not None and key not in valid:
            raise SettingError(where(key) + unknown(f"setting of {name}", key, valid))
        value = table[key]
        plainly = value is None or isinstance(value, str | int | float | list)
        require_at(plainly and value != [], where(key), key, value, "a value, or a list of them")


def is_file(spec: str) -> bool:
    return spec.partition(":")[0] not in _TEXTS and spec.lower().endswith(tuple(ENDINGS))
