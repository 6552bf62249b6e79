"""Tasks: claimed under a lease, and ended."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from datetime import datetime

from parcelpost.errors import Unavailable
from parcelpost.model import OutboxEntry, Task, TaskStatus
from parcelpost.settings.schema import FirestoreSettings
from parcelpost.upstream.base import MOST_TASKS, BadTask, Work
from parcelpost.upstream.firestore.calls import Calls, Found, change, query
from parcelpost.upstream.firestore.encoding import TASKS, Layout, Message
from parcelpost.upstream.firestore.errors import Conflict
from parcelpost.upstream.firestore.leases import Leases
from parcelpost.upstream.firestore.task_fields import (
    DONE,
    FAILED,
    NOT_FOUND,
    OF_A_LEASE,
    OF_A_TURN,
    QUEUED,
    Fields,
    ended,
    has_room,
    is_held,
    leased,
    queued_again,
    read,
    turn,
)

_PLATFORMS_A_QUERY = 30  # so many does Firestore take
_WIDER = 4


class Tasks:
    def __init__(self, calls: Calls, layout: Layout, leases: Leases, settings: FirestoreSettings) -> None:
        self._calls = calls
        self._layout = layout
        self._leases = leases
        self._settings = settings

    async def claim(self, capacity: int, platforms: Sequence[str]) -> Work:
        """The most urgent, then the oldest. What others take meanwhile is left to them."""
        await self._calls.learn_time(self._layout.worker)
        await self._leases.bring_back()
        wanted = min(max(capacity, 1), MOST_TASKS)
        for is_crowded in (False, True, True, True):
            seen = await self._look(platforms, wanted, is_crowded)
            if not seen:
                return Work(tasks=(), retry_after=self._settings.idle_seconds)
            if found := await self._take(seen):
                bad = [one for one in found if isinstance(one, BadTask)]
                return Work(tasks=[one for one in found if isinstance(one, Task)], bad=bad)
        raise Unavailable("Firestore has tasks, and other workers took every one that this one asked for")

    async def end(self, entry: OutboxEntry) -> None:
        """By the word of who has that lease (I4). A task that is unknown, ended or given out anew stays as it is."""
        path = self._layout.task(entry.task_id)

        async def end(transaction: bytes) -> tuple[None, Sequence[Message]]:
            found = (await self._calls.get([path], OF_A_LEASE, transaction)).get(path)
            if found is None or not is_held(found, entry.lease_id):
                return None, ()
            return None, [change(path, self._ended(found, entry))]

        await self._calls.transact(end)

    async def _look(self, platforms: Sequence[str], wanted: int, is_crowded: bool) -> list[str]:
        """The next ones. Where others ask at the same moment, of those that are alike not the same as they."""
        found: list[Found] = []
        for start in range(0, len(platforms), _PLATFORMS_A_QUERY):
            conditions = (("status", "==", QUEUED), ("platform", "in", list(platforms[start:][:_PLATFORMS_A_QUERY])))
            most = wanted * (_WIDER if is_crowded else 1)
            look = query(TASKS, *conditions, order=OF_A_TURN, fields=OF_A_TURN, most=most)
            found += await self._calls.query(self._layout.parent, look)
        if is_crowded:
            random.shuffle(found)
            found.sort(key=lambda one: turn(one)[0])
        elif len(platforms) > _PLATFORMS_A_QUERY:
            found.sort(key=turn)
        return [one.path for one in found[:wanted]]

    async def _take(self, paths: Sequence[str]) -> list[Task | BadTask]:
        """Those that are still there, in one transaction: no other worker gets one of them.

        Should its answer be lost, nobody ever names their lease: a heartbeat gives them back, or it ends.
        """
        lease_id = secrets.token_hex(16)

        async def take(transaction: bytes) -> tuple[list[Task | BadTask], list[Message]]:
            there = await self._calls.get(paths, transaction=transaction)
            now = self._calls.now()  # as this answer says: it may have taken long
            until = self._calls.here(now + self._leases.length)
            found = [there[path] for path in paths if path in there and there[path].fields.get("status") == QUEUED]
            tasks = [read(one, lease_id, until) for one in found]
            writes = [change(one.path, self._claimed(one, task, now)) for one, task in zip(found, tasks, strict=True)]
            return tasks, writes

        try:
            return await self._calls.transact(take)
        except Conflict:
            raise
        except BaseException:
            self._leases.never_arrived(lease_id, paths)
            raise

    def _claimed(self, found: Found, task: Task | BadTask, now: datetime) -> Fields:
        """What cannot be read would be handed out for ever. Where there is no room, not even a reason is written."""
        if not has_room(found):
            return {"status": FAILED}
        if isinstance(task, BadTask):
            return ended(FAILED, now, f"the task cannot be read: {task.problem}")
        return leased(found, self._layout.worker_id, task.lease_id, now, self._leases.length)

    def _ended(self, found: Found, entry: OutboxEntry) -> Fields:
        now = self._calls.now()
        if entry.status is TaskStatus.FAILED:
            return ended(FAILED, now, entry.error_text or "the worker gave no reason")
        if entry.status is TaskStatus.EXPIRED:
            why = entry.error_text or "it expired before it was started"
            return queued_again(found, self._settings.max_attempts, now, why)
        if entry.status is TaskStatus.NOT_FOUND:
            return ended(NOT_FOUND, now, entry.error)
        return ended(DONE, now)
