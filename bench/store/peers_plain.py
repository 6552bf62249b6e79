"""What an ordinary developer writes: one connection, one table of tasks, one of results, a commit per operation.

Each once as it comes, which is a rollback journal with synchronous=FULL, and once with WAL and synchronous=FULL, which
is faster and as safe. Coroutines and threads that share a connection need a lock, or they would commit each other's
halves. For threads, one connection each with a busy timeout was slower than one behind a lock, so the lock it is.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import aiosqlite

from bench.store.contender import Contender, CoroutineSession, Durability, ThreadSession, read_durability
from bench.store.work import Work
from bench.timing import Run

_SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    id INTEGER PRIMARY KEY, task_id TEXT NOT NULL UNIQUE, platform TEXT NOT NULL, state TEXT NOT NULL,
    county TEXT NOT NULL, parcel_id TEXT NOT NULL, target_json TEXT NOT NULL, priority INTEGER NOT NULL,
    status TEXT NOT NULL, created_at TEXT NOT NULL, started_at TEXT, completed_at TEXT
);
CREATE INDEX IF NOT EXISTS tasks_pending ON tasks (status, priority, created_at);
CREATE TABLE IF NOT EXISTS results (
    id INTEGER PRIMARY KEY, task_id TEXT NOT NULL UNIQUE, data TEXT NOT NULL, scraped_at TEXT NOT NULL,
    synced INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS results_synced ON results (synced);
"""
_PUT = """
INSERT INTO tasks (task_id, platform, state, county, parcel_id, target_json, priority, status, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?)
"""
_CLAIM = """
UPDATE tasks SET status = 'processing', started_at = ?
WHERE id = (SELECT id FROM tasks WHERE status = 'pending' ORDER BY priority, created_at LIMIT 1)
RETURNING task_id, target_json
"""
_SAVE = "INSERT INTO results (task_id, data, scraped_at) VALUES (?, ?, ?)"
_FINISH = "UPDATE tasks SET status = 'completed', completed_at = ? WHERE task_id = ?"

_PutRow = tuple[str, str, str, str, str, str, int, str]


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _put_row(work: Work, number: int) -> _PutRow:
    task, target = work.tasks[number], work.targets[number]
    place = (target["state"], target["county"], target["parcel_id"])
    return (task.task_id, task.platform, *place, json.dumps(target), int(task.priority), _now())


def _put_rows(work: Work) -> Iterator[_PutRow]:
    return (_put_row(work, number) for number in range(len(work)))


class _AiosqliteSession(CoroutineSession):
    def __init__(self, work: Work, db: aiosqlite.Connection) -> None:
        super().__init__(work)
        self._db = db
        self._lock = asyncio.Lock()

    async def durability(self) -> Durability:
        ((journal,),) = await self._db.execute_fetchall("PRAGMA journal_mode")
        ((synchronous,),) = await self._db.execute_fetchall("PRAGMA synchronous")
        return Durability.of(journal, synchronous)

    async def put(self, number: int) -> None:
        async with self._lock:
            await self._db.execute(_PUT, _put_row(self._work, number))
            await self._db.commit()

    async def enqueue_bulk(self) -> Run:
        start = time.perf_counter()
        await self._db.executemany(_PUT, _put_rows(self._work))
        await self._db.commit()
        return Run(len(self._work), time.perf_counter() - start)

    async def take_and_save(self, number: int) -> None:
        async with self._lock:
            cursor = await self._db.execute(_CLAIM, (_now(),))
            row = await cursor.fetchone()
            await self._db.commit()
        assert row is not None
        json.loads(row[1])
        async with self._lock:
            await self._db.execute(_SAVE, (row[0], json.dumps(self._work.records[number]), _now()))
            await self._db.execute(_FINISH, (_now(), row[0]))
            await self._db.commit()


@asynccontextmanager
async def _open_aiosqlite(pragmas: Sequence[str], folder: Path, work: Work) -> AsyncIterator[_AiosqliteSession]:
    async with aiosqlite.connect(folder / "plain.db") as db:
        for pragma in pragmas:
            await db.execute(pragma)
        await db.executescript(_SCHEMA)
        yield _AiosqliteSession(work, db)


class _StdlibSession(ThreadSession):
    def __init__(self, work: Work, db: sqlite3.Connection) -> None:
        super().__init__(work)
        self._db = db
        self._lock = threading.Lock()

    async def durability(self) -> Durability:
        return read_durability(self._db)

    def put(self, number: int) -> None:
        with self._lock, self._db:
            self._db.execute(_PUT, _put_row(self._work, number))

    async def enqueue_bulk(self) -> Run:
        start = time.perf_counter()
        with self._db:
            self._db.executemany(_PUT, _put_rows(self._work))
        return Run(len(self._work), time.perf_counter() - start)

    def take_and_save(self, number: int) -> None:
        with self._lock, self._db:
            task_id, target_json = self._db.execute(_CLAIM, (_now(),)).fetchone()
        json.loads(target_json)
        with self._lock, self._db:
            self._db.execute(_SAVE, (task_id, json.dumps(self._work.records[number]), _now()))
            self._db.execute(_FINISH, (_now(), task_id))


@asynccontextmanager
async def _open_stdlib(pragmas: Sequence[str], folder: Path, work: Work) -> AsyncIterator[_StdlibSession]:
    db = sqlite3.connect(folder / "plain.db", check_same_thread=False)
    try:
        for pragma in pragmas:
            db.execute(pragma)
        db.executescript(_SCHEMA)
        yield _StdlibSession(work, db)
    finally:
        db.close()


_WAL = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")
_AFTER_KILL = "stays 'processing'"

AIOSQLITE = [
    Contender(name, "coroutines, a lock", _AFTER_KILL, partial(_open_aiosqlite, pragmas), peer=False)
    for name, pragmas in (("plain aiosqlite", ()), ("plain aiosqlite, WAL", _WAL))
]
STDLIB = [
    Contender(name, "threads, a lock", _AFTER_KILL, partial(_open_stdlib, pragmas))
    for name, pragmas in (("stdlib sqlite3", ()), ("stdlib sqlite3, WAL", _WAL))
]
