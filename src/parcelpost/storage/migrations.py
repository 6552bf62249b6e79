"""The schema's history: numbered SQL files, each applied with its record in one transaction."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

from msgspec import Struct

from parcelpost.errors import MigrationEdited, NotAStore, StoreTooNew

APPLICATION_ID = 0x50504F53
"""Written into the file's header ("PPOS"): tells our files from other programs'."""

IDENTITY = "SELECT (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)"
"""Whose file it is and whether it has tables, of one state: somebody else may be making the store just now."""

_FOLDER = Path(__file__).with_name("migrations")

_VERSION_TABLE = """
CREATE TABLE IF NOT EXISTS schema_version (
    version     INTEGER PRIMARY KEY,
    applied_at  TEXT NOT NULL,
    description TEXT NOT NULL,
    checksum    TEXT NOT NULL
) STRICT
"""


class Migration(Struct, frozen=True):
    version: int
    description: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def load(folder: Path = _FOLDER) -> list[Migration]:
    """`0001_initial.sql` is version 1; the first comment line describes it."""
    found = []
    for file in sorted(folder.glob("[0-9]*.sql")):
        sql = file.read_text(encoding="utf-8")
        description = sql.splitlines()[0].removeprefix("--").strip()
        found.append(Migration(int(file.stem.split("_")[0]), description, sql))
    return found


def version(db: sqlite3.Connection) -> int:
    """0 for an empty file. Raises NotAStore for a database that is not ours."""
    application_id, tables = db.execute(IDENTITY).fetchone()
    if application_id == APPLICATION_ID:
        try:
            return int(db.execute("SELECT max(version) FROM schema_version").fetchone()[0])
        except (sqlite3.OperationalError, TypeError):
            raise NotAStore("the file has our mark but not our tables") from None
    if tables:
        raise NotAStore("the file is a database of another program")
    return 0


def pending(db: sqlite3.Connection, migrations: list[Migration]) -> list[Migration]:
    """What is still to be applied. Raises StoreTooNew or MigrationEdited where this program must not touch the file."""
    current = version(db)
    known = {migration.version: migration for migration in migrations}
    newest = max(known, default=0)
    if current > newest:
        raise StoreTooNew(f"the store has schema version {current}, this program knows {newest}")
    if current:
        for number, checksum in db.execute("SELECT version, checksum FROM schema_version"):
            if number not in known or known[number].checksum != checksum:
                raise MigrationEdited(f"migration {number} was applied to this store in another form")
    return [migration for migration in migrations if migration.version > current]


def apply(db: sqlite3.Connection, migrations: list[Migration], now: str) -> list[int]:
    """Applies what is pending, each in its own transaction; another process may do the same at the same time."""
    applied = []
    while todo := pending(db, migrations):
        migration = todo[0]
        db.execute("BEGIN IMMEDIATE")
        try:
            if version(db) < migration.version:
                _apply_one(db, migration, now)
                applied.append(migration.version)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
    return applied


def _apply_one(db: sqlite3.Connection, migration: Migration, now: str) -> None:
    db.execute(_VERSION_TABLE)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for statement in _statements(migration.sql):
        db.execute(statement)
    db.execute(
        "INSERT INTO schema_version (version, applied_at, description, checksum) VALUES (?, ?, ?, ?)",
        (migration.version, now, migration.description, migration.checksum),
    )


def _statements(sql: str) -> list[str]:
    found, current = [], ""
    for line in sql.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return [*found, current] if current.strip() else found
