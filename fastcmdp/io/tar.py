"""Tar archives in memory, read as a stream: nothing is ever extracted to disk.

Regular files with plain relative names are read, folders passed over; links, devices, sparse files and names that
lead out of the archive are refused.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO, Self, cast

from fastcmdp.errors import ModelError
from fastcmdp.files import Unpacked

BLOCK = tarfile.BLOCKSIZE
AT_A_TIME = 1 << 16
_DAMAGE = (tarfile.TarError, ValueError, OverflowError, RecursionError, EOFError)
_REFUSED = {
    tarfile.LNKTYPE: "a hard link", tarfile.SYMTYPE: "a symbolic link", tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device", tarfile.FIFOTYPE: "a pipe", tarfile.GNUTYPE_SPARSE: "a sparse file",
}  # fmt: skip


class _TarHeader(tarfile.TarInfo):
    """A header; GNU archives keep times where others keep the first part of a long name."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        info = super().frombuf(buf, encoding, errors)
        if buf[257:265] == b"ustar  \0" and info.type not in (
            tarfile.GNUTYPE_LONGNAME,
            tarfile.GNUTYPE_LONGLINK,
        ):
            info.name = bytes(buf[:100]).split(b"\0")[0].decode(encoding, errors).rstrip("/")
        return info


def members(source: Unpacked) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
    """Name, size and a function that gives the content of each file; content not asked for is passed over.

    Raises
    ------
    ModelError
        No tar archive, a damaged or truncated one, a kind of member or a name that is refused.
    """
    seen = set()
    try:
        with tarfile.open(
            fileobj=source,
            mode="r|",
            bufsize=AT_A_TIME,
            tarinfo=_TarHeader,
            encoding="utf-8",
            errors="strict",
        ) as archive:
            for info in archive:
                name = _checked(info.name)
                _refuse(info, name, source)
                if info.isdir():
                    continue
                if name in seen:
                    raise ModelError(f"{name} stands twice in the archive")
                seen.add(name)
                yield name, info.size, partial(_content, archive, info)
            _check_end(cast(BinaryIO, archive.fileobj))
    except _DAMAGE as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"not an archive of the tar kind, or a damaged one ({error})") from error


def _refuse(info: tarfile.TarInfo, name: str, source: Unpacked) -> None:
    left = source.left + AT_A_TIME  # of which the archive may hold some already
    if not 0 <= info.size <= left:
        raise ModelError(f"{name} would take {info.size} bytes, and at most {left} can come: {source.reason}")
    if info.issparse() or not (info.isreg() or info.isdir()):
        kind = _REFUSED.get(info.type, "a sparse file" if info.issparse() else "of an unknown kind")
        raise ModelError(f"{name} in the archive is {kind}; only regular files are read")


def _content(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    try:
        return cast(BinaryIO, archive.extractfile(info)).read(info.size)
    except tarfile.TarError as error:
        raise ModelError(f"the file ends within {info.name} ({error})") from error


def _check_end(stream: BinaryIO) -> None:
    """After the last member come blocks of zeros to the end of the file, and no damaged header."""
    size = 0
    while block := stream.read(AT_A_TIME):
        size += len(block)
        if block.strip(b"\0"):
            raise ModelError("damaged archive: something follows its end, or a header is damaged")
    if size < BLOCK:
        raise ModelError("the archive ends without its end mark")


def write_members(file: BinaryIO, contents: Mapping[str, Any]) -> None:
    """Write an archive of such files, bytes or arrays, in their order, with the folders that they lie in."""
    folders = set()
    for name, content in contents.items():
        for cut in (i for i, letter in enumerate(name) if letter == "/"):
            if name[:cut] not in folders:
                folders.add(name[:cut])
                file.write(_header(name[:cut], 0, tarfile.DIRTYPE))
        data = memoryview(content)
        file.write(_header(name, data.nbytes, tarfile.REGTYPE))
        file.write(cast(bytes, data))
        file.write(b"\0" * (-data.nbytes % BLOCK))
    file.write(b"\0" * (2 * BLOCK))


def _header(name: str, size: int, kind: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.mode = size, kind, 0o755 if kind == tarfile.DIRTYPE else 0o644
    # Sizes from 8 GiB on do not fit in eleven octal digits.
    return info.tobuf(tarfile.USTAR_FORMAT if size < 8**11 else tarfile.GNU_FORMAT, "utf-8")


def _checked(name: str) -> str:
    """A plain relative path, without a leading `./`."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\\" in name or ":" in name:
        raise ModelError(f"the archive has a member {name[:100]!r}: names that lead out of it are refused")
    return "/".join(parts)
