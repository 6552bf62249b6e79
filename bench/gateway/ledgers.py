"""Storing results and leasing tasks: the gateway, the bare database driver and the plain handler, in turn."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import psutil

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
class Metered:
    """With the processor seconds that the gateways and PostgreSQL used meanwhile."""

    run: Run
    gateway: float
    postgres: float
    """0 on SQLite."""

    @property
    def processor_ms(self) -> float:
        return self.gateway_ms + self.postgres_ms

    @property
    def gateway_ms(self) -> float:
        """Per result."""
        return self.gateway / self.run.done * 1000

    @property
    def postgres_ms(self) -> float:
        return self.postgres / self.run.done * 1000


class Meter:
    """Of these processes, and of PostgreSQL's."""

    def __init__(self, gateways: Sequence[psutil.Process], postgres: psutil.Process | None) -> None:
        self._gateways = gateways
        self._postgres = postgres
        self._began = self._used()

    def metered(self, run: Run) -> Metered:
        gateway, postgres = self._used()
        return Metered(run, gateway - self._began[0], postgres - self._began[1])

    def _used(self) -> tuple[float, float]:
        return sum(map(_own_seconds, self._gateways)), _family_seconds(self._postgres) if self._postgres else 0.0


def _own_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _family_seconds(parent: psutil.Process) -> float:
    """With its children, also those that have ended."""
    times = parent.cpu_times()
    used = float(times.user + times.system + times.children_user + times.children_system)
    for child in parent.children():
        with suppress(psutil.NoSuchProcess):
            used += _own_seconds(child)
    return used


@dataclass(frozen=True, slots=True)
class Trio:
    """Measured one after the other on the same disk."""

    ours: Metered
    bare: Run
    peer: Run
    without_changes: Metered
    several: Metered | None
    """Through three gateways; None on SQLite."""
    left: Run
    """Results that were not compared yet when all were stored, and how long that took afterwards."""
    compared: Metered
    """Looking for changes in all results."""
    indexed: Metered
    """Showing all of them in the search."""

    @property
    def to_bare(self) -> float:
        return self.ours.run.rate / self.bare.rate

    @property
    def to_without_changes(self) -> float:
        return self.ours.run.rate / self.without_changes.run.rate

    @property
    def several_to_one(self) -> float:
        return self.several.run.rate / self.ours.run.rate if self.several else 0.0

    @property
    def several_cost_to_one(self) -> float:
        """Processor time per result: more, if the gateways get in each other's way."""
        return self.several.processor_ms / self.ours.processor_ms if self.several else 0.0

    @property
    def to_peer(self) -> float:
        return self.ours.run.rate / self.peer.rate


def store_on_sqlite(folder: Path, batches: int, peer_batches: int) -> Trio:
    filled, plain, empty = folder / "gateway.db", folder / "plain.db", folder / "bare.db"
    asyncio.run(_lease_tasks(str(filled), batches))
    ours = _through(client.gateway, str(filled), folder, batches)
    asyncio.run(_lease_tasks(str(plain), batches))
    without_changes = _through(client.gateway_without_changes, str(plain), folder, batches)
    asyncio.run(_lease_tasks(str(empty), 0))
    inserted = insert_sqlite(sqlite_rows(filled), empty, batches)
    peer = _through(client.peer, f"sqlite+aiosqlite:///{folder / 'peer.db'}", folder, peer_batches)
    left = asyncio.run(_find_changes(str(filled)))
    compared, indexed = asyncio.run(_catch_up(str(plain)))
    return Trio(ours, inserted, peer.run, without_changes, None, left, compared, indexed)


def store_on_postgres(server: str, folder: Path, batches: int, peer_batches: int) -> Trio:
    postgres = asyncio.run(_server_process(server))
    filled = asyncio.run(client.fresh_database(server, "gateway"))
    asyncio.run(_lease_tasks(filled, batches))
    ours = _through(client.gateway, filled, folder, batches, postgres)
    plain = asyncio.run(client.fresh_database(server, "plain"))
    asyncio.run(_lease_tasks(plain, batches))
    without_changes = _through(client.gateway_without_changes, plain, folder, batches, postgres)
    shared = asyncio.run(client.fresh_database(server, "shared"))
    asyncio.run(_lease_tasks(shared, batches))
    several = _through(partial(client.gateways, GATEWAYS), shared, folder, batches, postgres)
    rows = asyncio.run(postgres_rows(filled))
    empty = asyncio.run(client.fresh_database(server, "bare"))
    asyncio.run(_lease_tasks(empty, 0))
    inserted = asyncio.run(insert_postgres(rows, empty, batches))
    other = asyncio.run(client.fresh_database(server, "peer"))
    peer = _through(client.peer, other.replace("postgresql://", "postgresql+asyncpg://"), folder, peer_batches)
    left = asyncio.run(_find_changes(filled))
    compared, indexed = asyncio.run(_catch_up(plain, postgres))
    return Trio(ours, inserted, peer.run, without_changes, several, left, compared, indexed)


async def _server_process(server: str) -> psutil.Process:
    """The parent of all processes of PostgreSQL."""
    connection = await asyncpg.connect(server)
    try:
        parent = psutil.Process(await connection.fetchval("SELECT pg_backend_pid()")).parent()
    finally:
        await connection.close()
    assert parent is not None
    return parent


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
        return await _repeated(lambda: ledger.find_changes(clock.now(), BATCH))


async def _catch_up(database: str, postgres: psutil.Process | None = None) -> tuple[Metered, Metered]:
    """Does in this process what a gateway does when it is idle: looks for changes, then updates the search."""
    clock = SystemClock()
    async with open_ledger(database, _ATTEMPTS, clock) as ledger:
        meter = Meter([psutil.Process()], postgres)
        compared = meter.metered(await _repeated(lambda: ledger.find_changes(clock.now(), BATCH)))
        meter = Meter([psutil.Process()], postgres)
        return compared, meter.metered(await _repeated(lambda: ledger.update_search(clock.now(), 2 * BATCH)))


async def _repeated(work: Callable[[], Awaitable[int]]) -> Run:
    """Until nothing is left. `work` returns how much it did."""
    done, start = 0, time.perf_counter()
    while number := await work():
        done += number
    return Run(done, time.perf_counter() - start)


def _through(
    serve: client.Serve, database: str, folder: Path, batches: int, postgres: psutil.Process | None = None
) -> Metered:
    with serve(database, folder) as url:
        gateways = psutil.Process().children()
        with posting_client(url, batches) as process:
            meter = Meter(gateways, postgres)
            return meter.metered(post_bodies(process, batches))
