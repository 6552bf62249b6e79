"""Renders pages in leased browser pages, within limits of time, size and navigations."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, assert_never

import httpx2
import msgspec
from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.model import Page, Task
from parcelpost.scrapers.browser.base import Choose, Click, Fill, RenderContext, Step, WaitFor, playwright_error
from parcelpost.scrapers.browser.page import Navigation, OpenPage, PageLease
from parcelpost.scrapers.browser.profiles import CookieJars, load_profile
from parcelpost.scrapers.browser.proxy import GuardProxy
from parcelpost.scrapers.fetch.errors import (
    FAILURES,
    BrowserCrashed,
    CannotFetch,
    RetryLater,
    SiteBlocked,
    find_challenge,
)
from parcelpost.scrapers.fetch.exchange import FetchOptions, Response
from parcelpost.scrapers.fetch.guard import Guard

if TYPE_CHECKING:
    from playwright.async_api import Frame
    from playwright.async_api import Page as BrowserPage


HTML = "text/html; charset=utf-8"
_POLL_SECONDS = 0.05
_SETTLE_SECONDS = 0.5
_READ_SECONDS = 10.0
_MIN_READ_SECONDS = 1.0
_STEP_SECONDS = 15.0
_RETRY_SECONDS = 0.5
_MAX_FRAMES = 20
_LENGTH = "document.documentElement ? document.documentElement.outerHTML.length : 0"
_TEXT_LENGTH = "document.body ? document.body.innerText.length : 0"
_SUPERSEDED = ("interrupted by another navigation", "ERR_ABORTED", "frame was detached")


class RenderRequest(Struct, frozen=True, kw_only=True):
    """A page, and when it is complete."""

    url: httpx2.URL
    until: str = ""
    """CSS selector of what a complete page holds, itself or in a frame of the same site."""
    steps: tuple[Step, ...] = ()
    profile: str = ""
    keep_cookies: bool = False

    @property
    def key(self) -> str:
        """Its key in the cache, which is not that of the page as the site sends it."""
        rest = msgspec.json.encode((self.until, self.steps, self.profile))
        return f"{self.url}#rendered-{hashlib.sha256(rest).hexdigest()[:16]}"


class RenderedPage(Struct, frozen=True, kw_only=True):
    response: Response
    documents: Sequence[httpx2.URL]
    """All documents of the page's main frame; the last one was read."""
    remark: str = ""
    """Why it may be incomplete."""


