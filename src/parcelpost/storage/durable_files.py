"""Getting files onto the disk for good."""

from __future__ import annotations

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
