"""A few named values that outlive the process: the sync's backoff, the janitor's last runs."""

from __future__ import annotations

import sqlite3
from typing import TypeVar

import msgspec

from parcelpost.clock import Clock, iso
from parcelpost.storage.db import LocalDatabase

T = TypeVar("T")


class WorkerState:
    def __init__(self, database: LocalDatabase, clock: Clock) -> None:
        self._db = database
        self._clock = clock

    async def get(self, name: str, kind: type[T]) -> T | None:
        """None: never put, or written by a program that meant something else by it."""
        found = await self._db.read(_get, name)
        if found is None:
            return None
        try:
            return msgspec.json.decode(found, type=kind)
        except msgspec.MsgspecError:
            return None

    async def put(self, name: str, value: msgspec.Struct) -> None:
        """Survives a kill; a power cut may bring back the value before."""
        text = msgspec.json.encode(value).decode()
        await self._db.write_lossy(_put, name, text, iso(self._clock.now()))


def _get(db: sqlite3.Connection, name: str) -> str | None:
    row = db.execute("SELECT value FROM worker_state WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def _put(db: sqlite3.Connection, name: str, value: str, now: str) -> None:
    change = """INSERT INTO worker_state (name, value, updated_at) VALUES (?, ?, ?)
                ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"""
    db.execute(change, (name, value, now))
