"""Corrects times that were written while the clock was ahead, so that no task waits longer than intended."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta

from msgspec import Struct

from parcelpost.clock import Clock, from_iso, iso
from parcelpost.storage import worker_state
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.options import LONGEST_DELAY

CLOCK_STATE = "clock"
TOLERANCE = timedelta(minutes=1)
"""Small corrections of a clock are normal."""

_BATCH = 1_000

# A delay starts when its row is written. One that was written in the future starts now and keeps its length.
# One that ends later than any delay can has an unknown length, so it ends now: an early attempt costs little.
_DELAYED = """
SELECT seq, iif(updated_at > :limit, updated_at, available_at), available_at FROM tasks
WHERE status = 'pending' AND available_at > :limit AND (updated_at > :limit OR available_at > :longest)
ORDER BY available_at DESC LIMIT :batch
"""
# Pauses have no maximum length, because an operator may set any. Both of their times are written together.
_PAUSED = """
SELECT rowid, created_at, paused_until FROM platform_pauses WHERE paused_until > :limit AND created_at > :limit
"""

# Times that retention counts from.
_WRITTEN = (
    ("tasks", "seq", "completed_at", "completed_at IS NOT NULL"),
    ("results", "seq", "synced_at", "synced = 1"),
    ("sync_log", "seq", "created_at", "true"),
    ("agent_metrics", "metric_id", "timestamp", "true"),
    ("learning_signals", "seq", "created_at", "true"),
    ("artifacts", "task_id", "created_at", "true"),
)

# A page that was cached in the future expires now, because it would count as fresh until then.
_CACHED = """
UPDATE cache SET last_accessed = :now, created_at = min(created_at, :now), expires_at = min(expires_at, :now)
WHERE cache_key IN (SELECT cache_key FROM cache WHERE last_accessed > :limit LIMIT :batch)
"""


class ClockSetBackNote(Struct, frozen=True, kw_only=True):
    """The last correction, for `parcelpost status`."""

    at: datetime
    seconds: float
    """How far ahead the newest row was."""
    tasks: int
    platforms: int


class Waiting(Struct, frozen=True, kw_only=True):
    """Rows that wait for a time written while the clock was ahead."""

    tasks: int
    platforms: int


def waiting(db: sqlite3.Connection, now: datetime) -> Waiting:
    """Counts at most a thousand tasks."""
    values = _values(now, _BATCH)
    return Waiting(
        tasks=len(db.execute(_DELAYED, values).fetchall()), platforms=len(db.execute(_PAUSED, values).fetchall())
    )


async def correct(database: LocalDatabase, clock: Clock) -> ClockSetBackNote | None:
    """Moves times in the future to now, and delays to now plus their length. Returns None if there were none."""
    now = clock.now()
    newest = await database.read(_newest, now)
    if newest is None:
        return None
    tasks = platforms = 0
    while True:
        delayed, paused, changed = await database.write(_correct, now)
        tasks, platforms = tasks + delayed, platforms + paused
        if not changed:
            break
    seconds = (from_iso(newest) - now).total_seconds()
    note = ClockSetBackNote(at=now, seconds=seconds, tasks=tasks, platforms=platforms)
    await database.write_lossy(worker_state.put, CLOCK_STATE, note, iso(now))
    return note


def _newest(db: sqlite3.Connection, now: datetime) -> str | None:
    """Returns the latest time at which a row was written if that is in the future, else None."""
    values = _values(now, 1)
    moments = [row[1] for query in (_DELAYED, _PAUSED) for row in db.execute(query, values)]
    for table, _, column, part in _WRITTEN:
        moments += db.execute(f"SELECT max({column}) FROM {table} WHERE {part}").fetchone()
    moments += db.execute("SELECT max(last_accessed) FROM cache").fetchone()
    newest = max((moment for moment in moments if moment), default="")
    return newest if newest > iso(now + TOLERANCE) else None


def _correct(db: sqlite3.Connection, now: datetime) -> tuple[int, int, int]:
    """Corrects one batch. Returns how many delayed tasks, paused platforms and rows in total were changed."""
    values = _values(now, _BATCH)
    delayed = [(_moved(row, now), iso(now), row[0]) for row in db.execute(_DELAYED, values)]
    db.executemany("UPDATE tasks SET available_at = ?, updated_at = ? WHERE seq = ?", delayed)
    paused = [(_moved(row, now), iso(now), row[0]) for row in db.execute(_PAUSED, values)]
    db.executemany("UPDATE platform_pauses SET paused_until = ?, created_at = ? WHERE rowid = ?", paused)
    changed = len(delayed) + len(paused)
    for table, key, column, part in _WRITTEN:
        change = f"""UPDATE {table} SET {column} = :now
                     WHERE {key} IN (SELECT {key} FROM {table} WHERE {part} AND {column} > :limit LIMIT :batch)"""
        changed += db.execute(change, values).rowcount
    return len(delayed), len(paused), changed + db.execute(_CACHED, values).rowcount


def _moved(row: tuple[object, str, str], now: datetime) -> str:
    _, began, ends = row
    return iso(now + max(from_iso(ends) - from_iso(began), timedelta(0)))


def _values(now: datetime, batch: int) -> dict[str, str | int]:
    latest = now + TOLERANCE
    return {"now": iso(now), "limit": iso(latest), "longest": iso(latest + LONGEST_DELAY), "batch": batch}
