"""Leases pages of the tests' own Chromium, what is rendered with them, and the artifacts of failed attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from playwright.async_api import Browser, BrowserContext, Page

from parcelpost.clock import SystemClock
from parcelpost.events import Event
from parcelpost.model import Target, Task
from parcelpost.scrapers.browser.base import BrowserOptions, RenderContext
from parcelpost.scrapers.fetch.cache import CacheStore
from parcelpost.scrapers.fetch.client import PageFetcher
from parcelpost.scrapers.fetch.errors import BrowserCrashed
from parcelpost.scrapers.fetch.session import Session
from tests.scrapers.fetching import HERE

T = TypeVar("T")


class Leased(Struct):
    context: BrowserContext
    page: Page
    browser_id: int = 1
    dies_at: str = ""
    """A call whose name has this in it finds the browser dead."""

    async def call(self, work: Awaitable[T]) -> T:
        if self.dies_at and self.dies_at in repr(work):
            getattr(work, "close", lambda: None)()
            raise BrowserCrashed("killed by the test")
        return await work

    def stop(self, reason: str) -> None:
        self.dies_at = " "


class Load(Struct):
    busy: int = 0
    waiting: int = 0


class Leasing:
    """Leases any number of pages. `count`: how many."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.figures = Load()
        self.closed_for = 0.0
        self.failure: Exception | None = None
        self.dies_at = ""
        self.count = 0

    def opens_in(self) -> float:
        return self.closed_for

    @asynccontextmanager
    async def lease(
        self, task_id: str, *, timeout: float = 5.0, agent: str = "", **context_options: Any
    ) -> AsyncIterator[Leased]:
        if self.failure is not None:
            raise self.failure
        self.count += 1
        if agent:
            context_options["user_agent"] = f"Chrome/{self._browser.version} {agent}"
        context = await self._browser.new_context(**context_options)
        self.figures.busy += 1
        try:
            yield Leased(context, await context.new_page(), dies_at=self.dies_at)
        finally:
            self.figures.busy -= 1
            await context.close()


class Kept(NamedTuple):
    task_id: str
    screenshot: bytes | None
    log: str


class Artifacts(list[Kept]):
    async def put(self, task_id: str, screenshot: bytes | None, log: str) -> None:
        self.append(Kept(task_id, screenshot, log))


class Renders(NamedTuple):
    fetcher: PageFetcher
    leasing: Leasing
    artifacts: Artifacts
    events: list[Event]

    def session(self, task_id: str = "t1", county: str = "adams", profile: str = "") -> Session:
        target = Target(parcel_id="1", state="FL", county=county)
        return self.fetcher.session(0.0, Task(task_id=task_id, platform="vgsi", target=target), profile)


@asynccontextmanager
async def rendering(
    browser: Browser,
    *,
    cache: CacheStore | None = None,
    profiles: Path | None = None,
    resolve: Any = None,
    idle_seconds: float = 30.0,
    quiet_seconds: float = 30.0,
    fetch: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Renders]:
    """All pages are back at its end."""
    events: list[Event] = []
    artifacts, leasing = Artifacts(), Leasing(browser)
    browsing = RenderContext(
        pool=leasing,
        options=BrowserOptions(**options),
        profiles=profiles,
        artifacts=artifacts,
        quiet_seconds=quiet_seconds,
        idle_seconds=idle_seconds,
    )
    more = {"resolve": resolve} if resolve else {}
    async with PageFetcher.open(
        replace(HERE, **(fetch or {})), cache=cache, clock=SystemClock(), emit=events.append, browsing=browsing, **more
    ) as fetcher:
        yield Renders(fetcher, leasing, artifacts, events)
    assert leasing.figures.busy == 0
