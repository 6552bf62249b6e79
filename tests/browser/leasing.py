"""Rendering with the program's own browser pool, and the artifacts of failed attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from parcelpost.clock import SystemClock
from parcelpost.events import Event, ignore
from parcelpost.model import Target, Task
from parcelpost.scrapers.browser.browser import LeasedPage
from parcelpost.scrapers.browser.pool import BrowserPool
from parcelpost.scrapers.browser.renderer import RenderContext
from parcelpost.scrapers.fetch.cache import CacheStore
from parcelpost.scrapers.fetch.client import PageFetcher
from parcelpost.scrapers.fetch.session import Session
from parcelpost.settings.schema import BrowserSettings
from parcelpost.storage import LocalPersistenceManager
from tests.scrapers.fetching import HERE

PAGES = 2
_WAIT_SECONDS = 120.0


class RenderingPool(BrowserPool):
    """Counts its leases."""

    leases = 0
    lpm: LocalPersistenceManager

    @classmethod
    @asynccontextmanager
    async def on(cls, store: Path) -> AsyncIterator[RenderingPool]:
        settings = BrowserSettings(most=PAGES, idle_seconds=3_600.0, tasks_per_browser=10_000)
        async with LocalPersistenceManager.open(store) as lpm:
            opened = cls.open(settings, lpm.browsers, owner=lpm.owner_id, clock=SystemClock(), emit=ignore)
            async with opened as pool:
                assert isinstance(pool, cls)
                pool.lpm = lpm
                yield pool

    def lease(self, *args: Any, **options: Any) -> AbstractAsyncContextManager[LeasedPage]:  # type: ignore[override]
        self.leases += 1
        return super().lease(*args, **options)

    async def busy_pid(self) -> int:
        """The only browser that has a page out."""
        (pid,) = [row.pid for row in await self.lpm.browsers.all() if row.status == "busy"]
        assert pid is not None
        return pid

    async def all_back(self) -> None:
        async with asyncio.timeout(_WAIT_SECONDS):
            while self.figures.busy:
                await asyncio.sleep(0.01)


class Kept(NamedTuple):
    task_id: str
    screenshot: bytes | None
    log: str


class Artifacts(list[Kept]):
    async def put(self, task_id: str, screenshot: bytes | None, log: str, page: bytes = b"") -> None:
        self.append(Kept(task_id, screenshot, log))


class Renders(NamedTuple):
    fetcher: PageFetcher
    pool: RenderingPool
    leases_before: int
    artifacts: Artifacts
    events: list[Event]

    @property
    def leases(self) -> int:
        return self.pool.leases - self.leases_before

    def session(self, task_id: str = "t1", county: str = "adams", profile: str = "") -> Session:
        target = Target(parcel_id="1", state="FL", county=county)
        return self.fetcher.session(0.0, Task(task_id=task_id, platform="vgsi", target=target), profile)


@asynccontextmanager
async def rendering(
    pool: RenderingPool,
    *,
    cache: CacheStore | None = None,
    profiles: Path | None = None,
    resolve: Any = None,
    lease_seconds: float = _WAIT_SECONDS,
    quiet_seconds: float = 30.0,
    fetch: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Renders]:
    """All pages are back at its end."""
    events: list[Event] = []
    artifacts = Artifacts()
    browsing = RenderContext(
        pool=pool,
        settings=BrowserSettings(most=PAGES, **settings),
        profiles=profiles,
        artifacts=artifacts,
        lease_seconds=lease_seconds,
        quiet_seconds=quiet_seconds,
    )
    more = {"resolve": resolve} if resolve else {}
    async with PageFetcher.open(
        replace(HERE, **(fetch or {})), cache=cache, clock=SystemClock(), emit=events.append, browsing=browsing, **more
    ) as fetcher:
        yield Renders(fetcher, pool, pool.leases, artifacts, events)
    await pool.all_back()
