"""MATLAB's `.mat` files of version 5 to 7, as far as arrays of models need them.

Numbers, text, sparse matrices and flat cell arrays of these are read; other variables are passed over. Reading is
our own, since files may be damaged or hostile: what a size claims is compared with what is there, compressed
variables are unpacked up to a budget, and nothing recurs. Writing is SciPy's.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.files import budget, opened

HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_CELL, _CHAR, _SPARSE = 1, 4, 5
_NUMERIC = range(6, 16)
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXTS = {1: "latin-1", 2: "latin-1", 16: "utf-8", 4: "utf-16", 17: "utf-16", 18: "utf-32"}
_LOGICAL, _COMPLEX = 0x200, 0x800


class SparseMatrix(NamedTuple):
    """A sparse matrix: entries in columns one after the other."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[Any]
    shape: tuple[int, int]


def read(path: Path) -> dict[str, Any]:
    """Variables by name: arrays, str, `SparseMatrix`, or lists of these; None for what is passed over."""
    with opened(path) as file:
        data = file.read()
    if data[124:128] not in (b"\x00\x01IM", b"\x01\x00MI"):
        if b"MATLAB 7.3" in data[:HEADER]:
            raise ModelError("a .mat file of version 7.3: save it as version 7, save(..., '-v7')")
        raise ModelError("not a .mat file of version 5 to 7")
    order = "<" if data[126:128] == b"IM" else ">"
    left = budget(path)
    variables: dict[str, Any] = {}
    for kind, content in _elements(data, HEADER, order):
        if kind == _COMPRESSED:
            content = _unpacked(content, left)
            left -= len(content)
            kind, content = next(_elements(content, 0, order), (0, b""))
        if kind != _MATRIX:
            raise ModelError(f"damaged .mat file: an element of type {kind} where a variable is expected")
        name, value = _variable(content, order)
        if name in variables:
            raise ModelError(f"the variable {name!r} stands twice in the file")
        variables[name] = value
    return variables


def write(variables: Mapping[str, Any], file: BinaryIO) -> None:
    """Write arrays, str, `SparseMatrix`, or lists of these as a compressed `.mat` file."""
    from scipy.io import savemat  # slow to import, and needed here only
    from scipy.sparse import csc_matrix

    def prepared(value: Any) -> Any:
        if isinstance(value, SparseMatrix):
            return csc_matrix((value.values, (value.rows, value.columns)), shape=value.shape)
        if isinstance(value, list):
            cells = np.empty((1, len(value)), dtype=object)
            cells[0, :] = [prepared(part) for part in value]
            return cells
        return value

    savemat(file, {name: prepared(value) for name, value in variables.items()}, do_compression=True)


def _elements(data: bytes, at: int, order: str) -> Iterator[tuple[int, bytes]]:
    """Types and contents of elements, one after the other to the end of the data."""
    while at < len(data):
        if at + 8 > len(data):
            raise ModelError("damaged .mat file: it ends within the head of an element")
        kind, size = np.frombuffer(data, order + "u4", 2, at).tolist()
        if kind >> 16:  # up to four bytes stand in the head itself
            kind, size, begin, following = kind & 0xFFFF, kind >> 16, at + 4, at + 8
            if size > 4:
                raise ModelError(f"damaged .mat file: a small element of {size} bytes")
        else:
            begin = at + 8
            following = begin + (size if kind == _COMPRESSED else size + -size % 8)
        if begin + size > len(data):
            raise ModelError(
                f"damaged .mat file: an element of {size} bytes, and {len(data) - begin} are there"
            )
        yield kind, data[begin : begin + size]
        at = following


def _unpacked(content: bytes, most: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(content, most)
        if stream.unconsumed_tail and stream.decompress(stream.unconsumed_tail, 1):
            raise ModelError(
                f"a compressed variable of more than {most} bytes, which is not unpacked from so small a file; if it "
                "is sound, save it sparse or uncompressed (version 6)"
            )
    except (zlib.error, MemoryError) as error:
        raise ModelError(f"damaged .mat file: {error}") from error
    if not stream.eof:
        raise ModelError("damaged .mat file: a compressed variable ends early")
    return data


def _variable(content: bytes, order: str, nested: bool = False) -> tuple[str, Any]:
    """Name and value of a matrix element."""
    parts = _elements(content, 0, order)
    flags_kind, flags = next(parts, (0, b""))
    shape = tuple(_numbers(*next(parts, (0, b"")), order).tolist())
    _, name = next(parts, (0, b""))
    if flags_kind != 6 or len(flags) != 8 or len(shape) < 2 or min(shape) < 0:
        raise ModelError("damaged .mat file: the head of a variable cannot be read")
    mark = int(np.frombuffer(flags, order + "u4", 1)[0])
    kind = mark & 0xFF
    value: Any = None
    if mark & _COMPLEX:
        value = None
    elif kind == _CELL and not nested:
        cells = [_variable(part, order, True)[1] if part else None for _, part in parts]
        value = cells if len(cells) == np.prod(shape, dtype=object) else None
    elif kind == _CHAR:
        value = _text(*next(parts, (0, b"")), order)
    elif kind == _SPARSE:
        value = _sparse([_numbers(*part, order) for part in parts], shape)
    elif kind in _NUMERIC:
        flat = _numbers(*next(parts, (0, b"")), order)
        if flat.size != np.prod(shape, dtype=object):
            raise ModelError(f"damaged .mat file: {flat.size} numbers for a variable of shape {shape}")
        try:
            value = flat.reshape(shape, order="F")
        except ValueError as error:  # no numbers in a shape of too many or too large axes
            raise ModelError(f"damaged .mat file: {error}") from None
        value = value != 0 if mark & _LOGICAL else value.astype("f4") if kind == 7 else value
    return name.decode("latin-1"), value


def _numbers(kind: int, content: bytes, order: str) -> NDArray[Any]:
    if kind not in _TYPES or len(content) % int(_TYPES[kind][1]):
        raise ModelError(f"damaged .mat file: {len(content)} bytes of type {kind} where numbers are expected")
    return np.frombuffer(content, order + _TYPES[kind]).astype(_TYPES[kind])


def _text(kind: int, content: bytes, order: str) -> str:
    coding = _TEXTS.get(kind, "")
    if coding.startswith("utf-") and coding != "utf-8":
        coding += "-le" if order == "<" else "-be"
    try:
        return content.decode(coding or "latin-1")
    except UnicodeDecodeError as error:
        raise ModelError(f"damaged .mat file: {error}") from None


def _sparse(parts: list[NDArray[Any]], shape: tuple[int, ...]) -> SparseMatrix:
    if len(parts) != 3 or len(shape) != 2:
        raise ModelError("damaged .mat file: a sparse matrix that cannot be read")
    rows, bounds, values = parts[0].astype(np.int64), parts[1].astype(np.int64), parts[2]
    # Room may be left behind the last entry.
    if len(bounds) != shape[1] + 1 or bounds[0] != 0 or (np.diff(bounds) < 0).any() or bounds[-1] > len(rows):
        raise ModelError("damaged .mat file: the columns of a sparse matrix do not fit its entries")
    rows, values = rows[: bounds[-1]], values[: bounds[-1]]
    if len(rows) != len(values) or (rows.size and not 0 <= rows.min() <= rows.max() < shape[0]):
        raise ModelError("damaged .mat file: the rows of a sparse matrix do not fit its entries")
    columns = np.repeat(np.arange(shape[1]), np.diff(bounds))
    return SparseMatrix(rows, columns, values, (shape[0], shape[1]))
