"""What only PostgreSQL has: grants at the same moment, and a planner that may be wrong about a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import asyncpg
import pytest

from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.postgres import _GRANT_TASKS
from tests.gateway.factories import task


@pytest.fixture
def database(new_database: str) -> str:
    return new_database


HOUR = timedelta(hours=1)
PLATFORMS = ["echo", "other"]

pytestmark = pytest.mark.parametrize("new_database", ["postgres"], indirect=True)


@pytest.fixture
async def other(database: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Another gateway's connection, in the middle of a transaction."""
    connection = await asyncpg.connect(database)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


async def test_a_grant_that_is_not_over_holds_no_more_than_it_takes(
    ledger: Ledger, now: datetime, other: asyncpg.Connection[asyncpg.Record]
) -> None:
    await ledger.add_tasks([task(str(n), PLATFORMS[n % 2]) for n in range(20)], now)
    taken = await other.fetch(_GRANT_TASKS, "w1", PLATFORMS, 10, now, now + HOUR)
    grants = await ledger.grant("w2", PLATFORMS, 10, now, now + HOUR)
    assert [row["task_id"] for row in taken] == [str(n) for n in range(10)]
    assert [grant.task.task_id for grant in grants] == [str(n) for n in range(10, 20)]


async def test_a_grant_looks_past_all_that_others_are_taking(
    ledger: Ledger, now: datetime, other: asyncpg.Connection[asyncpg.Record]
) -> None:
    await ledger.add_tasks([task(str(n)) for n in range(102)], now)
    await other.fetch(_GRANT_TASKS, "w1", PLATFORMS, 100, now, now + HOUR)
    grants = await ledger.grant("w2", PLATFORMS, 3, now, now + HOUR)
    assert [grant.task.task_id for grant in grants] == ["100", "101"]
    assert await ledger.grant("w2", PLATFORMS, 3, now, now + HOUR) == []


async def test_a_queue_just_filled_is_read_at_its_head_only(
    ledger: Ledger, now: datetime, other: asyncpg.Connection[asyncpg.Record]
) -> None:
    await ledger.add_tasks([task(str(n), PLATFORMS[n % 2]) for n in range(20_000)], now)
    await other.fetch(_GRANT_TASKS, "w1", PLATFORMS, 10, now, now + HOUR)
    read = await other.fetchrow(
        "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'tasks'::regclass"
    )
    assert read is not None
    assert read["seq_tup_read"] == 0
    assert read["idx_tup_fetch"] < 200
