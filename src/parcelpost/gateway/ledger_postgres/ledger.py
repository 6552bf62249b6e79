"""The Ledger in PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import asyncpg

from parcelpost.gateway.ledger_postgres import fleet, results, tasks
from parcelpost.gateway.ledger_postgres.connecting import translated
from parcelpost.gateway.sql import rows
from parcelpost.gateway.sql.batch import sift
from parcelpost.gateway.sql.care import prunings
from parcelpost.gateway.sql.endings import NEVER_ANSWERED, ending
from parcelpost.gateway.sql.fleet import (
    CLAIM_WORKER_ID,
    COUNT_WORKER_IDS,
    FORGET_WORKER,
    IDLE_WORKER_ID,
    RELEASE_WORKER_ID,
    WORKER_ID,
    Fleet,
)
from parcelpost.gateway.sql.rows import Row
from parcelpost.gateway.sql.statements import numbered
from parcelpost.gateway.words import AWAY_AFTER, Added, Arrival, Beat, BroughtBack, Ended, Grant, Stored, TaskState
from parcelpost.model import Task

T = TypeVar("T")

_TRIES = 5
_WORKER_IDS_LOCK = 0x776F_726B_6572  # "worker": one at a time takes an id


class PostgresLedger(Fleet):
    """Each call is one statement, or a few in one transaction."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], max_attempts: int) -> None:
        self._pool = pool
        self._max_attempts = max_attempts

    async def add_tasks(self, added: Sequence[Task], now: datetime) -> Added:
        with translated():
            columns = list(zip(*map(rows.task_values, added), strict=True))
        new = await self._change(tasks.ADD, *columns, self._max_attempts, now) if added else 0
        return Added(new, len(added) - new)

    async def grant(
        self, worker_id: str, platforms: Sequence[str], capacity: int, now: datetime, until: datetime
    ) -> Sequence[Grant]:
        found = await self._fetch(tasks.GRANT, worker_id, sorted(set(platforms)), capacity, now, until)
        return [rows.grant(row, row[6], until) for row in found]

    async def bring_back(self, now: datetime, most: int) -> BroughtBack:
        over = await self._fetch(tasks.BRING_BACK, now, most, NEVER_ANSWERED)
        queued = [platform for platform, state in over if state == TaskState.QUEUED]
        return BroughtBack(queued, [platform for platform, state in over if state == TaskState.DEAD])

    async def end_task(
        self, task_id: str, worker_id: str, *, error: str | None, again: bool, now: datetime, not_found: bool = False
    ) -> Ended | None:
        how = ending(error, again, not_found)
        found = await self._fetch(tasks.END, task_id, worker_id, *how, error, now)
        return Ended(found[0][0], TaskState(found[0][1])) if found else None

    async def requeue(self, states: Sequence[str], platform: str, now: datetime) -> int:
        return await self._change(tasks.REQUEUE, states, platform)

    async def store(self, arrivals: Sequence[Arrival], worker_id: str, now: datetime) -> Sequence[Stored]:
        answers = [Stored.DUPLICATE] * len(arrivals)
        batch = sift(arrivals)
        if batch.entries:
            found = await self._fetch(results.STORE, worker_id, now, *results.arrays(batch))
            for entry, (answer,) in zip(batch.entries, found, strict=True):
                answers[entry.place] = Stored(answer)
        return answers

    async def claim_worker_id(
        self, worker_id: str, token: str, names: Collection[str], most: int, now: datetime, idle_before: datetime
    ) -> str | None:
        async def claim() -> str | None:
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _WORKER_IDS_LOCK)
                owner = await connection.fetchval(numbered(WORKER_ID), worker_id)
                if owner is not None and owner != token and owner in names:
                    return str(owner)
                if owner != token and await connection.fetchval(numbered(COUNT_WORKER_IDS), token) >= most:
                    idle = await connection.fetchval(numbered(IDLE_WORKER_ID), token, idle_before)
                    if idle is None:
                        return None
                    for statement in FORGET_WORKER:
                        await connection.execute(numbered(statement), idle)
                await connection.execute(numbered(CLAIM_WORKER_ID), worker_id, token, now)
                return token

        return await _tried(claim)

    async def release_worker_id(self, worker_id: str) -> str | None:
        released = await self._fetch(numbered(RELEASE_WORKER_ID), worker_id)
        return str(released[0][0]) if released else None

    async def beat(self, beat: Beat, now: datetime, until: datetime, oldest_grant: datetime) -> Sequence[str]:
        text = rows.encode(beat).decode()
        holds = (until, oldest_grant, not beat.holds_nothing)
        found = await self._fetch(fleet.BEAT, beat.worker_id, text, now, *holds, beat.leaving, now - AWAY_AFTER)
        return [command for (command,) in found]

    async def order(self, command: str, worker_id: str, now: datetime, alive_since: datetime) -> int:
        return await self._change(fleet.ORDER, command, now, worker_id, alive_since)

    async def counts(self) -> Mapping[str, int]:
        return dict(await self._fetch(fleet.COUNTS))

    async def prune(self, ended_before: datetime, silent_before: datetime, most: int) -> int:
        removed = 0
        for statement, before in prunings(ended_before, silent_before):
            if removed < most:
                removed += await self._change(numbered(statement), before, most - removed)
        return removed

    async def check(self) -> None:
        await self._fetch("SELECT 1")

    async def _rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        return await self._fetch(numbered(sql), *args)

    async def _run_all(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        await _tried(lambda: self._pool.executemany(numbered(sql), values))

    async def _fetch(self, sql: str, *args: Any) -> list[Any]:
        return await _tried(lambda: self._pool.fetch(sql, *args))

    async def _change(self, sql: str, *args: Any) -> int:
        """How many rows it changed: the last word of `INSERT 0 5`."""
        return int((await _tried(lambda: self._pool.execute(sql, *args))).split()[-1])


async def _tried(run: Callable[[], Awaitable[T]]) -> T:
    """Again at once where PostgreSQL chose this transaction to end a deadlock: it has changed nothing."""
    with translated():
        for _ in range(_TRIES - 1):
            try:
                return await run()
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
                continue
        return await run()
