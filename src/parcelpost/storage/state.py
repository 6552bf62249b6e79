"""A few named values that outlive the process: the sync's backoff, the janitor's last runs."""

from __future__ import annotations

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
        """None: never put, or written by a program that meant something else by it."""
        return await self._db.read(get, name, kind)

    async def named(self, prefix: str, kind: type[T]) -> list[T]:
        """All whose names begin with that."""
        return await self._db.read(_named, prefix, kind)

    async def put(self, name: str, value: msgspec.Struct) -> None:
        """Survives a kill; a power cut may bring back the value before."""
        await self._db.write_lossy(put, name, value, iso(self._clock.now()))

    async def forget(self, prefix: str) -> int:
        """Removes all whose names begin with that. Returns how many there were."""
        return await self._db.write(_forget, prefix)

    async def settle(self, name: str, value: S) -> S:
        """The value that was put first: of several processes that come at once, all are answered the same one."""
        return await self._db.write(settle, name, value, iso(self._clock.now()))


def _forget(db: sqlite3.Connection, prefix: str) -> int:
    return db.execute("DELETE FROM worker_state WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)).rowcount


def _named(db: sqlite3.Connection, prefix: str, kind: type[T]) -> list[T]:
    names = db.execute("SELECT name FROM worker_state WHERE name >= ? ORDER BY name", (prefix,)).fetchall()
    found = [get(db, name, kind) for (name,) in names if name.startswith(prefix)]
    return [one for one in found if one is not None]


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


def settle(db: sqlite3.Connection, name: str, value: S, now: str) -> S:
    kept = get(db, name, type(value))
    if kept is None:
        put(db, name, value, now)
    return kept or value
