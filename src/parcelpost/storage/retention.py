"""Retention and maintenance: deletes expired rows and files, makes backups, vacuums, frees space on a full disk."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import os
import sqlite3
from collections.abc import Container, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from parcelpost.clock import iso
from parcelpost.errors import BackupFailed, StoreError
from parcelpost.events import BackupMade, ClockSetBack, StoreCleaned
from parcelpost.storage import backup, cache, clock_changes, health, learning_signals, outbox, refresh
from parcelpost.storage.artifacts import Artifacts
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.raw_files import RawFiles
from parcelpost.storage.recovery import OpenStore
from parcelpost.storage.snapshot import copies, open_read_only

_BATCH = 500
_ANY_TIME = "9999"
_ORPHAN_AGE = timedelta(days=1)
_BYTES_A_SIGNAL = 256
_SIGNALS_SHARE = 8
"""Relief leaves signals about this part of the store's size limit, or less."""


async def clean(store: OpenStore, artifacts: Artifacts) -> StoreCleaned:
    """Deletes what is past its retention period, but no undelivered results (I2, I8)."""
    database, raw, options, now = store.database, store.raw, store.options, store.clock.now()

    def before(days: float) -> datetime:
        return now - timedelta(days=days)

    results, files = await _remove_results(store, iso(before(options.keep_results_days)))
    removed = await _remove_tasks(store, iso(before(options.keep_tasks_days)))
    orphans = await _remove_orphans(database, raw, now) + await artifacts.remove_orphans(now - _ORPHAN_AGE)
    return StoreCleaned(
        tasks=removed,
        results=results,
        files=files + orphans,
        artifacts=await artifacts.remove(before(options.keep_artifacts_days)),
        cache=await _remove_older(database, "cache", "cache_key", "expires_at", now),
        signals=await _remove_older(
            database, "learning_signals", "seq", "created_at", before(options.keep_signals_days)
        ),
        metrics=await _remove_older(
            database, "agent_metrics", "metric_id", "timestamp", before(options.keep_metrics_days)
        ),
        sync_log=await _remove_older(database, "sync_log", "seq", "created_at", before(options.keep_sync_log_days)),
    )


