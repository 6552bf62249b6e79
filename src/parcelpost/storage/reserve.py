"""A little room set aside, so that a full disk does not also block the marking of what was delivered."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from parcelpost.storage import durable_files

RESERVE_BYTES = 4 * 1024 * 1024
RESERVE_FILES = 16
_SPARE = 16


class Reserve:
    """Files that are worth their size, and their inodes, on the day the disk has no more of either.

    Shared by all processes on a store.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fill(self) -> None:
        """Sets the room aside if there is plenty; quietly does nothing if there is not."""
        with contextlib.suppress(OSError):
            missing = [path for number in range(RESERVE_FILES) if not (path := self._folder / f"{number}").exists()]
            room = durable_files.room(self._folder.parent)
            if not missing or room.free_bytes < _SPARE * RESERVE_BYTES or room.free_inodes < _SPARE * RESERVE_FILES:
                return
            durable_files.make_folder(self._folder)
            for path in missing:
                _allocate(path, RESERVE_BYTES // RESERVE_FILES)

    def give_up(self) -> int:
        """How many bytes became free, and with them inodes; 0 when there was nothing to give."""
        given_up = 0
        for number in range(RESERVE_FILES):
            with contextlib.suppress(FileNotFoundError):
                path = self._folder / f"{number}"
                size = path.stat().st_size
                path.unlink()
                given_up += size
        return given_up


def _allocate(path: Path, size: int) -> None:
    handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
        else:
            os.write(handle, bytes(size))
    finally:
        os.close(handle)
