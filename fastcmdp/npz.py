"""Arrays in .npz files: written whole or not at all, read without pickle and without trusting a size."""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.files import opened, replacing

_DAMAGE = (  # some of these from headers of old arrays
    ValueError, KeyError, TypeError, EOFError, OSError, RuntimeError, NotImplementedError, SyntaxError,
    OverflowError, UnicodeError, struct.error, zlib.error, zipfile.BadZipFile, tokenize.TokenError, MemoryError,
    Warning,
)  # fmt: skip


def write_arrays(path: str | Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays under their names to ``path``, whole or not at all; errors as `fastcmdp.files.replacing`."""
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_arrays(path: str | Path, most_bytes: int = 1 << 34) -> dict[str, NDArray[Any]]:
    """Read all arrays of a .npz file.

    Raises
    ------
    FileNotFoundError, PermissionError
        As usual.
    ModelError
        Not such a file, damaged, with Python objects in it, or with more than ``most_bytes`` once unpacked.
    """
    with opened(path) as file:
        data = file.read()
    arrays = {}
    left = most_bytes
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                left -= member.file_size
                if left < 0:
                    raise ValueError(f"more than {most_bytes} bytes once unpacked")
                with archive.open(member) as part:
                    content = part.read(member.file_size + 1)
                arrays[member.filename.removesuffix(".npy")] = _array(content)
    except _DAMAGE as error:
        raise ModelError(f"{path}: not a .npz file of arrays, or damaged ({error})") from error
    return arrays


def _array(content: bytes) -> NDArray[Any]:
    file = io.BytesIO(content)
    version = npy.read_magic(file)
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read_header is None:
        raise ValueError(f"array format {version}")
    shape, fortran, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("Python objects")
    rest = len(content) - file.tell()
    if math.prod(shape) * dtype.itemsize != rest:
        raise ValueError(f"an array of shape {shape} in {rest} bytes")
    array = np.frombuffer(content, dtype, offset=file.tell())
    return array.reshape(shape, order="F" if fortran else "C")
