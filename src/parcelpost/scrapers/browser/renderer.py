"""Renders pages for attempts at tasks: leases a browser page, loads it within limits, and returns it at the end."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, assert_never

import httpx2
import msgspec
from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.model import Page, Task
from parcelpost.scrapers.browser.browser import LeasedPage, first_line, playwright_error
from parcelpost.scrapers.browser.page_watch import Navigation, PageLog, PageWatch
from parcelpost.scrapers.browser.pool import BrowserPool
from parcelpost.scrapers.browser.profiles import CookieJars, load_profile, unusable_profile
from parcelpost.scrapers.browser.proxy import GuardProxy, ProxyLease
from parcelpost.scrapers.fetch.errors import (
    FAILURES,
    BrowserCrashed,
    CannotFetch,
    RetryLater,
    SiteBlocked,
    find_challenge,
)
from parcelpost.scrapers.fetch.exchange import FetchGuard, FetchOptions, Response
from parcelpost.scrapers.platform import Choose, Click, Fill, Step, WaitFor
from parcelpost.settings.schema import BrowserSettings

if TYPE_CHECKING:
    from playwright.async_api import Frame
    from playwright.async_api import Page as BrowserPage


HTML = "text/html; charset=utf-8"
_POLL_SECONDS = 0.05
_SETTLE_SECONDS = 0.5
_READ_SECONDS = 5.0
_STEP_SECONDS = 15.0
ARTIFACT_SECONDS = 5.0
_MAX_FRAMES = 20
_LENGTH = "document.documentElement ? document.documentElement.outerHTML.length : 0"
_TEXT_LENGTH = "document.body ? document.body.innerText.length : 0"
_SUPERSEDED = ("interrupted by another navigation", "ERR_ABORTED", "frame was detached")


class ArtifactSink(Protocol):
    async def put(self, task_id: str, screenshot: bytes | None, log: str, page: bytes = b"") -> object: ...


class RenderContext(Struct, frozen=True, kw_only=True):
    """Everything that rendering a page needs."""

    pool: BrowserPool
    settings: BrowserSettings = BrowserSettings()
    profiles: Path | None = None
    """The folder of saved profiles; None: there is none."""
    artifacts: ArtifactSink | None = None
    """Destination of pages, screenshots and logs of failed attempts; None: not stored."""
    lease_seconds: float = 5.0
    """How long an attempt waits for a page before its task is deferred."""
    quiet_seconds: float = 5.0
    """A page that loads nothing for this long is complete."""


class RenderRequest(Struct, frozen=True, kw_only=True):
    """A page to render, and how to tell that it is complete."""

    url: httpx2.URL
    until: str = ""
    """CSS selector that matches in a complete page, or in a frame of the same site."""
    steps: tuple[Step, ...] = ()
    profile: str = ""
    keep_cookies: bool = False

    @property
    def key(self) -> str:
        """Cache key of the rendered page, which differs from that of the page as sent."""
        rest = msgspec.json.encode((self.until, self.steps, self.profile))
        return f"{self.url}#rendered-{hashlib.sha256(rest).hexdigest()[:16]}"


class RenderedPage(Struct, frozen=True, kw_only=True):
    response: Response
    documents: Sequence[httpx2.URL]
    """All documents of the page's main frame; the last one was read."""
    remark: str = ""
    """Why the page may be incomplete."""


