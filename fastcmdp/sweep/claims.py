"""Who has which tasks under way: sessions share a folder without a server.

    DIR/.lock            held for milliseconds by whoever claims tasks or writes a part, for a second or two by whoever
                         merges parts
    DIR/sessions/*.json  one for each `sweep run`, under way or over: where, since when, with which engine
    DIR/claims/*.json    tasks that a session has under way

A claim lasts as long as its session, and a session as long as it shows life: it touches its file about once a second,
and holds a lock on it that the system takes away from a process that dies. So a session of this machine is over once
its lock is free, and any session once its file has not been touched for `LEASE`: on a machine that is gone, or stopped
(SIGSTOP). The folder's own lock is waited for as long, then done without. Where locks do not work (some network file
systems), or after that, two sessions may compute the same task: one of the two is dropped, when it is written or read.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastcmdp.sweep.durable import StoreError, json_bytes, remedy, write_durably

LEASE = 120.0  # seconds without a sign of life after which a session is taken for dead
QUIET = 10.0  # after which its silence is worth a word
_POLL = 0.02


@dataclass(frozen=True)
class Session:
    """Another session that has tasks under way.

    Attributes
    ----------
    name, host : str
    process : int
    silent : float
        Seconds since its last sign of life.
    tasks : set of bytes
        Names of what it has claimed.
    """

    name: str
    host: str
    process: int
    silent: float
    tasks: set[bytes]

    def __str__(self) -> str:
        return f"session {self.name} (host {self.host}, process {self.process})"


class Claims:
    """The claims in a folder, as one process sees them.

    Attributes
    ----------
    path : Path
        Of the sweep.
    session : str
        Name of this process's session.
    say : function of a text
        Called when something is waited for that does not come.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.session = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
        self.say: Callable[[str], object] = lambda _: None
        self._n_claims = 0
        self._lock_stuck = False
        self._lapsed: set[str] = set()  # sessions of which it was said that they are given up
        self._own: int | None = None  # the handle that holds the lock of this session's file

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """The folder's lock, which the system takes away from a process that dies; none where it cannot be had."""
        try:
            handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written ({error.strerror}). {remedy(error)}") from error
        try:
            self._acquire(handle)
            yield
        finally:
            os.close(handle)

    def _acquire(self, handle: int) -> None:
        began, said = time.monotonic(), False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._lock_stuck = False
                return
            except BlockingIOError:
                waited = time.monotonic() - began
            except OSError:  # no locks on this file system
                return
            if self._lock_stuck or waited > LEASE:
                if not self._lock_stuck:
                    self.say(f"the lock of {self.path} is still held: going on without it")
                self._lock_stuck = True
                return
            if waited > min(QUIET, LEASE / 2) and not said:
                said = True
                self.say(
                    f"waiting for the lock of {self.path}, which a process has held for {waited:.0f} s (is it "
                    f"stopped?); after {LEASE:g} s this session goes on without it"
                )
            time.sleep(_POLL)

    def begin(self, about: Mapping[str, Any]) -> None:
        """Announce this session, and clean up after those that died."""
        path = self._file(self.session)
        body = dict(about) | {"host": platform.node(), "process": os.getpid()}
        write_durably(path, json_bytes(body))
        self._own = os.open(path, os.O_RDWR)
        with contextlib.suppress(OSError):
            fcntl.flock(self._own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with self.lock():
            self._clean()

    def beat(self) -> None:
        """A sign of life."""
        with contextlib.suppress(OSError):
            os.utime(self._file(self.session))

    def end(self, about: Mapping[str, Any]) -> None:
        """Close this session: its claims are gone, what it did stays in its file."""
        for path in (self.path / "claims").glob(f"{self.session}.*.json"):
            path.unlink(missing_ok=True)
        path = self._file(self.session)
        with contextlib.suppress(OSError, ValueError, TypeError):
            write_durably(path, json_bytes(json.loads(path.read_bytes()) | dict(about) | {"over": True}))
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def claim(self, tasks: Iterable[bytes]) -> Path:
        """Tell others that these are under way here; under `lock`. ``release`` takes the path."""
        self._n_claims += 1
        path = self.path / "claims" / f"{self.session}.{self._n_claims}.json"
        fresh = path.with_name(f".{path.name}.tmp")
        try:  # whole, and not flushed: no claim outlives the machine of its session
            fresh.write_bytes(json_bytes([name.decode() for name in tasks]))
            fresh.replace(path)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror}). {remedy(error)}") from error
        return path

    def release(self, claim: Path) -> None:
        """The tasks of a claim are written, or given up."""
        claim.unlink(missing_ok=True)

    def others(self) -> list[Session]:
        """Other sessions that have tasks under way."""
        sessions: dict[str, Session | None] = {}
        for path in sorted((self.path / "claims").glob("*.json")):
            name = path.name.partition(".")[0]
            if name == self.session:
                continue
            if name not in sessions:
                sessions[name] = self._living(name)
            if (other := sessions[name]) is not None:
                with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
                    other.tasks.update({task.encode() for task in json.loads(path.read_bytes())})
        return [other for other in sessions.values() if other is not None]

    def running(self) -> list[str]:
        """Sessions under way."""
        names = (path.stem for path in sorted((self.path / "sessions").glob("*.json")))
        return [name for name in names if name == self.session or self._living(name) is not None]

    def _living(self, name: str) -> Session | None:
        """A session that is under way, as far as can be seen; else None."""
        path = self._file(name)
        try:
            body, touched = json.loads(path.read_bytes()), path.stat().st_mtime
        except (OSError, ValueError):
            return None
        if not isinstance(body, dict) or body.get("over"):
            return None
        host = str(body.get("host", "?"))
        if host == platform.node() and _is_free(path):
            return None
        self.beat()  # times of the same file system are compared, not clocks of two machines
        own = self._file(self.session)
        silent = (own.stat().st_mtime if own.exists() else time.time()) - touched
        process = body.get("process")
        other = Session(name, host, process if isinstance(process, int) else -1, max(silent, 0.0), set())
        if (
            silent >= LEASE
            and name not in self._lapsed
            and any((self.path / "claims").glob(f"{name}.*.json"))
        ):
            self._lapsed.add(name)
            self.say(f"{other} has given no sign of life for {silent:.0f} s: its tasks are computed here")
        return other if abs(silent) < LEASE else None  # nor is what was touched years ahead a sign of life

    def _file(self, session: str) -> Path:
        return self.path / "sessions" / f"{session}.json"

    def _clean(self) -> None:
        """Remove what dead sessions left: claims, and files under temporary names older than a minute."""
        living = set(self.running())
        for path in (self.path / "claims").glob("*.json"):
            if path.name.partition(".")[0] not in living:
                path.unlink(missing_ok=True)
        for folder in (self.path, *(p for p in self.path.iterdir() if p.is_dir())):
            for path in folder.glob(".*.tmp"):
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - path.stat().st_mtime > 60:
                        path.unlink()


def _is_free(path: Path) -> bool:
    """Whether nobody holds the lock of a session's file; False where that cannot be told."""
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that look do not see each other
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
