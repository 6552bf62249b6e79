"""Named values that survive a restart: worker status, last maintenance runs, worker id, site histories."""

from __future__ import annotations

import builtins
import sqlite3
from typing import TypeVar

import msgspec

from parcelpost.clock import Clock, iso
from parcelpost.storage.db import LocalDatabase

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class WorkerState:
    def __init__(self, database: LocalDatabase, clock: Clock) -> None:
        self._db = database
        self._clock = clock

    async def get(self, name: str, kind: type[T]) -> T | None:
        """Returns None for a value that was never put, or that does not fit the type."""
        return await self._db.read(get, name, kind)

    async def put(self, name: str, value: msgspec.Struct) -> None:
        """Stores a value, which survives a kill. A power cut may bring back the previous one."""
        await self._db.write_lossy(put, name, value, iso(self._clock.now()))

    async def put_if_absent(self, name: str, value: S) -> S:
        """Returns the stored value: all processes that compete get the one that was put first."""
        return await self._db.write(put_if_absent, name, value, iso(self._clock.now()))

    async def delete(self, name: str) -> None:
        await self._db.write(_delete, name)

    async def delete_prefix(self, prefix: str) -> None:
        """Deletes all values whose names start with `prefix`."""
        await self._db.write(_delete_prefix, prefix)

    async def list(self, prefix: str, kind: type[T]) -> builtins.list[T]:
        """Returns all values whose names start with `prefix`."""
        return await self._db.read(_list, prefix, kind)


def _delete(db: sqlite3.Connection, name: str) -> None:
    db.execute("DELETE FROM worker_state WHERE name = ?", (name,))


def _delete_prefix(db: sqlite3.Connection, prefix: str) -> None:
    db.execute("DELETE FROM worker_state WHERE substr(name, 1, ?) = ?", (len(prefix), prefix))


def _list(db: sqlite3.Connection, prefix: str, kind: type[T]) -> list[T]:
    names = db.execute("SELECT name FROM worker_state WHERE name >= ? ORDER BY name", (prefix,)).fetchall()
    values = [get(db, name, kind) for (name,) in names if name.startswith(prefix)]
    return [value for value in values if value is not None]


def get(db: sqlite3.Connection, name: str, kind: type[T]) -> T | None:
    row = db.execute("SELECT value FROM worker_state WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    try:
        return msgspec.json.decode(row[0], type=kind)
    except msgspec.MsgspecError:
        return None


def put(db: sqlite3.Connection, name: str, value: msgspec.Struct, now: str) -> None:
    change = """INSERT INTO worker_state (name, value, updated_at) VALUES (?, ?, ?)
                ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"""
    db.execute(change, (name, msgspec.json.encode(value).decode(), now))


def put_if_absent(db: sqlite3.Connection, name: str, value: S, now: str) -> S:
    stored = get(db, name, type(value))
    if stored is None:
        put(db, name, value, now)
    return stored or value
