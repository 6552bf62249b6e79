"""A leased page during an attempt: watched, kept within message limits, and returned when the attempt ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.scrapers.browser.base import BrowserOptions, LeasedPage, RenderContext, playwright_error
from parcelpost.scrapers.browser.navigation import NO_SCRIPTS, DocumentGate, Navigation, PageLog, host_of, is_blocked
from parcelpost.scrapers.browser.profiles import unusable_profile
from parcelpost.scrapers.browser.proxy import GuardProxy, ProxyLease
from parcelpost.scrapers.fetch.errors import FAILURES, BrowserCrashed, CannotFetch, FetchFailed, RetryLater

if TYPE_CHECKING:
    from playwright.async_api import (
        ConsoleMessage,
        Dialog,
        Download,
        Page,
        Request,
        Response,
        Route,
        WebError,
        WebSocket,
    )


MessageKind = Literal["words", "errors", "dialogs", "windows", "frames", "workers", "requests", "messages"]

_MOST: dict[MessageKind, int] = {
    "words": 1_000,
    "errors": 1_000,
    "dialogs": 1_000,
    "windows": 100,
    "frames": 1_000,
    "workers": 200,
    "requests": 2_000,
    "messages": 10_000,
}
_IN_WORDS: dict[MessageKind, str] = {
    "words": "lines on its console",
    "errors": "script errors",
    "workers": "workers and connections",
    "messages": "messages of its connections",
}


class MessageLimit:
    """Calls `drown` once, with what it is too much of."""

    def __init__(self, drown: Callable[[str], None]) -> None:
        self._drown = drown
        self._told: Counter[MessageKind] = Counter()
        self._is_over = False

    def rises(self, kind: MessageKind, by: int = 1) -> bool:
        """Whether it is too much by now, of whatever kind."""
        self._told[kind] += max(1, by)
        if not self._is_over and self._told[kind] > _MOST[kind]:
            self._is_over = True
            self._drown(f"more than {_MOST[kind]:,} {_IN_WORDS.get(kind, kind)}")
        return self._is_over

    def listener(self, kind: MessageKind) -> Callable[[object], None]:
        def told(_: object) -> None:
            self.rises(kind)

        return told


_MOST_REQUESTS = 1_000
_MOST_WINDOWS = 20
_CHARS_OF_A_LINE = 10_000
_NEVER_ENDING = ("eventsource", "websocket", "ping")


class PageWatch:
    """Between two renderings, and after the last, the page is given nothing."""

    def __init__(self, lent: LeasedPage, options: BrowserOptions, log: PageLog, clock: Clock) -> None:
        self._lent = lent
        self._options = options
        self._log = log
        self._clock = clock
        self._error = playwright_error()
        self._in_flight: set[Request] = set()
        self._last_news = clock.monotonic()
        self._requests = self._windows = 0
        self._flood = MessageLimit(self._drown)
        self._gate = DocumentGate(lent, log)
        self.course: Navigation | None = None

    async def begin(self) -> None:
        context = self._lent.context
        context.on("request", self._asks)
        context.on("response", self._came)
        context.on("requestfinished", self._is_done)
        context.on("requestfailed", self._failed)
        context.on("console", self._said)
        context.on("weberror", self._broke)
        context.on("dialog", self._dismiss)
        context.on("page", self._close)
        page = self._lent.page
        page.on("download", self._refuse)
        page.on("frameattached", self._flood.listener("frames"))
        page.on("framenavigated", self._flood.listener("frames"))
        page.on("worker", self._flood.listener("workers"))
        page.on("websocket", self._connects)
        await context.route("**/*", self._route)
        await self._gate.begin()

    def follow(self, course: Navigation) -> None:
        self.course = self._gate.course = course
        self._in_flight.clear()
        self._last_news = self._clock.monotonic()

    def is_quiet(self, seconds: float) -> bool:
        """Nothing is being loaded, and nothing was for so long."""
        return not self._in_flight and self._clock.monotonic() - self._last_news >= seconds

    def _asks(self, request: Request) -> None:
        self._news()
        self._flood.rises("requests")
        self._requests += 1
        if self._requests > _MOST_REQUESTS:
            self._stop(f"asks for more than {_MOST_REQUESTS:,} things")
        if request.resource_type not in _NEVER_ENDING:
            self._in_flight.add(request)
        if self.course is not None and self._is_document(request):
            self._log.add("goes to", request.url)
            if request.redirected_from is None:  # the gate has seen those
                self.course.leads_to(request.url)

    def _came(self, response: Response) -> None:
        if response.status >= 400 and not self._is_document(response.request):
            self._log.add("answer", f"{response.status} {response.url}")

    def _is_done(self, request: Request) -> None:
        self._news()
        self._in_flight.discard(request)

    def _failed(self, request: Request) -> None:
        self._is_done(request)
        why = request.failure or "failed"
        if "ERR_BLOCKED_BY_CLIENT" not in why:
            self._log.add("not loaded", f"{request.url}: {why}")
        if self.course is not None and self._is_document(request):
            self.course.net_error = why

    def _said(self, message: ConsoleMessage) -> None:
        if self._flood.rises("words", max(len(message.args), len(message.text) // _CHARS_OF_A_LINE)):
            return
        if NO_SCRIPTS not in message.text or self.course is None or not self.course.is_over:  # else it is our own doing
            self._log.add(f"console {message.type}", message.text)

    def _broke(self, error: WebError) -> None:
        if not self._flood.rises("errors"):
            self._log.add("script error", str(error.error))

    def _connects(self, socket: WebSocket) -> None:
        self._flood.rises("workers")
        socket.on("framereceived", self._flood.listener("messages"))
        socket.on("framesent", self._flood.listener("messages"))

    async def _dismiss(self, dialog: Dialog) -> None:
        self._flood.rises("dialogs")
        self._log.add(f"dialog {dialog.type}, dismissed", dialog.message)
        with contextlib.suppress(self._error):
            await dialog.dismiss()

    async def _close(self, page: Page) -> None:
        if page is self._lent.page:
            return
        self._flood.rises("windows")
        self._windows += 1
        if self._windows > _MOST_WINDOWS:
            self._stop(f"opens more than {_MOST_WINDOWS} windows")
        self._log.add("window, closed", page.url)
        with contextlib.suppress(self._error):
            await page.close()

    async def _refuse(self, download: Download) -> None:
        self._log.add("download, refused", download.url)
        with contextlib.suppress(self._error):
            await download.cancel()

    async def _route(self, route: Route, request: Request) -> None:
        with contextlib.suppress(self._error):
            if self._is_unwanted(request):
                await route.abort("blockedbyclient")
            else:
                await route.continue_()

    def _is_unwanted(self, request: Request) -> bool:
        if self.course is None or self.course.is_over or self._is_elsewhere(request):
            return True
        if self._is_document(request):
            return False
        return is_blocked(request.url, request.resource_type, host_of(str(self.course.last)), self._options.block)

    def _is_document(self, request: Request) -> bool:
        try:
            return request.is_navigation_request() and request.frame == self._lent.page.main_frame
        except self._error:  # of a window that is not there yet
            return False

    def _is_elsewhere(self, request: Request) -> bool:
        try:
            return request.frame.page is not self._lent.page
        except self._error:
            return request.is_navigation_request()

    def _drown(self, what: str) -> None:
        """Ends the browser, and not only the page, which would be closed behind all that it has still to say."""
        reason = f"the page floods us with {what}"
        self._log.add("stopped", reason)
        if self.course is not None:
            self.course.fail(RetryLater(f"{self.course.last.host}: {reason}"))
        self._lent.context.remove_listener("console", self._said)  # the driver keeps what it has of it to itself
        self._lent.stop(reason)

    def _stop(self, what: str) -> None:
        if self.course is not None:
            self.course.fail(CannotFetch(f"{self.course.last.host}: the page {what}"))

    def _news(self) -> None:
        self._last_news = self._clock.monotonic()


_ARTIFACT_SECONDS = 5.0
_MOST_SCREENSHOT_BYTES = 4 * 1024**2


class HeldPage(Struct, frozen=True):
    lent: LeasedPage
    lease: ProxyLease
    watch: PageWatch


class PageLease:
    """Belongs to the worker's loop. A task of its own holds the page: who asked for it may be cancelled, or hang."""

    def __init__(
        self,
        task_id: str,
        browsing: RenderContext,
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
        self._ready: asyncio.Future[HeldPage] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._is_told = asyncio.Event()
        """What the page looked like is stored, or nobody wants to know."""
        self._failed = True
        self._death: BrowserCrashed | None = None
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
    def in_use(self) -> Iterator[HeldPage]:
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

    async def died(self, death: BrowserCrashed) -> FetchFailed:
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
                    self._ready.set_result(HeldPage(lent, lease, watch))
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

    async def _begin(self, lent: LeasedPage, watch: PageWatch) -> None:
        try:
            await lent.alive(watch.begin())
        except playwright_error() as error:
            raise BrowserCrashed(f"the browser does not take what it is told: {error}"[:300]) from None
        if self._cookies:
            await self._take_cookies(lent)

    async def _take_cookies(self, lent: LeasedPage) -> None:
        try:
            await lent.alive(lent.context.add_cookies(self._cookies))
        except playwright_error() as error:
            why = f"the browser does not take its cookies: {error.message.partition(chr(10))[0]}"[:200]
            raise unusable_profile(self._profile, why) if self._profile else BrowserCrashed(why) from None

    async def _until_ended(self) -> None:
        """Also where nobody says so: platform code may hang with a page that others could use."""
        limit = self._browsing.idle_seconds
        while not await self._clock.wait(self._ended, limit):
            if not self._users and self._clock.monotonic() - self._last_use >= limit:
                self._ended.set()
                self.log.add("taken back", f"nothing was done with the page for {limit:g} s")
                return

    async def _tell(self, lent: LeasedPage) -> None:
        """An aid: what cannot be had or stored of it is no failure."""
        screenshot = None
        try:
            async with asyncio.timeout(_ARTIFACT_SECONDS):
                cookies = await lent.alive(lent.context.cookies())
                self.secrets += [one.get("value", "") for one in cookies]
                session = await lent.alive(lent.context.new_cdp_session(lent.page))
                await lent.alive(session.send("Page.stopLoading"))  # a picture would wait for what is still to come
                screenshot = await lent.alive(lent.page.screenshot(type="png", timeout=0))
        except (TimeoutError, BrowserCrashed, playwright_error()) as error:
            self.log.add("no screenshot", str(error) or "the page does not answer")
        if screenshot is not None and len(screenshot) > _MOST_SCREENSHOT_BYTES:
            self.log.add("no screenshot", f"it has {len(screenshot):,} bytes")
            screenshot = None
        with suppress(StoreError, OSError, TimeoutError):
            async with asyncio.timeout(_ARTIFACT_SECONDS):
                await self._browsing.artifacts.put(self._task_id, screenshot, self.log.text(self.secrets))
