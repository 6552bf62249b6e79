"""Queue libraries on SQLite, as their own documents use them, at the durability they choose themselves.

None stores a result together with the end of its task, so each keeps results beside its queue: huey in its own
key-value table, the others in a second queue in a file of its own. The result goes first, then the acknowledgement,
as a careful user would have it.

- persist-queue and huey are made for threads and bring their locks.
- litequeue's connection may be used by any thread but two may not at once, so its users need a lock.
- queuelib's connection belongs to one thread; Scrapy calls it from its event loop, and so do the coroutines here.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.store.contender import Contender, CoroutineSession, Durability, ThreadSession, read_durability
from bench.store.work import Work
from bench.timing import Run


def _message(work: Work, number: int) -> Mapping[str, Any]:
    task = work.tasks[number]
    return {"task_id": task.task_id, "platform": task.platform, "target": work.targets[number]}


def _outcome(work: Work, number: int, task_id: str) -> Mapping[str, Any]:
    return {"task_id": task_id, "data": work.records[number]}


class _PersistQueueSession(ThreadSession):
    """Pickles by itself, which is faster than JSON."""

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
    """Deletes a task when it is taken: there is nothing to acknowledge."""

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
    """Deletes a task when it is taken, too. Each turn of the loop lets the next caller in, as Scrapy's does."""

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
    "litequeue": Contender("litequeue", "threads, a lock", "stays locked until retried by hand", _open_litequeue),
    "huey": Contender("huey", "threads", "is lost", _open_huey),
    "queuelib": Contender("queuelib", "coroutines", "is lost", _open_queuelib),
}


def installed() -> list[Contender]:
    return [contender for module, contender in _BY_MODULE.items() if find_spec(module)]


def missing() -> list[str]:
    return [contender.name for module, contender in _BY_MODULE.items() if not find_spec(module)]
