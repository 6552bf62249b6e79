"""A Chromium for tests, and who lends pages of it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec import Struct
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from parcelpost.scrapers.browsers.arguments import GUARDED
from parcelpost.scrapers.fetch_errors import BrowserDied

T = TypeVar("T")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Lent(Struct):
    context: BrowserContext
    page: Page
    browser_id: int = 1
    is_dead: bool = False

    async def alive(self, work: Awaitable[T]) -> T:
        if self.is_dead:
            raise BrowserDied("killed by the test")
        return await work


class Load(Struct):
    busy: int = 0
    waiting: int = 0


class Lending:
    """Lends any number of pages. `lent`: all that were, the last one last; `out`: how many are out."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.figures = Load()
        self.closed_for = 0.0
        self.failure: Exception | None = None
        self.lent: list[Lent] = []
        self.options: list[dict[str, Any]] = []

    def opens_in(self) -> float:
        return self.closed_for

    @asynccontextmanager
    async def lend(self, task_id: str, *, patience: float = 5.0, **context_options: Any) -> AsyncIterator[Lent]:
        if self.failure is not None:
            raise self.failure
        context = await self._browser.new_context(**context_options)
        self.figures.busy += 1
        try:
            self.lent.append(Lent(context, await context.new_page()))
            self.options.append(context_options)
            yield self.lent[-1]
        finally:
            self.figures.busy -= 1
            await context.close()


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    assert CHROMIUM is not None
    arguments = ["--no-sandbox", "--disable-gpu", *GUARDED]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        await browser.close()
