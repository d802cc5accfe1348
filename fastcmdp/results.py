"""The names of `fastcmdp.runs` under their first home."""

from fastcmdp.runs import Averages, Result, interval, read_run

__all__ = ["Averages", "Result", "interval", "read_run"]
