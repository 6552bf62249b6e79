"""The Ledger in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from parcelpost.gateway.ledger_sqlite import batches, fleet, results, tasks
from parcelpost.gateway.ledger_sqlite.connecting import BUSY_SECONDS, bound, translated
from parcelpost.gateway.ledger_sqlite.readers import Readers
from parcelpost.gateway.ledger_sqlite.writer import Writer
from parcelpost.gateway.sql.endings import ending
from parcelpost.gateway.sql.fleet import Fleet
from parcelpost.gateway.sql.rows import Row
from parcelpost.gateway.words import Added, Arrival, Beat, BroughtBack, Ended, Grant, Stored
from parcelpost.model import Task

_COUNTS = """
SELECT (SELECT coalesce(max(parcel_no), 0) FROM parcels),
       (SELECT coalesce(max(lien_no), 0) FROM liens),
       (SELECT coalesce(max(result_no), 0) FROM results)
"""


class SqliteLedger(Fleet):
    """Writes go through one thread, reads through a few others. Several processes may use one file."""

    def __init__(self, path: Path, max_attempts: int, busy_seconds: float = BUSY_SECONDS) -> None:
        self._path = path
        self._max_attempts = max_attempts
        self._readers = Readers(path)
        self._writer = Writer(path, busy_seconds)

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._readers.close)
            stack.push_async_callback(self._writer.close)

    async def add_tasks(self, added: Sequence[Task], now: datetime) -> Added:
        return await self._writer.run(tasks.add, added, self._max_attempts, now)

    async def grant(
        self, worker_id: str, platforms: Sequence[str], capacity: int, now: datetime, until: datetime
    ) -> Sequence[Grant]:
        return await self._writer.run(tasks.grant, worker_id, platforms, capacity, now, until)

    async def bring_back(self, now: datetime, most: int) -> BroughtBack:
        return await self._writer.run(tasks.bring_back, now, most)

    async def end_task(
        self, task_id: str, worker_id: str, *, error: str | None, again: bool, now: datetime, not_found: bool = False
    ) -> Ended | None:
        return await self._writer.run(tasks.end, task_id, worker_id, error, ending(error, again, not_found), now)

    async def requeue(self, states: Sequence[str], platform: str, now: datetime) -> int:
        return await self._writer.run(tasks.requeue, states, platform)

    async def store(self, arrivals: Sequence[Arrival], worker_id: str, now: datetime) -> Sequence[Stored]:
        with translated(self._path):
            batch = batches.make(arrivals, worker_id, now)
        return await self._writer.run(results.store, batch)

    async def claim_worker_id(
        self, worker_id: str, token: str, names: Collection[str], most: int, now: datetime, idle_before: datetime
    ) -> str | None:
        return await self._writer.run(fleet.claim_worker_id, worker_id, token, names, most, now, idle_before)

    async def release_worker_id(self, worker_id: str) -> str | None:
        return await self._writer.run(fleet.release_worker_id, worker_id)

    async def beat(self, beat: Beat, now: datetime, until: datetime, oldest_grant: datetime) -> Sequence[str]:
        return await self._writer.run(fleet.beat, beat, now, until, oldest_grant)

    async def order(self, command: str, worker_id: str, now: datetime, alive_since: datetime) -> int:
        return await self._writer.run(fleet.order, command, worker_id, now, alive_since)

    async def counts(self) -> Mapping[str, int]:
        ((parcels, liens, stored),) = await self._rows(_COUNTS, ())
        return {"parcels": parcels, "liens": liens, "results": stored}

    async def prune(self, ended_before: datetime, silent_before: datetime, most: int) -> int:
        return await self._writer.run(fleet.prune, ended_before, silent_before, most)

    async def check(self) -> None:
        await self._writer.run(_write_something)

    async def _rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        return await self._readers.run(lambda db: db.execute(sql, bound(args)).fetchall())

    async def _run_all(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        await self._writer.run(_run_all, sql, values)


def _write_something(db: sqlite3.Connection) -> None:
    """A page, with what it says already: a database that can be read only takes no results."""
    (number,) = db.execute("PRAGMA user_version").fetchone()
    db.execute(f"PRAGMA user_version = {number}")


def _run_all(db: sqlite3.Connection, sql: str, values: Sequence[Sequence[Any]]) -> None:
    db.executemany(sql, map(bound, values))
