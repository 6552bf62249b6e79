"""Leases: two fields of a task, who has it and until when by Firestore's clock. Here: kept, given back, over."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from google.cloud.firestore_v1.types import StructuredQuery

from parcelpost.client.firestore.calls import Calls, Found, change, query
from parcelpost.client.firestore.failures import Conflict
from parcelpost.client.firestore.layout import TASKS, Layout
from parcelpost.client.firestore.task_fields import LEASED, OF_A_LEASE, Fields, queued_again, when
from parcelpost.client.firestore.values import Message
from parcelpost.client.upstream import Beat
from parcelpost.settings.keys import FirestoreSettings

_A_TIME = 400  # more than a worker can have claimed without having them
_MOST_ROUNDS = 50
_LONGEST_LEASE = timedelta(hours=24)
_ON_ITS_WAY_SECONDS = 30.0
"""A task claimed so lately may not be in the worker's store yet."""
_NO_WORD = "its lease ended without a word"


class Kept(NamedTuple):
    """By our own clock: until then run all leases of tasks that came after `since`."""

    until: datetime
    since: datetime


class Leases:
    """One worker's.

    A claimed task counts as taken when it is in the worker's store: that is so for all of a claim when the next one is
    asked for, or after half a minute. `taken_until`, which the worker's document keeps, is the last claim of which it
    is known. What an earlier process has claimed after it may never have arrived: its lease is left to end.
    """

    def __init__(self, calls: Calls, layout: Layout, settings: FirestoreSettings) -> None:
        self._calls = calls
        self._layout = layout
        self._max_attempts = settings.max_attempts
        self.length = timedelta(seconds=settings.lease_seconds)
        self._on_its_way = timedelta(seconds=min(_ON_ITS_WAY_SECONDS, settings.lease_seconds / 2))
        self._claims: tuple[datetime, datetime] | None = None
        """The first and the last of this process."""
        self.taken_until: datetime | None = None
        self._is_loaded = False

    async def get_to_know(self) -> None:
        """How Firestore's clock goes, and what the process before this one has taken."""
        if not self._is_loaded:
            worker = (await self._calls.get([self._layout.worker], ["taken_until"])).get(self._layout.worker)
            known = worker.fields.get("taken_until") if worker else None
            self.taken_until = known if isinstance(known, datetime) else None
            self._is_loaded = True

    def all_are_taken(self) -> None:
        """What was claimed until now is in the worker's store."""
        self.taken_until = self._claims[1] if self._claims else self.taken_until

    def claimed(self, at: datetime) -> None:
        first, last = self._claims or (at, at)
        self._claims = min(first, at), max(last, at)

    async def bring_back(self) -> None:
        """What dead workers had is queued again, or failed if it was handed out often enough.

        Where others do the same at this moment, it is left to them.
        """
        now = self._calls.now()
        over = query(TASKS, ("status", "==", LEASED), ("lease_expires_at", "<=", now), order=_BY_END, most=_A_TIME)

        def back(found: Found) -> Fields | None:
            is_over = when(found, "lease_expires_at") <= now
            return queued_again(found, self._max_attempts, now, _NO_WORD) if is_over else None

        with suppress(Conflict):
            await self._change(over, back)

    async def keep(self, beat: Beat) -> Kept | None:
        """Extends those that need it, so that all run for half their length at least.

        None: the worker holds nothing. What it was given all the same never reached it, and is queued again.
        """
        now = self._calls.now()
        if self._claims and now - self._claims[1] > self._on_its_way:
            self.all_are_taken()
        if _holds_nothing(beat):
            await self._change(self._mine(now + self.length), lambda found: self._returned(found, now))
            return None
        await self._change(self._mine(now + self.length / 2), lambda found: self._extended(found, now))
        here = self._calls.here(now)
        return Kept(here + self.length / 2, here - _LONGEST_LEASE)

    def is_mine(self, found: Found) -> bool:
        return found.fields.get("status") == LEASED and found.fields.get("worker") == self._layout.worker_id

    def _mine(self, ends_until: datetime) -> StructuredQuery:
        mine = ("worker", "==", self._layout.worker_id)
        ends = ("lease_expires_at", "<=", ends_until)
        return query(TASKS, ("status", "==", LEASED), mine, ends, order=_BY_END, most=_A_TIME)

    def _extended(self, found: Found, now: datetime) -> Fields | None:
        since = when(found, "leased_at")
        if not self.is_mine(found) or not self._is_here(since) or now - since > _LONGEST_LEASE:
            return None
        return {"lease_expires_at": now + self.length}

    def _is_here(self, claimed_at: datetime) -> bool:
        """In the worker's store, or on its way there in this process."""
        is_taken = self.taken_until is not None and claimed_at <= self.taken_until
        return is_taken or (self._claims is not None and claimed_at >= self._claims[0])

    def _returned(self, found: Found, now: datetime) -> Fields | None:
        if not self.is_mine(found) or now - when(found, "leased_at") < self._on_its_way:
            return None
        return queued_again(found, self._max_attempts, now, "the worker that had it says that it has nothing")

    async def _change(self, look: StructuredQuery, change_of: Callable[[Found], Fields | None]) -> None:
        """All that is found; read again in a transaction, as others may be at it too."""
        for _ in range(_MOST_ROUNDS):
            seen = [found.path for found in await self._calls.query(self._layout.parent, look)]
            if not seen or not await self._changed(seen, change_of) or len(seen) < _A_TIME:
                return

    async def _changed(self, paths: list[str], change_of: Callable[[Found], Fields | None]) -> int:
        async def work(transaction: bytes) -> tuple[int, list[Message]]:
            found = (await self._calls.get(paths, OF_A_LEASE, transaction)).values()
            writes = [change(one.path, fields) for one in found if (fields := change_of(one))]
            return len(writes), writes

        return await self._calls.transact(work)


_BY_END = ("lease_expires_at",)


def _holds_nothing(beat: Beat) -> bool:
    """Nothing is at work here or on its way up: no lease is worth extending."""
    queue = beat.queue
    return not (beat.active_tasks or queue.pending or queue.processing or queue.unsynced or queue.rejected)
