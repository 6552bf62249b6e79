"""A pool of browsers with what pages are rendered with: for a worker, and for a command that has no store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from parcelpost.cli.browser_options import browser_options
from parcelpost.cli.browser_profiles import folder_of
from parcelpost.clock import Clock
from parcelpost.events import Emit
from parcelpost.model import BrowserState
from parcelpost.scrapers.browser_pool import BrowserPool
from parcelpost.scrapers.browsers.lending import Browsing
from parcelpost.settings import Settings
from parcelpost.storage.lpm import LocalPersistenceManager


@asynccontextmanager
async def lent(
    settings: Settings, lpm: LocalPersistenceManager, clock: Clock, emit: Emit
) -> AsyncIterator[tuple[BrowserPool, Browsing]]:
    """Nothing is started before a task needs it."""
    options = browser_options(settings)
    async with BrowserPool.open(options, lpm.browsers, owner=lpm.owner_id, clock=clock, emit=emit) as pool:
        yield pool, Browsing(lender=pool, options=options, profiles=folder_of(lpm.path), artifacts=lpm.artifacts)


@asynccontextmanager
async def lent_without_store(settings: Settings, clock: Clock, emit: Emit) -> AsyncIterator[Browsing]:
    """For a command that ends soon. Profiles are those of the store that the settings name."""
    options = browser_options(settings)
    async with BrowserPool.open(options, _Unwritten(), owner="", clock=clock, emit=emit) as pool:
        yield Browsing(lender=pool, options=options, profiles=folder_of(Path(settings.storage.path)))


class _Unwritten:
    """A BrowserLedger that nobody reads."""

    def __init__(self) -> None:
        self._ids = count(1)

    async def add(self, state: BrowserState) -> int:
        return next(self._ids)

    async def put(self, state: BrowserState) -> None:
        pass

    async def all(self) -> list[BrowserState]:
        return []

    async def orphans(self) -> list[BrowserState]:
        return []

    async def remove(self, browser_id: int) -> bool:
        return True

    async def reap(self, state: BrowserState) -> bool:
        return True

    async def assign(self, task_id: str, browser_id: int | None) -> None:
        pass
