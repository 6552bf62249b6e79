"""A ledger of an earlier schema opens, is brought up to date, keeps its rows, and goes on with its work."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from parcelpost.clock import SystemClock
from parcelpost.errors import LedgerError
from parcelpost.gateway.ledger import sql
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.models import StoreOutcome, TaskOutcome, TaskState
from parcelpost.object_store import open_raw_store
from parcelpost.protocol.payloads import MetricsSample
from tests.gateway.conftest import MAX_ATTEMPTS
from tests.gateway.factories import arrival, task
from tests.gateway.filling import fill


@pytest.fixture
def database(new_database: str) -> str:
    return new_database


SECOND = """-- A made-up second step
ALTER TABLE tasks ADD COLUMN note TEXT NOT NULL DEFAULT 'upgraded';
CREATE INDEX tasks_noted ON tasks (note);
"""
TABLES = (
    "tasks",
    "leases",
    "parcels",
    "sources",
    "results",
    "liens",
    "lien_sources",
    "workers",
    "worker_ids",
    "commands",
    "selector_stats",
    "metrics",
    "activity",
    "identity",
)

Rows = dict[str, list[dict[str, Any]]]


async def query(database: str, sql: str) -> list[dict[str, Any]]:
    if database.startswith("postgresql"):
        connection = await asyncpg.connect(database)
        try:
            return [dict(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(sql)]


async def rows_of(database: str) -> Rows:
    return {table: sorted(await query(database, f"SELECT * FROM {table}"), key=repr) for table in TABLES}


async def versions_of(database: str) -> list[int]:
    return [row["version"] for row in await query(database, "SELECT version FROM schema_version ORDER BY version")]


async def fill_every_table(database: str, folder: Path, now: datetime) -> None:
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        await fill(ledger, open_raw_store(str(folder), {}), now, parcels=4)
        await ledger.add_metrics("harlow-01", [MetricsSample(at=now, values={"tasks_completed": 3})])
        await ledger.claim_worker_id("harlow-01", "", [""], 10, now, now)


async def test_an_earlier_ledger_keeps_its_rows_and_goes_on(
    database: str, tmp_path: Path, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_every_table(database, tmp_path / "raw", now)
    before = await rows_of(database)
    assert [table for table, rows in before.items() if not rows] == []
    assert await versions_of(database) == [1]
    load = sql.load_migrations
    monkeypatch.setattr(sql, "load_migrations", lambda folder: [*load(folder), sql.Migration(2, SECOND)])
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        after = await rows_of(database)
        assert {row["note"] for row in after["tasks"]} == {"upgraded"}
        kept = {table: [{name: row[name] for name in before[table][0]} for row in after[table]] for table in before}
        assert kept == before
        queued = sorted(
            (row for row in before["tasks"] if row["state"] == "queued" and row["platform"] == "qpublic"),
            key=lambda row: (row["priority"], row["seq"]),
        )
        granted = await ledger.grant("harlow-01", ["qpublic"], 5, now, now + timedelta(hours=1))
        assert [grant.task.task_id for grant in granted] == [row["task_id"] for row in queued[:5]]
        ended = await ledger.end_task(
            granted[0].task.task_id, "harlow-01", error="", again=False, now=now, not_found=True
        )
        assert ended == TaskOutcome("qpublic", TaskState.NOT_FOUND)
        assert await ledger.store([arrival("new", value=1)], "harlow-01", now) == [StoreOutcome.INSERTED]
        assert await ledger.store([arrival("new", value=1)], "harlow-01", now) == [StoreOutcome.DUPLICATE]
        assert (await ledger.add_tasks([task("new")], now)).new == 1
        assert {row.heartbeat.worker_id for row in await ledger.workers()} == {
            row["worker_id"] for row in before["workers"]
        }
        await ledger.prune(now, now, 1_000)
        await ledger.check()
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        assert await ledger.store([arrival("new", value=1)], "harlow-01", now) == [StoreOutcome.DUPLICATE]
    assert await versions_of(database) == [1, 2]


async def test_a_ledger_of_another_version_is_opened_only_to_bring_it_up_to_date(database: str, now: datetime) -> None:
    async def opens() -> bool:
        try:
            async with open_ledger(database, MAX_ATTEMPTS, SystemClock(), migrate=False) as ledger:
                await ledger.workers()
        except LedgerError:
            return False
        return True

    assert not await opens()
    async with open_ledger(database, MAX_ATTEMPTS, SystemClock()) as ledger:
        await ledger.add_tasks([task("t")], now)
    assert await opens()
    await query(database, "UPDATE search_state SET version = 0")
    assert not await opens()
    assert await query(database, "SELECT version FROM search_state") == [{"version": 0}]
    await query(database, "DELETE FROM schema_version")
    assert not await opens()
    assert await versions_of(database) == []
