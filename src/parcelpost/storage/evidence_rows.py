"""The rows that name evidence: each function is one change or one look, run inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from typing import Any

_BATCH = 500

_ADD = """
INSERT INTO evidence (task_id, screenshot_path, log_path, bytes, created_at)
SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM tasks WHERE task_id = ?1)
"""
_DROP = "DELETE FROM evidence WHERE task_id = ? RETURNING screenshot_path, log_path"

_OLD = "SELECT task_id FROM evidence WHERE created_at < ? ORDER BY created_at LIMIT ?"
_ANY = "SELECT task_id FROM evidence LIMIT ?"
_OUTLIVED = """
SELECT e.task_id FROM evidence AS e JOIN results AS r ON r.task_id = e.task_id JOIN tasks AS t ON t.task_id = e.task_id
WHERE t.status = 'completed' AND r.data IS NOT NULL LIMIT ?
"""


def add(db: sqlite3.Connection, row: tuple[Any, ...]) -> list[str] | None:
    """Answers the files that the task had before. None: there is no such task."""
    before = drop_of(db, row[0])
    return before if db.execute(_ADD, row).rowcount else None


def drop_of(db: sqlite3.Connection, task_id: str) -> list[str]:
    """Answers the files, which nothing names any more."""
    # A record's own paths are not evidence, and stay.
    forget = "UPDATE results SET screenshot_path = NULL, log_path = NULL WHERE task_id = ? AND data IS NULL"
    gone = db.execute(_DROP, (task_id,)).fetchall()
    if gone:
        db.execute(forget, (task_id,))
    return [path for row in gone for path in row if path]


def drop(db: sqlite3.Connection, before: str | None) -> list[list[str]]:
    """A batch of what is older (None: of all) or has been outlived by a record: the files of each task."""
    old = db.execute(_ANY, (_BATCH,)) if before is None else db.execute(_OLD, (before, _BATCH))
    found = old.fetchall() or db.execute(_OUTLIVED, (_BATCH,)).fetchall()
    return [drop_of(db, task_id) for (task_id,) in found]


def get(db: sqlite3.Connection, task_id: str) -> tuple[str | None, str | None, str] | None:
    found = "SELECT screenshot_path, log_path, created_at FROM evidence WHERE task_id = ?"
    row: tuple[str | None, str | None, str] | None = db.execute(found, (task_id,)).fetchone()
    return row


def named(db: sqlite3.Connection) -> set[str]:
    """The files of all tasks."""
    return {path for row in db.execute("SELECT screenshot_path, log_path FROM evidence") for path in row if path}


def task_ids(db: sqlite3.Connection) -> set[str]:
    return {task_id for (task_id,) in db.execute("SELECT task_id FROM evidence")}


def size(db: sqlite3.Connection) -> int:
    """What all of it takes on disk."""
    total: int = db.execute("SELECT coalesce(sum(bytes), 0) FROM evidence").fetchone()[0]
    return total
