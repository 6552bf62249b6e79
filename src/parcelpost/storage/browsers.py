"""The browser pool's state, as it was last seen."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from parcelpost.clock import from_iso, iso
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.rows import moment

_COLUMNS = """browser_id, pid, status, current_task_id, tasks_completed, launches, memory_mb, last_health_check,
    created_at, restarted_at"""


class BrowserState(Struct, frozen=True, kw_only=True):
    browser_id: int
    status: Literal["idle", "busy", "crashed", "restarting"]
    last_health_check: datetime
    created_at: datetime
    pid: int | None = None
    current_task_id: str | None = None
    tasks_completed: int = 0
    launches: int = 1
    memory_mb: int | None = None
    restarted_at: datetime | None = None


class Browsers:
    def __init__(self, database: LocalDatabase) -> None:
        self._db = database

    async def put(self, state: BrowserState) -> None:
        """Stores the state in place of what was known of this browser."""
        row = (
            state.browser_id,
            state.pid,
            state.status,
            state.current_task_id,
            state.tasks_completed,
            state.launches,
            state.memory_mb,
            iso(state.last_health_check),
            iso(state.created_at),
            iso(state.restarted_at) if state.restarted_at else None,
        )
        await self._db.write_lossy(_put, row)

    async def all(self) -> list[BrowserState]:
        return await self._db.read(_all)

    async def remove(self, browser_id: int) -> bool:
        return await self._db.write_lossy(_remove, browser_id)


def _put(db: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    db.execute(f"INSERT OR REPLACE INTO browser_pool_state ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _all(db: sqlite3.Connection) -> list[BrowserState]:
    return [
        BrowserState(
            browser_id=row[0],
            pid=row[1],
            status=row[2],
            current_task_id=row[3],
            tasks_completed=row[4],
            launches=row[5],
            memory_mb=row[6],
            last_health_check=from_iso(row[7]),
            created_at=from_iso(row[8]),
            restarted_at=moment(row[9]),
        )
        for row in db.execute(f"SELECT {_COLUMNS} FROM browser_pool_state ORDER BY browser_id")
    ]


def _remove(db: sqlite3.Connection, browser_id: int) -> bool:
    return db.execute("DELETE FROM browser_pool_state WHERE browser_id = ?", (browser_id,)).rowcount == 1
