"""History: the log of sync rounds, and samples of the worker's metrics."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct, convert
from msgspec.structs import astuple, replace

from parcelpost.clock import Clock, from_iso, iso
from parcelpost.storage import validation
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.rows import new_id


class SyncRound(Struct, frozen=True, kw_only=True):
    direction: Literal["download", "upload"]
    record_type: str
    """tasks, results, raw_files, learning_signals, ..."""
    record_count: int
    success: bool
    error: str | None = None
    duration_ms: int | None = None


class LoggedRound(SyncRound, frozen=True, kw_only=True):
    sync_id: str
    created_at: datetime


class SyncLog:
    def __init__(self, database: LocalDatabase, clock: Clock) -> None:
        self._db = database
        self._clock = clock

    async def record(self, entry: SyncRound) -> str:
        """Returns the id of the round."""
        now = self._clock.now()
        sync_id = new_id(now)
        error = None if entry.error is None else validation.message(entry.error)
        row = (*astuple(replace(entry, error=error)), sync_id, iso(now))
        await self._db.write_lossy(_record_round, row)
        return sync_id

    async def recent(self, limit: int = 50, *, direction: str | None = None, failed: bool = False) -> list[LoggedRound]:
        """Returns the newest first."""
        return await self._db.read(_recent_rounds, limit, direction, failed)


_LOGGED_FIELDS = LoggedRound.__struct_fields__


def _record_round(db: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    db.execute(f"INSERT INTO sync_log ({', '.join(_LOGGED_FIELDS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def _recent_rounds(db: sqlite3.Connection, limit: int, direction: str | None, failed: bool) -> list[LoggedRound]:
    query = f"""SELECT {", ".join(_LOGGED_FIELDS)} FROM sync_log
        WHERE direction = coalesce(:direction, direction) AND (NOT :failed OR NOT success)
        ORDER BY seq DESC LIMIT :limit"""
    found = db.execute(query, {"direction": direction, "failed": failed, "limit": limit})
    return [convert(dict(zip(_LOGGED_FIELDS, row, strict=True)), LoggedRound, strict=False) for row in found]


class Sample(Struct, frozen=True, kw_only=True):
    """None: not measured."""

    tasks_completed: int = 0
    tasks_failed: int = 0
    average_execution_time_ms: int | None = None
    browsers_active: int | None = None
    ram_used_gb: float | None = None
    ram_percent: float | None = None
    cpu_percent: float | None = None
    cache_hit_rate: float | None = None
    sync_latency_ms: int | None = None


_SAMPLE_FIELDS = Sample.__struct_fields__
_SAMPLE_COLUMNS = f"timestamp, {', '.join(_SAMPLE_FIELDS)}"


class TimedSample(Struct, frozen=True, kw_only=True):
    timestamp: datetime
    sample: Sample


class Window(Struct, frozen=True, kw_only=True):
    """Tasks that ended in the last seconds."""

    completed: int
    failed: int
    """Failed or expired."""
    average_execution_time_ms: float | None


class Metrics:
    def __init__(self, database: LocalDatabase, clock: Clock) -> None:
        self._db = database
        self._clock = clock

    async def record(self, sample: Sample) -> None:
        await self._db.write_lossy(_record_sample, (iso(self._clock.now()), *astuple(sample)))

    async def since(self, moment: datetime, limit: int = 10_000) -> list[TimedSample]:
        """Returns the oldest first."""
        return await self._db.read(_since, iso(moment), limit)

    async def window(self, seconds: float = 60.0) -> Window:
        return await self._db.read(_window, iso(self._clock.now() - timedelta(seconds=seconds)))


def _record_sample(db: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    db.execute(f"INSERT INTO agent_metrics ({_SAMPLE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _since(db: sqlite3.Connection, moment: str, limit: int) -> list[TimedSample]:
    query = f"SELECT {_SAMPLE_COLUMNS} FROM agent_metrics WHERE timestamp >= ? ORDER BY timestamp LIMIT ?"
    return [
        TimedSample(timestamp=from_iso(timestamp), sample=Sample(**dict(zip(_SAMPLE_FIELDS, fields, strict=True))))
        for timestamp, *fields in db.execute(query, (moment, limit))
    ]


def _window(db: sqlite3.Connection, start: str) -> Window:
    ended = """SELECT count(*), coalesce(sum(status IN ('completed', 'not_found')), 0) FROM tasks
               WHERE completed_at >= ? AND parent_id IS NULL"""
    total, completed = db.execute(ended, (start,)).fetchone()
    recent = """SELECT avg(execution_time_ms) FROM
        (SELECT execution_time_ms, created_at, data IS NOT NULL AS is_record FROM results ORDER BY seq DESC LIMIT ?)
        WHERE created_at >= ? AND is_record"""
    average = db.execute(recent, (total, start)).fetchone()[0] if completed else None
    return Window(completed=completed, failed=total - completed, average_execution_time_ms=average)
