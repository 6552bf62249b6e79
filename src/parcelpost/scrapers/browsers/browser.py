"""One running Chromium: started, watched, measured, ended."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.scrapers.browsers import folders, processes
from parcelpost.scrapers.browsers.bounded import NotDone, bounded
from parcelpost.scrapers.browsers.driver import Driver
from parcelpost.scrapers.browsers.marked import SWITCH, Marked
from parcelpost.scrapers.browsers.processes import Process
from parcelpost.scrapers.browsers.switches import SWITCHES
from parcelpost.scrapers.browsers.watching import Watch

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, CDPSession, Page

Cause = Literal["unknown", "ours", "page"]
"""Of a browser's end: we wanted it for our own reasons, or because of what the page did."""

_LAUNCH_SECONDS = 60.0
_ANSWER_SECONDS = 10.0
_PAGE_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
_GONE_SECONDS = 10.0
_LOOK_EVERY_SECONDS = 0.02


class Launch(Struct, frozen=True, kw_only=True):
    """How a browser is to be started."""

    executable: str
    marker: str
    sandbox: bool


class Chromium:
    """Started with `launch`. `over` has the reason as soon as it is dead or unfit, from whatever side that is seen."""

    def __init__(
        self, handle: Browser, session: CDPSession, process: Process, driver: Driver, marker: str, clock: Clock
    ) -> None:
        self.process = process
        self.marker = marker
        self.driver = driver
        self.version = handle.version
        self.executable = processes.executable(process.pid)
        self.profile = folders.profile_of(process.pid)
        self._folders = folders.of(self.profile)
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.cause: Cause = "unknown"
        self._handle = handle
        self._session = session
        self._clock = clock
        self._watch = Watch(process, lambda: self.end("the browser died"), clock)
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
        context = await bounded(opening, _PAGE_SECONDS, "opening a context", self.over)
        return context, await bounded(context.new_page(), _PAGE_SECONDS, "opening a page", self.over)

    async def close_pages(self) -> None:
        """All of them, those that nobody waited for to open too. Raises NotDone."""
        for context in self._handle.contexts:
            await bounded(context.close(), _ANSWER_SECONDS, "closing a page", self.over)

    async def answers(self) -> None:
        """Raises NotDone where it does not."""
        await bounded(self._session.send("Browser.getVersion"), _ANSWER_SECONDS, "a health check", self.over)

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
            with suppress(NotDone):  # it is killed
                await bounded(self._handle.close(), _CLOSE_SECONDS, "closing a browser", never)
        return await make_sure(self.processes, self._folders, self._clock)

    def _lose_driver(self, died: asyncio.Future[str]) -> None:
        self.end(died.result())
        self.kill()


async def launch(driver: Driver, how: Launch, clock: Clock) -> Chromium:
    """Raises NotDone, and leaves nothing behind then."""
    try:
        starting = driver.playwright.chromium.launch(
            executable_path=how.executable,
            args=[*SWITCHES, f"{SWITCH}{how.marker}"],
            chromium_sandbox=how.sandbox,
            handle_sigint=False,  # the worker says when a browser ends
            handle_sigterm=False,
            handle_sighup=False,
            timeout=_LAUNCH_SECONDS * 1000,
        )
        handle = await bounded(starting, _LAUNCH_SECONDS + 5, "starting Chromium", driver.died)
        opening = handle.new_browser_cdp_session()
        session = await bounded(opening, _ANSWER_SECONDS, "asking Chromium", driver.died)
        asking = session.send("SystemInfo.getProcessInfo")
        process = _process(await bounded(asking, _ANSWER_SECONDS, "asking Chromium for its process", driver.died))
    except NotDone as error:
        processes.kill(Marked(how.marker).left())
        raise _explained(error) from error
    except BaseException:
        processes.kill(Marked(how.marker).left())
        raise
    return Chromium(handle, session, process, driver, how.marker, clock)


async def make_sure(left: Callable[[], list[Process]], its_folders: Sequence[Path], clock: Clock) -> bool:
    """Kills what is left until nothing is, then removes its folders. Whether nothing is."""
    give_up_at = clock.monotonic() + _GONE_SECONDS
    while found := left():
        if clock.monotonic() > give_up_at:
            return False
        processes.kill(found)
        processes.reap(found)
        await clock.sleep(_LOOK_EVERY_SECONDS)
    await asyncio.to_thread(folders.remove, its_folders)
    return True


def _explained(error: NotDone) -> NotDone:
    """What Chromium said itself, which Playwright has in its long text."""
    text = str(error.__cause__ or "")
    if "sandboxing failed" in text or "No usable sandbox" in text:
        return NotDone("Chromium cannot start: its sandbox does not work here", "set browser.sandbox to auto or off")
    said = re.findall(r"\[err\] (.+)", text)
    return NotDone(f"Chromium cannot start: {said[-1][:300]}") if said else error


def _process(answer: Any) -> Process:
    pids = [int(one["id"]) for one in answer["processInfo"] if one["type"] == "browser"]
    found = processes.look(pids[0]) if pids else None
    if found is None:
        raise NotDone("Chromium was gone as soon as it had started")
    return found
