"""Storing results and leasing tasks: the gateway, the bare database driver and the plain handler, in turn."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from bench.gateway import client
from bench.gateway.client import BATCH, batches_of_tasks, post_bodies, posting_client, worker_of
from bench.measure import Run
from bench.store.contenders import PLATFORM
from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.model import Priority, Target, Task

Rows = Mapping[str, Sequence[tuple[Any, ...]]]
"""By table."""

_TABLES = {
    "parcels": "parcel_no",
    "sources": "source_no",
    "results": "source_no",
    "liens": "lien_no",
    "lien_sources": "lien_no",
}
"""What orders the rows of each."""


def sqlite_rows(filled: Path) -> Rows:
    with closing(sqlite3.connect(filled)) as db:
        return {name: db.execute(f"SELECT * FROM {name} ORDER BY {no}").fetchall() for name, no in _TABLES.items()}


def insert_sqlite(rows: Rows, empty: Path, batches: int) -> Run:
    with closing(sqlite3.connect(empty, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        parts = [_part(rows, batch, batches) for batch in range(batches)]
        start = time.perf_counter()
        for part in parts:
            db.execute("BEGIN IMMEDIATE")
            for name, values in part.items():
                db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values[0]))})", values)
            db.execute("COMMIT")
        return Run(len(rows["results"]), time.perf_counter() - start)


async def postgres_rows(filled: str) -> Rows:
    connection = await asyncpg.connect(filled)
    try:
        return {
            name: [tuple(row) for row in await connection.fetch(f"SELECT * FROM {name} ORDER BY {no}")]
            for name, no in _TABLES.items()
        }
    finally:
        await connection.close()


async def insert_postgres(rows: Rows, empty: str, batches: int) -> Run:
    """Uses COPY, the fastest way according to asyncpg's documentation."""
    connection = await asyncpg.connect(empty)
    try:
        parts = [_part(rows, batch, batches) for batch in range(batches)]
        start = time.perf_counter()
        for part in parts:
            async with connection.transaction():
                for name, values in part.items():
                    await connection.copy_records_to_table(name, records=values)
        return Run(len(rows["results"]), time.perf_counter() - start)
    finally:
        await asyncio.shield(connection.close())


