"""Connections to the file, and SQLite's errors in our words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from parcelpost.clock import iso
from parcelpost.errors import InvalidInput, LedgerError, LedgerUnavailable
from parcelpost.gateway.sql import schema
from parcelpost.system import make_private

BUSY_SECONDS = 10.0
"""How long a lock of another process is waited for."""

_STATEMENTS = 512  # kept prepared: bulk writes have one for each number of rows
_APPLICATION_ID = 0x50504C47  # "PPLG": whose file it is
_IDENTITY = "SELECT (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)"

_PRAGMAS = (
    "PRAGMA page_size = 8192",  # of a new file: three records of 2 KB to a page instead of one
    "PRAGMA journal_mode = WAL",  # readers and the writer do not wait for each other
    "PRAGMA synchronous = FULL",  # what was answered survives power loss
    "PRAGMA fullfsync = ON",  # macOS: fsync alone leaves the bytes in the drive's cache
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA secure_delete = OFF",  # Debian's default writes zeros over everything deleted
    "PRAGMA trusted_schema = OFF",  # a file from elsewhere runs no functions of its own
    "PRAGMA cache_size = -32000",
    "PRAGMA journal_size_limit = 67108864",
)

_SCHEMA = Path(__file__).with_name("schema")

_AWAY = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_INTERRUPT,
}


def connect(path: Path, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    db = sqlite3.connect(
        path, timeout=busy_seconds, isolation_level=None, cached_statements=_STATEMENTS, check_same_thread=False
    )
    try:
        for pragma in _PRAGMAS:
            db.execute(pragma)
    except BaseException:
        db.close()
        raise
    return db


def prepare(path: Path, now: datetime) -> None:
    """Makes the folder (mode 700) and the file (600), and brings its schema up to date, whoever else does the same."""
    try:
        make_private(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise LedgerError(f"{path}: {error.strerror}", hint="name another file with server.database") from error
    with translated(path):
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as db:
            _refuse_others(db, path)  # before any pragma has written to it
        with closing(connect(path)) as db:
            _bring_up_to_date(db, now)


def _refuse_others(db: sqlite3.Connection, path: Path) -> None:
    mark, tables = db.execute(_IDENTITY).fetchone()
    if mark != _APPLICATION_ID and tables:
        raise LedgerError(
            f"{path} is a database of another program",
            hint="name another file with server.database; it was not touched",
        )


def _bring_up_to_date(db: sqlite3.Connection, now: datetime) -> None:
    if _is_up_to_date(db):
        return
    db.execute("BEGIN EXCLUSIVE")
    try:
        db.execute(schema.VERSION_TABLE)
        (version,) = db.execute(schema.VERSION).fetchone()
        for step in schema.steps_after(version, _SCHEMA):
            for statement in _statements(step.sql):
                db.execute(statement)
            db.execute(schema.NOTE_VERSION, (step.version, iso(now)))
        db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _is_up_to_date(db: sqlite3.Connection) -> bool:
    """Looks only: who wants to read can do so while another writes, and where there is no room to write."""
    (mark, _) = db.execute(_IDENTITY).fetchone()
    if mark != _APPLICATION_ID:
        return False
    (version,) = db.execute(schema.VERSION).fetchone()
    return not schema.steps_after(version, _SCHEMA)


def _statements(sql: str) -> Iterator[str]:
    """Not executescript: it commits what is under way."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def bound(args: Sequence[Any]) -> list[Any]:
    """With moments as the file keeps them."""
    return [iso(value) if isinstance(value, datetime) else value for value in args]


def translate(error: Exception, path: Path) -> Exception:
    """A failure of the database as one of ours; a mistake of the program stays what it is."""
    if isinstance(error, UnicodeEncodeError | OverflowError | sqlite3.DataError):
        return InvalidInput(f"a value that the ledger cannot hold: {error}")
    if isinstance(error, sqlite3.DatabaseError):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _AWAY:
            return LedgerUnavailable(f"{path}: {error}")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PERM):
            return LedgerError(f"{path}: {error}")
    return error


@contextmanager
def translated(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
        translation = translate(error, path)
        if translation is error:
            raise
        raise translation from error
