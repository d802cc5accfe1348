"""Tables in Parquet: bytes of a table, columns of a file, and a hash of values however they are laid out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

WORDS = ["task", "configuration", "algorithm", "model", "source"]  # few values, so kept as dictionaries


def hash_column(digest: Any, column: Any) -> None:
    """Add the values of a column, and which of them are missing, however they are laid out in memory."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    digest.update(f"{len(column)} {column.null_count} ".encode())
    if column.null_count:
        digest.update(np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.uint8).tobytes())
        column = column.drop_null()
    if pa.types.is_list(column.type):
        digest.update(np.asarray(pc.list_value_length(column).to_numpy(), np.int64).tobytes())
        column = column.flatten()
    if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
        digest.update("\n".join(column.cast(pa.string()).to_pylist()).encode())
    else:
        digest.update(np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).tobytes())


def read_rows(source: Any, columns: list[str] | None = None, words: list[str] | None = None) -> pa.Table:
    """A file's columns, ``words`` as dictionaries, read by this thread alone.

    (`pyarrow.parquet.read_table` reads with threads of its own, which may outlive the interpreter: then the process
    ends by SIGABRT now and then, "terminate called without an active exception".)
    """
    with pq.ParquetFile(source, read_dictionary=words, pre_buffer=False) as file:
        return file.read(columns=columns, use_threads=False)


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as a file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def ranks_of(names: Any) -> Any:
    """Numbers in the order of the names of a dictionary column."""
    column = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    words = np.array(column.dictionary.to_pylist(), dtype="U32")
    ranks = np.empty(len(words), np.int64)
    ranks[np.argsort(words)] = np.arange(len(words))
    return ranks[column.indices.to_numpy()]


def without(table: pa.Table, tasks: set[bytes]) -> pa.Table:
    """Rows of a part, those of these tasks left out."""
    if not tasks:
        return table
    names = pa.array([name.decode() for name in tasks], pa.string())
    return table.filter(pc.invert(pc.is_in(table["task"].cast(pa.string()), names)))


def entries_of(schema: pa.Schema) -> list[dict[str, Any]]:
    """What stands beside the rows of a part: an entry for each batch."""
    meta = json.loads(schema.metadata[b"fastcmdp"])
    entries: list[dict[str, Any]] = meta.get("parts", [meta])
    return entries
