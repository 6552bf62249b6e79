"""Renders pages in leased browser pages, within limits of time, size and navigations."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import httpx2
import msgspec
from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.model import Page, Task
from parcelpost.scrapers.browser import profiles
from parcelpost.scrapers.browser.base import Fill, RenderContext, Step, perform_step, playwright_error
from parcelpost.scrapers.browser.navigation import Allows, Navigation
from parcelpost.scrapers.browser.page import HeldPage, PageLease
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


HTML = "text/html; charset=utf-8"
_LOOK_SECONDS = 0.05
_SETTLED_SECONDS = 0.5
_READ_SECONDS = 10.0
_LEAST_READ_SECONDS = 1.0
_STEP_SECONDS = 15.0
_MOST_FRAMES = 20
_LENGTH = "document.documentElement ? document.documentElement.outerHTML.length : 0"
_TEXT_LENGTH = "document.body ? document.body.innerText.length : 0"
_SUPERSEDED = ("interrupted by another navigation", "ERR_ABORTED", "frame was detached")


class RenderRequest(Struct, frozen=True, kw_only=True):
    """A page, and when it is complete."""

    url: httpx2.URL
    until: str = ""
    """CSS of what a complete page holds, in itself or in a frame of the same site."""
    steps: tuple[Step, ...] = ()
    profile: str = ""
    keep_cookies: bool = False

    @property
    def key(self) -> str:
        """Under which it is kept: not that of the same page as the site sends it."""
        rest = msgspec.json.encode((self.until, self.steps, self.profile))
        return f"{self.url}#rendered-{hashlib.sha256(rest).hexdigest()[:16]}"


class RenderedPage(Struct, frozen=True, kw_only=True):
    answer: Response
    documents: Sequence[httpx2.URL]
    """All that stood in the page's main frame, the last of them the one that was read."""
    remark: str = ""
    """Why it may be incomplete."""


class PageLoad:
    def __init__(
        self,
        held: HeldPage,
        wanted: RenderRequest,
        course: Navigation,
        browsing: RenderContext,
        max_page_bytes: int,
        clock: Clock,
    ) -> None:
        self._held = held
        self._wanted = wanted
        self._course = course
        self._seconds = browsing.options.page_seconds
        self._quiet_seconds = browsing.quiet_seconds if wanted.until else _SETTLED_SECONDS
        self._max_page_bytes = max_page_bytes
        self._clock = clock
        self._began = clock.monotonic()
        self._error = playwright_error()
        self._frame: Frame = held.lent.page.main_frame
        """What is read."""
        self._remark = ""

    async def run(self) -> RenderedPage:
        """Raises a FetchFailed. A page whose `until` does not come is answered as it is."""
        self._held.watch.follow(self._course)
        try:
            await self._load()
        finally:
            self._course.is_over = True
        body = await self._read()
        if asked := find_challenge(Page(body=body), is_built=True):
            raise SiteBlocked(asked.reason)
        answer = Response(
            url=self._course.last,
            status=self._course.status,
            headers=httpx2.Headers({**self._course.headers, "content-type": HTML}),
            body=body,
        )
        return RenderedPage(answer=answer, documents=self._course.documents, remark=self._remark)

    async def _load(self) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._go()
                if await self._take_steps():
                    await self._settle()
        except TimeoutError:
            if not self._course.status:
                raise RetryLater(f"{self._wanted.url.host}: no page within {self._seconds:g} s") from None
            self._remark = self._remark or f"it was not complete after {self._seconds:g} s"
        self._check()

    async def _go(self) -> None:
        lent = self._held.lent
        try:
            await lent.alive(lent.page.goto(str(self._wanted.url), wait_until="domcontentloaded", timeout=0))
        except self._error as error:
            self._explain(error.message)

    async def _take_steps(self) -> bool:
        """Whether all of them could be taken."""
        for step in self._wanted.steps:
            if self._course.is_over:
                return True
            try:
                await self._held.lent.alive(perform_step(step, self._held.lent.page, _STEP_SECONDS * 1_000))
            except self._error as error:
                why = error.message.partition("\n")[0]
                self._remark = f"{type(step).__name__} {step.selector}: {why}"[:300]
                return False
        return True

    async def _settle(self) -> None:
        """Until what is waited for is there, nothing more comes, or it is known that it will not."""
        while not self._course.is_over and not self._held.lease.is_exhausted:
            if self._wanted.until and await self._is_there():
                return
            if self._held.watch.is_quiet(self._quiet_seconds):
                if self._wanted.until:
                    self._remark = f"{self._wanted.until!r} did not appear"[:300]
                    await self._take_fullest_frame()
                return
            await self._clock.sleep(_LOOK_SECONDS)

    async def _is_there(self) -> bool:
        for frame in self._frames:
            try:
                if await self._held.lent.alive(frame.locator(f"css={self._wanted.until}").count()):
                    self._frame = frame
                    return True
            except self._error as error:
                if "selector" in error.message.lower():
                    raise CannotFetch(f"{self._wanted.until!r:.200} is no CSS selector") from None
        return False

    async def _take_fullest_frame(self) -> None:
        """What there is to say of what did not appear may stand in a frame as well."""
        most = -1
        for frame in self._frames:
            with suppress(self._error):
                length: int = await self._held.lent.alive(frame.evaluate(_TEXT_LENGTH))
                if length > most:
                    self._frame, most = frame, length

    @property
    def _frames(self) -> list[Frame]:
        """The main one first."""
        page = self._held.lent.page
        others = [one for one in page.frames if one is not page.main_frame and self._is_of_the_site(one)]
        return [page.main_frame, *others[:_MOST_FRAMES]]

    def _is_of_the_site(self, frame: Frame) -> bool:
        try:
            return httpx2.URL(frame.url).netloc == self._course.last.netloc
        except httpx2.InvalidURL:
            return False

    async def _read(self) -> bytes:
        host, lent = self._course.last.host, self._held.lent
        left = self._began + self._seconds - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(_LEAST_READ_SECONDS, min(_READ_SECONDS, left))):
                length: int = await lent.alive(self._frame.evaluate(_LENGTH))
                text = await lent.alive(self._frame.content()) if length <= self._max_page_bytes else ""
        except TimeoutError:
            lent.stop("a page's scripts do not end")  # closing the page would leave them running
            raise RetryLater(f"{host}: the page does not answer: its scripts do not end") from None
        except self._error as error:
            raise RetryLater(f"{host}: the page cannot be read: {error.message}"[:300]) from None
        body = text.encode("utf-8", "replace")
        if max(length, len(body)) > self._max_page_bytes:
            raise CannotFetch(f"{host}: the page is longer than {self._max_page_bytes:,} bytes")
        return body

    def _check(self) -> None:
        """Raises what ended it early."""
        if self._course.failure is not None:
            raise self._course.failure
        if self._held.lease.is_exhausted:
            raise CannotFetch(
                f"{self._course.last.host}: the page loads more than {self._held.lease.max_bytes:,} bytes"
            )
        if self._course.net_error and self._course.status < 400:
            self._explain(self._course.net_error)
        if not self._course.status:
            raise RetryLater(f"{self._course.last.host} sent no page")

    def _explain(self, message: str) -> None:
        """Raises what it means that a document did not come, unless another has taken its place."""
        host = self._course.last.host
        if self._course.is_over or self._held.lease.is_exhausted:
            return
        if refusal := self._held.lease.refusal_of(self._course.last):
            raise refusal
        if "Download is starting" in message:
            raise CannotFetch(f"{host} sends a file to be saved, no page")
        if not any(sign in message for sign in _SUPERSEDED):
            raise RetryLater(f"{host}: {message.removeprefix('Page.goto: ').partition(' at http')[0]}"[:300])


