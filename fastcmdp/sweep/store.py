"""The folder of a sweep: files that are written once, whole, by whoever has them, and never changed.

    DIR/spec.toml        the specification; spec-1.toml, ... those before an extension
    DIR/manifest.json    versions, machine, hashes of model files
    DIR/plan.parquet     all configurations with their settings
    DIR/parts/*.parquet  one a finished batch, or many merged: a row for each run and trace point
    DIR/failures/*.json  tasks that raised an error: inputs and traceback
    DIR/aside/           parts that were damaged

A part is written to a temporary name, flushed to disk, and renamed to the hash of its bytes: so a file with a name
that fits is whole. Rows hold what a run computed and nothing else; who computed it and how long it took stands in the
metadata of the part. So the rows of two sweeps of the same specification are the same, bit for bit, however often
they were interrupted; `digest` is a hash of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fastcmdp.errors import ModelError, SettingError
from fastcmdp.sweep.claims import Claims
from fastcmdp.sweep.durable import StoreError, json_bytes, read_json, remedy, write_durably
from fastcmdp.sweep.models import NamedModel
from fastcmdp.sweep.parquet import WORDS, entries_of, hash_column, parquet_bytes, ranks_of, read_rows, without
from fastcmdp.sweep.reading import loads
from fastcmdp.sweep.rows import SCHEMA
from fastcmdp.sweep.specification import Sweep
from fastcmdp.sweep.tasks import Configuration, Omitted, Plan
from fastcmdp.text import plain, unknown

FORMAT = 1

_F, _I = pa.float64(), pa.int64()
PLAN = pa.schema(
    [
        ("key", pa.string()), ("model", pa.string()), ("fingerprint", pa.string()), ("gamma", _F),
        ("algorithm", pa.string()), ("version", _I), ("label", pa.string()), ("settings", pa.string()),
        ("epsilon", _F), ("budget", _F), ("capped", pa.bool_()), ("points", _I), ("samples", _F), ("replicates", _I),
        ("states", _I), ("choices", _I), ("policy", pa.string()), ("policy_fingerprint", pa.string()),
    ]
)  # fmt: skip


@dataclass
class Failure:
    """A task that raised an error.

    Attributes
    ----------
    task : str
    inputs : dict
        Model, algorithm, settings, target, replicate and seed.
    traceback : str
    host, when : str
    """

    task: str
    inputs: dict[str, Any]
    traceback: str
    host: str
    when: str


class Store:
    """The folder of one sweep, as one process sees it.

    Attributes
    ----------
    path : Path
    claims : Claims
        Who has what under way, this process's session among them.
    parts : dict from file names to sets of task names
        What has been seen in parts so far; `scan` looks again.
    done : set of bytes
        Names of all tasks in these.
    foreign : set of str
        Parts whose columns are those of another version: read as ever, never merged.
    set_aside : list of str
        Damaged parts that `scan` found.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.claims = Claims(self.path)
        self.parts: dict[str, set[bytes]] = {}
        self.done: set[bytes] = set()
        self.foreign: set[str] = set()
        self.set_aside: list[str] = []
        self._plan: tuple[int, Plan] | None = None

    # the folder

    @property
    def exists(self) -> bool:
        """Whether a sweep has been begun there."""
        return (self.path / "manifest.json").exists()

    def create(self, sweep: Sweep, plan: Plan, manifest: Mapping[str, Any]) -> bool:
        """Make the folder of a new sweep; the manifest comes last, so that a folder with one is complete.

        False if another session has made it since `exists` was asked: nothing is written then.
        """
        try:
            strange = self.path.exists() and (not self.path.is_dir() or any(self._strangers()))
            if strange and not self.exists:
                raise SettingError(
                    f"{self.path}: not the folder of a sweep, and not empty; choose another folder"
                )
            for name in ("parts", "failures", "sessions", "claims", "aside"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{self.path}: no folder can be made or written there ({error.strerror or error}). {remedy(error)}"
            ) from error
        with self.claims.lock():
            if self.exists:
                return False
            self.write_plan(sweep, plan)
            write_durably(self.path / "manifest.json", json_bytes(dict(manifest) | {"format": FORMAT}))
        return True

    def _strangers(self) -> Iterator[Path]:
        """Files that no interrupted `create` has left."""
        known = {"parts", "failures", "sessions", "claims", "aside", "spec.toml", "plan.parquet", ".lock"}
        return (
            path for path in self.path.iterdir() if path.name not in known and not path.name.endswith(".tmp")
        )

    def check(self) -> None:
        """Refuse a folder that holds no sweep, or one of another format."""
        if not self.exists:
            raise SettingError(
                f"{self.path}: no sweep here (no manifest.json); `fastcmdp sweep run` begins one"
            )
        version = self.manifest().get("format")
        if version != FORMAT:
            raise SettingError(f"{self.path}: the sweep has format {version!r}, this fastcmdp reads {FORMAT}")

    def rewrite_manifest(self, fresh: Mapping[str, Any], old: Mapping[str, Any]) -> None:
        """The manifest of an extended sweep, or of one that goes on with another version; the old one is kept in it."""
        earlier = [
            *old.get("earlier", ()),
            {key: old[key] for key in old if key not in ("earlier", "format")},
        ]
        files = dict(old.get("files", {})) | dict(fresh.get("files", {}))
        body = dict(fresh) | {
            "created": old.get("created"),
            "files": files,
            "earlier": earlier,
            "format": FORMAT,
        }
        write_durably(self.path / "manifest.json", json_bytes(body))

    def manifest(self) -> dict[str, Any]:
        """Versions, machine, hashes of model files."""
        return read_json(self.path / "manifest.json")

    def spec(self) -> Sweep:
        """The specification."""
        path = self.path / "spec.toml"
        if not path.exists():
            self.check()
            raise ModelError(f"{path} is missing: restore it, or begin another sweep in another folder")
        return loads(path.read_text(encoding="utf-8"), Path(self.manifest().get("folder", ".")), str(path))

    # the plan

    def write_plan(self, sweep: Sweep, plan: Plan) -> None:
        """Keep the specification and the plan, which others then read rather than make."""
        spec = self.path / "spec.toml"
        text = f"# As `fastcmdp sweep run` understood it.\n{sweep.to_toml()}"
        if spec.exists() and spec.read_text(encoding="utf-8") != text:
            taken = len(list(self.path.glob("spec-*.toml")))
            write_durably(self.path / f"spec-{taken + 1}.toml", spec.read_bytes())
        columns: dict[str, list[Any]] = {name: [] for name in PLAN.names}
        for configuration in plan.configurations:
            row = {name: getattr(configuration, name) for name in Configuration.__dataclass_fields__}
            row["model"] = json.dumps(asdict(configuration.model))
            row["settings"] = json.dumps(configuration.settings)
            row["states"], row["choices"] = row.pop("size")
            for name, value in row.items():
                columns[name].append(value)
        head = {"root": plan.root, "omitted": [asdict(o) for o in plan.omitted], "spec": sweep.to_toml()}
        table = pa.table(columns, schema=PLAN).replace_schema_metadata({"fastcmdp": json.dumps(head)})
        write_durably(self.path / "plan.parquet", parquet_bytes(table))
        write_durably(spec, text.encode())

    def plan(self) -> Plan:
        """The plan as it was kept."""
        if not (self.path / "plan.parquet").exists():
            self.check()
            raise ModelError(
                f"{self.path / 'plan.parquet'} is missing; the same `sweep run` again makes it anew"
            )
        stamp = (self.path / "plan.parquet").stat().st_mtime_ns
        if self._plan is None or self._plan[0] != stamp:
            self._plan = (stamp, self._read_plan())
        return self._plan[1]

    def _read_plan(self) -> Plan:
        try:
            table = read_rows(self.path / "plan.parquet")
            head = json.loads(table.schema.metadata[b"fastcmdp"])
            models: dict[str, NamedModel] = {}
            configurations = []
            for row in table.to_pylist():
                text = row["model"]
                if text not in models:
                    models[text] = NamedModel(**json.loads(text))
                row["model"], row["settings"] = models[text], json.loads(row["settings"])
                row["size"] = (row.pop("states"), row.pop("choices"))
                configurations.append(Configuration(**row))
            omitted = [Omitted(**entry) for entry in head["omitted"]]
            return Plan(configurations, omitted, root=int(head["root"]))
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"{self.path / 'plan.parquet'} is damaged ({error}); remove it and give the same `sweep run` again"
            ) from error

    # parts

    def scan(self) -> set[bytes]:
        """Names of all tasks in parts that are new since the last scan; damaged parts are set aside."""
        fresh: set[bytes] = set()
        with os.scandir(self.path / "parts") as entries:
            names = sorted(e.name for e in entries if e.name.endswith(".parquet") and not e.is_dir())
        gone = self.parts.keys() - set(names)
        for name in gone:
            del self.parts[name]
        for name in names:
            if name.startswith(".") or name in self.parts:
                continue
            tasks = self._tasks_of(name)
            if tasks is not None:
                self.parts[name] = tasks
                fresh |= tasks
        if gone:
            self.done = set().union(*self.parts.values())
        self.done |= fresh
        return fresh

    def bytes_of(self, name: str) -> bytes | None:
        """A part as it was written; None, and set aside, if it is damaged, or if another session has removed it."""
        path = self.path / "parts" / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(
                f"{path}: cannot be read ({error.strerror or error}). {remedy(error)}"
            ) from error
        if hashlib.sha256(data).hexdigest()[:32] == path.stem:
            return data
        self._set_aside(path)
        return None

    def _tasks_of(self, name: str) -> set[bytes] | None:
        data = self.bytes_of(name)
        try:
            if data is None:
                return None
            column = read_rows(pa.BufferReader(data), ["task"], ["task"])["task"]
            if not pq.read_schema(pa.BufferReader(data)).equals(SCHEMA):
                self.foreign.add(name)
            return {task.encode() for chunk in column.chunks for task in chunk.dictionary.to_pylist()}
        except (pa.ArrowException, ValueError, KeyError, OSError):
            self._set_aside(self.path / "parts" / name)
            return None

    def _set_aside(self, path: Path) -> None:
        target = self.path / "aside" / f"{path.stem}-{secrets.token_hex(2)}.damaged"
        with contextlib.suppress(FileNotFoundError):
            os.replace(path, target)
            self.set_aside.append(target.name)

    def write_part(self, table: pa.Table, meta: Mapping[str, Any]) -> set[bytes]:
        """Write a batch without the tasks that another session has written meanwhile; the names of those written."""
        with self.claims.lock():
            self.scan()
            names = {name.encode() for name in pc.unique(table["task"]).to_pylist()}
            fresh = names - self.done
            table = without(table, names & self.done)
            if fresh:
                described = {"fastcmdp": json.dumps(plain(dict(meta)))}
                self._put(parquet_bytes(table.replace_schema_metadata(described)), fresh)
        return fresh

    def _put(self, data: bytes, tasks: set[bytes]) -> str:
        name = f"{hashlib.sha256(data).hexdigest()[:32]}.parquet"
        write_durably(self.path / "parts" / name, data)
        self.parts[name] = tasks
        self.done |= tasks
        return name

    def replace_parts(self, names: Sequence[str], data: bytes, tasks: set[bytes]) -> None:
        """Write one part in the place of others: what only they had, it has; nothing is written if that is nothing."""
        own = self._put(data, tasks) if tasks else None
        for name in names:
            if name != own:
                (self.path / "parts" / name).unlink(missing_ok=True)
                self.parts.pop(name, None)

    def metadata(self) -> list[dict[str, Any]]:
        """What stands beside the rows of each batch: session, host, seconds."""
        batches = []
        for name in sorted(self.parts):
            with contextlib.suppress(FileNotFoundError, pa.ArrowException, KeyError, ValueError):
                batches += entries_of(pq.read_schema(self.path / "parts" / name))
        return batches

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, each task once, ordered by task and point; words as dictionaries.

        Examples
        --------
        >>> import tempfile
        >>> from fastcmdp import sweep
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spec = sweep.Sweep([sweep.Models(model="env:river_swim")], ["pd-anpg"], samples=[1e5], replicates=2)
        ...     done = sweep.run(spec, f"{folder}/out")
        ...     sweep.Store(f"{folder}/out").read(["replicate", "samples"]).num_rows
        38
        """
        self.check()
        for name in columns or ():
            if name not in SCHEMA.names:
                raise SettingError(unknown("column", name, SCHEMA.names))
        tables = list(self.pieces(columns if columns is None else [*columns, "task", "point"]))
        if not tables:
            empty = SCHEMA.empty_table()
            return empty if columns is None else empty.select(list(columns))
        whole = pa.concat_tables(tables).unify_dictionaries()
        names = whole["task"].combine_chunks() if whole.num_rows else whole["task"]
        order = np.lexsort((whole["point"].to_numpy(), ranks_of(names)))
        whole = whole.take(pa.array(order))
        return whole if columns is None else whole.select(list(columns))

    def pieces(
        self, columns: Sequence[str] | None = None, only: set[bytes] | None = None
    ) -> Iterator[pa.Table]:
        """The rows of one part after the other, each task once; words as dictionaries, a task's rows together.

        ``only``: these tasks; default: all that are stored, those that a changed plan has dropped among them.
        """
        self.scan()
        wanted = None if columns is None else list(dict.fromkeys([*columns, "task"]))
        words = [name for name in WORDS if wanted is None or name in wanted]
        seen: set[bytes] = set()
        left, looked = dict(self.parts), set()
        while left:
            for name in sorted(left):
                looked.add(name)
                try:
                    table = read_rows(self.path / "parts" / name, wanted, words)
                except (
                    FileNotFoundError
                ):  # merged with others just now, into a part that the next scan tells of
                    continue
                tasks = left[name]
                # Written by two sessions at the same moment, without locks; or merged, and not yet removed.
                table = without(table, tasks & seen | (set() if only is None else tasks - only))
                seen |= tasks
                if table.num_rows:
                    yield table.replace_schema_metadata(None)
            lost = set().union(*left.values()) - seen
            left = {}
            if lost:
                self.scan()
                left = {name: tasks for name, tasks in self.parts.items() if name not in looked}

    def digest(self) -> str:
        """A hash of all rows, to the last bit, whatever parts they are in."""
        digest = hashlib.sha256()
        for column in self.read().columns:
            hash_column(digest, column.combine_chunks())
        return digest.hexdigest()[:32]

    # failures

    def write_failures(self, failures: Sequence[Failure]) -> None:
        """Keep tasks that raised errors."""
        path = self.path / "failures" / f"{self.claims.session}-{secrets.token_hex(4)}.json"
        write_durably(path, json_bytes([asdict(failure) for failure in failures]))

    def failures(self) -> dict[bytes, Failure]:
        """The last failure of each task that has no result."""
        done, failures = self.done, {}
        for path in sorted((self.path / "failures").glob("*.json")):
            with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
                for entry in json.loads(path.read_bytes()):
                    failure = Failure(**entry)
                    failure.task = str(failure.task)
                    if failure.task.encode() not in done:
                        failures[failure.task.encode()] = failure
        return failures

    def forget_failures(self) -> None:
        """Remove files of failures all of whose tasks are done, or failed again later."""
        last: dict[str, str] = {}
        entries: dict[Path, list[str]] = {}
        for path in sorted((self.path / "failures").glob("*.json")):
            with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError):
                entries[path] = [str(entry["task"]) for entry in json.loads(path.read_bytes())]
                last |= dict.fromkeys(entries[path], path.name)
        done = self.done
        for path, names in entries.items():
            if all(name.encode() in done or last[name] != path.name for name in names):
                path.unlink(missing_ok=True)