class PageLoad:
    """One page from its first request until its HTML is read."""

    def __init__(
        self,
        opened: OpenPage,
        request: RenderRequest,
        navigation: Navigation,
        context: RenderContext,
        max_page_bytes: int,
        clock: Clock,
    ) -> None:
        self._leased = opened.leased
        self._proxy = opened.proxy
        self._watch = opened.watch
        self._request = request
        self._navigation = navigation
        self._seconds = context.options.page_seconds
        self._quiet_seconds = context.quiet_seconds if request.until else _SETTLE_SECONDS
        self._max_page_bytes = max_page_bytes
        self._clock = clock
        self._began = clock.monotonic()
        self._error = playwright_error()
        self._frame: Frame = opened.leased.page.main_frame
        """What is read."""
        self._remark = ""

    async def run(self) -> RenderedPage:
        """Raises a FetchFailed. A page whose `until` does not appear is returned as it is."""
        self._watch.follow(self._navigation)
        try:
            await self._load()
        finally:
            self._navigation.is_over = True
        body = await self._read()
        if challenge := find_challenge(Page(body=body), is_built=True):
            raise SiteBlocked(challenge.reason)
        response = Response(
            url=self._navigation.last,
            status=self._navigation.status,
            headers=httpx2.Headers({**self._navigation.headers, "content-type": HTML}),
            body=body,
        )
        return RenderedPage(response=response, documents=self._navigation.documents, remark=self._remark)

    async def _load(self) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._open_document()
                if await self._take_steps():
                    await self._settle()
        except TimeoutError:
            if not self._navigation.status:
                raise RetryLater(f"{self._request.url.host}: no page within {self._seconds:g} s") from None
            self._remark = self._remark or f"it was not complete after {self._seconds:g} s"
        self._check()

    async def _open_document(self) -> None:
        going = self._leased.page.goto(str(self._request.url), wait_until="domcontentloaded", timeout=0)
        try:
            await self._leased.call(going)
        except self._error as error:
            self._raise_for(error.message)

    async def _take_steps(self) -> bool:
        """Returns whether all of them worked."""
        for step in self._request.steps:
            if self._navigation.is_over:
                return True
            try:
                await self._leased.call(_perform(step, self._leased.page))
            except self._error as error:
                reason = error.message.partition("\n")[0]
                self._remark = f"{type(step).__name__} {step.selector}: {reason}"[:300]
                return False
        return True

    async def _settle(self) -> None:
        """Until what is waited for is there, or nothing more is loaded."""
        while not self._navigation.is_over and not self._proxy.is_exhausted:
            if self._request.until and await self._has_appeared():
                return
            if self._watch.is_quiet(self._quiet_seconds):
                if self._request.until:
                    self._remark = f"{self._request.until!r} did not appear"[:300]
                    await self._take_fullest_frame()
                return
            await self._clock.sleep(_POLL_SECONDS)

    async def _has_appeared(self) -> bool:
        for frame in self._frames:
            try:
                if await self._leased.call(frame.locator(f"css={self._request.until}").count()):
                    self._frame = frame
                    return True
            except self._error as error:
                if "selector" in error.message.lower():
                    raise CannotFetch(f"{self._request.until!r:.200} is not a CSS selector") from None
        return False

    async def _take_fullest_frame(self) -> None:
        """What the site says instead may be in a frame as well."""
        most = -1
        for frame in self._frames:
            with suppress(self._error):
                length: int = await self._leased.call(frame.evaluate(_TEXT_LENGTH))
                if length > most:
                    self._frame, most = frame, length

    @property
    def _frames(self) -> list[Frame]:
        """The main one, then those of the same site."""
        page = self._leased.page
        others = [frame for frame in page.frames if frame is not page.main_frame and self._is_same_site(frame)]
        return [page.main_frame, *others[:_MAX_FRAMES]]

    def _is_same_site(self, frame: Frame) -> bool:
        try:
            return httpx2.URL(frame.url).netloc == self._navigation.last.netloc
        except httpx2.InvalidURL:
            return False

    async def _read(self) -> bytes:
        host = self._navigation.last.host
        left = self._began + self._seconds - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(_MIN_READ_SECONDS, min(_READ_SECONDS, left))):
                length: int = await self._leased.call(self._frame.evaluate(_LENGTH))
                text = await self._leased.call(self._frame.content()) if length <= self._max_page_bytes else ""
        except TimeoutError:
            self._leased.stop("a page's scripts do not end")  # closing the page would leave them running
            raise RetryLater(f"{host}: the page does not respond: its scripts do not end") from None
        except self._error as error:
            raise RetryLater(f"{host}: the page cannot be read: {error.message}"[:300]) from None
        body = text.encode("utf-8", "replace")
        if max(length, len(body)) > self._max_page_bytes:
            raise CannotFetch(f"{host}: the page is longer than {self._max_page_bytes:,} bytes")
        return body

    def _check(self) -> None:
        """Raises what ended it early."""
        host = self._navigation.last.host
        if self._navigation.failure is not None:
            raise self._navigation.failure
        if self._proxy.is_exhausted:
            raise CannotFetch(f"{host}: the page loads more than {self._proxy.max_bytes:,} bytes")
        if self._navigation.net_error and self._navigation.status < 400:
            self._raise_for(self._navigation.net_error)
        if not self._navigation.status:
            raise RetryLater(f"{host} sent no page")

    def _raise_for(self, message: str) -> None:
        """Raises why a document did not arrive, unless another one has taken its place."""
        host = self._navigation.last.host
        if self._navigation.is_over or self._proxy.is_exhausted:
            return
        if refusal := self._proxy.refusal_of(self._navigation.last):
            raise refusal
        if "Download is starting" in message:
            raise CannotFetch(f"{host} sends a file to download, not a page")
        if not any(sign in message for sign in _SUPERSEDED):
            raise RetryLater(f"{host}: {message.removeprefix('Page.goto: ').partition(' at http')[0]}"[:300])


