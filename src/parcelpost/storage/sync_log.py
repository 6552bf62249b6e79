"""One line per round of synchronization."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from parcelpost.clock import Clock, from_iso, iso
from parcelpost.storage import checks
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.ids import new_id


class SyncRound(Struct, frozen=True, kw_only=True):
    direction: Literal["download", "upload"]
    record_type: str
    """tasks, results, raw_files, learning_signals, ..."""
    record_count: int
    success: bool
    error: str | None = None
    duration_ms: int | None = None


class LoggedRound(Struct, frozen=True, kw_only=True):
    sync_id: str
    round: SyncRound
    created_at: datetime


class SyncLog:
    def __init__(self, database: LocalDatabase, clock: Clock) -> None:
        self._db = database
        self._clock = clock

    async def record(self, entry: SyncRound) -> str:
        """Answers the round's id."""
        now = self._clock.now()
        sync_id = new_id(now)
        error = None if entry.error is None else checks.message(entry.error)
        row = (
            sync_id, entry.direction, entry.record_type, entry.record_count, entry.success, error, entry.duration_ms,
            iso(now),
        )  # fmt: skip
        await self._db.write_lossy(_record, row)
        return sync_id

    async def recent(self, limit: int = 50, *, direction: str | None = None, failed: bool = False) -> list[LoggedRound]:
        """The newest first."""
        return await self._db.read(_recent, limit, direction, failed)


def _record(db: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    change = """INSERT INTO sync_log
        (sync_id, direction, record_type, record_count, success, error, duration_ms, created_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
    db.execute(change, row)


def _recent(db: sqlite3.Connection, limit: int, direction: str | None, failed: bool) -> list[LoggedRound]:
    query = """
    SELECT sync_id, direction, record_type, record_count, success, error, duration_ms, created_at FROM sync_log
    WHERE direction = coalesce(:direction, direction) AND (NOT :failed OR NOT success)
    ORDER BY seq DESC LIMIT :limit"""
    return [
        LoggedRound(
            sync_id=row[0],
            created_at=from_iso(row[7]),
            round=SyncRound(
                direction=row[1],
                record_type=row[2],
                record_count=row[3],
                success=bool(row[4]),
                error=row[5],
                duration_ms=row[6],
            ),
        )
        for row in db.execute(query, {"direction": direction, "failed": failed, "limit": limit})
    ]
