"""A disk of our own: an ext4 image on a loop mount, which can lose its power, be full, or be read-only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN
_WITHOUT_LOG_FLUSH = 2
_BLOCK_BYTES = 4096
"""Of the file system and of one write to the device: a page of the image, which has room or has none."""
_MKFS = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def why_not() -> str:
    """Why there cannot be such a disk here; empty if there can."""
    if sys.platform != "linux":
        return "needs Linux"
    if os.geteuid() != 0:
        return "needs root, to mount a disk image"
    if _MKFS is None:
        return "needs mkfs.ext4 (e2fsprogs)"
    if not Path("/dev/loop-control").exists():
        return "needs loop devices"
    return ""


class Readers:
    """Who reads databases on a disk in this process.

    SQLite maps the index of a WAL, and a change of a mapped page that is not on the disk yet ends the process when the
    disk is full (SIGBUS). So the harness reads none then; what it hurts may do so.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._are_sent_away = False

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        with self._changed:
            if self._are_sent_away:
                raise sqlite3.OperationalError("its disk cannot be read while it is full")
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def send_away(self) -> None:
        """Returns when there is none. Not on the event loop, where they may be."""
        with self._changed:
            self._are_sent_away = True
            self._changed.wait_for(lambda: not self._count)

    def let_in(self) -> None:
        self._are_sent_away = False


class LoopDisk:
    """Mounted at `path`. Call `remove` when done: a mount outlives the process.

    The device of a `thin` one has no more room than its files need: once `exhaust` has taken the rest, writes to new
    blocks fail although the file system has many, and so does their fsync.
    """

    def __init__(self, folder: Path, megabytes: int, inodes: int | None = None, *, thin: bool = False) -> None:
        self._kept = folder / "disk.img"
        self._platter = folder / "platter" if thin else None
        self._image = self._kept
        self.readers = Readers()
        self.path = folder / "disk"
        self.path.mkdir()
        if self._platter is not None:
            self._platter.mkdir()
            _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", self._platter)
            self._image = self._platter / "disk.img"
        with self._image.open("wb") as image:
            image.truncate(megabytes * 1024 * 1024)
        few = () if inodes is None else ("-N", str(inodes))
        _run(str(_MKFS), "-q", "-F", "-m", "0", "-b", str(_BLOCK_BYTES), *few, self._image)
        self.mount()

    def mount(self) -> None:
        """After a power cut, this replays the file system's own journal.

        On a device of its own: a program with its own view of the mounts may still have the last one, which `mount`
        would take again, without power as it is.
        """
        device = _run("losetup", "--find", "--show", self._image).strip()
        if self._platter is not None:
            # Linux 6.18 takes a write of which the image had room for a part only for one that succeeded.
            most = Path("/sys/block", Path(device).name, "queue", "max_sectors_kb")
            most.write_text(f"{_BLOCK_BYTES // 1024}")
        _run("mount", device, self.path)
        _run("losetup", "--detach", device)  # when nobody has it mounted any more

    def unmount(self) -> None:
        _run("umount", self.path)

    def make_read_only(self, is_read_only: bool) -> None:
        _run("mount", "-o", f"remount,{'ro' if is_read_only else 'rw'}", self.path)

    def cut_power(self) -> None:
        """What is not on the disk by now never will be; every call on its files fails from here on."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        finally:
            os.close(handle)

    def exhaust(self) -> None:
        """Takes the rest of a thin disk's device, until `replenish`. Raises DiskError if fsync works."""
        if self._platter is None:
            raise DiskError("not a thin disk")
        # Not mounted with `discard`: after `cut_power`, ext4 would discard blocks that it never came to free.
        _run("fstrim", self.path)
        _take_room(self._platter / "filler", 0)
        probe = self.path / "probe"
        try:
            with probe.open("wb") as file:
                file.write(os.urandom(4 * 1024 * 1024))
                os.fsync(file.fileno())
        except OSError:
            return
        self.replenish()
        raise DiskError("an fsync succeeded on an exhausted device")

    def replenish(self) -> None:
        if self._platter is not None:
            (self._platter / "filler").unlink(missing_ok=True)

    def fill(self, leave_bytes: int = 0) -> Path:
        """A file that takes all the room but so much; remove it to make room again."""
        filler = self.path / "filler"
        _take_room(filler, leave_bytes)
        return filler

    def make_room(self) -> None:
        """Removes what `fill` made, durably: it would be back after a power cut."""
        (self.path / "filler").unlink(missing_ok=True)
        handle = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def take_all_inodes(self) -> list[Path]:
        """Empty files, until no more can be made; remove some to be able again."""
        made: list[Path] = []
        folder = self.path / "fillers"
        folder.mkdir(exist_ok=True)
        while True:
            try:
                (path := folder / f"{len(made)}").touch()
            except OSError:
                return made
            made.append(path)

    def remove(self) -> None:
        self.release()
        self._kept.unlink(missing_ok=True)

    def release(self) -> None:
        """Unmounts it. The image stays."""
        _unmount(self.path)
        if self._platter is not None and self._platter.is_mount():
            subprocess.run(["cp", "--sparse=always", self._image, self._kept], capture_output=True, check=False)
            _unmount(self._platter)


def _take_room(filler: Path, leave_bytes: int) -> None:
    """In ever smaller steps: others take some, too."""
    with filler.open("ab", buffering=0) as file:
        free = shutil.disk_usage(filler.parent).free - leave_bytes
        step = 1024 * 1024
        while step >= 1024:
            try:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), min(step, max(free, 1024)))
            except OSError:
                step //= 2
            free = shutil.disk_usage(filler.parent).free - leave_bytes
            if free < 1024:
                break


def _unmount(path: Path) -> None:
    for lazily in ((), ("-l",)):  # while somebody has a file open there, only lazily
        if path.is_mount():
            subprocess.run(["umount", *lazily, path], capture_output=True, check=False)


class DiskError(Exception):
    """The kernel refused."""


def _run(*command: str | Path) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except subprocess.CalledProcessError as error:
        raise DiskError(f"{command[0]}: {error.stderr.strip()}") from error
