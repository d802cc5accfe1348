"""The model of a verb: what the command line says of it, once for all verbs, and how it is read."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import typer

from fastcmdp.cli.common import faults
from fastcmdp.cmdp import CMDP
from fastcmdp.envs import GENERATORS, from_spec
from fastcmdp.errors import SettingError
from fastcmdp.files import about
from fastcmdp.io import ENDINGS, Description, build, read
from fastcmdp.policies import Policy
from fastcmdp.policy_names import policy_named
from fastcmdp.simulator_names import names_simulator, simulator_named
from fastcmdp.simulators.simulator import Simulator

MODEL = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A file (.npz .umb .drn .tra .mat), gym:ID (Gymnasium) or env:NAME, settings after a question mark: "
        f"'env:garnet?n_states=50&seed=1'. NAME: {', '.join(sorted(GENERATORS))}. For solve also a simulator, "
        "simulator:MODULE:NAME, of a module that can be imported; its code runs.",
        show_default=False,
    ),
]
OPTIONS: dict[str, Any] = {
    "limit": Annotated[
        list[float] | None,
        typer.Option("--limit", help="Limit of a constraint; once for each, in their order.", metavar="L"),
    ],
    "gamma": Annotated[
        float | None,
        typer.Option(help="Discount factor, in (0, 1), or 1: sums of episodes that all end.", metavar="G"),
    ],
    "average": Annotated[
        bool, typer.Option("--average", help="Average reward and costs instead of discounted sums.")
    ],
    "reward": Annotated[
        str | None,
        typer.Option(help="In a file: the reward that is maximised; -NAME minimises it.", metavar="NAME"),
    ],
    "constraint": Annotated[
        list[str] | None,
        typer.Option(
            "--constraint",
            help="In a file: 'NAME <= NUMBER' or 'NAME >= NUMBER', repeatable; NAME is a reward, or label:NAME, which "
            "counts visits to that label.",
            metavar="TEXT",
        ),
    ],
    "start": Annotated[
        str | None, typer.Option(help="In a file: a label, a state's number, or 'uniform'.", metavar="WHERE")
    ],
    "beside": Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            help="What goes with a .tra: .lab, .srew, .trew; repeatable. Default: those beside it.",
            metavar="FILE",
        ),
    ],
}
"""What every verb on a model takes, by the fields of `Source`."""


@dataclass(frozen=True)
class Source:
    """A model on the command line, not read yet: its name, and the options that say what it is.

    Attributes
    ----------
    spec : str
        A file, `env:NAME?...`, `gym:ID?...` or `simulator:MODULE:NAME?...`.
    limit, gamma : override those of the model
    average : averages instead of discounted sums
    reward, constraint, start, beside : of a file: which of its rewards is what, where to start, what goes with it
    """

    spec: str
    limit: Sequence[float] | None = None
    gamma: float | None = None
    average: bool = False
    reward: str | None = None
    constraint: Sequence[str] | None = None
    start: str | None = None
    beside: Sequence[Path] | None = None

    @property
    def discount(self) -> float | str | None:
        """What is said of gamma: a number, "average" or nothing."""
        if self.average and self.gamma is not None:
            raise SettingError(
                f"--average takes no --gamma, but --gamma {self.gamma!r} is given: leave one out"
            )
        return "average" if self.average else self.gamma

    @property
    def names(self) -> dict[str, Any]:
        """The options for files that were given, by what they are called on the command line."""
        options = {"--reward": self.reward, "--constraint": self.constraint, "--start": self.start}
        return {name: value for name, value in (options | {"--with": self.beside}).items() if value}

    @property
    def is_file(self) -> bool:
        """Whether the model is a file, there or not, rather than something that is generated."""
        return self.spec.partition(":")[0] not in ("env", "gym", "simulator") and (
            Path(self.spec).exists() or self.spec.lower().endswith(tuple(ENDINGS))
        )

    def description(self) -> Description:
        """What the file holds."""
        return read(self.spec, files=list(self.beside) if self.beside else None)

    def apply(self, to: Callable[..., Any], description: Description) -> Any:
        """``to(description, reward=, ...)`` with these options; its remarks as warnings, its faults with the path."""
        for remark in description.notes:
            warnings.warn(f"{self.spec}: {remark}", stacklevel=2)
        named = {"reward": self.reward, "constraints": self.constraint or None, "start": self.start}
        with about(self.spec):
            return to(description, gamma=self.discount, **named)

    def model(self) -> CMDP | Simulator:
        """The model or simulator.

        Raises
        ------
        SettingError
            An unknown kind, name or key; a setting given twice; names for what is no file.
        ModelError
            From the reader, the generator or the adapter.
        """
        if self.is_file:
            return self.build(self.description())
        if self.names:
            raise SettingError(
                f"{', '.join(self.names)}: for files only; {self.spec} takes settings after its ?"
            )
        settings = [] if self.discount is None else [f"gamma={self.discount}"]
        settings += [f"limit={','.join(map(repr, self.limit))}"] if self.limit else []
        query = ("&" if "?" in self.spec else "?") + "&".join(settings) if settings else ""
        return (simulator_named if names_simulator(self.spec) else from_spec)(self.spec + query)

    def cmdp(self) -> CMDP:
        """The model, for verbs that need its table."""
        if names_simulator(self.spec):
            raise SettingError(
                f"{self.spec}: this verb needs a model with a table; fastcmdp solve runs on simulators"
            )
        model = self.model()
        assert isinstance(model, CMDP)
        return model

    def build(self, description: Description) -> CMDP:
        """The model of a description of the file."""
        cmdp: CMDP = self.apply(build, description)
        return cmdp.with_limits(self.limit) if self.limit else cmdp

    def policy(self, name: str | None) -> tuple[str, Callable[[Any], Policy]]:
        """The name of a policy class, by default that of `solve`, and what builds it for the model."""
        chosen = policy_named(name or ("log-linear" if names_simulator(self.spec) else "tabular"))
        return str(chosen), chosen.build

    def describe(self, model: Any) -> dict[str, Any]:
        """The entries ``model`` and ``limits`` of the JSON object of a verb; a simulator has no sizes and no ranges."""
        facts = {
            "spec": self.spec,
            "description": repr(model),
            "actions": model.n_actions,
            "gamma": model.gamma,
        }
        facts |= {"names": model.names} | ({} if names_simulator(self.spec) else _sizes(model))
        bounds = zip(model.names[1:], model.sense, model.limits, strict=True)
        limits = [{"name": name, "sense": sense, "limit": limit} for name, sense, limit in bounds]
        return {"model": facts, "limits": limits}


def _sizes(cmdp: CMDP) -> dict[str, Any]:
    started = np.flatnonzero(cmdp.start)
    signals = np.column_stack([cmdp.reward, cmdp.costs])
    return {
        "states": cmdp.n_states,
        "choices": cmdp.n_choices,
        "branches": cmdp.n_branches,
        "start": {
            "states": started.size,
            "first": started[0],
            "uniform": bool(np.ptp(cmdp.start[started]) <= 1e-12),
        },
        "ranges": np.stack([signals.min(axis=0), signals.max(axis=0)], axis=1),
    }


def on_model(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a verb of a function whose first parameter is a Source: MODEL and its options, but these, stand for it.

    What is wrong with the input ends the verb with one line, as `faults` says.
    """
    taken = {name: kind for name, kind in OPTIONS.items() if name not in without}

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        @wraps(verb)
        def command(**options: Any) -> None:
            with faults():
                source = Source(options.pop("model"), **{name: options.pop(name) for name in taken})
                verb(source, **options)

        own = get_type_hints(verb, include_extras=True)
        _, *rest = inspect.signature(verb).parameters.values()
        kinds = {"model": MODEL} | {p.name: own[p.name] for p in rest} | taken
        defaults = {p.name: p.default for p in rest} | dict.fromkeys(taken) | {"average": False}
        named: Any = command
        named.__signature__ = inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=defaults.get(name, inspect.Parameter.empty),
                    annotation=kind,
                )
                for name, kind in kinds.items()
            ]
        )
        named.__annotations__ = kinds | {"return": None}
        del named.__wrapped__
        return command

    return decorate
