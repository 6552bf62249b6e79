"""Files that survive a power cut, the room that is left on a disk, and the reserve for the day it is full."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_FEW = 64


_NO_LIMIT = 1 << 62


class Room(NamedTuple):
    """What is left on a disk for a process without privileges."""

    free_bytes: int
    free_inodes: int
    """How many files can still be made; far more than anybody needs where the file system has no such limit."""


def room(folder: Path) -> Room:
    disk = os.statvfs(folder)
    return Room(disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else _NO_LIMIT)


def sync_handle(handle: int) -> None:
    """Returns when the file's bytes would survive a power cut."""
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves them in the drive's cache
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(handle)


def sync_path(path: Path) -> None:
    """The same for a file or a folder by name."""
    handle = os.open(path, os.O_RDONLY)
    try:
        if hasattr(fcntl, "F_FULLFSYNC"):
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        else:
            os.fsync(handle)
    finally:
        os.close(handle)


def identity(path: str) -> tuple[int, int] | None:
    """Of the file that has this name now; None: there is none."""
    try:
        about = os.stat(path)  # noqa: PTH116 - a Path takes longer to make than the look
    except (FileNotFoundError, NotADirectoryError):
        return None
    return about.st_dev, about.st_ino


def sync_many(root: Path, names: Sequence[str]) -> None:
    """Makes files under root durable, with the folders that lead to them. Those that are gone by now are passed over.

    Many at once cost one `syncfs` where the kernel reports its errors, else an fsync each.
    """
    if len(names) > _FEW and _syncfs_is_reliable():
        _syncfs(root)
        return
    folders: set[Path] = set()
    for file in map(root.joinpath, names):
        try:
            sync_path(file)
        except FileNotFoundError:
            continue
        folders.update(parent for parent in file.parents if parent == root or root in parent.parents)
    for folder in folders:
        sync_path(folder)


def make_folder(folder: Path) -> None:
    """With its parents, each of mode 700."""
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


def _syncfs(folder: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        if libc.syncfs(handle) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(handle)


def replace(path: Path, content: bytes) -> None:
    """The file holds the old content or the new, whole, whatever happens."""
    make_folder(path.parent)
    partial = path.with_name(path.name + ".partial")
    handle = os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        sync_handle(handle)
    partial.replace(path)


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
            left = room(self._folder.parent)
            if not missing or left.free_bytes < _SPARE * RESERVE_BYTES or left.free_inodes < _SPARE * RESERVE_FILES:
                return
            make_folder(self._folder)
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
