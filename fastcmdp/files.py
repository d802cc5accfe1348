"""Files written whole or not at all, and read without trusting what they say of their size."""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import os
import secrets
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from fastcmdp.errors import MissingFileError, ModelError

GZIP, XZ = b"\x1f\x8b\x08", b"\xfd7zXZ\x00"
ALWAYS = 1 << 28  # bytes that may always come out of a compressed file
RATIO = 64  # beyond that, so many times the size of the file
BLOCK = 1 << 20
Packing = Literal["", "gz", "xz"]
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, MemoryError)


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` once it is complete and on disk; until then all is as before.

    A symbolic link stays and what it points to is replaced, with the mode that it has; a new file has the mode that
    the umask says.

    Raises
    ------
    ModelError
        There is something that is no regular file: a folder, a device, a pipe.
    OSError
        As usual; it names ``path``.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "greeting"
    >>> with replacing(path) as file:
    ...     n = file.write(b"hello")
    >>> path.read_bytes()
    b'hello'
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise MissingFileError(path, f"there is no folder {target.parent}; make it, or write elsewhere")
    fresh = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        mode = _mode(path)
        with fresh.open("xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
        sync_folder(target.parent)
    except BaseException as error:
        fresh.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(fresh), str(target)):
            reason = error.strerror or str(error)
            raise OSError(error.errno or errno.EIO, reason, str(path)) from error
        raise


def write_text(path: str | Path, text: str) -> None:
    """Write a file of UTF-8 text by `replacing`."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def sync_folder(path: Path) -> None:
    """Have a folder's new names on disk, where its file system can do that."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:  # some network file systems cannot
        pass
    finally:
        os.close(handle)


@contextmanager
def about(path: str | Path) -> Iterator[None]:
    """Put the name of a file before ModelErrors about it, once, and say so if memory does not suffice for it."""
    try:
        yield
    except ModelError as error:
        if str(error).startswith(f"{path}: "):
            raise
        raise ModelError(f"{path}: {error}") from error
    except MemoryError as error:
        raise ModelError(f"{path}: there is not enough memory for what is in it") from error


def _mode(path: str | Path) -> int | None:
    """The permissions of a regular file; None if there is none."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    _refuse_irregular(path, mode, "written")
    return stat.S_IMODE(mode)


def _refuse_irregular(path: str | Path, mode: int, done: str) -> None:
    if not stat.S_ISREG(mode):
        kinds = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
        kind = next((name for test, name in kinds.items() if test(mode)), "a device")
        raise ModelError(f"{path}: {kind}; only regular files are {done}")


def opened(path: str | Path) -> BinaryIO:
    """A file opened to be read; a folder or a device is a ModelError, what is missing a FileNotFoundError."""
    path = Path(path)
    if path.exists():
        _refuse_irregular(path, path.stat().st_mode, "read")
    elif not path.absolute().parent.is_dir():
        raise MissingFileError(path, f"there is no folder {path.absolute().parent}; check the path")
    elif not path.is_symlink():
        raise MissingFileError(
            path, f"there is no such file in {path.absolute().parent}; check its name, or give its whole path"
        )
    return path.open("rb")


def budget(path: Path) -> int:
    """The most bytes that a compressed file may hold once unpacked."""
    return ALWAYS + RATIO * path.stat().st_size


class Unpacked(io.RawIOBase):
    """A file opened to be read, unpacked on the way if it is gzip or xz, up to its `budget`; damage is a ModelError.

    Attributes
    ----------
    left : int
        The most bytes that can still come.
    """

    def __init__(self, path: Path) -> None:
        self._file = opened(path)
        head = self._file.read(len(XZ))
        self._file.seek(0)
        self._stream: Any = self._file
        if head.startswith(GZIP):
            self._stream = gzip.GzipFile(fileobj=self._file)
        elif head == XZ:
            self._stream = lzma.LZMAFile(self._file)  # noqa: SIM115  closed with this
        self._packed = self._stream is not self._file
        self._most = self.left = budget(path) if self._packed else path.stat().st_size

    def read(self, size: int = -1) -> bytes:
        """So many bytes, or fewer at the end of the file."""
        try:
            data: bytes = self._stream.read(self.left + 1 if size < 0 else min(size, self.left + 1))
        except _DAMAGE as error:
            raise ModelError(f"the file cannot be unpacked: {error or type(error).__name__}") from error
        self.left -= len(data)
        if self.left < 0:
            raise ModelError(f"more than {self._most} bytes: {self.reason}")
        return data

    @property
    def reason(self) -> str:
        """Why no more bytes can come."""
        if not self._packed:
            return "the file is shorter"
        return (
            "a compressed file of this size is not unpacked so far; if it is sound, unpack it and load that"
        )

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a place counted from the beginning."""
        self._stream.seek(place)
        self.left = self._most - place
        return place

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        self._file.close()
        super().close()


@contextmanager
def packing(path: str | Path, kind: Packing) -> Iterator[BinaryIO]:
    """`replacing`, with what is written packed by gzip ("gz") or xz ("xz"), or as it is ("")."""
    with replacing(path) as file:
        if kind == "gz":
            with gzip.GzipFile("", "wb", compresslevel=2, fileobj=file, mtime=0) as packed:
                yield cast(BinaryIO, packed)
        elif kind == "xz":
            with lzma.LZMAFile(file, "wb", preset=3) as packed:
                yield cast(BinaryIO, packed)
        else:
            yield file
