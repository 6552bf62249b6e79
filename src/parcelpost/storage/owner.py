"""Who has the store open: one lock file per opener, whose lock the kernel drops when its process dies.

A lock says more than a process id: ids are used again, and mean nothing across containers that share a volume.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from pathlib import Path

import msgspec

from parcelpost.clock import Clock, iso

_OWNER_ID = re.compile(r"[A-Za-z0-9_.-]+-\d+-[0-9a-f]{8}")


class Facts(msgspec.Struct, frozen=True):
    """What a lock file says about its owner."""

    pid: int
    worker: str
    synchronous: str
    since: str


class Owner:
    """This opener's own lock. `id` is what a claimed task names as its holder (I9)."""

    def __init__(self, folder: Path, owner_id: str, lock: int) -> None:
        self.id = owner_id
        self._folder = folder
        self._lock = lock

    @classmethod
    def take(cls, folder: Path, worker: str, synchronous: str, clock: Clock) -> Owner:
        """Call with the gate held: nobody may look for the dead between the file's making and its lock."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", worker)[:40] or "worker"
        owner_id = f"{name}-{os.getpid()}-{secrets.token_hex(4)}"
        lock = os.open(_lock_path(folder, owner_id), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        owner = cls(folder, owner_id, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            facts = Facts(os.getpid(), worker, synchronous, iso(clock.now()))
            os.write(lock, msgspec.json.encode(facts))
            os.fsync(lock)
        except OSError:
            owner.leave()
            raise
        return owner

    def leave(self) -> None:
        """A file that cannot be removed is taken for a dead owner's by the next opener."""
        with contextlib.suppress(OSError):
            _lock_path(self._folder, self.id).unlink(missing_ok=True)
        os.close(self._lock)


def is_alive(folder: Path, owner_id: str) -> bool:
    if not _OWNER_ID.fullmatch(owner_id):
        return False
    try:
        lock = os.open(_lock_path(folder, owner_id), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def others(folder: Path, own_id: str = "") -> tuple[list[str], list[str]]:
    """The owners alive and the owners dead without a goodbye, by id."""
    alive: list[str] = []
    dead: list[str] = []
    for file in sorted(folder.glob("*.lock")):
        if file.stem != own_id:
            (alive if is_alive(folder, file.stem) else dead).append(file.stem)
    return alive, dead


def facts(folder: Path, owner_id: str) -> Facts | None:
    """None when a power cut took the file's content."""
    if not _OWNER_ID.fullmatch(owner_id):
        return None
    try:
        return msgspec.json.decode(_lock_path(folder, owner_id).read_bytes(), type=Facts)
    except (OSError, msgspec.DecodeError):
        return None


def bury(folder: Path, owner_id: str) -> None:
    """Forgets a dead owner, once all it held was brought back."""
    if _OWNER_ID.fullmatch(owner_id):
        _lock_path(folder, owner_id).unlink(missing_ok=True)


def _lock_path(folder: Path, owner_id: str) -> Path:
    return folder / f"{owner_id}.lock"
