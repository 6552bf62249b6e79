"""The data of one screen, and how it is read from the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.cli.context import CLOCK, open_for_reading, with_store_name
from parcelpost.cli.health import overview
from parcelpost.cli.health.overview import Overview, WorkerBrowser, browsers_in
from parcelpost.cli.options import run_command
from parcelpost.clock import Clock, iso
from parcelpost.errors import StoreError, StoreNotFound
from parcelpost.model import QueueDepth
from parcelpost.storage import queries
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.errors import os_error
from parcelpost.storage.history import Metrics, TimedSample
from parcelpost.storage.queries import PART_CHARS, RecentError, RunningTask, Throughput, throughput_since
from parcelpost.storage.state import WorkerState
from parcelpost.worker.status import WorkerStatus, read_statuses

MOST_ROWS = 60
"""Of what runs, of errors, of samples."""


class Rates(Struct, frozen=True, kw_only=True):
    """How much in each ten seconds of the last ten minutes, the oldest first."""

    completed: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    """Failed or expired."""
    delivered: tuple[int, ...] = ()
    fetched: tuple[int, ...] = ()


class StoreProblem(Struct, frozen=True, kw_only=True):
    """Why the store cannot be looked at."""

    error: str
    hint: str
    since: datetime
    is_missing: bool = False
    """There is no store yet."""


class ScreenData(Struct, frozen=True, kw_only=True):
    """Without an overview: nothing could be seen yet."""

    at: datetime
    store: str
    start: str
    """The command that starts a worker."""
    problem: StoreProblem | None = None
    """While there is one, the rest is what was seen last."""
    overview: Overview | None = None
    overview_at: datetime | None = None
    queue: QueueDepth = QueueDepth()
    platforms: dict[str, dict[str, int]] = {}
    statuses: tuple[WorkerStatus, ...] = ()
    """Of the workers that live."""
    running: tuple[RunningTask, ...] = ()
    browsers: tuple[WorkerBrowser, ...] = ()
    rates: Rates = Rates()
    samples: tuple[TimedSample, ...] = ()
    """Of the last hour, one a minute."""
    troubles: tuple[RecentError, ...] = ()

    @property
    def held(self) -> int:
        """How many tasks run: those that are shown, or, where there are more, as many as were counted last."""
        return len(self.running) if len(self.running) < MOST_ROWS else max(self.queue.processing, MOST_ROWS)

    @property
    def busy_slots(self) -> int:
        """Of the workers that live. A program beside them, or one that died, may hold tasks, too."""
        if len(self.running) >= MOST_ROWS:
            return min(self.held, sum(one.slots for one in self.statuses))
        held = Counter(one.claimed_by for one in self.running)
        return sum(min(held[one.owner], one.slots) for one in self.statuses)

    def held_of(self, platform: str) -> int:
        if len(self.running) < MOST_ROWS:
            return sum(one.platform == platform for one in self.running)
        return self.platforms.get(platform, {}).get("processing", 0)


PARTS = 60
PART_SECONDS = 10

_NAMES = ("completed", "failed", "delivered", "fetched")


class RateBook:
    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in _NAMES}
        self._known_to: datetime | None = None
        """Where a part begins, before which everything is counted."""

    async def look(self, database: LocalDatabase, now: datetime) -> Rates:
        first = part_start(now) - timedelta(seconds=PART_SECONDS * (PARTS - 1))
        since = self._known_to
        if since is None or not first <= since <= now:  # the first look, a long pause, or a clock that was set back
            self._counts = {name: Counter() for name in _NAMES}
            since = first
        self._take(await database.read(throughput_since, since), since)
        # What ends now may be committed a little later: the part before is counted once more.
        self._known_to = max(first, part_start(now) - timedelta(seconds=PART_SECONDS))
        return self._rates(first)

    def _take(self, done: Throughput, since: datetime) -> None:
        again = iso(since)[:PART_CHARS]
        for name, counts in self._counts.items():
            for part in [part for part in counts if part >= again]:
                del counts[part]
            counts.update(getattr(done, name))

    def _rates(self, first: datetime) -> Rates:
        parts = [iso(first + timedelta(seconds=PART_SECONDS * n))[:PART_CHARS] for n in range(PARTS)]
        for counts in self._counts.values():
            for old in [part for part in counts if part < parts[0]]:
                del counts[old]
        return Rates(**{name: tuple(counts[part] for part in parts) for name, counts in self._counts.items()})


def part_start(now: datetime) -> datetime:
    return now.replace(second=now.second - now.second % PART_SECONDS, microsecond=0)


T = TypeVar("T")

_TIME_SHARE = 0.01
"""Of the time that goes by, at most."""


class PacedQuery(Generic[T]):
    def __init__(self, look: Callable[[], Awaitable[T]], at_least: float, clock: Clock) -> None:
        self._look = look
        self._at_least = at_least
        self._clock = clock
        self._found: T | None = None
        self._due = 0.0

    async def get(self) -> T:
        """What was found last, or, when that is due, what is found now."""
        began = self._clock.monotonic()
        if self._found is None or began >= self._due:
            self._found = await self._look()
            ended = self._clock.monotonic()
            self._due = ended + max(self._at_least, (ended - began) / _TIME_SHARE)
        return self._found


_COUNTS_SECONDS = 1.0
_OVERVIEW_SECONDS = 5.0
_PATIENCE_SECONDS = 1.0
_SAMPLES_FOR = timedelta(hours=1)


async def watch(store: Path) -> AsyncGenerator[ScreenData, None]:
    """One after the other, each as it is when it is asked for. Never ends and never fails: a store that is missing,
    damaged, newer or locked is part of what is seen.
    """
    last = ScreenData(at=CLOCK.now(), store=str(store), start=run_command(store, ()))
    while True:
        try:
            async with aclosing(_watch_file(store)) as looks:
                async for last in looks:
                    yield last
        except (StoreError, OSError) as error:
            last = replace(last, at=CLOCK.now(), problem=_problem(error, store, last.problem))
            yield last


async def gather_once(store: Path) -> ScreenData:
    """Raises a StoreError for what cannot be looked at."""
    async with aclosing(_watch_file(store)) as looks:
        return await anext(looks)


async def _watch_file(store: Path) -> AsyncGenerator[ScreenData, None]:
    """Until another file stands in its place. Raises a StoreError."""
    async with open_for_reading(store, patience=_PATIENCE_SECONDS) as database:
        glance = _Query(store, database)
        file = _identity(store)
        while file == _identity(store):
            yield await glance.look()


class _Query:
    def __init__(self, store: Path, database: LocalDatabase) -> None:
        self._store = store
        self._db = database
        self._rates = RateBook()
        self._counts = PacedQuery(self._count, _COUNTS_SECONDS, CLOCK)
        self._overview = PacedQuery(self._look_over, _OVERVIEW_SECONDS, CLOCK)

    async def look(self) -> ScreenData:
        now = CLOCK.now()
        found, found_at, start = await self._overview.get()
        queue, platforms = await self._counts.get()
        alive = {one.id for one in found.workers}
        statuses = await read_statuses(WorkerState(self._db, CLOCK))
        return ScreenData(
            at=now,
            store=str(self._store),
            start=start,
            overview=found,
            overview_at=found_at,
            queue=queue,
            platforms=platforms,
            statuses=tuple(one for one in statuses if one.owner in alive),
            running=tuple(await self._db.read(queries.running, MOST_ROWS)),
            browsers=tuple(await browsers_in(self._db, self._store)),
            rates=await self._rates.look(self._db, now),
            samples=tuple(await Metrics(self._db, CLOCK).since(now - _SAMPLES_FOR, MOST_ROWS)),
            troubles=tuple(await self._db.read(queries.recent_errors, MOST_ROWS)),
        )

    async def _count(self) -> tuple[QueueDepth, dict[str, dict[str, int]]]:
        now = CLOCK.now()
        depth = await self._db.read(queries.depth, now)
        return depth, await self._db.read(queries.counts, iso(now))

    async def _look_over(self) -> tuple[Overview, datetime, str]:
        found = await overview.gather_overview(self._store)
        waiting = await self._db.read(queries.sources)
        return found, CLOCK.now(), run_command(self._store, waiting.pending | waiting.unsent)


def _identity(store: Path) -> tuple[int, int] | None:
    """Which file it is: a restore puts another one in its place. None: it is gone."""
    try:
        found = store.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _problem(error: StoreError | OSError, store: Path, before: StoreProblem | None) -> StoreProblem:
    known = with_store_name(os_error(error, store) if isinstance(error, OSError) else error, store)
    return StoreProblem(
        error=str(known),
        hint=known.hint,
        since=before.since if before else CLOCK.now(),
        is_missing=isinstance(known, StoreNotFound),
    )
