"""A lent page under our eyes: what it asks for, and what it is kept from."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from parcelpost.clock import Clock
from parcelpost.scrapers.browsers.blocking import host_of, is_blocked
from parcelpost.scrapers.browsers.course import Course
from parcelpost.scrapers.browsers.document_gate import NO_SCRIPTS, DocumentGate
from parcelpost.scrapers.browsers.flood import Flood
from parcelpost.scrapers.browsers.lending import LentPage, playwright_error
from parcelpost.scrapers.browsers.options import BrowserOptions
from parcelpost.scrapers.browsers.page_log import PageLog
from parcelpost.scrapers.fetch_errors import CannotFetch, TryLater

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

_MOST_REQUESTS = 1_000
_MOST_WINDOWS = 20
_CHARS_OF_A_LINE = 10_000
_NEVER_ENDING = ("eventsource", "websocket", "ping")


class PageWatch:
    """Between two renderings, and after the last, the page is given nothing."""

    def __init__(self, lent: LentPage, options: BrowserOptions, log: PageLog, clock: Clock) -> None:
        self._lent = lent
        self._options = options
        self._log = log
        self._clock = clock
        self._error = playwright_error()
        self._in_flight: set[Request] = set()
        self._last_news = clock.monotonic()
        self._requests = self._windows = 0
        self._flood = Flood(self._drown)
        self._gate = DocumentGate(lent, log)
        self.course: Course | None = None

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

    def follow(self, course: Course) -> None:
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
            self.course.fail(TryLater(f"{self.course.last.host}: {reason}"))
        self._lent.context.remove_listener("console", self._said)  # the driver keeps what it has of it to itself
        self._lent.stop(reason)

    def _stop(self, what: str) -> None:
        if self.course is not None:
            self.course.fail(CannotFetch(f"{self.course.last.host}: the page {what}"))

    def _news(self) -> None:
        self._last_news = self._clock.monotonic()
