"""One running Chromium and its Playwright driver. Calls to both have time limits that Playwright cannot exceed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from parcelpost.clock import Clock
from parcelpost.scrapers.browser import processes
from parcelpost.scrapers.browser.chromium import SWITCHES, has_home
from parcelpost.scrapers.fetch.errors import BrowserCrashed

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, CDPSession, Error, Page, Playwright


T = TypeVar("T")

_START_SECONDS = 60.0
_ANSWER_SECONDS = 10.0
_PAGE_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
_MAX_REASON_CHARS = 300
_PAGE_CRASHED = re.compile(r"(Target|Page) crashed")
_LOST = re.compile(r"has been closed|Connection closed")


class BrowserCallFailed(Exception):
    """A call to Playwright failed, took too long, or lost its browser."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint
        """What the operator can do, if known."""


async def bounded_call(work: Awaitable[T], seconds: float, action: str) -> T:
    """Raises BrowserCallFailed when the call fails or takes longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise BrowserCallFailed(f"{action} took longer than {seconds:g} s") from None
    except Exception as error:  # Playwright raises plain ones too
        raise BrowserCallFailed(f"{action} failed: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:_MAX_REASON_CHARS]


def playwright_error() -> type[Error]:
    """Imported late: Playwright is an extra."""
    from playwright.async_api import Error

    return Error


class PlaywrightDriver:
    """The Node.js process that controls browsers. If it dies, all calls to its browsers fail."""

    def __init__(self, playwright: Playwright, pid: int) -> None:
        self.playwright = playwright
        self.pid = pid

    @classmethod
    async def start(cls) -> PlaywrightDriver:
        """Raises BrowserCallFailed."""
        from playwright.async_api import async_playwright

        if not has_home():
            raise BrowserCallFailed("Playwright needs a home folder, but this user has none", "set HOME to any folder")
        before = _driver_pids()
        manager = async_playwright()
        try:
            playwright = await bounded_call(manager.start(), _START_SECONDS, "starting Playwright's driver")
        except BaseException:
            for pid in _driver_pids() - before:
                _kill(pid)
            raise
        silence_driver_errors(manager)
        started = _driver_pids() - before
        if not started:
            raise BrowserCallFailed("Playwright's driver exited immediately after it started")
        return cls(playwright, started.pop())

    @property
    def is_running(self) -> bool:
        return processes.is_running(self.pid)

    async def stop(self) -> None:
        """Leaves no process behind."""
        try:
            with suppress(BrowserCallFailed):
                await bounded_call(self.playwright.stop(), _CLOSE_SECONDS, "stopping Playwright's driver")
        finally:
            _kill(self.pid)


def _driver_pids() -> set[int]:
    """Playwright does not tell which child process is its driver."""
    return {child.pid for child in psutil.Process().children() if "run-driver" in processes.command_line(child.pid)}


def _kill(pid: int) -> None:
    with suppress(psutil.Error):
        psutil.Process(pid).kill()


def silence_driver_errors(manager: Any) -> None:
    """Playwright leaves a dead driver's error in a future that nobody awaits, and asyncio logs that."""
    transport = getattr(getattr(manager, "_client", None), "_transport", None)
    error = getattr(transport, "on_error_future", None)
    if isinstance(error, asyncio.Future):
        error.add_done_callback(lambda done: done.cancelled() or done.exception())


