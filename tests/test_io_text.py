"""Text by whole arrays: numbers to the last bit, lines told rightly, nothing accepted that is no number."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest

from fastcmdp.errors import ModelError
from fastcmdp.io import text
from fastcmdp.io.text import Lines, Vocabulary, pieces


def numbers(*tokens: str) -> list[float]:
    lines = Lines("\n".join(tokens).encode(), 1)
    return lines.numbers(lines.starts, lines.ends, "it")[0].tolist()


def random_tokens(n: int) -> list[str]:
    """Numbers in all shapes that tools write, most of them long enough to need care in rounding."""
    rng = random.Random(5)
    shapes = [
        lambda: repr(rng.random()),
        lambda: f"{rng.random() * 10 ** rng.randint(-3, 6):.17g}",
        lambda: f"{rng.random():.18f}",
        lambda: f"-{rng.random():.19f}",
        lambda: str(rng.getrandbits(62)),
        lambda: f".{rng.getrandbits(55)}",
        lambda: f"{rng.random():.10g}",
        lambda: f"{rng.random():.3e}",
        lambda: f"+{rng.random() * 1e4:.6f}",
        lambda: f"{rng.getrandbits(53) * 2 + 1}.",  # half-way between two doubles
        lambda: f"{rng.getrandbits(70)}.{rng.getrandbits(80)}",
    ]
    return [rng.choice(shapes)() for _ in range(n)]


def test_numbers_are_the_nearest_doubles():
    tokens = random_tokens(30_000)
    assert numbers(*tokens) == [float(token) for token in tokens]


def test_numbers_half_way_between_doubles():
    # 2^53 + 1 is half-way; the others are the two sides of it, and below a power of two.
    tokens = ["9007199254740993", "9007199254740993.0", "900719925474099.3", "9007199254740992.9", "1" * 19,
              "9007199254740991.5", "4503599627370497.5", "4503599627370495.75", "0.1", "1e-320"]  # fmt: skip
    assert numbers(*tokens) == [float(token) for token in tokens]


def test_the_decimals_closest_to_the_middle_between_doubles():
    # m / 10^19 in [1/2, 1) with m 2^35 - k 5^19 = +-1 for an odd k: k / 2^54 is the middle between two doubles.
    inverse = pow(2**35, -1, 5**19)
    tokens = []
    for side in (1, -1):
        m = inverse * side % 5**19 + 5**19 * (10**19 // 2 // 5**19 + 1)
        odd = [n for n in range(m, m + 200 * 5**19, 5**19) if (n * 2**35 - side) // 5**19 % 2]
        assert all((n * 2**35 - side) % 5**19 == 0 and n < 10**19 for n in odd)
        tokens += [f".{n}" for n in odd]
    assert len(tokens) > 100
    assert numbers(*tokens) == [float(token) for token in tokens]


def test_fractions_and_their_rounding():
    assert numbers("1/3", "2/3", "-7/2", "123456789012345678901/7") == [
        1 / 3,
        2 / 3,
        -3.5,
        123456789012345678901 / 7,
    ]


@pytest.mark.parametrize(
    "token", ["nan", "inf", "-inf", "1e999", "1_0", "1/0", "1/2/3", "--1", "+", ".", "1..2", "1e", "٣", "1,5"]
)
def test_what_is_no_finite_number_is_refused(token):
    with pytest.raises(ModelError, match="line 2: it must be a finite number"):
        numbers("1", token, "2")


@pytest.mark.parametrize(
    ("token", "word"), [("[0.1,0.2]", "interval"), ("(0.1", "interval"), ("p", "parametric"), ("1-x", "parametric"),
                        ("$1", "parametric"), ("0x10", "parametric")]
)  # fmt: skip
def test_intervals_and_parameters_are_named(token, word):
    with pytest.raises(ModelError, match=f"line 1: .*{word} models are not supported"):
        numbers(token)


def test_significant_digits_of_a_file():
    def digits(*tokens: str) -> int:
        lines = Lines(" ".join(tokens).encode(), 1)
        return lines.numbers(lines.starts, lines.ends, "it")[1]

    assert digits("0.5", "0.333333", "1") == 6
    assert digits("0.0003333") == 4
    assert digits("3.333e-05", "1") == 4
    assert digits("1/3") == 17


@pytest.mark.parametrize(
    "token", ["-1", "1.5", "2147483648", "12a", "+3", "99999999999999999999", "1e3", "1" + "0" * 22 + "1"]
)
def test_what_is_no_state_is_refused(token):
    lines = Lines(f"4\n2147483647\n{token}\n".encode(), 7)
    with pytest.raises(ModelError, match=r"line 9: it must be an integer in 0\.\.2147483647"):
        lines.integers(lines.starts, lines.ends, "it")


def test_pieces_do_not_change_what_is_read(monkeypatch):
    tokens = random_tokens(300)
    blob = "".join(f"{i} {token}\r\n" + "\n" * (i % 3) for i, token in enumerate(tokens)).encode()
    for size in (1, 7, 64, 1 << 20):
        monkeypatch.setattr(text, "PIECE", size)
        places, values, number = [], [], []
        for lines in pieces(io.BytesIO(blob)):
            first = lines.begin[:-1][lines.counts > 0]
            places += lines.lines(first).tolist()
            number += lines.integers(*lines.spans(first), "n").tolist()
            values += lines.numbers(*lines.spans(first + 1), "x")[0].tolist()
        expected = [1 + i + sum(j % 3 for j in range(i)) for i in range(300)]
        assert (places, number, values) == (expected, list(range(300)), [float(token) for token in tokens])


def test_the_last_line_needs_no_end():
    for blob in (b"a b\nc", b"a b\nc\n"):
        counts = [count for lines in pieces(io.BytesIO(blob)) for count in lines.counts.tolist()]
        assert counts == [2, 1]
    assert list(pieces(io.BytesIO(b""))) == []


def test_names_are_told_apart_at_any_length():
    names = ["a", "b", "ab", "abcdefgh", "abcdefghi", "abcdefghj", "x" * 900, "x" * 899 + "y", "ß", "a"]
    lines = Lines("\n".join(names).encode(), 1)
    known = Vocabulary()
    codes = lines.names(lines.starts, lines.ends, known)
    assert [known.names[code] for code in codes] == names
    assert len(known.names) == len(set(names))


def test_names_that_are_refused():
    known = Vocabulary()
    lines = Lines(b"good\n\xff\xfe\n", 1)
    with pytest.raises(ModelError, match="line 2: a name that is not UTF-8"):
        lines.names(lines.starts, lines.ends, known)
    lines = Lines(b"good\n" + b"x" * 1025, 1)
    with pytest.raises(ModelError, match="line 2: a name of 1025 bytes"):
        lines.names(lines.starts, lines.ends, known)


def test_comments_end_with_their_line():
    lines = Lines(b"a // b // c\n//x\nd e//f\n // g", 1)
    lines.drop_comments(b"//")
    words = [bytes(lines.data[s:e]) for s, e in zip(lines.starts, lines.ends, strict=True)]
    assert words == [b"a", b"d", b"e//f"]
    assert lines.counts.tolist() == [1, 0, 2, 0]


def test_binary_data_is_no_text():
    with pytest.raises(ModelError, match="line 3: a zero byte"):
        Lines(b"a\nb\nc\0d\n", 1)


def test_loads_never_leave_the_buffer():
    # The longest numbers at the very beginning and the very end of a piece.
    token = "1234567890123456789"
    assert numbers(token) == [float(token)]
    assert numbers("0." + "1" * 19, "1", "0." + "9" * 19) == [float("0." + "1" * 19), 1.0, 1.0]
    assert np.isfinite(numbers("0." + "3" * 400)).all()