def _perform(step: Step, page: BrowserPage) -> Awaitable[object]:
    element, milliseconds = page.locator(f"css={step.selector}").first, _STEP_SECONDS * 1_000
    match step:
        case Fill():
            return element.fill(step.text, timeout=milliseconds)
        case Click():
            return element.click(timeout=milliseconds)
        case Choose():
            return element.select_option(step.value, timeout=milliseconds)
        case WaitFor():
            return element.wait_for(state="attached", timeout=milliseconds)
        case _:
            assert_never(step)


class Renderer:
    """Belongs to the worker's event loop."""

    def __init__(
        self, context: RenderContext, proxy: GuardProxy, guard: Guard, options: FetchOptions, clock: Clock
    ) -> None:
        self._context = context
        self._proxy = proxy
        self._guard = guard
        self._options = options
        self._clock = clock
        self._holders: set[asyncio.Task[None]] = set()
        self._cookies = CookieJars()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, context: RenderContext, proxy: GuardProxy, guard: Guard, options: FetchOptions, clock: Clock
    ) -> AsyncIterator[Renderer]:
        """At its end all pages are returned."""
        renderer = cls(context, proxy, guard, options, clock)
        try:
            yield renderer
        finally:
            for task in renderer._holders:
                task.cancel()
            if renderer._holders:
                await asyncio.wait(renderer._holders)

    def opens_in(self, before: int) -> float:
        """0: one more task that needs a page may start, after `before` others. Else seconds until asking again."""
        pool = self._context.pool
        if seconds := pool.opens_in():
            return seconds
        is_full = pool.figures.busy + pool.figures.waiting + before >= self._context.options.most
        return _RETRY_SECONDS if is_full else 0.0

    async def lease(self, task: Task | None, profile: str) -> PageLease:
        """A page for an attempt. Raises BrowserUnavailable, BrowserCrashed and HostBusy."""
        state = await asyncio.to_thread(load_profile, self._context.profiles, profile) if profile else {}
        if task is not None:
            state = self._cookies.added_to(state, task.site)
        task_id = task.task_id if task is not None else ""
        lease = PageLease(task_id, self._context, self._proxy, self._clock, profile, state.get("cookies", ()))
        await lease.open(
            self._holders,
            agent=self._options.user_agent,
            storage_state={"origins": state.get("origins", ())},
            accept_downloads=False,
            service_workers="block",
        )
        return lease

    async def render(
        self, lease: PageLease, request: RenderRequest, is_allowed: Callable[[httpx2.URL], bool]
    ) -> RenderedPage:
        """Raises a FetchFailed."""
        lease.log.secrets += [step.text for step in request.steps if isinstance(step, Fill)]
        navigation = Navigation(request.url, self._guard, is_allowed, self._context.options.max_navigations)
        with lease.in_use() as opened:
            load = PageLoad(opened, request, navigation, self._context, self._options.max_page_bytes, self._clock)
            try:
                rendered = await load.run()
            except BrowserCrashed as crash:
                raise navigation.failure or crash from None  # the page was stopped for what it did
            except FAILURES as failure:
                lease.log.add("ended", str(failure))
                raise
        if rendered.remark:
            lease.log.add("incomplete", rendered.remark)
        return rendered

    async def keep_cookies(self, lease: PageLease, task: Task) -> None:
        """For the next task of its site."""
        with lease.in_use() as opened:
            self._cookies.keep(task.site, await opened.leased.call(opened.leased.context.cookies()))

    def forget_cookies(self, task: Task | None) -> None:
        """The site has turned us away with them."""
        if task is not None:
            self._cookies.forget(task.site)
