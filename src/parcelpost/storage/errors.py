"""SQLite's error codes in the words of errors.py."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from parcelpost.errors import (
    InvalidInput,
    NotAStore,
    ParcelpostError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
)
from parcelpost.storage import durable_files


class UnreadableRow(Exception):
    """A row holds what this program never wrote."""


_MEANING: dict[int, type[StoreError]] = {
    sqlite3.SQLITE_BUSY: StoreBusy,
    sqlite3.SQLITE_LOCKED: StoreBusy,
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_READONLY: StoreReadOnly,
    sqlite3.SQLITE_CANTOPEN: StoreReadOnly,
    sqlite3.SQLITE_PERM: StoreReadOnly,
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: NotAStore,
    sqlite3.SQLITE_IOERR: StoreFailed,
}

UNBINDABLE = (UnicodeEncodeError, OverflowError)
"""What binding a lone surrogate or a number beyond 64 bits raises."""

UNREADABLE = (UnicodeDecodeError, msgspec.DecodeError, UnreadableRow)
"""What reading a damaged row raises."""

_NO_ROOM_BYTES = 256 * 1024
_NO_INODES = 4


_WRONG_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)


def primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_unreadable(error: Exception) -> bool:
    """Whether the row is at fault, and not the file or the disk."""
    return isinstance(error, UNREADABLE) or (isinstance(error, sqlite3.OperationalError) and "decode" in str(error))


def translate(error: Exception, path: Path) -> Exception:
    """The same failure as one of ours; a broken constraint is a mistake of the program and stays what it is."""
    if is_unreadable(error):
        return StoreCorrupt(f"{path}: a stored value cannot be read: {error!s:.200}")
    if isinstance(error, UNBINDABLE):
        return InvalidInput(f"a value that SQLite cannot hold: {error}")
    if not isinstance(error, sqlite3.Error):
        return error
    code = primary_code(error)
    if code == sqlite3.SQLITE_TOOBIG or isinstance(error, sqlite3.DataError):
        return InvalidInput(f"too large for SQLite: {error}")
    meaning = _MEANING.get(code)
    if meaning is None:
        return error
    may_be_full = meaning in (StoreFailed, StoreFull) or code == sqlite3.SQLITE_CANTOPEN  # it makes files of its own
    if may_be_full and (full := _full(path, str(error))):
        return full
    return meaning(f"{path}: {error}")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    try:
        yield
    except ParcelpostError:
        raise
    except (sqlite3.Error, *UNBINDABLE, *UNREADABLE) as error:
        raise translate(error, path) from error


def os_error(error: OSError, path: Path) -> StoreError:
    """A failed system call on the store's files, in our words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full(path, str(error.strerror)) or StoreFull(f"{path}: {error.strerror}")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreReadOnly(f"{path}: {error.strerror}")
    hint = "check the path: a folder on the way is not there, or is a file" if error.errno in _WRONG_PATH else ""
    return StoreFailed(f"{path}: {error.strerror or error}", hint=hint)


def _full(path: Path, error: str) -> StoreFull | None:
    """None where the disk has room for more bytes, and for more files."""
    try:
        room = durable_files.room(next(folder for folder in path.parents if folder.exists()))
    except OSError:
        return None
    if room.free_inodes < _NO_INODES:
        hint = (
            "remove files from that disk ('df -i' tells how many it can have), or what was delivered with "
            "'parcelpost store clean --relieve'; free space does not help"
        )
        return StoreFull(f"{path}: its disk has no free inodes, so no file can be made ({error})", hint=hint)
    if room.free_bytes < _NO_ROOM_BYTES:
        return StoreFull(f"{path}: there is no room left on its disk ({error})")
    return None
