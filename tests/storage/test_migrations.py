"""The schema's history: each step whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from parcelpost.errors import MigrationEdited, StoreTooNew
from parcelpost.storage import migrations

FIRST = "-- People\nCREATE TABLE people (name TEXT NOT NULL) STRICT;\nINSERT INTO people VALUES ('Ann');\n"
SECOND = """-- Where they live
ALTER TABLE people ADD COLUMN city TEXT;
CREATE TRIGGER shout AFTER INSERT ON people BEGIN
    UPDATE people SET name = upper(name) WHERE rowid = NEW.rowid;
    UPDATE people SET city = 'x; y' WHERE rowid = NEW.rowid;
END;
"""
NOW_TEXT = "2026-01-01T00:00:00.000Z"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "migrations"
    found.mkdir()
    (found / "0001_people.sql").write_text(FIRST)
    return found


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(tmp_path / "some.db", isolation_level=None)) as opened:
        yield opened


def apply(db: sqlite3.Connection, folder: Path) -> list[int]:
    return migrations.apply(db, migrations.load(folder), NOW_TEXT)


def test_a_fresh_file_gets_every_migration_with_its_record(db: sqlite3.Connection, folder: Path) -> None:
    assert migrations.version(db) == 0
    (folder / "0002_cities.sql").write_text(SECOND)
    (folder / "notes.sql").write_text("not a migration")
    assert apply(db, folder) == [1, 2]
    assert migrations.version(db) == 2
    recorded = db.execute("SELECT version, applied_at, description, checksum FROM schema_version").fetchall()
    assert recorded == [
        (1, NOW_TEXT, "People", hashlib.sha256(FIRST.encode()).hexdigest()),
        (2, NOW_TEXT, "Where they live", hashlib.sha256(SECOND.encode()).hexdigest()),
    ]
    db.execute("INSERT INTO people (name) VALUES ('bob')")
    assert db.execute("SELECT * FROM people").fetchall() == [("Ann", None), ("BOB", "x; y")]
    assert apply(db, folder) == []


def test_a_later_migration_is_applied_to_what_is_there(db: sqlite3.Connection, folder: Path) -> None:
    assert apply(db, folder) == [1]
    (folder / "0002_cities.sql").write_text(SECOND)
    assert [migration.version for migration in migrations.pending(db, migrations.load(folder))] == [2]
    assert apply(db, folder) == [2]
    assert db.execute("SELECT name, city FROM people").fetchall() == [("Ann", None)]


def test_an_edited_migration_is_noticed(db: sqlite3.Connection, folder: Path) -> None:
    apply(db, folder)
    (folder / "0001_people.sql").write_text(FIRST.replace("Ann", "Eve"))
    with pytest.raises(MigrationEdited, match="migration 1"):
        apply(db, folder)


def test_a_newer_schema_is_refused(db: sqlite3.Connection, folder: Path) -> None:
    (folder / "0002_cities.sql").write_text(SECOND)
    apply(db, folder)
    (folder / "0002_cities.sql").unlink()
    with pytest.raises(StoreTooNew, match="schema version 2, this program supports versions up to 1"):
        apply(db, folder)


BROKEN = {
    "an error in the middle": "-- Bad\nCREATE TABLE half (a);\nINSERT INTO nowhere VALUES (1);\nDROP TABLE half;\n",
    "a broken constraint": "-- Bad\nCREATE TABLE half (a UNIQUE);\nINSERT INTO half VALUES (1), (1);\n",
    "not SQL": "-- Bad\nCREATE TABLE half (a);\nALTER THE TABLE;\n",
}


@pytest.mark.parametrize("sql", BROKEN.values(), ids=BROKEN)
def test_a_migration_that_fails_leaves_nothing_of_itself(db: sqlite3.Connection, folder: Path, sql: str) -> None:
    apply(db, folder)
    before = list(db.iterdump())
    (folder / "0002_bad.sql").write_text(sql)
    with pytest.raises(sqlite3.Error):
        apply(db, folder)
    assert not db.in_transaction
    assert list(db.iterdump()) == before
    assert migrations.version(db) == 1


def test_a_first_migration_that_fails_leaves_an_empty_file(db: sqlite3.Connection, folder: Path) -> None:
    (folder / "0001_people.sql").write_text(BROKEN["not SQL"])
    with pytest.raises(sqlite3.Error):
        apply(db, folder)
    assert migrations.version(db) == 0
    assert db.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    assert db.execute("PRAGMA application_id").fetchone() == (0,)


def test_a_last_statement_without_its_semicolon_is_not_passed_over(db: sqlite3.Connection, folder: Path) -> None:
    (folder / "0001_people.sql").write_text("-- People\nCREATE TABLE people (name);\nCREATE TABLE pets (name)\n")
    apply(db, folder)
    assert db.execute("SELECT count(*) FROM pets").fetchone() == (0,)


class Overtaken(sqlite3.Connection):
    """Another opener does all its work between two statements of this one."""

    statements_before = 0
    other: Callable[[], object]

    def execute(self, *args: Any) -> sqlite3.Cursor:
        self.statements_before -= 1
        if self.statements_before == 0:
            self.other()
        return super().execute(*args)


@pytest.mark.parametrize("statements_before", [1, 2])
def test_of_two_openers_at_once_each_migration_is_applied_once(
    tmp_path: Path, folder: Path, statements_before: int
) -> None:
    (folder / "0002_cities.sql").write_text(SECOND)
    path = tmp_path / "one.db"
    with (
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as first,
        contextlib.closing(sqlite3.connect(path, isolation_level=None, factory=Overtaken)) as second,
    ):
        second.statements_before = statements_before
        second.other = lambda: applied.extend(apply(first, folder))
        applied: list[int] = []
        applied += apply(second, folder)
    assert sorted(applied) == [1, 2]
