"""Files of a sweep that are written once, whole, and are on disk when the call returns."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from fastcmdp.errors import ModelError
from fastcmdp.files import replacing


class StoreError(OSError):
    """The folder cannot be read or written; the message says what to do."""


def write_durably(path: Path, data: bytes) -> None:
    """A file that is on disk, whole, once this returns, and absent or as before if it does not."""
    try:
        with replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise StoreError(
            f"{path} could not be written ({error.strerror or error}); nothing is torn and what was stored is safe. "
            f"{remedy(error)}, then give the same command again"
        ) from error


def remedy(error: OSError) -> str:
    """What helps against an error of the file system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "Free some space"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Get permission to read and write there, or choose another folder"
    return "Check the path and the disk"


def json_bytes(value: Any) -> bytes:
    """A value as a file of JSON."""
    return (json.dumps(value, indent=1) + "\n").encode()


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of JSON, or a ModelError that names the file."""
    try:
        contents: Any = json.loads(path.read_bytes())
        if isinstance(contents, dict):
            return contents
        error = "no JSON object"
    except ValueError as broken:
        error = str(broken)
    raise ModelError(f"{path}: damaged ({error}); restore it, or begin another sweep in another folder")
