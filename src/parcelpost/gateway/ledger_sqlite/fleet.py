"""Heartbeats, commands and care. Each function is one change, run by the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from datetime import datetime

from parcelpost.clock import iso
from parcelpost.gateway.ledger_sqlite.connecting import bound
from parcelpost.gateway.sql import rows
from parcelpost.gateway.sql.care import prunings
from parcelpost.gateway.sql.fleet import (
    BEAT,
    CLAIM_WORKER_ID,
    COUNT_WORKER_IDS,
    FORGET_WORKER,
    IDLE_WORKER_ID,
    RELEASE_WORKER_ID,
    WORKER_ID,
)
from parcelpost.gateway.words import AWAY_AFTER, Beat

_EXTEND = """
UPDATE leases SET expires_at = ?
WHERE worker_id = ? AND ended_at IS NULL AND granted_at > ? AND expires_at < ?
"""
_TAKE_COMMANDS = "DELETE FROM commands WHERE worker_id = ? RETURNING command_id, command, ordered_at"

_ORDER = """
INSERT INTO commands (worker_id, command, ordered_at)
SELECT worker_id, ?, ? FROM workers WHERE ? IN (worker_id, '') AND last_seen_at >= ? AND NOT leaving
"""


def claim_worker_id(
    db: sqlite3.Connection,
    worker_id: str,
    token: str,
    names: Collection[str],
    most: int,
    now: datetime,
    idle_before: datetime,
) -> str | None:
    found = db.execute(WORKER_ID, (worker_id,)).fetchone()
    if found is not None and found[0] != token and found[0] in names:
        return str(found[0])
    if found is None or found[0] != token:
        (ids,) = db.execute(COUNT_WORKER_IDS, (token,)).fetchone()
        if ids >= most:
            idle = db.execute(IDLE_WORKER_ID, (token, iso(idle_before))).fetchone()
            if idle is None:
                return None
            for statement in FORGET_WORKER:
                db.execute(statement, idle)
    db.execute(CLAIM_WORKER_ID, (worker_id, token, iso(now)))
    return token


def release_worker_id(db: sqlite3.Connection, worker_id: str) -> str | None:
    released = db.execute(RELEASE_WORKER_ID, (worker_id,)).fetchall()
    return str(released[0][0]) if released else None


def beat(db: sqlite3.Connection, beat: Beat, now: datetime, until: datetime, oldest_grant: datetime) -> list[str]:
    at, end = iso(now), iso(until)
    db.execute(BEAT, (beat.worker_id, rows.encode(beat).decode(), int(beat.leaving), at, at))
    if not beat.holds_nothing:
        db.execute(_EXTEND, (end, beat.worker_id, iso(oldest_grant), end))
    taken, oldest_order = sorted(db.execute(_TAKE_COMMANDS, (beat.worker_id,))), iso(now - AWAY_AFTER)
    return [command for _, command, ordered_at in taken if ordered_at >= oldest_order and not beat.leaving]


def order(db: sqlite3.Connection, command: str, worker_id: str, now: datetime, alive_since: datetime) -> int:
    return db.execute(_ORDER, (command, iso(now), worker_id, iso(alive_since))).rowcount


def prune(db: sqlite3.Connection, ended_before: datetime, silent_before: datetime, most: int) -> int:
    removed = 0
    for statement, before in prunings(ended_before, silent_before):
        if removed < most:
            removed += db.execute(statement, bound((before, most - removed))).rowcount
    return removed
