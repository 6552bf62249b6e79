"""Leases in Firestore: fields of a task's document that say which worker has it, and until when.

Writes the fields when a lease starts, is extended and ends. All times are by Firestore's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from google.cloud.firestore_v1.types import StructuredQuery
from msgspec.structs import replace

from parcelpost.model import Lease
from parcelpost.settings.schema import FirestoreSettings
from parcelpost.upstream.firestore.calls import Calls, Document, change, query
from parcelpost.upstream.firestore.encoding import TASKS, Layout, Message, Plain
from parcelpost.upstream.firestore.errors import Conflict

QUEUED, LEASED, DONE, NOT_FOUND, FAILED = "queued", "leased", "done", "not_found", "failed"

LEASE_FIELDS = ("status", "worker", "lease_id", "leased_at", "lease_expires_at", "attempts")
"""The fields that decide what may happen to a lease."""

_DOCUMENTS_A_COMMIT = 400  # below the 500 writes of a commit
_MAX_ROUNDS = 50
_LONGEST_LEASE = timedelta(hours=24)
_MAX_LOST = 100
"""Lost claims that are remembered; the leases of older ones expire."""
_MAX_ERROR_CHARS = 4_000
_BY_END = ("lease_expires_at",)
_ENDED_SILENTLY = "its lease expired without a report"
_NEVER_ARRIVED = "it was claimed, but the response was lost"
_NEVER = datetime.max.replace(tzinfo=UTC)

Fields = Mapping[str, Plain]


def time_of(document: Document, name: str, default: datetime = _NEVER) -> datetime:
    """Returns the field's time, or `default` if it has none."""
    moment = document.fields.get(name)
    return moment if isinstance(moment, datetime) else default


def is_held(document: Document, lease_id: str | None) -> bool:
    """Whether this lease is open. The same worker may have lost the task and leased it again under another id."""
    return document.fields.get("status") == LEASED and bool(lease_id) and document.fields.get("lease_id") == lease_id


def leased(document: Document, worker_id: str, lease_id: str, now: datetime, length: timedelta) -> Fields:
    return {
        "status": LEASED,
        "worker": worker_id,
        "lease_id": lease_id,
        "leased_at": now,
        "lease_expires_at": now + length,
        "attempts": _attempts(document) + 1,
        "error": None,
    }


def ended(status: str, now: datetime, error: str | None = None) -> Fields:
    return {
        "status": status,
        "lease_expires_at": None,
        "ended_at": now,
        "error": None if error is None else error[:_MAX_ERROR_CHARS],
    }


def queued_again(document: Document, max_attempts: int, now: datetime, reason: str) -> Fields:
    """Returns the fields of a queued task, or of a failed one if it was leased `max_attempts` times."""
    attempts = _attempts(document)
    if attempts >= max_attempts:
        return ended(FAILED, now, f"{reason}; it was handed out {attempts} times, which is the limit")
    return {
        "status": QUEUED,
        "worker": None,
        "lease_id": None,
        "lease_expires_at": None,
        "error": reason[:_MAX_ERROR_CHARS],
    }


def _attempts(document: Document) -> int:
    attempts = document.fields.get("attempts")
    return attempts if type(attempts) is int and attempts > 0 else 0


