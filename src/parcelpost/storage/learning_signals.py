"""Learning signals: how often each selector worked, for ranking selectors and for the gateway."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, convert

from parcelpost.clock import Clock, from_iso, iso
from parcelpost.errors import InvalidInput
from parcelpost.model import Signal
from parcelpost.storage import rows, validation
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.rows import new_id

MAX_SIGNALS = 200_000
"""Beyond this number the oldest are deleted, delivered or not (I8)."""

_TYPES = ("css", "xpath", "label", "jsonpath")
_MAX_CHARS = {"selector": 4_000}
_NUMBER_DIGITS = 8
"""The last digits of a signal's id are its number in the batch."""
_SIGNAL_FIELDS = (
    *("task_id", "platform", "field", "selector", "selector_type"),
    *("success", "context", "error_message", "execution_time_ms"),
)
_FIELDS = ", ".join(_SIGNAL_FIELDS)


class StoredSignal(Struct, frozen=True, kw_only=True):
    signal_id: str
    signal: Signal
    created_at: datetime


class Signals:
    def __init__(self, database: LocalDatabase, clock: Clock) -> None:
        self._db = database
        self._clock = clock

    async def append(self, signals: Iterable[Signal]) -> int:
        """Stores signals in one transaction. Raises InvalidInput and stores none if one is invalid."""
        signal_rows = _rows(signals, self._clock.now())
        return await self._db.write_lossy(_append, signal_rows) if signal_rows else 0

    async def recent(self, limit: int) -> list[StoredSignal]:
        """Returns the newest signals, the oldest of them first."""
        return await self._db.read(_recent, limit)

    async def unsynced(self, limit: int = 500) -> list[StoredSignal]:
        """Returns undelivered signals, the oldest first."""
        return await self._db.read(_unsynced, limit)

    async def mark_synced(self, signal_ids: Sequence[str]) -> int:
        return await self._db.write(_mark_synced, signal_ids, iso(self._clock.now()))


def _rows(signals: Iterable[Signal], now: datetime) -> list[tuple[Any, ...]]:
    """Validates each text once, because a batch has few selectors, each many times."""
    batch_id, at = new_id(now)[:-_NUMBER_DIGITS], iso(now)
    texts = _Texts()
    return [
        (
            f"{batch_id}{number:0{_NUMBER_DIGITS}x}",
            None if signal.task_id is None else texts["task_id", signal.task_id],
            texts["platform", signal.platform],
            texts["field", signal.field],
            texts["selector", signal.selector],
            texts["selector_type", signal.selector_type],
            signal.success,
            None if signal.context is None else texts["message", signal.context],
            None if signal.error_message is None else texts["message", signal.error_message],
            None
            if signal.execution_time_ms is None
            else validation.whole("execution_time_ms", signal.execution_time_ms),
            at,
        )
        for number, signal in enumerate(signals)
    ]


class _Texts(dict[tuple[str, str], str]):
    """Validated texts by kind and value. Raises InvalidInput."""

    def __missing__(self, key: tuple[str, str]) -> str:
        kind, value = key
        if kind == "selector_type" and value not in _TYPES:
            raise InvalidInput(f"selector_type {value!r} is not one of {', '.join(_TYPES)}")
        if kind == "message":
            valid = validation.message(value)
        else:
            valid = validation.text(kind, value, max_chars=_MAX_CHARS.get(kind, validation.MAX_NAME_CHARS))
        self[key] = valid
        return valid


def _append(db: sqlite3.Connection, signal_rows: list[tuple[Any, ...]]) -> int:
    added = rows.insert_many(db, f"INSERT INTO learning_signals (signal_id, {_FIELDS}, created_at)", signal_rows)
    db.execute("DELETE FROM learning_signals WHERE seq <= (SELECT max(seq) FROM learning_signals) - ?", (MAX_SIGNALS,))
    return added


def _unsynced(db: sqlite3.Connection, limit: int) -> list[StoredSignal]:
    query = f"""SELECT signal_id, created_at, {_FIELDS} FROM learning_signals INDEXED BY signals_unsynced
        WHERE synced = 0 ORDER BY seq LIMIT ?"""
    return _stored(db.execute(query, (limit,)))


def _recent(db: sqlite3.Connection, limit: int) -> list[StoredSignal]:
    query = f"SELECT signal_id, created_at, {_FIELDS} FROM learning_signals ORDER BY seq DESC LIMIT ?"
    return _stored(db.execute(query, (limit,)))[::-1]


def _stored(signal_rows: Iterable[Sequence[Any]]) -> list[StoredSignal]:
    return [
        StoredSignal(
            signal_id=signal_id,
            signal=convert(dict(zip(_SIGNAL_FIELDS, fields, strict=True)), Signal, strict=False),
            created_at=from_iso(created_at),
        )
        for signal_id, created_at, *fields in signal_rows
    ]


def _mark_synced(db: sqlite3.Connection, signal_ids: Sequence[str], now: str) -> int:
    change = "UPDATE learning_signals SET synced = 1, synced_at = ? WHERE signal_id = ? AND synced = 0"
    return db.executemany(change, [(now, signal_id) for signal_id in signal_ids]).rowcount
