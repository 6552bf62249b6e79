"""A page on loan: good for as long as its browser, its renderer and Playwright's driver live."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from parcelpost.scrapers.browsers.bounded import let_go
from parcelpost.scrapers.browsers.browser import Chromium
from parcelpost.scrapers.fetch_errors import BrowserDied

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

T = TypeVar("T")

_CRASHED = re.compile(r"(Target|Page) crashed")


class Lent:
    """Belongs to the pool's event loop. Everything that is asked of page or context is asked through `alive`."""

    def __init__(self, browser_id: int, chromium: Chromium, context: BrowserContext, page: Page) -> None:
        self.browser_id = browser_id
        self.context = context
        self.page = page
        self._chromium = chromium
        self._crashed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        page.on("crash", lambda _: self._crash())

    @property
    def death(self) -> str:
        """Why the page is lost; '': it is not, as far as can be known."""
        if not self._chromium.is_running:
            over = self._chromium.over
            return over.result() if over.done() else "the browser died"
        return self._crashed.result() if self._crashed.done() else ""

    async def alive(self, work: Awaitable[T]) -> T:
        """What it brings, or raises. Raises BrowserDied the moment the browser, the page or the driver is gone."""
        task = asyncio.ensure_future(work)
        ends = (self._chromium.over, self._crashed)
        either: set[asyncio.Future[Any]] = {task, *ends}
        try:
            if not any(end.done() for end in ends):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                let_go(task)
        if task.done() and not task.cancelled():
            error = task.exception()
            if error is None:
                return task.result()
            if _CRASHED.search(str(error)):
                self._crash()  # before anybody listened
        if death := self.death:
            let_go(task)
            raise BrowserDied(death)
        return await task  # whatever else went wrong

    def stop(self, reason: str) -> None:
        """Ends its browser at once, for what the page does: closing it would take its turn behind that."""
        self._chromium.end(reason, "page")
        self._chromium.kill()

    def _crash(self) -> None:
        if not self._crashed.done():
            self._crashed.set_result("the page crashed")
