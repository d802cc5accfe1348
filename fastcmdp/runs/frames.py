"""A run as tables of other libraries: a pandas frame, an xarray dataset, and the curves that both hold.

Both libraries are optional and imported when they are asked for.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.check import optional
from fastcmdp.runs.record import excess
from fastcmdp.text import finite
from fastcmdp.version import __version__

if TYPE_CHECKING:
    from fastcmdp.runs.result import Result

Float = NDArray[np.float64]


def curves(result: Result) -> tuple[Float, Float, Float]:
    """What is drawn of a run: samples float64[n], then J of the policies and of their mixture, float64[R, n, 1+m] each.

    In the user's units, at the trace points that are written. NaN where nothing is known: from the failure of
    a replicate on, at the first point where only estimates between points are at hand, and in the mixture until
    an outer step belongs to the output.
    """
    trace, cmdp = result.trace, result.cmdp
    n, m = trace.done, cmdp.n_constraints
    outer, kept = trace.outer[:n], trace.kept[:, :n]
    if trace.exact:
        iterates, mixture = trace.values[:, :n], trace.means()[0]
        mixture[(kept == 0) & (outer > 0)] = np.nan
    else:
        mixture = cmdp.to_user_values(trace.estimates()[:, :, : 1 + m])
        iterates = cmdp.to_user_values(trace.estimates(0.0)[:, :, : 1 + m])
        ended = (result.failed >= 0)[:, None] & (outer > result.failed[:, None])
        iterates[ended], mixture[ended] = np.nan, np.nan
    going = result.failed < 0
    samples = trace.samples[going if going.any() else slice(None), :n].mean(axis=0)
    return samples, iterates, mixture


def frame(result: Result) -> Any:
    """The run as a pandas frame: see ``Result.to_pandas``."""
    pandas = optional("pandas", "to_pandas()", "frames")
    _, values, mixture = curves(result)
    cmdp, trace = result.cmdp, result.trace
    n_replicates, n = trace.samples.shape[0], trace.done
    best = np.nan if result.optimum is None else result.optimum.reward
    index = pandas.MultiIndex.from_product(
        [range(n_replicates), trace.outer[:n].tolist()], names=["replicate", "outer"]
    )
    columns: dict[str, Any] = {"samples": trace.samples[:, :n].ravel()}
    for i, name in enumerate(cmdp.names):
        columns[name] = values[:, :, i].ravel()
        columns[f"mixture {name}"] = mixture[:, :, i].ravel()
    for i, name in enumerate(cmdp.names[1:]):
        columns[f"multiplier {name}"] = trace.duals[:, :n, i].ravel()
    columns["gap"] = (best - mixture[:, :, 0]).ravel()
    columns["violation"] = excess(cmdp, mixture).max(axis=2, initial=0.0).ravel()
    return pandas.DataFrame(columns, index=index)


def dataset(result: Result) -> Any:
    """The run as an xarray dataset: see ``Result.to_xarray``."""
    xarray = optional("xarray", "to_xarray()", "frames")
    _, values, mixture = curves(result)
    cmdp, trace, best = result.cmdp, result.trace, result.optimum
    n, signals, constraints = trace.done, list(cmdp.names), list(cmdp.names[1:])
    per_signal, per_constraint = ("replicate", "outer", "signal"), ("replicate", "outer", "constraint")
    sums, price = (
        "units of the signal, summed or averaged as the model says",
        "reward a unit of the constraint",
    )
    variables = {
        "value": (per_signal, values, {"long_name": "J of the policy at the step", "units": sums}),
        "mixture": (per_signal, mixture, {"long_name": "J of the output so far", "units": sums}),
        "multiplier": (per_constraint, trace.duals[:, :n], {"units": price}),
        "samples": (("replicate", "outer"), trace.samples[:, :n], {"units": "transitions"}),
        "kept": (("replicate", "outer"), trace.kept[:, :n], {"units": "outer steps in the output"}),
        "failed": (("replicate",), result.failed, {"units": "outer step, or -1"}),
    }
    coordinates = {
        "replicate": np.arange(trace.samples.shape[0]),
        "outer": ("outer", trace.outer[:n], {"units": "outer steps"}),
        "signal": signals,
        "constraint": constraints,
        "limit": ("constraint", np.array(cmdp.limits, np.float64), {"units": sums}),
        "sense": ("constraint", list(cmdp.sense)),
    }
    if best is not None:
        coordinates["optimum"] = ("signal", np.append(best.reward, best.constraints), {"units": sums})
        coordinates["exact_multiplier"] = ("constraint", np.array(best.duals), {"units": price})
    attributes = {
        "algorithm": result.algorithm.name,
        "settings": json.dumps(finite(asdict(result.algorithm))),
        "policy": type(result.policy_class).__name__,
        "seed": str(result.seed),  # of up to 128 bits, more than files of numbers hold
        "gamma": float(cmdp.gamma),
        "model": cmdp.fingerprint(),
        "source": "exact" if trace.exact else "estimate",
        "finished": int(result.finished),
        "fastcmdp": __version__,
    }
    return xarray.Dataset(variables, coords=coordinates, attrs=attributes)
