"""Durable file writes, free space on a disk, and a reserve for when it is full."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_FEW = 64
_NO_LIMIT = 1 << 62


class Room(NamedTuple):
    """Free space for an unprivileged process."""

    free_bytes: int
    free_inodes: int
    """A very large number if the file system has no limit."""


def room(folder: Path) -> Room:
    disk = os.statvfs(folder)
    return Room(disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else _NO_LIMIT)


def sync_handle(handle: int) -> None:
    """Returns when the file's content survives a power cut."""
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves data in the drive's cache
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(handle)


def sync_path(path: Path) -> None:
    """Like `sync_handle`, for the path of a file or folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        if hasattr(fcntl, "F_FULLFSYNC"):
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        else:
            os.fsync(handle)
    finally:
        os.close(handle)


def identity(path: str) -> tuple[int, int] | None:
    """Returns device and inode of the file at this path, None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path takes longer than the call
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


class WrittenFiles:
    """Makes files below a folder durable. Open it before they are written.

    Uses one `syncfs` for many files if the kernel reports its errors, else one fsync each. `syncfs` reports the errors
    since its handle was opened; a handle that is opened later misses those that another process was told of.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._handle = -1
        if _syncfs_is_reliable():
            with contextlib.suppress(FileNotFoundError):
                self._handle = os.open(root, os.O_RDONLY)

    def sync(self, names: Sequence[str]) -> None:
        """Skips deleted files."""
        if len(names) > _FEW and self._is_on_same_disk():
            _syncfs(self._handle, self._root)
            return
        folders: set[Path] = set()
        for file in map(self._root.joinpath, names):
            try:
                sync_path(file)
            except FileNotFoundError:
                continue
            folders.update(parent for parent in file.parents if parent == self._root or self._root in parent.parents)
        for folder in folders:
            sync_path(folder)

    def _is_on_same_disk(self) -> bool:
        """Whether no other disk was mounted there meanwhile."""
        return self._handle >= 0 and os.fstat(self._handle).st_dev == self._root.stat().st_dev

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def make_folder(folder: Path) -> None:
    """Creates the folder and its parents with mode 700."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def _syncfs_is_reliable() -> bool:
    # Before Linux 5.8 syncfs reported no write errors.
    if sys.platform != "linux":
        return False
    major, minor = platform.release().split(".")[:2]
    return (int(major), int(minor.split("-")[0])) >= (5, 8)


def _syncfs(handle: int, folder: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(handle) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(folder))


def replace(path: Path, content: bytes) -> None:
    """Writes a file atomically: after a crash it has either the old or the new content."""
    make_folder(path.parent)
    partial = path.with_name(path.name + ".partial")
    handle = os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        sync_handle(handle)
    partial.replace(path)


@contextlib.contextmanager
def atomic_file(destination: Path) -> Iterator[Path]:
    """Yields an empty file of mode 600, which replaces `destination` durably if the block ends without an error.

    Deletes SQLite's files next to it in any case. Its name has the process id, so that a file left by a crash can be
    recognized.
    """
    make_folder(destination.parent)
    partial = destination.with_name(f"{destination.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield partial
        sync_path(partial)
        partial.replace(destination)
        sync_path(destination.parent)
    finally:
        for end in ("", "-journal", "-wal", "-shm"):
            partial.with_name(partial.name + end).unlink(missing_ok=True)


RESERVE_BYTES = 4 * 1024 * 1024
RESERVE_FILES = 16
_PLENTY = 16


class Reserve:
    """Files that are deleted when the disk runs out of space or inodes. Shared by all processes on a store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fill(self) -> None:
        """Creates the files if there is plenty of space, else does nothing."""
        with contextlib.suppress(OSError):
            missing = [path for number in range(RESERVE_FILES) if not (path := self._folder / f"{number}").exists()]
            left = room(self._folder.parent)
            if not missing or left.free_bytes < _PLENTY * RESERVE_BYTES or left.free_inodes < _PLENTY * RESERVE_FILES:
                return
            make_folder(self._folder)
            for path in missing:
                _allocate(path, RESERVE_BYTES // RESERVE_FILES)

    def give_up(self) -> int:
        """Deletes the files. Returns how many bytes that freed."""
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
