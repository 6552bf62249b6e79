"""A place in the pool: browsers run in it one after the other, and what it does is written down."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.model import BrowserState
from parcelpost.scrapers.browsers import processes
from parcelpost.scrapers.browsers.browser import Chromium
from parcelpost.scrapers.browsers.driver import Driver
from parcelpost.scrapers.browsers.ledger import BrowserLedger


class Place:
    def __init__(self, ledger: BrowserLedger, owner: str, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        now = clock.now()
        self._state = BrowserState(
            browser_id=0, status="restarting", last_health_check=now, created_at=now, launches=0, owner=owner
        )
        self.chromium: Chromium | None = None
        self.is_lent = False
        self.idle_since = 0.0
        self.started_at = 0.0
        self.checked_at = 0.0
        self.tasks = 0
        """Done by the browser that runs now."""
        self.was_of_use = False
        """A page was opened in the browser that runs now."""
        self.memory: int | None = None
        """Bytes, of the browser that runs now, as last measured."""
        self.retiring = ""
        """Why the browser is to end although it is well."""
        self.is_given_up = False
        """No other browser is started here."""
        self._is_forgotten = False

    @property
    def browser_id(self) -> int:
        return self._state.browser_id

    @property
    def launches(self) -> int:
        return self._state.launches

    @property
    def is_coming(self) -> bool:
        """A browser is being started here, or will be as soon as the last one is gone."""
        return not self.is_given_up and (self.chromium is None or self.chromium.over.done())

    @property
    def is_idle(self) -> bool:
        return self.chromium is not None and not self.is_lent and not self.chromium.over.done()

    async def announce(self, marker: str, executable: str, driver: Driver) -> None:
        """Before a browser is started, so that it is found if we are killed meanwhile. Raises a StoreError."""
        self._state = replace(
            self._state,
            status="restarting",
            current_task_id=None,
            launches=self._state.launches + 1,
            restarted_at=self._clock.now() if self._state.launches else None,
            memory_mb=None,
            pid=None,
            started="",
            profile="",
            boot=processes.boot(),
            marker=marker,
            executable=executable,
            driver_pid=driver.process.pid,
            driver_started=driver.process.started,
        )
        if self.browser_id:
            await self._ledger.put(self._state)
        else:
            self._state = replace(self._state, browser_id=await self._ledger.add(self._state))

    async def settle(self, chromium: Chromium) -> None:
        """It has started, and is well."""
        self.chromium = chromium
        self.is_lent = False
        self.tasks, self.memory, self.retiring, self.was_of_use = 0, None, "", False
        self.started_at = self.idle_since = self.checked_at = self._clock.monotonic()
        await self.note(
            status="idle",
            pid=chromium.process.pid,
            started=chromium.process.started,
            executable=chromium.executable,
            profile=chromium.profile,
            last_health_check=self._clock.now(),
        )

    async def lend(self, task_id: str) -> None:
        await self.note(status="busy", current_task_id=task_id)
        with suppress(StoreError):
            await self._ledger.assign(task_id, self.browser_id)

    async def unassign(self, task_id: str) -> None:
        with suppress(StoreError):
            await self._ledger.assign(task_id, None)

    async def take_back(self, *, was_good: bool) -> None:
        self.tasks += 1
        self.idle_since = self._clock.monotonic()
        completed = self._state.tasks_completed + was_good
        await self.note(status="idle", current_task_id=None, tasks_completed=completed)

    async def note(self, **changes: Any) -> None:
        """What the store does not take now, it gets with the next change: no browser ends for want of disk."""
        self._state = replace(self._state, **changes)
        if not self._is_forgotten:
            with suppress(StoreError):
                await self._ledger.put(self._state)

    async def forget(self) -> None:
        self._is_forgotten = True
        if self.browser_id:
            with suppress(StoreError):
                await self._ledger.remove(self.browser_id)
