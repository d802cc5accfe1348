"""Damaged files in every format: only a model or a ModelError, never another exception, a hang or a crash.

Bytes are flipped, set, inserted, removed, files are cut short. Where a checksum of the container would catch nearly
all of that (.npz, compressed .umb and .mat), what is inside is damaged and sealed again as well.
"""

from __future__ import annotations

import io as stdio
import struct
import warnings
import zipfile
import zlib

import numpy as np
import pytest
from io_cases import FORMATS, file_of, small

from fastcmdp import envs, io
from fastcmdp.errors import ModelError

FEW, MANY = 200, 2_500  # cases of each kind; the default run and the slow one


def gathering() -> io.Description:
    """The 94 states of resource gathering with labels and names of actions."""
    plain = io.describe(envs.resource_gathering())
    names = ("right", "left", "to the top", "down")
    labels = {"home": np.array([0, 3]), "x y": np.array([5])}
    variables = {"x": np.arange(94) % 5, "home": np.arange(94) < 9, "level": np.arange(94) / 4}
    return small(**{**vars(plain), "action_names": names, "labels": labels, "variables": variables})


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """The data with some damage."""
    kind, at = rng.integers(0, 6), int(rng.integers(0, len(data)))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at + int(rng.integers(1, 20)) :]
    if kind == 2:
        return data[:at] + rng.bytes(int(rng.integers(1, 9))) + data[at:]
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(0, len(changed)))
        changed[at] = changed[at] ^ (1 << int(rng.integers(0, 8))) if kind < 5 else int(rng.integers(0, 256))
    return bytes(changed)


def outcome(path, kind) -> str:
    """Load a file as a user does: "model" or "error"; anything else is raised."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message=".*(rows of probabilities|is not used|left out|scaled by their span)"
            )
            read = io.read(path, format=kind if kind != "toolbox" else None)
            io.build(read, reward="rew_gold", constraints="attacks <= 0.25", gamma=0.95, start=0)
    except ModelError:
        return "error"
    return "model"


def attack(path, kind, files, cases, seed) -> None:
    """Damage one of the files of a model, time and again; ``files`` makes their contents from a generator."""
    rng = np.random.default_rng(seed)
    whole = {file: file.read_bytes() for file in files}
    seen = set()
    for _ in range(cases):
        file = list(whole)[int(rng.integers(0, len(whole)))]
        file.write_bytes(files[file](whole[file], rng))
        try:
            seen.add(outcome(path, kind))
        except BaseException:
            print("kept for a look:", file)
            raise
        file.write_bytes(whole[file])
    assert "error" in seen
    assert outcome(path, kind) == "model"  # it was only the damage


def zipped(members: dict[str, bytes]) -> bytes:
    file = stdio.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def inside_zip(data: bytes, rng: np.random.Generator) -> bytes:
    """One array of a .npz damaged, most often near its header, with a good checksum."""
    with zipfile.ZipFile(stdio.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = list(members)[int(rng.integers(0, len(members)))]
    content = members[name]
    cut = 128 if rng.random() < 0.5 and len(content) > 128 else len(content)
    return zipped(members | {name: damaged(content[:cut], rng) + content[cut:]})


def inside_mat(data: bytes, rng: np.random.Generator) -> bytes:
    """The variables of a .mat unpacked and one of them damaged."""
    elements, at = [], 128
    while at < len(data):
        _, size = struct.unpack("<II", data[at : at + 8])
        elements.append(zlib.decompress(data[at + 8 : at + 8 + size]))
        at += 8 + size
    i = int(rng.integers(0, len(elements)))
    cut = 100 if rng.random() < 0.6 else len(elements[i])
    elements[i] = damaged(elements[i][:cut], rng) + elements[i][cut:]
    return data[:128] + b"".join(elements)


def companions(path) -> list:
    """A model's files: a .tra has others beside it."""
    return sorted(
        file
        for file in path.parent.iterdir()
        if file.suffix in (path.suffix, ".lab", ".sta", ".srew", ".trew")
    )


KINDS = [*FORMATS, "npz inside", "toolbox inside", "mat inside", "mat inside, sparse"]


@pytest.mark.parametrize("cases", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("name", KINDS)
def test_damage_is_an_error_or_a_model(tmp_path, monkeypatch, name, cases):
    kind, _, inside = name.partition(" ")
    if "sparse" in inside:
        monkeypatch.setattr("fastcmdp.io.toolbox.LARGEST_SMALL_TABLE", 0)
    path = file_of(tmp_path, kind)
    io.write(gathering(), path, format=kind)
    harm = damaged if not inside else inside_mat if kind == "mat" else inside_zip
    attack(path, kind, dict.fromkeys(companions(path), harm), cases, seed=KINDS.index(name) + cases)


def test_the_attack_finds_a_reader_that_is_careless(tmp_path, monkeypatch):
    path = file_of(tmp_path, "drn")
    io.write(gathering(), path)

    def careless(path, **_):
        words = path.read_text().split()
        return [float(word) for word in words if word[0].isdigit()]

    monkeypatch.setattr("fastcmdp.io.drn.read", careless)
    with pytest.raises((ValueError, AttributeError)):
        attack(path, "drn", {path: damaged}, 50, seed=0)
