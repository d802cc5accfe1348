"""The rows of the store: a row for each run and trace point; docs/sweeps.md says what the columns hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastcmdp.sweep.tasks import Configuration, Plan
from fastcmdp.sweep.worker import Runs
from fastcmdp.units import Units

_F, _I, _L = pa.float64(), pa.int64(), pa.list_(pa.float64())
SCHEMA = pa.schema(
    [
        ("task", pa.string()), ("configuration", pa.string()), ("algorithm", pa.string()), ("model", pa.string()),
        ("gamma", _F), ("epsilon", _F), ("budget", _F), ("capped", pa.bool_()), ("replicate", pa.int32()),
        ("seed", _I), ("point", pa.int32()), ("outer", _I), ("samples", _I),
        ("reward", _F), ("gap", _F), ("violation", _F), ("error", _F), ("kernel_gap", _F), ("kernel_slack", _L),
        ("constraints", _L), ("duals", _L),
        ("last_reward", _F), ("last_gap", _F), ("last_violation", _F), ("last_constraints", _L),
        ("diverged", _I), ("source", pa.string()),
    ]
)  # fmt: skip
"""Columns of the parts; docs/sweeps.md says what they hold."""


def rows(configuration: Configuration, plan: Plan, tasks: NDArray[np.int64], runs: Runs) -> pa.Table:
    """The rows of one configuration's tasks, a run's points together."""
    record, units, mixture = runs.record, runs.record.cmdp, runs.mixture
    n_runs, n = record.samples.shape
    size = n_runs * n

    def text(value: str) -> Any:
        return pa.repeat(value, size)

    def constant(value: Any, kind: Any) -> Any:
        return pa.nulls(size, kind) if value is None else pa.array(np.full(size, value), kind)

    def lists(array: NDArray[np.float64]) -> Any:
        offsets = np.arange(size + 1, dtype=np.int32) * units.n_constraints
        return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(array).reshape(-1)))

    def floats(array: NDArray[np.float64]) -> Any:
        return pa.array(np.ascontiguousarray(array).reshape(-1))

    gap = runs.best - mixture[:, :, 0]
    kernel_gap = gap / units.reward_scale
    kernel_slack = units.slack(mixture) / units.constraint_scale
    missed = -kernel_slack.min(axis=2, initial=0.0)
    lost = np.isnan(mixture).any(axis=2)
    columns = {
        "task": np.repeat(plan.name[tasks].astype("U32"), n),
        "configuration": text(configuration.key),
        "algorithm": text(configuration.label),
        "model": text(configuration.model.label),
        "gamma": constant(configuration.gamma, pa.float64()),
        "epsilon": constant(configuration.epsilon, pa.float64()),
        "budget": constant(configuration.budget, pa.float64()),
        "capped": constant(configuration.capped, pa.bool_()),
        "replicate": np.repeat(plan.replicate[tasks], n),
        "seed": np.repeat(plan.seed[tasks], n),
        "point": np.tile(np.arange(n, dtype=np.int32), n_runs),
        "outer": np.tile(record.outer, n_runs),
        "samples": record.samples.reshape(-1),
        "reward": floats(mixture[:, :, 0]),
        "gap": floats(gap),
        "violation": floats(_violation(units, mixture)),
        "error": floats(np.where(lost, np.nan, np.maximum(kernel_gap, missed))),
        "kernel_gap": floats(kernel_gap),
        "kernel_slack": lists(kernel_slack),
        "constraints": lists(mixture[:, :, 1:]),
        "duals": lists(runs.duals),
        "last_reward": floats(record.reward),
        "last_gap": floats(runs.best - record.reward),
        "last_violation": floats(_violation(units, record.values)),
        "last_constraints": lists(record.constraints),
        "diverged": np.repeat(runs.diverged, n),
        "source": text("exact" if record.exact else "estimate"),
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


def _violation(units: Units, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The worst constraint's violation, float64[R, n], NaN where values are missing."""
    worst: NDArray[np.float64] = 0.0 - units.slack(values).min(axis=2, initial=0.0)  # no -0.0
    return np.where(np.isnan(values).any(axis=2), np.nan, worst)
