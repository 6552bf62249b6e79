"""Leases: fields of a task that say who has it, by what name, and until when by Firestore's clock. Here: kept, over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from google.cloud.firestore_v1.types import StructuredQuery
from msgspec.structs import replace

from parcelpost.model import Lease
from parcelpost.settings.schema import FirestoreSettings
from parcelpost.upstream.base import Heartbeat
from parcelpost.upstream.firestore.calls import Calls, Found, change, query
from parcelpost.upstream.firestore.encoding import TASKS, Layout, Message
from parcelpost.upstream.firestore.errors import Conflict
from parcelpost.upstream.firestore.task_fields import LEASED, OF_A_LEASE, Fields, is_held, queued_again, when

_A_TIME = 400  # below the 500 writes of a commit
_MOST_ROUNDS = 50
_LONGEST_LEASE = timedelta(hours=24)
_MOST_LOST = 100
"""Claims that are remembered; the leases of older ones end by themselves."""
_BY_END = ("lease_expires_at",)
_NO_WORD = "its lease ended without a word"
_NEVER_ARRIVED = "it was claimed, and the answer was lost"


class Leases:
    """One worker's.

    Each claim gives its leases a new name, and only those that the worker's store can name are extended. What was
    claimed and never arrived is given back by who asked for it; where that one died, its lease ends by itself.
    """

    def __init__(self, calls: Calls, layout: Layout, settings: FirestoreSettings) -> None:
        self._calls = calls
        self._layout = layout
        self._max_attempts = settings.max_attempts
        self.length = timedelta(seconds=settings.lease_seconds)
        self._lost: dict[str, Sequence[str]] = {}

    def never_arrived(self, lease_id: str, paths: Sequence[str]) -> None:
        """These tasks may be leased under that name, and nobody was told: their claim has no answer."""
        self._lost[lease_id] = paths
        if len(self._lost) > _MOST_LOST:
            del self._lost[next(iter(self._lost))]

    async def bring_back(self) -> None:
        """What dead workers had is queued again, or failed if it was handed out often enough.

        Where others do the same at this moment, it is left to them.
        """
        now = self._calls.now()
        conditions = (("status", "==", LEASED), ("lease_expires_at", "<=", now))
        over = query(TASKS, *conditions, order=_BY_END, fields=_BY_END, most=_A_TIME)

        def back(found: Found) -> Fields | None:
            is_over = found.fields.get("status") == LEASED and when(found, "lease_expires_at") <= now
            return queued_again(found, self._max_attempts, now, _NO_WORD) if is_over else None

        with suppress(Conflict):
            await self._change_all(over, back)

    async def keep(self, beat: Heartbeat) -> list[Lease]:
        """Extends those of the worker's leases of which half is over. Answers these, with their new ends by our clock.

        One that ends later than any can was stored before our clock was set back: that counts as half over.
        What was claimed here and never arrived is given back.
        """
        here = self._calls.here(self._calls.now())
        due = [lease for lease in beat.leases if not self.length / 2 < lease.expires_at - here <= self.length]
        kept: list[Lease] = []
        for start in range(0, len(due), _A_TIME):
            with suppress(Conflict):  # the next beat comes before they end
                kept += await self._extend(due[start : start + _A_TIME])
        await self._give_back()
        return kept

    async def _extend(self, leases: Sequence[Lease]) -> list[Lease]:
        by_path = {self._layout.task(lease.task_id): lease for lease in leases}

        async def extend(transaction: bytes) -> tuple[list[Lease], list[Message]]:
            found = await self._calls.get(list(by_path), OF_A_LEASE, transaction)
            now = self._calls.now()  # as this answer says: the machine may have slept since the one before
            until = self._calls.here(now + self.length)
            held = [path for path, one in found.items() if _may_go_on(one, by_path[path], now)]
            writes = [change(path, {"lease_expires_at": now + self.length}) for path in held]
            return [replace(by_path[path], expires_at=until) for path in held], writes

        return await self._calls.transact(extend)

    async def _give_back(self) -> None:
        """What this very client claimed and never had: no store can hold it, whatever else the worker has."""
        for lease_id, paths in list(self._lost.items()):
            with suppress(Conflict):
                await self._change(paths, partial(self._returned, lease_id))
                self._lost.pop(lease_id, None)

    def _returned(self, lease_id: str, found: Found) -> Fields | None:
        if not is_held(found, lease_id):
            return None
        return queued_again(found, self._max_attempts, self._calls.now(), _NEVER_ARRIVED)

    async def _change_all(self, look: StructuredQuery, change_of: Callable[[Found], Fields | None]) -> None:
        """All that is found; read again in a transaction, as others may be at it too."""
        for _ in range(_MOST_ROUNDS):
            seen = [found.path for found in await self._calls.query(self._layout.parent, look)]
            if not seen or not await self._change(seen, change_of) or len(seen) < _A_TIME:
                return

    async def _change(self, paths: Sequence[str], change_of: Callable[[Found], Fields | None]) -> int:
        async def work(transaction: bytes) -> tuple[int, list[Message]]:
            found = (await self._calls.get(paths, OF_A_LEASE, transaction)).values()
            writes = [change(one.path, fields) for one in found if (fields := change_of(one))]
            return len(writes), writes

        return await self._calls.transact(work)


def _may_go_on(found: Found, lease: Lease, now: datetime) -> bool:
    return is_held(found, lease.lease_id) and now - when(found, "leased_at") <= _LONGEST_LEASE
