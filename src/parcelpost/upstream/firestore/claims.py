"""Tasks in Firestore: read from their documents, claimed under a lease, and ended."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from parcelpost.errors import InvalidInput, Unavailable
from parcelpost.model import OutboxEntry, Source, Task, TaskStatus
from parcelpost.protocol import client
from parcelpost.protocol.payloads import BadTask, Work
from parcelpost.settings.schema import FirestoreSettings
from parcelpost.upstream.base import MAX_TASKS
from parcelpost.upstream.firestore.calls import Calls, Document, change, query
from parcelpost.upstream.firestore.encoding import MAX_DOCUMENT_BYTES, TASKS, Layout, Message, size
from parcelpost.upstream.firestore.errors import Conflict
from parcelpost.upstream.firestore.leases import (
    DONE,
    FAILED,
    LEASE_FIELDS,
    NOT_FOUND,
    QUEUED,
    Fields,
    FirestoreLeases,
    ended,
    is_held,
    leased,
    queued_again,
    time_of,
)

_ORDER_FIELDS = ("priority", "created_at")
_TASK_FIELDS = ("type", "platform", "target", "priority", "max_retries")
_PLATFORMS_A_QUERY = 30  # Firestore's limit
_WIDER = 4
_NO_ROOM = f"its document has more than {MAX_DOCUMENT_BYTES:,} bytes, which leaves no room for a lease"


class Tasks:
    def __init__(self, calls: Calls, layout: Layout, leases: FirestoreLeases, settings: FirestoreSettings) -> None:
        self._calls = calls
        self._layout = layout
        self._leases = leases
        self._settings = settings

    async def claim(self, capacity: int, platforms: Sequence[str]) -> Work:
        """Claims the most urgent tasks, the oldest first. Skips those that another worker claims first."""
        await self._calls.learn_time(self._layout.worker)
        await self._leases.requeue_expired()
        wanted = min(max(capacity, 1), MAX_TASKS)
        for is_crowded in (False, True, True, True):
            paths = await self._find(platforms, wanted, is_crowded)
            if not paths:
                return Work(tasks=(), retry_after=self._settings.idle_seconds)
            if claimed := await self._lease(paths):
                bad = [task for task in claimed if isinstance(task, BadTask)]
                return Work(tasks=[task for task in claimed if isinstance(task, Task)], bad=bad)
        raise Unavailable("Firestore has tasks, but other workers claimed all those that this worker requested")

    async def end(self, entry: OutboxEntry) -> None:
        """Ends a task if the entry's lease is still open (I4). Ignores one that is unknown, ended or leased again."""
        path = self._layout.task(entry.task_id)

        async def end(transaction: bytes) -> tuple[None, Sequence[Message]]:
            document = (await self._calls.get([path], LEASE_FIELDS, transaction)).get(path)
            if document is None or not is_held(document, entry.lease_id):
                return None, ()
            return None, [change(path, self._ended(document, entry))]

        await self._calls.transact(end)

    async def _find(self, platforms: Sequence[str], wanted: int, is_crowded: bool) -> list[str]:
        """Returns the paths of the next tasks. If workers compete, picks at random among those of equal priority."""
        queued: list[Document] = []
        for start in range(0, len(platforms), _PLATFORMS_A_QUERY):
            conditions = (("status", "==", QUEUED), ("platform", "in", list(platforms[start:][:_PLATFORMS_A_QUERY])))
            limit = wanted * (_WIDER if is_crowded else 1)
            next_tasks = query(TASKS, *conditions, order=_ORDER_FIELDS, fields=_ORDER_FIELDS, limit=limit)
            queued += await self._calls.query(self._layout.parent, next_tasks)
        if is_crowded:
            random.shuffle(queued)
            queued.sort(key=lambda document: _claim_order(document)[0])
        elif len(platforms) > _PLATFORMS_A_QUERY:
            queued.sort(key=_claim_order)
        return [document.path for document in queued[:wanted]]

    async def _lease(self, paths: Sequence[str]) -> list[Task | BadTask]:
        """Leases those that are still queued, in one transaction, so that no other worker gets them.

        If the answer is lost, no store knows the lease: a heartbeat gives the tasks back, or the lease expires.
        """
        lease_id = secrets.token_hex(16)

        async def lease(transaction: bytes) -> tuple[list[Task | BadTask], list[Message]]:
            by_path = await self._calls.get(paths, transaction=transaction)
            now = self._calls.now()  # by this answer, which may have taken long
            until = self._calls.here(now + self._leases.length)
            documents = [by_path[path] for path in paths if path in by_path]
            queued = [document for document in documents if document.fields.get("status") == QUEUED]
            tasks = [_read(document, lease_id, until) for document in queued]
            pairs = zip(queued, tasks, strict=True)
            return tasks, [change(document.path, self._claimed(document, task, now)) for document, task in pairs]

        try:
            return await self._calls.transact(lease)
        except Conflict:
            raise
        except BaseException:
            self._leases.never_arrived(lease_id, paths)
            raise

    def _claimed(self, document: Document, task: Task | BadTask, now: datetime) -> Fields:
        """Fails an unreadable task, or it would be leased forever; without a reason if there is no room for one."""
        if not _has_room(document):
            return {"status": FAILED}
        if isinstance(task, BadTask):
            return ended(FAILED, now, f"the task cannot be read: {task.problem}")
        return leased(document, self._layout.worker_id, task.lease_id, now, self._leases.length)

    def _ended(self, document: Document, entry: OutboxEntry) -> Fields:
        now = self._calls.now()
        if entry.status is TaskStatus.FAILED:
            return ended(FAILED, now, entry.error_text or "the worker gave no reason")
        if entry.status is TaskStatus.EXPIRED:
            reason = entry.error_text or "it expired before it was started"
            return queued_again(document, self._settings.max_attempts, now, reason)
        if entry.status is TaskStatus.NOT_FOUND:
            return ended(NOT_FOUND, now, entry.error)
        return ended(DONE, now)


def _read(document: Document, lease_id: str, lease_expires_at: datetime) -> Task | BadTask:
    if not _has_room(document):
        return BadTask(task_id=document.name, problem=_NO_ROOM)
    fields = {name: document.fields[name] for name in _TASK_FIELDS if name in document.fields}
    try:
        task = client.read_task(msgspec.json.encode({**fields, "task_id": document.name}))
    except InvalidInput as error:
        return BadTask(task_id=document.name, problem=str(error))
    return replace(task, source=Source.FIRESTORE, lease_id=lease_id, lease_expires_at=lease_expires_at)


def _has_room(document: Document) -> bool:
    """Whether the document has room for the fields that are written until the task ends."""
    return size(document.fields) <= MAX_DOCUMENT_BYTES


def _claim_order(document: Document) -> tuple[float, datetime, str]:
    """Sort key: the most urgent first, then the oldest."""
    priority = document.fields.get("priority")
    return priority if isinstance(priority, int | float) else 0.0, time_of(document, "created_at"), document.name