class PageLease:
    """An attempt's page, from its lease to its return."""

    def __init__(
        self, task_id: str, leased: LeasedPage, proxy: ProxyLease, log: PageLog, context: RenderContext, clock: Clock
    ) -> None:
        self._task_id = task_id
        self._artifacts = context.artifacts
        self._ending: asyncio.Future[None] | None = None
        self.leased = leased
        self.proxy = proxy
        self.log = log
        self.watch = PageWatch(leased, context.settings.block, log, clock)
        self.resources = AsyncExitStack()
        """Returns the page to the pool."""

    async def prepare(self, cookies: Sequence[Any], profile: str) -> None:
        """Raises BrowserCrashed, or BrowserUnavailable if the browser rejects the profile's cookies."""
        try:
            await self.leased.call(self.watch.begin())
        except playwright_error() as error:
            raise BrowserCrashed(f"the page cannot be prepared: {error}"[:300]) from None
        try:
            await self.leased.call(self.leased.context.add_cookies(cookies))
        except playwright_error() as error:
            reason = f"the browser rejected its cookies: {first_line(error)}"[:200]
            raise unusable_profile(profile, reason) if profile else BrowserCrashed(reason) from None

    async def end(self, *, failed: bool, last_page: bytes = b"") -> None:
        """Returns the page to the pool. If the attempt failed, its artifacts are stored first."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end(failed, last_page))
        await asyncio.shield(self._ending)

    async def _end(self, failed: bool, last_page: bytes) -> None:
        async with self.resources:
            if failed and self._task_id and self._artifacts is not None:
                await self._store_artifacts(self._artifacts, last_page)

    async def _store_artifacts(self, artifacts: ArtifactSink, last_page: bytes) -> None:
        """Best effort: missing artifacts are not a failure."""
        leased, screenshot = self.leased, None
        try:
            async with asyncio.timeout(ARTIFACT_SECONDS):
                cookies = await leased.call(leased.context.cookies())
                self.log.secrets += [cookie.get("value", "") for cookie in cookies]
                session = await leased.call(leased.context.new_cdp_session(leased.page))
                await leased.call(session.send("Page.stopLoading"))  # or the screenshot would wait for what still loads
                screenshot = await leased.call(leased.page.screenshot(type="png", timeout=0))
        except (TimeoutError, BrowserCrashed, playwright_error()) as error:
            self.log.add("no screenshot", str(error) or "the page does not respond")
        with suppress(StoreError, OSError, TimeoutError):
            async with asyncio.timeout(ARTIFACT_SECONDS):
                await artifacts.put(self._task_id, screenshot, self.log.text(), last_page)


class PageLoad:
    """One page from its first request until its HTML is read."""

    def __init__(
        self, lease: PageLease, request: RenderRequest, navigation: Navigation, context: RenderContext, clock: Clock
    ) -> None:
        self._lease = lease
        self._leased = lease.leased
        self._proxy = lease.proxy
        self._request = request
        self._navigation = navigation
        self._seconds = context.settings.page_seconds
        self._quiet_seconds = context.quiet_seconds if request.until else _SETTLE_SECONDS
        self._clock = clock
        self._error = playwright_error()
        self._frame: Frame = lease.leased.page.main_frame
        """The frame to read."""
        self._remark = ""

    async def run(self, max_bytes: int) -> RenderedPage:
        """Raises a FetchFailed. A page whose `until` does not appear is returned as it is."""
        self._lease.watch.follow(self._navigation)
        try:
            await self._load()
        finally:
            self._navigation.is_over = True
        body = await self._read(max_bytes)
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
        """Returns whether all steps succeeded."""
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
        """Waits until `until` appears or the page stops loading."""
        while not self._navigation.is_over and not self._proxy.is_exhausted:
            if self._request.until and await self._has_appeared():
                return
            if self._lease.watch.is_quiet(self._quiet_seconds):
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
        """Reads the frame with the most text, which may contain the site's message."""
        most = -1
        for frame in self._frames:
            with suppress(self._error):
                length: int = await self._leased.call(frame.evaluate(_TEXT_LENGTH))
                if length > most:
                    self._frame, most = frame, length

    @property
    def _frames(self) -> list[Frame]:
        """The main frame, then frames of the same site."""
        page = self._leased.page
        own = [frame for frame in page.frames if self._navigation.is_same_site(frame.url)]
        return [page.main_frame, *(frame for frame in own[:_MAX_FRAMES] if frame is not page.main_frame)]

    async def _read(self, max_bytes: int) -> bytes:
        host = self._navigation.last.host
        try:
            async with asyncio.timeout(_READ_SECONDS):
                length: int = await self._leased.call(self._frame.evaluate(_LENGTH))
                text = await self._leased.call(self._frame.content()) if length <= max_bytes else ""
        except TimeoutError:
            self._leased.stop("a page's scripts do not finish")  # closing the page would leave them running
            raise RetryLater(f"{host}: the page does not respond: its scripts do not finish") from None
        except self._error as error:
            raise RetryLater(f"{host}: the page cannot be read: {error.message}"[:300]) from None
        body = text.encode("utf-8", "replace")
        if max(length, len(body)) > max_bytes:
            raise CannotFetch(f"{host}: the page is longer than {max_bytes:,} bytes")
        return body

    def _check(self) -> None:
        """Raises the failure that ended the navigation early."""
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
        """Raises the reason that a document did not arrive, unless another one replaced it."""
        host = self._navigation.last.host
        if self._navigation.is_over or self._proxy.is_exhausted:
            return
        if refusal := self._proxy.refusal_of(self._navigation.last):
            raise refusal
        if "Download is starting" in message:
            raise CannotFetch(f"{host} sent a file to download, not a page")
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
        self, context: RenderContext, proxy: GuardProxy, guard: FetchGuard, options: FetchOptions, clock: Clock
    ) -> None:
        self._context = context
        self._proxy = proxy
        self._guard = guard
        self._options = options
        self._clock = clock
        self._leases: set[PageLease] = set()
        self.cookies = CookieJars()
        self.opens_in = context.pool.opens_in

    @classmethod
    @asynccontextmanager
    async def open(
        cls, context: RenderContext, proxy: GuardProxy, guard: FetchGuard, options: FetchOptions, clock: Clock
    ) -> AsyncIterator[Renderer]:
        """Returns all pages to the pool on exit."""
        renderer = cls(context, proxy, guard, options, clock)
        try:
            yield renderer
        finally:
            await asyncio.gather(*(lease.end(failed=False) for lease in renderer._leases))

    async def lease(self, task: Task | None, profile: str) -> PageLease:
        """Leases a page for an attempt. Raises BrowserUnavailable, BrowserCrashed and HostBusy."""
        context, task_id, log = self._context, task.task_id if task is not None else "", PageLog()
        state = await asyncio.to_thread(load_profile, context.profiles, profile) if profile else {}
        if task is not None:
            state = self.cookies.added_to(state, task.site)
        cookies = state.get("cookies", ())
        log.secrets += [str(cookie.get("value", "")) for cookie in cookies]
        async with AsyncExitStack() as stack:
            proxy = stack.enter_context(self._proxy.lease(context.settings.max_page_bytes))
            leasing = context.pool.lease(
                task_id,
                timeout=context.lease_seconds,
                agent=self._options.user_agent,
                proxy=proxy.login,
                storage_state={"origins": state.get("origins", ())},
                accept_downloads=False,
                service_workers="block",
            )
            leased = await stack.enter_async_context(leasing)
            lease = PageLease(task_id, leased, proxy, log, context, self._clock)
            await lease.prepare(cookies, profile)
            self._leases.add(lease)
            stack.callback(self._leases.discard, lease)
            lease.resources = stack.pop_all()
        return lease

    async def render(
        self, lease: PageLease, request: RenderRequest, is_allowed: Callable[[httpx2.URL], bool]
    ) -> RenderedPage:
        """Raises a FetchFailed."""
        lease.log.secrets += [step.text for step in request.steps if isinstance(step, Fill)]
        navigation = Navigation(request.url, self._guard, is_allowed, self._context.settings.max_navigations)
        load = PageLoad(lease, request, navigation, self._context, self._clock)
        try:
            rendered = await load.run(self._options.max_page_bytes)
        except BrowserCrashed as crash:
            raise navigation.failure or crash from None  # the page was stopped for what it did
        except FAILURES as failure:
            lease.log.add("ended", str(failure))
            raise
        if rendered.remark:
            lease.log.add("incomplete", rendered.remark)
        return rendered

    async def keep_cookies(self, lease: PageLease, task: Task) -> None:
        """Keeps the page's cookies for the next task of its site."""
        self.cookies.keep(task.site, await lease.leased.call(lease.leased.context.cookies()))
