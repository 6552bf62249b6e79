"""Browser pools with a real store and real browsers, and what really runs."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from parcelpost.clock import SystemClock
from parcelpost.events import Event
from parcelpost.model import BrowserState
from parcelpost.scrapers.browser import processes
from parcelpost.scrapers.browser.chromium import ChromiumMissing, find
from parcelpost.scrapers.browser.pool import BrowserPool
from parcelpost.settings.schema import BrowserSettings
from parcelpost.storage import LocalPersistenceManager

T = TypeVar("T")

TIMEOUT = 120.0
POLL_SECONDS = 0.05
PAST_THE_GUARD = {"server": "http://127.0.0.1:9", "bypass": "127.0.0.1"}
"""For pages that load from this machine without the guard's proxy: without one they load nothing."""
SCRIPT = Path(__file__).with_name("leaser.py")

needs_chromium = pytest.mark.skipif(isinstance(find(), ChromiumMissing), reason="Chromium is not installed")


class PoolRig:
    """A pool on a store, and what both report."""

    def __init__(self, lpm: LocalPersistenceManager, pool: BrowserPool, events: list[Event]) -> None:
        self._other_drivers = drivers()
        self.lpm = lpm
        self.pool = pool
        self.events = events

    async def rows(self) -> list[BrowserState]:
        return [row for row in await self.lpm.browsers.all() if row.owner == self.lpm.owner_id]

    async def row(self) -> BrowserState:
        (row,) = await self.rows()
        return row

    async def disagreement(self) -> str:
        """Between the table and the processes that run; '': there is none."""
        rows = await self.rows()
        running = {marker for row in rows for marker in markers(row.marker.split("-")[0])}
        if unknown := running - {row.marker for row in rows}:
            return f"{unknown} is not in the table"
        for row in rows:
            if row.status in ("idle", "busy") and row.marker not in running:
                return f"{row} does not run"
            if (row.status == "busy") != (row.current_task_id is not None):
                return f"{row} has the wrong task"
        return ""

    async def agrees(self) -> None:
        """The table and what runs agree, now or soon: a crash is written down when it is noticed."""
        async with asyncio.timeout(TIMEOUT):
            while await self.disagreement():
                await asyncio.sleep(POLL_SECONDS)

    async def none_left(self) -> None:
        async with asyncio.timeout(TIMEOUT):
            while await self.rows():
                await asyncio.sleep(POLL_SECONDS)

    async def until(self, is_so: Callable[[BrowserState], bool]) -> BrowserState:
        """Returns the only browser, once that is true of it."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                rows = await self.rows()
                if len(rows) == 1 and is_so(rows[0]):
                    return rows[0]
                await asyncio.sleep(POLL_SECONDS)

    async def use(self, task_id: str = "next") -> None:
        async with self.pool.lease(task_id, timeout=TIMEOUT) as leased:
            assert await leased.call(leased.page.evaluate("6 * 7")) == 42

    def drivers(self) -> list[int]:
        """The pool's own, not those of other tests in this process."""
        return list(drivers() - self._other_drivers)

    def emitted(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def a_pool(store: Path, **options: Any) -> AsyncIterator[PoolRig]:
    """At its end nothing is left of it, in the table or in the system."""
    events: list[Event] = []
    before = drivers()
    async with LocalPersistenceManager.open(store) as lpm:
        opened = BrowserPool.open(
            BrowserSettings(**options), lpm.browsers, owner=lpm.owner_id, clock=SystemClock(), emit=events.append
        )
        tokens: set[str] = set()
        async with opened as pool:
            rig = PoolRig(lpm, pool, events)
            try:
                yield rig
            finally:
                tokens |= {row.marker.split("-")[0] for row in await rig.rows() if row.marker}
        assert await rig.rows() == []
        assert [marker for token in tokens for marker in markers(token)] == []
        assert drivers() <= before


def drivers(parent: int | None = None) -> set[int]:
    """Playwright's, of a process; None: of this one."""
    found = psutil.Process(parent or os.getpid()).children()
    return {child.pid for child in found if "run-driver" in processes.command_line(child.pid)}


def markers(token: str) -> set[str]:
    """Of all browsers that run, of the pool with that token."""
    pattern = re.compile(rf"{processes.MARKER_SWITCH}({token}\S*)")
    found = (pattern.search(processes.command_line(pid)) for pid in processes.find_browsers(token))
    return {one[1] for one in found if one}


def members(row: BrowserState) -> list[int]:
    assert row.pid is not None
    return processes.members(row.pid)


def renderers(row: BrowserState) -> list[int]:
    return [pid for pid in members(row) if "--type=renderer" in processes.command_line(pid)]


def kill(pid: int | None) -> None:
    """Unless another kill was first."""
    assert pid is not None
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def gone(some: Callable[[], list[int]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while some():
            await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def a_leaser(store: Path, pages: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[BrowserState]]]:
    """Another process with a pool that has leased so many pages, and its rows."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), str(store), str(pages), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            owner = (await child.stdout.readline()).decode().strip()
        assert owner, "the process has ended"
        async with LocalPersistenceManager.open(store) as lpm:
            yield child, [row for row in await lpm.browsers.all() if row.owner == owner]
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()


@asynccontextmanager
async def a_stranger(folder: Path) -> AsyncIterator[int]:
    """Somebody else's Chromium, with a marker of its own. Yields its process id."""
    found = find()
    assert not isinstance(found, ChromiumMissing)
    switches = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={folder}")
    child = await asyncio.create_subprocess_exec(
        *(found.path, *switches, f"{processes.MARKER_SWITCH}of-a-stranger", "about:blank"),
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield child.pid
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
        shutil.rmtree(folder, ignore_errors=True)
