"""A look at a file before it is opened for writing, so that another program's file is never touched."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from parcelpost.errors import NotAStore
from parcelpost.storage.migrations import APPLICATION_ID, IDENTITY, version
from parcelpost.storage.sqlite_errors import primary_code

_SMALLEST_PAGE = 512  # SQLite takes a shorter file for an empty one


def problem(path: Path) -> str:
    """Why the file cannot be a store; empty if it can. An empty file can become one.

    SQLite does the looking, never a plain open(): closing any other handle of a database file drops the locks that
    this process holds on it (POSIX), and a sister process would then take the store for closed.
    """
    if not path.is_file():
        return "is not a file"
    size = path.stat().st_size
    if size < _SMALLEST_PAGE:
        return "is not an SQLite database" if size else ""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)) as db:
            application_id, tables = db.execute(IDENTITY).fetchone()
            if application_id == APPLICATION_ID:
                version(db)
    except NotAStore as error:
        return f"is no store of ours: {error}"
    except UnicodeDecodeError:
        return ""
    except sqlite3.Error as error:
        # Busy, unreadable or damaged: that is for the opening itself to say.
        return "is not an SQLite database" if primary_code(error) == sqlite3.SQLITE_NOTADB else ""
    return "is a database of another program" if tables and application_id != APPLICATION_ID else ""
