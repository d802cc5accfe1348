"""What verbs share: the model argument, faults as one line, strict JSON."""

from __future__ import annotations

import importlib
import json
import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fastcmdp.cmdp import CMDP
from fastcmdp.envs import GENERATORS, from_spec
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.exact import Optimum

FILES = (".npz", ".umb", ".drn", ".tra")

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="gym:ID (Gymnasium) or env:NAME, settings after a question mark: 'env:garnet?n_states=50&seed=1'. "
        f"NAME: {', '.join(sorted(GENERATORS))}.",
        show_default=False,
    ),
]
Limits = Annotated[
    list[float] | None,
    typer.Option("--limit", help="Limit of a constraint; once for each, in their order.", metavar="L"),
]
Gamma = Annotated[float | None, typer.Option(help="Discount factor, in (0, 1).", metavar="G")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")]


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
        except (ModelError, SettingError, OSError) as error:
            note(f"error: {error}")
            raise typer.Exit(2) from error
        except MemoryError as error:
            note(f"error: not enough memory ({error})")
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            note("interrupted before there was a result")
            raise typer.Exit(130) from error


def read_model(spec: str, gamma: float | None = None, limits: Sequence[float] | None = None) -> CMDP:
    """The model named on the command line; ``gamma`` and ``limits`` override its defaults.

    Raises
    ------
    SettingError
        A file, unless `fastcmdp.io` can read it; an unknown kind, name or key; a setting given twice.
    ModelError
        From the generator or the adapter.
    """
    kind = spec.partition(":")[0]
    if kind not in ("env", "gym") and (Path(spec).suffix in FILES or Path(spec).exists()):
        return _read_file(spec, gamma, limits)
    settings = [] if gamma is None else [f"gamma={gamma!r}"]
    if limits:
        settings.append(f"limit={','.join(map(repr, limits))}")
    if settings:
        spec += ("&" if "?" in spec else "?") + "&".join(settings)
    return from_spec(spec)


def _read_file(path: str, gamma: float | None, limits: Sequence[float] | None) -> CMDP:
    try:
        load = getattr(importlib.import_module("fastcmdp.io"), "load", None)
    except ImportError:
        load = None
    if load is None:
        raise SettingError(f"{path}: reading files is not there yet; give gym:ID or env:NAME?key=value&...")
    cmdp: CMDP = load(path) if gamma is None else load(path, gamma=gamma)
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
