"""UMB: real files, what a file may leave out, what is refused by name, and archives that mean harm."""

from __future__ import annotations

import gzip
import io as stdio
import json
import lzma
import tarfile
import tracemalloc

import numpy as np
import pytest
from io_cases import SHARED, needs_models, small, told

from fastcmdp import io
from fastcmdp.errors import ModelError

TARGET, PROBABILITY = "branch-to-target.bin", "branch-to-probability.bin"


def members(path):
    """Members of an archive by name, as Python's own reader finds them."""
    with tarfile.open(path) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}


def archived(parts, format=tarfile.USTAR_FORMAT):
    """An archive of such members, as Python's own writer makes it."""
    file = stdio.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as archive:
        for name, content in parts.items():
            member = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = b"" if isinstance(content, tarfile.TarInfo) else content
            member.size = member.size or len(data)
            archive.addfile(member, stdio.BytesIO(data))
    return file.getvalue()


@pytest.fixture
def parts(tmp_path):
    """Members of a small model's file."""
    io.write(small(), tmp_path / "small.umb")
    return members(tmp_path / "small.umb")


@pytest.fixture
def read(tmp_path):
    def from_parts(given, **options):
        path = tmp_path / "given.umb"
        path.write_bytes(given if isinstance(given, bytes) else archived(given))
        return io.read(path, **options)

    return from_parts


def with_index(parts, change):
    """The members with another index.json."""
    index = json.loads(parts["index.json"])
    change(index, index["transition-system"])
    return parts | {"index.json": json.dumps(index).encode()}


def test_python_reads_what_we_write_and_we_read_what_python_writes(parts, read):
    assert next(iter(parts)) == "index.json"
    for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert told(read(archived(parts, format))) == told(small())


def test_compressed_files_are_told_by_their_first_bytes(parts, read):
    plain = archived(parts)
    for packed in (
        gzip.compress(plain),
        lzma.compress(plain),
        gzip.compress(plain[:99]) + gzip.compress(plain[99:]),
    ):
        assert told(read(packed)) == told(small())


def test_long_member_names(parts, read):
    long = "x" * 200

    def change(index, _):
        index["annotations"]["rewards"][long] = index["annotations"]["rewards"].pop("time")

    changed = with_index(parts, change)
    changed[f"annotations/rewards/{long}/states/values.bin"] = changed.pop(
        "annotations/rewards/time/states/values.bin"
    )
    for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        found = told(read(archived(changed, format)))
        assert found["rewards"] == told(small())["rewards"]


def resealed(header, at, content):
    """A header of an archive with other bytes at a place, and a good checksum."""
    header = header[:at] + content + header[at + len(content) :]
    total = sum(header[:148] + b" " * 8 + header[156:512])
    return header[:148] + b"%06o\0 " % total + header[156:]


def test_gnu_archives_keep_times_where_others_keep_names(parts, read):
    blob = archived(parts, tarfile.GNU_FORMAT)
    assert told(read(resealed(blob, 345, b"13000000000\0"))) == told(small())


def test_checksums_of_headers(parts, read):
    blob = bytearray(archived(parts))
    blob[140] ^= 1  # in the time, which nobody reads
    with pytest.raises(ModelError, match=r"damaged one .*checksum"):
        read(bytes(blob))


def test_an_index_of_another_version_or_with_a_key_twice(parts, read):
    with pytest.raises(ModelError, match="UMB of version 2; version 1 is supported"):
        read(with_index(parts, lambda index, _: index.update({"format-version": 2})))
    twice = parts["index.json"].replace(b'"time": "discrete"', b'"time": "discrete", "time": "discrete"')
    with pytest.raises(ModelError, match=r"index\.json has 'time' twice"):
        read(parts | {"index.json": twice})


def test_members_in_any_order(parts, read):
    assert told(read(dict(reversed(parts.items())))) == told(small())


def test_what_may_be_left_out(read):
    chain = {
        "index.json": json.dumps(
            {
                "format-version": 1,
                "transition-system": {
                    "time": "discrete", "#players": 0, "#states": 2, "#choices": 2, "#branches": 2,
                    "branch-probability-type": {"type": "double"},
                },
                "annotations": {
                    "rewards": {"r1": {"applies-to": ["states", "branches"], "type": {"type": "double"}}},
                    "aps": {"end": {"applies-to": ["states"], "type": {"type": "bool"}}},
                },
            }
        ).encode(),
        TARGET: np.array([1, 1], "<u8").tobytes(),
        PROBABILITY: np.array([1.0, 1.0], "<f8").tobytes(),
    }  # fmt: skip
    found = read(chain)
    assert (found.n_states, found.n_choices, found.start, found.actions) == (2, 2, None, None)
    assert found.on_choices("r1").tolist() == [0, 0]
    assert found.labels["end"].size == 0
    with pytest.raises(ModelError, match="no initial state: give start"):
        io.build(found, gamma=0.9)


