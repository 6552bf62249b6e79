"""What SQLite itself could do with the same rows: the store's own schema, one thread, 1,000 operations a transaction.

Nothing else: rows are made before the clock starts, no caller waits for an answer, no foreign keys are checked, no
event is reported. Its figure is the same for any number of callers, because it has none.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from bench.store.contender import Contender, Durability, read_durability
from bench.store.work import SCRAPED_AT, Work
from bench.timing import Run
from parcelpost.clock import iso

_PER_TRANSACTION = 1000
_NOW = iso(SCRAPED_AT)
_PUT = """
INSERT INTO tasks (task_id, source, type, platform, state, county, parcel_id, target_json, priority, max_retries,
                   created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_CLAIM = """
UPDATE tasks SET status = 'processing', claim_token = ?, claimed_by = 'bench', started_at = ?, updated_at = ?
WHERE seq = (SELECT seq FROM tasks WHERE status = 'pending' AND available_at IS NULL AND platform = ?
             ORDER BY priority, seq LIMIT 1)
RETURNING seq, task_id, target_json
"""
_SAVE = """
INSERT INTO results (result_id, task_id, success, parcel_id, platform, state, county, execution_time_ms,
                     idempotency_key, scraped_at, created_at, data)
VALUES (?, ?, 1, ?, ?, ?, ?, 0, ?, ?, ?, ?)
"""
_FINISH = """
UPDATE tasks SET status = 'completed', claim_token = NULL, claimed_by = NULL, completed_at = ?, updated_at = ?
WHERE seq = ? AND claim_token = ?
"""

_Row = tuple[str | int, ...]


def _put_row(work: Work, number: int) -> _Row:
    task, target = work.tasks[number], json.dumps(work.targets[number], separators=(",", ":"))
    place = (task.target.state, task.target.county, task.target.parcel_id)
    head = (task.task_id, str(task.source), task.type, task.platform, *place, target)
    return (*head, int(task.priority), task.max_retries, _NOW, _NOW)


def _result_row(work: Work, number: int) -> _Row:
    """Everything of a result but its task's id, which only the claim tells."""
    task, data = work.tasks[number], json.dumps(work.records[number], separators=(",", ":"))
    key = hashlib.sha256(f"{task.task_id}{data}".encode()).hexdigest()
    place = (task.target.parcel_id, task.platform, task.target.state, task.target.county)
    return (key[:32], *place, key, _NOW, _NOW, data)


class _CeilingSession:
    def __init__(self, work: Work, db: sqlite3.Connection) -> None:
        self._db = db
        self._platform = work.tasks[0].platform
        self._put_rows = [_put_row(work, number) for number in range(len(work))]
        self._result_rows = [_result_row(work, number) for number in range(len(work))]

    async def durability(self) -> Durability:
        return read_durability(self._db)

    async def enqueue(self, callers: int, limit: float) -> Run:
        return self._in_transactions(limit, lambda begin, end: self._put(self._put_rows[begin:end]))

    async def enqueue_bulk(self) -> Run:
        start = time.perf_counter()
        with self._db:
            self._put(self._put_rows)
        return Run(len(self._put_rows), time.perf_counter() - start)

    async def claim_and_save(self, callers: int, limit: float) -> Run:
        return self._in_transactions(limit, self._take_and_save)

    def _in_transactions(self, limit: float, work: Callable[[int, int], None]) -> Run:
        start = time.perf_counter()
        done = 0
        while done < len(self._put_rows) and time.perf_counter() - start < limit:
            end = min(done + _PER_TRANSACTION, len(self._put_rows))
            with self._db:
                work(done, end)
            done = end
        return Run(done, time.perf_counter() - start)

    def _put(self, rows: list[_Row]) -> None:
        self._db.executemany(_PUT, rows)

    def _take_and_save(self, begin: int, end: int) -> None:
        execute = self._db.execute
        for number in range(begin, end):
            token = str(number)
            seq, task_id, _ = execute(_CLAIM, (token, _NOW, _NOW, self._platform)).fetchone()
            result_id, *rest = self._result_rows[number]
            execute(_SAVE, (result_id, task_id, *rest))
            execute(_FINISH, (_NOW, _NOW, seq, token))


@asynccontextmanager
async def _open(folder: Path, work: Work) -> AsyncIterator[_CeilingSession]:
    path = folder / "ceiling.db"
    fresh = not path.exists()
    db = sqlite3.connect(path)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA cache_size = -64000")
        db.execute("PRAGMA secure_delete = OFF")
        if fresh:
            schema = files("parcelpost.storage") / "migrations" / "0001_initial.sql"
            db.executescript(schema.read_text(encoding="utf-8"))
        yield _CeilingSession(work, db)
    finally:
        db.close()


CEILING = Contender("sqlite3 ceiling", "none", "(not a queue)", _open, peer=False)
