"""Verified copies of a database file, and SQLite's integrity check."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from parcelpost.errors import BackupFailed
from parcelpost.storage import durable_files

_STEP_PAGES = 2_000


def snapshot(source: Path, destination: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Copies `source` to `destination` (mode 600, one file, no WAL) and verifies the copy. Raises BackupFailed.

    Safe while other processes write.
    """
    try:
        with durable_files.atomic_file(destination) as partial:
            _copy(source, partial, progress)
            if problems := file_problems(partial):
                raise BackupFailed(f"the copy of {source} is damaged: {problems[0]}")
    except (sqlite3.Error, OSError) as error:
        raise BackupFailed(f"cannot copy {source} to {destination}: {error}") from error


def copies(store: Path) -> str:
    """Returns the name prefix of a store's copies in `backups/`, unique among the stores of a folder."""
    return store.stem if store.suffix == ".db" else store.name


def file_problems(path: Path) -> list[str]:
    """Returns what the deep integrity check finds, an empty list for an intact file."""
    try:
        with contextlib.closing(open_read_only(path)) as db:
            return integrity_problems(db, deep=True) or []
    except sqlite3.DatabaseError as error:
        return [str(error)]


def _copy(source: Path, partial: Path, progress: Callable[[int, int], None] | None) -> None:
    def report(_status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    with contextlib.closing(open_read_only(source)) as old, contextlib.closing(sqlite3.connect(partial)) as new:
        # One read transaction, so that all steps see the same state and a busy writer cannot restart them.
        old.execute("BEGIN")
        old.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        old.backup(new, pages=_STEP_PAGES, progress=report)
        old.execute("ROLLBACK")
        new.execute("PRAGMA journal_mode = DELETE")


def open_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10, isolation_level=None)


DAMAGE_STATE = "damage"
_MAX_PROBLEMS = 20
_STEPS_BETWEEN_CHECKS = 100_000


class DamageNote(Struct, frozen=True, kw_only=True):
    """When a worker found a damaged page of the file, which it skips."""

    at: datetime


def never() -> bool:
    return False


def integrity_problems(
    db: sqlite3.Connection, *, deep: bool = False, is_over: Callable[[], bool] = never
) -> list[str] | None:
    """Returns what is wrong with the file and its references; None if `is_over` interrupted the check.

    `deep` also compares every index with its table.
    """
    db.set_progress_handler(lambda: int(is_over()), _STEPS_BETWEEN_CHECKS)
    try:
        problems = [
            str(row[0]) for row in db.execute(f"PRAGMA {'integrity' if deep else 'quick'}_check({_MAX_PROBLEMS})")
        ]
        if problems != ["ok"]:
            return problems
        broken = [
            f"{row[0]} row {row[1]} refers to a missing {row[2]}" for row in db.execute("PRAGMA foreign_key_check")
        ]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return None
    finally:
        db.set_progress_handler(None, 0)
    return broken[:_MAX_PROBLEMS]
