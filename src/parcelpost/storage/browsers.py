"""The last known state of the browsers of all processes on the store."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from msgspec.structs import astuple, replace

from parcelpost.clock import from_iso, iso
from parcelpost.model import BrowserState
from parcelpost.storage import locks
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.rows import moment

_FIELDS = BrowserState.__struct_fields__
_COLUMNS = ", ".join(_FIELDS)
_VALUES = ", ".join("?" * len(_FIELDS))
_MOMENTS = [_FIELDS.index(name) for name in ("last_health_check", "created_at", "restarted_at")]


class Browsers:
    def __init__(self, database: LocalDatabase, live: Path) -> None:
        self._db = database
        self._live = live

    async def add(self, state: BrowserState) -> int:
        """Stores the state of a new browser under the lowest free id, starting with 1. Returns the id."""
        return await self._db.write_lossy(_add, _row(state))

    async def put(self, state: BrowserState) -> None:
        """Replaces the state of this browser."""
        await self._db.write_lossy(_put, _row(state))

    async def all(self) -> list[BrowserState]:
        return await self._db.read(_all)

    async def orphans(self) -> list[BrowserState]:
        """Returns the browsers of crashed processes."""
        return [state for state in await self.all() if not locks.is_alive(self._live, state.owner)]

    async def remove(self, state: BrowserState) -> bool:
        """Deletes the state of a browser, unless its id belongs to another one by now."""
        return await self._db.write_lossy(_remove, state.browser_id, state.owner, state.marker)

    async def assign(self, task_id: str, browser_id: int | None) -> None:
        """Records which browser works on a task, if the task is processing."""
        await self._db.write_lossy(_assign, task_id, browser_id)


def _row(state: BrowserState) -> tuple[Any, ...]:
    row = list(astuple(state))
    for index in _MOMENTS:
        row[index] = iso(row[index]) if row[index] else None
    return tuple(row)


def _add(db: sqlite3.Connection, row: tuple[Any, ...]) -> int:
    taken = {row[0] for row in db.execute("SELECT browser_id FROM browser_pool_state")}
    browser_id = next(number for number in range(1, len(taken) + 2) if number not in taken)
    _put(db, (browser_id, *row[1:]))
    return browser_id


def _put(db: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    db.execute(f"INSERT OR REPLACE INTO browser_pool_state ({_COLUMNS}) VALUES ({_VALUES})", row)


def _all(db: sqlite3.Connection) -> list[BrowserState]:
    return [_state(row) for row in db.execute(f"SELECT {_COLUMNS} FROM browser_pool_state ORDER BY browser_id")]


def _state(row: tuple[Any, ...]) -> BrowserState:
    state = BrowserState(**dict(zip(_FIELDS, row, strict=True)))
    return replace(
        state,
        last_health_check=from_iso(row[_MOMENTS[0]]),
        created_at=from_iso(row[_MOMENTS[1]]),
        restarted_at=moment(row[_MOMENTS[2]]),
    )


def _remove(db: sqlite3.Connection, browser_id: int, owner_id: str, marker: str) -> bool:
    delete = "DELETE FROM browser_pool_state WHERE browser_id = ? AND owner = ? AND marker = ?"
    return db.execute(delete, (browser_id, owner_id, marker)).rowcount == 1


def _assign(db: sqlite3.Connection, task_id: str, browser_id: int | None) -> None:
    change = "UPDATE tasks SET assigned_browser = ? WHERE task_id = ? AND status = 'processing'"
    db.execute(change, (browser_id, task_id))
