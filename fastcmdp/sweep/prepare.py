"""The plan of a sweep in its folder: made by whoever comes first, checked by all others."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import scipy

from fastcmdp.errors import SettingError
from fastcmdp.sweep.models import NamedModel
from fastcmdp.sweep.progress import SweepProgress
from fastcmdp.sweep.reading import differences, read
from fastcmdp.sweep.specification import Sweep
from fastcmdp.sweep.store import Store
from fastcmdp.sweep.tasks import Plan, file_digest, file_digests, plan
from fastcmdp.sweep.worker import changed, identity
from fastcmdp.version import __version__

_APART = 2.0  # seconds between two words about planning


def prepare(
    sweep: Sweep | str | Path, store: Store, extend: bool, tell: Callable[[SweepProgress], object]
) -> Plan:
    """The plan of a sweep, in its folder: read if it is there, else made."""
    if isinstance(sweep, Sweep):
        wanted = sweep
    elif Path(sweep).is_dir():
        Store(sweep).check()
        wanted = Store(sweep).spec()
    else:
        wanted = read(sweep)
    if not store.exists:
        tasks = plan(wanted, _planning(tell))
        if store.create(wanted, tasks, _manifest(wanted, tasks)):
            return tasks
    store.check()
    manifest = store.manifest()
    _check_files(manifest)
    old = store.spec()
    differing = differences(old, wanted)
    if differing and not extend:
        shown = "\n".join(f"  {line}" for line in differing[:12])
        more = f"\n  and {len(differing) - 12} more" if len(differing) > 12 else ""
        raise SettingError(
            f"{store.path} holds a sweep of another specification:\n{shown}{more}\nChoose another folder, or give "
            "--extend (extend=True) to add the tasks that are new; what is stored stays"
        )
    same_program = manifest.get("identity") == identity()
    if not differing and same_program and (store.path / "plan.parquet").exists():
        return store.plan()
    tasks = plan(wanted, _planning(tell))
    store.write_plan(wanted, tasks)
    store.rewrite_manifest(_manifest(wanted, tasks), manifest)
    return tasks


def _planning(tell: Callable[[SweepProgress], object]) -> Callable[[int, int], object]:
    """What tells every few seconds how far the plan is."""
    last = [time.monotonic()]

    def told(done: int, models: int) -> None:
        if time.monotonic() - last[0] > _APART:
            last[0] = time.monotonic()
            tell(SweepProgress(0, 0, 0, 0, 0.0, 0.0, 0.0, None, f"planning: {done:,} of {models:,} models"))

    return told


def _manifest(sweep: Sweep, tasks: Plan) -> dict[str, Any]:
    return {
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "folder": str(sweep.folder),
        "identity": identity(),
        "files": file_digests(tasks.configurations),
    } | machine()


def machine() -> dict[str, Any]:
    """Versions and facts of this machine."""
    cpu = ""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    versions = {
        "fastcmdp": __version__, "python": platform.python_version(), "numpy": np.__version__,
        "scipy": scipy.__version__, "numba": numba.__version__, "pyarrow": pa.__version__,
    }  # fmt: skip
    return {
        "versions": versions,
        "machine": {
            "host": platform.node(),
            "system": platform.platform(),
            "processor": cpu or platform.processor(),
            "processors": os.cpu_count(),
        },
    }


def _check_files(manifest: dict[str, Any]) -> None:
    for path, was in manifest.get("files", {}).items():
        try:
            now = file_digest(path)
        except OSError as error:
            raise SettingError(
                f"{path}: the sweep's model cannot be read ({error.strerror}); put it back where it was when the "
                "sweep began"
            ) from error
        if now != was:
            raise SettingError(changed(NamedModel(path, path)))
