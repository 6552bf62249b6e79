"""One running Chromium, Playwright's driver behind it, and calls to both that always end in time."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.scrapers.browser import processes
from parcelpost.scrapers.browser.chromium import SWITCHES, has_home
from parcelpost.scrapers.browser.processes import MARKER_SWITCH, MarkedProcesses, Process, ProcessWatch
from parcelpost.scrapers.fetch.errors import BrowserCrashed

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, CDPSession, Page, Playwright


T = TypeVar("T")

_LONGEST_REASON = 300


class BrowserCallFailed(Exception):
    """A call of Playwright failed, took too long, or lost what it was made to."""

    def __init__(self, reason: str, hint: str = "", *, is_late: bool = False) -> None:
        super().__init__(reason)
        self.hint = hint
        """What a person can do, where it is known."""
        self.is_late = is_late


async def bounded_call(work: Awaitable[T], seconds: float, what: str, over: asyncio.Future[str]) -> T:
    """What it brings. Raises NotDone when it fails in any way, after `seconds`, or as soon as `over` says why."""
    task = asyncio.ensure_future(work)
    either: set[asyncio.Future[Any]] = {task, over}
    try:
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            abandon(task)
    if not task.done():
        if over.done():
            raise BrowserCallFailed(over.result())
        raise BrowserCallFailed(f"{what} took longer than {seconds:g} s", is_late=True)
    if task.cancelled():
        raise BrowserCallFailed(f"{what} was broken off")
    if error := task.exception():
        raise BrowserCallFailed(f"{what} failed: {first_line(error)}") from error
    return task.result()


def abandon(task: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more, and nobody wants its error."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    task.cancel()


def first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:_LONGEST_REASON]


_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_DRIVER_ARGUMENT = "run-driver"


class PlaywrightDriver:
    """Started with `Driver.start`. When it dies its browsers run on and look connected: `died` says it at once."""

    def __init__(self, playwright: Playwright, process: Process, clock: Clock) -> None:
        self.playwright = playwright
        self.process = process
        self.died: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why, once it has."""
        self._watch = ProcessWatch(process, self._is_dead, clock)

    @classmethod
    async def start(cls, clock: Clock) -> PlaywrightDriver:
        """Raises NotDone."""
        from playwright.async_api import async_playwright

        if not has_home():
            raise BrowserCallFailed("Playwright needs a home folder, and this user has none", "set HOME to any folder")
        before = _drivers()
        manager = async_playwright()
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        try:
            playwright = await bounded_call(manager.start(), _START_SECONDS, "starting Playwright's driver", never)
            silence_driver_errors(manager)
            process = next((one for pid, one in _drivers().items() if pid not in before), None)
        except BaseException:
            processes.kill(process for pid, process in _drivers().items() if pid not in before)
            raise
        if process is None:
            raise BrowserCallFailed("Playwright's driver was gone as soon as it had started")
        return cls(playwright, process, clock)

    @property
    def is_running(self) -> bool:
        """Asked of the system, which knows before we have heard of it."""
        return not self.died.done() and processes.is_running(self.process.pid, self.process.started)

    async def stop(self) -> None:
        """Leaves no process, whatever state it is in."""
        self._watch.stop()
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        try:
            with suppress(BrowserCallFailed):  # it is killed
                await bounded_call(self.playwright.stop(), _STOP_SECONDS, "stopping Playwright's driver", never)
        finally:
            self.kill()

    def kill(self) -> None:
        if processes.is_running(self.process.pid, self.process.started):
            processes.kill([self.process])

    def _is_dead(self) -> None:
        if not self.died.done():
            self.died.set_result("Playwright's driver died")


def is_driver(process: Process) -> bool:
    return _DRIVER_ARGUMENT in processes.command_line(process.pid)


def _drivers() -> dict[int, Process]:
    """Of this process: Playwright does not tell which is its own."""
    children = (one for one in processes.all_processes() if one.parent == os.getpid())
    return {one.pid: one for one in children if is_driver(one)}


def silence_driver_errors(manager: Any) -> None:
    """Playwright leaves the error of a dead driver in a future that nobody asks, of which asyncio complains."""
    transport = getattr(getattr(manager, "_client", None), "_transport", None)
    error = getattr(transport, "on_error_future", None)
    if isinstance(error, asyncio.Future):
        error.add_done_callback(lambda done: done.cancelled() or done.exception())


Cause = Literal["unknown", "ours", "page"]
"""Of a browser's end: we wanted it for our own reasons, or because of what the page did."""

_LAUNCH_SECONDS = 60.0
_ANSWER_SECONDS = 10.0
_PAGE_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
_GONE_SECONDS = 10.0
_LOOK_EVERY_SECONDS = 0.02


class LaunchOptions(Struct, frozen=True, kw_only=True):
    """How a browser is to be started."""

    executable: str
    marker: str
    sandbox: bool