def test_parts_of_a_reward_add_up(parts, read):
    def change(index, _):
        index["annotations"]["rewards"]["time"]["applies-to"] = ["states", "choices", "branches"]

    folder = "annotations/rewards/time"
    found = read(
        with_index(parts, change)
        | {
            f"{folder}/choices/values.bin": np.array([10.0, 20, 30, 40], "<f8").tobytes(),
            f"{folder}/branches/values.bin": np.array([400.0, 800, 0, 0, 0, 300, 0], "<f8").tobytes(),
        }
    )
    assert found.on_choices("time") == pytest.approx([1 + 10 + 700, 1 + 20, 1 + 30 + 100, 40])


def test_rationals(parts, read):
    def change(_, system):
        system["branch-probability-type"] = {"type": "rational", "size": 128}

    def stored(*ratios):
        return b"".join(
            top.to_bytes(8, "little", signed=True) + bottom.to_bytes(8, "little") for top, bottom in ratios
        )

    exact = (1, 4), (3, 4), (1, 1), (1, 3), (1, 3), (3 * 2**60, 9 * 2**60), (2**62, 2**62)
    found = read(with_index(parts, change) | {PROBABILITY: stored(*exact)})
    assert found.branch_prob.tolist() == [top / bottom for top, bottom in exact]
    with pytest.raises(ModelError, match=r"entry 1 is 3/0, which is not finite"):
        read(with_index(parts, change) | {PROBABILITY: stored(exact[0], (3, 0), *exact[2:])})
    with pytest.raises(
        ModelError, match=r"branch-to-probability\.bin has 56 bytes; by index\.json it must have 112"
    ):
        read(with_index(parts, change))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("time", "stochastic", "continuous time"),
        ("time", "urgent-stochastic", "continuous time"),
        ("#players", 2, "a game of 2 players"),
        ("#observations", 3, "partial observability"),
        ("branch-probability-type", {"type": "double-interval", "size": 128}, "interval models"),
        ("branch-probability-type", {"type": "rational-interval"}, "interval models"),
        ("branch-probability-type", {"type": "int"}, "double .* and rational are supported"),
        ("#states", 0, "#states is 0"),
        ("#states", 10**30, "#states is 1000"),
        ("#states", True, "'#states' is 'True'"),
        ("#states", 2.0, "'#states' is '2.0'"),
        ("#states", 2, "by index.json it must have"),
        ("#states", 2**31 - 1, "by index.json it must have"),
        ("#choices", 2**48, "by index.json it must have"),
        ("#branches", 2**48, "by index.json it must have"),
        ("#choice-actions", 2**48, "by index.json it must have"),
        ("#choice-actions", 2, "by index.json it must have"),
        ("#initial-states", 2, "1 states are marked as initial; index.json says 2"),
    ],
)
def test_other_systems_and_sizes_are_refused_by_name(parts, read, key, value, message):
    with pytest.raises(ModelError, match=message):
        read(with_index(parts, lambda _, system: system.update({key: value})))


def test_sizes_are_compared_before_memory_is_taken(parts, read):
    def change(_, system):
        system.update({"#states": 2**31 - 1, "#choices": 2**40, "#branches": 2**44})

    tracemalloc.start()
    with pytest.raises(ModelError, match=r"by index\.json it must have"):
        read(with_index(parts, change))
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()


def test_no_probabilities(parts, read):
    with pytest.raises(ModelError, match=r"without probabilities \(LTS\)"):
        read(with_index(parts, lambda _, system: system.pop("branch-probability-type")))


def test_rewards_that_are_refused_by_name(parts, read):
    def interval(index, _):
        index["annotations"]["rewards"]["time"]["type"] = {"type": "double-interval", "size": 128}

    def random(index, _):
        index["annotations"]["rewards"]["time"]["probability-type"] = {"type": "double"}

    def twice(index, _):
        index["annotations"]["rewards"]["toll"]["alias"] = "time"

    def players(index, _):
        index["annotations"]["rewards"]["toll"]["applies-to"] = ["players"]

    for change, message in (
        (interval, "reward 'time' is of type double-interval: interval models"),
        (random, "reward 'time' is random"),
        (twice, "two rewards have the name 'time'"),
        (players, r"reward 'toll' applies to \['players'\]"),
    ):
        with pytest.raises(ModelError, match=message):
            read(with_index(parts, change))


