"""Clean-up: what is old and delivered goes, a few rows at a time, so that no other writer waits long."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import os
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import ParamSpec

from parcelpost.clock import Clock, iso
from parcelpost.events import StoreCleaned
from parcelpost.storage import cache, outbox
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.evidence import Evidence
from parcelpost.storage.options import StoreOptions
from parcelpost.storage.raw_files import RawFiles
from parcelpost.storage.snapshot import copies

P = ParamSpec("P")

_BATCH = 500
_ANY_TIME = "9999"
_ORPHAN_AGE = timedelta(days=1)


async def clean(
    database: LocalDatabase, raw: RawFiles, evidence: Evidence, options: StoreOptions, clock: Clock
) -> StoreCleaned:
    """Removes what is past its time. Never touches what is not delivered (I2, I8)."""
    now = clock.now()
    results, files = await _remove_results(database, raw, iso(now - options.keep_results))
    removed = await _remove_tasks(database, iso(now - options.keep_tasks))
    orphans = await _remove_orphans(database, raw, now) + await evidence.remove_orphans(now - _ORPHAN_AGE)
    return StoreCleaned(
        tasks=removed,
        results=results,
        files=files + orphans,
        evidence=await evidence.remove(now - options.keep_evidence),
        cache=await _in_batches(database, _expired_cache, iso(now)),
        signals=await _in_batches(database, _old_signals, iso(now - options.keep_signals)),
        metrics=await _in_batches(database, _old_metrics, iso(now - options.keep_metrics)),
        sync_log=await _in_batches(database, _old_sync_log, iso(now - options.keep_sync_log)),
    )


async def relieve(database: LocalDatabase, raw: RawFiles, evidence: Evidence) -> StoreCleaned:
    """At the cap: all evidence, everything delivered and the whole cache go, whatever their age (I8)."""
    seen = await evidence.remove(None)
    results, files = await _remove_results(database, raw, _ANY_TIME)
    removed = await _remove_tasks(database, _ANY_TIME)
    pages = await database.write(cache.shrink, 0)
    return StoreCleaned(
        tasks=removed, results=results, files=files, evidence=seen, cache=pages, signals=0, metrics=0, sync_log=0
    )


async def _in_batches(database: LocalDatabase, change: Callable[[sqlite3.Connection, str], int], before: str) -> int:
    total = 0
    while removed := await database.write(change, before):
        total += removed
    return total


async def _remove_results(database: LocalDatabase, raw: RawFiles, before: str) -> tuple[int, int]:
    results, files = 0, 0
    while gone := await database.write(_delivered_results, before):
        names = [name for row in gone for name in row if name]
        await raw.discard(names)
        results += len(gone)
        files += len(names)
    return results, files


async def _remove_tasks(database: LocalDatabase, before: str) -> int:
    total, position = 0, ("", 0)
    while True:
        removed, next_position = await database.write(_ended_tasks, before, position)
        total += removed
        if next_position is None:
            return total
        position = next_position


def _delivered_results(db: sqlite3.Connection, before: str) -> list[tuple[str | None, str | None]]:
    """Those whose page others name go after the others: the page goes with its owner."""
    change = """DELETE FROM results WHERE seq IN
                    (SELECT seq FROM results AS r WHERE synced = 1 AND synced_at < ?
                        AND (json_path IS NULL OR NOT EXISTS
                            (SELECT 1 FROM results AS o WHERE o.html_path = r.html_path AND o.json_path IS NULL))
                     ORDER BY synced_at LIMIT ?)
                RETURNING json_path, iif(json_path IS NULL, NULL, html_path)"""
    return db.execute(change, (before, _BATCH)).fetchall()


def _ended_tasks(db: sqlite3.Connection, before: str, position: tuple[str, int]) -> tuple[int, tuple[str, int] | None]:
    """One batch of ended tasks from `position` on. A task goes only after its result, so never before its delivery.

    Nor does one go that its upstream waits to hear of once more.
    """
    query = """SELECT completed_at, seq, answer_due_at IS NOT NULL
                   OR EXISTS (SELECT 1 FROM results WHERE results.task_id = tasks.task_id)
               FROM tasks WHERE completed_at IS NOT NULL AND completed_at < ? AND (completed_at, seq) > (?, ?)
               ORDER BY completed_at, seq LIMIT ?"""
    batch = db.execute(query, (before, *position, _BATCH)).fetchall()
    gone = [(seq,) for _, seq, is_needed in batch if not is_needed]
    db.executemany("DELETE FROM tasks WHERE seq = ?", gone)
    return len(gone), batch[-1][:2] if len(batch) == _BATCH else None


def _expired_cache(db: sqlite3.Connection, now: str) -> int:
    change = "DELETE FROM cache WHERE cache_key IN (SELECT cache_key FROM cache WHERE expires_at <= ? LIMIT ?)"
    return db.execute(change, (now, _BATCH)).rowcount


def _old_signals(db: sqlite3.Connection, before: str) -> int:
    change = """DELETE FROM learning_signals WHERE seq IN
                    (SELECT seq FROM learning_signals WHERE created_at < ? LIMIT ?)"""
    return db.execute(change, (before, _BATCH)).rowcount


def _old_metrics(db: sqlite3.Connection, before: str) -> int:
    change = """DELETE FROM agent_metrics WHERE metric_id IN
                    (SELECT metric_id FROM agent_metrics WHERE timestamp < ? LIMIT ?)"""
    return db.execute(change, (before, _BATCH)).rowcount


def _old_sync_log(db: sqlite3.Connection, before: str) -> int:
    change = "DELETE FROM sync_log WHERE seq IN (SELECT seq FROM sync_log WHERE created_at < ? LIMIT ?)"
    return db.execute(change, (before, _BATCH)).rowcount


async def _remove_orphans(database: LocalDatabase, raw: RawFiles, now: datetime) -> int:
    """Files that a crash left between the page and its row: old, and named by no result."""
    removed = 0
    candidates = _old_pages(raw.root, (now - _ORPHAN_AGE).timestamp())
    while batch := await asyncio.to_thread(_take, candidates):
        named = await database.read(outbox.named_by_a_result, batch)
        orphans = [name for name in batch if name not in named]
        for store in _set_aside(database.path):
            orphans = await asyncio.to_thread(_unnamed_in, store, orphans)
        beside = [name.removesuffix(".html.gz") + ".json" for name in orphans]
        await raw.discard([*beside, *orphans])
        removed += len(orphans)
    return removed


def _set_aside(store: Path) -> list[Path]:
    """What this store was before a restore: its results may name pages, too."""
    return sorted((store.parent / "backups").glob(f"{glob.escape(copies(store))}_before_restore_*.db"))


def _unnamed_in(store: Path, names: list[str]) -> list[str]:
    """Of these pages, those that the other store does not name; none if that cannot be told."""
    try:
        with contextlib.closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True)) as db:
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
            with contextlib.suppress(FileNotFoundError):  # it may go while it is looked at
                if file.endswith(".html.gz") and path.stat().st_mtime < before:
                    yield path.relative_to(root).as_posix()