class FirestoreLeases:
    """The leases of one worker.

    Each claim gives its leases a new id, and only those in the worker's store are extended. A claim whose answer was
    lost is given back by the client that made it; if that client crashed, its leases expire.
    """

    def __init__(self, calls: Calls, layout: Layout, settings: FirestoreSettings) -> None:
        self._calls = calls
        self._layout = layout
        self._max_attempts = settings.max_attempts
        self.length = timedelta(seconds=settings.lease_seconds)
        self._lost: dict[str, Sequence[str]] = {}

    def never_arrived(self, lease_id: str, paths: Sequence[str]) -> None:
        """Remembers a claim whose answer was lost: these tasks may be leased under that id."""
        self._lost[lease_id] = paths
        if len(self._lost) > _MAX_LOST:
            del self._lost[next(iter(self._lost))]

    async def requeue_expired(self) -> None:
        """Queues the tasks of crashed workers again, or fails those that were leased too often.

        Does nothing if another worker is doing the same.
        """
        now = self._calls.now()
        conditions = (("status", "==", LEASED), ("lease_expires_at", "<=", now))
        expired = query(TASKS, *conditions, order=_BY_END, fields=_BY_END, limit=_DOCUMENTS_A_COMMIT)

        def requeued(document: Document) -> Fields | None:
            is_over = document.fields.get("status") == LEASED and time_of(document, "lease_expires_at") <= now
            return queued_again(document, self._max_attempts, now, _ENDED_SILENTLY) if is_over else None

        with suppress(Conflict):
            await self._change_all(expired, requeued)

    async def extend(self, leases: Sequence[Lease]) -> list[Lease]:
        """Extends leases that are half over. Returns them with their new ends by our clock.

        A lease that ends later than any can was stored before our clock was set back, and counts as half over.
        """
        if not leases:
            return []
        await self._calls.learn_time(self._layout.worker)
        here = self._calls.here(self._calls.now())
        due = [lease for lease in leases if not self.length / 2 < lease.expires_at - here <= self.length]
        extended: list[Lease] = []
        for start in range(0, len(due), _DOCUMENTS_A_COMMIT):
            with suppress(Conflict):  # the next heartbeat comes before they end
                extended += await self._extend(due[start : start + _DOCUMENTS_A_COMMIT])
        return extended

    async def _extend(self, leases: Sequence[Lease]) -> list[Lease]:
        by_path = {self._layout.task(lease.task_id): lease for lease in leases}

        async def extend(transaction: bytes) -> tuple[list[Lease], list[Message]]:
            documents = await self._calls.get(list(by_path), LEASE_FIELDS, transaction)
            now = self._calls.now()  # by this answer: the machine may have slept since the previous one
            until = self._calls.here(now + self.length)
            paths = [path for path, document in documents.items() if _is_extensible(document, by_path[path], now)]
            writes = [change(path, {"lease_expires_at": now + self.length}) for path in paths]
            return [replace(by_path[path], expires_at=until) for path in paths], writes

        return await self._calls.transact(extend)

    async def give_back_lost(self) -> None:
        """Queues tasks again that this client claimed and never received, so that they are in no store."""
        for lease_id, paths in list(self._lost.items()):
            with suppress(Conflict):
                await self._change(paths, partial(self._given_back, lease_id))
                self._lost.pop(lease_id, None)

    def _given_back(self, lease_id: str, document: Document) -> Fields | None:
        if not is_held(document, lease_id):
            return None
        return queued_again(document, self._max_attempts, self._calls.now(), _NEVER_ARRIVED)

    async def _change_all(self, matching: StructuredQuery, changed: Callable[[Document], Fields | None]) -> None:
        """Changes all matches. Reads them again in a transaction, because others may change them, too."""
        for _ in range(_MAX_ROUNDS):
            paths = [document.path for document in await self._calls.query(self._layout.parent, matching)]
            if not paths or not await self._change(paths, changed) or len(paths) < _DOCUMENTS_A_COMMIT:
                return

    async def _change(self, paths: Sequence[str], changed: Callable[[Document], Fields | None]) -> int:
        async def work(transaction: bytes) -> tuple[int, list[Message]]:
            documents = (await self._calls.get(paths, LEASE_FIELDS, transaction)).values()
            writes = [change(document.path, fields) for document in documents if (fields := changed(document))]
            return len(writes), writes

        return await self._calls.transact(work)


def _is_extensible(document: Document, lease: Lease, now: datetime) -> bool:
    return is_held(document, lease.lease_id) and now - time_of(document, "leased_at") <= _LONGEST_LEASE
