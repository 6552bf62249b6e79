"""What belongs to one attempt at a task: its cookies and cached pages, and the fetcher given to platform code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2
from msgspec import structs

from parcelpost.model import REFRESH, Busy, Done, NotFound, Outcome, Page, Retry, Task
from parcelpost.scrapers.fetch.cache import CachedPage
from parcelpost.scrapers.fetch.errors import RetryLater
from parcelpost.scrapers.platform import Step

if TYPE_CHECKING:
    from parcelpost.scrapers.browser.renderer import PageLease
    from parcelpost.scrapers.fetch.client import PageFetcher


T = TypeVar("T")

_CLOSE_SECONDS = 1.0
"""How long a cancelled attempt waits for its browser page to close."""


class Visit:
    """The state of one attempt: its cookies, its browser page, and pages from and for the cache."""

    def __init__(self, pace_seconds: float, task: Task | None = None, profile: str = "") -> None:
        self.pace_seconds = pace_seconds
        self.task = task
        self.profile = profile
        """The browser profile; '': none."""
        self.lease: PageLease | None = None
        """The attempt's page in a browser, if it has one."""
        self.remark = ""
        """Why the rendered page may be incomplete."""
        self.skips_cache = task is not None and (task.skip_cache or task.type == REFRESH)
        """Requests pages from the site even if they are cached."""
        self.to_admit = task
        """The task, until its first request."""
        self.has_started = False
        """A request was sent: further ones wait for the rate limit as long as necessary."""
        self.cookies: httpx2.Cookies | None = None
        """None until a site sets one."""
        self.to_cache: list[CachedPage] = []
        self.from_cache: list[str] = []
        self.fetched_at: datetime | None = None
        """When the oldest of the attempt's pages was fetched."""
        self.last_page = b""
        """The body of the last page that a site sent, even if it is none to parse."""

    def take(self, page: Page, fetched_at: datetime, from_cache: str = "") -> Page:
        self.last_page = page.body
        if from_cache:
            self.from_cache.append(from_cache)
        self.fetched_at = min(fetched_at, self.fetched_at or fetched_at)
        return page


class Session:
    """A Fetcher for one attempt at a task, usable on any event loop. Cancelling a call cancels its request."""

    def __init__(self, fetcher: PageFetcher, home: asyncio.AbstractEventLoop, visit: Visit) -> None:
        self._fetcher = fetcher
        self._home = home
        self._visit = visit

    @property
    def fetched_at(self) -> datetime | None:
        """When the oldest page of this attempt was fetched; None if there is none yet."""
        return self._visit.fetched_at

    async def get(self, url: str, *, headers: Mapping[str, str] = {}, cached: bool = True) -> Page:
        return await self._on_home_loop(self._fetcher.get(self._visit, url, headers, cached=cached))

    async def post(self, url: str, form: Mapping[str, str]) -> Page:
        return await self._on_home_loop(self._fetcher.post(self._visit, url, form))

    async def rendered(
        self, url: str, *, until: str = "", steps: Sequence[Step] = (), keep_cookies: bool = False, cached: bool = True
    ) -> Page:
        page = self._fetcher.rendered(
            self._visit, url, until=until, steps=tuple(steps), keep_cookies=keep_cookies, cached=cached
        )
        return await self._on_home_loop(page)

    async def cached_page(self, key: str) -> Page | None:
        return await self._on_home_loop(self._fetcher.cached_page(self._visit, key))

    def cache_as(self, key: str, page: Page) -> None:
        if self._visit.fetched_at is not None:
            self._visit.to_cache.append(CachedPage.new(key, page, httpx2.Headers(), self._visit.fetched_at))

    async def cache_pages(self) -> None:
        """Caches the pages of this attempt: they led to a record."""
        await self._on_home_loop(self._fetcher.cache_pages(self._visit))

    async def drop_cached(self) -> None:
        """Removes pages of this attempt from the cache: they led to no record."""
        await self._on_home_loop(self._fetcher.drop_cached(self._visit))

    async def run(self, attempt: Awaitable[Outcome]) -> Outcome:
        """Runs the attempt, releases its browser page and returns its outcome."""
        try:
            outcome = await attempt
        except BaseException:
            await self.end(failed=True, timeout=_CLOSE_SECONDS)
            raise
        if isinstance(outcome, Retry) and self._visit.remark:
            outcome = structs.replace(outcome, reason=f"{outcome.reason} ({self._visit.remark})")
        if isinstance(outcome, NotFound):
            self._visit.last_page = b""  # it says no more than the outcome
        await self.end(failed=not isinstance(outcome, Done | Busy))
        return outcome

    async def end(self, *, failed: bool, timeout: float | None = None) -> None:
        """Releases the browser page, waiting at most `timeout`. If the attempt failed, its artifacts are stored."""
        has_something = self._visit.lease is not None or (failed and self._visit.last_page)
        if has_something and not self._home.is_closed():
            ending = asyncio.run_coroutine_threadsafe(self._fetcher.end(self._visit, failed=failed), self._home)
            await asyncio.wait({asyncio.wrap_future(ending)}, timeout=timeout)

    async def _on_home_loop(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio.get_running_loop() is self._home:
            return await work
        if self._home.is_closed():
            work.close()
            raise RetryLater("the worker is shutting down")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))
