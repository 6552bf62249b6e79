"""What a helper may want to know of a store: how many of what, and what went wrong lately. All of it only looks."""

from __future__ import annotations

import sqlite3

from msgspec import Struct

from parcelpost.storage import migrations

_TABLES = (
    "tasks",
    "results",
    "cache",
    "learning_signals",
    "browser_pool_state",
    "sync_log",
    "agent_metrics",
    "platform_pauses",
    "worker_state",
    "evidence",
)
_PRAGMAS = ("page_size", "page_count", "freelist_count", "auto_vacuum", "journal_mode", "user_version")
_TASKS = "SELECT platform, source, status, count(*) FROM tasks GROUP BY platform, source, status"
_RESULTS = """
SELECT platform, CASE WHEN synced = 1 THEN 'synced' WHEN rejected_at IS NOT NULL THEN 'rejected' ELSE 'unsynced' END,
    success, count(*), max(sync_attempts) FROM results GROUP BY 1, 2, 3
"""
_FAILED_TASKS = """
SELECT task_id, parcel_id, platform, state, county, status, retries, updated_at, error FROM tasks
WHERE error IS NOT NULL ORDER BY seq DESC LIMIT ?
"""
_REFUSED_RESULTS = """
SELECT task_id, parcel_id, platform, state, county, iif(rejected_at IS NULL, 'unsynced', 'rejected'), sync_attempts,
    created_at, last_error FROM results WHERE synced = 0 AND last_error IS NOT NULL ORDER BY seq DESC LIMIT ?
"""


class TaskCount(Struct, frozen=True):
    platform: str
    source: str
    status: str
    count: int


class ResultCount(Struct, frozen=True):
    platform: str
    state: str
    """synced, unsynced or rejected."""
    success: bool
    count: int
    most_attempts: int


class Trouble(Struct, frozen=True):
    """A task that has an error, or a result that could not be delivered."""

    task_id: str
    parcel_id: str
    platform: str
    state: str
    county: str
    status: str
    attempts: int
    at: str
    error: str


class Applied(Struct, frozen=True):
    version: int
    applied_at: str
    known: bool
    """It is a migration of this program, as it carries it."""


class Schema(Struct, frozen=True):
    applied: list[Applied]
    missing: list[str]
    """Tables and indexes that it should have."""
    unknown: int
    """How many it should not have."""
    pragmas: dict[str, str | int]


def table_counts(db: sqlite3.Connection) -> dict[str, int]:
    return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in _TABLES}


def task_counts(db: sqlite3.Connection) -> list[TaskCount]:
    return [TaskCount(*row) for row in db.execute(_TASKS)]


def result_counts(db: sqlite3.Connection) -> list[ResultCount]:
    return [ResultCount(row[0], row[1], bool(row[2]), row[3], row[4]) for row in db.execute(_RESULTS)]


def troubles(db: sqlite3.Connection, most: int) -> list[Trouble]:
    """The newest tasks that have an error, and the newest results that the upstream did not take."""
    return [Trouble(*row) for query in (_FAILED_TASKS, _REFUSED_RESULTS) for row in db.execute(query, (most,))]


def schema(db: sqlite3.Connection) -> Schema:
    known = {one.version: one.checksum for one in migrations.load()}
    applied = [
        Applied(version, str(at), known.get(version) == checksum)
        for version, at, checksum in db.execute("SELECT version, applied_at, checksum FROM schema_version")
    ]
    expected, there = _expected(), _objects(db)
    return Schema(
        applied,
        sorted(expected - there),
        len(there - expected),
        {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in _PRAGMAS},
    )


def _expected() -> set[str]:
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrations.apply(db, migrations.load(), "")
        return _objects(db)
    finally:
        db.close()


def _objects(db: sqlite3.Connection) -> set[str]:
    """But for those that SQLite makes by itself."""
    found = db.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'index', 'trigger')")
    return {name for (name,) in found if not name.startswith("sqlite_")}


def versions() -> dict[str, str]:
    """Of SQLite, and how it was built as far as that matters."""
    db = sqlite3.connect(":memory:")
    try:
        options = [name for (name,) in db.execute("PRAGMA compile_options")]
    finally:
        db.close()
    return {"sqlite": sqlite3.sqlite_version, "sqlite_options": " ".join(sorted(options))}
