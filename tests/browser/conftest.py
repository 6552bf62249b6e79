"""One Chromium for all tests of a session, and what each page asked for and complained about."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from parcelpost.scrapers.browser.chromium import LEAN_SWITCHES, ChromiumMissing, find
from tests.browser.leasing import RenderingPool

expect.set_options(timeout=60_000)  # its own five seconds say nothing about a page on a busy machine

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *LEAN_SWITCHES,
)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(_ARGUMENTS))
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RenderingPool]:
    """The program's own pool, for all tests of rendering."""
    if isinstance(find(), ChromiumMissing):
        pytest.skip("Chromium is not installed")
    async with RenderingPool.on(tmp_path_factory.mktemp("pool") / "store.db") as pool:
        yield pool


class Watched:
    """A page, with every address it asked for and every error in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("dialog", lambda dialog: self.errors.append(f"a dialog: {dialog.message}"))

    def _note(self, kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text:
            self.errors.append(text)


@asynccontextmanager
async def a_page(browser: Browser, address: str, **context: Any) -> AsyncIterator[Watched]:
    """At the end: no error, and nothing was asked of anybody but the gateway."""
    opened = await browser.new_context(viewport=context.pop("viewport", {"width": 1280, "height": 900}), **context)
    try:
        watched = Watched(await opened.new_page())
        await watched.page.goto(address)
        yield watched
        origin = "/".join(address.split("/")[:3])
        assert [url for url in watched.requests if not url.startswith((f"{origin}/", f"blob:{origin}/"))] == []
        assert watched.errors == []
    finally:
        await opened.close()
