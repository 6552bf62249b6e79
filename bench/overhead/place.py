"""Where a store with many raw files is measured, so that what was deleted before does not count.

For some minutes ext4 does not use the inodes of deleted files again, and each file made in that part of the disk looks
at all of them: after a few thousand deletions it costs ten times as much. So nothing is deleted between measurements,
and each gets another part of the disk where the file system can be told so.
"""

from __future__ import annotations

import array
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.store.disk import scratch

_GET_FLAGS, _SET_FLAGS, _TOP_FOLDER = 0x80086601, 0x40086602, 0x00020000  # linux/fs.h


@contextmanager
def spreading(parent: Path) -> Iterator[Path]:
    """A folder for `fresh`, gone afterwards."""
    with scratch(parent) as folder:
        _spread(folder)
        yield folder


def fresh(folder: Path) -> Path:
    """A new folder, with nothing left for the kernel to write."""
    made = Path(tempfile.mkdtemp(dir=folder))
    os.sync()
    return made


def _spread(folder: Path) -> None:
    """As `chattr +T`: the folders in it have nothing to do with each other."""
    if os.uname().sysname != "Linux":
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # another file system
            flags = array.array("l", [0])
            fcntl.ioctl(handle, _GET_FLAGS, flags)
            flags[0] |= _TOP_FOLDER
            fcntl.ioctl(handle, _SET_FLAGS, flags)
    finally:
        os.close(handle)
