"""What verbs share: the model argument, faults as one line, strict JSON."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.algorithms.variants import Variant
from fastcmdp.cmdp import CMDP
from fastcmdp.compare import variants
from fastcmdp.envs import GENERATORS, from_spec
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.exact import Optimum
from fastcmdp.io import ENDINGS, Description, build, read
from fastcmdp.plots import check_ending
from fastcmdp.policies import Policy, TabularSoftmax
from fastcmdp.text import unknown

POLICIES: dict[str, type[TabularSoftmax]] = {"tabular": TabularSoftmax}
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A file (.npz .umb .drn .tra .mat), gym:ID (Gymnasium) or env:NAME, settings after a question mark: "
        f"'env:garnet?n_states=50&seed=1'. NAME: {', '.join(sorted(GENERATORS))}.",
        show_default=False,
    ),
]
Reward = Annotated[
    str | None,
    typer.Option(help="In a file: the reward that is maximised; -NAME minimises it.", metavar="NAME"),
]
Constraints = Annotated[
    list[str] | None,
    typer.Option(
        "--constraint",
        help="In a file: 'NAME <= NUMBER' or 'NAME >= NUMBER', repeatable; NAME is a reward, or label:NAME, which "
        "counts visits to that label.",
        metavar="TEXT",
    ),
]
Start = Annotated[
    str | None,
    typer.Option(help="In a file: a label, a state's number, or 'uniform'.", metavar="WHERE"),
]
Beside = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        help="What goes with a .tra: .lab, .srew, .trew; repeatable. Default: those beside it.",
        metavar="FILE",
    ),
]
Limits = Annotated[
    list[float] | None,
    typer.Option("--limit", help="Limit of a constraint; once for each, in their order.", metavar="L"),
]
Gamma = Annotated[float | None, typer.Option(help="Discount factor, in (0, 1).", metavar="G")]
Threads = Annotated[int | None, typer.Option(help="Default: the processors at hand.", metavar="T")]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        help=f"all, or names separated by commas: {', '.join(ALGORITHMS)}; settings that stay fixed after a question "
        "mark: 'pd-anpg?method=sgd&average=uniform'. Default: all.",
        metavar="NAMES",
    ),
]
ConstantsFile = Annotated[
    Path | None, typer.Option("--constants", help="Tuned constants, a file of fastcmdp tune.", metavar="FILE")
]
PolicyName = Annotated[str, typer.Option(help=f"One of {', '.join(POLICIES)}.", metavar="NAME")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")]


def methods(given: Sequence[str] | None) -> list[Variant]:
    """The methods named on the command line, over all uses of the option."""
    return variants(",".join(given) if given else None)


def numbers(option: str, given: Sequence[str]) -> list[float]:
    """Positive numbers separated by commas, over all uses of an option."""
    found = []
    for text in ",".join(given).split(","):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise SettingError(
                f"{option} {text!r}: a positive number, or several separated by commas, is expected"
            )
        found.append(value)
    return found


def policy_class(name: str) -> Policy:
    """The policy class with this name on the command line."""
    if name not in POLICIES:
        raise SettingError(unknown("policy", name, POLICIES))
    return POLICIES[name]()


def check_output(file: Path | None) -> None:
    """Find out before a run, not after it, that a file cannot be written."""
    if file is not None and not file.absolute().parent.is_dir():
        raise SettingError(f"{file}: there is no folder {file.absolute().parent}")
    if file is not None and file.is_dir():
        raise SettingError(f"{file}: a folder; give the name of a file in it")
    if file is not None and not os.access(file.absolute().parent, os.W_OK):
        raise SettingError(f"{file}: no permission to write in {file.absolute().parent}")


def check_plot(file: Path | None) -> None:
    """The same for a plot, and that there is something to draw it with."""
    if file is None:
        return
    check_ending(file)
    check_output(file)
    if importlib.util.find_spec("matplotlib") is None:
        raise SettingError("--plot needs matplotlib: pip install 'fastcmdp[plot]'")


def note(text: str) -> None:
    """A line of prose, on standard error."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def faults() -> Iterator[None]:
    """Bad input as one line on standard error and exit code 2, Ctrl-C as 130; warnings as one line each."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_, **__: note(f"warning: {message}")
        try:
            yield
        except BrokenPipeError as error:  # `| head` has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(141) from error
        except (ModelError, SettingError, OSError) as error:
            note(f"error: {error}")
            raise typer.Exit(2) from error
        except MemoryError as error:
            note(f"error: not enough memory ({error})")
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            note("interrupted before there was a result")
            raise typer.Exit(130) from error


@dataclass(frozen=True)
class Naming:
    """What the command line says about a file: which of its rewards is what, where to start, what goes with it."""

    reward: str | None = None
    constraints: Sequence[str] | None = None
    start: str | None = None
    beside: Sequence[Path] | None = None

    def given(self) -> dict[str, Any]:
        """The options that were given, by their names on the command line."""
        options = zip(("--reward", "--constraint", "--start", "--with"), astuple(self), strict=True)
        return {name: value for name, value in options if value}


NO_NAMES = Naming()


def is_file(spec: str) -> bool:
    """Whether a model is a file, there or not, rather than a generator or an environment."""
    return spec.partition(":")[0] not in ("env", "gym") and (
        Path(spec).exists() or spec.lower().endswith(tuple(ENDINGS))
    )


def read_file(path: str, naming: Naming = NO_NAMES) -> Description:
    """The description of a file."""
    return read(path, files=list(naming.beside) if naming.beside else None)


def tell_notes(path: str, description: Description) -> None:
    """What the reader of a file changed or left out, as warnings."""
    for told in description.notes:
        warnings.warn(f"{path}: {told}", stacklevel=2)


def read_model(
    spec: str,
    gamma: float | None = None,
    limits: Sequence[float] | None = None,
    naming: Naming = NO_NAMES,
) -> CMDP:
    """The model named on the command line; ``gamma`` and ``limits`` override its defaults.

    Raises
    ------
    SettingError
        An unknown kind, name or key; a setting given twice; names for what is no file.
    ModelError
        From the reader, the generator or the adapter.
    """
    if is_file(spec):
        return model_of(spec, read_file(spec, naming), gamma, limits, naming)
    if naming.given():
        raise SettingError(f"{', '.join(naming.given())}: for files only; {spec} takes settings after its ?")
    settings = [] if gamma is None else [f"gamma={gamma!r}"]
    if limits:
        settings.append(f"limit={','.join(map(repr, limits))}")
    if settings:
        spec += ("&" if "?" in spec else "?") + "&".join(settings)
    return from_spec(spec)


def model_of(
    path: str,
    description: Description,
    gamma: float | None,
    limits: Sequence[float] | None,
    naming: Naming,
) -> CMDP:
    """The model that the options make of a description."""
    tell_notes(path, description)
    try:
        cmdp = build(
            description,
            reward=naming.reward,
            constraints=naming.constraints or None,
            gamma=gamma,
            start=naming.start,
        )
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    return cmdp.with_limits(limits) if limits else cmdp


def describe(spec: str, cmdp: CMDP) -> dict[str, Any]:
    """The entries ``model`` and ``limits`` of the JSON object of a verb."""
    started = np.flatnonzero(cmdp.start)
    signals = np.column_stack([cmdp.reward, cmdp.costs])
    return {
        "model": {
            "spec": spec,
            "description": repr(cmdp),
            "states": cmdp.n_states,
            "choices": cmdp.n_choices,
            "branches": cmdp.n_branches,
            "actions": cmdp.n_actions,
            "gamma": cmdp.gamma,
            "start": {
                "states": started.size,
                "first": started[0],
                "uniform": bool(np.ptp(cmdp.start[started]) <= 1e-12),
            },
            "names": cmdp.names,
            "ranges": np.stack([signals.min(axis=0), signals.max(axis=0)], axis=1),
        },
        "limits": [
            {"name": name, "sense": sense, "limit": limit}
            for name, sense, limit in zip(cmdp.names[1:], cmdp.sense, cmdp.limits, strict=True)
        ],
    }


def describe_optimum(best: Optimum | None) -> dict[str, Any] | None:
    """The entry ``optimum``; None where it was not computed."""
    if best is None:
        return None
    return {
        "reward": best.reward,
        "constraints": best.constraints,
        "duals": best.duals,
        "constraint_range": best.constraint_range,
    }


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on standard output, strict: what is not finite becomes null."""
    print(json.dumps(plain(value), allow_nan=False), flush=True)


def plain(value: Any) -> Any:
    """``value`` in the types of JSON.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"a": np.array([1.0, np.nan]), "b": (np.int64(2), np.inf)})
    {'a': [1.0, None], 'b': [2, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
