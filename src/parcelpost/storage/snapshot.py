"""Copies of a database file, and SQLite's own check of one."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from parcelpost.errors import BackupFailed
from parcelpost.storage import durable_files

_STEP_PAGES = 2_000


def snapshot(source: Path, destination: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Copies `source` to `destination` (mode 600, one file, no WAL), verified, or raises BackupFailed.

    Safe while others write: never a file copy of a live WAL database.
    """
    durable_files.make_folder(destination.parent)
    partial = destination.with_name(f"{destination.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        _copy(source, partial, progress)
        problems = file_problems(partial)
        if problems:
            raise BackupFailed(f"the copy of {source} is not whole: {problems[0]}")
        durable_files.sync_path(partial)
        partial.replace(destination)
        durable_files.sync_path(destination.parent)
    except (sqlite3.Error, OSError) as error:
        raise BackupFailed(f"could not copy {source} to {destination}: {error}") from error
    finally:
        for leftover in (partial, *(partial.with_name(partial.name + end) for end in ("-journal", "-wal", "-shm"))):
            leftover.unlink(missing_ok=True)


def copies(store: Path) -> str:
    """How the names of a store's copies in `backups/` begin: no other store of the folder has the same."""
    return store.stem if store.suffix == ".db" else store.name


def file_problems(path: Path, *, quick: bool = False) -> list[str]:
    """What SQLite's own check finds wrong; empty when the file is whole."""
    check = "quick_check" if quick else "integrity_check"
    try:
        with contextlib.closing(_open_read_only(path)) as db:
            rows = [str(row[0]) for row in db.execute(f"PRAGMA {check}(20)")]
    except sqlite3.DatabaseError as error:
        return [str(error)]
    return [] if rows == ["ok"] else rows


def _copy(source: Path, partial: Path, progress: Callable[[int, int], None] | None) -> None:
    def report(_status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    with contextlib.closing(_open_read_only(source)) as old, contextlib.closing(sqlite3.connect(partial)) as new:
        # One read transaction around the steps: they all see one state, and a busy writer cannot start them over.
        old.execute("BEGIN")
        old.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        old.backup(new, pages=_STEP_PAGES, progress=report)
        old.execute("ROLLBACK")
        new.execute("PRAGMA journal_mode = DELETE")


def _open_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10, isolation_level=None)


DAMAGE_STATE = "damage"
_MOST = 20
_STEPS_BETWEEN_LOOKS = 100_000


class DamageNote(Struct, frozen=True, kw_only=True):
    """A worker came upon a damaged page of the file and goes on around it."""

    at: datetime


def never() -> bool:
    """A check is not broken off."""
    return False


def integrity_problems(
    db: sqlite3.Connection, *, deep: bool = False, is_over: Callable[[], bool] = never
) -> list[str] | None:
    """What is wrong with the file and its references; empty when it is whole, None when it took too long.

    `deep`: every index is compared with its table, too.
    """
    db.set_progress_handler(lambda: int(is_over()), _STEPS_BETWEEN_LOOKS)
    try:
        found = [str(row[0]) for row in db.execute(f"PRAGMA {'integrity' if deep else 'quick'}_check({_MOST})")]
        if found != ["ok"]:
            return found
        broken = [f"{row[0]} row {row[1]} names a missing {row[2]}" for row in db.execute("PRAGMA foreign_key_check")]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return None
    finally:
        db.set_progress_handler(None, 0)
    return broken[:_MOST]
