"""Leases: which are held here, and which the upstream has extended."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from parcelpost.clock import Clock, from_iso, iso
from parcelpost.model import Lease
from parcelpost.storage import tasks
from parcelpost.storage.db import LocalDatabase

MOST_NAMED = 2_000
"""At a time: what ends next comes first, so that the others have their turn later."""

_NAMED = """
SELECT task_id, lease_id, lease_expires_at FROM tasks INDEXED BY tasks_named_leases
WHERE lease_id IS NOT NULL AND lease_expires_at > :now
    AND (status IN ('pending', 'processing')
        OR EXISTS (SELECT 1 FROM results AS r
            WHERE r.task_id = tasks.task_id AND r.synced = 0 AND r.rejected_at IS NULL))
ORDER BY lease_expires_at LIMIT :most
"""
_EXTEND = """
UPDATE tasks SET lease_expires_at = :until
WHERE task_id = :task_id AND lease_id = :lease_id AND lease_expires_at > :now AND lease_expires_at < :until
"""


class Leases:
    def __init__(self, database: LocalDatabase, clock: Clock) -> None:
        self._db = database
        self._clock = clock

    async def named(self) -> list[Lease]:
        """Those that have a name and are not over: of open tasks, and of ends that wait to be sent."""
        return await self._db.read(named, iso(self._clock.now()))

    async def extend(self, leases: Sequence[Lease]) -> int:
        """The upstream's word for each of them. One that is over, or has come anew since, stays as it is."""
        return await self._db.write_lossy(extend, leases, iso(self._clock.now()))

    async def extend_all(self, until: datetime, granted_after: datetime) -> int:
        """The upstream's word for all that it has granted since that moment, unless its lease is over already."""
        now = iso(self._clock.now())
        return await self._db.write_lossy(tasks.extend_leases, iso(until), iso(granted_after), now)


def named(db: sqlite3.Connection, now: str) -> list[Lease]:
    found = db.execute(_NAMED, {"now": now, "most": MOST_NAMED})
    return [Lease(task_id=row[0], lease_id=row[1], expires_at=from_iso(row[2])) for row in found]


def extend(db: sqlite3.Connection, leases: Sequence[Lease], now: str) -> int:
    changes = [
        {"task_id": lease.task_id, "lease_id": lease.lease_id, "until": iso(lease.expires_at), "now": now}
        for lease in leases
    ]
    return db.executemany(_EXTEND, changes).rowcount if changes else 0
