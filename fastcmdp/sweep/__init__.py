"""Sweeps: thousands of runs over models, algorithms, targets and seeds, interrupted at will, ending in numbers.

`run` makes what is missing, `status` tells how it stands, `report` turns it into tables and plots; docs/sweeps.md.
"""

from __future__ import annotations

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    from fastcmdp.errors import SettingError

    raise SettingError(f"sweeps need pyarrow ({error}): pip install 'fastcmdp[sweep]'") from error

from fastcmdp.sweep.analysis import Analysis, analyse
from fastcmdp.sweep.compaction import compact
from fastcmdp.sweep.coordinator import run
from fastcmdp.sweep.cost import Estimate, estimate
from fastcmdp.sweep.durable import StoreError
from fastcmdp.sweep.engines import ENGINES, engine
from fastcmdp.sweep.models import Models
from fastcmdp.sweep.progress import Status, SweepProgress, status
from fastcmdp.sweep.reading import loads, read
from fastcmdp.sweep.report import Report, report
from fastcmdp.sweep.specification import Algorithms, Sweep
from fastcmdp.sweep.store import Failure, Store
from fastcmdp.sweep.tasks import Plan, plan
from fastcmdp.sweep.worker import Refused

Progress = SweepProgress  # its earlier name

__all__ = [
    "ENGINES",
    "Algorithms",
    "Analysis",
    "Estimate",
    "Failure",
    "Models",
    "Plan",
    "Progress",
    "Refused",
    "Report",
    "Status",
    "Store",
    "StoreError",
    "Sweep",
    "SweepProgress",
    "analyse",
    "compact",
    "engine",
    "estimate",
    "loads",
    "plan",
    "read",
    "report",
    "run",
    "status",
]