@pytest.mark.parametrize("index", [
    b"", b"{", b"[]", b"null", b'{"format-version": 2}', b'{"format-version": "1"}', b"\xff", b"[" * 100_000,
    b'{"format-version": 1, "format-version": 1}', b'{"format-version": 1, "transition-system": 3}',
    b'{"format-version": ' + b"9" * 5000 + b"}",
])  # fmt: skip
def test_an_index_that_is_none(parts, read, index):
    with pytest.raises(ModelError, match=r"index\.json|UMB of version"):
        read(parts | {"index.json": index})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (TARGET, None, "branch-to-target.bin is missing"),
        (PROBABILITY, None, "branch-to-probability.bin is missing"),
        ("index.json", None, "no index.json"),
        ("choice-to-branches.bin", None, "choice-to-branches.bin is missing, but 4 rows for 7 entries"),
        ("actions/choices/strings.bin", None, "strings.bin is missing"),
        (TARGET, np.array([0, 1, 2, 0, 1, 3, 2], "<u8"), "branch 5 leads to state 3; there are 3"),
        (TARGET, np.array([0, 1, 2, 0, 1, 2**63, 2], "<u8"), "leads to state 9223372036854775808"),
        (PROBABILITY, np.array([0.25, 0.5, 1, 0.5, 0.25, 0.25, 1]), r"state 0, choice 0 sum to 0\.75"),
        (PROBABILITY, np.array([0.25, 0.75, 1, 0.5, 0.75, -0.25, 1]), "state 1, choice 0 has probability -0.25"),
        (PROBABILITY, np.array([0.25, 0.75, np.nan, 0.5, 0.25, 0.25, 1]), "state 0, choice 1 has probability nan"),
        ("choice-to-branches.bin", np.array([0, 2, 1, 6, 7], "<u8"), "the rows of choice 1 and the next overlap"),
        ("choice-to-branches.bin", np.array([0, 2, 2, 6, 7], "<u8"), "choice 1 has no branch"),
        ("choice-to-branches.bin", np.array([1, 2, 3, 6, 7], "<u8"), "choice rows run from 1 to 7"),
        ("choice-to-branches.bin", np.array([0, 2, 3, 6, 2**64 - 1], "<u8"), "has the entry 18446744073709551615"),
        ("state-to-choices.bin", np.array([0, 2, 2, 4], "<u8"), r"state 1 has no choice \(a deadlock\)"),
        ("actions/choices/values.bin", np.array([0, 1, 0, 3], "<u4"), "an action 3; index.json says 3"),
        ("actions/choices/string-mapping.bin", np.array([0, 9, 2, 4], "<u8"), "does not fit strings.bin"),
        ("actions/choices/strings.bin", b"\xff" * 15, "strings.bin: .*utf-8"),
        ("annotations/rewards/time/states/values.bin", np.array([0, np.inf, 1]), "reward 'time' has a value"),
    ],
)  # fmt: skip
def test_damaged_members(parts, read, name, content, message):
    changed = dict(parts)
    del changed[name]
    if content is not None:
        changed = parts | {name: content if isinstance(content, bytes) else content.tobytes()}
    with pytest.raises(ModelError, match=message):
        read(changed)


def test_rounded_rows_are_divided_by_their_sums(parts, read):
    third = 0.3333333333
    rounded = np.array([0.25, 0.75, 1, third, third, third, 1])
    found = read(parts | {PROBABILITY: rounded.tobytes()})
    assert found.notes
    assert found.branch_prob[3:6].sum() == pytest.approx(1, abs=1e-16)


def linked(kind):
    member = tarfile.TarInfo("state-is-initial.bin")
    member.type, member.linkname = kind, "/etc/passwd"
    return member


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("/etc/passwd", b"x", "'/etc/passwd': names that lead out of it are refused"),
        ("../outside", b"x", "'../outside': names that lead out"),
        ("a/../../b", b"x", "names that lead out"),
        ("c:\\b", b"x", "names that lead out"),
        ("link", linked(tarfile.SYMTYPE), "is a symbolic link"),
        ("link", linked(tarfile.LNKTYPE), "is a hard link"),
        ("fifo", linked(tarfile.FIFOTYPE), "is a pipe"),
        ("device", linked(tarfile.CHRTYPE), "is a device"),
        ("sparse", linked(tarfile.GNUTYPE_SPARSE), "is a sparse file"),
        ("unknown", linked(b"Z"), "unknown kind"),
    ],
)
def test_archives_that_mean_harm(parts, read, tmp_path, name, content, message):
    before = sorted(tmp_path.iterdir())
    changed = {key: value for key, value in parts.items() if key != "state-is-initial.bin"}
    with pytest.raises(ModelError, match=message):
        read(changed | {name: content})
    assert [path.name for path in sorted(tmp_path.iterdir()) if path not in before] == ["given.umb"]


