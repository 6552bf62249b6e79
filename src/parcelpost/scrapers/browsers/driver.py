"""Playwright's driver: the process between us and all browsers of a pool."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from parcelpost.clock import Clock
from parcelpost.scrapers.browsers import processes
from parcelpost.scrapers.browsers.bounded import NotDone, bounded
from parcelpost.scrapers.browsers.chromium import has_home
from parcelpost.scrapers.browsers.processes import Process
from parcelpost.scrapers.browsers.watching import Watch

if TYPE_CHECKING:
    from playwright.async_api import Playwright

_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_WORD = "run-driver"


class Driver:
    """Started with `Driver.start`. When it dies its browsers run on and look connected: `died` says it at once."""

    def __init__(self, playwright: Playwright, process: Process, clock: Clock) -> None:
        self.playwright = playwright
        self.process = process
        self.died: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why, once it has."""
        self._watch = Watch(process, self._is_dead, clock)

    @classmethod
    async def start(cls, clock: Clock) -> Driver:
        """Raises NotDone."""
        from playwright.async_api import async_playwright

        if not has_home():
            raise NotDone("Playwright needs a home folder, and this user has none", "set HOME to any folder")
        before = _drivers()
        manager = async_playwright()
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        try:
            playwright = await bounded(manager.start(), _START_SECONDS, "starting Playwright's driver", never)
            take_note_of_errors(manager)
            process = next((one for pid, one in _drivers().items() if pid not in before), None)
        except BaseException:
            processes.kill(process for pid, process in _drivers().items() if pid not in before)
            raise
        if process is None:
            raise NotDone("Playwright's driver was gone as soon as it had started")
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
            with suppress(NotDone):  # it is killed
                await bounded(self.playwright.stop(), _STOP_SECONDS, "stopping Playwright's driver", never)
        finally:
            self.kill()

    def kill(self) -> None:
        if processes.is_running(self.process.pid, self.process.started):
            processes.kill([self.process])

    def _is_dead(self) -> None:
        if not self.died.done():
            self.died.set_result("Playwright's driver died")


def is_driver(process: Process) -> bool:
    return _WORD in processes.command_line(process.pid)


def _drivers() -> dict[int, Process]:
    """Of this process: Playwright does not tell which is its own."""
    children = (one for one in processes.everyone() if one.parent == os.getpid())
    return {one.pid: one for one in children if is_driver(one)}


def take_note_of_errors(manager: Any) -> None:
    """Playwright leaves the error of a dead driver in a future that nobody asks, of which asyncio complains."""
    transport = getattr(getattr(manager, "_client", None), "_transport", None)
    error = getattr(transport, "on_error_future", None)
    if isinstance(error, asyncio.Future):
        error.add_done_callback(lambda done: done.cancelled() or done.exception())
