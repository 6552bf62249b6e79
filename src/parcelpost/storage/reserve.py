"""A little room set aside, so that a full disk does not also block the marking of what was delivered."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

RESERVE_BYTES = 4 * 1024 * 1024
_SPARE_BYTES = 16 * RESERVE_BYTES


class Reserve:
    """A file that is worth its size on the day the disk is full. Shared by all processes on a store."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fill(self) -> None:
        """Sets the room aside if there is plenty; quietly does nothing if there is not."""
        with contextlib.suppress(OSError):
            if self._path.exists() or shutil.disk_usage(self._path.parent).free < _SPARE_BYTES:
                return
            handle = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(handle, 0, RESERVE_BYTES)
                else:
                    os.write(handle, bytes(RESERVE_BYTES))
            finally:
                os.close(handle)

    def give_up(self) -> int:
        """How many bytes became free; 0 when there was nothing to give."""
        try:
            size = self._path.stat().st_size
            self._path.unlink()
        except FileNotFoundError:
            return 0
        return size
