"""Text formats, read by whole arrays: lines cut into tokens, tokens made into integers, numbers and names.

A file is taken in pieces of whole lines, so that what stands in memory beside the result is a few times the
size of a piece. Eight bytes of text are loaded as one 64-bit word at any offset, and their eight digits are
summed up together; that makes parsing about as fast as splitting.

A decimal of at most 19 digits is m / 10^f with integers m < 2^64 and f <= 19, and 10^f is exact in a double. For
m < 2^53 one division rounds correctly. Otherwise m = h + l with h the double nearest to m, and

    q = h / 10^f rounded,   r = h - q 10^f exactly,   m / 10^f = q + (r + l) / 10^f.                (1)

The sum on the right, rounded, is the nearest double: its last term is off by less than 2^-51 of the distance between
two doubles, and no decimal of 19 digits lies closer to the middle between two doubles than 1 / (2 5^19) of their
distance, unless it lies just there, where the term is exact. All that is not a plain decimal (exponents, fractions)
goes through Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastcmdp.errors import ModelError
from fastcmdp.files import Unpacked

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

PIECE = 1 << 20  # bytes of text at a time
PAD = 24  # blanks before and after a piece, so that every load of a word stays inside it
MOST_DIGITS = 19  # 10^19 - 1 fits in 64 bits
LONGEST_NAME = 1024

_TENS = 10 ** np.arange(MOST_DIGITS + 1, dtype=np.uint64)
_SCALES: Floats = 10.0 ** np.arange(MOST_DIGITS + 1, dtype=np.float64)
# Entry n belongs to words of which n bytes count. In memory order the first byte is the lowest.
_HEAD = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
_TAIL = ~_HEAD[::-1]
_ZEROS = ~_TAIL & np.uint64(0x3030303030303030)
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_FRACTION = re.compile(rb"([+-]?\d+)/(\d+)")


def pieces(file: BinaryIO | Unpacked, first_line: int = 1) -> Iterator[Lines]:
    """The rest of a file in pieces of whole lines; an empty rest gives none."""
    left = b""
    while True:
        block = file.read(PIECE)
        cut = block.rfind(b"\n") + 1 if block else 0
        whole = left + (block[:cut] if block else b"")
        if not block or cut:
            if whole:
                lines = Lines(whole, first_line)
                first_line += len(lines.breaks)
                yield lines
            left = block[cut:]
        else:
            left += block
        if not block:
            return


class Lines:
    """Whole lines of text, cut into tokens at blanks.

    Attributes
    ----------
    data : uint8[n]
        The text between pads of blanks; write to it, then call `cut`.
    first_line : int
        Number of the first line in the file, from 1.
    starts, ends : int64[T]
        Where tokens begin and end in ``data``.
    begin : int64[L+1]
        The first token of each line; the last entry is T.
    counts : int64[L]
        Number of tokens of each line.
    breaks : int64[L]
        Where lines end in ``data``.
    """

    def __init__(self, text: bytes, first_line: int) -> None:
        self.first_line = first_line
        self.data = np.full(len(text) + 2 * PAD, ord(" "), dtype=np.uint8)
        self.data[PAD:-PAD] = np.frombuffer(text, dtype=np.uint8)
        if (nul := text.find(b"\0")) >= 0:
            line = first_line + text.count(b"\n", 0, nul)
            raise ModelError(f"line {line}: a zero byte; this is not text")
        self.cut()

    def cut(self) -> None:
        """Find the tokens, anew."""
        blank = self.data <= ord(" ")  # control characters too
        edges = np.flatnonzero(blank[1:] != blank[:-1]) + 1
        self.starts, self.ends = edges[::2], edges[1::2]
        self.breaks = np.flatnonzero(self.data == ord("\n"))
        if self.breaks.size == 0 or self.breaks[-1] != len(self.data) - PAD - 1:  # the file's last line
            self.breaks = np.append(self.breaks, len(self.data) - PAD)
        self.begin = np.append(0, np.searchsorted(self.starts, self.breaks))
        self.counts = np.diff(self.begin)
        size = len(self.data) - 8 + 1
        self.words: Words = np.ndarray(size, dtype="<u8", buffer=self.data.data, strides=(1,))

    def line(self, at: int) -> int:
        """Number of the line at a place in ``data``."""
        return self.first_line + int(np.searchsorted(self.breaks, at))

    def lines(self, tokens: Ints) -> Ints:
        """Numbers of the lines of tokens."""
        lines: Ints = self.first_line + np.searchsorted(self.breaks, self.starts[tokens])
        return lines

    def text(self, start: int, end: int) -> str:
        """What stands there, for people; shortened."""
        shown = bytes(self.data[start : min(end, start + 60)]).decode("utf-8", "replace")
        return repr(shown) if end - start <= 60 else repr(shown + "...")

    def error(self, at: int, message: str) -> ModelError:
        """An error that names the line at a place in ``data``."""
        return ModelError(f"line {self.line(at)}: {message}")

    def drop_comments(self, mark: bytes) -> None:
        """Blank out every line from a token that begins with ``mark`` on."""
        if not (self.data == mark[0]).any():
            return
        head = self.words[self.starts] & _HEAD[len(mark)]
        marked = np.flatnonzero(head == np.uint64(int.from_bytes(mark, "little")))
        if marked.size == 0:
            return
        opened = self.starts[marked]
        line = np.searchsorted(self.breaks, opened)
        first = np.append(True, line[1:] != line[:-1])
        change = np.zeros(len(self.data) + 1, dtype=np.int8)
        change[opened[first]] = 1
        change[self.breaks[line[first]]] -= 1
        self.data[np.cumsum(change[:-1], dtype=np.int8).view(np.bool_)] = ord(" ")
        self.cut()

    def find(self, byte: str, starts: Ints, ends: Ints) -> Ints:
        """The first such byte of each span, or its end where there is none."""
        places = np.append(np.flatnonzero(self.data == ord(byte)), len(self.data))
        positions: Ints = np.minimum(places[np.searchsorted(places, starts)], ends)
        return positions

    def integers(self, starts: Ints, ends: Ints, what: str) -> Ints:
        """Unsigned integers below 2^31 in spans of the text."""
        lengths = ends - starts
        values, good = _digits(self.words, ends, np.minimum(lengths, MOST_DIGITS))
        good &= (lengths > 0) & (lengths <= MOST_DIGITS)
        # States are int32 in a model, and no count of anything else here needs more.
        bad = np.flatnonzero(~good | (values >= 1 << 31))
        if bad.size:
            i = int(bad[0])
            word = self.text(int(starts[i]), int(ends[i]))
            raise self.error(int(starts[i]), f"{what} must be an integer in 0..2147483647, found {word}")
        return values.astype(np.int64)

    def numbers(self, starts: Ints, ends: Ints, what: str) -> tuple[Floats, int]:
        """Finite numbers in spans of the text, and the most significant digits that any of them has."""
        values = np.empty(len(starts))
        signed = np.isin(self.data[starts], (ord("+"), ord("-")))
        first = starts + signed
        dots = first + 1  # of 0.25 and its like, and the ends of 0 and 1
        other = np.flatnonzero((self.data[dots] != ord(".")) & (dots != ends))
        if other.size:
            dots[other] = self.find(".", first[other], ends[other])
        whole, part = dots - first, np.maximum(ends - dots - 1, 0)
        plain = (whole + part > 0) & (whole + part <= MOST_DIGITS)
        left, good_left = _digits(self.words, dots, np.where(plain, whole, 0))
        right, good_right = _digits(self.words, ends, np.where(plain, part, 0))
        plain &= good_left & good_right
        mantissa = left * _TENS[np.where(plain, part, 0)] + right
        quotient = _quotients(mantissa, np.where(plain, part, 0))
        values[:] = np.where(self.data[starts] == ord("-"), -quotient, quotient)
        most = int(np.where(plain, mantissa, 0).max(initial=0))
        digits = len(str(most))
        known: dict[bytes, tuple[float, int]] = {}
        for i in np.flatnonzero(~plain):
            token = bytes(self.data[starts[i] : ends[i]])
            if token not in known:
                known[token] = self._number(token, int(starts[i]), what)
            values[i] = known[token][0]
            digits = max(digits, known[token][1])
        return values, digits

    def _number(self, token: bytes, at: int, what: str) -> tuple[float, int]:
        shown = self.text(at, at + len(token))
        try:
            if _NUMBER.fullmatch(token):
                value = float(token)
                digits = len(re.split(rb"[eE]", token)[0].replace(b".", b"").lstrip(b"+-0"))
                if np.isfinite(value):
                    return value, digits
            elif ratio := _FRACTION.fullmatch(token):
                return float(Fraction(int(ratio[1]), int(ratio[2]))), 17
        except (ValueError, OverflowError, ZeroDivisionError):
            pass
        if token[:1] in (b"[", b"("):
            raise self.error(at, f"{what} is {shown}: interval models are not supported, only single numbers")
        if re.search(rb"^[+-]?[A-Za-z]|[A-DF-Za-df-z$*(]", token) and not _NOT_FINITE.fullmatch(token):
            raise self.error(
                at,
                f"{what} is {shown}: parametric models are not supported, only plain numbers; instantiate it",
            )
        raise self.error(at, f"{what} must be a finite number such as 0.25, 1e-3 or 1/3, found {shown}")

    def names(self, starts: Ints, ends: Ints, known: Vocabulary) -> Ints:
        """Codes of names in spans of the text; new names join ``known``."""
        lengths = ends - starts
        if starts.size == 0:
            return np.empty(0, dtype=np.int64)
        longest = int(lengths.max())
        if longest > LONGEST_NAME:
            at = int(starts[lengths.argmax()])
            raise self.error(at, f"a name of {longest} bytes; at most {LONGEST_NAME} are accepted")
        words = np.empty((-(-longest // 8), len(starts)), dtype=np.uint64)
        for k, row in enumerate(words):
            safe = np.minimum(starts + 8 * k, len(self.words) - 1)
            row[:] = self.words[safe] & _HEAD[np.clip(lengths - 8 * k, 0, 8)]
        # The same name often stands in many lines together: only the first of them is looked up.
        fresh = np.append(True, (words[:, 1:] != words[:, :-1]).any(axis=0))
        runs = np.cumsum(fresh) - 1
        words, starts, ends = words[:, fresh], starts[fresh], ends[fresh]
        codes = np.zeros(len(starts), dtype=np.int64)
        for row in words:
            distinct, index = np.unique(row, return_inverse=True)
            codes = (
                np.unique(codes * len(distinct) + index, return_inverse=True)[1] if len(words) > 1 else index
            )
        _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
        table = []
        for i in firsts:
            raw = bytes(self.data[starts[i] : ends[i]])
            try:
                table.append(known.code(raw.decode("utf-8")))
            except UnicodeDecodeError:
                shown = self.text(int(starts[i]), int(ends[i]))
                raise self.error(int(starts[i]), f"a name that is not UTF-8: {shown}") from None
        numbers: Ints = np.array(table, dtype=np.int64)[codes][runs]
        return numbers

    def spans(self, tokens: Ints) -> tuple[Ints, Ints]:
        """Starts and ends of tokens."""
        return self.starts[tokens], self.ends[tokens]

    def columns(self, width: int) -> list[tuple[Ints, Ints]]:
        """Starts and ends of the tokens of each column, where every line has ``width`` tokens."""
        starts, ends = self.starts.reshape(-1, width), self.ends.reshape(-1, width)
        return [(starts[:, i], ends[:, i]) for i in range(width)]


class Vocabulary:
    """Names and their codes, in the order in which they came."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def code(self, name: str) -> int:
        """The code of a name, which joins if it is new."""
        return self._codes.setdefault(name, len(self._codes))

    @property
    def names(self) -> list[str]:
        """All names; the place of each is its code."""
        return list(self._codes)


