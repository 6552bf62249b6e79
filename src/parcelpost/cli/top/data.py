"""What `top` shows, read from the store: once, or again and again while the screen is open."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.cli.context import CLOCK, open_for_reading
from parcelpost.cli.health.overview import StoreOverview, WorkerBrowser, gather_store_overview, worker_browsers
from parcelpost.cli.health.store_files import open_finding
from parcelpost.cli.settings_options import StoreContext, run_command
from parcelpost.clock import Clock, iso
from parcelpost.errors import StoreError
from parcelpost.health_checks import Finding
from parcelpost.model import QueueDepth
from parcelpost.storage import locks, queries
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.history import Metrics, TimedSample
from parcelpost.storage.queries import PART_CHARS, RecentError, RunningTask
from parcelpost.storage.worker_state import WorkerState
from parcelpost.worker.status import WorkerStatus, read_statuses

RATE_STEPS = 60
STEP_SECONDS = 10
_MAX_RUNNING = 1_000
_MAX_ERRORS = 60
_MAX_SAMPLES = 60


class Rates(Struct, frozen=True, kw_only=True):
    """Counts for each ten seconds of the last ten minutes, oldest first."""

    completed: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    """Failed or expired."""
    delivered: tuple[int, ...] = ()
    fetched: tuple[int, ...] = ()
    """Tasks received from the upstream."""


class StoreFailure(Struct, frozen=True, kw_only=True):
    """Why the store cannot be read."""

    at: datetime
    since: datetime
    finding: Finding


class TopData(Struct, frozen=True, kw_only=True):
    at: datetime
    store: str
    start: str
    """The command that starts a worker."""
    overview: StoreOverview
    overview_at: datetime
    queue: QueueDepth = QueueDepth()
    platforms: dict[str, dict[str, int]] = {}
    """Tasks by platform and status."""
    statuses: tuple[WorkerStatus, ...] = ()
    """Status of each running worker."""
    running: tuple[RunningTask, ...] = ()
    browsers: tuple[WorkerBrowser, ...] = ()
    rates: Rates = Rates()
    samples: tuple[TimedSample, ...] = ()
    """Samples of the last hour, one per minute."""
    errors: tuple[RecentError, ...] = ()

    @property
    def slots(self) -> int:
        return sum(status.slots for status in self.statuses)

    @property
    def busy_slots(self) -> int:
        """Of the running workers: other processes, and workers that crashed, may hold tasks too."""
        claimed = Counter(task.claimed_by for task in self.running)
        return sum(min(claimed[status.owner], status.slots) for status in self.statuses)

    def running_on(self, platform: str) -> int:
        return sum(task.platform == platform for task in self.running)


async def read_rates(database: LocalDatabase, now: datetime) -> Rates:
    current = now.replace(second=now.second - now.second % STEP_SECONDS, microsecond=0)
    starts = [current - timedelta(seconds=STEP_SECONDS * steps) for steps in reversed(range(RATE_STEPS))]
    throughput = await database.read(queries.throughput_since, starts[0])

    def by_step(counts: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(counts.get(iso(start)[:PART_CHARS], 0) for start in starts)

    return Rates(
        completed=by_step(throughput.completed),
        failed=by_step(throughput.failed),
        delivered=by_step(throughput.delivered),
        fetched=by_step(throughput.fetched),
    )


T = TypeVar("T")


class PacedQuery(Generic[T]):
    """Runs a query again when `seconds` have passed, and seldom enough to take one percent of the time at most."""

    def __init__(self, query: Callable[[], Awaitable[T]], seconds: float, clock: Clock) -> None:
        self._query = query
        self._seconds = seconds
        self._clock = clock
        self._last: T | None = None
        self._due = 0.0

    async def get(self) -> T:
        started = self._clock.monotonic()
        if self._last is None or started >= self._due:
            self._last = await self._query()
            ended = self._clock.monotonic()
            self._due = ended + max(self._seconds, 100 * (ended - started))
        return self._last

    def expire(self) -> None:
        self._due = 0.0


async def watch(store: StoreContext) -> AsyncGenerator[TopData | StoreFailure, None]:
    """Yields the state of the store, or why it cannot be read, each time it is requested. Never ends or fails."""
    failure, shown = None, ""
    while True:
        try:
            async with aclosing(_watch_file(store)) as file:
                async for data in file:
                    failure = None
                    yield data
        except (StoreError, OSError) as error:
            now = CLOCK.now()
            if failure is None or shown != str(error):  # to name a fix, backups may have to be read
                finding, shown = await asyncio.to_thread(open_finding, store, error), str(error)
                failure = StoreFailure(at=now, since=failure.since if failure else now, finding=finding)
            failure = replace(failure, at=now)
            yield failure


async def read_once(store: StoreContext) -> TopData:
    """Raises a StoreError where the store cannot be read."""
    async with aclosing(_watch_file(store)) as file:
        return await anext(file)


async def _watch_file(store: StoreContext) -> AsyncGenerator[TopData, None]:
    """Returns when another file takes the store's place. Raises a StoreError."""
    async with open_for_reading(store, patience=1.0) as database:
        reader = _Reader(store, database)
        file = _file_identity(store)
        while file == _file_identity(store):
            yield await reader.read()


class _Reader:
    def __init__(self, store: StoreContext, database: LocalDatabase) -> None:
        self._store = store
        self._db = database
        self._owners: set[str] = set()
        self._overview = PacedQuery(self._read_overview, 5.0, CLOCK)
        self._counts = PacedQuery(self._read_counts, 1.0, CLOCK)
        self._rates = PacedQuery(lambda: read_rates(database, CLOCK.now()), 1.0, CLOCK)

    async def read(self) -> TopData:
        now = CLOCK.now()
        live = locks.live_folder(self._store.path)
        statuses = await read_statuses(WorkerState(self._db, CLOCK))
        running = tuple(status for status in statuses if locks.is_alive(live, status.owner))
        owners = {status.owner for status in running}
        if owners != self._owners:  # a worker has started or ended
            self._owners = owners
            self._overview.expire()
        overview, overview_at, start = await self._overview.get()
        queue, platforms = await self._counts.get()
        return TopData(
            at=now,
            store=str(self._store.path),
            start=start,
            overview=overview,
            overview_at=overview_at,
            queue=queue,
            platforms=platforms,
            statuses=running,
            running=tuple(await self._db.read(queries.running, _MAX_RUNNING)),
            browsers=tuple(await worker_browsers(self._db)),
            rates=await self._rates.get(),
            samples=tuple(await Metrics(self._db, CLOCK).since(now - timedelta(hours=1), _MAX_SAMPLES)),
            errors=tuple(await self._db.read(queries.recent_errors, _MAX_ERRORS)),
        )

    async def _read_counts(self) -> tuple[QueueDepth, dict[str, dict[str, int]]]:
        now = CLOCK.now()
        depth = await self._db.read(queries.depth, now)
        return depth, await self._db.read(queries.counts, iso(now))

    async def _read_overview(self) -> tuple[StoreOverview, datetime, str]:
        overview = await gather_store_overview(self._store)
        waiting = await self._db.read(queries.sources)
        return overview, CLOCK.now(), run_command(self._store, waiting.pending | waiting.unsent)


def _file_identity(store: StoreContext) -> tuple[int, int] | None:
    """Changes when a restore replaces the file; None if the file is gone."""
    try:
        file = store.path.stat()
    except FileNotFoundError:
        return None
    return file.st_dev, file.st_ino