class Chromium:
    """Started with `launch`. `over` has the reason as soon as it is dead or unfit, from whatever side that is seen."""

    def __init__(
        self,
        handle: Browser,
        session: CDPSession,
        process: Process,
        driver: PlaywrightDriver,
        marker: str,
        clock: Clock,
    ) -> None:
        self.process = process
        self.marker = marker
        self.driver = driver
        self.version = handle.version
        self.executable = processes.executable(process.pid)
        self.profile = processes.profile_of(process.pid)
        self._folders = processes.profile_folders(self.profile)
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.cause: Cause = "unknown"
        self._handle = handle
        self._session = session
        self._clock = clock
        self._watch = ProcessWatch(process, lambda: self.end("the browser died"), clock)
        handle.on("disconnected", lambda _: self.end("the browser died"))
        driver.died.add_done_callback(self._lose_driver)

    def end(self, reason: str, cause: Cause = "unknown") -> None:
        """It is of no use any more; only the first reason counts."""
        if not self.over.done():
            self.cause = cause
            self.over.set_result(reason)

    @property
    def is_running(self) -> bool:
        """Asked of the system, which knows before we have heard of it."""
        alive = processes.is_running(self.process.pid, self.process.started)
        return alive and self.driver.is_running and not self.over.done()

    async def fresh_page(self, **context_options: Any) -> tuple[BrowserContext, Page]:
        """In a context of its own. Raises NotDone."""
        opening = self._handle.new_context(**context_options)
        context = await bounded_call(opening, _PAGE_SECONDS, "opening a context", self.over)
        return context, await bounded_call(context.new_page(), _PAGE_SECONDS, "opening a page", self.over)

    async def close_pages(self) -> None:
        """All of them, those that nobody waited for to open too. Raises NotDone."""
        for context in self._handle.contexts:
            await bounded_call(context.close(), _ANSWER_SECONDS, "closing a page", self.over)

    async def answers(self) -> None:
        """Raises NotDone where it does not."""
        await bounded_call(self._session.send("Browser.getVersion"), _ANSWER_SECONDS, "a health check", self.over)

    def memory(self) -> int:
        return processes.memory(self.processes())

    def processes(self) -> list[Process]:
        return processes.group_of(self.process.pid, self.process.started, self.executable)

    def kill(self) -> None:
        """All its processes, at once."""
        processes.kill(self.processes())

    async def close(self, *, kindly: bool) -> bool:
        """By force where it does not listen. Whether nothing is left of it."""
        self.end("the browser was closed")
        self._watch.stop()
        self.driver.died.remove_done_callback(self._lose_driver)
        if kindly and self.driver.is_running:
            never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            with suppress(BrowserCallFailed):  # it is killed
                await bounded_call(self._handle.close(), _CLOSE_SECONDS, "closing a browser", never)
        return await ensure_gone(self.processes, self._folders, self._clock)

    def _lose_driver(self, died: asyncio.Future[str]) -> None:
        self.end(died.result())
        self.kill()


async def launch(driver: PlaywrightDriver, how: LaunchOptions, clock: Clock) -> Chromium:
    """Raises NotDone, and leaves nothing behind then."""
    try:
        starting = driver.playwright.chromium.launch(
            executable_path=how.executable,
            args=[*SWITCHES, f"{MARKER_SWITCH}{how.marker}"],
            chromium_sandbox=how.sandbox,
            handle_sigint=False,  # the worker says when a browser ends
            handle_sigterm=False,
            handle_sighup=False,
            timeout=_LAUNCH_SECONDS * 1000,
        )
        handle = await bounded_call(starting, _LAUNCH_SECONDS + 5, "starting Chromium", driver.died)
        opening = handle.new_browser_cdp_session()
        session = await bounded_call(opening, _ANSWER_SECONDS, "asking Chromium", driver.died)
        asking = session.send("SystemInfo.getProcessInfo")
        process = _process(await bounded_call(asking, _ANSWER_SECONDS, "asking Chromium for its process", driver.died))
    except BrowserCallFailed as error:
        processes.kill(MarkedProcesses(how.marker).left())
        raise _explained(error) from error
    except BaseException:
        processes.kill(MarkedProcesses(how.marker).left())
        raise
    return Chromium(handle, session, process, driver, how.marker, clock)


async def ensure_gone(left: Callable[[], list[Process]], its_folders: Sequence[Path], clock: Clock) -> bool:
    """Kills what is left until nothing is, then removes its folders. Whether nothing is."""
    give_up_at = clock.monotonic() + _GONE_SECONDS
    while found := left():
        if clock.monotonic() > give_up_at:
            return False
        processes.kill(found)
        processes.reap(found)
        await clock.sleep(_LOOK_EVERY_SECONDS)
    await asyncio.to_thread(processes.remove_folders, its_folders)
    return True


def _explained(error: BrowserCallFailed) -> BrowserCallFailed:
    """What Chromium said itself, which Playwright has in its long text."""
    text = str(error.__cause__ or "")
    if "sandboxing failed" in text or "No usable sandbox" in text:
        return BrowserCallFailed(
            "Chromium cannot start: its sandbox does not work here", "set browser.sandbox to auto or off"
        )
    said = re.findall(r"\[err\] (.+)", text)
    return BrowserCallFailed(f"Chromium cannot start: {said[-1][:300]}") if said else error


def _process(answer: Any) -> Process:
    pids = [int(one["id"]) for one in answer["processInfo"] if one["type"] == "browser"]
    found = processes.find_process(pids[0]) if pids else None
    if found is None:
        raise BrowserCallFailed("Chromium was gone as soon as it had started")
    return found


_CRASHED = re.compile(r"(Target|Page) crashed")


class ChromiumPage:
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
                abandon(task)
        if task.done() and not task.cancelled():
            error = task.exception()
            if error is None:
                return task.result()
            if _CRASHED.search(str(error)):
                self._crash()  # before anybody listened
        if death := self.death:
            abandon(task)
            raise BrowserCrashed(death)
        return await task  # whatever else went wrong

    def stop(self, reason: str) -> None:
        """Ends its browser at once, for what the page does: closing it would take its turn behind that."""
        self._chromium.end(reason, "page")
        self._chromium.kill()

    def _crash(self) -> None:
        if not self._crashed.done():
            self._crashed.set_result("the page crashed")
