"""Files of runs: the state, the record and the settings, so that a run goes on bit by bit as if never stopped.

The model and the features are not in them, only their fingerprints.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.npz import read_arrays, write_arrays
from fastcmdp.text import plain

if TYPE_CHECKING:
    from fastcmdp.runs.result import Result

FORMAT = 4
_ARRAYS = ("outer", "samples", "values", "duals", "kept", "member", "sums", "occupancies", "quarters")


def write_run(result: Result, path: str | Path) -> None:
    """Write a run to a .npz file, through a temporary name, so that no file is ever torn."""
    head = {
        "format": FORMAT,
        "algorithm": result.algorithm.name,
        "version": result.algorithm.version,
        "settings": asdict(result.algorithm),
        "seed": result.seed,
        "policy": result.policy_class.fingerprint(),
        "model": result.cmdp.fingerprint(),
        "seconds": result.trace.seconds,
        "evaluating": result.trace.evaluating,
        "done": result.trace.done,
        "exact": result.trace.exact,
        "draws": result.run.world.draws,
    }
    arrays = {f"state_{k}": v for k, v in result.run.state._asdict().items()}
    arrays |= {f"trace_{k}": getattr(result.trace, k) for k in _ARRAYS}
    header = np.frombuffer(json.dumps(plain(head)).encode(), np.uint8)
    write_arrays(path, {"header": header} | arrays)


def read_run(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a saved run.

    Raises
    ------
    ModelError
        Not a file of ``Result.save``, of an earlier format, or damaged.
    """
    arrays = read_arrays(path)
    try:
        head = json.loads(arrays.pop("header").tobytes())
        if head["format"] in range(1, FORMAT):
            raise ModelError(
                f"{path}: a saved run of format {head['format']}, whose record lacks what this version reads (format "
                f"{FORMAT}): make the run again from its settings, {head.get('settings')}, and seed {head.get('seed')}"
            )
        if head["format"] != FORMAT:
            raise ValueError(f"format {head['format']}, and {FORMAT} is expected")
        outer = arrays["trace_outer"]
        if outer.dtype != np.int64 or outer.ndim != 1 or len(outer) < 2 or outer[0] != 0:
            raise ValueError("its recorded steps are not those of a run")
        if (outer[1:] <= outer[:-1]).any():
            raise ValueError("its recorded steps do not rise")
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path}: not a saved run, or damaged ({error})") from error
    return head, arrays


def restore(result: Result, path: str | Path, head: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Put the saved arrays into a fresh result of the same settings, points, model and policy class.

    Raises
    ------
    ModelError
        The file belongs to another model, policy class or version of the method, or arrays are missing or of another
        shape.
    """
    checks: tuple[tuple[str, Callable[[], str]], ...] = (
        ("model", result.cmdp.fingerprint),
        ("policy", result.policy_class.fingerprint),
    )
    for what, fingerprint in checks:
        if head.get(what) != fingerprint():
            raise ModelError(
                f"{path}: the run belongs to another {what}; give the {what} it was started with"
            )
    if head.get("version") != result.algorithm.version:
        raise ModelError(
            f"{path}: the run is of version {head.get('version')!r} of {result.algorithm.name}, which is now at "
            f"{result.algorithm.version} and would go on otherwise than it began: make the run again"
        )
    trace = result.trace
    try:
        trace.seconds, trace.evaluating = float(head["seconds"]), float(head["evaluating"])
        trace.done = min(max(int(head["done"]), 0), len(trace.outer))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{path}: the header of the saved run is damaged ({error})") from error
    trace.quarters = np.zeros((trace.n_quarters, *trace.quarters.shape[1:]))
    targets = {f"state_{k}": v for k, v in result.run.state._asdict().items()}
    targets |= {f"trace_{k}": getattr(trace, k) for k in _ARRAYS}
    for name, target in targets.items():
        if target.size == 0:  # what these settings keep nothing in may be younger than the file
            arrays.setdefault(name, target)
        array = arrays.get(name)
        if array is None or array.shape != target.shape or array.dtype != target.dtype:
            what = "missing" if array is None else f"{array.dtype}{array.shape}"
            raise ModelError(f"{path}: array {name} is {what}, {target.dtype}{target.shape} is expected")
    outer, n_outer, done = arrays["state_outer"], result.algorithm.outer, trace.done
    whole = (
        arrays["trace_outer"][-1] == n_outer
        and int(head["done"]) == done
        and ((outer >= result.run.state.outer) & (outer <= n_outer)).all()
        and np.isfinite(arrays["state_theta"]).all()
        and (np.diff(arrays["trace_kept"][:, :done], axis=1, prepend=0) >= 0).all()
        and (arrays["trace_kept"][:, :done] <= trace.outer[:done]).all()
    )
    if not whole:
        raise ModelError(f"{path}: the saved run is damaged: its steps or parameters are out of range")
    for name, target in targets.items():
        target[...] = arrays[name]
    result.run.refresh()