async def relieve(store: OpenStore, artifacts: Artifacts) -> StoreCleaned:
    """Deletes all artifacts, delivered rows and cached pages, regardless of age (I8).

    Keeps what schedules know and the signals that workers learn from at their start.
    """
    removed_artifacts = await artifacts.remove(None)
    results, files = await _remove_results(store, _ANY_TIME)
    removed = await _remove_tasks(store, _ANY_TIME)
    pages = await store.database.write(cache.shrink, 0)
    keep = min(learning_signals.REMEMBERED, store.options.max_bytes // _BYTES_A_SIGNAL // _SIGNALS_SHARE)
    signals = 0
    while deleted := await store.database.write(learning_signals.delete_delivered, keep, _BATCH):
        signals += deleted
    return StoreCleaned(
        tasks=removed,
        results=results,
        files=files,
        artifacts=removed_artifacts,
        cache=pages,
        signals=signals,
        metrics=0,
        sync_log=0,
    )


async def _remove_older(database: LocalDatabase, table: str, key: str, column: str, before: datetime) -> int:
    total = 0
    while removed := await database.write(_delete_older, table, key, column, iso(before)):
        total += removed
    return total


async def _remove_results(store: OpenStore, before: str) -> tuple[int, int]:
    results, files, has_schedules = 0, 0, bool(store.options.scheduled)
    while deleted := await store.database.write(_delivered_results, before, has_schedules):
        names = [name for row in deleted for name in row if name]
        await store.raw.discard(names)
        results += len(deleted)
        files += len(names)
    return results, files


async def _remove_tasks(store: OpenStore, before: str) -> int:
    """Keeps those by which schedules know their parcels: a run after their deletion would find none to scrape."""
    total, position, kept = 0, ("", 0), set[int]()
    for site in store.options.scheduled:
        kept.update(await store.database.read(refresh.newest_ended, site))
    for prefix in store.options.scheduled_runs:
        kept.update(await store.database.read(refresh.newest_ended_of_runs, prefix))
    while True:
        removed, next_position = await store.database.write(_ended_tasks, before, position, kept)
        total += removed
        if next_position is None:
            return total
        position = next_position


_BATCH_OF_RESULTS = """
SELECT seq FROM results AS r WHERE synced = 1 AND synced_at < ?
    AND (json_path IS NULL OR NOT EXISTS
        (SELECT 1 FROM results AS o WHERE o.html_path = r.html_path AND o.json_path IS NULL))
ORDER BY synced_at, seq LIMIT ?
"""
_NOTE_DELINQUENT = f"""
UPDATE tasks SET was_delinquent = 1 WHERE task_id IN
    (SELECT task_id FROM results WHERE seq IN ({_BATCH_OF_RESULTS}) AND json_extract(data, '$.delinquent'))
"""
_DELETE_RESULTS = f"""
DELETE FROM results WHERE seq IN ({_BATCH_OF_RESULTS})
RETURNING json_path, iif(json_path IS NULL, NULL, html_path)
"""


def _delivered_results(
    db: sqlite3.Connection, before: str, has_schedules: bool = False
) -> list[tuple[str | None, str | None]]:
    """Deletes a batch. The owner of a shared page goes last, because its page is deleted with it."""
    if has_schedules:
        db.execute(_NOTE_DELINQUENT, (before, _BATCH))
    return db.execute(_DELETE_RESULTS, (before, _BATCH)).fetchall()


def _ended_tasks(
    db: sqlite3.Connection, before: str, position: tuple[str, int], kept: Container[int] = ()
) -> tuple[int, tuple[str, int] | None]:
    """Deletes a batch of ended tasks, starting at `position`, but not those that are `kept`.

    A task is deleted only after its result, hence after its delivery, and not while another report is due.
    """
    query = """SELECT completed_at, seq, report_due_at IS NOT NULL
                   OR EXISTS (SELECT 1 FROM results WHERE results.task_id = tasks.task_id)
               FROM tasks WHERE completed_at IS NOT NULL AND completed_at < ? AND (completed_at, seq) > (?, ?)
               ORDER BY completed_at, seq LIMIT ?"""
    batch = db.execute(query, (before, *position, _BATCH)).fetchall()
    unneeded = [(seq,) for _, seq, is_needed in batch if not is_needed and seq not in kept]
    db.executemany("DELETE FROM tasks WHERE seq = ?", unneeded)
    return len(unneeded), batch[-1][:2] if len(batch) == _BATCH else None


def _delete_older(db: sqlite3.Connection, table: str, key: str, column: str, before: str) -> int:
    """Deletes a batch."""
    change = f"DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE {column} < ? LIMIT ?)"
    return db.execute(change, (before, _BATCH)).rowcount


async def _remove_orphans(database: LocalDatabase, raw: RawFiles, now: datetime) -> int:
    """Deletes old files that no result names, left by a crash between the page and its row."""
    removed = 0
    candidates = _old_pages(raw.root, (now - _ORPHAN_AGE).timestamp())
    while batch := await asyncio.to_thread(_take, candidates):
        named = await database.read(outbox.named_by_a_result, batch)
        orphans = [name for name in batch if name not in named]
        for store in _replaced_stores(database.path):
            orphans = await asyncio.to_thread(_unnamed_in, store, orphans)
        beside = [name.removesuffix(".html.gz") + ".json" for name in orphans]
        await raw.discard([*beside, *orphans])
        removed += len(orphans)
    return removed


def _replaced_stores(store: Path) -> list[Path]:
    """Returns copies of this store made before a restore: their results may name pages, too."""
    return sorted((store.parent / "backups").glob(f"{glob.escape(copies(store))}_before_restore_*.db"))


def _unnamed_in(store: Path, names: list[str]) -> list[str]:
    """Returns the pages that no result in the other store names; none if it cannot be read."""
    try:
        with contextlib.closing(open_read_only(store)) as db:
            named = outbox.named_by_a_result(db, names)
    except sqlite3.Error:
        return []
    return [name for name in names if name not in named]


def _take(names: Iterator[str]) -> list[str]:
    return [name for name, _ in zip(names, range(_BATCH), strict=False)]


def _old_pages(root: Path, before: float) -> Iterator[str]:
    for folder, _, files in os.walk(root):
        for file in files:
            path = Path(folder, file)
            with contextlib.suppress(FileNotFoundError):  # deleted in the meantime
                if file.endswith(".html.gz") and path.stat().st_mtime < before:
                    yield path.relative_to(root).as_posix()


_VACUUM_STEP_PAGES = 500
_FULL_VACUUM_SHARE = 0.25


class Maintenance:
    def __init__(self, store: OpenStore, artifacts: Artifacts) -> None:
        self._store = store
        self._artifacts = artifacts
        self._db = store.database
        self._raw = store.raw
        self._reserve = store.reserve
        self._live = store.live
        self._options = store.options
        self._clock = store.clock
        self._emit = store.emit

    async def backup(self, progress: backup.Progress | None = None) -> backup.Backup:
        """Makes a verified copy in `backups/` while the store is in use, and deletes the oldest beyond `keep_backups`.

        Raises BackupFailed; then no backup is deleted.
        """
        keep = self._options.keep_backups
        try:
            made = await asyncio.to_thread(backup.make, self._db.path, self._clock.now(), keep, progress)
        except OSError as error:
            raise BackupFailed(f"cannot back up {self._db.path}: {error}") from error
        self._emit(BackupMade(path=made.path, bytes=made.bytes, removed=made.removed))
        return made

    async def clean(self, *, full: bool = False) -> StoreCleaned:
        """Deletes what is past its retention period, updates the planner's statistics, and vacuums."""
        cleaned = await self._store.even_if_full(partial(clean, self._store, self._artifacts))
        await self._db.write(_optimize)
        await self.vacuum(full=full)
        self._reserve.fill()
        self._emit(cleaned)
        return cleaned

    async def correct_times(self) -> None:
        """Corrects times that were written while the clock was ahead."""
        note = await clock_changes.correct(self._db, self._clock)
        if note is not None:
            self._emit(ClockSetBack(seconds=note.seconds, tasks=note.tasks, platforms=note.platforms))

    async def relieve(self, *, full: bool = False) -> StoreCleaned:
        """Frees space: deletes artifacts, delivered rows and the cache, of any age. Keeps unsynced results (I8)."""
        cleaned = await self._store.even_if_full(self._relieve)
        await self.vacuum(full=full)
        await self.give_back()
        self._emit(cleaned)
        return cleaned

    async def _relieve(self) -> StoreCleaned:
        with contextlib.suppress(StoreError):  # a full disk has no room for a checkpoint
            await self.give_back()  # first: what is deleted is written to the WAL, too
        return await relieve(self._store, self._artifacts)

    async def give_back(self) -> None:
        """Frees space that this process uses for speed: its journal and, if there are no readers, the WAL."""
        await self._raw.give_back()
        await self._db.exclusively(_truncate_wal)

    async def refill(self) -> None:
        """Refills the reserve for a full disk if there is space."""
        await asyncio.to_thread(self._reserve.fill)

    async def vacuum(self, *, full: bool = False) -> int:
        """Returns free pages of the file to the disk in small steps. Returns how many.

        `full` rebuilds the file if more than a quarter of it is free; writers wait until that is done.
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
        """Returns sizes and limits. Cheap enough for every step of a loop."""
        return await health.usage(self._db, self._live, self._options)

    async def health(self) -> health.Health:
        return await health.health(self._db, self._live, self._options, self._clock.now())


def _optimize(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA analysis_limit = 1000")
    db.execute("ANALYZE")


def _truncate_wal(db: sqlite3.Connection) -> None:
    busy_timeout = db.execute("PRAGMA busy_timeout").fetchone()[0]
    db.execute("PRAGMA busy_timeout = 0")  # do not wait for readers, because writers wait for this
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        db.execute(f"PRAGMA busy_timeout = {busy_timeout}")


def _pages(db: sqlite3.Connection) -> tuple[int, int]:
    return db.execute("PRAGMA page_count").fetchone()[0], db.execute("PRAGMA freelist_count").fetchone()[0]


def _vacuum_step(db: sqlite3.Connection) -> None:
    # As a script, because `execute` runs only one step of the statement, which frees one page.
    db.executescript(f"PRAGMA incremental_vacuum({_VACUUM_STEP_PAGES})")
