"""Leases of this store's tasks: which ones the upstream should extend, and their new ends once it has."""

from __future__ import annotations

import builtins
import sqlite3
from collections.abc import Sequence
from datetime import datetime

from parcelpost.clock import Clock, from_iso, iso
from parcelpost.model import Lease
from parcelpost.storage.db import LocalDatabase

MAX_LISTED = 2_000
"""Leases that `list` returns: those that end first. Later calls return the others."""

_LIST = """
SELECT task_id, lease_id, lease_expires_at FROM tasks INDEXED BY tasks_named_leases
WHERE lease_id IS NOT NULL AND lease_expires_at > :now
    AND (status IN ('pending', 'processing')
        OR EXISTS (SELECT 1 FROM results AS r
            WHERE r.task_id = tasks.task_id AND r.synced = 0 AND r.rejected_at IS NULL))
ORDER BY lease_expires_at LIMIT :limit
"""
_EXTEND = """
UPDATE tasks SET lease_expires_at = :until
WHERE task_id = :task_id AND lease_id = :lease_id AND lease_expires_at > :now AND lease_expires_at < :until
"""


class Leases:
    def __init__(self, database: LocalDatabase, clock: Clock) -> None:
        self._db = database
        self._clock = clock

    async def extend(self, leases: Sequence[Lease]) -> int:
        """Extends leases that have ids. Does not change a lease that has ended or was replaced."""
        return await self._db.write_lossy(extend, leases, iso(self._clock.now()))

    async def extend_all(self, until: datetime, granted_after: datetime) -> int:
        """Extends all leases granted after that time that have not ended."""
        now = iso(self._clock.now())
        return await self._db.write_lossy(extend_all, iso(until), iso(granted_after), now)

    async def list(self) -> builtins.list[Lease]:
        """Returns leases with ids that have not ended, of open tasks and of undelivered results."""
        return await self._db.read(list_leases, iso(self._clock.now()))


def list_leases(db: sqlite3.Connection, now: str) -> list[Lease]:
    rows = db.execute(_LIST, {"now": now, "limit": MAX_LISTED})
    return [Lease(task_id=row[0], lease_id=row[1], expires_at=from_iso(row[2])) for row in rows]


def extend(db: sqlite3.Connection, leases: Sequence[Lease], now: str) -> int:
    changes = [
        {"task_id": lease.task_id, "lease_id": lease.lease_id, "until": iso(lease.expires_at), "now": now}
        for lease in leases
    ]
    return db.executemany(_EXTEND, changes).rowcount if changes else 0


def extend_all(db: sqlite3.Connection, until: str, granted_after: str, now: str) -> int:
    """Extends leases that have not ended, of open tasks stored after `granted_after`. Returns how many."""
    extend = """UPDATE tasks SET lease_expires_at = :until
                WHERE {} AND lease_expires_at > :now AND lease_expires_at < :until AND created_at > :granted_after"""
    values = {"until": until, "granted_after": granted_after, "now": now}
    parts = ("status = 'pending'", "status = 'processing'")
    return sum(db.execute(extend.format(part), values).rowcount for part in parts)
