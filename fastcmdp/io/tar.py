"""Tar archives in memory: just what UMB needs, nothing is ever extracted to disk.

Regular files with plain relative names are read, folders and comments passed over; links, devices, sparse files
and names that lead out of the archive are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Protocol

from fastcmdp.errors import ModelError
from fastcmdp.files import Unpacked

BLOCK = 512
LONG_NAME = 1 << 16
_REFUSED = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe",
    b"S": "a sparse file", b"M": "a part of a file", b"V": "a volume label",
}  # fmt: skip


class _Bytes(Protocol):
    @property
    def nbytes(self) -> int: ...
    def tobytes(self) -> bytes: ...


def members(source: Unpacked) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
    """Name, size and a function that gives the content of each file; content not asked for is passed over.

    Raises
    ------
    ModelError
        No tar archive, a damaged or truncated one, a kind of member or a name that is refused.
    """
    name_override = ""
    seen = set()
    while True:
        if source.left < BLOCK:
            raise ModelError("the archive ends without its end mark")
        header = source.take(BLOCK, "the next header of the archive")
        if not header.strip(b"\0"):
            source.finish()
            return
        name, size, kind = _header(header)
        padding = -size % BLOCK
        if kind in (b"x", b"g", b"L"):  # extended headers, a long name
            source.check(size + padding, "a header of the archive")
            if size > LONG_NAME:
                raise ModelError(
                    f"a header of the archive has {size} bytes; at most {LONG_NAME} are accepted"
                )
            content = source.take(size, "a header of the archive")
            source.skip(padding, "a header of the archive")
            if kind == b"L":
                name_override = _text(content.rstrip(b"\0"))
            elif kind == b"x":
                name_override = _extended_name(content) or name_override
            continue
        name, name_override = _checked(name_override or name), ""
        if kind in _REFUSED:
            raise ModelError(f"{name} in the archive is {_REFUSED[kind]}; only regular files are read")
        if kind == b"5":
            source.skip(size + padding, name)
            continue
        if kind not in (b"0", b"\0", b"7"):
            raise ModelError(f"{name} in the archive is of the unknown kind {kind!r}")
        if name in seen:
            raise ModelError(f"{name} stands twice in the archive")
        seen.add(name)
        source.check(size + padding, name)
        taken: list[bytes] = []

        def content_of(name: str = name, size: int = size, taken: list[bytes] = taken) -> bytes:
            taken.append(source.take(size, name))
            return taken[0]

        yield name, size, content_of
        source.skip(padding if taken else size + padding, name)


def write_members(file: BinaryIO, contents: Mapping[str, bytes | _Bytes]) -> None:
    """Write an archive of such files, in their order, with the folders that they lie in."""
    folders = set()
    for name, content in contents.items():
        for cut in (i for i, letter in enumerate(name) if letter == "/"):
            if name[:cut] not in folders:
                folders.add(name[:cut])
                file.write(_new_header(name[:cut], 0, b"5"))
        size = len(content) if isinstance(content, bytes) else content.nbytes
        file.write(_new_header(name, size, b"0"))
        file.write(content if isinstance(content, bytes) else memoryview(content))  # type: ignore[arg-type]
        file.write(b"\0" * (-size % BLOCK))
    file.write(b"\0" * (2 * BLOCK))


def _header(header: bytes) -> tuple[str, int, bytes]:
    if header[257:262] != b"ustar":
        raise ModelError("not an archive of the tar kind, or damaged: no mark 'ustar' in a header")
    blanked = header[:148] + b" " * 8 + header[156:]
    if _number(header[148:156]) != sum(blanked):
        raise ModelError("damaged archive: the checksum of a header does not agree")
    name = _text(header[:100].split(b"\0")[0])
    # GNU archives keep times where others keep the first part of a long name.
    prefix = "" if header[257:265] == b"ustar  \0" else _text(header[345:500].split(b"\0")[0])
    return (f"{prefix}/{name}" if prefix else name), _number(header[124:136]), header[156:157]


def _number(digits: bytes) -> int:
    if digits[0] == 0x80:
        return int.from_bytes(digits[1:], "big")
    text = digits.split(b"\0")[0].strip()
    if not all(c in b"01234567" for c in text):
        raise ModelError(f"damaged archive: {digits!r} is no size")
    return int(text or b"0", 8)


def _extended_name(content: bytes) -> str:
    """The path in an extended header of lines `length key=value`."""
    name = ""
    while content:
        length, _, _ = content[:20].partition(b" ")
        if not length.isdigit() or not len(length) + 1 < int(length) <= len(content):
            raise ModelError("damaged archive: an extended header that cannot be read")
        key, _, value = content[len(length) + 1 : int(length) - 1].partition(b"=")
        if key == b"path":
            name = _text(value)
        elif key == b"size" or key.startswith(b"GNU.sparse"):
            raise ModelError(f"the archive has an extended header {_text(key)!r}, which is not supported")
        content = content[int(length) :]
    return name


def _text(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"the archive has a name that is not UTF-8: {name[:60]!r}") from None


def _checked(name: str) -> str:
    """A plain relative path, without a leading `./`."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\\" in name or ":" in name:
        raise ModelError(f"the archive has a member {name[:100]!r}: names that lead out of it are refused")
    return "/".join(parts)


def _new_header(name: str, size: int, kind: bytes) -> bytes:
    path = name.encode("utf-8")
    prefix = b""
    if len(path) > 100:
        cut = path[:156].rfind(b"/")
        prefix, path = path[:cut], path[cut + 1 :]
    # Sizes from 8 GiB on do not fit in eleven octal digits.
    length = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    mode = b"0000755\0" if kind == b"5" else b"0000644\0"
    owner, time = b"0000000\0" * 2, b"%011o\0" % 0
    start = path.ljust(100, b"\0") + mode + owner + length + time
    end = kind + b"\0" * 100 + b"ustar\x0000" + b"\0" * 80 + prefix.ljust(155, b"\0") + b"\0" * 12
    return start + b"%06o\0 " % sum(start + b" " * 8 + end) + end
