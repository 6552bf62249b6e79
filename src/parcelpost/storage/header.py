"""A look at a file before it is opened for writing, so that another program's file is never touched."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from parcelpost.storage.migrations import APPLICATION_ID, IDENTITY
from parcelpost.storage.sqlite_errors import primary_code


def problem(path: Path) -> str:
    """Why the file cannot be a store; empty if it can. An empty file can become one.

    SQLite does the looking, never a plain open(): closing any other handle of a database file drops the locks that
    this process holds on it (POSIX), and a sister process would then take the store for closed.
    """
    if not path.is_file():
        return "is not a file"
    if path.stat().st_size == 0:
        return ""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=0)) as db:
            application_id, tables = db.execute(IDENTITY).fetchone()
    except sqlite3.Error as error:
        # Busy, unreadable or damaged: that is for the opening itself to say.
        return "is not an SQLite database" if primary_code(error) == sqlite3.SQLITE_NOTADB else ""
    return "is a database of another program" if tables and application_id != APPLICATION_ID else ""
