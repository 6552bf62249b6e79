"""The worker status: what a worker publishes about itself, one row in the store for each process.

`status`, `top`, `doctor` and peer processes read it. A row outlives its process: check that its owner is alive.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.model import Broken, Task
from parcelpost.storage.worker_state import WorkerState
from parcelpost.worker.backoff import Offline

if TYPE_CHECKING:
    from parcelpost.worker.context import Context

_ROW = "worker "
"""Prefix of the keys in `worker_state`; the process's name follows."""
_KEPT_FOR = timedelta(days=30)
PUBLISH_SECONDS = 30.0
"""If a live worker's row is several times older, the worker cannot write to the store."""


class BrowserWait(Struct, frozen=True, kw_only=True):
    """Tasks of a platform wait for a browser."""

    platform: str
    reason: str
    since: datetime
    at: datetime
    """When a task was last deferred."""
    remedy: str = ""

    @property
    def text(self) -> str:
        return f"tasks of {self.platform} are waiting for a browser: {self.reason}"


class MemoryPressure(Struct, frozen=True, kw_only=True):
    since: datetime
    starts_tasks: bool
    summary: str
    """The situation at `since`."""


class SlowUpstream(Struct, frozen=True, kw_only=True):
    """Batches timed out, so they are smaller now."""

    since: datetime
    batch_size: int


class WorkerStatus(Struct, frozen=True, kw_only=True):
    name: str
    worker_id: str
    owner: str
    """The process's owner id in the store."""
    store: str = ""
    """The path under which it opened the store."""
    published_at: datetime
    started_at: datetime
    mode: str
    upstream: str = ""
    """Its host or name; '' without an upstream."""
    gateway_url: str = ""
    slots: int = 0
    version: str = ""
    paused_since: datetime | None = None
    """Since when the upstream has paused this worker."""
    platforms: tuple[str, ...] = ()
    """The platforms that the upstream restricts this worker to; empty: as set in the settings."""
    outages: Mapping[str, Offline] = {}
    """Why a loop cannot reach the upstream, by loop."""
    slow: SlowUpstream | None = None
    memory: MemoryPressure | None = None
    browser_waits: tuple[BrowserWait, ...] = ()
    broken: tuple[Broken, ...] = ()
    """Fields that are no longer found where they used to be."""
    stopped_at: datetime | None = None
    """When it stopped cleanly; None if it is running or crashed."""
    cleaning_since: datetime | None = None
    """Set during the daily clean-up, which may lock the store for a long time: nothing is published meanwhile."""


async def read_statuses(state: WorkerState) -> list[WorkerStatus]:
    """Returns the status of all processes, including those that have ended; the newest first."""
    return sorted(await state.list(_ROW, WorkerStatus), key=lambda status: status.published_at, reverse=True)


def last_run(statuses: Sequence[WorkerStatus]) -> list[WorkerStatus]:
    """Returns the processes that were running at the same time as the one that published last."""
    newest = max(statuses, key=lambda status: status.published_at, default=None)
    return [status for status in statuses if newest and status.published_at >= newest.started_at]


async def delete_old_statuses(state: WorkerState, now: datetime) -> None:
    """Deletes rows that are older than a month."""
    for status in await read_statuses(state):
        if status.published_at < now - _KEPT_FOR:
            await state.delete(_ROW + status.name)


async def publish(state: WorkerState, status: WorkerStatus) -> None:
    await state.put(_ROW + status.name, status)


class Publisher:
    """Writes the status when it has changed, and at least every 30 s to show that the store is writable."""

    def __init__(self, context: Context, describe: Callable[[], WorkerStatus]) -> None:
        self._context = context
        self._describe = describe
        self._published: WorkerStatus | None = None

    async def publish(self) -> None:
        status, before = self._describe(), self._published
        if before is not None and self._is_current(before, status):
            return
        with contextlib.suppress(StoreError):  # tried again at the next step
            await publish(self._context.lpm.state, status)
            self._published = status

    def _is_current(self, before: WorkerStatus, now: WorkerStatus) -> bool:
        age = (now.published_at - before.published_at).total_seconds()
        return 0 <= age < PUBLISH_SECONDS and now == replace(before, published_at=now.published_at)


_COUNTS_FOR = timedelta(minutes=5)
"""Waiting tasks are retried more often than this: if none was deferred for so long, there is a browser."""
_MOST_KNOWN = 10_000


class BrowserWaits:
    """Platforms whose tasks were deferred because there was no browser."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[str, BrowserWait] = {}
        self._deferred: dict[str, set[str]] = {}
        """Ids of the tasks that were deferred, by platform: tasks without a browser do not end the wait."""

    @property
    def current(self) -> Sequence[BrowserWait]:
        now = self._clock.now()
        return [wait for wait in self._waits.values() if is_current(wait, now)]

    def deferred(self, task: Task, reason: str, remedy: str = "") -> None:
        now, before = self._clock.now(), self._waits.get(task.platform)
        since = before.since if before and is_current(before, now) else now
        wait = BrowserWait(platform=task.platform, reason=reason, since=since, at=now, remedy=remedy)
        self._waits[task.platform] = wait
        task_ids = self._deferred.setdefault(task.platform, set())
        if len(task_ids) < _MOST_KNOWN:
            task_ids.add(task.task_id)

    def ended(self, task: Task) -> None:
        """Ends the platform's wait if this task had been deferred: there is a browser now."""
        if task.task_id in self._deferred.get(task.platform, ()):
            del self._deferred[task.platform]
            self._waits.pop(task.platform, None)


def is_current(wait: BrowserWait, now: datetime) -> bool:
    return abs(now - wait.at) < _COUNTS_FOR
