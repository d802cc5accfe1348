"""Models in files: read, named, written, converted.

Every reader makes a `Description` of a file, every writer takes one, so that each format converts to each other.
`load` and `save` go between files and models; `read` and `write` between files and descriptions.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from numpy.typing import ArrayLike

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError
from fastcmdp.files import about, replacing
from fastcmdp.io.description import Constraint, Description, Problem, Reward, describe
from fastcmdp.io.naming import build, summary, text_summary, with_problem

__all__ = [
    "ENDINGS",
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

Format = Literal["npz", "umb", "umb.gz", "umb.xz", "drn", "tra", "toolbox", "mat"]
ENDINGS: dict[str, Format] = {
    ".npz": "npz", ".umb": "umb", ".umb.gz": "umb.gz", ".umb.xz": "umb.xz", ".drn": "drn", ".tra": "tra",
    ".mat": "mat",
}  # fmt: skip


def load(
    path: str | Path,
    reward: str | None = None,
    constraints: str | Sequence[str] | None = None,
    gamma: float | None = None,
    start: str | int | ArrayLike | None = None,
    *,
    files: Sequence[str | Path] | None = None,
    format: Format | None = None,
    renormalize: bool = False,
) -> CMDP:
    """The model in a file.

    Parameters
    ----------
    path : str or Path
        A file that ends in .npz (our own, or arrays P and R), .umb, .drn, .tra or .mat.
    reward : str, optional
        The reward that is maximised, by its name; "-NAME" minimises it. Not needed where the file has one
        reward only, or is our own and tells.
    constraints : str or list of str, optional
        "NAME <= NUMBER" or "NAME >= NUMBER", on discounted sums. NAME is a reward, or "label:NAME", which counts
        visits to states with that label. Default: those that the file tells, if it is our own, else none.
    gamma : float, optional
        Discount factor in (0, 1); needed unless the file tells it.
    start : str, int or (S,) array, optional
        A label (uniform over its states), "uniform" (over all states), a state, or probabilities. Default: the
        file's initial states, uniformly if there are several.
    files : list of str or Path, optional
        For .tra: its .lab, .srew and .trew files; by default those found beside it.
    format : str, optional
        Instead of judging by the ending: "npz" and "toolbox" (either kind of .npz), "umb", "drn", "tra", "mat".
    renormalize : bool
        Divide rows of probabilities by their sums, whatever these are; otherwise only as far as the rounding of
        numbers in text explains.

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
    description = read(path, files=files, format=format, renormalize=renormalize)
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
    write(describe(cmdp), path, format=format)


def read(
    path: str | Path,
    *,
    files: Sequence[str | Path] | None = None,
    format: Format | None = None,
    renormalize: bool = False,
) -> Description:
    """What a file says, before anyone has chosen what to maximise; arguments and errors as for `load`."""
    path = Path(path)
    kind = format_of(path, format)
    if files is not None and kind != "tra":
        raise ModelError(f"{path}: other files go with a .tra only")
    beside = None if files is None else [Path(file) for file in files]
    with about(path):
        return _read(path, kind, beside, renormalize)


def write(description: Description, path: str | Path, *, format: Format | None = None) -> None:
    """Write a description to a file; arguments and errors as for `save`."""
    path = Path(path)
    kind = format_of(path, format)
    with about(path):
        _write(description, path, kind)


def format_of(path: Path, format: Format | None = None) -> Format:
    """The format of a file by its ending, unless it is given."""
    if format is not None:
        if format not in get_args(Format):
            raise ModelError(f"format {format!r} is unknown; {', '.join(get_args(Format))} are supported")
        return format
    for ending, kind in sorted(ENDINGS.items(), key=lambda pair: -len(pair[0])):
        if path.name.lower().endswith(ending):
            return kind
    raise ModelError(f"{path}: the ending tells no format; {', '.join(ENDINGS)} do, or format=")


# Readers and writers load at their first use: most programs need one of them at most.


def _read(path: Path, kind: Format, files: Sequence[Path] | None, renormalize: bool) -> Description:
    if kind == "drn":
        from fastcmdp.io import drn

        return drn.read(path, renormalize=renormalize)
    if kind == "tra":
        from fastcmdp.io import prism

        return prism.read(path, files=files, renormalize=renormalize)
    if kind in ("umb", "umb.gz", "umb.xz"):
        from fastcmdp.io import umb

        return umb.read(path, renormalize=renormalize)
    from fastcmdp.io import native, toolbox

    if kind == "mat":
        from fastcmdp.io import mat

        return toolbox.read(mat.read(path), renormalize=renormalize)
    arrays = native.arrays_of(path)
    if kind == "npz" and native.KEY in arrays:
        return native.read(arrays, renormalize=renormalize)
    return toolbox.read(arrays, renormalize=renormalize)


def _write(description: Description, path: Path, kind: Format) -> None:
    if kind == "npz":
        from fastcmdp.io import native

        native.write(description, path)
    elif kind == "tra":
        from fastcmdp.io import prism

        prism.write(description, path)
    elif kind == "toolbox":
        from fastcmdp.io import toolbox
        from fastcmdp.npz import write_arrays

        write_arrays(path, toolbox.arrays_for(description, mat=False))
    elif kind == "mat":
        from fastcmdp.io import mat, toolbox

        arrays = toolbox.arrays_for(description, mat=True)
        with replacing(path) as file:
            mat.write(arrays, file)
    elif kind == "drn":
        from fastcmdp.io import drn

        with replacing(path) as file:
            drn.write(description, file)
    else:
        from fastcmdp.io import umb

        packing: umb.Compression = "gz" if kind == "umb.gz" else "xz" if kind == "umb.xz" else ""
        with replacing(path) as file:
            umb.write(description, file, compression=packing)
