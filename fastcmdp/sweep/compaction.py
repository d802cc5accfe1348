"""Few large parts made of many small ones.

A sweep leaves a part for each batch, and whoever reads the folder opens all of them. So small parts are merged: their
rows are written to a new part, durably, and then they are removed. Killed between the two, a sweep has rows twice, and
every reader of the store counts a task once; the next merge leaves out what a large part has already, and large parts
are never removed. So no row is removed before another file that stays has it, with or without working locks.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fastcmdp.sweep.parquet import entries_of, read_rows, without
from fastcmdp.sweep.rows import SCHEMA
from fastcmdp.sweep.store import Store

SMALL = 1 << 24  # bytes below which a part is merged with others
LARGE = 1 << 25  # bytes of parts that are merged at a time
MANY = 256  # small parts that a sweep puts up with while it runs
_TOGETHER = 32  # parts that become one row group


def compact(folder: str | Path) -> int:
    """Merge the small parts of a sweep's folder into few; how many files there are fewer. Sessions may be under way.

    Raises
    ------
    SettingError
        There is no sweep in it.
    StoreError
        The folder cannot be written; nothing is lost.

    Examples
    --------
    >>> import tempfile
    >>> from fastcmdp.sweep import Models, Sweep, run
    >>> spec = Sweep([Models(generator="garnet")], ["pd-anpg"], samples=[1e5], replicates=2)
    >>> with tempfile.TemporaryDirectory() as path:
    ...     status = run(spec, path, batch_seconds=1e-9)
    ...     fewer = compact(path)
    >>> fewer
    1
    """
    store = Store(folder)
    store.check()
    store.scan()
    before = len(store.parts)
    compact_store(store, 2)
    return before - len(store.parts)


def compact_store(store: Store, least: int) -> None:
    """Merge small parts as long as there are at least so many; all, where a merge that was killed left tasks twice."""
    if sum(map(len, store.parts.values())) > len(store.done):
        least = 2
    while _merge_some(store, max(least, 2)):
        store.claims.beat()


def _merge_some(store: Store, least: int) -> bool:
    """Merge the oldest small parts, up to LARGE; False if there are fewer than ``least``."""
    with store.claims.lock():
        store.scan()
        facts = {name: (store.path / "parts" / name).stat() for name in store.parts}
        small = [name for name, fact in facts.items() if fact.st_size < SMALL and name not in store.foreign]
        if len(small) < least:
            return False
        small.sort(key=lambda name: (facts[name].st_mtime_ns, name))
        chosen, size = [], 0
        for name in small:
            chosen.append(name)
            size += facts[name].st_size
            if size >= LARGE:
                break
        _merge(store, chosen, sorted(facts.keys() - set(small)))
    return True


def _merge(store: Store, names: list[str], staying: list[str]) -> None:
    """One part for those of these names, without the tasks that parts which stay have; then these are removed."""
    contents = {name: data for name in names if (data := store.bytes_of(name)) is not None}
    schemas = [pq.read_schema(pa.BufferReader(data)) for data in contents.values()]
    beside = {
        "fastcmdp": json.dumps({"parts": [entry for schema in schemas for entry in entries_of(schema)]})
    }
    asked: set[bytes] = set().union(*(store.parts[name] for name in contents))
    seen: set[bytes] = set().union(*(store.parts[name] & asked for name in staying))
    fresh = asked - seen
    parts, sink = list(contents), pa.BufferOutputStream()
    with pq.ParquetWriter(sink, SCHEMA.with_metadata(beside), compression="zstd") as writer:
        for together in (parts[i : i + _TOGETHER] for i in range(0, len(parts), _TOGETHER)):
            tables = []
            for name in together:
                table = read_rows(pa.BufferReader(contents[name])).replace_schema_metadata(None)
                tables.append(without(table, store.parts[name] & seen))
                seen |= store.parts[name]
            writer.write_table(pa.concat_tables(tables))
    store.replace_parts(list(contents), bytes(sink.getvalue()), fresh)
