"""Tasks that nobody may start any more: their lease is over, or they are too old."""

from __future__ import annotations

from datetime import datetime, timedelta

from parcelpost.clock import iso
from parcelpost.storage import tasks
from parcelpost.storage.db import LocalDatabase


async def expire(database: LocalDatabase, now: datetime, max_age: timedelta | None) -> int:
    """Some at a time, so that others may write in between. Answers how many there were."""
    total = 0
    while expired := await database.write(tasks.expire_leases, iso(now)):
        total += expired
    if max_age is None:
        return total
    before = iso(now - max_age)
    while seqs := await database.read(tasks.stored_before, before):
        total += await database.write(tasks.expire_stored_before, seqs, before, iso(now))
    return total
