"""Starting browsers: with which Chromium, through which driver, and when again if it fails."""

from __future__ import annotations

import asyncio
import random
import secrets

from parcelpost.clock import Clock
from parcelpost.events import BrowserStarted, BrowsersUnavailable, Emit
from parcelpost.scrapers.browsers import chromium, processes
from parcelpost.scrapers.browsers.bounded import NotDone
from parcelpost.scrapers.browsers.browser import Launch, launch, make_sure
from parcelpost.scrapers.browsers.chromium import Found, Missing, Sandbox
from parcelpost.scrapers.browsers.driver import Driver
from parcelpost.scrapers.browsers.marked import Marked
from parcelpost.scrapers.browsers.options import BrowserOptions
from parcelpost.scrapers.browsers.place import Place

_LEAST_SECONDS = 0.5
_MOST_SECONDS = 60.0
_MISSING_SECONDS = 60.0


class Starting:
    """One driver for all browsers; a new one when it has died."""

    def __init__(self, options: BrowserOptions, clock: Clock, emit: Emit) -> None:
        self.problem = ""
        """Why none can be started; '': it was not tried, or worked."""
        self._options = options
        self._clock = clock
        self._emit = emit
        self.token = secrets.token_hex(16)
        """The beginning of every marker."""
        self._count = 0
        self._driver: Driver | None = None
        self._one_driver = asyncio.Lock()
        self._found: Found | None = None
        self._sandbox = Sandbox(is_on=True)
        self._failures = 0
        self._again_at = 0.0

    @property
    def again_in(self) -> float:
        """Seconds until the next try makes sense; 0: now."""
        return max(0.0, self._again_at - self._clock.monotonic())

    async def start(self, place: Place) -> None:
        """Raises NotDone, or a StoreError where the browser cannot be announced."""
        began = self._clock.monotonic()
        found = await self._find()
        driver = await self._get_driver()
        self._count += 1
        marker = f"{self.token}-{self._count:08}"
        await place.announce(marker, found.path, driver)
        how = Launch(executable=found.path, marker=marker, sandbox=self._sandbox.is_on)
        await place.settle(await launch(driver, how, self._clock))
        self._tell(place, self._clock.monotonic() - began)

    def failed(self, reason: str, hint: str = "") -> None:
        """It was tried and did not work. With a hint, a person must see to it, and nothing is tried for a minute."""
        self._back_off(_MISSING_SECONDS if hint else 0.0)
        problem = f"{reason} ({hint})" if hint else reason
        if problem != self.problem:
            self._emit(BrowsersUnavailable(reason=reason, hint=hint, retry_in_seconds=self.again_in))
        self.problem = problem

    def died_young(self, reason: str) -> None:
        """A browser was dead before it was of any use. If several were, none is started for a while."""
        self._back_off(0.0)
        self.problem = self.problem or reason

    def _back_off(self, least: float) -> None:
        self._found = None  # it may have been removed, or replaced
        if not self.again_in:  # several that fail at once fail for one reason
            self._failures += 1
        longest = min(_MOST_SECONDS, _LEAST_SECONDS * 2 ** min(self._failures, 30))
        seconds = max(least, random.uniform(longest / 2, longest))  # noqa: S311 - jitter
        self._again_at = max(self._again_at, self._clock.monotonic() + seconds)

    def worked(self) -> None:
        """A browser was of use."""
        self.problem = ""
        self._failures = 0
        self._again_at = 0.0

    async def stop(self) -> None:
        """Leaves no process of any browser that was ever started from here."""
        ours = Marked(self.token)
        try:
            if self._driver is not None:
                await self._driver.stop()
        finally:
            processes.kill(ours.left())
        await make_sure(ours.left, (), self._clock)

    async def _find(self) -> Found:
        if self._found is None:
            found = chromium.find(self._options)
            if isinstance(found, Missing):
                raise NotDone(found.reason, found.hint)
            self._sandbox = await asyncio.to_thread(chromium.sandbox, self._options, found.path)
            self._found = found
        return self._found

    async def _get_driver(self) -> Driver:
        async with self._one_driver:
            if self._driver is None or not self._driver.is_running:
                if self._driver is not None:
                    await self._driver.stop()
                    self._driver = None
                self._driver = await Driver.start(self._clock)
            return self._driver

    def _tell(self, place: Place, seconds: float) -> None:
        if place.chromium is not None:
            self._emit(
                BrowserStarted(
                    browser_id=place.browser_id,
                    pid=place.chromium.process.pid,
                    version=place.chromium.version,
                    launches=place.launches,
                    seconds=seconds,
                    no_sandbox=self._sandbox.reason,
                )
            )