def _digits(words: Words, ends: Ints, lengths: Ints) -> tuple[Words, NDArray[np.bool_]]:
    """Integers written in the ``lengths`` (at most 24) bytes before ``ends``, and whether all are digits."""
    values = np.zeros(len(ends), dtype=np.uint64)
    good = np.ones(len(ends), dtype=np.bool_)
    # Eight digits a turn, the last ones first; later turns are for the longer numbers only.
    turn: Any = slice(None)
    for k in range(0, int(lengths.max(initial=0)), 8):
        if k:
            turn = np.flatnonzero(lengths > k)
        count = np.minimum(lengths[turn] - k, 8)
        word = (words[ends[turn] - (k + 8)] & _TAIL[count]) | _ZEROS[count]
        word ^= np.uint64(0x3030303030303030)  # digits become 0..9
        over = (word + np.uint64(0x7676767676767676)) | word
        good[turn] &= (over & np.uint64(0x8080808080808080)) == 0
        # Neighbours are joined to numbers of two, four, then eight digits.
        word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
        word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
        word = (word * np.uint64(10000) + (word >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
        values[turn] += word * _TENS[min(k, 16)]
    return values, good


def _quotients(mantissa: Words, places: Ints) -> Floats:
    """mantissa / 10^places to the nearest double, equation (1)."""
    scale = _SCALES[places]
    quotient: Floats = mantissa / scale
    long = np.flatnonzero(mantissa >= 1 << 53)
    if long.size:
        integer, divisor = mantissa[long], scale[long]
        high = integer.astype(np.float64)
        low = (integer - high.astype(np.uint64)).astype(np.int64).astype(np.float64)
        q = high / divisor
        product, error = _product(q, divisor)
        quotient[long] = q + (((high - product) - error) + low) / divisor
    return quotient


def _product(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """x y as the sum of two doubles, exactly (Dekker)."""
    product = x * y
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    return product, error


def _halves(x: Floats) -> tuple[Floats, Floats]:
    scaled = x * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - x)
    return high, x - high
