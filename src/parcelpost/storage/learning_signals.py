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

REMEMBERED = 20_000
"""How many of the newest a worker learns from at its start."""

_TYPES = ("css", "xpath", "label", "jsonpath")
_MAX_SELECTOR_CHARS = 4_000
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
    batch_id, at = new_id(now)[:-_NUMBER_DIGITS], iso(now)
    return [(f"{batch_id}{number:0{_NUMBER_DIGITS}x}", *_row(signal), at) for number, signal in enumerate(signals)]


def _row(signal: Signal) -> tuple[Any, ...]:
    text, message = validation.text, validation.message
    if signal.selector_type not in _TYPES:
        raise InvalidInput(f"selector_type {signal.selector_type!r} is not one of {', '.join(_TYPES)}")
    milliseconds = signal.execution_time_ms
    return (
        None if signal.task_id is None else text("task_id", signal.task_id),
        text("platform", signal.platform),
        text("field", signal.field),
        text("selector", signal.selector, max_chars=_MAX_SELECTOR_CHARS),
        signal.selector_type,
        signal.success,
        None if signal.context is None else message(signal.context),
        None if signal.error_message is None else message(signal.error_message),
        None if milliseconds is None else validation.whole("execution_time_ms", milliseconds),
    )


def _append(db: sqlite3.Connection, signal_rows: list[tuple[Any, ...]]) -> int:
    added = rows.insert_many(db, f"INSERT INTO learning_signals (signal_id, {_FIELDS}, created_at)", signal_rows)
    db.execute("DELETE FROM learning_signals WHERE seq <= (SELECT max(seq) FROM learning_signals) - ?", (MAX_SIGNALS,))
    return added


def delete_delivered(db: sqlite3.Connection, keep: int, limit: int) -> int:
    """Deletes a batch of those that are not among the newest. Returns how many."""
    newest = "SELECT seq FROM learning_signals ORDER BY seq DESC LIMIT 1 OFFSET ?"
    change = f"""DELETE FROM learning_signals WHERE seq IN
        (SELECT seq FROM learning_signals WHERE synced = 1 AND seq <= ({newest}) ORDER BY seq LIMIT ?)"""
    return db.execute(change, (keep, limit)).rowcount


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