_RETRY_SECONDS = 0.5


class Renderer:
    """Belongs to the worker's loop."""

    def __init__(
        self, browsing: RenderContext, proxy: GuardProxy, guard: Guard, options: FetchOptions, clock: Clock
    ) -> None:
        self._browsing = browsing
        self._proxy = proxy
        self._guard = guard
        self._options = options
        self._clock = clock
        self._agent = ""
        self._stays: set[asyncio.Task[None]] = set()
        self._cookies = profiles.CookieJars()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, browsing: RenderContext, proxy: GuardProxy, guard: Guard, options: FetchOptions, clock: Clock
    ) -> AsyncIterator[Renderer]:
        """All pages are given back at its end."""
        rendering = cls(browsing, proxy, guard, options, clock)
        try:
            yield rendering
        finally:
            for task in rendering._stays:
                task.cancel()
            if rendering._stays:
                await asyncio.wait(rendering._stays)

    def opens_in(self, before: int) -> float:
        """0: one more task that needs a page may come, behind `before` on their way. Else the seconds until a look."""
        lender = self._browsing.lender
        if seconds := lender.opens_in():
            return seconds
        is_full = lender.figures.busy + lender.figures.waiting + before >= self._browsing.options.most
        return _RETRY_SECONDS if is_full else 0.0

    async def stay(self, task: Task | None, profile: str) -> PageLease:
        """A page for an attempt. Raises NoBrowser, BrowserDied and NoTurn."""
        state = await asyncio.to_thread(profiles.load_profile, self._browsing.profiles, profile) if profile else {}
        if task is not None:
            state = self._cookies.added_to(state, task.site)
        task_id = task.task_id if task is not None else ""
        agent = await self._user_agent(task_id)
        stay = PageLease(task_id, self._browsing, self._proxy, self._clock, profile, state.get("cookies", ()))
        stored = {"origins": state.get("origins", ())}
        holding = stay.begin(user_agent=agent, storage_state=stored, accept_downloads=False, service_workers="block")
        self._stays.add(holding)
        holding.add_done_callback(self._stays.discard)
        await stay.ready(holding)
        return stay

    async def render(self, stay: PageLease, wanted: RenderRequest, allows: Allows) -> RenderedPage:
        """Raises a FetchFailed."""
        stay.secrets += [step.text for step in wanted.steps if isinstance(step, Fill)]
        course = Navigation(wanted.url, self._guard, allows, self._browsing.options.max_navigations)
        with stay.in_use() as held:
            loading = PageLoad(held, wanted, course, self._browsing, self._options.max_page_bytes, self._clock)
            try:
                rendered = await loading.run()
            except BrowserCrashed as death:
                raise await stay.died(death) from None
            except FAILURES as failure:
                stay.log.add("ended", str(failure))
                raise
        if rendered.remark:
            stay.log.add("incomplete", rendered.remark)
        return rendered

    async def keep_cookies(self, stay: PageLease, task: Task) -> None:
        """For the next task of its site."""
        with stay.in_use() as held:
            try:
                self._cookies.keep(task.site, await held.lent.alive(held.lent.context.cookies()))
            except BrowserCrashed as death:
                raise await stay.died(death) from None

    def forget_cookies(self, task: Task | None) -> None:
        """The site turned us away with them."""
        if task is not None:
            self._cookies.forget(task.site)

    async def _user_agent(self, task_id: str) -> str:
        """Chromium's own, and ours: a site sees who asks, and with what."""
        if not self._agent:
            async with self._browsing.lender.lend(task_id) as lent:
                self._agent = await lent.alive(lent.page.evaluate("navigator.userAgent"))
        return f"{self._agent} {self._options.user_agent}"
