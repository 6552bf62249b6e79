"""Three ways to have pages in browsers, each with the same callers and the same Chromium."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from parcelpost.clock import SystemClock
from parcelpost.events import ignore
from parcelpost.scrapers.browser_pool import BrowserPool
from parcelpost.scrapers.browsers.chromium import Missing, find
from parcelpost.scrapers.browsers.options import BrowserOptions
from parcelpost.storage.lpm import LocalPersistenceManager

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Playwright

CALLERS = 2
POOL, FRESH, SHARED = "the pool", "a fresh browser per page", "one shared context"
_PATIENCE = 120.0
PAST_THE_GUARD = {"server": "http://127.0.0.1:9", "bypass": "127.0.0.1"}
"""The site is on this machine, and the others go there straight, too."""

Have = Callable[[int], Awaitable[None]]
"""Has one page, by its number."""
Way = Callable[[Path, str], AbstractAsyncContextManager[Have]]
"""A folder to keep a store in, and the site's address."""


async def read(page: Page, site: str, number: int) -> None:
    """Until the script has made the page, and then all of it."""
    await page.goto(f"{site}/?parcel={number}", wait_until="domcontentloaded")
    await page.wait_for_selector(f"body[data-parcel='{number}']")
    text = await page.content()
    if f"field 1 of parcel {number}<" not in text:
        raise RuntimeError(f"the page of parcel {number} is not that of parcel {number}")


@asynccontextmanager
async def pooled(folder: Path, site: str) -> AsyncIterator[Have]:
    async with opened_pool(folder) as (_, pool):

        async def have(number: int) -> None:
            async with pool.lend(f"t{number}", patience=_PATIENCE, proxy=PAST_THE_GUARD) as lent:
                await lent.alive(read(lent.page, site, number))

        yield have


@asynccontextmanager
async def opened_pool(folder: Path) -> AsyncIterator[tuple[LocalPersistenceManager, BrowserPool]]:
    """As in a worker, with a store behind it."""
    options = BrowserOptions(most=CALLERS)
    async with LocalPersistenceManager.open(folder / "store.db") as lpm:
        opening = BrowserPool.open(options, lpm.browsers, owner=lpm.owner_id, clock=SystemClock(), emit=ignore)
        async with opening as pool:
            yield lpm, pool


@asynccontextmanager
async def fresh_browsers(_: Path, site: str) -> AsyncIterator[Have]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:

        async def have(number: int) -> None:
            browser = await _launched(playwright)
            try:
                await read(await browser.new_page(), site, number)
            finally:
                await browser.close()

        yield have


@asynccontextmanager
async def shared_context(_: Path, site: str) -> AsyncIterator[Have]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await _launched(playwright)
        context = await browser.new_context()

        async def have(number: int) -> None:
            page = await context.new_page()
            try:
                await read(page, site, number)
            finally:
                await page.close()

        yield have
        await browser.close()


async def _launched(playwright: Playwright) -> Browser:
    found = find()
    if isinstance(found, Missing):
        raise SystemExit(f"bench browser: {found.reason}: {found.hint}")
    return await playwright.chromium.launch(executable_path=found.path, chromium_sandbox=os.geteuid() != 0)


WAYS: dict[str, Way] = {POOL: pooled, FRESH: fresh_browsers, SHARED: shared_context}
