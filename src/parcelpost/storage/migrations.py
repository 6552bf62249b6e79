"""Schema migrations: numbered SQL files, each applied and recorded in one transaction."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

from msgspec import Struct

from parcelpost.errors import MigrationEdited, NotAStore, StoreTooNew

APPLICATION_ID = 0x50504F53
""""PPOS" in the header of the file distinguishes stores from other programs' databases."""

IDENTITY = "SELECT (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)"
"""Application id and number of tables in one statement: another process may be creating the store."""

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
    """Loads numbered files: `0001_initial.sql` is version 1, described by its first comment line."""
    migrations = []
    for file in sorted(folder.glob("[0-9]*.sql")):
        sql = file.read_text(encoding="utf-8")
        description = sql.splitlines()[0].removeprefix("--").strip()
        migrations.append(Migration(int(file.stem.split("_")[0]), description, sql))
    return migrations


def version(db: sqlite3.Connection) -> int:
    """Returns the schema version, 0 for an empty file. Raises NotAStore for another program's database."""
    application_id, tables = db.execute(IDENTITY).fetchone()
    if application_id == APPLICATION_ID:
        try:
            return int(db.execute("SELECT max(version) FROM schema_version").fetchone()[0])
        except (sqlite3.OperationalError, TypeError):
            raise NotAStore("the file has the application ID of a store but not its tables") from None
    if tables:
        raise NotAStore("the file is another program's database")
    return 0


def pending(db: sqlite3.Connection, migrations: list[Migration]) -> list[Migration]:
    """Returns the migrations to apply. Raises StoreTooNew or MigrationEdited."""
    current = version(db)
    known = {migration.version: migration for migration in migrations}
    newest = max(known, default=0)
    if current > newest:
        raise StoreTooNew(f"the store has schema version {current}, this program supports versions up to {newest}")
    if current:
        for number, checksum in db.execute("SELECT version, checksum FROM schema_version"):
            if number not in known or known[number].checksum != checksum:
                raise MigrationEdited(f"migration {number} has changed since it was applied to this store")
    return [migration for migration in migrations if migration.version > current]


def apply(db: sqlite3.Connection, migrations: list[Migration], now: str) -> list[int]:
    """Applies pending migrations, each in its own transaction. Another process may do the same concurrently."""
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
    statements, current = [], ""
    for line in sql.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return [*statements, current] if current.strip() else statements
