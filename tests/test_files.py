"""Files are written whole, through links, with the mode they had or the umask's, and nothing but files is replaced."""

from __future__ import annotations

import errno
import os
import socket
import stat

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp import files, io
from fastcmdp.errors import ModelError
from fastcmdp.npz import write_arrays
from fastcmdp.tuned import write_constants

MODEL = fc.envs.river_swim(limit=5.0)


def save_as(kind):
    return lambda path: fc.save(MODEL, path, format=kind)


WRITERS = {
    kind: save_as(kind) for kind in ("npz", "toolbox", "umb", "umb.gz", "umb.xz", "drn", "tra", "mat")
} | {
    "arrays": lambda path: write_arrays(path, {"a": np.zeros(3)}),
    "constants": lambda path: write_constants(path, {"pd-anpg": {"c_eta": 1.0}}),
    "text": lambda path: files.write_text(path, "text"),
}


@pytest.fixture(params=WRITERS)
def write(request):
    return WRITERS[request.param]


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def leftovers(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]


def test_a_link_stays_and_its_target_is_replaced(write, tmp_path):
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "target"
    target.write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("far/target")
    write(link)
    assert link.is_symlink()
    assert target.read_bytes() != b"old"
    assert not leftovers(tmp_path)
    assert not leftovers(tmp_path / "far")


def test_a_dangling_link_is_followed(tmp_path):
    (tmp_path / "link").symlink_to("target")
    files.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002])
def test_a_new_file_follows_the_umask(write, umask, tmp_path):
    before = os.umask(umask)
    try:
        write(tmp_path / "new")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "new") == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_a_file_keeps_its_mode(write, mode, tmp_path):
    path = tmp_path / "old"
    path.touch()
    path.chmod(mode)
    write(path)
    assert path.stat().st_size > 0
    assert mode_of(path) == mode


def test_what_is_no_file_is_not_replaced(write, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/null")
    kinds = {"pipe": stat.S_ISFIFO, "folder": stat.S_ISDIR, "device": stat.S_ISCHR}
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, kind in (kinds | {"socket": stat.S_ISSOCK}).items():
            with pytest.raises(ModelError, match=f"{name}: a {name}; only regular files are written"):
                write(tmp_path / name)
            assert kind((tmp_path / name).stat().st_mode)
    assert not leftovers(tmp_path)


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_errors_of_the_system_name_the_file_and_leave_the_old_one(write, call, tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.write_bytes(b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*(("os.fsync", full) if call == "fsync" else ("pathlib.Path.replace", full)))
    with pytest.raises(OSError, match=r"\[Errno 28\] No space left on device: '.*model(\.lab)?'"):
        write(path)
    assert path.read_bytes() == b"old"
    assert not leftovers(tmp_path)


def test_errors_without_a_number_name_the_file_too(tmp_path):
    with (
        pytest.raises(OSError, match=r"3 requested and 1 written: '.*model'"),
        files.replacing(tmp_path / "model"),
    ):
        raise OSError("3 requested and 1 written")


def test_an_error_about_another_file_keeps_its_name(tmp_path):
    with pytest.raises(FileNotFoundError, match="another"), files.replacing(tmp_path / "model"):
        (tmp_path / "another").read_bytes()


def test_a_missing_folder_is_named(write, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write(tmp_path / "nowhere" / "model")


@pytest.mark.parametrize("name", ["b.npz", "b.umb", "b.drn", "b.tra", "b.mat"])
def test_a_damaged_file_is_named_once(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"no model\n" * 30)
    for read in (io.read, lambda path: fc.load(path, gamma=0.9)):
        with pytest.raises(ModelError) as told:
            read(path)
        assert str(told.value).count(str(path)) == 1
        assert str(told.value).startswith(f"{path}: ")


def test_what_is_no_file_is_not_read(tmp_path):
    for ending in io.ENDINGS:
        path = tmp_path / f"m{ending}"
        path.mkdir()
        with pytest.raises(ModelError, match=rf"^{path}: a folder; only regular files are read$"):
            io.read(path)
