"""Files written whole or not at all, and read without trusting what they say of their size."""

from __future__ import annotations

import gzip
import lzma
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from fastcmdp.errors import ModelError

GZIP, XZ = b"\x1f\x8b\x08", b"\xfd7zXZ\x00"
ALWAYS = 1 << 28  # bytes that may always come out of a compressed file
RATIO = 64  # beyond that, so many times the size of the file
BLOCK = 1 << 20
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, MemoryError)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` once it is complete and on disk."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with fresh.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def opened(path: Path) -> BinaryIO:
    """A file opened to be read; a folder or a device is a ModelError, what is missing a FileNotFoundError."""
    if path.exists() and not path.is_file():
        raise ModelError("this is a folder, or no regular file")
    return path.open("rb")


def budget(path: Path) -> int:
    """The most bytes that a compressed file may hold once unpacked."""
    return ALWAYS + RATIO * path.stat().st_size


class Unpacked:
    """A file read from its beginning, unpacked on the way if it is gzip or xz, up to its `budget`.

    Attributes
    ----------
    left : int
        The most bytes that can still come.
    """

    def __init__(self, path: Path) -> None:
        self._file = opened(path)
        head = self._file.read(len(XZ))
        self._file.seek(0)
        self._stream: BinaryIO | gzip.GzipFile | lzma.LZMAFile = self._file
        if head.startswith(GZIP):
            self._stream = gzip.GzipFile(fileobj=self._file)
        elif head == XZ:
            self._stream = lzma.LZMAFile(self._file)  # noqa: SIM115  closed with this
        self.packed = self._stream is not self._file
        self.left = budget(path) if self.packed else path.stat().st_size

    def __enter__(self) -> Unpacked:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._file.close()

    def take(self, size: int, what: str) -> bytes:
        """Exactly so many bytes; a ModelError if the file, or the budget, ends before."""
        self.check(size, what)
        self.left -= size
        try:
            data = self._stream.read(size)
        except _DAMAGE as error:
            raise ModelError(f"{what} cannot be unpacked: {error or type(error).__name__}") from error
        if len(data) != size:
            raise ModelError(f"the file ends within {what}: {len(data)} of {size} bytes are there")
        return data

    def skip(self, size: int, what: str) -> None:
        """Pass over so many bytes."""
        self.check(size, what)
        while size > 0:
            step = min(size, BLOCK)
            self.take(step, what)
            size -= step

    def finish(self) -> None:
        """Pass over what is left of a compressed file, whose checksum stands at its end."""
        try:
            while self.packed and (block := self._stream.read(BLOCK)):
                self.check(len(block), "what follows the archive")
                self.left -= len(block)
        except _DAMAGE as error:
            raise ModelError(f"the end of the file cannot be unpacked: {error}") from error

    def check(self, size: int, what: str) -> None:
        """A ModelError if so many bytes cannot come; before memory is taken for them."""
        if size > self.left:
            reason = (
                "a compressed file of this size is not unpacked so far; if it is sound, unpack it and load that"
                if self.packed
                else "the file is shorter"
            )
            raise ModelError(f"{what} would take {size} bytes, and at most {self.left} can come: {reason}")
