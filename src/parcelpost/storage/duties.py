"""Duties that only one of several processes on a store may have: delivering, housekeeping.

A duty is a lock that the kernel drops when its process dies; another process takes it over at its next turn. From one
that lives and gives no sign of it (stopped, or stuck) it is taken by putting another file in the place of the locked
one. So whoever has a duty asks whether it still `has` it before each thing that only it may do.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from parcelpost.storage.owner import Watch, touch
from parcelpost.storage.sqlite_errors import os_error


class Duties:
    def __init__(self, live: Path, owner_id: str, watch: Watch) -> None:
        self._live = live
        self._owner_id = owner_id
        self._watch = watch
        self._held: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Whether this opener has the duty now, until it leaves or hangs. Cheap to ask again and again.

        Raises a StoreError where the lock's file cannot be made.
        """
        path = self._path(name)
        if self.has(name):
            return True
        if name in self._held:
            os.close(self._held.pop(name))
        try:
            handle = _locked(path)
            if handle is None and self._watch.is_hung(path.name):
                handle = self._taken_over(path)
        except OSError as error:
            raise os_error(error, path) from error
        if handle is None:
            return False
        self._held[name] = handle
        return True

    def has(self, name: str) -> bool:
        """Whether it was taken, and not lost since: a process that was stopped may have lost it."""
        return name in self._held and _is_at(self._path(name), self._held[name])

    def beat(self) -> None:
        """A sign of life."""
        for handle in self._held.values():
            touch(handle)

    def leave(self, prefix: str = "") -> None:
        """Gives up those whose names begin with that."""
        for name in [name for name in self._held if name.startswith(prefix)]:
            os.close(self._held.pop(name))

    def is_any_held(self, prefix: str) -> bool:
        """Whether another opener has one whose name begins with that."""
        for path in self._live.glob(f"{prefix}*.duty"):
            if path.stem not in self._held:
                handle = _locked(path)
                if handle is None:
                    return True
                os.close(handle)
        return False

    def _path(self, name: str) -> Path:
        return self._live / f"{name}.duty"

    def _taken_over(self, path: Path) -> int | None:
        """A lock of our own in the place of that of a process that hangs. None: a peer was quicker, or it is back."""
        gate = _locked(self._live / "takeover")
        if gate is None:
            return None
        try:
            if not self._watch.is_hung(path.name):
                return None
            new = path.with_name(f"{path.name}.{self._owner_id}")
            new.unlink(missing_ok=True)
            handle = _locked(new)
            new.replace(path)
            return handle
        finally:
            os.close(gate)


def _locked(path: Path) -> int | None:
    """The file, made if it is not there, locked and touched; None: another has it."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, handle):  # and was not replaced since it was opened
            touch(handle)
            return handle
    except BlockingIOError:
        pass
    except OSError:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _is_at(path: Path, handle: int) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
