"""What belongs to one attempt at a task: its cookies and cached pages, and the fetcher given to platform code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2
from msgspec import structs

from parcelpost.model import Busy, Done, Outcome, Page, Retry, Task
from parcelpost.scrapers.browser.base import Step
from parcelpost.scrapers.fetch.cache import CachedPage
from parcelpost.scrapers.fetch.errors import RetryLater

if TYPE_CHECKING:
    from parcelpost.scrapers.browser.page import PageLease
    from parcelpost.scrapers.fetch.client import PageFetcher


T = TypeVar("T")

_PATIENCE_SECONDS = 1.0
"""For what a cancelled attempt leaves: its thread is waited for only a little longer."""


class Visit:
    """What belongs to one attempt: its cookies, and what it took from the cache or has for it."""

    def __init__(self, pace_seconds: float, task: Task | None = None, profile: str = "") -> None:
        self.pace_seconds = pace_seconds
        self.task = task
        self.profile = profile
        """With which its pages are rendered; '': with none."""
        self.stay: PageLease | None = None
        """Its page in a browser."""
        self.remark = ""
        """Why a page that was rendered may be incomplete."""
        self.asks_site = task is not None and task.ask_site
        """Whatever the cache has."""
        self.not_yet_admitted = task
        """Whose first request is still to come."""
        self.has_begun = False
        """A site has been asked: further requests wait for their turn, as long as the attempt may take."""
        self.cookies = httpx2.Cookies()
        self.to_keep: list[CachedPage] = []
        self.from_cache: list[str] = []
        self.fetched_at: datetime | None = None
        """When the oldest of its pages was fetched."""

    def take(self, page: Page, fetched_at: datetime, from_cache: str = "") -> Page:
        if from_cache:
            self.from_cache.append(from_cache)
        self.fetched_at = min(fetched_at, self.fetched_at or fetched_at)
        return page


class Session:
    """A Fetcher for one attempt at a task, on any event loop. Cancelling a call cancels its request."""

    def __init__(self, fetcher: PageFetcher, home: asyncio.AbstractEventLoop, visit: Visit) -> None:
        self._fetcher = fetcher
        self._home = home
        self._visit = visit

    @property
    def fetched_at(self) -> datetime | None:
        """When the oldest page of this attempt was fetched; None: there is none yet."""
        return self._visit.fetched_at

    async def get(self, url: str, *, headers: Mapping[str, str] = {}, cached: bool = True) -> Page:
        return await self._at_home(self._fetcher.get(self._visit, url, headers, cached=cached))

    async def post(self, url: str, form: Mapping[str, str]) -> Page:
        return await self._at_home(self._fetcher.post(self._visit, url, form))

    async def rendered(
        self, url: str, *, until: str = "", steps: Sequence[Step] = (), keep_cookies: bool = False, cached: bool = True
    ) -> Page:
        wanted = self._fetcher.rendered(
            self._visit, url, until=until, steps=tuple(steps), keep_cookies=keep_cookies, cached=cached
        )
        return await self._at_home(wanted)

    async def kept(self, key: str) -> Page | None:
        return await self._at_home(self._fetcher.kept(self._visit, key))

    def keep_as(self, key: str, page: Page) -> None:
        if self._visit.fetched_at is not None:
            self._visit.to_keep.append(CachedPage.new(key, page, httpx2.Headers(), self._visit.fetched_at))

    async def keep(self) -> None:
        """The pages gave a record: the next attempt within their time asks the site nothing."""
        await self._at_home(self._fetcher.keep(self._visit))

    async def forget(self) -> None:
        """What came from the cache was of no use: the next attempt asks the site."""
        await self._at_home(self._fetcher.forget(self._visit))

    async def ended_with(self, work: Awaitable[Outcome]) -> Outcome:
        """How the attempt ends, whose page in a browser, if it has one, is then given back."""
        try:
            outcome = await work
        except BaseException:
            await self.end(failed=True, patience=_PATIENCE_SECONDS)
            raise
        if isinstance(outcome, Retry) and self._visit.remark:
            outcome = structs.replace(outcome, reason=f"{outcome.reason} ({self._visit.remark})")
        await self.end(failed=not isinstance(outcome, Done | Busy))
        return outcome

    async def end(self, *, failed: bool, patience: float | None = None) -> None:
        """Gives its page back, within `patience` or later. Of one that failed it is kept what it looked like."""
        if (stay := self._visit.stay) is not None and not self._home.is_closed():
            ending = asyncio.run_coroutine_threadsafe(stay.end(failed=failed), self._home)
            await asyncio.wait({asyncio.wrap_future(ending)}, timeout=patience)

    async def _at_home(self, work: Coroutine[Any, Any, T]) -> T:
        if self._home.is_closed():
            work.close()
            raise RetryLater("the worker is ending")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))
