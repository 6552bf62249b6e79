"""A browser for the operator: in a window, or remote through Chrome's remote debugging."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from parcelpost.scrapers.browser.browser import BrowserCallFailed, first_line, silence_driver_errors

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page, ProxySettings


T = TypeVar("T")

_ANSWER_SECONDS = 5.0
_STORED = """() => {
    try { return [location.origin, Object.entries(localStorage).map(([name, value]) => ({name, value}))] }
    catch { return ["", []] }
}"""


class WindowOptions(Struct, frozen=True, kw_only=True):
    url: str
    executable: str
    sandbox: bool
    port: int | None
    """Of remote debugging; None: there is a screen for a window."""
    state: Mapping[str, Any] | None
    """What was saved of an earlier session."""
    proxy: str = ""
    proxy_login: str = ""


class Window:
    def __init__(self, browser: Browser, context: BrowserContext, opening: WindowOptions) -> None:
        self._browser = browser
        self._context = context
        stored = (opening.state or {}).get("origins", ())
        self._origins: dict[str, Any] = {one["origin"]: one.get("localStorage", []) for one in stored}
        self.port = opening.port
        self.address = ""
        """Where a Chrome shows the page, if there is no window."""
        self.problem = ""
        """Why the page is not there."""

    @property
    def is_closed(self) -> bool:
        return not self._browser.is_connected() or not self._context.pages

    async def begin(self, url: str) -> None:
        from playwright.async_api import Error

        page = await self._context.new_page()
        if self.port is not None:
            session = await self._context.new_cdp_session(page)
            target = (await session.send("Target.getTargetInfo"))["targetInfo"]["targetId"]
            there = f"127.0.0.1:{self.port}"
            self.address = f"http://{there}/devtools/inspector.html?ws={there}/devtools/page/{target}"
        try:
            await page.goto(url, wait_until="commit")
        except Error as error:
            self.problem = f"the page did not load: {first_line(error)}"

    async def state(self) -> dict[str, Any] | None:
        """Cookies, and the local storage of every origin that was open; None: the browser is gone."""
        cookies = await _answer(self._context.cookies())
        if cookies is None:
            return None
        for page in self._context.pages:
            await self._look_at(page)
        origins = [{"origin": name, "localStorage": items} for name, items in self._origins.items() if items]
        return {"cookies": cookies, "origins": origins}

    async def _look_at(self, page: Page) -> None:
        for frame in page.frames:
            origin, items = await _answer(frame.evaluate(_STORED)) or ("", [])
            if origin.startswith(("http://", "https://")):
                self._origins[origin] = items


@contextlib.asynccontextmanager
async def open_window(opening: WindowOptions) -> AsyncIterator[Window]:
    """Raises NotDone where the browser does not start."""
    from playwright.async_api import Error, async_playwright

    manager = async_playwright()
    async with manager as playwright:
        silence_driver_errors(manager)
        try:
            browser = await playwright.chromium.launch(
                executable_path=opening.executable,
                headless=opening.port is not None,
                chromium_sandbox=opening.sandbox,
                args=_arguments(opening.port),
                proxy=_proxy(opening),
                handle_sigint=False,  # what is open is saved first
                handle_sigterm=False,
                handle_sighup=False,
            )
        except Error as error:
            raise BrowserCallFailed(f"the browser did not start: {first_line(error)}") from None
        try:
            state: Any = opening.state
            context = await browser.new_context(
                storage_state=state, accept_downloads=False, no_viewport=opening.port is None
            )
            if opening.port is None:
                context.on("dialog", lambda _: None)  # they are the person's to answer
            window = Window(browser, context, opening)
            await window.begin(opening.url)
            yield window
        finally:
            await browser.close()


def _arguments(port: int | None) -> list[str]:
    usual = ["--no-first-run", "--disable-quic", "--disable-sync"]
    if port is None:
        return usual
    origins = ",".join(f"http://{host}:{port}" for host in ("127.0.0.1", "localhost"))
    there = [f"--remote-debugging-port={port}", "--remote-debugging-address=127.0.0.1"]
    return [*usual, "--disable-gpu", *there, f"--remote-allow-origins={origins}"]


def _proxy(opening: WindowOptions) -> ProxySettings | None:
    if not opening.proxy:
        return None
    user, _, password = opening.proxy_login.partition(":")
    return {"server": opening.proxy, "username": user, "password": password} if user else {"server": opening.proxy}


async def _answer(asked: Awaitable[T]) -> T | None:
    """None: there is none. A page that shows a dialog answers nobody, and a closed one never."""
    from playwright.async_api import Error

    try:
        return await asyncio.wait_for(asked, _ANSWER_SECONDS)
    except (Error, TimeoutError):
        return None
