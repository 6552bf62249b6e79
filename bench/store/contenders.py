"""The tasks and results to store, the interface of a contender, our store, and a ceiling."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import msgspec

from bench.measure import Run, run_coroutines, run_threads
from parcelpost.clock import iso
from parcelpost.model import Claim, Result, Target, Task
from parcelpost.settings.schema import GIB
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.options import StoreOptions

TARGET_BYTES = 300
RESULT_BYTES = 2048
PLATFORM = "vgsi"
SCRAPED_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Work:
    """Item i of each sequence belongs together. The peers get plain dicts, the store gets its own types."""

    tasks: Sequence[Task]
    results: Sequence[Result]
    targets: Sequence[Mapping[str, Any]]
    records: Sequence[Mapping[str, Any]]

    def __len__(self) -> int:
        return len(self.tasks)


def make_work(count: int) -> Work:
    tasks = list(make_tasks(count))
    records = [_make_record(number) for number in range(count)]
    return Work(
        tasks=tasks,
        results=[Result(data=record, scraped_at=SCRAPED_AT) for record in records],
        targets=[msgspec.to_builtins(task.target) for task in tasks],
        records=records,
    )


def make_tasks(count: int, prefix: str = "task") -> Iterator[Task]:
    """Tasks whose target is 300 bytes of compact JSON."""
    for number in range(count):
        yield Task(task_id=f"{prefix}-{number:08}", platform=PLATFORM, target=_make_target(number))


def _make_target(number: int) -> Target:
    parcel, url = f"{number:08}-000", f"https://gis.example.org/hartfordct/parcel.aspx?pid={number}"
    bare = Target(parcel_id=parcel, state="CT", county="hartford", url=url, extra={"note": ""})
    missing = TARGET_BYTES - len(msgspec.json.encode(bare))
    return Target(parcel_id=parcel, state="CT", county="hartford", url=url, extra={"note": "n" * missing})


def _make_record(number: int) -> dict[str, Any]:
    """Returns a record of one parcel, padded to 2 KB of compact JSON."""
    record: dict[str, Any] = {
        "parcel_id": f"{number:08}-000",
        "owner": {"name": f"DOE JOHN {number}", "mailing": f"{number % 900} MAIN ST, HARTFORD, CT 06103"},
        "assessed": {"land": 41_300 + number % 1000, "building": 128_900.5, "total": 170_200.5, "year": 2025},
        "bills": [
            {"year": year, "due": 3_214.55, "paid": 0.0 if year == 2025 else 3_214.55, "lien": year == 2025}
            for year in range(2016, 2026)
        ],
        "sales": [{"date": "2011-04-05", "price": 189_000, "book": "1022", "page": str(number)}],
        "legal": "",
    }
    missing = RESULT_BYTES - len(json.dumps(record, separators=(",", ":")))
    return {**record, "legal": ("LOT 7 BLK 12 MAP 103 " * 100)[:missing]}


SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


@dataclass(frozen=True, slots=True)
class Durability:
    """SQLite's settings, as read from a live connection."""

    journal: str
    synchronous: str

    @property
    def survives_power_loss(self) -> bool:
        """Whether an operation that has returned survives a power failure."""
        return self.synchronous in ("FULL", "EXTRA") and self.journal not in ("OFF", "MEMORY")

    @classmethod
    def of(cls, journal: str | bytes, synchronous: int) -> Durability:
        """From the values of the two pragmas."""
        name = journal.decode() if isinstance(journal, bytes) else journal
        return cls(name.upper(), SYNCHRONOUS[synchronous])

    def __str__(self) -> str:
        return f"{self.journal}/{self.synchronous}"


def read_durability(connection: sqlite3.Connection) -> Durability:
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    return Durability.of(journal, synchronous)


class Session(Protocol):
    """An open queue. `limit` is in seconds; on a slow disk, fewer operations are measured."""

    async def durability(self) -> Durability: ...

    async def enqueue(self, callers: int, limit: float) -> Run: ...

    async def enqueue_bulk(self) -> Run | None:
        """Adds all tasks in one call and one transaction. Returns None if the library cannot."""

    async def claim_and_save(self, callers: int, limit: float) -> Run: ...


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    callers: str
    """Coroutines or threads."""
    after_kill: str
    """What happens to a task that was claimed when the process was killed."""
    open: Callable[[Path, Work], AbstractAsyncContextManager[Session]]
    peer: bool = True
    """Whether the goals for peers apply to it, if it survives power loss."""


class CoroutineSession(ABC):
    """Callers are coroutines on one event loop."""

    def __init__(self, work: Work) -> None:
        self._work = work

    @abstractmethod
    async def put(self, number: int) -> None: ...

    @abstractmethod
    async def take_and_save(self, number: int) -> None: ...

    async def enqueue(self, callers: int, limit: float) -> Run:
        return await run_coroutines(callers, len(self._work), limit, self.put)

    async def claim_and_save(self, callers: int, limit: float) -> Run:
        return await run_coroutines(callers, len(self._work), limit, self.take_and_save)


class ThreadSession(ABC):
    """Callers are threads. The event loop is blocked meanwhile."""

    def __init__(self, work: Work) -> None:
        self._work = work

    @abstractmethod
    def put(self, number: int) -> None: ...

    @abstractmethod
    def take_and_save(self, number: int) -> None: ...

    async def enqueue(self, callers: int, limit: float) -> Run:
        return run_threads(callers, len(self._work), limit, self.put)

    async def claim_and_save(self, callers: int, limit: float) -> Run:
        return run_threads(callers, len(self._work), limit, self.take_and_save)


OPTIONS = StoreOptions(max_bytes=64 * GIB, min_free_bytes=0)
"""The defaults, with room for a million tasks."""


def store_path(folder: Path) -> Path:
    return folder / "store" / "parcelpost.db"


class _OurSession(CoroutineSession):
    def __init__(self, work: Work, lpm: LocalPersistenceManager) -> None:
        super().__init__(work)
        self._lpm = lpm
        self._claimed: list[Claim] = []

    async def durability(self) -> Durability:
        return await self._lpm._db.write(read_durability)  # as its writer sees it

    async def put(self, number: int) -> None:
        await self._lpm.add_task(self._work.tasks[number])

    async def enqueue_bulk(self) -> Run:
        start = time.perf_counter()
        await self._lpm.add_tasks(self._work.tasks)
        return Run(len(self._work), time.perf_counter() - start)

    async def take_and_save(self, number: int) -> None:
        """As a busy slot does: it claims its next task while its result is being saved, so that both share a commit."""
        claim = self._claimed.pop() if self._claimed else (await self._lpm.claim(1))[0]
        claiming = asyncio.ensure_future(self._lpm.claim(1))
        await self._lpm.save_result(claim, self._work.results[number])
        self._claimed += await claiming


@asynccontextmanager
async def _open_ours(folder: Path, work: Work) -> AsyncIterator[_OurSession]:
    async with LocalPersistenceManager.open(store_path(folder), options=OPTIONS) as lpm:
        yield _OurSession(work, lpm)


OURS = Contender("parcelpost", "coroutines", "comes back at the next open", _open_ours, peer=False)


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
    """Everything of a result except its task's id, which comes from the claim."""
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
async def _open_ceiling(folder: Path, work: Work) -> AsyncIterator[_CeilingSession]:
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


CEILING = Contender("sqlite3 ceiling", "none", "(not a queue)", _open_ceiling, peer=False)
