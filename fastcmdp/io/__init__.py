"""Models in files: read, named, written, converted.

Every reader makes a `Description` of a file, every writer takes one, so that each format converts to each other.
`load` and `save` go between files and models; `read` and `write` between files and descriptions.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

from numpy.typing import ArrayLike

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.files import Packing, about, check_there
from fastcmdp.io.description import Constraint, Description, Problem, Reward, describe
from fastcmdp.io.naming import build, summary, text_summary, with_problem
from fastcmdp.io.place import AXES, Place
from fastcmdp.text import visible
from fastcmdp.units import Units

__all__ = [
    "ENDINGS",
    "FORMATS",
    "NAMES",
    "Constraint",
    "Description",
    "Format",
    "Problem",
    "Reward",
    "build",
    "describe",
    "format_of",
    "load",
    "read",
    "save",
    "summary",
    "text_summary",
    "with_problem",
    "write",
]

Format = str


class _Kind(NamedTuple):
    """A format: the module with its `read(place)` and `write(description, place)`, its ending, whether it is packed."""

    module: str
    ending: str
    packed: bool = False


FORMATS = {
    "npz": _Kind("native", ".npz"),
    "toolbox": _Kind("toolbox", ""),
    "mat": _Kind("mat", ".mat"),
    "umb": _Kind("umb", ".umb", packed=True),
    "drn": _Kind("drn", ".drn", packed=True),
    "tra": _Kind("prism", ".tra", packed=True),
}
_PACKED = [name for name, kind in FORMATS.items() if kind.packed]
NAMES: tuple[Format, ...] = (*FORMATS, *(f"{name}.{packing}" for name in _PACKED for packing in ("gz", "xz")))
"""The names of all formats, packed ones too."""
ENDINGS: dict[str, Format] = {f".{name}": name for name in NAMES if name != "toolbox"}


def load(
    path: str | Path,
    reward: str | None = None,
    constraints: str | Sequence[str] | None = None,
    gamma: float | str | None = None,
    start: str | int | ArrayLike | None = None,
    *,
    files: Sequence[str | Path] | None = None,
    format: Format | None = None,
    renormalize: bool = False,
    axes: str | None = None,
) -> CMDP:
    """The model in a file.

    Parameters
    ----------
    path : str or Path
        A file that ends in .npz (our own, or arrays P and R), .mat, .umb, .drn or .tra; the last three also
        packed, .umb.gz or .umb.xz.
    reward : str, optional
        The reward that is maximised, by its name; "-NAME" minimises it. Not needed where the file has one
        reward only, or is our own and tells.
    constraints : str or list of str, optional
        "NAME <= NUMBER" or "NAME >= NUMBER", on discounted sums. NAME is a reward, or "label:NAME", which counts
        visits to states with that label. Default: those that the file tells, if it is our own, else none.
    gamma : float or str, optional
        Discount factor in (0, 1), "average", or 1 for episodes that all end (`CMDP.with_criterion`); needed unless
        the file tells it.
    start : str, int or (S,) array, optional
        A label (uniform over its states), "uniform" (over all states), a state, or probabilities. Default: the
        file's initial states, uniformly if there are several.
    files : list of str or Path, optional
        For .tra: its .lab, .sta, .srew and .trew files; by default those found beside it.
    format : str, optional
        Instead of judging by the ending: "npz" and "toolbox" (either kind of .npz), "umb", "drn", "tra", "mat",
        "umb.gz" and its like.
    renormalize : bool
        Divide rows of probabilities by their sums, whatever these are; otherwise only as far as the rounding of
        numbers in text explains. A warning says how far they were off.
    axes : str, optional
        Of tables P and R in a .mat or .npz, where their shape leaves a choice: "ast" for P[action, state, next
        state], "sta" for MATLAB's P(state, next state, action), "sat" for P[state, action, next state].

    Raises
    ------
    FileNotFoundError, PermissionError
        As usual.
    ModelError
        What the file holds cannot be used, or a name is not in it; text formats tell the line.

    Warns
    -----
    UserWarning
        Rows missed 1 by more than the rounding of doubles and were divided by their sums; an array of a .mat or
        .npz has no meaning here.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from fastcmdp import envs
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "gathering.umb"
    >>> save(envs.resource_gathering(), path)
    >>> load(path, reward="rew_gold", constraints=["attacks <= 0.25"], gamma=0.95)
    CMDP(94 states, 302 choices, 326 branches, gamma=0.95, maximise rew_gold, attacks <= 0.25)
    """
    description = read(path, files=files, format=format, renormalize=renormalize, axes=axes)
    for note in description.notes:
        warnings.warn(f"{path}: {note}", stacklevel=2)
    with about(path):
        return build(description, reward=reward, constraints=constraints, gamma=gamma, start=start)


def save(cmdp: CMDP, path: str | Path, *, format: Format | None = None) -> None:
    """Write a model to a file; its ending, or ``format``, says how.

    .npz keeps everything, to the last bit. Other formats keep rows, signals under their names, action numbers and
    the start; the discount, limits and senses are given again to `load` (.mat and "toolbox" keep the discount).

    Raises
    ------
    ModelError
        An unknown ending, or the format cannot hold the model.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from fastcmdp import envs
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "swim.npz"
    >>> save(envs.river_swim(limit=5.0), path)
    >>> load(path)
    CMDP(8 states, 16 choices, 30 branches, gamma=0.95, maximise reward, strokes <= 5)
    """
    if not isinstance(cmdp, Units):
        raise ModelError(
            f"a {type(cmdp).__name__} is no model: a run is saved by result.save(path), a policy by "
            "save_policy(path, result.agent())"
        )
    write(describe(cmdp), path, format=format)


def read(
    path: str | Path,
    *,
    files: Sequence[str | Path] | None = None,
    format: Format | None = None,
    renormalize: bool = False,
    axes: str | None = None,
) -> Description:
    """What a file says, before anyone has chosen what to maximise; arguments and errors as for `load`."""
    path = Path(path)
    kind = format_of(path, format)
    if files is not None and FORMATS[kind.partition(".")[0]].module != "prism":
        raise ModelError(f"{path}: other files go with a .tra only")
    if axes not in (None, *AXES):
        raise ModelError(f"axes = {axes!r}: {', '.join(map(repr, AXES))} or None is expected")
    beside = None if files is None else [Path(file) for file in files]
    check_there(path)
    with about(path):
        description: Description = _module(kind).read(Place(path, "", beside, renormalize, axes))
    return description


def write(description: Description, path: str | Path, *, format: Format | None = None) -> None:
    """Write a description to a file; arguments and errors as for `save`."""
    path = Path(path)
    kind = format_of(path, format)
    with about(path):
        _module(kind).write(description, Place(path, cast(Packing, kind.partition(".")[2])))


def format_of(path: Path, format: Format | None = None) -> Format:
    """The format of a file by its ending, unless it is given."""
    if format is not None:
        if format not in NAMES:
            raise ModelError(f"format {format!r} is unknown; {', '.join(NAMES)} are supported")
        return format
    for ending, kind in sorted(ENDINGS.items(), key=lambda pair: -len(pair[0])):
        if path.name.lower().endswith(ending):
            return kind
    raise ModelError(f"{visible(path)}: the ending tells no format; {', '.join(ENDINGS)} do, or format=")


def _module(kind: Format) -> Any:
    """The module of a format, which loads at its first use: most programs need one of them at most."""
    return import_module(f"fastcmdp.io.{FORMATS[kind.partition('.')[0]].module}")
