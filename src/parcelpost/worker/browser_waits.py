"""Tasks that wait because there is no browser: told to probes, and through the store to `parcelpost status`."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.model import Task

if TYPE_CHECKING:
    from parcelpost.storage.lpm import LocalPersistenceManager

STATE = "waits for a browser "
"""With the platform's name: the name under which the store keeps why."""

COUNTS_FOR = timedelta(minutes=5)
"""A task that waits is tried again sooner; if none was put off for that long, there is a browser."""
_TELL_EVERY = timedelta(seconds=30)
_MOST_KNOWN = 10_000


class BrowserWait(Struct, frozen=True, kw_only=True):
    platform: str
    reason: str
    """'': it is over."""
    since: datetime
    at: datetime
    """When a task was last put off for it."""
    remedy: str = ""
    """What a person can do, where it is known."""
    owner: str = ""
    """Which of the store's openers says it."""

    @property
    def text(self) -> str:
        return f"tasks of {self.platform} wait for a browser: {self.reason}"


class BrowserWaits:
    def __init__(self, lpm: LocalPersistenceManager, clock: Clock) -> None:
        self._lpm = lpm
        self._clock = clock
        self._waits: dict[str, BrowserWait] = {}
        self._told: dict[str, BrowserWait] = {}
        self._put_off: dict[str, set[str]] = {}
        """By platform. One that needs no browser says nothing about those that do."""

    @property
    def current(self) -> list[BrowserWait]:
        return still(list(self._waits.values()), self._clock.now())

    async def note(self, task: Task, reason: str, remedy: str = "") -> None:
        """It was put off."""
        now, platform = self._clock.now(), task.platform
        before = self._waits.get(platform)
        since = before.since if before and still([before], now) else now
        wait = BrowserWait(
            platform=platform, reason=reason, since=since, at=now, remedy=remedy, owner=self._lpm.owner_id
        )
        self._waits[platform] = wait
        known = self._put_off.setdefault(platform, set())
        if len(known) < _MOST_KNOWN:
            known.add(task.task_id)
        told = self._told.get(platform)
        if told is None or replace(told, at=now) != wait or now - told.at >= _TELL_EVERY:
            await self._tell(wait)

    async def ended(self, task: Task) -> None:
        """If it had been put off, there is a browser now; whoever finds none says so again."""
        if task.task_id not in self._put_off.get(task.platform, ()):
            return
        del self._put_off[task.platform]
        await self._tell(replace(self._waits.pop(task.platform), reason=""))

    async def _tell(self, wait: BrowserWait) -> None:
        with contextlib.suppress(StoreError):  # the next one is told
            await self._lpm.state.put(f"{STATE}{wait.platform}", wait)
            self._told[wait.platform] = wait


def still(waits: list[BrowserWait], now: datetime) -> list[BrowserWait]:
    """Those that are not over."""
    return [one for one in waits if one.reason and abs(now - one.at) < COUNTS_FOR]
