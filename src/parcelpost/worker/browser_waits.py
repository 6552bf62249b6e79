"""Tasks that wait because there is no browser: told to probes, and through the store to `parcelpost status`."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.storage.lpm import LocalPersistenceManager

STATE = "waits for a browser "
"""With the platform's name: the name under which the store keeps why."""

COUNTS_FOR = timedelta(minutes=5)
"""A task that waits is tried again sooner; if none was put off for that long, there is a browser."""
_TELL_EVERY = timedelta(seconds=30)


class BrowserWait(Struct, frozen=True, kw_only=True):
    platform: str
    reason: str
    since: datetime
    at: datetime
    """When a task was last put off for it."""

    @property
    def text(self) -> str:
        return f"tasks of {self.platform} wait for a browser: {self.reason}"


class BrowserWaits:
    def __init__(self, lpm: LocalPersistenceManager, clock: Clock) -> None:
        self._lpm = lpm
        self._clock = clock
        self._waits: dict[str, BrowserWait] = {}
        self._told: dict[str, BrowserWait] = {}

    @property
    def current(self) -> list[BrowserWait]:
        return still(list(self._waits.values()), self._clock.now())

    async def note(self, platform: str, reason: str) -> None:
        """A task of it was put off."""
        now = self._clock.now()
        before = self._waits.get(platform)
        since = before.since if before and still([before], now) else now
        wait = BrowserWait(platform=platform, reason=reason, since=since, at=now)
        self._waits[platform] = wait
        told = self._told.get(platform)
        if told is None or replace(told, at=now) != wait or now - told.at >= _TELL_EVERY:
            with contextlib.suppress(StoreError):  # the next one is told
                await self._lpm.state.put(f"{STATE}{platform}", wait)
                self._told[platform] = wait


def still(waits: list[BrowserWait], now: datetime) -> list[BrowserWait]:
    """Those that are not over."""
    return [one for one in waits if now - one.at < COUNTS_FOR]
