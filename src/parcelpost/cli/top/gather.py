"""Looks at the store, again and again, on one connection for as long as it is the same file."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from parcelpost.cli import overview
from parcelpost.cli.browser_seen import seen_in
from parcelpost.cli.options import run_command
from parcelpost.cli.overview import Overview
from parcelpost.cli.running import CLOCK, looking, named
from parcelpost.cli.top.paced import Paced
from parcelpost.cli.top.rates import RateBook
from parcelpost.cli.top.seen import MOST_ROWS, Problem, Seen
from parcelpost.clock import iso
from parcelpost.errors import StoreError, StoreNotFound
from parcelpost.model import QueueDepth
from parcelpost.storage import queries
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.errors import os_error
from parcelpost.storage.history import Metrics
from parcelpost.storage.state import WorkerState
from parcelpost.worker.status import read_statuses

_COUNTS_SECONDS = 1.0
_OVERVIEW_SECONDS = 5.0
_PATIENCE_SECONDS = 1.0
_SAMPLES_FOR = timedelta(hours=1)


async def watch(store: Path) -> AsyncGenerator[Seen, None]:
    """One after the other, each as it is when it is asked for. Never ends and never fails: a store that is missing,
    damaged, newer or locked is part of what is seen.
    """
    last = Seen(at=CLOCK.now(), store=str(store), start=run_command(store, ()))
    while True:
        try:
            async with aclosing(_of_one_file(store)) as looks:
                async for last in looks:
                    yield last
        except (StoreError, OSError) as error:
            last = replace(last, at=CLOCK.now(), problem=_problem(error, store, last.problem))
            yield last


async def once(store: Path) -> Seen:
    """Raises a StoreError for what cannot be looked at."""
    async with aclosing(_of_one_file(store)) as looks:
        return await anext(looks)


async def _of_one_file(store: Path) -> AsyncGenerator[Seen, None]:
    """Until another file stands in its place. Raises a StoreError."""
    async with looking(store, patience=_PATIENCE_SECONDS) as database:
        glance = _Glance(store, database)
        file = _identity(store)
        while file == _identity(store):
            yield await glance.look()


class _Glance:
    def __init__(self, store: Path, database: LocalDatabase) -> None:
        self._store = store
        self._db = database
        self._rates = RateBook()
        self._counts = Paced(self._count, _COUNTS_SECONDS, CLOCK)
        self._overview = Paced(self._look_over, _OVERVIEW_SECONDS, CLOCK)

    async def look(self) -> Seen:
        now = CLOCK.now()
        found, found_at, start = await self._overview.get()
        queue, platforms = await self._counts.get()
        alive = {one.id for one in found.workers}
        statuses = await read_statuses(WorkerState(self._db, CLOCK))
        return Seen(
            at=now,
            store=str(self._store),
            start=start,
            overview=found,
            overview_at=found_at,
            queue=queue,
            platforms=platforms,
            statuses=tuple(one for one in statuses if one.owner in alive),
            running=tuple(await self._db.read(queries.running, MOST_ROWS)),
            browsers=tuple(await seen_in(self._db, self._store)),
            rates=await self._rates.look(self._db, now),
            samples=tuple(await Metrics(self._db, CLOCK).since(now - _SAMPLES_FOR, MOST_ROWS)),
            troubles=tuple(await self._db.read(queries.recent_errors, MOST_ROWS)),
        )

    async def _count(self) -> tuple[QueueDepth, dict[str, dict[str, int]]]:
        now = CLOCK.now()
        depth = await self._db.read(queries.depth, now)
        return depth, await self._db.read(queries.counts, iso(now))

    async def _look_over(self) -> tuple[Overview, datetime, str]:
        found = await overview.gather(self._store)
        waiting = await self._db.read(queries.sources)
        return found, CLOCK.now(), run_command(self._store, waiting.pending | waiting.unsent)


def _identity(store: Path) -> tuple[int, int] | None:
    """Which file it is: a restore puts another one in its place. None: it is gone."""
    try:
        found = store.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _problem(error: StoreError | OSError, store: Path, before: Problem | None) -> Problem:
    known = named(os_error(error, store) if isinstance(error, OSError) else error, store)
    return Problem(
        error=str(known),
        hint=known.hint,
        since=before.since if before else CLOCK.now(),
        is_missing=isinstance(known, StoreNotFound),
    )