class Chromium:
    """Started with `launch`. `ended` has the reason as soon as it has died or must not be used any more."""

    def __init__(self, handle: Browser, session: CDPSession, user_agent: str, pid: int, clock: Clock) -> None:
        self.pid = pid
        self.version = handle.version
        self.user_agent = user_agent
        self.profile = processes.profile_of(pid)
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._folders = processes.profile_folders(self.profile)
        self._handle = handle
        self._session = session
        self._clock = clock
        handle.on("disconnected", lambda _: self.end("the browser crashed"))

    def end(self, reason: str) -> None:
        """Marks the browser as unusable. Only the first reason is kept."""
        if not self.ended.done():
            self.ended.set_result(reason)

    async def new_page(self, agent: str = "", **context_options: Any) -> tuple[BrowserContext, Page]:
        """Opens a page in a new context. `agent` is appended to the user agent. Raises BrowserCallFailed."""
        if agent:
            context_options["user_agent"] = f"{self.user_agent} {agent}"
        opening = self._handle.new_context(**context_options)
        context = await bounded_call(opening, _PAGE_SECONDS, "opening a context")
        return context, await bounded_call(context.new_page(), _PAGE_SECONDS, "opening a page")

    async def close_pages(self) -> None:
        """Closes all contexts, including any whose opener was cancelled. Raises BrowserCallFailed."""
        for context in self._handle.contexts:
            await bounded_call(context.close(), _ANSWER_SECONDS, "closing a page")

    async def check(self) -> None:
        """Raises BrowserCallFailed if the browser does not respond."""
        await bounded_call(self._session.send("Browser.getVersion"), _ANSWER_SECONDS, "a health check")

    def memory(self) -> int:
        return processes.memory(processes.members(self.pid))

    def kill(self) -> None:
        processes.kill(self.pid)

    async def close(self) -> None:
        """Kills the browser, which has nothing to save, and removes its folders."""
        self.end("the browser was closed")
        await processes.kill_and_wait(self.pid, self._clock)
        await asyncio.to_thread(processes.remove_folders, self._folders)


async def launch(driver: PlaywrightDriver, executable: str, marker: str, *, sandbox: bool, clock: Clock) -> Chromium:
    """Raises BrowserCallFailed after removing everything it started."""
    handle = None
    try:
        starting = driver.playwright.chromium.launch(
            executable_path=executable,
            args=[*SWITCHES, f"{processes.MARKER_SWITCH}{marker}"],
            chromium_sandbox=sandbox,
            handle_sigint=False,  # the worker decides when a browser ends
            handle_sigterm=False,
            handle_sighup=False,
            timeout=_START_SECONDS * 1000,
        )
        handle = await bounded_call(starting, _START_SECONDS + 5, "starting Chromium")
        opening = handle.new_browser_cdp_session()
        session = await bounded_call(opening, _START_SECONDS, "connecting to Chromium")
        asking = session.send("Browser.getVersion")
        about = await bounded_call(asking, _START_SECONDS, "getting Chromium's version")
        pids = processes.find_browsers(marker)
        if not pids:
            hint = "set browser.executable to Chromium itself, not to a script that drops switches"
            raise BrowserCallFailed(f"no process of {executable} has the switch that identifies it", hint)
    except BaseException as error:
        for pid in processes.find_browsers(marker):
            processes.kill(pid)
        if handle is not None:
            with suppress(BrowserCallFailed):
                await bounded_call(handle.close(), _CLOSE_SECONDS, "closing Chromium")
        if isinstance(error, BrowserCallFailed):
            raise _explained(error) from error
        raise
    return Chromium(handle, session, about["userAgent"], pids[0], clock)


def _explained(error: BrowserCallFailed) -> BrowserCallFailed:
    """Adds Chromium's own error, which Playwright buries in a long message."""
    text = str(error.__cause__ or "")
    if "sandboxing failed" in text or "No usable sandbox" in text:
        return BrowserCallFailed(
            "Chromium cannot start: its sandbox does not work here", "set browser.sandbox to auto or off"
        )
    lines = re.findall(r"\[err\] (.+)", text)
    return BrowserCallFailed(f"Chromium cannot start: {lines[-1][:_MAX_REASON_CHARS]}") if lines else error


class LeasedPage:
    """A page in its own context. Belongs to the pool's event loop; all Playwright calls go through `call`."""

    def __init__(self, chromium: Chromium, context: BrowserContext, page: Page) -> None:
        self.context = context
        self.page = page
        self._chromium = chromium
        self._has_crashed = False

    @property
    def has_crashed(self) -> bool:
        return self._has_crashed or self._chromium.ended.done()

    async def call(self, work: Awaitable[T]) -> T:
        """Awaits `work`. Raises BrowserCrashed if the browser, the page or the driver is gone."""
        try:
            return await work
        except playwright_error() as error:
            if _PAGE_CRASHED.search(error.message):
                self._has_crashed = True
                raise BrowserCrashed("the page crashed") from None
            if _LOST.search(error.message):
                self._chromium.end(f"the browser was lost: {first_line(error)}")
            if self._chromium.ended.done():
                raise BrowserCrashed(self._chromium.ended.result()) from None
            raise

    def stop(self, reason: str) -> None:
        """Kills the browser because of the page's behavior: closing the page could take as long as that lasts."""
        self._chromium.end(reason)
        self._chromium.kill()
