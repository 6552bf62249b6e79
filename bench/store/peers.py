"""The store's peers: hand-written SQLite code, and queue libraries on SQLite used as documented."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiosqlite

from bench.measure import Run
from bench.store.contenders import Contender, CoroutineSession, Durability, ThreadSession, Work, read_durability

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


def _message(work: Work, number: int) -> Mapping[str, Any]:
    task = work.tasks[number]
    return {"task_id": task.task_id, "platform": task.platform, "target": work.targets[number]}


def _outcome(work: Work, number: int, task_id: str) -> Mapping[str, Any]:
    return {"task_id": task_id, "data": work.records[number]}


class _PersistQueueSession(ThreadSession):
    """Uses its own pickling, which is faster than JSON."""

    def __init__(self, work: Work, tasks: Any, results: Any) -> None:
        super().__init__(work)
        self._tasks = tasks
        self._results = results

    async def durability(self) -> Durability:
        return read_durability(self._tasks._putter)

    def put(self, number: int) -> None:
        self._tasks.put(_message(self._work, number))

    async def enqueue_bulk(self) -> None:
        return None

    def take_and_save(self, number: int) -> None:
        item = self._tasks.get(block=False, raw=True)
        self._results.put(_outcome(self._work, number, item["data"]["task_id"]))
        self._tasks.ack(item)


@asynccontextmanager
async def _open_persist_queue(folder: Path, work: Work) -> AsyncIterator[_PersistQueueSession]:
    import persistqueue

    tasks = persistqueue.SQLiteAckQueue(str(folder / "tasks"), multithreading=True)
    results = persistqueue.SQLiteQueue(str(folder / "results"), multithreading=True)
    try:
        yield _PersistQueueSession(work, tasks, results)
    finally:
        tasks.close()
        results.close()


class _LitequeueSession(ThreadSession):
    def __init__(self, work: Work, tasks: Any, results: Any) -> None:
        super().__init__(work)
        self._tasks = tasks
        self._results = results
        self._lock = threading.Lock()

    async def durability(self) -> Durability:
        return read_durability(self._tasks.conn)

    def put(self, number: int) -> None:
        text = json.dumps(_message(self._work, number))
        with self._lock:
            self._tasks.put(text)

    async def enqueue_bulk(self) -> Run:
        start = time.perf_counter()
        with self._tasks.transaction():
            for number in range(len(self._work)):
                self._tasks.put(json.dumps(_message(self._work, number)))
        return Run(len(self._work), time.perf_counter() - start)

    def take_and_save(self, number: int) -> None:
        with self._lock:
            message = self._tasks.pop()
        task_id = json.loads(message.data)["task_id"]
        text = json.dumps(_outcome(self._work, number, task_id))
        with self._lock:
            self._results.put(text)
            self._tasks.done(message.message_id)


@asynccontextmanager
async def _open_litequeue(folder: Path, work: Work) -> AsyncIterator[_LitequeueSession]:
    import litequeue

    tasks, results = litequeue.LiteQueue(folder / "tasks.db"), litequeue.LiteQueue(folder / "results.db")
    try:
        yield _LitequeueSession(work, tasks, results)
    finally:
        tasks.close()
        results.close()


class _HueySession(ThreadSession):
    """Deletes a task when it is taken, so there is nothing to acknowledge."""

    def __init__(self, work: Work, storage: Any) -> None:
        super().__init__(work)
        self._storage = storage

    async def durability(self) -> Durability:
        return read_durability(self._storage.conn)

    def put(self, number: int) -> None:
        self._storage.enqueue(json.dumps(_message(self._work, number)).encode())

    async def enqueue_bulk(self) -> None:
        return None

    def take_and_save(self, number: int) -> None:
        task_id = json.loads(self._storage.dequeue())["task_id"]
        self._storage.put_data(task_id, json.dumps(self._work.records[number]).encode(), is_result=True)


@asynccontextmanager
async def _open_huey(folder: Path, work: Work) -> AsyncIterator[_HueySession]:
    from huey.storage import SqliteStorage

    storage = SqliteStorage("bench", str(folder / "huey.db"))
    try:
        yield _HueySession(work, storage)
    finally:
        storage.close()


class _QueuelibSession(CoroutineSession):
    """Also deletes a task when it is taken. Yields to the next caller after each operation, as Scrapy does."""

    def __init__(self, work: Work, tasks: Any, results: Any) -> None:
        super().__init__(work)
        self._tasks = tasks
        self._results = results

    async def durability(self) -> Durability:
        return read_durability(self._tasks._db)

    async def put(self, number: int) -> None:
        self._tasks.push(json.dumps(_message(self._work, number)).encode())
        await asyncio.sleep(0)

    async def enqueue_bulk(self) -> None:
        return None

    async def take_and_save(self, number: int) -> None:
        task_id = json.loads(self._tasks.pop())["task_id"]
        await asyncio.sleep(0)
        self._results.push(json.dumps(_outcome(self._work, number, task_id)).encode())


@asynccontextmanager
async def _open_queuelib(folder: Path, work: Work) -> AsyncIterator[_QueuelibSession]:
    from queuelib.queue import FifoSQLiteQueue

    tasks, results = FifoSQLiteQueue(folder / "tasks.db"), FifoSQLiteQueue(folder / "results.db")
    try:
        yield _QueuelibSession(work, tasks, results)
    finally:
        tasks.close()
        results.close()


_BY_MODULE = {
    "persistqueue": Contender("persist-queue", "threads", "comes back at the next open", _open_persist_queue),
    "litequeue": Contender("litequeue", "threads, a lock", "stays locked until retried manually", _open_litequeue),
    "huey": Contender("huey", "threads", "is lost", _open_huey),
    "queuelib": Contender("queuelib", "coroutines", "is lost", _open_queuelib),
}


def installed() -> list[Contender]:
    return [contender for module, contender in _BY_MODULE.items() if find_spec(module)]


def missing() -> list[str]:
    return [contender.name for module, contender in _BY_MODULE.items() if not find_spec(module)]
