"""A browser for the operator: in a window, or remote through Chrome's remote debugging."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from parcelpost.scrapers.browser.browser import BrowserCallFailed, bounded_call, first_line, silence_driver_errors

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
    """Remote debugging port; None: open a window."""
    state: Mapping[str, Any] | None
    """The saved session, if there is one."""
    proxy: str = ""
    proxy_login: str = ""


class BrowserWindow:
    def __init__(self, browser: Browser, context: BrowserContext, options: WindowOptions) -> None:
        self._browser = browser
        self._context = context
        saved = (options.state or {}).get("origins", ())
        self._origins: dict[str, Any] = {origin["origin"]: origin.get("localStorage", []) for origin in saved}
        self.port = options.port
        self.address = ""
        """Address for another Chrome to connect to, if there is no window."""
        self.problem = ""
        """Why the page did not load."""

    @property
    def is_closed(self) -> bool:
        return not self._browser.is_connected() or not self._context.pages

    async def begin(self, url: str) -> None:
        from playwright.async_api import Error

        page = await self._context.new_page()
        if self.port is not None:
            session = await self._context.new_cdp_session(page)
            target = (await session.send("Target.getTargetInfo"))["targetInfo"]["targetId"]
            host = f"127.0.0.1:{self.port}"
            self.address = f"http://{host}/devtools/inspector.html?ws={host}/devtools/page/{target}"
        try:
            await page.goto(url, wait_until="commit")
        except Error as error:
            self.problem = f"the page did not load: {first_line(error)}"

    async def state(self) -> dict[str, Any] | None:
        """Returns cookies and the local storage of every origin that was open; None: the browser is gone."""
        cookies = await _result(self._context.cookies())
        if cookies is None:
            return None
        for page in self._context.pages:
            await self._read_storage(page)
        origins = [{"origin": name, "localStorage": items} for name, items in self._origins.items() if items]
        return {"cookies": cookies, "origins": origins}

    async def _read_storage(self, page: Page) -> None:
        for frame in page.frames:
            origin, items = await _result(frame.evaluate(_STORED)) or ("", [])
            if origin.startswith(("http://", "https://")):
                self._origins[origin] = items


@contextlib.asynccontextmanager
async def open_window(options: WindowOptions) -> AsyncIterator[BrowserWindow]:
    """Raises BrowserCallFailed if the browser does not start."""
    from playwright.async_api import Error, async_playwright

    manager = async_playwright()
    async with manager as playwright:
        silence_driver_errors(manager)
        try:
            browser = await playwright.chromium.launch(
                executable_path=options.executable,
                headless=options.port is not None,
                chromium_sandbox=options.sandbox,
                args=_arguments(options.port),
                proxy=_proxy(options),
                handle_sigint=False,  # the session is saved first
                handle_sigterm=False,
                handle_sighup=False,
            )
        except Error as error:
            raise BrowserCallFailed(f"the browser did not start: {first_line(error)}") from None
        try:
            state: Any = options.state
            context = await browser.new_context(
                storage_state=state, accept_downloads=False, no_viewport=options.port is None
            )
            if options.port is None:
                context.on("dialog", lambda _: None)  # the operator answers them
            window = BrowserWindow(browser, context, options)
            await window.begin(options.url)
            yield window
        finally:
            await browser.close()


def _arguments(port: int | None) -> list[str]:
    switches = ["--no-first-run", "--disable-quic", "--disable-sync"]
    if port is None:
        return switches
    origins = ",".join(f"http://{host}:{port}" for host in ("127.0.0.1", "localhost"))
    debugging = [f"--remote-debugging-port={port}", "--remote-debugging-address=127.0.0.1"]
    return [*switches, "--disable-gpu", *debugging, f"--remote-allow-origins={origins}"]


def _proxy(options: WindowOptions) -> ProxySettings | None:
    if not options.proxy:
        return None
    user, _, password = options.proxy_login.partition(":")
    return {"server": options.proxy, "username": user, "password": password} if user else {"server": options.proxy}


async def _result(call: Awaitable[T]) -> T | None:
    """Returns None if the call fails or takes too long, as it does while a dialog is shown or after the page closed."""
    with contextlib.suppress(BrowserCallFailed):
        return await bounded_call(call, _ANSWER_SECONDS, "reading the session")
    return None
