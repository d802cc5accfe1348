"""Sessions that share a folder: what is waited for, and what is taken over; scripts without a main guard."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from fastcmdp import sweep as sweeps
from fastcmdp.sweep import Models, Store, Sweep, claims, prepare

SCRIPT = """
import sys
from fastcmdp import sweep as sweeps
spec = sweeps.Sweep([sweeps.Models(generator="garnet", settings={"n_states": 5, "gamma": 0.8})], ["pd-anpg"],
                    samples=[1e4], replicates=2)
sweeps.run(spec, sys.argv[1], engine="processes", workers=1)
"""

HOLDER = """
import sys, time
from fastcmdp.sweep import Store
store = Store(sys.argv[1])
store.claims.begin({})
store.claims.claim([name.encode() for name in sys.argv[2:]])
print("claimed", flush=True)
while True:
    time.sleep(0.1)
    store.claims.beat()
"""


def small():
    models = [Models(generator="garnet", settings={"n_states": 5, "gamma": 0.8})]
    return Sweep(models, ["pd-anpg"], samples=[1e4], replicates=4, points=4)


def test_a_script_without_a_main_guard_is_told_at_once(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "out")]
    made = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert made.returncode == 1
    last = made.stderr[made.stderr.rindex("SettingError") :]
    assert "needs a main guard" in last
    assert (
        "a sweep is begun while a process of the same script starts" in made.stderr
    )  # before it did anything
    assert 'if __name__ == "__main__":' in last
    assert not list((tmp_path / "out" / "claims").iterdir())
    guarded = SCRIPT.replace("sweeps.run(", 'if __name__ == "__main__": sweeps.run(')
    (tmp_path / "script.py").write_text(guarded)
    assert subprocess.run(command, timeout=100).returncode == 0
    assert sweeps.status(tmp_path / "out").finished


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder of which another process has one task under way; that process."""
    monkeypatch.setattr(claims, "LEASE", 3.0)
    path = tmp_path / "out"
    made = prepare.prepare(small(), Store(path), False, lambda _: None)
    command = [sys.executable, "-c", HOLDER, str(path), made.name[1].decode()]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"claimed\n"
        yield path, other
        other.kill()


def test_a_stopped_session_is_named_and_its_tasks_are_taken_over(shared):
    path, other = shared
    notes = []
    other.send_signal(signal.SIGSTOP)
    found = sweeps.run(small(), path, progress=lambda state: notes.append(state.note))
    assert (found.new, found.finished) == (4, True)
    told = " ".join(notes)
    assert f"process {other.pid}" in told
    assert re.search(r"has given no sign of life for \d+ s: its tasks are computed here", told)


def test_a_stopped_session_is_named_before_it_is_given_up(shared, monkeypatch):
    path, other = shared
    monkeypatch.setattr(claims, "LEASE", 1e6)
    monkeypatch.setattr(claims, "QUIET", 2.0)
    notes = []

    def tell(state):
        notes.append(state.note)
        if "no sign of life" in state.note:
            other.kill()

    other.send_signal(signal.SIGSTOP)
    assert sweeps.run(small(), path, progress=tell).new == 4
    told = " ".join(notes)
    assert f"process {other.pid}" in told
    assert "is it stopped?" in told
    assert "after 1e+06 s they are computed here" in told


def test_without_progress_it_is_a_warning(shared):
    path, other = shared
    other.send_signal(signal.SIGSTOP)
    with pytest.warns(RuntimeWarning, match=rf"process {other.pid}\) has given no sign of life"):
        assert sweeps.run(small(), path).finished


def test_a_session_that_moves_keeps_its_tasks_and_is_named(shared):
    path, other = shared
    notes, seen = [], []

    def tell(state):
        notes.append(state.note)
        if not state.tasks:
            return
        seen.append(time.monotonic())
        if state.done == 3 and seen[-1] - seen[0] > 2 * claims.LEASE:
            other.kill()  # its lock is free then: no lease is waited for

    assert sweeps.run(small(), path, progress=tell).new == 4
    assert other.wait(30) == -signal.SIGKILL  # not before it was killed was its task taken
    assert f"waiting for 1 tasks that session {_session(path, other.pid)}" in " ".join(notes)
    assert "no sign of life" not in " ".join(notes)


def _session(path, process):
    (name,) = [
        p.stem for p in (path / "sessions").iterdir() if json.loads(p.read_text())["process"] == process
    ]
    return name


def test_a_lock_that_is_never_given_back_is_named_and_done_without(monkeypatch, tmp_path):
    monkeypatch.setattr(claims, "LEASE", 1.0)
    path = tmp_path / "out"
    prepare.prepare(small(), Store(path), False, lambda _: None)
    handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        notes = []
        found = sweeps.run(small(), path, progress=lambda state: notes.append(state.note))
    finally:
        os.close(handle)
    assert found.finished
    told = " ".join(notes)
    assert f"waiting for the lock of {path}" in told
    assert "goes on without it" in told
    assert told.count("going on without it") == 1


@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir"])
def test_a_full_disk_is_told_with_the_file(call, monkeypatch, tmp_path):
    """Whichever call finds the disk full: the message names a file of the folder, and the same call goes on."""
    import errno

    real, path = getattr(os, call), tmp_path / "out"
    for n in range(1, 200):
        left = [n]

        def full(*given, left=left, **named):
            left[0] -= 1
            if left[0] == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*given, **named)

        monkeypatch.setattr(os, call, full)
        told = ""
        try:
            sweeps.run(small(), path, workers=1)
        except sweeps.StoreError as error:
            told = str(error)
        monkeypatch.setattr(os, call, real)
        if left[0] > 0:
            break
        if told:
            assert str(path) in told
            assert "Free some space" in told
            assert "Errno" not in told
    assert n > 1
    assert sweeps.run(small(), path).finished


def test_a_linked_file_of_the_folder_stays_a_link(tmp_path):
    """Its folder is elsewhere perhaps: what it points to is replaced, with the mode that it had."""
    path, real = tmp_path / "out", tmp_path / "real.toml"
    sweeps.run(small(), path)
    (path / "spec.toml").rename(real)
    (path / "spec.toml").symlink_to(real)
    real.chmod(0o640)
    more = Sweep(small().grids, ["pd-anpg"], samples=[1e4, 2e4], replicates=4, points=4)
    sweeps.run(more, path, extend=True)
    assert (path / "spec.toml").is_symlink()
    assert sweeps.loads(real.read_text()) == more
    assert real.stat().st_mode & 0o777 == 0o640
