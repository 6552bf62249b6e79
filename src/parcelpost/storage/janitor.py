"""Housekeeping, called by a loop or by hand."""

from __future__ import annotations

import asyncio
import sqlite3

from parcelpost.clock import Clock
from parcelpost.errors import BackupFailed
from parcelpost.events import BackupMade, ClockSetBack, Emit, StoreCleaned
from parcelpost.storage import backup, future_times, health, retention
from parcelpost.storage.evidence import Evidence
from parcelpost.storage.opening import OpenStore
from parcelpost.storage.options import StoreOptions

_VACUUM_STEP_PAGES = 500
_FULL_VACUUM_SHARE = 0.25


class Janitor:
    def __init__(self, store: OpenStore, evidence: Evidence, options: StoreOptions, clock: Clock, emit: Emit) -> None:
        self._store = store
        self._evidence = evidence
        self._db = store.database
        self._raw = store.raw
        self._reserve = store.reserve
        self._live = store.live
        self._options = options
        self._clock = clock
        self._emit = emit

    async def backup(self, progress: backup.Progress | None = None) -> backup.Backup:
        """A verified copy in `backups/`, made while the store is in use; the oldest beyond `keep_backups` go.

        Raises BackupFailed and leaves the older ones alone.
        """
        keep = self._options.keep_backups
        try:
            made = await asyncio.to_thread(backup.make, self._db.path, self._clock.now(), keep, progress)
        except OSError as error:
            raise BackupFailed(f"no backup of {self._db.path} could be made: {error}") from error
        self._emit(BackupMade(path=made.path, bytes=made.bytes, removed=made.removed))
        return made

    async def clean(self, *, full: bool = False) -> StoreCleaned:
        """Removes what is past its retention period, refreshes the planner's statistics, gives space back.

        `full` is for `vacuum`.
        """
        cleaned = await self._store.even_if_full(
            lambda: retention.clean(self._db, self._raw, self._evidence, self._options, self._clock), self._emit
        )
        await self._db.write(_optimize)
        await self.vacuum(full=full)
        self._reserve.fill()
        self._emit(cleaned)
        return cleaned

    async def correct_times(self) -> None:
        """Lets nothing wait for a moment that the clock wrote when it was ahead."""
        note = await future_times.correct(self._db, self._clock)
        if note is not None:
            self._emit(ClockSetBack(seconds=note.seconds, tasks=note.tasks, platforms=note.platforms))

    async def relieve(self, *, full: bool = False) -> StoreCleaned:
        """At the cap: evidence, delivered rows and the cache go, whatever their age. What is unsynced stays (I8)."""
        cleaned = await self._store.even_if_full(
            lambda: retention.relieve(self._db, self._raw, self._evidence), self._emit
        )
        await self.vacuum(full=full)
        await self.give_back()
        self._emit(cleaned)
        return cleaned

    async def give_back(self) -> None:
        """Room that this process holds for speed: its journal of pages and, if nobody reads just now, the WAL."""
        await self._raw.give_back()
        await self._db.exclusively(_truncate_wal)

    async def refill(self) -> None:
        """Sets the reserve for a full disk aside again, if it was given up and there is room."""
        await asyncio.to_thread(self._reserve.fill)

    async def vacuum(self, *, full: bool = False) -> int:
        """Gives free pages back to the disk, a little at a time. Answers how many.

        `full` rebuilds the whole file, if more than a quarter of it is free; writers wait that long.
        """
        pages, free = await self._db.read(_pages)
        if full and free > pages * _FULL_VACUUM_SHARE:
            await self._db.exclusively(lambda db: db.execute("VACUUM").fetchall())
            return free
        given_back = 0
        while given_back < free:
            await self._db.exclusively(_vacuum_step)
            given_back += _VACUUM_STEP_PAGES
        return free

    async def usage(self) -> health.Usage:
        """Sizes against the caps; cheap enough to ask at every step of a loop."""
        return await health.usage(self._db, self._live, self._options)

    async def health(self, *, check: bool = False) -> health.Health:
        """With `check`, SQLite's quick check of the whole file, which takes a while on a large one."""
        return await health.health(self._db, self._live, self._options, self._clock.now(), check=check)


def _optimize(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA analysis_limit = 1000")
    db.execute("ANALYZE")


def _truncate_wal(db: sqlite3.Connection) -> None:
    patience = db.execute("PRAGMA busy_timeout").fetchone()[0]
    db.execute("PRAGMA busy_timeout = 0")  # writers stand behind this: it does not wait for a reader
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        db.execute(f"PRAGMA busy_timeout = {patience}")


def _pages(db: sqlite3.Connection) -> tuple[int, int]:
    return db.execute("PRAGMA page_count").fetchone()[0], db.execute("PRAGMA freelist_count").fetchone()[0]


def _vacuum_step(db: sqlite3.Connection) -> None:
    # As a script: `execute` takes one step of the statement, which frees one page.
    db.executescript(f"PRAGMA incremental_vacuum({_VACUUM_STEP_PAGES})")