def test_a_member_twice(parts, read):
    both = archived(parts)[: -20 * 512].rstrip(b"\0")
    both += b"\0" * (-len(both) % 512) + archived({TARGET: parts[TARGET]})
    with pytest.raises(ModelError, match=r"branch-to-target\.bin stands twice"):
        read(both)


def test_absurd_sizes_are_refused_before_they_are_read(parts, read):
    for size in (10**12, 2**62):
        member = tarfile.TarInfo("valuations/huge.bin")
        member.size = size
        blob = member.tobuf(tarfile.GNU_FORMAT) + b"x" * 4096
        for data in (blob, gzip.compress(blob), lzma.compress(blob)):
            tracemalloc.start()
            with pytest.raises(ModelError, match=r"would take \d+ bytes, and at most"):
                read(data)
            assert tracemalloc.get_traced_memory()[1] < 50 << 20
            tracemalloc.stop()


def test_negative_sizes(parts, read):
    header = tarfile.TarInfo("x").tobuf(tarfile.USTAR_FORMAT)
    with pytest.raises(ModelError, match="would take -1 bytes"):
        read(resealed(header, 124, b"\xff" * 12) + b"\0" * 1024)  # -1 in base 256


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: lzma.compress(data, preset=0)])
def test_bombs_end_in_an_error_and_not_in_memory(parts, read, monkeypatch, pack):
    monkeypatch.setattr("fastcmdp.files.ALWAYS", 4 << 20)
    plain = archived(parts | {"valuations/states/valuations.bin": b"\0" * (32 << 20)})
    bomb = pack(plain)
    del plain
    assert len(bomb) < 100_000
    tracemalloc.start()
    with pytest.raises(ModelError, match="not unpacked so far"):
        read(bomb)
    assert tracemalloc.get_traced_memory()[1] < 30 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("pack", [None, gzip.compress, lzma.compress])
def test_truncated_files(parts, read, pack):
    whole = archived(parts).rstrip(b"\0")  # without the end mark
    whole = whole if pack is None else pack(whole + b"\0" * 2048)
    for cut in [*range(0, len(whole), max(len(whole) // 40, 1)), len(whole) - 1]:
        with pytest.raises(ModelError):
            read(whole[:cut])
    if pack is not None:  # a sound stream of an archive that is cut short
        with pytest.raises(ModelError, match=r"the file ends within index\.json"):
            read(pack(archived(parts)[:700]))


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"PK\x03\x04" * 200, b"\0" * 10240]
)
def test_wrong_magic(read, data):
    with pytest.raises(ModelError):
        read(data)


def test_folders_and_missing_files(tmp_path):
    (tmp_path / "folder.umb").mkdir()
    with pytest.raises(ModelError, match="a folder"):
        io.read(tmp_path / "folder.umb")
    with pytest.raises(FileNotFoundError):
        io.read(tmp_path / "none.umb")


def test_identifiers_are_safe_and_differ(tmp_path):
    states = np.array([1.0, 2.0, 3.0])
    names = [
        "Four Collisions",
        "four collisions",
        "four_collisions",
        "ß" * 100,
        "ß" * 100 + "!",
        "",
        "a/../b",
    ]
    described = small(rewards={name: io.Reward(states=states + i) for i, name in enumerate(names)})
    io.write(described, tmp_path / "m.umb")
    index = json.loads(members(tmp_path / "m.umb")["index.json"])
    identifiers = list(index["annotations"]["rewards"])
    assert len(set(identifiers)) == len(names)
    assert all(set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-") for key in identifiers)
    assert told(io.read(tmp_path / "m.umb")) == told(described)


@needs_models
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("robot", "reward 'time' is of type double-interval: interval models are not supported"),
        ("simple1", "continuous time"),
        ("simple2", "continuous time"),
    ],
)
def test_real_files_that_are_refused(name, message):
    with pytest.raises(ModelError, match=message):
        io.read(SHARED / f"{name}.umb")


@needs_models
def test_a_real_file_without_rewards():
    found = io.read(SHARED / "wlan0-2-2.umb")
    assert (found.n_states, found.n_choices, found.n_branches) == (37, 59, 59)
    assert {name: len(states) for name, states in found.labels.items()} == {
        "deadlock": 5, "fourCollisions": 0, "sixCollisions": 0, "twoCollisions": 0,
    }  # fmt: skip
    with pytest.raises(ModelError, match="no rewards, or a label's visits: 'label:deadlock'"):
        io.build(found, gamma=0.9)
    assert io.build(found, reward="label:deadlock", gamma=0.9).reward.sum() > 0
