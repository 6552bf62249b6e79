"""The ledger in one SQLite file, for one machine. Each module-level function is one change, run by the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from parcelpost.changes import compare
from parcelpost.clock import iso
from parcelpost.gateway.ledger import rows, search_index, sqlite_results
from parcelpost.gateway.ledger.base import EXPIRED_ERROR, LeaseEnding, lease_ending
from parcelpost.gateway.ledger.queries import (
    ADD_CHANGE,
    DROP_UNCHANGED,
    IS_COMPARED,
    KNOWN_FACTS,
    LAST_CHANGE,
    PAGE_CHARS,
    STORE_FACTS,
    TO_COMPARE,
)
from parcelpost.gateway.ledger.rows import TASK_COLUMNS, Row
from parcelpost.gateway.ledger.schedules import ADD_SCHEDULE, ADD_TARGET
from parcelpost.gateway.ledger.search import SEARCH_SECONDS, KeptCounts
from parcelpost.gateway.ledger.search_groups import Groups
from parcelpost.gateway.ledger.search_schema import LIENS, PARCELS, SQLITE
from parcelpost.gateway.ledger.sql import (
    CLAIM_WORKER_ID,
    COUNT_WORKER_IDS,
    DELETE_WORKER,
    IDLE_WORKER_ID,
    RELEASE_WORKER_ID,
    UPSERT_WORKER,
    WORKER_ID_OWNER,
    SqlLedger,
)
from parcelpost.gateway.ledger.sqlite_connections import BUSY_SECONDS, Readers, Writer, bind_values, translate_errors
from parcelpost.gateway.ledger.tasks import HEAD_TURN, SITE_TURN, TURN_AGAIN
from parcelpost.gateway.models import (
    OFFLINE_AFTER,
    ExpiredLeases,
    Grant,
    IngestedResult,
    LeaseEnd,
    StoreOutcome,
    TaskOutcome,
    TaskState,
    WorkerHeartbeat,
    failure_reason,
)

_ADD_TASK = """
INSERT INTO tasks (
    task_id, platform, type, priority, target, max_retries, site, refresh_of, run_no, max_attempts, created_at, turn,
    state
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued') ON CONFLICT (task_id) DO NOTHING
"""
_HEAD_TURN = HEAD_TURN.format("?")
_SITE_TURN = f"SELECT {SITE_TURN.format('?', '?')}"

_NEXT_TASKS = f"""
SELECT {TASK_COLUMNS}, turn, seq FROM tasks
WHERE state = 'queued' AND platform = ? ORDER BY priority, turn, seq LIMIT ?
"""
_MARK_LEASED = "UPDATE tasks SET state = 'leased', attempts = attempts + 1 WHERE seq = ?"
_OPEN_LEASE = "INSERT INTO leases (task_id, worker_id, granted_at, expires_at) VALUES (?, ?, ?, ?)"

_EXPIRED = """
SELECT l.lease_id, l.task_id, t.platform, t.attempts < t.max_attempts
FROM leases l JOIN tasks t ON t.task_id = l.task_id
WHERE l.ended_at IS NULL AND l.expires_at <= ? ORDER BY l.expires_at LIMIT ?
"""
_OPEN_LEASE_OF = """
SELECT l.lease_id, t.platform, t.attempts < t.max_attempts FROM leases l JOIN tasks t ON t.task_id = l.task_id
WHERE l.ended_at IS NULL AND l.task_id = ? AND l.worker_id = ?
"""
_END_LEASE = "UPDATE leases SET ended_at = ?, ended_as = ?, error = ? WHERE lease_id = ?"
_QUEUE_AGAIN = f"UPDATE tasks SET state = 'queued', error = ?, turn = {TURN_AGAIN.format('tasks')} WHERE task_id = ?"
_END_TASK = "UPDATE tasks SET state = ?, ended_at = ?, error = ?, reason = ? WHERE task_id = ?"


def queue_tasks(db: sqlite3.Connection, tasks: Sequence[rows.QueuedTask], max_attempts: int, now: datetime) -> int:
    at = iso(now)
    turns: dict[tuple[int, str], count[int]] = {}
    values = []
    for task in tasks:
        site = task.priority, task.site
        if site not in turns:
            ((head,),), ((own,),) = db.execute(_HEAD_TURN, site[:1]), db.execute(_SITE_TURN, site)
            turns[site] = count(max(head, own))
        values.append((*task, max_attempts, at, next(turns[site])))
    return db.executemany(_ADD_TASK, values).rowcount


def grant_tasks(
    db: sqlite3.Connection, worker_id: str, platforms: Sequence[str], capacity: int, now: datetime, until: datetime
) -> list[Grant]:
    queued = [row for platform in set(platforms) for row in db.execute(_NEXT_TASKS, (platform, capacity))]
    taken = sorted(queued, key=lambda row: (row[3], row[-2], row[-1]))[:capacity]  # priority, turn, seq
    granted_at, expires_at = iso(now), iso(until)
    db.executemany(_MARK_LEASED, [(row[-1],) for row in taken])
    db.executemany(_OPEN_LEASE, [(row[0], worker_id, granted_at, expires_at) for row in taken])
    return [rows.grant(row, row[6] + 1, until) for row in taken]


def expire_leases(db: sqlite3.Connection, now: datetime, most: int) -> ExpiredLeases:
    at = iso(now)
    expired = db.execute(_EXPIRED, (at, most)).fetchall()
    again = [(task_id, platform) for _, task_id, platform, may_try in expired if may_try]
    dead = [(task_id, platform) for _, task_id, platform, may_try in expired if not may_try]
    db.executemany(_END_LEASE, [(at, LeaseEnd.EXPIRED, None, lease_id) for lease_id, *_ in expired])
    db.executemany(_QUEUE_AGAIN, [(None, task_id) for task_id, _ in again])
    db.executemany(_END_TASK, [(TaskState.DEAD, at, EXPIRED_ERROR, EXPIRED_ERROR, task_id) for task_id, _ in dead])
    return ExpiredLeases([platform for _, platform in again], [platform for _, platform in dead])


def end_task(
    db: sqlite3.Connection, task_id: str, worker_id: str, error: str | None, ending: LeaseEnding, now: datetime
) -> TaskOutcome | None:
    held = db.execute(_OPEN_LEASE_OF, (task_id, worker_id)).fetchone()
    if held is None:
        return None
    at = iso(now)
    lease_id, platform, may_try = held
    state = ending.task if may_try else ending.last_task
    db.execute(_END_LEASE, (at, ending.lease, error, lease_id))
    if state is TaskState.QUEUED:
        db.execute(_QUEUE_AGAIN, (error, task_id))
    else:
        db.execute(_END_TASK, (state, at, error, failure_reason(error), task_id))
    return TaskOutcome(platform, state)


_EXTEND_LEASES = """
UPDATE leases SET expires_at = ?
WHERE worker_id = ? AND ended_at IS NULL AND granted_at > ? AND expires_at < ?
"""
_TAKE_COMMANDS = "DELETE FROM commands WHERE worker_id = ? RETURNING command_id, command, created_at"


def claim_worker_id(
    db: sqlite3.Connection,
    worker_id: str,
    token: str,
    names: Collection[str],
    most: int,
    now: datetime,
    idle_before: datetime,
) -> str | None:
    (owner,) = db.execute(WORKER_ID_OWNER, (worker_id,)).fetchone() or (None,)
    if owner is not None and owner != token and owner in names:
        return str(owner)
    if owner != token and db.execute(COUNT_WORKER_IDS, (token,)).fetchone()[0] >= most:
        idle = db.execute(IDLE_WORKER_ID, (token, iso(idle_before))).fetchone()
        if idle is None:
            return None
        for statement in DELETE_WORKER:
            db.execute(statement, idle)
    db.execute(CLAIM_WORKER_ID, (worker_id, token, iso(now)))
    return token


def release_worker_id(db: sqlite3.Connection, worker_id: str) -> str | None:
    released = db.execute(RELEASE_WORKER_ID, (worker_id,)).fetchall()
    return str(released[0][0]) if released else None


def record_heartbeat(
    db: sqlite3.Connection, heartbeat: WorkerHeartbeat, now: datetime, until: datetime, oldest_grant: datetime
) -> list[str]:
    at, end = iso(now), iso(until)
    db.execute(UPSERT_WORKER, (heartbeat.worker_id, rows.encode(heartbeat).decode(), int(heartbeat.leaving), at, at))
    if not heartbeat.holds_nothing:
        db.execute(_EXTEND_LEASES, (end, heartbeat.worker_id, iso(oldest_grant), end))
    taken, oldest_command = sorted(db.execute(_TAKE_COMMANDS, (heartbeat.worker_id,))), iso(now - OFFLINE_AFTER)
    return [command for _, command, created_at in taken if created_at >= oldest_command and not heartbeat.leaving]


def add_schedule(db: sqlite3.Connection, values: Sequence[Any], targets: Sequence[tuple[int, str, str]]) -> bool:
    for (schedule_no,) in db.execute(ADD_SCHEDULE, bind_values(values)).fetchall():
        db.executemany(ADD_TARGET, ((schedule_no, *target) for target in targets))
        return True
    return False


_COUNTS = """
SELECT (SELECT coalesce(max(parcel_no), 0) FROM parcels),
       (SELECT coalesce(max(lien_no), 0) FROM liens),
       (SELECT coalesce(max(result_no), 0) FROM results)
"""


def find_changes(db: sqlite3.Connection, now: datetime, most: int) -> int:
    waiting = db.execute(TO_COMPARE, (most, PAGE_CHARS)).fetchall()
    if not waiting:
        return 0
    parcels = {row[1] for row in waiting}
    facts = db.execute(KNOWN_FACTS.format(", ".join("?" * len(parcels))), list(parcels)).fetchall()
    known, changes = compare(rows.to_compare(waiting), map(rows.known_facts, facts))
    ((last,),) = db.execute(LAST_CHANGE)
    _execute_many(db, STORE_FACTS, [rows.facts_values(change) for change in known])
    _execute_many(
        db, ADD_CHANGE, [rows.change_values(change, number, now) for number, change in enumerate(changes, last + 1)]
    )
    _execute_many(db, IS_COMPARED, [row[:1] for row in waiting])
    _execute_many(db, DROP_UNCHANGED, rows.unchanged(known))
    return len(waiting)


_SEARCHERS = 2
"""Threads that search, so that searches do not hold up other queries."""


class SqliteLedger(SqlLedger):
    """Writes go through one thread, reads through a few others. Several processes may use one file."""

    _dialect = SQLITE

    def __init__(self, path: Path, max_attempts: int, busy_seconds: float = BUSY_SECONDS) -> None:
        self._path = path
        self._max_attempts = max_attempts
        self._readers = Readers(path)
        self._searchers = Readers(path, _SEARCHERS, SEARCH_SECONDS)
        self._groups = {table: Groups() for table in (PARCELS, LIENS)}
        self._kept_counts = KeptCounts()
        self._writer = Writer(path, busy_seconds)

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._readers.close)
            stack.push_async_callback(self._searchers.close)
            stack.push_async_callback(self._writer.close)

    async def _queue(self, added: Sequence[rows.QueuedTask], now: datetime) -> int:
        return await self._writer.run(queue_tasks, added, self._max_attempts, now)

    async def _add_schedule(self, values: Sequence[Any], targets: Sequence[tuple[int, str, str]]) -> bool:
        return await self._writer.run(add_schedule, values, targets)

    async def grant(
        self, worker_id: str, platforms: Sequence[str], capacity: int, now: datetime, until: datetime
    ) -> Sequence[Grant]:
        return await self._writer.run(grant_tasks, worker_id, platforms, capacity, now, until)

    async def expire_leases(self, now: datetime, most: int) -> ExpiredLeases:
        return await self._writer.run(expire_leases, now, most)

    async def end_task(
        self, task_id: str, worker_id: str, *, error: str | None, again: bool, now: datetime, not_found: bool = False
    ) -> TaskOutcome | None:
        return await self._writer.run(end_task, task_id, worker_id, error, lease_ending(error, again, not_found), now)

    async def store(self, results: Sequence[IngestedResult], worker_id: str, now: datetime) -> Sequence[StoreOutcome]:
        with translate_errors(self._path):
            batch = sqlite_results.prepare_batch(results, worker_id, now)
        return await self._writer.run(sqlite_results.store_results, batch)

    async def claim_worker_id(
        self, worker_id: str, token: str, names: Collection[str], most: int, now: datetime, idle_before: datetime
    ) -> str | None:
        return await self._writer.run(claim_worker_id, worker_id, token, names, most, now, idle_before)

    async def release_worker_id(self, worker_id: str) -> str | None:
        return await self._writer.run(release_worker_id, worker_id)

    async def record_heartbeat(
        self, heartbeat: WorkerHeartbeat, now: datetime, until: datetime, oldest_grant: datetime
    ) -> Sequence[str]:
        return await self._writer.run(record_heartbeat, heartbeat, now, until, oldest_grant)

    async def find_changes(self, now: datetime, most: int) -> int:
        return await self._writer.run(find_changes, now, most)

    async def counts(self) -> Mapping[str, int]:
        ((parcels, liens, stored),) = await self._rows(_COUNTS, ())
        return {"parcels": parcels, "liens": liens, "results": stored}

    async def check(self) -> None:
        await self._writer.run(_check_writable)

    async def _rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        return await self._readers.run(lambda db: db.execute(sql, bind_values(args)).fetchall())

    async def _change_index(self, changes: int, statements: Sequence[search_index.Statement]) -> bool:
        return await self._writer.run(_change_index, changes, statements)

    async def _search_rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        return await self._searchers.run(lambda db: db.execute(sql, args).fetchall())

    def _numbers(self, numbers: Sequence[int]) -> Any:
        return rows.encode(numbers).decode()

    async def _run_all(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        await self._writer.run(_execute_many, sql, values)

    async def _change(self, sql: str, *args: Any) -> int:
        return await self._writer.run(_execute, sql, args)


def _check_writable(db: sqlite3.Connection) -> None:
    """Rewrites a page with its own content: a read-only database cannot take results."""
    (number,) = db.execute("PRAGMA user_version").fetchone()
    db.execute(f"PRAGMA user_version = {number}")


def _execute_many(db: sqlite3.Connection, sql: str, values: Sequence[Sequence[Any]]) -> None:
    db.executemany(sql, map(bind_values, values))


def _change_index(db: sqlite3.Connection, changes: int, statements: Sequence[search_index.Statement]) -> bool:
    if db.execute(search_index.COUNT_CHANGE, (changes,)).rowcount != 1:
        return False
    for sql, values in statements:
        db.executemany(sql, values)
    return True


def _execute(db: sqlite3.Connection, sql: str, args: Sequence[Any]) -> int:
    return db.execute(sql, bind_values(args)).rowcount
