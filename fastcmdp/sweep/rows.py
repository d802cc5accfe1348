"""The rows of the store: a row for each run and trace point; docs/sweeps.md says what the columns hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastcmdp.sweep.tasks import Configuration, Plan
from fastcmdp.sweep.worker import Values

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


def rows(made: Configuration, of: Plan, tasks: NDArray[np.int64], values: Values) -> pa.Table:
    """The rows of one configuration's tasks, a run's points together."""
    n_runs, n = values.samples.shape
    m = values.limits.size
    size = n_runs * n
    sign, limits = values.sign, values.limits

    def slack(of: NDArray[np.float64]) -> NDArray[np.float64]:
        return sign * (limits - of[:, :, 1:])

    def text(value: str) -> Any:
        return pa.DictionaryArray.from_arrays(np.zeros(size, np.int32), pa.array([value])).cast(pa.string())

    def constant(value: Any, kind: Any) -> Any:
        return pa.nulls(size, kind) if value is None else pa.array(np.full(size, value), kind)

    def lists(array: NDArray[np.float64]) -> Any:
        offsets = np.arange(size + 1, dtype=np.int32) * m
        return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(array).reshape(-1)))

    def floats(array: NDArray[np.float64]) -> Any:
        return pa.array(np.ascontiguousarray(array).reshape(-1))

    gap = values.best - values.mixture[:, :, 0]
    kernel_gap = gap / values.reward_scale
    kernel_slack = slack(values.mixture) / values.constraint_scale
    missed = -kernel_slack.min(axis=2, initial=0.0)
    lost = np.isnan(values.mixture).any(axis=2)
    violation = np.where(lost, np.nan, -slack(values.mixture).min(axis=2, initial=0.0))
    last_lost = np.isnan(values.last).any(axis=2)
    last_violation = np.where(last_lost, np.nan, -slack(values.last).min(axis=2, initial=0.0))
    columns = {
        "task": np.repeat(of.name[tasks].astype("U32"), n),
        "configuration": text(made.key),
        "algorithm": text(made.label),
        "model": text(made.model.label),
        "gamma": constant(made.gamma, pa.float64()),
        "epsilon": constant(made.epsilon, pa.float64()),
        "budget": constant(made.budget, pa.float64()),
        "capped": constant(made.capped, pa.bool_()),
        "replicate": np.repeat(of.replicate[tasks], n),
        "seed": np.repeat(of.seed[tasks], n),
        "point": np.tile(np.arange(n, dtype=np.int32), n_runs),
        "outer": np.tile(values.outer, n_runs),
        "samples": values.samples.reshape(-1),
        "reward": floats(values.mixture[:, :, 0]),
        "gap": floats(gap),
        "violation": floats(violation),
        "error": floats(np.where(lost, np.nan, np.maximum(kernel_gap, missed))),
        "kernel_gap": floats(kernel_gap),
        "kernel_slack": lists(kernel_slack),
        "constraints": lists(values.mixture[:, :, 1:]),
        "duals": lists(values.duals),
        "last_reward": floats(values.last[:, :, 0]),
        "last_gap": floats(values.best - values.last[:, :, 0]),
        "last_violation": floats(last_violation),
        "last_constraints": lists(values.last[:, :, 1:]),
        "diverged": np.repeat(values.diverged, n),
        "source": text("exact" if values.exact else "estimate"),
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)
