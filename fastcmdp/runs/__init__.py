"""Runs: the loop that moves them on, their record, what can be said of them, their files."""

from fastcmdp.runs.frames import curves
from fastcmdp.runs.outputs import Averages, interval
from fastcmdp.runs.record import LAST_QUARTER, Record, even_points, excess, least_slack, new_record
from fastcmdp.runs.result import Result
from fastcmdp.runs.saved import read_run, restore

__all__ = [
    "LAST_QUARTER",
    "Averages",
    "Record",
    "Result",
    "curves",
    "even_points",
    "excess",
    "interval",
    "least_slack",
    "new_record",
    "read_run",
    "restore",
]
