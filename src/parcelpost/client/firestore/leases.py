"""Leases: fields of a task that say who has it, by what name, and until when by Firestore's clock. Here: kept, over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from google.cloud.firestore_v1.types import StructuredQuery
from msgspec.structs import replace

from parcelpost.client.firestore.calls import Calls, Found, change, query
from parcelpost.client.firestore.failures import Conflict
from parcelpost.client.firestore.layout import TASKS, Layout
from parcelpost.client.firestore.task_fields import LEASED, OF_A_LEASE, Fields, is_held, queued_again, when
from parcelpost.client.firestore.values import Message
from parcelpost.client.upstream import Beat
from parcelpost.model import Lease
from parcelpost.settings.keys import FirestoreSettings

_A_TIME = 400  # below the 500 writes of a commit
_MOST_ROUNDS = 50
_LONGEST_LEASE = timedelta(hours=24)
_ON_ITS_WAY_SECONDS = 30.0
"""A task claimed so lately may not be in the worker's store yet."""
_BY_END = ("lease_expires_at",)
_NO_WORD = "its lease ended without a word"
_NOTHING_HERE = "the worker that had it says that it has nothing"


class Leases:
    """One worker's.

    Each claim gives its leases a new name, and only those that the worker's store can name are extended. What was
    claimed and never arrived, because an answer was lost or the worker died, ends by itself.
    """

    def __init__(self, calls: Calls, layout: Layout, settings: FirestoreSettings) -> None:
        self._calls = calls
        self._layout = layout
        self._max_attempts = settings.max_attempts
        self.length = timedelta(seconds=settings.lease_seconds)
        self._on_its_way = timedelta(seconds=min(_ON_ITS_WAY_SECONDS, settings.lease_seconds / 2))

    async def bring_back(self) -> None:
        """What dead workers had is queued again, or failed if it was handed out often enough.

        Where others do the same at this moment, it is left to them.
        """
        now = self._calls.now()
        over = query(TASKS, ("status", "==", LEASED), ("lease_expires_at", "<=", now), order=_BY_END, most=_A_TIME)

        def back(found: Found) -> Fields | None:
            is_over = found.fields.get("status") == LEASED and when(found, "lease_expires_at") <= now
            return queued_again(found, self._max_attempts, now, _NO_WORD) if is_over else None

        with suppress(Conflict):
            await self._change_all(over, back)

    async def keep(self, beat: Beat) -> list[Lease]:
        """Extends those of the worker's leases of which half is over. Answers these, with their new ends by our clock.

        One that ends later than any can was stored before our clock was set back: that counts as half over.
        A worker that holds nothing gives back what it was given all the same, which never reached it.
        """
        now = self._calls.now()
        if _holds_nothing(beat):
            await self._change_all(self._mine(now), lambda found: self._returned(found, now))
            return []
        here = self._calls.here(now)
        due = [lease for lease in beat.leases if not self.length / 2 < lease.expires_at - here <= self.length]
        kept: list[Lease] = []
        for start in range(0, len(due), _A_TIME):
            with suppress(Conflict):  # the next beat comes before they end
                kept += await self._extend(due[start : start + _A_TIME], now)
        return kept

    async def _extend(self, leases: Sequence[Lease], now: datetime) -> list[Lease]:
        by_path = {self._layout.task(lease.task_id): lease for lease in leases}

        async def extend(transaction: bytes) -> tuple[list[Lease], list[Message]]:
            found = await self._calls.get(list(by_path), OF_A_LEASE, transaction)
            held = [path for path, one in found.items() if _may_go_on(one, by_path[path], now)]
            writes = [change(path, {"lease_expires_at": now + self.length}) for path in held]
            return [by_path[path] for path in held], writes

        until = self._calls.here(now + self.length)
        return [replace(lease, expires_at=until) for lease in await self._calls.transact(extend)]

    def _mine(self, now: datetime) -> StructuredQuery:
        mine = ("worker", "==", self._layout.worker_id)
        ends = ("lease_expires_at", "<=", now + self.length)
        return query(TASKS, ("status", "==", LEASED), mine, ends, order=_BY_END, most=_A_TIME)

    def _returned(self, found: Found, now: datetime) -> Fields | None:
        is_mine = found.fields.get("status") == LEASED and found.fields.get("worker") == self._layout.worker_id
        if not is_mine or now - when(found, "leased_at") < self._on_its_way:
            return None
        return queued_again(found, self._max_attempts, now, _NOTHING_HERE)

    async def _change_all(self, look: StructuredQuery, change_of: Callable[[Found], Fields | None]) -> None:
        """All that is found; read again in a transaction, as others may be at it too."""
        for _ in range(_MOST_ROUNDS):
            seen = [found.path for found in await self._calls.query(self._layout.parent, look)]
            if not seen or not await self._change(seen, change_of) or len(seen) < _A_TIME:
                return

    async def _change(self, paths: list[str], change_of: Callable[[Found], Fields | None]) -> int:
        async def work(transaction: bytes) -> tuple[int, list[Message]]:
            found = (await self._calls.get(paths, OF_A_LEASE, transaction)).values()
            writes = [change(one.path, fields) for one in found if (fields := change_of(one))]
            return len(writes), writes

        return await self._calls.transact(work)


def _may_go_on(found: Found, lease: Lease, now: datetime) -> bool:
    return is_held(found, lease.lease_id) and now - when(found, "leased_at") <= _LONGEST_LEASE


def _holds_nothing(beat: Beat) -> bool:
    """Nothing is at work here or on its way up: no lease is worth extending."""
    queue = beat.queue
    return not (beat.active_tasks or queue.pending or queue.processing or queue.unsynced or queue.rejected)
