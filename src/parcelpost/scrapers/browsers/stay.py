"""A lent page, for as long as an attempt needs it: until it is known how the attempt ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.scrapers.browsers.guard_proxy import GuardProxy, Lease
from parcelpost.scrapers.browsers.lending import Browsing, LentPage, playwright_error
from parcelpost.scrapers.browsers.page_log import PageLog
from parcelpost.scrapers.browsers.page_watch import PageWatch
from parcelpost.scrapers.browsers.profiles import unusable
from parcelpost.scrapers.fetch_errors import FAILURES, BrowserDied, FetchFailed

_ARTIFACT_SECONDS = 5.0
_MOST_SCREENSHOT_BYTES = 4 * 1024**2


class Held(Struct, frozen=True):
    lent: LentPage
    lease: Lease
    watch: PageWatch


class Stay:
    """Belongs to the worker's loop. A task of its own holds the page: who asked for it may be cancelled, or hang."""

    def __init__(
        self,
        task_id: str,
        browsing: Browsing,
        proxy: GuardProxy,
        clock: Clock,
        profile: str = "",
        cookies: Sequence[Any] = (),
    ) -> None:
        self._profile = profile
        self._cookies = cookies
        """With which it begins, those of the profile among them."""
        self._task_id = task_id
        self._browsing = browsing
        self._proxy = proxy
        self._clock = clock
        self._ready: asyncio.Future[Held] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._is_told = asyncio.Event()
        """What the page looked like is stored, or nobody wants to know."""
        self._failed = True
        self._death: BrowserDied | None = None
        self._holding: asyncio.Task[None] | None = None
        self._users = 0
        self._last_use = clock.monotonic()
        self.log = PageLog()
        self.secrets = [str(one.get("value", "")) for one in cookies]
        """What must not be in the log."""

    @property
    def is_over(self) -> bool:
        return self._ended.is_set()

    def begin(self, **context_options: Any) -> asyncio.Task[None]:
        """Answers what will hold the page, which is to be waited for at the end."""
        self._holding = asyncio.create_task(self._hold(context_options))
        self._holding.add_done_callback(lambda task: task.cancelled() or task.exception())  # who waits is told
        return self._holding

    async def ready(self, holding: asyncio.Task[None]) -> None:
        """Raises NoBrowser, BrowserDied and NoTurn."""
        try:
            await asyncio.wait([holding, self._ready], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
        except BaseException:
            holding.cancel()
            raise
        if not self._ready.done():
            holding.result()

    @contextmanager
    def in_use(self) -> Iterator[Held]:
        self._users += 1
        try:
            yield self._ready.result()
        finally:
            self._users -= 1
            self._last_use = self._clock.monotonic()

    async def end(self, *, failed: bool) -> None:
        """The page goes back. Of an attempt that failed it is kept first what it looked like."""
        self._failed = failed
        self._ended.set()
        if failed:
            await self._is_told.wait()

    async def died(self, death: BrowserDied) -> FetchFailed:
        """What the death counts as: the lender knows how often this task was there at one.

        Where the page was stopped for what it did, that is what counts, and its log is kept at the attempt's end.
        """
        course = self._ready.result().watch.course
        if course is not None and course.failure is not None:
            return course.failure
        self._death = death
        self._ended.set()
        if self._holding is None:
            return death
        await asyncio.wait([self._holding])
        failure = None if self._holding.cancelled() else self._holding.exception()
        return failure if isinstance(failure, FetchFailed) else death

    async def _hold(self, context_options: dict[str, Any]) -> None:
        try:
            with self._proxy.lease(self._browsing.options.max_page_bytes) as lease:
                proxy = {"server": lease.address, "username": lease.user, "password": lease.password}
                async with self._browsing.lender.lend(self._task_id, proxy=proxy, **context_options) as lent:
                    watch = PageWatch(lent, self._browsing.options, self.log, self._clock)
                    await self._begin(lent, watch)
                    self._ready.set_result(Held(lent, lease, watch))
                    await self._until_ended()
                    if self._death is not None:
                        raise self._death
                    if self._failed and self._task_id:
                        await self._tell(lent)
                    self._is_told.set()
        except FAILURES:
            if not self._ready.done() or self._death is not None:
                raise
        finally:
            self._ended.set()
            self._is_told.set()

    async def _begin(self, lent: LentPage, watch: PageWatch) -> None:
        try:
            await lent.alive(watch.begin())
        except playwright_error() as error:
            raise BrowserDied(f"the browser does not take what it is told: {error}"[:300]) from None
        if self._cookies:
            await self._take_cookies(lent)

    async def _take_cookies(self, lent: LentPage) -> None:
        try:
            await lent.alive(lent.context.add_cookies(self._cookies))
        except playwright_error() as error:
            why = f"the browser does not take its cookies: {error.message.partition(chr(10))[0]}"[:200]
            raise unusable(self._profile, why) if self._profile else BrowserDied(why) from None

    async def _until_ended(self) -> None:
        """Also where nobody says so: platform code may hang with a page that others could use."""
        limit = self._browsing.idle_seconds
        while not await self._clock.wait(self._ended, limit):
            if not self._users and self._clock.monotonic() - self._last_use >= limit:
                self._ended.set()
                self.log.add("taken back", f"nothing was done with the page for {limit:g} s")
                return

    async def _tell(self, lent: LentPage) -> None:
        """An aid: what cannot be had or stored of it is no failure."""
        screenshot = None
        try:
            async with asyncio.timeout(_ARTIFACT_SECONDS):
                cookies = await lent.alive(lent.context.cookies())
                self.secrets += [one.get("value", "") for one in cookies]
                session = await lent.alive(lent.context.new_cdp_session(lent.page))
                await lent.alive(session.send("Page.stopLoading"))  # a picture would wait for what is still to come
                screenshot = await lent.alive(lent.page.screenshot(type="png", timeout=0))
        except (TimeoutError, BrowserDied, playwright_error()) as error:
            self.log.add("no screenshot", str(error) or "the page does not answer")
        if screenshot is not None and len(screenshot) > _MOST_SCREENSHOT_BYTES:
            self.log.add("no screenshot", f"it has {len(screenshot):,} bytes")
            screenshot = None
        with suppress(StoreError, OSError, TimeoutError):
            async with asyncio.timeout(_ARTIFACT_SECONDS):
                await self._browsing.artifacts.put(self._task_id, screenshot, self.log.text(self.secrets))
