"""Translates SQLite and OS errors into the StoreErrors of errors.py."""

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
"""Raised by binding a lone surrogate or a number beyond 64 bits."""

_UNDECODABLE = (UnicodeDecodeError, msgspec.DecodeError)
"""Raised by reading a text whose bytes are damaged on disk."""

MAY_BE_DAMAGE = (sqlite3.DatabaseError, *_UNDECODABLE)
"""Errors that a damaged page may raise; see `is_damage`."""

_NO_ROOM_BYTES = 256 * 1024
_NO_INODES = 4


_WRONG_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)


def primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_damage(error: Exception) -> bool:
    """Whether the error means a damaged page: SQLite reports it, or a text cannot be decoded."""
    return _is_undecodable(error) or (
        isinstance(error, sqlite3.DatabaseError) and primary_code(error) == sqlite3.SQLITE_CORRUPT
    )


def _is_undecodable(error: Exception) -> bool:
    return isinstance(error, _UNDECODABLE) or (isinstance(error, sqlite3.OperationalError) and "decode" in str(error))


def translate(error: Exception, path: Path) -> Exception:
    """Returns the error as a ParcelpostError. A violated constraint is a bug and is returned unchanged."""
    if _is_undecodable(error):
        return StoreCorrupt(f"{path}: a stored value is damaged: {error!s:.200}")
    if isinstance(error, UNBINDABLE):
        return InvalidInput(f"SQLite cannot store this value: {error}")
    if not isinstance(error, sqlite3.Error):
        return error
    code = primary_code(error)
    if code == sqlite3.SQLITE_TOOBIG or isinstance(error, sqlite3.DataError):
        return InvalidInput(f"too large for SQLite: {error}")
    meaning = _MEANING.get(code)
    if meaning is None:
        return error
    may_be_full = meaning in (StoreFailed, StoreFull) or code == sqlite3.SQLITE_CANTOPEN  # SQLite creates files, too
    if may_be_full and (full := _full(path, str(error))):
        return full
    return meaning(f"{path}: {error}")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    try:
        yield
    except ParcelpostError:
        raise
    except (sqlite3.Error, *UNBINDABLE, *_UNDECODABLE) as error:
        raise translate(error, path) from error


def os_error(error: OSError, path: Path) -> StoreError:
    """Returns a StoreError for a failed system call on the store's files."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full(path, str(error.strerror)) or StoreFull(f"{path}: {error.strerror}")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreReadOnly(f"{path}: {error.strerror}")
    hint = "check the path: one of its folders does not exist, or is a file" if error.errno in _WRONG_PATH else ""
    return StoreFailed(f"{path}: {error.strerror or error}", hint=hint)


def _full(path: Path, error: str) -> StoreFull | None:
    """Returns None if the disk has free bytes and inodes."""
    try:
        room = durable_files.room(next(folder for folder in path.parents if folder.exists()))
    except OSError:
        return None
    if room.free_inodes < _NO_INODES:
        hint = (
            "delete files from that disk ('df -i' shows its inodes), or delivered results with "
            "'parcelpost store clean --free-space'; more free space does not help"
        )
        return StoreFull(f"{path}: the disk has no free inodes, so no file can be created ({error})", hint=hint)
    if room.free_bytes < _NO_ROOM_BYTES:
        return StoreFull(f"{path}: the disk is full ({error})")
    return None
