"""The ways in which the databases look for things: by an index, in its order, as far as they must."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.ledger.queries import latest_liens_query, numbered
from parcelpost.gateway.ledger.tasks import task_list
from parcelpost.gateway.models import ParcelFilter, TaskFilter, TaskState
from tests.gateway.factories import arrival, task


@pytest.fixture
def database(new_database: str) -> str:
    return new_database


PARCELS = 20_000


async def fill(ledger: Ledger, now: datetime) -> None:
    """Those with liens came first: whoever looks from the latest on must pass all the others."""
    for start in range(0, PARCELS, 1_000):
        liens = [{"status": "open"}] * (2 if start == 0 else 0)
        batch = [arrival(f"t{number}", f"P{number:06}", liens=liens) for number in range(start, start + 1_000)]
        await ledger.store(batch, "w1", now + timedelta(seconds=start))


async def test_the_latest_liens_are_found_without_a_look_at_parcels_that_have_none(
    database: str, now: datetime
) -> None:
    async with open_ledger(database, 1, SystemClock()) as ledger:
        await fill(ledger, now)
        assert len(await ledger.latest_liens(ParcelFilter(), 20)) == 20
    plan = await explained(database, *latest_liens_query(ParcelFilter(), 20))
    assert "parcels_with_liens" in plan, plan
    assert "SCAN l" not in plan, plan
    assert "Seq Scan on parcels" not in plan, plan


async def test_tasks_not_found_are_listed_without_a_look_at_the_others(database: str, now: datetime) -> None:
    async with open_ledger(database, 1, SystemClock()) as ledger:
        await ledger.add_tasks([task(f"t{number}") for number in range(5_000)], now)
    plan = await explained(
        database, *task_list(TaskFilter(states=[TaskState.NOT_FOUND], platform="echo"), 20, (now, 9))
    )
    assert "tasks_without_record" in plan, plan
    assert "TEMP B-TREE" not in plan, plan


async def explained(database: str, sql: str, args: Sequence[Any]) -> str:
    if not database.startswith("postgresql"):
        with closing(sqlite3.connect(database)) as db:
            return "\n".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", args))
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("ANALYZE parcels, liens, tasks")
        return "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {numbered(sql)}", *args))
    finally:
        await connection.close()
