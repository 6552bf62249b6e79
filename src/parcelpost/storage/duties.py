"""Duties that only one of several processes on a store may have: delivering, housekeeping.

A duty is a lock that the kernel drops when its process dies; another process takes it over at its next turn.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from parcelpost.storage.sqlite_errors import os_error


class Duties:
    def __init__(self, live: Path) -> None:
        self._live = live
        self._held: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Whether this opener has the duty from now on, until it leaves. Cheap to ask again and again.

        Raises a StoreError where the lock's file cannot be made.
        """
        if name in self._held:
            return True
        path = self._live / f"{name}.duty"
        try:
            handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise os_error(error, path) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except OSError as error:
            os.close(handle)
            raise os_error(error, path) from error
        self._held[name] = handle
        return True

    def leave(self, prefix: str = "") -> None:
        """Gives up those whose names begin with that."""
        for name in [name for name in self._held if name.startswith(prefix)]:
            os.close(self._held.pop(name))

    def is_any_held(self, prefix: str) -> bool:
        """Whether another opener has one whose name begins with that."""
        for path in self._live.glob(f"{prefix}*.duty"):
            if path.stem in self._held:
                continue
            try:
                handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
            finally:
                os.close(handle)
        return False
