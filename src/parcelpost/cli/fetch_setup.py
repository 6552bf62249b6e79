"""Builds fetch options, browser options and the browser pool from the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from msgspec import structs

from parcelpost import __version__
from parcelpost.cli.options import profiles_folder
from parcelpost.clock import Clock
from parcelpost.events import Emit
from parcelpost.model import BrowserState
from parcelpost.scrapers.browser.base import BrowserOptions, RenderContext
from parcelpost.scrapers.browser.pool import BrowserPool
from parcelpost.scrapers.fetch.exchange import FetchOptions
from parcelpost.settings import Settings
from parcelpost.settings.secrets import PROXY_LOGIN_VARIABLE
from parcelpost.storage.lpm import LocalPersistenceManager

_START_SECONDS = 60.0
"""How long a single-task command waits for a browser to start; generous, for busy machines."""


def fetch_options(settings: Settings, environment: Mapping[str, str]) -> FetchOptions:
    fetch = settings.fetch
    contact = f" (+{fetch.contact})" if fetch.contact else ""
    return FetchOptions(
        user_agent=fetch.user_agent or f"parcelpost/{__version__}{contact}",
        pace_seconds=fetch.pace_seconds,
        concurrency_per_host=fetch.concurrency_per_host,
        timeout_seconds=fetch.timeout_seconds,
        max_page_bytes=min(fetch.max_page_bytes, settings.storage.max_page_bytes),
        proxy=fetch.proxy,
        proxy_login=environment.get(PROXY_LOGIN_VARIABLE, ""),
        allow_private=fetch.allow_private,
        obey_robots=fetch.obey_robots,
    )


def browser_options(settings: Settings) -> BrowserOptions:
    """The settings and the options share their names."""
    return BrowserOptions(**structs.asdict(settings.browser))


@asynccontextmanager
async def browser_pool(
    settings: Settings, lpm: LocalPersistenceManager, clock: Clock, emit: Emit
) -> AsyncIterator[tuple[BrowserPool, RenderContext]]:
    """Opens the pool; a browser starts only when a task needs it."""
    options = browser_options(settings)
    async with BrowserPool.open(options, lpm.browsers, owner=lpm.owner_id, clock=clock, emit=emit) as pool:
        yield (
            pool,
            RenderContext(pool=pool, options=options, profiles=profiles_folder(lpm.path), artifacts=lpm.artifacts),
        )


@asynccontextmanager
async def browser_pool_without_store(settings: Settings, clock: Clock, emit: Emit) -> AsyncIterator[RenderContext]:
    """For short-lived commands. Uses the profiles of the store in the settings."""
    options = browser_options(settings)
    async with BrowserPool.open(options, _NullBrowserStore(), owner="", clock=clock, emit=emit) as pool:
        profiles = profiles_folder(Path(settings.storage.path))
        yield RenderContext(pool=pool, options=options, profiles=profiles, lease_seconds=_START_SECONDS)


class _NullBrowserStore:
    """A BrowserStore that saves nothing."""

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

    async def remove(self, state: BrowserState) -> bool:
        return True

    async def assign(self, task_id: str, browser_id: int | None) -> None:
        pass