def _part(rows: Rows, batch: int, batches: int) -> Rows:
    """Returns one batch: an equal share of the rows of each table."""
    cut = {
        name: values[len(values) * batch // batches : len(values) * (batch + 1) // batches]
        for name, values in rows.items()
    }
    return {name: values for name, values in cut.items() if values}


TASKS = 50

_PLATFORMS = ("vgsi", "beacon", "qpublic", "devnet")
_ASKED_FOR = _PLATFORMS[:2]
_CHUNK = 5_000
_GRANTS = 8
_ROUNDS = 5
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_LEASE = timedelta(minutes=15)
_MANY = 10_000


async def fill_queue(database: str, queued: int) -> None:
    """Queues tasks of four platforms and all priorities, mixed."""
    async with open_ledger(database, 1_000, SystemClock()) as ledger:
        for first in range(0, queued, _CHUNK):
            await ledger.add_tasks(list(_make_tasks(first, min(first + _CHUNK, queued))), _NOW)


async def measure_grants(databases: dict[int, str]) -> dict[int, list[float]]:
    """Returns the seconds of each lease by queue length. Rounds alternate, and each starts with all tasks queued."""
    seconds: dict[int, list[float]] = {queued: [] for queued in databases}
    for number in range(_ROUNDS + 1):
        for queued, database in databases.items():
            async with open_ledger(database, 1_000, SystemClock()) as ledger:
                taken = await _round(ledger, _NOW + number * 2 * _LEASE)
            if number:  # the first warms up
                seconds[queued] += taken
    return seconds


async def _round(ledger: Ledger, now: datetime) -> list[float]:
    taken = []
    for number in range(_GRANTS):
        start = time.perf_counter()
        granted = await ledger.grant(f"bench-{number}", _ASKED_FOR, TASKS, now, now + _LEASE)
        taken.append(time.perf_counter() - start)
        if len(granted) != TASKS:
            raise RuntimeError(f"{len(granted)} tasks were leased instead of {TASKS}")
    await ledger.expire_leases(now + 1.5 * _LEASE, _MANY)
    return taken[1:]  # a new connection's first call prepares its statements


def _make_tasks(first: int, last: int) -> Iterator[Task]:
    priorities = list(Priority)
    for number in range(first, last):
        target = Target(parcel_id=f"{number:08}", state="CT", county="hartford", url=f"https://example.org/{number}")
        yield Task(
            task_id=f"task-{number:08}",
            platform=_PLATFORMS[number % len(_PLATFORMS)],
            target=target,
            priority=priorities[number // len(_PLATFORMS) % len(priorities)],
        )


GATEWAYS = 3
_ATTEMPTS = 5
_STORE_LEASE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Trio:
    """Measured one after the other on the same disk."""

    ours: Run
    bare: Run
    peer: Run
    without_changes: Run
    several: Run | None
    """Through three gateways; None on SQLite."""
    left: Run
    """Results that were not compared yet when all were stored, and how long that took afterwards."""

    @property
    def to_bare(self) -> float:
        return self.ours.rate / self.bare.rate

    @property
    def to_without_changes(self) -> float:
        return self.ours.rate / self.without_changes.rate

    @property
    def several_to_one(self) -> float:
        return self.several.rate / self.ours.rate if self.several else 0.0

    @property
    def to_peer(self) -> float:
        return self.ours.rate / self.peer.rate


def store_on_sqlite(folder: Path, batches: int, peer_batches: int) -> Trio:
    filled, empty = folder / "gateway.db", folder / "bare.db"
    asyncio.run(_lease_tasks(str(filled), batches))
    ours = _through(client.gateway, str(filled), folder, batches)
    plain = folder / "plain.db"
    asyncio.run(_lease_tasks(str(plain), batches))
    without_changes = _through(client.gateway_without_changes, str(plain), folder, batches)
    asyncio.run(_lease_tasks(str(empty), 0))
    inserted = insert_sqlite(sqlite_rows(filled), empty, batches)
    peer = _through(client.peer, f"sqlite+aiosqlite:///{folder / 'peer.db'}", folder, peer_batches)
    return Trio(ours, inserted, peer, without_changes, None, asyncio.run(_find_changes(str(filled))))


def store_on_postgres(server: str, folder: Path, batches: int, peer_batches: int) -> Trio:
    filled = asyncio.run(client.fresh_database(server, "gateway"))
    asyncio.run(_lease_tasks(filled, batches))
    ours = _through(client.gateway, filled, folder, batches)
    plain = asyncio.run(client.fresh_database(server, "plain"))
    asyncio.run(_lease_tasks(plain, batches))
    without_changes = _through(client.gateway_without_changes, plain, folder, batches)
    shared = asyncio.run(client.fresh_database(server, "shared"))
    asyncio.run(_lease_tasks(shared, batches))
    several = _through(partial(client.gateways, GATEWAYS), shared, folder, batches)
    rows = asyncio.run(postgres_rows(filled))
    empty = asyncio.run(client.fresh_database(server, "bare"))
    asyncio.run(_lease_tasks(empty, 0))
    inserted = asyncio.run(insert_postgres(rows, empty, batches))
    other = asyncio.run(client.fresh_database(server, "peer"))
    peer = _through(client.peer, other.replace("postgresql://", "postgresql+asyncpg://"), folder, peer_batches)
    return Trio(ours, inserted, peer, without_changes, several, asyncio.run(_find_changes(filled)))


async def _lease_tasks(database: str, batches: int) -> None:
    """The tasks of the results to come, each leased by the worker that will send its result."""
    clock = SystemClock()
    async with open_ledger(database, _ATTEMPTS, clock) as ledger:
        for batch, tasks in enumerate(batches_of_tasks(batches)):
            now = clock.now()
            await ledger.add_tasks(tasks, now)
            granted = await ledger.grant(worker_of(batch), [PLATFORM], BATCH, now, now + _STORE_LEASE)
            if len(granted) != BATCH:
                raise RuntimeError(f"{len(granted)} tasks were leased instead of {BATCH}")


async def _find_changes(database: str) -> Run:
    """Compares what the gateway left, as it does when it is idle."""
    clock = SystemClock()
    async with open_ledger(database, _ATTEMPTS, clock) as ledger:
        compared, start = 0, time.perf_counter()
        while number := await ledger.find_changes(clock.now(), BATCH):
            compared += number
        return Run(compared, time.perf_counter() - start)


def _through(serve: client.Serve, database: str, folder: Path, batches: int) -> Run:
    with serve(database, folder) as url, posting_client(url, batches) as process:
        return post_bodies(process, batches)
